//! `antiphon replay`: reads a recorded log, decides its cycles anew, or runs its jobs under another policy or on another
//! cluster. What that means stands in `antiphon-sim`; here are the log's file and the table. Needs no server and changes none.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use antiphon_sim::cluster::Cluster;
use antiphon_sim::outcome::Outcome;
use antiphon_sim::replay::{self, Censored, Difference, Recording, ReplayError};
use antiphon_sim::simulate::{self, ANTIPHON};
use antiphon_sim::world::{Finished, Knowledge, Setting, Spans};
use antiphon_store::{Log as _, SqliteLog, StoreError};
use antiphon_types::{Decision, Event, Millis};
use serde::Serialize;

use crate::cli::{Exit, ReplayArgs, Target};
use crate::failure::Failure;
use crate::render::{json, print, say};
use crate::settings::Settings;
use crate::simulate::{Page, START_COST, Wanted, named_cluster, policy_file, show, try_out, write};

/// Events read at once.
const PAGE: usize = 10_000;

/// What the log is called in a state directory.
const LOG_FILE: &str = "log.db";

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    runs: Vec<Outcome>,
    censored: Left,
}

#[derive(Serialize)]
struct Left {
    living: u64,
    canceled: u64,
    never_ran: u64,
}

/// What `--check --json` prints.
#[derive(Serialize)]
struct CheckReport<'a> {
    events: usize,
    decisions: u64,
    difference: Option<DifferenceOut<'a>>,
}

#[derive(Serialize)]
struct DifferenceOut<'a> {
    decision: u64,
    seq: u64,
    at_ms: u64,
    recorded: &'a Decision,
    now: &'a Decision,
}

impl<'a> From<&'a Difference> for DifferenceOut<'a> {
    fn from(found: &'a Difference) -> Self {
        Self {
            decision: found.number,
            seq: found.seq.0,
            at_ms: found.at.as_millis(),
            recorded: &found.recorded,
            now: &found.now,
        }
    }
}

/// Runs `antiphon replay`.
pub(crate) fn run(target: &Target, args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let dir = match &args.log {
        Some(path) => folder_of(path)?,
        None => Settings::read()?.state_dir(target)?,
    };
    let events = events(&dir)?;
    if args.check {
        return check(&events, args);
    }
    let recording = replay::read(&dir.to_string_lossy(), &events);
    tell_left_out(&recording.censored);
    if recording.workload.jobs.is_empty() {
        let what = format!(
            "the log in `{}` holds no job that ended by itself",
            dir.display()
        );
        return Err(Failure::new(Exit::Refused, "AP0622", what).help(
            "replay a log in which jobs have ended, or look at it with `antiphon replay --check`",
        ));
    }
    let (recorded, as_it_was) = recording.outcome();
    let mut setting = setting(args, &recording)?;
    args.csv.iter().try_for_each(|path| try_out(path))?;
    let mut page = page(args, &recording)?;
    if page.is_some() {
        setting.spans = Spans::Kept;
    }
    let policy = args.policy.as_ref();
    let name = policy.map_or_else(|| ANTIPHON.to_owned(), |path| path.display().to_string());
    let began = Instant::now();
    let stopwatch = move || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let (mut outcome, finished) = recording.simulate(&name, &setting, &stopwatch, &mut |_| true);
    outcome.wall_s = Some(began.elapsed().as_secs_f64());
    for job in &finished.tally.refused {
        say(&format!(
            "warning: job-{} `{}`: {}",
            job.line, job.name, job.reason
        ));
    }
    if let Some(page) = &mut page {
        let recorded_on = cluster_of(&recording);
        page.add(&recorded, &as_it_was, &recording.workload, &recorded_on);
        page.add(&outcome, &finished, &recording.workload, &setting.cluster);
    }
    let runs = vec![recorded, outcome];
    if args.json {
        let Censored {
            living,
            canceled,
            never_ran,
        } = recording.censored;
        let censored = Left {
            living,
            canceled,
            never_ran,
        };
        json(&Report { runs, censored });
    } else {
        show(&runs);
    }
    // What is printed is not lost where a file cannot be written.
    if let Some(path) = &args.csv {
        write_jobs(path, &recording, &finished)?;
    }
    page.iter().try_for_each(Page::write)?;
    Ok(ExitCode::SUCCESS)
}

/// The folder of a log's file, which has its usual name.
pub(crate) fn folder_of(path: &Path) -> Result<PathBuf, Failure> {
    if path.is_dir() {
        return Ok(path.to_owned());
    }
    if path.file_name().is_some_and(|name| name == LOG_FILE) {
        let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        return Ok(parent.unwrap_or(Path::new(".")).to_owned());
    }
    let what = format!("`{}` is no log: it is called `{LOG_FILE}`", path.display());
    Err(Failure::new(Exit::Usage, "AP0623", what)
        .help("give a state directory or the `log.db` in it; copy it together with `log.db-wal` if there is one"))
}

