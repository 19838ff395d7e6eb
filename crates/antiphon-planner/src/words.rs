//! What people write for a method, an optimizer, a number of tokens: the same words in job files and on the command line.

use antiphon_types::model::Linear;
use antiphon_types::training::{Lora, Method, Quantization};
use serde::de::value::{Error, StrDeserializer};
use serde::de::{Deserialize, IntoDeserializer};

/// Tasks.
pub const TASKS: &str = "pretrain, sft, dpo, orpo, kto, reward-model, ppo, grpo";
/// Methods.
pub const METHODS: &str = "full, lora, qlora, dora, prefix-tuning, prompt-tuning, p-tuning";
/// Optimizers.
pub const OPTIMIZERS: &str = "adam-w, adam-w-fused, adam-w8bit, adam-w4bit, paged-adam-w, paged-adam-w8bit, adafactor, lion, lion8bit, sophia, prodigy, muon, sgd, sgd-momentum, lomo";
/// What data-parallel ranks may share.
pub const SHARDINGS: &str = "none, zero1, zero2, zero3";

/// Width of an adapter where nothing is said.
const RANK: u64 = 16;

/// Reads one of a closed set of words: a task, an optimizer, a framework.
#[must_use]
pub fn word<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    let text: StrDeserializer<'a, Error> = text.into_deserializer();
    T::deserialize(text).ok()
}

/// Reads a method; with its adapter's rank and targets, where it has one.
#[must_use]
pub fn method(
    name: &str,
    rank: Option<u64>,
    targets: Vec<Linear>,
) -> Option<(Method, Option<Quantization>)> {
    let lora = |dora| {
        Method::Lora(Lora {
            rank: rank.unwrap_or(RANK),
            targets,
            dora,
            ..Lora::default()
        })
    };
    Some(match name {
        "full" => (Method::Full, None),
        "lora" => (lora(false), None),
        "dora" => (lora(true), None),
        "qlora" => (lora(false), Some(Quantization::Nf4)),
        "prefix-tuning" => (Method::PrefixTuning { tokens: 20 }, None),
        "prompt-tuning" => (Method::PromptTuning { tokens: 20 }, None),
        "p-tuning" => {
            let hidden = 128;
            (Method::PTuning { tokens: 20, hidden }, None)
        }
        _ => return None,
    })
}

/// Reads `8`, `200M`, `1.5B`: a whole number of at least 1.
#[must_use]
pub fn count(text: &str) -> Option<u64> {
    let scale = match text.chars().last()? {
        'k' | 'K' => 1e3,
        'm' | 'M' => 1e6,
        'b' | 'B' | 'g' | 'G' => 1e9,
        't' | 'T' => 1e12,
        _ => 1.0,
    };
    let digits = if scale > 1.0 {
        &text[..text.len() - 1]
    } else {
        text
    };
    let number = (digits.parse::<f64>().ok()? * scale).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in range, as checked beside it"
    )]
    (1.0..1e18).contains(&number).then_some(number as u64)
}

/// Reads `8` or `8..64`: the fewest and the most.
#[must_use]
pub fn range(text: &str) -> Option<(u64, u64)> {
    let (least, most) = match text.split_once("..") {
        None => (count(text)?, count(text)?),
        Some((least, most)) => (count(least.trim())?, count(most.trim())?),
    };
    (least <= most).then_some((least, most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_types::training::{Framework, Optimizer, Sharding, Task};

    /// Every word of a list has to be one.
    fn all<'a, T: Deserialize<'a>>(list: &'a str) {
        for name in list.split(", ") {
            assert!(word::<T>(name).is_some(), "{name}");
        }
    }

    #[test]
    fn every_word_that_is_offered_is_understood() {
        all::<Task>(TASKS);
        all::<Optimizer>(OPTIMIZERS);
        all::<Sharding>(SHARDINGS);
        for name in METHODS.split(", ") {
            assert!(method(name, None, Vec::new()).is_some(), "{name}");
        }
        assert_eq!(word::<Framework>("axolotl"), Some(Framework::Axolotl));
        assert_eq!(word::<Task>("sftt"), None);
    }

    #[test]
    fn counts_have_scales_and_ranges_an_order() {
        let counts = ["8", "200M", "1.5B", "4k", "0", "-3", "", "M", "1e400", "é"];
        assert_eq!(
            counts.map(count),
            [
                Some(8),
                Some(200_000_000),
                Some(1_500_000_000),
                Some(4_000),
                None,
                None,
                None,
                None,
                None,
                None
            ]
        );
        assert_eq!(range("8..64"), Some((8, 64)));
        assert_eq!(range("8"), Some((8, 8)));
        assert_eq!(range("64..8"), None);
    }
}
