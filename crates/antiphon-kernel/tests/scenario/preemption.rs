//! Who gives way, by which clock, and what that costs.

use expect_test::expect;

use crate::world::{check, play};

#[test]
fn a_lower_class_saves_gives_way_and_comes_back() {
    check(
        "nodes: n0 8 H100
           0s   submit train: 8 best-effort attached
           50s  train saves 40
           60s  submit urgent: 8 production
           61s  why urgent
           63s  train saves 60
           70s  why train
           90s  urgent exits 0
           91s  state train",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  direct job-1 #1: yield (for job-2 (priority))
            60s  yield job-1.1: for job-2 (priority), at most 8s for its checkpoint
            60s  hold n0 for job-2, in 1m08s
            61s  why job-2: waiting for job-1 to save and give way, at the latest in 1m07s
            63s  settle job-1.1: requeued
            63s  launch job-2.1 on n0[0-7]
            63s  hold n0 for job-1, nobody knows when
            70s  why job-1: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-2 (production) holds 8
            90s  settle job-2.1: succeeded
            90s  launch job-1.2 on n0[0-7]
            91s  job-1 is running
        "#]],
    );
}

#[test]
fn without_an_answer_the_wait_for_a_checkpoint_ends_and_grace_follows() {
    check(
        "nodes: n0 8 H100
           0s   submit train: 8 best-effort attached stubborn grace=30s
           60s  submit urgent: 8 production
           500s state train",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  direct job-1 #1: yield (for job-2 (priority))
            60s  yield job-1.1: for job-2 (priority), at most 1m00s for its checkpoint
            60s  hold n0 for job-2, in 1m30s
            120s SIGTERM job-1.1: for job-2 (priority), grace 30s
            150s SIGKILL job-1.1: its grace of 30s after SIGTERM is over
            150s settle job-1.1: requeued
            150s launch job-2.1 on n0[0-7]
            150s hold n0 for job-1, nobody knows when
            500s job-1 is pending
        "#]],
    );
}

#[test]
fn code_that_never_attached_gets_sigterm_at_once() {
    check(
        "nodes: n0 8 H100
           0s   submit script: 8 best-effort
           60s  submit urgent: 8 production",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  SIGTERM job-1.1: for job-2 (priority), grace 1m00s
            60s  hold n0 for job-2, in 1m00s
            60s  settle job-1.1: requeued
            60s  launch job-2.1 on n0[0-7]
            60s  hold n0 for job-1, nobody knows when
        "#]],
    );
}

#[test]
fn equals_never_preempt_each_other() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 production
           60s  submit b: 8 production
           61s  submit c: 8 standard
           62s  why b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  hold n0 for job-2, nobody knows when
            62s  why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (production) holds 8
        "#]],
    );
}

#[test]
fn nobody_is_touched_when_it_would_not_help() {
    check(
        "nodes: n0 8 H100
           0s   submit fixed: 4 production
           1s   submit train: 4 best-effort
           60s  submit urgent: 8 production
           61s  why urgent",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            1s   launch job-2.1 on n0[4-7]
            60s  hold n0 for job-3, nobody knows when
            61s  why job-3: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (production) holds 4, job-2 (best-effort) holds 4
        "#]],
    );
}

#[test]
fn the_least_work_is_lost_and_no_victim_is_needless() {
    check(
        "nodes: n0 4 H100, n1 4 H100
           0s   submit old: 4 best-effort
           50s  submit young: 4 best-effort
           60s  submit urgent: 4 production",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            50s  launch job-2.1 on n1[0-3]
            60s  SIGTERM job-2.1: for job-3 (priority), grace 1m00s
            60s  hold n1 for job-3, in 1m00s
            60s  settle job-2.1: requeued
            60s  launch job-3.1 on n1[0-3]
            60s  hold n0 for job-2, nobody knows when
        "#]],
    );
}

