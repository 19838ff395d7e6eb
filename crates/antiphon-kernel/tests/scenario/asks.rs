//! What a trainer asks for: granted inside its job's limits, refused with numbers.

use expect_test::expect;

use crate::world::check;

#[test]
fn a_trainer_gets_another_of_its_shapes_where_there_is_room() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 attached checkpoint or=4 or=16
           10s  ask a gpus 12
           11s  ask a gpus 8
           12s  ask a gpus 16
           20s  a saves 10
           30s  ask a gpus 4
           40s  a saves 20",
        expect![[""]],
    );
}

#[test]
fn a_trainer_gets_no_gpus_that_others_hold() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 attached checkpoint or=16
           1s   submit b: 8
           10s  ask a gpus 16",
        expect![[""]],
    );
}

#[test]
fn a_time_limit_grows_to_twice_of_what_was_submitted() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached limit=1h
           10s  ask a time 30m
           20s  ask a time 31m
           30s  ask a time 30m
           3h   past a",
        expect![[""]],
    );
}

#[test]
fn a_trainer_is_held_when_it_asks_for_a_pause() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           10s  ask a pause
           20s  a saves 10
           21s  state a",
        expect![[""]],
    );
}

#[test]
fn samples_are_made_when_a_trainer_asks_and_its_file_says_how() {
    check(
        "nodes: n0 8 H100, c0 0
           0s   submit a: 8 attached augment=paraphrase:1
           1s   submit b: 0 attached
           10s  ask a samples law
           11s  ask a samples law
           12s  ask b samples law",
        expect![[""]],
    );
}

#[test]
fn protection_keeps_preemptors_off_for_half_an_hour_in_each() {
    check(
        "nodes: n0 8 H100
         teams: rlhf quota=8, eval
           0s   submit a: 8 attached team=eval checkpoint
           10s  ask a protection 20m
           20s  ask a protection 20m
           30s  submit b: 8 production team=rlhf
           30m  why b",
        expect![[""]],
    );
}

#[test]
fn asks_are_counted_by_the_hour() {
    check(
        "nodes: n0 8 H100
         policy: asks_per_hour_max=1
           0s   submit a: 8 attached limit=1h
           10s  ask a time 1m
           20s  ask a time 1m",
        expect![[""]],
    );
}
