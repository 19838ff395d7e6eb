//! The gate: when new best-effort jobs are kept back over the platform's own numbers, and when no more.

use expect_test::{Expect, expect};

use crate::world::{check, play};

/// Plays a scenario, and leaves out launches and ends of all jobs but these: the others only make samples.
fn check_of(jobs: &[u64], scenario: &str, expected: Expect) {
    let lines = play(scenario);
    let is_of_others = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let verb = words.next();
        let id = words.next().and_then(|word| word.strip_prefix("job-"));
        let number = id.and_then(|id| id.split_once('.')?.0.parse().ok());
        let moves = matches!(verb, Some("launch" | "settle"));
        moves && number.is_some_and(|number| !jobs.contains(&number))
    };
    let rest: Vec<&str> = lines.lines().filter(|line| !is_of_others(line)).collect();
    expected.assert_eq(&(rest.join("\n") + "\n"));
}

#[test]
fn over_a_redline_for_a_quarter_of_an_hour_new_best_effort_jobs_are_kept_back_until_it_recovers() {
    check_of(
        &[21, 22, 23, 24, 25],
        "nodes: n[0-7] 8 H100
         gate: on
           0s   submit p: 1 production array=0-19 starts=45s runs=1m
           10m  submit before: 1 best-effort runs=2h
           16m  submit b: 1 best-effort
           16m  submit s: 1 standard
           16m  submit q: 1 production
           16m  submit v: 1 service
           20m  why b
           20m  change b
           61m  state b",
        expect![[r#"
            600s launch job-21.1 on n0[0]
            945s the gate is shut for new best-effort jobs: the scheduling delay of production is 45s, over its redline of 30s for 15m00s (20 samples)
            960s launch job-23.1 on n0[1]
            960s launch job-24.1 on n0[2]
            960s launch job-25.1 on n0[3]
            1200s why job-22: the gate is shut for new best-effort jobs: the scheduling delay of production was 45s when it was shut, over its redline of 30s for 19m15s now (20 samples); it opens when that recovers, at the latest in 1h55m
            1200s job-22 would start with none
            1h00m the gate is open: the number has recovered
            1h00m launch job-22.1 on n0[4]
            1h01m job-22 is running
        "#]],
    );
}

#[test]
fn good_samples_open_the_gate() {
    check(
        "nodes: n0 8 H100
         gate: on samples_min=3
           0s   submit p: 1 production array=0-2 starts=45s runs=1m
           16m  submit b: 1 best-effort array=0-1
           20m  submit q: 1 production array=0-1 runs=1m
           20m  why b[0]
           21m  gate: on delay_production_ms_max=50s
           21m  state b[1]",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            0s   launch job-2.1 on n0[1]
            0s   launch job-3.1 on n0[2]
            105s settle job-1.1: succeeded
            105s settle job-2.1: succeeded
            105s settle job-3.1: succeeded
            945s the gate is shut for new best-effort jobs: the scheduling delay of production is 45s, over its redline of 30s for 15m00s (3 samples)
            1200s launch job-6.1 on n0[0]
            1200s launch job-7.1 on n0[1]
            1200s why job-4: the gate is shut for new best-effort jobs: the scheduling delay of production was 45s when it was shut, over its redline of 30s for 19m15s now (3 samples); it opens when that recovers, at the latest in 1h55m
            1260s the gate is open: the number has recovered
            1260s launch job-4.1 on n0[2]
            1260s launch job-5.1 on n0[3]
            1260s job-5 is running
        "#]],
    );
}

#[test]
fn fewer_than_twenty_samples_say_nothing() {
    check_of(
        &[20],
        "nodes: n[0-7] 8 H100
         gate: on
           0s   submit p: 1 production array=0-18 starts=45s runs=1m
           30m  submit b: 1 best-effort",
        expect![[r#"
            1800s launch job-20.1 on n0[0]
        "#]],
    );
}

#[test]
fn the_gate_opens_after_two_hours_at_the_latest_and_not_again_over_the_same_trouble() {
    check_of(
        &[21, 102],
        "nodes: n[0-7] 8 H100
         gate: on
           0s   submit p: 1 production array=0-19 starts=45s runs=1m
           20m  submit b: 1 best-effort
           30m  submit p2: 1 production array=0-19 starts=45s runs=1m
           60m  submit p3: 1 production array=0-19 starts=45s runs=1m
           90m  submit p4: 1 production array=0-19 starts=45s runs=1m
           120m submit p5: 1 production array=0-19 starts=45s runs=1m
           150m submit c: 1 best-effort
           150m state b
           5h   submit p6: 1 production array=0-19 starts=45s runs=1m
           6h   state c",
        expect![[r#"
            945s the gate is shut for new best-effort jobs: the scheduling delay of production is 45s, over its redline of 30s for 15m00s (20 samples)
            2h15m45s the gate is open: it was shut for as long as it may be
            2h15m45s launch job-21.1 on n0[0]
            2h30m launch job-102.1 on n0[1]
            2h30m job-21 is running
            5h15m45s the gate is shut for new best-effort jobs: the scheduling delay of production is 45s, over its redline of 30s for 15m00s (20 samples)
            6h00m job-102 is running
        "#]],
    );
}

#[test]
fn jobs_that_the_platform_failed_count_and_those_that_failed_themselves_do_not() {
    check(
        "nodes: n[0-1] 8 H100
         gate: on samples_min=4
           0s   submit a: 1 runs=1m
           0s   submit b: 1 runs=1m
           0s   submit c: 1 runs=1m
           0s   submit d: 1 retries=0
           0s   submit e: 1 retries=0
           10s  d exits 1
           20s  e fails hardware
           20m  submit x: 1 best-effort
           20m  why x",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            0s   launch job-2.1 on n0[1]
            0s   launch job-3.1 on n0[2]
            0s   launch job-4.1 on n0[3]
            0s   launch job-5.1 on n0[4]
            10s  settle job-4.1: failed, software
            20s  settle job-5.1: failed, hardware
            60s  settle job-1.1: succeeded
            60s  settle job-2.1: succeeded
            60s  settle job-3.1: succeeded
            960s the gate is shut for new best-effort jobs: the job completion rate is 75.0 %, over its redline of 85.0 % for 15m00s (4 samples)
            1200s why job-6: the gate is shut for new best-effort jobs: the job completion rate was 75.0 % when it was shut, over its redline of 85.0 % for 19m00s now (4 samples); it opens when that recovers, at the latest in 1h56m
        "#]],
    );
}

#[test]
fn a_checkpoint_that_is_waited_for_too_long_counts() {
    check(
        "nodes: n0 8 H100
         policy: checkpoint_wait_ms_default=5m
         gate: on samples_min=1
           0s   submit a: 8 attached
           60s  submit p: 8 production
           10m  submit b: 1 best-effort
           25m  submit c: 1 best-effort
           25m  why c",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  direct job-1 #1: yield (for job-2 (priority))
            60s  yield job-1.1: for job-2 (priority), at most 5m00s for its checkpoint
            60s  hold n0 for job-2, in 6m00s
            360s SIGTERM job-1.1: for job-2 (priority), grace 1m00s
            360s settle job-1.1: requeued
            360s launch job-2.1 on n0[0-7]
            360s hold n0 for job-1, nobody knows when
            1260s the gate is shut for new best-effort jobs: the time to checkpoint is 5m00s, over its redline of 3m00s for 15m00s (1 samples)
            1500s why job-4: the gate is shut for new best-effort jobs: the time to checkpoint was 5m00s when it was shut, over its redline of 3m00s for 19m00s now (1 samples); it opens when that recovers, at the latest in 1h56m
        "#]],
    );
}

#[test]
fn launches_that_fail_are_a_delay_that_goes_on() {
    check(
        "nodes: n0 8 H100
         gate: on samples_min=3 delay_production_ms_max=20s
           0s   submit p: 1 production starts=5s runs=1h
           1s   p is not launched
           12s  p is not launched
           35s  state p
           16m  submit b: 1 best-effort
           16m  why b",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            1s   settle job-1.1: retry in 10s, not launched
            11s  launch job-1.2 on n0[0]
            12s  settle job-1.2: retry in 10s, not launched
            22s  launch job-1.3 on n0[0]
            35s  job-1 is running
            927s the gate is shut for new best-effort jobs: the scheduling delay of production is 27s, over its redline of 20s for 15m00s (3 samples)
            960s why job-2: the gate is shut for new best-effort jobs: the scheduling delay of production was 27s when it was shut, over its redline of 20s for 15m33s now (3 samples); it opens when that recovers, at the latest in 1h59m
        "#]],
    );
}

#[test]
fn whoever_switches_the_gate_off_lets_everybody_in() {
    check(
        "nodes: n0 8 H100
         gate: on samples_min=1
           0s   submit p: 1 production starts=45s runs=1m
           20m  submit b: 1 best-effort
           20m  submit c: 1 best-effort
           21m  hold c
           22m  gate: off
           23m  release c
           24m  submit d: 1 best-effort",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            105s settle job-1.1: succeeded
            945s the gate is shut for new best-effort jobs: the scheduling delay of production is 45s, over its redline of 30s for 15m00s (1 samples)
            1320s the gate is open: it was switched off
            1320s launch job-2.1 on n0[0]
            1380s launch job-3.1 on n0[1]
            1440s launch job-4.1 on n0[2]
        "#]],
    );
}
