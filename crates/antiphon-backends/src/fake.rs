//! A backend without processes, for tests: the test says when tasks start, end and vanish. Starts nothing, keeps no time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use antiphon_types::{AttemptId, Exit, JobSpec, NodeSpec, TaskId};
use async_trait::async_trait;
use tokio::sync::Notify;

use crate::{Backend, BackendError, Launch, Preflight, Seen, TaskSeen};

/// A call that the fake backend was given and carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Backend::launch`].
    Launch(AttemptId),
    /// [`Backend::terminate`].
    Terminate(AttemptId),
    /// [`Backend::kill`].
    Kill(AttemptId),
    /// [`Backend::forget`].
    Forget(AttemptId),
}

/// What tasks of the fake backend do by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manners {
    /// Nothing, not even at SIGKILL, like processes that hang in the kernel: the test says everything.
    #[default]
    Scripted,
    /// Start when launched, end at SIGTERM and SIGKILL.
    Obedient,
    /// Start when launched, ignore SIGTERM, end at SIGKILL.
    Stubborn,
}

/// A backend without processes.
#[derive(Debug)]
pub struct FakeBackend {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug)]
struct State {
    nodes: Vec<NodeSpec>,
    manners: Manners,
    preflight: Result<(), Preflight>,
    launches: BTreeMap<AttemptId, Launch>,
    tasks: BTreeMap<TaskId, TaskSeen>,
    calls: Vec<Call>,
    changed: BTreeSet<AttemptId>,
    failing_lookups: u32,
    failing_orders: u32,
}

impl FakeBackend {
    /// A backend that offers these nodes.
    #[must_use]
    pub fn new(nodes: Vec<NodeSpec>, manners: Manners) -> Self {
        Self {
            state: Mutex::new(State {
                nodes,
                manners,
                preflight: Ok(()),
                launches: BTreeMap::new(),
                tasks: BTreeMap::new(),
                calls: Vec::new(),
                changed: BTreeSet::new(),
                failing_lookups: 0,
                failing_orders: 0,
            }),
            wake: Notify::new(),
        }
    }

    /// Every call that was carried out, repeated ones included.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// What an attempt was launched with.
    #[must_use]
    pub fn launched(&self, attempt: AttemptId) -> Option<Launch> {
        self.state().launches.get(&attempt).cloned()
    }

    /// Makes a task's command run.
    pub fn start(&self, task: &TaskId) {
        self.set(task, TaskSeen::Running);
    }

    /// Ends a task.
    pub fn end(&self, task: &TaskId, exit: Exit) {
        self.set(task, TaskSeen::Ended(exit));
    }

    /// Takes a task's supervisor away and leaves its processes.
    pub fn orphan(&self, task: &TaskId) {
        self.set(task, TaskSeen::Orphaned);
    }

    /// Makes an attempt absent, as if it had never been launched.
    pub fn vanish(&self, attempt: AttemptId) {
        let mut state = self.state();
        state.launches.remove(&attempt);
        state.tasks.retain(|task, _| task.attempt != attempt);
        drop(state);
        self.hint(attempt);
    }

    /// Replaces the nodes that it offers.
    pub fn set_nodes(&self, nodes: Vec<NodeSpec>) {
        self.state().nodes = nodes;
    }

    /// Says what every preflight answers from now on.
    pub fn set_preflight(&self, answer: Result<(), Preflight>) {
        self.state().preflight = answer;
    }

    /// Makes the next `count` calls of [`Backend::nodes`] and [`Backend::seen`] fail.
    pub fn fail_lookups(&self, count: u32) {
        self.state().failing_lookups = count;
    }

    /// Makes the next `count` calls of [`Backend::launch`], [`Backend::terminate`] and [`Backend::kill`] fail, without
    /// any effect.
    pub fn fail_orders(&self, count: u32) {
        self.state().failing_orders = count;
    }

