//! Measures a server of its own over a private state directory, on a free port: `antiphon up` with one node of 64 virtual
//! CPUs, or `antiphon serve` over a Slurm that somebody else has started.
//! Leaves no process and no file behind, also where it fails. Speaks to it as any client would, by HTTP alone.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use ureq::Agent;

use crate::figures::{Run, add_latencies, median};
use crate::{COMMAND, END_WAIT, Interrupted, Result, Size, latency_ms, machine, now_ns, steadily};

/// The program under test, built with the same profile as this one.
const ANTIPHON: &str = env!("CARGO_BIN_EXE_antiphon");

/// Connections that share a burst: as a few clients would, and enough to keep the server busy.
const CONNECTIONS: u32 = 4;

/// The longest wait for a server to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// What one run says.
pub(crate) struct Measured {
    pub(crate) submits: Run,
    pub(crate) restart: Run,
    /// Its state, to be removed after the last run: ext4 makes files slowly for minutes after many were removed.
    pub(crate) dir: tempfile::TempDir,
}

/// What starts the processes.
#[derive(Debug, Clone)]
pub(crate) enum Engine {
    /// This machine.
    Local,
    /// The Slurm with this configuration.
    Slurm(PathBuf),
}

/// Measures once.
pub(crate) fn run(size: &Size, interrupted: &Interrupted) -> Result<Measured> {
    let mut submits = Run::from([("load", machine::load())]);
    let mut server = Server::start(size, Engine::Local, interrupted)?;

    let ends = server.watch()?;
    let mut sent = Vec::new();
    let mut accepted = Vec::new();
    let client = server.client();
    steadily(size, interrupted, |number| {
        let at = now_ns()?;
        let begin = Instant::now();
        let job = client.submit(&format!("steady-{number}"), 0)?;
        accepted.push(begin.elapsed().as_secs_f64() * 1e3);
        sent.push((at, job));
        Ok(())
    })?;
    ends.wait(sent.len(), interrupted)?;
    let latencies: Result<Vec<f64>> = sent
        .iter()
        .map(|(at, job)| latency_ms(*at, &client.output(job)?))
        .collect();
    add_latencies(&mut submits, latencies?);
    submits.insert("accepted_p50_ms", median(accepted));

    let mut by_command = Vec::new();
    for number in 0..size.commands {
        interrupted.check()?;
        let file = server.path().join("job.json");
        let name = format!("command-{number}");
        fs::write(&file, job_file(&name, 0).to_string())?;
        let at = now_ns()?;
        let done = server
            .command()
            .arg("submit")
            .arg(&file)
            .stdout(Stdio::piped())
            .output()?;
        let job = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        ends.wait(sent.len() + by_command.len() + 1, interrupted)?;
        by_command.push(latency_ms(at, &client.output(&job)?)?);
    }
    submits.insert("command_p50_ms", median(by_command));

    let Burst {
        submitted_s,
        ended_s,
    } = server.burst(size.burst, 0, interrupted)?;
    let jobs = f64::from(size.burst);
    submits.insert("submits_per_s", jobs / submitted_s);
    submits.insert("jobs_per_s", jobs / ended_s);

    let events = server.events()?;
    server.kill()?;
    let answer_ms = server.start_again(interrupted)?;
    Ok(Measured {
        submits,
        restart: Run::from([("answer_ms", answer_ms), ("events", events as f64)]),
        dir: server.stop(),
    })
}

/// Seconds in which this many jobs of one GPU each, submitted at once, have run through antiphon on a Slurm.
pub(crate) fn burst_on_slurm(
    size: &Size,
    conf: PathBuf,
    jobs: u32,
    interrupted: &Interrupted,
) -> Result<f64> {
    let server = Server::start(size, Engine::Slurm(conf), interrupted)?;
    let burst = server.burst(jobs, 1, interrupted)?;
    drop(server.stop());
    Ok(burst.ended_s)
}

/// How long a burst took from its first submit.
struct Burst {
    submitted_s: f64,
    ended_s: f64,
}

fn job_file(name: &str, gpus: u32) -> Value {
    json!({"name": name, "resources": {"gpus": gpus}, "run": {"command": COMMAND, "workdir": "/"}})
}

/// A server and everything it has started.
struct Server {
    child: Child,
    engine: Engine,
    url: String,
    token: String,
    /// Removed last. `None` only after `stop`.
    dir: Option<tempfile::TempDir>,
}

