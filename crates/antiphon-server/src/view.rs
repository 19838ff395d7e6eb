//! What readers see: a second fold over the committed events. Never shows what is not durable, and never decides.

use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};

use antiphon_kernel::State;
use antiphon_types::{Event, Timestamp};
use tokio::sync::broadcast;

use crate::api;
use crate::facts::{Fact, Facts};
use crate::metrics::Metrics;
use crate::notify::Notifier;
use crate::show::VirtualTime;

/// Events kept for readers that fall behind; a reader further back reads the log.
const EVENTS_BUFFERED: usize = 4_096;

/// The committed state, and the stream of events that made it.
pub(crate) struct View {
    state: RwLock<State>,
    facts: Mutex<Facts>,
    metrics: Metrics,
    notifier: Option<Notifier>,
    /// The clock of a simulation that is shown; nothing where this machine's goes.
    time: RwLock<Option<VirtualTime>>,
    events: broadcast::Sender<Arc<Event>>,
}

impl View {
    pub(crate) fn new(state: State) -> Self {
        Self {
            state: RwLock::new(state),
            facts: Mutex::default(),
            metrics: Metrics::default(),
            notifier: None,
            time: RwLock::default(),
            events: broadcast::Sender::new(EVENTS_BUFFERED),
        }
    }

    /// Tells this one of what happens, too.
    pub(crate) fn with_notifier(mut self, notifier: Option<Notifier>) -> Self {
        self.notifier = notifier;
        self
    }

    /// What is counted of the events that were committed since the start.
    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The time as readers see it. The log's own is stamped by whoever writes it.
    pub(crate) fn now(&self) -> Timestamp {
        self.virtual_time().map_or_else(api::now, |time| time.at)
    }

    /// The clock of the simulation that is shown, where one is.
    pub(crate) fn virtual_time(&self) -> Option<VirtualTime> {
        let time = self.time.read();
        *time.expect("nothing can fail while it is written")
    }

    pub(crate) fn set_virtual_time(&self, now: VirtualTime) {
        let time = self.time.write();
        *time.expect("nothing can fail while it is written") = Some(now);
    }

    /// The committed state. Hold it shortly: the event loop waits for it.
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        // A writer panics only where the loop, which folds every event first, has panicked before.
        self.state
            .read()
            .expect("committed events have been applied once before")
    }

    /// Takes in events that are durable.
    pub(crate) fn commit(&self, events: Vec<Event>) {
        let mut state = self
            .state
            .write()
            .expect("committed events have been applied once before");
        let mut known = self
            .facts
            .lock()
            .expect("committed events have been applied once before");
        let facts = events
            .iter()
            .flat_map(|event| known.fold(&mut state, event));
        let facts: Vec<Fact> = facts.collect();
        if let Some(notifier) = &self.notifier {
            facts.iter().for_each(|fact| notifier.tell(&state, fact));
        }
        drop(state);
        facts.iter().for_each(|fact| self.metrics.note(fact));
        for event in events {
            // Nobody listening is no error.
            let _ = self.events.send(Arc::new(event));
        }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }
}
