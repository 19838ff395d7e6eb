//! The convergence rule: how far a run still has to go, and whether going on is worth it.
//!
//! It looks at held-out losses (probes) where the trainer reports them, else at the training loss: a probe is the same
//! rows each time and has no sampling noise. A falling curve is fitted to them (`fit.rs`): what remains, where the loss ends.
//!
//! On 68 real curves with probes (`tests/data`; the other 16 are at their target by half-way) the steps that remain at half-way are told with a
//! median error of 14.8 %, and the 80 % interval holds the truth in 78 % of them; on the half that did not shape the
//! rule 14.2 % and 72 %. From the training loss alone it is 33 % and 92 %: where batches are small, noise decides when
//! a smoothed loss first touches a target. What is told:
//!
//! | verdict | when | what would help |
//! | --- | --- | --- |
//! | `diverged` | a loss that is no number; or 16 steps in a row above the recent median by 8 deviations and by a quarter of the whole fall | back to before; to an older checkpoint where it diverges again on the way there |
//! | `overfit` | the last 3 probes are above the best one by 3 deviations of their noise and 1 % of the fall, and rise, while the training loss falls | back to the best probe, or stop |
//! | `off-track` | the 80 % interval of the loss at the end lies above the stated target | back to the start, without suspected shards |
//! | `flat` | the last quarter of the steps brought less than 1.5 % of the fall, noise added | counts twice as far, or stop |
//! | `near-end` | 95 % of the steps are done, or with 9 in 10 certainty at most 5 % of them remain to within 2 % of the end's loss | counts half |
//! | `improving` | the last quarter of the steps brought over a fifth of the whole fall | counts three quarters |
//!
//! The first that holds is told, once it held at two judgements in a row (a judgement every 2 % of the run) and differs
//! from what was told before; a run that diverged is told at once. None holds any more: cleared.

use std::collections::VecDeque;

use antiphon_types::{DirectiveBody, Remedy, Rule, Timestamp, Verdict};

use crate::conclusion::Conclusion;
use crate::robust::deviation;

use curve::{Curve, Trend};
pub use fit::{Estimate, Forecast};
use recent::Recent;

mod curve;
mod fit;
mod recent;

/// Losses in a row that are spikes: one alone is a hard batch.
const SPIKES_IN_ROW: u32 = 16;
/// Probes remembered one by one.
const PROBES: usize = 64;
/// Probes in a row that have to lie above the best.
const PROBES_IN_ROW: usize = 3;
/// Deviations of the probes' noise, and part of the fall, that they have to lie above it.
const PROBE_ABOVE: (f64, f64) = (3.0, 0.01);
/// The training loss has to have fallen by this part of its whole fall since the best probe.
const TRAIN_FELL: f64 = 0.005;
/// Part of the whole fall that the last quarter of the steps brought: surely below the first it is flat, above the second
/// it is fast.
const FALL: (f64, f64) = (0.015, 0.2);
/// Part of the steps that must be done before the pace says anything.
const DONE_MIN: f64 = 0.2;
/// Part of the steps from which the end is near.
const DONE_NEAR: f64 = 0.95;
/// Steps to the plateau, as a part of all steps, below which the end is near.
const REMAINING_NEAR: f64 = 0.05;
/// Points of a curve before it is judged.
const POINTS_MIN: usize = 16;
/// A judgement every so many parts of the run.
const JUDGEMENT: f64 = 0.02;
/// Judgements in a row that have to agree.
const JUDGEMENTS_IN_ROW: u32 = 2;

/// How far a run has come, in its own words.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Goal {
    /// Steps in all.
    pub total_steps: Option<u64>,
    /// The loss that it should end with.
    pub target_loss: Option<f64>,
}

/// A run that diverged and went back to a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rescue {
    /// The step at which it diverged.
    diverged: u64,
    /// The first step after the checkpoint.
    restarted: u64,
}

