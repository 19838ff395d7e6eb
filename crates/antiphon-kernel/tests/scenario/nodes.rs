//! Nodes that fail: who is put aside, who steps in, and what becomes of the gang.

use expect_test::expect;

use crate::world::check;

#[test]
fn a_node_where_jobs_of_two_teams_fail_is_put_aside() {
    check(
        "nodes: n[0-1] 8 H100
         teams: rlhf, eval
           0s   submit a: 8 team=rlhf
           60s  a fails hardware
           65s  submit b: 8 team=eval
           90s  b fails hardware
           99s  why a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  settle job-1.1: retry in 10s, hardware
            65s  launch job-2.1 on n0[0-7]
            70s  launch job-1.2 on n1[0-7]
            90s  settle job-2.1: retry in 10s, hardware
            90s  n0 is put aside: hardware failures of jobs of 2 teams within 1h00m: job-1 of `rlhf`, job-2 of `eval`
            99s  why job-1: running
        "#]],
    );
}

/// Slurm and Kubernetes choose the devices of a node themselves.
#[test]
fn whoever_is_given_another_gpu_than_was_booked_changes_places() {
    check(
        "nodes: n0 4 H100
           0s   submit a: 2
           0s   submit b: 1
           5s   a holds 2,3
           6s   a holds 2,3
           7s   a holds 0
           8s   a holds 3,4
           9s   b exits 0
           10s  submit c: 1
           11s  a exits 0
           12s  submit d: 2",
        expect![[r#"
            0s   launch job-1.1 on n0[0-1]
            0s   launch job-2.1 on n0[2]
            9s   settle job-2.1: succeeded
            10s  launch job-3.1 on n0[0]
            11s  settle job-1.1: succeeded
            12s  launch job-4.1 on n0[1-2]
        "#]],
    );
}

#[test]
fn failures_of_one_teams_jobs_alone_convict_no_node() {
    check(
        "nodes: n0 8 H100
         teams: rlhf, eval
           0s   submit a: 8 team=rlhf retries=9
           60s  a fails hardware
           100s a fails hardware
           200s a fails hardware
           400s state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  settle job-1.1: retry in 10s, hardware
            70s  launch job-1.2 on n0[0-7]
            100s settle job-1.2: retry in 20s, hardware
            120s launch job-1.3 on n0[0-7]
            200s settle job-1.3: retry in 40s, hardware
            240s launch job-1.4 on n0[0-7]
            400s job-1 is running
        "#]],
    );
}

#[test]
fn failures_more_than_an_hour_apart_convict_no_node() {
    check(
        "nodes: n0 8 H100
         teams: rlhf, eval
           0s   submit a: 8 team=rlhf retries=0
           60s  a fails hardware
           2h   submit b: 8 team=eval
           3h   b fails hardware",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  settle job-1.1: failed, hardware
            2h00m launch job-2.1 on n0[0-7]
            3h00m settle job-2.1: retry in 10s, hardware
        "#]],
    );
}

#[test]
fn software_that_fails_says_nothing_about_its_node() {
    check(
        "nodes: n0 8 H100
         teams: rlhf, eval
           0s   submit a: 8 team=rlhf retries=0
           60s  a exits 1
           61s  submit b: 8 team=eval retries=0
           62s  b exits 1
           63s  submit c: 8 team=eval",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  settle job-1.1: failed, software
            61s  launch job-2.1 on n0[0-7]
            62s  settle job-2.1: failed, software
            63s  launch job-3.1 on n0[0-7]
        "#]],
    );
}

#[test]
fn what_ends_while_it_is_being_stopped_says_nothing_about_its_node() {
    check(
        "nodes: n0 8 H100
         teams: rlhf, eval
           0s   submit a: 8 team=rlhf attached
           1s   preempt a
           2s   a fails hardware
           3s   hold a
           4s   a saves 1
           5s   submit b: 8 team=eval retries=0
           6s   b fails hardware
           7s   submit c: 8 team=eval",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   direct job-1 #1: yield (preempted by an operator)
            1s   yield job-1.1: preempted by an operator, at most 1m00s for its checkpoint
            2s   settle job-1.1: requeued
            2s   launch job-1.2 on n0[0-7]
            3s   direct job-1 #2: yield (hold)
            3s   yield job-1.2: hold, at most 1m00s for its checkpoint
            4s   settle job-1.2: held
            5s   launch job-2.1 on n0[0-7]
            6s   settle job-2.1: failed, hardware
            7s   launch job-3.1 on n0[0-7]
        "#]],
    );
}

#[test]
fn a_spare_steps_in_for_a_node_of_its_partition_and_steps_back() {
    check(
        "nodes: n[0-1] 8 H100, s0 8 H100 spare
           0s   submit a: 16
           1s   submit b: 8
           2s   why b
           3s   n1 goes
           4s   b exits 0
           5s   n1 comes
           6s   submit c: 8",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            1s   hold n0 for job-2, nobody knows when
            2s   why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 16
            3s   launch job-2.1 on s0[0-7]
            4s   settle job-2.1: succeeded
            6s   hold n0 for job-3, nobody knows when
        "#]],
    );
}

#[test]
fn a_gang_that_lost_a_node_keeps_the_others_until_a_spare_steps_in() {
    check(
        "nodes: n[0-2] 8 H100, s0 8 H100 spare
           0s   submit gang: 24 attached
           1s   submit other: 16
           60s  gang task 1 fails hardware
           61s  drain n1
           62s  why other
           90s  state gang",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7] n2[0-7]
            1s   hold n0 n1 for job-2, nobody knows when
            60s  SIGTERM job-1.1: job-1.1/main.1 failed and the gang with it, grace 1m00s
            60s  settle job-1.1: retry in 10s, hardware
            62s  why job-2: behind job-1 (standard), which waits for what this one would take and starts in 8s; nothing says how long this one runs: give a `time_limit`
            70s  launch job-1.2 on n0[0-7] n2[0-7] s0[0-7]
            70s  hold n0 n2 for job-2, nobody knows when
            90s  job-1 is running
        "#]],
    );
}

#[test]
fn nodes_are_checked_before_a_gang_of_several_starts_and_after_a_hardware_failure() {
    check(
        "nodes: n[0-1] 8 H100
         policy: node_check=nvidia-smi+-q
           0s   submit wide: 16
           1s   wide exits 0
           2s   submit narrow: 8
           3s   narrow fails hardware
           20s  state narrow",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7], checked first
            1s   settle job-1.1: succeeded
            2s   launch job-2.1 on n0[0-7]
            3s   settle job-2.1: retry in 10s, hardware
            13s  launch job-2.2 on n0[0-7], checked first
            20s  job-2 is running
        "#]],
    );
}

#[test]
fn a_node_whose_check_fails_is_put_aside_and_the_job_starts_elsewhere_at_once() {
    check(
        "nodes: n[0-2] 8 H100
         policy: node_check=nvidia-smi
           0s   submit wide: 16
           1s   wide task 1 is unfit
           2s   state wide
           3s   past wide
           4s   undrain n1
           5s   submit more: 8",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7], checked first
            1s   SIGTERM job-1.1: job-1.1/main.1 failed and the gang with it, grace 1m00s
            1s   settle job-1.1: requeued
            1s   n1 is put aside: its check failed before job-1 could start
            1s   launch job-1.2 on n0[0-7] n2[0-7], checked first
            2s   job-1 is running
            3s   job-1.1 ran on n0[0-7] n1[0-7] as standard for 1s: job-1.1/main.1 failed and the gang with it, requeued, lost 16 GPU-s
            5s   launch job-2.1 on n1[0-7]
        "#]],
    );
}

#[test]
fn an_idle_allocation_is_said_and_taken_back_only_where_the_policy_says_so() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           1h   a idle 2% for 30m
           2h   state a
           2h   policy: idle_reclaim_after_ms=3h
           3h   a works
           4h   state a
           5h   a idle 1% for 20m
           8h   a saves 5
           9h   past a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            2h00m job-1 is running, its GPUs at 2 % for 1h30m
            4h00m job-1 is running
            7h40m direct job-1 #1: yield (its GPUs were idle for 3h00m)
            7h40m yield job-1.1: its GPUs were idle for 3h00m, at most 1m00s for its checkpoint
            7h41m SIGTERM job-1.1: its GPUs were idle for 3h00m, grace 1m00s
            7h41m settle job-1.1: requeued
            7h41m launch job-1.2 on n0[0-7]
            9h00m job-1.1 ran on n0[0-7] as standard for 7h41m: its GPUs were idle for 3h00m, requeued, lost 61.46 GPU-h
        "#]],
    );
}

