//! Cluster files that are right and wrong, in both forms, and what is said about them.

use antiphon_types::{Bytes, GpuAmount, Location, Millis, NodeSpec, UsdMicros};

use super::*;

fn toml(text: &str) -> Result<Cluster, String> {
    let cluster = form::cluster(text)?;
    check(&cluster).map(|()| cluster)
}

/// A file of one partition with these groups of nodes.
fn groups(groups: &str) -> String {
    format!("[[partition]]\nname = \"train\"\nnodes = [{groups}]")
}

fn names(nodes: &[NodeSpec]) -> String {
    let names: Vec<&str> = nodes.iter().map(|node| node.name.0.as_str()).collect();
    names.join(" ")
}

#[test]
fn a_partition_has_its_price_its_network_and_its_nodes() {
    let cluster = toml(
        r#"
        [[partition]]
        name = "train"
        price_per_gpu_hour = "2.50"
        interconnect = "3.2Tb/s"
        duration_max = "2d"
        preemptible = true
        nodes = [
          { names = "n[08-10]", gpus = 8, gpu_type = "H100", gpu_memory = "80GB", memory = "2TiB", scratch = "14TB", read_bandwidth = "5GB/s", gpus_per_switch = 2, gpus_per_numa = 4 },
          { names = "s0", gpus = 8, gpu_type = "H100", spare = true },
        ]
        [[partition]]
        name = "cpu"
        interconnect_gbps = 100
        nodes = [{ names = "c0", cpus = 16 }]
        [shared]
        lustre_gbps = 400
        "#,
    )
    .unwrap();
    assert_eq!(names(&cluster.nodes), "n08 n09 n10 s0 c0");
    let first = &cluster.nodes[0];
    assert_eq!(
        (first.gpus, first.gpu_memory),
        (8, Bytes::new(80_000_000_000))
    );
    assert_eq!((first.cpus, first.memory), (64, Bytes::new(2 << 40)));
    assert_eq!(first.scratch, Bytes::new(14_000_000_000_000));
    assert_eq!(first.read_bandwidth, Bytes::new(5_000_000_000));
    assert_eq!(
        (first.layout.gpus_per_switch, first.layout.gpus_per_numa),
        (2, 4)
    );
    assert!(first.gpus_virtual && !first.spare && cluster.nodes[3].spare);
    assert_eq!(
        (
            first.partition.as_str(),
            cluster.nodes[4].partition.as_str()
        ),
        ("train", "cpu")
    );
    let [train, cpu] = cluster.partitions.as_slice() else {
        panic!("{:?}", cluster.partitions);
    };
    assert_eq!(train.price_per_gpu_hour, UsdMicros::from_micros(2_500_000));
    assert_eq!(
        (train.interconnect_gbps, cpu.interconnect_gbps),
        (3_200, 100)
    );
    assert_eq!(train.duration_max, Some(Millis::from_secs(172_800)));
    assert!(train.preemptible && !cpu.preemptible);
    assert_eq!(cluster.resources["lustre_gbps"], 400);
}

#[test]
fn levels_are_named_or_numbered_in_groups_that_go_on_through_the_file() {
    let text = groups(
        r#"
        { names = "a[0-4]", leaf = "per 2", spine = "s0" },
        { names = "b[0-1]", leaf = "per 2", spine = "per 8" },
        { names = "c[0-1]", leaf = "x", nvlink_domain = "per 1" },
        { names = "d0", leaf = "x" },
        "#,
    );
    let cluster = toml(&text).unwrap();
    let places: Vec<String> = cluster
        .nodes
        .iter()
        .map(|node| {
            let Location {
                spine,
                leaf,
                nvlink_domain,
            } = &node.location;
            format!("{} {spine}/{leaf}/{nvlink_domain}", node.name)
        })
        .collect();
    assert_eq!(
        places,
        [
            "a0 s0/leaf-0/",
            "a1 s0/leaf-0/",
            "a2 s0/leaf-1/",
            "a3 s0/leaf-1/",
            "a4 s0/leaf-2/",
            "b0 spine-0/leaf-3/",
            "b1 spine-0/leaf-3/",
            "c0 /x/nvlink-0",
            "c1 /x/nvlink-1",
            "d0 /x/",
        ]
    );
}

