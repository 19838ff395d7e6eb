//! Advice that is another plan: the same run with one thing changed, computed and compared.

use antiphon_types::training::{
    Lora, LossKernel, Method, Offload, Optimizer, Quantization, Recompute, Sharding, TrainingSpec,
};

use super::{Advice, Asked, Effect, Kind};
use crate::memory::{self, Memory};
use crate::plan::milder_first;
use crate::profile::Ability;
use crate::run::{Run, resolve};
use crate::search::{Choice, Limits, Offer, search};
use crate::speed::{self, Speed};

const GIB: f64 = 1_073_741_824.0;
/// Less of a GPU's memory is not worth a word.
const MEMORY_WORTH: f64 = 0.02;
/// Nor is less speed or cost.
const SPEED_WORTH: f64 = 0.02;

/// All of it.
pub(super) fn all(asked: &Asked) -> Vec<Advice> {
    [
        loss, milder, stronger, optimizer, quantize, larger, sharding, pack, lora, more, cheaper,
    ]
    .into_iter()
    .filter_map(|advice| advice(asked))
    .collect()
}

/// The same run with something changed.
struct Other {
    memory: Memory,
    speed: Speed,
    effect: Effect,
}

impl Other {
    fn of(asked: &Asked, run: &Run) -> Self {
        let plan = asked.plan;
        let memory = memory::memory(run, &plan.machine);
        let speed = speed::speed(run, &plan.machine);
        let ratio = speed.tokens_per_s_per_gpu / plan.speed.tokens_per_s_per_gpu;
        Self {
            effect: Effect {
                memory_bytes: plan.memory.device - memory.device,
                speed: ratio - 1.0,
                cost: 1.0 - 1.0 / ratio,
                makes_fit: memory.fits && !plan.memory.fits,
            },
            memory,
            speed,
        }
    }

    fn saves_memory(&self) -> bool {
        self.effect.memory_bytes > MEMORY_WORTH * self.memory.usable
    }

    fn gains_speed(&self) -> bool {
        self.memory.fits && self.effect.speed > SPEED_WORTH
    }

    /// `saves 9.1 GiB a GPU (62.0 instead of 71.1), which makes it fit, and costs 3 % of the tokens a second`.
    fn told(&self, asked: &Asked) -> String {
        let saved = self.effect.memory_bytes / GIB;
        let speed = 100.0 * self.effect.speed;
        let changes = if speed > 0.0 { "gains" } else { "costs" };
        let faster =
            (speed.abs() >= 0.5).then(|| format!("{changes} {:.0} % tokens a second", speed.abs()));
        // The worst moment may be another one, so that nothing changes.
        if let (Some(faster), true) = (&faster, saved.abs() < 0.05) {
            return format!("{faster} and takes no more memory");
        }
        let memory = format!(
            "{} {:.1} GiB a GPU ({:.1} instead of {:.1}){}",
            if saved >= 0.0 { "saves" } else { "takes" },
            saved.abs(),
            self.memory.device / GIB,
            asked.plan.memory.device / GIB,
            if self.effect.makes_fit {
                ", which makes it fit,"
            } else {
                ""
            }
        );
        match faster {
            None => format!("{memory} at the same speed"),
            Some(faster) => format!("{memory} and {faster}"),
        }
    }
}

fn computed(what: &'static str, effect: Effect, sentence: String) -> Advice {
    Advice {
        kind: Kind::Computed,
        what,
        effect,
        sentence,
    }
}

fn loss(asked: &Asked) -> Option<Advice> {
    let run = &asked.plan.run;
    if run.loss != LossKernel::Plain || !run.profile.can(Ability::LeanLoss) {
        return None;
    }
    let other = Other::of(
        asked,
        &Run {
            loss: LossKernel::FusedLinear,
            ..run.clone()
        },
    );
    (other.saves_memory() || other.gains_speed()).then(|| {
        let sentence = format!(
            "a loss that is fused with the head, so that no logits are kept, {}",
            other.told(asked)
        );
        computed("loss kernel", other.effect, sentence)
    })
}

/// Every strength of recomputation that the framework has, the mildest first.
fn strengths(run: &Run) -> Vec<Recompute> {
    let known = milder_first(&run.model)
        .into_iter()
        .filter(|recompute| match recompute {
            Recompute::Modules(_) => run.profile.can(Ability::Modules),
            Recompute::PerOperation => run.profile.can(Ability::PerOperation),
            Recompute::None | Recompute::Layers { .. } | Recompute::Full => true,
        });
    std::iter::once(Recompute::None).chain(known).collect()
}

