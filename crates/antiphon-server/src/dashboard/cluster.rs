//! Every GPU of every node: where it stands, who holds it, and whether it is held back, drained, broken or down.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_backends::DeviceReading;
use antiphon_kernel::{Job, Node, State};
use antiphon_types::{JobId, NodeName, NodeState};
use serde::Serialize;

use super::gpus::{self, Holder};
use super::page::{Look, json};
use super::sheet::Rows;

/// A node. Left out is what is empty: there are thousands of them.
#[derive(Serialize)]
struct NodeRow<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    partition: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    spine: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    leaf: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    domain: &'a str,
    gpu_type: &'a str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// The job that it is held back for.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_for: Option<u64>,
    /// The number of the job that holds each GPU; 0 where none does.
    cells: Vec<u64>,
    /// Jobs of GPUs that several share.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    shared: BTreeMap<u32, Vec<u64>>,
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    lost: &'a [u32],
    /// When the next planned time without tasks begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    maintenance_ms: Option<u64>,
    /// When it, or some of it, is given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    back_ms: Option<u64>,
    /// What its GPUs measure of themselves, by their number.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    devices: BTreeMap<u32, DeviceCell>,
}

/// What a GPU measures, rounded: who looks at thousands of them is sent what has changed to the eye.
#[derive(Serialize)]
struct DeviceCell {
    /// To the nearest ten.
    #[serde(skip_serializing_if = "Option::is_none")]
    use_percent: Option<u32>,
    /// To the nearest five.
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature_c: Option<u32>,
    /// Why its clocks are held down.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    held_down: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xid: Option<u32>,
}

impl DeviceCell {
    fn of(reading: &DeviceReading) -> Self {
        let rounded = |to: u32| move |value: u32| value.saturating_add(to / 2) / to * to;
        Self {
            use_percent: reading.utilization_percent.map(rounded(10)),
            temperature_c: reading.temperature_c.map(rounded(5)),
            held_down: reading.throttled.clone(),
            xid: reading.xid,
        }
    }
}

/// How much of a job somebody sees.
#[derive(Clone, Copy)]
enum Seen {
    Whole,
    /// Its team and its class.
    Class,
}

/// A job that holds GPUs, as far as cells tell it.
#[derive(Serialize)]
struct JobRow<'a> {
    name: &'a str,
    team: &'a str,
    user: &'a str,
    class: &'a str,
    state: &'a str,
    gpus_thousandths: u64,
    /// How busy its GPUs are, where that was measured and found to be little.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_percent: Option<u32>,
}

pub(super) fn rows(look: &Look<'_>) -> Rows {
    let state = look.shared.view.state();
    let mut rows = Rows::new();
    let holders = gpus::holders(&state);
    let mut devices: BTreeMap<NodeName, BTreeMap<u32, DeviceCell>> = BTreeMap::new();
    for reading in look.shared.devices.newest() {
        let of_node = devices.entry(reading.node.clone()).or_default();
        of_node.insert(reading.gpu, DeviceCell::of(&reading));
    }
    let mut named: BTreeSet<JobId> = BTreeSet::new();
    for node in state.nodes() {
        let of_node = holders.get(&node.spec.name).map_or(&[][..], Vec::as_slice);
        let mut row = node_row(&state, node, of_node);
        row.devices = devices.remove(&node.spec.name).unwrap_or_default();
        named.extend(row.held_for.map(JobId));
        rows.insert(format!("node/{}", node.spec.name), json(&row));
    }
    named.extend(state.active_jobs().map(|job| job.id));
    for job in named.into_iter().filter_map(|id| state.job(id)) {
        let seen = match look.caller.sees(&state, &job.spec.team) {
            true => Seen::Whole,
            false => Seen::Class,
        };
        rows.insert(format!("job/{}", job.id.0), json(&job_row(job, seen)));
    }
    for (gpu_type, count) in gpus::by_type(&state) {
        rows.insert(format!("gpus/{gpu_type}"), json(&count));
    }
    rows
}

fn node_row<'a>(state: &State, node: &'a Node, holders: &[Holder]) -> NodeRow<'a> {
    let spec = &node.spec;
    let count = usize::try_from(spec.gpus).unwrap_or(0);
    let mut by_gpu: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for holder in holders {
        by_gpu.entry(holder.gpu).or_default().push(holder.job.0);
    }
    let first = |gpu: u32| by_gpu.get(&gpu).and_then(|jobs| jobs.first()).copied();
    let cells = (0..spec.gpus).map(|gpu| first(gpu).unwrap_or(0));
    let cells: Vec<u64> = cells.take(count).collect();
    by_gpu.retain(|_, jobs| jobs.len() > 1);
    let (is, reason) = match &node.state {
        NodeState::Ready => ("ready", None),
        NodeState::Draining { reason } => ("draining", Some(reason.as_str())),
        NodeState::Down { evidence } => ("down", Some(evidence.as_str())),
    };
    let planned = state.maintenance().iter();
    let planned = planned.filter(|window| window.nodes.contains(&spec.name));
    NodeRow {
        partition: &spec.partition,
        spine: &spec.location.spine,
        leaf: &spec.location.leaf,
        domain: &spec.location.nvlink_domain,
        gpu_type: &spec.gpu_type,
        state: is,
        reason,
        held_for: state.held_for(&spec.name).map(|job| job.0),
        cells,
        shared: by_gpu,
        lost: &spec.gpus_lost,
        maintenance_ms: planned.map(|window| window.from.as_millis()).min(),
        back_ms: node
            .notices
            .iter()
            .map(|notice| notice.by.as_millis())
            .min(),
        devices: BTreeMap::new(),
    }
}

/// Of other teams' jobs a member sees that they are there, not what they are.
fn job_row(job: &Job, seen: Seen) -> JobRow<'_> {
    let told = |text| match seen {
        Seen::Whole => text,
        Seen::Class => "",
    };
    JobRow {
        name: told(&job.spec.name),
        team: &job.spec.team,
        user: told(&job.spec.user),
        class: job.spec.class.name(),
        state: job.state.name(),
        gpus_thousandths: job.spec.gpus().thousandths(),
        idle_percent: job.idle.map(|idle| idle.utilization_percent),
    }
}
