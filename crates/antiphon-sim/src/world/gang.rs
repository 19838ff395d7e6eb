//! A job of a trace as a person would submit it.

use antiphon_types::{CheckpointSpec, GpuAmount, JobSpec, Millis, RetrySpec, Role, Shape};

use crate::course::{Course, Site};
use crate::workload::TraceJob;

/// What is submitted for a job: one role, one shape for each speed that it has on the cluster's GPU types, or for each
/// number of GPUs that it may hold.
#[must_use]
pub fn spec_of(job: &TraceJob, course: &Course, gpu_types: &[String]) -> JobSpec {
    let mut shapes = shapes(job, course, gpu_types);
    let shape = shapes.remove(0);
    let team = if job.team.is_empty() {
        "all"
    } else {
        &job.team
    };
    let user = if job.user.is_empty() { team } else { &job.user };
    JobSpec {
        name: job.name.clone(),
        team: team.to_owned(),
        user: user.to_owned(),
        class: job.class,
        roles: vec![Role {
            name: "trainer".into(),
            command: vec!["train".into()],
            shape,
            alternatives: shapes,
        }],
        workdir: "/".into(),
        checkpoint: Some(CheckpointSpec {
            dir: "/checkpoints".into(),
            keep: None,
        }),
        retry: RetrySpec::default(),
        grace: Millis::from_secs(60),
        time_limit: job.limit,
        ..JobSpec::default()
    }
}

/// The fastest first; where all types are alike one shape names none of them. Where the policy chooses the number of GPUs, one for
/// each that there may be.
fn shapes(job: &TraceJob, course: &Course, gpu_types: &[String]) -> Vec<Shape> {
    let plain = Shape {
        gpus: job.gpus,
        cpus: (job.gpus.thousandths() < GpuAmount::from_gpus(1).thousandths()).then_some(1),
        ..Shape::default()
    };
    if let Some(elastic) = &course.elastic {
        let shape = |gpus: &u32| Shape {
            gpus: GpuAmount::from_gpus(*gpus),
            ..plain.clone()
        };
        return elastic.sizes().iter().map(shape).collect();
    }
    let speed = |gpu_type: usize| {
        let rate = course.rate(0.0, Site::close(gpu_type));
        (rate * 1_000.0).round()
    };
    let speeds: Vec<f64> = (0..gpu_types.len()).map(speed).collect();
    if speeds.iter().all(|speed| *speed >= 1_000.0) {
        return vec![plain];
    }
    let mut order: Vec<usize> = (0..gpu_types.len()).filter(|i| speeds[*i] > 0.0).collect();
    order.sort_by(|a, b| speeds[*b].total_cmp(&speeds[*a]));
    let shape = |place: usize| Shape {
        gpu_type: Some(gpu_types[place].clone()),
        speed: permille(speeds[place]),
        ..plain.clone()
    };
    order.into_iter().map(shape).collect()
}

fn permille(speed: f64) -> u32 {
    let whole = crate::course::span(speed).as_millis();
    u32::try_from(whole).unwrap_or(1_000).clamp(1, 1_000)
}
