//! FSDP as Transformers, accelerate and Axolotl configure it: a text such as `full_shard auto_wrap offload`, and a table whose names may
//! begin with `fsdp_`.

use antiphon_types::training::{Place as At, Recompute, Sharding, TrainingSpec};
use serde_json::Value;

use crate::error::ImportError;
use crate::options::{Known, Options, plain};
use crate::reading::Reading;

const SILENT: &str = "\
    auto_wrap_policy backward_prefetch backward_prefetch_policy cpu_ram_efficient_loading \
    enable_external_optimizer final_state_dict_type forward_prefetch ignored_modules \
    mixed_precision_policy state_dict_type sync_module_states transformer_layer_cls_to_wrap \
    use_orig_params xla*";

const KNOWN: Known = Known {
    matters: &[&[
        (
            "min_num_params",
            "layers are joined by size; planned layer by layer",
        ),
        (
            "limit_all_gathers",
            "how many layers are gathered at once; planned as usual",
        ),
        (
            "cpu_offload_pin_memory",
            "pageable host memory; planned pinned",
        ),
    ]],
    silent: &[SILENT],
};

const STRATEGIES: [(&str, Sharding); 12] = [
    ("FULL_SHARD", Sharding::Zero3),
    ("1", Sharding::Zero3),
    ("HYBRID_SHARD", Sharding::Zero3),
    ("4", Sharding::Zero3),
    ("SHARD_GRAD_OP", Sharding::Zero2),
    ("2", Sharding::Zero2),
    ("HYBRID_SHARD_ZERO2", Sharding::Zero2),
    ("5", Sharding::Zero2),
    ("NO_SHARD", Sharding::None),
    ("3", Sharding::None),
    ("true", Sharding::Zero3),
    ("false", Sharding::Zero2),
];

/// The text or list of `fsdp:`. Answers whether FSDP is on.
pub(crate) fn words(
    options: &mut Options,
    name: &str,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<bool, ImportError> {
    let words = match options.value(name) {
        None | Some(Value::Bool(false)) => return Ok(false),
        Some(Value::Bool(true)) => Vec::new(),
        Some(_) => options.words(name).unwrap_or_default(),
    };
    let mut sharding = Sharding::Zero3;
    for word in &words {
        match word.to_ascii_lowercase().as_str() {
            "full_shard" | "auto_wrap" | "fsdp" => (),
            "shard_grad_op" => sharding = Sharding::Zero2,
            "no_shard" => sharding = Sharding::None,
            "hybrid_shard" => hybrid(options, name, reading),
            "hybrid_shard_zero2" => {
                sharding = Sharding::Zero2;
                hybrid(options, name, reading);
            }
            "offload" => offload(spec),
            _ => {
                let expected = "words among `full_shard`, `shard_grad_op`, `no_shard`, `hybrid_shard`, `hybrid_shard_zero2`, `offload`, `auto_wrap`";
                return Err(options.bad(name, expected));
            }
        }
    }
    spec.layout.sharding = Some(sharding);
    Ok(true)
}

/// The table of `fsdp_config:`.
pub(crate) fn table(
    mut options: Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    options.rename(|name| name.strip_prefix("fsdp_").unwrap_or(name).to_owned());
    let version = options.integer("version", "1 or 2")?;
    if !matches!(version, None | Some(1 | 2)) {
        return Err(options.bad("version", "1 or 2"));
    }
    spec.layout.sharding.get_or_insert(Sharding::Zero3);
    for name in ["reshard_after_forward", "sharding_strategy"] {
        if let Some(sharding) = options.choice(name, &STRATEGIES)? {
            spec.layout.sharding = Some(sharding);
            let written = options.value(name).map(|value| plain(&value));
            if written.is_some_and(|text| text.to_ascii_uppercase().starts_with("HYBRID")) {
                hybrid(&options, name, reading);
            }
        }
    }
    if options.on("offload_params")? {
        offload(spec);
    }
    if options.on("activation_checkpointing")? {
        spec.recompute = Some(Recompute::Full);
    }
    if options.on("activation_cpu_offload")? {
        spec.offload.activations = At::Cpu;
    }
    options.finish(&KNOWN, &mut reading.warnings);
    Ok(())
}

/// FSDP's one offload holds weights, gradients and states on the host, and updates there.
const fn offload(spec: &mut TrainingSpec) {
    spec.offload.parameters = At::Cpu;
    spec.offload.optimizer = At::Cpu;
}

fn hybrid(options: &Options, name: &str, reading: &mut Reading<'_>) {
    let effect =
        "shards within a node, copies across nodes; the size of a node is left to the plan";
    reading.warnings.push(options.not_understood(name, effect));
}
