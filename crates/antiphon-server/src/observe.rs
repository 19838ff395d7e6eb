//! A server that only observes: looks at another scheduler's cluster again and again, folds what it sees into a state of
//! antiphon's, and works out beside it what antiphon would do. There is no backend and no executor here: nothing that it
//! could start, stop or change a job with.

mod fold;
mod would;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use antiphon_backends::observe::{Observe, Picture, SeenJob, SeenPhase};
use antiphon_kernel::State;
use antiphon_store::{Fence, Log, StoreError};
use antiphon_types::{JobId, Millis, NodeName, Timestamp};
use tokio::sync::mpsc;

pub(crate) use self::fold::{Settings, key};
pub(crate) use self::would::{Proposal, Would};
use crate::api::now;
use crate::event_loop::{Input, Refused, caught, encode};
use crate::executor::chain;
use crate::forecasts::Forecasts;
use crate::recovery::ImageKeeper;
use crate::view::View;

/// Rests at least so many times as long as a look took: it takes a tenth of the other scheduler's time at most.
const REST_TIMES: u32 = 10;
/// Events of one commit.
const BATCH: usize = 10_000;

/// What is known beside the state, for readers.
pub(crate) struct Observed {
    scheduler: &'static str,
    book: RwLock<Arc<Book>>,
}

/// What the last look that was answered found, and how old that is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Book {
    /// When that look began.
    pub(crate) seen_at: Timestamp,
    /// How long it took.
    pub(crate) took: Millis,
    /// Looks that were answered.
    pub(crate) looks: u64,
    /// Why none has been answered since, where one was tried.
    pub(crate) error: Option<String>,
    /// What is there and not shown.
    pub(crate) left_out: Vec<String>,
    /// What the other scheduler says of each job.
    pub(crate) jobs: BTreeMap<JobId, Word>,
    /// The other scheduler's partitions, by node.
    pub(crate) partitions: BTreeMap<NodeName, Vec<String>>,
    /// What antiphon would do.
    pub(crate) proposal: Proposal,
    /// Why that is not known.
    pub(crate) no_proposal: Option<String>,
}

/// What the other scheduler says of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    /// Its id there.
    pub(crate) key: String,
    /// Why it waits, in the scheduler's words.
    pub(crate) reason: Option<String>,
    /// Whether it waits for more than room.
    pub(crate) kept_back: bool,
    /// Its priority there.
    pub(crate) priority: u64,
    /// Its place among those that wait for room, from 1.
    pub(crate) place: Option<usize>,
    /// When it is to start there.
    pub(crate) starts: Option<Timestamp>,
    /// The partitions that it may run in.
    pub(crate) partitions: Vec<String>,
    /// What it asks for and antiphon does not weigh.
    pub(crate) not_weighed: Vec<String>,
    /// Why antiphon would refuse it.
    pub(crate) refused: Option<String>,
}

impl Observed {
    pub(crate) fn new(scheduler: &'static str) -> Self {
        Self {
            scheduler,
            book: RwLock::default(),
        }
    }

    /// Whose cluster it is.
    pub(crate) const fn scheduler(&self) -> &'static str {
        self.scheduler
    }

    /// What is known now.
    pub(crate) fn book(&self) -> Arc<Book> {
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        book.clone()
    }

    fn change(&self, change: impl FnOnce(&mut Book)) {
        let mut book = self.book.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut book));
    }
}

/// The state that is seen and what it takes to see on.
pub(crate) struct Observing {
    pub(crate) observer: Arc<dyn Observe>,
    pub(crate) observed: Arc<Observed>,
    pub(crate) settings: Settings,
    pub(crate) state: State,
    pub(crate) view: Arc<View>,
    pub(crate) forecasts: Arc<Forecasts>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) fence: Fence,
    pub(crate) images: ImageKeeper,
    pub(crate) inputs: mpsc::Receiver<Input>,
}

impl Observing {
    /// Looks until it is told to finish.
    ///
    /// # Errors
    /// Where the log cannot be written.
    pub(crate) async fn run(mut self) -> Result<(), StoreError> {
        let least = Duration::from_millis(self.observer.rest().as_millis());
        let mut rest = least;
        loop {
            let observer = self.observer.clone();
            let pause = rest;
            let mut look = std::pin::pin!(async move {
                tokio::time::sleep(pause).await;
                let began = (now(), Instant::now());
                (observer.look().await, began)
            });
            let (picture, (at, began)) = loop {
                tokio::select! {
                    seen = &mut look => break seen,
                    input = self.inputs.recv() => if is_last(input, self.observed.scheduler) {
                        return self.images.finish(self.state).await;
                    },
                }
            };
            let took = began.elapsed();
            rest = least.max(took * REST_TIMES);
            match picture {
                Ok(picture) => self.take(picture, at, took).await?,
                Err(error) => {
                    // Says nothing about any job: what was seen last stays, and its age is shown.
                    let error = chain(&error);
                    tracing::warn!(
                        error,
                        "the cluster could not be looked at; what was seen last stays"
                    );
                    self.observed.change(|book| book.error = Some(error));
                }
            }
        }
    }

