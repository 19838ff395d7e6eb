//! Integer quantities with their units; a unit converts here and nowhere else. Holds no floats, reads no clock.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text that is not the quantity it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}: expected a number with a unit like {examples}")]
pub struct UnitError {
    /// The kind of quantity that was expected.
    pub what: &'static str,
    /// Correct examples.
    pub examples: &'static str,
    /// What stood there instead.
    pub text: String,
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($inner:ty), $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name($inner);

        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0);

            /// The difference, or zero where `other` is larger.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// Whether there is none.
            #[must_use]
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }
        }
        // Quantities are bounded at admission so that sums cannot overflow; an overflow is therefore a bug and panics.
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.checked_add(other.0).expect(concat!($what, " overflows")))
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.checked_sub(other.0).expect(concat!($what, " goes below zero")))
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self(0), Add::add)
            }
        }
    };
}

quantity!(
    /// A span of time in milliseconds.
    Millis(u64), "duration"
);
quantity!(
    /// Milliseconds since the Unix epoch.
    Timestamp(u64), "time"
);
quantity!(
    /// An amount of memory or storage in bytes.
    Bytes(u64), "size"
);
quantity!(
    /// An amount of GPUs in thousandths of one GPU.
    GpuAmount(u64), "GPU amount"
);
quantity!(
    /// GPU-milliseconds: one whole GPU for one millisecond.
    GpuTime(u64), "GPU time"
);

quantity!(
    /// Millionths of a US dollar.
    UsdMicros(u64), "price"
);

impl UsdMicros {
    /// So many millionths of a dollar.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }
    /// Millionths of a dollar.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }
}

impl Millis {
    /// So many milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }
    /// So many seconds.
    ///
    /// # Panics
    /// Where the span does not fit 64 bits of milliseconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.checked_mul(1_000).expect("duration overflows"))
    }
    /// The span in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

impl Timestamp {
    /// So many milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }
    /// Milliseconds after the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
    /// The moment `span` later.
    #[must_use]
    pub fn after(self, span: Millis) -> Self {
        Self(self.0.checked_add(span.0).expect("time overflows"))
    }
    /// How long ago `earlier` was; zero where it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Bytes {
    /// So many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }
    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl GpuAmount {
    /// So many whole GPUs.
    #[must_use]
    pub const fn from_gpus(count: u32) -> Self {
        Self(count as u64 * 1_000)
    }
    /// So many thousandths of a GPU.
    #[must_use]
    pub const fn from_thousandths(thousandths: u64) -> Self {
        Self(thousandths)
    }
    /// Thousandths of a GPU.
    #[must_use]
    pub const fn thousandths(self) -> u64 {
        self.0
    }
    /// The number of GPUs, where the amount is whole.
    #[must_use]
    pub fn whole(self) -> Option<u32> {
        self.0
            .is_multiple_of(1_000)
            .then(|| u32::try_from(self.0 / 1_000).ok())
            .flatten()
    }
    /// The GPU-time that holding this amount for `span` costs.
    #[must_use]
    pub fn over(self, span: Millis) -> GpuTime {
        GpuTime(self.0.checked_mul(span.0).expect("GPU time overflows") / 1_000)
    }
}

impl GpuTime {
    /// So many GPU-milliseconds.
    #[must_use]
    pub const fn from_gpu_millis(gpu_ms: u64) -> Self {
        Self(gpu_ms)
    }
    /// The number of GPU-milliseconds.
    #[must_use]
    pub const fn gpu_millis(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Millis {
    /// Two units at most: `850ms`, `12s`, `3m20s`, `2h05m`, `4d02h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0 / 1_000;
        match s {
            0 if self.0 == 0 => write!(f, "0s"),
            0 => write!(f, "{}ms", self.0),
            1..60 => write!(f, "{s}s"),
            60..3_600 => write!(f, "{}m{:02}s", s / 60, s % 60),
            3_600..86_400 => write!(f, "{}h{:02}m", s / 3_600, s / 60 % 60),
            _ => write!(f, "{}d{:02}h", s / 86_400, s / 3_600 % 24),
        }
    }
}

impl fmt::Display for UsdMicros {
    /// Dollars with two decimals at least: `$2.50`, `$0.0004`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:06}", self.0 % 1_000_000);
        let kept = decimals.trim_end_matches('0').len().max(2);
        write!(f, "${}.{}", self.0 / 1_000_000, &decimals[..kept])
    }
}

impl FromStr for UsdMicros {
    type Err = UnitError;
    /// `2.50`, with or without a dollar sign in front.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError {
            what: "price",
            examples: "`2.50`",
            text: text.to_owned(),
        };
        let digits = text.strip_prefix('$').unwrap_or(text);
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || decimals.len() > 6 || !all_digits(whole) || !all_digits(decimals) {
            return Err(wrong());
        }
        let millionths: u64 = format!("{decimals:0<6}").parse().map_err(|_| wrong())?;
        let dollars: u64 = whole.parse().map_err(|_| wrong())?;
        let micros = dollars
            .checked_mul(1_000_000)
            .and_then(|micros| micros.checked_add(millionths));
        micros.map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for GpuAmount {
    /// Whole amounts as `8`, others with up to three decimals: `0.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000, self.0 % 1_000);
        if rest == 0 {
            return whole.fmt(f);
        }
        let decimals = format!("{rest:03}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

impl fmt::Display for GpuTime {
    /// GPU-hours with two decimals, or GPU-seconds under a tenth of an hour.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 360_000 {
            write!(f, "{} GPU-s", self.0 / 1_000)
        } else {
            let hundredths = self.0 / 36_000;
            write!(f, "{}.{:02} GPU-h", hundredths / 100, hundredths % 100)
        }
    }
}

impl fmt::Display for Bytes {
    /// Binary units with one decimal: `1.5 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        for (name, shift) in UNITS {
            if self.0 >> shift > 0 {
                // The product is at most 10 x 2^64 / 2^10 and cannot overflow.
                let tenths = (self.0 >> (shift - 10)) * 10 / 1_024;
                return write!(f, "{}.{} {name}", tenths / 10, tenths % 10);
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// Splits `90s` into its digits (with at most one point) and its unit.
fn number_and_unit(text: &str) -> Option<(u64, u32, &str)> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || decimals.contains('.') || decimals.len() > 6 {
        return None;
    }
    let digits = format!("{whole}{decimals}").parse().ok()?;
    Some((digits, u32::try_from(decimals.len()).ok()?, unit.trim()))
}

/// `digits` x 10^-`decimals` x `factor`, where that is a whole number that fits.
fn scaled(digits: u64, decimals: u32, factor: u64) -> Option<u64> {
    let product = digits.checked_mul(factor)?;
    let divisor = 10u64.checked_pow(decimals)?;
    product.is_multiple_of(divisor).then(|| product / divisor)
}

impl FromStr for Millis {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let parse = || {
            let (digits, decimals, unit) = number_and_unit(text)?;
            let factor = match unit {
                "ms" => 1,
                "s" | "sec" => 1_000,
                "m" | "min" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return None,
            };
            scaled(digits, decimals, factor).map(Self)
        };
        parse().ok_or_else(|| UnitError {
            what: "duration",
            examples: "`500ms`, `90s`, `10min`, `4h` or `2d`",
            text: text.to_owned(),
        })
    }
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let parse = || {
            let (digits, decimals, unit) = number_and_unit(text)?;
            let factor: u64 = match unit {
                "B" => 1,
                "KB" | "kB" => 1_000,
                "MB" => 1_000_000,
                "GB" => 1_000_000_000,
                "TB" => 1_000_000_000_000,
                "KiB" => 1 << 10,
                "MiB" => 1 << 20,
                "GiB" => 1 << 30,
                "TiB" => 1 << 40,
                _ => return None,
            };
            scaled(digits, decimals, factor).map(Self)
        };
        parse().ok_or_else(|| UnitError {
            what: "size",
            examples: "`512MiB`, `64GiB` or `2TB`",
            text: text.to_owned(),
        })
    }
}

