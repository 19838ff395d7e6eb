//! Who starts, where, and why not yet.

use std::fmt::Write as _;

use expect_test::expect;

use crate::world::{check, play};

#[test]
fn a_job_starts_at_once_where_it_fits() {
    check(
        "nodes: n0 8 H100
           0s submit a: 4
           0s submit b: 4",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            0s   launch job-2.1 on n0[4-7]
        "#]],
    );
}

#[test]
fn a_gang_takes_the_fewest_nodes_and_the_tightest_of_them() {
    check(
        "nodes: n0 8 H100, n1 8 H100, n2 4 H100
           0s submit a: 4
           0s submit b: 16
           0s submit c: 8
           1s a exits 0",
        expect![[r#"
            0s   launch job-1.1 on n2[0-3]
            0s   launch job-2.1 on n0[0-7] n1[0-7]
            0s   hold n0 for job-3, nobody knows when
            1s   settle job-1.1: succeeded
        "#]],
    );
}

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    check(
        "nodes: n0 8 H100, n1 8 H100
           0s submit small: 1
           1s submit wide: 16
           2s why wide
           3s small exits 0",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            1s   hold n0 n1 for job-2, nobody knows when
            2s   why job-2: waiting for 16 GPUs: 15 free, best node n1 has 8 of 8; job-1 (standard) holds 1
            3s   settle job-1.1: succeeded
            3s   launch job-2.1 on n0[0-7] n1[0-7]
        "#]],
    );
}

#[test]
fn first_come_is_first_served_within_a_class() {
    check(
        "nodes: n0 8 H100
           0s submit a: 8
           1s submit b: 8
           2s submit c: 4
           3s why c
           4s a exits 0
           5s b exits 0",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 for job-2, nobody knows when
            3s   why job-3: waiting for 4 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8
            4s   settle job-1.1: succeeded
            4s   launch job-2.1 on n0[0-7]
            4s   hold n0 for job-3, nobody knows when
            5s   settle job-2.1: succeeded
            5s   launch job-3.1 on n0[0-3]
        "#]],
    );
}

#[test]
fn class_goes_before_arrival() {
    check(
        "nodes: n0 8 H100
           0s submit a: 8 service
           1s submit b: 8 best-effort
           2s submit c: 8 standard
           3s submit d: 8 production
           4s a exits 0
           5s d exits 0
           6s c exits 0",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 for job-2, nobody knows when
            2s   hold n0 for job-3, nobody knows when
            3s   hold n0 for job-4, nobody knows when
            4s   settle job-1.1: succeeded
            4s   launch job-4.1 on n0[0-7]
            4s   hold n0 for job-3, nobody knows when
            5s   settle job-4.1: succeeded
            5s   launch job-3.1 on n0[0-7]
            5s   hold n0 for job-2, nobody knows when
            6s   settle job-3.1: succeeded
            6s   launch job-2.1 on n0[0-7]
        "#]],
    );
}

#[test]
fn a_job_for_other_gpus_passes_a_blocked_one() {
    check(
        "nodes: n0 8 H100, n1 8 A100
           0s submit a: 8 type=H100
           1s submit b: 8 type=H100
           2s submit c: 8 type=A100
           3s submit d: 0 cpus=1",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 for job-2, nobody knows when
            2s   launch job-3.1 on n1[0-7]
            3s   launch job-4.1 on n1
        "#]],
    );
}

#[test]
fn a_share_of_a_gpu_fills_a_gpu_that_is_shared_already() {
    check(
        "nodes: n0 2 H100
           0s submit a: 0.5
           0s submit b: 0.25
           0s submit c: 1
           0s submit d: 0.5
           1s why d",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            0s   launch job-2.1 on n0[0]
            0s   launch job-3.1 on n0[1]
            0s   hold n0 for job-4, nobody knows when
            1s   why job-4: waiting for 0.5 GPUs: 0.25 free, best node n0 has 0.25 of 2; job-3 (standard) holds 1, job-1 (standard) holds 0.5, job-2 (standard) holds 0.25
        "#]],
    );
}

#[test]
fn tasks_are_equal_parts_and_share_a_node_where_they_fit() {
    check(
        "nodes: n0 8 H100, n1 8 H100
           0s submit a: 8 tasks=4
           0s submit b: 6 per-gpu",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   launch job-2.1 on n1[0-5]
        "#]],
    );
}

#[test]
fn a_draining_node_takes_nothing_new_and_loses_nothing() {
    check(
        "nodes: n0 8 H100, n1 8 H100
           0s submit a: 8
           1s drain n1
           2s submit b: 8
           3s why b
           4s undrain n1",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            2s   hold n0 for job-2, nobody knows when
            3s   why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8, 8 on nodes that drain or are down; job-1 (standard) holds 8
            4s   launch job-2.1 on n1[0-7]
        "#]],
    );
}

#[test]
fn a_job_waits_for_those_before_it_and_dies_with_them() {
    check(
        "nodes: n0 8 H100
           0s submit a: 8
           0s submit b: 1 after=a
           0s submit c: 1 after=b
           1s why b
           2s a exits 0
           3s b unstartable
           4s state c",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   why job-2: waiting for job-1 to succeed
            2s   settle job-1.1: succeeded
            2s   launch job-2.1 on n0[0]
            3s   settle job-2.1: failed, unstartable
            3s   abandon job-3: job-2 did not succeed
            4s   job-3 is failed
        "#]],
    );
}

#[test]
fn a_pause_starts_nothing_and_still_ends_what_people_end() {
    check(
        "nodes: n0 8 H100
           0s submit a: 8
           1s pause
           2s submit b: 1
           3s cancel a
           4s why b
           5s unpause",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            3s   SIGTERM job-1.1: cancel, grace 1m00s
            3s   settle job-1.1: canceled
            4s   why job-2: deciding is paused until `antiphon unpause`: maintenance
            5s   launch job-2.1 on n0[0]
        "#]],
    );
}

#[test]
fn safe_mode_decides_nothing_until_an_operator_says_so() {
    check(
        "nodes: n0 8 H100
           0s bug
           1s submit a: 8
           2s why a
           3s unpause",
        expect![[r#"
            2s   why job-1: antiphon is in safe mode until `antiphon unpause`: 1 != 2
            3s   launch job-1.1 on n0[0-7]
        "#]],
    );
}

#[test]
fn a_node_that_is_no_longer_offered_keeps_its_tasks() {
    check(
        "nodes: n0 8 H100, n1 8 H100
           0s submit a: 16
           1s nodes n0 8 H100
           2s state a
           3s a exits 0
           4s submit b: 8
           5s submit c: 8
           6s why c
           7s nodes n0 8 H100, n1 8 H100",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            2s   job-1 is running
            3s   settle job-1.1: succeeded
            4s   launch job-2.1 on n0[0-7]
            5s   hold n0 for job-3, nobody knows when
            6s   why job-3: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8, 8 on nodes that drain or are down; job-2 (standard) holds 8
            7s   launch job-3.1 on n1[0-7]
        "#]],
    );
}

/// An `undrain` made a node that its backend no longer offers take tasks.
#[test]
fn undraining_a_node_that_is_down_does_not_bring_it_up() {
    check(
        "nodes: n0 8 H100, n1 8 H100
           0s   nodes n0 8 H100
           1s   drain n1
           2s   undrain n1
           3s   submit a: 8
           4s   submit b: 8
           5s   nodes n0 8 H100, n1 8 H100",
        expect![[r#"
            3s   launch job-1.1 on n0[0-7]
            4s   hold n0 for job-2, nobody knows when
            5s   launch job-2.1 on n1[0-7]
        "#]],
    );
}

/// A drained node that was down for a while came back ready, though nobody had undrained it.
#[test]
fn a_drained_node_that_was_down_comes_back_drained() {
    check(
        "nodes: n0 8 H100, n1 8 H100
           0s   drain n1
           1s   nodes n0 8 H100
           2s   nodes n0 8 H100, n1 8 H100
           3s   submit a: 8
           4s   submit b: 8
           5s   undrain n1",
        expect![[r#"
            3s   launch job-1.1 on n0[0-7]
            4s   hold n0 for job-2, nobody knows when
            5s   launch job-2.1 on n1[0-7]
        "#]],
    );
}

/// Each link of a chain of dependents took a cycle of its own, and a long chain put the server into safe mode.
#[test]
fn a_long_chain_of_dependents_falls_with_its_first_job() {
    let mut scenario = "nodes: n0 8 H100\n0s pause\n0s submit a0: 8\n".to_owned();
    for link in 1..=100 {
        writeln!(scenario, "0s submit a{link}: 8 after=a{}", link - 1).unwrap();
    }
    scenario += "1s cancel a0\n2s unpause\n3s state a100";
    let out = play(&scenario);
    assert_eq!(out.matches("abandon").count(), 100);
    assert_eq!(out.lines().last(), Some("3s   job-101 is failed"));
}

#[test]
fn a_job_for_one_type_is_told_about_that_type() {
    check(
        "nodes: n0 8 H100, n1 8 A100
           0s   submit a: 4 type=H100
           1s   submit b: 8 type=H100
           2s   why b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            1s   hold n0 for job-2, nobody knows when
            2s   why job-2: waiting for 8 H100: 4 free, best node n0 has 4 of 8; job-1 (standard) holds 4
        "#]],
    );
}
