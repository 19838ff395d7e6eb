//! The file of `--faults`: what goes wrong in a simulation, read and checked. What each key means stands in `antiphon-sim`.

use std::path::Path;

use antiphon_sim::faults::Faults;

use crate::cli::Exit;
use crate::failure::Failure;

/// Reads what goes wrong; nothing does without a file.
pub(crate) fn read(path: Option<&Path>) -> Result<Faults, Failure> {
    let Some(path) = path else {
        return Ok(Faults::default());
    };
    let wrong = |why: String| {
        let what = format!("the faults in `{}` cannot be simulated", path.display());
        Failure::new(Exit::Usage, "AP0630", what)
            .why(why)
            .help("docs/reference/faults.md has the keys; examples/simulate/faults.toml is one to start from")
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let faults: Faults =
        toml::from_str(&text).map_err(|error| wrong(error.to_string().trim().to_owned()))?;
    faults.check().map_err(|bad| wrong(bad.to_string()))?;
    Ok(faults)
}
