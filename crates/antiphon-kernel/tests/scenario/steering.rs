//! Findings become directives, once, where the job allows it.

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
            10s  direct job-1 #1: set_weights scraped_7=0 (noise: loss 5.54 nat fell by -0.01 while the other shards reach 2.81 and fell by 1.90 (120 samples, step 80))
            12s  direct job-1 #2: set_weights scraped_9=0 (noise: loss 5.54 nat fell by -0.01 while the other shards reach 2.81 and fell by 1.90 (120 samples, step 80))
        "#]],
    );
}

#[test]
fn where_rules_only_observe_nothing_is_directed() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           10s  a noise scraped_7",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
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
            12s  direct job-1 #2: set_weights scraped_7=0 (noise: loss 5.54 nat fell by -0.01 while the other shards reach 2.81 and fell by 1.90 (120 samples, step 80))
        "#]],
    );
}
