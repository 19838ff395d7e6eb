//! Who is left alone, for how long, and whose protection falls first.

use expect_test::expect;

use crate::world::check;

#[test]
fn a_job_near_its_end_is_left_alone() {
    check(
        "nodes: n0 8 H100
           0s   submit train: 8 best-effort
           600s train progress 600 of 800
           601s submit urgent: 8 production
           602s why urgent
           800s train exits 0",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            601s hold n0 for job-2, in 4m09s
            602s why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (best-effort) holds 8 for about 3m18s
            800s settle job-1.1: succeeded
            800s launch job-2.1 on n0[0-7]
        "#]],
    );
}

/// What a trainer says of its end is its own word: it counts for half as long again as it first said, and once.
#[test]
fn a_job_that_is_always_nearly_done_is_left_alone_for_one_and_a_half_times_its_first_word() {
    check(
        "nodes: n0 8 H100
           0s   submit liar: 8 best-effort
           100s liar progress 0 of 200
           101s submit urgent: 8 production
           200s liar progress 0 of 200
           300s liar progress 0 of 200
           399s liar progress 0 of 200
           401s state urgent",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            101s hold n0 for job-2, in 4m09s
            200s hold n0 for job-2, in 4m10s
            300s hold n0 for job-2, in 4m10s
            399s hold n0 for job-2, in 4m10s
            400s SIGTERM job-1.1: for job-2 (priority), grace 1m00s
            400s hold n0 for job-2, in 1m00s
            400s settle job-1.1: requeued
            400s launch job-2.1 on n0[0-7]
            400s hold n0 for job-1, nobody knows when
            401s job-2 is running
        "#]],
    );
}

#[test]
fn the_near_end_is_given_once_in_a_jobs_life() {
    check(
        "nodes: n0 8 H100
           0s   submit liar: 8 best-effort
           100s liar progress 0 of 100
           300s liar fails hardware
           400s liar progress 0 of 100
           401s submit urgent: 8 production",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            300s settle job-1.1: retry in 10s, hardware
            310s launch job-1.2 on n0[0-7]
            401s SIGTERM job-1.2: for job-2 (priority), grace 1m00s
            401s hold n0 for job-2, in 1m00s
            401s settle job-1.2: requeued
            401s launch job-2.1 on n0[0-7]
            401s hold n0 for job-1, nobody knows when
        "#]],
    );
}

#[test]
fn a_job_is_moved_twice_an_hour_and_not_more() {
    check(
        "nodes: n0 8 H100
           0s   submit train: 8 best-effort
           60s  submit a: 8 production runs=60s
           200s submit b: 8 production runs=60s
           400s submit c: 8 production runs=60s
           401s why c
           1h   state c
           62m  past train",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  SIGTERM job-1.1: for job-2 (priority), grace 1m00s
            60s  hold n0 for job-2, in 1m00s
            60s  settle job-1.1: requeued
            60s  launch job-2.1 on n0[0-7]
            60s  hold n0 for job-1, nobody knows when
            120s settle job-2.1: succeeded
            120s launch job-1.2 on n0[0-7]
            200s SIGTERM job-1.2: for job-3 (priority), grace 1m00s
            200s hold n0 for job-3, in 1m00s
            200s settle job-1.2: requeued
            200s launch job-3.1 on n0[0-7]
            200s hold n0 for job-1, nobody knows when
            260s settle job-3.1: succeeded
            260s launch job-1.3 on n0[0-7]
            400s hold n0 for job-4, nobody knows when
            401s why job-4: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (best-effort) holds 8
            1h00m job-4 is pending
            1h01m SIGTERM job-1.3: for job-4 (priority), grace 1m00s
            1h01m hold n0 for job-4, in 1m00s
            1h01m settle job-1.3: requeued
            1h01m launch job-4.1 on n0[0-7]
            1h01m hold n0 for job-1, nobody knows when
            1h02m job-1.1 ran on n0[0-7] as best-effort for 1m00s: for job-2 (priority), requeued, lost 0.13 GPU-h
            1h02m job-1.2 ran on n0[0-7] as best-effort for 1m20s: for job-3 (priority), requeued, lost 0.17 GPU-h
            1h02m job-1.3 ran on n0[0-7] as best-effort for 56m40s: for job-4 (priority), requeued, lost 7.55 GPU-h
        "#]],
    );
}

