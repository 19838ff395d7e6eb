//! `antiphon logs`: what a job's processes print, as it is, from one attempt to the next while it is followed.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use antiphon_server::api::model::JobDetail;

use crate::cli::{LogsArgs, Target};
use crate::client::{Client, Output, escape, patiently};
use crate::failure::Failure;
use crate::render::{print_bytes, say};

/// Pause between two looks while there is nothing new.
const PAUSE: Duration = Duration::from_millis(300);

/// Prints output.
pub(crate) fn logs(target: &Target, args: &LogsArgs) -> Result<ExitCode, Failure> {
    let client = Client::new(target)?;
    // The first question is not asked patiently: where no server runs, that is the answer.
    detail(&client, args)?;
    if args.follow && args.attempt.is_none() {
        wait_for_launch(&client, args)?;
    }
    let mut attempt = args.attempt;
    let mut offset = 0;
    loop {
        let piece = if args.follow {
            patiently(|| read(&client, args, attempt, offset))?
        } else {
            read(&client, args, attempt, offset)?
        };
        print_bytes(&piece.bytes);
        offset = piece.offset;
        if !piece.bytes.is_empty() {
            continue;
        }
        if !args.follow {
            return Ok(ExitCode::SUCCESS);
        }
        // Following without a number stays with one attempt until it has ended, then goes on to the next.
        let number = piece
            .attempt
            .rsplit_once('.')
            .and_then(|(_, number)| number.parse().ok());
        attempt = attempt.or(number);
        if piece.ended {
            if args.attempt.is_some() {
                return Ok(ExitCode::SUCCESS);
            }
            match next_attempt(&client, args, &piece)? {
                Some(next) => (attempt, offset) = (Some(next), 0),
                None => return Ok(ExitCode::SUCCESS),
            }
        }
        sleep(PAUSE);
    }
}

fn read(
    client: &Client,
    args: &LogsArgs,
    attempt: Option<u32>,
    offset: u64,
) -> Result<Output, Failure> {
    let attempt = attempt
        .map(|number| format!("&attempt={number}"))
        .unwrap_or_default();
    let task = args
        .task
        .as_ref()
        .map(|task| format!("&task={}", escape(task)))
        .unwrap_or_default();
    client.output(&args.job, &format!("{attempt}{task}"), offset)
}

fn detail(client: &Client, args: &LogsArgs) -> Result<JobDetail, Failure> {
    client.get(&format!("/v1/jobs/{}", escape(&args.job)))
}

fn is_ended(state: &str) -> bool {
    matches!(state, "succeeded" | "failed" | "canceled")
}

fn wait_for_launch(client: &Client, args: &LogsArgs) -> Result<(), Failure> {
    let mut told = String::new();
    loop {
        let job = patiently(|| detail(client, args))?.summary;
        if job.attempts > 0 || is_ended(&job.state) {
            return Ok(());
        }
        if told != job.reason {
            say(&format!("{} is {}: {}", job.id, job.state, job.reason));
            told = job.reason;
        }
        sleep(PAUSE);
    }
}

/// The number of the attempt after the one that ended, once there is one; none where the job has ended.
fn next_attempt(client: &Client, args: &LogsArgs, ended: &Output) -> Result<Option<u32>, Failure> {
    let number: u32 = ended
        .attempt
        .rsplit_once('.')
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or(0);
    let mut told = false;
    loop {
        let job = patiently(|| detail(client, args))?.summary;
        if job.attempts > number {
            say(&format!("-- {} goes on as attempt {}", job.id, number + 1));
            return Ok(Some(number + 1));
        }
        if is_ended(&job.state) {
            return Ok(None);
        }
        if !told && job.state == "pending" {
            say(&format!(
                "-- {} ended; {} is pending: {}",
                ended.attempt, job.id, job.reason
            ));
            told = true;
        }
        sleep(PAUSE);
    }
}