impl Server {
    fn start(size: &Size, engine: Engine, interrupted: &Interrupted) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("bench-local-")
            .tempdir_in(&size.dir)?;
        fs::write(
            dir.path().join("cluster.toml"),
            "[[partition]]\nname = \"bench\"\nnodes = [{ names = \"n1\", gpus = 0, cpus = 64 }]\n",
        )?;
        if let Engine::Slurm(conf) = &engine {
            let config = dir.path().join("antiphon");
            fs::create_dir(&config)?;
            let conf = conf.display();
            let text = format!("[backend.slurm]\nconf = \"{conf}\"\npartitions = [\"general\"]\n");
            fs::write(config.join("antiphon.toml"), text)?;
        }
        let child = up(dir.path(), &engine)?;
        let mut server = Self {
            child,
            engine,
            url: String::new(),
            token: String::new(),
            dir: Some(dir),
        };
        server.wait(interrupted)?;
        Ok(server)
    }

    fn path(&self) -> &Path {
        let dir = self.dir.as_ref();
        dir.expect("it is taken when the server is stopped").path()
    }

    /// Stops everything, and leaves the state to the caller.
    fn stop(mut self) -> tempfile::TempDir {
        self.end();
        self.dir.take().expect("a server is stopped once")
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Every job of a measurement ends by itself within milliseconds; these are the supervisors of one cut short.
        for pid in self.left() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Waits until the server answers.
    fn wait(&mut self, interrupted: &Interrupted) -> Result<()> {
        let state = self.path().join("state");
        let pause = Duration::from_millis(1);
        interrupted.poll("the first answer of the server", ANSWER_WAIT, pause, || {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("the server ended at once: {status}").into());
            }
            let (Ok(address), Ok(token)) = (
                fs::read_to_string(state.join("address")),
                fs::read_to_string(state.join("token")),
            ) else {
                return Ok(None);
            };
            self.url = format!("http://{}", address.trim());
            self.token = token.trim().to_owned();
            let answered = self.client().get("/v1/jobs?limit=1");
            Ok(answered.is_ok().then_some(()))
        })
    }

    /// Kills it as a crash would.
    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts it over the same state; milliseconds from the start of the process to its first answer.
    fn start_again(&mut self, interrupted: &Interrupted) -> Result<f64> {
        fs::remove_file(self.path().join("state/address"))?;
        let begin = Instant::now();
        self.child = up(self.path(), &self.engine)?;
        self.wait(interrupted)?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    }

    /// Submits so many jobs at once, and waits until all of them have ended.
    fn burst(&self, jobs: u32, gpus: u32, interrupted: &Interrupted) -> Result<Burst> {
        let ends = self.watch()?;
        let begin = Instant::now();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..CONNECTIONS)
                .map(|first| {
                    let client = self.client();
                    scope.spawn(move || -> Result<()> {
                        for number in (first..jobs).step_by(CONNECTIONS as usize) {
                            interrupted.check()?;
                            client.submit(&format!("burst-{number}"), gpus)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| "a client panicked")?)
        })?;
        let submitted_s = begin.elapsed().as_secs_f64();
        let last = ends.wait(jobs as usize, interrupted)?;
        Ok(Burst {
            submitted_s,
            ended_s: (last - begin).as_secs_f64(),
        })
    }

    fn events(&self) -> Result<u64> {
        let status = self.client().get("/v1/status")?;
        Ok(status["seq"].as_u64().ok_or("the status names no `seq`")?)
    }

    fn command(&self) -> Command {
        command(self.path())
    }

    fn client(&self) -> Client {
        let config = Agent::config_builder()
            .proxy(None)
            .timeout_global(Some(ANSWER_WAIT))
            .build();
        Client {
            agent: config.into(),
            url: self.url.clone(),
            token: format!("Bearer {}", self.token),
        }
    }

    /// Counts jobs that end from now on.
    fn watch(&self) -> Result<Ends> {
        let agent: Agent = Agent::config_builder().proxy(None).build().into();
        let stream = agent
            .get(format!("{}/v1/events", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .call()?
            .into_body()
            .into_reader();
        let ends = Ends::default();
        let counted = ends.clone();
        // Ends with the stream, which ends with the server.
        thread::spawn(move || {
            let lines = BufReader::new(stream)
                .lines()
                .map_while(std::io::Result::ok);
            for line in lines {
                let Some(data) = line
                    .strip_prefix("data:")
                    .filter(|data| data.contains("settle"))
                else {
                    continue;
                };
                counted.count(&serde_json::from_str(data).unwrap_or(Value::Null));
            }
        });
        Ok(ends)
    }

    /// Processes that were started for tasks and have outlived the server, as they are meant to.
    fn left(&self) -> Vec<Pid> {
        let mine = self.path().to_string_lossy().into_owned();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let of_mine = |pid: &i32| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&mine))
        };
        pids.filter(of_mine).filter_map(Pid::from_raw).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.dir.is_some() {
            self.end();
        }
    }
}

