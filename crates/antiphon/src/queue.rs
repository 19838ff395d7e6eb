//! Commands that look: jobs, one job, why, nodes, teams.

use std::collections::BTreeMap;
use std::process::ExitCode;

use antiphon_server::api::model::{
    DeadlineView, ExpectationView, FindingView, JobDetail, JobPage, JobSummary, LearnedView,
    NodeList, NodeView, ObservesView, PlanView, ServerStatus, StartView, TeamList, TeamView,
    WhyView,
};
use antiphon_types::{Bytes, GpuTime};

use crate::cli::{Exit, JobArgs, JobsArgs, ReadArgs, Target};
use crate::client::{Client, escape};
use crate::failure::Failure;
use crate::render::{self, ago, clock, gpus, now_ms, plain, print, say, span, steps};

/// Lists jobs.
pub(crate) fn jobs(target: &Target, args: &JobsArgs) -> Result<ExitCode, Failure> {
    let client = Client::new(target)?;
    let all = args.all || args.state.is_some();
    let mut filter = format!("all={all}");
    if let Some(state) = &args.state {
        filter += &format!("&state={state}");
    }
    if let Some(first) = &args.array {
        filter += &format!("&array={}", escape(&array_of(&client, first)?));
    }
    let jobs = listed(&client, &filter)?;
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
            (0, None) if status.observes.is_some() => "no jobs".to_owned(),
            (0, None) => "no jobs yet; `antiphon submit job.toml` submits one".to_owned(),
            (n, None) => {
                format!("no jobs in the queue; `antiphon jobs --all` shows {n} that have ended")
            }
        });
        return Ok(ExitCode::SUCCESS);
    }
    if status.observes.is_some() {
        observed(&jobs);
        return Ok(ExitCode::SUCCESS);
    }
    let rows = jobs.iter().map(|job| {
        vec![
            job.id.clone(),
            job.name.clone(),
            class(job),
            priority(job.priority),
            job.state.clone(),
            gpus(job.gpus_thousandths),
            job.allocation.clone().unwrap_or_default(),
            steps(job.step, job.steps_total),
            job.loss
                .map(|loss| format!("{loss:.3}"))
                .unwrap_or_default(),
            ago(job.since_ms),
            job.start.as_ref().map(starts).unwrap_or_default(),
            job.deadline.as_ref().map(deadline).unwrap_or_default(),
            remark(job),
        ]
    });
    let header = [
        "JOB", "NAME", "CLASS", "PRIORITY", "STATE", "GPUS", "ON", "STEP", "LOSS", "SINCE",
        "STARTS", "DEADLINE", "",
    ];
    let dispensable = [
        "LOSS", "ON", "PRIORITY", "CLASS", "SINCE", "GPUS", "DEADLINE",
    ];
    render::table(&header, rows.collect(), &dispensable);
    Ok(ExitCode::SUCCESS)
}

/// Jobs that are another scheduler's: its word on each beside antiphon's.
fn observed(jobs: &[JobSummary]) {
    let rows = jobs.iter().map(|job| {
        let seen = job.observed.as_ref();
        let place = |place: Option<u64>| place.map(|place| place.to_string()).unwrap_or_default();
        vec![
            job.id.clone(),
            job.name.clone(),
            job.team.clone(),
            job.class.clone(),
            job.state.clone(),
            gpus(job.gpus_thousandths),
            job.allocation.clone().unwrap_or_default(),
            ago(job.since_ms),
            place(seen.and_then(|seen| seen.place)),
            place(seen.and_then(|seen| seen.place_here)),
            seen.and_then(|seen| seen.starts_ms)
                .map(until)
                .unwrap_or_default(),
            job.start.as_ref().map(starts).unwrap_or_default(),
            remark(job),
        ]
    });
    let header = [
        "JOB",
        "NAME",
        "TEAM",
        "CLASS",
        "STATE",
        "GPUS",
        "ON",
        "SINCE",
        "PLACE THERE",
        "PLACE HERE",
        "STARTS THERE",
        "STARTS HERE",
        "",
    ];
    let dispensable = ["CLASS", "ON", "SINCE", "TEAM", "STARTS THERE", "GPUS"];
    render::table(&header, rows.collect(), &dispensable);
}

/// Every page of a list.
pub(crate) fn listed(client: &Client, filter: &str) -> Result<Vec<JobSummary>, Failure> {
    let mut jobs: Vec<JobSummary> = Vec::new();
    let mut cursor = String::new();
    loop {
        let page: JobPage = client.get(&format!("/v1/jobs?{filter}{cursor}"))?;
        jobs.extend(page.jobs);
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(jobs),
        }
    }
}

