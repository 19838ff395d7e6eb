//! From one event to sentences about jobs and nodes: the words of the story. What says nothing to people, like ticks and
//! progress, is left out.

use antiphon_kernel::State;
use antiphon_types::{
    AckBody, Action, Ask, AskBody, Body, Command, Decimal, Decision, Event, Finding, GpuAmount,
    JobId, Millis, NodeName, Observation, Outcome, Reached, SlotReason,
};

use super::story::Happening;
use crate::api::why::score_told;

/// Longest text of somebody else's that is taken into a sentence.
const TEXT_MAX: usize = 300;

/// What an event says to people. `state` is that of now: it knows the names of jobs.
pub(super) fn happenings(state: &State, event: &Event) -> Vec<Happening> {
    let mut teller = Teller {
        state,
        event,
        told: Vec::new(),
    };
    match &event.body {
        Body::Command { by, command, .. } => teller.command(by, command),
        Body::Observation(observation) => teller.observation(observation),
        Body::Finding(finding) => teller.finding(finding),
        Body::Tick => (),
        Body::Decision(decision) => teller.decision(decision),
        Body::SafeMode { bug } => teller.tell(
            "decided",
            "safe-mode",
            None,
            format!("antiphon caught a bug of its own and decides nothing until an operator has looked: {}", cut(bug)),
        ),
    }
    teller.told
}

/// The same where antiphon only observes: whatever happened was seen, and neither asked of antiphon nor decided by it.
pub(super) fn observed(state: &State, event: &Event) -> Vec<Happening> {
    let mut told = happenings(state, event);
    told.iter_mut().for_each(|one| one.way = "seen");
    told
}

struct Teller<'a> {
    state: &'a State,
    event: &'a Event,
    told: Vec<Happening>,
}

