//! What other schedulers are known to do wrong.

use expect_test::expect;

use crate::world::{check, play};

/// Elsewhere 376 tasks gave way to a request for 48 GPUs.
#[test]
fn a_request_for_48_gpus_evicts_48() {
    let out = play(
        "nodes: n[0-46] 8 H100
           0s   submit small: 1 best-effort array=0-375
           60s  submit urgent: 48 production
           61s  state urgent",
    );
    assert_eq!(out.matches("SIGTERM").count(), 48, "one each GPU");
    assert_eq!(out.lines().last(), Some("61s  job-377 is running"));
}

#[test]
fn of_many_gangs_only_those_are_stopped_whose_nodes_are_needed() {
    check(
        "nodes: n[0-9] 8 H100
           0s   submit gang: 16 best-effort array=0-4
           60s  submit urgent: 16 production",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            0s   launch job-2.1 on n2[0-7] n3[0-7]
            0s   launch job-3.1 on n4[0-7] n5[0-7]
            0s   launch job-4.1 on n6[0-7] n7[0-7]
            0s   launch job-5.1 on n8[0-7] n9[0-7]
            60s  SIGTERM job-1.1: for job-6 (priority), grace 1m00s
            60s  hold n0 n1 for job-6, in 1m00s
            60s  settle job-1.1: requeued
            60s  launch job-6.1 on n0[0-7] n1[0-7]
            60s  hold n0 n1 for job-1, nobody knows when
        "#]],
    );
}

/// Elsewhere reclaim took one task of each of ten gangs, and all ten stood still.
#[test]
fn reclaim_takes_whole_gangs_not_one_task_of_each() {
    check(
        "nodes: n[0-9] 8 H100
         teams: owner quota=8, borrower
           0s   submit gang: 8 team=borrower array=0-9 tasks=8
           60s  submit back: 8 team=owner
           61s  books",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   launch job-2.1 on n1[0-7]
            0s   launch job-3.1 on n2[0-7]
            0s   launch job-4.1 on n3[0-7]
            0s   launch job-5.1 on n4[0-7]
            0s   launch job-6.1 on n5[0-7]
            0s   launch job-7.1 on n6[0-7]
            0s   launch job-8.1 on n7[0-7]
            0s   launch job-9.1 on n8[0-7]
            0s   launch job-10.1 on n9[0-7]
            60s  SIGTERM job-1.1: for job-11 (reclaim of its team's quota), grace 1m00s
            60s  hold n0 for job-11, in 1m00s
            60s  settle job-1.1: requeued
            60s  launch job-11.1 on n0[0-7]
            60s  hold n0 for job-1, nobody knows when
            61s  owner holds 8, used 8 GPU-s, borrowed 0 GPU-s, lent 0.13 GPU-h
            61s  borrower holds 72, used 1.22 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
        "#]],
    );
}

/// Two gangs that each hold half of what both need wait for each other for ever.
#[test]
fn two_gangs_never_hold_half_each() {
    check(
        "nodes: n[0-3] 8 H100
           0s   submit a: 16
           0s   submit b: 16
           1s   submit c: 32
           1s   submit d: 32
           2s   a exits 0
           3s   why c
           4s   b exits 0
           5s   why d
           6s   c exits 0",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            0s   launch job-2.1 on n2[0-7] n3[0-7]
            1s   hold n0 n1 n2 n3 for job-3, nobody knows when
            2s   settle job-1.1: succeeded
            3s   why job-3: waiting for 32 GPUs: 16 free, best node n0 has 8 of 8; job-2 (standard) holds 16
            4s   settle job-2.1: succeeded
            4s   launch job-3.1 on n0[0-7] n1[0-7] n2[0-7] n3[0-7]
            4s   hold n0 n1 n2 n3 for job-4, nobody knows when
            5s   why job-4: waiting for 32 GPUs: 0 free, best node n0 has 0 of 8; job-3 (standard) holds 32
            6s   settle job-3.1: succeeded
            6s   launch job-4.1 on n0[0-7] n1[0-7] n2[0-7] n3[0-7]
        "#]],
    );
}

#[test]
fn two_jobs_never_preempt_each_other_in_turn() {
    for (classes, teams) in [
        (["production", "production"], ["a", "b"]),
        (["standard", "standard"], ["a", "b"]),
        (["production", "best-effort"], ["a", "b"]),
        (["best-effort", "standard"], ["a", "a"]),
    ] {
        let ([one, two], [left, right]) = (classes, teams);
        let out = play(&format!(
            "nodes: n0 8 H100
             teams: a quota=8, b quota=8
               0s   submit x: 8 team={left} {one}
               60s  submit y: 8 team={right} {two}
               24h  state x"
        ));
        let moved = out.matches("SIGTERM").count();
        assert!(moved <= 1, "{classes:?}: {out}");
    }
}

/// Elsewhere the gang of a node that was repaired had lost its other nodes to jobs that came later.
#[test]
fn a_gang_gets_its_place_back_when_its_node_is_repaired_at_once() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit gang: 16
           1s   submit later: 8
           60s  n1 goes
           61s  gang task 1 is lost
           65s  why later
           68s  n1 comes
           80s  state gang",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            1s   hold n0 for job-2, nobody knows when
            61s  SIGTERM job-1.1: job-1.1/main.1 failed and the gang with it, grace 1m00s
            61s  settle job-1.1: retry in 10s, hardware
            65s  why job-2: behind job-1 (standard), which waits for what this one would take and starts in 6s; nothing says how long this one runs: give a `time_limit`
            71s  launch job-1.2 on n0[0-7] n1[0-7]
            71s  hold n0 for job-2, nobody knows when
            80s  job-1 is running
        "#]],
    );
}

