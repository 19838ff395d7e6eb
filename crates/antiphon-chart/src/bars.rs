//! Bars side by side: one a policy, of one part or of several on top of each other.

use std::fmt::Write as _;

use crate::escape::{cell, text};
use crate::scale::{Scale, Spacing, Unit, thousands};
use crate::svg::{COLORS, Frame, shortened, width_of};

const WIDTH: f64 = 480.0;
const BAR: f64 = 16.0;
const APART: f64 = 26.0;
const BOTTOM: f64 = 24.0;

/// One bar.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Whose it is.
    pub name: String,
    /// In the order of the parts.
    pub values: Vec<f64>,
}

/// A chart of bars.
#[derive(Debug, Clone)]
pub struct Bars {
    /// What is shown, with its unit.
    pub title: &'static str,
    /// How values are told.
    pub unit: Unit,
    /// What the parts are; one that has no name where there is but one.
    pub parts: Vec<&'static str>,
    /// From top to bottom.
    pub bars: Vec<Bar>,
    /// A line across all bars, and what it is.
    pub line: Option<(f64, &'static str)>,
}

impl Bars {
    /// Draws them.
    #[must_use]
    pub fn svg(&self) -> String {
        let legend: &[&str] = if self.parts.len() > 1 {
            &self.parts
        } else {
            &[]
        };
        let mut frame = Frame::new(WIDTH, self.title, legend);
        let longest = self
            .bars
            .iter()
            .map(|bar| width_of(&shortened(&bar.name, 24)));
        let left = 12.0 + 6.6 * longest.fold(0.0, f64::max);
        let sum = |bar: &Bar| bar.values.iter().sum::<f64>();
        let most = self
            .bars
            .iter()
            .map(sum)
            .chain(self.line.map(|(at, _)| at))
            .fold(0.0, f64::max);
        let x = Scale {
            spacing: Spacing::Linear,
            unit: self.unit,
            from: 0.0,
            to: most.max(1e-9),
            first_px: left,
            last_px: WIDTH - 62.0,
        };
        let top = frame.top;
        for (place, bar) in self.bars.iter().enumerate() {
            let y = top + APART * u32::try_from(place).map_or(0.0, f64::from);
            frame.label("name end", left - 8.0, y + 12.5, &shortened(&bar.name, 24));
            let mut before = 0.0;
            for (part, value) in bar.values.iter().enumerate() {
                let from = x.px(before);
                before += value;
                let wide = x.px(before) - from;
                // With one part, bars have the colors that their policies have in the other charts.
                let color = if self.parts.len() > 1 { part } else { place };
                let what = self.parts.get(part).filter(|part| !part.is_empty());
                let mut told = bar.name.clone();
                if let Some(what) = what {
                    let _ = write!(told, ", {what}");
                }
                let _ = write!(told, ": {}", self.tell(*value));
                frame.push(&format!(
                    "<rect class=\"f{}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{BAR}\"><title>{}</title></rect>",
                    color % COLORS,
                    text(&told)
                ));
            }
            frame.label("name", x.px(before) + 6.0, y + 12.5, &self.tell(sum(bar)));
        }
        let count = u32::try_from(self.bars.len()).map_or(0.0, f64::from);
        let base = top + APART * count;
        if let Some((line, what)) = self.line {
            let at = x.px(line);
            frame.push(&format!(
                "<path class=\"grid\" style=\"stroke:var(--ink)\" stroke-dasharray=\"3 3\" d=\"M{at:.1} {:.1}V{base:.1}\"/>",
                top - 4.0
            ));
            frame.label("middle", at, base + 12.0, what);
        }
        frame.close(base + if self.line.is_some() { BOTTOM } else { 2.0 })
    }

    /// With as many digits in each, so that they can be compared.
    fn tell(&self, value: f64) -> String {
        match self.unit {
            Unit::Times => format!("{value:.2}×"),
            Unit::Percent => format!("{value:.2} %"),
            Unit::Count if value >= 100.0 => thousands(&format!("{value:.0}")),
            Unit::Count => format!("{value:.1}"),
            Unit::Seconds => self.unit.tell(value),
        }
    }

    /// The values as a table: one line a part of a bar, with the names of its first and last column.
    #[must_use]
    pub fn csv(&self, name: &str, value: &str) -> String {
        let mut out = format!("{name},part,{value}\n");
        for bar in &self.bars {
            for (part, amount) in self.parts.iter().zip(&bar.values) {
                let _ = writeln!(out, "{},{},{amount:.4}", cell(&bar.name), cell(part));
            }
        }
        out
    }
}
