//! The formats, and how each is told from the others by what stands in it. Reads no option.

use std::fmt;
use std::str::FromStr;

use crate::error::ImportError;
use crate::options::Options;

/// What a training config is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Axolotl's YAML.
    Axolotl,
    /// DeepSpeed's JSON.
    Deepspeed,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Axolotl, Self::Deepspeed];

    /// The name that `--format` takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Axolotl => "axolotl",
            Self::Deepspeed => "deepspeed",
        }
    }

    /// What it is told by.
    #[must_use]
    pub const fn recognized_by(self) -> &'static str {
        match self {
            Self::Axolotl => "`base_model` beside `micro_batch_size`, `sequence_len` or `adapter`",
            Self::Deepspeed => "`zero_optimization` or `train_micro_batch_size_per_gpu`",
        }
    }

    /// Top-level names that only this format has, of a config in YAML or JSON.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Axolotl => &[
                "base_model",
                "micro_batch_size",
                "sequence_len",
                "adapter",
                "sample_packing",
                "val_set_size",
            ],
            Self::Deepspeed => &[
                "zero_optimization",
                "train_micro_batch_size_per_gpu",
                "train_batch_size",
                "bf16",
                "fp16",
                "gradient_clipping",
            ],
        }
    }
}

/// The format with the most names of its own among the options.
pub(crate) fn of_options(options: &Options) -> Option<Format> {
    let score = |format: &Format| {
        let keys = format.keys();
        let found = keys.iter().filter(|key| {
            let table = format!("{key}.");
            options.has(key) || options.under(&table)
        });
        found.count()
    };
    let best = Format::ALL.into_iter().max_by_key(score)?;
    (score(&best) > 0).then_some(best)
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = ImportError;

    fn from_str(text: &str) -> Result<Self, ImportError> {
        let plain = text.to_ascii_lowercase().replace(['-', '_', ' '], "");
        let named = |format: &Self| format.name().replace('-', "") == plain;
        if let Some(format) = Self::ALL.into_iter().find(named) {
            return Ok(format);
        }
        let distance = |format: &Self| strsim::damerau_levenshtein(format.name(), &plain);
        let nearest = Self::ALL.into_iter().min_by_key(distance);
        Err(ImportError::UnknownFormat {
            text: text.to_owned(),
            nearest: nearest.unwrap_or(Self::Axolotl),
        })
    }
}
