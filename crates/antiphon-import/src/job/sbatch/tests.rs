//! Batch scripts and the shapes, times and names that they come to.

use super::*;

fn read(script: &str) -> (Job, Vec<String>) {
    let gpu_types = |name: &str| match name {
        "h100" => vec!["H100-SXM-80GB".to_owned(), "H100-PCIe-80GB".to_owned()],
        "l4" => vec!["L4".to_owned()],
        _ => Vec::new(),
    };
    let origin = Origin {
        name: "a.sbatch",
        path: Some("/jobs/a.sbatch"),
        arguments: &[],
        gpu_types: &gpu_types,
    };
    let (mut jobs, warnings) = jobs(script, &origin).unwrap();
    let warnings = warnings
        .iter()
        .map(|warning| format!("{}: {warning}", warning.name()));
    (jobs.remove(0), warnings.collect())
}

/// `GPUs/tasks`, with `per-gpu`, type, CPUs and memory where they are said; alternatives behind `or`.
fn shape(options: &str, script: &str) -> String {
    let (job, _) = read(&format!("#!/bin/bash\n#SBATCH {options}\n{script}\n"));
    let resources = job.resources.unwrap();
    let one = |shape: &Resources| {
        let mut text = format!("{}", shape.gpus.0 / 1_000);
        if let Some(tasks) = shape.tasks {
            text += &format!("/{tasks}");
        }
        let parts = [
            shape.processes,
            shape.gpu_type.as_deref(),
            shape.memory.as_deref(),
            shape.partition.as_deref(),
        ];
        for part in parts.into_iter().flatten() {
            text += &format!(" {part}");
        }
        if let Some(cpus) = shape.cpus {
            text += &format!(" {cpus} CPUs");
        }
        text
    };
    let mut all = vec![one(&resources)];
    all.extend(resources.alternatives.iter().map(one));
    all.join(" or ")
}

#[test]
fn nodes_tasks_and_gpus_become_a_shape() {
    for (options, script, expected) in [
        ("", "python x.py", "0/1"),
        ("--gres=gpu:1", "python x.py", "1/1"),
        (
            "--gres=gpu:h100:8 -N 2 --ntasks-per-node=1",
            "srun torchrun x.py",
            "16/2 h100",
        ),
        ("--gres=gpu:l4:4", "python x.py", "4/1 L4"),
        (
            "-N 2 --ntasks-per-node=8 --gpus-per-node=8",
            "srun python x.py",
            "16 per-gpu",
        ),
        (
            "-N 2 --ntasks-per-node=4 --gpus-per-node=8",
            "srun python x.py",
            "16/8",
        ),
        (
            "-N 1 --ntasks-per-node=8 --gpus-per-node=8",
            "mpirun python x.py",
            "8/1",
        ),
        ("--gpus=24", "srun python x.py", "24"),
        ("-n 4 --gpus-per-task=2", "srun python x.py", "8/4"),
        (
            "--gpus=16 --ntasks-per-gpu=1",
            "srun python x.py",
            "16 per-gpu",
        ),
        ("-n 1 --gpus=4", "python x.py", "4/1"),
        ("-n 8 -c 4 --mem-per-cpu=2G", "srun ./x", "0/8 8GiB 4 CPUs"),
        ("-n 8 -c 4", "./x", "0 32 CPUs"),
        (
            "-N 2 --gres=gpu:8 --cpus-per-gpu=8 --mem=1T",
            "srun x",
            "16/2 1TiB 64 CPUs",
        ),
        (
            "-N 1 -n 2 --gres=gpu:2 --mem=100G",
            "srun x",
            "2 per-gpu 50GiB",
        ),
        ("--gres=gpu:2 --mem-per-gpu=40G", "x", "2/1 80GiB"),
        ("-N 1-2 --gpus-per-node=4", "torchrun x", "8/2 or 4/1"),
        ("--gres=gpu:1 -p a,b", "x", "1/1 a or 1/1 b"),
        ("--gres=gpu:1 -C h100|l4", "x", "1/1 h100 or 1/1 L4"),
        ("--gres=gpu:a100_3g.20gb:2", "x", "2/1 3g.20gb"),
        ("--gres=gpu:2(S:0-1)", "x", "2/1"),
        ("--gres=gres/gpu:2", "x", "2/1"),
    ] {
        assert_eq!(shape(options, script), expected, "{options}: {script}");
    }
}

