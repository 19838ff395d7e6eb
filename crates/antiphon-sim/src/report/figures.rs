//! All figures of all runs as a table: a row a figure, a column a policy, the bound beside them.

use std::fmt::Write as _;

use antiphon_chart::{cell, text, thousands};

use crate::outcome::Outcome;

/// What values of a row are, and how they are shown: one unit a row, so that numbers can be compared by their length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// Seconds, in the unit that fits the row.
    Time,
    /// A count.
    Count,
    /// Something with decimals.
    Decimal,
    /// A share of 0..1, as a percentage.
    Share,
    /// A percentage.
    Percent,
    /// Bytes, in MiB.
    Memory,
}

/// Which of two values is the better one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    Smaller,
    Larger,
    /// Neither: it says something of the run, not of the policy.
    Neither,
}

/// A figure of an outcome.
struct Figure {
    name: &'static str,
    shown: Shown,
    better: Better,
    of: fn(&Outcome) -> Option<f64>,
    bound: fn(&Outcome) -> Option<f64>,
}

/// A number of things, as far as numbers with a point go.
fn number(count: u64) -> f64 {
    let (high, low) = (count >> 32, count & 0xffff_ffff);
    let part = |part: u64| u32::try_from(part).map_or(0.0, f64::from);
    part(high) * 4_294_967_296.0 + part(low)
}

fn count(count: usize) -> Option<f64> {
    u64::try_from(count).ok().map(number)
}

const fn no_bound(_: &Outcome) -> Option<f64> {
    None
}

const fn figure(
    name: &'static str,
    shown: Shown,
    better: Better,
    of: fn(&Outcome) -> Option<f64>,
) -> Figure {
    Figure {
        name,
        shown,
        better,
        of,
        bound: no_bound,
    }
}

fn ratio(value: Option<f64>, bound: Option<f64>) -> Option<f64> {
    Some(value? / bound.filter(|bound| *bound > 0.0)?)
}

/// In the order of the page. A row in which no run has a value is left out.
fn figures() -> Vec<Figure> {
    use Better::{Larger, Neither, Smaller};
    use Shown::{Count, Decimal, Memory, Percent, Share, Time};
    vec![
        figure("jobs", Count, Neither, |o| count(o.jobs)),
        figure("jobs done", Count, Larger, |o| count(o.completed)),
        figure("jobs refused", Count, Neither, |o| {
            count(o.refused).filter(|refused| *refused > 0.0)
        }),
        Figure {
            bound: |o| o.bound_avg_jct_s,
            ..figure("mean JCT", Time, Smaller, |o| o.avg_jct_s)
        },
        figure("mean JCT / bound", Decimal, Smaller, |o| {
            ratio(o.avg_jct_s, o.bound_avg_jct_s)
        }),
        figure("median JCT", Time, Smaller, |o| o.p50_jct_s),
        figure("JCT, 99th percentile", Time, Smaller, |o| o.p99_jct_s),
        figure("mean wait to start", Time, Smaller, |o| o.avg_queue_s),
        figure("wait, 99th percentile", Time, Smaller, |o| o.p99_queue_s),
        Figure {
            bound: |o| o.bound_makespan_s,
            ..figure("makespan", Time, Smaller, |o| o.makespan_s)
        },
        figure("GPUs held", Share, Neither, |o| o.gpu_utilization),
        figure("of these, to some use", Share, Larger, |o| o.goodput),
        figure("preemptions", Count, Neither, |o| {
            o.avg_jct_s.map(|_| number(o.preemptions))
        }),
        figure("GPU-hours held", Decimal, Neither, |o| {
            o.avg_jct_s.map(|_| o.gpu_hours)
        }),
        figure("GPU-hours held in vain", Decimal, Smaller, |o| {
            o.avg_jct_s.map(|_| o.lost_gpu_hours)
        }),
        figure("cost, USD", Decimal, Smaller, |o| o.cost_usd),
        figure("deadlines met", Share, Larger, |o| o.deadlines_met),
        figure("worst finish-time ratio", Decimal, Smaller, |o| {
            o.finish_time_fairness_worst
        }),
        figure("jobs over 1.05", Share, Smaller, |o| {
            o.finish_time_unfair_share
        }),
        figure("GPUs allocated", Percent, Larger, |o| o.allocation),
        figure("standard deviation", Percent, Neither, |o| o.allocation_sd),
        figure("GPUs fragmented", Percent, Smaller, |o| o.fragmented),
        figure("events", Count, Neither, |o| Some(number(o.events))),
        figure("cycles", Count, Neither, |o| Some(number(o.cycles))),
        figure("cycle, 99th percentile, µs", Count, Neither, |o| {
            o.cycle_p99_us.map(number)
        }),
        figure("wall clock, s", Decimal, Neither, |o| o.wall_s),
        figure("peak memory, MiB", Memory, Neither, |o| {
            o.peak_rss_bytes.map(number)
        }),
    ]
}

