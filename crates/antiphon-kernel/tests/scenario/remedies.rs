//! Remedies beyond directives: another node, a new start, more data.

use expect_test::expect;

use crate::world::check;

#[test]
fn a_slow_node_is_left_where_there_is_another() {
    check(
        "nodes: n[0-2] 8 H100
           0s   submit a: 16 attached checkpoint
           10s  a finds straggler 12 slow: replace 12
           11s  a saves 50
           12s  findings a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            10s  remedy 0 of straggler 12 for job-1
            10s  direct job-1 #1: yield (n1 is slower than its other nodes)
            10s  yield job-1.1: n1 is slower than its other nodes, at most 1m00s for its checkpoint
            11s  settle job-1.1: requeued
            11s  launch job-1.2 on n0[0-7] n2[0-7]
            12s  straggler 12 slow: done
        "#]],
    );
}

#[test]
fn a_slow_node_is_kept_where_there_is_no_other() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 16 attached checkpoint
           10s  a finds straggler 12 slow: replace 12; drain 12 500",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            10s  remedy 1 of straggler 12 for job-1
            10s  direct job-1 #1: drain task 12 to 500/1000 for one step (slow: its numbers)
        "#]],
    );
}

/// A cycle that held the slow node back for it instead said that it was done, and the job waited for whatever came next.
#[test]
fn a_slow_node_is_taken_at_once_where_the_other_one_is_gone() {
    check(
        "nodes: n[0-2] 8 H100
           0s   submit a: 16 attached checkpoint
           10s  a finds straggler 12 slow: replace 12
           10s  submit b: 8 service
           11s  a saves 50",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            10s  remedy 0 of straggler 12 for job-1
            10s  direct job-1 #1: yield (n1 is slower than its other nodes)
            10s  yield job-1.1: n1 is slower than its other nodes, at most 1m00s for its checkpoint
            10s  launch job-2.1 on n2[0-7]
            11s  settle job-1.1: requeued
            11s  launch job-1.2 on n0[0-7] n1[0-7]
        "#]],
    );
}

#[test]
fn slow_tasks_of_two_teams_convict_a_node_those_of_one_do_not() {
    check(
        "nodes: n0 8 H100
         teams: rlhf, eval
           0s   submit a: 4 attached team=rlhf
           1s   submit b: 4 attached team=eval
           10s  a finds straggler 0 slow: replace 0
           11s  a finds straggler 1 slow: replace 1
           12s  b finds straggler 0 slow: replace 0",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            1s   launch job-2.1 on n0[4-7]
            12s  n0 is put aside: hardware failures or slow tasks of jobs of 2 teams within 1h00m: job-1 of `rlhf`, job-2 of `eval`
        "#]],
    );
}

#[test]
fn a_hung_run_is_ended_and_tried_again_as_a_failure() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached stubborn retries=1
           10s  a finds hang - hung: restart
           100s a finds hang - hung: restart
           300s past a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of hang for job-1
            10s  SIGTERM job-1.1: it made no step for too long, grace 1m00s
            70s  SIGKILL job-1.1: its grace of 1m00s after SIGTERM is over
            70s  settle job-1.1: retry in 10s, software
            80s  launch job-1.2 on n0[0-7]
            100s remedy 0 of hang for job-1
            100s SIGTERM job-1.2: it made no step for too long, grace 1m00s
            160s SIGKILL job-1.2: its grace of 1m00s after SIGTERM is over
            160s settle job-1.2: failed, software
            300s job-1.1 ran on n0[0-7] as standard for 1m10s: it made no step for too long, retry in 10s, software, lost 0.15 GPU-h
            300s job-1.2 ran on n0[0-7] as standard for 1m20s: it made no step for too long, failed, software, lost 0.17 GPU-h
        "#]],
    );
}

#[test]
fn a_starving_category_gets_samples_of_its_own() {
    check(
        "nodes: n0 8 H100, c0 0
           0s   submit a: 8 attached auto augment=paraphrase:2 shard=law_1:law shard=code_1:code
           10s  a finds shard law starving: augment law
           11s  findings a
           40s  a-augment-1 exits 0
           41s  a answers 1 applied
           42s  findings a
           43s  shards a
           50s  a finds shard law starving: augment law
           51s  findings a
           700s findings a
           720s a-augment-2 exits 0
           2h   a finds shard law starving: augment law
           2h   findings a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of shard law for job-1
            10s  augment law for job-1 by paraphrase: a-augment-1
            10s  launch job-2.1 on c0
            11s  shard law starving: started job-2
            40s  settle job-2.1: succeeded
            40s  direct job-1 #1: add_samples law-augment-1 from /job-1-augment-1.jsonl (`paraphrase` of job-2.1 made samples of `law`)
            42s  shard law starving: done
            43s  code_1 of code from []
            43s  law-augment-1 of law from [law_1]paraphrase, made by job-2.1
            43s  law_1 of law from []
            51s  shard law starving: told
            640s remedy 0 of shard law for job-1
            640s augment law for job-1 by paraphrase: a-augment-2
            640s launch job-3.1 on c0
            700s shard law starving: started job-3
            720s settle job-3.1: succeeded
            720s direct job-1 #2: add_samples law-augment-2 from /job-1-augment-2.jsonl (`paraphrase` of job-3.1 made samples of `law`)
            2h00m shard law starving: directed #2
        "#]],
    );
}

#[test]
fn a_data_job_that_fails_is_shown_with_its_parents_findings() {
    check(
        "nodes: n0 8 H100, c0 0
           0s   submit a: 8 attached auto augment=paraphrase:9 retries=0 shard=law_1:law
           10s  a finds shard law_1 starving: augment law_1
           20s  a-augment-1 exits 3
           21s  findings a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of shard law_1 for job-1
            10s  augment law_1 for job-1 by paraphrase: a-augment-1
            10s  launch job-2.1 on c0
            20s  settle job-2.1: failed, software
            21s  shard law_1 starving: refused: job-2 made no samples: software, exit code 3
        "#]],
    );
}

#[test]
fn a_data_job_ends_with_the_job_that_it_makes_data_for() {
    check(
        "nodes: n0 8 H100, c0 0
           0s   submit a: 8 attached auto augment=paraphrase:9
           10s  a finds shard law starving: augment law
           20s  cancel a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            10s  remedy 0 of shard law for job-1
            10s  augment law for job-1 by paraphrase: a-augment-1
            10s  launch job-2.1 on c0
            20s  SIGTERM job-1.1: cancel, grace 1m00s
            20s  SIGTERM job-2.1: cancel, grace 1m00s
            20s  settle job-1.1: canceled
            20s  settle job-2.1: canceled
        "#]],
    );
}

#[test]
fn without_a_way_to_make_data_a_starving_category_is_only_shown() {
    check(
        "nodes: n0 8 H100, c0 0
           0s   submit a: 8 attached auto
           10s  a finds shard law starving: augment law
           11s  findings a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            11s  shard law starving: told
        "#]],
    );
}

#[test]
fn a_trainer_says_where_its_shards_came_from() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached shard=law_1:law
           10s  a draws law_2:law:law_1
           11s  a draws law_1:contracts
           12s  shards a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            12s  law_1 of contracts from []
            12s  law_2 of law from [law_1]
        "#]],
    );
}
