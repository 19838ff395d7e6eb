//! Each rule of placement: where it decides, and where it refuses.

use std::collections::BTreeMap;

use antiphon_types::{
    Bytes, CheckpointSpec, GpuLayout, Location, Millis, NodeSpec, PartitionSpec, Processes, Slice,
    Tasks, UsdMicros,
};

use super::*;
use crate::allowance::UNBOUNDED;

const GIB: u64 = 1 << 30;

fn node(name: &str, gpus: u32, leaf: &str) -> NodeSpec {
    NodeSpec {
        name: name.into(),
        gpus,
        gpu_type: "H100".to_owned(),
        gpu_memory: Bytes::new(80 * GIB),
        cpus: 96,
        memory: Bytes::new(1_024 * GIB),
        location: Location {
            leaf: leaf.to_owned(),
            ..Location::default()
        },
        ..NodeSpec::default()
    }
}

fn nodes(count: u32, per_leaf: u32) -> Vec<NodeSpec> {
    (0..count)
        .map(|i| node(&format!("n{i:02}"), 8, &format!("l{}", i / per_leaf)))
        .collect()
}

fn capacity(nodes: &[NodeSpec]) -> Capacity {
    Capacity::build(nodes, &BTreeMap::new(), &BTreeMap::new())
}

fn shape(gpus: u32) -> Shape {
    Shape {
        gpus: GpuAmount::from_gpus(gpus),
        ..Shape::default()
    }
}

fn split(gpus: u32, tasks: u32) -> Shape {
    Shape {
        tasks: Tasks::Exactly(tasks),
        ..shape(gpus)
    }
}

fn job(shape: Shape) -> JobSpec {
    let role = Role {
        name: "trainer".to_owned(),
        shape,
        ..Role::default()
    };
    JobSpec {
        roles: vec![role],
        ..JobSpec::default()
    }
}

fn view(demand: &Demand) -> View<'_> {
    View {
        job: Some(JobId(7)),
        class: Class::Standard,
        now: Timestamp::ZERO,
        ends_by: None,
        gone_by: None,
        allowance: &UNBOUNDED,
        demand,
        held: None,
    }
}

fn seen(sizes: &[u32]) -> Demand {
    let mut demand = Demand::default();
    for &size in sizes {
        demand.seen(&job(shape(size)).roles[0], 64);
    }
    demand
}

/// Places and prints the allocation; `-` where it does not fit, and then nothing may have changed.
fn put(capacity: &mut Capacity, spec: &JobSpec) -> String {
    put_as(capacity, spec, &view(&Demand::default()))
}

fn put_as(capacity: &mut Capacity, spec: &JobSpec, view: &View<'_>) -> String {
    let before = capacity.clone();
    match place(capacity, spec, view) {
        Some(placement) => {
            let mut again = before;
            again.take_gang(&placement.nodes, &placement.allocation);
            again.take_resources(&spec.resources);
            assert_eq!(again, *capacity, "exactly the placement is taken");
            placement.allocation.to_string()
        }
        None => {
            assert_eq!(before, *capacity, "a failure takes nothing");
            "-".to_owned()
        }
    }
}

/// Takes GPUs of a node without CPUs or memory.
fn occupy(capacity: &mut Capacity, node: NodeId, gpus: std::ops::Range<u32>) {
    let task = TaskAllocation {
        role: "other".to_owned(),
        index: 0,
        node: capacity.stand(node).name.clone(),
        gpus: gpus.collect(),
        gpu_share: GpuAmount::from_gpus(1),
        cpus: 0,
        memory: Bytes::ZERO,
        scratch: Bytes::ZERO,
        read_bandwidth: Bytes::ZERO,
        sliced: false,
    };
    capacity.take(node, &task);
}

fn partition(name: &str, gbps: u32, price: &str, hours: u64, preemptible: bool) -> PartitionSpec {
    PartitionSpec {
        name: name.to_owned(),
        price_per_gpu_hour: price.parse::<UsdMicros>().unwrap(),
        interconnect_gbps: gbps,
        duration_max: Some(Millis::from_secs(hours * 3_600)),
        preemptible,
    }
}

fn three_partitions() -> Capacity {
    let partitions = [
        partition("fast-ib", 400, "2.0", 48, false),
        partition("general", 100, "1.0", 168, false),
        partition("preemptible", 100, "0.4", 24, true),
    ];
    let mut nodes = Vec::new();
    for (partition, memory) in partitions.iter().zip([80, 80, 40]) {
        for i in 0..4 {
            nodes.push(NodeSpec {
                partition: partition.name.clone(),
                gpu_type: format!("A100-{memory}GB"),
                gpu_memory: Bytes::new(memory * GIB),
                ..node(&format!("{}-{i}", partition.name), 8, "")
            });
        }
    }
    let partitions = partitions
        .into_iter()
        .map(|spec| (spec.name.clone(), spec))
        .collect();
    Capacity::build(&nodes, &partitions, &BTreeMap::new())
}

