//! The variables that a task finds: what it inherits, what the job says, and its place in the gang. Knows no trainer.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;

use antiphon_types::{KeepSpec, NodeSpec, Processes, TaskAllocation};

use super::process::MARK;
use crate::Launch;

/// What a task inherits from the server: what a program needs to find its files, its user and the network. Nothing
/// else, so that a job neither depends on how the server was started nor reads its secrets.
const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "HF_HOME",
    "XDG_CACHE_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// What every supervisor, and through it every task, inherits from this process.
pub(crate) fn inherited() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    INHERITED
        .iter()
        .filter_map(|name| Some((*name, env::var_os(name)?)))
}

/// The variables of one task, whose role's ranks meet at this address and port, on top of the inherited ones. Where the job sets one that antiphon computes, antiphon's
/// counts: one `RANK` for all tasks, or GPUs that another attempt holds, could only do harm.
pub(crate) fn of_task(
    launch: &Launch,
    task: &TaskAllocation,
    node: &NodeSpec,
    (address, port): (&str, u16),
    dir: &Path,
) -> BTreeMap<String, String> {
    let Launch {
        attempt,
        spec,
        allocation,
        environment,
        launched: _,
        check: _,
    } = launch;
    let TaskAllocation {
        role, index, gpus, ..
    } = task;
    let mut variables = spec.environment.clone();
    variables.extend(environment.clone());
    let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);

    set("ANTIPHON_JOB", attempt.job.to_string());
    set("ANTIPHON_ATTEMPT", attempt.to_string());
    set("ANTIPHON_TASK", format!("{role}.{index}"));
    set("ANTIPHON_ROLE", role.clone());
    set("ANTIPHON_TASK_INDEX", index.to_string());
    set("ANTIPHON_NODE", task.node.to_string());
    set("ANTIPHON_NODES", nodes(&allocation.tasks, role));
    set("ANTIPHON_GRACE_MS", spec.grace.as_millis().to_string());
    set(MARK, dir.display().to_string());
    if let Some(checkpoint) = &spec.checkpoint {
        set("ANTIPHON_CHECKPOINT_DIR", checkpoint.dir.clone());
        if let Some(KeepSpec { newest, best, days }) = checkpoint.keep {
            set(
                "ANTIPHON_CHECKPOINT_KEEP",
                format!("newest={newest},best={best},days={days}"),
            );
        }
    }

    // Empty, not absent, for a task without GPUs: absent would mean all of them.
    set("CUDA_VISIBLE_DEVICES", devices(task, node).join(","));
    // Otherwise CUDA counts the fastest GPU first, and an index means another device than the one that is booked.
    set("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
    if node.gpus_virtual {
        set("ANTIPHON_GPUS_VIRTUAL", "1".to_owned());
    }

    let tasks = allocation
        .tasks
        .iter()
        .filter(|other| other.role == *role)
        .count();
    let processes = spec
        .roles
        .iter()
        .find(|other| other.name == *role)
        .map_or(Processes::PerNode, |role| role.shape.processes);
    if processes == Processes::PerNode {
        set("PET_NNODES", tasks.to_string());
        set("PET_NODE_RANK", index.to_string());
        set("PET_NPROC_PER_NODE", gpus.len().max(1).to_string());
        set("PET_MASTER_ADDR", address.to_owned());
        set("PET_MASTER_PORT", port.to_string());
        // Static: ranks follow the allocation. A dynamic rendezvous would deal them out by arrival, and what it is
        // good for, going on with fewer nodes, is a new attempt here.
        set("PET_RDZV_BACKEND", "static".to_owned());
        set("PET_RDZV_ENDPOINT", format!("{address}:{port}"));
        set("PET_RDZV_ID", attempt.to_string());
    }
    if processes == Processes::PerGpu || gpus.len() <= 1 {
        set("RANK", index.to_string());
        set("WORLD_SIZE", tasks.to_string());
        // Each process sees its own GPU alone, and that is number 0 to it.
        set("LOCAL_RANK", "0".to_owned());
        set("LOCAL_WORLD_SIZE", "1".to_owned());
        set("MASTER_ADDR", address.to_owned());
        set("MASTER_PORT", port.to_string());
    }
    variables
}

/// The nodes of a role, in the order of its tasks, each once.
fn nodes(tasks: &[TaskAllocation], role: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for task in tasks.iter().filter(|task| task.role == role) {
        if !names.contains(&task.node.0.as_str()) {
            names.push(&task.node.0);
        }
    }
    names.join(",")
}

/// What CUDA calls the GPUs, or the MIG slices, that a task holds. A slice without a name is left out: its GPU's index would
/// mean all of that GPU.
fn devices(task: &TaskAllocation, node: &NodeSpec) -> Vec<String> {
    if !task.sliced {
        return task.gpus.iter().map(u32::to_string).collect();
    }
    let slice = |index: &u32| node.slices.get(usize::try_from(*index).ok()?);
    let held = task.gpus.iter().filter_map(slice);
    held.map(|slice| slice.device.clone())
        .filter(|device| !device.is_empty())
        .collect()
}
