//! The frame that all charts share: size, title, legend. Colors and fonts are classes, so that one style sheet serves light
//! and dark. Written by hand and not by a chart library: those draw colors into the picture, which then fits one background
//! alone, and none puts the values behind a pointer without a script.

use std::fmt::Write as _;

use crate::escape::text;

/// Colors that series have; more are not told apart.
pub const COLORS: usize = 8;

/// Height of the title.
const TITLE: f64 = 24.0;

/// Height of a line of the legend.
const LEGEND_LINE: f64 = 17.0;

/// Characters of a name in the legend: two names stand in a line.
const NAME_MAX: usize = 31;

/// About how wide a character is.
const CHARACTER: f64 = 6.4;

/// A chart as it is drawn: everything below the legend is the caller's.
pub struct Frame {
    /// Its width.
    pub width: f64,
    /// Where what is drawn may begin.
    pub top: f64,
    body: String,
    title: String,
}

impl Frame {
    /// A frame with a title and the names of the series in their colors.
    #[must_use]
    pub fn new(width: f64, title: &str, names: &[&str]) -> Self {
        let mut body = String::new();
        let _ = write!(
            body,
            "<text class=\"title\" x=\"2\" y=\"14\">{}</text>",
            text(title)
        );
        let mut top = TITLE;
        let mut x = 2.0;
        for (index, name) in names.iter().enumerate() {
            let shown = shortened(name, NAME_MAX);
            let wide = 26.0 + CHARACTER * width_of(&shown);
            if x > 2.0 && x + wide > width {
                x = 2.0;
                top += LEGEND_LINE;
            }
            let _ = write!(
                body,
                "<rect class=\"f{}\" x=\"{x:.0}\" y=\"{:.0}\" width=\"12\" height=\"4\" rx=\"1\"/>\
                 <text class=\"name\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
                index % COLORS,
                top + 5.0,
                x + 17.0,
                top + 11.0,
                text(&shown)
            );
            x += wide;
        }
        if !names.is_empty() {
            top += LEGEND_LINE;
        }
        Self {
            width,
            top: top + 8.0,
            body,
            title: title.to_owned(),
        }
    }

    /// Adds an element.
    pub fn push(&mut self, element: &str) {
        self.body.push_str(element);
    }

    /// Adds a text; `class` says how it is set.
    pub fn label(&mut self, class: &str, x: f64, y: f64, content: &str) {
        let _ = write!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            text(content)
        );
    }

    /// The whole chart, of this height.
    #[must_use]
    pub fn close(self, height: f64) -> String {
        format!(
            "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">{}</svg>\n",
            self.width,
            text(&self.title),
            self.body
        )
    }
}

/// A name with its middle left out where it is longer than so many characters.
#[must_use]
pub fn shortened(name: &str, most: usize) -> String {
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= most {
        return name.to_owned();
    }
    let keep = most.saturating_sub(1);
    let (front, back) = (keep / 3, keep - keep / 3);
    let front: String = characters[..front].iter().collect();
    let back: String = characters[characters.len() - back..].iter().collect();
    format!("{front}…{back}")
}

/// How many characters wide.
pub(crate) fn width_of(name: &str) -> f64 {
    u32::try_from(name.chars().count()).map_or(f64::from(u32::MAX), f64::from)
}

/// The chart as a file of its own: with its style, light and dark.
#[must_use]
pub fn standalone(chart: &str) -> String {
    let style = include_str!("chart.css");
    match chart.split_once('>') {
        Some((open, rest)) => {
            format!("{open}><style>{style}svg{{background:var(--paper)}}</style>{rest}")
        }
        None => chart.to_owned(),
    }
}
