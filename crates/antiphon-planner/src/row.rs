//! One row of a table of training runs, as published measurements are collected in: columns into a spec, a machine and the
//! counter that the row's memory was read from. Reads no file.

use std::collections::BTreeMap;

use antiphon_types::model::{Attention, Biases, Experts, Linear, Mlp, ModelShape, Norm, QkNorm};
use antiphon_types::training::{
    AttentionKernel, Framework, Lora, LossKernel, Matmul, Method, Model, Module, Offload,
    Optimizer, Place, Precision, Quantization, Recompute, Rollout, Schedule, Sharding, Task,
    TrainingSpec,
};

use crate::catalog;
use crate::error::PlanError;
use crate::run::Machine;

/// A row's cells by their column.
pub type Cells = BTreeMap<String, String>;

/// What a row asks.
#[derive(Debug, Clone)]
pub struct Row {
    /// What is trained and how.
    pub spec: TrainingSpec,
    /// On what.
    pub machine: Machine,
    /// Which counter its memory is told in.
    pub counter: Counter,
    /// Whether memory is told for the last pipeline stage alone.
    pub last_stage: bool,
}

/// Which number of bytes is meant by memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// What tensors take at their most.
    Allocated,
    /// What the caching allocator holds.
    Reserved,
    /// What the driver shows.
    Device,
}

/// Reads a row.
///
/// # Errors
/// A model or GPU type that is not known.
pub fn read(cells: &Cells) -> Result<Row, PlanError> {
    let at = |column: &str| cells.get(column).map_or("", |cell| cell.trim());
    let number = |column: &str| at(column).parse::<f64>().ok().map(|value| value as u64);
    let framework = framework(at("framework"));
    let model = model(cells);
    let machine = machine(cells)?;
    let method_name = at("method");
    let rl = matches!(at("workload"), "grpo" | "dapo" | "ppo");
    let generators = if rl { generators(cells) } else { None };
    // A pipeline cuts the local batch into single sequences.
    let local = at("notes").contains("micro_batch column is the local batch");

    let spec = TrainingSpec {
        model,
        task: match at("workload") {
            "grpo" | "dapo" => Task::Grpo,
            "ppo" => Task::Ppo,
            "pretrain" | "pretrain-ci" | "one-layer" => Task::Pretrain,
            _ => Task::Sft,
        },
        method: method(cells, method_name),
        quantization: quantization(at("quant")),
        optimizer: optimizer(at("optimizer")),
        precision: precision(at("precision")),
        matmul: matmul(at("precision")),
        batch: antiphon_types::training::Batch {
            sequence_length: number("seq_len"),
            micro: if local {
                Some(1)
            } else {
                number("micro_batch")
            },
            accumulation: number(if local { "micro_batch" } else { "grad_accum" }),
            global: number("global_batch"),
            // Padded to the longest of a batch, and the cap is seldom reached.
            packing: at("notes").contains("mean ~").then_some(false),
            mean_length: named(at("other_metric"), "avg_seq_len=")
                .or_else(|| mean_length(at("notes"))),
        },
        layout: antiphon_types::training::Layout {
            gpus: number("n_gpus").map(|gpus| gpus - generators.unwrap_or(0)),
            sharding: sharding(at("shard")),
            shard_group: group(at("shard")),
            tp: number("tp"),
            sequence_parallel: match at("sp") {
                "yes" => Some(true),
                "no" => Some(false),
                _ => None,
            },
            pp: number("pp"),
            chunks: number("vpp"),
            schedule: (number("pp").unwrap_or(1) > 1).then_some(Schedule::OneForwardOneBackward),
            cp: number("cp"),
            ep: number("ep"),
            expert_tp: None,
        },
        recompute: recompute(at("act_ckpt")),
        attention: match at("attention") {
            "" => None,
            // Golden runs keep scores where they have to be deterministic; else the library takes its fast kernel.
            "unfused"
                if at("notes").contains("flags:") && !at("notes").contains("deterministic") =>
            {
                Some(AttentionKernel::Flash)
            }
            "unfused" | "fused softmax" => Some(AttentionKernel::Eager),
            _ => Some(AttentionKernel::Flash),
        },
        loss: loss(cells),
        compile: match at("compile") {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        },
        offload: offload(at("offload")),
        framework,
        framework_month: month(at("source_date")),
        optimizer_in_backward: at("notes")
            .contains("optimizer in backward")
            .then_some(true)
            .or_else(|| at("notes").contains("fused in backward").then_some(true)),
        length: antiphon_types::training::Length::default(),
        rollout: rl.then(|| rollout(cells, generators)),
    };
    let metric = at("mem_metric");
    Ok(Row {
        spec,
        machine,
        counter: if metric.contains("allocated") || metric.contains("active") {
            Counter::Allocated
        } else if metric.contains("reserved") || metric.contains("logged at step") {
            Counter::Reserved
        } else if metric.contains("VRAM") {
            Counter::Device
        } else if framework == Some(Framework::Torchtune) {
            Counter::Allocated
        } else {
            Counter::Reserved
        },
        last_stage: metric.contains("last global rank"),
    })
}

