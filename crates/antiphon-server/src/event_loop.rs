//! The one place where inputs become events: admit, stamp, apply, decide, commit, and only then act. Many inputs share
//! one commit. A bug caught here puts the server into safe mode at that event; a failed commit ends it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use antiphon_kernel::{
    Mode, State, admit, apply, check, decide, is_current, is_news, next_timer, repeated,
};
use antiphon_store::{Entry, Fence, Log, StoreError};
use antiphon_types::{
    Action, Body, Command, CommandId, Decision, EVENT_VERSION, Event, Finding, JobId, Millis,
    Observation, Rejection, Seq, Timestamp,
};
use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument as _, Span};

use crate::recovery::ImageKeeper;
use crate::spans;
use crate::view::View;

/// Inputs taken into one commit: bounds how long the first of them waits for its answer.
const BATCH_MAX: usize = 1_024;
/// Inputs that may wait; more senders wait for a place.
const QUEUE: usize = 16_384;
/// Decisions that may follow one batch before the kernel is considered to run in circles.
const CYCLES_MAX: usize = 1_000;

/// A command that was carried out, now or when it was first sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Its place in the log.
    pub seq: Seq,
    /// The job that it made or changed.
    pub job: Option<JobId>,
    /// Whether it had been carried out before under the same id.
    pub repeated: bool,
}

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its sender can change it.
    #[error(transparent)]
    Rejection(#[from] Rejection),
    /// A bug: nothing was changed, the server is in safe mode.
    #[error("a bug was caught and nothing was changed: {0}")]
    Bug(String),
    /// The server only observes somebody else's cluster.
    #[error("this server only observes what {scheduler} runs")]
    Observes {
        /// Who runs it.
        scheduler: &'static str,
    },
    /// The server is going down.
    #[error("the server is stopping")]
    Stopping,
}

/// What comes into the loop.
pub(crate) enum Input {
    Command {
        by: String,
        id: Option<CommandId>,
        command: Box<Command>,
        reply: oneshot::Sender<Result<Accepted, Refused>>,
    },
    Observation(Box<Observation>, oneshot::Sender<()>),
    Finding(Box<Finding>),
    /// Nothing more is taken in after this turn.
    Finish,
}

/// The way into the loop.
#[derive(Clone)]
pub struct LoopHandle {
    inputs: mpsc::Sender<Input>,
}

impl LoopHandle {
    /// A way in, and its end for whoever takes inputs there.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Input>) {
        let (inputs, taken) = mpsc::channel(QUEUE);
        (Self { inputs }, taken)
    }

    /// The way to no loop: whoever goes it is told that nothing is taken in.
    pub(crate) fn to_nobody() -> Self {
        Self::new().0
    }

    /// Asks for a command; answers once it is durable.
    ///
    /// # Errors
    /// Where it is refused, or the server is going down.
    pub async fn command(
        &self,
        by: String,
        id: Option<CommandId>,
        command: Command,
    ) -> Result<Accepted, Refused> {
        let (reply, answer) = oneshot::channel();
        let input = Input::Command {
            by,
            id,
            command: Box::new(command),
            reply,
        };
        self.inputs
            .send(input)
            .await
            .map_err(|_| Refused::Stopping)?;
        answer.await.map_err(|_| Refused::Stopping)?
    }

    /// Reports what is so; returns once it is durable, or with an error where the server is going down.
    pub(crate) async fn observe(&self, observation: Observation) -> Result<(), Refused> {
        let (reply, answer) = oneshot::channel();
        let input = Input::Observation(Box::new(observation), reply);
        self.inputs
            .send(input)
            .await
            .map_err(|_| Refused::Stopping)?;
        answer.await.map_err(|_| Refused::Stopping)
    }

    /// Ends the loop once what was sent before is durable, whoever still holds a handle.
    pub(crate) async fn finish(&self) {
        // A loop that has ended already needs no telling.
        let _ = self.inputs.send(Input::Finish).await;
    }

    /// Hands a finding over. Not logged where its attempt has been replaced.
    pub(crate) async fn find(&self, finding: Finding) {
        // A loop that has ended concludes nothing.
        let _ = self.inputs.send(Input::Finding(Box::new(finding))).await;
    }
}