#[test]
fn the_rest_becomes_keys_of_the_job_file() {
    let (job, warnings) = read(
        "#!/bin/bash\n#SBATCH -A rlhf -J sft -t 4:00:00 --nice=7 -H -L matlab:2\n#SBATCH -a 0-9%2 --begin=now+2hours --deadline=2026-12-01T08:00 --export=NONE,A=b\n#SBATCH --signal=TERM@120 --no-requeue -D /w -d afterok:job-1:prep,after:x\n./x\n",
    );
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(
        (
            job.team.as_deref(),
            job.name.as_str(),
            job.priority,
            job.held,
            job.retry
        ),
        (
            Some("rlhf"),
            "sft",
            Some(-7),
            Some(true),
            Some(Retry { retries: 0 })
        )
    );
    assert_eq!(
        (
            job.run.time_limit.as_deref(),
            job.run.grace.as_deref(),
            job.run.workdir.as_deref()
        ),
        (Some("4h"), Some("2min"), Some("/w"))
    );
    assert_eq!(
        (
            job.array.as_deref(),
            job.not_before.as_deref(),
            job.deadline.as_deref()
        ),
        (Some("0-9%2"), Some("+2h"), Some("2026-12-01T08:00:00"))
    );
    assert_eq!(
        (job.after_ok, job.after_start),
        (
            vec!["job-1".to_owned(), "prep".into()],
            vec!["x".to_owned()]
        )
    );
    assert_eq!(
        (job.shared["matlab"], job.run.environment["A"].as_str()),
        (2, "b")
    );
    assert_eq!(job.run.command, ["/bin/bash", "/jobs/a.sbatch"]);
}

#[test]
fn what_works_differently_is_said_with_its_line() {
    let (_, warnings) = read(
        "#!/bin/bash\n#SBATCH -N 2 --gres=gpu:8\n#SBATCH --signal=B:USR1@60 -o out\n#SBATCH --qos=large --export=ALL\n#SBATCH --job-name=a/b\n./x $SLURM_CLUSTER_NAME\n",
    );
    assert_eq!(
        warnings,
        [
            "differs: `a.sbatch`, line 2: `--nodes=2` works differently: the script runs on each of the 2 nodes; Slurm runs it on the first, and no `srun` of it starts tasks on all of them",
            "differs: `a.sbatch`, line 3: `--signal=B:USR1@60` works differently: antiphon sends SIGTERM to all processes of a task, and SIGKILL 1min later; trap TERM instead",
            "not-honored: `a.sbatch`, line 3: `--output=out` cannot be honored: output stays with antiphon: `antiphon logs JOB`",
            "not-honored: `a.sbatch`, line 4: `--qos=large` cannot be honored: the class is `standard`; there are `service`, `production`, `standard` and `best-effort`",
            "not-honored: `a.sbatch`, line 4: `--export=ALL` cannot be honored: nothing of the submitting shell's environment is handed on; write what the script needs into `run.environment`",
            "differs: `a.sbatch`, line 5: `--job-name=a/b` works differently: the name is `a-b`: one has letters, digits, `-`, `_` and `.`",
            "not-honored: `a.sbatch`, line 6: `SLURM_CLUSTER_NAME` cannot be honored: antiphon does not set it",
        ]
    );
}

#[test]
fn variables_that_follow_from_options_are_set() {
    let (job, _) = read(
        "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=2 -c 8 --gpus-per-node=4 -p train -a 3,5-9:2\nsrun x $SLURM_CPUS_PER_TASK $SLURM_GPUS_PER_NODE $SLURM_NTASKS_PER_NODE $SLURM_JOB_PARTITION $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MAX\n",
    );
    let set: Vec<String> = job
        .run
        .environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        set,
        [
            "SLURM_ARRAY_TASK_COUNT=4",
            "SLURM_ARRAY_TASK_MAX=9",
            "SLURM_CPUS_PER_TASK=8",
            "SLURM_GPUS_PER_NODE=4",
            "SLURM_JOB_PARTITION=train",
            "SLURM_NTASKS_PER_NODE=2"
        ]
    );
}

#[test]
fn a_script_without_a_file_is_part_of_the_job() {
    let text = "#!/bin/bash -e\necho 'a'\n";
    let origin = Origin {
        name: "standard input",
        path: None,
        arguments: &["x y".to_owned()],
        gpu_types: &|_| Vec::new(),
    };
    let (jobs, _) = jobs(text, &origin).unwrap();
    assert_eq!(
        jobs[0].run.command,
        ["/bin/bash", "-e", "-c", text, "standard input", "x y"]
    );
    let wrapped = "#SBATCH --wrap=\"echo $SLURM_JOB_ID; exit 3\"\n";
    let (jobs, _) = super::jobs(wrapped, &origin).unwrap();
    assert!(jobs[0].run.command.ends_with(&[
        "sh".into(),
        "-c".into(),
        "echo $SLURM_JOB_ID; exit 3".into(),
        "wrap".into(),
        "x y".into()
    ]));
}
