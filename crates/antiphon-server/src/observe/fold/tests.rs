//! A cluster seen several times, and what each look makes of the one before.

use antiphon_backends::observe::{Held, Run, SeenNode};
use antiphon_kernel::check;
use antiphon_types::{Bytes, ExitClass, Millis, Role, Shape, Tasks};

use super::*;

const MINUTE: u64 = 60_000;

fn at(minute: u64) -> Timestamp {
    Timestamp::from_millis(1_796_000_000_000 + minute * MINUTE)
}

/// Two nodes of eight GPUs, and these jobs.
fn picture(jobs: Vec<SeenJob>) -> Picture {
    let node = |name: &str| SeenNode {
        spec: NodeSpec {
            name: name.into(),
            gpus: 8,
            gpu_type: "H100-SXM-80GB".into(),
            cpus: 64,
            memory: Bytes::new(1 << 40),
            partition: "train".into(),
            ..NodeSpec::default()
        },
        partitions: vec!["train".into()],
        service: Service::In,
    };
    Picture {
        nodes: vec![node("n1"), node("n2")],
        partitions: Vec::new(),
        jobs,
        unclear: Vec::new(),
        left_out: Vec::new(),
    }
}

fn job(key: &str, submitted: u64, gpus: u32, phase: SeenPhase) -> SeenJob {
    SeenJob {
        key: key.into(),
        spec: JobSpec {
            name: "sft".into(),
            team: "lab".into(),
            user: "ann".into(),
            roles: vec![Role {
                name: "main".into(),
                command: vec!["sbatch".into()],
                shape: Shape {
                    gpus: GpuAmount::from_gpus(gpus),
                    tasks: Tasks::Exactly(1),
                    cpus: Some(8),
                    memory: Some(Bytes::ZERO),
                    ..Shape::default()
                },
                alternatives: Vec::new(),
            }],
            time_limit: Some(Millis::from_secs(3_600)),
            ..JobSpec::default()
        },
        submitted: at(submitted),
        phase,
        partitions: vec!["train".into()],
        reason: None,
        priority: 1,
        starts: None,
        not_weighed: Vec::new(),
    }
}

fn run(since: u64, node: &str, gpus: u32, indices: &[u32]) -> Run {
    Run {
        since: at(since),
        held: vec![Held {
            role: "main".into(),
            node: node.into(),
            gpus,
            indices: indices.to_vec(),
            cpus: 8,
            memory: Bytes::ZERO,
        }],
    }
}

fn runs(since: u64, node: &str, indices: &[u32]) -> SeenPhase {
    let gpus = u32::try_from(indices.len()).unwrap();
    SeenPhase::Running(run(since, node, gpus, indices))
}

/// Looks again and again; every look has to leave books that agree, and to be repeated without an event.
fn look(state: State, minute: u64, jobs: Vec<SeenJob>) -> State {
    let seen = picture(jobs);
    let settings = Settings::default();
    let folded = fold(state, &seen, "slurm", &settings, at(minute));
    check::invariants(&folded.state).unwrap();
    let again = fold(folded.state, &seen, "slurm", &settings, at(minute));
    assert!(again.events.is_empty(), "{:?}", again.events);
    again.state
}

fn told(state: &State) -> Vec<String> {
    let minutes = |when: Timestamp| when.as_millis().saturating_sub(at(0).as_millis()) / MINUTE;
    let one = |job: &Job| {
        let (name, submitted) = (&job.spec.name, minutes(job.submitted));
        let how = match &job.state {
            JobState::Running { active } => {
                format!(
                    " on {} since {}",
                    active.allocation,
                    minutes(active.launched)
                )
            }
            JobState::Failed { class, .. } => format!(" ({class})"),
            _ => String::new(),
        };
        let attempts: Vec<String> = job
            .attempts
            .iter()
            .map(|past| format!(", {} until {}", past.allocation, minutes(past.ended)))
            .collect();
        let is = job.state.name();
        format!("{name} of {submitted}: {is}{how}{}", attempts.concat())
    };
    state.jobs().values().map(one).collect()
}

#[test]
fn what_happened_before_the_first_look_has_its_own_times() {
    let state = look(
        State::default(),
        60,
        vec![
            job("7", 10, 8, runs(20, "n1", &[0, 1, 2, 3, 4, 5, 6, 7])),
            job("8", 5, 4, SeenPhase::Waiting),
            job("9", 30, 4, SeenPhase::KeptBack),
        ],
    );
    assert_eq!(
        told(&state),
        [
            "slurm-8:sft of 5: pending",
            "slurm-7:sft of 10: running on n1[0-7] since 20",
            "slurm-9:sft of 30: held",
        ]
    );
    assert_eq!(state.team_holds("lab"), GpuAmount::from_gpus(8));
}

#[test]
fn jobs_start_end_and_come_back_to_the_queue() {
    let waits = || job("7", 0, 2, SeenPhase::Waiting);
    let state = look(State::default(), 1, vec![waits()]);
    let state = look(state, 3, vec![job("7", 0, 2, runs(2, "n1", &[0, 1]))]);
    assert_eq!(
        told(&state),
        ["slurm-7:sft of 0: running on n1[0-1] since 2"]
    );
    // Put back into the queue, and started elsewhere between two looks.
    let state = look(state, 5, vec![waits()]);
    assert_eq!(told(&state), ["slurm-7:sft of 0: pending, n1[0-1] until 5"]);
    let state = look(state, 7, vec![job("7", 0, 2, runs(6, "n1", &[0, 1]))]);
    let state = look(state, 9, vec![job("7", 0, 2, runs(8, "n2", &[4, 5]))]);
    assert_eq!(
        told(&state),
        ["slurm-7:sft of 0: running on n2[4-5] since 8, n1[0-1] until 5, n1[0-1] until 8"]
    );
    let over = |outcome, exit| SeenPhase::Ended {
        run: Some(run(8, "n2", 2, &[])),
        at: at(10),
        exit,
        outcome,
    };
    let class = ExitClass::OutOfMemory;
    let exit = Exit::Signal {
        signal: 9,
        class: Some(class),
        evidence: "Slurm: OUT_OF_MEMORY".into(),
    };
    let ended = over(Outcome::Failed { class }, exit);
    let state = look(state, 11, vec![job("7", 0, 2, ended)]);
    assert!(
        told(&state)[0].starts_with("slurm-7:sft of 0: failed (out of memory)"),
        "{:?}",
        told(&state)
    );
    // Slurm forgets it after a while, which is no news.
    let state = look(state, 30, Vec::new());
    assert_eq!(state.team_holds("lab"), GpuAmount::ZERO);
}

