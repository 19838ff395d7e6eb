//! Job files of other systems, submitted as they are: what their scripts find when they run.

use std::fs;

use crate::server::Server;

const CLUSTER: &str = "[[partition]]\nname = \"train\"\nnodes = [{ names = \"n[0-1]\", gpus = 4, gpu_type = \"H100-SXM-80GB\" }]\n";

/// A server over two nodes with four GPUs each.
fn server() -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster.toml");
    fs::write(&file, CLUSTER).unwrap();
    let server = Server::start_with(&["--cluster", file.to_str().unwrap()]);
    (server, dir)
}

fn submit(server: &Server, name: &str, text: &str, more: &[&str]) -> String {
    let file = server.write(name, text);
    let mut arguments = vec!["submit", file.as_str()];
    arguments.extend(more);
    server.ok(&arguments).trim().to_owned()
}

#[test]
fn a_batch_script_on_two_nodes_finds_what_slurm_would_tell_it() {
    let (server, _dir) = server();
    let script = r#"#!/bin/bash
#SBATCH --job-name=pair --partition=train
#SBATCH --nodes=2 --ntasks-per-node=1
#SBATCH --gpus-per-node=h100:4
#SBATCH --time=10:00

nodes=( $( scontrol show hostnames "$SLURM_JOB_NODELIST" ) )
head=$(srun --nodes=1 --ntasks=1 -w "${nodes[0]}" hostname --ip-address)
srun --label bash -c 'echo "$SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME, $SLURM_GPUS_ON_NODE GPUs, $1 and $2"' x "$head" "${#nodes[@]} nodes; $1"
srun -N1 -n1 echo once
"#;
    let id = submit(&server, "pair.sbatch", script, &["--", "it's $HOME"]);
    server.wait_for(&id, "succeeded");
    let told = |task: &str| server.ok(&["logs", &id, "--task", task]);
    assert_eq!(
        told("trainer.0"),
        "0 of 2 on n0, 4 GPUs, 127.0.0.1 and 2 nodes; it's $HOME\nonce\n"
    );
    assert_eq!(
        told("trainer.1"),
        "1 of 2 on n1, 4 GPUs, 127.0.0.1 and 2 nodes; it's $HOME\n"
    );
}

#[test]
fn components_of_a_heterogeneous_job_run_their_own_steps() {
    let (server, _dir) = server();
    let script = "#!/bin/sh\n#SBATCH -J het -N 1 --gres=gpu:4\n#SBATCH hetjob\n#SBATCH -N 1 -c 2\nsrun --het-group=0 echo trains : --het-group=1 echo serves\n";
    let id = submit(&server, "het.sbatch", script, &[]);
    server.wait_for(&id, "succeeded");
    assert_eq!(server.ok(&["logs", &id, "--task", "het0.0"]), "trains\n");
    assert_eq!(server.ok(&["logs", &id, "--task", "het1.0"]), "serves\n");
}

#[test]
fn an_array_of_slurm_has_its_indices() {
    let (server, _dir) = server();
    let script = "#!/bin/bash\n#SBATCH --array=3-4 -J sweep\necho $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT\n";
    submit(&server, "sweep.sbatch", script, &["--wait"]);
    assert_eq!(server.ok(&["logs", "sweep[4]"]), "4 of 2\n");
}

#[test]
fn a_manifest_and_a_task_of_skypilot_run() {
    let (server, _dir) = server();
    let manifest = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: indexed}\nspec:\n  completions: 2\n  parallelism: 2\n  completionMode: Indexed\n  template:\n    spec:\n      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}\n      containers:\n      - name: a\n        image: b\n        command: [bash, -c, 'echo \"$JOB_COMPLETION_INDEX $0\"', '$(PET_NNODES) it''s']\n        resources: {limits: {nvidia.com/gpu: 4}}\n";
    let id = submit(&server, "job.yaml", manifest, &[]);
    server.wait_for(&id, "succeeded");
    assert_eq!(
        server.ok(&["logs", &id, "--task", "trainer.1"]),
        "1 2 it's\n"
    );
    let task = "name: sky\nnum_nodes: 2\nresources: {accelerators: 'H100:4'}\nsetup: touch ready-$SKYPILOT_NODE_RANK\nrun: ls ready-$SKYPILOT_NODE_RANK; echo $SKYPILOT_NUM_GPUS_PER_NODE; echo \"$SKYPILOT_NODE_IPS\" | head -n1\n";
    let id = submit(&server, "task.sky.yaml", task, &[]);
    server.wait_for(&id, "succeeded");
    assert_eq!(
        server.ok(&["logs", &id, "--task", "trainer.1"]),
        "ready-1\n4\n127.0.0.1\n"
    );
}

#[test]
fn gpus_are_found_under_the_names_of_four_systems() {
    let (server, _dir) = server();
    for name in [
        "h100",
        "nvidia_h100_80gb_hbm3",
        "NVIDIA-H100-80GB-HBM3",
        "H100-SXM",
        "H100-SXM-80GB",
    ] {
        let file = server.write(
            "job.toml",
            &format!("name = \"x\"\n[resources]\ngpus = 4\ngpu_type = \"{name}\"\n[run]\ncommand = [\"true\"]\n"),
        );
        let told = server.ok(&["check", &file]);
        assert!(told.contains("it would start now on n0"), "{name}: {told}");
    }
    let file = server.write(
        "job.toml",
        "name = \"x\"\n[resources]\ngpus = 4\ngpu_type = \"a100\"\n[run]\ncommand = [\"true\"]\n",
    );
    let told = server.refused(&["check", &file]);
    assert!(told.contains("a100"), "{told}");
}

#[test]
fn what_is_printed_is_a_job_file_that_says_the_same() {
    let (server, _dir) = server();
    let script = "#!/bin/bash\n#SBATCH -J printed -N 1 --gres=gpu:h100:4 -o out.txt\necho \"ran $SLURM_JOB_NAME\"\n";
    let file = server.write("printed.sbatch", script);
    let printed = server.ok(&["submit", "--print", &file]);
    assert!(
        printed.contains("# not-honored: `printed.sbatch`, line 2: `--output=out.txt`"),
        "{printed}"
    );
    let id = submit(&server, "printed.toml", &printed, &[]);
    server.wait_for(&id, "succeeded");
    assert_eq!(server.ok(&["logs", &id]), "ran printed\n");
    // Printed again it is the same text.
    let again = server.write("again.toml", &printed);
    assert_eq!(server.ok(&["submit", "--print", &again]), printed);
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_submitted() {
    let (server, _dir) = server();
    let file = server.write("a.sbatch", "#!/bin/bash\n#SBATCH -d afterok:77\ntrue\n");
    assert!(server.refused(&["submit", &file]).contains("AP0745"));
    let told = server.refused(&["submit", "--", "python", "train.py"]);
    assert!(told.contains("AP0745"), "{told}");
    let told = server.refused(&[
        "submit",
        "--",
        "torchrun",
        "--nproc-per-node",
        "two",
        "x.py",
    ]);
    assert!(told.contains("AP0744"), "{told}");
    assert_eq!(
        server
            .ok(&["jobs", "--all", "--json"])
            .matches("job-")
            .count(),
        0
    );
}
