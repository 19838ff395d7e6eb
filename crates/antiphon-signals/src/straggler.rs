//! The straggler rule: a task that is slower than the others of its gang for three windows in a row holds all of them up.
//!
//! In synchronous training every task's step takes equally long, as all wait for the slowest. What tells them apart is
//! a task's *own* time: `step_ms` less `communication_ms`, which is where the waiting happens. Without
//! `communication_ms` the whole step is taken, and a straggler shows only in gangs that do not wait for each other.
//!
//! **Windows** are the same steps for all tasks: at least 16, so that the median of a window has a standard error of a
//! third of one step's noise (1.25 / sqrt 16); at least ten seconds of them, so that three windows are no passing cloud;
//! and on a noisy gang up to 64, until that error is 2 %. A task's time is the median of its window: a pause for a
//! checkpoint or for garbage collection falls on one step and does not move it.
//!
//! **Excess** is a task's time by the median of the others', less 1. The error of it is the larger of what scatters
//! inside the window and of what scatters between the other tasks. A window counts as slow where the excess is at least
//! 15 % less 2.5 such errors (1 to 5 points: a task that is exactly 15 % slow is measured below that half the time), and
//! at least 3.5 errors.
//!
//! **Far behind.** Windows have as many steps as ten seconds held when the run began; where a node fails so that each step
//! takes many times as long, three of them are hours. A task that takes three times the usual in 16 steps in a row, and
//! ten seconds at least, while most others do not, is told at once, and its share is asked for without a trial.
//!
//! **Throttling** needs no three windows: where the device itself says that it is throttled, one window in which the task is
//! measurably slower (5 %, and 2.5 errors) is enough, and the task gets the smaller share at once.

use std::collections::{BTreeMap, VecDeque};

use antiphon_types::{DirectiveBody, Remedy, Rule, Timestamp, Verdict};

use crate::conclusion::Conclusion;
use crate::robust::{deviation, median};

use task::{Lag, Task};

/// Steps of a window at least.
const STEPS_MIN: u64 = 16;
/// Steps of a window at most.
const STEPS_MAX: u64 = 1_024;
/// Milliseconds of a window at least, as far as `STEPS_MAX` allows.
const WINDOW_MS_MIN: f64 = 10_000.0;
/// No run comes this far; what follows from a step number cannot overflow.
const STEP_MAX: u64 = 1 << 48;
/// Step times kept of one task and window; of longer windows every second, third, .. step is looked at.
const SAMPLES_MAX: u64 = 64;
/// The standard error, relative to the time, that a window is made long enough for.
const ERROR_GOAL: f64 = 0.02;
/// Standard error of a median over that of a mean.
const MEDIAN_ERROR: f64 = 1.2533;
/// Times the usual from which no window is waited for.
const FAR: f64 = 3.0;
/// Tasks of one gang: bounds memory whatever is sent.
const TASKS_MAX: usize = 1_024;
/// A spread of more than this is worth telling.
const SPREAD: f64 = 0.10;
/// A task that is slower by this is a straggler.
const SLOW: f64 = 0.15;
/// Errors by which a window may fall short of `SLOW`.
const SHORT_ERRORS: f64 = 2.5;
/// Errors by which a window has to stand out.
const CLEAR_ERRORS: f64 = 3.5;
/// Below this a straggler has recovered, and a spread is gone.
const RECOVERED: f64 = 0.05;
/// Windows in a row that have to agree, that a task is slow or that it has recovered.
const WINDOWS_IN_ROW: u32 = 3;
/// Windows after a recovery in which the same task is not accused again.
const COOL_DOWN_WINDOWS: u64 = 6;
/// Windows after which a task that reports nothing is forgotten.
const ABSENT_WINDOWS: u64 = 8;

/// One task's step, as its signal reports it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TaskStep {
    /// The rank.
    pub task: u32,
    /// The optimizer step.
    pub step: u64,
    /// Time of the step in milliseconds.
    pub step_ms: f64,
    /// Time of it spent in collectives, waiting included, in milliseconds.
    pub communication_ms: Option<f64>,
    /// Whether the task's device says that it is throttled.
    pub throttled: bool,
}

impl TaskStep {
    /// The task's own time in milliseconds.
    fn own_ms(&self) -> Option<f64> {
        let waited = self
            .communication_ms
            .filter(|ms| *ms >= 0.0 && *ms < self.step_ms);
        let own = self.step_ms - waited.unwrap_or(0.0);
        (own.is_finite() && own > 0.0).then_some(own)
    }
}

/// What one task takes for a step by itself, for people to look at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskTime {
    /// The rank.
    pub task: u32,
    /// The median of its last window in milliseconds: a step less what it waits for the others.
    pub own_ms: f64,
    /// Which part of an equal share of the batch it gets, 0 to 1.
    pub share: f64,
}

