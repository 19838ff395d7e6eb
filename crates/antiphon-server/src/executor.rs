//! antiphon's hand: carries actions out on the backend, one hand an attempt, and reports what the backend sees. Repeats
//! what may not have happened, decides nothing, and never takes a failed look for an end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use antiphon_backends::trust::CA_VARIABLE;
use antiphon_backends::{Backend, BackendError, Launch, TaskSeen};
use antiphon_kernel::{Active, Job, JobState, StopPhase, TaskPhase, is_news};
use antiphon_types::{Action, AttemptId, Exit, JobId, JobSpec, Observation, TaskId};
use tokio::sync::mpsc;

use crate::event_loop::LoopHandle;
use crate::tokens::Tokens;
use crate::view::View;

/// Wait before an order that failed is given again.
const RETRY: Duration = Duration::from_secs(2);
/// Looks at an attempt whose hand is idle, in case a change was missed.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The two orders that end processes, by name.
const SIGTERM: &str = "SIGTERM";
const SIGKILL: &str = "SIGKILL";

/// What the hands need.
pub(crate) struct Executor {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) view: Arc<View>,
    pub(crate) inputs: LoopHandle,
    pub(crate) tokens: Arc<Tokens>,
    /// Where trainers and supervisors find this server.
    pub(crate) url: String,
    /// Whom they believe, where that is none of the system's authorities.
    pub(crate) ca: Option<PathBuf>,
}

/// What a hand is told.
enum Order {
    Launch,
    Terminate,
    Kill,
    Look,
    /// A look that nothing called for.
    LookAgain,
    Forget,
}

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// A task that should start is positively not there.
    NotThere,
    /// Anything else, also where the look failed.
    Other,
}

impl Executor {
    /// Carries actions out until the loop is gone. First takes up what an earlier server left under way.
    pub(crate) async fn run(self, mut actions: mpsc::UnboundedReceiver<Action>) {
        let this = Arc::new(self);
        let mut hands: BTreeMap<AttemptId, mpsc::UnboundedSender<Order>> = BTreeMap::new();
        for (attempt, orders) in this.left_under_way() {
            let hand = this.clone().hand(attempt);
            orders.into_iter().for_each(|order| drop(hand.send(order)));
            hands.insert(attempt, hand);
        }
        loop {
            tokio::select! {
                action = actions.recv() => {
                    let Some(action) = action else { return };
                    let Some((attempt, order)) = order(&action) else { continue };
                    let last = matches!(order, Order::Forget);
                    let hand = hands.entry(attempt).or_insert_with(|| this.clone().hand(attempt));
                    let _ = hand.send(order);
                    if last {
                        hands.remove(&attempt);
                    }
                }
                changed = this.backend.changed() => {
                    for attempt in changed {
                        if let Some(hand) = hands.get(&attempt) {
                            let _ = hand.send(Order::Look);
                        }
                    }
                }
            }
        }
    }

    /// Attempts that the log says are under way, and what may not have been carried out of what was decided for them.
    fn left_under_way(&self) -> Vec<(AttemptId, Vec<Order>)> {
        let state = self.view.state();
        let orders = |job: &Job| match &job.state {
            JobState::Stopping {
                phase: StopPhase::Grace { .. },
                ..
            } => {
                vec![Order::Look, Order::Terminate]
            }
            JobState::Stopping {
                phase: StopPhase::Killed,
                ..
            } => vec![Order::Look, Order::Kill],
            JobState::Starting { .. } => vec![Order::Launch],
            JobState::Running { .. }
            | JobState::Stopping { .. }
            | JobState::Pending { .. }
            | JobState::Held { .. }
            | JobState::Succeeded { .. }
            | JobState::Failed { .. }
            | JobState::Canceled { .. } => vec![Order::Look],
        };
        state
            .active_jobs()
            .filter_map(|job| Some((job.state.active()?.attempt, orders(job))))
            .collect()
    }

