//! The server of a storm: the live one's turn (take, fold, decide, commit, answer, act), its images and its recovery, over
//! a log that fails on request. Dies wherever the storm wants it to; what it had in memory is then gone.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use antiphon_kernel::{
    JobState, Mode, State, StopPhase, admit, check, is_current, is_news, next_timer, repeated,
};
use antiphon_store::{
    Entry, Fault as LogFault, FaultyLog, Fence, Image, Log, MemoryLog, StoreError, decode_state,
    digest, encode_state,
};
use antiphon_types::{
    Action, Body, Command, CommandId, EVENT_VERSION, Event, Finding, Observation, Seq, Timestamp,
};

use crate::replay::event_of;

use super::{Broken, Checked, Fault, Order, Storm, must};

/// Decisions that may follow one turn before the kernel is considered to run in circles.
const CYCLES_MAX: usize = 1_000;
/// Events between two images.
const IMAGE_EVERY: u64 = 200;
/// The form of the state in images: one process writes and reads them.
const STATE_VERSION: u32 = 1;
/// Events read at once.
const PAGE: usize = 1_000;

/// What reaches the server.
#[derive(Debug, Clone)]
pub(super) enum Input {
    Command(CommandId, Command),
    Observation(Observation),
    Finding(Finding),
}

/// What a server has in memory, and its disk.
pub(super) struct Server {
    pub(super) state: State,
    pub(super) wake_at: Option<Timestamp>,
    disk: MemoryLog,
    log: FaultyLog<MemoryLog>,
    fence: Fence,
    image_at: u64,
    /// Whether the kernel said that there is nothing to do in this very state.
    quiet: bool,
}

/// Where a turn ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    BeforeCommit,
    Torn,
    Unreported,
    /// After this many actions were given out.
    AfterCommit(u64),
}

impl Server {
    pub(super) fn new() -> Self {
        Self::over(MemoryLog::new(), State::default(), None)
    }

    /// Opens a disk. One append may be set to fail: the next one.
    fn over(disk: MemoryLog, state: State, fails: Option<LogFault>) -> Self {
        let image_at = state.seq().0;
        let (at, fault) = fails.map_or((u64::MAX, LogFault::Lost), |fault| (1, fault));
        let log = FaultyLog::new(disk.clone(), at, fault);
        let fence = done(log.acquire("storm")).expect("a log in memory takes a writer");
        Self {
            state,
            wake_at: None,
            disk,
            log,
            fence,
            image_at,
            quiet: false,
        }
    }

    pub(super) fn digest(&self) -> String {
        digest(&encode_state(&self.state)).to_string()
    }
}

impl Storm {
    /// One turn of the live server's loop.
    pub(super) fn turn(&mut self, inputs: Vec<Input>) -> Checked {
        let end = self.draw_end();
        // What a crash brings back; only needed where one comes.
        let before = end.map(|_| (self.server.state.clone(), self.promises.clone()));
        let mut events = Vec::new();
        let due = self.server.wake_at.is_some_and(|at| at <= self.now);
        if inputs.is_empty() && due {
            self.fold(&mut events, Body::Tick)?;
        }
        for input in &inputs {
            self.take(&mut events, input.clone())?;
        }
        let actions = self.decide_until_quiet(&mut events)?;
        match end {
            Some(End::BeforeCommit) => {
                self.strike(Fault::CrashBeforeCommit);
                return self.crash_back(before, inputs);
            }
            Some(End::Torn) if !events.is_empty() => {
                self.strike(Fault::TornCommit);
                self.fail_commit(&events, LogFault::Lost)?;
                return self.crash_back(before, inputs);
            }
            Some(End::Unreported) if !events.is_empty() => {
                self.strike(Fault::UnreportedCommit);
                self.fail_commit(&events, LogFault::Unreported)?;
                return self.crash(inputs);
            }
            Some(End::Torn | End::Unreported | End::AfterCommit(_)) | None => (),
        }
        if !events.is_empty() {
            let entries = events.iter().map(encode).collect();
            let appended = done(self.server.log.append(self.server.fence, entries));
            appended.map_err(|error| Broken(format!("the log refuses a commit: {error}")))?;
        }
        let given = match end {
            Some(End::AfterCommit(given)) => usize::try_from(given).expect("few"),
            _ => usize::MAX,
        };
        if given == 0 && end.is_some() {
            self.strike(Fault::CrashAfterCommit);
            return self.crash(inputs);
        }
        inputs.iter().for_each(|input| self.answer(input));
        for (place, action) in actions.iter().enumerate() {
            if place == given {
                break;
            }
            self.give(action);
        }
        if given != usize::MAX {
            self.strike(Fault::CrashAfterCommit);
            return self.crash(Vec::new());
        }
        self.keep_image()
    }