fn ending_in(hours: u64, demand: &Demand) -> View<'_> {
    View {
        ends_by: Some(Timestamp::from_millis(hours * 3_600_000)),
        gone_by: Some(Timestamp::from_millis(hours * 3_600_000)),
        ..view(demand)
    }
}

fn checkpointed(shape: Shape) -> JobSpec {
    JobSpec {
        checkpoint: Some(CheckpointSpec {
            dir: "/c".to_owned(),
            keep: None,
        }),
        ..job(shape)
    }
}

#[test]
fn a_gang_over_nodes_goes_to_the_fast_network() {
    let demand = Demand::default();
    for spec in [job(shape(16)), checkpointed(shape(16))] {
        let put = put_as(&mut three_partitions(), &spec, &ending_in(4, &demand));
        assert_eq!(put, "fast-ib-0[0-7] fast-ib-1[0-7]");
    }
}

#[test]
fn a_small_job_with_checkpoints_goes_where_it_is_cheap_and_preemptible() {
    let demand = Demand::default();
    let mut capacity = three_partitions();
    let lora = checkpointed(shape(2));
    assert_eq!(
        put_as(&mut capacity, &lora, &ending_in(24, &demand)),
        "preemptible-0[0-1]"
    );
    assert_eq!(
        put_as(&mut capacity, &job(shape(2)), &ending_in(24, &demand)),
        "general-0[0-1]"
    );
    assert_eq!(
        put_as(&mut capacity, &lora, &ending_in(25, &demand)),
        "general-0[2-3]"
    );
    let large = Shape {
        gpu_memory: Bytes::new(80 * GIB),
        ..shape(2)
    };
    assert_eq!(
        put_as(&mut capacity, &checkpointed(large), &ending_in(1, &demand)),
        "general-0[4-5]"
    );
    let too_large = Shape {
        gpu_memory: Bytes::new(81 * GIB),
        ..shape(2)
    };
    assert_eq!(
        put_as(&mut capacity, &job(too_large), &ending_in(1, &demand)),
        "-"
    );
    assert_eq!(
        put_as(&mut capacity, &job(shape(1)), &ending_in(169, &demand)),
        "-"
    );
}

#[test]
fn a_job_without_checkpoints_uses_preemptible_nodes_only_if_nothing_else_would_do() {
    let mut capacity = three_partitions();
    let typed = Shape {
        gpu_type: Some("A100-40GB".to_owned()),
        ..shape(2)
    };
    assert_eq!(put(&mut capacity, &job(typed)), "preemptible-0[0-1]");
    let there = Shape {
        partition: Some("fast-ib".to_owned()),
        ..shape(2)
    };
    assert_eq!(put(&mut capacity, &checkpointed(there)), "fast-ib-0[0-1]");
    let nowhere = Shape {
        partition: Some("slow".to_owned()),
        ..shape(2)
    };
    assert_eq!(put(&mut capacity, &job(nowhere)), "-");
}

#[test]
fn types_that_the_team_may_not_use_are_left_alone() {
    let demand = Demand::default();
    let mut allowance = Allowance::default();
    allowance.cap_type("A100-80GB", GpuAmount::ZERO);
    let barred = View {
        allowance: &allowance,
        ..view(&demand)
    };
    let mut capacity = three_partitions();
    assert_eq!(
        put_as(&mut capacity, &job(shape(2)), &barred),
        "preemptible-0[0-1]"
    );
    let typed = Shape {
        gpu_type: Some("A100-80GB".to_owned()),
        ..shape(2)
    };
    assert_eq!(put_as(&mut capacity, &job(typed), &barred), "-");
}

#[test]
fn the_shape_with_the_best_speed_for_its_price_starts() {
    let demand = Demand::default();
    let typed = |gpu_type: &str, speed| Shape {
        gpu_type: Some(gpu_type.to_owned()),
        speed,
        ..shape(4)
    };
    let choice = |first: Shape, second: Shape| {
        let mut spec = job(first);
        spec.roles[0].alternatives = vec![second];
        let placement = place(&mut three_partitions(), &spec, &view(&demand)).unwrap();
        (placement.shapes, placement.allocation.to_string())
    };
    // At 1.0 against 0.4 a GPU-hour, half the speed is worth more than the whole and a third is not.
    let (shapes, put) = choice(typed("A100-80GB", 1_000), typed("A100-40GB", 500));
    assert_eq!((shapes, put.as_str()), (vec![1], "preemptible-0[0-3]"));
    let (shapes, put) = choice(typed("A100-80GB", 1_000), typed("A100-40GB", 333));
    assert_eq!((shapes, put.as_str()), (vec![0], "general-0[0-3]"));
    let (shapes, _) = choice(typed("A100-80GB", 1_000), typed("A100-40GB", 400));
    assert_eq!(
        shapes,
        [0],
        "a tie goes to the shape that was declared first"
    );
    let (shapes, _) = choice(typed("H100", 1_000), typed("A100-40GB", 1));
    assert_eq!(shapes, [1], "only shapes that can start now count");
}