    /// A hand: carries the orders of one attempt out in sequence.
    fn hand(self: Arc<Self>, attempt: AttemptId) -> mpsc::UnboundedSender<Order> {
        let (sender, mut orders) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let order = match tokio::time::timeout(LOOK_EVERY, orders.recv()).await {
                    Ok(Some(order)) => order,
                    Ok(None) => return,
                    // SIGKILL was given, and a process that could not be ended then is still there.
                    Err(_) if self.is_killed(attempt) => Order::Kill,
                    Err(_) => Order::LookAgain,
                };
                match order {
                    Order::Launch => self.launch(attempt).await,
                    Order::Terminate => {
                        self.repeat(attempt, SIGTERM, || self.backend.terminate(attempt))
                            .await
                    }
                    Order::Kill => {
                        self.repeat(attempt, SIGKILL, || self.backend.kill(attempt))
                            .await
                    }
                    Order::Look => drop(self.look(attempt).await),
                    Order::LookAgain => {
                        // It was handed over long ago and is positively not there.
                        if self.look(attempt).await == Sight::NotThere {
                            self.launch(attempt).await;
                        }
                    }
                    Order::Forget => {
                        self.backend.forget(attempt).await;
                        return;
                    }
                }
            }
        });
        sender
    }

    async fn launch(&self, attempt: AttemptId) {
        // The launch is made from the committed state, not from the action, so that a repeated one is the same.
        while let Some(launch) = self.launch_of(attempt) {
            let Err(error) = self.backend.launch(&launch).await else {
                break;
            };
            let occupied = matches!(error, BackendError::Occupied { .. });
            let error = chain(&error);
            tracing::warn!(%attempt, error, "launch failed");
            if occupied {
                // What is seen under this number is another job's: it is neither this one's nor touched.
                self.report_not_launched(&launch, &error, |_| false).await;
                return;
            }
            match self.backend.seen(attempt).await {
                Ok(seen) => {
                    let known = |task: &TaskId| {
                        seen.as_ref()
                            .is_some_and(|seen| seen.tasks.contains_key(task))
                    };
                    self.report_not_launched(&launch, &error, known).await;
                    break;
                }
                // Nobody knows what was handed over. Doing it again does nothing for tasks that were.
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
        self.look(attempt).await;
    }

    /// Reports tasks that were not handed over. Those that were are stopped by the kernel, which sees a broken gang.
    async fn report_not_launched(
        &self,
        launch: &Launch,
        error: &str,
        known: impl Fn(&TaskId) -> bool,
    ) {
        for task in launch.allocation.tasks.iter() {
            let task = TaskId {
                attempt: launch.attempt,
                role: task.role.clone(),
                index: task.index,
            };
            if known(&task) {
                continue;
            }
            let error = error.to_owned();
            let exit = Exit::NotLaunched { error };
            let _ = self
                .inputs
                .observe(Observation::TaskEnded { task, exit })
                .await;
        }
    }

    fn launch_of(&self, attempt: AttemptId) -> Option<Launch> {
        let state = self.view.state();
        let job = state.job(attempt.job)?;
        let JobState::Starting { active } = &job.state else {
            return None;
        };
        if active.attempt != attempt {
            return None;
        }
        let mut environment = BTreeMap::from([
            ("ANTIPHON_URL".to_owned(), self.url.clone()),
            (
                "ANTIPHON_JOB_TOKEN".to_owned(),
                self.tokens.of_attempt(attempt),
            ),
            ("ANTIPHON_CLASS".to_owned(), active.class.name().to_owned()),
        ]);
        if let Some(ca) = &self.ca {
            let ca = ca.to_string_lossy().into_owned();
            environment.insert(CA_VARIABLE.into(), ca);
        }
        if let Some(member) = job.array {
            let index = member.index.to_string();
            environment.insert("ANTIPHON_ARRAY_INDEX".into(), index);
            environment.insert("ANTIPHON_ARRAY_JOB".into(), member.first.to_string());
        }
        // Output is followed live; a Python that buffers it would look as if it hung.
        if !job.spec.environment.contains_key("PYTHONUNBUFFERED") {
            environment.insert("PYTHONUNBUFFERED".into(), "1".into());
        }
        if let Some(saved) = &job.checkpoint {
            let dir = job
                .spec
                .checkpoint
                .as_ref()
                .map_or("", |spec| spec.dir.as_str());
            let path = std::path::Path::new(dir).join(&saved.path);
            environment.insert(
                "ANTIPHON_RESUME_FROM".into(),
                path.to_string_lossy().into_owned(),
            );
        }
        let check = if active.terms.check {
            state.policy().node_check.clone()
        } else {
            Vec::new()
        };
        Some(Launch {
            attempt,
            spec: told_its_plan(as_chosen(job, active)),
            launched: active.launched,
            allocation: active.allocation.clone(),
            environment,
            check,
        })
    }

    /// Gives an order until it has been given, or the attempt is over.
    async fn repeat<F>(&self, attempt: AttemptId, order: &str, give: impl Fn() -> F)
    where
        F: Future<Output = Result<(), BackendError>>,
    {
        while let Err(error) = give().await {
            let error = chain(&error);
            tracing::warn!(%attempt, order, error, "an order could not be given; again in 2 s");
            // It may have ended by itself meanwhile.
            self.look(attempt).await;
            tokio::time::sleep(RETRY).await;
            // SIGKILL has been decided meanwhile: it is the next order, and must not wait for this one.
            let overtaken = order == SIGTERM && self.is_killed(attempt);
            if overtaken || !self.is_current(attempt) {
                return;
            }
        }
        self.look(attempt).await;
    }

    fn is_current(&self, attempt: AttemptId) -> bool {
        let state = self.view.state();
        let active = state.job(attempt.job).and_then(|job| job.state.active());
        active.is_some_and(|active| active.attempt == attempt)
    }

    /// Compares what the backend sees with what the log says, and reports the difference.
    async fn look(&self, attempt: AttemptId) -> Sight {
        let seen = match self.backend.seen(attempt).await {
            Ok(seen) => seen,
            Err(error) => {
                // Not evidence of anything: it is looked at again.
                tracing::warn!(%attempt, error = chain(&error), "an attempt could not be looked at");
                return Sight::Other;
            }
        };
        for (task, gpus) in seen.iter().flat_map(|seen| seen.gpus.clone()) {
            let holds = Observation::Holds { task, gpus };
            // The same at each look, and as booked most times.
            if is_news(&self.view.state(), &holds) && self.inputs.observe(holds).await.is_err() {
                return Sight::Other;
            }
        }
        let mut found = Sight::Other;
        for (task, phase) in self.tasks_of(attempt) {
            let sight = seen.as_ref().and_then(|seen| seen.tasks.get(&task));
            let observation = match (phase, sight) {
                (TaskPhase::Launched, Some(TaskSeen::Running)) => Observation::TaskStarted { task },
                (TaskPhase::Launched | TaskPhase::Started, Some(TaskSeen::Ended(exit))) => {
                    Observation::TaskEnded {
                        task,
                        exit: exit.clone(),
                    }
                }
                // It ran, and the backend says positively that it does not know it: its traces were removed.
                (TaskPhase::Started, None) => {
                    let evidence = format!("{} no longer knows it", self.backend.name());
                    Observation::TaskEnded {
                        task,
                        exit: Exit::Lost { evidence },
                    }
                }
                (TaskPhase::Launched, None) if self.is_stopping(attempt.job) => {
                    Observation::TaskEnded {
                        task,
                        exit: Exit::Superseded,
                    }
                }
                (TaskPhase::Launched, None) => {
                    found = Sight::NotThere;
                    continue;
                }
                (TaskPhase::Ended { .. }, _)
                | (TaskPhase::Launched, Some(TaskSeen::Starting | TaskSeen::Orphaned))
                | (
                    TaskPhase::Started,
                    Some(TaskSeen::Starting | TaskSeen::Running | TaskSeen::Orphaned),
                ) => {
                    continue;
                }
            };
            if self.inputs.observe(observation).await.is_err() {
                return Sight::Other;
            }
        }
        found
    }

    fn tasks_of(&self, attempt: AttemptId) -> Vec<(TaskId, TaskPhase)> {
        let state = self.view.state();
        let active = state.job(attempt.job).and_then(|job| job.state.active());
        let current = active.filter(|active| active.attempt == attempt);
        current.map_or_else(Vec::new, |active| {
            active
                .tasks()
                .map(|(task, phase)| (task, phase.clone()))
                .collect()
        })
    }

    fn is_killed(&self, attempt: AttemptId) -> bool {
        let state = self.view.state();
        state.job(attempt.job).is_some_and(|job| {
            matches!(&job.state, JobState::Stopping { active, phase: StopPhase::Killed, .. } if active.attempt == attempt)
        })
    }

    fn is_stopping(&self, job: JobId) -> bool {
        let state = self.view.state();
        state
            .job(job)
            .is_some_and(|job| matches!(job.state, JobState::Stopping { .. }))
    }
}

/// The job in the shapes that the kernel chose for this attempt: they say how many processes each role is.
fn as_chosen(job: &Job, active: &Active) -> JobSpec {
    let mut spec = job.spec.clone();
    for (role, chosen) in spec.roles.iter_mut().zip(&active.terms.shapes) {
        let chosen = usize::try_from(*chosen).ok();
        let shape = chosen.and_then(|chosen| role.shapes().nth(chosen));
        if let Some(shape) = shape.cloned() {
            role.shape = shape;
        }
    }
    spec
}

/// The job with the plan of its shape among its variables; what its user and its ladder say wins.
fn told_its_plan(mut spec: JobSpec) -> JobSpec {
    let shape = spec.roles.first().map(|role| &role.shape);
    let plan = shape.and_then(|shape| spec.plans.iter().find(|plan| plan.is_of(shape)));
    let variables = plan.map(|plan| plan.environment.clone());
    for (name, value) in variables.into_iter().flatten() {
        spec.environment.entry(name).or_insert(value);
    }
    spec
}

fn order(action: &Action) -> Option<(AttemptId, Order)> {
    match action {
        Action::Launch { attempt, .. } => Some((*attempt, Order::Launch)),
        Action::Terminate { attempt, .. } => Some((*attempt, Order::Terminate)),
        Action::Kill { attempt, .. } => Some((*attempt, Order::Kill)),
        Action::Settle { attempt, .. } => Some((*attempt, Order::Forget)),
        // Directives are fetched by the trainer; the rest happens in the state alone.
        Action::Yield { .. }
        | Action::Direct { .. }
        | Action::Reserve { .. }
        | Action::Unreserve { .. }
        | Action::PutAside { .. }
        | Action::Remedy { .. }
        | Action::Augment { .. }
        | Action::Abandon { .. }
        | Action::Gate(_) => None,
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
