//! The check of a node before a command is started there: a program of the operator's, with the task's own variables. Says
//! what it found; whether the node is put aside is the kernel's to decide.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use antiphon_types::Exit;
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, WaitStatus, wait};

use super::super::classify::{evidence, printable};
use super::super::task_dir::{NodeCheck, TaskDir, TaskFile};
use super::{Signals, UNSTARTABLE_CHARS, note, signal_all, spawn, tail};

/// How long processes of a check are killed before they are left behind. One that hangs in the driver of a broken GPU
/// cannot be ended at all, and that is what the check is to find.
const KILLING: Duration = Duration::from_secs(5);
const KILL_PAUSE: Duration = Duration::from_millis(20);

/// How a check went.
enum Checked {
    Ended(WaitStatus),
    /// It had not ended in time.
    Late,
    /// The attempt was stopped meanwhile.
    Stopped(Exit),
}

/// Why the command must not be started on this node, if so. Leaves no process of the check that can be ended.
pub(super) fn unfit(task: &TaskFile, dir: &TaskDir, signals: &Signals) -> io::Result<Option<Exit>> {
    let Some(check) = &task.node_check else {
        return Ok(None);
    };
    let output = dir.check_log();
    let main = match spawn(&check.command, "/", &task.environment, &output) {
        Ok(main) => main,
        // Says nothing about the node: a misspelled check would put every node aside.
        Err(error) => {
            let error = printable(&format!("check of the node: {error}"), UNSTARTABLE_CHARS);
            return Ok(Some(Exit::NotLaunched { error }));
        }
    };
    Ok(match watch(main, check, signals)? {
        Checked::Stopped(exit) => Some(exit),
        Checked::Ended(status) if status.exit_status() == Some(0) => None,
        Checked::Ended(status) => {
            let how = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => format!("ended by signal {signal}"),
                (None, None) => format!("status {status:?}"),
            };
            let found = last_line(&output).unwrap_or_else(|| named(check, &how));
            Some(Exit::Unfit { evidence: found })
        }
        Checked::Late => {
            let how = format!("not ended after {}", check.limit);
            let found = named(check, &how);
            Some(Exit::Unfit { evidence: found })
        }
    })
}

/// Waits until no process of the check is left, or none that can be ended.
fn watch(main: i32, check: &NodeCheck, signals: &Signals) -> io::Result<Checked> {
    let give_up = Instant::now() + Duration::from_millis(check.limit.as_millis());
    let mut checked = None;
    let mut killing_since: Option<Instant> = None;
    loop {
        let left = loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == main => {
                    checked.get_or_insert(Checked::Ended(status));
                }
                Ok(Some(_)) | Err(Errno::INTR) => (),
                Ok(None) => break true,
                Err(Errno::CHILD) => break false,
                Err(error) => return Err(error.into()),
            }
        };
        let now = Instant::now();
        if checked.is_none() {
            let stopped = signals.stopped_before_the_start().map(Checked::Stopped);
            checked = stopped.or((now >= give_up).then_some(Checked::Late));
        }
        let Some(verdict) = checked.take() else {
            signals.wait(Some(give_up - now));
            continue;
        };
        // What it leaves behind must not run beside the command, and holds the GPUs.
        let since = *killing_since.get_or_insert(now);
        if !left {
            return Ok(verdict);
        }
        if now >= since + KILLING {
            note("processes of the node's check cannot be ended and are left behind");
            return Ok(verdict);
        }
        checked = Some(verdict);
        signal_all(Signal::KILL);
        signals.wait(Some(KILL_PAUSE));
    }
}

fn last_line(output: &Path) -> Option<String> {
    let tail = tail(output).unwrap_or_else(|error| {
        note(&format!("cannot read the output of the check: {error}"));
        Vec::new()
    });
    // Whatever a line may say about memory or data: only the last one is wanted.
    let text = String::from_utf8_lossy(&tail);
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(evidence(last))
}

/// `nvidia-smi: exit code 6`.
fn named(check: &NodeCheck, how: &str) -> String {
    let program = check.command.first().map_or("", String::as_str);
    evidence(&format!("{program}: {how}"))
}