#[test]
fn the_smallest_span_that_holds_a_gang_wins() {
    let mut capacity = capacity(&nodes(8, 4));
    occupy(&mut capacity, 0, 0..8);
    // The first leaf has 24 GPUs left and is filled best by 24.
    assert_eq!(
        put(&mut capacity, &job(shape(24))),
        "n01[0-7] n02[0-7] n03[0-7]"
    );
    assert_eq!(put(&mut capacity, &job(shape(40))), "-");
    let limited = |gpus, span| {
        job(Shape {
            span,
            ..shape(gpus)
        })
    };
    occupy(&mut capacity, 4, 0..4);
    assert_eq!(put(&mut capacity, &limited(8, Span::Node)), "n05[0-7]");
    let mut two = nodes(4, 2);
    two.iter_mut()
        .for_each(|node| node.location.spine = "s".to_owned());
    let mut two = super::tests::capacity(&two);
    assert_eq!(put(&mut two, &limited(24, Span::Leaf)), "-");
    assert_eq!(
        put(&mut two, &limited(24, Span::Spine)),
        "n00[0-7] n01[0-7] n02[0-7]"
    );
}

#[test]
fn fewer_tasks_go_before_a_smaller_span() {
    let mut capacity = capacity(&nodes(2, 2));
    occupy(&mut capacity, 0, 0..2);
    occupy(&mut capacity, 1, 0..2);
    let demand = Demand::default();
    let placement = place(&mut capacity, &job(shape(12)), &view(&demand)).unwrap();
    assert_eq!(placement.allocation.tasks.len(), 2);
    let spread = Shape {
        processes: Processes::PerGpu,
        ..shape(0)
    };
    assert_eq!(
        splits(
            &Shape {
                gpus: GpuAmount::from_gpus(3),
                ..spread
            },
            8
        )
        .collect::<Vec<_>>(),
        [(3, GpuAmount::from_gpus(1))]
    );
    assert_eq!(splits(&split(12, 5), 8).count(), 0);
    assert_eq!(
        splits(&split(0, 5), 8).collect::<Vec<_>>(),
        [(5, GpuAmount::ZERO)]
    );
    let tasks: Vec<u32> = splits(&shape(12), 8).map(|(tasks, _)| tasks).collect();
    assert_eq!(tasks, [2, 3, 4, 6, 12]);
}

#[test]
fn a_role_never_mixes_gpu_types_and_a_job_may() {
    let mut mixed = nodes(2, 2);
    mixed[1].gpu_type = "A100".to_owned();
    assert_eq!(put(&mut capacity(&mixed), &job(shape(16))), "-");
    let mut spec = job(shape(8));
    spec.roles.push(Role {
        name: "rollout".to_owned(),
        ..spec.roles[0].clone()
    });
    assert_eq!(put(&mut capacity(&mixed), &spec), "n01[0-7] n00[0-7]");
    spec.roles.push(spec.roles[0].clone());
    assert_eq!(put(&mut capacity(&mixed), &spec), "-");
}

#[test]
fn of_several_leaves_the_one_with_the_least_left_over_is_filled() {
    let mut capacity = capacity(&nodes(8, 4));
    occupy(&mut capacity, 4, 0..8);
    assert_eq!(put(&mut capacity, &job(shape(16))), "n05[0-7] n06[0-7]");
}

#[test]
fn a_gang_over_leaves_touches_few_and_keeps_off_busy_ones() {
    let mut capacity = capacity(&nodes(8, 2));
    occupy(&mut capacity, 0, 0..8);
    // Two leaves hold 32; the half-full one is not touched.
    assert_eq!(
        put(&mut capacity, &job(shape(32))),
        "n02[0-7] n03[0-7] n04[0-7] n05[0-7]"
    );

    let mut capacity = super::tests::capacity(&nodes(8, 2));
    let demand = Demand::default();
    let first = place(&mut capacity, &job(shape(24)), &view(&demand)).unwrap();
    assert_eq!(first.allocation.to_string(), "n00[0-7] n01[0-7] n02[0-7]");
    assert_eq!(
        (
            capacity.crossing(0),
            capacity.crossing(3),
            capacity.crossing(4)
        ),
        (2, 1, 0)
    );
    // Leaf 1 has the only single node, but links that the first gang uses.
    assert_eq!(
        put(&mut capacity, &job(shape(24))),
        "n04[0-7] n05[0-7] n06[0-7]"
    );
    capacity.give_back_gang(&first.nodes, &first.allocation);
    assert_eq!(capacity.crossing(0), 0);
}

#[test]
fn demand_decides_which_node_is_broken_up() {
    let mut two = capacity(&nodes(2, 2));
    occupy(&mut two, 0, 0..1);
    occupy(&mut two, 1, 0..3);
    // 7 and 5 free. Where all ask for 4, taking 3 of 7 leaves 4 that are of use; taking 3 of 5 leaves 2 that are not.
    let fours = seen(&[4, 4, 4]);
    assert_eq!(
        put_as(&mut two.clone(), &job(shape(3)), &view(&fours)),
        "n00[1-3]"
    );
    assert_eq!(
        put(&mut two, &job(shape(3))),
        "n01[3-5]",
        "without demand the fullest node"
    );
}