/// The convergence rule of one attempt.
#[derive(Debug, Default)]
pub(crate) struct ConvergenceRule {
    train: Curve,
    probes: Curve,
    /// The last probes: step and loss.
    recent_probes: VecDeque<(u64, f64)>,
    best_probe: Option<(u64, f64)>,
    /// Losses of the newest probe's step, which end with the next step's.
    probing: Option<(u64, f64, u32)>,
    recent: Recent,
    spikes: u32,
    /// The newest step, and the last one whose loss was as usual.
    newest: u64,
    calm: u64,
    /// Whether it was said already that the loss is far above; going back to a checkpoint ends that.
    diverging: bool,
    /// The step at which it diverged last, and the step from which it went on then.
    rescued: Option<Rescue>,
    goal: Goal,
    judge_at: u64,
    held: Option<(Verdict, u32)>,
    told: Option<Verdict>,
}

impl ConvergenceRule {
    /// What the run says of its end.
    pub(crate) fn aims(&mut self, goal: Goal) {
        self.goal = Goal {
            total_steps: goal.total_steps.filter(|steps| *steps > 0),
            target_loss: goal.target_loss.filter(|loss| loss.is_finite()),
        };
    }

    /// Takes the training loss of a step in, in nats; one that is no number says that the run diverged. `_at` is when the
    /// signal came; judgements go by steps alone.
    pub(crate) fn observe(&mut self, step: u64, loss: f64, _at: Timestamp) -> Option<Conclusion> {
        if step < self.newest {
            self.went_back(step);
        }
        if self.newest == 0 {
            // What it resumed from was calm.
            self.calm = step.saturating_sub(1);
        }
        self.newest = step;
        if !loss.is_finite() || self.recent.is_spike(loss, self.train.start()) {
            self.spikes += 1;
            let diverged = !loss.is_finite() || self.spikes >= SPIKES_IN_ROW;
            return diverged.then(|| self.diverged(step, loss)).flatten();
        }
        self.spikes = 0;
        self.calm = step;
        self.recent.push(loss);
        self.train.push(step, loss);
        if step < self.judge_at {
            return None;
        }
        let run = self.goal.total_steps.unwrap_or(step).max(step);
        let pause = 1 + (JUDGEMENT * run as f64) as u64;
        self.judge_at = step.saturating_add(pause);
        self.judge(step)
    }

    /// Takes a held-out loss in, in nats. Several of one step, such as one a category, count as their mean.
    pub(crate) fn probe(&mut self, step: u64, loss: f64) {
        if !loss.is_finite() {
            return;
        }
        match &mut self.probing {
            Some((at, sum, count)) if *at == step => {
                *sum += loss;
                *count += 1;
            }
            _ => {
                self.close_probe();
                self.probing = Some((step, loss, 1));
            }
        }
    }

    /// Where the run goes, as far as that can be said.
    #[must_use]
    pub(crate) fn forecast(&self) -> Option<Forecast> {
        let total = self.goal.total_steps.map(|steps| steps as f64);
        let curve = self.curve();
        fit::forecast(&curve.points(), curve.start()?, total)
    }

    /// The curve that is looked at: the probes once they are enough.
    fn curve(&self) -> Curve {
        let mut probes = self.probes.clone();
        if let Some((step, sum, count)) = self.probing {
            probes.push(step, sum / f64::from(count));
        }
        if probes.len() >= POINTS_MIN {
            probes
        } else {
            self.train.clone()
        }
    }

    fn close_probe(&mut self) {
        let Some((step, sum, count)) = self.probing.take() else {
            return;
        };
        let loss = sum / f64::from(count);
        self.probes.push(step, loss);
        if self.recent_probes.len() == PROBES {
            self.recent_probes.pop_front();
        }
        self.recent_probes.push_back((step, loss));
        if self.best_probe.is_none_or(|(_, best)| loss < best) {
            self.best_probe = Some((step, loss));
        }
    }

    /// The run is at a checkpoint again: what came after it never was.
    fn went_back(&mut self, to: u64) {
        let rescued = self.diverging.then_some(Rescue {
            diverged: self.calm.saturating_add(1),
            restarted: to,
        });
        *self = Self {
            goal: self.goal,
            told: self.told,
            rescued: rescued.or(self.rescued),
            ..Self::default()
        };
    }