/// The straggler rule of one attempt.
#[derive(Debug, Default)]
pub(crate) struct StragglerRule {
    tasks: BTreeMap<u32, Task>,
    /// Steps of a window, once the first steps have said how long and how noisy they are.
    steps: Option<u64>,
    /// The window that is being filled: its steps begin at `window * steps`.
    window: u64,
    /// What an equal part of a step took in the last window, in milliseconds: the lower median over the tasks.
    usual_ms: Option<f64>,
    spread_told: bool,
    /// Windows in a row that speak for the opposite.
    spread_turns: u32,
    /// What one window gave beyond what `observe` could return.
    pending: VecDeque<Conclusion>,
}

/// One task's window beside those of the others.
struct Compared {
    task: u32,
    own_ms: f64,
    others_ms: f64,
    others: usize,
    /// How much slower it is per sample, less 1.
    excess: f64,
    /// How much longer its step takes, less 1: what the gang waits for.
    held_up: f64,
    error: f64,
}

impl StragglerRule {
    /// Takes one step of one task in. `_at` is when the signal came; windows go by steps alone.
    pub(crate) fn observe(&mut self, signal: &TaskStep, _at: Timestamp) -> Option<Conclusion> {
        if let Some(own_ms) = signal.own_ms().filter(|_| signal.step <= STEP_MAX) {
            self.take(signal, own_ms);
        }
        self.pending.pop_front()
    }

    /// A `drain` directive holds: `task` gets this part of what it would get, so its time is judged against that.
    pub(crate) fn drained(&mut self, task: u32, share_permille: u32) {
        if let Some(task) = self.tasks.get_mut(&task) {
            task.share_permille = share_permille.min(1_000);
            // What was measured under another share would be judged wrongly.
            task.now.clear();
            task.next.clear();
            task.lag = Lag::default();
        }
    }

    /// What each task takes for a step by itself, once it has filled a window.
    pub(crate) fn times(&self) -> Vec<TaskTime> {
        let timed = self.tasks.iter().filter_map(|(rank, task)| {
            Some(TaskTime {
                task: *rank,
                own_ms: task.own_ms?,
                share: task.share(),
            })
        });
        timed.collect()
    }

    fn take(&mut self, signal: &TaskStep, own_ms: f64) {
        if self.tasks.len() >= TASKS_MAX && !self.tasks.contains_key(&signal.task) {
            return;
        }
        let steps = self.steps.unwrap_or(STEPS_MIN);
        let window = signal.step / steps;
        if window + 1 < self.window {
            // The run went back to a checkpoint: what was half full is of another time.
            for task in self.tasks.values_mut() {
                (task.now, task.next) = (Vec::new(), Vec::new());
                task.lag = Lag::default();
                (task.last_window, task.newest_step) = (window, 0);
                task.quiet_until = task.quiet_until.min(window + COOL_DOWN_WINDOWS);
            }
            self.window = window;
        } else if self.tasks.is_empty() {
            self.window = window;
        }
        while window > self.window + 1 {
            self.close();
            if window > self.window + ABSENT_WINDOWS
                && self
                    .tasks
                    .values()
                    .all(|task| task.now.is_empty() && task.next.is_empty())
            {
                self.window = window;
            }
            if self.steps != Some(steps) {
                // The length of windows was just settled: what this signal belongs to has another number now.
                return self.take(signal, own_ms);
            }
        }
        let task = self.tasks.entry(signal.task).or_default();
        task.newest_step = task.newest_step.max(signal.step);
        task.last_window = window;
        task.throttled |= signal.throttled;
        let lags = task.lag.take(
            signal.step,
            own_ms,
            own_ms / task.share() > FAR * self.usual_ms.unwrap_or(f64::INFINITY),
        );
        if lags && window >= task.quiet_until {
            self.judge_lag(signal.task, signal.step);
        }
        let task = self.tasks.entry(signal.task).or_default();
        if window < self.window || !signal.step.is_multiple_of(steps.div_ceil(SAMPLES_MAX)) {
            return;
        }
        let into = if window == self.window {
            &mut task.now
        } else {
            &mut task.next
        };
        if (into.len() as u64) < SAMPLES_MAX {
            into.push(own_ms);
        }
        if window > self.window {
            let end = (self.window + 1) * steps;
            if self.tasks.values().all(|task| task.newest_step >= end) {
                self.close();
            }
        }
    }