#[test]
fn among_equal_nodes_the_one_that_strands_no_gpus_is_taken() {
    let mut three = nodes(3, 3);
    three[0].cpus = 64;
    three[1].cpus = 96;
    let mut capacity = capacity(&three);
    let hungry = Shape {
        cpus: Some(40),
        ..shape(1)
    };
    assert_eq!(put(&mut capacity, &job(hungry)), "n01[0]");
    let short = Shape {
        cpus: Some(97),
        ..shape(1)
    };
    assert_eq!(put(&mut capacity, &job(short)), "-");
}

#[test]
fn nodes_without_cpus_memory_storage_or_bandwidth_are_skipped() {
    let mut two = nodes(2, 1);
    two[1].scratch = Bytes::new(100);
    two[0].read_bandwidth = Bytes::new(10);
    let with = |change: fn(&mut Shape)| {
        let mut shape = split(2, 2);
        change(&mut shape);
        job(shape)
    };
    let place = |spec: &JobSpec| put(&mut capacity(&two), spec);
    assert_eq!(
        place(&with(|shape| shape.scratch = Bytes::new(50))),
        "n01[0-1]"
    );
    assert_eq!(place(&with(|shape| shape.scratch = Bytes::new(51))), "-");
    assert_eq!(
        place(&with(|shape| shape.read_bandwidth = Bytes::new(6))),
        "n01[0-1]"
    );
    assert_eq!(place(&with(|shape| shape.cpus = Some(60))), "n00[0] n01[0]");
    assert_eq!(
        place(&with(|shape| shape.memory = Some(Bytes::new(1_025 * GIB)))),
        "-"
    );
}

#[test]
fn what_one_node_holds_whole_is_not_cut_up_where_cpus_are_rounded_down() {
    // Two CPUs for eight GPUs: a task of two GPUs needs none by default, and one of eight needs both.
    let mut small = node("n00", 8, "l0");
    small.cpus = 2;
    let mut capacity = capacity(&[small]);
    let mut other = shape(0);
    other.cpus = Some(1);
    assert_eq!(put(&mut capacity, &job(other)), "n00");
    assert_eq!(put(&mut capacity, &job(shape(8))), "-");
    assert_eq!(put(&mut capacity, &job(split(8, 4))), "n00[0-7]");
}

#[test]
fn gpus_are_neighbors_under_a_switch_or_in_a_numa_node() {
    let layout = GpuLayout {
        gpus_per_switch: 2,
        gpus_per_numa: 4,
    };
    let chosen = |free, count| gpus::indices(gpus::choose_gpus(free, count, layout));
    assert_eq!(chosen(0b1111_0001, 1), [0], "the switch that it fills best");
    assert_eq!(chosen(0b1111_1001, 2), [4, 5], "both under one switch");
    assert_eq!(chosen(0b1110_0111, 3), [0, 1, 2], "in one NUMA node");
    assert_eq!(chosen(0b0000_1101, 3), [0, 2, 3]);
    assert_eq!(chosen(0b1111_1111, 3), [0, 1, 2]);
    assert_eq!(
        chosen(0b0011_1111, 5),
        [0, 1, 2, 3, 4],
        "one NUMA node whole and one GPU of the other"
    );
    assert_eq!(
        chosen(0b1101_0111, 4),
        [0, 1, 2, 4],
        "no NUMA node holds it"
    );
    let unknown = GpuLayout::default();
    assert_eq!(
        gpus::indices(gpus::choose_gpus(0b1010_1010, 3, unknown)),
        [1, 3, 5]
    );
    assert_eq!(gpus::choose_gpus(u64::MAX, 64, layout), u64::MAX);
}

#[test]
fn a_share_fills_a_gpu_that_is_shared_already() {
    let share = |thousandths| {
        job(Shape {
            gpus: GpuAmount::from_thousandths(thousandths),
            ..Shape::default()
        })
    };
    let mut capacity = capacity(&nodes(2, 2));
    occupy(&mut capacity, 1, 0..6);
    assert_eq!(
        put(&mut capacity, &share(500)),
        "n01[6]",
        "whole nodes stay whole"
    );
    assert_eq!(put(&mut capacity, &share(700)), "n01[7]");
    assert_eq!(
        put(&mut capacity, &share(300)),
        "n01[7]",
        "it fills this one best"
    );
    assert_eq!(put(&mut capacity, &share(500)), "n01[6]");
    assert_eq!(put(&mut capacity, &share(100)), "n00[0]");
    capacity.close(0);
    assert_eq!(put(&mut capacity, &share(100)), "-");
}

