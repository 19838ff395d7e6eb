//! Training configs and models' own configs as they lie on disk, read into what the planner takes. Warnings go to the person.

use std::fs;
use std::path::Path;

use antiphon_import::ImportError;
use antiphon_types::TrainingSpec;
use antiphon_types::training::Model;

use crate::cli::Exit;
use crate::failure::Failure;
use crate::import;
use crate::render::say;

/// Reads a training config; what tool it is for shows in it, unless that is said.
pub(crate) fn config(
    file: &Path,
    format: Option<antiphon_import::Format>,
) -> Result<TrainingSpec, Failure> {
    let text = read(file)?;
    let name = file
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into());
    let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
    // A config names others by a path from its own folder, or from where its tool is started.
    let mut beside = |path: &str| {
        fs::read_to_string(folder.join(path))
            .or_else(|_| fs::read_to_string(path))
            .ok()
    };
    let (text, name) = match import::training_text(&text, &name).filter(|_| format.is_none()) {
        Some(commands) => {
            say(&format!(
                "warning: `{name}` is a job: the training is looked for in its commands, and lines count in them"
            ));
            (commands, format!("{name}.sh"))
        }
        None => (text, name),
    };
    let imported = antiphon_import::training(&text, &name, format, &mut beside).map_err(refused)?;
    for warning in &imported.warnings {
        say(&format!("warning: {warning}"));
    }
    Ok(imported.spec)
}

/// A model by its name, or by the path of its `config.json`.
pub(crate) fn model(name: &str) -> Result<Model, Failure> {
    if !name.ends_with(".json") {
        return Ok(Model::Named(name.into()));
    }
    let config = antiphon_import::model_config(&read(Path::new(name))?, name).map_err(refused)?;
    for warning in &config.warnings {
        say(&format!("warning: {warning}"));
    }
    Ok(Model::Shape(Box::new(config.shape)))
}

fn refused(error: ImportError) -> Failure {
    Failure::new(Exit::Refused, error.code(), error.to_string())
        .why(error.why())
        .help(error.help())
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| {
        Failure::new(
            Exit::Usage,
            "AP0728",
            format!("`{}` can't be read", file.display()),
        )
        .why(error.to_string())
        .help("give a file that is there and that you may read")
    })
}
