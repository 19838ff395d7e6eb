//! The node's side: finds out which task this process is, and which GPUs Slurm gave it, then supervises it. Runs under
//! `srun`, or as the batch script itself where a job is one task. Calls none of Slurm's commands.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use antiphon_types::AttemptId;

use super::attempt_dir::{AttemptDir, AttemptFile, PlacedTask};
use crate::local::supervise::{Placed, run_placed};

/// Supervises the task of `role` that Slurm has started here, of the attempt in this directory.
#[must_use]
pub fn run(attempt_dir: &Path, role: &str) -> ExitCode {
    match find(attempt_dir, role, &Variables::read()) {
        Ok((path, placed)) => run_placed(&path, placed),
        Err(error) => {
            note(&format!("cannot tell which task this is: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// What Slurm says to a process.
#[derive(Debug, Default)]
struct Variables {
    node: String,
    local: String,
    /// What the process may use.
    visible: String,
    /// The same as the node counts them.
    indices: String,
}

impl Variables {
    fn read() -> Self {
        let get = |name: &str| env::var(name).unwrap_or_default();
        let step = get("SLURM_STEP_GPUS");
        Self {
            node: get("SLURMD_NODENAME"),
            local: get("SLURM_LOCALID"),
            visible: get("CUDA_VISIBLE_DEVICES"),
            // A batch script has no step of its own.
            indices: if step.is_empty() {
                get("SLURM_JOB_GPUS")
            } else {
                step
            },
        }
    }
}

/// The directory of the task that Slurm has started here, and what it was given.
fn find(attempt_dir: &Path, role: &str, variables: &Variables) -> io::Result<(PathBuf, Placed)> {
    let wrong = |error: String| io::Error::other(error);
    let attempts = attempt_dir.parent().unwrap_or(Path::new("/"));
    let name = attempt_dir.file_name().unwrap_or_default();
    let attempt: AttemptId = name
        .to_string_lossy()
        .parse()
        .map_err(|error| wrong(format!("{error}")))?;
    let dir = AttemptDir::of(attempts, attempt);
    let file = dir
        .attempt_file()?
        .ok_or_else(|| wrong("attempt.json is not there".into()))?;
    let local: usize = variables
        .local
        .parse()
        .map_err(|_| wrong(format!("SLURM_LOCALID is `{}`", variables.local)))?;
    let (task, of_role) = here(&file, role, &variables.node, local).ok_or_else(|| {
        let node = &variables.node;
        wrong(format!(
            "task {local} of role `{role}` on node `{node}` is none of {attempt}"
        ))
    })?;
    let given = |list: &str| part(list, local, of_role, task.gpus.len());
    let visible = given(&variables.visible);
    let (asked, got) = (task.gpus.len(), visible.len());
    let unfit = (got < asked).then(|| {
        format!(
            "Slurm gave {got} of {asked} GPUs on {}: `File=` in its gres.conf has to name devices",
            task.node
        )
    });
    let placed = Placed {
        // Empty, not absent, for a task without GPUs: absent would mean all of them.
        environment: BTreeMap::from([("CUDA_VISIBLE_DEVICES".to_owned(), visible.join(","))]),
        gpus: given(&variables.indices)
            .iter()
            .filter_map(|index| index.parse().ok())
            .collect(),
        unfit,
        orders: Some(attempt_dir.to_owned()),
    };
    let path = dir.task(task).path().to_owned();
    Ok((path, placed))
}

/// The `local`-th task of a role on a node, and how many it has there.
fn here<'a>(
    file: &'a AttemptFile,
    role: &str,
    node: &str,
    local: usize,
) -> Option<(&'a PlacedTask, usize)> {
    let of_role: Vec<&PlacedTask> = file
        .tasks
        .iter()
        .filter(|task| task.role == role && task.node == node)
        .collect();
    Some((*of_role.get(local)?, of_role.len()))
}

/// The part of a list that one of several equal tasks gets. A step is given the GPUs of all its tasks on a node together.
fn part(list: &str, local: usize, tasks: usize, each: usize) -> Vec<String> {
    let all: Vec<&str> = list.split(',').filter(|one| !one.is_empty()).collect();
    let whole = tasks.saturating_mul(each);
    if each == 0 || all.len() < whole {
        return Vec::new();
    }
    all.iter()
        .skip(local * each)
        .take(each)
        .map(|one| (*one).to_owned())
        .collect()
}

/// Writes a line to stderr, which ends in the attempt's `slurm.log`.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "antiphon: {text}");
}

#[cfg(test)]
mod tests {
    use antiphon_types::Timestamp;

    use super::*;

    #[test]
    fn a_process_finds_its_task_and_its_gpus() {
        let root = tempfile::tempdir().unwrap();
        let attempt = "job-42.3".parse().unwrap();
        let dir = AttemptDir::of(root.path(), attempt);
        std::fs::create_dir(dir.path()).unwrap();
        let task = |index, node: &str, gpus: &[u32]| PlacedTask {
            role: "trainer".into(),
            index,
            node: node.into(),
            gpus: gpus.to_vec(),
        };
        dir.write_attempt(&AttemptFile {
            launched: Timestamp::from_millis(5),
            direct: false,
            tasks: vec![
                task(0, "n2", &[0, 1]),
                task(1, "n2", &[2, 3]),
                task(2, "n1", &[]),
            ],
        })
        .unwrap();
        let variables = |node: &str, local: &str, gpus: &str| Variables {
            node: node.into(),
            local: local.into(),
            visible: gpus.into(),
            indices: gpus.into(),
        };
        let find = |variables| find(dir.path(), "trainer", &variables);
        let (path, placed) = find(variables("n2", "1", "4,5,6,7")).unwrap();
        assert!(path.ends_with("job-42.3/trainer.1"));
        assert_eq!(placed.gpus, [6, 7]);
        assert_eq!(placed.environment["CUDA_VISIBLE_DEVICES"], "6,7");
        assert_eq!(placed.unfit, None);
        let (path, placed) = find(variables("n1", "0", "0")).unwrap();
        assert!(path.ends_with("job-42.3/trainer.2") && placed.gpus.is_empty());
        assert_eq!(placed.environment["CUDA_VISIBLE_DEVICES"], "");
        // Fewer GPUs than were asked for are none: the node is not fit.
        let (_, placed) = find(variables("n2", "0", "")).unwrap();
        assert!(
            placed
                .unfit
                .unwrap()
                .starts_with("Slurm gave 0 of 2 GPUs on n2")
        );
        let error = find(variables("n3", "0", "")).unwrap_err().to_string();
        assert_eq!(
            error,
            "task 0 of role `trainer` on node `n3` is none of job-42.3"
        );
    }
}
