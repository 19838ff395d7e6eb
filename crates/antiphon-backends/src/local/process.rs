//! Processes as `/proc` shows them: who lives, who descends from whom, who carries a task's mark. Keeps nothing
//! between calls, and never takes a failed look for a dead process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The variable that marks a task's processes with the directory of the task. The attempt's name alone would not do:
/// two servers on one machine both have a `job-1.1`.
pub(crate) const MARK: &str = "ANTIPHON_TASK_DIR";

/// A process, told apart from a later one that was given the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Clock ticks from the start of the machine to the start of the process.
    pub(crate) start_ticks: u64,
}

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: i32,
    start_ticks: u64,
    /// A zombie: its parent has not asked for its status yet, but it runs no more.
    ended: bool,
}

impl Process {
    /// The live process with this pid.
    pub(crate) fn find(pid: i32) -> io::Result<Option<Self>> {
        Ok(stat(pid)?
            .filter(|stat| !stat.ended)
            .map(|Stat { start_ticks, .. }| Self { pid, start_ticks }))
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(self) -> io::Result<bool> {
        Ok(Self::find(self.pid)? == Some(self))
    }

    /// Sends it a signal; does nothing where it is gone.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(());
        };
        let sent = match pidfd_open(pid, PidfdFlags::empty()) {
            // The descriptor holds on to one process. Its start time is compared after it was opened, so a process
            // that was given the pid in between is never hit.
            Ok(pidfd) if self.is_alive()? => pidfd_send_signal(&pidfd, signal),
            // Kernels before 5.3 have no such descriptors.
            Err(Errno::NOSYS) if self.is_alive()? => kill_process(pid, signal),
            Ok(_) | Err(Errno::NOSYS | Errno::SRCH) => Ok(()),
            Err(error) => Err(error),
        };
        match sent {
            Err(Errno::SRCH) => Ok(()),
            sent => Ok(sent?),
        }
    }
}

/// The name that the kernel gave to this start of the machine.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// Every live descendant of a process, which is not among them itself.
pub(crate) fn descendants(of: i32) -> io::Result<Vec<Process>> {
    // One reading is no snapshot: a process that forks while `/proc` is being read can have a child that the reading
    // missed. Two readings that agree are good enough for a polite signal; a SIGKILL is repeated until none is left.
    const READINGS_MAX: u32 = 5;
    let mut found = read_descendants(&[of])?;
    for _ in 1..READINGS_MAX {
        let again = read_descendants(&[of])?;
        if again == found {
            break;
        }
        found = again;
    }
    Ok(found.into_iter().collect())
}

/// Every live process that carries the mark of a task directory under `root`, with its descendants, by task directory.
pub(crate) fn marked(root: &Path) -> io::Result<BTreeMap<PathBuf, BTreeSet<Process>>> {
    let mut by_dir: BTreeMap<PathBuf, BTreeSet<Process>> = BTreeMap::new();
    for pid in pids()? {
        let Some(process) = Process::find(pid)? else {
            continue;
        };
        // Other users' processes cannot be read, and none of them is ours.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else {
            continue;
        };
        let mark = environment.split(|byte| *byte == 0).find_map(|entry| {
            let value = entry.strip_prefix(MARK.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(value).ok()
        });
        if let Some(dir) = mark
            .map(PathBuf::from)
            .filter(|dir| dir.starts_with(root) && process.is_alive().unwrap_or(true))
        {
            by_dir.entry(dir).or_default().insert(process);
        }
    }
    // A process that renames itself (inference servers do) may overwrite its environment; its parent still tells.
    for processes in by_dir.values_mut() {
        let carriers: Vec<i32> = processes.iter().map(|process| process.pid).collect();
        processes.extend(read_descendants(&carriers)?);
    }
    Ok(by_dir)
}

fn read_descendants(of: &[i32]) -> io::Result<BTreeSet<Process>> {
    let mut children: BTreeMap<i32, Vec<(i32, Stat)>> = BTreeMap::new();
    for pid in pids()? {
        if let Some(stat) = stat(pid)? {
            children.entry(stat.parent).or_default().push((pid, stat));
        }
    }
    let mut found = BTreeSet::new();
    let mut parents = of.to_vec();
    while let Some(parent) = parents.pop() {
        for (pid, stat) in children.remove(&parent).into_iter().flatten() {
            parents.push(pid);
            if !stat.ended {
                found.insert(Process {
                    pid,
                    start_ticks: stat.start_ticks,
                });
            }
        }
    }
    Ok(found)
}

fn pids() -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        if let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        {
            pids.push(pid);
        }
    }
    Ok(pids)
}

fn stat(pid: i32) -> io::Result<Option<Stat>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(text) => parse_stat(&String::from_utf8_lossy(&text))
            .map(Some)
            .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has an unknown form"))),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Reads fields 3, 4 and 22. The program's name in field 2 may hold spaces and parentheses: fields are counted from
/// the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    Some(Stat {
        parent: fields.next()?.parse().ok()?,
        start_ticks: fields.nth(17)?.parse().ok()?,
        ended: matches!(state, "Z" | "X"),
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_name_full_of_traps_does_not_shift_the_fields() {
        let line = "12 (a) b) Z 9) S 7 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2";
        assert_eq!(
            parse_stat(line).unwrap(),
            Stat {
                parent: 7,
                start_ticks: 98765,
                ended: false
            }
        );
        assert_eq!(parse_stat("12 (a"), None);
    }

    #[test]
    fn a_reused_pid_is_not_signaled() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let real = Process::find(pid).unwrap().unwrap();
        let earlier = Process {
            start_ticks: real.start_ticks - 1,
            ..real
        };
        assert!(!earlier.is_alive().unwrap());
        earlier.signal(Signal::KILL).unwrap();
        assert!(real.is_alive().unwrap());

        assert!(
            descendants(i32::try_from(std::process::id()).unwrap())
                .unwrap()
                .contains(&real)
        );
        real.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        real.signal(Signal::KILL).unwrap();
        assert!(!real.is_alive().unwrap());
    }
}
