//! Slurm's commands, each under a time-out of its own: a dead controller holds them for half a minute. Judges no answer.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
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
    call_with(program, arguments, conf, limit, Call::default()).await
}

/// What a command gets besides its arguments.
#[derive(Debug, Default)]
pub(super) struct Call<'a> {
    pub(super) variables: &'a [(&'a str, &'a str)],
    /// What it reads; nothing where it is empty.
    pub(super) input: Vec<u8>,
}

/// The same, with more than arguments.
pub(super) async fn call_with(
    program: &'static str,
    arguments: &[String],
    conf: Option<&Path>,
    limit: Duration,
    Call { variables, input }: Call<'_>,
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
        .stdin(if input.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
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
    let ended = async {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that ends without reading says why by its status.
            let _ = stdin.write_all(&input).await;
        }
        child.wait_with_output().await
    };
    let Ok(ended) = tokio::time::timeout(limit, ended).await else {
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
