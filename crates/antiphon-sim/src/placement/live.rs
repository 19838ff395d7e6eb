//! Placement by the kernel, as the server drives it: every job is a command, admitted, folded in and decided on.

use std::collections::BTreeMap;

use antiphon_kernel::{State, admit, apply, check, decide};
use antiphon_types::{
    Action, Allocation, Body, Class, Command, Event, GpuAmount, JobSpec, NodeName, NodeSpec,
    Observation, Policy, Role, Seq, Shape, Tasks, Timestamp,
};

use super::cluster::{Ask, Cluster, Gpus};
use crate::trace::NodeRow;
use crate::workload::{TraceJob, Workload};

/// When the run begins: any time will do.
const BEGIN: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Puts jobs where the kernel starts them; one that it does not start at once is canceled. Returns how many events were folded
/// and how many decisions made.
pub(super) fn place(
    rows: &[NodeRow],
    workload: &Workload,
    cluster: &mut Cluster,
    asks: &[Ask],
    order: &[usize],
    note: &mut impl FnMut(Option<(usize, Gpus)>),
) -> (u64, u64) {
    let mut live = Live::new(rows);
    for (number, &job) in order.iter().enumerate() {
        let spec = Box::new(spec_of(&workload.jobs[job], number));
        let Some(allocation) = live.offer(spec) else {
            note(None);
            continue;
        };
        let task = &allocation.tasks[0];
        let node = live.places[&task.node];
        let gpus = task.gpus.iter().fold(0, |all, gpu| all | 1 << gpu);
        cluster.nodes[node].take(&asks[job], gpus);
        note(Some((node, gpus)));
    }
    (live.state.seq().0, live.cycles)
}

/// The kernel's state and where its nodes stand in the list.
struct Live {
    state: State,
    places: BTreeMap<NodeName, usize>,
    cycles: u64,
}

impl Live {
    fn new(rows: &[NodeRow]) -> Self {
        let name = |row: &NodeRow| NodeName(row.name.clone());
        let mut live = Self {
            state: State::default(),
            places: rows.iter().map(name).zip(0..).collect(),
            cycles: 0,
        };
        let node = |row: &NodeRow| NodeSpec {
            name: name(row),
            gpus: row.gpus,
            gpu_type: row.gpu_type.clone(),
            gpus_virtual: true,
            cpus: u32::try_from(row.cpu_milli).unwrap_or(u32::MAX),
            memory: row.memory,
            ..NodeSpec::default()
        };
        live.fold(Body::Observation(Observation::Inventory {
            nodes: rows.iter().map(node).collect(),
            partitions: Vec::new(),
            resources: BTreeMap::new(),
        }));
        // Nobody leaves, so there is nothing to hold back for a job that does not start at once; and nobody's work is saved, so
        // there is nobody whose turn could end.
        let policy = Box::new(Policy {
            reservations_per_class_max: 0,
            turn_gain_permille: 0,
            ..Policy::default()
        });
        live.command(Command::SetPolicy { policy });
        live
    }

    /// What a job is started on, if it is.
    fn offer(&mut self, spec: Box<JobSpec>) -> Option<Allocation> {
        // What cannot run on this cluster at all is refused, and so dropped as well.
        self.command(Command::Submit { spec })?;
        let job = self.state.newest_job()?;
        let mut started = None;
        loop {
            let decision = decide(&self.state);
            self.cycles += 1;
            if decision.actions.is_empty() {
                break;
            }
            if let Err(wrong) = check::decision(&self.state, &decision) {
                panic!("an impossible decision: {wrong}");
            }
            for action in &decision.actions {
                if let Action::Launch { allocation, .. } = action {
                    started = Some(allocation.clone());
                }
            }
            let again = decision.again;
            self.fold(Body::Decision(decision));
            if !again {
                break;
            }
        }
        if started.is_none() {
            self.command(Command::Cancel { job });
        }
        started
    }

    fn command(&mut self, command: Command) -> Option<()> {
        admit(&self.state, &command).ok()?;
        self.fold(Body::Command {
            by: "simulation".into(),
            id: None,
            command,
        });
        Some(())
    }

    fn fold(&mut self, body: Body) {
        let seq = Seq(self.state.seq().0 + 1);
        // A job comes every second.
        let at = Timestamp::from_millis(BEGIN.as_millis() + seq.0 * 1_000);
        apply(&mut self.state, &Event { seq, at, body });
    }
}

/// A job as the kernel knows it: one task on one node, in a shape for each GPU type that will do.
fn spec_of(job: &TraceJob, number: usize) -> JobSpec {
    let shape = |gpu_type: Option<&String>| Shape {
        gpus: job.gpus,
        gpu_type: gpu_type.filter(|_| job.gpus > GpuAmount::ZERO).cloned(),
        tasks: Tasks::Exactly(1),
        cpus: job
            .cpu_milli
            .map(|cpus| u32::try_from(cpus).unwrap_or(u32::MAX)),
        memory: job.memory,
        ..Shape::default()
    };
    let mut shapes = job.gpu_types.iter().map(|gpu_type| shape(Some(gpu_type)));
    let first = shapes.next().unwrap_or_else(|| shape(None));
    let role = Role {
        name: "main".into(),
        command: vec!["true".into()],
        shape: first,
        alternatives: shapes.collect(),
    };
    JobSpec {
        name: format!("{}-{number}", job.name),
        team: job.team.clone(),
        user: job.user.clone(),
        // One class for all: nobody gives way here.
        class: Class::Standard,
        roles: vec![role],
        workdir: "/".into(),
        ..JobSpec::default()
    }
}