fn recomputing(asked: &Asked, recompute: Recompute) -> (Other, &'static str) {
    let name = match recompute {
        Recompute::None => "recomputing nothing",
        Recompute::Modules(_) => "recomputing attention, norms and activations only",
        Recompute::PerOperation => "recomputing all but costly operations",
        Recompute::Layers { .. } => "recomputing some layers",
        Recompute::Full => "recomputing whole blocks",
    };
    let run = asked.plan.run.recomputing(recompute);
    (Other::of(asked, &run), name)
}

/// The weakest recomputation that fits.
fn milder(asked: &Asked) -> Option<Advice> {
    let run = &asked.plan.run;
    let own = memory::strength(&run.recompute);
    strengths(run)
        .into_iter()
        .filter(|recompute| memory::strength(recompute) < own)
        .map(|recompute| recomputing(asked, recompute))
        .find(|(other, _)| other.gains_speed())
        .map(|(other, name)| {
            let sentence = format!("{name} {}", other.told(asked));
            computed("recomputation", other.effect, sentence)
        })
}

/// The next stronger one, where memory is short.
fn stronger(asked: &Asked) -> Option<Advice> {
    let (run, needs) = (&asked.plan.run, &asked.plan.memory);
    if needs.device < 0.9 * needs.usable {
        return None;
    }
    let own = memory::strength(&run.recompute);
    let others: Vec<_> = strengths(run)
        .into_iter()
        .filter(|recompute| memory::strength(recompute) > own)
        .map(|recompute| recomputing(asked, recompute))
        .collect();
    let fitting = others.iter().find(|(other, _)| other.effect.makes_fit);
    let (other, name) =
        fitting.or_else(|| others.iter().find(|(other, _)| other.saves_memory()))?;
    let sentence = format!("{name} {}", other.told(asked));
    Some(computed("recomputation", other.effect, sentence))
}

fn optimizer(asked: &Asked) -> Option<Advice> {
    let run = &asked.plan.run;
    if !matches!(
        run.optimizer,
        Optimizer::AdamW | Optimizer::AdamWFused | Optimizer::PagedAdamW
    ) {
        return None;
    }
    let other = Other::of(
        asked,
        &Run {
            optimizer: Optimizer::AdamW8bit,
            ..run.clone()
        },
    );
    other.saves_memory().then(|| {
        let sentence = format!(
            "an optimizer with 8-bit states (`adamw_8bit`) {}",
            other.told(asked)
        );
        computed("8-bit optimizer", other.effect, sentence)
    })
}

/// A quantized base under an adapter, or an unquantized one where there is room.
fn quantize(asked: &Asked) -> Option<Advice> {
    let run = &asked.plan.run;
    if run.trained.full {
        return None;
    }
    let quantized = run.quantization.is_some();
    let other = Other::of(
        asked,
        &Run {
            quantization: (!quantized).then_some(Quantization::Nf4Double),
            ..run.clone()
        },
    );
    let short = asked.plan.memory.device > 0.8 * asked.plan.memory.usable;
    let name = if quantized {
        "LoRA on an unquantized base"
    } else {
        "QLoRA, with the base in 4 bits,"
    };
    let worth = if quantized {
        other.gains_speed()
    } else {
        short && other.saves_memory()
    };
    worth.then(|| {
        let sentence = format!("{name} {}", other.told(asked));
        computed("quantized base", other.effect, sentence)
    })
}

/// The larger micro-batch with the same step that gains most.
fn larger(asked: &Asked) -> Option<Advice> {
    let run = &asked.plan.run;
    let each = run.micro * run.accumulation;
    (run.micro + 1..=each.min(run.micro * 16))
        .filter(|micro| each.is_multiple_of(*micro))
        .map(|micro| {
            let run = Run {
                micro,
                accumulation: each / micro,
                ..run.clone()
            };
            (Other::of(asked, &run), micro)
        })
        .take_while(|(other, _)| other.memory.fits)
        .filter(|(other, _)| other.gains_speed())
        .max_by(|(a, _), (b, _)| a.effect.speed.total_cmp(&b.effect.speed))
        .map(|(other, micro)| {
            let sentence = format!(
                "a micro-batch of {micro}, {} times, so the same step, {}",
                each / micro,
                other.told(asked)
            );
            computed("larger micro-batch", other.effect, sentence)
        })
}