/// The table.
pub(super) fn table(runs: &[&Outcome]) -> String {
    let has_bound = runs.iter().any(|run| run.bound_avg_jct_s.is_some());
    let mut out = String::from("<div class=\"scroll\"><table><thead><tr><th></th>");
    for run in runs {
        let _ = write!(out, "<th scope=\"col\">{}</th>", text(&run.policy));
    }
    if has_bound {
        out += "<th scope=\"col\" class=\"bound\">bound</th>";
    }
    out += "</tr></thead><tbody>\n";
    for figure in figures() {
        let values: Vec<Option<f64>> = runs.iter().map(|run| (figure.of)(run)).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let bound = runs.first().and_then(|run| (figure.bound)(run));
        let known = || values.iter().flatten().copied();
        let (unit, show) = shown(figure.shown, known().chain(bound));
        // Where all are the same, none is the best.
        let differ = known().any(|value| Some(value) != known().next());
        let best = match figure.better {
            Better::Smaller => known().reduce(f64::min),
            Better::Larger => known().reduce(f64::max),
            Better::Neither => None,
        };
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}{}</th>",
            text(figure.name),
            if unit.is_empty() {
                String::new()
            } else {
                format!(", {unit}")
            }
        );
        for value in &values {
            let is_best = differ && value.is_some() && *value == best;
            let class = if is_best { " class=\"best\"" } else { "" };
            let value = value.map_or_else(|| "–".to_owned(), &show);
            let _ = write!(out, "<td{class}>{value}</td>");
        }
        if has_bound {
            let bound = bound.map_or_else(String::new, &show);
            let _ = write!(out, "<td class=\"bound\">{bound}</td>");
        }
        out += "</tr>\n";
    }
    out += "</tbody></table></div>\n";
    out
}

/// The unit of a row, by its largest value, and how a value is written in it.
fn shown(
    shown: Shown,
    values: impl Iterator<Item = f64>,
) -> (&'static str, impl Fn(f64) -> String) {
    let most = values.fold(0.0, f64::max);
    let (unit, by) = match shown {
        Shown::Time if most >= 20.0 * 86_400.0 => ("d", 86_400.0),
        Shown::Time if most >= 5.0 * 3_600.0 => ("h", 3_600.0),
        Shown::Time if most >= 600.0 => ("min", 60.0),
        Shown::Time => ("s", 1.0),
        Shown::Share => ("%", 0.01),
        Shown::Percent => ("%", 1.0),
        Shown::Memory => ("", 1_048_576.0),
        Shown::Count | Shown::Decimal => ("", 1.0),
    };
    let digits = match shown {
        Shown::Count | Shown::Memory => 0,
        Shown::Share => 1,
        Shown::Percent => 2,
        Shown::Time | Shown::Decimal if most / by >= 10_000.0 => 0,
        Shown::Time | Shown::Decimal if most / by >= 1_000.0 => 1,
        Shown::Time | Shown::Decimal => 2,
    };
    (unit, move |value| {
        thousands(&format!("{:.digits$}", value / by))
    })
}

/// The same figures for programs: one line a policy, times in seconds, shares in 0..1.
pub(super) fn csv(runs: &[&Outcome]) -> String {
    let figures = figures();
    let names: Vec<String> = figures.iter().map(|figure| cell(figure.name)).collect();
    let mut out = format!(
        "policy,{},bound mean JCT,bound makespan,digest\n",
        names.join(",")
    );
    let show = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for run in runs {
        let values: Vec<String> = figures
            .iter()
            .map(|figure| show((figure.of)(run)))
            .collect();
        let _ = writeln!(
            out,
            "{},{},{},{},{}",
            cell(&run.policy),
            values.join(","),
            show(run.bound_avg_jct_s),
            show(run.bound_makespan_s),
            run.digest
        );
    }
    out
}
