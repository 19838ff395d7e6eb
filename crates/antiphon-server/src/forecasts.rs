//! When waiting jobs will start: the kernel's forecast, made beside the loop every few seconds and shared by all readers.
//! Also the place where questions are answered that need a copy of the state: one at a time, and never on the loop.

use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use antiphon_kernel::forecast::{Forecast, Foresight, Start};
use antiphon_kernel::{JobState, State, apply};
use antiphon_types::{Body, Event, Millis, Seq, Timestamp};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::event_loop::{Refused, caught};
use crate::view::View;

/// Between two forecasts, at least.
const EVERY: Duration = Duration::from_secs(5);
/// Between two looks whether one is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Pauses a forecast at least so many times as long as it took: it uses a fifth of one core at most.
const PAUSE_TIMES: u32 = 4;
/// A forecast older than this is made again though nothing was committed: who should have ended meanwhile has not.
const STALE: Millis = Millis::from_secs(60);

/// The newest forecast, and who may copy the state.
pub(crate) struct Forecasts {
    latest: RwLock<Option<Arc<Forecast>>>,
    /// How forecasts turned out since this server began: what is shown is corrected by it.
    foresight: Arc<Mutex<Foresight>>,
    copies: Semaphore,
}

impl Default for Forecasts {
    fn default() -> Self {
        Self {
            latest: RwLock::default(),
            foresight: Arc::default(),
            copies: Semaphore::new(1),
        }
    }
}

impl Forecasts {
    /// The newest forecast, where one has been made.
    pub(crate) fn latest(&self) -> Option<Arc<Forecast>> {
        let latest = self.latest.read();
        latest
            .expect("nothing can fail while it is written")
            .clone()
    }

    /// Corrects a start that was worked out for one job alone.
    pub(crate) fn corrects(&self) -> impl Fn(Start, Timestamp) -> Start + Send + 'static {
        let foresight = self.foresight.clone();
        move |start, at| locked(&foresight).correct(start, at)
    }

    /// Waits until nobody else works on a copy of a state: each takes memory and a core.
    pub(crate) async fn turn(&self) -> Result<SemaphorePermit<'_>, Refused> {
        self.copies.acquire().await.map_err(|_| Refused::Stopping)
    }

    /// Answers a question on a copy of the committed state, brought up to now, beside whatever else runs.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        view: &Arc<View>,
        question: impl FnOnce(State) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let _turn = self.turn().await?;
        let view = view.clone();
        let answer = tokio::task::spawn_blocking(move || {
            caught(|| {
                let copy = copy(&view);
                question(copy)
            })
        });
        answer
            .await
            .map_err(|_| Refused::Stopping)?
            .map_err(Refused::Bug)
    }

    /// Makes forecasts for as long as it is polled.
    pub(crate) async fn run(&self, view: Arc<View>) {
        let mut seq = None;
        let mut rest = LOOK_EVERY;
        loop {
            tokio::time::sleep(rest).await;
            rest = LOOK_EVERY;
            let made_at = self.latest().map(|forecast| forecast.at);
            let stale = made_at.is_none_or(|at| view.now().since(at) > STALE);
            let committed = {
                let state = view.state();
                let due = seq != Some(state.seq()) || stale;
                (due && anybody_waits(&state)).then(|| state.seq())
            };
            let Some(committed) = committed else { continue };
            let began = Instant::now();
            // Noted even where it fails: the same state would fail again.
            seq = Some(committed);
            let foresight = self.foresight.clone();
            let look = move |state: State| locked(&foresight).look(&state).0;
            match self.ask(&view, look).await {
                Ok(made) => {
                    let latest = self.latest.write();
                    *latest.expect("nothing can fail while it is written") = Some(Arc::new(made));
                }
                Err(error) => {
                    tracing::error!(%error, "the starts of waiting jobs could not be forecast")
                }
            }
            let took = began.elapsed();
            tracing::debug!(?took, seq = committed.0, "forecast");
            rest = EVERY.max(took * PAUSE_TIMES);
        }
    }
}

/// What was learned. A forecast that failed halfway leaves counts behind, which are as good as any.
fn locked(foresight: &Mutex<Foresight>) -> std::sync::MutexGuard<'_, Foresight> {
    foresight
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn anybody_waits(state: &State) -> bool {
    let waits = |job: &antiphon_kernel::Job| matches!(job.state, JobState::Pending { .. });
    state.queue_length() > 0 || state.jobs().values().any(waits)
}

/// A copy of the committed state as it stands now: the log's own time is that of its last event.
fn copy(view: &View) -> State {
    let mut copy = view.state().clone();
    let event = Event {
        seq: Seq(copy.seq().0 + 1),
        at: view.now().max(copy.now()),
        body: Body::Tick,
    };
    apply(&mut copy, &event);
    copy
}