#[test]
fn slices_go_to_jobs_that_name_their_profile() {
    let slice = |gpu, profile: &str| Slice {
        gpu,
        profile: profile.to_owned(),
        amount: GpuAmount::from_thousandths(143),
        memory: Bytes::new(10 * GIB),
        device: String::new(),
    };
    let mut one = nodes(1, 1);
    one[0].slices = vec![
        slice(0, "1g.10gb"),
        slice(0, "1g.10gb"),
        slice(1, "2g.20gb"),
    ];
    let mut capacity = capacity(&one);
    let small = |gpus| {
        job(Shape {
            gpu_type: Some("1g.10gb".to_owned()),
            ..shape(gpus)
        })
    };
    let demand = Demand::default();
    let placement = place(&mut capacity, &small(1), &view(&demand)).unwrap();
    let task = &placement.allocation.tasks[0];
    assert_eq!(
        (
            task.sliced,
            task.gpus.as_slice(),
            task.gpu_share.thousandths()
        ),
        (true, &[0][..], 143)
    );
    assert_eq!(
        (task.cpus, task.memory),
        (1, Bytes::new(1_024 * GIB * 143 / 8_000))
    );
    assert_eq!(put(&mut capacity, &small(2)), "-");
    assert_eq!(put(&mut capacity, &small(1)), "n00[1]");
    assert_eq!(put(&mut capacity, &small(1)), "-");
    assert_eq!(
        put(&mut capacity, &job(shape(7))),
        "-",
        "cut GPUs are not whole"
    );
    assert_eq!(put(&mut capacity, &job(shape(6))), "n00[2-7]");
}

#[test]
fn tensor_parallel_groups_stay_in_one_nvlink_domain() {
    let parallel = |shape: Shape, tensor_parallel| {
        job(Shape {
            tensor_parallel,
            ..shape
        })
    };
    let mut two = capacity(&nodes(2, 2));
    occupy(&mut two, 0, 0..4);
    occupy(&mut two, 1, 0..4);
    assert_eq!(
        put(&mut two.clone(), &parallel(shape(8), 4)),
        "n00[4-7] n01[4-7]"
    );
    assert_eq!(put(&mut two.clone(), &parallel(shape(8), 8)), "-");
    assert_eq!(
        put(&mut two.clone(), &parallel(split(6, 2), 2)),
        "-",
        "3 GPUs a task hold no groups of 2"
    );
    // Where domains are nodes, tasks that share a domain share a node.
    let mut free = capacity(&nodes(3, 3));
    occupy(&mut free, 0, 0..4);
    assert_eq!(
        put(&mut free.clone(), &parallel(split(16, 4), 8)),
        "n01[0-7] n02[0-7]"
    );
    occupy(&mut free, 1, 0..4);
    assert_eq!(put(&mut free.clone(), &parallel(split(16, 4), 8)), "-");
    assert_eq!(
        put(&mut free, &job(split(16, 4))),
        "n00[4-7] n01[4-7] n02[0-7]"
    );
}

#[test]
fn wide_nvlink_domains_hold_what_no_node_does() {
    let mut racks = nodes(6, 6);
    for (i, node) in racks.iter_mut().enumerate() {
        node.gpus = 4;
        node.location.nvlink_domain = format!("d{}", i / 3);
    }
    let limited = |gpus, span| {
        job(Shape {
            span,
            ..shape(gpus)
        })
    };
    let mut capacity = capacity(&racks);
    occupy(&mut capacity, 0, 0..4);
    assert_eq!(
        put(&mut capacity.clone(), &limited(16, Span::NvlinkDomain)),
        "-"
    );
    assert_eq!(
        put(&mut capacity.clone(), &limited(12, Span::NvlinkDomain)),
        "n03[0-3] n04[0-3] n05[0-3]"
    );
    assert_eq!(
        put(&mut capacity.clone(), &limited(8, Span::NvlinkDomain)),
        "n01[0-3] n02[0-3]"
    );
    // Groups of 8 GPUs: one in each domain, the third node of the second stays free.
    let grouped = job(Shape {
        tensor_parallel: 8,
        ..split(16, 4)
    });
    assert_eq!(
        put(&mut capacity.clone(), &grouped),
        "n01[0-3] n02[0-3] n03[0-3] n04[0-3]"
    );
    let three = job(Shape {
        tensor_parallel: 8,
        ..split(24, 6)
    });
    assert_eq!(put(&mut capacity, &three), "-");
}

#[test]
fn ranks_run_along_the_network() {
    let mut shuffled = nodes(4, 2);
    shuffled.swap(0, 3);
    shuffled[1].location.spine = "a".to_owned();
    let demand = Demand::default();
    let placement = place(&mut capacity(&shuffled), &job(shape(32)), &view(&demand)).unwrap();
    assert_eq!(
        placement.allocation.to_string(),
        "n00[0-7] n02[0-7] n03[0-7] n01[0-7]"
    );
    let ranks: Vec<u32> = placement
        .allocation
        .tasks
        .iter()
        .map(|task| task.index)
        .collect();
    assert_eq!(ranks, [0, 1, 2, 3]);
    assert_eq!(placement.nodes, [3, 2, 0, 1]);
    assert_eq!(placement.score[0].name, "span cluster, nodes");
}

