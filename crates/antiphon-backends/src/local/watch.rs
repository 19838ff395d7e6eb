//! What the server process knows about its tasks beyond their files, and when to look at those again. A restart loses
//! all of it and costs little: it saves looks. The one thing that it alone knows is that a supervisor ended before it
//! could sign; after a restart such a task counts as absent, which it is.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use antiphon_types::{AttemptId, Exit, TaskId};
use tokio::time::Instant;

use super::Inner;
use super::process::{Process, marked};
use super::supervise::TAKEN;
use super::task_dir::TaskDir;
use crate::local::classify::evidence;
use crate::{Seen, TaskSeen};

/// How often a task is looked at whose supervisor was just started here: its end is heard of, its start is not.
const STARTING_POLL: Duration = Duration::from_millis(100);

/// How often a task is looked at whose supervisor is not a child of this process.
const ADOPTED_POLL: Duration = Duration::from_millis(500);

/// A supervisor that this process started.
#[derive(Debug, Clone)]
pub(crate) enum Own {
    /// Being started by a call of `launch` right now.
    Claimed,
    /// Runs; `None` where it had ended before it could be looked at.
    Alive(Option<Process>),
    /// Has ended.
    Ended(ExitStatus),
}

/// The attempts that may still change.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    attempts: BTreeMap<AttemptId, Watched>,
    changed: BTreeSet<AttemptId>,
    /// When those with a task that was just started are looked at next.
    starting_due: Option<Instant>,
    /// When those with a task that was adopted are looked at next.
    adopted_due: Option<Instant>,
}

#[derive(Debug, Default)]
struct Watched {
    own: BTreeMap<TaskId, Own>,
    ports: BTreeSet<u16>,
    /// What the server was told last.
    seen: Option<Seen>,
}

/// How closely an attempt has to be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Poll {
    /// Whatever happens next is heard of without looking.
    Never,
    Adopted,
    Starting,
}

impl Watch {
    /// Whether the caller is the one to start this task.
    pub(crate) fn claim(&mut self, task: &TaskId) -> bool {
        let own = &mut self.attempts.entry(task.attempt).or_default().own;
        if own.contains_key(task) {
            return false;
        }
        own.insert(task.clone(), Own::Claimed);
        true
    }

    pub(crate) fn unclaim(&mut self, task: &TaskId) {
        if let Some(watched) = self.attempts.get_mut(&task.attempt) {
            watched.own.remove(task);
        }
    }

    /// Notes what has become of a supervisor, unless its attempt was forgotten meanwhile.
    pub(crate) fn own(&mut self, task: &TaskId, own: Own) {
        if let Some(watched) = self.attempts.get_mut(&task.attempt) {
            if matches!(own, Own::Ended(status) if status.code() == Some(TAKEN.into())) {
                // Another supervisor has the task: it is not ours to hear of.
                watched.own.remove(task);
            } else {
                watched.own.insert(task.clone(), own);
            }
        }
    }

    pub(crate) fn owned(&self, attempt: AttemptId) -> BTreeMap<TaskId, Own> {
        self.attempts
            .get(&attempt)
            .map(|watched| watched.own.clone())
            .unwrap_or_default()
    }

    /// Whether no other live attempt was given this port; if so, this one is.
    pub(crate) fn take_port(&mut self, attempt: AttemptId, port: u16) -> bool {
        let free = self
            .attempts
            .values()
            .all(|watched| !watched.ports.contains(&port));
        if free {
            self.attempts.entry(attempt).or_default().ports.insert(port);
        }
        free
    }

    /// Notes what the server was told. Attempts that it asks about after a restart come under watch here.
    pub(crate) fn saw(&mut self, attempt: AttemptId, seen: Option<Seen>) {
        let over = seen
            .iter()
            .flat_map(|seen| seen.tasks.values())
            .all(is_ended);
        // Ended attempts are asked about long after they were forgotten: nothing of them can change.
        if self.attempts.contains_key(&attempt) || !over {
            self.attempts.entry(attempt).or_default().seen = seen;
        }
    }

    pub(crate) fn mark(&mut self, attempt: AttemptId) {
        self.changed.insert(attempt);
    }

