//! What is seen of an attempt: its files first, and Slurm where they do not say. An end is what a supervisor wrote down, or
//! the proof that none is left to write.

use std::collections::BTreeMap;
use std::io;

use antiphon_types::{AttemptId, Exit, ExitClass, TaskId};

use super::attempt_dir::{AttemptDir, AttemptFile};
use super::queue::{self, Phase, SlurmJobId};
use super::{Inner, SlurmError, blocking};
use crate::local::failed;
use crate::local::supervise::Order;
use crate::local::task_dir::TaskDir;
use crate::{BackendError, Seen, TaskSeen};

/// What the files of an attempt say.
struct Files {
    file: AttemptFile,
    job: Option<SlurmJobId>,
    order: Option<Order>,
    tasks: BTreeMap<TaskId, (TaskDir, Progress)>,
    /// The GPUs that Slurm gave those that have begun.
    gpus: BTreeMap<TaskId, Vec<u32>>,
}

/// How far a task has come by its files.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Progress {
    /// No supervisor has begun.
    Waiting,
    /// A supervisor has.
    Supervised,
    Running,
    Ended(Exit),
}

impl Inner {
    pub(super) async fn seen(&self, attempt: AttemptId) -> Result<Option<Seen>, BackendError> {
        let dir = AttemptDir::of(&self.attempts, attempt);
        let Some(files) = read(&dir, attempt).await? else {
            return Ok(None);
        };
        let ended = |(_, progress): &(TaskDir, Progress)| matches!(progress, Progress::Ended(_));
        if files.tasks.values().all(ended) {
            return Ok(Some(alive(files)));
        }
        let label = dir.label(files.file.launched, &self.owner);
        let job = match files.job {
            Some(job) => {
                self.watch().add(job, label.clone());
                job
            }
            None => match self.find(&label).await? {
                Some(job) => {
                    self.took(&dir, job.id, label.clone())?;
                    job.id
                }
                None => return Ok(never_started(files)),
            },
        };
        let over = self.over(attempt, job, &files).await;
        let Some(word) = over else {
            return Ok(Some(alive(files)));
        };
        // Slurm may have it twice, where a submit was not answered. The other then has the task, and this one nothing.
        match self.find(&label).await? {
            Some(other) if other.id != job && !matches!(other.phase, Phase::Over(_)) => {
                self.took(&dir, other.id, label)?;
                return Ok(Some(alive(files)));
            }
            Some(_) | None => (),
        }
        blocking(move || settled(files, &dir, job, &word))
            .await
            .map(Some)
            .map_err(failed("read", &self.attempts))
    }

    /// Slurm's word for how a job ended, where it is over. Everything else, and no answer, means that it is not.
    async fn over(&self, attempt: AttemptId, job: SlurmJobId, files: &Files) -> Option<String> {
        {
            let watch = self.watch();
            match watch.phase(attempt) {
                Some(Phase::Over(word)) => return Some(word.clone()),
                _ if !watch.is_missing(attempt) => return None,
                _ => (),
            }
        }
        let label = AttemptDir::of(&self.attempts, attempt).label(files.file.launched, &self.owner);
        let arguments = [
            "--noheader",
            "--all",
            "--states=all",
            "-o",
            queue::FORMAT,
            "-j",
            &job.to_string(),
        ]
        .map(str::to_owned);
        let phase = match self.call("squeue", &arguments).await {
            Ok(text) => {
                let jobs = queue::parse(&text);
                let ours = jobs.into_iter().find(|listed| {
                    // Numbers begin anew where the controller has lost its state: the label tells.
                    listed.id == job && listed.label.as_ref() == Some(&label)
                });
                match ours {
                    Some(ours) => ours.phase,
                    None => self.of_history(job).await,
                }
            }
            // It keeps ended jobs for a few minutes only.
            Err(SlurmError::Refused { error, .. }) if error.contains("Invalid job id") => {
                self.of_history(job).await
            }
            Err(error) => {
                tracing::warn!(%attempt, %error, "a job that Slurm does not list could not be asked for");
                return None;
            }
        };
        self.watch().settle(attempt, phase.clone());
        match phase {
            Phase::Over(word) => Some(word),
            Phase::Pending(_) | Phase::Active => None,
        }
    }