/// Reads `2024-12` and `2024-12-31`.
fn month(date: &str) -> Option<u32> {
    let mut parts = date.split('-');
    let year: u32 = parts.next()?.parse().ok()?;
    // Only a year: its middle.
    let month: u32 = parts
        .next()
        .and_then(|month| month.parse().ok())
        .unwrap_or(6);
    Some(year * 100 + month)
}

fn framework(name: &str) -> Option<Framework> {
    // In the order of the table: the first word that is in the name decides.
    const WORDS: [(&str, Framework); 20] = [
        ("Megatron-Bridge", Framework::MegatronBridge),
        ("Megatron-Core/NeMo", Framework::MegatronBridge),
        ("AutoModel", Framework::Automodel),
        ("NeMo-RL", Framework::NemoRl),
        ("verl", Framework::Verl),
        ("Megatron", Framework::Megatron),
        ("DeepSpeed-Chat", Framework::DeepspeedChat),
        ("XTuner", Framework::Xtuner),
        ("InternEvo", Framework::Internevo),
        ("DeepSpeed 0", Framework::Deepspeed),
        ("torchtitan", Framework::Torchtitan),
        ("torchtune", Framework::Torchtune),
        ("Composer", Framework::Composer),
        ("bitsandbytes/HQQ", Framework::FsdpQlora),
        ("lit-gpt", Framework::Litgpt),
        ("litgpt", Framework::Litgpt),
        ("Unsloth", Framework::Unsloth),
        ("axolotl", Framework::Axolotl),
        ("PEFT", Framework::Transformers),
        ("DeepSpeed", Framework::Deepspeed),
    ];
    WORDS
        .iter()
        .find(|(word, _)| name.contains(word))
        .map(|&(_, framework)| framework)
        .or_else(|| {
            Framework::ALL
                .into_iter()
                .find(|framework| framework.name() == name)
        })
}

fn model(cells: &Cells) -> Model {
    let at = |column: &str| cells.get(column).map_or("", |cell| cell.trim());
    let key = at("model_key");
    if !key.is_empty() {
        return Model::Named(key.into());
    }
    architecture(at("arch"), at("tp").parse().unwrap_or(1)).map_or_else(
        || Model::Named(at("model").into()),
        |shape| Model::Shape(Box::new(shape)),
    )
}

