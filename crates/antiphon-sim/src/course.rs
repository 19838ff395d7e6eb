//! How far a job has come and how long the rest takes, by the GPUs that it holds. Knows no time of day.

mod elastic;

use std::collections::BTreeMap;

use antiphon_types::Millis;

use crate::profile::Profile;
use crate::workload::{TraceJob, Work};

pub use elastic::{Elastic, Goodputs};

/// Where a job runs, as far as its speed depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// The GPU type's place in [`Stretch::rates`].
    pub gpu_type: usize,
    /// Whether it lies on more nodes than it needs at least.
    pub spread: bool,
    /// GPUs that it holds; zero stands for those that it asks for.
    pub gpus: u32,
    /// Nodes that they lie on.
    pub nodes: u32,
}

impl Site {
    /// As many GPUs of a type as a job asks for, close together.
    #[must_use]
    pub const fn close(gpu_type: usize) -> Self {
        Self {
            gpu_type,
            spread: false,
            gpus: 0,
            nodes: 0,
        }
    }
}

/// What is to be done, in milliseconds at the best speed that there is for it on the GPUs that it asks for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Course {
    /// One after the other.
    pub stretches: Vec<Stretch>,
    /// On which other numbers of GPUs it may run, where the policy changes these.
    pub elastic: Option<Elastic>,
}

/// A part in which the speed on each GPU type stays the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch {
    /// How long it takes at its best.
    pub ms: f64,
    /// By GPU type: its speed there as a part of its best, close together and spread; zero where it does not run.
    pub rates: Vec<[f64; 2]>,
}

/// A job that runs on no GPU type of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no GPU type of the cluster runs `{kind}` on {gpus} GPUs")]
pub struct Unknown {
    /// The kind of training.
    pub kind: String,
    /// On how many GPUs.
    pub gpus: u32,
}

/// Steps a second by kind, GPUs, GPU type, and whether they are close together; nothing where it does not run.
pub type Speed<'a> = dyn Fn(&str, u32, &str, bool) -> Option<f64> + 'a;

impl Course {
    /// The course of a job on a cluster with these GPU types.
    ///
    /// # Errors
    /// Where a kind of training runs nowhere.
    pub fn of(job: &TraceJob, gpu_types: &[String], speed: &Speed<'_>) -> Result<Self, Unknown> {
        let stretches = match &job.work {
            Work::Time(time) => vec![flat(job, gpu_types, millis(*time))],
            Work::Endless => vec![flat(job, gpu_types, f64::INFINITY)],
            Work::Steps(phases) => {
                let gpus = job.gpus.whole().unwrap_or(1);
                let mut stretches = Vec::with_capacity(phases.len());
                for phase in phases {
                    let on = |name: &String| {
                        let rate = |close| speed(&phase.kind, gpus, name, close).unwrap_or(0.0);
                        let close = rate(true);
                        let spread = if gpus > 1 { rate(false) } else { close };
                        [close, if spread > 0.0 { spread } else { close }]
                    };
                    let mut rates: Vec<[f64; 2]> = gpu_types.iter().map(on).collect();
                    let best = rates.iter().flatten().copied().fold(0.0, f64::max);
                    if best <= 0.0 {
                        let kind = phase.kind.clone();
                        return Err(Unknown { kind, gpus });
                    }
                    for rate in rates.iter_mut().flatten() {
                        *rate /= best;
                    }
                    let ms = phase.steps / best * 1_000.0;
                    stretches.push(Stretch { ms, rates });
                }
                stretches
            }
            Work::Profile { application, .. } => {
                let kind = application.clone();
                return Err(Unknown { kind, gpus: 0 });
            }
        };
        Ok(Self {
            stretches,
            elastic: None,
        })
    }

