//! How long jobs are expected to run, and who may run in front of a job for which nodes are held back.

use expect_test::expect;

use crate::world::check;

#[test]
fn a_job_that_ends_before_the_first_blocked_one_starts_may_run_in_front() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 limit=2h
           1s   submit wide: 16
           2s   submit short: 4 limit=1h
           3s   why short
           4s   submit long: 4 limit=3h
           5s   submit unknown: 4
           6s   why long
           7s   why unknown
           8s   forecast wide",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 n1 for job-2, in 1h59m
            2s   launch job-3.1 on n1[0-3]
            3s   why job-3: running
            6s   why job-4: behind job-2 (standard), which waits for what this one would take and starts in 1h59m; this one may run for 3h00m
            7s   why job-5: behind job-2 (standard), which waits for what this one would take and starts in 1h59m; nothing says how long this one runs: give a `time_limit`
            8s   job-2 starts in 59m52s, between 29m54s and 1h59m
        "#]],
    );
}

#[test]
fn the_upper_bound_has_to_keep_the_reservation_not_what_is_expected() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 limit=2h
           1s   submit wide: 16
           2s   submit unsure: 4 estimate=10m-30m-3h
           3s   submit sure: 4 estimate=10m-30m-100m
           4s   why unsure",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 n1 for job-2, in 1h59m
            3s   launch job-4.1 on n1[0-3]
            4s   why job-3: behind job-2 (standard), which waits for what this one would take and starts in 1h59m; this one may run for 3h00m
        "#]],
    );
}

#[test]
fn a_higher_class_takes_what_is_held_back_for_a_lower_one() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 limit=2h production
           1s   submit wide: 16
           2s   submit urgent: 8 production
           3s   why wide",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 n1 for job-2, in 1h59m
            2s   launch job-3.1 on n1[0-7]
            2s   hold n0 n1 for job-2, nobody knows when
            3s   why job-2: waiting for 16 GPUs: 0 free, best node n0 has 0 of 8; job-1 (production) holds 8 for about 59m57s, job-3 (production) holds 8
        "#]],
    );
}

#[test]
fn the_first_blocked_jobs_of_each_class_hold_nodes_back_and_no_more() {
    check(
        "nodes: n[0-5] 8 H100
         policy: reservations_per_class_max=2
           0s   submit a: 8 limit=2h array=0-5
           1s   submit b: 8
           2s   submit c: 8
           3s   submit d: 8
           4s   submit e: 8 best-effort",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   launch job-2.1 on n1[0-7]
            0s   launch job-3.1 on n2[0-7]
            0s   launch job-4.1 on n3[0-7]
            0s   launch job-5.1 on n4[0-7]
            0s   launch job-6.1 on n5[0-7]
            1s   hold n0 for job-7, in 1h59m
            2s   hold n1 for job-8, in 1h59m
            4s   hold n2 for job-10, in 1h59m
        "#]],
    );
}

#[test]
fn what_a_running_job_reports_moves_the_reservation() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 limit=10h
           1s   submit b: 8
           60s  a progress 60 of 3600
           61s  expect a
           62s  forecast b
           63s  why b
           600s a progress 600 of 7200
           601s expect a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 for job-2, in 9h59m
            60s  hold n0 for job-2, in 1h13m
            61s  job-1.1 runs for 58m59s more, at most 1h13m
            62s  job-2 starts in 58m58s, between 29m28s and 1h13m
            63s  why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8 for about 58m57s
            600s hold n0 for job-2, in 2h17m
            601s job-1.1 runs for 1h49m more, at most 2h17m
        "#]],
    );
}

#[test]
fn three_like_jobs_of_the_team_say_how_long_the_next_one_runs() {
    check(
        "nodes: n0 8 H100
           0s   submit sft-1: 8 runs=50m
           1h   submit sft-2: 8 runs=55m
           2h   submit sft-3: 8 runs=40m
           3h   submit sft-4: 8 limit=9h
           3h   expect sft-4
           4h   submit dpo-1: 8 limit=9h
           5h   expect dpo-1
           6h   submit sft-5: 4 limit=9h
           6h   expect sft-5",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            3000s settle job-1.1: succeeded
            1h00m launch job-2.1 on n0[0-7]
            1h55m settle job-2.1: succeeded
            2h00m launch job-3.1 on n0[0-7]
            2h40m settle job-3.1: succeeded
            3h00m launch job-4.1 on n0[0-7]
            3h00m job-4.1 runs for 51m12s more, at most 1h08m
            4h00m hold n0 for job-5, in 8m16s
            4h08m16s hold n0 for job-5, in 1h08m
            5h00m job-5 will run for 4h30m, at most 9h00m (Limit)
            5h16m32s hold n0 for job-5, in 2h16m
            6h00m job-6 will run for 4h30m, at most 9h00m (Limit)
        "#]],
    );
}

