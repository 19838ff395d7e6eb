//! EASY backfill (Lifka, JSSPP 1995): first come, first served, and the first that has to wait is promised the time at which
//! enough GPUs will be free; whoever comes later may go ahead where it does not put that off. Nobody is stopped. How long a job
//! runs is known as far as the policy may know it: true run times, else the user's limit, else it may run for good.

use antiphon_types::Action;

use super::arrange::{Overtake, Wish, arrange};
use super::{Live, Peer, Scene};
use crate::course::{Site, millis};

/// EASY backfill.
pub(super) struct EasyBackfill;

/// What the first of those that wait is promised.
struct Promise {
    gpu_type: usize,
    /// From now, in milliseconds.
    after_ms: f64,
    /// GPUs of the type that it will not need then.
    spare: u32,
}

impl Peer for EasyBackfill {
    fn decide(&mut self, scene: &Scene<'_>) -> Vec<Action> {
        let types = scene.gpu_types.len();
        let mut left: Vec<u32> = (0..types).map(|i| scene.gpus_of(i)).collect();
        // GPUs in use by type: until when, how many.
        let mut busy: Vec<Vec<(f64, u32)>> = vec![Vec::new(); types];
        let mut wishes = Vec::new();
        for (job, live) in scene.jobs.iter().enumerate() {
            if let Some(site) = live.site {
                left[site.gpu_type] -= live.gpus();
                busy[site.gpu_type].push((run_ms(live, site), live.gpus()));
                let gpu_type = site.gpu_type;
                wishes.push(Wish { job, gpu_type });
            }
        }
        let mut promise: Option<Promise> = None;
        for (job, live) in scene.jobs.iter().enumerate() {
            if live.site.is_some() {
                continue;
            }
            let mut types: Vec<usize> = (0..types).filter(|i| live.rate_on(*i) > 0.0).collect();
            types.sort_by(|a, b| live.rate_on(*b).total_cmp(&live.rate_on(*a)));
            let runs = |gpu_type| run_ms(live, Site::close(gpu_type));
            let found = types.iter().copied().find(|&i| {
                left[i] >= live.gpus()
                    && promise
                        .as_ref()
                        .is_none_or(|it| it.allows(i, live, runs(i)))
            });
            if let Some(gpu_type) = found {
                left[gpu_type] -= live.gpus();
                busy[gpu_type].push((runs(gpu_type), live.gpus()));
                if let Some(promise) = &mut promise
                    && promise.gpu_type == gpu_type
                    && runs(gpu_type) > promise.after_ms
                {
                    promise.spare -= live.gpus();
                }
                wishes.push(Wish { job, gpu_type });
            } else if promise.is_none() {
                let promises = types
                    .iter()
                    .filter_map(|&i| promised(live, i, left[i], &mut busy[i]));
                promise = promises.min_by(|a, b| a.after_ms.total_cmp(&b.after_ms));
            }
        }
        arrange(scene, &wishes, Overtake::Allowed)
    }
}

impl Promise {
    /// Whether a job that would run so long on a type puts nothing off.
    fn allows(&self, gpu_type: usize, live: &Live<'_>, run_ms: f64) -> bool {
        gpu_type != self.gpu_type || run_ms <= self.after_ms || live.gpus() <= self.spare
    }
}

/// When enough GPUs of a type will be free for a job.
fn promised(
    live: &Live<'_>,
    gpu_type: usize,
    left: u32,
    busy: &mut [(f64, u32)],
) -> Option<Promise> {
    busy.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = left;
    for (at, (after_ms, gpus)) in busy.iter().enumerate() {
        free += gpus;
        let more = busy.get(at + 1).is_some_and(|next| next.0 <= *after_ms);
        if free >= live.gpus() && !more {
            return Some(Promise {
                gpu_type,
                after_ms: *after_ms,
                spare: free - live.gpus(),
            });
        }
    }
    None
}

/// How long a job will still run on a site, as far as that is known.
fn run_ms(live: &Live<'_>, site: Site) -> f64 {
    if live.best_ms.is_some() {
        return live.course.rest_ms(live.done, site);
    }
    let ran = live.attained_gpu_ms / f64::from(live.gpus().max(1));
    live.job
        .limit
        .map_or(f64::INFINITY, |limit| (millis(limit) - ran).max(0.0))
}
