//! A page says what its runs came to: its figures and curves against the outcomes and records that it was drawn from.

#![expect(
    clippy::unwrap_used,
    reason = "a page without what the test looks for fails it"
)]

use std::fmt::Write as _;
use std::fs;

use antiphon_sim::cluster::{self, Cluster};
use antiphon_sim::faults::Faults;
use antiphon_sim::outcome::Outcome;
use antiphon_sim::report::{Report, Sketch, jobs_csv};
use antiphon_sim::simulate::{decider, policy, simulate, tables};
use antiphon_sim::trace::{Strict, read};
use antiphon_sim::workload::Workload;
use antiphon_sim::world::{Cause, Finished, Knowledge, Setting, Spans};

/// Jobs of many sizes on the 64 GPUs of `muri`: more than fit at once.
fn workload(name: &str) -> Workload {
    let mut text = String::from(
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n",
    );
    for job in 0..120u64 {
        let gpus = [1, 2, 4, 8, 16][usize::try_from(job % 5).unwrap()];
        let (submit, duration) = (job * 90_000, 600_000 + job * 37_000 % 9_000_000);
        let _ = writeln!(
            text,
            "\"{name}{job}\",{gpus},{submit},1,net,1,{duration},0,1,1,1,1,0"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made-up.csv");
    fs::write(&path, text).unwrap();
    read(&path, None, Strict::On).unwrap().workload
}

fn run(name: &str, workload: &Workload, spans: Spans) -> (Outcome, Finished, Cluster) {
    let cluster = cluster::preset("muri", 0).unwrap();
    let setting = Setting {
        cluster: cluster.clone(),
        knowledge: Knowledge::Durations,
        noise: None,
        seed: 1,
        policy: policy(),
        faults: Faults::default(),
        spans,
        forecasts: 0,
    };
    let tables = tables("made-up.csv".as_ref(), workload, &cluster, None).unwrap();
    let decider = decider(name, &setting).unwrap();
    let (outcome, finished) = simulate(
        name,
        decider,
        workload,
        &setting,
        &tables,
        &|| 0,
        &mut |_| true,
    );
    (outcome, finished, cluster)
}

fn page(runs: &[(Outcome, Finished, Cluster)], workload: &Workload) -> Report {
    let sketch = |(outcome, finished, cluster): &(Outcome, Finished, Cluster)| {
        Sketch::of(outcome, finished, workload, &cluster.nodes)
    };
    Report {
        title: workload.jobs[0].name.clone(),
        sketches: runs.iter().map(sketch).collect(),
        jobs: runs
            .iter()
            .map(|(outcome, finished, _)| (outcome.policy.clone(), jobs_csv(workload, finished)))
            .collect(),
        ..Report::default()
    }
}

/// What a link of the page downloads.
fn download(html: &str, file: &str) -> String {
    let link = format!("download=\"{file}\" href=\"data:text/csv;charset=utf-8,");
    let data = html.split_once(&link).unwrap().1.split_once('"').unwrap().0;
    let mut bytes = Vec::new();
    let mut rest = data.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(&after[..2]).unwrap();
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// The points of a policy's curve.
fn points(csv: &str, policy: &str) -> Vec<(f64, f64)> {
    let lines = csv.lines().filter_map(|line| line.strip_prefix(policy));
    let lines = lines.filter_map(|line| line.strip_prefix(','));
    let point = |line: &str| {
        let (x, y) = line.split_once(',').unwrap();
        (x.parse().unwrap(), y.parse().unwrap())
    };
    lines.map(point).collect()
}

/// The area under a curve of steps.
fn area(points: &[(f64, f64)]) -> f64 {
    let steps = points.windows(2);
    steps.map(|two| (two[1].0 - two[0].0) * two[0].1).sum()
}

fn near(one: f64, other: f64, what: &str) {
    let off = (one - other).abs() / other.abs().max(1e-9);
    assert!(off < 1e-3, "{what}: {one} is not {other}");
}

#[test]
fn curves_and_bars_are_those_of_the_outcomes() {
    let workload = workload("job-");
    let runs = ["antiphon", "fifo"].map(|name| run(name, &workload, Spans::Kept));
    let html = page(&runs, &workload).html();
    for (outcome, finished, _) in &runs {
        let policy = &outcome.policy;
        let jct = points(&download(&html, "jct.csv"), policy);
        let longest = finished.records.iter().flatten().map(|record| {
            (record.ended.unwrap().as_millis() - record.submitted.as_millis()) as f64 / 1e3
        });
        near(
            jct.last().unwrap().0,
            longest.fold(0.0, f64::max),
            "longest JCT",
        );
        let held = points(&download(&html, "held.csv"), policy);
        let makespan = outcome.makespan_s.unwrap();
        near(
            area(&held) / makespan / 100.0,
            outcome.gpu_utilization.unwrap(),
            "GPUs held",
        );
        let ratios = points(&download(&html, "fairness.csv"), policy);
        near(
            ratios.last().unwrap().0,
            outcome.finish_time_fairness_worst.unwrap(),
            "worst ratio",
        );
        let lost = download(&html, "lost.csv");
        let of = |cause: &str| {
            let line = lost
                .lines()
                .find(|line| line.starts_with(&format!("{policy},{cause},")));
            let value = line.map(|line| line.rsplit_once(',').unwrap().1);
            value.map_or(0.0, |value| value.parse::<f64>().unwrap())
        };
        let causes = Cause::ALL.map(|cause| of(cause.name()));
        assert!(of("start") > 0.0);
        near(
            causes.into_iter().sum(),
            outcome.lost_gpu_hours,
            "lost GPU-hours",
        );
        let figures = download(&html, "figures.csv");
        let row = figures
            .lines()
            .find(|line| line.starts_with(&format!("{policy},")));
        let shown = outcome.avg_jct_s.unwrap().to_string();
        assert!(row.unwrap().split(',').any(|cell| cell == shown));
    }
    // Without preemption a job waits once: until it starts.
    let fifo = &runs[1].0;
    let waiting = points(&download(&html, "waiting.csv"), "fifo");
    let waited = fifo.avg_queue_s.unwrap() * 120.0;
    near(area(&waiting), waited, "time waited");
    // What is written beside a bar is the ratio of its figures.
    let times = fifo.avg_jct_s.unwrap() / fifo.bound_avg_jct_s.unwrap();
    let svgs = page(&runs, &workload).svgs();
    let bound = &svgs.iter().find(|(name, _)| name == "bound.svg").unwrap().1;
    assert!(bound.contains(&format!("fifo: {times:.2}×")), "{bound}");
    assert!(svgs.iter().all(|(_, svg)| svg.len() < 60_000));
}

#[test]
fn spans_add_up_to_what_was_held_and_no_gpu_is_held_twice() {
    let workload = workload("job-");
    let (_, finished, cluster) = run("antiphon", &workload, Spans::Kept);
    let mut by_gpu: Vec<Vec<(u64, u64)>> = vec![Vec::new(); cluster.nodes.len() * 8];
    for (record, spans) in finished.records.iter().flatten().zip(&finished.spans) {
        let mut held_ms = 0;
        for span in spans {
            let (from, until) = (span.from.as_millis(), span.until.unwrap().as_millis());
            assert!(from <= span.works_from.as_millis());
            for held in &span.held {
                assert_eq!(held.share_permille, 1_000);
                for gpu in &held.gpus {
                    held_ms += until - from;
                    by_gpu[held.node * 8 + usize::try_from(*gpu).unwrap()].push((from, until));
                }
            }
        }
        near(held_ms as f64, record.held_gpu_ms, "held");
    }
    for spans in &mut by_gpu {
        spans.sort_unstable();
        assert!(spans.windows(2).all(|two| two[0].1 <= two[1].0));
    }
}

#[test]
fn spans_are_kept_only_on_request_and_change_nothing() {
    let workload = workload("job-");
    let (with, kept, _) = run("antiphon", &workload, Spans::Kept);
    let (without, dropped, _) = run("antiphon", &workload, Spans::Dropped);
    assert!(dropped.spans.is_empty());
    assert_eq!(kept.spans.len(), workload.jobs.len());
    assert_eq!(with, without);
}

#[test]
fn names_from_a_trace_stay_text() {
    let hostile = "</title><script>alert(1)</script>'\" onload=x &amp; ";
    let workload = workload(&hostile.replace('"', "\"\""));
    let runs = [run("fifo", &workload, Spans::Kept)];
    let report = page(&runs, &workload);
    let html = report.html();
    for (name, text) in report.svgs().into_iter().chain([("page".into(), html)]) {
        assert!(!text.contains("<script"), "{name}");
        assert!(!text.contains("\" onload"), "{name}");
    }
    let html = report.html();
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;&#39;&quot; onload=x &amp;amp;"));
    let jobs = download(&html, "jobs-fifo.csv");
    let first = csv::Reader::from_reader(jobs.as_bytes())
        .records()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(&first[0], workload.jobs[0].name);
}

#[test]
fn a_page_loads_nothing() {
    let workload = workload("job-");
    let html = page(&[run("fifo", &workload, Spans::Kept)], &workload).html();
    let without = html.replace("http://www.w3.org/2000/svg", "");
    for word in ["http", "<script", "<link", "<img", "@import", "url("] {
        assert!(!without.contains(word), "{word}");
    }
}

/// A replay's recorded side has figures and records, and nothing to draw over time.
#[test]
fn a_run_without_spans_has_its_distributions() {
    let workload = workload("job-");
    let report = page(&[run("fifo", &workload, Spans::Dropped)], &workload);
    let svgs = report.svgs();
    let names: Vec<&str> = svgs.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, ["jct.svg", "fairness.svg", "bound.svg"]);
    assert!(!report.html().contains("Who held which GPUs"));
}

#[test]
fn a_report_without_runs_is_a_page() {
    assert!(Report::default().html().ends_with("</html>\n"));
}
