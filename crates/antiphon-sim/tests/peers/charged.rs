//! The accounts of the simulator behind the figures that Muri (Zhao et al., SIGCOMM 2022) published, as far as they differ
//! from ours: an iteration takes 1.015 times what the trace says; a start costs 4-46 s by model, and is charged to every
//! running job at every event, whether it has started or not, but not between the last event and its end; under SRTF and SRSF a
//! job of up to 8 GPUs needs one node, all are placed anew at every event, and moving is free. Nothing here is part of antiphon.

use std::path::Path;

use flate2::read::GzDecoder;

/// The order of a policy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Las,
    Srtf,
    Srsf,
    Themis,
}

struct Job {
    gpus: u32,
    submit: f64,
    iteration_s: f64,
    start_cost_s: f64,
    left: f64,
    ran_s: f64,
    runs: bool,
    queue: usize,
    ended: bool,
    /// Themis: the time in a cluster of its own so far, what was left when that was last looked at, the part it had then.
    alone: (f64, f64, f64),
}

const SLOWER: f64 = 1.015;
const NODES: usize = 8;
const LIMITS: [f64; 2] = [3_250.0, 7_200.0];

/// What a start costs on 1, 2, 4, 8, 16 and 32 GPUs.
fn start_cost(model: &str, gpus: u32) -> f64 {
    let costs: [f64; 6] = match model {
        "vgg16" => [7.0, 7.0, 8.0, 9.0, 9.0, 10.0],
        "vgg19" => [7.0, 7.0, 8.0, 9.0, 10.0, 10.0],
        "resnet18" => [4.0, 5.0, 5.0, 7.0, 7.0, 7.0],
        "shufflenet_v2_x1_0" => [4.0, 4.0, 5.0, 5.0, 7.0, 8.0],
        "a2c" => [38.0, 39.0, 39.0, 46.0, 46.0, 46.0],
        "dqn" => [5.0, 5.0, 6.0, 6.0, 8.0, 8.0],
        _ => [10.0; 6],
    };
    costs[gpus.trailing_zeros() as usize]
}

fn read(path: &Path) -> Vec<Job> {
    let file = std::fs::File::open(path).unwrap();
    let mut rows = csv::Reader::from_reader(GzDecoder::new(file));
    let names = rows.headers().unwrap().clone();
    let at = |name: &str| names.iter().position(|column| column == name).unwrap();
    let (gpus, submit, model) = (at("num_gpu"), at("submit_time"), at("model_name"));
    let (iterations, iteration) = (at("iterations"), at("iteration_time"));
    let job = |row: csv::StringRecord| {
        let number = |column: usize| row[column].parse::<f64>().unwrap();
        let gpus: u32 = row[gpus].parse().unwrap();
        Job {
            gpus,
            submit: number(submit) / 1_000.0,
            iteration_s: number(iteration) * SLOWER / 1_000.0,
            start_cost_s: start_cost(&row[model], gpus),
            left: number(iterations),
            ran_s: 0.0,
            runs: false,
            queue: 0,
            ended: false,
            alone: (0.0, number(iterations), 1.0),
        }
    };
    let mut jobs: Vec<Job> = rows.records().map(|row| job(row.unwrap())).collect();
    jobs.sort_by(|a, b| a.submit.total_cmp(&b.submit));
    jobs
}

/// The mean time from submission to end, in seconds.
pub(crate) fn mean_jct_s(path: &Path, rule: Rule) -> f64 {
    let mut jobs = read(path);
    let mut queues: [Vec<usize>; 3] = Default::default();
    let (mut now, mut come, mut sum) = (0.0_f64, 0, 0.0);
    loop {
        let live = || queues.iter().flatten().copied();
        let end = |i: usize| now + jobs[i].left * jobs[i].iteration_s;
        let ends = live().filter(|i| jobs[*i].runs).map(end);
        let ends_at = ends.min_by(f64::total_cmp).unwrap_or(f64::INFINITY);
        let comes_at = jobs.get(come).map_or(f64::INFINITY, |job| job.submit);
        let falls = |i: usize| {
            let limit = *LIMITS.get(jobs[i].queue)?;
            let at = (limit / f64::from(jobs[i].gpus)).ceil() - jobs[i].ran_s + now;
            (rule == Rule::Las && jobs[i].runs).then_some(at)
        };
        let falls_at = live().filter_map(falls).min_by(f64::total_cmp);
        let next = ends_at.min(comes_at).min(falls_at.unwrap_or(f64::INFINITY));
        if next.is_infinite() {
            break;
        }
        let ended: Vec<usize> = live()
            .filter(|i| jobs[*i].runs && end(*i) <= next)
            .collect();
        for i in ended {
            jobs[i].ended = true;
            sum += next - jobs[i].submit;
        }
        for queue in &mut queues {
            queue.retain(|i| !jobs[*i].ended);
        }
        while jobs.get(come).is_some_and(|job| job.submit <= next) {
            queues[0].push(come);
            come += 1;
        }
        charge(&mut jobs, &mut queues, next - now, rule);
        now = next;
        if rule == Rule::Las {
            by_queues(&mut jobs, &mut queues);
        } else {
            by_key(&mut jobs, &mut queues[0], rule, now);
        }
    }
    sum / f64::from(u32::try_from(jobs.len()).unwrap())
}

