//! Charts as SVG, and reports as one HTML file that loads nothing: it can be mailed, and read years later. Light and dark, with
//! the values behind the pointer and as CSV, without a script. Knows nothing of what it draws; reads and writes no file.
//!
//! ```
//! use antiphon_chart::{Bar, Bars, Unit, page};
//!
//! let bars = Bars {
//!     title: "GPU-hours",
//!     unit: Unit::Count,
//!     parts: vec![""],
//!     bars: vec![Bar { name: "team <a>".into(), values: vec![12.5] }],
//!     line: None,
//! };
//! let html = page("Last week", &[], &bars.svg());
//! assert!(html.contains("team &lt;a&gt;: 12.5"));
//! ```

mod bars;
mod escape;
mod lines;
mod page;
mod scale;
mod svg;

pub use bars::{Bar, Bars};
pub use escape::{cell, download, text};
pub use lines::{Axis, Curve, Lines};
pub use page::{figure, page};
pub use scale::{Scale, Spacing, Unit, thousands};
pub use svg::{COLORS, Frame, shortened, standalone};