#[test]
fn a_gpu_is_cut_into_slices() {
    let text = groups(
        r#"{ names = "m0", gpus = 8, slices = [
            { gpu = 6, profile = "1g.10gb", count = 2, memory = "10GiB" },
            { gpu = 6, profile = "4g.40gb" },
            { gpu = 7, profile = "3g.40gb", count = 2, devices = ["MIG-a", "MIG-b"] },
        ] }"#,
    );
    let cluster = toml(&text).unwrap();
    let slices: Vec<String> = cluster.nodes[0]
        .slices
        .iter()
        .map(|slice| {
            format!(
                "{} {} {} {}",
                slice.gpu, slice.profile, slice.amount, slice.device
            )
        })
        .collect();
    assert_eq!(
        slices,
        [
            "6 1g.10gb 0.142 MIG-6/0",
            "6 1g.10gb 0.142 MIG-6/1",
            "6 4g.40gb 0.571 MIG-6/2",
            "7 3g.40gb 0.428 MIG-a",
            "7 3g.40gb 0.428 MIG-b",
        ]
    );
    assert_eq!(cluster.nodes[0].slices[0].memory, Bytes::new(10 << 30));
    assert_eq!(
        cluster.nodes[0].slices[2].memory,
        Bytes::new(40_000_000_000)
    );
    assert!(GpuAmount::from_gpus(1) > cluster.nodes[0].slices[2].amount);
}

#[test]
fn wrong_files_say_what_is_there_and_what_may_be() {
    for (text, expected) in [
        (
            r#"{ names = "n1" }, { names = "n[1-2]" }"#,
            "node `n1` stands in it twice (partition `train`)",
        ),
        (
            r#"{ names = "n1", gpus = 65 }"#,
            "`n1` has 65 GPUs a node: the limit is 64",
        ),
        (
            r#"{ names = "a[1-20000]" }, { names = "b[0-1]" }"#,
            "it names 20002 nodes up to `b[0-1]`: the limit is 20000 in one file",
        ),
        (
            r#"{ names = "n0", leaf = "per 0" }"#,
            "`leaf` of `n0`: `per 0` says for no number of nodes: give a name, or a form like `per 16`",
        ),
        (
            r#"{ names = "n0", gpus = 8, gpus_per_numa = 3 }"#,
            "`gpus_per_numa` of `n0` is 3: it has to divide the 8 GPUs of a node",
        ),
        (
            r#"{ names = "n0", memory = "64" }"#,
            "`memory` of `n0`: `64` is no size: expected a number with a unit like `512MiB`, `64GiB` or `2TB`",
        ),
        (
            r#"{ names = "a[0-1]", leaf = "x", spine = "s0" }, { names = "b0", leaf = "x", spine = "s1" }"#,
            "leaf `x` lies under spine `s0` and, by node `b0`, under spine `s1`",
        ),
        (
            r#"{ names = "a[0-1]", nvlink_domain = "d", leaf = "per 1" }"#,
            "NVLink domain `d` lies under leaf `leaf-0` and, by node `a1`, under leaf `leaf-1`",
        ),
        (
            r#"{ names = "n0", gpus = 8, slices = [{ gpu = 8, profile = "1g.10gb" }] }"#,
            "`slices` of `n0`: there is no GPU 8, the node has 8 and they count from 0",
        ),
        (
            r#"{ names = "n0", gpus = 8, slices = [{ gpu = 0, profile = "half" }] }"#,
            "`slices` of `n0`: `half` is no MIG profile: give one like `1g.10gb`, as `nvidia-smi mig -lgip` lists them",
        ),
        (
            r#"{ names = "n0", gpus = 8, slices = [{ gpu = 0, profile = "3g.40gb", count = 3 }] }"#,
            "`slices` of `n0`: GPU 0 would be cut into 9 compute slices: it has 7, and 3 x `3g.40gb` take 9",
        ),
        (
            r#"{ names = "n0", gpus = 8, slices = [{ gpu = 0, profile = "1g.10gb", count = 3, devices = ["a"] }] }"#,
            "`slices` of `n0`: there are 1 `devices` for 3 x `1g.10gb` on GPU 0: give one for each",
        ),
    ] {
        assert_eq!(toml(&groups(text)).unwrap_err(), expected);
    }
    for (keys, expected) in [
        (
            "price_per_gpu_hour = \"2,50\"",
            "`price_per_gpu_hour` of partition `a`: `2,50` is no price: expected a number with a unit like `2.50`",
        ),
        (
            "interconnect = \"fast\"",
            "`interconnect` of partition `a`: `fast` is no speed of a network: give one like `400Gb`",
        ),
        (
            "interconnect = \"400Gb\"\ninterconnect_gbps = 400",
            "partition `a` has both `interconnect` and `interconnect_gbps`: give one of them",
        ),
        (
            "nodes = []\n[[partition]]\nname = \"a\"",
            "there are two partitions `a`: give each a name of its own, with all its nodes",
        ),
    ] {
        let text = format!("[[partition]]\nname = \"a\"\n{keys}\nnodes = []");
        assert_eq!(toml(&text).unwrap_err(), expected);
    }
    assert_eq!(toml(&groups("")).unwrap_err(), "it names no nodes");
    assert!(
        toml("[[partition]]\nname = \"a\"\nnode = []")
            .unwrap_err()
            .contains("unknown field `node`")
    );
}

