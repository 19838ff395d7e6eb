//! The speeds of a job on other numbers of GPUs than it asks for, as parts of that on those: for policies that choose the
//! number. Chooses none itself.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Course, split};
use crate::profile::Profile;

/// On how many GPUs a job may run, and how fast it is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Elastic {
    /// Rising.
    sizes: Vec<u32>,
    speeds: Speeds,
}

#[derive(Debug, Clone, PartialEq)]
enum Speeds {
    /// The batch stays as it is. By place in `sizes`.
    Steps(Vec<f64>),
    /// The batch grows with the GPUs.
    Goodput {
        goodputs: Rc<Goodputs>,
        /// By stretch: progress a second on the GPUs that it asks for.
        asked: Vec<f64>,
    },
}

impl Elastic {
    /// For a job whose steps a second were measured on several numbers of GPUs, of which it may hold so many at most.
    ///
    /// None where the number that it asks for was not measured.
    #[must_use]
    pub fn by_steps(measured: &[(u32, f64)], asked: u32, most: u32) -> Option<Self> {
        let (_, unit) = measured.iter().find(|(gpus, _)| *gpus == asked)?;
        let few = measured.iter().filter(|(gpus, _)| *gpus <= most);
        let (sizes, rates) = few.map(|(gpus, rate)| (*gpus, rate / unit)).unzip();
        Some(Self {
            sizes,
            speeds: Speeds::Steps(rates),
        })
    }

    /// For a training that was measured, whose course is that at the batch size that its user tuned.
    #[must_use]
    pub fn by_goodput(goodputs: &Rc<Goodputs>, course: &Course, most: u32) -> Self {
        let profile = &goodputs.profile;
        let most = most.min(profile.gpus_max());
        let lengths = goodputs.epochs.iter().map(|(start, end)| end - start);
        let stretches = course.stretches.iter().zip(lengths);
        let asked = stretches.map(|(stretch, length)| length / stretch.ms * 1_000.0);
        Self {
            sizes: (1..=most).collect(),
            speeds: Speeds::Goodput {
                goodputs: Rc::clone(goodputs),
                asked: asked.collect(),
            },
        }
    }

    /// The numbers of GPUs that it may hold, rising.
    #[must_use]
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// Its speed in a stretch on so many GPUs on so many nodes, as evenly as can be; zero where it does not run so.
    #[must_use]
    pub fn rate(&self, stretch: usize, gpus: u32, nodes: u32) -> f64 {
        match &self.speeds {
            Speeds::Steps(rates) => {
                let size = self.sizes.binary_search(&gpus);
                size.map_or(0.0, |size| rates[size])
            }
            Speeds::Goodput { goodputs, asked } => {
                goodputs.on(gpus, nodes.max(1))[stretch] / asked[stretch]
            }
        }
    }
}

/// The best progress a second of an application, by GPUs, nodes and epoch: reckoned once where it is first asked for, and shared
/// by all jobs of the application.
#[derive(Debug, PartialEq)]
pub struct Goodputs {
    profile: Profile,
    /// Where each begins and ends.
    epochs: Vec<(f64, f64)>,
    /// By GPUs and nodes.
    known: RefCell<BTreeMap<(u32, u32), ByEpoch>>,
}

/// Progress a second by epoch.
type ByEpoch = Rc<[f64]>;

impl Goodputs {
    /// Of a measured application.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let mut epochs = Vec::new();
        let mut start = 0.0;
        while start < profile.progress_total() {
            let end = profile.epoch_end(start).min(profile.progress_total());
            epochs.push((start, end));
            if end <= start {
                break;
            }
            start = end;
        }
        Self {
            profile: profile.clone(),
            epochs,
            known: RefCell::default(),
        }
    }

    fn on(&self, gpus: u32, nodes: u32) -> ByEpoch {
        let known = &mut *self.known.borrow_mut();
        let reckon = || self.reckon(&split(gpus, nodes));
        Rc::clone(known.entry((gpus, nodes)).or_insert_with(reckon))
    }

    /// By epoch, at the batch size that is best in it.
    fn reckon(&self, placement: &[u32]) -> ByEpoch {
        let gpus = placement.iter().sum();
        let batches = self.profile.batches(gpus);
        let steps: Vec<(u64, f64)> = batches
            .into_iter()
            .filter_map(|batch| self.profile.step_of(placement, batch))
            .collect();
        let best = |(start, _): &(f64, f64)| {
            let goodput = |(made, seconds): &(u64, f64)| self.profile.gain(*made, *start) / seconds;
            steps.iter().map(goodput).fold(0.0, f64::max)
        };
        self.epochs.iter().map(best).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_size_counts_against_the_size_that_is_asked_for() {
        let measured = [(1, 2.0), (2, 3.0), (4, 5.0), (8, 4.0)];
        let elastic = Elastic::by_steps(&measured, 2, 4).unwrap();
        assert_eq!(elastic.sizes(), [1, 2, 4]);
        let rates = [1, 2, 3, 4].map(|gpus| elastic.rate(0, gpus, 1));
        assert_eq!(rates, [2.0 / 3.0, 1.0, 0.0, 5.0 / 3.0]);
        assert_eq!(Elastic::by_steps(&measured, 16, 16), None);
    }
}
