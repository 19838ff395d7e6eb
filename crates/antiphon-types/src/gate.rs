//! The numbers by which the platform is judged, their redlines, and the gate that keeps new best-effort jobs back while one of
//! them is over its redline. Data: the kernel measures and decides.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Millis, Timestamp};

/// A number with a redline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Number {
    /// Jobs that were completed, of those that were completed or ended by the platform's fault.
    CompletionRate,
    /// From the demand for a checkpoint, or the start of a save, to its acknowledgement.
    TimeToCheckpoint,
    /// From the launch of a service or production job to its start.
    DelayProduction,
    /// The same of a standard or best-effort job.
    DelayBestEffort,
}

impl Number {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::CompletionRate,
        Self::TimeToCheckpoint,
        Self::DelayProduction,
        Self::DelayBestEffort,
    ];

    /// The name that scripts see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CompletionRate => "completion_rate",
            Self::TimeToCheckpoint => "time_to_checkpoint",
            Self::DelayProduction => "scheduling_delay_production",
            Self::DelayBestEffort => "scheduling_delay_best_effort",
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::CompletionRate => "job completion rate",
            Self::TimeToCheckpoint => "time to checkpoint",
            Self::DelayProduction => "scheduling delay of production",
            Self::DelayBestEffort => "scheduling delay of best-effort",
        })
    }
}

/// What a number reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// A share, in thousandths.
    Permille(u32),
    /// A span of time.
    Span(Millis),
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permille(share) => write!(f, "{}.{} %", share / 10, share % 10),
            Self::Span(span) => write!(f, "{span}"),
        }
    }
}

/// Redlines, and what the gate does about them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatePolicy {
    /// Whether new best-effort jobs are kept back at all.
    pub enabled: bool,
    /// Least share of jobs that are completed without a human, in percent.
    pub completion_percent_min: u32,
    /// Longest time to a checkpoint.
    pub checkpoint_ms_max: Millis,
    /// Longest scheduling delay of service and production jobs.
    pub delay_production_ms_max: Millis,
    /// Longest scheduling delay of standard and best-effort jobs.
    pub delay_best_effort_ms_max: Millis,
    /// How long a number has to be over its redline: a hiccup is no trouble.
    pub over_ms: Millis,
    /// Samples within the last hour below which a number says nothing.
    pub samples_min: u32,
    /// How long the gate is shut at most: what has not recovered by then is not helped by it.
    pub shut_ms_max: Millis,
}

impl Default for GatePolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            completion_percent_min: 85,
            checkpoint_ms_max: Millis::from_secs(180),
            delay_production_ms_max: Millis::from_secs(30),
            delay_best_effort_ms_max: Millis::from_secs(300),
            over_ms: Millis::from_secs(900),
            samples_min: 20,
            shut_ms_max: Millis::from_secs(7_200),
        }
    }
}

impl GatePolicy {
    /// The redline of a number.
    #[must_use]
    pub const fn redline(&self, number: Number) -> Reading {
        match number {
            Number::CompletionRate => {
                Reading::Permille(self.completion_percent_min.saturating_mul(10))
            }
            Number::TimeToCheckpoint => Reading::Span(self.checkpoint_ms_max),
            Number::DelayProduction => Reading::Span(self.delay_production_ms_max),
            Number::DelayBestEffort => Reading::Span(self.delay_best_effort_ms_max),
        }
    }

    /// Whether a reading lies on the wrong side of its number's redline.
    #[must_use]
    pub fn is_over(&self, number: Number, reading: Reading) -> bool {
        let redline = self.redline(number);
        match number {
            Number::CompletionRate => reading < redline,
            Number::TimeToCheckpoint | Number::DelayProduction | Number::DelayBestEffort => {
                reading > redline
            }
        }
    }
}

/// What the kernel decided about the gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateChange {
    /// New best-effort jobs are kept back from now on.
    Shut(GateShut),
    /// They are not any more, and those that were may start.
    Open {
        /// Why.
        why: GateOpened,
    },
}

/// Why the gate is shut, and until when at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateShut {
    /// The number that is over its redline.
    pub number: Number,
    /// What it read when the gate was shut.
    pub value: Reading,
    /// Its redline then.
    pub redline: Reading,
    /// Samples behind it.
    pub samples: u32,
    /// Since when it is over.
    pub over_since: Timestamp,
    /// When the gate was shut.
    pub since: Timestamp,
    /// When it opens at the latest.
    pub until: Timestamp,
}

/// Why the gate was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateOpened {
    /// The number is within its redline again, or too few samples are left to say so.
    Recovered,
    /// It was shut for as long as it may be.
    TooLong,
    /// An operator switched it off.
    SwitchedOff,
}

impl fmt::Display for GateChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shut(shut) => write!(
                f,
                "shut for new best-effort jobs: the {} is {}, over its redline of {} for {} ({} samples)",
                shut.number,
                shut.value,
                shut.redline,
                shut.since.since(shut.over_since),
                shut.samples
            ),
            Self::Open { why } => f.write_str(match why {
                GateOpened::Recovered => "open: the number has recovered",
                GateOpened::TooLong => "open: it was shut for as long as it may be",
                GateOpened::SwitchedOff => "open: it was switched off",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_over_below_its_redline_and_a_span_above_it() {
        let policy = GatePolicy::default();
        let rate = |permille| policy.is_over(Number::CompletionRate, Reading::Permille(permille));
        assert!(rate(849) && !rate(850) && !rate(1_000));
        let delay = |s| {
            let span = Reading::Span(Millis::from_secs(s));
            policy.is_over(Number::DelayProduction, span)
        };
        assert!(delay(31) && !delay(30) && !delay(0));
    }

    #[test]
    fn readings_are_told_in_their_units() {
        assert_eq!(Reading::Permille(842).to_string(), "84.2 %");
        assert_eq!(Reading::Span(Millis::from_secs(45)).to_string(), "45s");
    }
}
