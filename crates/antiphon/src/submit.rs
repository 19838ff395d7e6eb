//! `antiphon submit` and `antiphon check`: from job files, of antiphon or of others, to jobs. Reads files and completes paths; the server
//! decides.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use antiphon_server::api::model::{CheckReport, CommandAccepted, JobDetail};
use antiphon_server::jobfile::{self, Format, JobFile, JobFileError};
use antiphon_types::{JobId, TrainingSpec};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{CheckArgs, Exit, SubmitArgs, Target};
use crate::client::{Client, escape, new_key, patiently};
use crate::failure::Failure;
use crate::import::{self, Imported, Source};
use crate::render::{self, plain, print, say};
use crate::training;

/// Pause between two looks at a job that is waited for.
const PAUSE: Duration = Duration::from_millis(300);

/// Bytes of a job file: far above any that is meant, far below what a server takes.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Submits jobs.
pub(crate) fn submit(target: &Target, args: &SubmitArgs) -> Result<ExitCode, Failure> {
    let wanted = Wanted {
        format: args.format,
        arguments: &args.command,
    };
    let mut read_files = Vec::new();
    if args.files.is_empty() {
        read_files.extend(import::command(&args.command)?);
    }
    for path in &args.files {
        read_files.extend(read(path, &wanted)?);
    }
    if args.print {
        let texts = read_files.iter().map(|imported| imported.text.as_str());
        print(
            &texts
                .collect::<Vec<_>>()
                .join("\n# ---- the next job ----\n"),
        );
        return Ok(ExitCode::SUCCESS);
    }
    let files = in_order(
        read_files
            .into_iter()
            .map(|imported| imported.file)
            .collect(),
    )?;
    let client = Client::new(target)?;
    let key = args.idempotency_key.clone().unwrap_or_else(new_key);
    let mut answers: Vec<CommandAccepted> = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let body = serde_json::to_value(file).expect("a job file is plain data");
        // Each file of one submission has a key of its own.
        let key = if files.len() == 1 {
            key.clone()
        } else {
            format!("{key}-{index}")
        };
        let answer: Result<CommandAccepted, _> = client.post("/v1/jobs", &key, &body);
        let accepted = answer.map_err(|failure| in_job_file(file, failure))?;
        for warning in &accepted.warnings {
            say(&format!("warning: {}: {warning}", plain(&file.name)));
        }
        for note in &accepted.notes {
            say(&format!("{}: {}", plain(&file.name), plain(note)));
        }
        if !args.json {
            let first = accepted.job.as_deref().unwrap_or("");
            print(&format!("{first}\n"));
            if let Some(array) = &file.array {
                let last = members(&accepted).last().map(|id| id.to_string());
                say(&format!(
                    "array `{}` ({array}): {} jobs, {first} to {}; `antiphon jobs --array {first}` lists them",
                    plain(&file.name),
                    accepted.jobs,
                    last.as_deref().unwrap_or(first)
                ));
            }
        }
        answers.push(accepted);
    }
    if args.json {
        render::json(&answers);
    }
    if !args.wait {
        return Ok(ExitCode::SUCCESS);
    }
    let mut failed = false;
    for id in answers.iter().flat_map(members) {
        failed |= !wait_for(&client, &id.to_string())?;
    }
    Ok(if failed {
        Exit::JobFailed.into()
    } else {
        ExitCode::SUCCESS
    })
}

/// The jobs that a submission made: an array's stand one after the other.
fn members(accepted: &CommandAccepted) -> impl Iterator<Item = JobId> {
    let first: Option<JobId> = accepted.job.as_deref().and_then(|id| id.parse().ok());
    let jobs = accepted.jobs;
    first
        .into_iter()
        .flat_map(move |first| (first.0..first.0 + jobs).map(JobId))
}

