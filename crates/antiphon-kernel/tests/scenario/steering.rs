//! Findings become directives where the job allows it, once, and a person has the last word.

use expect_test::expect;

use crate::world::check;

#[test]
fn a_noise_shard_loses_its_weight_once() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached auto
           10s  a noise scraped_7
           11s  a noise scraped_7
           12s  a noise scraped_9",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of shard scraped_7 for job-1
            10s  direct job-1 #1: set_weights scraped_7=0 (noise: its numbers)
            12s  remedy 0 of shard scraped_9 for job-1
            12s  direct job-1 #2: set_weights scraped_9=0 (noise: its numbers)
        "#]],
    );
}

#[test]
fn where_rules_only_observe_nothing_is_directed() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           10s  a noise scraped_7
           11s  findings a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            11s  shard scraped_7 noise: told
        "#]],
    );
}

#[test]
fn what_changes_no_training_is_done_without_being_allowed() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           10s  a finds batch - memory-low: stop; set_micro_batch 16
           11s  findings a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 1 of batch for job-1
            10s  direct job-1 #1: set_micro_batch 16 (memory-low: its numbers)
            11s  batch memory-low: directed #1
        "#]],
    );
}

#[test]
fn a_team_says_how_far_rules_go_where_its_job_does_not() {
    check(
        "nodes: n0 16 H100
         teams: lab shard=auto, rlhf parent=lab, eval parent=lab shard=observe
           0s   submit a: 8 attached team=rlhf
           1s   submit b: 8 attached team=eval
           10s  a noise s1
           11s  b noise s1",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   launch job-2.1 on n0[8-15]
            10s  remedy 0 of shard s1 for job-1
            10s  direct job-1 #1: set_weights s1=0 (noise: its numbers)
        "#]],
    );
}

#[test]
fn a_finding_on_an_attempt_that_stops_waits_for_the_next() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached auto
           10s  preempt a
           11s  a noise scraped_7
           12s  a saves 10",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  direct job-1 #1: yield (preempted by an operator)
            10s  yield job-1.1: preempted by an operator, at most 1m00s for its checkpoint
            12s  settle job-1.1: requeued
            12s  launch job-1.2 on n0[0-7]
            12s  remedy 0 of shard scraped_7 for job-1
            12s  direct job-1 #2: set_weights scraped_7=0 (noise: its numbers)
        "#]],
    );
}

#[test]
fn a_finding_waits_for_a_word_where_the_job_asks_for_that() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached approve
           10s  a noise s1
           11s  findings a
           12s  approve a shard s2
           13s  approve a convergence
           14s  approve a shard s1
           15s  findings a
           16s  a answers 1 applied
           17s  findings a
           18s  approve a shard s1",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            11s  shard s1 noise: waits for approval
            12s  refused [AP0126]: rule `shard` cannot be approved for job-1: it has 1 findings of that rule, none about `s2`; `antiphon approve job-1 shard SUBJECT` does for `s1`
            13s  refused [AP0126]: rule `convergence` cannot be approved for job-1: it has 0 findings of that rule, none about the run as a whole; `antiphon job job-1` lists its findings
            14s  remedy 0 of shard s1 for job-1
            14s  direct job-1 #1: set_weights s1=0 (noise: its numbers)
            15s  shard s1 noise: directed #1
            17s  shard s1 noise: done
            18s  refused [AP0126]: rule `shard` cannot be approved for job-1: what its finding `noise` asks for has been done; `antiphon job job-1` lists its findings
        "#]],
    );
}

#[test]
fn a_trainer_that_refuses_is_not_asked_again() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached auto
           10s  a noise s1
           11s  a answers 1 rejected
           90s  a noise s1
           91s  findings a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of shard s1 for job-1
            10s  direct job-1 #1: set_weights s1=0 (noise: its numbers)
            91s  shard s1 noise: refused: not now
        "#]],
    );
}

