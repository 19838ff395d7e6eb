//! Slurm's commands, each under a time-out of its own: a dead controller holds them for half a minute. Judges no answer.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::SlurmError;
use crate::local::command::{resolve, search_path};
use crate::local::inherited;

/// What a call says when the controller was not asked after all, or may have been without answering.
const UNREACHED: [&str; 6] = [
    "Unable to contact slurm controller",
    "Socket timed out",
    "Zero Bytes were transmitted or received",
    "Connection refused",
    "Unable to establish controller",
    "Communication connection failure",
];

/// Runs one of Slurm's commands and returns what it printed.
///
/// It inherits what jobs inherit, for `sbatch` hands that on, and what Slurm's own tools need.
///
/// # Errors
/// Where it could not be started, took too long, or reports an error.
pub(super) async fn call(
    program: &'static str,
    arguments: &[String],
    conf: Option<&Path>,
    limit: Duration,
) -> Result<String, SlurmError> {
    call_with(program, arguments, conf, limit, &[]).await
}

/// The same, with variables besides.
pub(super) async fn call_with(
    program: &'static str,
    arguments: &[String],
    conf: Option<&Path>,
    limit: Duration,
    variables: &[(&str, &str)],
) -> Result<String, SlurmError> {
    // A bare name would be looked for in the child, which then has to be forked with all of this server's memory: on two
    // cores that cost as much as the command itself. One that is nowhere fails with its name below.
    let path = resolve(program, "/", &search_path(&BTreeMap::new()));
    let mut command = Command::new(path.unwrap_or_else(|_| program.into()));
    command
        .args(arguments)
        .env_clear()
        .envs(inherited())
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        // A call that was given up must not act later than its successor if that can be helped.
        .kill_on_drop(true);
    for name in ["SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    if let Some(conf) = conf {
        command.env("SLURM_CONF", conf);
    }
    let Ok(ended) = tokio::time::timeout(limit, command.output()).await else {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        return Err(SlurmError::TimedOut { program, limit_ms });
    };
    let output = ended.map_err(|source| SlurmError::NoSuchProgram { program, source })?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let error = said(&output.stderr);
    if UNREACHED.iter().any(|text| error.contains(text)) {
        return Err(SlurmError::Away { program, error });
    }
    Err(SlurmError::Refused { program, error })
}
