//! A private Slurm for tests, started by `slurm-up` beside this file and stopped with the test. Included by path from the
//! tests of several crates, since a crate for it would be one that ships nothing.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

/// Set where tests may start a Slurm, which installs packages and needs root.
const ALLOWED: &str = "ANTIPHON_TEST_SLURM";

/// What `slurm-up` exits with where there can be no cluster.
const SKIPPED: i32 = 77;

/// A Slurm of its own.
#[derive(Debug)]
pub(crate) struct Cluster {
    root: PathBuf,
    /// Removed last.
    _dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts nodes `n1`.. with eight virtual GPUs of type `h100` each, `leaf` of them under a leaf; says on standard error
    /// why there is none.
    pub(crate) fn start(nodes: u32, leaf: u32) -> Option<Self> {
        let skipped = |why: &str| {
            eprintln!("skipped: {why}");
            None
        };
        if std::env::var_os(ALLOWED).is_none() {
            return skipped("a real Slurm is started by `make test-slurm` alone");
        }
        // Not in the build directory: paths of unix sockets have to be short.
        let dir = tempfile::Builder::new().prefix("slurm-").tempdir().unwrap();
        let cluster = Self {
            root: dir.path().join("c"),
            _dir: dir,
        };
        // Into a file: daemons that run hold a pipe open.
        let said = cluster._dir.path().join("up.out");
        let status = script("slurm-up")
            .arg(&cluster.root)
            .args(["--nodes", &nodes.to_string(), "--gpus", "8"])
            .args(["--leaf", &leaf.to_string()])
            .args(["--port", &free_port(nodes).to_string()])
            .stdin(Stdio::null())
            .stdout(fs::File::create(&said).unwrap())
            .status()
            .unwrap();
        let said = fs::read_to_string(said).unwrap();
        let reason = said.lines().find_map(|line| line.strip_prefix("skipped: "));
        match (status.code(), reason) {
            (Some(0), _) => Some(cluster),
            (Some(SKIPPED), Some(reason)) => skipped(reason),
            _ => panic!("slurm-up failed ({status}): {said}"),
        }
    }

    /// Its configuration.
    pub(crate) fn conf(&self) -> PathBuf {
        self.root.join("etc/slurm.conf")
    }

    /// One of Slurm's commands.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Output {
        Command::new(program)
            .env("SLURM_CONF", self.conf())
            .current_dir("/")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What one of Slurm's commands prints, which has to succeed.
    pub(crate) fn ok(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program, arguments);
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {output:?}"
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Sends a signal to one of its daemons: `slurmctld`, `slurmd-n1`.
    pub(crate) fn signal(&self, daemon: &str, signal: &str) {
        let pid = fs::read_to_string(self.root.join(format!("run/{daemon}.pid"))).unwrap();
        let status = Command::new("kill").args([signal, pid.trim()]).status();
        assert!(status.unwrap().success(), "kill {signal} {daemon}");
    }

    /// Whether the controller has written its jobs since then: what it has not, it does not know after a kill.
    #[allow(dead_code, reason = "not every suite kills the controller")]
    pub(crate) fn has_saved(&self, since: SystemTime) -> bool {
        let saved = fs::metadata(self.root.join("ctld/job_state")).and_then(|file| file.modified());
        saved.is_ok_and(|saved| saved > since)
    }

    /// Starts a daemon again that was killed.
    #[allow(
        clippy::zombie_processes,
        reason = "not every suite stops a daemon; one that is started again is ended with the cluster, by its pid"
    )]
    pub(crate) fn start_again(&self, daemon: &str) {
        let log = fs::File::create(self._dir.path().join(format!("{daemon}.again"))).unwrap();
        let conf = self.conf();
        let mut command = match daemon.strip_prefix("slurmd-") {
            None => Command::new("slurmctld"),
            Some(node) => {
                let mut command = Command::new("slurmd");
                command.args(["-N", node]);
                command
            }
        };
        let path = std::env::var("PATH").unwrap_or_default();
        let child = command
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .args(["-D", "-f"])
            .arg(conf)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let pid = self.root.join(format!("run/{daemon}.pid"));
        fs::write(pid, child.id().to_string()).unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A daemon that a test stopped does not hear of its end.
        for daemon in fs::read_dir(self.root.join("run"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let pid = fs::read_to_string(daemon.path()).unwrap_or_default();
            let _ = Command::new("kill")
                .args(["-CONT", pid.trim()])
                .stderr(Stdio::null())
                .status();
        }
        let _ = script("slurm-down")
            .arg(&self.root)
            .arg("--purge")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
    }
}

fn script(name: &str) -> Command {
    // Of whichever crate includes this: both lie two levels below.
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/backends");
    Command::new(dir.join(name))
}

/// A port that is free, as are those that `slurm-up` gives to its nodes.
fn free_port(nodes: u32) -> u16 {
    let nodes = u16::try_from(nodes).unwrap();
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    // Two tests that look at the same moment should not look at the same ports.
    let first = 17_000 + (std::process::id() % 50) as u16 * 100;
    (first..32_000)
        .step_by(100)
        .find(|port| bind(*port) && (1..=nodes).all(|node| bind(port + 10 + node)))
        .expect("some ports are free")
}
