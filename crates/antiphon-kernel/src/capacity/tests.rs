//! The books of capacity: what fits, what is refused, and that every sum agrees with a count from nothing.

use antiphon_types::{Bytes, GpuAmount, Location, NodeName, Slice};

use super::*;

fn node(name: &str, gpus: u32, gpu_type: &str, leaf: &str) -> NodeSpec {
    NodeSpec {
        name: name.into(),
        gpus,
        gpu_type: gpu_type.to_owned(),
        cpus: 64,
        memory: Bytes::new(512),
        scratch: Bytes::new(100),
        location: Location {
            leaf: leaf.to_owned(),
            ..Location::default()
        },
        ..NodeSpec::default()
    }
}

fn task(node: &str, gpus: &[u32], share: u64) -> TaskAllocation {
    TaskAllocation {
        role: "trainer".to_owned(),
        index: 0,
        node: node.into(),
        gpus: gpus.to_vec(),
        gpu_share: GpuAmount::from_thousandths(share),
        cpus: 1,
        memory: Bytes::new(1),
        scratch: Bytes::new(1),
        read_bandwidth: Bytes::new(5),
        sliced: false,
    }
}

fn build(nodes: &[NodeSpec]) -> Capacity {
    Capacity::build(nodes, &BTreeMap::new(), &BTreeMap::new())
}

/// GPUs wholly free on open nodes, held nodes included.
fn free_total(capacity: &Capacity) -> u64 {
    (0..capacity.kinds().len())
        .map(|kind| capacity.free_of_kind(kind))
        .sum()
}

#[test]
fn what_is_taken_comes_back_to_what_it_was() {
    let before = build(&[node("n0", 8, "H100", "a"), node("n1", 8, "H100", "b")]);
    let mut capacity = before.clone();
    let gang = Allocation::from(vec![task("n0", &[0, 1], 1_000), task("n1", &[2], 500)]);
    capacity.take_gang(&[0, 1], &gang);
    assert_eq!(free_total(&capacity), 13);
    assert_eq!((capacity.crossing(0), capacity.crossing(1)), (1, 1));
    assert_eq!(capacity.parts().len(), 1);
    capacity.give_back_gang(&[0, 1], &gang);
    assert_eq!(capacity, before);
}

#[test]
#[should_panic(expected = "GPU 3 of n0 is held twice")]
fn a_gpu_held_twice_panics() {
    let mut capacity = build(&[node("n0", 8, "H100", "")]);
    capacity.take(0, &task("n0", &[3], 1_000));
    capacity.take(0, &task("n0", &[3], 500));
}

#[test]
#[should_panic(expected = "GPU 3 of n0 is given back twice")]
fn a_gpu_given_back_twice_panics() {
    let mut capacity = build(&[node("n0", 8, "H100", "")]);
    capacity.give_back(0, &task("n0", &[3], 1_000));
}

#[test]
fn shares_fill_one_gpu_and_no_more() {
    let mut capacity = build(&[node("n0", 1, "H100", "")]);
    capacity.take(0, &task("n0", &[0], 600));
    assert_eq!(
        capacity.shortage(0, &task("n0", &[0], 500)).as_deref(),
        Some("GPU 0 of n0")
    );
    assert_eq!(capacity.shortage(0, &task("n0", &[0], 400)), None);
    capacity.take(0, &task("n0", &[0], 400));
    assert_eq!(free_total(&capacity), 0);
    capacity.give_back(0, &task("n0", &[0], 600));
    capacity.give_back(0, &task("n0", &[0], 400));
    assert_eq!(capacity, build(&[node("n0", 1, "H100", "")]));
}

