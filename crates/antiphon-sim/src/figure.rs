//! Figures over many numbers: means, quantiles, shares. Counts of jobs and GPUs are far below what a float holds exactly.

use antiphon_types::GpuAmount;

/// GPUs as a number to reckon with.
pub(crate) fn gpus(amount: GpuAmount) -> f64 {
    thousandths(amount) / 1_000.0
}

/// The same in thousandths of a GPU.
pub(crate) fn thousandths(amount: GpuAmount) -> f64 {
    f64::from(u32::try_from(amount.thousandths()).expect("few GPUs"))
}

/// One count as a part of another.
pub(crate) fn part(count: usize, of: usize) -> f64 {
    let number = |count: usize| f64::from(u32::try_from(count).expect("few jobs"));
    number(count) / number(of)
}

/// The smallest first.
pub(crate) fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Nothing where there are none.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    let count = f64::from(u32::try_from(values.len()).ok()?);
    (count > 0.0).then(|| values.iter().sum::<f64>() / count)
}

/// The smallest value that at least this part does not exceed.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let count = f64::from(u32::try_from(sorted.len()).ok()?);
    let rank = crate::course::span((part * count).ceil().max(1.0)).as_millis();
    sorted
        .get(usize::try_from(rank).ok()?.checked_sub(1)?)
        .copied()
}