fn sharding(asked: &Asked) -> Option<Advice> {
    let run = &asked.plan.run;
    if run.sharding != Sharding::Zero3 || run.dp * run.cp == 1 {
        return None;
    }
    [Sharding::Zero1, Sharding::Zero2]
        .into_iter()
        .rev()
        .filter(|sharding| run.profile.shardings.contains(sharding))
        .map(|sharding| {
            let run = Run {
                sharding,
                ..run.clone()
            };
            (Other::of(asked, &run), sharding)
        })
        .find(|(other, _)| other.gains_speed())
        .map(|(other, sharding)| {
            let name = match sharding {
                Sharding::Zero1 => "ZeRO-1",
                Sharding::None | Sharding::Zero2 | Sharding::Zero3 => "ZeRO-2",
            };
            let sentence = format!(
                "{name} instead of ZeRO-3, which gathers no weights for each micro-batch, {}",
                other.told(asked)
            );
            computed("sharding", other.effect, sentence)
        })
}

/// Full sequences of joined examples instead of padded ones, with as many tokens in a step.
fn pack(asked: &Asked) -> Option<Advice> {
    let run = &asked.plan.run;
    let mean = asked.spec.batch.mean_length?;
    let cap = asked.spec.batch.sequence_length?;
    if run.packing || mean * 2 > cap {
        return None;
    }
    // As many tokens of examples in a pass, at least one full sequence.
    let micro = (run.micro * mean / cap).max(1);
    let step = run.micro * run.accumulation * mean;
    let packed = Run {
        packing: true,
        sequence: cap,
        mean_sequence: cap,
        micro,
        accumulation: (step / (micro * cap)).max(1),
        ..run.clone()
    };
    let mut other = Other::of(asked, &packed);
    // All are padded to the longest of a micro-batch. Lengths are spread about log-normally: the longest of so many draws.
    let longest = run
        .profile
        .longest_of_mean
        .powf(1.0 - 1.0 / (run.micro as f64).sqrt());
    let padded_to = ((mean as f64 * longest).round() as u64).min(run.sequence);
    let padded = Run {
        mean_sequence: padded_to,
        ..run.clone()
    };
    let with_padding = speed::speed(&padded, &asked.plan.machine).step_ms;
    let useful = asked.plan.speed.tokens / with_padding;
    let gain = other.speed.tokens / other.speed.step_ms / useful - 1.0;
    other.effect.speed = gain;
    other.effect.cost = 1.0 - 1.0 / (1.0 + gain);
    (gain > SPEED_WORTH && other.memory.fits).then(|| {
        let sentence = format!(
            "packing examples of {mean} tokens to sequences of {cap} {}, against batches that are padded to about {padded_to}",
            other.told(asked),
        );
        computed("packing", other.effect, sentence)
    })
}

/// Low-rank adapters in place of all weights, on the fewest GPUs of the same type.
fn lora(asked: &Asked) -> Option<Advice> {
    let plan = asked.plan;
    if !plan.run.trained.full {
        return None;
    }
    let spec = TrainingSpec {
        method: Method::Lora(Lora::default()),
        precision: None,
        ..with_batch(asked)
    };
    let found = here(asked, &spec, 1, asked.gpus())?;
    let fewest = fewest(found)?;
    let share = 1.0 / fewest.speed.tokens_per_s_per_gpu / asked.gpu_seconds();
    if share > 1.0 && plan.memory.fits {
        return None;
    }
    let effect = Effect {
        memory_bytes: 0.0,
        speed: fewest.tokens_per_s() / asked.tokens_per_s() - 1.0,
        cost: 1.0 - share,
        makes_fit: !plan.memory.fits,
    };
    let sentence = format!(
        "LoRA (rank {}) instead of training all weights fits on {} {} at {:.0} % of the cost, with {:.1} GiB on each; whether an adapter is enough, only evaluation tells",
        fewest.run.trained.rank,
        gpus(fewest.gpus()),
        plan.machine.gpu.name,
        100.0 * share,
        fewest.memory.device / GIB,
    );
    Some(computed("LoRA", effect, sentence))
}

/// The choice with the fewest GPUs, and of those the fastest; one that offloads only where all do.
fn fewest(choices: Vec<Choice>) -> Option<Choice> {
    let offloads = |choice: &Choice| choice.run.offload != Offload::default();
    choices.into_iter().min_by(|a, b| {
        (offloads(a).cmp(&offloads(b)))
            .then(a.gpus().cmp(&b.gpus()))
            .then(a.speed.step_ms.total_cmp(&b.speed.step_ms))
    })
}

