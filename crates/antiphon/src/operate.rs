//! Commands that change: jobs, nodes, and whether anything is decided.

use std::process::ExitCode;

use antiphon_server::api::model::CommandAccepted;
use serde_json::{Value, json};

use crate::cli::{DrainArgs, JobsToChange, ReadArgs, ReasonArgs, Target};
use crate::client::{Client, escape, new_key};
use crate::failure::Failure;
use crate::render::{self, say};

/// What is done to a job.
#[derive(Debug, Clone, Copy)]
pub(crate) enum JobVerb {
    Cancel,
    Hold,
    Release,
    Preempt,
}

impl JobVerb {
    const fn path(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Preempt => "preempt",
        }
    }

    const fn done(self) -> &'static str {
        match self {
            Self::Cancel => {
                "is canceled; running processes get SIGTERM now, SIGKILL after their grace"
            }
            Self::Hold => "is put on hold; a running one saves a checkpoint first",
            Self::Release => "is back in the queue",
            Self::Preempt => "saves a checkpoint and goes back to its place in the queue",
        }
    }
}

/// Changes jobs, one after the other; the first refusal ends it.
pub(crate) fn on_jobs(
    target: &Target,
    args: &JobsToChange,
    verb: JobVerb,
) -> Result<ExitCode, Failure> {
    let client = Client::new(target)?;
    let mut answers = Vec::new();
    let mut refused = None;
    for job in &args.jobs {
        let path = format!("/v1/jobs/{}/{}", escape(job), verb.path());
        let accepted: CommandAccepted = match client.post(&path, &new_key(), &Value::Null) {
            Ok(accepted) => accepted,
            Err(failure) => {
                refused = Some(failure);
                break;
            }
        };
        if !args.json {
            let id = accepted.job.as_deref().unwrap_or(job);
            say(&format!("{id} {}", verb.done()));
        }
        answers.push(accepted);
    }
    // What was carried out before a refusal is said all the same.
    if args.json {
        render::json(&answers);
    }
    refused.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Takes no new tasks on a node, or takes them again.
pub(crate) fn drain(target: &Target, args: &DrainArgs) -> Result<ExitCode, Failure> {
    let verb = if args.undo { "undrain" } else { "drain" };
    let said = if args.undo {
        "is no longer drained: it takes tasks again while it is up"
    } else {
        "takes no new tasks; those it has run on"
    };
    let path = format!("/v1/nodes/{}/{verb}", escape(&args.node));
    let said = format!("{} {said}", args.node);
    send(target, &path, &args.reason, args.json, &said)
}

/// Stops deciding.
pub(crate) fn pause(target: &Target, args: &ReasonArgs) -> Result<ExitCode, Failure> {
    let said =
        "deciding is paused: jobs run on, nothing starts or gives way until `antiphon unpause`";
    send(target, "/v1/pause", &args.reason, args.json, said)
}

/// Decides again.
pub(crate) fn unpause(target: &Target, args: &ReadArgs) -> Result<ExitCode, Failure> {
    send(target, "/v1/unpause", "", args.json, "deciding goes on")
}

fn send(
    target: &Target,
    path: &str,
    reason: &str,
    as_json: bool,
    said: &str,
) -> Result<ExitCode, Failure> {
    let accepted: CommandAccepted =
        Client::new(target)?.post(path, &new_key(), &json!({ "reason": reason }))?;
    if as_json {
        render::json(&accepted);
    } else {
        say(said);
    }
    Ok(ExitCode::SUCCESS)
}
