//! Job files of other systems at the door of `submit`, `check` and `plan`: which they are, what they become, and what is said of it. What
//! is read stands in `antiphon-import`.

use std::path::Path;

use antiphon_import::{ImportedJobs, Job, JobError, JobFormat, Origin};
use antiphon_planner::catalog;
use antiphon_server::jobfile::{self, JobFile};

use crate::cli::Exit;
use crate::failure::Failure;
use crate::render::{plain, say};

/// A job of another system: as a job file, and as the text of one.
pub(crate) struct Imported {
    pub(crate) file: JobFile,
    pub(crate) text: String,
}

/// A text that may be of another system.
pub(crate) struct Source<'a> {
    /// As it is shown.
    pub(crate) name: &'a str,
    /// Nothing for standard input.
    pub(crate) path: Option<&'a Path>,
    pub(crate) text: &'a str,
    /// What `--format` names.
    pub(crate) format: Option<JobFormat>,
    /// What a script is called with.
    pub(crate) arguments: &'a [String],
}

/// The jobs of a text, if it is of another system.
pub(crate) fn read(source: &Source<'_>) -> Result<Option<Vec<Imported>>, Failure> {
    let kind = source.path.and_then(Path::extension);
    let is = |name: &str| kind.is_some_and(|kind| kind == name);
    let by_content = antiphon_import::job_format(source.text).filter(|_| !is("toml"));
    // `sbatch` itself takes no script without its first line, and people have such that another script submits.
    let by_name = (is("sbatch") || is("slurm")).then_some(JobFormat::Sbatch);
    let format = source.format.or(by_content).or(by_name);
    let Some(format) = format else {
        return Ok(None);
    };
    if format != JobFormat::Sbatch && !source.arguments.is_empty() {
        let what = format!("`{}` takes no arguments", plain(source.name));
        return Err(Failure::new(Exit::Usage, "AP0749", what)
            .why(format!(
                "it is of the format {format}, and only a batch script is called with some"
            ))
            .help("leave out `--` and what stands behind it"));
    }
    with_origin(source, |origin| {
        let imported = antiphon_import::jobs(source.text, Some(format), origin).map_err(failure)?;
        finish(source.name, imported).map(Some)
    })
}

/// The job of a command line.
pub(crate) fn command(words: &[String]) -> Result<Vec<Imported>, Failure> {
    let source = Source {
        name: "command line",
        path: None,
        text: "",
        format: None,
        arguments: &[],
    };
    with_origin(&source, |origin| {
        let imported = antiphon_import::job_of_command(words, origin).map_err(failure)?;
        finish(source.name, imported)
    })
}

/// The commands of a job file in which `plan` may find a training.
pub(crate) fn training_text(text: &str, name: &str) -> Option<String> {
    let source = Source {
        name,
        path: None,
        text,
        format: None,
        arguments: &[],
    };
    with_origin(&source, |origin| {
        antiphon_import::training_text(text, origin)
    })
}

fn with_origin<T>(source: &Source<'_>, read: impl FnOnce(&Origin<'_>) -> T) -> T {
    let path = source.path.and_then(|path| std::path::absolute(path).ok());
    let path = path.as_ref().map(|path| path.to_string_lossy());
    let name = source
        .path
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy());
    read(&Origin {
        name: name.as_deref().unwrap_or(source.name),
        path: path.as_deref(),
        arguments: source.arguments,
        gpu_types: &|name| catalog::gpu_types(name).to_vec(),
    })
}

/// Completes what only this machine knows, and says what is not followed.
fn finish(name: &str, imported: ImportedJobs) -> Result<Vec<Imported>, Failure> {
    for warning in &imported.warnings {
        say(&format!("warning: {}", plain(&warning.to_string())));
    }
    let mut all = Vec::new();
    for (index, mut job) in imported.jobs.into_iter().enumerate() {
        complete(&mut job)?;
        let told: &[_] = if index == 0 { &imported.warnings } else { &[] };
        let text = job.to_toml(&format!("{name} ({})", imported.format), told);
        let value = serde_json::to_value(&job).expect("a job is plain data");
        let file = jobfile::from_value(value)?;
        all.push(Imported { file, text });
    }
    Ok(all)
}

/// Where it starts, and what times mean here: Slurm and SkyPilot take both from where a job is submitted.
fn complete(job: &mut Job) -> Result<(), Failure> {
    let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let workdir = here.join(job.run.workdir.as_deref().unwrap_or("."));
    let workdir: std::path::PathBuf = workdir.components().collect();
    job.run.workdir = Some(workdir.to_string_lossy().into_owned());
    for moment in [&mut job.not_before, &mut job.deadline]
        .into_iter()
        .flatten()
    {
        *moment = in_zone(moment)?;
    }
    Ok(())
}

/// A date and time in this machine's zone, with its offset; a span from now as it is.
fn in_zone(text: &str) -> Result<String, Failure> {
    if text.starts_with('+') {
        return Ok(text.to_owned());
    }
    let civil: Result<jiff::civil::DateTime, _> = text.parse();
    let zoned = civil.and_then(|civil| civil.to_zoned_datetime(jiff::tz::TimeZone::system()));
    let zoned = zoned.map_err(|error| {
        Failure::new(
            Exit::Refused,
            "AP0744",
            format!("`{}` is no date and time", plain(text)),
        )
        .why(error.to_string())
        .help("give one like `2026-12-01T08:00:00`")
    })?;
    Ok(zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
}

fn failure(error: JobError) -> Failure {
    Failure::new(Exit::Refused, error.code(), error.to_string())
        .why(error.why())
        .help(error.help())
}