#[test]
fn a_gang_whose_node_is_repaired_later_goes_in_front_of_those_that_came_after_it() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit gang: 16 estimate=1h
           1s   submit later: 8 runs=20m estimate=20m
           60s  n1 goes
           61s  gang task 1 is lost
           70s  why later
           100s why gang
           200s submit second: 8 estimate=10m runs=10m
           10m  n1 comes
           11m  submit third: 8 estimate=1h
           12m  why third
           30m  state gang",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            1s   hold n0 for job-2, in 59m59s
            61s  SIGTERM job-1.1: job-1.1/main.1 failed and the gang with it, grace 1m00s
            61s  settle job-1.1: retry in 10s, hardware
            70s  why job-2: behind job-1 (standard), which waits for what this one would take and starts in 1s; this one may run for 20m00s
            71s  hold nothing for job-1
            71s  hold n0 for job-2, nobody knows when
            71s  launch job-2.1 on n0[0-7]
            100s why job-1: waiting for 16 GPUs: 0 free, best node n0 has 0 of 8, 8 on nodes that drain or are down; job-2 (standard) holds 8 for about 19m31s
            200s hold n0 for job-3, in 17m51s
            600s launch job-3.1 on n1[0-7]
            600s hold n0 n1 for job-1, in 11m11s
            720s why job-4: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-2 (standard) holds 8 for about 9m11s, job-3 (standard) holds 8 for about 8m00s
            1200s settle job-3.1: succeeded
            1271s settle job-2.1: succeeded
            1271s launch job-1.2 on n0[0-7] n1[0-7]
            1271s hold n0 for job-4, in 1h00m
            1800s job-1 is running
        "#]],
    );
}

/// Elsewhere jobs within their quota waited behind a deep queue of others that could not start.
#[test]
fn a_deep_queue_does_not_starve_beside_free_quota() {
    let out = play(
        "nodes: n[0-3] 8 H100, m0 8 A100
         teams: deep quota=8, other quota=8
           0s   submit base: 8 team=deep array=0-3 type=H100
           1s   submit deep: 8 team=deep array=0-4999 type=H100
           60s  submit x: 8 team=other type=H100
           61s  state x
           62s  submit y: 8 team=deep type=A100
           63s  state y",
    );
    assert!(out.contains("61s  job-5005 is running"), "{out}");
    assert!(out.contains("63s  job-5006 is running"), "{out}");
}

/// Elsewhere a node was ready while one of its GPUs was dead, and hundreds of tasks were sent there and refused.
#[test]
fn one_dead_gpu_on_a_ready_node_rejects_nobody() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 2
           1s   n0 loses GPU 5
           2s   submit b: 4
           3s   submit c: 1
           4s   submit d: 1
           5s   why d
           6s   submit e: 8",
        expect![[r#"
            0s   launch job-1.1 on n0[0-1]
            2s   launch job-2.1 on n0[2-4,6]
            3s   launch job-3.1 on n0[7]
            4s   hold n0 for job-4, nobody knows when
            5s   why job-4: waiting for 1 GPUs: 0 free, best node n0 has 0 of 8; job-2 (standard) holds 4, job-1 (standard) holds 2, job-3 (standard) holds 1
            6s   refused [AP0104]: it asks for 8 GPUs: the whole cluster has 7, the widest node 7; ask for at most 7 in `[resources] gpus`, in tasks that fit the nodes; `antiphon nodes` shows them
        "#]],
    );
}

#[test]
fn a_gpu_that_dies_under_a_job_is_not_given_to_the_next() {
    check(
        "nodes: n0 2 H100
           0s   submit a: 2
           1s   n0 loses GPU 0
           2s   a fails hardware
           3s   submit b: 1
           20s  why a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-1]
            2s   settle job-1.1: retry in 10s, hardware
            3s   launch job-2.1 on n0[1]
            20s  why job-1: waiting for 2 GPUs: 0 free, best node n0 has 0 of 2; job-2 (standard) holds 1
        "#]],
    );
}

