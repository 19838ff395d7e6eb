//! Whether a running job would find room elsewhere, or in another shape, if it left what it holds. Takes nothing.

use antiphon_types::{JobSpec, NodeName, Processes};

use crate::allowance::Allowance;
use crate::index::by_type;
use crate::jobs::{Active, Job};
use crate::place::{View, place_for_trial};
use crate::state::State;

/// The node on which a rank of a job's gang runs.
pub(crate) fn node_of_rank<'a>(job: &Job, active: &'a Active, rank: u32) -> Option<&'a NodeName> {
    let mut first = 0;
    active.allocation.tasks.iter().find_map(|task| {
        let role = job.spec.roles.iter().find(|role| role.name == task.role)?;
        let processes = match role.shape.processes {
            // The task's own launcher starts one for each GPU.
            Processes::PerNode => u32::try_from(task.gpus.len()).expect("few GPUs").max(1),
            Processes::PerGpu => 1,
        };
        let here = first..first + processes;
        first = here.end;
        here.contains(&rank).then_some(&task.node)
    })
}

/// Whether a job as `spec` describes it would fit without a node, once its attempt has left: on what nobody waits for.
pub(crate) fn fits_elsewhere(
    state: &State,
    job: &Job,
    active: &Active,
    spec: &JobSpec,
    without: Option<&NodeName>,
) -> bool {
    let mut free = state.index.capacity.clone();
    free.give_back_gang(&active.nodes, &active.allocation);
    free.give_back_resources(&job.spec.resources);
    let avoided = job.steering.avoided(state.now);
    for node in avoided.chain(without) {
        if let Some(id) = state.index.node_ids.get(node) {
            free.close(*id);
        }
    }
    let mut holdings = state.index.holdings.clone();
    let urgent = active.class <= antiphon_types::Class::Production;
    for (gpu_type, amount) in by_type(state, active) {
        holdings.remove(&state.teams, job.team, gpu_type, amount, urgent);
    }
    let allowance = Allowance::within_limits(&holdings, &state.teams, job.team);
    let view = View {
        job: Some(job.id),
        allowance: &allowance,
        ..View::of_anybody(state, active.class, None)
    };
    place_for_trial(&mut free, spec, &view).is_some()
}