#[test]
fn shortages_name_what_is_missing_with_numbers() {
    let capacity = build(&[node("n0", 2, "H100", "")]);
    let asked = TaskAllocation {
        cpus: 65,
        ..task("n0", &[0], 1_000)
    };
    assert_eq!(
        capacity.shortage(0, &asked).as_deref(),
        Some("CPUs of n0: 65 asked, 64 left")
    );
    let asked = TaskAllocation {
        scratch: Bytes::new(101),
        ..task("n0", &[0], 1_000)
    };
    assert_eq!(
        capacity.shortage(0, &asked).as_deref(),
        Some("scratch of n0: 101 B asked, 100 B left")
    );
    let asked = task("n0", &[2], 1_000);
    assert_eq!(capacity.shortage(0, &asked).as_deref(), Some("GPU 2 of n0"));
    // Nobody said what it reads a second, so it is not counted.
    let asked = TaskAllocation {
        read_bandwidth: Bytes::new(u64::MAX),
        ..task("n0", &[0], 1_000)
    };
    assert_eq!(capacity.shortage(0, &asked), None);
}

#[test]
fn lost_and_cut_gpus_are_never_free_but_stay_on_the_books() {
    let slice = Slice {
        gpu: 1,
        profile: "1g.10gb".to_owned(),
        amount: GpuAmount::from_thousandths(143),
        memory: Bytes::ZERO,
        device: String::new(),
    };
    let spec = NodeSpec {
        gpus_lost: vec![0],
        slices: vec![slice],
        ..node("n0", 4, "A100", "")
    };
    let mut capacity = build(&[spec]);
    assert_eq!(capacity.whole_gpus(0), 0b1100);
    assert_eq!(free_total(&capacity), 2);
    assert!(capacity.shortage(0, &task("n0", &[0], 1_000)).is_some());
    // Whoever held it when it was lost holds it until it ends.
    capacity.take(0, &task("n0", &[0], 1_000));
    capacity.give_back(0, &task("n0", &[0], 1_000));
    let sliced = TaskAllocation {
        sliced: true,
        ..task("n0", &[0], 143)
    };
    capacity.take(0, &sliced);
    assert_eq!(
        capacity.shortage(0, &sliced).as_deref(),
        Some("slice 0 of n0")
    );
    assert_eq!(free_total(&capacity), 2);
}

#[test]
fn more_than_64_gpus_of_a_node_are_ignored() {
    let capacity = build(&[node("n0", 80, "H100", "")]);
    assert_eq!(free_total(&capacity), 64);
}

#[test]
fn a_closed_node_keeps_its_books() {
    let mut capacity = build(&[node("n0", 8, "H100", "")]);
    capacity.take(0, &task("n0", &[0], 1_000));
    capacity.close(0);
    assert_eq!((free_total(&capacity), capacity.is_open(0)), (0, false));
    capacity.give_back(0, &task("n0", &[0], 1_000));
    capacity.open(0);
    assert_eq!(capacity, build(&[node("n0", 8, "H100", "")]));
}

#[test]
fn resources_of_no_node_are_counted() {
    let resources = BTreeMap::from([("lustre".to_owned(), 10)]);
    let mut capacity = Capacity::build(&[], &BTreeMap::new(), &resources);
    let asked = BTreeMap::from([("lustre".to_owned(), 7)]);
    capacity.take_resources(&asked);
    assert_eq!(
        (
            capacity.resource_free("lustre"),
            capacity.resource_free("licence")
        ),
        (3, 0)
    );
    capacity.give_back_resources(&asked);
    assert_eq!(capacity.resource_free("lustre"), 10);
}

#[test]
#[should_panic(expected = "7 of resource `lustre` are taken, 3 are free")]
fn a_resource_taken_beyond_what_is_free_panics() {
    let resources = BTreeMap::from([("lustre".to_owned(), 3)]);
    let mut capacity = Capacity::build(&[], &BTreeMap::new(), &resources);
    capacity.take_resources(&BTreeMap::from([("lustre".to_owned(), 7)]));
}

#[test]
fn nodes_without_names_above_them_share_one_range() {
    let mut nodes = vec![
        node("n0", 8, "H100", ""),
        node("n1", 8, "H100", "a"),
        node("n2", 8, "H100", ""),
    ];
    nodes[1].location.nvlink_domain = "d".to_owned();
    nodes.push(NodeSpec {
        name: "n3".into(),
        ..nodes[1].clone()
    });
    let capacity = build(&nodes);
    let kind = &capacity.kinds()[0];
    assert_eq!(kind.members, [0, 2, 1, 3]);
    use antiphon_types::Span;
    let ranges = |span| kind.ranges(span).collect::<Vec<_>>();
    assert_eq!(ranges(Span::Leaf), [0..2, 2..4]);
    assert_eq!(ranges(Span::NvlinkDomain), [0..1, 1..2, 2..4]);
    assert_eq!(ranges(Span::Node), [0..1, 1..2, 2..3, 3..4]);
    assert_eq!(ranges(Span::Cluster), std::slice::from_ref(&(0..4)));
}