impl FromStr for GpuAmount {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        number_and_unit(text)
            .filter(|(_, _, unit)| unit.is_empty())
            .and_then(|(digits, decimals, _)| scaled(digits, decimals, 1_000))
            .map(Self)
            .ok_or_else(|| UnitError {
                what: "GPU amount",
                examples: "`8` or `0.5` (thousandths at the finest)",
                text: text.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_with_their_unit_and_refuse_without() {
        assert_eq!("1.5h".parse::<Millis>().unwrap(), Millis::from_secs(5_400));
        assert_eq!("2TiB".parse::<Bytes>().unwrap(), Bytes::new(2 << 40));
        assert_eq!(
            "0.5".parse::<GpuAmount>().unwrap(),
            GpuAmount::from_thousandths(500)
        );
        for wrong in [
            "",
            "10",
            "ten s",
            "-1s",
            "1.2.3s",
            "1e3s",
            "99999999999999999999s",
        ] {
            assert!(wrong.parse::<Millis>().is_err(), "{wrong}");
        }
        assert!("64".parse::<Bytes>().is_err());
        assert!("0.0005".parse::<GpuAmount>().is_err());
    }

    #[test]
    fn prices_parse_and_print_in_dollars() {
        for (text, printed) in [("2.5", "$2.50"), ("$12", "$12.00"), ("0.0004", "$0.0004")] {
            assert_eq!(text.parse::<UsdMicros>().unwrap().to_string(), printed);
        }
        for wrong in ["", ".5", "1.2345678", "two", "-1"] {
            assert!(wrong.parse::<UsdMicros>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn quantities_print_for_people() {
        let spans = [
            (0, "0s"),
            (850, "850ms"),
            (200_000, "3m20s"),
            (7_500_000, "2h05m"),
        ];
        for (ms, text) in spans {
            assert_eq!(Millis::from_millis(ms).to_string(), text);
        }
        assert_eq!(GpuAmount::from_thousandths(1_250).to_string(), "1.25");
        assert_eq!(
            GpuTime::from_gpu_millis(5_400_000).to_string(),
            "1.50 GPU-h"
        );
        assert_eq!(Bytes::new(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(Bytes::new(u64::MAX).to_string(), "16777215.9 TiB");
    }

    #[test]
    #[should_panic(expected = "GPU amount goes below zero")]
    fn taking_more_than_there_is_panics() {
        let _ = GpuAmount::from_gpus(1) - GpuAmount::from_gpus(2);
    }
}