/// What Slurm 22.05.8 prints, with `scontrol show node`.
const MANY_LINES: &str = "\
NodeName=n1 Arch=x86_64 CoresPerSocket=32 
   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.25
   AvailableFeatures=h100,ib
   ActiveFeatures=h100,ib
   Gres=gpu:h100:8(S:0-1),scratch:2000
   NodeAddr=127.0.0.1 NodeHostName=vm Port=27821 Version=22.05.8
   OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0 
   RealMemory=512000 AllocMem=0 FreeMem=22394 Sockets=2 Boards=1
   State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=general,fast-ib,preemptible,spot 
   BootTime=2026-11-29T16:48:48 SlurmdStartTime=2026-11-29T20:07:58
   LastBusyTime=2026-11-29T20:07:59
   CfgTRES=cpu=64,mem=500G,billing=64
   AllocTRES=
   CapWatts=n/a
   CurrentWatts=0 AveWatts=0
   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s

NodeName=n2 Arch=x86_64 CoresPerSocket=32 
   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.25
   AvailableFeatures=h100,ib
   ActiveFeatures=h100,ib
   Gres=gpu:h100:8(S:0-1),scratch:2000
   NodeAddr=127.0.0.1 NodeHostName=vm Port=27822 Version=22.05.8
   OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0 
   RealMemory=512000 AllocMem=0 FreeMem=22395 Sockets=2 Boards=1
   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=general,fast-ib,preemptible,spot 
   BootTime=2026-11-29T16:48:48 SlurmdStartTime=2026-11-29T20:07:58
   LastBusyTime=2026-11-29T20:07:59
   CfgTRES=cpu=64,mem=500G,billing=64
   AllocTRES=
   CapWatts=n/a
   CurrentWatts=0 AveWatts=0
   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s
   Reason=bad cable, see State=ticket 7 [root@2026-11-29T20:08:01]

";