    fn draw_end(&mut self) -> Option<End> {
        if self.calm {
            return None;
        }
        let weight = |fault| self.weights.of(fault);
        let none = 1_500;
        let which = [
            (none, 0),
            (weight(Fault::CrashBeforeCommit), 1),
            (weight(Fault::TornCommit), 2),
            (weight(Fault::UnreportedCommit), 3),
            (weight(Fault::CrashAfterCommit), 4),
        ];
        match self.draw.weighted(&which) {
            0 => None,
            1 => Some(End::BeforeCommit),
            2 => Some(End::Torn),
            3 => Some(End::Unreported),
            _ => Some(End::AfterCommit(self.draw.below(4))),
        }
    }

    fn take(&mut self, events: &mut Vec<Event>, input: Input) -> Checked {
        match input {
            Input::Command(id, command) => {
                // Sent again after a crash: what was carried out is not carried out again.
                match repeated(&self.server.state, &id) {
                    Ok(None) => (),
                    Ok(Some(_)) => return Ok(()),
                    Err(rejection) => return Err(Broken(format!("a key means two: {rejection}"))),
                }
                if admit(&self.server.state, &command).is_err() {
                    return Ok(());
                }
                let body = Body::Command {
                    by: "someone".into(),
                    id: Some(id),
                    command,
                };
                self.fold(events, body)
            }
            Input::Observation(observation) => {
                if is_news(&self.server.state, &observation) {
                    return self.fold(events, Body::Observation(observation));
                }
                self.changes_nothing(&observation)
            }
            Input::Finding(finding) if !is_current(&self.server.state, finding.attempt()) => Ok(()),
            Input::Finding(finding) => self.fold(events, Body::Finding(finding)),
        }
    }

    /// What is no news, a stale attempt's word above all, changes nothing if it is folded in all the same.
    fn changes_nothing(&mut self, observation: &Observation) -> Checked {
        if !self.draw.one_in(8) {
            return Ok(());
        }
        let event = |body| Event {
            seq: Seq(self.server.state.seq().0 + 1),
            at: self.now,
            body,
        };
        let mut ticked = self.server.state.clone();
        (self.kernel.apply)(&mut ticked, &event(Body::Tick));
        let mut told = self.server.state.clone();
        (self.kernel.apply)(&mut told, &event(Body::Observation(observation.clone())));
        must(told == ticked, || {
            format!("{observation:?} is no news, and changes the state")
        })
    }

    /// Stamps an event, folds it in and checks everything.
    fn fold(&mut self, events: &mut Vec<Event>, body: Body) -> Checked {
        let event = Event {
            seq: Seq(self.server.state.seq().0 + 1),
            at: self.now,
            body,
        };
        (self.kernel.apply)(&mut self.server.state, &event);
        self.server.quiet = false;
        self.promises.note(&event);
        events.push(event);
        if self.calm || self.draw.one_in(self.rebuild_every) {
            check::invariants(&self.server.state).map_err(Broken)?;
        }
        self.check_state()
    }

