//! The report as one HTML page that loads nothing: it can be mailed, and read years later. Every name in it is escaped.

use std::fmt::Write as _;

use antiphon_chart::{Bar, Bars, Unit, figure, page, text};

use super::gather::{Figures, JobFigures};
use crate::render::clock;

/// Bars of a chart: more are not told apart.
const BARS_MAX: usize = 16;

pub(super) fn html(figures: &Figures) -> String {
    let mut body = String::from("<h2>Figures</h2>\n");
    body += &table(&["figure", "value"], &summary(figures));
    body += "<h2>Where GPU-hours went</h2>\n<div class=\"pair\">\n";
    for (file, chart) in charts(figures) {
        body += &figure(&chart.svg(), file, &chart.csv("of", "value"));
    }
    body += "</div>\n";
    body += "<p>What runs lost to slow tasks and to waiting for data is known from their signals, which are not in the log.</p>\n";
    let teams = figures.teams.iter();
    body += &section(
        "Teams",
        &["team", "GPU-hours", "lost", "cost", "jobs completed"],
        teams
            .map(|team| {
                vec![
                    team.team.clone(),
                    number(team.gpu_hours),
                    number(team.lost_gpu_hours),
                    usd(team.cost_usd),
                    team.completed.to_string(),
                ]
            })
            .collect(),
    );
    let delays = figures.delays.iter();
    body += &section(
        "From the queue to the launch",
        &[
            "class",
            "launches",
            "half within, s",
            "19 of 20 within, s",
            "longest, s",
        ],
        delays
            .map(|delay| {
                vec![
                    delay.class.to_owned(),
                    delay.launches.to_string(),
                    number(delay.p50_s),
                    number(delay.p95_s),
                    number(delay.max_s),
                ]
            })
            .collect(),
    );
    body += &section("Jobs", &JOBS, figures.jobs.iter().map(row).collect());
    body += &section(
        "Reserved and not used",
        &JOBS,
        figures.idle.iter().map(row).collect(),
    );
    page("Report", &about(figures), &body)
}

const JOBS: [&str; 6] = ["job", "name", "team", "GPU-hours", "lost", "cost"];

fn row(job: &JobFigures) -> Vec<String> {
    vec![
        job.job.clone(),
        job.name.clone(),
        job.team.clone(),
        number(job.gpu_hours),
        number(job.lost_gpu_hours),
        usd(job.cost_usd),
    ]
}

fn about(figures: &Figures) -> [(&'static str, String); 3] {
    let team = figures.team.as_deref().unwrap_or("all");
    [
        ("from", clock(figures.from_ms)),
        ("to", clock(figures.until_ms)),
        ("team", team.to_owned()),
    ]
}

fn summary(figures: &Figures) -> Vec<Vec<String>> {
    let share =
        |share: Option<f64>| share.map_or_else(unknown, |share| format!("{:.1} %", share * 100.0));
    let dollars = |value: Option<f64>| value.map_or_else(unknown, usd);
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    vec![
        row("GPU-hours in service", number(figures.capacity_gpu_hours)),
        row("GPU-hours held by jobs", number(figures.held_gpu_hours)),
        row("held, of all in service", share(figures.allocation)),
        row(
            "held and not lost, of all in service",
            share(figures.useful),
        ),
        row(
            "utilization measured on the device",
            share(figures.device_utilization),
        ),
        row("cost", usd(figures.cost_usd)),
        row("jobs completed", figures.completed.to_string()),
        row(
            "cost of a completed job",
            dollars(figures.cost_usd_per_completed_job),
        ),
        row(
            "cost of an acceptable model",
            dollars(figures.cost_usd_per_acceptable_model),
        ),
        row("acceptable models", figures.acceptable_models.to_string()),
        row("runs that converged", figures.converged.to_string()),
        row(
            "time to convergence, median",
            figures
                .convergence_s
                .map_or_else(unknown, |s| format!("{:.2} h", s / 3_600.0)),
        ),
        row(
            "cost of convergence, median",
            dollars(figures.convergence_usd),
        ),
        row("attempts that failed", share(figures.failed_attempts_share)),
        row("jobs that failed", share(figures.failed_jobs_share)),
    ]
}

fn charts(figures: &Figures) -> Vec<(&'static str, Bars)> {
    let lost = figures.lost.iter().filter_map(|lost| {
        Some(Bar {
            name: lost.cause.replace('_', " "),
            values: vec![lost.gpu_hours?],
        })
    });
    let days = figures.days.iter().rev().take(BARS_MAX).rev();
    let days = days.map(|day| Bar {
        name: clock(day.at_ms).chars().take(10).collect(),
        values: vec![
            day.held_gpu_hours,
            day.waited_gpu_hours,
            day.unwanted_gpu_hours,
        ],
    });
    let teams = figures.teams.iter().take(BARS_MAX).map(|team| Bar {
        name: team.team.clone(),
        values: vec![team.cost_usd],
    });
    let chart = |title, parts: Vec<&'static str>, bars: Vec<Bar>| Bars {
        title,
        unit: Unit::Count,
        parts,
        bars,
        line: None,
    };
    let charts = [
        (
            "lost",
            chart("Lost GPU-hours by cause", vec![""], lost.collect()),
        ),
        (
            "days",
            chart(
                "GPU-hours by day",
                vec!["held", "free while jobs waited", "free and unwanted"],
                days.collect(),
            ),
        ),
        ("cost", chart("Dollars by team", vec![""], teams.collect())),
    ];
    let charts = charts.into_iter();
    charts.filter(|(_, chart)| !chart.bars.is_empty()).collect()
}

fn section(title: &str, header: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!("<h2>{}</h2>\n{}", text(title), table(header, &rows))
}

fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = String::from("<div class=\"scroll\"><table><thead><tr>");
    for name in header {
        let _ = write!(out, "<th scope=\"col\">{}</th>", text(name));
    }
    out += "</tr></thead><tbody>\n";
    for row in rows {
        out += "<tr>";
        for (place, cell) in row.iter().enumerate() {
            let tag = if place == 0 { "th scope=\"row\"" } else { "td" };
            let end = if place == 0 { "th" } else { "td" };
            let _ = write!(out, "<{tag}>{}</{end}>", text(cell));
        }
        out += "</tr>\n";
    }
    out + "</tbody></table></div>\n"
}

fn unknown() -> String {
    "unknown".into()
}

fn number(value: f64) -> String {
    format!("{value:.2}")
}

fn usd(value: f64) -> String {
    format!("${value:.2}")
}