#[test]
fn a_cleared_finding_ends_and_may_come_back() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached auto
           10s  a noise s1
           20s  a finds shard s1 cleared
           21s  findings a
           30s  a noise s1
           80s  findings a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of shard s1 for job-1
            10s  direct job-1 #1: set_weights s1=0 (noise: its numbers)
            21s  shard s1 cleared: cleared
            70s  remedy 0 of shard s1 for job-1
            70s  direct job-1 #2: set_weights s1=0 (noise: its numbers)
            80s  shard s1 noise: directed #2
        "#]],
    );
}

#[test]
fn a_subject_is_left_alone_for_a_while_after_each_remedy() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached auto
           10s  a finds shard s1 starving: set_weights s1=200
           11s  a finds shard s1 starving: set_weights s1=300
           80s  findings a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of shard s1 for job-1
            10s  direct job-1 #1: set_weights s1=2 (starving: its numbers)
            70s  remedy 0 of shard s1 for job-1
            70s  direct job-1 #2: set_weights s1=3 (starving: its numbers)
            80s  shard s1 starving: directed #2
        "#]],
    );
}

#[test]
fn rules_send_no_more_directives_in_an_hour_than_the_policy_lets_them() {
    check(
        "nodes: n0 8 H100
         policy: rule_directives_per_hour_max=2
           0s   submit a: 8 attached auto
           10s  a noise s1
           20s  a noise s2
           30s  a noise s3
           2h   findings a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of shard s1 for job-1
            10s  direct job-1 #1: set_weights s1=0 (noise: its numbers)
            20s  remedy 0 of shard s2 for job-1
            20s  direct job-1 #2: set_weights s2=0 (noise: its numbers)
            1h00m10s remedy 0 of shard s3 for job-1
            1h00m10s direct job-1 #3: set_weights s3=0 (noise: its numbers)
            2h00m shard s1 noise: directed #1
            2h00m shard s2 noise: directed #2
            2h00m shard s3 noise: directed #3
        "#]],
    );
}

#[test]
fn compute_directives_die_with_their_attempt_and_the_rule_may_ask_again() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached auto
           10s  a finds batch - memory-low: set_micro_batch 16
           11s  a noise s1
           20s  preempt a
           21s  a saves 10
           22s  a finds batch - memory-low: set_micro_batch 16
           23s  a noise s1
           90s  findings a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of batch for job-1
            10s  direct job-1 #1: set_micro_batch 16 (memory-low: its numbers)
            11s  remedy 0 of shard s1 for job-1
            11s  direct job-1 #2: set_weights s1=0 (noise: its numbers)
            20s  direct job-1 #3: yield (preempted by an operator)
            20s  yield job-1.1: preempted by an operator, at most 1m00s for its checkpoint
            21s  settle job-1.1: requeued
            21s  launch job-1.2 on n0[0-7]
            70s  remedy 0 of batch for job-1
            70s  direct job-1 #4: set_micro_batch 16 (memory-low: its numbers)
            90s  shard s1 noise: directed #2
            90s  batch memory-low: directed #4
        "#]],
    );
}

#[test]
fn the_outlook_of_a_run_holds_until_the_rule_takes_it_back() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           10s  a outlook 500
           11s  findings a
           20s  a finds convergence - cleared
           21s  findings a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of convergence for job-1
            11s  convergence improving: done
            21s  convergence cleared: cleared
        "#]],
    );
}