#[test]
fn what_came_and_went_between_two_looks_is_told() {
    let state = look(State::default(), 1, Vec::new());
    let exit = Exit::Code {
        code: 0,
        class: None,
        evidence: String::new(),
    };
    let ended = |minute| SeenPhase::Ended {
        run: Some(run(minute, "n1", 2, &[])),
        at: at(minute),
        exit: exit.clone(),
        outcome: Outcome::Succeeded,
    };
    let state = look(
        state,
        5,
        vec![job("7", 2, 2, ended(2)), job("8", 2, 2, ended(3))],
    );
    assert_eq!(
        told(&state),
        [
            "slurm-7:sft of 2: succeeded, n1[6-7] until 2",
            "slurm-8:sft of 2: succeeded, n1[6-7] until 3",
        ]
    );
}

/// A controller that was killed may have forgotten what was submitted last: the job is gone, and nobody says how it ended.
#[test]
fn what_is_no_longer_listed_is_over_and_nobody_says_how() {
    let state = look(
        State::default(),
        3,
        vec![
            job("7", 0, 2, SeenPhase::Waiting),
            job("8", 0, 2, runs(2, "n1", &[0, 1])),
        ],
    );
    let state = look(state, 5, Vec::new());
    assert_eq!(
        told(&state),
        [
            "slurm-7:sft of 0: canceled",
            "slurm-8:sft of 0: canceled, n1[0-1] until 5",
        ]
    );
    assert_eq!(state.free_on(&"n1".into()).unwrap().gpus_whole, 8);
}

#[test]
fn a_person_holds_releases_and_changes_what_waits() {
    let state = look(
        State::default(),
        1,
        vec![job("7", 0, 2, SeenPhase::Waiting)],
    );
    let state = look(state, 2, vec![job("7", 0, 2, SeenPhase::KeptBack)]);
    assert_eq!(told(&state), ["slurm-7:sft of 0: held"]);
    let state = look(state, 3, vec![job("7", 0, 2, SeenPhase::Waiting)]);
    assert_eq!(told(&state), ["slurm-7:sft of 0: pending"]);
    let state = look(state, 4, vec![job("7", 0, 4, SeenPhase::Waiting)]);
    assert_eq!(
        told(&state),
        ["slurm-7:sft of 0: canceled", "slurm-7:sft of 4: pending"]
    );
}

#[test]
fn gpus_that_two_jobs_share_are_counted_once() {
    let state = look(
        State::default(),
        3,
        vec![
            job("7", 0, 2, runs(1, "n1", &[0, 1])),
            job("8", 0, 2, runs(2, "n1", &[0, 1])),
        ],
    );
    assert_eq!(
        told(&state),
        [
            "slurm-7:sft of 0: running on n1[0-1] since 1",
            "slurm-8:sft of 0: running on n1[6-7] since 2",
        ]
    );
}

#[test]
fn a_job_that_antiphon_would_refuse_is_shown_all_the_same() {
    let seen = picture(vec![job("7", 0, 64, SeenPhase::Waiting)]);
    let folded = fold(
        State::default(),
        &seen,
        "slurm",
        &Settings::default(),
        at(1),
    );
    assert_eq!(told(&folded.state), ["slurm-7:sft of 0: held"]);
    let refused: Vec<&String> = folded.refused.values().collect();
    assert!(refused[0].contains("64 GPUs"), "{refused:?}");
}

#[test]
fn nodes_are_drained_down_and_back() {
    let service = |state: State, minute, service: Service| {
        let mut seen = picture(Vec::new());
        seen.nodes[1].service = service;
        fold(state, &seen, "slurm", &Settings::default(), at(minute)).state
    };
    let is = |state: &State| state.node(&"n2".into()).unwrap().state.clone();
    let state = service(State::default(), 1, Service::Down("down: gone".into()));
    assert!(matches!(is(&state), antiphon_types::NodeState::Down { .. }));
    let state = service(state, 2, Service::Drained("idle+drain: fan".into()));
    let reason = "idle+drain: fan".to_owned();
    assert_eq!(is(&state), antiphon_types::NodeState::Draining { reason });
    let state = service(state, 3, Service::In);
    assert_eq!(is(&state), antiphon_types::NodeState::Ready);
}

#[test]
fn an_account_that_is_no_team_gets_one() {
    let teams = vec![TeamSpec {
        name: "rlhf".into(),
        ..TeamSpec::default()
    }];
    let settings = Settings {
        policy: Policy::default(),
        teams,
    };
    let seen = picture(vec![job("7", 0, 2, SeenPhase::Waiting)]);
    let folded = fold(State::default(), &seen, "slurm", &settings, at(1));
    assert_eq!(told(&folded.state), ["slurm-7:sft of 0: pending"]);
    let names = folded
        .state
        .teams()
        .specs()
        .iter()
        .map(|team| team.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["rlhf", "lab"]);
}