    /// How a job ended that the controller no longer knows, where Slurm keeps accounts.
    async fn of_history(&self, job: SlurmJobId) -> Phase {
        let arguments = [
            "--noheader",
            "--parsable2",
            "--allocations",
            "-o",
            queue::SACCT_FORMAT,
            "-j",
            &job.to_string(),
        ]
        .map(str::to_owned);
        let text = self.call("sacct", &arguments).await.unwrap_or_default();
        match queue::parse_sacct(&text, job) {
            Some(Phase::Over(word)) => Phase::Over(word),
            // The controller does not know it, so it is over, whatever the accounts have missed.
            Some(Phase::Pending(_) | Phase::Active) | None => {
                Phase::Over("no longer known".to_owned())
            }
        }
    }
}

async fn read(dir: &AttemptDir, attempt: AttemptId) -> Result<Option<Files>, BackendError> {
    let (owned, cannot) = (dir.clone(), failed("read", dir.path()));
    blocking(move || read_files(&owned, attempt))
        .await
        .map_err(cannot)
}

fn read_files(dir: &AttemptDir, attempt: AttemptId) -> io::Result<Option<Files>> {
    let Some(file) = dir.attempt_file()? else {
        return Ok(None);
    };
    let (mut tasks, mut gpus) = (BTreeMap::new(), BTreeMap::new());
    for placed in &file.tasks {
        let task = TaskId {
            attempt,
            role: placed.role.clone(),
            index: placed.index,
        };
        let place = dir.task(placed);
        let progress = progress(&place)?;
        let begun = match progress {
            Progress::Waiting | Progress::Ended(_) => None,
            Progress::Supervised | Progress::Running => place.supervisor()?,
        };
        if let Some(supervisor) = begun.filter(|supervisor| !supervisor.gpus.is_empty()) {
            let mut given = supervisor.gpus;
            given.sort_unstable();
            gpus.insert(task.clone(), given);
        }
        tasks.insert(task, (place, progress));
    }
    Ok(Some(Files {
        job: dir.job()?,
        order: dir.order()?,
        tasks,
        gpus,
        file,
    }))
}

fn progress(task: &TaskDir) -> io::Result<Progress> {
    Ok(if let Some(exit) = task.exit()? {
        Progress::Ended(exit)
    } else if task.process()?.is_some() {
        Progress::Running
    } else if task.supervisor()?.is_some() {
        Progress::Supervised
    } else {
        Progress::Waiting
    })
}

/// What is seen while Slurm has the job.
fn alive(files: Files) -> Seen {
    let seen = |progress| match progress {
        Progress::Waiting | Progress::Supervised => TaskSeen::Starting,
        Progress::Running => TaskSeen::Running,
        Progress::Ended(exit) => TaskSeen::Ended(exit),
    };
    Seen {
        gpus: files.gpus,
        tasks: files
            .tasks
            .into_iter()
            .map(|(task, (_, progress))| (task, seen(progress)))
            .collect(),
    }
}

/// What is seen where Slurm has never had the job: nothing, unless a supervisor says otherwise.
fn never_started(files: Files) -> Option<Seen> {
    let begun = |(_, progress): &(TaskDir, Progress)| *progress != Progress::Waiting;
    let any = files.tasks.values().any(begun);
    any.then(|| alive(files))
}

