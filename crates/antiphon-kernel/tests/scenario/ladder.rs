//! A job that runs out of memory: each time the next step of its ladder, and then the end.

use expect_test::expect;

use crate::world::check;

#[test]
fn out_of_memory_walks_the_ladder_step_by_step_and_then_fails() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 ladder=small-batch+recompute+more:16 retries=0
           60s  a fails oom
           120s a fails oom
           180s a fails oom
           240s a fails oom
           300s past a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  settle job-1.1: retry in 0s, out of memory
            60s  launch job-1.2 on n0[0-7]
            120s settle job-1.2: retry in 0s, out of memory
            120s launch job-1.3 on n0[0-7]
            180s settle job-1.3: retry in 0s, out of memory
            180s launch job-1.4 on n0[0-7] n1[0-7]
            240s SIGTERM job-1.4: job-1.4/main.0 failed and the gang with it, grace 1m00s
            240s settle job-1.4: failed, out of memory
            300s job-1.1 ran on n0[0-7] as standard for 1m00s: retry in 0s, out of memory, lost 0.13 GPU-h
            300s job-1.2 ran on n0[0-7] as standard for 1m00s: retry in 0s, out of memory, lost 0.13 GPU-h
            300s job-1.3 ran on n0[0-7] as standard for 1m00s: retry in 0s, out of memory, lost 0.13 GPU-h
            300s job-1.4 ran on n0[0-7] n1[0-7] as standard for 1m00s: job-1.4/main.0 failed and the gang with it, failed, out of memory, lost 0.26 GPU-h
        "#]],
    );
}

#[test]
fn a_step_with_more_gpus_waits_for_them() {
    check(
        "nodes: n[0-1] 8 H100
           0s   submit a: 8 ladder=more:16
           1s   submit b: 8
           60s  a fails oom
           61s  why a
           70s  b exits 0",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   launch job-2.1 on n1[0-7]
            60s  settle job-1.1: retry in 0s, out of memory
            60s  hold n0 n1 for job-1, nobody knows when
            61s  why job-1: waiting for 16 GPUs: 8 free, best node n0 has 8 of 8; job-2 (standard) holds 8
            70s  settle job-2.1: succeeded
            70s  launch job-1.2 on n0[0-7] n1[0-7]
        "#]],
    );
}

#[test]
fn steps_of_the_ladder_are_no_failures() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 ladder=small-batch retries=1
           60s  a fails oom
           70s  a exits 1
           75s  why a
           90s  a fails oom",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  settle job-1.1: retry in 0s, out of memory
            60s  launch job-1.2 on n0[0-7]
            70s  settle job-1.2: retry in 10s, software
            75s  why job-1: retry in 5s, after failed attempt 1 of at most 2
            80s  launch job-1.3 on n0[0-7]
            90s  settle job-1.3: failed, out of memory
        "#]],
    );
}

#[test]
fn a_ladder_that_asks_for_more_than_there_may_be_is_refused() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 ladder=more:99999999",
        expect![[r#"
            0s   refused [AP0108]: number of GPUs is 99999999: the limit is 40000; ask for at most 40000; limits that can be raised stand in `antiphon.toml` under `[policy]`
        "#]],
    );
}

#[test]
fn a_request_of_gpu_memory_shrinks_to_what_was_used_where_its_user_allows_that() {
    check(
        "nodes: a0 1 A100 gpu-memory=80GiB, l0 1 L40S gpu-memory=48GiB
           0s   submit a: 1 best-effort gpu-memory=64GiB shrinks
           0s   submit b: 1 best-effort gpu-memory=64GiB
           10s  a takes 32GiB
           20s  submit c: 1 production type=A100
           25s  state a
           60s  a fails oom
           70s  state a
           80s  why a",
        expect![[r#"
            0s   launch job-1.1 on a0[0]
            0s   hold a0 for job-2, nobody knows when
            20s  SIGTERM job-1.1: for job-3 (priority), grace 1m00s
            20s  hold nothing for job-2
            20s  hold a0 for job-3, in 1m00s
            20s  settle job-1.1: requeued
            20s  launch job-3.1 on a0[0]
            20s  launch job-1.2 on l0[0]
            20s  hold a0 for job-2, nobody knows when
            25s  job-1 is running
            60s  settle job-1.2: retry in 0s, out of memory
            70s  job-1 is pending
            80s  why job-1: waiting for 1 GPUs: 0 free, best node a0 has 0 of 1; job-3 (production) holds 1
        "#]],
    );
}
