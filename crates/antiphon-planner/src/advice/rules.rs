//! Advice that somebody else's experience gives, each with its source, and where this planner's own numbers contradict it that is
//! said. Every figure that is not computed here stands in this file alone.

use antiphon_types::training::{Lora, Method, Model, Optimizer, Quantization, TrainingSpec};

use super::computed::{on_one_gpu, with_batch};
use super::{Advice, Asked, Breadth, Effect, Kind};
use crate::catalog;
use crate::memory;
use crate::run::Run;

/// The articles whose advice this is, by title.
const PRACTICES: &str = "\"LLM Post Training Resource Scheduling: 2026 Best Practices\", mid-2026";
const TWO_WAY: &str = "\"Bidirectional Resource Scheduling Post Training LLM\", 2026";
const PLANNING: &str =
    "\"Compute Planning for LLM Training: GPU Allocation, Scheduling, and Checkpointing\", 2026";
const MUON: &str = "\"Muon is Scalable for LLM Training\", arXiv 2502.16982 (as recalled)";

const GIB: f64 = 1_073_741_824.0;
/// Reserved over allocated bytes with expandable segments.
const EXPANDABLE: f64 = 1.02;

/// What is said of an optimizer's steps to the same loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    /// Steps for each one that `AdamW` takes.
    pub steps: f64,
    /// Who says so.
    pub source: &'static str,
    /// What else is known of it.
    pub caveat: &'static str,
}

/// What is said of an optimizer's steps to the same loss against `AdamW`; none where nobody is known to say anything.
#[must_use]
pub fn claim(optimizer: Optimizer) -> Option<Claim> {
    // One 13 B model on 32 A100-80GB: 10,000 steps with fused AdamW.
    let table = |steps: f64, caveat: &'static str| {
        Some(Claim {
            steps,
            source: PRACTICES,
            caveat,
        })
    };
    match optimizer {
        Optimizer::AdamW
        | Optimizer::AdamWFused
        | Optimizer::PagedAdamW
        | Optimizer::AdamW8bit
        | Optimizer::PagedAdamW8bit
        | Optimizer::AdamW4bit => table(1.0, "it is what the others are compared with"),
        Optimizer::Sophia => table(
            0.8,
            "the same source finds it less stable at high learning rates",
        ),
        Optimizer::Prodigy => table(0.9, "one model, one data set"),
        Optimizer::Lion | Optimizer::Lion8bit => table(1.1, "one model, one data set"),
        Optimizer::Adafactor => table(
            1.5,
            "its table says 50 % more steps, its questions and answers 10 %",
        ),
        Optimizer::Muon => Some(Claim {
            steps: 0.52,
            source: MUON,
            caveat: "of pre-training, at the best size for the compute; fine-tuning is not pre-training",
        }),
        Optimizer::Galore { .. }
        | Optimizer::Apollo { .. }
        | Optimizer::Sgd
        | Optimizer::SgdMomentum
        | Optimizer::Lomo => None,
    }
}

/// All of it.
pub(super) fn all(asked: &Asked) -> Vec<Advice> {
    [
        fewer_steps as fn(&Asked) -> Option<Advice>,
        segments,
        decay,
        smaller_model,
        parts,
        hosted,
    ]
    .into_iter()
    .filter_map(|rule| rule(asked))
    .collect()
}

fn rule(what: &'static str, source: &'static str, effect: Effect, sentence: String) -> Advice {
    Advice {
        kind: Kind::RuleOfThumb { source },
        what,
        effect,
        sentence,
    }
}

/// Sophia in place of `AdamW`: fewer steps, says an article; its other claim, of less memory, is computed here.
fn fewer_steps(asked: &Asked) -> Option<Advice> {
    let run = &asked.plan.run;
    if !run.trained.full || !matches!(run.optimizer, Optimizer::AdamW | Optimizer::AdamWFused) {
        return None;
    }
    let said = claim(Optimizer::Sophia)?;
    let sophia = Run {
        optimizer: Optimizer::Sophia,
        ..run.clone()
    };
    let needs = memory::memory(&sophia, &asked.plan.machine);
    let states = crate::states::states(run, needs.stage).optimizer / GIB;
    let theirs = crate::states::states(&sophia, needs.stage).optimizer / GIB;
    let saved = 1.0 - said.steps;
    let effect = Effect {
        cost: saved,
        makes_fit: needs.fits && !asked.plan.memory.fits,
        ..Effect::default()
    };
    let here = if states > 0.0 {
        format!(", here {states:.1} GiB of a GPU with AdamW and {theirs:.1} GiB with Sophia")
    } else {
        String::new()
    };
    let sentence = format!(
        "Sophia is said to need {:.0} % fewer steps than AdamW ({}); that it also needs 14 GB a GPU less, as is said there, does not hold: both keep two states of the same size{here}",
        100.0 * saved,
        said.caveat,
    );
    Some(rule("optimizer", said.source, effect, sentence))
}

