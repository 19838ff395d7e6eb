//! Whether a job could ever run on this cluster, with nothing else on it; and if not, what comes nearest. Looks at nothing
//! that is held.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{
    Bytes, GpuAmount, JobSpec, Millis, NodeSpec, NodeState, PartitionSpec, Rejection, Shape, Span,
};

use crate::allowance::{Allowance, UNBOUNDED, most};
use crate::capacity::Capacity;
use crate::expect::longest_said;
use crate::place::{View, best_at, fits, place};
use crate::state::{Node, State};
use crate::teams::Holdings;

/// Checks that the gang would fit on the empty cluster.
pub(crate) fn can_exist(state: &State, spec: &JobSpec) -> Result<(), Rejection> {
    let view = View {
        job: None,
        class: spec.class,
        now: state.now,
        ends_by: longest_said(spec).map(|longest| state.now.after(longest)),
        gone_by: None,
        allowance: &UNBOUNDED,
        demand: &state.demand,
        held: None,
    };
    // A cluster of what is offered takes long to build, and most jobs fit where they stand or once others have left.
    let simple = spec.roles.len() == 1 && state.teams.specs().is_empty();
    let now = &state.index.capacity;
    if simple && (fits(now, spec, &view) || fits(&emptied(state), spec, &view)) {
        return Ok(());
    }
    let offered = offered(state);
    let mut total = Capacity::build(&offered, &state.partitions, &state.resources);
    if place(&mut total.clone(), spec, &view).is_some() {
        return within_limits(state, spec, &mut total, &view);
    }
    names(state, &offered, spec)?;
    resources(state, spec)?;
    long(state, spec, &mut total, &view)?;
    spans(spec, &total, &view)?;
    sizes(&offered, spec)?;
    Err(too_wide(&offered, spec))
}

/// A job that fits, but not within what its team may ever hold.
fn within_limits(
    state: &State,
    spec: &JobSpec,
    total: &mut Capacity,
    view: &View<'_>,
) -> Result<(), Rejection> {
    let teams = &state.teams;
    let Some(team) = teams.id(&spec.team) else {
        return Ok(());
    };
    let nothing = Holdings::default();
    let allowance = Allowance::within_limits(&nothing, teams, team);
    let view = View {
        allowance: &allowance,
        ..*view
    };
    if allowance.is_unbounded() || place(total, spec, &view).is_some() {
        return Ok(());
    }
    let roles = allowance.kept_out(spec, total.kinds()).into_iter();
    let kept_out = roles.map(|(shape, kind)| (Some(kind.gpu_type.as_str()), shape.gpus));
    // Where the preferred shape is within the limits, it fits nowhere, and one that would is over them.
    let asked = [spec.gpus(), most(spec)].into_iter().flat_map(|gpus| {
        let types = total.kinds().iter();
        let types = types.map(|kind| Some(kind.gpu_type.as_str()));
        std::iter::once(None)
            .chain(types)
            .map(move |gpu_type| (gpu_type, gpus))
    });
    let (exceeded, asked) = kept_out
        .chain(asked)
        .find_map(|(gpu_type, asked)| {
            let exceeded = nothing.exceeded(teams, team, gpu_type, asked)?;
            Some((exceeded, asked))
        })
        .expect("a limit that is not less than all that is asked for keeps nobody out");
    Err(Rejection::OverTeamLimit {
        team: teams.get(exceeded.team).spec.name.clone(),
        of_type: exceeded
            .gpu_type
            .map(|name| format!(" of type {name}"))
            .unwrap_or_default(),
        asked,
        limit: exceeded.limit,
    })
}

/// The nodes in service with nothing on them.
fn emptied(state: &State) -> Capacity {
    let now = &state.index.capacity;
    let mut emptied = now.emptied();
    for (node, _) in (0..).zip(state.nodes()) {
        if !now.is_open(node) {
            emptied.close(node);
        }
    }
    emptied
}

/// Nodes that are there, drained ones included. A spare counts only in place of a node that is down: it steps back when that
/// one returns, and a job that needed both would wait for ever.
fn offered(state: &State) -> Vec<NodeSpec> {
    let is_down = |node: &Node| matches!(node.state, NodeState::Down { .. });
    let mut missing: BTreeMap<&str, usize> = BTreeMap::new();
    for node in state.nodes().filter(|node| is_down(node)) {
        if !node.spec.spare {
            *missing.entry(&node.spec.partition).or_default() += 1;
        }
    }
    let mut counts = |node: &Node| {
        if !node.spec.spare {
            return true;
        }
        let left = missing.get_mut(node.spec.partition.as_str());
        left.is_some_and(|left| {
            let needed = *left > 0;
            *left = left.saturating_sub(1);
            needed
        })
    };
    let there = state.nodes().filter(|node| !is_down(node));
    there
        .filter(|node| counts(node))
        .map(|node| node.spec.clone())
        .collect()
}

/// GPU types and partitions that nobody has.
fn names(state: &State, offered: &[NodeSpec], spec: &JobSpec) -> Result<(), Rejection> {
    for role in &spec.roles {
        let mut unknown = None;
        for shape in role.shapes() {
            match unknown_name(state, offered, shape) {
                // One shape that could be is enough.
                None => {
                    unknown = None;
                    break;
                }
                Some(rejection) => unknown = unknown.or(Some(rejection)),
            }
        }
        if let Some(rejection) = unknown {
            return Err(rejection);
        }
    }
    Ok(())
}

