//! A folder with a trace of its own for each test, and the binary called in it.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A machine under load is slow, not wrong; past this something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Bench {
    dir: TempDir,
}

impl Bench {
    /// With a trace `made-up.csv` of so many jobs, more than 64 GPUs hold at once.
    pub(crate) fn with_jobs(jobs: u64) -> Self {
        let mut text = String::from(
            "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n",
        );
        for job in 0..jobs {
            let gpus = [1, 2, 4, 8, 16][usize::try_from(job % 5).unwrap()];
            let (submit, duration) = (job * 60_000, 300_000 + job * 977_000 % 3_600_000);
            let _ = writeln!(text, "{job},{gpus},{submit},1,net,1,{duration},0,1,1,1,1,0");
        }
        let bench = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::write(bench.path("made-up.csv"), text).unwrap();
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command
            .current_dir(self.dir.path())
            .args(["simulate", "--trace", "made-up.csv"])
            .args(arguments);
        command
    }

    /// `antiphon simulate --trace made-up.csv ..`
    pub(crate) fn simulate(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The same, which must succeed; its standard output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.simulate(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, which must fail with this code of an error; its standard error.
    pub(crate) fn fails(&self, arguments: &[&str], code: &str) -> String {
        let output = self.simulate(arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(told.contains(&format!("error[{code}]")), "{told}");
        told
    }

    /// The same, going on beside the test.
    pub(crate) fn start(&self, arguments: &[&str]) -> Going {
        let child = self
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Going(child.unwrap())
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A command that goes on; killed where the test fails.
pub(crate) struct Going(Child);

impl Going {
    /// Presses Ctrl-C, as soon as it is listened to.
    pub(crate) fn interrupt(&self) {
        until("Ctrl-C is caught", || self.catches_interrupts());
        kill_process(self.pid(), Signal::INT).unwrap();
    }

    /// Reads what it says until a line has this in it; all that was read.
    pub(crate) fn says(&mut self, wanted: &str) -> Vec<String> {
        let told = self.0.stderr.as_mut().unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(told).lines() {
            lines.push(line.unwrap());
            if lines.last().is_some_and(|line| line.contains(wanted)) {
                return lines;
            }
        }
        panic!("it ended and never said `{wanted}`: {lines:?}");
    }

    /// SIGKILL.
    pub(crate) fn kill(&self) {
        kill_process(self.pid(), Signal::KILL).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Output {
        let child = std::mem::replace(&mut self.0, nothing());
        child.wait_with_output().unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn catches_interrupts(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap());
        caught.is_some_and(|mask| mask & 1 << (Signal::INT.as_raw() - 1) != 0)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that does nothing, in the place of one that is waited for.
fn nothing() -> Child {
    Command::new("true").spawn().unwrap()
}