#[test]
fn tasks_without_gpus_keep_off_gpus_that_others_need() {
    let data = |cpus| {
        job(Shape {
            cpus: Some(cpus),
            ..Shape::default()
        })
    };
    let mut mixed = nodes(2, 2);
    mixed.push(NodeSpec {
        gpus: 0,
        gpu_type: String::new(),
        cpus: 4,
        ..node("c0", 0, "")
    });
    let mut capacity = capacity(&mixed);
    assert_eq!(put(&mut capacity, &data(3)), "c0");
    occupy(&mut capacity, 1, 0..4);
    assert_eq!(put(&mut capacity, &data(40)), "n01", "the fewest free GPUs");
    assert_eq!(
        put(&mut capacity, &data(30)),
        "n00",
        "the 4 free GPUs of n01 need 32 of its 56 CPUs"
    );
    assert_eq!(put(&mut capacity, &data(50)), "n01", "nothing else fits");
    assert_eq!(put(&mut capacity, &data(67)), "-");
    let both = JobSpec {
        roles: vec![data(60).roles[0].clone(); 2],
        ..JobSpec::default()
    };
    assert_eq!(put(&mut capacity, &both), "-");
}

#[test]
fn several_tasks_without_gpus_stay_together_and_those_of_services_apart() {
    let data = Shape {
        cpus: Some(10),
        ..split(0, 3)
    };
    let mut spec = job(data);
    assert_eq!(put(&mut capacity(&nodes(3, 3)), &spec), "n00");
    spec.class = Class::Service;
    assert_eq!(put(&mut capacity(&nodes(3, 3)), &spec), "n00 n01 n02");
    assert_eq!(
        put(&mut capacity(&nodes(2, 2)), &spec),
        "n00",
        "not enough nodes"
    );
}

#[test]
fn services_spread_over_nodes_and_leaves() {
    let service = |tasks| JobSpec {
        class: Class::Service,
        ..job(split(tasks, tasks))
    };
    assert_eq!(
        put(&mut capacity(&nodes(6, 2)), &service(3)),
        "n00[0] n02[0] n04[0]"
    );
    assert_eq!(
        put(&mut capacity(&nodes(6, 2)), &service(4)),
        "n00[0] n01[0] n02[0] n04[0]"
    );
    assert_eq!(
        put(&mut capacity(&nodes(2, 1)), &service(3)),
        "n00[0-1] n01[0]"
    );
    assert_eq!(put(&mut capacity(&nodes(2, 1)), &service(17)), "-");
    assert_eq!(
        put(&mut capacity(&nodes(6, 2)), &job(split(3, 3))),
        "n00[0-2]",
        "others gather"
    );
}

#[test]
fn cpus_and_memory_default_to_the_gpus_part_of_the_node() {
    let size = |gpus, cpus| crate::capacity::Size {
        gpus,
        cpus,
        memory: Bytes::new(800),
    };
    let gpus = GpuAmount::from_gpus;
    assert_eq!(
        needs(&shape(2), gpus(2), &size(8, 96)),
        (16, Bytes::new(200))
    );
    assert_eq!(
        needs(&shape(2), gpus(2), &size(8, 32)),
        (8, Bytes::new(200))
    );
    assert_eq!(needs(&shape(0), gpus(0), &size(8, 32)), (1, Bytes::ZERO));
    assert_eq!(needs(&shape(0), gpus(0), &size(0, 0)), (0, Bytes::ZERO));
    assert_eq!(
        needs(&shape(0), GpuAmount::from_thousandths(500), &size(8, 96)),
        (4, Bytes::new(50))
    );
    let stated = Shape {
        cpus: Some(3),
        memory: Some(Bytes::new(5)),
        ..shape(2)
    };
    assert_eq!(needs(&stated, gpus(2), &size(8, 96)), (3, Bytes::new(5)));
}

#[test]
fn held_nodes_are_for_whom_they_are_held() {
    let demand = Demand::default();
    let at = Some(Timestamp::from_millis(3_600_000));
    let outcome = |hold: Hold, view: &View<'_>| {
        let mut capacity = capacity(&nodes(1, 1));
        capacity.hold(0, hold);
        put_as(&mut capacity, &job(shape(1)), view) != "-"
    };
    let hold = Hold {
        job: Some(JobId(8)),
        class: Class::Standard,
        at,
        closes: None,
    };
    let mine = view(&demand);
    assert!(!outcome(hold, &mine));
    assert!(
        outcome(
            Hold {
                job: Some(JobId(7)),
                ..hold
            },
            &mine
        ),
        "its own"
    );
    assert!(
        outcome(
            Hold {
                class: Class::BestEffort,
                ..hold
            },
            &mine
        ),
        "a lower class gives way"
    );
    assert!(!outcome(
        Hold {
            class: Class::Production,
            ..hold
        },
        &mine
    ));
    assert!(outcome(hold, &ending_in(1, &demand)), "it ends before");
    assert!(!outcome(hold, &ending_in(2, &demand)));
    assert!(!outcome(Hold { at: None, ..hold }, &ending_in(1, &demand)));
    let maintenance = Hold {
        job: None,
        class: Class::BestEffort,
        ..hold
    };
    assert!(
        !outcome(maintenance, &mine),
        "maintenance gives way to no class"
    );
    assert!(outcome(maintenance, &ending_in(1, &demand)));
    let nobody = View { job: None, ..mine };
    assert!(!outcome(maintenance, &nobody));
}

