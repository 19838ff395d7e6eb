//! How fast a training progresses on how many GPUs at which batch size: the profiles of Pollux (Qiao et al., OSDI 2021).
//! Chooses no batch size and no number of GPUs.
//!
//! A profile is a folder, its files compressed or not:
//!
//! - `placements.csv`: `placement` digits, GPUs used on each node, so `12` is one on a first and two on a second node;
//!   `local_bsz` samples of one GPU and step; `step_time` s of a step; `sync_time` s of it spent on exchanging gradients.
//! - `scalability.csv`: the same over `num_nodes` and `num_replicas` (GPUs), for up to 16 nodes.
//! - `validation-<batch>.csv`: a training at that batch size, a row an epoch: `iteration` steps done, `progress` steps that
//!   the smallest batch size would have needed for as much, `metric` reached, and of the gradient `grad_sqr` the squared
//!   norm and `grad_var` the variance at the smallest batch size.
//!
//! Measured on the six profiles: `progress` equals `iteration` in the file of the smallest batch size `m0`, and all files of
//! an application reach the same progress at the end of an epoch (within 1.2 %, of the last within 0.2 %). So an epoch is a
//! distance of progress, whatever the batch size, and a step at batch size `m` makes
//! `(grad_var + grad_sqr) / (grad_var * m0 / m + grad_sqr)` of it. That is the paper's efficiency
//! `(phi + m0) / (phi + m)` with the noise scale `phi = m0 * grad_var / grad_sqr`, times `m / m0` samples.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::trace::{Source, TraceError};

/// A training that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The application: the folder's name.
    pub name: String,
    /// By the GPUs on each node, in the least of their rotations.
    placements: BTreeMap<Vec<u32>, Curve>,
    /// By nodes, then by GPUs.
    curves: BTreeMap<u32, BTreeMap<u32, Curve>>,
    /// By batch size.
    trainings: BTreeMap<u64, Vec<Epoch>>,
    /// Progress at the end of each epoch.
    ends: Vec<f64>,
    local_min: u64,
    local_max: f64,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Seconds of the whole step.
    pub step_s: f64,
    /// Seconds of it in which gradients are exchanged.
    pub sync_s: f64,
}

/// How a batch is made of what fits into the GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// Samples of one GPU at a time.
    pub local_batch: u64,
    /// How often more a GPU computes before gradients are exchanged.
    pub accumulations: u64,
}

