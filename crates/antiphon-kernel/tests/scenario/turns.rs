//! Jobs of one team take turns: whoever needs far less, or has had far less, goes first, and nobody loses work by it.

use expect_test::expect;

use crate::world::check;

#[test]
fn a_long_run_gives_way_to_a_much_shorter_job_of_its_team() {
    check(
        "nodes: n0 8 H100
           0s   submit long: 8 estimate=10h attached checkpoint
           60s  submit short: 8 estimate=1h attached checkpoint
           63s  long saves 60
           70s  why long
           2h   short exits 0
           2h   state long",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  direct job-1 #1: yield (for job-2 (its turn in their team))
            60s  yield job-1.1: for job-2 (its turn in their team), at most 1m00s for its checkpoint
            60s  hold n0 for job-2, in 2m00s
            63s  settle job-1.1: requeued
            63s  launch job-2.1 on n0[0-7]
            70s  why job-1: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-2 (standard) holds 8 for about 59m53s
            2h00m settle job-2.1: succeeded
            2h00m launch job-1.2 on n0[0-7]
            2h00m job-1 is running
        "#]],
    );
}

#[test]
fn a_run_is_not_moved_for_a_job_that_is_hardly_shorter() {
    check(
        "nodes: n0 8 H100
           0s   submit long: 8 estimate=10h attached checkpoint
           60s  submit other: 8 estimate=8h attached checkpoint
           61s  why other",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            61s  why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8 for about 9h58m
        "#]],
    );
}

#[test]
fn a_turn_takes_nothing_from_another_team() {
    check(
        "nodes: n0 8 H100
         teams: a, b
           0s   submit long: 8 team=a estimate=10h attached checkpoint
           60s  submit short: 8 team=b estimate=1h attached checkpoint
           61s  why short",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            61s  why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8 for about 9h58m
        "#]],
    );
}

#[test]
fn who_cannot_save_is_left_alone() {
    check(
        "nodes: n0 8 H100
           0s   submit long: 8 estimate=10h attached
           60s  submit short: 8 estimate=1h attached checkpoint
           61s  state long",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            61s  job-1 is running
        "#]],
    );
}

#[test]
fn where_nothing_is_known_whoever_has_had_far_less_has_its_turn() {
    check(
        "nodes: n0 8 H100
           0s   submit first: 8 attached checkpoint
           60s  submit second: 8 attached checkpoint
           18m  first saves 1000
           20m  state second",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1048s direct job-1 #1: yield (for job-2 (its turn in their team))
            1048s yield job-1.1: for job-2 (its turn in their team), at most 1m00s for its checkpoint
            1048s hold n0 for job-2, in 2m00s
            1080s settle job-1.1: requeued
            1080s launch job-2.1 on n0[0-7]
            1200s job-2 is running
        "#]],
    );
}

#[test]
fn whoever_counts_most_gives_way_and_who_is_not_needed_stays() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 4 estimate=20h attached checkpoint
           0s   submit b: 4 estimate=30h attached checkpoint
           60s  submit short: 4 estimate=1h attached checkpoint
           63s  b saves 60",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            0s   launch job-2.1 on n0[4-7]
            60s  direct job-2 #1: yield (for job-3 (its turn in their team))
            60s  yield job-2.1: for job-3 (its turn in their team), at most 1m00s for its checkpoint
            60s  hold n0 for job-3, in 2m00s
            63s  settle job-2.1: requeued
            63s  launch job-3.1 on n0[4-7]
        "#]],
    );
}

#[test]
fn a_turn_can_be_turned_off() {
    check(
        "nodes: n0 8 H100
         policy: turn_gain_permille=0
           0s   submit long: 8 estimate=10h attached checkpoint
           60s  submit short: 8 estimate=1h attached checkpoint
           61s  state long",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  hold n0 for job-2, in 9h59m
            61s  job-1 is running
        "#]],
    );
}

#[test]
fn a_run_on_slow_gpus_begins_again_on_fast_ones_that_come_free() {
    check(
        "nodes: n0 8 H100, n1 8 A100
           0s   submit first: 8 type=H100 estimate=1h attached checkpoint
           60s  submit second: 8 type=H100 or=8xA100@300 estimate=10h attached checkpoint
           1h   first exits 0
           3603s second saves 60
           62m  state second",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  launch job-2.1 on n1[0-7]
            1h00m settle job-1.1: succeeded
            1h00m direct job-2 #1: yield (for job-2 (its turn in their team))
            1h00m yield job-2.1: for job-2 (its turn in their team), at most 1m00s for its checkpoint
            1h00m03s settle job-2.1: requeued
            1h00m03s launch job-2.2 on n0[0-7]
            1h02m job-2 is running
        "#]],
    );
}
