//! One more job beside the load, with a slow task and a shard of noise in it: rules have to find both while the server is
//! busy with everybody else. Its trainer sends a step every 20 ms, as if each had taken 0.8 s, and reads its job like a person.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;
use crate::client::{Client, request};
use crate::host::Job;

const TASKS: u32 = 64;
const SHARDS: u32 = 20;
const SLOW_TASK: u32 = 7;
const NOISE: u32 = 13;
const STEP_MS: f64 = 800.0;
/// How much slower the slow task is: half above what the rule has to notice.
const SLOWER: f64 = 1.225;
const PROBE_STEPS: u64 = 20;
const PACE: Duration = Duration::from_millis(20);
/// Nobody waits longer, whatever the load.
const PATIENCE: Duration = Duration::from_secs(120);

/// What was found, how many seconds and steps after it could first be seen.
pub(crate) struct Found {
    pub(crate) straggler: (f64, u64),
    pub(crate) noise: (f64, u64),
}

/// Trains the job until both are found.
pub(crate) fn train(to: SocketAddr, job: &Job, user: &str) -> Result<Found> {
    let mut client = Client::connect(to)?;
    let begin = Instant::now();
    let (mut straggler, mut noise) = (None, None);
    let path = format!("/v1/jobs/{}", job.id);
    for step in 1_u64.. {
        let body = body(job.attempt, step);
        let batch = request(
            "POST",
            &format!("{path}/signals"),
            &job.token,
            body.as_bytes(),
        );
        let (status, answer) = client.exchange(&batch)?;
        if status != 200 {
            let answer = String::from_utf8_lossy(answer);
            return Err(
                format!("a batch of the planted job was answered with {status}: {answer}").into(),
            );
        }
        if step % PROBE_STEPS == 2 {
            let (_, shown) = client.exchange(&request("GET", &path, user, b""))?;
            let shown: Value = serde_json::from_slice(shown)?;
            let at = Some((begin.elapsed().as_secs_f64(), step));
            if says(&shown, "straggler", "slow") {
                straggler = straggler.or(at);
            }
            if says(&shown, "shard", "noise") {
                noise = noise.or(at);
            }
        }
        if let (Some(straggler), Some(noise)) = (straggler, noise) {
            return Ok(Found { straggler, noise });
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!(
                "step {step}: the slow task was found: {}, the shard of noise: {}",
                straggler.is_some(),
                noise.is_some()
            )
            .into());
        }
        std::thread::sleep(PACE);
    }
    unreachable!("steps do not run out")
}

/// Whether a rule names what was planted; naming anything else as that is an error of the rule, and does not count.
fn says(shown: &Value, rule: &str, verdict: &str) -> bool {
    let subject = match rule {
        "straggler" => format!("task {SLOW_TASK}"),
        _ => shard(NOISE),
    };
    let findings = shown["findings"].as_array();
    findings.into_iter().flatten().any(|finding| {
        finding["rule"] == rule && finding["verdict"] == verdict && finding["subject"] == subject
    })
}

fn shard(number: u32) -> String {
    format!("shard_{number:03}")
}

/// One step of all tasks and shards, and after each twentieth the probes.
fn body(attempt: u32, step: u64) -> String {
    let mut body = format!(
        "{{\"attempt\":{attempt},\"boot\":\"planted\",\"seq\":{step},\"cursor\":0,\"signals\":["
    );
    let mut comma = "";
    let falls = (-(step as f64) / 100.0).exp();
    let wobble = |of: u32| f64::from((of * 7_919 + step as u32 * 104_729) % 1_000) / 1_000.0 - 0.5;
    let mut add = |signal: std::fmt::Arguments<'_>| {
        write!(body, "{comma}{{\"step\":{step},{signal}}}").expect("a string takes everything");
        comma = ",";
    };
    for task in 0..TASKS {
        let slower = if task == SLOW_TASK { SLOWER } else { 1.0 };
        let step_ms = STEP_MS * slower * (1.0 + 0.04 * wobble(task));
        add(format_args!(
            "\"task\":{task},\"step_ms\":{step_ms:.1},\"tokens\":8192"
        ));
    }
    for number in 0..SHARDS {
        let loss = if number == NOISE {
            6.9
        } else {
            2.0 + 3.0 * falls
        };
        add(format_args!(
            "\"task\":0,\"shard\":\"{}\",\"category\":\"{}\",\"loss\":{:.3},\"samples\":16",
            shard(number),
            category(number % 4),
            loss + 0.4 * wobble(number)
        ));
    }
    if step.is_multiple_of(PROBE_STEPS) {
        for number in 0..4 {
            add(format_args!(
                "\"task\":0,\"category\":\"{}\",\"probe_loss\":{:.3}",
                category(number),
                2.0 + 3.0 * falls + 0.04 * wobble(number)
            ));
        }
    }
    body.push_str("]}");
    body
}

const fn category(number: u32) -> &'static str {
    ["code", "prose", "sums", "tales"][number as usize]
}
