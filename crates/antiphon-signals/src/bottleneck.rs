//! The bottleneck rule: what a step's time goes into, and which part of it is worth doing something about.
//!
//! Shares are sums over a window of steps of all tasks: part / step. `communication_ms` is *exposed* communication, which
//! the step waits for; what overlaps with computing costs nothing. `data_wait_ms` is the wait for the next batch.
//!
//! A part rules from a share on at which others than compute are usually worth mending: communication from 30 % (tensor
//! and data parallel training of a good layout stays below), data from 15 % (a loader that keeps up costs next to
//! nothing), the optimizer from 20 % (it grows with weights alone, so that accumulation dilutes it). Of several that do,
//! the one with the largest multiple of its bound rules. It is told on change alone, after two windows, and a run that
//! computes, as it should, is told only after something else was.

use antiphon_types::{Rule, Timestamp, Verdict};

use crate::conclusion::Conclusion;

/// Signals of one window.
const WINDOW: u32 = 64;
/// Windows in a row that have to agree.
const WINDOWS_IN_ROW: u32 = 2;
/// What rules goes on to rule down to this part of its bound.
const HYSTERESIS: f64 = 0.8;
/// Share from which communication rules.
const COMMUNICATION: f64 = 0.30;
/// Share from which waiting for data rules.
const DATA: f64 = 0.15;
/// Share from which the optimizer rules.
const OPTIMIZER: f64 = 0.20;

/// Where the time of one task's step went, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct StepParts {
    /// The whole step.
    pub step_ms: f64,
    /// Forward.
    pub forward_ms: Option<f64>,
    /// Backward.
    pub backward_ms: Option<f64>,
    /// Communication that the step waited for.
    pub communication_ms: Option<f64>,
    /// Waiting for data.
    pub data_wait_ms: Option<f64>,
    /// The optimizer.
    pub optimizer_ms: Option<f64>,
}

impl StepParts {
    fn parts(&self) -> [Option<f64>; PARTS] {
        [
            self.communication_ms,
            self.data_wait_ms,
            self.optimizer_ms,
            self.forward_ms,
            self.backward_ms,
        ]
    }
}

const PARTS: usize = 5;
const NAMES: [&str; PARTS] = [
    "communication",
    "data wait",
    "optimizer",
    "forward",
    "backward",
];
/// Those that may rule: bound, verdict and advice, in the order of `NAMES`.
const RULING: [(f64, Verdict, &str); 3] = [
    (
        COMMUNICATION,
        Verdict::CommunicationBound,
        "a smaller span, fewer ranks or more accumulation would help",
    ),
    (
        DATA,
        Verdict::DataBound,
        "more I/O bandwidth, data staged on local disks or more loader processes would help",
    ),
    (
        OPTIMIZER,
        Verdict::OptimizerBound,
        "a fused or sharded optimizer, no offload or more accumulation would help",
    ),
];

/// The bottleneck rule of one attempt.
#[derive(Debug, Default)]
pub(crate) struct BottleneckRule {
    signals: u32,
    /// Milliseconds of each part, and of the steps that reported it.
    sums: [(f64, f64); PARTS],
    told: Option<Verdict>,
    /// What the last windows agreed on.
    seen: Option<(Verdict, u32)>,
}

impl BottleneckRule {
    /// Takes the parts of one task's step in. `_at` is when the signal came; windows go by signals alone.
    pub(crate) fn observe(
        &mut self,
        parts: &StepParts,
        step: u64,
        _at: Timestamp,
    ) -> Option<Conclusion> {
        let step_ms = parts.step_ms;
        if !(step_ms.is_finite() && step_ms > 0.0) || parts.parts().iter().all(Option::is_none) {
            return None;
        }
        for ((sum, of), part) in self.sums.iter_mut().zip(parts.parts()) {
            if let Some(ms) = part.filter(|ms| *ms >= 0.0) {
                *sum += ms.min(step_ms);
                *of += step_ms;
            }
        }
        self.signals += 1;
        if self.signals < WINDOW {
            return None;
        }
        self.signals = 0;
        let sums = std::mem::take(&mut self.sums);
        let shares = sums.map(|(sum, of)| (of > 0.0).then(|| sum / of));
        self.judge(shares, step)
    }

    fn judge(&mut self, shares: [Option<f64>; PARTS], step: u64) -> Option<Conclusion> {
        let verdict = self.ruling(&shares)?;
        let windows = match self.seen {
            Some((seen, windows)) if seen == verdict => windows + 1,
            _ => 1,
        };
        self.seen = Some((verdict, windows));
        let before = self.told.unwrap_or(Verdict::ComputeBound);
        if windows < WINDOWS_IN_ROW || verdict == before {
            return None;
        }
        self.told = Some(verdict);
        let advice = RULING.iter().find(|(_, ruling, _)| *ruling == verdict);
        let advice = advice.map_or("nothing else stands out", |(_, _, advice)| advice);
        let known = NAMES.iter().zip(shares);
        let known = known.filter_map(|(name, share)| share.map(|s| (name, 100.0 * s)));
        let known: Vec<String> = known
            .map(|(name, percent)| format!("{name} {percent:.0} %"))
            .collect();
        Some(Conclusion {
            rule: Rule::Bottleneck,
            subject: String::new(),
            verdict,
            evidence: format!(
                "of the step time: {}, over {} steps of its tasks; {advice}",
                known.join(", "),
                windows * WINDOW
            ),
            step,
            remedies: Vec::new(),
        })
    }

