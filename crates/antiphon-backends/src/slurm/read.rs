//! The questions that are asked of Slurm to know what is there. A question is a whole command line, and nothing else can be
//! run by way of a [`Reader`]: who holds one cannot submit, cancel or change anything.

use std::path::PathBuf;
use std::time::Duration;

use antiphon_types::Millis;

use super::SlurmError;
use super::command::{Call, call_with};

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// Every node; `-d` says which GPUs jobs hold.
    Nodes,
    /// Every partition.
    Partitions,
    /// Which switches nodes hang on; a cluster without a topology plugin refuses.
    Topology,
    /// Every job of everybody, with what it holds of which node.
    Jobs,
    /// The ids of these jobs and nothing else: nobody can type into that list.
    JobIds,
}

impl Question {
    /// The whole of it: a program and its arguments.
    const fn command(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Nodes => ("scontrol", &["show", "node", "-d", "--all"]),
            Self::Partitions => ("scontrol", &["show", "partition", "--all"]),
            Self::Topology => ("scontrol", &["show", "topology"]),
            Self::Jobs => ("scontrol", &["show", "job", "-d", "--all"]),
            Self::JobIds => (
                "squeue",
                &["--noheader", "--all", "--states=all", "--format=%A"],
            ),
        }
    }
}

/// Times without the summer's hour twice, and arrays with all their indices.
const VARIABLES: [(&str, &str); 2] = [("TZ", "UTC0"), ("SLURM_BITSTR_LEN", "0")];

/// Asks.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    /// Slurm's configuration, where it is not the one that its commands find by themselves.
    pub(super) conf: Option<PathBuf>,
    /// How long an answer may take.
    pub(super) limit: Millis,
}

impl Reader {
    /// # Errors
    /// Where there is no answer, which says nothing about what was asked for.
    pub(super) async fn ask(&self, question: Question) -> Result<String, SlurmError> {
        let (program, arguments) = question.command();
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let limit = Duration::from_millis(self.limit.as_millis());
        let conf = self.conf.as_deref();
        let call = Call {
            variables: &VARIABLES,
            ..Call::default()
        };
        call_with(program, &arguments, conf, limit, call).await
    }

    /// Which switches nodes hang on; nothing where Slurm has no topology.
    pub(super) async fn topology(&self) -> Result<String, SlurmError> {
        match self.ask(Question::Topology).await {
            // A cluster without a topology plugin says so by an error.
            Err(SlurmError::Refused { .. }) => Ok(String::new()),
            answer => answer,
        }
    }
}