/// Fixed steps from a small generator: `Lcg(seed).below(n)`.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % n
    }
}

/// The same capacity, every sum counted from the rooms.
fn recounted(capacity: &Capacity) -> Vec<Stock> {
    let mut stocks: Vec<Stock> = capacity.kinds().iter().map(Stock::empty).collect();
    for node in 0..id(capacity.rooms.len()) {
        let stand = capacity.stand(node);
        let free = capacity.room(node).free(stand);
        stocks[stand.kind].shift(stand, 0, free);
        let open = capacity.is_open(node);
        stocks[stand.kind].mark(stand, free, open, open && capacity.hold_on(node).is_none());
    }
    stocks
}

#[test]
fn sums_agree_with_the_rooms_after_any_steps() {
    let mut random = Lcg(7);
    let nodes: Vec<NodeSpec> = (0..150u32)
        .map(|i| NodeSpec {
            gpus_lost: if i % 11 == 0 { vec![2] } else { Vec::new() },
            location: Location {
                spine: format!("s{}", i % 3),
                leaf: format!("l{}", i % 10),
                nvlink_domain: if i % 2 == 0 {
                    format!("d{}", i % 20)
                } else {
                    String::new()
                },
            },
            ..node(
                &format!("n{i}"),
                [8, 4, 0][at(i % 3)],
                ["A", "B"][at(i % 2)],
                "",
            )
        })
        .collect();
    let mut capacity = build(&nodes);
    let mut held: Vec<(NodeId, TaskAllocation)> = Vec::new();
    for step in 0..20_000 {
        let node = random.below(150);
        let hold = Hold {
            job: Some(JobId(1)),
            class: Class::Standard,
            at: None,
            closes: None,
        };
        match random.below(10) {
            0 => capacity.open(node),
            1 => capacity.close(node),
            2 => capacity.hold(node, hold),
            3 => capacity.unhold(node),
            4..8 => {
                let name = NodeName(format!("n{node}"));
                let share = [1_000, 300][at(random.below(2))];
                let asked = task(&name.0, &[random.below(8)], share);
                if capacity.shortage(node, &asked).is_none() {
                    capacity.take(node, &asked);
                    held.push((node, asked));
                }
            }
            _ if held.is_empty() => (),
            _ => {
                let count = id(held.len());
                let (node, task) = held.swap_remove(at(random.below(count)));
                capacity.give_back(node, &task);
            }
        }
        if step % 100 == 0 {
            assert_eq!(capacity.stocks, recounted(&capacity), "after step {step}");
        }
    }
    for (node, task) in held {
        capacity.give_back(node, &task);
    }
    for node in 0..150 {
        capacity.open(node);
        capacity.unhold(node);
    }
    assert_eq!(capacity, build(&nodes));
}

#[test]
fn held_members_are_let_in_as_if_they_were_not_held() {
    let mut capacity = build(&[node("n0", 8, "H100", "a"), node("n1", 8, "H100", "b")]);
    let free = capacity.clone();
    let hold = Hold {
        job: Some(JobId(1)),
        class: Class::Standard,
        at: None,
        closes: None,
    };
    capacity.hold(1, hold);
    assert_eq!(capacity.field(0).free_in(0), 8);
    assert!(capacity.field_with_held(0, |_| false).is_none());
    let field = capacity
        .field_with_held(0, |hold| hold.job == Some(JobId(1)))
        .unwrap();
    for row in 0..4 {
        for gpus in 1..=8 {
            assert_eq!(field.tasks_in(row, gpus), free.field(0).tasks_in(row, gpus));
        }
    }
}