/// Another layout on as many GPUs of the same type or more, where the plan does not fit.
fn more(asked: &Asked) -> Option<Advice> {
    let plan = asked.plan;
    if plan.memory.fits {
        return None;
    }
    let found = here(asked, &with_batch(asked), asked.gpus(), asked.gpus() * 8)?;
    let fewest = fewest(found)?;
    let effect = Effect {
        makes_fit: true,
        memory_bytes: plan.memory.device - fewest.memory.device,
        ..Effect::default()
    };
    // What a node has of it is not always known, and then not checked.
    let host = if fewest.memory.host > 0.0 {
        format!(
            " and {:.0} GiB of host memory on a node",
            fewest.memory.host / GIB
        )
    } else {
        String::new()
    };
    let sentence = format!(
        "it fits on {} {} as {}, with {:.1} GiB on each{host}",
        gpus(fewest.gpus()),
        plan.machine.gpu.name,
        fewest.described(),
        fewest.memory.device / GIB,
    );
    Some(computed("layout", effect, sentence))
}

/// Another GPU type with a better price for a token.
fn cheaper(asked: &Asked) -> Option<Advice> {
    let plan = asked.plan;
    let usd_h = plan.machine.usd_h;
    if usd_h <= 0.0 || asked.offers.is_empty() {
        return None;
    }
    let own = usd_h * asked.gpu_seconds() / 3_600.0 * 1e6;
    let limits = Limits {
        gpus_min: (asked.gpus() / 2).max(1),
        gpus_max: asked.gpus() * 2,
        ..Limits::default()
    };
    let found = search(&with_batch(asked), asked.offers, &limits, asked.frameworks).ok()?;
    let (choice, price) = found
        .choices
        .iter()
        .filter(|choice| asked.offers[choice.offer].machine.gpu.name != plan.machine.gpu.name)
        .filter_map(|choice| Some((choice, choice.usd_m_tokens?)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    let saved = 1.0 - price / own;
    let faster = choice.tokens_per_s() / asked.tokens_per_s();
    // Where the plan does not fit, another type has to be of use: neither several times as dear nor as slow.
    let of_use = if plan.memory.fits {
        saved >= 0.05
    } else {
        saved > -0.5 && faster > 0.5
    };
    if !of_use {
        return None;
    }
    let effect = Effect {
        memory_bytes: 0.0,
        speed: faster - 1.0,
        cost: saved,
        makes_fit: !plan.memory.fits,
    };
    let sentence = format!(
        "{} {} ({}) {} ${price:.2} for a million tokens instead of ${own:.2}, at {:.0} % of the speed{}",
        gpus(choice.gpus()),
        asked.offers[choice.offer].machine.gpu.name,
        choice.described(),
        if choice.gpus() == 1 { "takes" } else { "take" },
        100.0 * faster,
        if plan.memory.fits {
            ""
        } else {
            ", and it fits"
        },
    );
    Some(computed("GPU type", effect, sentence))
}

/// What a spec's framework finds for it on the plan's own machine.
fn here(asked: &Asked, spec: &TrainingSpec, least: u64, most: u64) -> Option<Vec<Choice>> {
    let offers = [Offer {
        partition: None,
        gpu_type: asked.plan.machine.gpu.name.clone(),
        machine: asked.plan.machine.clone(),
        gpus: most,
    }];
    let limits = Limits {
        gpus_min: least,
        gpus_max: most,
        ..Limits::default()
    };
    let found = search(spec, &offers, &limits, asked.frameworks).ok()?;
    (!found.choices.is_empty()).then_some(found.choices)
}

/// The spec with the step of the plan, which a search keeps.
pub(super) fn with_batch(asked: &Asked) -> TrainingSpec {
    let mut spec = asked.spec.clone();
    spec.batch.global = Some(asked.plan.run.global());
    spec
}

/// The fewest GPU-seconds of a token for a spec on one GPU of the plan's type, as a share of the plan's.
pub(super) fn on_one_gpu(asked: &Asked, spec: &TrainingSpec) -> Option<f64> {
    resolve(spec, &asked.plan.machine, asked.frameworks).ok()?;
    let choices = here(asked, spec, 1, 1)?;
    let best = choices
        .iter()
        .map(|choice| 1.0 / choice.speed.tokens_per_s_per_gpu)
        .fold(f64::INFINITY, f64::min);
    Some(best / asked.gpu_seconds())
}

fn gpus(count: u64) -> String {
    if count == 1 {
        "one".into()
    } else {
        count.to_string()
    }
}
