//! The server itself, its nodes, and the operators' commands on both.

use std::collections::BTreeMap;
use std::sync::Arc;

use antiphon_kernel::{Mode, Node, State as KernelState};
use antiphon_types::{
    Command, GpuAmount, Maintenance, Millis, NodeName, NodeState, Notice, NoticeCause, Timestamp,
};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};

use super::Shared;
use super::auth::Caller;
use super::jobs::run;
use super::model::{
    CommandAccepted, FailureView, MaintenanceBody, NodeList, NodeView, NoticeBody, NoticeView,
    ReasonBody, ServerStatus, StateDigest, WindowView,
};
use super::problem::Fault;
use crate::recovery::state_digest;

/// Who and what this server is.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = ServerStatus)))]
pub(crate) async fn status(State(shared): State<Arc<Shared>>) -> Json<ServerStatus> {
    let state = shared.view.state();
    let mut jobs = BTreeMap::new();
    for job in state.jobs().values() {
        *jobs.entry(job.state.name().to_owned()).or_insert(0) += 1;
    }
    let (mode, mode_reason) = match state.mode() {
        Mode::Deciding => ("deciding", None),
        Mode::Paused { reason } => ("paused", Some(reason.clone())),
        Mode::Safe { bug } => ("safe", Some(bug.clone())),
    };
    Json(ServerStatus {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        backend: shared.source.name().into(),
        observes: super::observed::status(&shared, &state),
        gpus_virtual: shared.gpus_virtual,
        mode: mode.into(),
        mode_reason,
        seq: state.seq().0,
        now_ms: shared.view.now().as_millis(),
        gate: super::numbers::why(&state),
        jobs,
        state_dir: shared.state_dir.clone(),
    })
}

/// Digest of the state, to compare with that of the replayed log.
#[utoipa::path(get, path = "/v1/digest", responses((status = 200, body = StateDigest)))]
pub(crate) async fn digest(State(shared): State<Arc<Shared>>) -> Json<StateDigest> {
    // On a copy, so that the event loop does not wait for the hash.
    let state = shared.view.state().clone();
    Json(StateDigest {
        seq: state.seq().0,
        digest: state_digest(&state).to_string(),
    })
}

/// All nodes and who is on them.
#[utoipa::path(get, path = "/v1/nodes", responses((status = 200, body = NodeList)))]
pub(crate) async fn nodes(State(shared): State<Arc<Shared>>) -> Json<NodeList> {
    let state = shared.view.state();
    let nodes = state.nodes().map(|node| node_view(&state, node));
    Json(NodeList {
        nodes: nodes.collect(),
    })
}

fn node_view(state: &KernelState, node: &Node) -> NodeView {
    let spec = &node.spec;
    let free = state.free_on(&spec.name);
    let mut slices: BTreeMap<String, u64> = BTreeMap::new();
    for slice in &spec.slices {
        *slices.entry(slice.profile.clone()).or_default() += 1;
    }
    let planned = state.maintenance().iter();
    let planned = planned.filter(|window| window.nodes.contains(&spec.name));
    let failures = node.failures.iter();
    let notices = node.notices.iter().map(|notice| NoticeView {
        gpus: notice.gpus.clone(),
        by_ms: notice.by.as_millis(),
        cause: notice.cause.name().into(),
        reason: notice.reason.clone(),
    });
    let (is, reason) = match &node.state {
        NodeState::Ready => ("ready", None),
        NodeState::Draining { reason } => ("draining", Some(reason.clone())),
        NodeState::Down { evidence } => ("down", Some(evidence.clone())),
    };
    NodeView {
        name: node.spec.name.to_string(),
        state: is.into(),
        reason,
        gpu_type: node.spec.gpu_type.clone(),
        gpus: node.spec.gpus,
        gpus_virtual: node.spec.gpus_virtual,
        gpu_memory_bytes: node.spec.gpu_memory.get(),
        gpus_free_thousandths: free.map_or(0, |free| {
            (GpuAmount::from_gpus(free.gpus_whole) + free.gpus_shared).thousandths()
        }),
        cpus: node.spec.cpus,
        cpus_free: free.map_or(0, |free| free.cpus),
        memory_bytes: node.spec.memory.get(),
        memory_free_bytes: free.map_or(0, |free| free.memory.get()),
        jobs: state
            .tenants(&spec.name)
            .iter()
            .map(ToString::to_string)
            .collect(),
        partition: spec.partition.clone(),
        spine: spec.location.spine.clone(),
        leaf: spec.location.leaf.clone(),
        nvlink_domain: spec.location.nvlink_domain.clone(),
        scratch_bytes: spec.scratch.get(),
        gpus_lost: spec.gpus_lost.clone(),
        slices,
        spare: spec.spare,
        stepped_in: node.stepped_in,
        failures: failures
            .map(|failure| FailureView {
                job: failure.job.to_string(),
                team: failure.team.clone(),
                at_ms: failure.at.as_millis(),
                checked: failure.checked,
            })
            .collect(),
        held_for: state.held_for(&spec.name).map(|job| job.to_string()),
        maintenance: planned
            .map(|window| WindowView {
                from_ms: window.from.as_millis(),
                until_ms: window.until.as_millis(),
                reason: window.reason.clone(),
            })
            .collect(),
        notices: notices.collect(),
    }
}

