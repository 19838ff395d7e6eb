//! What Slurm is given for launches of every form, and that nothing in a name ends its quotes.

use std::path::PathBuf;
use std::process::Command;

use antiphon_types::{GpuAmount, JobSpec, Timestamp};
use proptest::prelude::*;

use super::*;

fn task(role: &str, index: u32, node: &str, gpus: &[u32]) -> TaskAllocation {
    TaskAllocation {
        role: role.into(),
        index,
        node: node.into(),
        gpus: gpus.to_vec(),
        gpu_share: GpuAmount::from_gpus(1),
        cpus: 4,
        memory: Bytes::ZERO,
        scratch: Bytes::ZERO,
        read_bandwidth: Bytes::ZERO,
        sliced: false,
    }
}

fn launch(tasks: Vec<TaskAllocation>) -> Launch {
    Launch {
        attempt: "job-42.3".parse().unwrap(),
        spec: JobSpec::default(),
        launched: Timestamp::from_millis(5),
        allocation: tasks.into(),
        environment: BTreeMap::new(),
        check: Vec::new(),
    }
}

fn node() -> NodeSpec {
    NodeSpec {
        gpus: 8,
        cpus: 64,
        memory: Bytes::new(512_000 << 20),
        ..NodeSpec::default()
    }
}

fn parts(launch: &Launch) -> Vec<Component> {
    let node = node();
    components(launch, |_| &node)
}

fn arguments(launch: &Launch) -> String {
    let config = SlurmConfig {
        account: Some("lab".into()),
        ..SlurmConfig::new(PathBuf::new(), Vec::new())
    };
    let label = Label {
        attempt: launch.attempt,
        launched: launch.launched,
        owner: "0a".into(),
    };
    let place = Place {
        partition: "train",
        duration_max: None,
        gres_type: "h100",
        log: Path::new("/s/50%/slurm.log"),
    };
    sbatch(&config, launch, &label, &parts(launch), &place).join(" ")
}

fn script(launch: &Launch) -> String {
    let supervisor = ["/bin/antiphon".to_owned(), "supervise".to_owned()];
    batch(
        &supervisor,
        Path::new("/s/job-42.3"),
        "h100",
        &parts(launch),
    )
}

#[test]
fn one_task_is_the_batch_script_itself() {
    let launch = launch(vec![task("trainer", 0, "n3", &[4, 5])]);
    assert_eq!(
        arguments(&launch),
        "--job-name=job-42-3 --comment=antiphon job-42.3 5 0a --open-mode=append --output=/s/50%%/slurm.log --chdir=/ \
         --export=ALL --parsable --account=lab --partition=train --time=UNLIMITED --nodes=1 --nodelist=n3 --ntasks=1 \
         --ntasks-per-node=1 --cpus-per-task=4 --mem=128000M --gres=gpu:h100:2 --no-requeue"
    );
    assert_eq!(
        script(&launch),
        "#!/bin/sh\n# Written by antiphon.\nexec '/bin/antiphon' 'supervise' '/s/job-42.3' 'trainer'\n"
    );
}

#[test]
fn a_role_is_one_srun_on_all_its_nodes() {
    let tasks = (0..).zip(["n2", "n1", "n3"]);
    let mut tasks: Vec<_> = tasks
        .map(|(index, node)| task("trainer", index, node, &[0, 1, 2, 3]))
        .collect();
    let one = launch(tasks.clone());
    assert!(arguments(&one).contains("--nodes=3 --nodelist=n[1-3] --ntasks=3"));
    let text = script(&one);
    assert_eq!(text.matches("srun").count(), 1);
    assert!(text.contains(
        "--nodes=3 --nodelist='n[1-3]' --ntasks=3 --ntasks-per-node=1 --cpus-per-task=4 --mem=256000M --gres='gpu:h100:4' \
         '/bin/antiphon' 'supervise' '/s/job-42.3' 'trainer' &\n"
    ), "{text}");

    // A second role on one of the nodes: that node holds more than the others, so it is a component of its own.
    tasks.push(task("reward", 0, "n1", &[4]));
    tasks.push(task("reward", 1, "n1", &[5]));
    let two = launch(tasks);
    let told = arguments(&two);
    assert!(told.contains("--nodelist=n[2-3] "), "{told}");
    assert!(
        told.contains(" : --account=lab --partition=train"),
        "{told}"
    );
    assert!(
        told.contains("--nodelist=n1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=12"),
        "{told}"
    );
    assert!(told.contains("--gres=gpu:h100:6 --no-requeue"), "{told}");
    let text = script(&two);
    assert_eq!(text.matches("srun").count(), 3);
    assert!(
        text.contains("--nodelist='n1' --ntasks=2 --ntasks-per-node=2 --cpus-per-task=4"),
        "{text}"
    );
    assert!(
        text.contains("--het-group=1 '/bin/antiphon' 'supervise' '/s/job-42.3' 'reward' &\n"),
        "{text}"
    );
    assert!(text.ends_with("wait\n"));
}

