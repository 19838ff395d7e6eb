//! What can go wrong with Slurm, by what to do next. None of it says that a job is gone.

use std::io;

/// Slurm could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// One of its commands cannot be started here.
    #[error("cannot run `{program}`")]
    NoSuchProgram {
        /// The command.
        program: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A command did not answer in time; whether it acted is not known.
    #[error("`{program}` did not answer in {limit_ms} ms")]
    TimedOut {
        /// The command.
        program: &'static str,
        /// How long was waited.
        limit_ms: u64,
    },
    /// The controller is not reached; whether it acted is not known.
    #[error("`{program}` does not reach the controller: {error}")]
    Away {
        /// The command.
        program: &'static str,
        /// Its words.
        error: String,
    },
    /// The controller refused.
    #[error("`{program}` was refused: {error}")]
    Refused {
        /// The command.
        program: &'static str,
        /// Its words.
        error: String,
    },
    /// A command printed what cannot be read.
    #[error("`{program}` printed what cannot be read: {error}")]
    Unreadable {
        /// The command.
        program: &'static str,
        /// What is wrong with it.
        error: String,
    },
    /// A partition that Slurm does not have, or that has no nodes.
    #[error("Slurm has no partition `{name}` with nodes; it has {there}")]
    NoPartition {
        /// The name.
        name: String,
        /// Those that it has.
        there: String,
    },
    /// The partitions to use are not named, and Slurm has several.
    #[error("Slurm has several partitions, and none is named: {there}")]
    WhichPartition {
        /// Those that it has.
        there: String,
    },
}

impl SlurmError {
    /// Whether the controller may have acted although no answer came.
    pub(super) const fn may_have_acted(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Away { .. })
    }

    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchProgram { .. } => "AP0800",
            Self::TimedOut { .. } | Self::Away { .. } => "AP0801",
            Self::Refused { .. } => "AP0802",
            Self::Unreadable { .. } => "AP0803",
            Self::NoPartition { .. } | Self::WhichPartition { .. } => "AP0804",
        }
    }

    /// What to do.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::NoSuchProgram { .. } => {
                "start antiphon where Slurm's commands are: a login node, with their directory in PATH".into()
            }
            Self::TimedOut { .. } | Self::Away { .. } => {
                "see whether `scontrol ping` answers; jobs run on, and `[backend.slurm] command_timeout` says how long \
                 is waited"
                    .into()
            }
            Self::Refused { .. } => {
                "give the same command by hand as this user; `[backend.slurm] account` and `partitions` have to be \
                 ones that it may use"
                    .into()
            }
            Self::Unreadable { .. } => {
                "report this with what the command prints; Slurm 22.05 to 26.05 is read".into()
            }
            Self::NoPartition { .. } | Self::WhichPartition { .. } => {
                "name one with `--partition`, or several in `[backend.slurm] partitions`".into()
            }
        }
    }
}