    fn decide_until_quiet(
        &mut self,
        events: &mut Vec<Event>,
    ) -> Result<Vec<(Seq, Action)>, Broken> {
        let mut actions = Vec::new();
        if self.server.quiet {
            // Same state, same answer.
            return Ok(actions);
        }
        let mut last = String::new();
        for cycle in 0..CYCLES_MAX {
            let state = &self.server.state;
            let decision = (self.kernel.decide)(state);
            check::decision(state, &decision).map_err(Broken)?;
            if self.draw.one_in(4) {
                let again = (self.kernel.decide)(state);
                must(decision == again, || {
                    format!("decided twice: {decision:?}, then {again:?}")
                })?;
            }
            if events.is_empty() && !decision.actions.is_empty() {
                // Decided by the clock of now, not by that of the last event.
                self.fold(events, Body::Tick)?;
                continue;
            }
            self.check_decision(&decision)?;
            self.server.wake_at = decision.wake_at;
            if cycle + 2 >= CYCLES_MAX {
                last = format!("{last}; {:?}", decision.actions);
            }
            if decision.actions.is_empty() {
                self.server.quiet = true;
                return Ok(actions);
            }
            self.decisions += 1;
            let again = decision.again;
            let decided = decision.actions.clone();
            self.fold(events, Body::Decision(decision))?;
            let seq = self.server.state.seq();
            actions.extend(decided.into_iter().map(|action| (seq, action)));
            if !again {
                let timer = next_timer(&self.server.state);
                self.server.wake_at = self.server.wake_at.into_iter().chain(timer).min();
                return Ok(actions);
            }
        }
        Err(Broken(format!(
            "no end of decisions after {CYCLES_MAX}, the last ones{last}"
        )))
    }

    /// An action leaves the server. It has to be in the log by now.
    fn give(&mut self, (seq, action): &(Seq, Action)) {
        let last = done(self.server.disk.last_seq()).expect("a log in memory can be read");
        assert!(
            seq.0 <= last,
            "{action:?} is carried out before it is logged"
        );
        let (attempt, order) = match action {
            Action::Launch { attempt, .. } => (*attempt, Order::Launch),
            Action::Terminate { attempt, .. } => (*attempt, Order::Terminate),
            Action::Kill { attempt, .. } => (*attempt, Order::Kill),
            Action::Settle { attempt, .. } => (*attempt, Order::Forget),
            Action::Yield { .. }
            | Action::Direct { .. }
            | Action::Reserve { .. }
            | Action::Unreserve { .. }
            | Action::PutAside { .. }
            | Action::Remedy { .. }
            | Action::Augment { .. }
            | Action::Abandon { .. }
            | Action::Gate(_) => return,
        };
        self.hands.entry(attempt).or_default().push(order);
    }

    fn fail_commit(&mut self, events: &[Event], fault: LogFault) -> Checked {
        let disk = self.server.disk.clone();
        // The writer is the same; its disk fails now.
        let failing = Server::over(disk, State::default(), Some(fault));
        let entries = events.iter().map(encode).collect();
        let outcome = done(failing.log.append(failing.fence, entries));
        must(matches!(outcome, Err(StoreError::Io { .. })), || {
            "a commit that failed was reported as done".into()
        })
    }

    /// The server dies, and what it had not committed is gone.
    fn crash_back(
        &mut self,
        before: Option<(State, super::Promises)>,
        inputs: Vec<Input>,
    ) -> Checked {
        let (state, promises) = before.expect("kept where a crash comes");
        self.server.state = state;
        self.promises = promises;
        self.crash(inputs)
    }

