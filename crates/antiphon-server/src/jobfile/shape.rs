//! From `[resources]` to shapes: the preferred one and what else would do. Whether any fits is the kernel's question.

use antiphon_types::{Bytes, GpuAmount, Processes, Shape, Span, Tasks};

use super::form::{ProcessesName, Resources, SpanName};
use super::read::JobFileError;
use super::time::unit;

/// Other shapes of one role: each is tried in every cycle in which the job waits.
const ALTERNATIVES_MAX: usize = 16;

/// All shapes of a role, the preferred one first.
pub(super) fn shapes(at: &str, resources: &Resources) -> Result<(Shape, Vec<Shape>), JobFileError> {
    let preferred = shape(at, resources)?;
    let others = &resources.alternatives;
    if others.len() > ALTERNATIVES_MAX {
        let at = format!("{at}.or");
        return Err(JobFileError::over_limit(
            &at,
            "shapes",
            others.len(),
            ALTERNATIVES_MAX,
        ));
    }
    let mut alternatives = Vec::new();
    for (index, other) in others.iter().enumerate() {
        let list = format!("{at}.or");
        let at = format!("{list}[{index}]");
        if !other.alternatives.is_empty() {
            let help = format!("put its shapes beside it, into the list of `{list}`");
            return Err(JobFileError::value(&at, "it has an `or` of its own", help));
        }
        if other.processes.is_some() {
            let why = "`processes` cannot change with the shape: the command is started the same way in all of them";
            let help = "give it once, beside `or`";
            return Err(JobFileError::value(&at, why, help));
        }
        let shape = Shape {
            processes: preferred.processes,
            ..shape(&at, other)?
        };
        if shape.gpus.is_zero() && !preferred.gpus.is_zero() {
            let help = format!("give `gpus`, like `{{ gpus = {}, .. }}`", preferred.gpus);
            return Err(JobFileError::value(&at, "it names no GPUs", help));
        }
        alternatives.push(shape);
    }
    Ok((preferred, alternatives))
}

fn shape(at: &str, resources: &Resources) -> Result<Shape, JobFileError> {
    let key = |name: &str| format!("{at}.{name}");
    let gpus = gpu_amount(&key("gpus"), resources.gpus)?;
    let size = |name: &str, text: &Option<String>| size(&key(name), text.as_deref());
    Ok(Shape {
        gpus,
        gpu_type: resources.gpu_type.clone(),
        tasks: resources.tasks.map_or(Tasks::Fewest, Tasks::Exactly),
        processes: match resources.processes {
            Some(ProcessesName::PerGpu) => Processes::PerGpu,
            Some(ProcessesName::PerNode) | None => Processes::PerNode,
        },
        cpus: resources.cpus,
        memory: size("memory", &resources.memory)?,
        scratch: size("scratch", &resources.scratch)?.unwrap_or_default(),
        read_bandwidth: a_second(&key("read_bandwidth"), resources.read_bandwidth.as_deref())?,
        gpu_memory: size("gpu_memory", &resources.gpu_memory)?.unwrap_or_default(),
        partition: resources.partition.clone(),
        span: span(resources.span),
        tensor_parallel: tensor_parallel(&key("tensor_parallel"), resources, gpus)?,
        speed: speed(&key("speed"), resources.speed)?,
    })
}

/// A number of GPUs, in thousandths.
pub(super) fn gpu_amount(at: &str, gpus: f64) -> Result<GpuAmount, JobFileError> {
    let thousandths = gpus * 1_000.0;
    let whole = thousandths.round();
    if !(0.0..=1e9).contains(&gpus) || (thousandths - whole).abs() > 1e-6 {
        let help = "give a number like `8`, or a share of one GPU like `0.5`, in thousandths at the finest";
        let why = format!("{gpus} is no number of GPUs");
        return Err(JobFileError::value(at, why, help));
    }
    // In range by the check above.
    Ok(GpuAmount::from_thousandths(whole as u64))
}

fn size(at: &str, text: Option<&str>) -> Result<Option<Bytes>, JobFileError> {
    let size = text.map(|text| text.parse().map_err(|error| unit(at, &error)));
    size.transpose()
}

/// `2GB/s`, also without the `/s`.
fn a_second(at: &str, text: Option<&str>) -> Result<Bytes, JobFileError> {
    let text = text.map(|text| text.strip_suffix("/s").unwrap_or(text));
    Ok(size(at, text)?.unwrap_or_default())
}

fn tensor_parallel(at: &str, resources: &Resources, gpus: GpuAmount) -> Result<u32, JobFileError> {
    let Some(width) = resources.tensor_parallel else {
        return Ok(0);
    };
    let divides = |whole: u32| width > 0 && whole > 0 && whole.is_multiple_of(width);
    if gpus.whole().is_some_and(divides) {
        return Ok(width);
    }
    let why = format!("{gpus} GPUs cannot be split into groups of {width}");
    let help = "choose a number that divides `gpus`, or leave it out";
    Err(JobFileError::value(at, why, help))
}

/// In thousandths of the fastest.
fn speed(at: &str, speed: Option<f64>) -> Result<u32, JobFileError> {
    let speed = speed.unwrap_or(1.0);
    if !(0.001..=1.0).contains(&speed) {
        let why = format!("{speed} is no part of the fastest shape's speed");
        let help = "give a number from 0.001 to 1.0; the fastest shape has 1.0";
        return Err(JobFileError::value(at, why, help));
    }
    // In range by the check above.
    Ok((speed * 1_000.0).round() as u32)
}

const fn span(name: Option<SpanName>) -> Span {
    match name {
        Some(SpanName::Node) => Span::Node,
        Some(SpanName::NvlinkDomain) => Span::NvlinkDomain,
        Some(SpanName::Leaf) => Span::Leaf,
        Some(SpanName::Spine) => Span::Spine,
        Some(SpanName::Cluster) | None => Span::Cluster,
    }
}