fn reason(body: Option<Json<ReasonBody>>) -> String {
    body.map(|Json(body)| body.reason).unwrap_or_default()
}

/// Takes no new tasks on a node; those it has run on.
#[utoipa::path(post, path = "/v1/nodes/{node}/drain", request_body = ReasonBody, responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn drain(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(node): Path<String>,
    headers: HeaderMap,
    body: Option<Json<ReasonBody>>,
) -> Result<Json<CommandAccepted>, Fault> {
    let (node, reason) = (NodeName(node), reason(body));
    run(&shared, &caller, &headers, Command::Drain { node, reason }).await
}

/// Takes tasks on a node again.
#[utoipa::path(post, path = "/v1/nodes/{node}/undrain", responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn undrain(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(node): Path<String>,
    headers: HeaderMap,
) -> Result<Json<CommandAccepted>, Fault> {
    run(
        &shared,
        &caller,
        &headers,
        Command::Undrain {
            node: NodeName(node),
        },
    )
    .await
}

/// Gives a node, or some of its GPUs, back soon: what runs there saves and leaves. `undrain` takes it back.
#[utoipa::path(post, path = "/v1/nodes/{node}/notice", request_body = NoticeBody, responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn notice(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(node): Path<String>,
    headers: HeaderMap,
    body: Result<Json<NoticeBody>, JsonRejection>,
) -> Result<Json<CommandAccepted>, Fault> {
    let Json(body) = body?;
    let cause = match body.cause.as_deref() {
        None => NoticeCause::default(),
        Some(name) => {
            let mut causes = NoticeCause::ALL.into_iter();
            let known = causes.find(|cause| cause.name() == name);
            known.ok_or_else(|| unknown_cause(name))?
        }
    };
    let notice = Notice {
        node: NodeName(node),
        gpus: body.gpus,
        within: Millis::from_millis(body.within_ms),
        cause,
        reason: body.reason,
    };
    run(&shared, &caller, &headers, Command::Notice(notice)).await
}

fn unknown_cause(name: &str) -> Fault {
    let causes = NoticeCause::ALL.map(|cause| format!("`{}`", cause.name()));
    Fault::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "AP0501",
        format!("`cause` is `{name}`"),
        format!("give one of {}", causes.join(", ")),
    )
}

/// Plans a time in which nodes take no tasks. `undrain` of a node takes it out of every plan.
#[utoipa::path(post, path = "/v1/maintenance", request_body = MaintenanceBody, responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn maintenance(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    headers: HeaderMap,
    body: Result<Json<MaintenanceBody>, JsonRejection>,
) -> Result<Json<CommandAccepted>, Fault> {
    let Json(body) = body?;
    let planned = Maintenance {
        nodes: body.nodes.into_iter().map(NodeName).collect(),
        from: Timestamp::from_millis(body.from_ms),
        until: Timestamp::from_millis(body.until_ms),
        reason: body.reason,
    };
    run(&shared, &caller, &headers, Command::Maintain(planned)).await
}

/// Stops deciding; jobs run on.
#[utoipa::path(post, path = "/v1/pause", request_body = ReasonBody, responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn pause(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    headers: HeaderMap,
    body: Option<Json<ReasonBody>>,
) -> Result<Json<CommandAccepted>, Fault> {
    run(
        &shared,
        &caller,
        &headers,
        Command::Pause {
            reason: reason(body),
        },
    )
    .await
}

/// Decides again; also the way out of safe mode.
#[utoipa::path(post, path = "/v1/unpause", responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn unpause(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Json<CommandAccepted>, Fault> {
    run(&shared, &caller, &headers, Command::Unpause).await
}
