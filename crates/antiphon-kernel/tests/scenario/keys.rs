//! Who goes first: for each key of the order a pair that only this key decides.

use expect_test::expect;

use crate::world::check;

#[test]
fn the_class_goes_before_all_else() {
    check(
        "nodes: n0 8 H100
           0s   pause
           0s   submit short: 8 standard estimate=1m priority=9 deadline=1h
           1s   submit long: 8 production estimate=9h
           2s   unpause
           3s   why short",
        expect![[r#"
            2s   launch job-2.1 on n0[0-7]
            2s   hold n0 for job-1, in 9h00m
            3s   why job-1: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-2 (production) holds 8 for about 8h59m
        "#]],
    );
}

#[test]
fn of_one_class_whoever_waited_past_its_bound_goes_first() {
    check(
        "nodes: n0 8 H100
         policy: promote_after_ms.standard=60s
           0s   pause
           0s   submit long: 8 estimate=9h
           50s  submit short: 8 estimate=1m priority=9 deadline=1h
           70s  unpause
           71s  why short",
        expect![[r#"
            70s  launch job-1.1 on n0[0-7]
            70s  hold n0 for job-2, in 9h00m
            71s  why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8 for about 8h59m
        "#]],
    );
}

#[test]
fn of_those_who_have_not_waited_long_the_next_deadline_goes_first() {
    check(
        "nodes: n0 8 H100
           0s   pause
           0s   submit short: 8 estimate=1m
           1s   submit due: 8 estimate=9h deadline=20h
           2s   unpause
           3s   why short",
        expect![[r#"
            2s   launch job-2.1 on n0[0-7]
            2s   hold n0 for job-1, in 9h00m
            3s   why job-1: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-2 (standard) holds 8 for about 8h59m
        "#]],
    );
}

#[test]
fn of_two_deadlines_the_one_that_has_to_start_first_goes_first() {
    check(
        "nodes: n0 8 H100
           0s   pause
           0s   submit early-but-short: 8 estimate=1h deadline=20h
           1s   submit late-but-long: 8 estimate=12h deadline=30h
           2s   unpause
           3s   why early-but-short",
        expect![[r#"
            2s   launch job-2.1 on n0[0-7]
            2s   hold n0 for job-1, in 12h00m
            3s   why job-1: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-2 (standard) holds 8 for about 11h59m
        "#]],
    );
}

#[test]
fn without_a_deadline_the_team_that_used_less_goes_first() {
    check(
        "nodes: n0 8 H100
         teams: rlhf, eval
           0s   submit before: 8 team=rlhf
           4h   pause
           4h   before exits 0
           4h   submit short: 8 team=rlhf estimate=1m
           4h   submit long: 8 team=eval estimate=9h
           5h   unpause
           5h   why short",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            4h00m settle job-1.1: succeeded
            5h00m launch job-3.1 on n0[0-7]
            5h00m hold n0 for job-2, in 9h00m
            5h00m why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-3 (standard) holds 8 for about 9h00m
        "#]],
    );
}

#[test]
fn inside_a_team_the_priority_goes_before_the_length() {
    check(
        "nodes: n0 8 H100
           0s   pause
           0s   submit short: 8 estimate=1m
           1s   submit long: 8 estimate=9h priority=1
           2s   unpause
           3s   why short",
        expect![[r#"
            2s   launch job-2.1 on n0[0-7]
            2s   hold n0 for job-1, in 9h00m
            3s   why job-1: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-2 (standard) holds 8 for about 8h59m
        "#]],
    );
}

#[test]
fn the_priority_says_nothing_to_other_teams() {
    check(
        "nodes: n0 8 H100
         teams: rlhf, eval
           0s   pause
           0s   submit urgent: 8 team=rlhf estimate=9h priority=1000000
           1s   submit short: 8 team=eval estimate=1m priority=-5
           2s   unpause
           3s   why urgent",
        expect![[r#"
            2s   launch job-2.1 on n0[0-7]
            2s   hold n0 for job-1, in 1m00s
            3s   why job-1: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-2 (standard) holds 8 for about 59s
        "#]],
    );
}

#[test]
fn of_equals_the_one_with_less_gpu_time_left_goes_first() {
    check(
        "nodes: n0 8 H100
           0s   pause
           0s   submit narrow-but-long: 6 estimate=4h
           1s   submit wide-but-short: 8 estimate=2h
           2s   unpause
           3s   why narrow-but-long",
        expect![[r#"
            2s   launch job-2.1 on n0[0-7]
            2s   hold n0 for job-1, in 2h00m
            3s   why job-1: waiting for 6 GPUs: 0 free, best node n0 has 0 of 8; job-2 (standard) holds 8 for about 1h59m
        "#]],
    );
}

#[test]
fn a_good_outlook_halves_what_is_left() {
    check(
        "nodes: n0 8 H100
           0s   submit first: 8 estimate=3h
           1s   first outlook 500
           2s   pause
           2s   submit second: 8 estimate=2h
           3s   preempt first
           4s   unpause",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   remedy 0 of convergence for job-1
            3s   SIGTERM job-1.1: preempted by an operator, grace 1m00s
            3s   settle job-1.1: requeued
            4s   launch job-1.2 on n0[0-7]
            4s   hold n0 for job-2, in 3h00m
        "#]],
    );
}

#[test]
fn no_outlook_counts_for_more_than_half() {
    check(
        "nodes: n0 8 H100
           0s   submit first: 8 estimate=5h
           1s   first outlook 1
           2s   pause
           2s   submit second: 8 estimate=2h
           3s   preempt first
           4s   unpause",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   remedy 0 of convergence for job-1
            3s   SIGTERM job-1.1: preempted by an operator, grace 1m00s
            3s   settle job-1.1: requeued
            4s   launch job-2.1 on n0[0-7]
            4s   hold n0 for job-1, in 2h00m
        "#]],
    );
}

#[test]
fn a_bad_outlook_doubles_what_is_left() {
    check(
        "nodes: n0 8 H100
           0s   submit first: 8 estimate=2h
           1s   first outlook 2000
           2s   pause
           2s   submit second: 8 estimate=3h
           3s   preempt first
           4s   unpause",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   remedy 0 of convergence for job-1
            3s   SIGTERM job-1.1: preempted by an operator, grace 1m00s
            3s   settle job-1.1: requeued
            4s   launch job-2.1 on n0[0-7]
            4s   hold n0 for job-1, in 3h00m
        "#]],
    );
}

#[test]
fn of_jobs_alike_in_all_the_first_that_came_goes_first() {
    check(
        "nodes: n0 8 H100
         teams: rlhf, eval
           0s   pause
           0s   submit first: 8 team=rlhf estimate=1h
           1s   submit second: 8 team=eval estimate=1h
           2s   unpause
           3s   why second",
        expect![[r#"
            2s   launch job-1.1 on n0[0-7]
            2s   hold n0 for job-2, in 1h00m
            3s   why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8 for about 59m59s
        "#]],
    );
}

#[test]
fn of_each_team_one_job_at_a_time_stands_in_front_for_having_waited() {
    check(
        "nodes: n0 8 H100
         policy: promote_after_ms.standard=60s
         teams: a, b
           0s   pause
           0s   submit a1: 8 team=a estimate=9h
           1s   submit a2: 8 team=a estimate=9h
           2s   submit b1: 8 team=b estimate=9h
           99s  unpause
           2m   a1 exits 0
           3m   b1 exits 0",
        expect![[r#"
            99s  launch job-1.1 on n0[0-7]
            99s  hold n0 for job-3, in 9h00m
            120s settle job-1.1: succeeded
            120s launch job-3.1 on n0[0-7]
            120s hold n0 for job-2, in 9h00m
            180s settle job-3.1: succeeded
            180s launch job-2.1 on n0[0-7]
        "#]],
    );
}

#[test]
fn a_job_that_waits_stands_where_its_new_class_does_and_one_that_runs_keeps_its_own() {
    check(
        "nodes: n0 8 H100
           0s   submit first: 8 service
           1s   submit second: 8 best-effort estimate=1h
           2s   submit third: 8 standard estimate=2h
           3s   class second production
           4s   class first best-effort
           1h   first exits 0",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 for job-2, nobody knows when
            2s   hold n0 for job-3, nobody knows when
            3s   hold n0 for job-2, nobody knows when
            4s   refused [AP0102]: job-1 is running: it cannot be given another class; `antiphon job job-1` shows what it is doing
            1h00m settle job-1.1: succeeded
            1h00m launch job-2.1 on n0[0-7]
            1h00m hold n0 for job-3, in 1h00m
        "#]],
    );
}
