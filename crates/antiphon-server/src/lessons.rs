//! What the cluster offers to a plan, and what attempts on it have taught: a fold over the state, so that it is as lasting as the
//! log. At most three factors for a GPU type and a framework.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_kernel::{Job, State};
use antiphon_planner::calibrate::{Attempt, Calibration};
use antiphon_planner::catalog;
use antiphon_planner::search::{self, Offer};
use antiphon_planner::words;
use antiphon_types::training::Framework;
use antiphon_types::{Learned, Measured, ShapePlan};

/// What a plan sees of the cluster.
#[derive(Debug, Default)]
pub struct Site {
    /// GPUs on offer.
    pub offers: Vec<Offer>,
    /// GPU types that the catalog does not know.
    pub unknown: BTreeSet<String>,
    /// What attempts have taught.
    pub lessons: Lessons,
}

/// What attempts have taught, by the catalog's GPU type and by framework.
#[derive(Debug, Default)]
pub struct Lessons(BTreeMap<(String, Framework), Lesson>);

/// What attempts of one kind have taught.
#[derive(Debug, Clone)]
pub struct Lesson {
    /// How many.
    pub attempts: u32,
    /// The factors.
    pub factors: Calibration,
    /// The median error of a step's time before and after, as shares.
    pub step_error: (f64, f64),
    /// The same of memory, where a trainer told it.
    pub memory_error: Option<(f64, f64)>,
}

/// Attempts of a kind that are learned from, the newest: what ran a year ago ran with other libraries.
const NEWEST: usize = 64;

impl Site {
    /// What the state says.
    #[must_use]
    pub fn of(state: &State) -> Self {
        let nodes = state.nodes().map(|node| &node.spec);
        let (offers, unknown) = search::offers(nodes, state.partitions().values());
        let lessons = Lessons::of(state.jobs().values().rev());
        Self {
            offers,
            unknown,
            lessons,
        }
    }
}

impl Lessons {
    /// What these jobs, the newest first, have taught.
    fn of<'a>(jobs: impl Iterator<Item = &'a Job>) -> Self {
        let mut kinds: BTreeMap<(String, Framework), Vec<Attempt>> = BTreeMap::new();
        for (plan, measured) in jobs.filter_map(answered) {
            let gpu = catalog::accelerator(&plan.gpu_type);
            let (Ok(gpu), Some(framework)) = (gpu, words::word::<Framework>(&plan.framework))
            else {
                continue;
            };
            let kind = kinds.entry((gpu.name.clone(), framework)).or_default();
            if kind.len() < NEWEST {
                kind.push(attempt(plan, measured));
            }
        }
        let lessons = kinds
            .into_iter()
            .map(|(kind, attempts)| (kind, Lesson::of(&attempts)));
        Self(lessons.collect())
    }

    /// How many attempts of a kind there were, and the factors; none and 1 where nothing was measured.
    #[must_use]
    pub fn of_kind(&self, gpu: &str, framework: Framework) -> Option<&Lesson> {
        self.0.get(&(gpu.to_owned(), framework))
    }

    /// The factors for a kind.
    #[must_use]
    pub fn factors(&self, gpu: &str, framework: Framework) -> Calibration {
        self.of_kind(gpu, framework)
            .map_or_else(Calibration::default, |lesson| lesson.factors)
    }

    /// The same as it is stored with a plan.
    #[must_use]
    pub fn learned(&self, gpu: &str, framework: Framework) -> Learned {
        self.of_kind(gpu, framework)
            .map_or_else(Learned::default, Lesson::learned)
    }

    /// Every kind, in order.
    pub fn all(&self) -> impl Iterator<Item = (&str, Framework, &Lesson)> {
        self.0
            .iter()
            .map(|((gpu, framework), lesson)| (gpu.as_str(), *framework, lesson))
    }
}

impl Lesson {
    /// The factors in integers.
    #[must_use]
    pub fn learned(&self) -> Learned {
        let permille = |factor: f64| (factor * 1e3).round().clamp(1.0, 1e6) as u32;
        Learned {
            attempts: self.attempts,
            compute_permille: permille(self.factors.compute),
            communication_permille: permille(self.factors.communication),
            memory_permille: permille(self.factors.memory),
        }
    }

    fn of(attempts: &[Attempt]) -> Self {
        let factors = Calibration::of(attempts);
        let error = |factors: &Calibration| {
            let errors = attempts.iter().map(|attempt| {
                let planned = factors.of_parts(attempt.planned_ms, attempt.communication_ms);
                (planned / attempt.step_ms - 1.0).abs()
            });
            median(errors.collect()).unwrap_or(0.0)
        };
        let memory = |factor: f64| {
            let peaks = attempts.iter().filter_map(|attempt| attempt.peak_bytes);
            let errors = peaks.map(|(planned, measured)| (factor * planned / measured - 1.0).abs());
            median(errors.collect())
        };
        let same = Calibration::default();
        Self {
            attempts: u32::try_from(attempts.len()).unwrap_or(u32::MAX),
            step_error: (error(&same), error(&factors)),
            memory_error: memory(1.0).zip(memory(factors.memory)),
            factors,
        }
    }
}

/// The plan that a job's newest measured attempt ran by, and what was measured.
pub(crate) fn answered(job: &Job) -> Option<(&ShapePlan, &Measured)> {
    let record = job.measured.as_ref()?;
    Some((record.plan_of(&job.spec)?, &record.measured))
}

/// What the formulas alone had said, against what was measured: what was learned before must not be learned twice.
fn attempt(plan: &ShapePlan, measured: &Measured) -> Attempt {
    let part = |permille: u32| f64::from(permille.max(1)) / 1e3;
    let learned = &plan.learned;
    let planned_ms = plan.step_us as f64 / 1e3;
    let communication_ms = plan.communication_us as f64 / 1e3;
    let alone = (planned_ms - communication_ms).max(0.0) / part(learned.compute_permille);
    let between = communication_ms / part(learned.communication_permille);
    let bytes = plan.allocated.get() as f64 / part(learned.memory_permille);
    let told = measured.allocated.get();
    Attempt {
        planned_ms: alone + between,
        communication_ms: between,
        step_ms: measured.step_us as f64 / 1e3,
        peak_bytes: (told > 0 && bytes > 0.0).then_some((bytes, told as f64)),
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