/// Reads sizes written as `L=32,h=4096,heads=32,kv=8,ffn=4h,vocab=131073,gelu,untied`.
fn architecture(text: &str, tp: u64) -> Option<ModelShape> {
    let mut sizes = BTreeMap::new();
    let mut words = Vec::new();
    for part in text.split(',') {
        match part.split_once('=') {
            Some((name, value)) => _ = sizes.insert(name.trim(), value.trim()),
            None => words.push(part.trim()),
        }
    }
    let size = |name: &str| sizes.get(name).and_then(|value| value.parse::<u64>().ok());
    // A pattern of mixers (`M`, `*`) and feed-forward blocks (`-`): each pair counts as one layer, a state-space mixer as
    // attention, whose weights it has about as many of.
    let pattern = sizes.get("L").copied()?;
    let layers = match pattern.parse() {
        Ok(layers) => layers,
        Err(_) => pattern.chars().filter(|&kind| kind == '-').count() as u64,
    };
    if layers == 0 {
        return None;
    }
    let (hidden, heads) = (size("h")?, size("heads")?);
    let gated = words.contains(&"swiglu");
    let ffn = match sizes.get("ffn").copied()? {
        "4h" => 4 * hidden,
        other => other.parse().ok()?,
    };
    // A tokenizer's vocabulary is padded so that every rank's part is a multiple of 128.
    let pad = |vocab: u64| vocab.div_ceil(128 * tp) * 128 * tp;
    let vocab = match sizes.get("vocab").copied()? {
        "tok:None" => pad(50_257),
        "tok:Llama2Tokenizer" => pad(32_000),
        "tok:GPTSentencePieceTokenizer" => pad(256_000),
        other => pad(other.parse().ok()?),
    };
    let attention = match size("kv_lora") {
        // Megatron's defaults for the parts of a latent head.
        Some(kv_rank) => Attention::Latent {
            heads,
            q_rank: size("q_lora").unwrap_or(0),
            kv_rank,
            nope: 128,
            rope: 64,
            value: 128,
        },
        None => Attention::Grouped {
            heads,
            kv_heads: size("kv").unwrap_or(heads),
            head_dim: hidden / heads,
            qk_norm: QkNorm::None,
            sinks: false,
        },
    };
    let experts = size("experts").map(|count| Experts {
        count,
        top_k: size("topk").unwrap_or(1),
        ffn: size("moe_ffn").unwrap_or(ffn),
        shared_ffn: 0,
        dense_layers: 0,
        router_bias: false,
    });
    Some(ModelShape {
        name: text.into(),
        hidden,
        layers,
        attention,
        ffn,
        mlp: if gated { Mlp::Gated } else { Mlp::Plain },
        vocab,
        tied: words.contains(&"tied"),
        biases: if gated { Biases::None } else { Biases::All },
        head_bias: false,
        norm: if gated { Norm::Rms } else { Norm::Layer },
        norms_per_layer: 2,
        learned_positions: 0,
        experts,
        window: None,
        max_positions: 0,
    })
}

fn machine(cells: &Cells) -> Result<Machine, PlanError> {
    let at = |column: &str| cells.get(column).map_or("", |cell| cell.trim());
    let name = at("gpu");
    let gpu = match catalog::accelerator(name) {
        Ok(gpu) => gpu.clone(),
        Err(nearest) => {
            // `generic 24 GB`: a card of which only its memory is known.
            let Some(size) = name
                .strip_prefix("generic ")
                .and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok())
            else {
                return Err(PlanError::UnknownGpu {
                    name: name.into(),
                    nearest: nearest.into_iter().map(String::from).collect(),
                });
            };
            let mut gpu = catalog::accelerator("RTX4090")
                .map_err(|_| PlanError::UnknownGpu {
                    name: name.into(),
                    nearest: Vec::new(),
                })?
                .clone();
            gpu.name = name.into();
            gpu.memory_gb = size;
            gpu.usable_gib = size * 0.985;
            gpu
        }
    };
    let mut machine = Machine::usual(&gpu);
    if name.contains("power limited") {
        machine.gpu.watts *= 0.75;
    }
    let inter = at("inter_link");
    if inter.contains("NVL72") {
        machine.domain = 72;
    }
    if let Some(rate) = inter_rate(inter) {
        machine.inter_gb_s = rate;
    }
    if at("intra_link").contains("PCIe") {
        machine.gpu.link = "PCIe".into();
        machine.gpu.link_gb_s = machine.gpu.pcie_gb_s;
        if at("intra_link").contains("older board") {
            machine.gpu.link_gb_s = 16.0;
        }
    }
    Ok(machine)
}

fn inter_rate(link: &str) -> Option<f64> {
    [
        ("4x100", 6.25),
        ("1600 Gb/s per node", 25.0),
        ("8x HDR", 25.0),
        ("400 Gb/s per GPU", 50.0),
        ("NDR/XDR", 50.0),
        ("NDR", 50.0),
        ("InfiniBand", 50.0),
    ]
    .iter()
    .find(|(word, _)| link.contains(word))
    .map(|&(_, rate)| rate)
}