    pub(crate) fn forget(&mut self, attempt: AttemptId) {
        self.attempts.remove(&attempt);
        self.changed.remove(&attempt);
    }

    /// When the next look is due, if any. Once set, a time stands until that look: a busy server must not put it off.
    fn due(&mut self, now: Instant) -> Option<Instant> {
        let polls: BTreeSet<Poll> = self.attempts.values().map(Watched::poll).collect();
        for (poll, due, pause) in [
            (Poll::Starting, &mut self.starting_due, STARTING_POLL),
            (Poll::Adopted, &mut self.adopted_due, ADOPTED_POLL),
        ] {
            *due = polls
                .contains(&poll)
                .then(|| due.unwrap_or_else(|| now + pause));
        }
        self.starting_due.into_iter().chain(self.adopted_due).min()
    }

    /// The attempts whose time to be looked at has come.
    fn take_due(&mut self, now: Instant) -> Vec<AttemptId> {
        let starting = self.starting_due.take_if(|due| *due <= now).is_some();
        let adopted = self.adopted_due.take_if(|due| *due <= now).is_some();
        self.attempts
            .iter()
            .filter(|(_, watched)| match watched.poll() {
                Poll::Never => false,
                Poll::Adopted => adopted,
                Poll::Starting => starting,
            })
            .map(|(attempt, _)| *attempt)
            .collect()
    }
}

impl Watched {
    fn poll(&self) -> Poll {
        let own_starting = self.own.iter().map(|(task, own)| {
            let seen = self.seen.as_ref().and_then(|seen| seen.tasks.get(task));
            match (own, seen) {
                (Own::Claimed | Own::Alive(_), None | Some(TaskSeen::Starting)) => Poll::Starting,
                (Own::Claimed | Own::Alive(_) | Own::Ended(_), _) => Poll::Never,
            }
        });
        let others = self
            .seen
            .iter()
            .flat_map(|seen| &seen.tasks)
            .map(|(task, seen)| match (seen, self.own.get(task)) {
                (TaskSeen::Ended(_), _)
                | (TaskSeen::Starting | TaskSeen::Running, Some(Own::Claimed | Own::Alive(_))) => {
                    Poll::Never
                }
                (TaskSeen::Starting | TaskSeen::Running, Some(Own::Ended(_)) | None)
                | (TaskSeen::Orphaned, _) => Poll::Adopted,
            });
        own_starting.chain(others).max().unwrap_or(Poll::Never)
    }
}

const fn is_ended(seen: &TaskSeen) -> bool {
    matches!(seen, TaskSeen::Ended(_))
}

impl Inner {
    /// Waits until something may have changed. May be dropped at any point: what was found waits for the next call.
    pub(super) async fn wait_for_change(self: &Arc<Self>) -> Vec<AttemptId> {
        loop {
            let due = {
                let mut watch = self.watch();
                if !watch.changed.is_empty() {
                    return std::mem::take(&mut watch.changed).into_iter().collect();
                }
                watch.due(Instant::now())
            };
            match due {
                None => self.wake.notified().await,
                Some(due) => tokio::select! {
                    () = self.wake.notified() => (),
                    () = tokio::time::sleep_until(due) => self.run(|inner| inner.poll()).await,
                },
            }
        }
    }

    fn poll(&self) {
        let attempts = self.watch().take_due(Instant::now());
        // One reading of `/proc` serves all of them, and none is needed while their supervisors live.
        let look = Look::new(&self.attempts);
        for attempt in attempts {
            match self.look(attempt, &look) {
                Ok(seen) => {
                    let mut watch = self.watch();
                    let told = watch.attempts.get(&attempt).map(|watched| &watched.seen);
                    if told.is_some_and(|told| *told != seen) {
                        watch.mark(attempt);
                        watch.saw(attempt, seen);
                    }
                }
                // Says nothing about the attempt; it is looked at again.
                Err(error) => tracing::warn!(%attempt, %error, "cannot look at the attempt"),
            }
        }
    }
}

/// One look at tasks, which reads `/proc` at most once.
pub(crate) struct Look {
    attempts: PathBuf,
    marked: OnceCell<BTreeMap<PathBuf, BTreeSet<Process>>>,
}

impl Look {
    pub(crate) fn new(attempts: &Path) -> Self {
        Self {
            attempts: attempts.to_owned(),
            marked: OnceCell::new(),
        }
    }