/// The live state and what it takes to change it.
pub(crate) struct EventLoop {
    pub(crate) state: State,
    pub(crate) view: Arc<View>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) fence: Fence,
    pub(crate) images: ImageKeeper,
    pub(crate) actions: mpsc::UnboundedSender<Action>,
    /// The kernel's `decide`; tests put a broken one here.
    pub(crate) decide: fn(&State) -> Decision,
    wake_at: Option<Timestamp>,
    clock: Clock,
    finished: bool,
    inputs: mpsc::Receiver<Input>,
}

impl EventLoop {
    pub(crate) fn new(
        state: State,
        view: Arc<View>,
        log: Arc<dyn Log>,
        fence: Fence,
        images: ImageKeeper,
        actions: mpsc::UnboundedSender<Action>,
    ) -> (Self, LoopHandle) {
        let (handle, inputs) = LoopHandle::new();
        let this = Self {
            state,
            view,
            log,
            fence,
            images,
            actions,
            decide,
            wake_at: None,
            clock: Clock::new(),
            finished: false,
            inputs,
        };
        (this, handle)
    }

    /// Runs until it is told to finish, or every handle is gone.
    ///
    /// # Errors
    /// Where the log cannot be written: a failed write or sync is not retried over.
    pub(crate) async fn run(mut self) -> Result<(), StoreError> {
        // What was logged before a crash may call for a decision that was not. It is made by the clock of now, not by that of
        // the last event: else what the server was away for would be taken off a grace.
        let decide = self.decide;
        let calls = caught(|| decide(&self.state));
        if calls.is_ok_and(|decision| !decision.actions.is_empty()) {
            self.wake_at = Some(self.now());
        }
        self.turn(Vec::new()).instrument(spans::turn(0)).await?;
        let mut inputs = Vec::new();
        loop {
            let now = self.now();
            let timer = self.wake_at.map(|at| at.since(now).as_millis());
            tokio::select! {
                taken = self.inputs.recv_many(&mut inputs, BATCH_MAX) => {
                    if taken == 0 {
                        return self.images.finish(self.state).await;
                    }
                }
                () = sleep(timer) => (),
            }
            let span = spans::turn(inputs.len());
            let turn = self.turn(std::mem::take(&mut inputs));
            turn.instrument(span).await?;
            if self.finished {
                return self.images.finish(self.state).await;
            }
        }
    }

    /// One turn: all inputs, what they decide, one commit, then answers and actions.
    async fn turn(&mut self, inputs: Vec<Input>) -> Result<(), StoreError> {
        let now = self.now();
        let due = self.wake_at.is_some_and(|at| at <= now);
        let mut turn = Turn {
            events: Vec::new(),
            answers: Vec::new(),
        };
        if inputs.is_empty() && due {
            self.log_event(&mut turn, Body::Tick).ok();
        }
        for input in inputs {
            self.take(&mut turn, input);
        }
        let actions = self.decide_until_quiet(&mut turn);
        if turn.events.is_empty() {
            turn.answers.into_iter().for_each(|answer| answer());
            return Ok(());
        }
        let entries = turn.events.iter().map(encode).collect();
        let span = Span::current();
        span.record("events", turn.events.len());
        span.record("seq", self.state.seq().0);
        let began = Instant::now();
        let commit = self.log.append(self.fence, entries);
        commit.instrument(spans::commit(turn.events.len())).await?;
        self.view.metrics().commit(began.elapsed());
        self.view.commit(turn.events);
        turn.answers.into_iter().for_each(|answer| answer());
        for action in actions {
            // The executor outlives the loop.
            let _ = self.actions.send(action);
        }
        self.images.after_commit(&self.state);
        Ok(())
    }