    /// Judges the window being filled and goes on to the next.
    fn close(&mut self) {
        let window = self.window;
        self.window += 1;
        for task in self.tasks.values_mut().filter(|task| task.is_full()) {
            task.own_ms = Some(task.center());
        }
        let compared = self.compare();
        let mut whole_ms: Vec<f64> = compared
            .iter()
            .map(|one| (1.0 + one.excess) * one.others_ms)
            .collect();
        whole_ms.sort_by(f64::total_cmp);
        let middle = whole_ms.len().saturating_sub(1) / 2;
        self.usual_ms = whole_ms.get(middle).copied().or(self.usual_ms);
        if self.steps.is_none() {
            // The first window only says how long windows have to be; a short or lonely one says nothing.
            if !compared.is_empty() {
                self.settle_length();
            }
        } else {
            self.judge_spread(&compared, window);
            for one in &compared {
                self.judge(one, window);
            }
        }
        self.tasks
            .retain(|_, task| window < task.last_window + ABSENT_WINDOWS);
        for task in self.tasks.values_mut() {
            task.now = std::mem::take(&mut task.next);
        }
    }

    fn settle_length(&mut self) {
        let mut centers = Vec::new();
        let mut noises = Vec::new();
        for task in self.tasks.values().filter(|task| task.is_full()) {
            let center = task.center();
            centers.push(center);
            noises.push(deviation(task.now.iter().copied(), center) / center);
        }
        let (Some(center), Some(noise)) = (median(&mut centers), median(&mut noises)) else {
            return;
        };
        let long = (WINDOW_MS_MIN / center).ceil().min(STEPS_MAX as f64) as u64;
        let exact = (MEDIAN_ERROR * noise / ERROR_GOAL).powi(2).ceil();
        let exact = exact.min(SAMPLES_MAX as f64) as u64;
        let steps = STEPS_MIN.max(long).max(exact);
        // Windows are counted anew, from the next whole one on.
        let newest = self.tasks.values().map(|task| task.newest_step).max();
        self.window = newest.unwrap_or(0) / steps + 1;
        self.steps = Some(steps);
        for task in self.tasks.values_mut() {
            (task.now, task.next) = (Vec::new(), Vec::new());
            task.last_window = self.window;
        }
    }

