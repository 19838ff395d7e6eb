//! What tells formats apart, and what a job comes to as text.

use super::*;

#[test]
fn formats_are_told_by_what_stands_in_a_text() {
    for (text, format) in [
        ("#!/bin/bash\necho x\n", Some(JobFormat::Sbatch)),
        ("# mine\n\n#SBATCH -N 1\n", Some(JobFormat::Sbatch)),
        (
            "name = \"x\"\n[run]\ncommand = [\"sbatch\"]\n#SBATCH -N 1\n",
            None,
        ),
        (
            "apiVersion: batch/v1\nkind: Job\n",
            Some(JobFormat::Kubernetes),
        ),
        (
            "{ \"apiVersion\": \"v1\",\n  \"kind\": \"List\" }\n",
            Some(JobFormat::Kubernetes),
        ),
        ("run: python x.py\n", Some(JobFormat::SkyPilot)),
        ("run: |\n  python x.py\n", Some(JobFormat::SkyPilot)),
        (
            "resources:\n  accelerators: H100:8\nrun:\n",
            Some(JobFormat::SkyPilot),
        ),
        (
            "name: x\nresources:\n  gpus: 8\nrun:\n  command: [python, x.py]\n",
            None,
        ),
        (
            "name: x\nresources: {gpus: 8}\nrun: {command: [python, x.py]}\n",
            None,
        ),
        (
            "{\"name\": \"x\", \"run\": {\"command\": [\"true\"]}}",
            None,
        ),
        ("base_model: x\nmicro_batch_size: 2\n", None),
        ("", None),
    ] {
        assert_eq!(job_format(text), format, "{text}");
    }
}

#[test]
fn mig_profiles_are_told_from_gpu_types() {
    for (kind, profile) in [
        ("1g.10gb", Some("1g.10gb")),
        ("a100_3g.20gb", Some("3g.20gb")),
        ("mig-1g.10gb", Some("1g.10gb")),
        ("1g.10gb.me", Some("1g.10gb")),
        ("a100", None),
        ("11g.5gb", None),
        ("g.5gb", None),
        ("h100g.x", None),
        ("\u{e9}g.5gb", None),
    ] {
        assert_eq!(mig_profile(kind).as_deref(), profile, "{kind}");
    }
}

#[test]
fn the_commands_of_a_job_are_found_behind_what_prepares_them() {
    let origin = Origin {
        name: "x.yaml",
        path: None,
        arguments: &[],
        gpu_types: &|_| Vec::new(),
    };
    let task = "setup: pip install x\nrun: torchrun train.py --a 'b c'\n";
    assert_eq!(
        training_text(task, &origin).unwrap(),
        "pip install x\ntorchrun train.py --a 'b c'\n"
    );
    let job = "apiVersion: batch/v1\nkind: Job\nspec:\n  completions: 2\n  parallelism: 2\n  completionMode: Indexed\n  template:\n    spec:\n      containers:\n      - command: [torchrun, train.py, --a, b c]\n";
    assert_eq!(
        training_text(job, &origin).unwrap(),
        "torchrun train.py --a 'b c'\n"
    );
    assert_eq!(training_text("#!/bin/sh\ntorchrun x\n", &origin), None);
}

#[test]
fn a_job_is_printed_with_what_is_not_followed_above_it() {
    let origin = Origin {
        name: "a.sbatch",
        path: Some("/jobs/it's.sbatch"),
        arguments: &[],
        gpu_types: &|_| Vec::new(),
    };
    let imported = jobs(
        "#!/bin/bash\n#SBATCH --gres=gpu:8 -x n0\n./x\n",
        None,
        &origin,
    )
    .unwrap();
    expect_test::expect![[r##"
        # from a.sbatch
        # not-honored: `a.sbatch`, line 2: `--exclude=n0` cannot be honored: antiphon chooses the nodes; name a `partition` or a GPU type to narrow them down
        name = "a.sbatch"

        [resources]
        gpus = 8
        tasks = 1

        [run]
        command = [
            "/bin/bash",
            "/jobs/it's.sbatch",
        ]
    "##]]
    .assert_eq(&imported.jobs[0].to_toml("a.sbatch", &imported.warnings));
}
