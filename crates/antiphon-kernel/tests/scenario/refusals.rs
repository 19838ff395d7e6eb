//! What is refused, with numbers and a way out.

use expect_test::expect;

use crate::world::check;

#[test]
fn what_cannot_exist_is_refused_with_numbers() {
    check(
        "nodes: n0 8 H100, n1 4 A100
           0s submit a: 96
           0s submit b: 8 type=A100
           0s submit c: 8 type=B200
           0s submit d: 8 tasks=3
           0s submit e: 1.5
           0s submit e: 8 per-gpu tasks=2
           0s submit f: 0 cpus=512
           0s submit g: 9999999",
        expect![[r#"
            0s   refused [AP0104]: it asks for 96 GPUs: the whole cluster has 12, the widest node 8; ask for at most 12 in `[resources] gpus`, in tasks that fit the nodes; `antiphon nodes` shows them
            0s   refused [AP0104]: it asks for 8 GPUs of type A100: the whole cluster has 4, the widest node 4; ask for at most 4 in `[resources] gpus`, in tasks that fit the nodes; `antiphon nodes` shows them
            0s   refused [AP0109]: no node has GPUs of type `B200`; there are: A100, H100
            0s   refused [AP0110]: 8 GPUs cannot be split into 3 equal tasks; choose `tasks` so that it divides `gpus` (with `per-gpu` equals it), or leave it out
            0s   refused [AP0110]: 1.5 GPUs: a fraction has to lie below 1 and in one task; ask for whole GPUs, or for less than one, such as `gpus = 0.5`
            0s   refused [AP0110]: 8 GPUs cannot be split into 2 equal tasks; choose `tasks` so that it divides `gpus` (with `per-gpu` equals it), or leave it out
            0s   refused [AP0111]: a task asks for 512 CPUs and 0 B memory: the largest node has 64 and 1.0 TiB; lower `cpus` or `memory` in `[resources]`
            0s   refused [AP0108]: number of GPUs is 9999999: the limit is 40000; ask for at most 40000; limits that can be raised stand in `antiphon.toml` under `[policy]`
        "#]],
    );
}

#[test]
fn a_name_belongs_to_one_living_job() {
    check(
        "nodes: n0 8 H100
           0s submit a: 8
           1s submit a: 8
           2s a exits 0
           3s submit a: 8",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   refused [AP0103]: the name `a` is taken by job-1 of team `default`, which has not ended; choose another `name`, or end the first with `antiphon cancel job-1`
            2s   settle job-1.1: succeeded
            3s   launch job-2.1 on n0[0-7]
        "#]],
    );
}

#[test]
fn commands_that_do_not_fit_the_state_are_refused() {
    check(
        "nodes: n0 8 H100
           0s submit a: 8
           1s release a
           2s a exits 0
           3s cancel a
           3s hold a
           3s preempt a
           4s cancel job-9
           5s drain n7
           6s unpause",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   refused [AP0102]: job-1 is running: it cannot be released; `antiphon job job-1` shows what it is doing
            2s   settle job-1.1: succeeded
            3s   refused [AP0102]: job-1 is succeeded: it cannot be canceled; `antiphon job job-1` shows what it is doing
            3s   refused [AP0102]: job-1 is succeeded: it cannot be put on hold; `antiphon job job-1` shows what it is doing
            3s   refused [AP0102]: job-1 is succeeded: it cannot be preempted; `antiphon job job-1` shows what it is doing
            4s   refused [AP0101]: there is no job-9; the newest job is job-1; `antiphon jobs --all` lists them
            5s   refused [AP0105]: there is no node `n7`; there are `n0`; `antiphon nodes` lists all
            6s   refused [AP0114]: deciding is not paused; `antiphon pause` stops deciding
        "#]],
    );
}

#[test]
fn a_dependency_that_is_dead_already_is_refused() {
    check(
        "nodes: n0 8 H100
           0s submit a: 8
           1s cancel a
           2s submit b: 8 after=a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   SIGTERM job-1.1: cancel, grace 1m00s
            1s   settle job-1.1: canceled
            2s   refused [AP0106]: it waits for job-1, which ended as `canceled`; submit job-1 again first, or take it out of `after`
        "#]],
    );
}
