//! Shortest remaining time first where GPU types differ: of all jobs and types, the pair that ends soonest comes first, then the
//! soonest of what is left. Whoever runs is moved or stopped for it. It knows the table and the true run times. No figure was
//! published for it.

use antiphon_types::Action;

use super::arrange::{Overtake, Wish, arrange};
use super::{Peer, Scene};
use crate::course::Site;

/// Heterogeneity-aware SRTF.
pub(super) struct HeteroSrtf;

impl Peer for HeteroSrtf {
    fn decide(&mut self, scene: &Scene<'_>) -> Vec<Action> {
        let types = scene.gpu_types.len();
        let mut left: Vec<u32> = (0..types).map(|i| scene.gpus_of(i)).collect();
        let mut pairs: Vec<(f64, usize, usize)> = Vec::with_capacity(types * scene.jobs.len());
        for (job, live) in scene.jobs.iter().enumerate() {
            for gpu_type in 0..types {
                let rest_ms = live.course.rest_ms(live.done, Site::close(gpu_type));
                if rest_ms.is_finite() {
                    pairs.push((rest_ms, job, gpu_type));
                }
            }
        }
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let mut taken = vec![false; scene.jobs.len()];
        let mut wishes = Vec::new();
        for (_, job, gpu_type) in pairs {
            let gpus = scene.jobs[job].gpus();
            if !taken[job] && gpus <= left[gpu_type] {
                taken[job] = true;
                left[gpu_type] -= gpus;
                wishes.push(Wish { job, gpu_type });
            }
        }
        arrange(scene, &wishes, Overtake::Allowed)
    }
}
