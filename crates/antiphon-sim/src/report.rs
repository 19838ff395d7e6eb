//! Runs side by side as one HTML page: figures with the bound, distributions, what changed over time, who held which GPUs,
//! and where GPU-hours went. One file that loads nothing: it can be mailed, and read years later. Reads and writes no file.

mod figures;
mod gantt;
mod hours;
mod jobs;
mod series;
mod sketch;

use std::fmt::Write as _;

use antiphon_chart::{
    Axis, Bar, Bars, COLORS, Curve, Lines, Spacing, Unit, download, figure, page, standalone, text,
};

use crate::outcome::Outcome;
use sketch::OverTime;

pub use jobs::jobs_csv;
pub use sketch::Sketch;

/// Runs that are drawn: as many as there are colors. The table has them all.
pub const DRAWN_MAX: usize = COLORS;

/// Runs side by side.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The heading.
    pub title: String,
    /// What all runs have in common, by name.
    pub about: Vec<(&'static str, String)>,
    /// The runs, in the order in which they are shown.
    pub sketches: Vec<Sketch>,
    /// One line a job, by policy, to be downloaded from the page.
    pub jobs: Vec<(String, String)>,
    /// What a reader should know: a run that was stopped, jobs that were left out.
    pub notes: Vec<String>,
}

/// A chart with the name of its file, and its values.
struct Drawn {
    file: &'static str,
    svg: String,
    csv: String,
}

impl Report {
    /// The whole page.
    #[must_use]
    pub fn html(&self) -> String {
        let outcomes: Vec<&Outcome> = self.sketches.iter().map(|sketch| &sketch.outcome).collect();
        let mut out = String::new();
        for note in &self.notes {
            let _ = writeln!(out, "<p>{}</p>", text(note));
        }
        out += "<h2>Figures</h2>\n";
        out += &figures::table(&outcomes);
        let _ = writeln!(
            out,
            "<p>The best of each row is bold. {}{}</p>",
            if outcomes
                .iter()
                .any(|outcome| outcome.bound_avg_jct_s.is_some())
            {
                "No policy can be better than the bound, which takes starts to be free and gangs to be divisible. "
            } else {
                ""
            },
            download(
                "All figures as CSV",
                "figures.csv",
                &figures::csv(&outcomes)
            )
        );
        if self.sketches.len() > DRAWN_MAX {
            let _ = writeln!(out, "<p>The first {DRAWN_MAX} policies are drawn.</p>");
        }
        self.charts_into(&mut out);
        self.gantts_into(&mut out);
        self.jobs_into(&mut out);
        page(&self.title, &self.about, &out)
    }

    /// The charts as SVG files of their own, by name.
    #[must_use]
    pub fn svgs(&self) -> Vec<(String, String)> {
        let file = |drawn: Drawn| (format!("{}.svg", drawn.file), standalone(&drawn.svg));
        self.charts().into_iter().map(file).collect()
    }

    fn drawn(&self) -> &[Sketch] {
        &self.sketches[..self.sketches.len().min(DRAWN_MAX)]
    }

    fn charts_into(&self, out: &mut String) {
        let charts = self.charts();
        if charts.is_empty() {
            return;
        }
        *out += "<h2>Side by side</h2>\n<div class=\"pair\">\n";
        for chart in charts {
            *out += &figure(&chart.svg, chart.file, &chart.csv);
        }
        *out += "</div>\n";
    }

    fn charts(&self) -> Vec<Drawn> {
        let lines = [
            ("jct", "jct_s", "jobs_percent", self.jct()),
            ("fairness", "ratio", "jobs_percent", self.fairness()),
            ("waiting", "time_s", "jobs_waiting", self.waiting()),
            ("held", "time_s", "gpus_held_percent", self.held()),
        ];
        let lines = lines.into_iter().filter_map(|(file, x, y, lines)| {
            let some = lines.curves.iter().any(|curve| !curve.points.is_empty());
            some.then(|| Drawn {
                file,
                svg: lines.svg(),
                csv: lines.csv(x, y),
            })
        });
        let bars = [
            ("bound", "times_bound", self.times_bound()),
            ("lost", "gpu_hours", self.lost()),
            ("allocated", "percent", self.allocated()),
        ];
        let bars = bars.into_iter().filter_map(|(file, value, bars)| {
            (!bars.bars.is_empty()).then(|| Drawn {
                file,
                svg: bars.svg(),
                csv: bars.csv("policy", value),
            })
        });
        lines.chain(bars).collect()
    }

    fn curves(&self, of: impl Fn(&Sketch) -> Vec<(f64, f64)>) -> Vec<Curve> {
        let curve = |sketch: &Sketch| Curve {
            name: sketch.outcome.policy.clone(),
            points: of(sketch),
        };
        self.drawn().iter().map(curve).collect()
    }

    fn jct(&self) -> Lines {
        Lines {
            title: "Jobs done within a time of their submission, %",
            x: Axis {
                label: "completion time (JCT)",
                unit: Unit::Seconds,
                spacing: Spacing::Log,
            },
            y: PERCENT,
            y_max: Some(100.0),
            curves: self.curves(|sketch| sketch.jct.clone()),
        }
    }

