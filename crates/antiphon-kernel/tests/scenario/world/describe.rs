//! Actions as a scenario prints them.

use antiphon_types::*;

pub(super) fn describe(action: &Action, now: Timestamp) -> String {
    let seconds = |at: Timestamp| at.since(now);
    match action {
        Action::Launch {
            attempt,
            allocation,
            terms,
        } => {
            let class = terms.class.map(|class| format!(", as {class}"));
            let check = terms.check.then_some(", checked first");
            format!(
                "launch {attempt} on {allocation}{}{}",
                class.unwrap_or_default(),
                check.unwrap_or_default()
            )
        }
        Action::Yield {
            attempt,
            cause,
            until,
            ..
        } => {
            format!(
                "yield {attempt}: {cause}, at most {} for its checkpoint",
                seconds(*until)
            )
        }
        Action::Terminate {
            attempt,
            cause,
            kill_at,
        } => {
            format!("SIGTERM {attempt}: {cause}, grace {}", seconds(*kill_at))
        }
        Action::Kill { attempt, evidence } => format!("SIGKILL {attempt}: {evidence}"),
        Action::Settle { attempt, outcome } => {
            format!("settle {attempt}: {}", ended(outcome, now))
        }
        Action::Direct { job, directive } => {
            format!(
                "direct {job} #{}: {} ({})",
                directive.id, directive.body, directive.reason
            )
        }
        Action::Reserve { job, slot } => {
            let nodes: Vec<_> = slot.nodes.iter().map(ToString::to_string).collect();
            let at = slot.at.map_or_else(
                || "nobody knows when".to_owned(),
                |at| format!("in {}", seconds(at)),
            );
            format!("hold {} for {job}, {at}", nodes.join(" "))
        }
        Action::Unreserve { job } => format!("hold nothing for {job}"),
        Action::PutAside { node, evidence } => format!("{node} is {evidence}"),
        Action::Remedy {
            job,
            rule,
            subject,
            remedy,
        } => {
            let of = Some(subject).filter(|subject| !subject.is_empty());
            let of = of.map_or_else(String::new, |of| format!(" {of}"));
            format!("remedy {remedy} of {rule}{of} for {job}")
        }
        Action::Augment {
            job,
            method,
            of,
            spec,
        } => format!("augment {of} for {job} by {method}: {}", spec.name),
        Action::Abandon { job, dependency } => {
            format!("abandon {job}: {dependency} did not succeed")
        }
        Action::Gate(change) => format!("the gate is {change}"),
    }
}

pub(super) fn ended(outcome: &Outcome, now: Timestamp) -> String {
    match outcome {
        Outcome::Succeeded => "succeeded".into(),
        Outcome::Failed { class } => format!("failed, {class}"),
        Outcome::Canceled => "canceled".into(),
        Outcome::Held => "held".into(),
        Outcome::Requeued => "requeued".into(),
        Outcome::Retried { class, not_before } => {
            format!("retry in {}, {class}", not_before.since(now))
        }
    }
}