    /// The server dies and another takes over what is on the disk. Those who got no answer ask again.
    pub(super) fn crash(&mut self, inputs: Vec<Input>) -> Checked {
        self.unanswered.extend(inputs);
        self.hands.clear();
        let recovered = self.recover()?;
        must(recovered == self.server.state, || {
            format!(
                "after a crash the log gives event {} and digest {}, committed was event {} and {}",
                recovered.seq(),
                digest(&encode_state(&recovered)),
                self.server.state.seq(),
                self.server.digest(),
            )
        })?;
        let disk = self.server.disk.clone();
        self.server = Server::over(disk, recovered, None);
        // Nobody answers for a while; a task that asks whether it is current does not start.
        self.now = self
            .now
            .after(antiphon_types::Millis::from_millis(self.draw.below(90_000)));
        if self.draw.one_in(3) {
            self.some_get_no_answer();
        }
        self.take_up();
        self.forget_what_is_over()?;
        // As the live server does first: what was logged may call for a decision that was not, made by the clock of now.
        if !(self.kernel.decide)(&self.server.state).actions.is_empty() {
            self.server.wake_at = Some(self.now);
        }
        self.turn(Vec::new())
    }

    /// What was decided and may not have been carried out.
    fn take_up(&mut self) {
        let mut orders = Vec::new();
        for job in self.server.state.active_jobs() {
            let Some(active) = job.state.active() else {
                continue;
            };
            let of = match &job.state {
                JobState::Stopping {
                    phase: StopPhase::Grace { .. },
                    ..
                } => vec![Order::Look, Order::Terminate],
                JobState::Stopping {
                    phase: StopPhase::Killed,
                    ..
                } => vec![Order::Look, Order::Kill],
                JobState::Starting { .. } => vec![Order::Launch],
                _ => vec![Order::Look],
            };
            orders.push((active.attempt, of));
        }
        self.hands.extend(orders);
    }

    /// The newest image and what follows it, as the live server reads its log.
    fn recover(&self) -> Result<State, Broken> {
        let unread = |error: StoreError| Broken(format!("the log cannot be read: {error}"));
        let mut state = State::default();
        if let Some(header) = done(self.server.disk.images()).map_err(unread)?.first() {
            let image = done(self.server.disk.image(header.seq)).map_err(unread)?;
            state = decode_state(&image.state).map_err(unread)?;
        }
        self.replay(&mut state)?;
        Ok(state)
    }

    fn replay(&self, state: &mut State) -> Checked {
        let unread = |error: StoreError| Broken(format!("the log cannot be read: {error}"));
        loop {
            let entries = done(self.server.disk.read(state.seq().0, PAGE)).map_err(unread)?;
            if entries.is_empty() {
                return Ok(());
            }
            for entry in &entries {
                (self.kernel.apply)(state, &decode(entry)?);
            }
        }
    }

    /// The log from its first event gives the live state, byte for byte.
    pub(super) fn replay_is_equal(&self) -> Checked {
        let mut state = State::default();
        self.replay(&mut state)?;
        let replayed = digest(&encode_state(&state)).to_string();
        let live = self.server.digest();
        must(replayed == live && state == self.server.state, || {
            format!("the log gives digest {replayed}, live is {live}")
        })
    }

    fn keep_image(&mut self) -> Checked {
        let seq = self.server.state.seq().0;
        if seq < self.server.image_at + IMAGE_EVERY {
            return Ok(());
        }
        self.server.image_at = seq;
        let encoded = encode_state(&self.server.state);
        let image = Image {
            seq,
            version: STATE_VERSION,
            digest: digest(&encoded),
            state: encoded,
        };
        let put = done(self.server.log.put_image(self.server.fence, image));
        put.map_err(|error| Broken(format!("an image is refused: {error}")))
    }

    /// Whether anything is decided now.
    pub(super) fn is_deciding(&self) -> bool {
        *self.server.state.mode() == Mode::Deciding
    }
}

fn encode(event: &Event) -> Entry {
    Entry {
        seq: event.seq.0,
        at_ms: event.at.as_millis(),
        version: EVENT_VERSION,
        kind: event.body.kind().to_owned(),
        body: serde_json::to_string(&event.body).expect("an event is plain data"),
    }
}

fn decode(entry: &Entry) -> Result<Event, Broken> {
    event_of(entry).map_err(|error| Broken(error.to_string()))
}

/// A log in memory never waits for anything.
fn done<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("nothing to wait for in memory"),
    }
}
