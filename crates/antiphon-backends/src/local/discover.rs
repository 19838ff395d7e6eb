//! What this machine is: its name, CPUs, memory and GPUs. Measures nothing.

use std::num::NonZero;
use std::{fs, thread};

use antiphon_types::{Bytes, NodeName, NodeSpec};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::BackendError;

/// This machine as a node: with its GPUs, or with so many virtual ones where it has none.
pub(crate) fn this_machine(virtual_gpus: u32) -> Result<NodeSpec, BackendError> {
    let gpus = gpus().map_err(|error| BackendError::Devices {
        error: error.to_string(),
    })?;
    let (gpus, gpu_type, gpu_memory, gpus_virtual) = match gpus {
        Some(Gpus {
            count,
            name,
            memory,
        }) => (count, name, memory, false),
        None => (
            virtual_gpus,
            "virtual".to_owned(),
            Bytes::ZERO,
            virtual_gpus > 0,
        ),
    };
    Ok(NodeSpec {
        name: hostname(),
        gpus,
        gpu_type,
        gpu_memory,
        gpus_virtual,
        cpus: thread::available_parallelism()
            .map_or(1, NonZero::get)
            .try_into()
            .unwrap_or(u32::MAX),
        memory: memory(),
        ..NodeSpec::default()
    })
}

struct Gpus {
    count: u32,
    name: String,
    /// Of the smallest.
    memory: Bytes,
}

/// The GPUs that the driver reports; `None` where there is no driver.
fn gpus() -> Result<Option<Gpus>, NvmlError> {
    let nvml = match Nvml::init() {
        Ok(nvml) => nvml,
        // No library or no driver: a machine without GPUs, not a broken one.
        Err(NvmlError::LibloadingError(_) | NvmlError::DriverNotLoaded) => return Ok(None),
        Err(error) => return Err(error),
    };
    let count = nvml.device_count()?;
    if count == 0 {
        return Ok(None);
    }
    let mut memory = u64::MAX;
    for index in 0..count {
        memory = memory.min(nvml.device_by_index(index)?.memory_info()?.total);
    }
    Ok(Some(Gpus {
        count,
        name: nvml.device_by_index(0)?.name()?,
        memory: Bytes::new(memory),
    }))
}

fn hostname() -> NodeName {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".into(),
        name => name.into(),
    }
}

/// Zero where the kernel does not say; a job that asks for memory is then refused with that number.
fn memory() -> Bytes {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| {
        let value = line.strip_prefix("MemTotal:")?.trim();
        value.strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    Bytes::new(kib.unwrap_or(0).saturating_mul(1_024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name_cpus_and_memory() {
        let NodeSpec {
            name,
            gpus,
            gpus_virtual,
            cpus,
            memory,
            ..
        } = this_machine(3).unwrap();
        assert!(!name.0.is_empty() && cpus > 0 && !memory.is_zero());
        assert!(!gpus_virtual || gpus == 3);
    }
}
