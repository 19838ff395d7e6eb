//! Commands that look: jobs, one job, why, nodes.

use std::process::ExitCode;

use antiphon_server::api::model::{
    JobDetail, JobPage, JobSummary, NodeList, ServerStatus, WhyView,
};
use antiphon_types::{Bytes, GpuTime};

use crate::cli::{JobArgs, JobsArgs, ReadArgs, Target};
use crate::client::{Client, escape};
use crate::failure::Failure;
use crate::render::{self, ago, clock, gpus, plain, print, say, span, steps};

/// Lists jobs.
pub(crate) fn jobs(target: &Target, args: &JobsArgs) -> Result<ExitCode, Failure> {
    let client = Client::new(target)?;
    let all = args.all || args.state.is_some();
    let state = args
        .state
        .as_ref()
        .map(|state| format!("&state={state}"))
        .unwrap_or_default();
    let mut jobs: Vec<JobSummary> = Vec::new();
    let mut cursor = String::new();
    loop {
        let page: JobPage = client.get(&format!("/v1/jobs?all={all}{state}{cursor}"))?;
        jobs.extend(page.jobs);
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    if args.json {
        render::json(&JobPage { jobs, next: None });
        return Ok(ExitCode::SUCCESS);
    }
    let status: ServerStatus = client.get("/v1/status")?;
    note_mode(&status);
    if jobs.is_empty() {
        let ended: u64 = ["succeeded", "failed", "canceled"]
            .iter()
            .filter_map(|state| status.jobs.get(*state))
            .sum();
        say(&match (ended, args.state.as_deref()) {
            (_, Some(state)) => format!("no job is {state}"),
            (0, None) => "no jobs yet; `antiphon submit job.toml` submits one".to_owned(),
            (n, None) => {
                format!("no jobs in the queue; `antiphon jobs --all` shows {n} that have ended")
            }
        });
        return Ok(ExitCode::SUCCESS);
    }
    let rows = jobs.iter().map(|job| {
        vec![
            job.id.clone(),
            job.name.clone(),
            job.class.clone(),
            job.state.clone(),
            gpus(job.gpus_thousandths),
            job.allocation.clone().unwrap_or_default(),
            steps(job.step, job.steps_total),
            job.loss
                .map(|loss| format!("{loss:.3}"))
                .unwrap_or_default(),
            ago(job.since_ms),
            remark(job),
        ]
    });
    let header = [
        "JOB", "NAME", "CLASS", "STATE", "GPUS", "ON", "STEP", "LOSS", "SINCE", "",
    ];
    let dispensable = ["LOSS", "ON", "CLASS", "SINCE", "GPUS"];
    render::table(&header, rows.collect(), &dispensable);
    Ok(ExitCode::SUCCESS)
}

fn remark(job: &JobSummary) -> String {
    match job.ends_in_ms {
        Some(left) if job.reason.is_empty() => format!("ends in about {}", span(left)),
        Some(_) | None => job.reason.clone(),
    }
}

/// Says what a reader of any page has to know first.
fn note_mode(status: &ServerStatus) {
    let reason = status.mode_reason.as_deref().unwrap_or("");
    match status.mode.as_str() {
        "paused" => say(&format!(
            "deciding is paused until `antiphon unpause`: {reason}"
        )),
        "safe" => say(&format!(
            "SAFE MODE: a bug was caught; jobs run on, nothing is decided until `antiphon unpause`: {reason}"
        )),
        _ => (),
    }
}

/// Shows everything about a job.
pub(crate) fn job(target: &Target, args: &JobArgs) -> Result<ExitCode, Failure> {
    let detail: JobDetail = Client::new(target)?.get(&format!("/v1/jobs/{}", escape(&args.job)))?;
    if args.json {
        render::json(&detail);
    } else {
        print(&sheet(&detail));
    }
    Ok(ExitCode::SUCCESS)
}

fn sheet(detail: &JobDetail) -> String {
    let job = &detail.summary;
    let mut lines = Vec::new();
    let mut line = |label: &str, text: String| {
        if !text.is_empty() {
            lines.push(format!("{label:<12}{}", plain(&text)));
        }
    };
    line(
        "job",
        format!(
            "{} `{}`, {}, team {}, user {}",
            job.id, job.name, job.class, job.team, job.user
        ),
    );
    let reason = if job.reason.is_empty() {
        String::new()
    } else {
        format!(": {}", job.reason)
    };
    line(
        "state",
        format!("{} for {}{reason}", job.state, ago(job.since_ms)),
    );
    line("submitted", clock(job.submitted_ms));
    for role in &detail.roles {
        line(
            "runs",
            format!(
                "{}: {} ({} GPUs)",
                role.name,
                role.command.join(" "),
                gpus(role.gpus_thousandths)
            ),
        );
    }
    line("in", detail.workdir.clone());
    line("on", job.allocation.clone().unwrap_or_default());
    line("steps", steps(job.step, job.steps_total));
    line(
        "loss",
        job.loss
            .map(|loss| format!("{loss:.4} nat"))
            .unwrap_or_default(),
    );
    line(
        "ends in",
        job.ends_in_ms
            .map(|left| format!("about {}", span(left)))
            .unwrap_or_default(),
    );
    line(
        "checkpoint",
        detail.checkpoint.as_ref().map_or_else(
            || {
                detail
                    .checkpoint_dir
                    .as_ref()
                    .map(|dir| format!("none yet, in {dir}"))
                    .unwrap_or_default()
            },
            |saved| {
                format!(
                    "step {} ({}, saved in {} ms by {}, {} ago)",
                    saved.step,
                    Bytes::new(saved.bytes),
                    saved.save_ms,
                    saved.attempt,
                    ago(saved.at_ms)
                )
            },
        ),
    );
    if let Some(signals) = &detail.signals {
        let step = signals
            .step_ms
            .map(|ms| format!("{ms:.0} ms a step"))
            .unwrap_or_default();
        let speed = signals
            .tokens_per_s
            .map(|speed| format!(", {speed:.0} tokens/s"))
            .unwrap_or_default();
        line("speed", format!("{step}{speed}"));
    }
    if detail.lost_gpu_ms >= 1_000 {
        line(
            "lost",
            format!(
                "{} to do again after preemptions and failures",
                GpuTime::from_gpu_millis(detail.lost_gpu_ms)
            ),
        );
    }
    let section = |lines: &mut Vec<String>, title: &str, items: Vec<String>| {
        if !items.is_empty() {
            lines.push(format!("\n{title}"));
            lines.extend(items.into_iter().map(|item| format!("  {}", plain(&item))));
        }
    };
    section(
        &mut lines,
        "tasks",
        detail
            .tasks
            .iter()
            .map(|task| {
                let exit = task
                    .exit
                    .as_ref()
                    .map(|exit| format!(", {exit}"))
                    .unwrap_or_default();
                format!("{} on {}: {}{exit}", task.id, task.allocation, task.phase)
            })
            .collect(),
    );
    section(
        &mut lines,
        "attempts",
        detail
            .attempts
            .iter()
            .map(|past| {
                let stopped = past
                    .stopped
                    .as_ref()
                    .map(|cause| format!(", stopped {cause}"))
                    .unwrap_or_default();
                let saved = past
                    .checkpoint_step
                    .map(|step| format!(", checkpoint of step {step}"))
                    .unwrap_or_default();
                let ran = span(
                    past.ended_ms
                        .saturating_sub(past.started_ms.unwrap_or(past.ended_ms)),
                );
                format!(
                    "{} on {}, ran {ran}{stopped}: {} ({}){saved}",
                    past.id, past.allocation, past.outcome, past.exit
                )
            })
            .collect(),
    );
    section(
        &mut lines,
        "directives",
        detail
            .directives
            .iter()
            .map(|directive| {
                let answer = directive.answer.as_deref().unwrap_or("no answer yet");
                format!(
                    "#{} {}: {answer} ({})",
                    directive.id, directive.what, directive.reason
                )
            })
            .collect(),
    );
    section(
        &mut lines,
        "shards",
        detail
            .shards
            .iter()
            .map(|shard| {
                let finding = shard
                    .finding
                    .as_ref()
                    .map(|finding| format!("  {finding}"))
                    .unwrap_or_default();
                format!(
                    "{:<24} {:.3} nat over {} samples{finding}",
                    shard.id, shard.loss, shard.samples
                )
            })
            .collect(),
    );
    lines.join("\n") + "\n"
}

/// Says why a job is where it is.
pub(crate) fn why(target: &Target, args: &JobArgs) -> Result<ExitCode, Failure> {
    let why: WhyView = Client::new(target)?.get(&format!("/v1/jobs/{}/why", escape(&args.job)))?;
    if args.json {
        render::json(&why);
        return Ok(ExitCode::SUCCESS);
    }
    let is = match why.state.as_str() {
        "succeeded" | "failed" => "has",
        "canceled" => "was",
        _ => "is",
    };
    let mut text = format!("{} `{}` {is} {}\n", why.id, plain(&why.name), why.state);
    for sentence in &why.sentences {
        text += &format!("  {}\n", plain(sentence));
    }
    print(&text);
    Ok(ExitCode::SUCCESS)
}

/// Lists nodes.
pub(crate) fn nodes(target: &Target, args: &ReadArgs) -> Result<ExitCode, Failure> {
    let client = Client::new(target)?;
    let list: NodeList = client.get("/v1/nodes")?;
    if args.json {
        render::json(&list);
        return Ok(ExitCode::SUCCESS);
    }
    note_mode(&client.get("/v1/status")?);
    if list
        .nodes
        .iter()
        .any(|node| node.gpus_virtual && node.gpus > 0)
    {
        say("GPUs are virtual: counted, not there");
    }
    let rows = list.nodes.iter().map(|node| {
        let reason = node
            .reason
            .as_ref()
            .map(|reason| format!(": {reason}"))
            .unwrap_or_default();
        vec![
            node.name.clone(),
            format!("{}{reason}", node.state),
            format!("{} of {}", gpus(node.gpus_free_thousandths), node.gpus),
            node.gpu_type.clone(),
            format!("{} of {}", node.cpus_free, node.cpus),
            format!(
                "{} of {}",
                Bytes::new(node.memory_free_bytes),
                Bytes::new(node.memory_bytes)
            ),
            node.jobs.join(", "),
        ]
    });
    let header = [
        "NODE",
        "STATE",
        "GPUS FREE",
        "GPU TYPE",
        "CPUS FREE",
        "MEMORY FREE",
        "JOBS",
    ];
    render::table(
        &header,
        rows.collect(),
        &["MEMORY FREE", "CPUS FREE", "GPU TYPE"],
    );
    Ok(ExitCode::SUCCESS)
}