fn segments(asked: &Asked) -> Option<Advice> {
    let plan = asked.plan;
    let saved = plan.memory.reserved - EXPANDABLE * plan.memory.allocated;
    if saved < 0.01 * plan.memory.usable {
        return None;
    }
    let needed = plan.memory.device - saved;
    let margin = (0.02 * plan.memory.usable).max(GIB);
    let effect = Effect {
        memory_bytes: saved,
        makes_fit: !plan.memory.fits && needed + margin <= plan.memory.usable,
        ..Effect::default()
    };
    let sentence = format!(
        "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` leaves fewer gaps in reserved memory: about {:.1} GiB a GPU, where {:.1} GiB are reserved for {:.1} GiB of tensors",
        saved / GIB,
        plan.memory.reserved / GIB,
        plan.memory.allocated / GIB,
    );
    Some(rule("expandable segments", PRACTICES, effect, sentence))
}

fn decay(asked: &Asked) -> Option<Advice> {
    const SAVED: f64 = 0.1;
    let usd = asked.usd()?;
    let effect = Effect {
        cost: SAVED,
        ..Effect::default()
    };
    let sentence = format!(
        "a learning rate that warms up, stays and decays is said to need about 10 % fewer steps than a constant one: ${:.0} of ${usd:.0}; it can also be prolonged without starting again",
        SAVED * usd
    );
    Some(rule("warm-up, stable, decay", PRACTICES, effect, sentence))
}

/// What size of model the number of examples and the width of the task are said to ask for.
fn smaller_model(asked: &Asked) -> Option<Advice> {
    let examples = asked.spec.length.examples?;
    let parameters = asked.plan.run.model.parameters() as f64;
    let (most, wanted, advice, method) = match asked.breadth? {
        Breadth::Narrow if examples < 10_000 => (
            3.5e9,
            1e9,
            "a model of 1 to 3 B on one GPU, or retrieval without training, is said to be enough",
            None,
        ),
        Breadth::Narrow | Breadth::Reasoning if examples <= 100_000 => (
            13.5e9,
            6.5e9,
            "a model of 7 to 13 B with QLoRA on 2 to 4 GPUs is said to be enough",
            Some(Quantization::Nf4Double),
        ),
        Breadth::Narrow | Breadth::Reasoning | Breadth::Open => return None,
    };
    if parameters <= most {
        return None;
    }
    let family = family(&asked.plan.run.model.name);
    let other = catalog::models()
        .iter()
        .filter(|known| {
            let size = known.parameters as f64;
            known.target && known.shape.experts.is_none() && size >= wanted && size <= most
        })
        .max_by_key(|known| (self::family(&known.shape.name) == family, known.parameters))?;
    let mut spec = TrainingSpec {
        model: Model::Named(other.shape.name.clone()),
        ..with_batch(asked)
    };
    if method.is_some() {
        spec.quantization = method;
        spec.method = Method::Lora(Lora::default());
    }
    let share = on_one_gpu(asked, &spec)?;
    let effect = Effect {
        cost: 1.0 - share,
        makes_fit: !asked.plan.memory.fits,
        ..Effect::default()
    };
    let sentence = format!(
        "for {examples} examples of such a task {advice}: {} on one {} takes {:.0} % of the cost of this plan",
        other.shape.name,
        asked.plan.machine.gpu.name,
        100.0 * share,
    );
    Some(rule("smaller model", PRACTICES, effect, sentence))
}

/// The first word of a model's name without its owner: `Llama` of `meta-llama/Llama-3.1-8B`.
fn family(name: &str) -> &str {
    let tail = name.rsplit('/').next().unwrap_or(name);
    tail.split(|c: char| !c.is_alphabetic())
        .next()
        .unwrap_or(tail)
}

/// Training on parts of the data apart and merging, where a run is long enough to cut.
fn parts(asked: &Asked) -> Option<Advice> {
    let usd = asked.usd()?;
    if asked.plan.run.gpus <= 8 || !asked.plan.run.trained.full {
        return None;
    }
    let sentence = format!(
        "where the data falls into parts of different kinds, models trained on each apart and merged are said to save up to 91 % of the compute, at best ${:.0} of ${usd:.0}; they also run as small jobs in gaps of the cluster",
        0.91 * usd
    );
    // What is reached at best says little of what is reached.
    let effect = Effect {
        cost: 0.1,
        ..Effect::default()
    };
    Some(rule("parts and merging", PLANNING, effect, sentence))
}

/// A hosted fine-tuning service for the same tokens.
fn hosted(asked: &Asked) -> Option<Advice> {
    const LOW: f64 = 50.0;
    const HIGH: f64 = 150.0;
    let (tokens, usd) = (asked.tokens()? / 1e6, asked.usd()?);
    let (low, high) = (LOW * tokens, HIGH * tokens);
    let effect = Effect {
        cost: (1.0 - high / usd).max(0.0),
        ..Effect::default()
    };
    let sentence = format!(
        "a hosted service that fine-tunes closed models takes ${LOW:.0} to ${HIGH:.0} for a million tokens by a snapshot of 2026: ${low:.0} to ${high:.0} for the {tokens:.1} million of this run, against ${usd:.0} here; ask for today's price",
    );
    Some(rule("hosted service", TWO_WAY, effect, sentence))
}
