//! Nodes and GPUs that are to be given back soon: directive first, checkpoint first, and nobody comes after.

use expect_test::expect;

use crate::world::check;

#[test]
fn a_spot_notice_becomes_a_directive_at_once_and_the_lease_ends_before_it() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 attached checkpoint grace=30s
           1s   submit b: 8 attached checkpoint grace=30s
           60s  notice n0 within 120s spot
           61s  why b
           100s a saves 500
           101s submit c: 8
           102s why c",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   launch job-2.1 on n1[0-7]
            60s  direct job-1 #1: yield (spot notice: n0 is given back in 2m00s)
            60s  yield job-1.1: spot notice: n0 is given back in 2m00s, at most 1m00s for its checkpoint
            61s  why job-2: running
            100s settle job-1.1: requeued
            101s hold n1 for job-1, nobody knows when
            102s why job-3: waiting for 8 GPUs: 0 free, best node n1 has 0 of 8, 8 on nodes that drain or are down; job-2 (standard) holds 8
        "#]],
    );
}

/// With a grace longer than half of the notice the save gets half: SIGTERM with nothing saved would make it worthless.
#[test]
fn a_short_notice_is_halved_and_who_never_attached_gets_all_of_it_as_grace() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 attached checkpoint
           1s   submit b: 8 stubborn
           60s  together: notice n0 within 30s spot, notice n1 within 30s spot
           300s state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   launch job-2.1 on n1[0-7]
            60s  direct job-1 #1: yield (spot notice: n0 is given back in 30s)
            60s  yield job-1.1: spot notice: n0 is given back in 30s, at most 15s for its checkpoint
            60s  SIGTERM job-2.1: spot notice: n1 is given back in 30s, grace 1m00s
            75s  SIGTERM job-1.1: spot notice: n0 is given back in 30s, grace 1m00s
            75s  settle job-1.1: requeued
            120s SIGKILL job-2.1: its grace of 1m00s after SIGTERM is over
            120s settle job-2.1: requeued
            300s job-1 is pending
        "#]],
    );
}

#[test]
fn an_inference_spike_takes_free_gpus_first_then_those_that_lose_least() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 2 production attached checkpoint
           1s   submit b: 2 best-effort attached checkpoint
           2s   submit c: 2 best-effort attached checkpoint
           50s  b saves 100
           60s  notice n0 gpus=2 within 120s inference
           61s  notice n0 gpus=1 within 120s inference
           65s  b saves 110
           71s  why b
           80s  notice n0 gpus=6 within 60s
           90s  undrain n0",
        expect![[r#"
            0s   launch job-1.1 on n0[0-1]
            1s   launch job-2.1 on n0[2-3]
            2s   launch job-3.1 on n0[4-5]
            61s  direct job-2 #1: yield (inference spike: a GPU of n0 is given back in 2m00s)
            61s  yield job-2.1: inference spike: a GPU of n0 is given back in 2m00s, at most 8s for its checkpoint
            65s  settle job-2.1: requeued
            71s  why job-2: waiting for 2 GPUs: 1 free, best node n0 has 1 of 8; job-1 (production) holds 2, job-3 (best-effort) holds 2
            80s  refused [AP0129]: n0 cannot be given back: 6 of its GPUs are asked for, 5 are left; `antiphon nodes` shows what n0 has; without `--gpus` all of it is given back
            90s  launch job-2.2 on n0[2-3]
        "#]],
    );
}

#[test]
fn what_is_given_back_is_lost_to_nobody_until_it_is_taken_back() {
    check(
        "nodes: n0 8 H100
           0s   notice n0 within 60s inference
           1s   submit a: 8 attached checkpoint
           2s   why a
           2h   why a
           2h   undrain n0",
        expect![[r#"
            2s   why job-1: waiting for 8 GPUs: 0 free, 8 on nodes that drain or are down
            2h00m why job-1: waiting for 8 GPUs: 0 free, 8 on nodes that drain or are down
            2h00m launch job-1.1 on n0[0-7]
        "#]],
    );
}

/// A spot node that goes and comes again is another machine, whatever it is called.
#[test]
fn a_node_that_comes_back_after_its_notice_takes_jobs_again() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached checkpoint
           10s  notice n0 within 120s spot
           20s  a saves 50
           130s n0 goes
           10m  n0 comes",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  direct job-1 #1: yield (spot notice: n0 is given back in 2m00s)
            10s  yield job-1.1: spot notice: n0 is given back in 2m00s, at most 1m00s for its checkpoint
            20s  settle job-1.1: requeued
            600s launch job-1.2 on n0[0-7]
        "#]],
    );
}

