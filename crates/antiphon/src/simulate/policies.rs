//! Which policies a simulation compares: names, and files with `[policy]`. Decides nothing.

use std::collections::BTreeSet;
use std::path::Path;

use antiphon_sim::simulate::{self, ANTIPHON, SimulateError};
use antiphon_sim::world::{Decider, Setting};
use antiphon_types::Policy;

use crate::cli::{Exit, SimulateArgs};
use crate::failure::Failure;
use crate::settings::Settings;

/// The policies that were asked for, each once.
pub(super) fn names(args: &SimulateArgs) -> Vec<String> {
    if args.policy.is_empty() {
        return vec![ANTIPHON.to_owned()];
    }
    let mut seen = BTreeSet::new();
    let new = args.policy.iter().filter(|name| seen.insert(*name));
    new.cloned().collect()
}

/// The kernel's settings under a policy of this name.
pub(super) fn settings_of(name: &str) -> Result<Policy, Failure> {
    if is_file(name) {
        policy_file(Path::new(name))
    } else {
        Ok(simulate::policy())
    }
}

/// Who decides under a policy of this name.
pub(super) fn decides(name: &str, setting: &Setting) -> Result<Decider, SimulateError> {
    if is_file(name) {
        Ok(Decider::Kernel)
    } else {
        simulate::decider(name, setting)
    }
}

/// The settings in a policy file: `[policy]` as in `antiphon.toml`.
pub(crate) fn policy_file(path: &Path) -> Result<Policy, Failure> {
    let wrong = |why: String| {
        let what = format!("the policy file `{}` cannot be used", path.display());
        Failure::new(Exit::Usage, "AP0206", what).why(why).help(
            "write `[policy]` as in `antiphon.toml`: docs/reference/configuration.md has its keys",
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let settings = Settings::from_text(&text).map_err(wrong)?;
    let usual = simulate::policy();
    Ok(Policy {
        ended_jobs_max: usual.ended_jobs_max,
        jobs_max: usual.jobs_max,
        ..settings.policy()
    })
}

/// Whether a name means a file rather than something known by that name.
pub(super) fn is_file(name: &str) -> bool {
    name.contains(['/', '.']) && Path::new(name).exists()
}