#[test]
fn a_fresh_checkpoint_makes_a_cheap_victim() {
    check(
        "nodes: n0 4 H100, n1 4 H100
           0s   submit saved: 4 best-effort attached
           50s  submit young: 4 best-effort attached
           59s  saved saves 100
           60s  submit urgent: 4 production",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            50s  launch job-2.1 on n1[0-3]
            60s  direct job-1 #1: yield (for job-3 (priority))
            60s  yield job-1.1: for job-3 (priority), at most 8s for its checkpoint
            60s  hold n0 for job-3, in 1m08s
        "#]],
    );
}

#[test]
fn a_second_preemptor_waits_for_the_victims_of_the_first() {
    check(
        "nodes: n0 8 H100
           0s   submit train: 8 best-effort stubborn grace=30s
           10s  submit first: 4 production
           11s  submit second: 4 production
           12s  why second
           60s  state train",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  SIGTERM job-1.1: for job-2 (priority), grace 30s
            10s  hold n0 for job-2, in 30s
            12s  why job-3: waiting for 4 GPUs: 0 free, best node n0 has 0 of 8; job-1 (best-effort) holds 8 for about 28s
            40s  SIGKILL job-1.1: its grace of 30s after SIGTERM is over
            40s  settle job-1.1: requeued
            40s  launch job-2.1 on n0[0-3]
            40s  launch job-3.1 on n0[4-7]
            40s  hold n0 for job-1, nobody knows when
            60s  job-1 is pending
        "#]],
    );
}

#[test]
fn a_victim_whose_preemptor_vanishes_has_first_claim() {
    check(
        "nodes: n0 8 H100
           0s   submit train: 8 best-effort attached
           5s   submit other: 8 best-effort
           10s  submit urgent: 8 production
           11s  cancel urgent
           12s  train saves 9",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            5s   hold n0 for job-2, nobody knows when
            10s  direct job-1 #1: yield (for job-3 (priority))
            10s  yield job-1.1: for job-3 (priority), at most 1m00s for its checkpoint
            10s  hold nothing for job-2
            10s  hold n0 for job-3, in 2m00s
            12s  settle job-1.1: requeued
            12s  launch job-1.2 on n0[0-7]
            12s  hold n0 for job-2, nobody knows when
        "#]],
    );
}

#[test]
fn a_trainer_that_finishes_while_it_gives_way_has_finished() {
    check(
        "nodes: n0 8 H100
           0s   submit train: 8 best-effort attached
           10s  submit urgent: 8 production
           11s  train progress 100 of 100
           12s  train exits 0
           13s  state train",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  direct job-1 #1: yield (for job-2 (priority))
            10s  yield job-1.1: for job-2 (priority), at most 1m00s for its checkpoint
            10s  hold n0 for job-2, in 2m00s
            12s  settle job-1.1: succeeded
            12s  launch job-2.1 on n0[0-7]
            13s  job-1 is succeeded
        "#]],
    );
}

#[test]
fn exit_zero_while_giving_way_is_no_success_by_itself() {
    check(
        "nodes: n0 8 H100
           0s   submit train: 8 best-effort attached
           10s  submit urgent: 8 production
           12s  train exits 0
           13s  state train",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  direct job-1 #1: yield (for job-2 (priority))
            10s  yield job-1.1: for job-2 (priority), at most 1m00s for its checkpoint
            10s  hold n0 for job-2, in 2m00s
            12s  settle job-1.1: requeued
            12s  launch job-2.1 on n0[0-7]
            12s  hold n0 for job-1, nobody knows when
            13s  job-1 is pending
        "#]],
    );
}

#[test]
fn an_operator_preempts_and_holds() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           10s  preempt a
           11s  a saves 3
           20s  hold a
           21s  a saves 5
           22s  why a
           30s  release a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  direct job-1 #1: yield (preempted by an operator)
            10s  yield job-1.1: preempted by an operator, at most 1m00s for its checkpoint
            11s  settle job-1.1: requeued
            11s  launch job-1.2 on n0[0-7]
            20s  direct job-1 #2: yield (hold)
            20s  yield job-1.2: hold, at most 8s for its checkpoint
            21s  settle job-1.2: held
            22s  why job-1: on hold until `antiphon release`
            30s  launch job-1.3 on n0[0-7]
        "#]],
    );
}