/// Says what a job file would do.
pub(crate) fn check(target: &Target, args: &CheckArgs) -> Result<ExitCode, Failure> {
    let wanted = Wanted {
        format: args.format,
        arguments: &args.command,
    };
    let files = match &args.file {
        _ if args.schema => {
            render::json(&jobfile::schema());
            return Ok(ExitCode::SUCCESS);
        }
        None => import::command(&args.command)?,
        Some(path) => read(path, &wanted)?,
    };
    let mut reports = Vec::new();
    for imported in files {
        let body = serde_json::to_value(&imported.file).expect("a job file is plain data");
        let answer: Result<CheckReport, _> =
            Client::new(target)?.post("/v1/check", &new_key(), &body);
        let report = answer.map_err(|failure| in_job_file(&imported.file, failure))?;
        if !args.json {
            tell(&imported.file, &report);
        }
        reports.push(report);
    }
    if args.json {
        match reports.as_slice() {
            [one] => render::json(one),
            several => render::json(&several),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what a job would do.
fn tell(file: &JobFile, report: &CheckReport) {
    for warning in &report.warnings {
        say(&format!("warning: {}: {warning}", plain(&file.name)));
    }
    let jobs = match report.jobs {
        1 => String::new(),
        jobs => format!(", an array of {jobs} jobs, of which the first is told"),
    };
    let mut text = format!("`{}`{jobs}\n", plain(&file.name));
    for sentence in &report.sentences {
        text += &format!("  {}\n", plain(sentence));
    }
    print(&text);
}

/// What the command line says of files of other systems.
struct Wanted<'a> {
    format: Option<antiphon_import::JobFormat>,
    arguments: &'a [String],
}

/// Reads a job file and completes its paths, as seen from its own directory. A file of another system may hold several jobs.
fn read(path: &Path, wanted: &Wanted<'_>) -> Result<Vec<Imported>, Failure> {
    let from_stdin = path == Path::new("-");
    let text = if from_stdin {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let shown = if from_stdin {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let text = text.map_err(|error| {
        Failure::new(
            Exit::Refused,
            "AP0208",
            format!("job file `{shown}` cannot be read"),
        )
        .why(error.to_string())
        .help("give the path of a job file, an sbatch script, a Kubernetes manifest or a SkyPilot task")
    })?;
    if text.len() > FILE_BYTES_MAX {
        let why = format!("it has {} bytes: the limit is {FILE_BYTES_MAX}", text.len());
        return Err(Failure::new(
            Exit::Refused,
            "AP0208",
            format!("job file `{shown}` cannot be read"),
        )
        .why(why)
        .help("a job file names a command and what it needs; data belongs into files of its own"));
    }
    let imported = import::read(&Source {
        name: &shown,
        path: Some(path).filter(|_| !from_stdin),
        text: &text,
        format: wanted.format,
        arguments: wanted.arguments,
    })?;
    if let Some(imported) = imported {
        return Ok(imported);
    }
    if !wanted.arguments.is_empty() {
        let what = format!("`{shown}` takes no arguments");
        return Err(Failure::new(Exit::Usage, "AP0749", what)
            .why("it is a job file of antiphon, and only a batch script is called with some")
            .help("write them into `run.command`"));
    }
    let format = match path.extension().and_then(|extension| extension.to_str()) {
        Some("yaml" | "yml" | "json") => Format::Yaml,
        _ => Format::Toml,
    };
    let mut file = jobfile::read(&text, format).map_err(|error| in_file(&shown, &text, error))?;
    let beside = std::path::absolute(path)
        .ok()
        .and_then(|path| path.parent().map(Path::to_owned));
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    jobfile::absolute(
        &mut file,
        beside.as_deref().filter(|_| !from_stdin).unwrap_or(&here),
    );
    inline_shards(&mut file)?;
    inline_training(&mut file)?;
    Ok(vec![Imported { file, text }])
}

/// Reads the shard file that a job file names into the job file: the server sees no files of the person who submits.
fn inline_shards(file: &mut JobFile) -> Result<(), Failure> {
    let Some(data) = &mut file.data else {
        return Ok(());
    };
    let Some(path) = data.shards.take() else {
        return Ok(());
    };
    let refused = |why: String| {
        let what = format!("shard file `{path}` cannot be read");
        Failure::new(Exit::Refused, "AP0208", what).why(why)
    };
    let text = std::fs::read_to_string(&path).map_err(|error| {
        refused(error.to_string()).help("correct `[data] shards` in the job file")
    })?;
    if text.len() > FILE_BYTES_MAX {
        let why = format!("it has {} bytes: the limit is {FILE_BYTES_MAX}", text.len());
        return Err(refused(why).help("give one entry a shard, with where it came from"));
    }
    let format = match Path::new(&path).extension().and_then(|kind| kind.to_str()) {
        Some("toml") => Format::Toml,
        _ => Format::Yaml,
    };
    let (shards, warnings) =
        jobfile::read_shards(&text, format).map_err(|error| in_file(&path, &text, error))?;
    for warning in warnings {
        say(&format!("warning: {path}: {warning}"));
    }
    for (id, origin) in shards {
        data.origins.entry(id).or_insert(origin);
    }
    Ok(())
}

/// Reads the training config that a job file names into the job file, and the `config.json` of its model.
fn inline_training(file: &mut JobFile) -> Result<(), Failure> {
    let Some(train) = &mut file.train else {
        return Ok(());
    };
    let mut spec = match &train.config {
        None => TrainingSpec::default(),
        Some(config) => training::config(Path::new(config), None)?,
    };
    let model = train.model.take_if(|model| model.ends_with(".json"));
    match (&train.config, &model) {
        (None, None) => return Ok(()),
        (_, Some(path)) => spec.model = training::model(path)?,
        (Some(_), None) => (),
    }
    let spec = serde_json::to_value(&spec).expect("a training spec is plain data");
    train.spec = Some(spec);
    Ok(())
}

/// Names the job where the server found the fault in its file.
fn in_job_file(file: &JobFile, failure: Failure) -> Failure {
    if !failure.why.is_empty() || failure.exit != Exit::Refused {
        return failure;
    }
    let what = format!("job `{}` is refused", plain(&file.name));
    let why = failure.what.clone();
    Failure {
        what,
        why,
        ..failure
    }
}

/// Says in which file, and on which line where that can be told.
fn in_file(shown: &str, text: &str, error: JobFileError) -> Failure {
    // `ladder[1]` is the second line that begins so, or, in brackets on one line, the only one.
    let last = error.at.rsplit('.').next().unwrap_or_default();
    let (key, index) = last.split_once('[').unwrap_or((last, "0]"));
    let index: usize = index.trim_end_matches(']').parse().unwrap_or(0);
    let starts = |line: &str| {
        let line = line.trim_start().trim_start_matches(['[', '"', '\'']);
        line.strip_prefix(key)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let lines = text.lines().enumerate().filter(|(_, line)| starts(line));
    let lines: Vec<usize> = lines.map(|(number, _)| number + 1).collect();
    let line = lines.get(index).or(lines.last());
    let line = line
        .filter(|_| !key.is_empty())
        .map(|line| format!(", line {line}"))
        .unwrap_or_default();
    Failure::new(
        Exit::Refused,
        error.code,
        format!("job file `{shown}` is wrong{line}"),
    )
    .why(error.what)
    .help(error.help)
}

/// Orders files so that each comes behind those it waits for.
fn in_order(files: Vec<JobFile>) -> Result<Vec<JobFile>, Failure> {
    let mut left: BTreeMap<usize, JobFile> = files.into_iter().enumerate().collect();
    let mut ordered = Vec::new();
    while !left.is_empty() {
        let waits = |file: &JobFile| {
            file.waits_for().any(|name| {
                left.values()
                    .any(|other| other.name == *name && other.name != file.name)
            })
        };
        let Some(next) = left
            .iter()
            .find(|(_, file)| !waits(file))
            .map(|(index, _)| *index)
        else {
            let names: Vec<_> = left
                .values()
                .map(|file| format!("`{}`", plain(&file.name)))
                .collect();
            let what = format!("{} wait for each other in a circle", names.join(", "));
            return Err(
                Failure::new(Exit::Refused, "AP0107", "the jobs cannot be ordered")
                    .why(what)
                    .help("take one of them out of another's `after`"),
            );
        };
        ordered.extend(left.remove(&next));
    }
    Ok(ordered)
}

/// Waits until a job has ended; says whether it succeeded.
fn wait_for(client: &Client, id: &str) -> Result<bool, Failure> {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a fixed template"));
    bar.enable_steady_tick(Duration::from_millis(120));
    loop {
        let path = format!("/v1/jobs/{}", escape(id));
        let job = patiently(|| client.get::<JobDetail>(&path))?.summary;
        let steps = render::steps(job.step, job.steps_total);
        bar.set_message(plain(&format!("{id} {} {steps} {}", job.state, job.reason)));
        match job.state.as_str() {
            "succeeded" => {
                bar.finish_and_clear();
                say(&format!("{id} has succeeded"));
                return Ok(true);
            }
            "failed" | "canceled" => {
                bar.finish_and_clear();
                say(&format!("{id} has {}: {}", job.state, plain(&job.reason)));
                return Ok(false);
            }
            _ => std::thread::sleep(PAUSE),
        }
    }
}