#[test]
fn held_nodes_come_after_free_ones() {
    let mut capacity = capacity(&nodes(3, 3));
    let hold = Hold {
        job: Some(JobId(7)),
        class: Class::Standard,
        at: None,
        closes: None,
    };
    capacity.hold(0, hold);
    assert_eq!(put(&mut capacity, &job(shape(8))), "n01[0-7]");
    assert_eq!(put(&mut capacity, &job(shape(16))), "n00[0-7] n02[0-7]");
}

#[test]
fn closed_nodes_take_nothing() {
    let mut capacity = capacity(&nodes(2, 2));
    capacity.close(0);
    let hold = Hold {
        job: Some(JobId(7)),
        class: Class::Standard,
        at: None,
        closes: None,
    };
    capacity.hold(0, hold);
    assert_eq!(put(&mut capacity, &job(shape(1))), "n01[0]");
    assert_eq!(put(&mut capacity, &job(shape(8))), "-");
}

#[test]
fn resources_of_no_node_are_part_of_the_gang() {
    let resources = BTreeMap::from([("lustre".to_owned(), 10)]);
    let mut capacity = Capacity::build(&nodes(1, 1), &BTreeMap::new(), &resources);
    let asking = |amount| JobSpec {
        resources: BTreeMap::from([("lustre".to_owned(), amount)]),
        ..job(shape(1))
    };
    assert_eq!(put(&mut capacity, &asking(11)), "-");
    assert_eq!(put(&mut capacity, &asking(6)), "n00[0]");
    assert_eq!(put(&mut capacity, &asking(6)), "-");
    assert_eq!(capacity.resource_free("lustre"), 4);
}

#[test]
fn explanations_name_the_best_node_and_switch() {
    let mut capacity = capacity(&nodes(4, 2));
    occupy(&mut capacity, 0, 0..5);
    occupy(&mut capacity, 1, 0..8);
    occupy(&mut capacity, 2, 0..2);
    occupy(&mut capacity, 3, 0..4);
    let demand = Demand::default();
    let best =
        |span| best_at(&capacity, &job(shape(16)), &shape(16), span, &view(&demand)).unwrap();
    assert_eq!(
        best(Span::Node),
        ("n02".to_owned(), GpuAmount::from_gpus(6))
    );
    assert_eq!(
        best(Span::Leaf),
        ("l1".to_owned(), GpuAmount::from_gpus(10))
    );
    assert_eq!(best(Span::Cluster).1, GpuAmount::from_gpus(13));
    let typed = Shape {
        gpu_type: Some("B200".to_owned()),
        ..shape(1)
    };
    assert_eq!(
        best_at(
            &capacity,
            &job(shape(1)),
            &typed,
            Span::Node,
            &view(&demand)
        ),
        None
    );
}

#[test]
fn demand_is_stored_and_read_back() {
    let demand = seen(&[1, 8, 100]);
    let stored = serde_json::to_string(&demand).unwrap();
    assert_eq!(serde_json::from_str::<Demand>(&stored).unwrap(), demand);
    assert_eq!(&demand.waste(8)[..9], &[0, 1, 2, 3, 4, 5, 6, 7, 0]);
}

/// Whether some split of a shape fits into some range of its span, counted node by node.
fn fits(capacity: &Capacity, shape: &Shape) -> bool {
    let kind = &capacity.kinds()[0];
    splits(shape, kind.gpus_max).any(|(tasks, each)| {
        kind.ranges(shape.span).any(|range| {
            let members = &kind.members[at(range.start)..at(range.end)];
            let open = members.iter().filter(|node| capacity.is_open(**node));
            let room =
                |&node: &NodeId| capacity.whole_gpus(node).count_ones() / each.whole().unwrap();
            open.map(room).sum::<u32>() >= tasks
        })
    })
}