/// Step times by local batch size, which rises.
#[derive(Debug, Clone, PartialEq, Default)]
struct Curve {
    points: Vec<(f64, Step)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Epoch {
    progress: f64,
    grad_sqr: f64,
    grad_var: f64,
}

/// The largest number of nodes that was measured; more are as this.
const NODES_MAX: u32 = 16;

/// The published simulator gives this application no larger local batch, though one was measured.
const LOCAL_MAX: (&str, f64) = ("yolov3", 8.0);

/// The published simulator leaves this application on one GPU and at its largest batch.
const RIGID: &str = "ncf";

/// How many batch sizes are tried for a number of GPUs, each larger than the one before by the same factor: as many as the published
/// simulator tries.
const BATCHES: u32 = 50;

impl Profile {
    /// Reads the folder of an application.
    ///
    /// # Errors
    /// Where a file is missing, cannot be read, or lacks a column or numbers.
    pub fn read(folder: &Path) -> Result<Self, TraceError> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let mut measured: BTreeMap<Vec<u32>, Vec<(f64, Step)>> = BTreeMap::new();
        let mut pooled: BTreeMap<(u32, u32), Vec<(f64, Step)>> = BTreeMap::new();
        let path = file(folder, "placements.csv");
        for row in numbers(&path, ["placement", "local_bsz", "step_time", "sync_time"])? {
            let [placement, local, step_s, sync_s] = row.numbers;
            let point = (local, Step { step_s, sync_s });
            let gpus = digits(placement).ok_or_else(|| row.error(&path, "placement"))?;
            let nodes = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
            let sum = gpus.iter().sum();
            pooled.entry((nodes, sum)).or_default().push(point);
            measured
                .entry(least_rotation(&gpus))
                .or_default()
                .push(point);
        }
        let path = file(folder, "scalability.csv");
        let columns = [
            "num_nodes",
            "num_replicas",
            "local_bsz",
            "step_time",
            "sync_time",
        ];
        for row in numbers(&path, columns)? {
            let [nodes, gpus, local, step_s, sync_s] = row.numbers;
            let key = whole(nodes).zip(whole(gpus));
            let key = key.ok_or_else(|| row.error(&path, "num_nodes"))?;
            let point = (local, Step { step_s, sync_s });
            pooled.entry(key).or_default().push(point);
        }
        let mut curves: BTreeMap<u32, BTreeMap<u32, Curve>> = BTreeMap::new();
        for ((nodes, gpus), points) in pooled {
            curves
                .entry(nodes)
                .or_default()
                .insert(gpus, Curve::of(points));
        }
        let trainings = trainings(folder)?;
        let epochs = trainings.values().map(Vec::len).min().unwrap_or(0);
        let end = |epoch: usize| {
            let ends = trainings.values().filter_map(|rows| rows.get(epoch));
            ends.map(|row| row.progress).fold(f64::INFINITY, f64::min)
        };
        let ends: Vec<f64> = (0..epochs).map(end).collect();
        if curves.is_empty() || ends.is_empty() {
            return Err(TraceError::Empty {
                path: folder.to_owned(),
                bad_total: 0,
                first: None,
            });
        }
        let locals = measured.values().flatten().map(|(local, _)| *local);
        let local_min = crate::trace::rounded(locals.clone().fold(f64::INFINITY, f64::min)).max(1);
        let local_max = if name == LOCAL_MAX.0 {
            LOCAL_MAX.1
        } else {
            locals.fold(1.0, f64::max)
        };
        Ok(Self {
            name: name.into_owned(),
            placements: measured
                .into_iter()
                .map(|(key, points)| (key, Curve::of(points)))
                .collect(),
            curves,
            trainings,
            ends,
            local_min,
            local_max,
        })
    }

    /// The time of a step on so many GPUs on so many nodes, as the mean of the placements that were measured, interpolated
    /// where none was; nothing where a node would need more GPUs than any measured one.
    #[must_use]
    pub fn step_time(&self, nodes: u32, gpus: u32, local_batch: u64) -> Option<Step> {
        if nodes == 0 || gpus < nodes {
            return None;
        }
        let local = real(local_batch);
        let (nodes, gpus) = if nodes > NODES_MAX {
            let fewer = f64::from(gpus) * f64::from(NODES_MAX) / f64::from(nodes);
            (NODES_MAX, fewer)
        } else {
            (nodes, f64::from(gpus))
        };
        if let Some(row) = self.curves.get(&nodes) {
            return along(row, gpus, local);
        }
        // As many GPUs a node on fewer and on more nodes.
        let (below, fewer) = self.curves.range(..nodes).next_back()?;
        let (above, more) = self.curves.range(nodes..).next()?;
        let at = |other: &u32| gpus * f64::from(*other) / f64::from(nodes);
        let low = along(fewer, at(below), local)?;
        let high = along(more, at(above), local)?;
        let part = f64::from(nodes - below) / f64::from(above - below);
        Some(low.towards(high, part))
    }

    /// The time of a step with these GPUs on each node, exactly where it was measured, else as [`Self::step_time`].
    #[must_use]
    pub fn step_time_on(&self, placement: &[u32], local_batch: u64) -> Option<Step> {
        let used: Vec<u32> = placement.iter().copied().filter(|gpus| *gpus > 0).collect();
        if let Some(curve) = self.placements.get(&least_rotation(&used)) {
            return curve.at(real(local_batch));
        }
        let gpus = used
            .iter()
            .try_fold(0_u32, |sum, gpus| sum.checked_add(*gpus))?;
        self.step_time(u32::try_from(used.len()).ok()?, gpus, local_batch)
    }

