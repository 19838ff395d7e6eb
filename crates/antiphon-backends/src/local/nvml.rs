//! GPUs of this machine as NVIDIA's driver measures them. Without the driver there is nothing to read, and that is no failure.

use std::sync::OnceLock;

use antiphon_types::{Bytes, NodeName};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::{DeviceReading, Devices};

/// Reasons that cost speed and are not the user's own wish.
const HELD_DOWN: [(ThrottleReasons, &str); 4] = [
    (ThrottleReasons::SW_POWER_CAP, "power cap"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "heat"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "heat (hardware)"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
];

/// The driver, loaded once.
#[derive(Debug, Default)]
pub(super) struct NvmlDevices(OnceLock<Option<Nvml>>);

impl Devices for NvmlDevices {
    fn read(&self, node: &NodeName) -> Vec<DeviceReading> {
        let Some(nvml) = self.0.get_or_init(|| Nvml::init().ok()) else {
            return Vec::new();
        };
        let count = nvml.device_count().unwrap_or(0);
        let devices = (0..count).filter_map(|gpu| Some((gpu, nvml.device_by_index(gpu).ok()?)));
        devices
            .map(|(gpu, device)| reading(node, gpu, &device))
            .collect()
    }
}

/// What a device measures: older ones, and slices, not everything.
fn reading(node: &NodeName, gpu: u32, device: &Device<'_>) -> DeviceReading {
    let memory = device.memory_info().ok();
    let errors: Result<u64, NvmlError> =
        device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    let reasons = device.current_throttle_reasons().ok();
    let reasons = reasons.unwrap_or(ThrottleReasons::NONE);
    DeviceReading {
        node: node.clone(),
        gpu,
        utilization_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
        memory_used: memory.as_ref().map(|memory| Bytes::new(memory.used)),
        memory_total: memory.as_ref().map(|memory| Bytes::new(memory.total)),
        temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
        power_mw: device.power_usage().ok(),
        throttled: HELD_DOWN
            .into_iter()
            .filter(|(reason, _)| reasons.contains(*reason))
            .map(|(_, name)| name)
            .collect(),
        ecc_errors: errors.ok(),
        // The driver hands these out as events, which only who waits for them gets.
        xid: None,
    }
}
