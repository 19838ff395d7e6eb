//! What GPUs measured last, and whose they are: read beside everything else, and kept in memory only. No decision looks here.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use antiphon_backends::{Backend, DeviceReading};
use antiphon_kernel::State;
use antiphon_types::{JobId, NodeName};

pub use exporters::Exporters;
pub(crate) use exporters::{Asking, EVERY};

mod dcgm;
mod exporters;

/// The newest readings, by who took them.
#[derive(Default)]
pub(crate) struct DeviceBook {
    backend: Mutex<Vec<DeviceReading>>,
    exporters: Mutex<Vec<DeviceReading>>,
}

/// What the GPUs of one type measure together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct TypeReading {
    /// GPUs that say how busy they are.
    pub(crate) measured: u32,
    /// Sum of what they say, in percent.
    pub(crate) percent: u32,
    pub(crate) throttled: u32,
    pub(crate) ecc_errors: u64,
}

impl TypeReading {
    /// Both together.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self {
            measured: self.measured + other.measured,
            percent: self.percent + other.percent,
            throttled: self.throttled + other.throttled,
            ecc_errors: self.ecc_errors.saturating_add(other.ecc_errors),
        }
    }
}

impl DeviceBook {
    /// With these readings.
    #[cfg(test)]
    pub(crate) fn of(readings: Vec<DeviceReading>) -> Self {
        Self {
            backend: Mutex::new(readings),
            ..Self::default()
        }
    }

    /// Asks the backend anew.
    pub(crate) async fn look(&self, backend: &dyn Backend) {
        *lock(&self.backend) = backend.devices().await;
    }

    /// Takes in what exporters say.
    pub(crate) fn exported(&self, readings: Vec<DeviceReading>) {
        *lock(&self.exporters) = readings;
    }

    /// Of each GPU the backend's reading, else its exporter's.
    pub(crate) fn newest(&self) -> Vec<DeviceReading> {
        let place = |reading: &DeviceReading| (reading.node.clone(), reading.gpu);
        let mut newest = BTreeMap::new();
        for readings in [&self.exporters, &self.backend] {
            let readings = lock(readings).clone().into_iter();
            newest.extend(readings.map(|reading| (place(&reading), reading)));
        }
        newest.into_values().collect()
    }

    /// The readings by GPU type.
    pub(crate) fn by_type(&self, state: &State) -> BTreeMap<String, TypeReading> {
        let mut types: BTreeMap<String, TypeReading> = BTreeMap::new();
        for reading in self.newest() {
            let Some(node) = state.node(&reading.node) else {
                continue;
            };
            let sum = types.entry(node.spec.gpu_type.clone()).or_default();
            if let Some(percent) = reading.utilization_percent {
                sum.measured += 1;
                sum.percent += percent;
            }
            sum.throttled += u32::from(!reading.throttled.is_empty());
            sum.ecc_errors += reading.ecc_errors.unwrap_or(0);
        }
        types
    }
}

fn lock(readings: &Mutex<Vec<DeviceReading>>) -> MutexGuard<'_, Vec<DeviceReading>> {
    readings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The job that holds a GPU, if one does alone.
pub(crate) fn holder(state: &State, node: &NodeName, gpu: u32) -> Option<JobId> {
    state.tenants(node).into_iter().find(|job| {
        let active = state.job(*job).and_then(|job| job.state.active());
        let tasks = active.map(|active| active.allocation.tasks.iter());
        let mut tasks = tasks.into_iter().flatten();
        tasks.any(|task| task.node == *node && task.gpus.contains(&gpu))
    })
}

#[cfg(test)]
mod tests {
    use antiphon_types::{Body, Event, NodeSpec, Observation, Seq, Timestamp};

    use super::*;

    fn reading(gpu: u32, percent: Option<u32>, throttled: Vec<&'static str>) -> DeviceReading {
        DeviceReading {
            node: "n0".into(),
            gpu,
            utilization_percent: percent,
            memory_used: None,
            memory_total: None,
            temperature_c: Some(61),
            power_mw: None,
            throttled,
            ecc_errors: Some(2),
            xid: None,
        }
    }

    #[test]
    fn a_gpu_that_does_not_measure_itself_is_not_taken_for_idle() {
        let mut state = State::default();
        let node = NodeSpec {
            name: "n0".into(),
            gpus: 3,
            gpu_type: "H100".into(),
            ..NodeSpec::default()
        };
        let inventory = Observation::Inventory {
            nodes: vec![node],
            partitions: Vec::new(),
            resources: BTreeMap::new(),
        };
        let event = Event {
            seq: Seq(1),
            at: Timestamp::ZERO,
            body: Body::Observation(inventory),
        };
        antiphon_kernel::apply(&mut state, &event);
        let book = DeviceBook::of(vec![
            reading(0, Some(90), Vec::new()),
            reading(1, Some(30), vec!["heat"]),
            reading(2, None, Vec::new()),
        ]);
        let expected = TypeReading {
            measured: 2,
            percent: 120,
            throttled: 1,
            ecc_errors: 6,
        };
        assert_eq!(
            book.by_type(&state),
            BTreeMap::from([("H100".to_owned(), expected)])
        );
        assert_eq!(holder(&state, &"n0".into(), 0), None);
    }
}
