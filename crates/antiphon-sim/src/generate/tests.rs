//! Whether made-up loads are as the trace says.

use super::*;

fn share(jobs: &[TraceJob], what: impl Fn(&TraceJob) -> bool) -> f64 {
    small(jobs.iter().filter(|job| what(job)).count() as u64) / small(jobs.len() as u64)
}

fn gpu_s(jobs: &[TraceJob]) -> f64 {
    let one = |job: &TraceJob| match job.work {
        Work::Time(run) => small(job.gpus.thousandths()) * milliseconds(run) / 1e6,
        _ => 0.0,
    };
    jobs.iter().map(one).sum()
}

#[test]
fn kinds_sizes_and_ends_come_out_as_published() {
    for (cluster, evaluations, one_gpu, failed, canceled, gpus, pretrain) in [
        (Cluster::Kalos, 0.928, 0.8628, 0.397, 0.062, 26.77, 0.955),
        (Cluster::Seren, 0.649, 0.5404, 0.429, 0.075, 5.68, 0.695),
    ] {
        let load = Load {
            cluster,
            jobs: 200_000,
            ..Load::default()
        };
        let jobs = generate(&load).jobs;
        let near = |seen: f64, published: f64, off: f64| {
            assert!(
                (seen - published).abs() < off,
                "{cluster:?}: {seen}, {published}"
            );
        };
        near(
            share(&jobs, |job| job.name.starts_with("evaluation")),
            evaluations,
            0.001,
        );
        near(
            share(&jobs, |job| job.gpus == GpuAmount::from_gpus(1)),
            one_gpu,
            0.06,
        );
        near(share(&jobs, |job| job.end == End::Failed), failed, 0.01);
        near(share(&jobs, |job| job.end == End::Canceled), canceled, 0.01);
        let all: u64 = jobs.iter().map(|job| job.gpus.thousandths()).sum();
        let mean = small(all) / small(jobs.len() as u64) / 1e3;
        near(mean, gpus, gpus * 0.22);
        let training: Vec<_> = jobs
            .iter()
            .filter(|job| job.name.starts_with("pretrain"))
            .cloned()
            .collect();
        near(gpu_s(&training) / gpu_s(&jobs), pretrain, 0.08);
    }
}

#[test]
fn load_and_span_come_out_as_asked() {
    let load = Load {
        span: Some(Millis::from_secs(30 * 86_400)),
        ..Load::default()
    };
    let jobs = generate(&load).jobs;
    let offered = gpu_s(&jobs) / (f64::from(load.gpus) * 30.0 * 86_400.0);
    assert!((offered - 0.9).abs() < 0.01, "{offered}");
    let last = jobs.last().unwrap().submitted;
    assert!(last > Millis::from_secs(29 * 86_400) && last < Millis::from_secs(31 * 86_400));
    let free = generate(&Load::default()).jobs;
    let span_s = milliseconds(free.last().unwrap().submitted) / 1e3;
    let offered = gpu_s(&free) / (f64::from(load.gpus) * span_s);
    assert!((offered - 0.9).abs() < 0.05, "{offered}");
}

#[test]
fn evaluations_come_in_bursts_of_one_user() {
    let jobs = generate(&Load::default()).jobs;
    let evaluations: Vec<_> = jobs
        .iter()
        .filter(|job| job.name.starts_with("evaluation"))
        .collect();
    let close = evaluations.windows(2).filter(|pair| {
        pair[1].submitted.saturating_sub(pair[0].submitted) < Millis::from_secs(3)
            && pair[0].user == pair[1].user
    });
    assert!(close.count() * 10 > evaluations.len() * 8);
}

#[test]
fn another_seed_makes_another_load_and_the_same_seed_the_same() {
    let load = |seed| Load {
        seed,
        jobs: 300,
        ..Load::default()
    };
    assert_eq!(generate(&load(1)), generate(&load(1)));
    assert_ne!(generate(&load(1)).jobs, generate(&load(2)).jobs);
}

#[test]
fn limits_are_round_and_never_below_the_run_time() {
    let jobs = generate(&Load::default()).jobs;
    for job in &jobs {
        let limit = job.limit.unwrap();
        assert!(
            matches!(job.work, Work::Time(run) if run <= limit),
            "{job:?}"
        );
        assert!(limit.as_millis().is_multiple_of(900_000));
    }
}

#[test]
fn odd_parameters_make_no_trouble() {
    let odd = Load {
        gpus: 0,
        jobs: 3,
        load_permille: 0,
        teams: 0,
        users_per_team: 0,
        burst: 0,
        span: Some(Millis::ZERO),
        rhythm: Rhythm {
            day_permille: 5_000,
            peak_hour: 99,
            weekend_permille: 0,
            rushes: 9,
            rush: Millis::ZERO,
            rush_permille: 0,
        },
        ..Load::default()
    };
    assert_eq!(generate(&odd).jobs.len(), 3);
    assert!(
        generate(&Load {
            jobs: 0,
            ..Load::default()
        })
        .jobs
        .is_empty()
    );
}

#[test]
fn the_million_overflows_its_queue_at_the_peaks() {
    let load = Load {
        jobs: 100_000,
        span: Some(Millis::from_secs(182 * 8_640)),
        rhythm: Rhythm {
            rush: Millis::from_secs(3 * 8_640),
            ..Load::million(7).rhythm
        },
        ..Load::million(7)
    };
    let jobs = generate(&load).jobs;
    // A cluster that serves first come, first served, as if GPU-time were a liquid.
    let (mut free_at, mut starts, mut peak) = (0.0_f64, Vec::new(), 0);
    let mut begun = 0;
    for (index, job) in jobs.iter().enumerate() {
        let at = milliseconds(job.submitted) / 1e3;
        let Work::Time(run) = job.work else { continue };
        let cost = small(job.gpus.thousandths()) / 1e3 * milliseconds(run) / 1e3;
        free_at = free_at.max(at) + cost / f64::from(load.gpus);
        starts.push(free_at);
        while starts.get(begun).is_some_and(|start| *start <= at) {
            begun += 1;
        }
        peak = peak.max(index + 1 - begun);
    }
    assert!(peak > 1_000, "{peak}");
    let teams: std::collections::BTreeSet<_> = jobs.iter().map(|job| &job.team).collect();
    assert_eq!(teams.len(), 50);
    assert!(share(&jobs, |job| job.class == Class::BestEffort) > 0.15);
}
