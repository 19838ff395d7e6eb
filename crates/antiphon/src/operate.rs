//! Commands that change: jobs, nodes, and whether anything is decided.

use std::process::ExitCode;

use antiphon_server::api::model::CommandAccepted;
use antiphon_types::{Millis, NoticeCause, UnitError};
use serde_json::{Value, json};

use crate::cli::{ClassArgs, DrainArgs, Exit, JobsToChange, ReadArgs, ReasonArgs, Target};
use crate::client::{Client, escape, new_key};
use crate::failure::Failure;
use crate::queue;
use crate::render::{self, clock, now_ms, say};

/// Members of an array that are changed at the same time.
const AT_ONCE: usize = 16;

/// The code of a command that a job's state does not allow.
const WRONG_STATE: &str = "AP0102";

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

    /// Whether a job in this state can be asked for it.
    fn fits(self, state: &str) -> bool {
        match self {
            Self::Cancel => true,
            Self::Hold => state != "held",
            Self::Release => matches!(state, "held" | "stopping"),
            Self::Preempt => matches!(state, "starting" | "running"),
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
    if args.array {
        return on_arrays(&client, args, verb);
    }
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

/// Gives a job another class.
pub(crate) fn class(target: &Target, args: &ClassArgs) -> Result<ExitCode, Failure> {
    let client = Client::new(target)?;
    let path = format!("/v1/jobs/{}/class", escape(&args.job));
    let body = json!({ "class": args.class });
    let accepted: CommandAccepted = client.post(&path, &new_key(), &body)?;
    if args.json {
        render::json(&accepted);
    } else {
        let id = accepted.job.as_deref().unwrap_or(&args.job);
        let class = &args.class;
        say(&format!(
            "{id} is {class} from now on; while it runs it keeps the class that it runs as"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Changes every member of arrays that is in a state for it, several at a time: they share a commit.
fn on_arrays(client: &Client, args: &JobsToChange, verb: JobVerb) -> Result<ExitCode, Failure> {
    let mut answers = Vec::new();
    for job in &args.jobs {
        let first = queue::array_of(client, job)?;
        let all = queue::listed(client, &format!("all=false&array={first}"))?;
        let members: Vec<&str> = all
            .iter()
            .filter(|member| verb.fits(&member.state))
            .map(|member| member.id.as_str())
            .collect();
        let one = |id: &&str| -> Result<Option<CommandAccepted>, Failure> {
            let path = format!("/v1/jobs/{}/{}", escape(id), verb.path());
            match client.post(&path, &new_key(), &Value::Null) {
                Ok(accepted) => Ok(Some(accepted)),
                // It has ended, or gone on, since the list was made.
                Err(failure) if failure.code == WRONG_STATE => Ok(None),
                Err(failure) => Err(failure),
            }
        };
        let some = |ids: &[&str]| ids.iter().map(one).collect::<Result<Vec<_>, _>>();
        let share = members.len().div_ceil(AT_ONCE).max(1);
        let told: Vec<_> = std::thread::scope(|scope| {
            let some = &some;
            let parts = members.chunks(share);
            let parts: Vec<_> = parts.map(|ids| scope.spawn(move || some(ids))).collect();
            let joined = parts.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined
                .map(|told| told.expect("a request does not panic"))
                .collect()
        });
        let before = answers.len();
        for part in told {
            answers.extend(part?.into_iter().flatten());
        }
        if !args.json {
            let changed = answers.len() - before;
            say(&format!("{changed} jobs of {first}: each {}", verb.done()));
        }
    }
    if args.json {
        render::json(&answers);
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes no new tasks on nodes, now or in a planned time, or takes them again.
pub(crate) fn drain(target: &Target, args: &DrainArgs) -> Result<ExitCode, Failure> {
    if let Some(span) = &args.span {
        return plan_maintenance(target, args, span);
    }
    let drained = json!({ "reason": args.reason });
    let (verb, body, said) = match &args.within {
        Some(span) => {
            let (body, said) = notice(args, duration("--within", span)?)?;
            ("notice", body, said)
        }
        None if args.undo => {
            let said = "is no longer drained: it takes tasks again while it is up";
            ("undrain", drained, said.to_owned())
        }
        None => {
            let said = "takes no new tasks; those it has run on";
            ("drain", drained, said.to_owned())
        }
    };
    let client = Client::new(target)?;
    let mut answers: Vec<CommandAccepted> = Vec::new();
    let mut refused = None;
    for node in &args.nodes {
        let path = format!("/v1/nodes/{}/{verb}", escape(node));
        match client.post(&path, &new_key(), &body) {
            Ok(accepted) => answers.push(accepted),
            Err(failure) => {
                refused = Some(failure);
                break;
            }
        }
        if !args.json {
            say(&format!("{node} {said}"));
        }
    }
    // What was carried out before a refusal is said all the same.
    if args.json {
        match (args.nodes.as_slice(), answers.as_slice()) {
            ([_], [one]) => render::json(one),
            _ => render::json(&answers),
        }
    }
    refused.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// What is sent where nodes are to be given back, and what is said of each.
fn notice(args: &DrainArgs, within: Millis) -> Result<(Value, String), Failure> {
    let known = NoticeCause::ALL.map(NoticeCause::name);
    if let Some(cause) = args.cause.as_deref().filter(|cause| !known.contains(cause)) {
        return Err(usage(
            format!("`--cause {cause}` is none that antiphon knows"),
            format!("give one of {}", known.join(", ")),
        ));
    }
    let body = json!({
        "gpus": args.gpus,
        "within_ms": within.as_millis(),
        "cause": args.cause,
        "reason": args.reason,
    });
    let what = match args.gpus {
        None => "is given back".to_owned(),
        Some(1) => "gives 1 GPU back".into(),
        Some(gpus) => format!("gives {gpus} GPUs back"),
    };
    let said = format!("{what} in {within}; what runs there saves a checkpoint before and leaves");
    Ok((body, said))
}

/// Plans a time in which nodes take no tasks.
fn plan_maintenance(target: &Target, args: &DrainArgs, span: &str) -> Result<ExitCode, Failure> {
    let from_ms = match args.at.as_deref() {
        None => now_ms(),
        Some(text) => moment(text)?,
    };
    let span = duration("--for", span)?;
    let until_ms = from_ms.saturating_add(span.as_millis());
    let body = json!({
        "nodes": args.nodes,
        "from_ms": from_ms,
        "until_ms": until_ms,
        "reason": args.reason,
    });
    let accepted: CommandAccepted =
        Client::new(target)?.post("/v1/maintenance", &new_key(), &body)?;
    if args.json {
        render::json(&accepted);
    } else {
        let verb = if args.nodes.len() == 1 {
            "takes"
        } else {
            "take"
        };
        say(&format!(
            "{} {verb} no tasks from {} to {}; what is there by then saves a checkpoint and leaves",
            args.nodes.join(", "),
            clock(from_ms),
            clock(until_ms)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// A time as people give it: with its offset, in this machine's own zone without one, or as a span from now.
fn moment(text: &str) -> Result<u64, Failure> {
    if let Some(from_now) = text.strip_prefix('+') {
        return Ok(now_ms().saturating_add(duration("--at", from_now)?.as_millis()));
    }
    let exact: Option<jiff::Timestamp> = text.parse().ok();
    let local = || {
        let local: jiff::civil::DateTime = text.parse().ok()?;
        jiff::tz::TimeZone::system().to_timestamp(local).ok()
    };
    let moment = exact.or_else(local);
    let ms = moment.and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
    ms.ok_or_else(|| {
        usage(
            format!("`--at {text}` is no time"),
            "give one like `2026-12-01T08:00` or `2026-12-01T08:00:00Z`, or a span from now like `+4h`".into(),
        )
    })
}

fn duration(option: &str, text: &str) -> Result<Millis, Failure> {
    text.parse().map_err(|error: UnitError| {
        let examples = error.examples;
        usage(
            format!("`{option} {text}` is no {}", error.what),
            format!("give a number with a unit like {examples}"),
        )
    })
}

/// A wrong option, told as every failure is.
fn usage(what: String, help: String) -> Failure {
    Failure::new(Exit::Usage, "", what).help(help)
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
