//! What is scraped is what the reference says, and no label grows with the number of jobs.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_backends::DeviceReading;
use antiphon_types::{
    AttemptId, Body, Command, Event, GpuTime, JobId, JobSpec, Millis, NodeSpec, Observation, Seq,
    StopCause,
};

use super::*;
use crate::facts::{End, Loss, Spent};

fn facts() -> Vec<Fact> {
    let attempt = AttemptId {
        job: JobId(7),
        number: 1,
    };
    let lost = BTreeMap::from([(Loss::Preemption, GpuTime::from_gpu_millis(1_500))]);
    let spent = Spent {
        attempt,
        team: "rlhf".into(),
        name: "a".into(),
        launched: Timestamp::ZERO,
        ended: Timestamp::from_millis(4_000),
        held: GpuTime::from_gpu_millis(4_000),
        usd: 0.25,
        lost,
        outcome: "requeued",
    };
    let preemptor = JobId(8);
    vec![
        Fact::Launched {
            attempt,
            class: Class::Standard,
            queued: Millis::from_secs(20),
        },
        Fact::Preempted {
            attempt,
            cause: StopCause::Priority { preemptor },
        },
        Fact::Settled(Box::new(spent)),
        Fact::Ended {
            job: JobId(7),
            class: Class::Standard,
            how: End::Succeeded,
        },
        Fact::Directed { name: "yield" },
        Fact::Answered {
            name: "yield",
            answer: "applied",
        },
        Fact::Gate(antiphon_types::GateChange::Open {
            why: antiphon_types::GateOpened::Recovered,
        }),
    ]
}

/// A cluster of one node with a job in its queue: something for every gauge to say.
fn state() -> State {
    let mut state = State::default();
    let node = NodeSpec {
        name: "n0".into(),
        gpus: 8,
        gpu_type: "H100".into(),
        ..NodeSpec::default()
    };
    let inventory = Observation::Inventory {
        nodes: vec![node],
        partitions: Vec::new(),
        resources: BTreeMap::new(),
    };
    let spec = JobSpec {
        name: "a".into(),
        team: "rlhf".into(),
        ..JobSpec::default()
    };
    let submit = Body::Command {
        by: "ada".into(),
        id: None,
        command: Command::Submit {
            spec: Box::new(spec),
        },
    };
    for (seq, body) in (1..).zip([Body::Observation(inventory), submit]) {
        let event = Event {
            seq: Seq(seq),
            at: Timestamp::ZERO,
            body,
        };
        antiphon_kernel::apply(&mut state, &event);
    }
    state
}

fn measured() -> DeviceBook {
    DeviceBook::of(vec![DeviceReading {
        node: "n0".into(),
        gpu: 3,
        utilization_percent: Some(40),
        memory_used: None,
        memory_total: None,
        temperature_c: None,
        power_mw: None,
        throttled: vec!["heat"],
        ecc_errors: None,
        xid: None,
    }])
}

fn scraped() -> String {
    let metrics = Metrics::default();
    facts().iter().for_each(|fact| metrics.note(fact));
    metrics.cycle(Duration::from_micros(250));
    metrics.commit(Duration::from_millis(2));
    let nothing = ThroughputNow {
        rate: Some(12.5),
        samples: 1,
        history: Vec::new(),
    };
    let nowhere = Path::new("/nonexistent");
    metrics.scrape(
        &state(),
        &nothing,
        &measured(),
        (12, 3),
        nowhere,
        Timestamp::ZERO,
    )
}

#[test]
fn what_is_scraped_is_what_is_described() {
    let text = scraped();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let types: BTreeMap<&str, &str> = types.filter_map(|line| line.split_once(' ')).collect();
    let described = d::ALL.iter();
    let names: Vec<String> = described
        .map(|described| format!("antiphon_{}", described.name))
        .collect();
    let expected: BTreeMap<&str, &str> = names
        .iter()
        .map(String::as_str)
        .zip(d::ALL.iter().map(|described| described.kind))
        .collect();
    assert_eq!(types, expected);
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn without_open_metrics_a_counter_is_described_under_its_sample() {
    let text = in_prometheus_text(&scraped());
    let described = |what: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(what));
        let names = lines.filter_map(|line| line.split(' ').next());
        names.map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let (helped, typed) = (described("# HELP "), described("# TYPE "));
    assert_eq!(helped, typed);
    let ends = ["_bucket", "_sum", "_count"];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let of_histogram = ends.iter().find_map(|end| name.strip_suffix(end));
        let known = helped.contains(name) || of_histogram.is_some_and(|name| helped.contains(name));
        assert!(known, "{line} has no help text");
    }
    assert!(helped.contains("antiphon_signals_total"));
    assert!(!text.contains("# EOF"));
}

#[test]
fn facts_are_counted_under_their_names() {
    let text = scraped();
    for line in [
        "antiphon_preemptions_total{cause=\"priority\"} 1",
        "antiphon_lost_gpu_seconds_total{cause=\"preemption\"} 1.5",
        "antiphon_held_gpu_seconds_total 4.0",
        "antiphon_cost_usd_total 0.25",
        "antiphon_jobs_ended_total{class=\"standard\",outcome=\"succeeded\"} 1",
        "antiphon_directives_total{directive=\"yield\",outcome=\"applied\"} 1",
        "antiphon_queue_delay_seconds_sum{class=\"standard\"} 20.0",
        "antiphon_signals_total 12",
        "antiphon_number{number=\"effective_throughput\"} 12.5",
        "antiphon_number_redline{number=\"completion_rate\"} 0.85",
        "antiphon_gate_shut 0",
        "antiphon_jobs{class=\"standard\",state=\"pending\"} 1",
        "antiphon_gpus{state=\"idle\",gpu_type=\"H100\"} 8.0",
        "antiphon_device_utilization_ratio{gpu_type=\"H100\"} 0.4",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    assert!(!text.contains("job-7"), "a job is no label");
}

#[test]
fn names_beyond_the_bound_share_a_line() {
    let mut known = Vec::new();
    let names: Vec<String> = (0..5)
        .map(|number| bounded(&mut known, &format!("team-{number}"), 3))
        .collect();
    assert_eq!(names, ["team-0", "team-1", "team-2", "other", "other"]);
    assert_eq!(bounded(&mut known, "team-1", 3), "team-1");
}

#[test]
fn the_reference_is_current() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/metrics.md"
    );
    let page = std::fs::read_to_string(path).unwrap();
    assert!(
        page.contains(&reference()),
        "put this table into docs/reference/metrics.md:\n{}",
        reference()
    );
}
