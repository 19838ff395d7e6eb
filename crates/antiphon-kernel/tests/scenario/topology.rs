//! Where jobs run: network, memory, price, and what counts like GPUs.

use expect_test::expect;

use crate::world::check;

/// The partitions of the article on best practices: a fast network, a general one, and nodes that are taken away.
#[test]
fn four_hours_of_sixteen_gpus_go_to_the_fast_network_and_a_day_of_an_adapter_where_nodes_are_taken_away()
 {
    check(
        "partitions: fast-ib 400Gbps $2.00 max=48h, general 100Gbps $1.00 max=168h, preemptible 100Gbps $0.40 max=24h preemptible
         nodes: f[0-1] 8 A100 partition=fast-ib gpu-memory=80GiB, g[0-1] 8 A100 partition=general gpu-memory=80GiB, p[0-1] 8 A100-40GB partition=preemptible gpu-memory=40GiB
           0s   submit sophia: 16 limit=4h gpu-memory=30GiB checkpoint
           1s   submit lora: 2 limit=24h gpu-memory=24GiB checkpoint
           2s   submit unsaved: 2 limit=24h gpu-memory=24GiB
           3s   submit large: 2 limit=24h gpu-memory=70GiB checkpoint
           4s   submit endless: 2 limit=100h gpu-memory=24GiB checkpoint
           5s   score sophia
           6s   score lora",
        expect![[r#"
            0s   launch job-1.1 on f0[0-7] f1[0-7]
            1s   launch job-2.1 on p0[0-1]
            2s   launch job-3.1 on g0[0-1]
            3s   launch job-4.1 on g0[2-3]
            4s   launch job-5.1 on g0[4-5]
            5s   span leaf, nodes: 2
            5s   GPUs left free on its nodes: 0
            5s   price an hour in micro-dollars: 32000000
            5s   interconnect in Gbit/s: 400
            6s   span node, nodes: 1
            6s   GPUs left free on its nodes: 6
            6s   price an hour in micro-dollars: 800000
            6s   interconnect in Gbit/s: 100
        "#]],
    );
}

#[test]
fn a_gang_takes_the_smallest_span_that_holds_it() {
    check(
        "nodes: a[0-1] 8 H100 leaf=l0 spine=s0, b[0-3] 8 H100 leaf=l1 spine=s0, c[0-1] 8 H100 leaf=l2 spine=s1
           0s   submit two: 16
           1s   submit four: 32
           2s   score two
           3s   score four",
        expect![[r#"
            0s   launch job-1.1 on a0[0-7] a1[0-7]
            1s   launch job-2.1 on b0[0-7] b1[0-7] b2[0-7] b3[0-7]
            2s   span leaf, nodes: 2
            2s   GPUs left free on its nodes: 0
            3s   span leaf, nodes: 4
            3s   GPUs left free on its nodes: 0
        "#]],
    );
}

#[test]
fn a_span_limit_waits_for_its_leaf_though_enough_is_free_elsewhere() {
    check(
        "nodes: a[0-1] 8 H100 leaf=l0, b[0-1] 8 H100 leaf=l1
           0s   submit a: 8
           0s   submit filler: 16 span=leaf
           1s   submit second: 8
           2s   filler exits 0
           3s   submit b: 8
           4s   second exits 0
           5s   submit wide: 16 span=leaf
           6s   why wide
           7s   change wide",
        expect![[r#"
            0s   launch job-1.1 on a0[0-7]
            0s   launch job-2.1 on b0[0-7] b1[0-7]
            1s   launch job-3.1 on a1[0-7]
            2s   settle job-2.1: succeeded
            3s   launch job-4.1 on b0[0-7]
            4s   settle job-3.1: succeeded
            5s   hold a0 a1 for job-5, nobody knows when
            6s   why job-5: waiting for 16 GPUs in one leaf: l0 has 8 free, 16 are free in all
            7s   job-5 would start with `span = "spine"`
        "#]],
    );
}

#[test]
fn an_nvlink_domain_may_span_nodes() {
    check(
        "nodes: a[0-3] 4 GB200 nvlink=d0, b[0-3] 4 GB200 nvlink=d1
           0s   submit x: 4
           1s   submit y: 16 span=nvlink-domain
           2s   submit z: 16 span=nvlink-domain
           3s   why z",
        expect![[r#"
            0s   launch job-1.1 on a0[0-3]
            1s   launch job-2.1 on b0[0-3] b1[0-3] b2[0-3] b3[0-3]
            2s   hold a0 a1 a2 a3 for job-3, nobody knows when
            3s   why job-3: waiting for 16 GPUs: 12 free, best node a1 has 4 of 4; job-2 (standard) holds 16, job-1 (standard) holds 4
        "#]],
    );
}

#[test]
fn ranks_follow_the_network_and_tensor_parallel_groups_share_an_nvlink_domain() {
    check(
        "nodes: a0 8 H100 leaf=l0, b0 8 H100 leaf=l1, a1 8 H100 leaf=l0, b1 8 H100 leaf=l1
           0s   submit x: 32 tasks=4
           1s   rank x
           2s   cancel x
           3s   submit y: 16 tasks=4 tp=8
           4s   rank y",
        expect![[r#"
            0s   launch job-1.1 on a0[0-7] a1[0-7] b0[0-7] b1[0-7]
            1s   main.0 a0[0-7], main.1 a1[0-7], main.2 b0[0-7], main.3 b1[0-7]
            2s   SIGTERM job-1.1: cancel, grace 1m00s
            2s   settle job-1.1: canceled
            3s   launch job-2.1 on a0[0-7] a1[0-7]
            4s   main.0 a0[0-3], main.1 a0[4-7], main.2 a1[0-3], main.3 a1[4-7]
        "#]],
    );
}

#[test]
fn a_task_takes_gpus_under_one_switch_and_of_one_numa_node() {
    check(
        "nodes: n0 8 H100 numa=4 switch=2
           0s   submit a: 1
           1s   submit b: 2
           2s   submit c: 4
           3s   submit d: 1",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            1s   launch job-2.1 on n0[2-3]
            2s   launch job-3.1 on n0[4-7]
            3s   launch job-4.1 on n0[1]
        "#]],
    );
}

#[test]
fn small_jobs_leave_whole_nodes_to_those_who_need_them() {
    check(
        "nodes: n[0-2] 8 H100
           0s   submit a: 4
           1s   submit b: 2
           2s   submit c: 2
           3s   submit d: 16",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            1s   launch job-2.1 on n0[4-5]
            2s   launch job-3.1 on n0[6-7]
            3s   launch job-4.1 on n1[0-7] n2[0-7]
        "#]],
    );
}

#[test]
fn services_are_spread_over_nodes() {
    check(
        "nodes: n[0-2] 8 H100
           0s   submit web: 3 service tasks=3
           1s   rank web",
        expect![[r#"
            0s   launch job-1.1 on n0[0] n1[0] n2[0]
            1s   main.0 n0[0], main.1 n1[0], main.2 n2[0]
        "#]],
    );
}

#[test]
fn the_shape_with_the_best_speed_for_its_cost_is_taken_and_another_where_it_is_not_free() {
    check(
        "partitions: new $4.00, old $1.00
         nodes: h0 8 H100 partition=new, a[0-1] 8 A100 partition=old
           0s   submit x: 8 type=H100 or=16xA100@900
           1s   submit y: 8 type=H100 or=16xA100@900
           2s   submit z: 8 type=H100 or=16xA100@900
           3s   why z",
        expect![[r#"
            0s   launch job-1.1 on a0[0-7] a1[0-7]
            1s   launch job-2.1 on h0[0-7]
            2s   hold h0 for job-3, nobody knows when
            3s   why job-3: waiting for 8 H100: 0 free, best node h0 has 0 of 8; job-2 (standard) holds 8
        "#]],
    );
}

#[test]
fn roles_of_one_gang_start_together_or_not_at_all() {
    check(
        "nodes: h0 8 H100, a0 8 A100
           0s   submit x: 1 type=A100
           1s   submit rlhf: 8 type=H100 role=rollout:8xA100 role=reward:0
           2s   why rlhf
           3s   x exits 0
           4s   rank rlhf",
        expect![[r#"
            0s   launch job-1.1 on a0[0]
            1s   hold a0 h0 for job-2, nobody knows when
            2s   why job-2: waiting for 8 A100: 7 free, best node a0 has 7 of 8; job-1 (standard) holds 1
            3s   settle job-1.1: succeeded
            3s   launch job-2.1 on h0[0-7] a0[0-7]
            4s   main.0 h0[0-7], rollout.0 a0[0-7], reward.0 a0
        "#]],
    );
}

#[test]
fn a_data_job_leaves_gpu_nodes_alone_where_others_would_do() {
    check(
        "nodes: n0 8 H100 cpus=64, d0 0 cpus=16
           0s   submit a: 0 cpus=8
           1s   submit b: 0 cpus=8
           2s   submit c: 0 cpus=8
           3s   submit d: 8 by-default",
        expect![[r#"
            0s   launch job-1.1 on d0
            1s   launch job-2.1 on d0
            2s   launch job-3.1 on n0
            3s   hold n0 for job-4, nobody knows when
        "#]],
    );
}

#[test]
fn a_gpu_comes_with_eight_cpus_and_its_part_of_the_memory() {
    check(
        "nodes: n0 8 H100 cpus=64 memory=800GiB
           0s   submit a: 7 by-default
           1s   check modest: 0 cpus=8 memory=100GiB
           2s   check large: 0 cpus=8 memory=101GiB
           3s   submit greedy: 0 cpus=9
           4s   why greedy",
        expect![[r#"
            0s   launch job-1.1 on n0[0-6]
            1s   check modest: nothing
            2s   check large: waiting for 8 CPUs in one node: at most 8 free, or too little memory beside them
            3s   hold n0 for job-2, nobody knows when
            4s   why job-2: waiting for 9 CPUs in one node: at most 8 free, or too little memory beside them
        "#]],
    );
}

#[test]
fn memory_scratch_and_read_bandwidth_count_like_gpus() {
    for (what, node, asks) in [
        ("memory", "memory=100GiB", "memory=60GiB"),
        ("scratch", "scratch=10TB", "scratch=6TB"),
        ("read", "read=10GB", "read=6GB"),
    ] {
        let out = crate::world::play(&format!(
            "nodes: n0 8 H100 {node}
               0s   submit a: 1 {asks}
               1s   submit b: 1 {asks}
               2s   state b
               3s   a exits 0
               4s   state b"
        ));
        let states: Vec<_> = out.lines().filter(|line| line.contains(" is ")).collect();
        assert_eq!(
            states,
            ["2s   job-2 is pending", "4s   job-2 is running"],
            "{what}"
        );
    }
}

#[test]
fn resources_that_belong_to_no_node_count_like_gpus() {
    check(
        "shared: licences=3, lustre=100
         nodes: n0 8 H100
           0s   submit a: 1 uses=licences:2
           1s   submit b: 1 uses=licences:2
           2s   submit c: 1 uses=licences:1 uses=lustre:60
           3s   submit d: 1 uses=lustre:60
           4s   why b
           5s   why d
           6s   a exits 0
           7s   c exits 0",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            2s   launch job-3.1 on n0[1]
            4s   why job-2: waiting for 2 of `licences`: 0 free
            5s   why job-4: waiting for 60 of `lustre`: 40 free
            6s   settle job-1.1: succeeded
            6s   launch job-2.1 on n0[0]
            7s   settle job-3.1: succeeded
            7s   launch job-4.1 on n0[1]
        "#]],
    );
}

#[test]
fn slices_are_held_by_one_job_each_and_a_cut_gpu_is_not_handed_out_whole() {
    check(
        "nodes: n0 2 A100 cut=0:1g.10gb*2
           0s   submit a: 1 type=1g.10gb
           1s   submit b: 1 type=1g.10gb
           2s   submit c: 1 type=1g.10gb
           3s   submit d: 1 type=A100
           4s   submit e: 1 type=A100
           5s   why c
           6s   why e
           7s   a exits 0",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            1s   launch job-2.1 on n0[1]
            3s   launch job-4.1 on n0[1]
            4s   hold n0 for job-5, nobody knows when
            5s   why job-3: waiting for 1 1g.10gb: 0 free, best node n0 has 0 of 2; job-4 (standard) holds 1, job-1 (standard) holds 0.5, job-2 (standard) holds 0.5
            6s   why job-5: waiting for 1 A100: 0 free, best node n0 has 0 of 2; job-4 (standard) holds 1, job-1 (standard) holds 0.5, job-2 (standard) holds 0.5
            7s   settle job-1.1: succeeded
            7s   launch job-3.1 on n0[0]
        "#]],
    );
}

#[test]
fn a_partition_ends_what_runs_longer_so_that_it_runs_elsewhere() {
    check(
        "partitions: short max=1h $1.00, long $5.00
         nodes: s0 8 H100 partition=short, l0 8 H100 partition=long
           0s   submit a: 8 limit=30m
           1s   a exits 0
           2s   submit b: 8 limit=3h
           3s   submit c: 4 partition=short",
        expect![[r#"
            0s   launch job-1.1 on s0[0-7]
            1s   settle job-1.1: succeeded
            2s   launch job-2.1 on l0[0-7]
            3s   launch job-3.1 on s0[0-3]
        "#]],
    );
}

#[test]
fn a_network_bound_gang_keeps_off_a_leaf_whose_links_others_use() {
    check(
        "nodes: a[0-1] 8 H100 leaf=l0 spine=s0, b[0-2] 8 H100 leaf=l1 spine=s0, c[0-2] 8 H100 leaf=l2 spine=s0
           0s   submit crossing: 32
           1s   submit next: 16",
        expect![[r#"
            0s   launch job-1.1 on a0[0-7] b0[0-7] b1[0-7] b2[0-7]
            1s   launch job-2.1 on c0[0-7] c1[0-7]
        "#]],
    );
}
