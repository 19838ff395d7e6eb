//! The lock of a state directory: one writing process at a time. It says nothing about who may lead: that is the fence.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::StoreError;

/// Holds `DIR/lock` until it is dropped or the process ends, however it ends.
///
/// The file is never removed: a process that waited on the removed one and a process that made a new one would both hold
/// "the" lock.
pub struct DirLock {
    _file: File,
}

impl DirLock {
    /// Takes the lock and writes into it who holds it.
    ///
    /// # Errors
    /// Where another process holds it, or the file cannot be written.
    pub fn take(dir: &Path) -> Result<Self, StoreError> {
        let doing = "lock the state directory";
        let failed = |error| StoreError::from_io(dir, doing, error);

        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            // Until the lock is ours, the text belongs to its holder.
            .truncate(false)
            .mode(0o600)
            .open(dir.join("lock"))
            .map_err(failed)?;

        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => (),
            Err(Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // An unreadable text costs the message its pid, nothing more.
                let _ = file.read_to_string(&mut text);
                return Err(StoreError::Locked {
                    dir: dir.to_owned(),
                    pid: pid_in(&text),
                });
            }
            Err(errno) => return Err(failed(errno.into())),
        }

        file.set_len(0).map_err(failed)?;
        file.write_all(holder().as_bytes()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// Names this process. The start tells it from a later process with the same pid; it is in clock ticks since boot, as in
/// `/proc/PID/stat`, and left out where there is no such file.
fn holder() -> String {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses and may hold anything; the start is the 20th after it.
    let start = stat
        .rsplit_once(") ")
        .and_then(|(_, fields)| fields.split(' ').nth(19));
    match start {
        Some(start) => format!("pid {}\nstart {start}\n", std::process::id()),
        None => format!("pid {}\n", std::process::id()),
    }
}

fn pid_in(text: &str) -> Option<u32> {
    text.lines()
        .find_map(|line| line.strip_prefix("pid "))
        .and_then(|pid| pid.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_file_names_its_holder_and_when_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = DirLock::take(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("lock")).unwrap();
        assert_eq!(pid_in(&text), Some(std::process::id()));
        if cfg!(target_os = "linux") {
            let start = text
                .lines()
                .nth(1)
                .and_then(|line| line.strip_prefix("start "));
            assert!(start.unwrap().parse::<u64>().unwrap() > 0, "{text}");
        }
    }

    #[test]
    fn holder_that_has_not_said_who_it_is_still_locks() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = DirLock::take(dir.path()).unwrap();
        std::fs::write(dir.path().join("lock"), "").unwrap();
        let error = DirLock::take(dir.path()).err().unwrap();
        assert!(
            matches!(error, StoreError::Locked { pid: None, .. }),
            "{error}"
        );
    }
}
