//! What a trainer asks for: granted inside its job's limits, refused with numbers.

use expect_test::expect;

use crate::world::check;

#[test]
fn a_trainer_gets_another_of_its_shapes_where_there_is_room() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 attached checkpoint speed=700 or=16 or=4@300
           10s  ask a gpus 12
           11s  ask a gpus 8
           12s  ask a gpus 16
           20s  a saves 10
           30s  ask a gpus 4
           35s  a saves 20",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  refused [AP0127]: job-1 does not get 12 GPUs: its job file names shapes of 8, 16, 4; train on as before; what a job may have stands in its job file and under `[policy]` in `antiphon.toml`
            11s  refused [AP0127]: job-1 does not get 8 GPUs: it runs on 8 already; train on as before; what a job may have stands in its job file and under `[policy]` in `antiphon.toml`
            12s  direct job-1 #1: yield (its trainer asked for 16 GPUs)
            12s  yield job-1.1: its trainer asked for 16 GPUs, at most 1m00s for its checkpoint
            20s  settle job-1.1: requeued
            20s  launch job-1.2 on n0[0-7] n1[0-7]
            30s  direct job-1 #2: yield (its trainer asked for 4 GPUs)
            30s  yield job-1.2: its trainer asked for 4 GPUs, at most 8s for its checkpoint
            35s  settle job-1.2: requeued
            35s  launch job-1.3 on n0[0-3]
        "#]],
    );
}

#[test]
fn a_trainer_gets_no_gpus_that_others_hold() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 attached checkpoint or=16
           1s   submit b: 8
           10s  ask a gpus 16",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   launch job-2.1 on n1[0-7]
            10s  refused [AP0127]: job-1 does not get 16 GPUs: with its own 8 there is no room for 16 now; train on as before; what a job may have stands in its job file and under `[policy]` in `antiphon.toml`
        "#]],
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
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            20s  refused [AP0127]: job-1 does not get 31m00s more: its limit is 1h30m, 1h00m at submit: it may grow to 2h00m; train on as before; what a job may have stands in its job file and under `[policy]` in `antiphon.toml`
            2h00m direct job-1 #1: yield (time limit)
            2h00m yield job-1.1: time limit, at most 1m00s for its checkpoint
            2h01m SIGTERM job-1.1: time limit, grace 1m00s
            2h01m settle job-1.1: failed, time limit
            3h00m job-1.1 ran on n0[0-7] as standard for 2h01m: time limit, failed, time limit, lost 16.13 GPU-h
        "#]],
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
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  direct job-1 #1: yield (hold)
            10s  yield job-1.1: hold, at most 1m00s for its checkpoint
            20s  settle job-1.1: held
            21s  job-1 is held
        "#]],
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
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   launch job-2.1 on c0
            10s  remedy 0 of shard law for job-1
            10s  augment law for job-1 by paraphrase: a-augment-1
            10s  launch job-3.1 on c0
            11s  refused [AP0127]: job-1 does not get samples of `law`: `paraphrase` has run 1 times, as often as it may; train on as before; what a job may have stands in its job file and under `[policy]` in `antiphon.toml`
            12s  refused [AP0127]: job-2 does not get samples of `law`: none of its 0 `[augment.METHOD]` serves `law`; train on as before; what a job may have stands in its job file and under `[policy]` in `antiphon.toml`
        "#]],
    );
}

#[test]
fn protection_keeps_preemptors_off_for_half_an_hour_in_each() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached team=eval checkpoint
           10s  ask a protection 20m
           20s  ask a protection 20m
           30s  submit b: 8 production team=rlhf
           30m  why b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            20s  refused [AP0127]: job-1 does not get protection for 20m00s: it was protected for 20m00s in the last hour: the limit is 30m00s; train on as before; what a job may have stands in its job file and under `[policy]` in `antiphon.toml`
            30s  hold n0 for job-2, nobody knows when
            1210s direct job-1 #1: yield (for job-2 (priority))
            1210s yield job-1.1: for job-2 (priority), at most 1m00s for its checkpoint
            1210s hold n0 for job-2, in 2m00s
            1270s SIGTERM job-1.1: for job-2 (priority), grace 1m00s
            1270s settle job-1.1: requeued
            1270s launch job-2.1 on n0[0-7]
            1800s why job-2: running
        "#]],
    );
}

/// What its own quota does not cover a team has borrowed: no word of its trainers keeps it.
#[test]
fn protection_keeps_no_quota_waiting() {
    check(
        "nodes: n0 8 H100
         teams: rlhf quota=8, eval
           0s   submit a: 8 attached team=eval checkpoint
           10s  ask a protection 20m
           30s  submit b: 8 team=rlhf
           40s  a saves 20",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            30s  direct job-1 #1: yield (for job-2 (reclaim of its team's quota))
            30s  yield job-1.1: for job-2 (reclaim of its team's quota), at most 1m00s for its checkpoint
            30s  hold n0 for job-2, in 2m00s
            40s  settle job-1.1: requeued
            40s  launch job-2.1 on n0[0-7]
        "#]],
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
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            20s  refused [AP0127]: job-1 does not get 1m00s more: it was granted 1 asks in the last hour: the limit is 1; train on as before; what a job may have stands in its job file and under `[policy]` in `antiphon.toml`
        "#]],
    );
}