#[test]
fn a_gang_is_placed_exactly_where_a_count_of_nodes_finds_room() {
    let mut random = 11u64;
    let mut below = |n: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((random >> 33) % n).unwrap()
    };
    let mut specs = nodes(70, 5);
    for (i, spec) in specs.iter_mut().enumerate() {
        spec.location.spine = format!("s{}", i / 20);
        spec.location.nvlink_domain = if i % 3 == 0 {
            String::new()
        } else {
            format!("d{}", i / 5)
        };
    }
    let empty = capacity(&specs);
    let mut capacity = empty.clone();
    let demand = seen(&[1, 1, 1, 8, 4]);
    let mut running: Vec<Placement> = Vec::new();
    let mut refused = 0;
    for _ in 0..4_000 {
        let gpus = [1, 1, 2, 4, 8, 12, 16, 48, 120][at(below(9))];
        let span = Span::ALL[at(below(5))];
        let spec = job(Shape {
            span,
            ..shape(gpus)
        });
        let expected = fits(&capacity, &spec.roles[0].shape);
        match place(&mut capacity, &spec, &view(&demand)) {
            Some(placement) => {
                assert!(expected, "{spec:?} has no room at {}", placement.allocation);
                assert_eq!(placement.allocation.gpu_amount(), spec.gpus());
                running.push(placement);
            }
            None => {
                assert!(!expected, "{spec:?} has room and is refused");
                refused += 1;
            }
        }
        let node = below(70);
        match below(20) {
            0 => capacity.close(node),
            1 => capacity.open(node),
            2..9 if !running.is_empty() => {
                let ended = running.swap_remove(at(below(running.len().try_into().unwrap())));
                capacity.give_back_gang(&ended.nodes, &ended.allocation);
            }
            _ => (),
        }
    }
    assert!(refused > 100, "{refused} refusals");
    for ended in running {
        capacity.give_back_gang(&ended.nodes, &ended.allocation);
    }
    (0..70).for_each(|node| capacity.open(node));
    assert_eq!(capacity, empty);
}

/// Two nodes of 8 GPUs, one of which has few CPUs.
fn rich_and_poor() -> Capacity {
    let mut two = nodes(2, 2);
    two[0].cpus = 400;
    two[1].cpus = 64;
    capacity(&two)
}

/// Demand as so many jobs of a shape leave it.
fn asked(shapes: &[(usize, Shape)]) -> Demand {
    let mut demand = Demand::default();
    for (count, shape) in shapes {
        let spec = job(shape.clone());
        (0..*count).for_each(|_| demand.seen(&spec.roles[0], 8));
    }
    demand
}

fn with_cpus(gpus: Shape, cpus: u32) -> Shape {
    Shape {
        cpus: Some(cpus),
        ..gpus
    }
}

fn share(thousandths: u64) -> Shape {
    Shape {
        gpus: GpuAmount::from_thousandths(thousandths),
        cpus: Some(1),
        ..Shape::default()
    }
}

#[test]
fn a_job_goes_where_it_strands_no_gpus_of_those_who_are_usual() {
    let demand = asked(&[(20, with_cpus(shape(1), 8)), (2, with_cpus(shape(1), 30))]);
    let put = |shape: Shape| put_as(&mut rich_and_poor(), &job(shape), &view(&demand));
    assert_eq!(
        put(with_cpus(shape(1), 30)),
        "n00[0]",
        "the rich node can spare them"
    );
    assert_eq!(put(with_cpus(shape(0), 40)), "n00", "without GPUs as well");
    assert_eq!(
        put(with_cpus(shape(1), 1)),
        "n01[0]",
        "who needs few goes where few are"
    );
}

#[test]
fn shares_are_put_together_where_they_fill_a_gpu() {
    let demand = asked(&[(10, share(500)), (10, with_cpus(shape(1), 8))]);
    let mut capacity = rich_and_poor();
    let mut put = |thousandths| put_as(&mut capacity, &job(share(thousandths)), &view(&demand));
    let first = put(500);
    assert_eq!(put(500), first);
    assert_ne!(put(500), first, "it is full");
}

#[test]
fn a_job_that_any_type_serves_leaves_the_type_alone_that_others_need() {
    let mut specs = nodes(2, 2);
    specs[0].gpu_type = "H100".to_owned();
    specs[1].gpu_type = "L40".to_owned();
    let typed = Shape {
        gpu_type: Some("H100".to_owned()),
        ..with_cpus(shape(1), 4)
    };
    let demand = asked(&[(10, typed), (10, with_cpus(shape(1), 4))]);
    let any = job(with_cpus(shape(1), 4));
    assert_eq!(
        put_as(&mut capacity(&specs), &any, &view(&demand)),
        "n01[0]"
    );
}

#[test]
fn counts_of_classes_are_bounded_and_the_past_fades() {
    let mut demand = Demand::default();
    for cpus in 1..=2_000 {
        demand.seen(&job(with_cpus(shape(1), cpus)).roles[0], 8);
    }
    let stored = serde_json::to_string(&demand).unwrap();
    assert!(stored.len() < 30_000, "{} bytes", stored.len());
    for _ in 0..200_000 {
        demand.seen(&job(shape(1)).roles[0], 8);
    }
    assert_eq!(demand.gradient(), None, "nobody names CPUs any more");
    let stored = serde_json::to_string(&demand).unwrap();
    assert_eq!(serde_json::from_str::<Demand>(&stored).unwrap(), demand);
}
