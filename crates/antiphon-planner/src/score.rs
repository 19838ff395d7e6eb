//! How near plans come to measurements: an error for each row, then medians for each (source, method, GPU) group, then over the
//! groups. Reads no file.

use std::collections::BTreeMap;

use serde::Serialize;

use antiphon_types::training::Framework;

use crate::baseline;
use crate::calibrate::{Attempt, Calibration};
use crate::flops::{self, Convention};
use crate::kernels::Constants;
use crate::memory;
use crate::plan::{Plan, longest_sequence, plan};
use crate::profile::Frameworks;
use crate::row::{self, Cells, Counter};
use crate::run::{Machine, Run};
use crate::speed::{self, Speed, speed_with};

/// One row's answer beside what was measured.
#[derive(Debug, Clone)]
pub struct Scored {
    /// The row.
    pub row: String,
    /// Its group.
    pub group: Group,
    /// Whether its model has experts.
    pub experts: bool,
    /// In which quantity both are told.
    pub quantity: Quantity,
    /// What was measured.
    pub measured: f64,
    /// What is planned; none where the row has no answer.
    pub planned: Option<f64>,
    /// What others would say, by name, where they say anything.
    pub others: Vec<(&'static str, f64)>,
    /// Whether the row states all that its memory depends on.
    pub stated: bool,
    /// The library, and the planned step that the answer was read from.
    pub step: Option<(Framework, Speed)>,
    /// Rows of the same model with the same library: a sweep.
    pub sweep: String,
}

/// What rows are compared within first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Who measured.
    pub source: String,
    /// Which weights moved.
    pub method: String,
    /// On what.
    pub gpu: String,
}

/// A quantity that speed is told in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Tokens a second for each GPU.
    Tokens,
    /// Seconds of a step.
    Step,
    /// Seconds of one micro-batch.
    Micro,
    /// 10^12 operations a second.
    Tflops,
    /// GiB of the fullest GPU, in the counter that the row names.
    Memory,
}

impl Scored {
    /// Its error as a share of what was measured; 1 without an answer.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.planned.map_or(1.0, |planned| {
            (planned - self.measured).abs() / self.measured
        })
    }
}

/// Compares the speed of every row that may be scored.
#[must_use]
pub fn speed(
    rows: &[Cells],
    frameworks: &'static Frameworks,
    constants: &Constants,
) -> Vec<Scored> {
    rows.iter()
        .filter(|cells| at(cells, "score_speed") == "yes")
        .filter_map(|cells| speed_of(cells, frameworks, constants))
        .collect()
}

/// What the memory of a run depends on beside its model.
const LAYOUT: [&str; 6] = [
    "seq_len",
    "micro_batch",
    "optimizer",
    "precision",
    "shard",
    "act_ckpt",
];

fn states_all(cells: &Cells) -> bool {
    let stated = |column: &str| !matches!(at(cells, column), "" | "unstated");
    LAYOUT.iter().all(|column| stated(column))
}

fn at<'a>(cells: &'a Cells, column: &str) -> &'a str {
    cells.get(column).map_or("", |cell| cell.trim())
}