/// What is seen once the job is over in Slurm. Where a node was lost its processes may live on, out of Slurm's sight: the
/// lock of a supervisor tells, for it is free only when its holder is gone.
fn settled(files: Files, dir: &AttemptDir, job: SlurmJobId, word: &str) -> io::Result<Seen> {
    let mut tasks = BTreeMap::new();
    for (task, (place, progress)) in files.tasks {
        let seen = match progress {
            Progress::Ended(exit) => TaskSeen::Ended(exit),
            Progress::Waiting | Progress::Supervised | Progress::Running => {
                if place.is_locked()? {
                    TaskSeen::Orphaned
                } else {
                    // It may have written its last word between the two looks.
                    match self::progress(&place)? {
                        Progress::Ended(exit) => TaskSeen::Ended(exit),
                        progress => {
                            let begun = progress != Progress::Waiting;
                            let said = dir.last_words();
                            TaskSeen::Ended(without_word(begun, files.order, job, word, said))
                        }
                    }
                }
            }
        };
        tasks.insert(task, seen);
    }
    Ok(Seen {
        tasks,
        gpus: files.gpus,
    })
}

/// The end of a task that wrote none.
fn without_word(
    begun: bool,
    order: Option<Order>,
    job: SlurmJobId,
    word: &str,
    said: Option<String>,
) -> Exit {
    let told = format!("Slurm job {job} ended as {word}");
    let with = |text: &str| match &said {
        Some(said) => format!("{text}: {said}"),
        None => text.to_owned(),
    };
    let signal = |signal, class, evidence| Exit::Signal {
        signal,
        class,
        evidence,
    };
    match (begun, order, word) {
        (false, Some(order), _) => {
            let number = match order {
                Order::Terminate => 15,
                Order::Kill => 9,
            };
            let evidence = "stopped before its command was started".to_owned();
            signal(number, None, evidence)
        }
        (false, None, _) => Exit::NotLaunched {
            error: with(&format!("{told} before it started")),
        },
        (true, _, "OUT_OF_MEMORY") => signal(9, Some(ExitClass::OutOfMemory), told),
        (true, _, "TIMEOUT" | "DEADLINE") => signal(9, Some(ExitClass::Limit), told),
        (true, Some(Order::Kill), _) => signal(9, None, told),
        (true, _, _) => Exit::Lost {
            evidence: with(&told),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(begun: bool, order: Option<Order>, word: &str) -> String {
        without_word(begun, order, SlurmJobId(17), word, None).to_string()
    }

    #[test]
    fn an_end_without_a_word_is_told_by_slurms() {
        for (begun, order, word, expected) in [
            (true, None, "NODE_FAIL", "Slurm job 17 ended as NODE_FAIL"),
            (
                false,
                None,
                "CANCELLED",
                "Slurm job 17 ended as CANCELLED before it started",
            ),
            (
                false,
                Some(Order::Terminate),
                "CANCELLED",
                "stopped before its command",
            ),
            (true, None, "OUT_OF_MEMORY", "signal 9"),
            (true, Some(Order::Kill), "CANCELLED", "signal 9"),
        ] {
            let told = without(begun, order, word);
            assert!(told.contains(expected), "{told}");
        }
    }

    /// Slurm gives up on a node that it does not hear of, and calls its jobs ended; their processes may train on.
    #[test]
    fn while_a_supervisor_lives_no_word_of_slurms_is_an_end() {
        let root = tempfile::tempdir().unwrap();
        let attempt = "job-42.3".parse().unwrap();
        let dir = AttemptDir::of(root.path(), attempt);
        std::fs::create_dir(dir.path()).unwrap();
        let placed = super::super::attempt_dir::PlacedTask {
            role: "trainer".into(),
            index: 0,
            node: "n1".into(),
            gpus: vec![0],
        };
        let file = AttemptFile {
            launched: antiphon_types::Timestamp::from_millis(5),
            direct: true,
            tasks: vec![placed.clone()],
        };
        dir.write_attempt(&file).unwrap();
        let task = dir.task(&placed);
        task.create().unwrap();
        let settled = || {
            let files = read_files(&dir, attempt).unwrap().unwrap();
            let seen = settled(files, &dir, SlurmJobId(17), "NODE_FAIL").unwrap();
            seen.tasks.into_values().next().unwrap()
        };
        let lock = task.lock().unwrap();
        assert_eq!(settled(), TaskSeen::Orphaned);
        drop(lock);
        assert!(matches!(
            settled(),
            TaskSeen::Ended(Exit::NotLaunched { .. })
        ));
    }
}