    /// Takes in what a look found.
    ///
    /// # Errors
    /// Where the log cannot be written.
    pub(crate) async fn take(
        &mut self,
        picture: Picture,
        at: Timestamp,
        took: Duration,
    ) -> Result<(), StoreError> {
        let picture = Arc::new(picture);
        let folded = {
            let (state, picture) = (self.state.clone(), picture.clone());
            let (settings, scheduler) = (self.settings.clone(), self.observed.scheduler);
            let fold = move || caught(|| fold::fold(state, &picture, scheduler, &settings, at));
            tokio::task::spawn_blocking(fold).await
        };
        let folded = match folded {
            Ok(Ok(folded)) => folded,
            Ok(Err(bug)) => {
                tracing::error!(bug, "a bug was caught: what was seen cannot be shown");
                self.observed.change(|book| {
                    book.error = Some(format!(
                        "a bug was caught, and what was seen cannot be shown: {bug}"
                    ));
                });
                return Ok(());
            }
            // The runtime is shutting down.
            Err(_) => return Ok(()),
        };
        for events in folded.events.chunks(BATCH) {
            let entries = events.iter().map(encode).collect();
            self.log.append(self.fence, entries).await?;
            self.view.commit(events.to_vec());
        }
        self.state = folded.state;
        self.images.after_commit(&self.state);
        let words = words(&picture, &folded.jobs, &folded.refused);
        let proposal = self
            .forecasts
            .ask(&self.view, would::would)
            .await
            .and_then(|made| made.map_err(Refused::Bug));
        self.observed.change(|book| {
            book.seen_at = at;
            book.took = Millis::from_millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            book.looks += 1;
            book.error = None;
            book.left_out.clone_from(&picture.left_out);
            book.left_out.extend(folded.left_out);
            book.jobs = words;
            let nodes = picture.nodes.iter();
            let nodes = nodes.map(|node| (node.spec.name.clone(), node.partitions.clone()));
            book.partitions = nodes.collect();
            match proposal {
                Ok(proposal) => (book.proposal, book.no_proposal) = (proposal, None),
                Err(error) => {
                    tracing::error!(%error, "what antiphon would do is not known");
                    (book.proposal, book.no_proposal) =
                        (Proposal::default(), Some(error.to_string()));
                }
            }
        });
        Ok(())
    }
}

/// Whether an input is the last. Nobody else has anything to say here.
fn is_last(input: Option<Input>, scheduler: &'static str) -> bool {
    match input {
        Some(Input::Command { reply, .. }) => {
            let _ = reply.send(Err(Refused::Observes { scheduler }));
            false
        }
        Some(Input::Observation(..) | Input::Finding(_)) => false,
        Some(Input::Finish) | None => true,
    }
}

/// What is said there of each job, and its place among those that wait for room: the highest priority first, then the oldest.
fn words(
    picture: &Picture,
    jobs: &BTreeMap<usize, JobId>,
    refused: &BTreeMap<JobId, String>,
) -> BTreeMap<JobId, Word> {
    let seen = || jobs.iter().map(|(place, id)| (*id, &picture.jobs[*place]));
    let mut waiting: Vec<(JobId, &SeenJob)> = seen()
        .filter(|(_, job)| job.phase == SeenPhase::Waiting)
        .collect();
    waiting.sort_by_key(|(id, job)| (std::cmp::Reverse(job.priority), job.submitted, *id));
    let places: BTreeMap<JobId, usize> = (1..)
        .zip(waiting)
        .map(|(place, (id, _))| (id, place))
        .collect();
    seen()
        .map(|(id, job)| {
            let word = Word {
                key: job.key.clone(),
                reason: job.reason.clone(),
                kept_back: job.phase == SeenPhase::KeptBack,
                priority: job.priority,
                place: places.get(&id).copied(),
                starts: job.starts,
                partitions: job.partitions.clone(),
                not_weighed: job.not_weighed.clone(),
                refused: refused.get(&id).cloned(),
            };
            (id, word)
        })
        .collect()
}
