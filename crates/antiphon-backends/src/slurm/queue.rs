//! Slurm jobs as `squeue` and `sacct` print them, a line each. Tells what lives from what is over, and concludes nothing
//! from what is not there.

use std::collections::BTreeMap;

use antiphon_types::{AttemptId, Timestamp};

/// What `squeue -o` is asked for. The comment stands last: it alone may hold the sign between the fields.
pub(super) const FORMAT: &str = "%i|%T|%r|%k";

/// What `sacct -o` is asked for.
pub(super) const SACCT_FORMAT: &str = "JobIDRaw,State";

/// Slurm's number of a job; that of its first component where it has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlurmJobId(pub(super) u64);

impl std::fmt::Display for SlurmJobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// How far Slurm is with a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits, with Slurm's reason.
    Pending(String),
    /// Holds its nodes, also while it ends.
    Active,
    /// Holds nothing any more; with Slurm's word for how that came.
    Over(String),
}

/// One Slurm job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlurmJob {
    pub(super) id: SlurmJobId,
    pub(super) phase: Phase,
    /// Whose it is, where antiphon made it.
    pub(super) label: Option<Label>,
}

/// What antiphon writes into the comment of its Slurm jobs, to know them again whatever it has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) attempt: AttemptId,
    /// When the launch was decided: tells histories of the log apart.
    pub(super) launched: Timestamp,
    /// Which antiphon: several may use one Slurm.
    pub(super) owner: String,
}

const MARK: &str = "antiphon";

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (attempt, launched, owner) = (self.attempt, self.launched.as_millis(), &self.owner);
        write!(f, "{MARK} {attempt} {launched} {owner}")
    }
}

impl Label {
    fn parse(comment: &str) -> Option<Self> {
        let words: Vec<&str> = comment.split(' ').collect();
        let [MARK, attempt, launched, owner] = words.as_slice() else {
            return None;
        };
        Some(Self {
            attempt: attempt.parse().ok()?,
            launched: Timestamp::from_millis(launched.parse().ok()?),
            owner: (*owner).to_owned(),
        })
    }
}

/// Reads lines in [`FORMAT`]. The components of a job that has several become one, which lives while any of them does.
/// A line that cannot be read is passed over: a job that is not listed is asked for by itself, never taken for gone.
pub(super) fn parse(text: &str) -> Vec<SlurmJob> {
    let mut jobs: BTreeMap<SlurmJobId, SlurmJob> = BTreeMap::new();
    for job in text.lines().filter_map(line) {
        match jobs.get_mut(&job.id) {
            None => drop(jobs.insert(job.id, job)),
            Some(known) => {
                let further = |phase: &Phase| match phase {
                    Phase::Active => 2,
                    Phase::Pending(_) => 1,
                    Phase::Over(_) => 0,
                };
                if further(&job.phase) > further(&known.phase) {
                    known.phase = job.phase;
                }
            }
        }
    }
    jobs.into_values().collect()
}

fn line(line: &str) -> Option<SlurmJob> {
    let mut fields = line.splitn(4, '|');
    let id = id(fields.next()?)?;
    let state = fields.next()?;
    let reason = fields.next()?;
    Some(SlurmJob {
        id,
        phase: phase(state, reason),
        label: Label::parse(fields.next()?.trim_end()),
    })
}

/// Reads lines in [`SACCT_FORMAT`], as `sacct --parsable2 --noheader --allocations` prints them: the last word on a job.
pub(super) fn parse_sacct(text: &str, wanted: SlurmJobId) -> Option<Phase> {
    let mut of_wanted = text.lines().rev().filter_map(|line| {
        let (job, state) = line.split_once('|')?;
        // `CANCELLED by 1000`
        (id(job)? == wanted).then(|| phase(state.split(' ').next().unwrap_or(state), ""))
    });
    of_wanted.next()
}

/// `12`, `12+1` of a job with several components, `12_3` of an array.
fn id(text: &str) -> Option<SlurmJobId> {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let digits = &text[..digits.unwrap_or(text.len())];
    digits.parse().ok().map(SlurmJobId)
}

fn phase(state: &str, reason: &str) -> Phase {
    match state {
        "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT"
        | "RESV_DEL_HOLD" => Phase::Pending(reason.to_owned()),
        "BOOT_FAIL" | "CANCELLED" | "COMPLETED" | "DEADLINE" | "FAILED" | "NODE_FAIL"
        | "OUT_OF_MEMORY" | "PREEMPTED" | "REVOKED" | "TIMEOUT" => Phase::Over(state.to_owned()),
        // A word that is not known is one of a job that lives: only the known ends are ends.
        _ => Phase::Active,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_whose_job_it_is_and_how_far() {
        let text = "\
17|PENDING|Resources|antiphon job-42.3 1764000000000 1f2e
18|RUNNING|None|(null)
19+0|COMPLETED|None|antiphon job-43.1 5 1f2e
19+1|COMPLETING|None|antiphon job-43.1 5 1f2e
20_[1-9]|PENDING|Priority|a | comment of somebody
21|NODE_FAIL|None|antiphon job-44 5 1f2e
22|SOMETHING_NEW|None|
slurm_load_jobs error: Unable to contact slurm controller (connect failure)

";
        let jobs = parse(text);
        let of = |id: u64| jobs.iter().find(|job| job.id.0 == id).unwrap();
        assert_eq!(jobs.len(), 6);
        assert_eq!(of(17).phase, Phase::Pending("Resources".into()));
        let label = of(17).label.clone().unwrap();
        assert_eq!(label.to_string(), "antiphon job-42.3 1764000000000 1f2e");
        assert_eq!((&of(18).label, &of(18).phase), (&None, &Phase::Active));
        // One component still ends: the job lives.
        assert_eq!(of(19).phase, Phase::Active);
        assert_eq!(of(20).phase, Phase::Pending("Priority".into()));
        assert_eq!(of(21).phase, Phase::Over("NODE_FAIL".into()));
        assert_eq!(of(21).label, None, "no attempt, no label");
        assert_eq!(of(22).phase, Phase::Active);
    }

    #[test]
    fn the_history_says_how_a_job_ended() {
        let text = "17|COMPLETED\n18|CANCELLED by 1000\n19+0|NODE_FAIL\n";
        let of = |id: u64| parse_sacct(text, SlurmJobId(id));
        assert_eq!(of(17), Some(Phase::Over("COMPLETED".into())));
        assert_eq!(of(18), Some(Phase::Over("CANCELLED".into())));
        assert_eq!(of(19), Some(Phase::Over("NODE_FAIL".into())));
        assert_eq!(of(20), None);
    }
}
