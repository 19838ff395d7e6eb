//! Every file of `examples/import`, and the job file that it becomes; and what no file may do.

#![expect(
    clippy::unwrap_used,
    reason = "a file that is not there fails the test"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use antiphon_import::{ImportedJobs, Job, JobError, JobFormat, Origin, job_of_command};
use expect_test::expect_file;

#[path = "imports/documented.rs"]
mod documented;
#[path = "imports/quotes.rs"]
mod quotes;
#[path = "imports/refusals.rs"]
mod refusals;

fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/import")
}

/// A few names of the catalog, which lies in another crate.
fn gpu_types(name: &str) -> Vec<String> {
    let types: &[&str] = match name.to_ascii_lowercase().as_str() {
        "h100" => &["H100-SXM-80GB", "H100-PCIe-80GB"],
        "a100" => &["A100-SXM-80GB", "A100-SXM-40GB"],
        "nvidia-h100-80gb-hbm3" => &["H100-SXM-80GB"],
        "nvidia-a100-sxm4-80gb" => &["A100-SXM-80GB"],
        "h200" => &["H200-SXM-141GB"],
        "l40s" => &["L40S"],
        "l4" | "nvidia-l4" => &["L4"],
        _ => &[],
    };
    types.iter().map(|name| (*name).to_owned()).collect()
}

fn import(name: &str, text: &str, format: Option<JobFormat>) -> Result<ImportedJobs, JobError> {
    let path = format!("/jobs/{name}");
    let origin = Origin {
        name,
        path: Some(&path),
        arguments: &[],
        gpu_types: &gpu_types,
    };
    antiphon_import::jobs(text, format, &origin)
}

fn command(words: &[&str]) -> Result<ImportedJobs, JobError> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let origin = Origin {
        name: "command line",
        path: None,
        arguments: &[],
        gpu_types: &gpu_types,
    };
    job_of_command(&words, &origin)
}

/// What is said, and the job files; the text that stands in for another system is not repeated in each.
fn shown(imported: &ImportedJobs) -> String {
    let mut text = format!("format: {}\n", imported.format);
    for warning in &imported.warnings {
        writeln!(text, "warning[{}]: {warning}", warning.name()).unwrap();
    }
    for job in &imported.jobs {
        let mut job: Job = job.clone();
        let roles = job.roles.values_mut().map(|role| &mut role.command);
        for word in std::iter::once(&mut job.run.command).chain(roles).flatten() {
            if word.starts_with("# What a Slurm") {
                let functions = ["srun", "scontrol"]
                    .map(|name| (name, word.contains(&format!("END OF {name}"))));
                let functions: Vec<&str> = functions
                    .iter()
                    .filter(|(_, there)| *there)
                    .map(|(name, _)| *name)
                    .collect();
                *word = format!("(Slurm's variables {})", functions.join(" "));
            } else if word.starts_with("export SKYPILOT_") {
                *word = "(SkyPilot's variables)".into();
            }
        }
        let toml = job.to_toml("x", &[]);
        text += "\n";
        text += toml.split_once('\n').unwrap().1;
    }
    text
}

fn check(dir: &str, count: usize) {
    let mut files: Vec<PathBuf> = fs::read_dir(examples().join(dir))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(files.len(), count);
    let snapshots = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/imports")
        .join(dir);
    for path in &files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(path).unwrap();
        let imported = import(name, &text, None).unwrap_or_else(|error| panic!("{name}: {error}"));
        expect_file![snapshots.join(format!("{name}.txt"))].assert_eq(&shown(&imported));
    }
    let there = fs::read_dir(&snapshots).unwrap().count();
    assert_eq!(there, count, "a snapshot without its example");
}

#[test]
fn twenty_batch_scripts_become_what_they_say() {
    check("sbatch", 20);
}

#[test]
fn ten_manifests_become_what_they_say() {
    check("kubernetes", 10);
}

