//! What makes a job's result an acceptable model, and what was measured of it. Who measures is the trainer's business.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::AttemptId;

/// What a job has to reach so that its result is an acceptable model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accept {
    /// What is measured: `loss`, `eval_loss`, or the name under which the trainer reports it.
    pub metric: String,
    /// On what.
    pub from: AcceptFrom,
    /// On which side of the value it has to lie.
    pub op: AcceptOp,
    /// The value, in millionths.
    pub value_micro: i64,
}

/// On what the metric of an `accept` line is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceptFrom {
    /// On held-out rows: the loss of one category, or the mean over all that are reported at a step.
    Probe {
        /// Which category alone, if one.
        category: Option<String>,
    },
    /// On the training data: the mean loss of the last steps.
    Train,
    /// By an evaluation of the trainer's own, which reports it by name.
    Eval,
}

/// On which side of its value a metric has to lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcceptOp {
    /// At or below.
    AtMost,
    /// At or above.
    AtLeast,
}

/// The best that an attempt has measured so far of what its job's `accept` line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// The attempt.
    pub attempt: AttemptId,
    /// The step at which it was measured.
    pub step: u64,
    /// The metric, in millionths.
    pub value_micro: i64,
}

impl Accept {
    /// Whether a value, in millionths, is acceptable.
    #[must_use]
    pub const fn is_met(&self, value_micro: i64) -> bool {
        match self.op {
            AcceptOp::AtMost => value_micro <= self.value_micro,
            AcceptOp::AtLeast => value_micro >= self.value_micro,
        }
    }

    /// Whether the first value is better than the second.
    #[must_use]
    pub const fn is_better(&self, one: i64, other: i64) -> bool {
        match self.op {
            AcceptOp::AtMost => one < other,
            AcceptOp::AtLeast => one > other,
        }
    }
}

impl AcceptOp {
    /// As it stands in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        }
    }
}

impl fmt::Display for AcceptFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe { category: None } => f.write_str("probe"),
            Self::Probe {
                category: Some(category),
            } => write!(f, "probe/{category}"),
            Self::Train => f.write_str("train"),
            Self::Eval => f.write_str("eval"),
        }
    }
}

impl fmt::Display for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = Decimal(self.value_micro);
        write!(f, "{} {} {value}", self.metric, self.op.name())
    }
}

/// Millionths as people write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal(pub i64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, all) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let fraction = format!("{:06}", all % 1_000_000);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        write!(f, "{sign}{}{point}{fraction}", all / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn millionths_are_written_without_more_digits_than_they_have() {
        let written = [1_200_000, -50_000, 0, 7, 3_000_000].map(|micro| Decimal(micro).to_string());
        assert_eq!(written, ["1.2", "-0.05", "0", "0.000007", "3"]);
    }
}
