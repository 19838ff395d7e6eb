//! What an end says about trying again.

use expect_test::expect;

use crate::world::check;

#[test]
fn failed_code_is_tried_again_with_doubling_waits_and_then_given_up() {
    check(
        "nodes: n0 8 H100
           0s  submit a: 8 retries=2
           1s  a exits 1
           2s  why a
           12s a exits 1
           33s a exits 1
           34s state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   settle job-1.1: retry in 10s, software
            2s   why job-1: retry in 9s, after failed attempt 1 of at most 3
            11s  launch job-1.2 on n0[0-7]
            12s  settle job-1.2: retry in 20s, software
            32s  launch job-1.3 on n0[0-7]
            33s  settle job-1.3: failed, software
            34s  job-1 is failed
        "#]],
    );
}

#[test]
fn what_would_end_the_same_is_not_tried_again() {
    check(
        "nodes: n0 8 H100
           0s submit a: 8
           1s a fails oom
           2s submit b: 8
           3s b fails data
           4s submit c: 8
           5s c unstartable",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   settle job-1.1: failed, out of memory
            2s   launch job-2.1 on n0[0-7]
            3s   settle job-2.1: failed, data error
            4s   launch job-3.1 on n0[0-7]
            5s   settle job-3.1: failed, unstartable
        "#]],
    );
}

#[test]
fn hardware_is_tried_again() {
    check(
        "nodes: n0 8 H100
           0s submit a: 8
           1s a fails hardware
           12s state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   settle job-1.1: retry in 10s, hardware
            11s  launch job-1.2 on n0[0-7]
            12s  job-1 is running
        "#]],
    );
}

#[test]
fn a_broken_gang_is_ended_whole_before_it_is_tried_again() {
    check(
        "nodes: n0 8 H100, n1 8 H100
           0s submit a: 16 attached stubborn grace=5s
           1s a task 1 exits 3
           20s state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            1s   SIGTERM job-1.1: job-1.1/main.1 failed and the gang with it, grace 5s
            6s   SIGKILL job-1.1: its grace of 5s after SIGTERM is over
            6s   settle job-1.1: retry in 10s, software
            16s  launch job-1.2 on n0[0-7] n1[0-7]
            20s  job-1 is running
        "#]],
    );
}

#[test]
fn late_report_of_a_replaced_attempt_changes_nothing() {
    check(
        "nodes: n0 8 H100
           0s  submit a: 8
           1s  a exits 1
           12s a late 1 exits 0
           13s state a
           14s a exits 0
           15s state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   settle job-1.1: retry in 10s, software
            11s  launch job-1.2 on n0[0-7]
            13s  job-1 is running
            14s  settle job-1.2: succeeded
            15s  job-1 is succeeded
        "#]],
    );
}

#[test]
fn a_job_that_backs_off_does_not_hold_up_others() {
    check(
        "nodes: n0 8 H100
           0s  submit a: 8
           1s  submit b: 8
           2s  a exits 1
           3s  state b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 for job-2, nobody knows when
            2s   settle job-1.1: retry in 10s, software
            2s   launch job-2.1 on n0[0-7]
            3s   job-2 is running
        "#]],
    );
}

/// The timer looked at the first retry alone. Once that was due but did not fit, nobody woke for the ones behind it.
#[test]
fn a_due_retry_that_does_not_fit_hides_no_later_one() {
    check(
        "nodes: n0 8 H100, n1 2 A100
           0s   submit a: 8 type=H100
           1s   submit b: 2 type=A100 retries=9
           2s   a exits 1
           3s   submit c: 8 type=H100
           4s   b exits 1
           15s  b exits 1
           100s state b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   launch job-2.1 on n1[0-1]
            2s   settle job-1.1: retry in 10s, software
            3s   launch job-3.1 on n0[0-7]
            4s   settle job-2.1: retry in 10s, software
            12s  hold n0 for job-1, nobody knows when
            14s  launch job-2.2 on n1[0-1]
            15s  settle job-2.2: retry in 20s, software
            35s  launch job-2.3 on n1[0-1]
            100s job-2 is running
        "#]],
    );
}

#[test]
fn a_job_that_gets_further_has_its_retries_again() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached retries=1
           1s   a exits 1
           12s  a saves 10
           13s  a exits 1
           14s  why a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   settle job-1.1: retry in 10s, software
            11s  launch job-1.2 on n0[0-7]
            13s  settle job-1.2: retry in 10s, software
            14s  why job-1: retry in 9s, after failed attempt 1 of at most 2
        "#]],
    );
}

#[test]
fn a_trainer_that_left_on_a_signal_from_outside_has_not_finished() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           0s   submit b: 8 after=a
           5s   a saves 40
           10s  a leaves
           11s  state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  settle job-1.1: requeued
            10s  launch job-1.2 on n0[0-7]
            11s  job-1 is running
        "#]],
    );
}

#[test]
fn what_antiphon_could_not_launch_is_not_counted_against_the_job() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 retries=0
           1s   a is not launched
           2s   why a
           12s  a is not launched
           30s  state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   settle job-1.1: retry in 10s, not launched
            2s   why job-1: tried again in 9s
            11s  launch job-1.2 on n0[0-7]
            12s  settle job-1.2: retry in 10s, not launched
            22s  launch job-1.3 on n0[0-7]
            30s  job-1 is running
        "#]],
    );
}

#[test]
fn the_largest_number_of_retries_overflows_nothing() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 retries=4294967295
           1s   a exits 1
           2s   why a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   settle job-1.1: retry in 10s, software
            2s   why job-1: retry in 9s, after failed attempt 1 of at most 4294967295
        "#]],
    );
}