fn command(dir: &Path) -> Command {
    let mut command = Command::new(ANTIPHON);
    for name in [
        "ANTIPHON_URL",
        "ANTIPHON_TOKEN",
        "ANTIPHON_LISTEN",
        "ANTIPHON_LOG",
    ] {
        command.env_remove(name);
    }
    command
        .env("ANTIPHON_STATE_DIR", dir.join("state"))
        .env("XDG_CONFIG_HOME", dir)
        .stdin(Stdio::null());
    command
}

fn up(dir: &Path, engine: &Engine) -> Result<Child> {
    let log: PathBuf = dir.join("server.log");
    let log = fs::OpenOptions::new().create(true).append(true).open(log)?;
    let mut command = command(dir);
    match engine {
        Engine::Local => command
            .args(["up", "--cluster"])
            .arg(dir.join("cluster.toml")),
        Engine::Slurm(_) => command.arg("serve"),
    };
    Ok(command
        .args(["--allow-root", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?)
}

/// A connection that is kept.
struct Client {
    agent: Agent,
    url: String,
    token: String,
}

impl Client {
    fn get(&self, path: &str) -> Result<Value> {
        let mut answer = self
            .agent
            .get(format!("{}{path}", self.url))
            .header("authorization", &self.token)
            .call()?;
        Ok(answer.body_mut().read_json()?)
    }

    fn submit(&self, name: &str, gpus: u32) -> Result<String> {
        let mut answer = self
            .agent
            .post(format!("{}/v1/jobs", self.url))
            .header("authorization", &self.token)
            .header("idempotency-key", name)
            .send_json(job_file(name, gpus))?;
        let accepted: Value = answer.body_mut().read_json()?;
        let job = accepted["job"].as_str();
        Ok(job.ok_or("the answer to a submit names no job")?.to_owned())
    }

    fn output(&self, job: &str) -> Result<Vec<u8>> {
        let answer = self
            .agent
            .get(format!("{}/v1/jobs/{job}/output?offset=0", self.url))
            .header("authorization", &self.token)
            .call()?;
        let mut bytes = Vec::new();
        answer.into_body().into_reader().read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// How many jobs have ended, as a client sees it.
#[derive(Clone, Default)]
struct Ends {
    seen: Arc<(Mutex<Seen>, Condvar)>,
}

#[derive(Default)]
struct Seen {
    succeeded: usize,
    last: Option<Instant>,
    other: Option<String>,
}

impl Ends {
    fn count(&self, event: &Value) {
        let at = Instant::now();
        let mut seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        let actions = event["body"]["decision"]["actions"].as_array();
        for settled in actions
            .into_iter()
            .flatten()
            .filter_map(|action| action.get("settle"))
        {
            if settled["outcome"] == "succeeded" {
                seen.succeeded += 1;
                seen.last = Some(at);
            } else {
                seen.other = Some(settled.to_string());
            }
        }
        self.seen.1.notify_all();
    }

    /// Waits until so many jobs have succeeded, and says when the last of them did.
    fn wait(&self, jobs: usize, interrupted: &Interrupted) -> Result<Instant> {
        let what = format!("the end of {jobs} jobs");
        interrupted.poll(&what, END_WAIT, Duration::ZERO, || {
            let seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(other) = &seen.other {
                return Err(format!("a job did not succeed: {other}").into());
            }
            if seen.succeeded >= jobs {
                return Ok(seen.last);
            }
            let pause = Duration::from_millis(200);
            drop(self.seen.1.wait_timeout(seen, pause));
            Ok(None)
        })
    }
}
