//! The server that is measured, as a process of its own: real server, log and jobs; a backend without processes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use antiphon_backends::fake::{FakeBackend, Manners};
use antiphon_server::{Limits, Over, ServerConfig, TOKEN_FILE, start};
use antiphon_types::{AttemptId, Bytes, NodeSpec, Policy};
use serde_json::{Value, json};

use crate::Result;
use crate::client::{Client, request};

const GPUS_PER_NODE: u32 = 8;
/// Far above what the jobs take to run.
const PATIENCE: Duration = Duration::from_secs(60);

/// One job that reports.
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) token: String,
}

/// The other process.
pub(crate) struct Host {
    pub(crate) listen: SocketAddr,
    pub(crate) jobs: Vec<Job>,
    pub(crate) user: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    _dir: tempfile::TempDir,
}

/// What the server used up.
pub(crate) struct Used {
    pub(crate) peak_rss_bytes: u64,
    pub(crate) cpu_s: f64,
}

impl Host {
    /// Starts a server under which so many jobs run.
    pub(crate) fn start(jobs: u32, tasks: u32) -> Result<Self> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let mut child = Command::new(std::env::current_exe()?)
            .args([
                "--jobs",
                &jobs.to_string(),
                "--tasks",
                &tasks.to_string(),
                "--host",
            ])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no output")?);
        let ready = line(&mut stdout)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let jobs = ready["jobs"].as_array().ok_or("no jobs")?.iter();
        let jobs = jobs.map(|job| Job {
            id: text(&job["id"]),
            attempt: job["attempt"].as_u64().unwrap_or(0) as u32,
            token: text(&job["token"]),
        });
        Ok(Self {
            listen: text(&ready["listen"]).parse()?,
            jobs: jobs.collect(),
            user: text(&ready["user"]),
            child,
            stdin,
            stdout,
            _dir: dir,
        })
    }

    /// Signals that the server has counted, over all jobs.
    pub(crate) fn counted(&self) -> Result<u64> {
        let mut client = Client::connect(self.listen)?;
        let mut counted = 0;
        for job in &self.jobs {
            let path = format!("/v1/jobs/{}", job.id);
            let (status, body) = client.exchange(&request("GET", &path, &self.user, b""))?;
            let shown: Value = serde_json::from_slice(body)?;
            let count = shown["signals"]["count"].as_u64();
            counted +=
                count.ok_or_else(|| format!("{} shows no signals (status {status})", job.id))?;
        }
        Ok(counted)
    }

    /// Ends the server.
    pub(crate) fn stop(mut self) -> Result<Used> {
        drop(self.stdin.take());
        let used = line(&mut self.stdout)?;
        self.child.wait()?;
        Ok(Used {
            peak_rss_bytes: used["peak_rss_bytes"].as_u64().ok_or("no memory figure")?,
            cpu_s: used["cpu_s"].as_f64().ok_or("no processor figure")?,
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(from: &mut BufReader<ChildStdout>) -> Result<Value> {
    let mut text = String::new();
    if from.read_line(&mut text)? == 0 {
        return Err("the server ended early".into());
    }
    Ok(serde_json::from_str(&text)?)
}

/// Is the server, until its input ends.
pub(crate) fn serve(dir: &Path, jobs: u32, tasks: u32) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let backend = Arc::new(FakeBackend::new(nodes(jobs, tasks), Manners::Obedient));
        let started = start(ServerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            plain_to_others: false,
            advertise: None,
            limits: Limits::default(),
            state_dir: dir.to_owned(),
            gate: antiphon_types::GatePolicy::default(),
            metrics_open_to_loopback: false,
            exporters: None,
            notify: antiphon_server::NotifyConfig::default(),
            policy: Policy::default(),
            teams: Vec::new(),
            over: Over::Drives {
                backend: backend.clone(),
                partitions: Vec::new(),
                resources: std::collections::BTreeMap::new(),
            },
            user: "someone".into(),
        })
        .await?;
        let listen = started.listen;
        let user = std::fs::read_to_string(dir.join(TOKEN_FILE))?
            .trim()
            .to_owned();
        let ready = tokio::task::spawn_blocking({
            let user = user.clone();
            move || launch(&backend, listen, &user, jobs, tasks)
        });
        let ready = ready.await??;
        print(&json!({ "listen": listen.to_string(), "user": user, "jobs": ready }))?;
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().lines().count());
        let before = processor_s()?;
        started
            .run_until(async {
                let _ = ended.await;
            })
            .await?;
        print(&json!({ "peak_rss_bytes": peak_rss_bytes()?, "cpu_s": processor_s()? - before }))
    })
}

fn nodes(jobs: u32, tasks: u32) -> Vec<NodeSpec> {
    let count = jobs * tasks.div_ceil(GPUS_PER_NODE);
    (0..count)
        .map(|number| NodeSpec {
            name: format!("n{number:05}").as_str().into(),
            gpus: GPUS_PER_NODE,
            gpu_type: "H100".into(),
            cpus: 128,
            memory: Bytes::new(1 << 40),
            ..NodeSpec::default()
        })
        .collect()
}

/// Submits the jobs, waits until they run, and returns by what each may speak.
fn launch(
    backend: &FakeBackend,
    to: SocketAddr,
    user: &str,
    jobs: u32,
    tasks: u32,
) -> Result<Vec<Value>> {
    let mut client = Client::connect(to)?;
    let mut ids = Vec::new();
    for number in 0..jobs {
        let file = json!({
            "name": format!("load-{number}"),
            "resources": { "gpus": tasks },
            "run": { "command": ["train"], "workdir": "/" },
        });
        let body = serde_json::to_vec(&file)?;
        let (status, answer) = client.exchange(&request("POST", "/v1/jobs", user, &body))?;
        let answer: Value = serde_json::from_slice(answer)?;
        let id = answer["job"]
            .as_str()
            .ok_or_else(|| format!("status {status}: {answer}"))?;
        ids.push(id.to_owned());
    }
    let until = Instant::now() + PATIENCE;
    let mut ready = Vec::new();
    for id in ids {
        let attempt: AttemptId = format!("{id}.1").parse()?;
        let token = loop {
            let launch = backend.launched(attempt);
            if let Some(token) =
                launch.and_then(|launch| launch.environment.get("ANTIPHON_JOB_TOKEN").cloned())
            {
                break token;
            }
            if Instant::now() > until {
                return Err(format!("{id} did not start within {PATIENCE:?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        ready.push(json!({ "id": id, "attempt": 1, "token": token }));
    }
    Ok(ready)
}

fn print(line: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn peak_rss_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line
        .ok_or("no VmHWM")?
        .trim()
        .trim_end_matches(" kB")
        .parse()?;
    Ok(kib << 10)
}

/// Processor time of this process so far, in seconds.
fn processor_s() -> Result<f64> {
    // Fields 14 and 15 after the command's name, which is in parentheses and may hold spaces; ticks of 10 ms on Linux.
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, rest) = stat.rsplit_once(')').ok_or("no stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(ticks as f64 / 100.0)
}
