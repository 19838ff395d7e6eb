//! Measures Slurm in the same way: a private cluster of one node with 64 made-up CPUs, the same command, the same clock.
//! Tunes nothing beyond `slurm-up`, whose configuration answers sooner than Slurm's own defaults.

use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::antiphon;
use crate::figures::{Run, add_latencies, median};
use crate::{COMMAND, END_WAIT, Interrupted, Result, Size, latency_ms, machine, now_ns, steadily};

/// Processes that share a burst, as many as the other side has connections.
const SUBMITTERS: u32 = 4;

/// The longest that the cluster may take to come up, with its packages to install.
const UP_WAIT: Duration = Duration::from_secs(300);

/// The clusters that are measured.
const ONE_NODE: [&str; 6] = ["--nodes", "1", "--gpus", "0", "--cpus", "64"];
const EIGHT_NODES: [&str; 8] = ["--nodes", "8", "--gpus", "8", "--cpus", "64", "--leaf", "4"];

/// What `slurm-up` exits with where there can be no cluster.
const SKIPPED: i32 = 77;

/// What one run says.
pub(crate) enum Measured {
    Figures(Run),
    /// Why there is no Slurm here.
    Skipped(String),
}

/// Measures once.
pub(crate) fn run(size: &Size, interrupted: &Interrupted) -> Result<Measured> {
    let mut cluster = match Cluster::start(&ONE_NODE, interrupted)? {
        Ok(cluster) => cluster,
        Err(reason) => return Ok(Measured::Skipped(reason)),
    };
    let mut figures = Run::from([("load", machine::load())]);

    let mut sent = Vec::new();
    let mut accepted = Vec::new();
    steadily(size, interrupted, |_| {
        let at = now_ns()?;
        let begin = Instant::now();
        let job = cluster.submit(&[])?;
        accepted.push(begin.elapsed().as_secs_f64() * 1e3);
        sent.push((at, job));
        Ok(())
    })?;
    cluster.wait(sent.len(), interrupted)?;
    let latencies: Result<Vec<f64>> = sent
        .iter()
        .map(|(at, job)| latency_ms(*at, &fs::read(cluster.out.join(job))?))
        .collect();
    add_latencies(&mut figures, latencies?);
    figures.insert("accepted_p50_ms", median(accepted));

    let mut attended = Vec::new();
    for _ in 0..size.commands {
        interrupted.check()?;
        let at = now_ns()?;
        let done = cluster.command("srun").arg("-n1").args(COMMAND).output()?;
        attended.push(latency_ms(at, &done.stdout)?);
    }
    figures.insert("srun_p50_ms", median(attended));

    let (submitted, all) = cluster.burst(size.burst, &[], interrupted)?;
    figures.insert("submits_per_s", f64::from(size.burst) / submitted);
    figures.insert("jobs_per_s", f64::from(size.burst) / all);
    cluster.stop();
    Ok(Measured::Figures(figures))
}

/// Seconds in which jobs of one GPU each have run, through antiphon and by `sbatch`, on one and the same cluster.
pub(crate) fn beside_antiphon(size: &Size, interrupted: &Interrupted) -> Result<Measured> {
    let mut cluster = match Cluster::start(&EIGHT_NODES, interrupted)? {
        Ok(cluster) => cluster,
        Err(reason) => return Ok(Measured::Skipped(reason)),
    };
    let jobs = size.burst;
    let mut figures = Run::from([("load", machine::load())]);
    let conf = cluster.root.join("etc/slurm.conf");
    // Plain Slurm before and after: what slows the machine down for a while then meets both.
    let (_, before) = cluster.burst(jobs, &["--gres=gpu:1"], interrupted)?;
    let through = antiphon::burst_on_slurm(size, conf, jobs, interrupted)?;
    let (_, after) = cluster.burst(jobs, &["--gres=gpu:1"], interrupted)?;
    let plain = f64::midpoint(before, after);
    figures.insert("antiphon_jobs_per_s", f64::from(jobs) / through);
    figures.insert("sbatch_jobs_per_s", f64::from(jobs) / plain);
    figures.insert("added_percent", (through / plain - 1.0) * 100.0);
    cluster.stop();
    Ok(Measured::Figures(figures))
}

