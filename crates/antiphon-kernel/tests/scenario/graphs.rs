//! Jobs that wait for others, arrays, times and holds.

use expect_test::expect;

use crate::world::check;

#[test]
fn generate_train_and_evaluate_run_as_a_chain() {
    check(
        "nodes: n0 8 H100
           0s   submit generate: 8 runs=1h
           0s   submit train: 8 after=generate runs=2h
           0s   submit evaluate: 1 after=train runs=10m
           1s   reasons evaluate
           9h   state evaluate",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   why job-3: waiting for job-2 to succeed
            1h00m settle job-1.1: succeeded
            1h00m launch job-2.1 on n0[0-7]
            3h00m settle job-2.1: succeeded
            3h00m launch job-3.1 on n0[0]
            3h10m settle job-3.1: succeeded
            9h00m job-3 is succeeded
        "#]],
    );
}

#[test]
fn parts_trained_apart_are_merged_when_the_last_has_succeeded() {
    check(
        "nodes: n0 8 H100
           0s   submit left: 4 runs=1h
           0s   submit right: 4 runs=2h
           0s   submit merge: 1 after=left+right runs=10m
           90m  why merge
           3h   state merge",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            0s   launch job-2.1 on n0[4-7]
            1h00m settle job-1.1: succeeded
            1h30m why job-3: waiting for job-2 to succeed
            2h00m settle job-2.1: succeeded
            2h00m launch job-3.1 on n0[0]
            2h10m settle job-3.1: succeeded
            3h00m job-3 is succeeded
        "#]],
    );
}

#[test]
fn after_any_waits_for_an_end_however_it_comes() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 4 retries=0
           0s   submit b: 4
           0s   submit clean: 1 after-any=a+b
           1s   why clean
           2s   a exits 1
           3s   cancel b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            0s   launch job-2.1 on n0[4-7]
            1s   why job-3: waiting for job-1, job-2 to end
            2s   settle job-1.1: failed, software
            3s   SIGTERM job-2.1: cancel, grace 1m00s
            3s   settle job-2.1: canceled
            3s   launch job-3.1 on n0[0]
        "#]],
    );
}

#[test]
fn after_start_waits_for_a_start_and_falls_with_what_never_starts() {
    check(
        "nodes: n0 8 H100
           0s   submit blocker: 8
           1s   submit server: 4
           1s   submit never: 4
           1s   submit client: 1 after-start=server
           1s   submit other: 1 after-start=never
           2s   why client
           3s   cancel never
           4s   blocker exits 0
           5s   state other",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 for job-2, nobody knows when
            2s   why job-4: waiting for job-2 to start
            3s   abandon job-5: job-3 did not succeed
            4s   settle job-1.1: succeeded
            4s   launch job-2.1 on n0[0-3]
            4s   launch job-4.1 on n0[4]
            5s   job-5 is failed
        "#]],
    );
}

#[test]
fn an_array_runs_as_many_at_once_as_it_says() {
    check(
        "nodes: n0 8 H100
           0s   submit sweep: 1 array=3-6 at-once=2
           1s   why sweep[5]
           2s   sweep[3] exits 0
           3s   sweep[5] fails data
           4s   hold sweep[4]
           5s   sweep[6] exits 0
           6s   release sweep[4]",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            0s   launch job-2.1 on n0[1]
            1s   why job-3: 2 jobs of its array run, and at most 2 may at once
            2s   settle job-1.1: succeeded
            2s   launch job-3.1 on n0[0]
            3s   settle job-3.1: failed, data error
            3s   launch job-4.1 on n0[0]
            4s   SIGTERM job-2.1: hold, grace 1m00s
            4s   settle job-2.1: held
            5s   settle job-4.1: succeeded
            6s   launch job-2.2 on n0[0]
        "#]],
    );
}

#[test]
fn a_canceled_member_of_an_array_lets_the_next_in() {
    check(
        "nodes: n0 8 H100
           0s   submit sweep: 1 array=0-2 at-once=1
           1s   cancel sweep[1]
           2s   cancel sweep[0]",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            2s   SIGTERM job-1.1: cancel, grace 1m00s
            2s   settle job-1.1: canceled
            2s   launch job-3.1 on n0[0]
        "#]],
    );
}

#[test]
fn a_job_starts_no_sooner_than_its_user_wants() {
    check(
        "nodes: n0 8 H100
           0s   submit later: 8 not-before=1h
           1s   why later
           2s   submit now: 8 runs=2h
           3h   state later",
        expect![[r#"
            1s   why job-1: not before a time that lies 59m59s ahead
            2s   launch job-2.1 on n0[0-7]
            1h00m hold n0 for job-1, nobody knows when
            2h00m02s settle job-2.1: succeeded
            2h00m02s launch job-1.1 on n0[0-7]
            3h00m job-1 is running
        "#]],
    );
}

#[test]
fn a_job_that_is_submitted_on_hold_waits_for_its_release() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 held
           1s   reasons a
           2s   change a
           3s   release a",
        expect![[r#"
            1s   why job-1: on hold until `antiphon release`
            2s   job-1 would start with release it
            3s   launch job-1.1 on n0[0-7]
        "#]],
    );
}
