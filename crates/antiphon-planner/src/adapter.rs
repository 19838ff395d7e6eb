//! Adapters that are known by size only: how much more than nothing each keeps for its backward pass, in widths of the model
//! a token and layer. Fitted to the PEFT project's comparison on one model (`catalog/adapters.csv`).

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// What an adapter keeps; the middle of all known ones where it is not known.
#[must_use]
pub fn kept(name: &str) -> f64 {
    static KEPT: OnceLock<BTreeMap<String, f64>> = OnceLock::new();
    let kept = KEPT.get_or_init(|| {
        csv::Reader::from_reader(include_str!("../catalog/adapters.csv").as_bytes())
            .deserialize::<(String, f64)>()
            .map(|row| row.expect("the compiled-in table of adapters is well formed"))
            .collect()
    });
    kept.get(name).copied().unwrap_or(1.0)
}
