//! Curves over one axis: distributions, and what changed over time. Wherever the pointer is, the values of all curves there
//! are told.

use std::fmt::Write as _;

use crate::escape::{cell, text};
use crate::scale::{Scale, Spacing, Unit, nice};
use crate::svg::{COLORS, Frame};

const WIDTH: f64 = 480.0;
const PLOT: f64 = 190.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 12.0;
const BOTTOM: f64 = 40.0;

/// Stripes under the pointer.
const STRIPES: u32 = 48;

/// What an axis shows.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// Its name.
    pub label: &'static str,
    /// How values are told.
    pub unit: Unit,
    /// How it counts.
    pub spacing: Spacing,
}

/// One curve: its value holds from its point on until the next one.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Whose it is.
    pub name: String,
    /// Its points, by their first number.
    pub points: Vec<(f64, f64)>,
}

/// A chart of curves.
#[derive(Debug, Clone)]
pub struct Lines {
    /// What is shown, with its unit.
    pub title: &'static str,
    /// Along the bottom.
    pub x: Axis,
    /// Along the side.
    pub y: Axis,
    /// The top of the axis, where it is fixed.
    pub y_max: Option<f64>,
    /// In the order of their colors.
    pub curves: Vec<Curve>,
}

impl Lines {
    /// Draws them.
    #[must_use]
    pub fn svg(&self) -> String {
        let names: Vec<&str> = self.curves.iter().map(|curve| &curve.name[..]).collect();
        let mut frame = Frame::new(WIDTH, self.title, &names);
        let (x, y) = self.scales(frame.top);
        let (top, base) = (y.last_px, y.first_px);
        for mark in y.marks(28.0) {
            let at = y.px(mark);
            frame.push(&format!(
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.1}\"/>",
                WIDTH - RIGHT
            ));
            frame.label("end", LEFT - 6.0, at + 4.0, &y.unit.tell(mark));
        }
        for mark in x.marks(62.0) {
            let at = x.px(mark);
            frame.push(&format!(
                "<path class=\"grid\" d=\"M{at:.1} {base:.1}v4\"/>"
            ));
            frame.label("middle", at, base + 17.0, &x.unit.tell(mark));
        }
        frame.label("end", WIDTH - RIGHT, base + 33.0, self.x.label);
        for (index, curve) in self.curves.iter().enumerate() {
            frame.push(&format!(
                "<path class=\"curve s{}\" d=\"{}\"/>",
                index % COLORS,
                steps(&curve.points, &x, &y)
            ));
        }
        self.stripes(&mut frame, &x, top, base);
        frame.close(base + BOTTOM)
    }

    /// What is told under the pointer: a stripe of the plot, and every curve's value in its middle.
    fn stripes(&self, frame: &mut Frame, x: &Scale, top: f64, base: f64) {
        let wide = (x.last_px - x.first_px) / f64::from(STRIPES);
        for stripe in 0..STRIPES {
            let left = x.first_px + wide * f64::from(stripe);
            let at = x.value(left + wide / 2.0);
            let mut told = format!("{}: {}", self.x.label, x.unit.tell(at));
            for curve in &self.curves {
                if let Some(value) = value_at(&curve.points, at) {
                    let _ = write!(told, "\n{}: {}", curve.name, self.y.unit.tell(value));
                }
            }
            frame.push(&format!(
                "<rect class=\"hover\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                base - top,
                text(&told)
            ));
        }
    }

    fn scales(&self, top: f64) -> (Scale, Scale) {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(0.0, f64::max);
        let (x_to, y_to) = (most(|point| point.0), most(|point| point.1));
        let x_from = match self.x.spacing {
            Spacing::Linear => 0.0,
            Spacing::Log => {
                let above = points()
                    .map(|point| point.0)
                    .filter(|x| *x > 0.0)
                    .fold(f64::INFINITY, f64::min);
                // Six decades are enough: what is below them lies on the edge.
                above.min(x_to / 2.0).max(x_to * 1e-6)
            }
        };
        let x_from = if x_from.is_finite() { x_from } else { 0.5 };
        let x = Scale {
            spacing: self.x.spacing,
            unit: self.x.unit,
            from: x_from,
            to: x_to.max(x_from + 1e-9).max(x_from * 2.0),
            first_px: LEFT,
            last_px: WIDTH - RIGHT,
        };
        let y_to = self.y_max.unwrap_or_else(|| {
            let step = nice(y_to / 5.0);
            ((y_to / step).ceil() * step).max(1.0)
        });
        let y = Scale {
            spacing: self.y.spacing,
            unit: self.y.unit,
            from: 0.0,
            to: y_to,
            first_px: top + PLOT,
            last_px: top,
        };
        (x, y)
    }

    /// The points as a table: one line a point.
    #[must_use]
    pub fn csv(&self, x: &str, y: &str) -> String {
        let mut out = format!("policy,{x},{y}\n");
        for curve in &self.curves {
            for (at, value) in &curve.points {
                let _ = writeln!(out, "{},{at:.3},{value:.4}", cell(&curve.name));
            }
        }
        out
    }
}

/// The value that holds there; nothing before the first point.
fn value_at(points: &[(f64, f64)], at: f64) -> Option<f64> {
    let next = points.partition_point(|point| point.0 <= at);
    points.get(next.checked_sub(1)?).map(|point| point.1)
}

/// A path of steps. Points that fall on the pixel of the one before are left out.
fn steps(points: &[(f64, f64)], x: &Scale, y: &Scale) -> String {
    let mut path = String::new();
    let mut last: Option<(f64, f64)> = None;
    let tenths = |px: f64| (px * 10.0).round() / 10.0;
    for (at, value) in points {
        let (px, py) = (tenths(x.px(*at)), tenths(y.px(*value)));
        match last {
            None => {
                let _ = write!(path, "M{px} {py}");
            }
            Some((_, before)) if (before - py).abs() < 0.05 => continue,
            Some((left, _)) if (left - px).abs() < 0.05 => {
                let _ = write!(path, "V{py}");
            }
            Some(_) => {
                let _ = write!(path, "H{px}V{py}");
            }
        }
        last = Some((px, py));
    }
    if let Some((at, _)) = points.last() {
        let _ = write!(path, "H{}", tenths(x.px(*at)));
    }
    path
}