#[test]
fn tasks_of_skypilot_become_what_they_say() {
    check("skypilot", 4);
}

#[test]
fn every_example_is_described() {
    let page = fs::read_to_string(examples().join("README.md")).unwrap();
    for dir in ["sbatch", "kubernetes", "skypilot"] {
        for entry in fs::read_dir(examples().join(dir)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(page.contains(&format!("`{dir}/{name}`")), "{dir}/{name}");
        }
    }
}

#[test]
fn command_lines_say_how_many_gpus_they_need() {
    let cases: [(&[&str], &str); 8] = [
        (
            &[
                "torchrun",
                "--nproc-per-node",
                "8",
                "train.py",
                "--lr",
                "1e-4",
            ],
            "train: 8 GPUs, 1 tasks: torchrun --nproc-per-node 8 train.py --lr 1e-4",
        ),
        (
            &[
                "torchrun",
                "--nnodes=4",
                "--nproc_per_node=8",
                "--rdzv_endpoint=h:29500",
                "--rdzv-backend",
                "c10d",
                "-m",
                "train.sft",
                "-x",
            ],
            "train.sft: 32 GPUs, 4 tasks: torchrun --nproc_per_node=8 -m train.sft -x",
        ),
        (
            &[
                "NCCL_DEBUG=INFO",
                "python3",
                "-m",
                "torch.distributed.run",
                "--nproc-per-node=2",
                "x.py",
            ],
            "x: 2 GPUs, 1 tasks: python3 -m torch.distributed.run --nproc-per-node=2 x.py",
        ),
        (
            &[
                "accelerate",
                "launch",
                "--num_processes",
                "4",
                "--mixed_precision",
                "bf16",
                "sft.py",
            ],
            "sft: 4 GPUs, 1 tasks: accelerate launch --num_processes 4 --mixed_precision bf16 sft.py",
        ),
        (
            &[
                "accelerate",
                "launch",
                "--num_processes=16",
                "--num_machines=2",
                "--machine_rank=0",
                "--main_process_ip=10.0.0.1",
                "sft.py",
            ],
            "sft: 16 GPUs, 2 tasks: bash -c (script) accelerate 2 accelerate launch --num_processes=16 --num_machines=2 sft.py",
        ),
        (
            &[
                "deepspeed",
                "--num_gpus=8",
                "train.py",
                "--deepspeed",
                "ds.json",
            ],
            "train: 8 GPUs, 1 tasks: deepspeed train.py --deepspeed ds.json",
        ),
        (
            &[
                "deepspeed",
                "--num_gpus",
                "8",
                "--num_nodes",
                "2",
                "--hostfile",
                "h",
                "train.py",
            ],
            "train: 16 GPUs, 2 tasks: torchrun train.py",
        ),
        (&["torchrun", "t.py"], "t: 1 GPUs, 1 tasks: torchrun t.py"),
    ];
    for (words, expected) in cases {
        let imported = command(words).unwrap();
        let job = &imported.jobs[0];
        let resources = job.resources.as_ref().unwrap();
        let words: Vec<&str> = job
            .run
            .command
            .iter()
            .map(|word| {
                if word.contains('\n') {
                    "(script)"
                } else {
                    word
                }
            })
            .collect();
        let told = format!(
            "{}: {} GPUs, {} tasks: {}",
            job.name,
            resources.gpus.0 / 1_000,
            resources.tasks.unwrap(),
            words.join(" ")
        );
        assert_eq!(told, expected);
    }
    let told = command(&[
        "deepspeed",
        "--num_gpus",
        "8",
        "--num_nodes",
        "2",
        "--hostfile",
        "h",
        "t.py",
    ])
    .unwrap();
    let told: Vec<String> = told.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "`command line`, line 1: `--hostfile h` cannot be honored: antiphon chooses the nodes",
            "`command line`, line 1: `deepspeed` works differently: torchrun starts it on each node: deepspeed would reach other nodes by ssh",
        ]
    );
}