    /// What is there of an attempt; `None` where nothing is.
    pub(crate) fn attempt(
        &self,
        attempt: AttemptId,
        boot: &str,
        own: &BTreeMap<TaskId, Own>,
    ) -> io::Result<Option<Seen>> {
        let mut tasks = BTreeMap::new();
        for (task, dir) in TaskDir::all(&self.attempts, attempt)? {
            if let Some(seen) = self.task(&dir, boot, own.get(&task))? {
                tasks.insert(task, seen);
            }
        }
        if tasks.is_empty() && !self.attempts.join(attempt.to_string()).exists() {
            // Its directory may have been removed under it: what lives still carries its path, and is not absent.
            let strays = self.strays(attempt)?.into_iter();
            tasks.extend(strays.map(|task| (task, TaskSeen::Orphaned)));
        }
        Ok((!tasks.is_empty()).then_some(Seen {
            tasks,
            gpus: BTreeMap::new(),
        }))
    }

    /// Tasks of an attempt of which processes live, whatever became of their directories.
    pub(crate) fn strays(&self, attempt: AttemptId) -> io::Result<Vec<TaskId>> {
        let name = attempt.to_string();
        let task = |path: &PathBuf| {
            let path = path.strip_prefix(&self.attempts).ok()?.to_str()?;
            let task: TaskId = path.parse().ok()?;
            (task.attempt.to_string() == name).then_some(task)
        };
        Ok(self.marked()?.keys().filter_map(task).collect())
    }

    /// What is there of one task.
    fn task(&self, dir: &TaskDir, boot: &str, own: Option<&Own>) -> io::Result<Option<TaskSeen>> {
        let lost = |evidence: String| Some(TaskSeen::Ended(Exit::Lost { evidence }));
        if let Some(exit) = dir.exit()? {
            return Ok(Some(TaskSeen::Ended(exit)));
        }
        let Some(supervisor) = dir.supervisor()? else {
            // Nothing was started as long as no supervisor has signed. One that an earlier server started this very
            // moment may still be about to: calling the task absent is harmless even then, because the second one
            // that this brings finds either the lock taken or the signature, and the launch check fences the rest.
            return Ok(match own {
                None => None,
                Some(Own::Claimed | Own::Alive(_)) => Some(TaskSeen::Starting),
                // Between the look for its signature and now it may have signed, worked and ended.
                Some(Own::Ended(_)) if dir.supervisor()?.is_some() => {
                    return self.task(dir, boot, own);
                }
                Some(Own::Ended(status)) => lost(format!(
                    "its supervisor ended ({status}) before it started the command{}",
                    last_words(dir)
                )),
            });
        };
        if supervisor.boot != boot {
            return Ok(lost("the machine restarted".to_owned()));
        }
        if supervisor.process.is_alive()? {
            return Ok(Some(match dir.process()? {
                Some(_) => TaskSeen::Running,
                None => TaskSeen::Starting,
            }));
        }
        // Again, now that nobody can write it any more.
        if let Some(exit) = dir.exit()? {
            return Ok(Some(TaskSeen::Ended(exit)));
        }
        let main = match dir.process()? {
            Some(main) => main.process.is_alive()?,
            None => false,
        };
        if main || self.marked()?.contains_key(dir.path()) {
            return Ok(Some(TaskSeen::Orphaned));
        }
        Ok(lost(format!(
            "its supervisor (pid {}) is gone without a status, and so is every process of it{}",
            supervisor.process.pid,
            last_words(dir)
        )))
    }

    fn marked(&self) -> io::Result<&BTreeMap<PathBuf, BTreeSet<Process>>> {
        if let Some(marked) = self.marked.get() {
            return Ok(marked);
        }
        let found = marked(&self.attempts)?;
        Ok(self.marked.get_or_init(|| found))
    }
}

/// What a supervisor complained of last, as `: ..`.
fn last_words(dir: &TaskDir) -> String {
    let log = std::fs::read(dir.supervisor_log()).unwrap_or_default();
    match String::from_utf8_lossy(&log).lines().last() {
        None => String::new(),
        Some(line) => format!(": {}", evidence(line)),
    }
}