#[test]
fn a_node_that_shrinks_below_what_its_tasks_hold_takes_no_more_and_loses_nothing() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 6
           1s   submit b: 2
           2s   submit c: 1
           3s   nodes n0 4 H100
           4s   state a
           5s   b exits 0
           5s   why c
           6s   a exits 0
           7s   nodes n0 4 H100",
        expect![[r#"
            0s   launch job-1.1 on n0[0-5]
            1s   launch job-2.1 on n0[6-7]
            2s   hold n0 for job-3, nobody knows when
            4s   job-1 is running
            5s   settle job-2.1: succeeded
            5s   why job-3: waiting for 1 GPUs: 0 free, 8 on nodes that drain or are down; job-1 (standard) holds 6
            6s   settle job-1.1: succeeded
            7s   launch job-3.1 on n0[0]
        "#]],
    );
}

#[test]
fn a_node_that_goes_away_takes_what_is_held_back_there_elsewhere() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 limit=1h
           0s   submit b: 8 limit=2h
           1s   submit c: 8
           2s   n0 goes
           3s   why c",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   launch job-2.1 on n1[0-7]
            1s   hold n0 for job-3, in 59m59s
            2s   hold n1 for job-3, in 1h59m
            3s   why job-3: waiting for 8 GPUs: 0 free, best node n1 has 0 of 8, 8 on nodes that drain or are down; job-1 (standard) holds 8 for about 29m57s, job-2 (standard) holds 8 for about 59m57s
        "#]],
    );
}

#[test]
fn a_task_lost_with_its_node_is_hardware() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 16
           60s  a task 0 is lost
           90s  past a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            60s  SIGTERM job-1.1: job-1.1/main.0 failed and the gang with it, grace 1m00s
            60s  settle job-1.1: retry in 10s, hardware
            70s  launch job-1.2 on n0[0-7] n1[0-7]
            90s  job-1.1 ran on n0[0-7] n1[0-7] as standard for 1m00s: job-1.1/main.0 failed and the gang with it, retry in 10s, hardware, lost 0.26 GPU-h
        "#]],
    );
}
