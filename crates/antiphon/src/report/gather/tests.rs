//! A log of a few hours, written here, and what is said of it.

use std::collections::BTreeMap;

use antiphon_kernel::{apply, decide};
use antiphon_types::*;

use super::*;

const HOUR_MS: u64 = 3_600_000;

/// Writes a log: inputs at their hours, and what the kernel decides on them.
struct Writer {
    state: State,
    events: Vec<Event>,
}

impl Writer {
    fn new() -> Self {
        let mut writer = Self {
            state: State::default(),
            events: Vec::new(),
        };
        let node = NodeSpec {
            name: "n0".into(),
            gpus: 8,
            gpu_type: "H100".into(),
            cpus: 64,
            memory: Bytes::new(1 << 40),
            partition: "train".into(),
            ..NodeSpec::default()
        };
        let partition = PartitionSpec {
            name: "train".into(),
            price_per_gpu_hour: UsdMicros::from_micros(2_000_000),
            ..PartitionSpec::default()
        };
        writer.observe(
            0.0,
            Observation::Inventory {
                nodes: vec![node],
                partitions: vec![partition],
                resources: BTreeMap::new(),
            },
        );
        writer
    }

    fn log(&mut self, hour: f64, body: Body) {
        let event = Event {
            seq: Seq(self.state.seq().0 + 1),
            at: Timestamp::from_millis((hour * HOUR_MS as f64) as u64),
            body,
        };
        apply(&mut self.state, &event);
        self.events.push(event);
        let decision = decide(&self.state);
        if !decision.actions.is_empty() {
            self.log(hour, Body::Decision(decision));
        }
    }

    fn observe(&mut self, hour: f64, observation: Observation) {
        self.log(hour, Body::Observation(observation));
    }

    fn submit(&mut self, hour: f64, name: &str, team: &str, gpus: u32) -> JobId {
        self.submit_for(hour, name, (team, gpus), None)
    }

    fn submit_for(
        &mut self,
        hour: f64,
        name: &str,
        (team, gpus): (&str, u32),
        accept: Option<Accept>,
    ) -> JobId {
        let shape = Shape {
            gpus: GpuAmount::from_gpus(gpus),
            ..Shape::default()
        };
        let spec = JobSpec {
            name: name.into(),
            team: team.into(),
            user: "ada".into(),
            workdir: "/".into(),
            roles: vec![Role {
                name: "main".into(),
                command: vec!["true".into()],
                shape,
                alternatives: Vec::new(),
            }],
            grace: Millis::from_secs(60),
            accept,
            ..JobSpec::default()
        };
        let command = Command::Submit {
            spec: Box::new(spec),
        };
        self.log(
            hour,
            Body::Command {
                by: "ada".into(),
                id: None,
                command,
            },
        );
        self.state.newest_job().unwrap()
    }

    fn task(&self, job: JobId) -> TaskId {
        let active = self.state.job(job).unwrap().state.active().unwrap();
        active.task_id(0)
    }

    fn start(&mut self, hour: f64, job: JobId) {
        let task = self.task(job);
        self.observe(hour, Observation::TaskStarted { task });
    }

    fn end(&mut self, hour: f64, job: JobId, code: i32) {
        let task = self.task(job);
        let exit = Exit::Code {
            code,
            class: None,
            evidence: String::new(),
        };
        self.observe(hour, Observation::TaskEnded { task, exit });
    }
}

fn figures(writer: &Writer, from: f64, until: f64, team: Option<&str>) -> Figures {
    let at = |hour: f64| Timestamp::from_millis((hour * HOUR_MS as f64) as u64);
    let mut gatherer = Gatherer::new(at(from), at(until), team.map(Into::into));
    writer.events.iter().for_each(|event| gatherer.take(event));
    gatherer.finish()
}

#[track_caller]
fn same(made: f64, expected: f64) {
    assert!((made - expected).abs() < 1e-6, "{made} is not {expected}");
}

fn lost(figures: &Figures, cause: &str) -> Option<f64> {
    let mut lost = figures.lost.iter();
    lost.find(|lost| lost.cause == cause).unwrap().gpu_hours
}

/// Four GPUs for two hours, of which half an hour to start; then eight that fail after an hour; one job that waits meanwhile.
fn a_day() -> Writer {
    let mut writer = Writer::new();
    let good = writer.submit(1.0, "good", "rlhf", 4);
    writer.start(1.5, good);
    writer.end(3.0, good, 0);
    let bad = writer.submit(4.0, "bad <b>", "eval", 6);
    writer.start(4.0, bad);
    let waits = writer.submit(4.5, "waits", "rlhf", 8);
    writer.end(5.0, bad, 1);
    writer.start(5.0, waits);
    writer
}

