//! What trainers ask for in a batch, each answered in its reply: granted or refused, always with a reason.

use antiphon_kernel::Job;
use antiphon_types::{Ask, AskBody, AttemptId, Command, CommandId, Millis};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Shared;
use super::problem::Fault;
use super::signals::cut;
use crate::event_loop::Refused;

/// Asks of one batch that are listened to.
const ASKS_MAX: usize = 8;

/// Something that a trainer asks for.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct AskIn {
    /// Its number among the sender's asks: sent twice, it is granted once.
    #[serde(default)]
    id: u64,
    /// `gpus`, `time`, `samples`, `pause` or `protection`.
    ask: String,
    /// For `gpus`: how many for the first role.
    #[serde(default)]
    gpus: Option<u32>,
    /// For `time`: how much more.
    #[serde(default)]
    more_ms: Option<u64>,
    /// For `samples`.
    #[serde(default)]
    category: Option<String>,
    /// For `protection`: for how long.
    #[serde(default)]
    during_ms: Option<u64>,
    /// Why.
    #[serde(default)]
    reason: String,
}

/// What became of an ask.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Answer {
    /// Its number among the sender's asks.
    id: u64,
    /// What was asked for.
    ask: String,
    /// Whether it is granted.
    granted: bool,
    /// Why, with numbers.
    reason: String,
}

/// Answers the asks of a batch, in their order.
pub(super) async fn answer(
    shared: &Shared,
    attempt: AttemptId,
    boot: &str,
    asks: Vec<AskIn>,
) -> Result<Vec<Answer>, Fault> {
    let mut answers = Vec::new();
    for (index, ask) in asks.into_iter().enumerate() {
        let (id, what) = (ask.id, cut(ask.ask.clone()));
        let (granted, reason) = match ask.body() {
            _ if index >= ASKS_MAX => (false, format!("a batch holds at most {ASKS_MAX} asks")),
            Err(why) => (false, why),
            Ok(body) => {
                let number = CommandId {
                    key: format!("{attempt}/{boot}/{id}"),
                    content: format!("{body:?}"),
                };
                put(shared, number, attempt, body, cut(ask.reason)).await?
            }
        };
        answers.push(Answer {
            id,
            ask: what,
            granted,
            reason,
        });
    }
    Ok(answers)
}

async fn put(
    shared: &Shared,
    number: CommandId,
    attempt: AttemptId,
    body: AskBody,
    reason: String,
) -> Result<(bool, String), Fault> {
    let command = Command::Ask(Ask {
        attempt,
        body: body.clone(),
        reason,
    });
    let by = attempt.to_string();
    let answer = shared.inputs.command(by, Some(number), command).await;
    match answer {
        Ok(_) => {
            let state = shared.view.state();
            let job = state.job(attempt.job);
            Ok((
                true,
                job.map_or_else(String::new, |job| granted(job, &body)),
            ))
        }
        Err(Refused::Rejection(rejection)) => Ok((false, rejection.to_string())),
        Err(other) => Err(other.into()),
    }
}

/// What follows from an ask that is granted.
fn granted(job: &Job, body: &AskBody) -> String {
    match body {
        AskBody::Gpus { gpus } => {
            format!("it saves a checkpoint, stops, and starts again on {gpus} GPUs")
        }
        AskBody::Time { .. } => {
            let limit = job.spec.time_limit.unwrap_or_default();
            let first = job.steering.time_limit_first.unwrap_or(limit);
            format!("its time limit is {limit} now, {first} at submit")
        }
        AskBody::Samples { category } => {
            let runs = job.steering.runs.iter();
            let made_by = runs.rev().find(|run| run.category == *category);
            made_by.map_or_else(
                || format!("a data job makes samples of `{category}`"),
                |run| {
                    format!(
                        "{} makes samples of `{category}` by `{}`",
                        run.job, run.method
                    )
                },
            )
        }
        AskBody::Pause => "it saves a checkpoint and waits for `antiphon release`".into(),
        AskBody::Protection { during } => {
            format!("it is not preempted for {during}, unless a quota is taken back")
        }
    }
}

impl AskIn {
    fn body(&self) -> Result<AskBody, String> {
        let missing = |key: &str| format!("`{}` needs `{key}`", cut(self.ask.clone()));
        match self.ask.as_str() {
            "gpus" => {
                let gpus = self.gpus.ok_or_else(|| missing("gpus"))?;
                Ok(AskBody::Gpus { gpus })
            }
            "time" => {
                let more = self.more_ms.ok_or_else(|| missing("more_ms"))?;
                Ok(AskBody::Time {
                    more: Millis::from_millis(more),
                })
            }
            "samples" => {
                let category = self.category.clone().ok_or_else(|| missing("category"))?;
                Ok(AskBody::Samples {
                    category: cut(category),
                })
            }
            "pause" => Ok(AskBody::Pause),
            "protection" => {
                let during = self.during_ms.ok_or_else(|| missing("during_ms"))?;
                Ok(AskBody::Protection {
                    during: Millis::from_millis(during),
                })
            }
            other => Err(format!(
                "there is no ask `{}`: there are gpus, time, samples, pause, protection",
                cut(other.to_owned())
            )),
        }
    }
}
