//! GPUs, CPUs and memory as Slurm's TRES and GRES texts say. Reads no times and no states.

use antiphon_types::{Bytes, GpuAmount};

use super::super::mig::{gpu_type, mig_thousandths, share, slices};
use super::super::table::{Row, rounded, whole_gpus, wrong};
use super::Columns;

/// What a job asked for, or was given.
#[derive(Default)]
pub(super) struct Needs {
    pub(super) gpus: GpuAmount,
    pub(super) gpu_type: Option<String>,
    pub(super) cpu_milli: Option<u64>,
    pub(super) memory: Option<Bytes>,
}

pub(super) fn of(columns: &Columns, row: &Row<'_>) -> Result<Needs, String> {
    let mut needs = Needs::default();
    for column in columns.tres.into_iter().rev() {
        // What was asked for first: what was allocated, where it was, takes its place.
        tres(row.get(column), &mut needs)?;
    }
    if needs.gpus.is_zero() {
        let nodes = row.get(columns.nodes).parse::<u64>().unwrap_or(1).max(1);
        for column in columns.gres.into_iter().rev() {
            gres(row.get(column), nodes, &mut needs)?;
        }
    }
    let cpus = row.get(columns.cpus).parse::<u64>().ok();
    let cpus = cpus.and_then(|cpus| cpus.checked_mul(1_000));
    needs.cpu_milli = needs.cpu_milli.or(cpus);
    if needs.memory.is_none() {
        let text = row.get(columns.memory);
        let (text, times) = match text.strip_suffix(['c', 'C']) {
            Some(text) => (text, needs.cpu_milli.unwrap_or(1_000) / 1_000),
            None => match text.strip_suffix(['n', 'N']) {
                Some(text) => (text, row.get(columns.nodes).parse().unwrap_or(1)),
                None => (text, 1),
            },
        };
        let bytes = size(text).and_then(|bytes| bytes.checked_mul(times));
        // 0 asks for all that a node has.
        needs.memory = bytes.filter(|bytes| *bytes > 0).map(Bytes::new);
    }
    Ok(needs)
}

/// Reads `billing=8,cpu=64,gres/gpu:h100=8,gres/gpu=8,mem=512G,node=1`.
fn tres(text: &str, needs: &mut Needs) -> Result<(), String> {
    let mut total = None;
    let mut typed: Vec<(&str, u64)> = Vec::new();
    for (name, value) in text.split(',').filter_map(|item| item.split_once('=')) {
        let count = || {
            let count = value.parse::<u64>();
            count.map_err(|_| wrong(name, value, "a whole number"))
        };
        if name == "cpu" {
            needs.cpu_milli = count()?.checked_mul(1_000);
        } else if name == "mem" {
            needs.memory = size(value).map(Bytes::new);
        } else if name == "gres/gpu" {
            total = Some(count()?);
        } else if let Some(kind) = name.strip_prefix("gres/gpu:") {
            typed.push((kind, count()?));
        }
    }
    if let Some(gpus) = amount(total, &typed) {
        needs.gpus = gpus.ok_or_else(|| wrong("gres/gpu", text, "at most 1,000,000 GPUs"))?;
        needs.gpu_type = typed.first().and_then(|(kind, _)| gpu_type(kind));
    }
    Ok(())
}

/// Reads `gpu:h100:8`, `gpu:8`, `gres:gpu:8`, `gpu:h100:8(S:0-1)` and `PER_NODE:gpu:8`, of each node, and `PER_JOB:gpu:8`.
fn gres(text: &str, nodes: u64, needs: &mut Needs) -> Result<(), String> {
    let (text, nodes) = match text.strip_prefix("PER_JOB:") {
        Some(text) => (text, 1),
        None => (text.trim_start_matches("PER_NODE:"), nodes),
    };
    let mut count = 0_u64;
    for item in text.split(',') {
        let item = item.split('(').next().unwrap_or_default();
        let item = item.trim_start_matches("gres:").trim_start_matches("gres/");
        let Some(rest) = item.strip_prefix("gpu") else {
            continue;
        };
        let last = rest.rsplit([':', '=']).next().unwrap_or_default();
        let here = if rest.is_empty() { "1" } else { last };
        let here = here.parse::<u64>();
        let here = here.map_err(|_| wrong("ReqGRES", text, "GPUs like `gpu:h100:8`"))?;
        count = count.saturating_add(here);
        let kind = rest.trim_start_matches(':').split_once([':', '=']);
        if let Some((kind, _)) = kind.filter(|(kind, _)| !kind.is_empty()) {
            needs.gpu_type = gpu_type(kind);
        }
    }
    if count > 0 {
        let gpus = whole_gpus(count.saturating_mul(nodes));
        needs.gpus = gpus.ok_or_else(|| wrong("ReqGRES", text, "at most 1,000,000 GPUs"))?;
    }
    Ok(())
}

/// GPUs of a TRES text; nothing where it names none, `Some(None)` where they are too many.
#[expect(clippy::option_option, reason = "absent and too many are two answers")]
fn amount(total: Option<u64>, typed: &[(&str, u64)]) -> Option<Option<GpuAmount>> {
    if typed.iter().any(|(kind, _)| slices(kind).is_some()) {
        let mut thousandths = 0_u64;
        for (kind, count) in typed {
            thousandths = thousandths.saturating_add(mig_thousandths(kind, *count));
        }
        return Some(share(thousandths));
    }
    let sum = || {
        typed
            .iter()
            .fold(0_u64, |sum, (_, count)| sum.saturating_add(*count))
    };
    match total {
        Some(total) => Some(whole_gpus(total)),
        None if typed.is_empty() => None,
        None => Some(whole_gpus(sum())),
    }
}

/// Bytes of `64G`, `4000M`, `1.5T`; a number alone counts MiB.
fn size(text: &str) -> Option<u64> {
    let unit = text.trim_end_matches(['b', 'B']).chars().next_back()?;
    let factor = match unit.to_ascii_uppercase() {
        'K' => 1024.0,
        'G' => 1_073_741_824.0,
        'T' => 1_099_511_627_776.0,
        'P' => 1_125_899_906_842_624.0,
        _ => 1_048_576.0,
    };
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number = number.parse::<f64>().ok()?;
    let bytes = number * factor;
    (bytes.is_finite() && (0.0..9e15).contains(&bytes)).then(|| rounded(bytes))
}
