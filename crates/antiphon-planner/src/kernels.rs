//! What kernels, links and frameworks reach of what the hardware could do, as data: `catalog/kernels.toml`. Decides nothing.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use antiphon_types::training::Framework;
use serde::Deserialize;

/// What one framework's kernels and collectives reach.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernels {
    /// Share of the measured matrix rate that a large product inside a block reaches.
    pub matmul: f64,
    /// A product with a dimension of so many reaches half of that.
    pub matmul_half: f64,
    /// The same for the tokens of an expert in a grouped product.
    pub expert_half: f64,
    /// Share of element-wise work that runs in fused kernels.
    pub fused: f64,
    /// Share of the memory rate that element-wise kernels reach.
    pub memory: f64,
    /// Generation of attention kernels: 2 = `FlashAttention` 2, 3 = `FlashAttention` 3 or cuDNN.
    pub attention_version: f64,
    /// What attention reaches, beside what its generation and the silicon do.
    pub attention: f64,
    /// Microseconds of host time to start one kernel from Python.
    pub host_us: f64,
    /// Operations of a layer of experts beside its products, forward: routing, ordering, exchanging, weighing.
    pub expert_kernels: f64,
    /// Operations that latent attention has more than grouped attention, forward.
    pub latent_kernels: f64,
    /// Share of host time that is left on machines whose domain spans nodes: recipes for them capture graphs.
    pub graphed: f64,
    /// Operations that an adapter adds to a layer it is on, forward.
    pub adapter_kernels: f64,
    /// Microseconds of host time to start one gather or scatter.
    pub collective_us: f64,
    /// Share of tensor-parallel traffic that is hidden behind products.
    pub overlap_tensor: f64,
    /// Share of expert-parallel traffic that is hidden behind other work.
    pub overlap_expert: f64,
    /// Share of the work beside it that data-parallel traffic can hide behind.
    pub overlap_data: f64,
    /// Slowdown of work by traffic that is hidden behind it, as a share of that traffic.
    pub contention: f64,
    /// Bytes moved for each value to make a low-precision input of a product.
    pub quantize_bytes: f64,
    /// The same where each row has a scale: a second pass finds it.
    pub quantize_row_bytes: f64,
    /// The same where each block has a scale.
    pub quantize_block_bytes: f64,
    /// The same for 4 bits: rotated, and rounded at random.
    pub quantize_four_bytes: f64,
    /// Bytes moved for each weight to make a 16-bit copy of a quantized one.
    pub dequantize_bytes: f64,
    /// How often the states go through memory in an update.
    pub optimizer_passes: f64,
    /// Milliseconds that a step has beside all that is computed.
    pub step_ms: f64,
    /// The slowest of n ranks: so much for each doubling.
    pub jitter: f64,
    /// Share of a link inside a domain that collectives reach.
    pub link: f64,
    /// Share of PCIe that collectives reach between GPUs that can't read each other's memory.
    pub host_link: f64,
    /// Share of the network that collectives reach.
    pub network: f64,
    /// Microseconds of a hop inside a domain.
    pub link_us: f64,
    /// Microseconds of a hop between domains.
    pub network_us: f64,
    /// Bytes of gradients or weights that travel together, in 10^6.
    pub bucket_mb: f64,
    /// 10^9 bytes a second of host memory that one GPU's share of the processors updates weights with.
    pub host_gb_s: f64,
    /// Share of the memory rate that a decode step reaches.
    pub decode_memory: f64,
    /// Milliseconds that a decode step has beside: scheduling, sampling, the host.
    pub decode_ms: f64,
    /// How often all weights travel when what generates gets new ones: sent, and made into its layout.
    pub refit_passes: f64,
    /// Seconds that a step has beside when answers are generated: waking up, environments, advantages.
    pub rollout_s: f64,
}

/// What an architecture's silicon reaches.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silicon {
    /// Measured over data-sheet rate of large bf16 products, where nobody measured the part itself.
    pub ratio: f64,
    /// 10^12 operations that a watt lets large bf16 products do, where power and not the clock bounds them.
    #[serde(default = "unbounded")]
    pub tflops_per_watt: f64,
    /// The same for 8 and 4 bits.
    pub low_ratio: f64,
    /// Share of the measured rate that `FlashAttention` 2 reaches at long sequences.
    pub attention_2: f64,
    /// The same for `FlashAttention` 3 and cuDNN.
    pub attention_3: f64,
    /// Share of what decoding reaches elsewhere: kernels of generation come later than those of training.
    #[serde(default = "whole")]
    pub decode: f64,
    /// Exponent of the clock under a power cap.
    pub power: f64,
}

const fn whole() -> f64 {
    1.0
}

const fn unbounded() -> f64 {
    f64::INFINITY
}

/// All of it.
#[derive(Debug, Clone)]
pub struct Constants {
    frameworks: Vec<Kernels>,
    architectures: Vec<(String, Silicon)>,
}

impl Constants {
    /// What a framework reaches.
    #[must_use]
    pub fn framework(&self, framework: Framework) -> &Kernels {
        &self.frameworks[framework as usize]
    }

    /// What an architecture reaches; an unknown one is taken as the last that is known.
    #[must_use]
    pub fn architecture(&self, name: &str) -> &Silicon {
        let found = self.architectures.iter().find(|(known, _)| known == name);
        let (_, silicon) = found
            .or(self.architectures.last())
            .expect("the table has architectures");
        silicon
    }
}

/// What is compiled in.
#[must_use]
pub fn constants() -> &'static Constants {
    static CONSTANTS: OnceLock<Constants> = OnceLock::new();
    CONSTANTS.get_or_init(|| {
        parse(include_str!("../catalog/kernels.toml"))
            .expect("the compiled-in table of kernels is well formed")
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    defaults: toml::Table,
    #[serde(default)]
    framework: BTreeMap<String, toml::Table>,
    architecture: BTreeMap<String, Silicon>,
}

/// Reads a table of kernels: `[defaults]`, what differs for each framework, and the architectures.
///
/// # Errors
/// What is wrong with the text.
pub fn parse(text: &str) -> Result<Constants, toml::de::Error> {
    let table: Table = toml::from_str(text)?;
    let frameworks = Framework::ALL
        .into_iter()
        .map(|framework| {
            let mut own = table.defaults.clone();
            own.extend(
                table
                    .framework
                    .get(framework.name())
                    .cloned()
                    .unwrap_or_default(),
            );
            own.try_into()
        })
        .collect::<Result<_, _>>()?;
    Ok(Constants {
        frameworks,
        architectures: table.architecture.into_iter().collect(),
    })
}