#[test]
fn a_copied_name_says_nothing_in_another_team() {
    check(
        "nodes: n0 8 H100
         teams: rlhf, liar
           0s   submit sft-1: 8 team=rlhf runs=5m
           1h   submit sft-2: 8 team=rlhf runs=5m
           2h   submit sft-3: 8 team=rlhf runs=5m
           3h   pause
           3h   submit sft-4: 8 team=liar
           3h   expect sft-4
           3h   submit sft-4: 8 team=rlhf
           3h   expect sft-4",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            300s settle job-1.1: succeeded
            1h00m launch job-2.1 on n0[0-7]
            1h05m settle job-2.1: succeeded
            2h00m launch job-3.1 on n0[0-7]
            2h05m settle job-3.1: succeeded
            3h00m job-4 will run for 1h00m, at most nobody knows how long (Nothing)
            3h00m job-5 will run for 6m24s, at most 6m24s (History)
        "#]],
    );
}

#[test]
fn without_reports_the_estimate_counts_and_then_the_limit() {
    check(
        "nodes: n0 8 H100
           0s   pause
           0s   submit a: 8 estimate=10m-30m-2h limit=1h
           0s   submit b: 8 limit=1h
           0s   submit c: 8
           1s   expect a
           1s   expect b
           1s   expect c",
        expect![[r#"
            1s   job-1 will run for 30m00s, at most 1h00m (Estimate)
            1s   job-2 will run for 30m00s, at most 1h00m (Limit)
            1s   job-3 will run for 1h00m, at most nobody knows how long (Nothing)
        "#]],
    );
}

#[test]
fn what_was_saved_need_not_be_run_again() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 estimate=10h attached
           6h   a saves 600
           7h   hold a
           7h   a saves 700
           8h   expect a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            7h00m direct job-1 #1: yield (hold)
            7h00m yield job-1.1: hold, at most 8s for its checkpoint
            7h00m settle job-1.1: held
            8h00m job-1 will run for 3h00m, at most 3h00m (Estimate)
        "#]],
    );
}

#[test]
fn a_run_that_takes_longer_than_it_said_is_expected_to_take_as_long_again() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 estimate=1h
           1s   submit b: 8
           2s   expect a
           61m  expect a
           61m  forecast b
           3h   expect a
           5h   expect a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 for job-2, in 59m59s
            2s   job-1.1 runs for 59m58s more, at most 59m58s
            1h00m hold n0 for job-2, in 1h00m
            1h01m job-1.1 runs for 59m00s more, at most 59m00s
            1h01m job-2 starts in 59m00s, between 29m00s and 59m00s
            2h00m hold n0 for job-2, in 2h00m
            3h00m job-1.1 runs for 1h00m more, at most 1h00m
            4h00m hold n0 for job-2, in 4h00m
            5h00m job-1.1 runs for 3h00m more, at most 3h00m
        "#]],
    );
}

/// What a team names is stretched by what it named wrongly before; that of other teams is not.
#[test]
fn a_team_that_names_short_times_is_believed_less() {
    check(
        "nodes: n0 8 H100
         teams: liar, honest
           0s   submit a: 8 team=liar estimate=1m
           1s   submit x: 8 team=honest estimate=1h
           2s   submit b: 8 team=liar estimate=1h
           3s   expect b
           3h   submit c: 8 team=liar estimate=1h
           3h   expect c
           3h   submit d: 8 team=honest estimate=1h
           3h   expect d",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 for job-2, in 59s
            3s   job-3 will run for 1h00m, at most 1h00m (Estimate)
            60s  hold n0 for job-2, in 1m00s
            120s hold n0 for job-2, in 2m00s
            240s hold n0 for job-2, in 4m00s
            480s hold n0 for job-2, in 8m00s
            960s hold n0 for job-2, in 16m00s
            1920s hold n0 for job-2, in 32m00s
            1h04m hold n0 for job-2, in 1h04m
            2h08m hold n0 for job-2, in 2h08m
            3h00m job-4 will run for 5h57m, at most 5h57m (Estimate)
            3h00m job-5 will run for 1h00m, at most 1h00m (Estimate)
        "#]],
    );
}