    /// What rules a window; nothing where too little is known to say.
    fn ruling(&self, shares: &[Option<f64>; PARTS]) -> Option<Verdict> {
        let multiple = |(place, (bound, verdict, _)): (usize, &(f64, Verdict, &str))| {
            let share = shares[place]?;
            // What was told holds its place against small moves, of its own share and of another's.
            let bound = if self.told == Some(*verdict) {
                bound * HYSTERESIS
            } else {
                *bound
            };
            (share >= bound).then_some((share / bound, *verdict))
        };
        let ruling = RULING.iter().enumerate().filter_map(multiple);
        let ruling = ruling.max_by(|a, b| a.0.total_cmp(&b.0));
        let computes = shares[3].unwrap_or(0.0) + shares[4].unwrap_or(0.0) >= 0.5;
        let rest_known = shares[0].is_some() && shares[1].is_some();
        match ruling {
            Some((_, verdict)) => Some(verdict),
            None => (computes || rest_known).then_some(Verdict::ComputeBound),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of steps with these shares of communication, data wait and optimizer, in percent.
    fn run(rule: &mut BottleneckRule, windows: u32, percent: [f64; 3]) -> Vec<Verdict> {
        let [communication, data_wait, optimizer] = percent;
        let mut said = Vec::new();
        for step in 0..windows * WINDOW {
            // Half and one and a half of it in turn.
            let wobble = if step % 2 == 0 { 0.5 } else { 1.5 };
            let rest = 100.0 - communication - data_wait - optimizer;
            let parts = StepParts {
                step_ms: 1_000.0,
                forward_ms: Some(3.0 * rest),
                backward_ms: Some(6.0 * rest),
                communication_ms: Some(10.0 * communication * wobble),
                data_wait_ms: Some(10.0 * data_wait * wobble),
                optimizer_ms: Some(10.0 * optimizer),
            };
            said.extend(rule.observe(&parts, u64::from(step), Timestamp::ZERO));
        }
        assert!(
            said.iter()
                .all(|one| one.evidence.contains("of the step time"))
        );
        said.iter().map(|one| one.verdict).collect()
    }

    #[test]
    fn the_ruling_part_is_told_after_two_windows_and_once() {
        let mut rule = BottleneckRule::default();
        assert!(run(&mut rule, 1, [40.0, 5.0, 3.0]).is_empty());
        assert_eq!(
            run(&mut rule, 20, [40.0, 5.0, 3.0]),
            [Verdict::CommunicationBound]
        );
        assert_eq!(run(&mut rule, 20, [10.0, 25.0, 3.0]), [Verdict::DataBound]);
        assert_eq!(
            run(&mut rule, 20, [5.0, 5.0, 30.0]),
            [Verdict::OptimizerBound]
        );
        assert_eq!(run(&mut rule, 20, [5.0, 5.0, 5.0]), [Verdict::ComputeBound]);
    }

    #[test]
    fn a_run_that_computes_is_not_worth_a_word() {
        assert!(run(&mut BottleneckRule::default(), 50, [10.0, 2.0, 3.0]).is_empty());
    }

    #[test]
    fn a_share_around_its_bound_is_told_once() {
        let mut rule = BottleneckRule::default();
        let mut said = run(&mut rule, 3, [31.0, 2.0, 3.0]);
        for _ in 0..10 {
            said.extend(run(&mut rule, 3, [27.0, 2.0, 3.0]));
            said.extend(run(&mut rule, 3, [31.0, 2.0, 3.0]));
        }
        assert_eq!(said, [Verdict::CommunicationBound]);
    }

    #[test]
    fn of_two_that_rule_the_one_farther_over_its_bound_is_told() {
        let mut rule = BottleneckRule::default();
        assert_eq!(run(&mut rule, 3, [33.0, 30.0, 3.0]), [Verdict::DataBound]);
    }

    #[test]
    fn nothing_is_said_of_parts_that_nobody_reports() {
        let mut rule = BottleneckRule::default();
        let only_optimizer = StepParts {
            step_ms: 1_000.0,
            optimizer_ms: Some(10.0),
            ..StepParts::default()
        };
        let mut said =
            (0..1_000).filter_map(|step| rule.observe(&only_optimizer, step, Timestamp::ZERO));
        assert!(said.next().is_none());
        let nonsense = StepParts {
            step_ms: f64::NAN,
            data_wait_ms: Some(f64::INFINITY),
            ..StepParts::default()
        };
        assert!(rule.observe(&nonsense, 1, Timestamp::ZERO).is_none());
    }
}