impl Teller<'_> {
    fn tell(&mut self, way: &'static str, kind: &'static str, job: Option<JobId>, text: String) {
        let known = job.and_then(|id| self.state.job(id));
        let name = known.map(|job| job.spec.name.clone()).unwrap_or_default();
        let team = known.map(|job| job.spec.team.clone());
        self.push(way, kind, (job, team), name, text);
    }

    fn tell_node(&mut self, way: &'static str, kind: &'static str, node: &NodeName, text: String) {
        self.push(way, kind, (None, None), node.to_string(), text);
    }

    fn push(
        &mut self,
        way: &'static str,
        kind: &'static str,
        (id, team): (Option<JobId>, Option<String>),
        name: String,
        text: String,
    ) {
        let index = u32::try_from(self.told.len()).unwrap_or(u32::MAX);
        self.told.push(Happening {
            seq: self.event.seq.0,
            index,
            at_ms: self.event.at.as_millis(),
            way,
            kind,
            job: id.map(|id| id.to_string()),
            name,
            text,
            id,
            team,
            lost_gpu_ms: None,
        });
    }

    fn command(&mut self, by: &str, command: &Command) {
        let by = cut(by);
        match command {
            Command::Submit { spec } => {
                let id = self.state.job_named(&spec.team, &spec.name);
                let id = id
                    .filter(|job| job.submitted == self.event.at)
                    .map(|job| job.id);
                let text = format!(
                    "is submitted by {by}: {} {}, {}, team {}",
                    spec.gpus(),
                    if spec.gpus() == GpuAmount::from_gpus(1) {
                        "GPU"
                    } else {
                        "GPUs"
                    },
                    spec.class,
                    spec.team
                );
                let of = (id, Some(spec.team.clone()));
                self.push("asked", "submit", of, spec.name.clone(), text);
            }
            Command::Cancel { job } => self.asked("cancel", *job, format!("is canceled by {by}")),
            Command::Hold { job } => self.asked("hold", *job, format!("is put on hold by {by}")),
            Command::Release { job } => self.asked("release", *job, format!("is released by {by}")),
            Command::Preempt { job } => {
                self.asked(
                    "preempt",
                    *job,
                    format!("is sent back to the queue by {by}"),
                );
            }
            Command::SetClass { job, class } => {
                self.asked("class", *job, format!("is {class} from now on, by {by}"));
            }
            Command::Direct(direct) => {
                let text = format!("gets a directive of {by}: {}", direct.body);
                self.asked("directive", direct.job, text);
            }
            Command::Approve { job, rule, subject } => {
                let text = format!("{by} approves what rule {rule} found{}", of(subject));
                self.asked("approve", *job, text);
            }
            Command::Undo { job, directive } => {
                self.asked(
                    "undo",
                    *job,
                    format!("directive #{directive} is taken back by {by}"),
                );
            }
            Command::Ask(ask) => self.ask(ask),
            Command::Drain { node, reason } => {
                let text = format!("is drained by {by}{}", because(reason));
                self.tell_node("asked", "drain", node, text);
            }
            Command::Undrain { node } => {
                self.tell_node(
                    "asked",
                    "undrain",
                    node,
                    format!("is given back to jobs by {by}"),
                );
            }
            Command::Pause { reason } => {
                let text = format!("{by} pauses all deciding{}", because(reason));
                self.tell("asked", "pause", None, text);
            }
            Command::Unpause => {
                self.tell(
                    "asked",
                    "unpause",
                    None,
                    format!("{by} lets antiphon decide again"),
                );
            }
            Command::SetPolicy { .. } | Command::SetGate { .. } => {
                self.tell(
                    "asked",
                    "settings",
                    None,
                    format!("{by} changes the settings"),
                );
            }
            Command::SetTeams { teams } => {
                self.tell(
                    "asked",
                    "settings",
                    None,
                    format!("{by} sets up {} teams", teams.len()),
                );
            }
            Command::Maintain(window) => {
                let span = window.until.since(window.from);
                let text = format!(
                    "{by} plans {span} without tasks on {} nodes{}",
                    window.nodes.len(),
                    because(&window.reason)
                );
                self.tell("asked", "maintenance", None, text);
            }
            Command::Notice(notice) => {
                let text = format!(
                    "is to be given back in {}{}",
                    notice.within,
                    because(&notice.reason)
                );
                self.tell_node("asked", "notice", &notice.node, text);
            }
        }
    }

    fn asked(&mut self, kind: &'static str, job: JobId, text: String) {
        self.tell("asked", kind, Some(job), text);
    }

    fn ask(&mut self, ask: &Ask) {
        let what = match &ask.body {
            AskBody::Gpus { gpus } => format!("asks for {gpus} GPUs"),
            AskBody::Time { more } => format!("asks for {more} more"),
            AskBody::Samples { category } => format!("asks for samples of {}", cut(category)),
            AskBody::Pause => "asks to pause".to_owned(),
            AskBody::Protection { during } => format!("asks to be left alone for {during}"),
        };
        let text = format!("its trainer {what}{}: granted", because(&ask.reason));
        self.tell("told", "ask", Some(ask.attempt.job), text);
    }

    fn observation(&mut self, observation: &Observation) {
        match observation {
            Observation::TaskEnded { task, exit } => {
                let text = format!(
                    "task {}.{} of {} ended: {}",
                    task.role,
                    task.index,
                    task.attempt,
                    cut(&exit.to_string())
                );
                self.tell("seen", "end", Some(task.attempt.job), text);
            }
            Observation::Attached { attempt, step } => {
                let text = format!("its trainer attaches at step {step}: directives reach it");
                self.tell("told", "attach", Some(attempt.job), text);
            }
            Observation::Checkpointed { checkpoint } => {
                let text = format!(
                    "the checkpoint of step {} is durable ({}, saved in {})",
                    checkpoint.step, checkpoint.bytes, checkpoint.save
                );
                self.tell("told", "checkpoint", Some(checkpoint.attempt.job), text);
            }
            Observation::Acknowledged { attempt, ack } => {
                let answer = match &ack.body {
                    AckBody::Applied { slot } => format!("is applied at slot {slot}"),
                    AckBody::Rejected { reason } => format!("is rejected: {}", cut(reason)),
                    AckBody::Failed { error } => format!("failed: {}", cut(error)),
                    AckBody::Expired => "has expired".to_owned(),
                };
                let text = format!("directive #{} {answer}", ack.directive);
                self.tell("told", "answer", Some(attempt.job), text);
            }
            Observation::Inventory { nodes, .. } => {
                self.tell(
                    "seen",
                    "nodes",
                    None,
                    match nodes.len() {
                        1 => "1 node is there".to_owned(),
                        nodes => format!("{nodes} nodes are there"),
                    },
                );
            }
            Observation::Holds { .. }
            | Observation::TaskStarted { .. }
            | Observation::Shards { .. } => (),
        }
    }

    fn finding(&mut self, finding: &Finding) {
        match finding {
            Finding::Progress { .. } => (),
            Finding::Idle {
                attempt,
                utilization_percent,
                since,
            } => {
                let text =
                    format!("its GPUs have been busy for only {utilization_percent} % of {since}");
                self.tell("told", "idle", Some(attempt.job), text);
            }
            Finding::Diagnosis(found) => {
                let text = format!(
                    "rule {}{} at step {}: {} ({})",
                    found.rule,
                    of(&found.subject),
                    found.step,
                    found.verdict,
                    cut(&found.evidence)
                );
                self.tell("told", "finding", Some(found.attempt.job), text);
            }
            Finding::Measured(measured) => {
                let mut text = format!(
                    "a step takes {:.3} s over {} steps",
                    measured.step_us as f64 / 1e6,
                    measured.steps
                );
                if measured.allocated.get() > 0 {
                    let gib = measured.allocated.get() as f64 / f64::from(1 << 30);
                    text += &format!(", its tensors {gib:.1} GiB of a GPU");
                }
                self.tell("told", "measured", Some(measured.attempt.job), text);
            }
            Finding::Reached(reached) => self.reached(*reached),
        }
    }

    /// How close a job has come to what its `accept` line asks for.
    fn reached(&mut self, reached: Reached) {
        let job = self.state.job(reached.attempt.job);
        let Some(accept) = job.and_then(|job| job.spec.accept.as_ref()) else {
            return;
        };
        let (value, step) = (Decimal(reached.value_micro), reached.step);
        let met = if accept.is_met(reached.value_micro) {
            "acceptable"
        } else {
            "not acceptable yet"
        };
        let metric = &accept.metric;
        let text =
            format!("its result is {met}: {metric} {value} at step {step}, asked is {accept}");
        self.tell("told", "reached", Some(reached.attempt.job), text);
    }

    fn decision(&mut self, decision: &Decision) {
        for action in &decision.actions {
            self.action(action);
        }
    }

    fn action(&mut self, action: &Action) {
        let (kind, job, text) = match action {
            Action::Launch {
                attempt,
                allocation,
                terms,
            } => {
                let mut text = format!("starts as {attempt} on {}", cut(&allocation.to_string()));
                if !terms.score.is_empty() {
                    text = format!("{text}: {}", score_told(terms));
                }
                ("start", attempt.job, text)
            }
            Action::Yield {
                attempt,
                cause,
                until,
                ..
            } => {
                let wait = until.since(self.event.at);
                (
                    "stop",
                    attempt.job,
                    format!(
                        "is asked to save and give way, {cause}; up to {wait} for its checkpoint"
                    ),
                )
            }
            Action::Terminate {
                attempt,
                cause,
                kill_at,
            } => {
                let grace: Millis = kill_at.since(self.event.at);
                (
                    "stop",
                    attempt.job,
                    format!("gets SIGTERM, {cause}; {grace} of grace"),
                )
            }
            Action::Kill { attempt, evidence } => (
                "kill",
                attempt.job,
                format!("gets SIGKILL: {}", cut(evidence)),
            ),
            Action::Settle { attempt, outcome } => {
                return self.settle(attempt.job, attempt.number, outcome);
            }
            Action::Direct { job, directive } => {
                let text = format!(
                    "gets directive #{}: {}{}",
                    directive.id,
                    cut(&directive.body.to_string()),
                    because(&directive.reason)
                );
                ("directive", *job, text)
            }
            Action::Reserve { job, slot } => {
                let why = match slot.why {
                    SlotReason::Blocked => "it is among the first of its class",
                    SlotReason::Preemption => "others give way there for it",
                    SlotReason::Claim => "it ran there before",
                };
                let nodes = match slot.nodes.len() {
                    1 => "1 node is".to_owned(),
                    nodes => format!("{nodes} nodes are"),
                };
                let text = format!("{nodes} held back for it: {why}");
                ("reserve", *job, text)
            }
            Action::Unreserve { job } => (
                "unreserve",
                *job,
                "nothing is held back for it any more".into(),
            ),
            Action::PutAside { node, evidence } => {
                let text = format!("takes no more tasks: {}", cut(evidence));
                return self.tell_node("decided", "put-aside", node, text);
            }
            Action::Gate(change) => {
                let text = format!("the gate is {change}");
                return self.tell("decided", "gate", None, text);
            }
            Action::Remedy {
                job, rule, subject, ..
            } => (
                "remedy",
                *job,
                format!("what rule {rule} found{} is acted on", of(subject)),
            ),
            Action::Augment {
                job,
                method,
                of: starving,
                ..
            } => (
                "augment",
                *job,
                format!("more data is made for {} by {}", cut(starving), cut(method)),
            ),
            Action::Abandon { job, dependency } => (
                "abandon",
                *job,
                format!("can never start: {dependency}, which it waits for, did not succeed"),
            ),
        };
        self.tell("decided", kind, Some(job), text);
    }

    fn settle(&mut self, job: JobId, number: u32, outcome: &Outcome) {
        let record = self.state.job(job).and_then(|job| {
            let of_attempt =
                |record: &&antiphon_kernel::AttemptRecord| record.attempt.number == number;
            job.attempts.iter().find(of_attempt)
        });
        let lost = record.map(|record| record.lost);
        let (kind, mut text) = match outcome {
            Outcome::Succeeded => ("success", "has finished".to_owned()),
            Outcome::Failed { class } => ("failure", format!("has failed: {class}")),
            Outcome::Canceled => ("canceled", "is gone: canceled".to_owned()),
            Outcome::Held => ("held", "waits for its release".to_owned()),
            Outcome::Requeued => ("requeue", "is back in its place in the queue".to_owned()),
            Outcome::Retried { class, not_before } => {
                let wait = not_before.since(self.event.at);
                (
                    "retry",
                    format!("failed ({class}) and is tried again in {wait}"),
                )
            }
        };
        if let Some(lost) = lost.filter(|lost| lost.gpu_millis() >= 1_000) {
            text = format!("{text}; {lost} to do again");
        }
        self.tell("decided", kind, Some(job), text);
        if let Some(told) = self.told.last_mut() {
            told.lost_gpu_ms = lost.map(|lost| lost.gpu_millis());
        }
    }
}

