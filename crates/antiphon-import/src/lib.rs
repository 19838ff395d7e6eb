//! Training configs that people have, read into what a job trains. Text in, data out: touches no file and estimates nothing.
//!
//! What a config states, and what its tool does where nothing is stated, goes into the [`TrainingSpec`]; what the planner should choose
//! stays unknown there.
//!
//! ```
//! let text = "base_model: Qwen/Qwen2.5-7B\nadapter: qlora\nload_in_4bit: true\nmicro_batch_size: 2\nsequence_len: 4096\n";
//! let imported = antiphon_import::training(text, "qlora.yml", None, &mut |_| None).unwrap();
//! assert_eq!(imported.format, antiphon_import::Format::Axolotl);
//! assert_eq!(imported.spec.batch.micro, Some(2));
//! assert!(imported.warnings.is_empty());
//! ```

use antiphon_types::training::{Model, TrainingSpec};

mod axolotl;
mod deepspeed;
mod error;
mod format;
mod fsdp;
mod lines;
mod options;
mod peft;
mod place;
mod reading;
mod warning;

pub use error::ImportError;
pub use format::Format;
pub use place::Place;
pub use warning::{UnknownOption, Warning};

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
        return Err(ImportError::TooLong {
            file: name.to_owned(),
            bytes: text.len(),
            limit: TEXT_MAX,
        });
    }
    let mut reading = Reading::new(read);
    let options = Options::parse(text, name)?;
    let format = format.or_else(|| format::of_options(&options));
    let format = format.ok_or_else(|| unrecognized(text, name))?;
    let spec = match format {
        Format::Axolotl => axolotl::training(options, &mut reading)?,
        Format::Deepspeed => deepspeed::training(options, &mut reading)?,
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

fn unrecognized(text: &str, name: &str) -> ImportError {
    let first = text.lines().find(|line| !line.trim().is_empty());
    ImportError::Unrecognized {
        file: name.to_owned(),
        begins: place::short(first.unwrap_or_default()),
    }
}