/// The same with `-o`, of nodes that differ in what they have.
const ONE_LINE: &str = "\
NodeName=n3 Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 CPUEfctv=62 CPUTot=64 CPULoad=0.25 AvailableFeatures=a100 ActiveFeatures=a100 Gres=gpu:4 NodeAddr=127.0.0.1 NodeHostName=vm Port=27823 Version=22.05.8 OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=512000 AllocMem=0 FreeMem=22394 Sockets=2 Boards=1 MemSpecLimit=2000 State=IDLE ThreadsPerCore=1 TmpDisk=1000 Weight=1 Owner=N/A MCS_label=N/A Partitions=general  BootTime=2026-11-29T16:48:48 CfgTRES=cpu=64,mem=500G,billing=64 AllocTRES= CapWatts=n/a
NodeName=n4 Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 CPUTot=64 CPULoad=N/A Gres=gpu:v100:2,gpu:a100:4(S:0,1) OS=Linux RealMemory=512000 State=ALLOCATED TmpDisk=0 Partitions=general
NodeName=n5 Arch=x86_64 CPUTot=64 Gres=(null) RealMemory=64000 State=IDLE* TmpDisk=0 Partitions=general Reason=Not responding [slurm@2026-11-29T20:08:01]
NodeName=n6 Arch=x86_64 CPUTot=64 Gres=(null) RealMemory=64000 State=IDLE+CLOUD+POWERED_DOWN TmpDisk=0
";

#[test]
fn slurms_nodes_are_read_in_both_forms() {
    let cluster = scontrol::cluster(MANY_LINES).unwrap();
    let n1 = &cluster.nodes[0];
    assert_eq!(
        (n1.name.0.as_str(), n1.gpus, n1.gpu_type.as_str()),
        ("n1", 8, "h100")
    );
    assert_eq!((n1.cpus, n1.memory), (64, Bytes::new(512_000 << 20)));
    assert_eq!(n1.partition, "general");
    assert_eq!(cluster.partitions[0].name, "general");
    assert_eq!(
        cluster.warnings,
        [
            "left out, being out of service: n2 (IDLE+DRAIN: bad cable, see State=ticket 7 [root@2026-11-29T20:08:01])",
            "`n1` is in 4 partitions: nodes count to the first that Slurm names, here `general`",
        ]
    );

    let cluster = scontrol::cluster(ONE_LINE).unwrap();
    assert_eq!(names(&cluster.nodes), "n3 n4 n6");
    let [n3, n4, n6] = cluster.nodes.as_slice() else {
        panic!("three nodes take tasks");
    };
    assert_eq!((n3.gpus, n3.gpu_type.as_str()), (4, "gpu"));
    // What Slurm keeps for itself is not offered.
    assert_eq!((n3.cpus, n3.memory), (62, Bytes::new(510_000 << 20)));
    assert_eq!(n3.scratch, Bytes::new(1_000 << 20));
    assert_eq!((n4.gpus, n4.gpu_type.as_str(), n4.cpus), (4, "a100", 64));
    assert_eq!((n6.gpus, n6.partition.as_str()), (0, ""));
    assert_eq!(
        cluster.warnings,
        ["left out, being out of service: n5 (IDLE*: Not responding [slurm@2026-11-29T20:08:01])"]
    );
    check(&cluster).unwrap();

    let down = |node: u32| format!("NodeName=d{node} CPUTot=4 RealMemory=9 State=DOWN\n");
    let many = ONE_LINE.to_owned() + &(0..9).map(down).collect::<String>();
    let cluster = scontrol::cluster(&many).unwrap();
    let warning = &cluster.warnings[0];
    assert!(warning.ends_with("d3 (DOWN) and 5 more"), "{warning}");
}

