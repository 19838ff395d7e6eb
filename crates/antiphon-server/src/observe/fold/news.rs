//! What must have happened to a job between two looks, from where it stood and what is seen of it now.

use antiphon_backends::observe::{Run, SeenJob, SeenPhase};
use antiphon_kernel::{Job, JobState};
use antiphon_types::{Millis, Timestamp};

use super::{Fold, admission};

/// Something that happened to a job since the last look. What frees comes before what takes, where both are of one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    End,
    Submit,
    Start,
}

impl Fold<'_> {
    /// What must have happened since the last look.
    pub(super) fn news(
        &self,
        job: Option<&Job>,
        seen: &SeenJob,
        first: bool,
    ) -> Vec<(Timestamp, What)> {
        use What::{End, Start, Submit};
        let living = job.filter(|job| !job.state.is_ended());
        let active = living.and_then(|job| job.state.active());
        let run = match &seen.phase {
            SeenPhase::Running(run) => Some(run),
            SeenPhase::Ended { run, .. } => run.as_ref(),
            SeenPhase::Waiting | SeenPhase::KeptBack => None,
        };
        let mut news = Vec::new();
        match (living, &seen.phase) {
            (None, SeenPhase::Ended { at, .. }) => {
                // What had ended before antiphon came says nothing of now; nor does the end that it has seen.
                if first || job.is_some() {
                    return news;
                }
                news.push((seen.submitted, Submit));
                news.extend(run.map(|run| (run.since, Start)));
                news.push((after(*at, seen.submitted, run), End));
            }
            (None, SeenPhase::Waiting | SeenPhase::KeptBack) => news.push((seen.submitted, Submit)),
            (None, SeenPhase::Running(run)) => {
                news.push((seen.submitted, Submit));
                news.push((run.since, Start));
            }
            (Some(job), phase) => {
                let same = |run: &Run| {
                    active.is_some_and(|active| {
                        let nodes = active.allocation.tasks.iter().map(|task| &task.node.0);
                        run.since <= active.launched
                            && nodes.eq(run.held.iter().map(|held| &held.node))
                    })
                };
                match (active, run) {
                    // It was put back into the queue, or runs elsewhere than it did.
                    (Some(_), None) if !matches!(phase, SeenPhase::Ended { .. }) => {
                        news.push((self.now, End));
                    }
                    (Some(_), Some(run))
                        if !same(run) && matches!(phase, SeenPhase::Running(_)) =>
                    {
                        news.push((run.since, End));
                        news.push((run.since, Start));
                    }
                    (None, Some(run)) => news.push((run.since, Start)),
                    (Some(_) | None, Some(_) | None) => (),
                }
                match phase {
                    SeenPhase::Ended { at, .. } => {
                        news.push((after(*at, seen.submitted, run), End));
                    }
                    SeenPhase::Waiting | SeenPhase::KeptBack if active.is_none() => {
                        let held = matches!(job.state, JobState::Held { .. });
                        let kept_back = *phase == SeenPhase::KeptBack;
                        // One that antiphon would refuse stays held as long as it would.
                        let refused = || admission(&self.done.state, &job.spec).is_some();
                        let stays = held == kept_back || (held && refused());
                        if !stays || !self.is_of(job, seen) {
                            news.push((self.now, Submit));
                        }
                    }
                    SeenPhase::Waiting | SeenPhase::KeptBack | SeenPhase::Running(_) => (),
                }
            }
        }
        news
    }
}

/// When it ended: not before it began, where both are of one second.
fn after(at: Timestamp, submitted: Timestamp, run: Option<&Run>) -> Timestamp {
    let began = run.map_or(submitted, |run| run.since.max(submitted));
    at.max(began.after(Millis::from_millis(1)))
}
