//! What a notification says: one thing that happened, as JSON and as a sentence.

use antiphon_kernel::{Job, JobState, State};
use antiphon_types::{AttemptId, JobId};
use serde::{Deserialize, Serialize};

use crate::facts::{End, Fact};

/// What there is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// A job succeeded, or was canceled.
    End,
    /// A job failed for good.
    Failure,
    /// A running attempt is asked to give way.
    Preemption,
    /// A number is over its redline, or within it again; the gate was shut or opened.
    Redline,
}

impl Occasion {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::End, Self::Failure, Self::Preemption, Self::Redline];
}

/// One notification.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Message {
    pub(super) event: Occasion,
    pub(super) at_ms: u64,
    /// The sentence; also what chat programs show of a webhook.
    pub(super) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<NumberPart>,
    /// Messages before it that found the queue full.
    pub(super) dropped: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct JobPart {
    id: String,
    attempt: Option<String>,
    name: String,
    team: String,
    user: String,
    class: &'static str,
    state: &'static str,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct NumberPart {
    name: &'static str,
    over: bool,
    value: Option<String>,
    redline: String,
}

impl Message {
    /// What is to be said of a fact, if anything is.
    pub(super) fn of(state: &State, fact: &Fact) -> Option<Self> {
        let at_ms = state.now().as_millis();
        let plain = |event, text, job, number| Self {
            event,
            at_ms,
            text,
            job,
            number,
            dropped: 0,
        };
        match fact {
            Fact::Ended { job, how, .. } => {
                let job = state.job(*job)?;
                let event = match how {
                    End::Failed(_) => Occasion::Failure,
                    End::Succeeded | End::Canceled => Occasion::End,
                };
                let reason = reason(job);
                let colon = if reason.is_empty() { "" } else { ": " };
                let name = &job.spec.name;
                let text = format!("{} `{name}` {}{colon}{reason}", job.id, how.name());
                let attempt = job.attempts.last().map(|past| past.attempt);
                Some(plain(event, text, Some(part(job, attempt, reason)), None))
            }
            Fact::Preempted { attempt, cause } => {
                let job = state.job(attempt.job)?;
                let name = &job.spec.name;
                let text = format!("{attempt} `{name}` is asked to save and give way: {cause}");
                let job = part(job, Some(*attempt), cause.to_string());
                Some(plain(Occasion::Preemption, text, Some(job), None))
            }
            Fact::Redline {
                number,
                over,
                value,
                redline,
            } => {
                let read = value.map_or_else(|| "unknown".into(), |value| value.to_string());
                let is = if *over { "over" } else { "no longer over" };
                let text = format!("the {number} is {read}, {is} its redline of {redline}");
                let number = NumberPart {
                    name: number.name(),
                    over: *over,
                    value: value.map(|value| value.to_string()),
                    redline: redline.to_string(),
                };
                Some(plain(Occasion::Redline, text, None, Some(number)))
            }
            Fact::Gate(change) => {
                let text = format!("the gate is {change}");
                Some(plain(Occasion::Redline, text, None, None))
            }
            Fact::Launched { .. }
            | Fact::Settled(_)
            | Fact::Directed { .. }
            | Fact::Answered { .. } => None,
        }
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("a message is plain data")
    }

    /// The sentence in one line: a name may hold anything.
    pub(super) fn subject(&self) -> String {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        self.text.chars().map(plain).take(200).collect()
    }

    pub(super) fn paragraph(&self) -> String {
        let mut text = format!("{}\n", self.text);
        if let Some(job) = &self.job {
            text += &format!(
                "\njob    {}\nname   {}\nteam   {}\nuser   {}\nclass  {}\n\n`antiphon why {}` says more.\n",
                job.id, job.name, job.team, job.user, job.class, job.id
            );
        }
        if self.dropped > 0 {
            text += &format!(
                "\n{} messages before this one were dropped.\n",
                self.dropped
            );
        }
        text
    }
}

fn part(job: &Job, attempt: Option<AttemptId>, reason: String) -> JobPart {
    let id: JobId = job.id;
    JobPart {
        id: id.to_string(),
        attempt: attempt.map(|attempt| attempt.to_string()),
        name: job.spec.name.clone(),
        team: job.spec.team.clone(),
        user: job.spec.user.clone(),
        class: job.spec.class.name(),
        state: job.state.name(),
        reason,
    }
}

/// How a job ended, in words.
fn reason(job: &Job) -> String {
    match &job.state {
        JobState::Failed { class, detail, .. } => format!("{class}: {detail}"),
        JobState::Pending { .. }
        | JobState::Starting { .. }
        | JobState::Running { .. }
        | JobState::Stopping { .. }
        | JobState::Held { .. }
        | JobState::Succeeded { .. }
        | JobState::Canceled { .. } => String::new(),
    }
}