#[test]
fn a_task_without_gpus_gets_none_and_its_part_of_the_memory() {
    let mut one = task("data", 0, "n1", &[]);
    one.cpus = 0;
    let launch = launch(vec![one, task("data", 1, "n1", &[])]);
    let told = arguments(&launch);
    assert!(!told.contains("gres"), "{told}");
    // One CPU at least; four of 64 CPUs, and none counted for the first.
    assert!(told.contains("--cpus-per-task=5 --mem=32064M"), "{told}");
    assert!(script(&launch).contains("--gres='none'"));
}

#[test]
fn slurms_time_limit_is_later_than_antiphons_and_within_the_partitions() {
    let mut launch = launch(Vec::new());
    let minutes = |count: u64| Millis::from_secs(count * 60);
    assert_eq!(time(&launch, Some(minutes(90))), "90");
    launch.spec.time_limit = Some(minutes(60));
    launch.spec.grace = minutes(1);
    assert_eq!(time(&launch, None), "71");
    assert_eq!(time(&launch, Some(minutes(65))), "65");
}

/// Runs a script in front of which `srun` is something that prints its arguments; what was printed, word for word.
fn printed(script: &str) -> Vec<String> {
    let shell = format!("srun() {{ printf '%s\\0' \"$@\"; }}\n{script}");
    let output = Command::new("/bin/sh")
        .args(["-c", &shell])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}\n{script}");
    assert!(output.stderr.is_empty(), "{output:?}\n{script}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// Anything that a name could be: quotes, dollars, line ends and the like more often than by chance.
fn name() -> impl Strategy<Value = String> {
    let hostile = prop::sample::select(vec![
        "'", "\"", "\\", "$(id)", "`id`", "\n", ";", "&", "%j", "#", " ", "*", "--x=", "|",
        "'\\''", "é",
    ]);
    let part = prop_oneof![hostile.prop_map(str::to_owned), "[^\\x00]{0,4}"];
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_name_breaks_out_of_its_quotes(
        binary in name(), directory in name(), role in name(), kind in name(), node_name in name(),
    ) {
        let directory = format!("/{directory}");
        let tasks = vec![
            task(&role, 0, &node_name, &[0]),
            task(&role, 1, &node_name, &[1]),
        ];
        let gang = launch(tasks);
        let text = batch(std::slice::from_ref(&binary), Path::new(&directory), &kind, &parts(&gang));
        let words = printed(&text);
        prop_assert_eq!(words.len(), 14, "{}", text);
        prop_assert_eq!(&words[11..], &[binary.clone(), directory.clone(), role.clone()], "{}", text);
        prop_assert_eq!(&words[5], &format!("--nodelist={}", compress(&[&node_name])));
        let asked = format!("--gres={}", gres(&kind, 2));
        prop_assert_eq!(&words[10], &asked);

        // The script of one task is replaced by its supervisor.
        let alone = launch(vec![task(&role, 0, "n1", &[0])]);
        let printer = ["printf".to_owned(), "%s\\0".to_owned(), binary.clone()];
        let text = batch(&printer, Path::new(&directory), &kind, &parts(&alone));
        prop_assert_eq!(printed(&text), [binary, directory, role]);
    }
}