    /// How so many GPUs make this batch: as few computations between exchanges as their memory allows. Where one GPU makes
    /// more than the smallest batch it accumulates at least once, for the noise is estimated between computations.
    #[must_use]
    pub fn split(&self, batch: u64, gpus: u32) -> Split {
        let gpus = u64::from(gpus.max(1));
        let local = batch.max(1).div_ceil(gpus);
        let fits = crate::trace::rounded(self.local_max).max(1);
        let mut times = local.div_ceil(fits);
        if gpus == 1 && batch > self.batch_min() {
            times = times.max(2);
        }
        let most = self.batch_max() / (gpus * times);
        Split {
            local_batch: local.div_ceil(times).min(most.max(1)),
            accumulations: times - 1,
        }
    }

    /// The smallest batch size, in whose steps progress counts.
    #[must_use]
    pub fn batch_min(&self) -> u64 {
        self.trainings.keys().next().copied().unwrap_or(1)
    }

    /// The largest batch size with which the training was tried.
    #[must_use]
    pub fn batch_max(&self) -> u64 {
        self.trainings.keys().next_back().copied().unwrap_or(1)
    }

    /// The most GPUs on which each still has a batch of its own.
    #[must_use]
    pub fn gpus_max(&self) -> u32 {
        if self.name == RIGID {
            return 1;
        }
        let most = self.batch_max() / self.local_min;
        u32::try_from(most).unwrap_or(u32::MAX).max(1)
    }

    /// The batch sizes among which a training on so many GPUs may choose.
    #[must_use]
    pub fn batches(&self, gpus: u32) -> Vec<u64> {
        let largest = self.batch_max();
        let smallest = (self.local_min * u64::from(gpus)).max(self.batch_min());
        if self.name == RIGID || smallest >= largest {
            return vec![largest];
        }
        let factor = (real(largest) / real(smallest)).powf(1.0 / f64::from(BATCHES - 1));
        let batch = |place: u32| {
            let size = real(smallest) * factor.powi(place.cast_signed());
            crate::trace::rounded((size - 1e-6).ceil()).clamp(smallest, largest)
        };
        let mut batches: Vec<u64> = (0..BATCHES).map(batch).collect();
        batches.dedup();
        batches
    }

    /// The progress at which the training is done.
    #[must_use]
    pub fn progress_total(&self) -> f64 {
        self.ends.last().copied().unwrap_or(0.0)
    }

    /// Where the epoch ends that runs at this progress, and with it what [`Self::gain`] says.
    #[must_use]
    pub fn epoch_end(&self, progress: f64) -> f64 {
        self.ends.get(self.epoch(progress)).copied().unwrap_or(0.0)
    }

    /// How much progress a step at this batch size makes: 1 at the smallest, less than in proportion above it.
    #[must_use]
    pub fn gain(&self, batch: u64, progress: f64) -> f64 {
        let epoch = self.epoch(progress);
        let at = |row: &Vec<Epoch>| row.get(epoch).copied();
        let below = self.trainings.range(..=batch).next_back();
        let above = self.trainings.range(batch..).next();
        let (low, high) = match (below.or(above), above.or(below)) {
            (Some(low), Some(high)) => (low, high),
            _ => return 0.0,
        };
        let (Some(first), Some(second)) = (at(low.1), at(high.1)) else {
            return 0.0;
        };
        let part = if low.0 == high.0 {
            0.0
        } else {
            (real(batch) - real(*low.0)) / (real(*high.0) - real(*low.0))
        };
        let mix = |a: f64, b: f64| a + (b - a) * part;
        let (sqr, var) = (
            mix(first.grad_sqr, second.grad_sqr),
            mix(first.grad_var, second.grad_var),
        );
        let scale = real(batch.max(1)) / real(self.batch_min());
        let denominator = var / scale + sqr;
        if denominator > 0.0 {
            (var + sqr) / denominator
        } else {
            0.0
        }
    }

