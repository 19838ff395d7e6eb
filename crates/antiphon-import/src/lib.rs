//! Training configs that people have, read into what a job trains, and jobs that they have written for other systems, read into a job
//! file. Text in, data out: touches no file and estimates nothing.
//!
//! What a config states, and what its tool does where nothing is stated, goes into the [`TrainingSpec`]; what the planner should choose
//! stays unknown there. `docs/reference/plan-imports.md` has a table of it for each format.
//!
//! ```
//! let text = "base_model: Qwen/Qwen2.5-7B\nadapter: qlora\nload_in_4bit: true\nmicro_batch_size: 2\nsequence_len: 4096\n";
//! let imported = antiphon_import::training(text, "qlora.yml", None, &mut |_| None).unwrap();
//! assert_eq!(imported.format, antiphon_import::Format::Axolotl);
//! assert_eq!(imported.spec.batch.micro, Some(2));
//! assert!(imported.warnings.is_empty());
//! ```

use antiphon_types::training::{Framework, Model, TrainingSpec};

mod accelerate;
mod axolotl;
mod deepspeed;
mod error;
mod format;
mod fsdp;
mod job;
mod launch;
mod lines;
mod llama_factory;
mod megatron;
mod openrlhf;
mod options;
mod peft;
mod place;
mod python;
mod reading;
mod script;
mod shape;
mod shell;
mod torchtune;
mod transformers;
mod trl;
mod verl;
mod warning;

pub use error::{ImportError, Problem};
pub use format::Format;
pub use job::{
    Entry, Gpus, ImportedJobs, Job, JobError, JobFormat, JobProblem, Origin, Resources, Retry,
    Role, Run, entries, job_format, job_of_command, jobs, training_text,
};
pub use place::Place;
pub use shape::{ModelConfig, model_config};
pub use warning::{UnknownOption, Warning};

use launch::Launch;
use options::Options;
use reading::Reading;

/// The longest config that is read, in bytes.
const TEXT_MAX: usize = 1 << 20;

/// What a config says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// What is trained, and how.
    pub spec: TrainingSpec,
    /// What it was read as.
    pub format: Format,
    /// What was read past.
    pub warnings: Vec<Warning>,
}

/// Reads a training config. `name` is the file's; `read` answers with the text of a file that the config names, such as a DeepSpeed
/// JSON, by its path as it is written there, or with nothing.
///
/// # Errors
///
/// When the format is not known, the text is not in its syntax, a value is impossible, or two options exclude each other.
pub fn training(
    text: &str,
    name: &str,
    format: Option<Format>,
    read: &mut dyn FnMut(&str) -> Option<String>,
) -> Result<Imported, ImportError> {
    if text.len() > TEXT_MAX {
        return Err(Problem::TooLong {
            file: name.to_owned(),
            bytes: text.len(),
            limit: TEXT_MAX,
        }
        .into());
    }
    // Editors of other systems leave a mark in front and two characters at each end of a line.
    let text = &text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let mut reading = Reading::new(read);
    let (format, spec) = if let Some(found) = python(text, name, format) {
        (found, script::training_of(text, name, found, &mut reading)?)
    } else {
        let (options, launch) = arguments(text, name, format, &mut reading)?;
        let found = format
            .or_else(|| format::of_program(&launch.program))
            .or_else(|| format::of_options(&options))
            .ok_or_else(|| unrecognized(text, name))?;
        (found, of(found, options, launch, &mut reading)?)
    };
    let mut warnings = reading.warnings;
    if spec.model == Model::default() {
        warnings.push(Warning::NoModel {
            file: name.to_owned(),
        });
    }
    Ok(Imported {
        spec,
        format,
        warnings,
    })
}

/// The format of a text that is a Python script.
fn python(text: &str, name: &str, format: Option<Format>) -> Option<Format> {
    if format == Some(Format::Unsloth) {
        return format;
    }
    let by_name = name.to_ascii_lowercase();
    let other = [".yml", ".yaml", ".json", ".sh"]
        .iter()
        .any(|end| by_name.ends_with(end));
    let found = format::of_script(text).filter(|_| !other)?;
    Some(format.unwrap_or(found))
}

/// Options of a mapping in YAML or JSON, or of a command line and the config that it names.
fn arguments(
    text: &str,
    name: &str,
    format: Option<Format>,
    reading: &mut Reading<'_>,
) -> Result<(Options, Launch), ImportError> {
    let mapping = Options::parse(text, name);
    let by_name = name.to_ascii_lowercase();
    let script = [".sh", ".bash", ".slurm", ".sbatch"]
        .iter()
        .any(|end| by_name.ends_with(end));
    let file = [".yml", ".yaml", ".json"]
        .iter()
        .any(|end| by_name.ends_with(end));
    let commands = shell::parse(text);
    match mapping {
        Err(error) if file => return Err(error),
        // A mapping in which nothing is known may still be a command line with a colon in it.
        Ok(options) if file || !script && format::of_options(&options).is_some() => {
            return Ok((options, Launch::default()));
        }
        _ => (),
    }
    let Some((launch, mut options)) = launch::of_script(&commands, name)? else {
        return mapping.map(|options| (options, Launch::default()));
    };
    if options.names().next().is_none() && launch.positional.is_empty() {
        return match (format, mapping) {
            (Some(_), Ok(options)) => Ok((options, launch)),
            (Some(_), Err(error)) => Err(error),
            (None, _) => Err(unrecognized(text, name)),
        };
    }
    config_of(&launch, &mut options, reading)?;
    Ok((options, launch))
}

/// The file that a command line takes its config from; what stands on the line itself wins.
fn config_of(
    launch: &Launch,
    options: &mut Options,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    let is_file = |path: &str| {
        [".yml", ".yaml", ".json"]
            .iter()
            .any(|end| path.to_ascii_lowercase().ends_with(end))
    };
    let positional = launch.positional.iter().find(|(path, _)| is_file(path));
    let option = options.text("config")?;
    let (path, place) = match (positional, option) {
        (Some((path, place)), _) => (path.clone(), place.clone()),
        (None, Some(path)) => (path, options.place("config")),
        (None, None) => return Ok(()),
    };
    let instead = "planned with what stands on the command line";
    if let Some(file) = reading.options(&place, "config", &path, instead)? {
        options.fill(file);
    }
    Ok(())
}

fn of(
    format: Format,
    options: Options,
    launch: Launch,
    reading: &mut Reading<'_>,
) -> Result<TrainingSpec, ImportError> {
    match format {
        Format::Axolotl => axolotl::training(options, launch, reading),
        Format::LlamaFactory => llama_factory::training(options, launch, reading),
        Format::Torchtune => torchtune::training(options, launch, reading),
        Format::Verl => verl::training(options, launch, reading),
        Format::OpenRlhf => openrlhf::training(options, launch, reading),
        Format::Megatron => megatron::training(options, launch, reading),
        Format::Unsloth | Format::Trl => trl::training(options, launch, Framework::Trl, reading),
        Format::Transformers => trl::training(options, launch, Framework::Transformers, reading),
        Format::Deepspeed => deepspeed::training(options, reading),
    }
}

fn unrecognized(text: &str, name: &str) -> ImportError {
    let first = text.lines().find(|line| !line.trim().is_empty());
    Problem::Unrecognized {
        file: name.to_owned(),
        begins: place::short(first.unwrap_or_default()),
    }
    .into()
}
