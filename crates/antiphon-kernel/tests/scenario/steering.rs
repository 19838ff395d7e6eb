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
        expect![[""]],
    );
}

#[test]
fn where_rules_only_observe_nothing_is_directed() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           10s  a noise scraped_7
           11s  findings a",
        expect![[""]],
    );
}

#[test]
fn what_changes_no_training_is_done_without_being_allowed() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           10s  a finds batch - memory-low: stop; set_micro_batch 16
           11s  findings a",
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
    );
}

#[test]
fn a_cleared_finding_ends_and_may_come_back() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached auto
           10s  a noise s1
           20s  a finds shard s1 cleared:
           21s  findings a
           30s  a noise s1
           80s  findings a",
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
    );
}

#[test]
fn the_outlook_of_a_run_holds_until_the_rule_takes_it_back() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           10s  a outlook 500
           11s  findings a
           20s  a finds convergence - cleared:
           21s  findings a",
        expect![[""]],
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
           301s undo a 1",
        expect![[""]],
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
           31s  undo a 2",
        expect![[""]],
    );
}