    fn take(&mut self, turn: &mut Turn, input: Input) {
        match input {
            Input::Command {
                by,
                id,
                command,
                reply,
            } => {
                let answer = self.command(turn, by, id, *command);
                turn.answers
                    .push(Box::new(move || drop(reply.send(answer))));
            }
            Input::Observation(observation, reply) => {
                // What is known already, or about an attempt that was replaced, does not enter the log.
                let news = is_news(&self.state, &observation);
                let logged = !news
                    || self
                        .log_event(turn, Body::Observation(*observation))
                        .is_ok();
                turn.answers.push(Box::new(move || {
                    if logged {
                        let _ = reply.send(());
                    }
                }));
            }
            Input::Finish => self.finished = true,
            Input::Finding(finding) if !is_current(&self.state, finding.attempt()) => (),
            Input::Finding(finding) => {
                self.log_event(turn, Body::Finding(*finding)).ok();
            }
        }
    }

    fn command(
        &mut self,
        turn: &mut Turn,
        by: String,
        id: Option<CommandId>,
        command: Command,
    ) -> Result<Accepted, Refused> {
        if let Some(id) = &id
            && let Some(first) = repeated(&self.state, id)?
        {
            return Ok(Accepted {
                seq: first.seq,
                job: first.job,
                repeated: true,
            });
        }
        admit(&self.state, &command)?;
        let made = matches!(command, Command::Submit { .. });
        let job = subject(&command);
        let seq = self
            .log_event(turn, Body::Command { by, id, command })
            .map_err(Refused::Bug)?;
        let job = if made { first_made(&self.state) } else { job };
        Ok(Accepted {
            seq,
            job,
            repeated: false,
        })
    }

    /// Stamps an event and folds it in. On a bug the state is what it was, plus safe mode.
    fn log_event(&mut self, turn: &mut Turn, body: Body) -> Result<Seq, String> {
        let event = Event {
            seq: Seq(self.state.seq().0 + 1),
            at: self.now(),
            body,
        };
        match caught(|| apply(&mut self.state, &event)) {
            Ok(()) => {
                turn.events.push(event);
                Ok(Seq(self.state.seq().0))
            }
            Err(bug) => {
                let bug = format!("{} event {}: {bug}", event.body.kind(), event.seq);
                tracing::error!(seq = event.seq.0, bug, "a bug was caught: safe mode");
                // The fold may have stopped half-way: start again from what is committed.
                let mut state = self.view.state().clone();
                turn.events
                    .iter()
                    .for_each(|event| apply(&mut state, event));
                self.state = state;
                self.enter_safe_mode(turn, &bug);
                Err(bug)
            }
        }
    }

    fn now(&mut self) -> Timestamp {
        self.clock.now(self.state.now())
    }

    fn enter_safe_mode(&mut self, turn: &mut Turn, bug: &str) {
        let body = Body::SafeMode {
            bug: bug.to_owned(),
        };
        let event = Event {
            seq: Seq(self.state.seq().0 + 1),
            at: self.now(),
            body,
        };
        apply(&mut self.state, &event);
        turn.events.push(event);
    }

