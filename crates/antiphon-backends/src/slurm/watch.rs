//! What is known of Slurm's jobs from the last look at all of them. A look that failed changes nothing here, and a job that
//! a look does not show is only suspected: whoever needs to know asks for it by its number.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use antiphon_types::AttemptId;

use super::queue::{Label, Phase, SlurmJob, SlurmJobId};

/// An attempt that is watched.
#[derive(Debug)]
struct Watched {
    job: SlurmJobId,
    label: Label,
    /// Since when a look would show it.
    since: Instant,
    phase: Option<Phase>,
    /// Since when it has been seen waiting.
    pending_since: Option<Instant>,
    /// A look that should have shown it did not.
    missing: bool,
}

/// All attempts that are watched.
#[derive(Debug, Default)]
pub(super) struct Watch {
    attempts: BTreeMap<AttemptId, Watched>,
    changed: BTreeSet<AttemptId>,
}

/// What follows from a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Superfluous {
    /// Jobs that were submitted a second time, because the first time no answer came.
    pub(super) doubled: Vec<SlurmJobId>,
    /// Jobs that Slurm has not started in time.
    pub(super) late: Vec<SlurmJobId>,
}

impl Watch {
    pub(super) fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// Watches an attempt; does nothing where it is watched under this number already.
    pub(super) fn add(&mut self, job: SlurmJobId, label: Label) {
        let known = self.attempts.get(&label.attempt);
        if known.is_some_and(|known| known.job == job && known.label == label) {
            return;
        }
        let attempt = label.attempt;
        let watched = Watched {
            job,
            label,
            since: Instant::now(),
            phase: None,
            pending_since: None,
            missing: false,
        };
        self.attempts.insert(attempt, watched);
    }

    pub(super) fn forget(&mut self, attempt: AttemptId) {
        self.attempts.remove(&attempt);
        self.changed.remove(&attempt);
    }

    pub(super) fn attempts(&self) -> impl Iterator<Item = AttemptId> {
        let over = |phase: &Option<Phase>| matches!(phase, Some(Phase::Over(_)));
        self.attempts
            .iter()
            .filter(move |(_, watched)| !over(&watched.phase))
            .map(|(attempt, _)| *attempt)
    }

    pub(super) fn phase(&self, attempt: AttemptId) -> Option<&Phase> {
        self.attempts.get(&attempt)?.phase.as_ref()
    }

    /// Whether the attempt has to be asked for by its number.
    pub(super) fn is_missing(&self, attempt: AttemptId) -> bool {
        self.attempts
            .get(&attempt)
            .is_some_and(|watched| watched.missing)
    }

    /// What asking for it by its number has shown.
    pub(super) fn settle(&mut self, attempt: AttemptId, phase: Phase) {
        if let Some(watched) = self.attempts.get_mut(&attempt) {
            watched.missing = false;
            watched.since = Instant::now();
            watched.phase = Some(phase);
        }
    }

    /// Takes a look at all jobs that began at `began`. Jobs that wait longer than `patience` are late.
    pub(super) fn take(
        &mut self,
        began: Instant,
        jobs: &[SlurmJob],
        patience: Option<Duration>,
    ) -> Superfluous {
        let mut superfluous = Superfluous::default();
        let by_id: BTreeMap<SlurmJobId, &SlurmJob> = jobs.iter().map(|job| (job.id, job)).collect();
        for (attempt, watched) in &mut self.attempts {
            // Numbers begin anew where the controller has lost its state: the label tells.
            let shown = by_id
                .get(&watched.job)
                .filter(|job| job.label.as_ref() == Some(&watched.label));
            let Some(job) = shown else {
                if matches!(watched.phase, Some(Phase::Over(_))) || watched.since >= began {
                    continue;
                }
                watched.missing = true;
                self.changed.insert(*attempt);
                continue;
            };
            watched.missing = false;
            match &job.phase {
                Phase::Pending(_) => {
                    let since = *watched.pending_since.get_or_insert(began);
                    if patience.is_some_and(|patience| since.elapsed() > patience) {
                        superfluous.late.push(watched.job);
                    }
                }
                Phase::Active | Phase::Over(_) => watched.pending_since = None,
            }
            let moved =
                |phase: &Phase| std::mem::discriminant(phase) != std::mem::discriminant(&job.phase);
            if watched.phase.as_ref().is_none_or(moved) {
                self.changed.insert(*attempt);
            }
            watched.phase = Some(job.phase.clone());
        }
        for job in jobs {
            let Some(label) = &job.label else { continue };
            let Some(watched) = self.attempts.get(&label.attempt) else {
                continue;
            };
            // One that runs is fenced by its task's lock, and ends by itself.
            let waits = matches!(job.phase, Phase::Pending(_));
            if waits && watched.job != job.id && watched.label == *label {
                superfluous.doubled.push(job.id);
            }
        }
        superfluous
    }

    pub(super) fn mark(&mut self, attempt: AttemptId) {
        self.changed.insert(attempt);
    }

    pub(super) fn take_changed(&mut self) -> Vec<AttemptId> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use antiphon_types::Timestamp;

    use super::*;

    fn label() -> Label {
        Label {
            attempt: "job-42.3".parse().unwrap(),
            launched: Timestamp::from_millis(5),
            owner: "me".into(),
        }
    }

    fn job(id: u64, phase: Phase) -> SlurmJob {
        SlurmJob {
            id: SlurmJobId(id),
            phase,
            label: Some(label()),
        }
    }

    fn watch() -> Watch {
        let mut watch = Watch::default();
        watch.add(SlurmJobId(7), label());
        watch
    }

    fn pending() -> Phase {
        Phase::Pending("Resources".into())
    }

    #[test]
    fn a_look_that_began_before_the_submit_says_nothing() {
        let early = Instant::now();
        let mut watch = watch();
        watch.take(early, &[], None);
        assert!(!watch.is_missing(label().attempt));
        assert!(watch.take_changed().is_empty());
        watch.take(Instant::now(), &[], None);
        assert!(watch.is_missing(label().attempt));
        assert_eq!(watch.take_changed(), [label().attempt]);
    }

    /// A controller that was killed shows a job that runs as waiting, for a moment.
    #[test]
    fn a_job_may_go_back_to_waiting_and_on() {
        let mut watch = watch();
        for phase in [Phase::Active, pending(), Phase::Active] {
            let superfluous = watch.take(Instant::now(), &[job(7, phase.clone())], None);
            assert_eq!(superfluous, Superfluous::default());
            assert_eq!(watch.phase(label().attempt), Some(&phase));
            assert!(!watch.is_missing(label().attempt));
        }
    }

    #[test]
    fn a_number_that_was_given_anew_is_not_the_job() {
        let mut watch = watch();
        let foreign = SlurmJob {
            label: None,
            ..job(7, Phase::Active)
        };
        watch.take(Instant::now(), &[foreign], None);
        assert!(watch.is_missing(label().attempt));
    }

    #[test]
    fn what_was_submitted_twice_or_waits_too_long_is_told() {
        let mut watch = watch();
        let jobs = [
            job(7, Phase::Active),
            job(8, pending()),
            job(9, Phase::Active),
        ];
        let superfluous = watch.take(Instant::now(), &jobs, None);
        assert_eq!(superfluous.doubled, [SlurmJobId(8)]);
        assert!(superfluous.late.is_empty());
        let late = watch.take(Instant::now(), &[job(7, pending())], Some(Duration::ZERO));
        assert_eq!(late.late, [SlurmJobId(7)]);
    }
}
