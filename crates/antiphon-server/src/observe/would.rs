//! What antiphon would do now with what is seen: its own cycle, on a copy that nobody keeps, as far as it gets without time
//! passing. Nothing of it is logged or carried out.

use std::collections::BTreeMap;

use antiphon_kernel::{State, apply, at_stake, check, decide, explain};
use antiphon_types::{
    Action, Body, Decision, Event, GpuTime, JobId, NodeName, Seq, StopCause, Timestamp,
};

/// Cycles that are played at most: each starts thousands of jobs.
const CYCLES_MAX: usize = 20;

/// What antiphon would do now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Proposal {
    /// As of when.
    pub(crate) at: Timestamp,
    /// By job; of a job that is not named it would do nothing.
    pub(crate) jobs: BTreeMap<JobId, Would>,
    /// Nodes that it would put aside, and why.
    pub(crate) nodes: BTreeMap<NodeName, String>,
    /// The place of each waiting job in the order in which it would serve them, from 1.
    pub(crate) places: BTreeMap<JobId, usize>,
}

/// What would become of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Would {
    /// It would start.
    Start {
        /// Where: `n1[0-7]`.
        on: String,
        /// Those nodes.
        nodes: Vec<NodeName>,
    },
    /// It would be asked to give way.
    GiveWay {
        /// Why.
        cause: StopCause,
        /// What it would have to do again, as far as antiphon knows of its checkpoints.
        lost: GpuTime,
    },
    /// Nodes would be held back for it.
    HoldBack {
        /// How many.
        nodes: usize,
    },
}

/// Plays antiphon's cycle on a copy.
///
/// # Errors
/// What is impossible about a decision: a bug.
pub(crate) fn would(mut state: State) -> Result<Proposal, String> {
    let mut made = Proposal {
        at: state.now(),
        places: (1..)
            .zip(explain::queue(&state, usize::MAX))
            .map(|(place, job)| (job, place))
            .collect(),
        ..Proposal::default()
    };
    for _ in 0..CYCLES_MAX {
        let decision = decide(&state);
        check::decision(&state, &decision)?;
        let again = decision.again;
        let acts = !decision.actions.is_empty();
        for action in &decision.actions {
            note(&state, action, &mut made);
        }
        if !acts {
            break;
        }
        fold(&mut state, decision);
        if !again {
            break;
        }
    }
    Ok(made)
}

fn fold(state: &mut State, decision: Decision) {
    let event = Event {
        seq: Seq(state.seq().0 + 1),
        at: state.now(),
        body: Body::Decision(decision),
    };
    apply(state, &event);
}

fn note(state: &State, action: &Action, made: &mut Proposal) {
    let (job, would) = match action {
        Action::Launch {
            attempt,
            allocation,
            ..
        } => {
            let nodes = allocation.by_node();
            let nodes = nodes.into_iter().map(|slice| slice.node.clone()).collect();
            let on = allocation.to_string();
            (attempt.job, Would::Start { on, nodes })
        }
        // The other scheduler ends jobs at their limit itself.
        Action::Yield {
            cause: StopCause::Limit,
            ..
        }
        | Action::Terminate {
            cause: StopCause::Limit,
            ..
        } => return,
        Action::Yield { attempt, cause, .. } | Action::Terminate { attempt, cause, .. } => {
            let lost = lost(state, attempt.job);
            let cause = cause.clone();
            (attempt.job, Would::GiveWay { cause, lost })
        }
        Action::Reserve { job, slot } => {
            let nodes = slot.nodes.len();
            (*job, Would::HoldBack { nodes })
        }
        Action::PutAside { node, evidence } => {
            made.nodes.insert(node.clone(), evidence.clone());
            return;
        }
        Action::Unreserve { .. }
        | Action::Kill { .. }
        | Action::Settle { .. }
        | Action::Direct { .. }
        | Action::Remedy { .. }
        | Action::Augment { .. }
        | Action::Abandon { .. }
        | Action::Gate(_) => return,
    };
    made.jobs.insert(job, would);
}

fn lost(state: &State, job: JobId) -> GpuTime {
    let job = state.job(job);
    let stake = job.and_then(|job| at_stake(state, job, state.now()));
    stake.map_or(GpuTime::ZERO, |stake| stake.unsaved)
}

#[cfg(test)]
mod tests {
    use antiphon_types::{
        Class, Command, GpuAmount, JobSpec, NodeSpec, Observation, Role, Shape, TaskId,
    };

    use super::*;

    /// One node of eight GPUs on which a best-effort job runs, while two of production wait for six and two.
    fn state() -> State {
        let mut state = State::default();
        let mut log = |body| {
            let event = Event {
                seq: Seq(state.seq().0 + 1),
                at: Timestamp::from_millis(1),
                body,
            };
            apply(&mut state, &event);
            if let Body::Command { .. } = event.body
                && state.newest_job() == Some(JobId(1))
            {
                let launch = decide(&state);
                fold(&mut state, launch);
                let task = TaskId {
                    attempt: "job-1.1".parse().unwrap(),
                    role: "main".into(),
                    index: 0,
                };
                let event = Event {
                    seq: Seq(state.seq().0 + 1),
                    at: state.now(),
                    body: Body::Observation(Observation::TaskStarted { task }),
                };
                apply(&mut state, &event);
            }
        };
        let node = NodeSpec {
            name: "n1".into(),
            gpus: 8,
            gpu_type: "H100".into(),
            cpus: 64,
            ..NodeSpec::default()
        };
        log(Body::Observation(Observation::Inventory {
            nodes: vec![node],
            partitions: Vec::new(),
            resources: BTreeMap::new(),
        }));
        for (name, class, gpus) in [
            ("low", Class::BestEffort, 6),
            ("large", Class::Production, 6),
            ("small", Class::Production, 2),
        ] {
            let role = Role {
                name: "main".into(),
                command: vec!["x".into()],
                shape: Shape {
                    gpus: GpuAmount::from_gpus(gpus),
                    cpus: Some(0),
                    ..Shape::default()
                },
                ..Role::default()
            };
            let spec = Box::new(JobSpec {
                name: name.into(),
                team: "lab".into(),
                class,
                roles: vec![role],
                ..JobSpec::default()
            });
            let (by, id, command) = (String::new(), None, Command::Submit { spec });
            log(Body::Command { by, id, command });
        }
        state
    }

    #[test]
    fn it_says_who_would_start_and_who_would_give_way() {
        let state = state();
        let made = would(state.clone()).unwrap();
        let Some(Would::GiveWay { cause, .. }) = made.jobs.get(&JobId(1)) else {
            panic!("{made:?}")
        };
        assert_eq!(
            *cause,
            StopCause::Priority {
                preemptor: JobId(2)
            }
        );
        let start = made.jobs.get(&JobId(3));
        assert!(
            matches!(start, Some(Would::Start { on, .. }) if on == "n1[0-1]" || on == "n1[6-7]"),
            "{made:?}"
        );
        assert_eq!(made.places.len(), 2);
        // Nothing of it has come to pass.
        let running = state.job(JobId(1)).map(|job| job.state.name());
        assert_eq!(running, Some("running"));
    }
}