/// A job that said a minute and ran for hours goes behind one that says two hours: what it has had counts, not its word.
#[test]
fn a_job_that_ran_over_is_ordered_by_what_it_has_had() {
    check(
        "nodes: n0 8 H100
           0s   submit liar: 8 estimate=1m attached
           5h   pause
           5h   submit honest: 8 estimate=2h
           5h   preempt liar
           5h   liar saves 10
           7h   unpause",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            5h00m direct job-1 #1: yield (preempted by an operator)
            5h00m yield job-1.1: preempted by an operator, at most 1m00s for its checkpoint
            5h00m settle job-1.1: requeued
            7h00m launch job-2.1 on n0[0-7]
            7h00m hold n0 for job-1, in 2h30m
        "#]],
    );
}

#[test]
fn what_is_held_back_goes_to_the_team_that_used_less() {
    check(
        "nodes: n[0-1] 8 H100
         teams: wide, narrow
           0s   submit a: 8 team=narrow estimate=1h runs=1h
           0s   submit b: 8 team=narrow estimate=90m runs=90m
           1s   submit c: 8 team=narrow estimate=1h runs=1h array=0-1
           2s   submit gang: 16 team=wide estimate=10h",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   launch job-2.1 on n1[0-7]
            1s   hold n0 for job-3, in 59m59s
            1s   hold n1 for job-4, in 1h29m
            2s   hold n0 n1 for job-5, in 1h29m
        "#]],
    );
}

/// Short jobs of its own team kept one of the two nodes held back for ever.
#[test]
fn a_wide_gang_that_waited_past_the_bound_starts_however_many_short_jobs_come() {
    check(
        "nodes: n[0-1] 8 H100
         policy: promote_after_ms.standard=2h
           0s   submit a: 8 estimate=1h runs=1h
           0s   submit b: 8 estimate=90m runs=90m
           1s   submit c: 8 estimate=1h runs=1h array=0-1
           2s   submit gang: 16 estimate=10h
           3s   submit d: 8 estimate=1h runs=1h array=0-19
           5h   state gang",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   launch job-2.1 on n1[0-7]
            1s   hold n0 for job-3, in 59m59s
            1s   hold n1 for job-4, in 1h29m
            1h00m settle job-1.1: succeeded
            1h00m launch job-3.1 on n0[0-7]
            1h00m hold n0 for job-6, in 1h00m
            1h30m settle job-2.1: succeeded
            1h30m launch job-4.1 on n1[0-7]
            1h30m hold n1 for job-7, in 1h00m
            2h00m settle job-3.1: succeeded
            2h00m launch job-6.1 on n0[0-7]
            2h00m hold n0 for job-8, in 1h00m
            2h00m02s hold n0 n1 for job-5, in 59m58s
            2h30m settle job-4.1: succeeded
            3h00m settle job-6.1: succeeded
            3h00m launch job-5.1 on n0[0-7] n1[0-7]
            3h00m hold n0 for job-7, in 10h00m
            3h00m hold n1 for job-8, in 10h00m
            5h00m job-5 is running
        "#]],
    );
}

/// Counted as both on one node, they fit nowhere; each on its own node they do.
#[test]
fn tasks_that_no_node_has_the_cpus_to_hold_together_get_a_node_each() {
    check(
        "nodes: n[0-1] 8 H100 cpus=64
           0s   submit a: 8 estimate=1h
           0s   submit b: 8 estimate=2h
           1s   submit wide: 8 tasks=2 cpus=60",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   launch job-2.1 on n1[0-7]
            1s   hold n0 n1 for job-3, in 1h59m
        "#]],
    );
}

#[test]
fn what_starts_in_the_same_cycle_gives_its_licence_back_some_day() {
    check(
        "shared: licences=1
         nodes: n0 8 H100
           0s   submit a: 5 production array=0-1 uses=licences:1",
        expect![[r#"
            0s   launch job-1.1 on n0[0-4]
            0s   hold n0 for job-2, nobody knows when
        "#]],
    );
}
