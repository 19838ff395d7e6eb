//! Sizes for a model of which only its name is known, where the name tells its parameters: `30B-A3B`, `27b`. They are those of
//! the known model nearest to it, made as large. Good for times and totals, not for a plan to rely on: callers say so.

use antiphon_types::model::ModelShape;

use crate::catalog;

/// Share of its parameters that a token goes through, where a name tells only all of them: what large models with experts have.
const ACTIVE: f64 = 0.08;

/// Sizes that a name tells, of a model with experts or without.
#[must_use]
pub fn shape(name: &str, experts: bool) -> Option<ModelShape> {
    let (total, active) = told(name).or_else(|| parameters(name))?;
    let active = if experts && active >= total {
        total * ACTIVE
    } else {
        active
    };
    let distance = |known: &catalog::KnownModel| {
        let both = known.parameters as f64 / total;
        let own = known.active as f64 / active;
        both.ln().abs() + own.ln().abs()
    };
    let nearest = catalog::models()
        .iter()
        .filter(|known| known.shape.experts.is_some() == (active < total))
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    Some(scaled(&nearest.shape, name, total, active))
}

/// All and active parameters of models whose names don't tell them.
fn told(name: &str) -> Option<(f64, f64)> {
    let name = name.to_ascii_lowercase();
    catalog::sizes()
        .iter()
        .find(|(stem, _, _)| name.contains(stem.as_str()))
        .map(|&(_, total, active)| (total * 1e9, active * 1e9))
}

/// All and active parameters as written in a name.
fn parameters(name: &str) -> Option<(f64, f64)> {
    let (mut total, mut active) = (None, None);
    for word in name.split(['-', '_', ' ', '/']) {
        let word = word.to_ascii_lowercase();
        let Some(number) = word.strip_suffix('b') else {
            continue;
        };
        if let Some(count) = number.strip_prefix('a').and_then(|n| n.parse::<f64>().ok()) {
            active = Some(count * 1e9);
        } else if let Ok(count) = number.parse::<f64>() {
            total = Some(count * 1e9);
        }
    }
    let total = total.filter(|&count| count > 0.0)?;
    let active = active.filter(|&count| count > 0.0).unwrap_or(total);
    Some((total, active.min(total)))
}

/// A shape with as many parameters: wider first, then with more experts.
fn scaled(near: &ModelShape, name: &str, total: f64, active: f64) -> ModelShape {
    let mut shape = near.clone();
    shape.name = name.into();
    let wider = (active / near.active_parameters() as f64).sqrt();
    let width = |size: u64| ((size as f64 * wider / 64.0).round().max(1.0) * 64.0) as u64;
    shape.hidden = width(near.hidden);
    shape.ffn = width(near.ffn);
    if let Some(experts) = &mut shape.experts {
        experts.ffn = width(experts.ffn);
        if experts.shared_ffn > 0 {
            experts.shared_ffn = width(experts.shared_ffn);
        }
    }
    if let Some(experts) = shape.experts {
        let each = (shape.expert_layers() * shape.routed_experts()) as f64 / experts.count as f64;
        let missing = total - shape.parameters() as f64;
        // Experts are split over ranks: a multiple of 64.
        let count = ((experts.count as f64 + missing / each) / 64.0)
            .round()
            .max(1.0)
            * 64.0;
        if let Some(experts) = &mut shape.experts {
            experts.count = (count as u64).max(experts.top_k);
        }
        // What the rounding left out or added, each expert makes up for.
        let routed = (shape.expert_layers() * shape.routed_experts()) as f64;
        let left = total - shape.parameters() as f64;
        if let Some(experts) = &mut shape.experts {
            let width = experts.ffn as f64 * (1.0 + left / routed);
            experts.ffn = (width / 64.0).round().max(1.0) as u64 * 64;
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_about_the_parameters_that_the_name_tells() {
        for (name, total, active) in [
            ("qwen3.8-27b", 27e9, 27e9),
            ("Nemotron-3-Super-120B-A12B", 120e9, 12e9),
            ("Nemotron-3-Nano-30B-A3B", 30e9, 3e9),
            ("gemma-4-26b-a4b-it", 26e9, 4e9),
        ] {
            let shape = shape(name, false).expect("the name tells");
            let (all, own) = (shape.parameters() as f64, shape.active_parameters() as f64);
            assert!((all / total - 1.0).abs() < 0.1, "{name}: {all}");
            assert!((own / active - 1.0).abs() < 0.25, "{name}: {own}");
        }
        assert!(
            shape("DeepSeek-V4-Flash", true).is_some(),
            "the table of sizes has it"
        );
        assert_eq!(shape("base", false), None);
    }
}