    /// What the training loss has fallen by.
    fn fell(&self) -> f64 {
        let start = self.train.start();
        start
            .zip(self.recent.usual())
            .map_or(0.0, |(start, now)| start - now)
    }

    fn diverged(&mut self, step: u64, loss: f64) -> Option<Conclusion> {
        if std::mem::replace(&mut self.diverging, true) {
            return None;
        }
        self.told = Some(Verdict::Diverged);
        self.held = None;
        let usual = self.recent.usual().map_or_else(String::new, |usual| {
            let steps = self.recent.len();
            format!(" against {usual:.3} in the median of {steps} steps before")
        });
        let evidence = if loss.is_finite() {
            format!("loss {loss:.3}{usual}, {} steps in a row", self.spikes)
        } else {
            format!("loss is no number at step {step}{usual}")
        };
        // Where the same checkpoint led to the same end, an older one is left.
        let to = match self.rescued {
            Some(Rescue {
                diverged,
                restarted,
            }) if self.calm <= diverged => self.calm.min(restarted.saturating_sub(2)),
            Some(_) | None => self.calm,
        };
        let back = Remedy::Direct(DirectiveBody::Rollback { step: to });
        Some(conclusion(Verdict::Diverged, evidence, step, vec![back]))
    }

    fn judge(&mut self, step: u64) -> Option<Conclusion> {
        let curve = self.curve();
        if curve.len() < POINTS_MIN {
            return None;
        }
        let forecast = self.forecast();
        let found = self.found(step, &curve, forecast.as_ref());
        let verdict = found
            .as_ref()
            .map_or(Verdict::Cleared, |(verdict, _)| *verdict);
        let times = match self.held {
            Some((held, times)) if held == verdict => times + 1,
            _ => 1,
        };
        self.held = Some((verdict, times));
        let before = self.told.unwrap_or(Verdict::Cleared);
        if times < JUDGEMENTS_IN_ROW || verdict == before {
            return None;
        }
        self.told = Some(verdict);
        self.diverging = false;
        // A run that was weighed counts as it is again.
        let weighed = matches!(
            before,
            Verdict::Flat | Verdict::NearEnd | Verdict::Improving
        );
        let remedies = found.map_or_else(
            || {
                weighed
                    .then_some(Remedy::Weigh { permille: 1_000 })
                    .into_iter()
                    .collect()
            },
            |(_, remedies)| remedies,
        );
        Some(conclusion(
            verdict,
            self.evidence(&curve, forecast),
            step,
            remedies,
        ))
    }

    /// What holds, the gravest first, and what would help.
    fn found(
        &self,
        step: u64,
        curve: &Curve,
        forecast: Option<&Forecast>,
    ) -> Option<(Verdict, Vec<Remedy>)> {
        let stop = Remedy::Direct(DirectiveBody::Stop);
        if let Some(best) = self.overfit(step) {
            let back = Remedy::Direct(DirectiveBody::Rollback { step: best });
            return Some((Verdict::Overfit, vec![back, stop]));
        }
        let total = self.goal.total_steps;
        let done = total.map(|total| step as f64 / total as f64);
        let paced = done.is_none_or(|done| done >= DONE_MIN);
        let missed = self.goal.target_loss.zip(forecast);
        if let Some((target, forecast)) = missed
            && total.is_some()
            && paced
            && forecast.end.low > target
        {
            let back = Remedy::Direct(DirectiveBody::Rollback { step: 0 });
            return Some((Verdict::OffTrack, vec![back]));
        }
        if done.is_some_and(|done| done >= DONE_NEAR) {
            return Some((Verdict::NearEnd, vec![Remedy::Weigh { permille: 500 }]));
        }
        if !paced {
            return None;
        }
        // What was told holds until it surely no longer does.
        let trend = Trend::of(curve)?;
        let flat = if self.told == Some(Verdict::Flat) {
            trend.fall - trend.noise
        } else {
            trend.fall + trend.noise
        };
        if flat < FALL.0 * trend.whole {
            return Some((Verdict::Flat, vec![Remedy::Weigh { permille: 2_000 }, stop]));
        }
        let all = total.map_or(step as f64, |total| total as f64);
        let near = |forecast: &Forecast| {
            if self.told == Some(Verdict::NearEnd) {
                forecast.remaining.low <= REMAINING_NEAR * all
            } else {
                forecast.remaining.high <= REMAINING_NEAR * all
            }
        };
        if forecast.is_some_and(near) {
            return Some((Verdict::NearEnd, vec![Remedy::Weigh { permille: 500 }]));
        }
        let fast = if self.told == Some(Verdict::Improving) {
            FALL.1 / 2.0
        } else {
            FALL.1
        };
        (trend.fall > fast * trend.whole)
            .then(|| (Verdict::Improving, vec![Remedy::Weigh { permille: 750 }]))
    }