fn unknown_name(state: &State, offered: &[NodeSpec], shape: &Shape) -> Option<Rejection> {
    if let Some(wanted) = shape.gpu_type.as_ref().filter(|_| !shape.gpus.is_zero()) {
        let profiles = |node: &NodeSpec| node.slices.iter().any(|slice| slice.profile == *wanted);
        let has = |node: &NodeSpec| node.gpus > 0 && node.gpu_type == *wanted || profiles(node);
        if !offered.iter().any(has) {
            let whole = offered.iter().filter(|node| node.gpus > 0);
            let whole = whole.map(|node| node.gpu_type.clone());
            let slices = offered.iter().flat_map(|node| &node.slices);
            let slices = slices.map(|slice| slice.profile.clone());
            let types: BTreeSet<String> = whole.chain(slices).collect();
            return Some(Rejection::UnknownGpuType {
                gpu_type: wanted.clone(),
                types: types.into_iter().collect(),
            });
        }
    }
    let wanted = shape.partition.as_ref()?;
    let named: BTreeSet<&String> = offered.iter().map(|node| &node.partition).collect();
    let known = named.contains(wanted) || state.partitions.contains_key(wanted);
    (!known).then(|| Rejection::UnknownPartition {
        partition: wanted.clone(),
        partitions: named
            .into_iter()
            .filter(|name| !name.is_empty())
            .cloned()
            .collect(),
    })
}

fn resources(state: &State, spec: &JobSpec) -> Result<(), Rejection> {
    for (name, asked) in &spec.resources {
        let total = state.resources.get(name).copied().unwrap_or(0);
        if *asked > total {
            return Err(Rejection::TooMuchOfResource {
                name: name.clone(),
                asked: *asked,
                total,
                resources: state.resources.keys().cloned().collect(),
            });
        }
    }
    Ok(())
}

/// A job that fits, but nowhere for as long as it may run.
fn long(
    state: &State,
    spec: &JobSpec,
    total: &mut Capacity,
    view: &View<'_>,
) -> Result<(), Rejection> {
    let Some(asked) = longest_said(spec) else {
        return Ok(());
    };
    let short = View {
        ends_by: Some(state.now),
        ..*view
    };
    if place(&mut total.clone(), spec, &short).is_none() {
        return Ok(());
    }
    let partitions: &BTreeMap<String, PartitionSpec> = &state.partitions;
    let allowed = partitions
        .values()
        .filter_map(|partition| partition.duration_max);
    let fits = |max: &Millis| {
        let view = View {
            ends_by: Some(state.now.after(*max)),
            ..*view
        };
        place(&mut total.clone(), spec, &view).is_some()
    };
    let max = allowed.filter(fits).max().unwrap_or_default();
    Err(Rejection::TooLong { asked, max })
}

/// A gang that fits, but not as close together as it asks.
fn spans(spec: &JobSpec, total: &Capacity, view: &View<'_>) -> Result<(), Rejection> {
    let Some(role) = spec
        .roles
        .iter()
        .find(|role| role.shape.span < Span::Cluster)
    else {
        return Ok(());
    };
    let shape = &role.shape;
    let wider = Span::ALL.into_iter().filter(|span| *span > shape.span);
    let enough = wider.into_iter().find(|span| {
        let mut wider = spec.clone();
        for role in &mut wider.roles {
            role.shape.span = role.shape.span.max(*span);
        }
        place(&mut total.clone(), &wider, view).is_some()
    });
    let Some(enough) = enough else {
        return Ok(());
    };
    let (_, widest) = best_at(total, spec, shape, shape.span, view).unwrap_or_default();
    Err(Rejection::TooWideForSpan {
        asked: shape.gpus,
        span: shape.span,
        widest,
        enough: Some(enough),
    })
}

/// Tasks that no node could hold.
fn sizes(offered: &[NodeSpec], spec: &JobSpec) -> Result<(), Rejection> {
    let cpus_max = offered.iter().map(|node| node.cpus).max().unwrap_or(0);
    let memory_max = offered.iter().map(|node| node.memory).max();
    let memory_max = memory_max.unwrap_or(Bytes::ZERO);
    for role in &spec.roles {
        let cpus = role.shape.cpus.unwrap_or(0);
        let memory = role.shape.memory.unwrap_or_default();
        if cpus > cpus_max || memory > memory_max {
            return Err(Rejection::TooLarge {
                cpus,
                memory,
                cpus_max,
                memory_max,
            });
        }
    }
    Ok(())
}

fn too_wide(offered: &[NodeSpec], spec: &JobSpec) -> Rejection {
    let one_type = spec
        .roles
        .iter()
        .find_map(|role| role.shape.gpu_type.clone());
    let fitting = || {
        offered.iter().filter(|node| {
            one_type
                .as_ref()
                .is_none_or(|wanted| *wanted == node.gpu_type)
        })
    };
    let asked: GpuAmount = spec.gpus();
    Rejection::TooWide {
        asked,
        of_type: one_type
            .as_ref()
            .map(|name| format!(" of type {name}"))
            .unwrap_or_default(),
        total: fitting().map(whole_gpus).sum(),
        widest: fitting().map(whole_gpus).max().unwrap_or(0),
    }
}

/// GPUs that a node hands out whole: neither lost nor cut into slices.
fn whole_gpus(node: &NodeSpec) -> u32 {
    let cut = node.slices.iter().map(|slice| slice.gpu);
    let missing: BTreeSet<u32> = cut.chain(node.gpus_lost.iter().copied()).collect();
    let missing = missing.into_iter().filter(|gpu| *gpu < node.gpus).count();
    node.gpus - u32::try_from(missing).expect("few GPUs")
}
