//! Parts of a GPU: MIG devices by their profiles, and what a job can hold of GPUs.

use antiphon_types::GpuAmount;

use super::table::whole_gpus;

/// Of how many sevenths of a GPU a MIG profile like `1g.10gb` or `a100_3g.20gb` is.
pub(super) fn slices(profile: &str) -> Option<u64> {
    let at = profile.find("g.")?;
    let digit = profile.get(..at)?.chars().next_back()?.to_digit(10)?;
    (1..=7).contains(&digit).then_some(u64::from(digit))
}

/// The type that `h100` or `a100_3g.20gb` names; a MIG profile alone names none.
pub(super) fn gpu_type(kind: &str) -> Option<String> {
    let whole = match slices(kind) {
        None => Some(kind),
        Some(_) => kind.rsplit_once('_').map(|(whole, _)| whole),
    };
    whole.map(str::to_owned)
}

/// Thousandths of a GPU of so many MIG devices; of whole GPUs where it is no MIG profile.
pub(super) fn mig_thousandths(profile: &str, count: u64) -> u64 {
    match slices(profile) {
        Some(slices) => count.saturating_mul(slices * 1_000 / 7),
        None => count.saturating_mul(1_000),
    }
}

/// An amount that a job can have: below one GPU a share of it, above whole GPUs.
pub(super) fn share(thousandths: u64) -> Option<GpuAmount> {
    if thousandths < 1_000 {
        Some(GpuAmount::from_thousandths(thousandths))
    } else {
        whole_gpus(thousandths.div_ceil(1_000))
    }
}
