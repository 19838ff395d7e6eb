//! What readers see: a second fold over the committed events. Never shows what is not durable, and never decides.

use std::sync::{Arc, RwLock, RwLockReadGuard};

use antiphon_kernel::{State, apply};
use antiphon_types::Event;
use tokio::sync::broadcast;

/// Events kept for readers that fall behind; a reader further back reads the log.
const EVENTS_BUFFERED: usize = 4_096;

/// The committed state, and the stream of events that made it.
pub(crate) struct View {
    state: RwLock<State>,
    events: broadcast::Sender<Arc<Event>>,
}

impl View {
    pub(crate) fn new(state: State) -> Self {
        Self {
            state: RwLock::new(state),
            events: broadcast::Sender::new(EVENTS_BUFFERED),
        }
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
        for event in &events {
            apply(&mut state, event);
        }
        drop(state);
        for event in events {
            // Nobody listening is no error.
            let _ = self.events.send(Arc::new(event));
        }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }
}