/// The first job of the array that a job, named by its id or its name, is a member of.
pub(crate) fn array_of(client: &Client, job: &str) -> Result<String, Failure> {
    let detail: JobDetail = client.get(&format!("/v1/jobs/{}", escape(job)))?;
    let JobSummary {
        id, name, array, ..
    } = detail.summary;
    array.map(|member| member.first).ok_or_else(|| {
        let what = format!("{id} `{}` is no member of an array", plain(&name));
        Failure::new(Exit::Usage, "", what).help("leave `--array` out")
    })
}

fn class(job: &JobSummary) -> String {
    match &job.runs_as {
        Some(lower) => format!("{lower} (asked {})", job.class),
        None => job.class.clone(),
    }
}

fn priority(priority: i32) -> String {
    if priority == 0 {
        String::new()
    } else {
        priority.to_string()
    }
}

/// `in 25m`, `now` where its time has come; with a question mark where it may be any time later.
fn starts(start: &StartView) -> String {
    let guess = if start.latest_ms.is_none() { "?" } else { "" };
    until(start.expected_ms) + guess
}

/// `in 25m`, `now` where a time has come.
fn until(at_ms: u64) -> String {
    let left = at_ms.saturating_sub(now_ms());
    match left {
        0..1_000 => "now".into(),
        1_000..60_000 => format!("in {}s", left / 1_000),
        60_000..3_600_000 => format!("in {}m", left / 60_000),
        _ => format!("in {}", span(left)),
    }
}