    /// Each task that has filled the window, beside the others.
    fn compare(&self) -> Vec<Compared> {
        // Time for a whole equal part, time as it was, and the scatter of one step.
        let known: Vec<(u32, f64, f64, f64)> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.is_full())
            .map(|(rank, task)| {
                let center = task.center();
                let noise = deviation(task.now.iter().copied(), center) / center;
                let error = MEDIAN_ERROR * noise / (task.now.len() as f64).sqrt();
                (*rank, center / task.share(), center, error)
            })
            .collect();
        if known.len() < 2 {
            return Vec::new();
        }
        let mut compared = Vec::with_capacity(known.len());
        let mut others = Vec::with_capacity(known.len());
        for (task, whole_ms, own_ms, error) in &known {
            others.clear();
            others.extend(known.iter().filter(|one| one.0 != *task).map(|one| one.1));
            let others_ms = median(&mut others).expect("there are two tasks at least");
            let between = deviation(others.iter().copied(), others_ms) / others_ms;
            compared.push(Compared {
                task: *task,
                own_ms: *own_ms,
                others_ms,
                others: others.len(),
                excess: whole_ms / others_ms - 1.0,
                held_up: own_ms / others_ms - 1.0,
                error: error.max(between),
            });
        }
        compared
    }

    /// Judges a task whose last steps took a multiple of the usual: alone, it holds up the others; together, the work is
    /// another than before.
    fn judge_lag(&mut self, rank: u32, step: u64) {
        let (Some(usual_ms), Some(task)) = (self.usual_ms, self.tasks.get(&rank)) else {
            return;
        };
        let lag = task.lag;
        // Reports of others may be on their way: those count that have come half as far into the same stretch.
        let seen = lag.since + STEPS_MIN / 2;
        let others = self.tasks.iter().filter(|(other, _)| **other != rank);
        let others: Vec<&Task> = others
            .map(|(_, other)| other)
            .filter(|other| other.newest_step >= seen)
            .collect();
        let lagging = others.iter().filter(|other| other.lag.steps > 0).count();
        if others.is_empty() || others.len() < self.tasks.len() / 2 || 2 * lagging >= others.len() {
            return;
        }
        let own_ms = lag.ms / lag.steps as f64;
        let excess = own_ms / task.share() / usual_ms - 1.0;
        // As with windows: what makes up for its speed by a smaller share holds nobody up.
        if task.asked > 0 && own_ms < (1.0 + RECOVERED) * usual_ms {
            return;
        }
        let remedy = match task.asked {
            0 | 1 => smaller_share(rank, excess),
            2 => Remedy::Replace { task: rank },
            _ => return,
        };
        let evidence = format!(
            "{own_ms:.0} ms a step of its own in the last {} steps against the usual {usual_ms:.0} ms ({:+.0} %), {lagging} of \
             {} others as far behind",
            lag.steps,
            100.0 * excess,
            others.len(),
        );
        let task = self.tasks.entry(rank).or_default();
        task.asked = task.asked.max(1) + 1;
        task.lag = Lag::default();
        self.pending.push_back(Conclusion {
            rule: Rule::Straggler,
            subject: format!("task {rank}"),
            verdict: Verdict::Slow,
            evidence,
            step,
            remedies: vec![remedy],
        });
    }

    fn judge(&mut self, one: &Compared, window: u64) {
        let steps = self.steps.unwrap_or(STEPS_MIN);
        let task = self.tasks.entry(one.task).or_default();
        let least = SLOW - (SHORT_ERRORS * one.error).clamp(0.01, 0.05);
        let slow = one.excess >= least.max(CLEAR_ERRORS * one.error) && window >= task.quiet_until;
        task.slow = if slow { task.slow + 1 } else { 0 };
        task.recovered = if one.excess < RECOVERED {
            task.recovered + 1
        } else {
            0
        };
        let throttled = std::mem::take(&mut task.throttled)
            && task.asked < 2
            && one.excess >= RECOVERED.max(SHORT_ERRORS * one.error)
            && window >= task.quiet_until;
        let (verdict, body, windows) = if throttled {
            task.asked = 2;
            (
                Verdict::Throttled,
                Some(smaller_share(one.task, one.excess)),
                1,
            )
        } else if task.asked > 0 && task.recovered >= WINDOWS_IN_ROW {
            let restore = (task.share() < 1.0).then_some(drain(one.task, 1_000, 0));
            task.asked = 0;
            task.quiet_until = window + COOL_DOWN_WINDOWS;
            (Verdict::Cleared, restore, task.recovered)
        } else if task.slow >= WINDOWS_IN_ROW && (task.asked == 0 || one.held_up >= RECOVERED) {
            // A task whose smaller share makes up for its speed holds nobody up: nothing more is asked for.
            let remedy = match task.asked {
                0 => drain(one.task, 0, 1),
                1 => smaller_share(one.task, one.excess),
                2 => Remedy::Replace { task: one.task },
                _ => return,
            };
            task.asked += 1;
            (Verdict::Slow, Some(remedy), task.slow)
        } else {
            return;
        };
        let windows = match windows {
            1 => "one window".to_owned(),
            some => format!("{some} windows in a row"),
        };
        let device = if throttled {
            "its device says that it is throttled: "
        } else {
            ""
        };
        let evidence = format!(
            "{device}{:.0} ms a step of its own, {:.0} ms for an equal part, against {:.0} ms in the median of {} others \
             ({:+.1} %, error {:.1} %), {windows} of {steps} steps",
            one.own_ms,
            (1.0 + one.excess) * one.others_ms,
            one.others_ms,
            one.others,
            100.0 * one.excess,
            100.0 * one.error,
        );
        self.pending.push_back(Conclusion {
            rule: Rule::Straggler,
            subject: format!("task {}", one.task),
            verdict,
            evidence,
            step: (window + 1) * steps,
            remedies: body.into_iter().collect(),
        });
    }

    fn judge_spread(&mut self, compared: &[Compared], window: u64) {
        let steps = self.steps.unwrap_or(STEPS_MIN);
        let Some(worst) = compared
            .iter()
            .max_by(|a, b| a.held_up.total_cmp(&b.held_up))
        else {
            return;
        };
        // Two windows in a row: of many tasks one is always a little late.
        let wide = worst.held_up > SPREAD && worst.held_up >= CLEAR_ERRORS * worst.error;
        let narrow = worst.held_up < RECOVERED;
        let turns = if self.spread_told { narrow } else { wide };
        self.spread_turns = if turns { self.spread_turns + 1 } else { 0 };
        if self.spread_turns < 2 {
            return;
        }
        self.spread_turns = 0;
        self.spread_told = !self.spread_told;
        let evidence = format!(
            "slowest is task {} with {:.0} ms a step of its own against {:.0} ms in the median of {} others ({:+.1} %), \
             2 windows of {steps} steps in a row",
            worst.task,
            worst.own_ms,
            worst.others_ms,
            worst.others,
            100.0 * worst.held_up,
        );
        self.pending.push_back(Conclusion {
            rule: Rule::Straggler,
            subject: String::new(),
            verdict: if self.spread_told {
                Verdict::Spread
            } else {
                Verdict::Cleared
            },
            evidence,
            step: (window + 1) * steps,
            remedies: Vec::new(),
        });
    }
}

/// As much of the batch as takes the task as long as the others.
fn smaller_share(task: u32, excess: f64) -> Remedy {
    let permille = (1_000.0 / (1.0 + excess)).floor().clamp(1.0, 1_000.0);
    drain(task, permille as u32, 0)
}

fn drain(task: u32, share_permille: u32, steps: u32) -> Remedy {
    Remedy::Direct(DirectiveBody::Drain {
        task,
        share_permille,
        steps,
    })
}

mod task;
#[cfg(test)]
mod tests;