    /// Decides, checks and folds until there is nothing more to do.
    fn decide_until_quiet(&mut self, turn: &mut Turn) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..CYCLES_MAX {
            let decide = self.decide;
            let span = spans::cycle().entered();
            let began = Instant::now();
            let decided = caught(|| {
                let decision = decide(&self.state);
                check::decision(&self.state, &decision).map(|()| decision)
            });
            self.view.metrics().cycle(began.elapsed());
            if let Ok(Ok(decision)) = &decided {
                span.record("actions", decision.actions.len());
            }
            drop(span);
            match decided.and_then(|checked| checked) {
                Ok(decision) => {
                    self.wake_at = decision.wake_at;
                    if decision.actions.is_empty() {
                        return actions;
                    }
                    if turn.events.is_empty() {
                        // Decided by the clock of now, not by that of the last event: else what passed since, a restart
                        // above all, would be taken off a grace.
                        if self.log_event(turn, Body::Tick).is_err() {
                            return actions;
                        }
                        continue;
                    }
                    let again = decision.again;
                    let decided = decision.actions.clone();
                    if self.log_event(turn, Body::Decision(decision)).is_err() {
                        return actions;
                    }
                    decided
                        .iter()
                        .for_each(|action| tracing::debug!(?action, "decided"));
                    actions.extend(decided);
                    if !again {
                        // What was just begun has clocks as well.
                        let timer = next_timer(&self.state);
                        self.wake_at = self.wake_at.into_iter().chain(timer).min();
                        return actions;
                    }
                }
                Err(bug) => {
                    self.wake_at = None;
                    // In safe mode already: even the bookkeeping is broken, so nothing is decided at all.
                    if !matches!(self.state.mode(), Mode::Safe { .. }) {
                        tracing::error!(bug, "a bug was caught: safe mode");
                        self.enter_safe_mode(turn, &bug);
                        continue;
                    }
                    return actions;
                }
            }
        }
        let bug = format!("no end of decisions after {CYCLES_MAX} cycles");
        tracing::error!(bug, "a bug was caught: safe mode");
        self.enter_safe_mode(turn, &bug);
        actions
    }
}

/// The job that a submission has just made; the first of an array stands for it.
fn first_made(state: &State) -> Option<JobId> {
    let newest = state.newest_job()?;
    let array = state.job(newest).and_then(|job| job.array);
    Some(array.map_or(newest, |member| member.first))
}

/// What one turn has made, not yet durable.
struct Turn {
    events: Vec<Event>,
    /// Run once the events are durable.
    answers: Vec<Box<dyn FnOnce() + Send>>,
}

/// The job that a command is about; none for a submission, which makes one.
const fn subject(command: &Command) -> Option<JobId> {
    match command {
        Command::Cancel { job }
        | Command::Hold { job }
        | Command::Release { job }
        | Command::Preempt { job }
        | Command::SetClass { job, .. } => Some(*job),
        Command::Direct(direct) => Some(direct.job),
        Command::Approve { job, .. } | Command::Undo { job, .. } => Some(*job),
        Command::Ask(ask) => Some(ask.attempt.job),
        Command::Submit { .. }
        | Command::Drain { .. }
        | Command::Undrain { .. }
        | Command::Pause { .. }
        | Command::Unpause
        | Command::SetPolicy { .. }
        | Command::SetTeams { .. }
        | Command::SetGate { .. }
        | Command::Maintain(_)
        | Command::Notice(_) => None,
    }
}

/// The one clock. Never goes back behind the log, and never stands still either: where the system's clock was set back, or
/// the log was written by one that ran ahead, it goes on at half speed until the system's has caught up.
struct Clock {
    base: Timestamp,
    since: Instant,
}

impl Clock {
    fn new() -> Self {
        Self {
            base: Timestamp::default(),
            since: Instant::now(),
        }
    }

    /// The time, not before `floor`.
    fn now(&mut self, floor: Timestamp) -> Timestamp {
        let system = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        let system = Timestamp::from_millis(in_ms(system));
        // Graces then last longer than promised rather than shorter.
        let slow = self
            .base
            .after(Millis::from_millis(in_ms(self.since.elapsed() / 2)));
        let now = system.max(slow).max(floor);
        if now > slow {
            (self.base, self.since) = (now, Instant::now());
        }
        now
    }
}

fn in_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

async fn sleep(ms: Option<u64>) {
    match ms {
        // A day at most: a timer far ahead is set again.
        Some(ms) => tokio::time::sleep(Duration::from_millis(ms.min(86_400_000))).await,
        None => std::future::pending().await,
    }
}

/// Runs `f`, and turns a panic into its text.
pub(crate) fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "a panic without a text".into())
    })
}

/// An event as the log has it.
pub(crate) fn encode(event: &Event) -> Entry {
    Entry {
        seq: event.seq.0,
        at_ms: event.at.as_millis(),
        version: EVENT_VERSION,
        kind: event.body.kind().to_owned(),
        body: serde_json::to_string(&event.body).expect("an event is plain data"),
    }
}

#[cfg(test)]
mod tests;