/// Reads the whole log, also while a server writes to it.
pub(crate) fn events(dir: &Path) -> Result<Vec<Event>, Failure> {
    let unread = |error: StoreError| Failure::from(antiphon_server::StartError::from(error));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Exit::Failed, "AP0414", "threads cannot be started").why(error.to_string())
    })?;
    runtime.block_on(async {
        let log = SqliteLog::open_read_only(dir).map_err(unread)?;
        let mut events: Vec<Event> = Vec::new();
        loop {
            let after = events.last().map_or(0, |event| event.seq.0);
            let entries = log.read(after, PAGE).await.map_err(unread)?;
            if entries.is_empty() {
                return Ok(events);
            }
            for entry in &entries {
                events.push(replay::event_of(entry)?);
            }
        }
    })
}

/// Decides every recorded cycle anew.
fn check(events: &[Event], args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let (decisions, difference) = replay::first_difference(events);
    if args.json {
        json(&CheckReport {
            events: events.len(),
            decisions,
            difference: difference.as_ref().map(DifferenceOut::from),
        });
    }
    let Some(found) = difference else {
        if !args.json {
            print(&format!(
                "every decision is made again as it was recorded\n  events     {}\n  decisions  {decisions}\n",
                events.len()
            ));
        }
        return Ok(ExitCode::SUCCESS);
    };
    let what = format!("decision {} at event {} differs", found.number, found.seq);
    let why = format!("recorded: {:?}\nnow:      {:?}", found.recorded, found.now);
    Err(Failure::new(Exit::Replay, "AP0621", what).why(why).help(
        "a version of antiphon that decides otherwise is no fault of the log: replay applies what is recorded",
    ))
}

fn setting(args: &ReplayArgs, recording: &Recording) -> Result<Setting, Failure> {
    let cluster = match &args.cluster {
        Some(name) => named_cluster(name, recording.workload.jobs.len())?,
        None => cluster_of(recording),
    };
    let policy = match &args.policy {
        Some(path) => policy_file(path)?,
        None => simulate::policy(),
    };
    Ok(Setting {
        cluster,
        knowledge: Knowledge::None,
        noise: None,
        seed: 1,
        policy,
        faults: antiphon_sim::faults::Faults::default(),
        spans: Spans::Dropped,
        forecasts: 0,
    })
}

/// The nodes of the log.
fn cluster_of(recording: &Recording) -> Cluster {
    Cluster {
        name: "as recorded".into(),
        nodes: recording.nodes.clone(),
        partitions: recording.partitions.clone(),
        resources: recording.resources.clone(),
        rounds: None,
        start_cost: START_COST,
        resize_cost: START_COST,
        wide: None,
        table: None,
    }
}

/// The page that is wanted, without runs.
fn page<'a>(args: &'a ReplayArgs, recording: &Recording) -> Result<Option<Page<'a>>, Failure> {
    let wanted = Wanted {
        html: args.html.as_deref(),
        svg: None,
    };
    let on = args.cluster.clone();
    let about = vec![
        ("log", recording.workload.name.clone()),
        ("cluster", on.unwrap_or_else(|| "as recorded".into())),
        ("jobs", recording.workload.jobs.len().to_string()),
        ("antiphon", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    Page::begin(wanted, "Replay of a log".into(), about)
}

fn tell_left_out(left: &Censored) {
    let counts = [
        (left.living, "have not ended"),
        (left.canceled, "were canceled"),
        (left.never_ran, "ended without having run"),
    ];
    let told: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !told.is_empty() {
        say(&format!(
            "left out, since nobody knows how long they would have run: {}",
            told.join(", ")
        ));
    }
    say(
        "what users would have done otherwise is not modelled: they submit the same jobs at the same times",
    );
}

/// One line a job: as it was recorded, and as it was simulated.
fn write_jobs(path: &Path, recording: &Recording, finished: &Finished) -> Result<(), Failure> {
    let seconds = |ms: Option<Millis>| {
        ms.map_or_else(String::new, |ms| {
            let ms = ms.as_millis();
            format!("{}.{:03}", ms / 1_000, ms % 1_000)
        })
    };
    let mut text = String::from(
        "job,name,team,gpus,submitted_s,recorded_started_s,recorded_ended_s,recorded_preemptions,started_s,ended_s,preemptions\n",
    );
    let jobs = recording.workload.jobs.iter();
    let records = recording.records.iter().zip(&finished.records);
    for (job, (recorded, simulated)) in jobs.zip(records) {
        let (Some(recorded), simulated) = (recorded, simulated.as_ref()) else {
            continue;
        };
        text += &format!(
            "job-{},{},{},{},{},{},{},{},{},{},{}\n",
            job.line,
            job.name,
            job.team,
            job.gpus,
            seconds(Some(recorded.submitted)),
            seconds(recorded.started),
            seconds(recorded.ended),
            recorded.preemptions,
            seconds(simulated.and_then(|record| record.started)),
            seconds(simulated.and_then(|record| record.ended)),
            simulated.map_or(0, |record| record.preemptions),
        );
    }
    write(path, &text)
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        Self::new(Exit::Failed, "AP0624", error.to_string())
            .help("replay the log with the version of antiphon that wrote it, or a newer one")
    }
}
