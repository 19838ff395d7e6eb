//! What no policy can do better than: lower bounds of mean completion time and of makespan. They ignore what starts and
//! resumes cost, and that gangs are whole.

use crate::course::{Course, millis};
use crate::workload::Workload;

/// A job as the bounds see it.
struct Piece {
    submitted: f64,
    gpus: f64,
    ms: f64,
}

/// Lower bounds, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Of the mean completion time.
    pub avg_jct_s: f64,
    /// Of the makespan.
    pub makespan_s: f64,
}

/// The bounds of a workload on so many GPUs, all taken to be each job's best.
///
/// Mean completion time: the larger of the mean run time alone, and the mean busy time of one imaginary machine as fast as
/// all GPUs together, preemptive, smallest job first, plus half the mean run time (Goemans, SODA 1997). Makespan: the
/// larger of all work over all GPUs from the first arrival on, and the latest end of a job that starts as it comes.
#[must_use]
pub fn bounds(workload: &Workload, courses: &[Option<&Course>], gpus: f64) -> Option<Bounds> {
    let jobs = workload.jobs.iter().zip(courses);
    let mut pieces: Vec<Piece> = jobs
        .filter_map(|(job, course)| {
            let gpus = f64::from(u32::try_from(job.gpus.thousandths()).ok()?) / 1_000.0;
            let ms = (*course)?.best_ms();
            let submitted = millis(job.submitted);
            (gpus > 0.0 && ms.is_finite()).then_some(Piece {
                submitted,
                gpus,
                ms,
            })
        })
        .collect();
    if pieces.is_empty() || gpus <= 0.0 {
        return None;
    }
    pieces.sort_by(|a, b| a.submitted.total_cmp(&b.submitted));
    let count = f64::from(u32::try_from(pieces.len()).ok()?);
    let mean = |of: fn(&Piece) -> f64| pieces.iter().map(of).sum::<f64>() / count;
    let alone = mean(|piece| piece.ms);
    let busy = mean_busy_time(&pieces, gpus) - mean(|piece| piece.submitted) + alone / 2.0;
    let last = pieces.iter().map(|piece| piece.submitted + piece.ms);
    let last = last.fold(0.0, f64::max);
    let work: f64 = pieces.iter().map(|piece| piece.gpus * piece.ms).sum();
    Some(Bounds {
        avg_jct_s: alone.max(busy) / 1_000.0,
        makespan_s: last.max(work / gpus) / 1_000.0,
    })
}

/// The mean, over jobs, of the mean time at which one machine as fast as all GPUs works on the job: smallest first.
fn mean_busy_time(pieces: &[Piece], gpus: f64) -> f64 {
    // Those that have come, by what is all to be done of them; with what is left, and the time at which it was done so far.
    let mut here: Vec<(f64, f64, f64)> = Vec::new();
    let mut next = 0;
    let mut now = 0.0;
    let mut sum = 0.0;
    loop {
        let arrival = pieces.get(next).map(|piece| piece.submitted);
        let Some((all, left, weighted)) = here.last_mut() else {
            let Some(arrival) = arrival else {
                return sum / f64::from(u32::try_from(pieces.len()).unwrap_or(1));
            };
            now = f64::max(now, arrival);
            enter(&mut here, &pieces[next], gpus);
            next += 1;
            continue;
        };
        let ends = now + *left;
        let until = arrival.map_or(ends, |arrival| ends.min(arrival.max(now)));
        let worked = until - now;
        *weighted += worked * f64::midpoint(now, until);
        *left -= worked;
        now = until;
        // Where so little is left that it moves no clock, it is done.
        if until >= ends {
            sum += *weighted / *all;
            here.pop();
        }
        if arrival.is_some_and(|arrival| arrival <= now) {
            enter(&mut here, &pieces[next], gpus);
            next += 1;
        }
    }
}

/// Largest first, so that the smallest is at the end.
fn enter(here: &mut Vec<(f64, f64, f64)>, piece: &Piece, gpus: f64) {
    let all = (piece.gpus * piece.ms / gpus).max(1e-9);
    let place = here.partition_point(|(other, _, _)| *other >= all);
    here.insert(place, (all, all, 0.0));
}
