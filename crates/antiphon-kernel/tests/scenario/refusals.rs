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

#[test]
fn a_team_that_nobody_set_up_is_refused_with_the_nearest_name() {
    check(
        "nodes: n0 8 H100
         teams: rlhf quota=4, evaluation
           0s   submit a: 1 team=rhlf
           0s   submit b: 1 team=eval
           0s   submit c: 1 team=zzz",
        expect![[r#"
            0s   refused [AP0115]: there is no team `rhlf`; did you mean `rlhf`? `antiphon teams` lists all
            0s   refused [AP0115]: there is no team `eval`; there are: rlhf, evaluation; `antiphon teams` lists all
            0s   refused [AP0115]: there is no team `zzz`; there are: rlhf, evaluation; `antiphon teams` lists all
        "#]],
    );
}

#[test]
fn production_without_a_quota_is_refused() {
    check(
        "nodes: n0 8 H100
         teams: rlhf quota=4, eval
           0s   submit a: 8 team=rlhf production
           0s   submit b: 1 team=eval service
           0s   submit c: 8 team=rlhf standard",
        expect![[r#"
            0s   refused [AP0116]: it asks for 8 GPUs as production: the quota of team `rlhf` covers 4; ask for at most 4 GPUs, or submit it as `class = "standard"`
            0s   refused [AP0116]: it asks for 1 GPUs as service: the quota of team `eval` covers 0; submit it as `class = "standard"`, or ask your operator for a quota
            0s   launch job-1.1 on n0[0-7]
        "#]],
    );
}

#[test]
fn more_than_a_team_may_ever_hold_is_refused() {
    check(
        "nodes: n0 8 H100, n1 8 A100
         teams: lab limit=6, rlhf parent=lab limit=4xH100
           0s   submit a: 8 team=rlhf
           0s   submit b: 5 team=rlhf type=H100
           0s   submit c: 4 team=rlhf type=H100",
        expect![[r#"
            0s   refused [AP0117]: it asks for 8 GPUs: team `lab` may hold at most 6; ask for at most 6 in `[resources] gpus`; `antiphon teams` shows limits
            0s   refused [AP0117]: it asks for 5 GPUs of type H100: team `rlhf` may hold at most 4; ask for at most 4 in `[resources] gpus`; `antiphon teams` shows limits
            0s   launch job-1.1 on n0[0-3]
        "#]],
    );
}

#[test]
fn a_span_that_is_too_narrow_is_refused_with_the_one_that_would_do() {
    check(
        "nodes: a[0-1] 8 H100 leaf=l0 spine=s0, b0 8 H100 leaf=l1 spine=s0
           0s   submit a: 24 span=leaf
           0s   submit b: 16 span=node
           0s   submit c: 16 span=nvlink-domain
           0s   submit d: 24 span=spine",
        expect![[r#"
            0s   refused [AP0118]: it asks for 24 GPUs in one leaf: the widest has 16; give `span = "spine"`, or ask for fewer GPUs
            0s   refused [AP0118]: it asks for 16 GPUs in one node: the widest has 8; give `span = "leaf"`, or ask for fewer GPUs
            0s   refused [AP0118]: it asks for 16 GPUs in one nvlink-domain: the widest has 8; give `span = "leaf"`, or ask for fewer GPUs
            0s   launch job-1.1 on a0[0-7] a1[0-7] b0[0-7]
        "#]],
    );
}

#[test]
fn a_partition_that_nobody_has_is_refused() {
    check(
        "partitions: fast 400Gbps, spot preemptible
         nodes: n0 8 H100 partition=fast, n1 8 H100 partition=spot
           0s   submit a: 8 partition=slow
           0s   submit b: 8 partition=spot",
        expect![[r#"
            0s   refused [AP0119]: there is no partition `slow`; there are: fast, spot
            0s   launch job-1.1 on n1[0-7]
        "#]],
    );
}

#[test]
fn more_of_a_resource_than_there_is_is_refused() {
    check(
        "shared: licences=4, lustre=100
         nodes: n0 8 H100
           0s   submit a: 8 uses=licences:5
           0s   submit b: 8 uses=license:1
           0s   submit c: 8 uses=licences:4",
        expect![[r#"
            0s   refused [AP0120]: it asks for 5 of `licences`: there are 4; ask for at most 4 of `licences`
            0s   refused [AP0120]: it asks for 1 of `license`: there are 0; there are: licences, lustre
            0s   launch job-1.1 on n0[0-7]
        "#]],
    );
}

#[test]
fn a_limit_longer_than_any_partition_allows_is_refused() {
    check(
        "partitions: short max=24h, shorter max=1h
         nodes: n0 8 H100 partition=short, n1 8 H100 partition=shorter
           0s   submit a: 8 limit=48h
           0s   submit b: 8 limit=12h partition=shorter
           0s   submit c: 8 limit=12h",
        expect![[r#"
            0s   refused [AP0121]: it may run for 2d00h: the partitions that would do allow 1d00h; give a `time_limit` of at most 1d00h, or another partition
            0s   refused [AP0121]: it may run for 12h00m: the partitions that would do allow 1h00m; give a `time_limit` of at most 1h00m, or another partition
            0s   launch job-1.1 on n0[0-7]
        "#]],
    );
}

#[test]
fn teams_that_do_not_fit_together_are_refused() {
    check(
        "nodes: n0 8 H100
           0s   teams: a, a
           0s   teams: a weight=0
           0s   teams: a parent=b
           0s   teams: a parent=b, b parent=a
           0s   teams: a, b parent=a, c parent=b, d parent=c, e parent=d
           0s   teams: a quota=9 limit=8
           0s   teams: a quota=8, b parent=a quota=5, c parent=a quota=4",
        expect![[r#"
            0s   refused [AP0122]: team `a` cannot be set up: the name stands there twice; correct `[[team]]` in `antiphon.toml`
            0s   refused [AP0122]: team `a` cannot be set up: its weight is 0: give 1 to 1000000; correct `[[team]]` in `antiphon.toml`
            0s   refused [AP0122]: team `a` cannot be set up: its parent `b` is no team; correct `[[team]]` in `antiphon.toml`
            0s   refused [AP0122]: team `a` cannot be set up: it is part of itself, or nested deeper than 3; correct `[[team]]` in `antiphon.toml`
            0s   refused [AP0122]: team `e` cannot be set up: it is part of itself, or nested deeper than 3; correct `[[team]]` in `antiphon.toml`
            0s   refused [AP0122]: team `a` cannot be set up: its quota of 9 GPUs is above its limit of 8; correct `[[team]]` in `antiphon.toml`
            0s   refused [AP0122]: team `a` cannot be set up: its parts are promised 9 GPUs, its own quota is 8; correct `[[team]]` in `antiphon.toml`
        "#]],
    );
}

#[test]
fn maintenance_that_is_none_is_refused() {
    check(
        "nodes: n0 8 H100
           2h   drain n0
           2h   maintain n0 from 4h until 3h
           2h   maintain n0 from 30m until 1h
           2h   maintain n7 from 3h until 4h",
        expect![[r#"
            2h00m refused [AP0123]: the maintenance cannot be planned: it ends before it starts; give nodes that exist, and a start before the end, which lies ahead
            2h00m refused [AP0123]: the maintenance cannot be planned: it lies in the past; give nodes that exist, and a start before the end, which lies ahead
            2h00m refused [AP0105]: there is no node `n7`; there are `n0`; `antiphon nodes` lists all
        "#]],
    );
}

#[test]
fn a_dependency_that_does_not_exist_is_refused_so_that_no_cycle_can_arise() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 after=job-1
           0s   submit a: 8 after-any=job-7
           0s   submit a: 8 after-start=job-2",
        expect![[r#"
            0s   refused [AP0106]: it waits for job-1, which does not exist; name jobs that were submitted before, or give all files to one `antiphon submit`
            0s   refused [AP0106]: it waits for job-7, which does not exist; name jobs that were submitted before, or give all files to one `antiphon submit`
            0s   refused [AP0106]: it waits for job-2, which does not exist; name jobs that were submitted before, or give all files to one `antiphon submit`
        "#]],
    );
}

#[test]
fn numbers_above_their_limit_are_refused() {
    check(
        "nodes: n0 8 H100
         policy: jobs_max=3 tasks_per_gang_max=8
           0s   submit a: 1 array=0-3
           0s   submit b: 16
           0s   submit c: 8 limit=4000d
           0s   submit d: 8 estimate=4000d
           0s   policy: near_end_ms=4000d",
        expect![[r#"
            0s   refused [AP0108]: number of jobs that have not ended is 4: the limit is 3; ask for at most 3; limits that can be raised stand in `antiphon.toml` under `[policy]`
            0s   refused [AP0108]: number of tasks in the gang is 16: the limit is 8; ask for at most 8; limits that can be raised stand in `antiphon.toml` under `[policy]`
            0s   refused [AP0108]: `time_limit` in milliseconds is 345600000000: the limit is 315360000000; ask for at most 315360000000; limits that can be raised stand in `antiphon.toml` under `[policy]`
            0s   refused [AP0108]: `estimate` in milliseconds is 345600000000: the limit is 315360000000; ask for at most 315360000000; limits that can be raised stand in `antiphon.toml` under `[policy]`
            0s   refused [AP0108]: `near_end_ms` in milliseconds is 345600000000: the limit is 315360000000; ask for at most 315360000000; limits that can be raised stand in `antiphon.toml` under `[policy]`
        "#]],
    );
}

#[test]
fn a_name_that_a_member_of_an_array_has_is_taken() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 1 array=0-1
           0s   submit a[1]: 1
           0s   submit a: 1 array=1-2",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            0s   launch job-2.1 on n0[1]
            0s   refused [AP0103]: the name `a[1]` is taken by job-2 of team `default`, which has not ended; choose another `name`, or end the first with `antiphon cancel job-2`
            0s   refused [AP0103]: the name `a[1]` is taken by job-2 of team `default`, which has not ended; choose another `name`, or end the first with `antiphon cancel job-2`
        "#]],
    );
}

#[test]
fn two_roles_of_one_name_are_refused() {
    check(
        "nodes: n[0-1] 8 H100
           0s submit rlhf: 8 role=rollout:2 role=rollout:4
           1s submit rlhf: 8 role=rollout:2 role=reward:4",
        expect![[r#"
            0s   refused [AP0124]: two of its roles are called `rollout`; give each role a name of its own
            1s   launch job-1.1 on n0[0-7] n1[0-5]
        "#]],
    );
}

/// It was let in, since its preferred shape is within the limit, and waited for ever, since that fits nowhere.
#[test]
fn a_job_whose_only_fitting_shape_is_over_its_teams_limit_is_refused() {
    check(
        "nodes: n0 8 H100, m0 2 A100
         teams: lab limit=4
           0s   submit wide: 4 team=lab type=A100 tasks=1 or=8xH100
           1s   submit within: 2 team=lab type=A100 tasks=1 or=8xH100",
        expect![[r#"
            0s   refused [AP0117]: it asks for 8 GPUs: team `lab` may hold at most 4; ask for at most 4 in `[resources] gpus`; `antiphon teams` shows limits
            1s   launch job-1.1 on m0[0-1]
        "#]],
    );
}

#[test]
fn so_is_one_whose_only_fitting_shape_is_over_the_limit_of_a_gpu_type() {
    check(
        "nodes: h0 1 H100 cut=0:1g.10gb*7, m0 4 A100
         teams: lab limit=1xA100
           0s   submit a: 1 team=lab type=H100 or=2xA100",
        expect![[r#"
            0s   refused [AP0117]: it asks for 2 GPUs of type A100: team `lab` may hold at most 1; ask for at most 1 in `[resources] gpus`; `antiphon teams` shows limits
        "#]],
    );
}
