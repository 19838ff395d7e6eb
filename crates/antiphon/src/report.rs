//! `antiphon report`: what GPU-time and money went into, and what was lost, from the recorded log. What the log does not know
//! is said to be unknown. Needs no server and changes none.

mod gather;
mod page;

use std::process::ExitCode;

use antiphon_types::Timestamp;

use self::gather::{Figures, Gatherer};
use crate::cli::{ReportArgs, Target};
use crate::failure::Failure;
use crate::render::{clock, json, now_ms, plain, print, say, span, table};
use crate::replay::{events, folder_of};
use crate::settings::Settings;
use crate::simulate::write;

/// Rows of a table for people; `--json` and the page have more.
const ROWS: usize = 10;

/// Prints the report, and writes the page where one is asked for.
pub(crate) fn run(target: &Target, args: &ReportArgs) -> Result<ExitCode, Failure> {
    let dir = match &args.log {
        Some(path) => folder_of(path)?,
        None => Settings::read()?.state_dir(target)?,
    };
    let events = events(&dir)?;
    // A log that ended long ago is reported up to its end.
    let last = events.last().map_or(0, |event| event.at.as_millis());
    let until = if args.log.is_some() {
        last
    } else {
        last.max(now_ms())
    };
    let from = until.saturating_sub(args.since.as_millis());
    let (from, until) = (Timestamp::from_millis(from), Timestamp::from_millis(until));
    let mut gatherer = Gatherer::new(from, until, args.team.clone());
    for event in &events {
        gatherer.take(event);
    }
    let figures = gatherer.finish();
    if let Some(path) = &args.html {
        write(path, &page::html(&figures))?;
        say(&format!("the page is in {}", path.display()));
    }
    if args.json {
        json(&figures);
    } else {
        show(&figures);
    }
    Ok(ExitCode::SUCCESS)
}

fn show(figures: &Figures) {
    let team = figures.team.as_deref();
    let team = team.map_or_else(String::new, |team| format!(", team {}", plain(team)));
    print(&format!(
        "from {} to {}{team}\n\n",
        clock(figures.from_ms),
        clock(figures.until_ms)
    ));
    let share = |share: Option<f64>| {
        share.map_or_else(
            || "unknown".into(),
            |share| format!("{:.1} %", share * 100.0),
        )
    };
    let line = |name: &str, value: String| print(&format!("{name:<34}{value}\n"));
    line("GPU-hours in service", hours(figures.capacity_gpu_hours));
    line("GPU-hours held by jobs", hours(figures.held_gpu_hours));
    line("  of all in service", share(figures.allocation));
    line("  that led to something", share(figures.useful));
    line("cost", usd(figures.cost_usd));
    line(
        "cost of a completed job",
        figures
            .cost_usd_per_completed_job
            .map_or_else(|| "unknown".into(), usd),
    );
    line(
        "cost of an acceptable model",
        "unknown: no job says what is acceptable".into(),
    );
    line(
        "time to convergence (median)",
        figures.convergence_s.map_or_else(
            || "unknown: no run was found flat or near its end".into(),
            seconds,
        ),
    );
    line(
        "cost of convergence (median)",
        figures
            .convergence_usd
            .map_or_else(|| "unknown".into(), usd),
    );
    line("attempts that failed", share(figures.failed_attempts_share));
    line("jobs that failed", share(figures.failed_jobs_share));
    print("\nLOST GPU-HOURS\n");
    for lost in &figures.lost {
        line(
            &format!("  {}", lost.cause),
            lost.gpu_hours.map_or_else(|| "unknown".into(), hours),
        );
    }
    print("\n");
    section(
        &["TEAM", "GPU-HOURS", "LOST", "COST", "JOBS DONE"],
        &figures.teams,
        |team| {
            vec![
                plain(&team.team),
                hours(team.gpu_hours),
                hours(team.lost_gpu_hours),
                usd(team.cost_usd),
                team.completed.to_string(),
            ]
        },
    );
    section(
        &[
            "CLASS",
            "LAUNCHES",
            "HALF WITHIN",
            "19 OF 20 WITHIN",
            "LONGEST",
        ],
        &figures.delays,
        |delay| {
            vec![
                delay.class.into(),
                delay.launches.to_string(),
                seconds(delay.p50_s),
                seconds(delay.p95_s),
                seconds(delay.max_s),
            ]
        },
    );
    section(
        &["JOB", "NAME", "TEAM", "GPU-HOURS", "LOST", "COST"],
        &figures.jobs,
        |job| {
            vec![
                job.job.clone(),
                plain(&job.name),
                plain(&job.team),
                hours(job.gpu_hours),
                hours(job.lost_gpu_hours),
                usd(job.cost_usd),
            ]
        },
    );
    section(
        &["RESERVED AND NOT USED", "NAME", "TEAM", "GPU-HOURS", "COST"],
        &figures.idle,
        |idle| {
            vec![
                idle.job.clone(),
                plain(&idle.name),
                plain(&idle.team),
                hours(idle.gpu_hours),
                usd(idle.cost_usd),
            ]
        },
    );
}

fn section<T>(header: &[&str], rows: &[T], row: impl Fn(&T) -> Vec<String>) {
    if !rows.is_empty() {
        table(header, rows.iter().take(ROWS).map(row).collect(), &[]);
        print("\n");
    }
}

fn hours(hours: f64) -> String {
    format!("{hours:.2}")
}

fn usd(usd: f64) -> String {
    format!("${usd:.2}")
}

/// A span in seconds, as people read it; far below where a whole number of milliseconds is not exact.
fn seconds(s: f64) -> String {
    span((s * 1_000.0) as u64)
}