fn speed_of(
    cells: &Cells,
    frameworks: &'static Frameworks,
    constants: &Constants,
) -> Option<Scored> {
    let number = |column: &str| at(cells, column).parse::<f64>().ok();
    let rl = matches!(at(cells, "workload"), "grpo" | "dapo" | "ppo");
    let (quantity, measured) = if rl {
        number("step_time_s").map(|value| (Quantity::Step, value))
    } else {
        None
    }
    .or_else(|| number("tokens_per_s_per_gpu").map(|value| (Quantity::Tokens, value)))
    .or_else(|| number("step_time_s").map(|value| (Quantity::Step, value)))
    .or_else(|| number("micro_iter_time_s").map(|value| (Quantity::Micro, value)))
    .or_else(|| number("tflops_per_gpu").map(|value| (Quantity::Tflops, value)))?;

    let answer = row::read(cells)
        .and_then(|row| {
            let run = plan(&row.spec, &row.machine, frameworks)?.run;
            let speed = speed_with(&run, &row.machine, constants);
            Ok((row.machine, run, speed))
        })
        .ok();
    let one_layer = at(cells, "workload") == "one-layer";
    let planned = answer.as_ref().map(|(machine, run, speed)| {
        if one_layer {
            speed::block_ms(run, machine, constants) / 1e3
        } else {
            told(speed, run, quantity, at(cells, "flops_kind"))
        }
    });
    // Others tell tokens a second; what the row tells follows as ours does from ours.
    let others = |tokens: fn(&Run, &Machine) -> f64| {
        let (machine, run, speed) = answer.as_ref()?;
        let faster = tokens(run, machine) / speed.tokens_per_s_per_gpu;
        planned.map(|planned| match quantity {
            Quantity::Memory => planned,
            Quantity::Tokens | Quantity::Tflops => planned * faster,
            Quantity::Step | Quantity::Micro => planned / faster,
        })
    };
    Some(Scored {
        row: at(cells, "row_id").into(),
        group: Group {
            source: at(cells, "source").into(),
            method: at(cells, "method").into(),
            gpu: at(cells, "gpu").into(),
        },
        experts: answer.as_ref().map_or_else(
            || {
                named_as_experts(at(cells, "model"))
                    || number("ep").is_some_and(|ranks| ranks > 1.0)
            },
            |(_, run, _)| run.model.experts.is_some(),
        ),
        quantity,
        measured,
        planned,
        others: [
            (
                "6 N D at 40 % of the data sheet",
                others(baseline::rule_of_thumb),
            ),
            ("a roofline with fixed shares", others(baseline::roofline)),
        ]
        .into_iter()
        .filter_map(|(name, said)| Some((name, said?)))
        .collect(),
        stated: states_all(cells),
        step: answer
            .as_ref()
            .filter(|_| !one_layer)
            .map(|(_, run, speed)| (run.profile.framework, *speed)),
        sweep: format!(
            "{} {} {} {} {:?}",
            at(cells, "source"),
            at(cells, "model"),
            at(cells, "gpu"),
            at(cells, "method"),
            quantity
        ),
    })
}

/// Models whose sizes are not known still say in their name that they have experts: `30B-A3B`.
fn named_as_experts(model: &str) -> bool {
    model.split('-').any(|word| {
        let word = word.to_ascii_lowercase();
        word.starts_with('a')
            && word.ends_with('b')
            && word[1..word.len() - 1].parse::<f64>().is_ok()
    })
}

fn told(speed: &Speed, run: &Run, quantity: Quantity, kind: &str) -> f64 {
    match quantity {
        Quantity::Memory | Quantity::Tokens => speed.tokens_per_s_per_gpu,
        Quantity::Step => speed.step_ms / 1e3,
        Quantity::Micro => {
            let once = speed.parts.optimizer + speed.parts.rest;
            (speed.step_ms - once) / 1e3 / run.accumulation as f64
        }
        Quantity::Tflops => {
            let convention = if kind.contains("hardware") {
                Convention::Hardware
            } else if kind.contains("non-causal") {
                Convention::NonCausal
            } else {
                Convention::Causal
            };
            flops::training(run, convention) * speed.tokens_per_s_per_gpu / 1e12
        }
    }
}

/// Bytes in a GiB.
const GIB: f64 = 1_073_741_824.0;