/// Lets time pass for those that run.
fn charge(jobs: &mut [Job], queues: &mut [Vec<usize>; 3], elapsed: f64, rule: Rule) {
    let mut live: Vec<usize> = queues.iter().flatten().copied().collect();
    live.sort_unstable();
    for i in live {
        let job = &mut jobs[i];
        if !job.runs {
            continue;
        }
        job.left -= (elapsed - job.start_cost_s).max(0.0) / job.iteration_s;
        job.ran_s += elapsed;
        let service = job.ran_s * f64::from(job.gpus);
        let limit = LIMITS.get(job.queue).filter(|_| rule == Rule::Las);
        if limit.is_some_and(|limit| service >= *limit) {
            queues[job.queue].retain(|other| *other != i);
            job.queue += 1;
            queues[job.queue].push(i);
        }
    }
}

fn by_queues(jobs: &mut [Job], queues: &mut [Vec<usize>; 3]) {
    let mut free = 64;
    for i in queues.iter().flatten() {
        jobs[*i].runs = jobs[*i].gpus <= free;
        if jobs[*i].runs {
            free -= jobs[*i].gpus;
        }
    }
    for queue in queues {
        queue.sort_by_key(|i| !jobs[*i].runs);
    }
}

fn by_key(jobs: &mut [Job], live: &mut [usize], rule: Rule, now: f64) {
    let mut keys = vec![0.0; jobs.len()];
    let parts = match rule {
        Rule::Themis => parts(jobs, live, now),
        Rule::Las | Rule::Srtf | Rule::Srsf => Vec::new(),
    };
    for (place, i) in live.iter().enumerate() {
        let job = &jobs[*i];
        let left_s = job.left * job.iteration_s;
        keys[*i] = match rule {
            Rule::Las | Rule::Srtf => left_s,
            Rule::Srsf => left_s * f64::from(job.gpus),
            Rule::Themis if job.ran_s > 0.0 => -parts[place] / job.ran_s,
            Rule::Themis => -parts[place] * 1e9,
        };
    }
    live.sort_by(|a, b| keys[*a].total_cmp(&keys[*b]));
    let mut free = [8_u32; NODES];
    for i in live {
        let gpus = jobs[*i].gpus;
        let nodes = usize::try_from(gpus.div_ceil(8)).unwrap();
        let each = gpus.min(8);
        let fit: Vec<usize> = (0..NODES)
            .filter(|node| free[*node] >= each)
            .take(nodes)
            .collect();
        jobs[*i].runs = fit.len() == nodes;
        if jobs[*i].runs {
            for node in fit {
                free[node] -= each;
            }
        }
    }
}

/// The parts of time of finish-time fairness. The time alone is a number of iterations there, not of seconds, and an equal part
/// of the cluster a whole number of GPUs.
fn parts(jobs: &mut [Job], live: &[usize], now: f64) -> Vec<f64> {
    let count = u32::try_from(live.len()).unwrap();
    let equal = f64::from(64_u32.div_ceil(count.max(1)));
    let mut claims = Vec::with_capacity(live.len());
    for i in live {
        let job = &mut jobs[*i];
        let part = (equal / f64::from(job.gpus)).min(1.0);
        let (so_far, left, before) = job.alone;
        let so_far = so_far + (left - job.left) / before;
        job.alone = (so_far, job.left, part);
        let alone = so_far + job.left / part;
        let left_s = (job.left * job.iteration_s).max(1e-6);
        claims.push((f64::from(job.gpus), now - job.submit, left_s, alone));
    }
    let part =
        |ratio: f64, claim: &(f64, f64, f64, f64)| claim.2 / (ratio * claim.3 - claim.1).max(1e-9);
    let fits = |ratio| {
        claims
            .iter()
            .map(|claim| claim.0 * part(ratio, claim))
            .sum::<f64>()
            <= 64.0
    };
    let least = claims.iter().map(|claim| (claim.1 + claim.2) / claim.3);
    let mut below = least.fold(0.0, f64::max);
    let mut enough = below.max(1e-9);
    while !fits(enough) {
        enough *= 2.0;
    }
    for _ in 0..60 {
        let middle = f64::midpoint(below, enough);
        if fits(middle) {
            enough = middle;
        } else {
            below = middle;
        }
    }
    claims
        .iter()
        .map(|claim| part(enough, claim).min(1.0))
        .collect()
}
