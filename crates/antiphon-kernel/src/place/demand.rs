//! What tasks are really asked for, and how much a node with so many free GPUs wastes on them. Counts jobs; knows no
//! cluster.

use std::sync::Arc;

use antiphon_types::{Bytes, GPUS_PER_NODE_MAX, GpuAmount, Processes, Role, Tasks};
use serde::{Deserialize, Serialize};

use super::gradient::Gradient;
use crate::capacity::at;

/// GPUs on nodes beyond what tasks of the usual sizes fill, by the number of free GPUs of the node.
pub(crate) type Waste = [i64; GPUS_PER_NODE_MAX as usize + 1];

/// Where counts stop to weigh more: 64 x 64 x 64 times this fits a waste and its products.
const COUNT_MAX: i64 = 1 << 40;

/// Classes of tasks that are told apart: clusters have tens of them. A new one takes the place of the rarest.
const CLASSES_MAX: usize = 256;

/// Jobs seen after which all counts are halved, so that what is asked for now outweighs the past.
const SEEN_MAX: u64 = 1 << 16;

/// What is known of the demand is put to use when it has grown by this part.
const NEWS_PART: u64 = 16;

/// How many tasks of each size and of each class have been seen.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Counted")]
pub struct Demand {
    /// By GPUs a task; as long as the largest seen asks for.
    counts: Vec<u64>,
    /// Ascending.
    classes: Vec<Seen>,
    /// Jobs seen, forgotten classes included.
    total: u64,
    /// The same when the gradient was last renewed.
    settled: u64,
    /// Follows from what `classes` have settled; nothing while [`Demand::waste`] tells all.
    #[serde(skip)]
    gradient: Option<Arc<Gradient>>,
}

/// What is stored of it.
#[derive(Deserialize)]
struct Counted {
    counts: Vec<u64>,
    classes: Vec<Seen>,
    total: u64,
    settled: u64,
}

/// Tasks that ask for the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Class {
    /// GPUs of a task: whole ones, or a share of one.
    pub(super) gpus: GpuAmount,
    /// CPUs; zero where it takes what its GPUs' part is.
    pub(super) cpus: u32,
    /// Memory; zero likewise.
    pub(super) memory: Bytes,
    /// The only GPU types that will do, ascending; empty where any will.
    pub(super) gpu_types: Vec<String>,
}

/// How often a class was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    class: Class,
    count: u64,
    /// The same when the gradient was last renewed.
    settled: u64,
}

impl From<Counted> for Demand {
    fn from(counted: Counted) -> Self {
        let Counted {
            counts,
            classes,
            total,
            settled,
        } = counted;
        let mut demand = Self {
            counts,
            classes,
            total,
            settled,
            gradient: None,
        };
        demand.gradient = demand.slope();
        demand
    }
}

impl Class {
    /// What a task of the role asks for on nodes with so many GPUs; nothing for tasks without GPUs, which leave no GPU over.
    fn of(role: &Role, widest: u32) -> Option<Self> {
        let shape = &role.shape;
        let gpus = match (shape.gpus.whole(), shape.tasks, shape.processes) {
            (Some(0), _, _) => return None,
            (None, _, _) => shape.gpus,
            (Some(_), Tasks::Fewest, Processes::PerGpu) => GpuAmount::from_gpus(1),
            (Some(gpus), Tasks::Exactly(tasks), _) => {
                GpuAmount::from_gpus(gpus.checked_div(tasks)?.clamp(1, widest.max(1)))
            }
            (Some(gpus), Tasks::Fewest, Processes::PerNode) => {
                GpuAmount::from_gpus(gpus.min(widest.max(1)))
            }
        };
        let named = |shape: &antiphon_types::Shape| shape.gpu_type.clone();
        let mut gpu_types = role.shapes().map(named).collect::<Option<Vec<_>>>();
        if let Some(gpu_types) = &mut gpu_types {
            gpu_types.sort_unstable();
            gpu_types.dedup();
        }
        Some(Self {
            gpus,
            cpus: shape.cpus.unwrap_or(0),
            memory: shape.memory.unwrap_or(Bytes::ZERO),
            gpu_types: gpu_types.unwrap_or_default(),
        })
    }

    /// Whether the number of free GPUs tells all about how well it fits a node.
    fn is_plain(&self) -> bool {
        self.gpus.whole().is_some() && self.cpus == 0 && self.memory.is_zero()
    }
}

impl Demand {
    /// Counts one more job with a role on a cluster whose widest node has so many GPUs; what is larger is counted as that.
    pub fn seen(&mut self, role: &Role, widest: u32) {
        if let Some(gpus) = role.shape.gpus.whole().filter(|gpus| *gpus > 0) {
            self.sized(gpus.min(widest));
        }
        if let Some(class) = Class::of(role, widest) {
            self.classed(class);
        }
    }

    fn sized(&mut self, gpus_per_task: u32) {
        let size = at(gpus_per_task.min(GPUS_PER_NODE_MAX));
        if self.counts.len() <= size {
            self.counts.resize(size + 1, 0);
        }
        self.counts[size] = self.counts[size].saturating_add(1);
    }