#[test]
fn an_undone_directive_is_set_back_and_not_asked_for_again() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached auto
           10s  a finds shard s1 starving: set_weights s1=150 s2=50
           80s  a finds shard s1 starving: set_weights s1=200
           90s  undo a 2
           91s  undo a 2
           92s  undo a 7
           200s a finds shard s1 starving: set_weights s1=300
           201s findings a
           202s undo a 1
           300s approve a shard s1
           301s undo a 1
           302s directives a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of shard s1 for job-1
            10s  direct job-1 #1: set_weights s1=1.5 s2=0.5 (starving: its numbers)
            80s  remedy 0 of shard s1 for job-1
            80s  direct job-1 #2: set_weights s1=2 (starving: its numbers)
            91s  refused [AP0125]: directive #2 of job-1 cannot be undone: #3 has undone it; `antiphon job job-1` lists its directives; `antiphon direct job-1` sends another
            92s  refused [AP0125]: job-1 has no directive #7: it was sent 3, of which 3 are kept; `antiphon job job-1` lists its directives; `antiphon direct job-1` sends another
            201s shard s1 starving: undone
            300s remedy 0 of shard s1 for job-1
            300s direct job-1 #5: set_weights s1=3 (starving: its numbers)
            301s refused [AP0125]: directive #1 of job-1 cannot be undone: #4 has undone it; `antiphon job job-1` lists its directives; `antiphon direct job-1` sends another
            302s #1 set_weights s1=1.5 s2=0.5 (starving: its numbers)
            302s #2 set_weights s1=2 (starving: its numbers)
            302s #3 set_weights s1=1.5 (#2 is undone: set_weights s1=2)
            302s #4 set_weights s2=1 (#1 is undone: set_weights s1=1.5 s2=0.5)
            302s #5 set_weights s1=3 (starving: its numbers)
        "#]],
    );
}

/// The trainer's own weights are not all 1: where it says them, an undo goes back to them.
#[test]
fn the_first_directive_about_a_shard_is_set_back_to_what_its_trainer_began_with() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached auto shard=s1:law:s0
           5s   a draws s1@30:law
           6s   shards a
           10s  a finds shard s1 starving: set_weights s1=150 s2=50
           20s  undo a 1
           21s  directives a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            6s   s1 of law from [s0]
            10s  remedy 0 of shard s1 for job-1
            10s  direct job-1 #1: set_weights s1=1.5 s2=0.5 (starving: its numbers)
            21s  #1 set_weights s1=1.5 s2=0.5 (starving: its numbers)
            21s  #2 set_weights s1=0.3 s2=1 (#1 is undone: set_weights s1=1.5 s2=0.5)
        "#]],
    );
}

#[test]
fn what_is_done_once_cannot_be_undone() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached auto
           10s  a finds checkpoint - interval: checkpoint
           20s  undo a 1
           30s  a finds straggler 3 slow: drain 3 500
           31s  undo a 2
           32s  directives a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of checkpoint for job-1
            10s  direct job-1 #1: checkpoint (interval: its numbers)
            20s  refused [AP0125]: directive #1 of job-1 cannot be undone: `checkpoint` is done once and leaves nothing that could be set back; `antiphon job job-1` lists its directives; `antiphon direct job-1` sends another
            30s  remedy 0 of straggler 3 for job-1
            30s  direct job-1 #2: drain task 3 to 500/1000 for one step (slow: its numbers)
            32s  #1 checkpoint (interval: its numbers)
            32s  #2 drain task 3 to 500/1000 for one step (slow: its numbers)
            32s  #3 drain task 3 to 1000/1000 (#2 is undone: drain task 3 to 500/1000 for one step)
        "#]],
    );
}

#[test]
fn an_accept_line_is_met_by_the_first_that_meets_it_until_the_run_goes_back() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached accept=1.2
           10s  a reaches 1.5 at 100
           20s  a reaches 1.6 at 200
           21s  reached a
           30s  a reaches 1.19 at 300
           40s  a reaches 1.1 at 400
           41s  reached a
           50s  a task 0 exits 1
           70s  a reaches 1.4 at 250
           71s  reached a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            21s  not met: 1.5 at step 100
            41s  met: 1.19 at step 300
            50s  settle job-1.1: retry in 10s, software
            60s  launch job-1.2 on n0[0-7]
            71s  not met: 1.4 at step 250
        "#]],
    );
}