#[test]
fn a_cancel_overtakes_the_wait_for_a_checkpoint() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached stubborn grace=5s
           10s  hold a
           11s  cancel a
           30s  state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  direct job-1 #1: yield (hold)
            10s  yield job-1.1: hold, at most 1m00s for its checkpoint
            11s  SIGTERM job-1.1: cancel, grace 5s
            16s  SIGKILL job-1.1: its grace of 5s after SIGTERM is over
            16s  settle job-1.1: canceled
            30s  job-1 is canceled
        "#]],
    );
}

#[test]
fn the_time_limit_saves_and_ends() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached limit=100s
           50s  a saves 40
           101s a saves 90
           102s state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            100s direct job-1 #1: yield (time limit)
            100s yield job-1.1: time limit, at most 8s for its checkpoint
            101s settle job-1.1: failed, time limit
            102s job-1 is failed
        "#]],
    );
}

/// A hold that came after a cancel took its place, and the canceled job ran again after its release.
#[test]
fn a_hold_does_not_undo_a_cancel() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 stubborn grace=5s
           10s  cancel a
           11s  hold a
           12s  preempt a
           30s  state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  SIGTERM job-1.1: cancel, grace 5s
            11s  refused [AP0102]: job-1 is stopping: it cannot be put on hold; `antiphon job job-1` shows what it is doing
            12s  refused [AP0102]: job-1 is stopping: it cannot be preempted; `antiphon job job-1` shows what it is doing
            15s  SIGKILL job-1.1: its grace of 5s after SIGTERM is over
            15s  settle job-1.1: canceled
            30s  job-1 is canceled
        "#]],
    );
}

/// Commands that share a commit are all applied before anything is decided: the last one must not win over a stronger one.
#[test]
fn of_commands_in_one_commit_the_one_that_goes_furthest_stands() {
    for commands in ["hold a, preempt a, cancel a", "cancel a, hold a, preempt a"] {
        let scenario = format!(
            "nodes: n0 8 H100
               0s   submit a: 8
               10s  together: {commands}
               11s  state a"
        );
        let last = play(&scenario).lines().last().unwrap().to_owned();
        assert_eq!(last, "11s  job-1 is canceled", "{commands}");
    }
    check(
        "nodes: n0 8 H100
           0s   submit a: 8
           10s  together: hold a, preempt a
           11s  state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  SIGTERM job-1.1: hold, grace 1m00s
            10s  settle job-1.1: held
            11s  job-1 is held
        "#]],
    );
}

/// A trainer at its last step that ended by SIGTERM was taken for a failure: it ran again though it was on hold.
#[test]
fn a_job_at_its_last_step_is_held_all_the_same() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8
           10s  a progress 100 of 100
           11s  hold a
           30s  state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            11s  SIGTERM job-1.1: hold, grace 1m00s
            11s  settle job-1.1: held
            30s  job-1 is held
        "#]],
    );
}

/// A job that ended by itself in the commit in which somebody preempted it ran a second time, from its start.
#[test]
fn exit_zero_before_a_stop_has_begun_is_success() {
    for command in ["preempt", "hold"] {
        let scenario = format!(
            "nodes: n0 8 H100
               0s   submit a: 8
               10s  together: {command} a, a exits 0
               11s  state a"
        );
        let last = play(&scenario).lines().last().unwrap().to_owned();
        assert_eq!(last, "11s  job-1 is succeeded", "{command}");
    }
}