    fn classed(&mut self, class: Class) {
        self.total += 1;
        let mut due = false;
        match self.classes.binary_search_by(|seen| seen.class.cmp(&class)) {
            Ok(place) => self.classes[place].count += 1,
            Err(place) => due = self.insert(place, class),
        }
        if self.total >= SEEN_MAX {
            self.halve();
        }
        if due || self.total > self.settled + self.settled / NEWS_PART {
            self.settled = self.total;
            for seen in &mut self.classes {
                seen.settled = seen.count;
            }
            self.gradient = self.slope();
        }
    }

    /// Adds a class. Says whether one was forgotten that the gradient knows: it follows from what is stored, and has to be
    /// renewed.
    fn insert(&mut self, place: usize, class: Class) -> bool {
        let seen = Seen {
            class,
            count: 1,
            settled: 0,
        };
        if self.classes.len() < CLASSES_MAX {
            self.classes.insert(place, seen);
            return false;
        }
        let counts = self.classes.iter().enumerate();
        // Those that the gradient does not know yet go first.
        let rarest = counts.min_by_key(|(place, seen)| (seen.settled > 0, seen.count, *place));
        let (rarest, _) = rarest.expect("there are classes");
        let forgotten = self.classes.remove(rarest);
        let place = place - usize::from(rarest < place);
        self.classes.insert(place, seen);
        forgotten.settled > 0
    }

    fn halve(&mut self) {
        for seen in &mut self.classes {
            seen.count /= 2;
        }
        self.classes.retain(|seen| seen.count > 0);
        let of = |seen: &Seen| seen.count;
        self.total = self.classes.iter().map(of).sum();
        self.settled = 0;
    }

    fn slope(&self) -> Option<Arc<Gradient>> {
        // Somebody will want a whole GPU, even where nobody has yet: as long as little is seen, shares stay together.
        let whole = Class {
            gpus: GpuAmount::from_gpus(1),
            cpus: 0,
            memory: Bytes::ZERO,
            gpu_types: Vec::new(),
        };
        let settled = || self.classes.iter().filter(|seen| seen.settled > 0);
        let counted = settled().map(|seen| (&seen.class, seen.settled));
        let slope = || Gradient::of(counted.chain([(&whole, 1)]));
        let tells_all = settled().all(|seen| seen.class.is_plain());
        (!tells_all).then(|| Arc::new(slope()))
    }

    /// How much worse a node gets by what is put on it; nothing where all ask for whole GPUs with their part of the node, so
    /// that [`Demand::waste`] tells all.
    pub(crate) fn gradient(&self) -> Option<&Gradient> {
        self.gradient.as_deref()
    }

    /// Under which any node is as good as another: for asking whether there is one.
    pub(crate) fn indifferent() -> Self {
        Self {
            gradient: Some(Arc::default()),
            ..Self::default()
        }
    }

    /// The waste of nodes with 0 to `gpus_max` free GPUs: for each size that is asked for, the GPUs that tasks of this size
    /// leave over, weighted by how often it is. Sizes above `gpus_max` fit no such node whatever is chosen and are left out.
    /// (Weng et al., "Beware of Fragmentation", ATC 2023.)
    pub(crate) fn waste(&self, gpus_max: u32) -> Waste {
        let mut waste = [0; GPUS_PER_NODE_MAX as usize + 1];
        let sizes = (1u32..=gpus_max).zip(self.counts.iter().skip(1));
        for (size, &count) in sizes.filter(|(_, count)| **count > 0) {
            let count = i64::try_from(count).map_or(COUNT_MAX, |count| count.min(COUNT_MAX));
            let mut over = 0u32;
            for wasted in &mut waste[1..=at(gpus_max)] {
                over = if over + 1 == size { 0 } else { over + 1 };
                *wasted += i64::from(over) * count;
            }
        }
        waste
    }
}

#[cfg(test)]
mod tests {
    use antiphon_types::Shape;

    use super::*;

    fn role(cpus: Option<u32>) -> Role {
        Role {
            shape: Shape {
                gpus: GpuAmount::from_gpus(1),
                cpus,
                ..Shape::default()
            },
            ..Role::default()
        }
    }

    /// A server that goes on from an image has to place as the one before it would have, whatever was forgotten meanwhile.
    #[test]
    fn what_is_stored_tells_all_that_places_are_chosen_by() {
        let mut demand = Demand::default();
        let plain = (0..20).map(|_| None);
        // More classes than are told apart, most of them seen once.
        let classes =
            (0..3 * CLASSES_MAX).map(|place| Some(u32::try_from(place % 700).unwrap() + 1));
        for (job, cpus) in plain.chain(classes).enumerate() {
            demand.seen(&role(cpus), 8);
            let stored = serde_json::to_string(&demand).unwrap();
            let read: Demand = serde_json::from_str(&stored).unwrap();
            assert!(read == demand, "job {job}");
            assert!(demand.classes.len() <= CLASSES_MAX);
        }
        assert!(demand.gradient().is_some());
    }
}
