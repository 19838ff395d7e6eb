//! The figures of runs as a table for people.

use antiphon_sim::outcome::Outcome;

use crate::render::{say, table};

/// Policies side by side.
pub(crate) fn show(runs: &[Outcome]) {
    if runs.iter().any(|run| run.allocation.is_some()) {
        let header = [
            "POLICY",
            "OFFERED",
            "PLACED",
            "ALLOCATED %",
            "SD",
            "FRAGMENTED %",
            "WALL S",
        ];
        let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.2}"));
        let row = |run: &Outcome| {
            vec![
                run.policy.clone(),
                run.jobs.to_string(),
                run.completed.to_string(),
                number(run.allocation),
                number(run.allocation_sd),
                number(run.fragmented),
                number(run.wall_s),
            ]
        };
        table(&header, runs.iter().map(row).collect(), &[]);
        return;
    }
    let header = [
        "POLICY",
        "DONE",
        "AVG JCT",
        "P50",
        "P99",
        "AVG QUEUE",
        "MAKESPAN",
        "UTIL %",
        "GOODPUT %",
        "PREEMPTED",
        "WALL S",
    ];
    let seconds = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.0} s"));
    let percent =
        |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{:.1}", v * 100.0));
    let mut rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            vec![
                run.policy.clone(),
                format!("{}/{}", run.completed, run.jobs),
                seconds(run.avg_jct_s),
                seconds(run.p50_jct_s),
                seconds(run.p99_jct_s),
                seconds(run.avg_queue_s),
                seconds(run.makespan_s),
                percent(run.gpu_utilization),
                percent(run.goodput),
                run.preemptions.to_string(),
                run.wall_s
                    .map_or_else(|| "-".into(), |wall| format!("{wall:.2}")),
            ]
        })
        .collect();
    if let Some(run) = runs.first() {
        let mut bound = vec![
            "(bound)".to_owned(),
            String::new(),
            seconds(run.bound_avg_jct_s),
        ];
        bound.extend(std::iter::repeat_n(String::new(), 3));
        bound.push(seconds(run.bound_makespan_s));
        bound.extend(std::iter::repeat_n(String::new(), 4));
        rows.push(bound);
    }
    table(&header, rows, &["P50", "AVG QUEUE", "WALL S"]);
    for run in runs {
        if let (Some(judged), Some(held), Some(width)) =
            (run.forecasts, run.forecast_coverage, run.forecast_width_s)
        {
            say(&format!(
                "{}: of {judged} starts foretold, {:.0} % came within the interval named; half of these are narrower than {width:.0} s",
                run.policy,
                held * 100.0
            ));
        }
    }
}