    /// The statistical efficiency at this batch size: what a sample is worth, 1 at the smallest batch size.
    #[must_use]
    pub fn efficiency(&self, batch: u64, progress: f64) -> f64 {
        self.gain(batch, progress) * real(self.batch_min()) / real(batch.max(1))
    }

    /// Progress a second with these GPUs on each node at this batch size; nothing where it does not run so. It holds up to
    /// [`Self::epoch_end`].
    #[must_use]
    pub fn progress_per_s(&self, placement: &[u32], batch: u64, progress: f64) -> Option<f64> {
        let (made, seconds) = self.step_of(placement, batch)?;
        Some(self.gain(made, progress) / seconds)
    }

    /// The batch that a step really has with these GPUs on each node, and how many seconds it takes; nothing where it does
    /// not run so.
    #[must_use]
    pub fn step_of(&self, placement: &[u32], batch: u64) -> Option<(u64, f64)> {
        let gpus = placement
            .iter()
            .try_fold(0_u32, |sum, gpus| sum.checked_add(*gpus))?;
        let split = self.split(batch, gpus);
        let step = self.step_time_on(placement, split.local_batch)?;
        let computing = step.step_s - step.sync_s;
        let seconds = step.step_s + computing * real(split.accumulations);
        let made = split.local_batch * (split.accumulations + 1) * u64::from(gpus);
        (seconds > 0.0).then_some((made, seconds))
    }

    fn epoch(&self, progress: f64) -> usize {
        let done = self.ends.partition_point(|end| *end <= progress);
        done.min(self.ends.len().saturating_sub(1))
    }
}

impl Step {
    fn towards(self, other: Self, part: f64) -> Self {
        let mix = |a: f64, b: f64| a + (b - a) * part;
        Self {
            step_s: mix(self.step_s, other.step_s),
            sync_s: mix(self.sync_s, other.sync_s),
        }
    }
}

impl Curve {
    /// Several measurements of one local batch size count as their mean.
    fn of(mut points: Vec<(f64, Step)>) -> Self {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut merged: Vec<(f64, Step, f64)> = Vec::new();
        for (local, step) in points {
            match merged.last_mut() {
                Some((same, mean, count)) if same.total_cmp(&local).is_eq() => {
                    *count += 1.0;
                    *mean = mean.towards(step, 1.0 / *count);
                }
                _ => merged.push((local, step, 1.0)),
            }
        }
        Self {
            points: merged
                .into_iter()
                .map(|(local, step, _)| (local, step))
                .collect(),
        }
    }

    /// Between two measured sizes linear; below the first as the first; above the last on the line of the last two.
    fn at(&self, local: f64) -> Option<Step> {
        let next = self.points.partition_point(|(at, _)| *at < local);
        let first = self.points.first()?;
        if next == 0 {
            return Some(first.1);
        }
        let high = next.min(self.points.len() - 1);
        let (Some(low), Some(high)) = (high.checked_sub(1), self.points.get(high)) else {
            return Some(first.1);
        };
        let low = self.points.get(low)?;
        let part = (local - low.0) / (high.0 - low.0);
        let step = low.1.towards(high.1, part);
        (step.step_s > 0.0).then_some(step)
    }
}

/// A step on so many GPUs, between the two nearest numbers that were measured.
fn along(row: &BTreeMap<u32, Curve>, gpus: f64, local: f64) -> Option<Step> {
    let below = row.iter().rfind(|(at, _)| f64::from(**at) <= gpus + 1e-9)?;
    let at_below = below.1.at(local)?;
    if (f64::from(*below.0) - gpus).abs() < 1e-9 {
        return Some(at_below);
    }
    let above = row.iter().find(|(at, _)| f64::from(**at) > gpus)?;
    let part = (gpus - f64::from(*below.0)) / f64::from(above.0 - below.0);
    Some(at_below.towards(above.1.at(local)?, part))
}