/// `in 4h`, `4h ago`, and whether it is ignored.
fn deadline(deadline: &DeadlineView) -> String {
    let at = deadline.at_ms;
    let when = if at > now_ms() {
        format!("in {}", span(at - now_ms()))
    } else {
        format!("{} ago", ago(at))
    };
    if deadline.counts {
        when
    } else {
        format!("{when}, ignored")
    }
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
    if let Some(gate) = &status.gate {
        say(gate);
    }
    if let Some(seen) = &status.observes {
        observes(seen);
    }
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

/// Whose cluster it is, how old what is known of it is, and what antiphon would do.
fn observes(seen: &ObservesView) {
    let scheduler = &seen.scheduler;
    say(&match &seen.error {
        None => format!(
            "antiphon only observes {scheduler}: as it was {} ago; nothing is commanded",
            span(seen.age_ms)
        ),
        Some(error) => format!(
            "antiphon only observes {scheduler}, which does not answer: as it was {} ago ({error})",
            span(seen.age_ms)
        ),
    });
    for told in &seen.left_out {
        say(&format!("not shown: {told}"));
    }
    say(
        &match (&seen.no_proposal, seen.would_start, seen.would_stop) {
            (Some(error), ..) => format!("what antiphon would do now is not known: {error}"),
            (None, 0, 0) => "antiphon would start and stop nothing now".into(),
            (None, start, 0) => format!("antiphon would start {start} now and stop none"),
            (None, start, stop) => {
                format!("antiphon would start {start} now and ask {stop} to give way")
            }
        },
    );
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

/// The plan of the shape in which the job was measured, else of the one that it prefers.
fn planned(detail: &JobDetail) -> Option<&PlanView> {
    let measured = detail.measured.as_ref().and_then(|measured| measured.plan);
    detail
        .plans
        .get(usize::try_from(measured.unwrap_or(0)).ok()?)
}

fn lessons_told(learned: &LearnedView) -> String {
    if learned.attempts == 0 {
        return String::new();
    }
    let percent = |permille: u32| (f64::from(permille) - 1e3) / 10.0;
    format!(
        "after {} measured attempts: compute {:+.0} %, communication {:+.0} %, memory {:+.0} % of the formulas",
        learned.attempts,
        percent(learned.compute_permille),
        percent(learned.communication_permille),
        percent(learned.memory_permille),
    )
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
            job.id,
            job.name,
            class(job),
            job.team,
            job.user
        ),
    );
    line(
        "array",
        job.array.as_ref().map_or_else(String::new, |member| {
            format!("index {} of the array {}", member.index, member.first)
        }),
    );
    line("priority", priority(job.priority));
    line(
        "deadline",
        job.deadline.as_ref().map_or_else(String::new, |named| {
            let counts = if named.counts {
                "it counts inside its team's share"
            } else {
                "its team's share cannot meet it"
            };
            format!("{} ({}): {counts}", deadline(named), clock(named.at_ms))
        }),
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
    line(
        "there",
        job.observed.as_ref().map_or_else(String::new, |seen| {
            let more = if seen.not_weighed.is_empty() {
                String::new()
            } else {
                format!("; asks for {} as well", seen.not_weighed.join(", "))
            };
            format!(
                "{} in partition {}, priority {}{more}",
                seen.id,
                seen.partitions.join(","),
                seen.priority
            )
        }),
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
        "starts",
        job.start.as_ref().map_or_else(String::new, |start| {
            format!(
                "{} if nothing else comes (forecast {} old)",
                starts(start),
                span(start.age_ms)
            )
        }),
    );
    line(
        "place",
        job.slot.as_ref().map_or_else(String::new, |slot| {
            let by = slot.at_ms.map_or_else(String::new, |at| {
                format!(", from {} at the latest", clock(at))
            });
            format!("{} held back for it{by}", slot.nodes.join(" "))
        }),
    );
    if let Some(plan) = planned(detail) {
        line("planned", plan.sentence.clone());
        line("", lessons_told(&plan.learned));
    }
    if let Some(measured) = &detail.measured {
        line("measured", measured.sentence.clone().unwrap_or_default());
        line("advice", measured.suggestion.clone().unwrap_or_default());
    }
    if let Some(accept) = &detail.accept {
        line("accept", accept.sentence.clone());
    }
    line("should run", expected(&job.expected));
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
        "findings",
        detail.findings.iter().map(finding).collect(),
    );
    section(
        &mut lines,
        "data jobs",
        detail
            .data_jobs
            .iter()
            .map(|run| {
                format!(
                    "{} makes `{}` for `{}` by {}: {}",
                    run.job, run.shard, run.category, run.method, run.stage
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

/// What a rule says, what it asks for where nothing has been done yet, and how far that has come.
fn finding(found: &FindingView) -> String {
    let subject = Some(&found.subject).filter(|subject| !subject.is_empty());
    let subject = subject.map_or_else(String::new, |subject| format!(" {subject}"));
    let open = matches!(found.stage.as_str(), "told" | "waits for approval");
    let asks = match found.remedies.as_slice() {
        remedies @ [_, ..] if open => format!("; it asks for: {}", remedies.join(", or ")),
        _ => String::new(),
    };
    format!(
        "{}{subject} {}: {} ({}, step {}{asks})",
        found.rule, found.verdict, found.stage, found.evidence, found.step
    )
}

/// How long a job should run, and where that comes from.
fn expected(expected: &ExpectationView) -> String {
    let high = expected.high_ms.map_or_else(String::new, |high| {
        format!(", nine of ten at most {}", span(high))
    });
    let source = match expected.source.as_str() {
        "progress" => "its own reports",
        "history" => "jobs like it of its team",
        "estimate" => "its estimate",
        "limit" => "its time limit",
        // Nobody knows, and nobody builds on it.
        _ => return String::new(),
    };
    format!("about {}{high}, by {source}", span(expected.expected_ms))
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
        vec![
            node.name.clone(),
            node.state.clone(),
            node.partition.clone(),
            network(node),
            format!("{} of {}", gpus(node.gpus_free_thousandths), node.gpus),
            node.gpu_type.clone(),
            format!("{} of {}", node.cpus_free, node.cpus),
            format!(
                "{} of {}",
                Bytes::new(node.memory_free_bytes),
                Bytes::new(node.memory_bytes)
            ),
            node.jobs.join(", "),
            node_remark(node),
        ]
    });
    let header = [
        "NODE",
        "STATE",
        "PARTITION",
        "NETWORK",
        "GPUS FREE",
        "GPU TYPE",
        "CPUS FREE",
        "MEMORY FREE",
        "JOBS",
        "",
    ];
    let dispensable = [
        "MEMORY FREE",
        "CPUS FREE",
        "NETWORK",
        "GPU TYPE",
        "PARTITION",
    ];
    render::table(&header, rows.collect(), &dispensable);
    Ok(ExitCode::SUCCESS)
}

/// Where a node stands, from the top: `s0/l2`, and its NVLink domain.
fn network(node: &NodeView) -> String {
    let levels = [&node.spine, &node.leaf, &node.nvlink_domain];
    let named = levels.into_iter().filter(|level| !level.is_empty());
    named.cloned().collect::<Vec<_>>().join("/")
}

/// What is particular about a node now.
fn node_remark(node: &NodeView) -> String {
    let mut remarks: Vec<String> = node.reason.iter().cloned().collect();
    if let Some(job) = &node.held_for {
        remarks.push(format!("held for {job}"));
    }
    for window in &node.maintenance {
        let reason = if window.reason.is_empty() {
            String::new()
        } else {
            format!(" ({})", window.reason)
        };
        remarks.push(format!(
            "maintenance {} to {}{reason}",
            clock(window.from_ms),
            clock(window.until_ms)
        ));
    }
    for notice in &node.notices {
        let gpus = notice.gpus.iter().flatten().map(u32::to_string);
        let gpus: Vec<String> = gpus.collect();
        let what = if notice.gpus.is_none() {
            "given back".to_owned()
        } else {
            format!("GPU {} given back", gpus.join(", "))
        };
        let when = format!("{what} {}", clock(notice.by_ms));
        remarks.push(if node.reason.as_ref() == Some(&notice.reason) {
            // A node that is given back whole has the notice for its reason, said above.
            when
        } else {
            format!("{when} ({})", notice.reason)
        });
    }
    match (node.spare, node.stepped_in) {
        (true, true) => remarks.push("spare, has stepped in".into()),
        (true, false) => remarks.push("spare".into()),
        (false, _) => (),
    }
    if !node.gpus_lost.is_empty() {
        let lost: Vec<String> = node.gpus_lost.iter().map(u32::to_string).collect();
        remarks.push(format!("lost GPU {}", lost.join(", ")));
    }
    for (profile, count) in &node.slices {
        remarks.push(format!("{count} slices {profile}"));
    }
    for failure in &node.failures {
        let what = if failure.checked {
            "failed the check before"
        } else {
            "hardware failure under"
        };
        remarks.push(format!("{what} {} {} ago", failure.job, ago(failure.at_ms)));
    }
    remarks.join("; ")
}

/// Lists teams.
pub(crate) fn teams(target: &Target, args: &ReadArgs) -> Result<ExitCode, Failure> {
    let client = Client::new(target)?;
    let list: TeamList = client.get("/v1/teams")?;
    if args.json {
        render::json(&list);
        return Ok(ExitCode::SUCCESS);
    }
    note_mode(&client.get("/v1/status")?);
    let hours = |ms: u64| GpuTime::from_gpu_millis(ms).to_string();
    let rows = list.teams.iter().map(|team| {
        vec![
            team.name.clone(),
            team.parent.clone().unwrap_or_default(),
            team.weight.to_string(),
            team.share_place.to_string(),
            by_type(&team.quota_thousandths, gpus),
            by_type(&team.limit_thousandths, gpus),
            allocated(team),
            hours(team.used_gpu_ms.values().sum()),
            budget(team),
            some(team.borrowed_gpu_ms, hours),
            some(team.lent_gpu_ms, hours),
        ]
    });
    let header = [
        "TEAM",
        "PART OF",
        "WEIGHT",
        "TURN",
        "QUOTA",
        "LIMIT",
        "ALLOCATED",
        "USED THIS WEEK",
        "BUDGET",
        "BORROWED",
        "LENT",
    ];
    let dispensable = ["LENT", "BORROWED", "WEIGHT", "PART OF", "LIMIT"];
    render::table(&header, rows.collect(), &dispensable);
    Ok(ExitCode::SUCCESS)
}

/// `24`, or `24, 8 of its own` where its parts hold some of it.
fn allocated(team: &TeamView) -> String {
    let (all, own) = (team.allocated_thousandths, team.own_allocated_thousandths);
    if all == own {
        gpus(all)
    } else {
        format!("{}, {} of its own", gpus(all), gpus(own))
    }
}

fn budget(team: &TeamView) -> String {
    let budget = by_type(&team.budget_gpu_ms, |ms| {
        GpuTime::from_gpu_millis(ms).to_string()
    });
    match team.budget_free_ms {
        Some(at) => format!("{budget}, used up until {}", clock(at)),
        None => budget,
    }
}

fn some(amount: u64, print: impl Fn(u64) -> String) -> String {
    if amount == 0 {
        String::new()
    } else {
        print(amount)
    }
}

/// `64, 32 H100`: what counts for all types stands without one, and first.
fn by_type(amounts: &BTreeMap<String, u64>, print: impl Fn(u64) -> String) -> String {
    let one = |(gpu_type, amount): (&String, &u64)| match gpu_type.as_str() {
        "*" => print(*amount),
        gpu_type => format!("{} {gpu_type}", print(*amount)),
    };
    amounts.iter().map(one).collect::<Vec<_>>().join(", ")
}