#[test]
fn every_gpu_hour_is_held_or_free_and_lost_ones_have_a_cause() {
    let figures = figures(&a_day(), 0.0, 6.0, None);
    same(figures.capacity_gpu_hours, 48.0);
    same(figures.held_gpu_hours, 8.0 + 6.0 + 8.0);
    same(figures.allocation.unwrap(), 22.0 / 48.0);
    same(lost(&figures, "hand_over").unwrap(), 2.0);
    same(lost(&figures, "failure").unwrap(), 6.0);
    same(lost(&figures, "free while jobs waited").unwrap(), 1.0);
    assert_eq!(lost(&figures, "data wait"), None, "not zero: unknown");
    same(figures.useful.unwrap(), 14.0 / 48.0);
    same(figures.cost_usd, 44.0);
    assert_eq!(figures.completed, 1);
    same(figures.cost_usd_per_completed_job.unwrap(), 44.0);
    same(figures.failed_attempts_share.unwrap(), 0.5);
    assert_eq!(figures.convergence_s, None);
    let standard = &figures.delays[0];
    assert_eq!((standard.class, standard.launches), ("standard", 3));
    same(standard.max_s, 1_800.0);
}

#[test]
fn what_began_before_the_reported_time_counts_with_the_part_within_it() {
    let figures = figures(&a_day(), 2.0, 4.5, None);
    same(figures.held_gpu_hours, 4.0 + 3.0);
    let rlhf = figures.teams.iter().find(|team| team.team == "rlhf");
    let rlhf = rlhf.unwrap();
    same(rlhf.gpu_hours, 4.0);
    same(rlhf.cost_usd, 8.0);
    assert_eq!(figures.delays[0].launches, 1);
    same(lost(&figures, "hand_over").unwrap(), 0.0);
}

#[test]
fn a_report_of_one_team_says_nothing_of_others() {
    let figures = figures(&a_day(), 0.0, 6.0, Some("rlhf"));
    same(figures.held_gpu_hours, 16.0);
    same(figures.cost_usd, 32.0);
    assert_eq!(figures.allocation, None, "the cluster is not one team's");
    assert!(figures.jobs.iter().all(|job| job.team == "rlhf"));
    same(lost(&figures, "failure").unwrap(), 0.0);
}

#[test]
fn names_do_not_become_markup_and_the_page_loads_nothing() {
    let html = super::super::page::html(&figures(&a_day(), 0.0, 6.0, None));
    assert!(
        html.contains("bad &lt;b&gt;") && !html.contains("bad <b>"),
        "{html}"
    );
    assert!(
        !html.contains("http-equiv") && !html.contains("src="),
        "{html}"
    );
    assert!(html.contains("<svg") && html.contains("unknown"));
}

#[test]
fn an_acceptable_model_costs_what_all_runs_cost_that_were_to_become_one() {
    let accept = Accept {
        metric: "loss".into(),
        from: AcceptFrom::Probe { category: None },
        op: AcceptOp::AtMost,
        value_micro: 1_200_000,
    };
    let mut writer = Writer::new();
    let mut run = |name, from, loss: f64| {
        let job = writer.submit_for(from, name, ("rlhf", 4), Some(accept.clone()));
        writer.start(from, job);
        let attempt = writer.task(job).attempt;
        let value_micro = (loss * 1e6) as i64;
        let reached = Reached {
            attempt,
            step: 100,
            value_micro,
        };
        writer.log(from + 0.5, Body::Finding(Finding::Reached(reached)));
        // What is found of its curve says nothing of a job that says itself what is good enough.
        let flat = Diagnosis {
            attempt,
            rule: Rule::Convergence,
            subject: String::new(),
            verdict: Verdict::Flat,
            evidence: String::new(),
            step: 200,
            remedies: Vec::new(),
        };
        writer.log(from + 0.75, Body::Finding(Finding::Diagnosis(flat.into())));
        writer.end(from + 1.0, job, 0);
    };
    run("good", 0.0, 1.1);
    run("poor", 1.0, 1.3);
    let figures = figures(&writer, 0.0, 3.0, None);
    // Two runs of four GPUs for an hour at two dollars, of which one came to a model, half an hour in.
    same(figures.cost_usd_per_acceptable_model.unwrap(), 16.0);
    assert_eq!((figures.acceptable_models, figures.converged), (1, 1));
    same(figures.convergence_s.unwrap(), 1_800.0);
    same(figures.convergence_usd.unwrap(), 4.0);
}
