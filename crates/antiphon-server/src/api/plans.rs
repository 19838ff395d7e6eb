//! What was planned for a job, what was measured of it, and what follows from the difference, as data and in sentences.

use antiphon_kernel::Job;
use antiphon_types::{Bytes, Learned, Measured, ShapePlan};

use super::model::{LearnedView, MeasuredView, PlanView};
use crate::jobfile::sentence;
use crate::lessons::answered;

const GIB: f64 = 1_073_741_824.0;
/// A GPU whose memory is used to less than this is larger than it has to be, in percent.
const HALF_PERCENT: u64 = 50;

/// The plans of a job's shapes.
pub(super) fn plans(job: &Job) -> Vec<PlanView> {
    job.spec.plans.iter().map(plan).collect()
}

fn plan(plan: &ShapePlan) -> PlanView {
    PlanView {
        gpus_thousandths: plan.gpus.thousandths(),
        gpu_type: plan.gpu_type.clone(),
        partition: plan.partition.clone(),
        framework: plan.framework.clone(),
        layout: plan.layout.clone(),
        environment: plan.environment.clone(),
        step_us: plan.step_us,
        communication_us: plan.communication_us,
        tokens_per_step: plan.tokens_per_step,
        allocated_bytes: plan.allocated.get(),
        peak_bytes: plan.peak.get(),
        usable_bytes: plan.usable.get(),
        duration_ms: plan.duration.map(|duration| duration.as_millis()),
        cost_usd_micros: plan.cost.map(|cost| cost.micros()),
        learned: learned_view(&plan.learned),
        sentence: sentence(plan),
    }
}

/// Factors as data.
pub(super) fn learned_view(learned: &Learned) -> LearnedView {
    LearnedView {
        attempts: learned.attempts,
        compute_permille: learned.compute_permille,
        communication_permille: learned.communication_permille,
        memory_permille: learned.memory_permille,
    }
}

/// What was measured of the job's newest attempt that was long enough.
pub(super) fn measured(job: &Job) -> Option<MeasuredView> {
    let record = job.measured.as_ref()?;
    let Measured {
        attempt,
        steps,
        step_us,
        allocated,
    } = record.measured;
    Some(MeasuredView {
        attempt: attempt.to_string(),
        steps,
        step_us,
        allocated_bytes: (allocated > Bytes::ZERO).then(|| allocated.get()),
        plan: record.plan,
        sentence: answered(job).map(|(plan, measured)| against(plan, measured)),
        suggestion: suggestion(job),
    })
}

/// Measured against planned.
fn against(plan: &ShapePlan, measured: &Measured) -> String {
    let off =
        |measured: u64, planned: u64| 100.0 * (measured as f64 / (planned as f64).max(1.0) - 1.0);
    let mut text = format!(
        "a step takes {:.3} s, {:+.0} % of the plan's {:.3}",
        measured.step_us as f64 / 1e6,
        off(measured.step_us, plan.step_us),
        plan.step_us as f64 / 1e6,
    );
    if measured.allocated > Bytes::ZERO {
        text += &format!(
            "; tensors take {:.1} GiB, {:+.0} % of {:.1}",
            measured.allocated.get() as f64 / GIB,
            off(measured.allocated.get(), plan.allocated.get()),
            plan.allocated.get() as f64 / GIB,
        );
    }
    text
}

/// What a job could ask for instead, where it holds far more than it was measured to use.
fn suggestion(job: &Job) -> Option<String> {
    let record = job.measured.as_ref()?;
    let plan = record.plan_of(&job.spec);
    let used = record.measured.used(plan)?;
    let in_gib = |bytes: Bytes| bytes.get() as f64 / GIB;
    if let Some((_, asked)) = job.shrunk {
        return Some(format!(
            "it asked for GPUs with {:.0} GiB and used {:.1}: it asks for less now",
            in_gib(asked),
            in_gib(used)
        ));
    }
    let index = usize::try_from(record.shape).ok()?;
    let asked = job.spec.roles.first()?.shapes().nth(index)?.gpu_memory;
    if let Some(enough) = record.measured.enough(asked, plan) {
        return Some(format!(
            "it asks for GPUs with {:.0} GiB and used {:.1} at the peak: `gpu_memory = \"{:.0}GiB\"` would do; with `shrink = true` a later attempt asks for that",
            in_gib(asked),
            in_gib(used),
            in_gib(enough),
        ));
    }
    let plan = plan?;
    (used.get() * 100 < plan.usable.get() * HALF_PERCENT).then(|| {
        format!(
            "each {} has {:.1} GiB and {:.1} are used at the peak: a smaller type or fewer GPUs would hold it, see `antiphon plan --search`",
            plan.gpu_type,
            in_gib(plan.usable),
            in_gib(used),
        )
    })
}
