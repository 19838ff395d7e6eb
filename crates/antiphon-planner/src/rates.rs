//! What one GPU reaches of what its data sheet says: rates that everything else is divided by.

use antiphon_types::model::Attention;
use antiphon_types::training::{Matmul, Precision};

use crate::catalog;
use crate::kernels::{Kernels, Silicon};
use crate::run::{Machine, Run};

/// Rates of one GPU in units a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The data sheet's bf16 operations: what MFU is told against.
    pub peak: f64,
    /// 16-bit operations of a large product.
    pub product: f64,
    /// Operations of a large product in the run's own numbers.
    pub low: f64,
    /// Operations of attention at long sequences.
    pub attention: f64,
    /// Bytes of element-wise kernels.
    pub memory: f64,
}

impl Rates {
    /// What a run's kernels reach on a machine.
    #[must_use]
    pub fn new(run: &Run, machine: &Machine, kernels: &Kernels, silicon: &Silicon) -> Self {
        let gpu = &machine.gpu;
        // Volta has no bf16.
        let sheet = if gpu.bf16_tflops > 0.0 {
            gpu.bf16_tflops
        } else {
            gpu.fp16_tflops
        };
        let alike = alike(machine);
        let measured = if gpu.measured_bf16_tflops > 0.0 {
            gpu.measured_bf16_tflops
        } else {
            alike.map_or(
                (sheet * silicon.ratio).min(gpu.watts * silicon.tflops_per_watt),
                |part| part.measured_bf16_tflops,
            )
        };
        // The clock under a power cap falls slower than the power.
        let clock = alike.map_or(1.0, |part| {
            (gpu.watts / part.watts).min(1.0).powf(silicon.power)
        });
        let clock = if gpu.measured_bf16_tflops > 0.0 && alike.is_some_and(|p| p.name != gpu.name) {
            1.0
        } else {
            clock
        };
        let eight = if gpu.measured_fp8_tflops > 0.0 {
            gpu.measured_fp8_tflops
        } else {
            gpu.fp8_tflops * silicon.low_ratio
        };
        let low = match run.matmul {
            None => measured,
            Some(Matmul::Fp8Tensor | Matmul::Fp8Row | Matmul::Mxfp8) => eight.max(measured),
            Some(Matmul::Nvfp4) => (gpu.fp4_tflops * silicon.low_ratio)
                .max(eight)
                .max(measured),
        };
        // Full precision multiplies in TF32, at half the rate.
        let width = if run.precision == Precision::Full32 {
            0.5
        } else {
            1.0
        };
        let attends = if kernels.attention_version >= 3.0 {
            silicon.attention_3
        } else {
            silicon.attention_2
        };
        let head = match run.model.attention {
            Attention::Grouped { head_dim, .. } => head_dim,
            Attention::Latent { nope, rope, .. } => nope + rope,
        } as f64;
        // Narrow heads leave less work for each exponential.
        let narrow = (head / (head + 32.0) / 0.8).min(1.0);
        Self {
            peak: sheet * 1e12,
            product: measured * 1e12 * clock * width * kernels.matmul,
            low: low * 1e12 * clock * width * kernels.matmul,
            attention: measured * 1e12 * clock * width * attends * narrow * kernels.attention,
            memory: gpu.memory_gb_s * 1e9 * kernels.memory,
        }
    }
}

/// The part with a measured rate that this one is a variant of.
fn alike(machine: &Machine) -> Option<&'static catalog::Accelerator> {
    let gpu = &machine.gpu;
    catalog::accelerators().iter().find(|part| {
        part.measured_bf16_tflops > 0.0
            && part.architecture == gpu.architecture
            && (part.bf16_tflops - gpu.bf16_tflops).abs() < 1.0
    })
}