/// Elsewhere a job that can never start took one victim each cycle for ever.
#[test]
fn a_job_that_cannot_start_preempts_nobody_cycle_after_cycle() {
    check(
        "shared: licences=1
         nodes: n[0-1] 8 H100 cpus=16
           0s   submit fixed: 1 production uses=licences:1 cpus=12
           1s   submit low: 1 best-effort array=0-9
           60s  submit urgent: 8 production uses=licences:1
           70s  submit greedy: 2 production tasks=2 cpus=16
           80s  submit tick: 0 array=0-9 runs=1m at-once=1
           2h   state urgent
           2h   state greedy",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            1s   launch job-2.1 on n0[1]
            1s   launch job-3.1 on n0[2]
            1s   launch job-4.1 on n0[3]
            1s   launch job-5.1 on n0[4]
            1s   launch job-6.1 on n0[5]
            1s   launch job-7.1 on n0[6]
            1s   launch job-8.1 on n0[7]
            1s   launch job-9.1 on n1[0]
            1s   launch job-10.1 on n1[1]
            1s   launch job-11.1 on n1[2]
            60s  hold n0 for job-12, nobody knows when
            80s  launch job-14.1 on n1
            140s settle job-14.1: succeeded
            140s launch job-15.1 on n1
            200s settle job-15.1: succeeded
            200s launch job-16.1 on n1
            260s settle job-16.1: succeeded
            260s launch job-17.1 on n1
            320s settle job-17.1: succeeded
            320s launch job-18.1 on n1
            380s settle job-18.1: succeeded
            380s launch job-19.1 on n1
            440s settle job-19.1: succeeded
            440s launch job-20.1 on n1
            500s settle job-20.1: succeeded
            500s launch job-21.1 on n1
            560s settle job-21.1: succeeded
            560s launch job-22.1 on n1
            620s settle job-22.1: succeeded
            620s launch job-23.1 on n1
            680s settle job-23.1: succeeded
            2h00m job-12 is pending
            2h00m job-13 is pending
        "#]],
    );
}

#[test]
fn a_preemptor_starts_on_what_its_victims_held() {
    check(
        "nodes: n0 8 H100
           0s   submit victim: 8 best-effort stubborn grace=60s
           60s  submit urgent: 8 production
           70s  submit thief: 4
           80s  submit rival: 8 production
           90s  submit web: 8 service
           3m   state urgent
           4m   web exits 0",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  SIGTERM job-1.1: for job-2 (priority), grace 1m00s
            60s  hold n0 for job-2, in 1m00s
            90s  hold n0 for job-5, in 30s
            120s SIGKILL job-1.1: its grace of 1m00s after SIGTERM is over
            120s hold n0 for job-5, nobody knows when
            120s settle job-1.1: requeued
            120s launch job-5.1 on n0[0-7]
            120s hold n0 for job-2, nobody knows when
            180s job-2 is pending
            240s settle job-5.1: succeeded
            240s launch job-2.1 on n0[0-7]
            240s hold n0 for job-4, nobody knows when
        "#]],
    );
}

/// Found by a storm: a job kept its note of one that waited for its start alone after telling it. That one ended and was
/// forgotten; the next start of the first, or its end, then looked for it in vain.
#[test]
fn a_job_that_starts_again_does_not_look_for_one_that_waited_for_its_first_start() {
    check(
        "nodes: n0 8 H100
         policy: ended_jobs_max=0
           0s   submit server: 4
           0s   submit client: 1 after-start=server runs=10s
           60s  server exits 1
           90s  server exits 0",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            0s   launch job-2.1 on n0[4]
            10s  settle job-2.1: succeeded
            60s  settle job-1.1: retry in 10s, software
            70s  launch job-1.2 on n0[0-3]
            90s  settle job-1.2: succeeded
        "#]],
    );
}

/// Found by storms (seeds 102 and 131): the place of a gang of two roles was proven while some of its own nodes were held for
/// it, was not found again once others were, and so was given up and held again in every cycle, without end. Here `main` takes
/// L40S only where nobody waits for the H100, which `b` cannot do without.
#[test]
fn a_place_that_was_proven_for_two_roles_is_found_again() {
    check(
        "nodes: n0 4 A100, n1 4 H100, n2 4 L40S
           0s   submit long: 4 type=A100 runs=2h estimate=2h
           0s   submit short: 4 type=H100 runs=30m estimate=30m
           0s   submit low: 4 type=L40S best-effort
           60s  submit gang: 4 role=b:4xH100
           40m  state low
           3h   state gang",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            0s   launch job-2.1 on n1[0-3]
            0s   launch job-3.1 on n2[0-3]
            60s  hold n0 n1 for job-4, in 1h59m
            1800s settle job-2.1: succeeded
            2400s job-3 is running
            2h00m settle job-1.1: succeeded
            2h00m launch job-4.1 on n0[0-3] n1[0-3]
            3h00m job-4 is running
        "#]],
    );
}