fn least_rotation(gpus: &[u32]) -> Vec<u32> {
    let rotations = (0..gpus.len()).map(|at| {
        let (before, after) = gpus.split_at(at);
        [after, before].concat()
    });
    rotations.min().unwrap_or_default()
}

/// The decimal digits of a placement.
fn digits(placement: f64) -> Option<Vec<u32>> {
    let whole = whole(placement).filter(|whole| *whole > 0)?;
    whole
        .to_string()
        .chars()
        .map(|c| c.to_digit(10).filter(|digit| *digit > 0))
        .collect()
}

fn whole(number: f64) -> Option<u32> {
    let sound = number >= 0.0 && number.fract() == 0.0 && number <= f64::from(u32::MAX);
    sound
        .then(|| u32::try_from(crate::trace::rounded(number)).ok())
        .flatten()
}

/// A number of samples, exact far above any batch.
fn real(number: u64) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}

/// The file as it is or compressed.
fn file(folder: &Path, name: &str) -> PathBuf {
    let plain = folder.join(name);
    let packed = [".gz", ".zst"].map(|ending| folder.join(format!("{name}{ending}")));
    packed
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or(plain)
}

fn trainings(folder: &Path) -> Result<BTreeMap<u64, Vec<Epoch>>, TraceError> {
    let unreadable = |source| TraceError::Unreadable {
        path: folder.to_owned(),
        source,
    };
    let mut trainings = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let batch = name
            .strip_prefix("validation-")
            .and_then(|rest| rest.split('.').next());
        let Some(batch) = batch
            .and_then(|batch| batch.parse().ok())
            .filter(|batch| *batch > 0)
        else {
            continue;
        };
        let rows = numbers(&path, ["progress", "grad_sqr", "grad_var"])?;
        let epochs = rows.into_iter().map(|row| {
            let [progress, grad_sqr, grad_var] = row.numbers;
            Epoch {
                progress,
                grad_sqr,
                grad_var,
            }
        });
        trainings.insert(batch, epochs.collect());
    }
    Ok(trainings)
}

struct Numbers<const N: usize> {
    line: u64,
    numbers: [f64; N],
}

impl<const N: usize> Numbers<N> {
    fn error(&self, path: &Path, column: &str) -> TraceError {
        TraceError::Syntax {
            path: path.to_owned(),
            reason: format!("line {}: `{column}` is not what it should be", self.line),
        }
    }
}

/// The columns of these names, all of them numbers of at least 0.
fn numbers<const N: usize>(
    path: &Path,
    names: [&'static str; N],
) -> Result<Vec<Numbers<N>>, TraceError> {
    let source = Source::open(path)?;
    let syntax = |reason: String| TraceError::Syntax {
        path: path.to_owned(),
        reason,
    };
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(source.text.as_bytes());
    let header = reader
        .headers()
        .map_err(|error| syntax(error.to_string()))?;
    let mut places = [0; N];
    for (place, name) in places.iter_mut().zip(names) {
        let found = header.iter().position(|there| there == name);
        *place = found.ok_or_else(|| TraceError::MissingColumn {
            path: path.to_owned(),
            format: "profile",
            column: name,
            there: header.iter().map(str::to_owned).collect(),
        })?;
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| syntax(error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        let mut numbers = [0.0; N];
        for ((number, place), name) in numbers.iter_mut().zip(places).zip(names) {
            let text = record.get(place).unwrap_or_default();
            let read = text.parse::<f64>().ok();
            let read = read.filter(|read| read.is_finite() && *read >= 0.0);
            *number = read.ok_or_else(|| {
                syntax(format!(
                    "line {line}: `{name}` is `{text}`: expected a number of at least 0"
                ))
            })?;
        }
        rows.push(Numbers { line, numbers });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