#[test]
fn the_owner_of_a_quota_waits_half_an_hour_and_then_the_near_end_falls() {
    check(
        "nodes: n0 8 H100
         teams: owner quota=8, borrower
           0s   submit train: 8 team=borrower
           60s  train progress 0 of 3600
           61s  policy: near_end_ms=2h
           62s  train progress 0 of 3600
           90s  submit back: 8 team=owner
           100s why back
           1889s why back
           1h   state back",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            90s  hold n0 for job-2, in 1h14m
            100s why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8 for about 59m22s
            1889s why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8 for about 29m33s
            1890s SIGTERM job-1.1: for job-2 (reclaim of its team's quota), grace 1m00s
            1890s hold n0 for job-2, in 1m00s
            1890s settle job-1.1: requeued
            1890s launch job-2.1 on n0[0-7]
            1890s hold n0 for job-1, nobody knows when
            1h00m job-2 is running
        "#]],
    );
}

#[test]
fn after_the_near_end_the_hourly_bound_falls() {
    check(
        "nodes: n0 8 H100
         teams: owner quota=8, borrower
         policy: preemptions_per_hour_max=0
           0s   submit train: 8 team=borrower
           90s  submit back: 8 team=owner
           100s why back
           1h   state back",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            90s  hold n0 for job-2, nobody knows when
            100s why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8
            1890s SIGTERM job-1.1: for job-2 (reclaim of its team's quota), grace 1m00s
            1890s hold n0 for job-2, in 1m00s
            1890s settle job-1.1: requeued
            1890s launch job-2.1 on n0[0-7]
            1890s hold n0 for job-1, nobody knows when
            1h00m job-2 is running
        "#]],
    );
}

/// Two borrowers: one near its end, one that was moved too often. The first gives way though it loses more.
#[test]
fn the_near_end_falls_before_the_hourly_bound() {
    check(
        "nodes: n[0-1] 8 H100
         teams: owner quota=8, borrower
         policy: preemptions_per_hour_max=1 near_end_ms=2h
           0s   submit near: 8 team=borrower
           1s   submit moved: 8 team=borrower
           2s   near progress 0 of 7000
           3s   preempt moved
           90s  submit back: 8 team=owner
           100s why back
           1h   state back",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   launch job-2.1 on n1[0-7]
            3s   SIGTERM job-2.1: preempted by an operator, grace 1m00s
            3s   settle job-2.1: requeued
            3s   launch job-2.2 on n1[0-7]
            90s  hold n0 for job-3, in 2h24m
            100s why job-3: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8 for about 1h55m, job-2 (standard) holds 8
            1890s SIGTERM job-1.1: for job-3 (reclaim of its team's quota), grace 1m00s
            1890s hold n0 for job-3, in 1m00s
            1890s settle job-1.1: requeued
            1890s launch job-3.1 on n0[0-7]
            1890s hold n0 for job-1, nobody knows when
            1h00m job-3 is running
        "#]],
    );
}

#[test]
fn the_grace_never_falls() {
    check(
        "nodes: n0 8 H100
         teams: owner quota=8, borrower
         policy: preemptions_per_hour_max=0
           0s   submit train: 8 team=borrower stubborn grace=10m
           90s  submit back: 8 team=owner
           1h   state back",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            90s  hold n0 for job-2, nobody knows when
            1890s SIGTERM job-1.1: for job-2 (reclaim of its team's quota), grace 10m00s
            1890s hold n0 for job-2, in 10m00s
            2490s SIGKILL job-1.1: its grace of 10m00s after SIGTERM is over
            2490s settle job-1.1: requeued
            2490s launch job-2.1 on n0[0-7]
            2490s hold n0 for job-1, nobody knows when
            1h00m job-2 is running
        "#]],
    );
}

#[test]
fn priority_alone_breaks_no_protection_however_long_it_waits() {
    check(
        "nodes: n0 8 H100
         policy: preemptions_per_hour_max=0
           0s   submit train: 8 best-effort
           60s  submit urgent: 8 production
           9h   state urgent",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  hold n0 for job-2, nobody knows when
            9h00m job-2 is pending
        "#]],
    );
}

/// Only n0 has eight GPUs, and each of its two tenants holds twelve elsewhere.
#[test]
fn victims_hold_no_more_than_half_as_much_again_as_what_is_asked_for() {
    check(
        "nodes: n0 8 H100
           0s   submit filler: 4 production
           1s   nodes n0 8 H100, m[0-2] 4 H100
           1s   submit b: 16 best-effort tasks=4
           2s   filler exits 0
           2s   nodes n0 8 H100, m[0-2] 4 H100, m[3-5] 4 H100
           3s   submit c: 16 best-effort tasks=4
           60s  submit urgent: 8 production span=node
           61s  why urgent
           99s  policy: collateral_percent_max=300",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            1s   launch job-2.1 on m0[0-3] m1[0-3] m2[0-3] n0[4-7]
            2s   settle job-1.1: succeeded
            3s   launch job-3.1 on m3[0-3] m4[0-3] m5[0-3] n0[0-3]
            60s  hold n0 for job-4, nobody knows when
            61s  why job-4: waiting for 8 GPUs: 0 free, best node m0 has 0 of 4; job-2 (best-effort) holds 16, job-3 (best-effort) holds 16
            99s  SIGTERM job-3.1: for job-4 (priority), grace 1m00s
            99s  SIGTERM job-2.1: for job-4 (priority), grace 1m00s
            99s  hold n0 for job-4, in 1m00s
            99s  settle job-2.1: requeued
            99s  settle job-3.1: requeued
            99s  launch job-4.1 on n0[0-7]
            99s  launch job-2.2 on m0[0-3] m1[0-3] m2[0-3] m3[0-3]
            99s  hold m0 m1 m2 m3 for job-3, nobody knows when
        "#]],
    );
}

#[test]
fn the_cluster_as_a_whole_preempts_so_often_an_hour_and_not_more() {
    check(
        "nodes: n[0-2] 8 H100
         policy: preemptions_per_hour_cluster_max=2
           0s   submit a: 8 best-effort array=0-2
           60s  submit x: 8 production
           61s  submit y: 8 production
           62s  submit z: 8 production
           1h   state z
           61m  state z
           62m  state z",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   launch job-2.1 on n1[0-7]
            0s   launch job-3.1 on n2[0-7]
            60s  SIGTERM job-1.1: for job-4 (priority), grace 1m00s
            60s  hold n0 for job-4, in 1m00s
            60s  settle job-1.1: requeued
            60s  launch job-4.1 on n0[0-7]
            60s  hold n0 for job-1, nobody knows when
            61s  SIGTERM job-2.1: for job-5 (priority), grace 1m00s
            61s  hold nothing for job-1
            61s  hold n1 for job-5, in 1m00s
            61s  hold n0 for job-1, nobody knows when
            61s  settle job-2.1: requeued
            61s  launch job-5.1 on n1[0-7]
            61s  hold n1 for job-2, nobody knows when
            62s  hold n0 for job-6, nobody knows when
            62s  hold n2 for job-1, nobody knows when
            1h00m job-6 is pending
            1h01m job-6 is pending
            1h01m SIGTERM job-3.1: for job-6 (priority), grace 1m00s
            1h01m hold n2 for job-6, in 1m00s
            1h01m hold n0 for job-1, nobody knows when
            1h01m settle job-3.1: requeued
            1h01m launch job-6.1 on n2[0-7]
            1h01m hold n2 for job-3, nobody knows when
            1h02m job-6 is running
        "#]],
    );
}
