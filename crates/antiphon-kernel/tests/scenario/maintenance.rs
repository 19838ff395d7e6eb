//! Planned times in which nodes take no tasks: reservations that nobody needs to be asked for.

use expect_test::expect;

use crate::world::check;

#[test]
fn nothing_starts_that_might_not_have_ended_when_its_node_goes_out_of_service() {
    check(
        "nodes: n[0-1] 8 H100
           0s   maintain n0+n1 from 2h until 3h
           1s   submit short: 8 limit=1h
           2s   submit long: 8 limit=5h
           3s   submit unknown: 1
           4s   why long
           5s   why unknown
           6s   change long
           2h   state short
           4h   state long",
        expect![[r#"
            1s   launch job-1.1 on n0[0-7]
            4s   why job-2: nodes that would do go out of service in 1h59m, and it may run for 5h00m
            5s   why job-3: nodes that would do go out of service in 1h59m, and nothing says how long it runs: give a `time_limit`
            6s   job-2 would start with `time_limit = "89m"`
            1h00m01s SIGTERM job-1.1: time limit, grace 1m00s
            1h00m01s settle job-1.1: failed, time limit
            2h00m job-1 is failed
            3h00m launch job-3.1 on n0[0]
            3h00m launch job-2.1 on n1[0-7]
            4h00m job-2 is running
        "#]],
    );
}

#[test]
fn jobs_go_where_no_maintenance_is_planned() {
    check(
        "nodes: n[0-1] 8 H100
           0s   maintain n0 from 2h until 3h
           1s   submit a: 8
           2s   submit b: 8
           3h   state b",
        expect![[r#"
            1s   launch job-1.1 on n1[0-7]
            2s   hold n1 for job-2, nobody knows when
            3h00m job-2 is pending
        "#]],
    );
}

#[test]
fn what_still_runs_when_it_begins_saves_gives_way_and_comes_back() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           1h   maintain n0 from 2h until 3h
           2h   a saves 100
           4h   state a
           4h   past a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            2h00m direct job-1 #1: yield (drain of n0)
            2h00m yield job-1.1: drain of n0, at most 8s for its checkpoint
            2h00m settle job-1.1: requeued
            3h00m launch job-1.2 on n0[0-7]
            4h00m job-1 is running
            4h00m job-1.1 ran on n0[0-7] as standard for 2h00m: drain of n0, requeued, lost 0 GPU-s
        "#]],
    );
}

/// Stopped in the cycle that settled it, it ended the process: it was no longer there to be stopped.
#[test]
fn what_ends_just_as_it_begins_is_settled_and_not_stopped() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 attached
           2h   together: a exits 0, maintain n0 from 2h until 3h
           2h   state a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            2h00m settle job-1.1: succeeded
            2h00m job-1 is succeeded
        "#]],
    );
}

#[test]
fn an_urgent_job_does_not_go_in_front_of_maintenance() {
    check(
        "nodes: n0 8 H100
           0s   maintain n0 from 2h until 3h
           1s   submit urgent: 8 service
           2s   why urgent
           4h   state urgent",
        expect![[r#"
            2s   why job-1: nodes that would do go out of service in 1h59m, and nothing says how long it runs: give a `time_limit`
            3h00m launch job-1.1 on n0[0-7]
            4h00m job-1 is running
        "#]],
    );
}

#[test]
fn undrain_takes_a_node_out_of_every_plan() {
    check(
        "nodes: n0 8 H100
           0s   maintain n0 from 2h until 9h
           3h   submit a: 8
           4h   why a
           5h   undrain n0",
        expect![[r#"
            4h00m why job-1: waiting for 8 GPUs: 0 free, 8 on nodes that drain or are down
            5h00m launch job-1.1 on n0[0-7]
        "#]],
    );
}

#[test]
fn a_reservation_on_a_node_that_goes_out_of_service_is_made_anew() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 limit=1h
           0s   submit b: 8 limit=3h
           1s   submit c: 8 limit=9h
           2s   maintain n0 from 30m until 5h
           3s   why c",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   launch job-2.1 on n1[0-7]
            1s   hold n0 for job-3, in 59m59s
            2s   hold n1 for job-3, in 2h59m
            3s   why job-3: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8 for about 29m57s, job-2 (standard) holds 8 for about 1h29m
        "#]],
    );
}