fn method(cells: &Cells, name: &str) -> Method {
    let at = |column: &str| cells.get(column).map_or("", |cell| cell.trim());
    let parameters = at("trainable_params")
        .parse::<f64>()
        .ok()
        .map(|value| value as u64);
    let rank = at("adapter_rank").parse::<u64>().ok();
    match name {
        "lora" | "qlora" | "dora" => Method::Lora(Lora {
            rank: rank.unwrap_or(8),
            targets: targets(at("adapter_targets")),
            dora: name == "dora",
            dropout: false,
            whole: Vec::new(),
        }),
        "prefix-tuning" => Method::PrefixTuning {
            tokens: virtual_tokens(at("adapter_rank"), 20),
        },
        "prompt-tuning" => Method::PromptTuning {
            tokens: virtual_tokens(at("adapter_rank"), 20),
        },
        "p-tuning" => Method::PTuning {
            tokens: virtual_tokens(at("adapter_rank"), 20),
            hidden: 128,
        },
        other if other.starts_with("peft:") || other.contains("adapter") => Method::Adapter {
            name: other.trim_start_matches("peft:").into(),
            parameters: parameters.unwrap_or(1_000_000),
        },
        _ => Method::Full,
    }
}

/// A number after a name, as in `avg_seq_len=701 rollouts_per_step=512`.
fn named(text: &str, name: &str) -> Option<u64> {
    let digits = text.split(name).nth(1)?;
    let end = digits
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// GPUs that only generate. Where answers may be some steps old, both sides have GPUs of their own; where it is not said how
/// many, half, or what leaves a whole number of sequences to each that trains.
fn generators(cells: &Cells) -> Option<u64> {
    let at = |column: &str| cells.get(column).map_or("", |cell| cell.trim());
    if !at("notes").contains("-step off") {
        return None;
    }
    let number = |column: &str| at(column).parse::<u64>().unwrap_or(1).max(1);
    let (gpus, global) = (number("n_gpus"), number("global_batch"));
    let replica = number("tp") * number("pp") * number("cp");
    [2, 3, 4]
        .into_iter()
        .filter(|parts| gpus.is_multiple_of(parts * replica))
        .map(|parts| gpus / parts)
        .find(|trainers| global.is_multiple_of(trainers / replica))
        .map(|trainers| gpus - trainers)
}

fn rollout(cells: &Cells, generators: Option<u64>) -> Rollout {
    /// Tokens of a question of the usual mathematics data.
    const PROMPT: u64 = 128;
    let at = |column: &str| cells.get(column).map_or("", |cell| cell.trim());
    let told = at("other_metric");
    let longest = at("seq_len").parse::<u64>().ok();
    Rollout {
        prompts: named(told, "rollouts_per_step="),
        answers: None,
        prompt_tokens: Some(PROMPT),
        answer_tokens: named(told, "avg_seq_len=").map(|all| all.saturating_sub(PROMPT)),
        answer_tokens_max: longest.map(|all| all.saturating_sub(PROMPT)),
        tp: named(told, "generation_tp_pp=["),
        gpus: generators,
        asynchronous: generators.is_some(),
        reference: Some(true),
        ..Rollout::default()
    }
}

/// Tokens of a sequence on average, where a table says `mean ~210 tokens`, or names a data set of which that is known.
fn mean_length(notes: &str) -> Option<u64> {
    /// Alpaca's examples in its own template.
    const ALPACA: u64 = 128;
    let told = notes
        .split("mean ~")
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse().ok());
    told.or_else(|| {
        (notes.contains("Alpaca") || notes.contains("unpacked dataset")).then_some(ALPACA)
    })
}

fn virtual_tokens(text: &str, default: u64) -> u64 {
    text.strip_prefix("virtual_tokens=")
        .and_then(|tokens| tokens.parse().ok())
        .unwrap_or(default)
}

/// Reads `q_proj+v_proj` as well as `q,k,v,o,mlp,head`.
fn targets(text: &str) -> Vec<Linear> {
    let mut targets = Vec::new();
    for word in text.split(['+', ',']).map(str::trim) {
        match word {
            "q" | "q_proj" => targets.push(Linear::QProj),
            "k" | "k_proj" => targets.push(Linear::KProj),
            "v" | "v_proj" => targets.push(Linear::VProj),
            "o" | "o_proj" => targets.push(Linear::OProj),
            "gate" | "gate_proj" => targets.push(Linear::GateProj),
            "up" | "up_proj" => targets.push(Linear::UpProj),
            "down" | "down_proj" => targets.push(Linear::DownProj),
            "mlp" => targets.extend([Linear::GateProj, Linear::UpProj, Linear::DownProj]),
            "head" | "lm_head" => targets.push(Linear::LmHead),
            _ => {}
        }
    }
    targets
}