#[test]
fn what_is_not_slurms_nodes_says_so() {
    assert!(slurm_nodes::is_meant(MANY_LINES) && slurm_nodes::is_meant(ONE_LINE));
    assert!(!slurm_nodes::is_meant(
        "# NodeName=\n[[partition]]\nname = \"NodeName=\""
    ));
    let conf = "# made by hand\nClusterName=a\nNodeName=n[0-3] CPUs=64 Gres=gpu:8 State=UNKNOWN\n";
    assert!(slurm_nodes::is_meant(conf));
    assert_eq!(
        scontrol::cluster(conf).unwrap_err(),
        "it looks like `slurm.conf`, which does not say what the nodes have and whether they are up"
    );
    let cases = [
        (
            "NodeName=n0 RealMemory=1 State=IDLE",
            "node `n0` has no `CPUTot`",
        ),
        (
            "NodeName=n0 CPUTot=4 RealMemory=much State=IDLE",
            "`RealMemory=much` of node `n0` is no number",
        ),
        (
            "NodeName=n0 CPUTot=4 RealMemory=1 State=IDLE Gres=gpu:h100:many",
            "`Gres` of node `n0` cannot be read",
        ),
        (
            "NodeName=n0 CPUTot=4 RealMemory=1 State=DOWN",
            "all of its 1 nodes are out of service",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(scontrol::cluster(text).unwrap_err(), expected);
    }
}

#[test]
fn a_topology_says_under_which_leaf_and_spine_nodes_stand() {
    let text = "\
# two leaves
SwitchName=leaf0 Nodes=n[1-2] LinkSpeed=400
switchname=leaf1 \\
  nodes=n[3-4]
SwitchName=spine Switches=leaf[0-1]
SwitchName=core Switches=spine
BlockName=rack0 Nodes=n[1-2]
BlockSizes=2
";
    let places = slurm_topology::places(text).unwrap();
    let mut cluster = toml(&groups(
        r#"{ names = "n[2-3]" }, { names = "n9", leaf = "far" }"#,
    ))
    .unwrap();
    topology::apply(&places, &mut cluster);
    let at = |node: usize| {
        let Location {
            spine,
            leaf,
            nvlink_domain,
        } = &cluster.nodes[node].location;
        format!("{spine}/{leaf}/{nvlink_domain}")
    };
    assert_eq!(
        [at(0), at(1), at(2)],
        ["spine/leaf0/rack0", "spine/leaf1/", "/far/"]
    );
    assert_eq!(
        cluster.warnings,
        ["the topology does not name 1 of 3 nodes, the first of them `n9`"]
    );
    for (text, expected) in [
        (
            "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1",
            "node `n1` hangs on two switches, `a` and `b`",
        ),
        (
            "SwitchName=s Switches=a\nSwitchName=t Switches=a",
            "switch `a` hangs on two others, `s` and `t`",
        ),
        (
            "Nodes=n1",
            "`Nodes=n1` is no line of a topology: give `SwitchName=leaf0 Nodes=n[0-15]`, `SwitchName=spine0 Switches=leaf[0-1]`",
        ),
        (
            "SwitchName=a nodes",
            "`nodes` in `SwitchName=a nodes` has no `=`",
        ),
    ] {
        assert_eq!(slurm_topology::places(text).unwrap_err(), expected);
    }
}

#[test]
fn slurms_topology_is_found_beside_slurms_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let nodes = write("nodes.txt", MANY_LINES);
    let own = write("own.toml", &groups(r#"{ names = "n1" }"#));
    write("topology.conf", "SwitchName=leaf0 Nodes=n[1-2]\n");
    let other = write("other.conf", "SwitchName=leaf7 Nodes=n1\n");
    let leaf = |path: &Path, topology: Option<&Path>| {
        let cluster = read(path, topology).map_err(|failure| failure.why).unwrap();
        cluster.nodes[0].location.leaf.clone()
    };
    assert_eq!(leaf(&nodes, None), "leaf0");
    assert_eq!(leaf(&nodes, Some(&other)), "leaf7");
    // antiphon's own form says where nodes stand: nothing beside it counts that nobody named.
    assert_eq!(leaf(&own, None), "");
    assert_eq!(leaf(&own, Some(&other)), "leaf7");
}
