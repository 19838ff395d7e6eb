//! `[backend.slurm]` in the configuration: which part of a Slurm antiphon drives, and how patiently. Whether it is there is the
//! backend's question.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use antiphon_backends::slurm::{self, ObserverConfig, SlurmConfig};
use antiphon_backends::supervisor;
use antiphon_types::{Class, Millis};
use clap::ValueEnum;
use serde::Deserialize;

use crate::cli::Exit;
use crate::failure::Failure;

/// Whose the partitions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// antiphon's: nobody else submits to them
    Own,
    /// Everybody's: what others hold counts as used, and none of their jobs is touched
    Guest,
}

impl From<Mode> for slurm::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Own => Self::Own,
            Mode::Guest => Self::Guest,
        }
    }
}

/// The section.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SlurmFile {
    /// Slurm's configuration, where it is not the one that its commands find by themselves.
    conf: Option<PathBuf>,
    partitions: Vec<String>,
    mode: Option<Mode>,
    account: Option<String>,
    qos: Option<String>,
    reservation: Option<String>,
    /// antiphon's names of GPU types, by Slurm's.
    gpu_types: BTreeMap<String, String>,
    /// Classes of jobs that are only observed, by their QOS or their partition.
    classes: BTreeMap<String, Class>,
    /// Where tasks lie, on a file system that all nodes share.
    dir: Option<PathBuf>,
    command_timeout: Option<String>,
    launch_timeout: Option<String>,
    poll: Option<String>,
    /// The program that supervises tasks, where the nodes do not find this one.
    supervisor: Option<String>,
}

impl SlurmFile {
    /// Lets its paths count from the file in which it stands.
    pub(super) fn count_from(&mut self, beside: &Path) {
        for path in [&mut self.conf, &mut self.dir].into_iter().flatten() {
            *path = beside.join(&path);
        }
    }

    /// Puts what is set over the defaults.
    pub(crate) fn apply(&self, config: &mut SlurmConfig) -> Result<(), Failure> {
        let timeout = &mut config.command_timeout;
        span("command_timeout", self.command_timeout.as_deref(), timeout)?;
        let timeout = &mut config.launch_timeout;
        span("launch_timeout", self.launch_timeout.as_deref(), timeout)?;
        span("poll", self.poll.as_deref(), &mut config.poll)?;
        config.conf.clone_from(&self.conf);
        config.partitions.clone_from(&self.partitions);
        if let Some(mode) = self.mode {
            config.mode = mode.into();
        }
        config.account.clone_from(&self.account);
        config.qos.clone_from(&self.qos);
        config.reservation.clone_from(&self.reservation);
        config.gpu_types.clone_from(&self.gpu_types);
        if let Some(dir) = &self.dir {
            config.root.clone_from(dir);
        }
        if let Some(supervisor) = &self.supervisor {
            config.supervisor = supervisor::command_at(supervisor);
        }
        Ok(())
    }

    /// The same, of what an observer needs.
    pub(crate) fn observe(&self, config: &mut ObserverConfig) -> Result<(), Failure> {
        let timeout = &mut config.command_timeout;
        span("command_timeout", self.command_timeout.as_deref(), timeout)?;
        span("poll", self.poll.as_deref(), &mut config.poll)?;
        config.conf.clone_from(&self.conf);
        config.partitions.clone_from(&self.partitions);
        config.gpu_types.clone_from(&self.gpu_types);
        config.classes.clone_from(&self.classes);
        Ok(())
    }
}

/// Reads a span, where one is set.
fn span(name: &str, text: Option<&str>, into: &mut Millis) -> Result<(), Failure> {
    let Some(text) = text else { return Ok(()) };
    let wrong = |why: String| {
        let what = format!("`[backend.slurm] {name}` is wrong");
        Failure::new(Exit::Usage, "AP0206", what)
            .why(why)
            .help("give a span like `15s` or `2m`")
    };
    *into = text.parse().map_err(|error| wrong(format!("{error}")))?;
    if into.is_zero() {
        return Err(wrong("it is 0".into()));
    }
    Ok(())
}