    /// The step of the best probe, where the later ones say that what followed was learned by heart.
    fn overfit(&self, step: u64) -> Option<u64> {
        let (best_step, best) = self.best_probe?;
        let probes: Vec<(u64, f64)> = self.recent_probes.iter().copied().collect();
        let last = probes.get(probes.len().checked_sub(PROBES_IN_ROW)?..)?;
        let held = self.told == Some(Verdict::Overfit);
        let rises = last[PROBES_IN_ROW - 1].1 >= last[0].1;
        if last.iter().any(|(at, _)| *at <= best_step) || !(rises || held) {
            return None;
        }
        // Second differences: what remains of a smooth curve is its noise, whose deviation they widen by sqrt 6.
        let bends = probes
            .windows(3)
            .map(|three| three[0].1 - 2.0 * three[1].1 + three[2].1);
        let noise = deviation(bends, 0.0) / 6_f64.sqrt();
        let fell = self.probes.start()? - best;
        let least = best + (PROBE_ABOVE.0 * noise).max(PROBE_ABOVE.1 * fell);
        if last.iter().any(|(_, loss)| *loss < least) {
            return None;
        }
        let apart = (step - best_step) as f64 / 3.0;
        let at = best_step as f64;
        let then = self.train.mean(at - apart, at + apart)?;
        let now = self.train.mean(step as f64 - apart, step as f64)?;
        (then - now > TRAIN_FELL * self.fell()).then_some(best_step)
    }

    fn evidence(&self, curve: &Curve, forecast: Option<Forecast>) -> String {
        let from = if self.probes.len() >= POINTS_MIN - 1 {
            "held-out loss"
        } else {
            "training loss"
        };
        let mut parts = Vec::new();
        if let Some(forecast) = forecast {
            let Forecast {
                remaining,
                end,
                now,
            } = forecast;
            parts.push(format!(
                "{from} {now:.3}, {:.3} at the end ({:.3} to {:.3}), within 2 % of it in {:.0} steps ({:.0} to {:.0})",
                end.middle, end.low, end.high, remaining.middle, remaining.low, remaining.high
            ));
        } else {
            parts.push(format!("{from} follows no falling curve"));
        }
        if let Some(trend) = Trend::of(curve) {
            // In nats: a run that was seen from its middle on may not have fallen at all.
            parts.push(format!(
                "the last quarter of the steps brought {:.3} nat of a fall of {:.3}, noise {:.3}",
                trend.fall, trend.whole, trend.noise
            ));
        }
        if let Some((step, loss)) = self.best_probe {
            parts.push(format!("best probe {loss:.3} at step {step}"));
        }
        if let Some(target) = self.goal.target_loss {
            parts.push(format!("target {target:.3}"));
        }
        format!("{}; over {} points", parts.join("; "), curve.len())
    }
}

fn conclusion(verdict: Verdict, evidence: String, step: u64, remedies: Vec<Remedy>) -> Conclusion {
    Conclusion {
        rule: Rule::Convergence,
        subject: String::new(),
        verdict,
        evidence,
        step,
        remedies,
    }
}

#[cfg(test)]
mod tests;
