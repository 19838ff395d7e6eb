//! What to change about a plan, with numbers: each piece of computed advice is another plan, made and compared with this one.
//! Rules of thumb name who says so and are told apart. Changes nothing by itself.

mod computed;
mod rules;

use antiphon_types::training::TrainingSpec;

use crate::cost;
use crate::plan::Plan;
use crate::profile::Frameworks;
use crate::roles;
use crate::search::{self, Offer};

pub use rules::{Claim, claim};

/// One piece of advice.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// Where it comes from.
    pub kind: Kind,
    /// What it is about.
    pub what: &'static str,
    /// What changes with it.
    pub effect: Effect,
    /// All of it, with numbers.
    pub sentence: String,
}

/// Where a piece of advice comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The other plan was made.
    Computed,
    /// Somebody's experience.
    RuleOfThumb {
        /// Whose.
        source: &'static str,
    },
}

/// What changes with a piece of advice; below 0 where it costs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Effect {
    /// Bytes of a GPU's memory that it saves.
    pub memory_bytes: f64,
    /// Share of the step's tokens a second that it gains.
    pub speed: f64,
    /// Share of the cost that it saves.
    pub cost: f64,
    /// Whether it makes a run fit that does not.
    pub makes_fit: bool,
}

/// How wide the task is that a model is trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breadth {
    /// Classification, extraction.
    Narrow,
    /// Code, summaries.
    Reasoning,
    /// Chat, many turns.
    Open,
}

/// What is asked for advice.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// What was planned.
    pub spec: &'a TrainingSpec,
    /// The plan.
    pub plan: &'a Plan,
    /// How wide its task is, where that is known.
    pub breadth: Option<Breadth>,
    /// Other GPUs that can be had.
    pub offers: &'a [Offer],
    /// What frameworks do.
    pub frameworks: &'static Frameworks,
}

impl Asked<'_> {
    /// Steps of the whole run, where its length is known.
    fn steps(&self) -> Option<f64> {
        cost::steps(&self.spec.length, &self.plan.run, &self.plan.speed)
    }

    /// Tokens of the whole run, where its length is known.
    fn tokens(&self) -> Option<f64> {
        Some(self.steps()? * self.plan.speed.tokens)
    }

    /// US dollars of the whole run, where length and price are known.
    fn usd(&self) -> Option<f64> {
        let usd_h = self.plan.machine.usd_h * search::held(&self.plan.run);
        let steps = self.steps()?;
        (usd_h > 0.0).then(|| steps * self.plan.speed.step_ms / 3.6e6 * usd_h)
    }

    /// GPUs of all roles.
    fn gpus(&self) -> u64 {
        self.plan.run.gpus + roles::apart(&self.plan.run)
    }

    /// Tokens a second of all GPUs.
    fn tokens_per_s(&self) -> f64 {
        self.plan.speed.tokens / self.plan.speed.step_ms * 1e3
    }

    /// GPU-seconds of a token.
    fn gpu_seconds(&self) -> f64 {
        1.0 / self.plan.speed.tokens_per_s_per_gpu
    }
}

/// Pieces of advice that are worth a reader's time.
const SHOWN: usize = 8;

/// Advice on a plan, what is worth most first.
#[must_use]
pub fn advise(asked: &Asked) -> Vec<Advice> {
    let mut advice = computed::all(asked);
    advice.extend(rules::all(asked));
    let usable = asked.plan.memory.usable;
    advice.sort_by(|a, b| worth(b, usable).total_cmp(&worth(a, usable)));
    advice.truncate(SHOWN);
    advice
}

/// To fit is worth more than anything; then cost, then speed, then memory that nothing needs yet. What somebody says counts
/// half of what was computed.
fn worth(advice: &Advice, usable: f64) -> f64 {
    let Effect {
        memory_bytes,
        speed,
        cost,
        makes_fit,
    } = advice.effect;
    let fit = if makes_fit { 10.0 } else { 0.0 };
    // A gain in speed at the same GPUs is the same gain in cost: it counts once.
    let gain = cost.max(if cost == 0.0 { speed } else { 0.0 });
    let worth = fit + gain + 0.3 * memory_bytes / usable;
    match advice.kind {
        Kind::Computed => worth,
        Kind::RuleOfThumb { .. } => worth / 2.0,
    }
}