fn quantization(text: &str) -> Option<Quantization> {
    match text {
        "" => None,
        text if text.contains("-dq") || text.contains("double") => Some(Quantization::Nf4Double),
        text if text.contains("hqq") => Some(Quantization::Hqq4),
        text if text.contains("int8") => Some(Quantization::Int8),
        _ => Some(Quantization::Nf4),
    }
}

fn optimizer(text: &str) -> Option<Optimizer> {
    let text = text.to_ascii_lowercase();
    Some(match text.as_str() {
        "" => return None,
        "pagedadamw8bit" => Optimizer::PagedAdamW8bit,
        text if text.contains("8bit") => Optimizer::AdamW8bit,
        text if text.contains("4bit") => Optimizer::AdamW4bit,
        text if text.contains("fused") => Optimizer::AdamWFused,
        "muon" => Optimizer::Muon,
        "adafactor" => Optimizer::Adafactor,
        "lion" => Optimizer::Lion,
        "sgd" => Optimizer::Sgd,
        _ => Optimizer::AdamW,
    })
}

fn precision(text: &str) -> Option<Precision> {
    match text {
        text if text.starts_with("pure bf16")
            || text.starts_with("bf16 base")
            || text.contains("bf16 master weights") =>
        {
            Some(Precision::Pure16)
        }
        text if text.contains("autocast") => Some(Precision::Autocast),
        text if text.contains("mixed") || text.contains("fp32 master") => Some(Precision::Mixed16),
        "fp32" => Some(Precision::Full32),
        // `bf16`, `fp8`: the states are as the framework has them.
        _ => None,
    }
}

fn matmul(text: &str) -> Option<Matmul> {
    match text {
        text if text.contains("mxfp8") => Some(Matmul::Mxfp8),
        text if text.contains("nvfp4") => Some(Matmul::Nvfp4),
        text if text.contains("rowwise") => Some(Matmul::Fp8Row),
        text if text.contains("fp8") => Some(Matmul::Fp8Tensor),
        _ => None,
    }
}

fn sharding(text: &str) -> Option<Sharding> {
    match text {
        "" => None,
        text if text.starts_with("none") => Some(Sharding::None),
        text if text.contains("zero1") => Some(Sharding::Zero1),
        text if text.contains("zero2") || text.contains("grad-op") => Some(Sharding::Zero2),
        _ => Some(Sharding::Zero3),
    }
}

/// Reads `zero1 within 8 GPUs`.
fn group(text: &str) -> Option<u64> {
    text.split("within ")
        .nth(1)?
        .split(' ')
        .next()?
        .parse()
        .ok()
}

fn recompute(text: &str) -> Option<Recompute> {
    match text {
        "none" | "none/limited" => Some(Recompute::None),
        "full" => Some(Recompute::Full),
        "selective (per-op)" => Some(Recompute::PerOperation),
        text => {
            let modules = text.strip_prefix("selective:")?;
            let modules = modules
                .split([' ', '+', ','])
                .filter_map(|word| match word {
                    "core_attn" => Some(Module::CoreAttn),
                    "mlp" => Some(Module::Mlp),
                    "moe" => Some(Module::Moe),
                    "moe_act" => Some(Module::MoeAct),
                    "layernorm" => Some(Module::Layernorm),
                    "mla_up_proj" => Some(Module::MlaUpProj),
                    _ => None,
                })
                .collect();
            Some(Recompute::Modules(modules))
        }
    }
}

fn loss(cells: &Cells) -> Option<LossKernel> {
    let notes = cells.get("notes").map_or("", String::as_str);
    if notes.contains("fused linear CE") {
        Some(LossKernel::FusedLinear)
    } else if notes.contains("chunked C") || notes.contains("chunked cross entropy") {
        Some(LossKernel::Chunked { chunks: 8 })
    } else {
        None
    }
}

fn offload(text: &str) -> Offload {
    let on = |word: &str| {
        if text.contains(word) {
            Place::Cpu
        } else {
            Place::Gpu
        }
    };
    let deepspeed = on("deepspeed");
    Offload {
        optimizer: if deepspeed == Place::Cpu {
            deepspeed
        } else {
            on("optim")
        },
        parameters: if deepspeed == Place::Cpu {
            deepspeed
        } else {
            on("params")
        },
        activations: on("act-"),
    }
}
