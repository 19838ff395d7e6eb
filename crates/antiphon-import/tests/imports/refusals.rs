//! Files that become no job, and why.

use expect_test::{Expect, expect};

use crate::{command, import};

fn refused(name: &str, text: &str, expected: &Expect) {
    let error = import(name, text, None).expect_err(name);
    expected.assert_eq(&format!(
        "[{}] {error}\nwhy: {}\nhelp: {}\n",
        error.code(),
        error.why(),
        error.help()
    ));
}

#[test]
fn a_job_of_slurms_cannot_be_waited_for() {
    refused(
        "a.sbatch",
        "#!/bin/bash\n#SBATCH -d afterok:123456\ntrue\n",
        &expect![[r#"
            [AP0745] `a.sbatch`, line 2: `--dependency=afterok:123456` cannot be honored
            why: 123456 is a job of Slurm, whose end antiphon does not see
            help: name a job of antiphon, like `afterok:job-7`, or leave it out
        "#]],
    );
}

#[test]
fn values_that_cannot_be_are_named_with_their_line() {
    for (line, expected) in [
        (
            "--nodes=many",
            "`--nodes` is `many`: expected a number of nodes like `2` or `2-4`",
        ),
        (
            "--nodes=4-2",
            "`--nodes` is `4-2`: expected a number of nodes like `2` or `2-4`",
        ),
        (
            "-t tomorrow",
            "`--time` is `tomorrow`: expected a time like `90`, `4:00:00` or `2-12`",
        ),
        (
            "--mem=lots",
            "`--mem` is `lots`: expected a size like `64G`",
        ),
        (
            "-n 0",
            "`--ntasks` is `0`: expected a whole number from 1 to 1000000",
        ),
        (
            "--gres=gpu:h100:x",
            "`--gres` is `gpu:h100:x`: expected GPUs like `gpu:8` or `gpu:h100:8`",
        ),
        (
            "--gpus=h100:4,a100:4",
            "`--gpus` is `h100:4,a100:4`: expected GPUs of one type, like `8` or `h100:8`",
        ),
        (
            "--begin=noon",
            "`--begin` is `noon`: expected `now+4hours`, or a date and time like `2026-12-01T08:00:00`",
        ),
        ("--nice=very", "`--nice` is `very`: expected a whole number"),
        (
            "--signal=USR1@soon",
            "`--signal` is `USR1@soon`: expected a signal and seconds like `B:TERM@120`",
        ),
    ] {
        let text = format!("#!/bin/bash\n\n#SBATCH {line}\ntrue\n");
        let error = import("a.sbatch", &text, None).unwrap_err();
        assert_eq!(error.code(), "AP0744");
        assert_eq!(error.to_string(), format!("`a.sbatch`, line 3: {expected}"));
    }
}

#[test]
fn numbers_that_do_not_go_together_are_refused() {
    refused(
        "a.sbatch",
        "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8\n#SBATCH --gpus=8\nsrun x\n",
        &expect![[r#"
            [AP0746] `a.sbatch`, line 2: `--gpus-per-node=8` does not go together with `--gpus=8` (line 3)
            why: they come to 16 and to 8 GPUs
            help: correct `--gpus-per-node=8` or what it does not go together with
        "#]],
    );
    refused(
        "a.sbatch",
        "#!/bin/bash\n#SBATCH --ntasks=3 --gres=gpu:8 -N 1\nsrun x\n",
        &expect![[r#"
            [AP0745] `a.sbatch`, line 2: `--ntasks=3` cannot be honored
            why: 8 GPUs cannot be split into 3 equal tasks
            help: let one task start several processes (`srun torchrun --nproc-per-node ..`), or choose numbers that divide each other
        "#]],
    );
}

#[test]
fn a_file_without_a_job_says_what_it_holds() {
    refused(
        "a.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n---\napiVersion: v1\nkind: Secret\n",
        &expect![[r#"
            [AP0747] `a.yaml` holds no job: it has `Deployment`, `Secret`
            why: 
            help: antiphon reads Job, JobSet, PyTorchJob, TrainJob and Volcano's Job, and PodGroup beside them
        "#]],
    );
}

#[test]
fn a_container_without_a_command_has_nothing_to_run() {
    refused(
        "a.yaml",
        "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers:\n        - name: x\n          image: y\n",
        &expect![[r#"
            [AP0748] `a.yaml`, line 7: there is nothing to run: the container has no `command`, and its image's is not known
            why: 
            help: write the command into the file
        "#]],
    );
    let error = import("a.sky.yaml", "num_nodes: 2\nsetup: pip install x\n", None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`a.sky.yaml`, line 1: there is nothing to run: the task has no `run`"
    );
}

#[test]
fn what_is_no_yaml_is_refused_with_its_line_in_the_file() {
    let error = import(
        "a.yaml",
        "apiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: [\n",
        None,
    )
    .unwrap_err();
    assert_eq!(error.code(), "AP0742");
    assert!(error.to_string().starts_with("`a.yaml`, line "), "{error}");
    let error = import("a.yaml", "apiVersion: v1\nkind: Job\nkind: Job\n", None).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("`a.yaml`, line 3: the file cannot be parsed"),
        "{error}"
    );
}

#[test]
fn a_text_of_no_format_names_those_that_there_are() {
    refused(
        "notes",
        "\nhello there\n",
        &expect![[r#"
            [AP0740] `notes` holds no job in a known format: it begins with `hello there`
            why: 
            help: name it with `--format`; by itself antiphon tells
            - sbatch by `#!` or `#SBATCH`
            - kubernetes by `apiVersion` and `kind`
            - skypilot by `run` or `setup` with a text, `num_nodes`, `file_mounts` or `accelerators`
            - command by `submit -- torchrun ..`
        "#]],
    );
    let error = "kubernets"
        .parse::<antiphon_import::JobFormat>()
        .unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("AP0741", "there is no job format `kubernets`")
    );
    assert!(error.help().starts_with("is `kubernetes` meant?"));
    let long = "#!/bin/sh\n".repeat(200_000);
    assert_eq!(import("long", &long, None).unwrap_err().code(), "AP0743");
}

#[test]
fn a_command_that_does_not_say_how_many_gpus_is_refused() {
    let error = command(&["python", "train.py"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`command line`, line 1: `python train.py` cannot be honored"
    );
    assert_eq!(error.why(), "it does not say how many GPUs it needs");
    let error = command(&["accelerate", "launch", "train.py"]).unwrap_err();
    assert_eq!(error.help(), "add `--num-processes N`");
    let error = command(&["torchrun", "--nproc-per-node=gpu", "train.py"]).unwrap_err();
    assert_eq!(error.code(), "AP0744");
    assert_eq!(command(&[]).unwrap_err().code(), "AP0748");
    assert_eq!(
        command(&["torchrun", "--nproc-per-node", "8"])
            .unwrap_err()
            .code(),
        "AP0748"
    );
    let error = command(&[
        "accelerate",
        "launch",
        "--num_processes=3",
        "--num_machines=2",
        "x.py",
    ])
    .unwrap_err();
    assert_eq!(error.code(), "AP0746");
}
