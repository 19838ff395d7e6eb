//! Which faults can be: shares of at most everything, spans of at least something.

use antiphon_types::Millis;

use super::{Faults, Interval};

/// A value that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {is}: {must}")]
pub struct BadFault {
    /// Table and key.
    pub key: &'static str,
    /// What it says.
    pub is: String,
    /// What would do.
    pub must: &'static str,
}

/// Shares in thousandths.
const SHARE: &str = "give at most 1000, which is all of them";

/// Times between events. A shorter one would fill the log with nothing else.
const SHORTEST: Millis = Millis::from_secs(60);

impl Faults {
    /// Whether all of it can be.
    ///
    /// # Errors
    /// The first value that cannot.
    pub fn check(&self) -> Result<(), BadFault> {
        self.shares()?;
        self.spans()?;
        let times = self.requests.times_permille;
        if !(1_000..=100_000).contains(&times) {
            return bad("requests.times_permille", times, "give 1000 to 100000");
        }
        let jobs = [
            self.bug.map(|bug| bug.share_permille),
            self.data.map(|data| data.share_permille),
            self.memory.map(|memory| memory.share_permille),
        ];
        let flawed: u32 = jobs.into_iter().flatten().sum();
        if flawed > 1_000 {
            let must = "a job has at most one: give shares that add up to at most 1000";
            return bad("bug, data, memory: share_permille", flawed, must);
        }
        let ended = self.loss.map_or(0, |loss| {
            loss.plateau_permille.saturating_add(loss.diverge_permille)
        });
        if ended > 1_000 {
            let must = "a loss does one of them: give shares that add up to at most 1000";
            return bad("loss.plateau_permille, diverge_permille", ended, must);
        }
        if self.maintenance.is_some_and(|plan| plan.nodes == 0) {
            return bad("maintenance.nodes", 0, "give at least 1");
        }
        Ok(())
    }

    fn shares(&self) -> Result<(), BadFault> {
        let (saves, requests) = (&self.checkpoints, &self.requests);
        let shares = [
            ("checkpoints.saving_permille", Some(saves.saving_permille)),
            (
                "checkpoints.attached_permille",
                Some(saves.attached_permille),
            ),
            ("requests.over_permille", Some(requests.over_permille)),
            ("bug.share_permille", self.bug.map(|it| it.share_permille)),
            ("bug.within_permille", self.bug.map(|it| it.within_permille)),
            ("data.share_permille", self.data.map(|it| it.share_permille)),
            (
                "data.within_permille",
                self.data.map(|it| it.within_permille),
            ),
            (
                "memory.share_permille",
                self.memory.map(|it| it.share_permille),
            ),
            (
                "memory.within_permille",
                self.memory.map(|it| it.within_permille),
            ),
            (
                "loss.plateau_permille",
                self.loss.map(|it| it.plateau_permille),
            ),
            (
                "loss.diverge_permille",
                self.loss.map(|it| it.diverge_permille),
            ),
            ("loss.after_permille", self.loss.map(|it| it.after_permille)),
        ];
        for (key, share) in shares {
            if let Some(share) = share.filter(|share| *share > 1_000) {
                return bad(key, share, SHARE);
            }
        }
        let speeds = [
            (
                "memory.speed_permille",
                self.memory.map(|it| it.speed_permille),
            ),
            (
                "straggler.speed_permille",
                self.straggler.map(|it| it.speed_permille),
            ),
        ];
        for (key, speed) in speeds {
            if let Some(speed) = speed.filter(|speed| !(1..=1_000).contains(speed)) {
                return bad(key, speed, "give 1 to 1000, which is full speed");
            }
        }
        Ok(())
    }

    fn spans(&self) -> Result<(), BadFault> {
        let interval = match self.checkpoints.interval {
            Interval::Every(span) => Some(span),
            Interval::Never | Interval::YoungDaly => None,
        };
        let spans = [
            ("checkpoints.interval", interval),
            ("node.mtbf", self.node.map(|it| it.mtbf)),
            ("gpu.mtbf", self.gpu.map(|it| it.mtbf)),
            ("software.mtbf", self.software.map(|it| it.mtbf)),
            ("straggler.mtbf", self.straggler.map(|it| it.mtbf)),
            ("straggler.lasts", self.straggler.map(|it| it.lasts)),
            ("spot.mtbf", self.spot.map(|it| it.mtbf)),
            ("maintenance.every", self.maintenance.map(|it| it.every)),
            ("maintenance.lasts", self.maintenance.map(|it| it.lasts)),
        ];
        for (key, span) in spans {
            if let Some(span) = span.filter(|span| *span < SHORTEST) {
                return bad(key, span, "give a minute or more");
            }
        }
        Ok(())
    }
}

fn bad<T>(key: &'static str, is: impl ToString, must: &'static str) -> Result<T, BadFault> {
    let is = is.to_string();
    Err(BadFault { key, is, must })
}