/// Compares the memory of every row that may be scored.
#[must_use]
pub fn memory(rows: &[Cells], frameworks: &'static Frameworks) -> Vec<Scored> {
    rows.iter()
        .filter(|cells| at(cells, "score_memory") == "yes" && at(cells, "outcome") == "ok")
        .filter_map(|cells| {
            let measured: f64 = at(cells, "peak_mem_gib").parse().ok()?;
            let answer = planned(cells, frameworks);
            Some(Scored {
                row: at(cells, "row_id").into(),
                group: Group {
                    source: at(cells, "source").into(),
                    method: at(cells, "method").into(),
                    gpu: at(cells, "gpu").into(),
                },
                experts: answer
                    .as_ref()
                    .is_some_and(|(_, plan)| plan.run.model.experts.is_some()),
                quantity: Quantity::Memory,
                measured,
                others: answer
                    .iter()
                    .flat_map(|(row, plan)| baseline::memory(&plan.run, row.last_stage))
                    .filter_map(|(name, bytes)| Some((name, bytes? / GIB)))
                    .collect(),
                stated: states_all(cells),
                planned: answer.map(|(row, plan)| counted(&row, &plan) / GIB),
                step: None,
                sweep: String::new(),
            })
        })
        .collect()
}

fn planned(cells: &Cells, frameworks: &'static Frameworks) -> Option<(row::Row, Plan)> {
    let row = row::read(cells).ok()?;
    let plan = plan(&row.spec, &row.machine, frameworks).ok()?;
    Some((row, plan))
}

/// The memory of a plan in the counter that a row names, in bytes.
#[must_use]
pub fn counted(row: &row::Row, plan: &Plan) -> f64 {
    let allocated = if row.last_stage {
        memory::stage(&plan.run, plan.run.pp - 1).parts.sum()
    } else {
        plan.memory.allocated
    };
    match row.counter {
        Counter::Allocated => allocated,
        Counter::Reserved => allocated * plan.run.profile.reserved_ratio,
        Counter::Device => plan.memory.device,
    }
}

/// How often a plan says rightly whether a run fits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Fits {
    /// Rows that ran.
    pub ran: usize,
    /// Of them, those that are said to fit.
    pub ran_fit: usize,
    /// Rows that were out of memory.
    pub failed: usize,
    /// Of them, those that are said to fit.
    pub failed_fit: usize,
    /// Rows that tell the longest sequence.
    pub longest: usize,
    /// Of them, those of which that sequence is said to fit, and one a quarter longer not to.
    pub longest_right: usize,
}

/// Compares whether rows fit.
#[must_use]
pub fn fits(rows: &[Cells], frameworks: &'static Frameworks) -> Fits {
    let mut fits = Fits::default();
    for cells in rows {
        let scored = at(cells, "score_fit") == "yes";
        let outcome = at(cells, "outcome");
        if !(scored || outcome == "max-context") {
            continue;
        }
        let answer = planned(cells, frameworks).map(|(_, plan)| plan);
        let said = answer.as_ref().is_some_and(|plan| plan.memory.fits);
        match outcome {
            "ok" => {
                fits.ran += 1;
                fits.ran_fit += usize::from(said);
            }
            "oom" => {
                fits.failed += 1;
                fits.failed_fit += usize::from(said);
            }
            "max-context" => {
                let told: u64 = at(cells, "seq_len").parse().unwrap_or(0);
                let ours = answer.map_or(0, |plan| longest_sequence(&plan.run, &plan.machine));
                fits.longest += 1;
                fits.longest_right += usize::from((told..told + told / 4).contains(&ours));
            }
            _ => {}
        }
    }
    fits
}

/// The same rows with the factors that the other rows of their GPU type and library tell: each row is planned without itself.
#[must_use]
pub fn calibrated(scored: &[Scored]) -> Vec<Scored> {
    let of = |row: &Scored| {
        row.step
            .map(|(framework, _)| (framework, row.group.gpu.clone()))
    };
    scored
        .iter()
        .map(|row| {
            let others: Vec<Attempt> = scored
                .iter()
                .filter(|other| other.row != row.row && of(other).is_some() && of(other) == of(row))
                .filter_map(Scored::attempt)
                .collect();
            let mut row = row.clone();
            if let (Some((_, step)), Some(planned)) = (row.step, row.planned)
                && others.len() >= 3
            {
                let slower = Calibration::of(&others).step_ms(&step) / step.step_ms;
                row.planned = Some(match row.quantity {
                    Quantity::Tokens | Quantity::Tflops => planned / slower,
                    Quantity::Step | Quantity::Micro => planned * slower,
                    Quantity::Memory => planned,
                });
            }
            row
        })
        .collect()
}