    fn set(&self, task: &TaskId, seen: TaskSeen) {
        self.state().tasks.insert(task.clone(), seen);
        self.hint(task.attempt);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every task of an attempt that has not ended, by a signal.
    fn signal(&self, attempt: AttemptId, signal: i32) {
        let mut state = self.state();
        for (task, seen) in &mut state.tasks {
            if task.attempt == attempt && !matches!(seen, TaskSeen::Ended(_)) {
                *seen = TaskSeen::Ended(Exit::Signal {
                    signal,
                    class: None,
                    evidence: String::new(),
                });
            }
        }
        drop(state);
        self.hint(attempt);
    }
}

#[async_trait]
impl Backend for FakeBackend {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn nodes(&self) -> Result<Vec<NodeSpec>, BackendError> {
        let mut state = self.state();
        fail_next(&mut state.failing_lookups, "read")?;
        Ok(state.nodes.clone())
    }

    async fn preflight(&self, _spec: &JobSpec) -> Result<(), Preflight> {
        self.state().preflight.clone()
    }

    async fn launch(&self, launch: &Launch) -> Result<(), BackendError> {
        let attempt = launch.attempt;
        let mut state = self.state();
        fail_next(&mut state.failing_orders, "launch on")?;
        for task in launch.allocation.tasks.iter() {
            if state.nodes.iter().all(|node| node.name != task.node) {
                return Err(BackendError::UnknownNode(task.node.to_string()));
            }
        }
        state.calls.push(Call::Launch(attempt));
        if state.launches.contains_key(&attempt) {
            return Ok(());
        }
        state.launches.insert(attempt, launch.clone());
        let first = match state.manners {
            Manners::Scripted => TaskSeen::Starting,
            Manners::Obedient | Manners::Stubborn => TaskSeen::Running,
        };
        for task in launch.allocation.tasks.iter() {
            let task = TaskId {
                attempt,
                role: task.role.clone(),
                index: task.index,
            };
            state.tasks.insert(task, first.clone());
        }
        drop(state);
        self.hint(attempt);
        Ok(())
    }

    async fn terminate(&self, attempt: AttemptId) -> Result<(), BackendError> {
        let manners = {
            let mut state = self.state();
            fail_next(&mut state.failing_orders, "signal")?;
            state.calls.push(Call::Terminate(attempt));
            state.manners
        };
        match manners {
            Manners::Obedient => self.signal(attempt, 15),
            Manners::Scripted | Manners::Stubborn => (),
        }
        Ok(())
    }

    async fn kill(&self, attempt: AttemptId) -> Result<(), BackendError> {
        let manners = {
            let mut state = self.state();
            fail_next(&mut state.failing_orders, "signal")?;
            state.calls.push(Call::Kill(attempt));
            state.manners
        };
        match manners {
            Manners::Obedient | Manners::Stubborn => self.signal(attempt, 9),
            Manners::Scripted => (),
        }
        Ok(())
    }

    async fn seen(&self, attempt: AttemptId) -> Result<Option<Seen>, BackendError> {
        let mut state = self.state();
        fail_next(&mut state.failing_lookups, "read")?;
        let tasks: BTreeMap<TaskId, TaskSeen> = state
            .tasks
            .iter()
            .filter(|(task, _)| task.attempt == attempt)
            .map(|(task, seen)| (task.clone(), seen.clone()))
            .collect();
        Ok((!tasks.is_empty()).then_some(Seen {
            tasks,
            gpus: BTreeMap::new(),
        }))
    }

    async fn changed(&self) -> Vec<AttemptId> {
        loop {
            let changed = std::mem::take(&mut self.state().changed);
            if !changed.is_empty() {
                return changed.into_iter().collect();
            }
            self.wake.notified().await;
        }
    }

    fn hint(&self, attempt: AttemptId) {
        self.state().changed.insert(attempt);
        self.wake.notify_one();
    }

    /// Its tasks print nothing.
    async fn output(
        &self,
        _task: &TaskId,
        _offset: u64,
        _bytes_max: u64,
    ) -> Result<Vec<u8>, BackendError> {
        Ok(Vec::new())
    }

    async fn forget(&self, attempt: AttemptId) {
        let mut state = self.state();
        state.calls.push(Call::Forget(attempt));
        state.changed.remove(&attempt);
    }
}

fn fail_next(left: &mut u32, verb: &'static str) -> Result<(), BackendError> {
    if *left == 0 {
        return Ok(());
    }
    *left -= 1;
    Err(BackendError::Io {
        verb,
        path: "fake".to_owned(),
        source: io::Error::other("the test said so"),
    })
}