#[test]
fn a_trainer_that_saved_has_ten_seconds_to_end_by_itself() {
    check(
        "nodes: n0 8 H100
           0s   submit train: 8 best-effort attached stubborn grace=30s
           60s  submit urgent: 8 production
           63s  train saves 60
           64s  why urgent
           200s state train",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  direct job-1 #1: yield (for job-2 (priority))
            60s  yield job-1.1: for job-2 (priority), at most 1m00s for its checkpoint
            60s  hold n0 for job-2, in 1m30s
            64s  why job-2: waiting for job-1 to save and give way, at the latest in 39s
            73s  SIGTERM job-1.1: for job-2 (priority), grace 30s
            103s SIGKILL job-1.1: its grace of 30s after SIGTERM is over
            103s settle job-1.1: requeued
            103s launch job-2.1 on n0[0-7]
            103s hold n0 for job-1, nobody knows when
            200s job-1 is pending
        "#]],
    );
}

#[test]
fn what_an_earlier_attempt_reported_does_not_finish_a_later_one() {
    check(
        "nodes: n0 8 H100
           0s   submit train: 8 best-effort attached
           5s   train progress 100 of 100
           6s   train exits 1
           20s  submit urgent: 8 production
           21s  train saves 50
           22s  state train",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            6s   settle job-1.1: retry in 10s, software
            16s  launch job-1.2 on n0[0-7]
            20s  direct job-1 #1: yield (for job-2 (priority))
            20s  yield job-1.2: for job-2 (priority), at most 1m00s for its checkpoint
            20s  hold n0 for job-2, in 2m00s
            21s  settle job-1.2: requeued
            21s  launch job-2.1 on n0[0-7]
            21s  hold n0 for job-1, nobody knows when
            22s  job-1 is pending
        "#]],
    );
}

#[test]
fn a_release_overtakes_a_hold_that_is_under_way() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           10s  hold a
           11s  release a
           12s  a saves 10
           13s  state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  direct job-1 #1: yield (hold)
            10s  yield job-1.1: hold, at most 1m00s for its checkpoint
            12s  settle job-1.1: requeued
            12s  launch job-1.2 on n0[0-7]
            13s  job-1 is running
        "#]],
    );
}

#[test]
fn a_service_takes_from_production_and_nobody_takes_from_a_service() {
    check(
        "nodes: n0 8 H100
           0s   submit batch: 8 production
           60s  submit web: 8 service
           70s  submit other: 8 service
           80s  submit more: 8 production
           90s  why other
           3h   state web",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  SIGTERM job-1.1: for job-2 (priority), grace 1m00s
            60s  hold n0 for job-2, in 1m00s
            60s  settle job-1.1: requeued
            60s  launch job-2.1 on n0[0-7]
            60s  hold n0 for job-1, nobody knows when
            70s  hold n0 for job-3, nobody knows when
            90s  why job-3: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-2 (service) holds 8
            3h00m job-2 is running
        "#]],
    );
}

/// Both tasks would need more CPUs than one node has: room is made on two.
#[test]
fn room_is_made_on_as_many_nodes_as_the_cpus_ask_for() {
    check(
        "nodes: n[0-1] 8 H100 cpus=64
           0s   submit a: 4 best-effort attached cpus=16
           0s   submit b: 4 best-effort attached cpus=16
           0s   submit c: 4 best-effort attached cpus=16
           0s   submit d: 4 best-effort attached cpus=16
           60s  submit wide: 8 production tasks=2 cpus=40",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            0s   launch job-2.1 on n0[4-7]
            0s   launch job-3.1 on n1[0-3]
            0s   launch job-4.1 on n1[4-7]
            60s  direct job-1 #1: yield (for job-5 (priority))
            60s  yield job-1.1: for job-5 (priority), at most 1m00s for its checkpoint
            60s  direct job-3 #1: yield (for job-5 (priority))
            60s  yield job-3.1: for job-5 (priority), at most 1m00s for its checkpoint
            60s  hold n0 n1 for job-5, in 2m00s
        "#]],
    );
}