    /// The course of a training that was measured, at the batch size that its user tuned: epoch by epoch, as the noise of its
    /// gradients says. On one node it is close together, else spread over as few as hold it, at least two.
    ///
    /// # Errors
    /// Where it was not measured, or never so.
    pub fn by_profile(
        job: &TraceJob,
        gpu_types: &[String],
        gpus_per_node: u32,
        profiles: &BTreeMap<String, Profile>,
    ) -> Result<Self, Unknown> {
        let gpus = job.gpus.whole().unwrap_or(1).max(1);
        let Work::Profile {
            application,
            batch_size,
        } = &job.work
        else {
            return Self::of(job, gpu_types, &|_, _, _, _| None);
        };
        let unknown = || Unknown {
            kind: application.clone(),
            gpus,
        };
        let profile = profiles.get(application).ok_or_else(unknown)?;
        let close = split(gpus, gpus.div_ceil(gpus_per_node));
        let spread = split(gpus, gpus.div_ceil(gpus_per_node).max(2.min(gpus)));
        let mut stretches = Vec::new();
        let mut progress = 0.0;
        while progress < profile.progress_total() {
            let end = profile.epoch_end(progress).min(profile.progress_total());
            let rate = |placement: &[u32]| profile.progress_per_s(placement, *batch_size, progress);
            let best = rate(&close)
                .filter(|rate| *rate > 0.0)
                .ok_or_else(unknown)?;
            let apart = rate(&spread).unwrap_or(best).min(best);
            stretches.push(Stretch {
                ms: (end - progress) / best * 1_000.0,
                rates: vec![[1.0, apart / best]; gpu_types.len()],
            });
            if end <= progress {
                break;
            }
            progress = end;
        }
        Ok(Self {
            stretches,
            elastic: None,
        })
    }

    /// How long all of it takes at its best.
    #[must_use]
    pub fn best_ms(&self) -> f64 {
        self.stretches.iter().map(|stretch| stretch.ms).sum()
    }

    /// How long the rest takes on a site, after `done` milliseconds at its best; infinite where it does not run there.
    #[must_use]
    pub fn rest_ms(&self, done: f64, site: Site) -> f64 {
        let mut before = done;
        let mut rest = 0.0;
        for (place, stretch) in self.stretches.iter().enumerate() {
            let left = (stretch.ms - before).max(0.0);
            before = (before - stretch.ms).max(0.0);
            if left > 0.0 {
                rest += left / self.rate_in(place, site);
            }
        }
        rest
    }

    /// How far it has come after `elapsed` milliseconds on a site.
    #[must_use]
    pub fn advance(&self, done: f64, elapsed: f64, site: Site) -> f64 {
        let mut start = 0.0;
        let mut done = done;
        let mut elapsed = elapsed;
        for (place, stretch) in self.stretches.iter().enumerate() {
            let end = start + stretch.ms;
            if done < end && elapsed > 0.0 {
                let rate = self.rate_in(place, site);
                let needed = (end - done) / rate;
                let takes = elapsed.min(needed);
                done = if takes < needed {
                    done + takes * rate
                } else {
                    end
                };
                elapsed -= takes;
            }
            start = end;
        }
        done
    }

    /// Its speed on a site after `done` milliseconds at its best, as a part of its best.
    #[must_use]
    pub fn rate(&self, done: f64, site: Site) -> f64 {
        self.stretch_at(done)
            .map_or(1.0, |place| self.rate_in(place, site))
    }

    /// The stretch that it is in after `done` milliseconds at its best; none where all is done.
    #[must_use]
    pub fn stretch_at(&self, done: f64) -> Option<usize> {
        let mut end = 0.0;
        self.stretches.iter().position(|stretch| {
            end += stretch.ms;
            done < end
        })
    }

    /// Its speed in a stretch: on other numbers of GPUs than it asks for it may be above one.
    fn rate_in(&self, place: usize, site: Site) -> f64 {
        match &self.elastic {
            Some(elastic) if site.gpus > 0 => elastic.rate(place, site.gpus, site.nodes),
            Some(_) | None => self.stretches[place].rate(site),
        }
    }
}

impl Stretch {
    fn rate(&self, site: Site) -> f64 {
        self.rates[site.gpu_type][usize::from(site.spread)]
    }
}

/// So many GPUs on so many nodes, as evenly as can be.
fn split(gpus: u32, nodes: u32) -> Vec<u32> {
    let (each, more) = (gpus / nodes, gpus % nodes);
    (0..nodes)
        .map(|node| each + u32::from(node < more))
        .collect()
}

fn flat(job: &TraceJob, gpu_types: &[String], ms: f64) -> Stretch {
    let runs = |name: &String| job.gpu_types.is_empty() || job.gpu_types.contains(name);
    let rate = |name: &String| if runs(name) { [1.0; 2] } else { [0.0; 2] };
    Stretch {
        ms,
        rates: gpu_types.iter().map(rate).collect(),
    }
}

/// A span as a number to reckon with: spans of a trace are far below 2^53 ms.
#[must_use]
pub const fn millis(span: Millis) -> f64 {
    span.as_millis() as f64
}

/// A number that was reckoned with as a span again, to the nearest millisecond.
#[must_use]
pub fn span(ms: f64) -> Millis {
    const LONGEST: f64 = 1e15;
    assert!(ms >= 0.0, "a span of {ms} ms");
    Millis::from_millis(ms.min(LONGEST).round() as u64)
}
