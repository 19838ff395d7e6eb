//! Why a job waits, what would start it now, when it will start, and what happened to it.

use expect_test::expect;

use crate::world::check;

#[test]
fn all_that_keeps_a_job_is_told_the_ruling_reason_first() {
    check(
        "shared: licences=2
         nodes: n0 8 H100
         teams: rlhf budget=8, eval
           0s   submit a: 6 team=rlhf uses=licences:1
           2h   submit b: 4 team=rlhf uses=licences:2
           2h   reasons b
           2h   submit c: 1 team=rlhf after=b array=0-1 at-once=1 not-before=9h
           2h   reasons c[1]
           2h   pause
           2h   reasons b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-5]
            2h00m why job-2: waiting for 2 of `licences`: 1 free
            2h00m and: waiting for 4 GPUs: 2 free, best node n0 has 2 of 8; job-1 (standard) holds 6
            2h00m and: team `rlhf` has used 12.00 GPU-h of 8.00 GPU-h in seven days: its jobs count as best-effort for 6d22h more
            2h00m why job-4: waiting for job-2 to succeed
            2h00m and: 1 jobs of its array run, and at most 1 may at once
            2h00m and: not before a time that lies 7h00m ahead
            2h00m why job-2: deciding is paused until `antiphon unpause`: maintenance
        "#]],
    );
}

#[test]
fn a_job_that_is_not_submitted_is_answered_the_same() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 6 limit=1h
           1s   check b: 2
           2s   check c: 4
           3s   check d: 4 type=B200
           4s   check e: 16
           5s   state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-5]
            1s   check b: nothing
            2s   check c: waiting for 4 GPUs: 2 free, best node n0 has 2 of 8; job-1 (standard) holds 6 for about 29m58s
            3s   check d: [AP0109] no node has GPUs of type `B200`; there are: H100
            4s   check e: [AP0104] it asks for 16 GPUs: the whole cluster has 8, the widest node 8; ask for at most 8 in `[resources] gpus`, in tasks that fit the nodes; `antiphon nodes` shows them
            5s   job-1 is running
        "#]],
    );
}

#[test]
fn fewer_gpus_may_be_the_smallest_change() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 5 limit=2h
           1s   submit b: 8 limit=2h
           2s   change b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-4]
            1s   hold n0 for job-2, in 1h59m
            2s   job-2 would start with `gpus = 2`
        "#]],
    );
}

#[test]
fn a_shorter_limit_may_be_the_smallest_change() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 limit=4h
           1s   submit wide: 16
           2s   submit b: 8 limit=9h
           3s   change b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 n1 for job-2, in 3h59m
            3s   job-3 would start with `time_limit = "179m"`
        "#]],
    );
}

#[test]
fn another_gpu_type_may_be_the_smallest_change() {
    check(
        "nodes: n0 8 H100, n1 8 A100
           0s   submit a: 8 type=H100
           1s   submit b: 8 type=H100
           2s   change b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 for job-2, nobody knows when
            2s   job-2 would start with any `gpu_type`
        "#]],
    );
}

#[test]
fn an_undrained_node_may_be_the_smallest_change() {
    check(
        "nodes: n0 8 H100, n1 1 H100
           0s   drain n0
           1s   submit b: 7 tasks=1
           2s   change b",
        expect![[r#"
            2s   job-1 would start with `antiphon drain --undo n0`
        "#]],
    );
}

#[test]
fn a_higher_limit_of_the_team_may_be_the_smallest_change() {
    check(
        "nodes: n0 8 H100
         teams: rlhf limit=4
           0s   submit a: 4 team=rlhf
           1s   submit b: 4 team=rlhf
           2s   change b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            2s   job-2 would start with a limit of 8 GPUs for team `rlhf`
        "#]],
    );
}

#[test]
fn the_end_of_the_smallest_holder_may_be_the_smallest_change() {
    check(
        "nodes: n0 8 H100
           0s   submit large: 5
           0s   submit small: 3
           1s   submit b: 3
           2s   change b
           3s   submit c: 8
           4s   change c",
        expect![[r#"
            0s   launch job-1.1 on n0[0-4]
            0s   launch job-2.1 on n0[5-7]
            1s   hold n0 for job-3, nobody knows when
            2s   job-3 would start with the end of job-2
            4s   job-4 would start with none
        "#]],
    );
}

#[test]
fn what_is_decided_anyway_needs_no_change() {
    check(
        "nodes: n0 8 H100
           0s   pause
           0s   submit a: 8
           1s   change a
           2s   unpause
           3s   change a",
        expect![[r#"
            1s   job-1 would start with `antiphon unpause`
            2s   launch job-1.1 on n0[0-7]
            3s   job-1 would start with none
        "#]],
    );
}

#[test]
fn a_forecast_plays_the_whole_queue_and_gives_an_interval() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 estimate=30m-1h-2h
           0s   submit b: 8 estimate=2h-2h-2h
           0s   submit c: 8 estimate=3h-3h-3h
           1s   forecast b
           1s   forecast c
           1s   submit never: 8 held
           1s   forecast never",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   hold n0 for job-2, in 2h00m
            1s   job-2 starts in 59m59s, between 29m59s and 1h59m
            1s   job-3 starts in 2h59m, between 1h29m and 3h59m
            1s   job-4 starts nobody knows when
        "#]],
    );
}

#[test]
fn a_preempted_job_is_told_by_whom_by_which_rule_and_what_it_cost() {
    check(
        "nodes: n0 8 H100
         teams: owner quota=8, borrower
           0s   submit train: 8 team=borrower attached
           1h   train saves 100
           2h   submit back: 8 team=owner
           3h   past train
           3h   why train",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            2h00m direct job-1 #1: yield (for job-2 (reclaim of its team's quota))
            2h00m yield job-1.1: for job-2 (reclaim of its team's quota), at most 8s for its checkpoint
            2h00m hold n0 for job-2, in 1m08s
            2h00m08s SIGTERM job-1.1: for job-2 (reclaim of its team's quota), grace 1m00s
            2h00m08s settle job-1.1: requeued
            2h00m08s launch job-2.1 on n0[0-7]
            2h00m08s hold n0 for job-1, nobody knows when
            3h00m job-1.1 ran on n0[0-7] as standard for 2h00m: for job-2 (reclaim of its team's quota), requeued, lost 8.01 GPU-h
            3h00m why job-1: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-2 (standard) holds 8
        "#]],
    );
}

#[test]
fn a_running_job_is_told_why_it_runs_there() {
    check(
        "partitions: fast 400Gbps $2.00
         nodes: a[0-1] 8 H100 leaf=l0 partition=fast, b[0-3] 8 H100 leaf=l1 partition=fast
           0s   submit x: 12
           1s   score x",
        expect![[r#"
            0s   launch job-1.1 on a0[0-5] a1[0-5]
            1s   span leaf, nodes: 2
            1s   GPUs left free on its nodes: 4
            1s   price an hour in micro-dollars: 24000000
            1s   interconnect in Gbit/s: 400
        "#]],
    );
}
