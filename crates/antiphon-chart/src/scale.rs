//! From values to pixels and back, the marks on an axis, and values as people read them.

/// How an axis counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spacing {
    /// Equal steps.
    Linear,
    /// Equal ratios.
    Log,
}

/// What the values of an axis are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds, shown in the unit that fits.
    Seconds,
    /// Things, GPU-hours.
    Count,
    /// Hundredths.
    Percent,
    /// A ratio.
    Times,
}

/// An axis: its range in values and in pixels.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// How it counts.
    pub spacing: Spacing,
    /// How values are told.
    pub unit: Unit,
    /// The first value.
    pub from: f64,
    /// The last value.
    pub to: f64,
    /// Where the first value lies.
    pub first_px: f64,
    /// Where the last value lies.
    pub last_px: f64,
}

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3_600.0;
const DAY: f64 = 86_400.0;

/// Steps between marks of time, in seconds.
const TIME_STEPS: [f64; 27] = [
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    30.0,
    MINUTE,
    2.0 * MINUTE,
    5.0 * MINUTE,
    10.0 * MINUTE,
    30.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    3.0 * HOUR,
    6.0 * HOUR,
    12.0 * HOUR,
    DAY,
    2.0 * DAY,
    5.0 * DAY,
    10.0 * DAY,
    20.0 * DAY,
    50.0 * DAY,
    100.0 * DAY,
    200.0 * DAY,
    500.0 * DAY,
    1_000.0 * DAY,
    5_000.0 * DAY,
];

/// Marks of time where ratios count, in seconds.
const TIME_DECADES: [f64; 12] = [
    0.1,
    1.0,
    10.0,
    MINUTE,
    10.0 * MINUTE,
    HOUR,
    10.0 * HOUR,
    DAY,
    10.0 * DAY,
    100.0 * DAY,
    1_000.0 * DAY,
    10_000.0 * DAY,
];

impl Scale {
    /// Where a value lies. Values outside the range lie on its edge.
    #[must_use]
    pub fn px(&self, value: f64) -> f64 {
        let part = match self.spacing {
            Spacing::Linear => (value - self.from) / (self.to - self.from),
            Spacing::Log => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
        };
        self.first_px + part.clamp(0.0, 1.0) * (self.last_px - self.first_px)
    }

    /// The value that lies there.
    #[must_use]
    pub fn value(&self, px: f64) -> f64 {
        let part = (px - self.first_px) / (self.last_px - self.first_px);
        match self.spacing {
            Spacing::Linear => self.from + part * (self.to - self.from),
            Spacing::Log => self.from * (self.to / self.from).powf(part),
        }
    }

    /// The values at which a mark stands, at least `apart` pixels from each other.
    #[must_use]
    pub fn marks(&self, apart: f64) -> Vec<f64> {
        let all = match (self.spacing, self.unit) {
            (Spacing::Log, Unit::Seconds) => TIME_DECADES.to_vec(),
            (Spacing::Log, Unit::Count | Unit::Percent | Unit::Times) => decades(),
            (Spacing::Linear, unit) => self.even(unit, apart),
        };
        let mut kept: Vec<f64> = Vec::new();
        for mark in all {
            // A hair of room for what arithmetic lost.
            let slack = (self.to - self.from) * 1e-9;
            let inside = mark >= self.from - slack && mark <= self.to + slack;
            let free = kept
                .last()
                .is_none_or(|last| (self.px(mark) - self.px(*last)).abs() >= apart);
            if inside && free {
                kept.push(mark);
            }
        }
        kept
    }

    fn even(&self, unit: Unit, apart: f64) -> Vec<f64> {
        let room = ((self.last_px - self.first_px).abs() / apart).max(1.0);
        let least = (self.to - self.from) / room;
        let step = match unit {
            Unit::Seconds => TIME_STEPS.into_iter().find(|step| *step >= least),
            Unit::Count | Unit::Percent | Unit::Times => None,
        };
        let step = step.unwrap_or_else(|| nice(least));
        // The first is a multiple of the step, so that marks are round.
        let first = (self.from / step).ceil();
        let marks = (0..64u32).map(|index| (first + f64::from(index)) * step);
        marks
            .take_while(|mark| *mark <= self.to + step * 1e-6)
            .collect()
    }
}

/// 1, 2 and 5 times the powers of ten.
fn decades() -> Vec<f64> {
    let of = |power: i32| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power));
    (-3..9).flat_map(of).collect()
}

/// The next of 1, 2, 5, 10 .. that is not smaller.
pub(crate) fn nice(least: f64) -> f64 {
    if least <= 0.0 || !least.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(least.log10().floor());
    let digits = [1.0, 2.0, 5.0, 10.0];
    let found = digits.into_iter().find(|digit| digit * power >= least);
    found.unwrap_or(10.0) * power
}

impl Unit {
    /// A value as people read it.
    #[must_use]
    pub fn tell(self, value: f64) -> String {
        match self {
            Self::Seconds => seconds(value),
            Self::Count => count(value),
            Self::Percent => format!("{} %", short(value)),
            Self::Times => format!("{}×", short(value)),
        }
    }
}

/// A time in the largest unit of which it has at least one.
fn seconds(value: f64) -> String {
    let (unit, by) = match value.abs() {
        below if below < MINUTE => ("s", 1.0),
        below if below < HOUR => ("min", MINUTE),
        below if below < DAY => ("h", HOUR),
        _ => ("d", DAY),
    };
    format!("{} {unit}", short(value / by))
}

/// Three digits or so.
fn short(value: f64) -> String {
    let text = match value.abs() {
        below if below < 1.0 => format!("{value:.2}"),
        below if below < 100.0 => format!("{value:.1}"),
        _ => return thousands(&format!("{value:.0}")),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A count: whole where it is.
fn count(value: f64) -> String {
    if (value - value.round()).abs() < 1e-9 {
        thousands(&format!("{value:.0}"))
    } else {
        short(value)
    }
}

/// Digits in groups of three, with thin spaces.
#[must_use]
pub fn thousands(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (sign, digits) = whole
        .strip_prefix('-')
        .map_or(("", whole), |digits| ("-", digits));
    let mut out = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::{Scale, Spacing, Unit, nice, thousands};

    #[test]
    fn pixels_lead_back_to_values() {
        for spacing in [Spacing::Linear, Spacing::Log] {
            let scale = Scale {
                spacing,
                unit: Unit::Seconds,
                from: 10.0,
                to: 1_000.0,
                first_px: 40.0,
                last_px: 440.0,
            };
            for value in [10.0, 33.0, 1_000.0] {
                assert!((scale.value(scale.px(value)) - value).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn marks_are_round_and_apart() {
        let scale = Scale {
            spacing: Spacing::Linear,
            unit: Unit::Seconds,
            from: 0.0,
            to: 9.0 * 3_600.0,
            first_px: 0.0,
            last_px: 400.0,
        };
        assert_eq!(
            scale.marks(60.0),
            [0.0, 2.0, 4.0, 6.0, 8.0].map(|h| h * 3_600.0)
        );
        assert_eq!(nice(0.3), 0.5);
    }

    #[test]
    fn values_are_told_in_the_unit_that_fits() {
        assert_eq!(Unit::Seconds.tell(5_400.0), "1.5 h");
        assert_eq!(Unit::Times.tell(1.21), "1.2×");
        assert_eq!(thousands("-1234567.5"), "-1\u{202f}234\u{202f}567.5");
    }
}