    fn waiting(&self) -> Lines {
        Lines {
            title: "Jobs waiting",
            x: TIME,
            y: Axis {
                label: "jobs",
                unit: Unit::Count,
                spacing: Spacing::Linear,
            },
            y_max: None,
            curves: self.curves(|sketch| over_time(sketch, |course| &course.waiting)),
        }
    }

    fn held(&self) -> Lines {
        Lines {
            title: "GPUs held, % of all",
            x: TIME,
            y: PERCENT,
            y_max: Some(100.0),
            curves: self.curves(|sketch| over_time(sketch, |course| &course.held)),
        }
    }

    fn fairness(&self) -> Lines {
        Lines {
            title: "Jobs with at most this finish-time ratio, %",
            x: Axis {
                label: "completion time / that of an equal share",
                unit: Unit::Times,
                spacing: Spacing::Log,
            },
            y: PERCENT,
            y_max: Some(100.0),
            curves: self.curves(|sketch| sketch.ratios.clone()),
        }
    }

    fn times_bound(&self) -> Bars {
        let bar = |sketch: &Sketch| {
            let outcome = &sketch.outcome;
            let bound = outcome.bound_avg_jct_s.filter(|bound| *bound > 0.0)?;
            Some(Bar {
                name: outcome.policy.clone(),
                values: vec![outcome.avg_jct_s? / bound],
            })
        };
        Bars {
            title: "Mean JCT, as a multiple of the bound",
            unit: Unit::Times,
            parts: vec![""],
            bars: self.drawn().iter().filter_map(bar).collect(),
            line: Some((1.0, "bound")),
        }
    }

    fn lost(&self) -> Bars {
        let courses = self
            .drawn()
            .iter()
            .filter_map(|sketch| Some((&sketch.outcome.policy, sketch.course.as_ref()?)));
        let first = courses.clone().next();
        let causes = first.map_or(0, |(_, course)| course.hours.lost.len());
        // What cost nobody anything needs no color.
        let cost = |cause: &usize| {
            let mut runs = courses.clone();
            runs.any(|(_, course)| course.hours.lost[*cause].1 > 0.0)
        };
        let causes: Vec<usize> = (0..causes).filter(cost).collect();
        Bars {
            title: "GPU-hours lost, by cause",
            unit: Unit::Count,
            parts: first
                .map(|(_, course)| {
                    causes
                        .iter()
                        .map(|cause| course.hours.lost[*cause].0)
                        .collect()
                })
                .unwrap_or_default(),
            bars: courses
                .map(|(policy, course)| Bar {
                    name: policy.clone(),
                    values: causes
                        .iter()
                        .map(|cause| course.hours.lost[*cause].1)
                        .collect(),
                })
                .collect(),
            line: None,
        }
    }

    fn allocated(&self) -> Bars {
        let bar = |sketch: &Sketch| {
            Some(Bar {
                name: sketch.outcome.policy.clone(),
                values: vec![sketch.outcome.allocation?],
            })
        };
        Bars {
            title: "GPUs allocated, % of all, mean over the shuffles",
            unit: Unit::Percent,
            parts: vec![""],
            bars: self.drawn().iter().filter_map(bar).collect(),
            line: None,
        }
    }

    fn gantts_into(&self, out: &mut String) {
        let drawn = self.drawn().iter();
        let drawn: Vec<(&str, &OverTime)> = drawn
            .filter_map(|sketch| Some((&sketch.outcome.policy[..], sketch.course.as_ref()?)))
            .collect();
        let Some((_, first)) = drawn.first() else {
            return;
        };
        let _ = writeln!(
            *out,
            "<h2>Who held which GPUs</h2>\n<p>A row is a {}. Where one job held it for most of the time, it has a color of \
             its own; where several did, gray, the darker the more of the time it was held. Empty is idle.</p>",
            first.gantt.unit
        );
        for (policy, course) in drawn {
            let _ = writeln!(
                out,
                "<figure class=\"wide\"><div class=\"scroll\">{}</div><figcaption>{}</figcaption></figure>",
                course.gantt.svg(policy),
                download("CSV", "gantt.csv", &course.gantt.csv())
            );
        }
    }

    fn jobs_into(&self, out: &mut String) {
        if self.sketches.iter().all(|sketch| sketch.jct.is_empty()) {
            return;
        }
        if self.jobs.is_empty() {
            *out += "<h2>Job by job</h2>\n<p>Too much for a page: <code>--csv FILE</code> writes a line a job.</p>\n";
            return;
        }
        *out += "<h2>Job by job</h2>\n<p>";
        for (policy, csv) in &self.jobs {
            *out += &download(
                policy,
                &format!("jobs-{}.csv", policy.replace('/', "-")),
                csv,
            );
            *out += " ";
        }
        *out += "</p>\n";
    }
}

/// The axis of percentages.
const PERCENT: Axis = Axis {
    label: "%",
    unit: Unit::Count,
    spacing: Spacing::Linear,
};

/// The axis of virtual time.
const TIME: Axis = Axis {
    label: "time since the first submission",
    unit: Unit::Seconds,
    spacing: Spacing::Linear,
};

fn over_time(sketch: &Sketch, of: fn(&OverTime) -> &Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    sketch
        .course
        .as_ref()
        .map_or_else(Vec::new, |course| of(course).clone())
}