impl Scored {
    /// The row as an attempt: its step as it was measured.
    fn attempt(&self) -> Option<Attempt> {
        let (_, planned) = self.step?;
        let slower = match self.quantity {
            Quantity::Memory => return None,
            Quantity::Tokens | Quantity::Tflops => self.planned? / self.measured,
            Quantity::Step | Quantity::Micro => self.measured / self.planned?,
        };
        Some(Attempt {
            planned_ms: planned.step_ms,
            communication_ms: planned.parts.communication(),
            step_ms: planned.step_ms * slower,
            peak_bytes: None,
        })
    }
}

/// Rank correlation inside each sweep of at least so many rows: the name of the sweep, its rows, Spearman's coefficient.
#[must_use]
pub fn sweeps(scored: &[Scored], least: usize) -> Vec<(String, usize, f64)> {
    let mut sweeps: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for row in scored {
        if let Some(planned) = row.planned {
            sweeps
                .entry(&row.sweep)
                .or_default()
                .push((planned, row.measured));
        }
    }
    sweeps
        .into_iter()
        .filter(|(_, pairs)| pairs.len() >= least)
        .map(|(name, pairs)| (name.to_string(), pairs.len(), spearman(&pairs)))
        .collect()
}

/// Errors over groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Each group with its rows, its median error and the signed median.
    pub groups: Vec<(Group, usize, f64, f64)>,
    /// Median of the groups' medians.
    pub median: f64,
    /// Nine tenths of the groups' medians are below.
    pub p90: f64,
}

/// Medians for each group, then over groups.
#[must_use]
pub fn summarize<'a>(scored: impl Iterator<Item = &'a Scored>) -> Summary {
    let mut groups: BTreeMap<&Group, Vec<&Scored>> = BTreeMap::new();
    for row in scored {
        groups.entry(&row.group).or_default().push(row);
    }
    let groups: Vec<_> = groups
        .into_iter()
        .map(|(group, rows)| {
            let errors: Vec<f64> = rows.iter().map(|row| row.error()).collect();
            let signed: Vec<f64> = rows
                .iter()
                .map(|row| {
                    row.planned
                        .map_or(-1.0, |planned| planned / row.measured - 1.0)
                })
                .collect();
            (
                group.clone(),
                rows.len(),
                quantile(errors, 0.5),
                quantile(signed, 0.5),
            )
        })
        .collect();
    let medians: Vec<f64> = groups.iter().map(|group| group.2).collect();
    Summary {
        median: quantile(medians.clone(), 0.5),
        p90: quantile(medians, 0.9),
        groups,
    }
}

/// A quantile, between neighbors in proportion; 0 of nothing.
#[must_use]
pub fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.sort_by(f64::total_cmp);
    let place = share * (values.len() - 1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    values[low] + (values[high] - values[low]) * (place - place.floor())
}

/// Spearman's rank correlation; 1 where there is nothing to order.
#[must_use]
pub fn spearman(pairs: &[(f64, f64)]) -> f64 {
    let ranks = |values: Vec<f64>| -> Vec<f64> {
        values
            .iter()
            .map(|value| {
                let below = values.iter().filter(|other| *other < value).count() as f64;
                let same = values.iter().filter(|other| *other == value).count() as f64;
                below + (same - 1.0) / 2.0
            })
            .collect()
    };
    let a = ranks(pairs.iter().map(|pair| pair.0).collect());
    let b = ranks(pairs.iter().map(|pair| pair.1).collect());
    let mean = (pairs.len() as f64 - 1.0) / 2.0;
    let product: f64 = a.iter().zip(&b).map(|(x, y)| (x - mean) * (y - mean)).sum();
    let (own, other): (f64, f64) = (
        a.iter().map(|x| (x - mean).powi(2)).sum(),
        b.iter().map(|y| (y - mean).powi(2)).sum(),
    );
    if own == 0.0 || other == 0.0 {
        return 1.0;
    }
    product / (own * other).sqrt()
}