#[test]
fn a_notice_cuts_the_wait_of_who_is_giving_way_already() {
    check(
        "nodes: n0 8 H100
         policy: checkpoint_wait_ms_default=10m
           0s   submit a: 8 attached checkpoint grace=10s
           10s  preempt a
           20s  notice n0 within 60s spot
           300s state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  direct job-1 #1: yield (preempted by an operator)
            10s  yield job-1.1: preempted by an operator, at most 10m00s for its checkpoint
            70s  SIGTERM job-1.1: preempted by an operator, grace 10s
            70s  settle job-1.1: requeued
            300s job-1 is pending
        "#]],
    );
}

#[test]
fn a_notice_is_obeyed_while_deciding_is_paused() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached checkpoint
           5s   pause
           10s  notice n0 within 120s spot
           20s  a saves 50",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  direct job-1 #1: yield (spot notice: n0 is given back in 2m00s)
            10s  yield job-1.1: spot notice: n0 is given back in 2m00s, at most 1m00s for its checkpoint
            20s  settle job-1.1: requeued
        "#]],
    );
}

#[test]
fn a_notice_asks_for_what_is_there() {
    check(
        "nodes: n0 4 H100
           0s   notice n1 within 60s spot
           1s   notice n0 gpus=0 within 60s
           2s   notice n0 gpus=3 within 60s
           3s   notice n0 gpus=2 within 60s
           4s   notice n0 within 0s",
        expect![[r#"
            0s   refused [AP0105]: there is no node `n1`; there are `n0`; `antiphon nodes` lists all
            1s   refused [AP0129]: n0 cannot be given back: 0 of its GPUs are asked for, 4 are left; `antiphon nodes` shows what n0 has; without `--gpus` all of it is given back
            3s   refused [AP0129]: n0 cannot be given back: 2 of its GPUs are asked for, 1 are left; `antiphon nodes` shows what n0 has; without `--gpus` all of it is given back
            4s   refused [AP0129]: n0 cannot be given back: it leaves no time; `antiphon nodes` shows what n0 has; without `--gpus` all of it is given back
        "#]],
    );
}

#[test]
fn a_held_slot_on_what_is_given_back_is_made_anew() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 limit=1h
           1s   submit b: 8 limit=2h
           2s   submit c: 8
           10s  notice n0 within 120s spot",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   launch job-2.1 on n1[0-7]
            2s   hold n0 for job-3, in 59m58s
            10s  SIGTERM job-1.1: spot notice: n0 is given back in 2m00s, grace 1m00s
            10s  hold n1 for job-3, in 1h59m
            10s  settle job-1.1: requeued
        "#]],
    );
}

/// What comes from the system, each cause beside the moment at which its directive goes out.
#[test]
fn every_system_cause_is_a_directive_in_the_cycle_that_sees_it() {
    check(
        "nodes: n[0-5] 8 H100
           0s   submit hold: 8 attached checkpoint
           0s   submit operator: 8 attached checkpoint
           0s   submit window: 8 attached checkpoint
           0s   submit spot: 8 attached checkpoint
           0s   submit spike: 8 attached checkpoint
           0s   submit hot: 8 attached checkpoint
           5s   maintain n2 from 12s until 1h
           10s  hold hold
           11s  preempt operator
           13s  notice n3 within 120s spot
           14s  notice n4 gpus=4 within 120s inference
           15s  hot finds straggler 3 throttled: drain 3 800
           16s  drain n5
           17s  submit urgent: 8 production
           20s  state hot",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   launch job-2.1 on n1[0-7]
            0s   launch job-3.1 on n2[0-7]
            0s   launch job-4.1 on n3[0-7]
            0s   launch job-5.1 on n4[0-7]
            0s   launch job-6.1 on n5[0-7]
            10s  direct job-1 #1: yield (hold)
            10s  yield job-1.1: hold, at most 1m00s for its checkpoint
            11s  direct job-2 #1: yield (preempted by an operator)
            11s  yield job-2.1: preempted by an operator, at most 1m00s for its checkpoint
            12s  direct job-3 #1: yield (drain of n2)
            12s  yield job-3.1: drain of n2, at most 1m00s for its checkpoint
            13s  direct job-4 #1: yield (spot notice: n3 is given back in 2m00s)
            13s  yield job-4.1: spot notice: n3 is given back in 2m00s, at most 1m00s for its checkpoint
            14s  direct job-5 #1: yield (inference spike: 4 GPUs of n4 are given back in 2m00s)
            14s  yield job-5.1: inference spike: 4 GPUs of n4 are given back in 2m00s, at most 1m00s for its checkpoint
            15s  remedy 0 of straggler 3 for job-6
            15s  direct job-6 #1: drain task 3 to 800/1000 for one step (throttled: its numbers)
            17s  hold n1 for job-7, in 1m57s
            20s  job-6 is running
        "#]],
    );
}
