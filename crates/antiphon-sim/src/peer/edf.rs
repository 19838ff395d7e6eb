//! Earliest deadline first (EDF), as it was run for the figure that ElasticFlow (Gu et al., ASPLOS 2023) published: in the order
//! of their deadlines jobs get as many GPUs as they were measured on, or the largest measured number that is left; whoever holds
//! another number gives way. Nobody is refused, and whoever is late runs on. Where nothing was measured on other numbers, each gets
//! what it asks for and whoever does not fit is overtaken.
//!
//! Scaled out so far many jobs are slower than on fewer GPUs, and the first few deadlines hold all of the cluster: that, not
//! the order, is why so few deadlines are met. Published 11.8 % of the deadlines of the 195 jobs of `elasticVpollux_e` on 64 T4,
//! where scaling is free.

use antiphon_types::Action;

use super::arrange::{Hold, resize};
use super::ordered::{self, Ordered};
use super::{Peer, Scene};

/// Earliest deadline first.
pub(super) struct Edf {
    rigid: Ordered,
}

impl Edf {
    pub(super) const fn new() -> Self {
        Self {
            rigid: ordered::edf(),
        }
    }
}

impl Peer for Edf {
    fn decide(&mut self, scene: &Scene<'_>) -> Vec<Action> {
        if scene.jobs.iter().all(|live| live.course.elastic.is_none()) {
            return self.rigid.decide(scene);
        }
        let mut left: u32 = (0..scene.gpu_types.len()).map(|i| scene.gpus_of(i)).sum();
        let mut holds = Vec::new();
        for job in self.rigid.order(scene) {
            let live = &scene.jobs[job];
            let asked = [live.gpus()];
            let sizes = live.course.elastic.as_ref();
            let sizes = sizes.map_or(&asked[..], |elastic| elastic.sizes());
            if let Some(gpus) = sizes.iter().rfind(|gpus| **gpus <= left) {
                left -= gpus;
                holds.push(Hold {
                    job,
                    gpus: *gpus,
                    on: Vec::new(),
                });
            }
        }
        resize(scene, &holds)
    }
}