fn because(reason: &str) -> String {
    match reason {
        "" => String::new(),
        reason => format!(" ({})", cut(reason)),
    }
}

fn of(subject: &str) -> String {
    match subject {
        "" => String::new(),
        subject => format!(" of {}", cut(subject)),
    }
}

/// As much of a text as a sentence holds.
fn cut(text: &str) -> String {
    if text.len() <= TEXT_MAX {
        return text.to_owned();
    }
    let end = (0..=TEXT_MAX).rev().find(|end| text.is_char_boundary(*end));
    format!("{}…", &text[..end.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use antiphon_kernel::apply;
    use antiphon_types::{Seq, Timestamp};

    use super::*;
    use crate::fixture::spec;

    fn event(seq: u64, body: Body) -> Event {
        Event {
            seq: Seq(seq),
            at: Timestamp::from_millis(seq * 1_000),
            body,
        }
    }

    fn asked(seq: u64, command: Command) -> Event {
        event(
            seq,
            Body::Command {
                by: "ada".into(),
                id: None,
                command,
            },
        )
    }

    #[test]
    fn a_submitted_job_is_told_with_its_id_and_who_asked() {
        let mut state = State::default();
        let spec = Box::new(spec("sft", 8));
        let submitted = asked(1, Command::Submit { spec });
        apply(&mut state, &submitted);
        let told = happenings(&state, &submitted);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].way, told[0].kind), ("asked", "submit"));
        assert_eq!(told[0].job.as_deref(), Some("job-1"));
        assert_eq!(
            told[0].text,
            "is submitted by ada: 8 GPUs, standard, team default"
        );
    }

    #[test]
    fn what_says_nothing_to_people_is_left_out() {
        let state = State::default();
        assert!(happenings(&state, &event(1, Body::Tick)).is_empty());
        assert!(happenings(&state, &event(2, Body::Decision(Decision::default()))).is_empty());
    }

    #[test]
    fn a_text_of_somebody_else_is_cut_at_a_letter() {
        let long = "ü".repeat(TEXT_MAX);
        let reason = asked(1, Command::Pause { reason: long });
        let told = happenings(&State::default(), &reason);
        assert!(told[0].text.len() < TEXT_MAX + 60, "{}", told[0].text.len());
        assert!(told[0].text.ends_with("…)"), "{}", told[0].text);
    }
}