/// A cluster of its own.
struct Cluster {
    root: PathBuf,
    out: PathBuf,
    up: bool,
    /// Removed last.
    _dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts it; the inner error says why there can be none.
    fn start(
        size: &[&str],
        interrupted: &Interrupted,
    ) -> Result<std::result::Result<Self, String>> {
        // Not in the build directory: paths of unix sockets have to be short.
        let dir = tempfile::Builder::new().prefix("slurm-").tempdir()?;
        let (root, out) = (dir.path().join("c"), dir.path().join("out"));
        fs::create_dir(&out)?;
        let cluster = Self {
            root,
            out,
            up: true,
            _dir: dir,
        };
        let mut starting = script("slurm-up")
            .arg(&cluster.root)
            .args(size)
            .arg("--port")
            .arg(free_port()?.to_string())
            // Ctrl-C is for this program, which then stops the cluster.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let status = bounded(&mut starting, interrupted)?;
        let mut said = String::new();
        // Only of a start that failed: daemons that run may hold the pipe open.
        if !status.success()
            && let Some(mut stdout) = starting.stdout.take()
        {
            stdout.read_to_string(&mut said)?;
        }
        let reason = said.lines().find_map(|line| line.strip_prefix("skipped: "));
        match (status.code(), reason) {
            (Some(0), _) => Ok(Ok(cluster)),
            (Some(SKIPPED), Some(reason)) => Ok(Err(reason.to_owned())),
            _ => Ok(Err(format!("slurm-up failed ({status})"))),
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("SLURM_CONF", self.root.join("etc/slurm.conf"))
            .current_dir("/")
            .stdin(Stdio::null());
        command
    }

    /// Submits so many jobs at once, and waits until all have ended: seconds until the last was accepted, and had ended.
    fn burst(&self, jobs: u32, with: &[&str], interrupted: &Interrupted) -> Result<(f64, f64)> {
        let before = self.ended()?;
        let begin = Instant::now();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..SUBMITTERS)
                .map(|first| {
                    scope.spawn(move || -> Result<()> {
                        for _ in (first..jobs).step_by(SUBMITTERS as usize) {
                            interrupted.check()?;
                            self.submit(with)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| "a submitter panicked")?)
        })?;
        let submitted = begin.elapsed().as_secs_f64();
        self.wait(before + jobs as usize, interrupted)?;
        Ok((submitted, begin.elapsed().as_secs_f64()))
    }

    fn submit(&self, with: &[&str]) -> Result<String> {
        let done = self
            .command("sbatch")
            .args(["--parsable", "-n1", "-c1"])
            .args(with)
            .arg("--output")
            .arg(self.out.join("%j"))
            .arg("--wrap")
            .arg(format!("exec {}", COMMAND.join(" ")))
            .output()?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(format!("sbatch failed: {said}").into());
        }
        Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    }

    /// How many jobs have ended: lines of the completion log, which costs the controller nothing to be asked.
    fn ended(&self) -> Result<usize> {
        match fs::read(self.root.join("log/jobcomp.txt")) {
            Ok(lines) => Ok(lines.iter().filter(|byte| **byte == b'\n').count()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn wait(&self, jobs: usize, interrupted: &Interrupted) -> Result<()> {
        let what = format!("the end of {jobs} Slurm jobs");
        interrupted.poll(&what, END_WAIT, Duration::from_millis(10), || {
            Ok((self.ended()? >= jobs).then_some(()))
        })
    }

    fn stop(&mut self) {
        if std::mem::take(&mut self.up) {
            let _ = script("slurm-down")
                .arg(&self.root)
                .arg("--purge")
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

fn script(name: &str) -> Command {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/backends");
    Command::new(dir.join(name))
}

/// Waits for a process; ends it where it takes too long or the measurement is interrupted.
fn bounded(child: &mut Child, interrupted: &Interrupted) -> Result<std::process::ExitStatus> {
    let pause = Duration::from_millis(20);
    let ended = interrupted.poll("the start of Slurm", UP_WAIT, pause, || {
        Ok(child.try_wait()?)
    });
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    ended
}

/// A port that is free, as are those from eleven further on: `slurm-up` gives them to its nodes.
fn free_port() -> Result<u16> {
    let free = |port: &u16| {
        let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        bind(*port) && (11..19).all(|node| bind(port + node))
    };
    let found = (16_817..17_817).step_by(20).find(free);
    Ok(found.ok_or("no free port for Slurm")?)
}
