//! A server of its own for each test, in a directory of its own, and the commands that a person would type at it.
//! Ends what it started, also where the test fails.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A machine under load is slow, not wrong; past this something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    dir: TempDir,
    /// Kept over restarts, since running jobs know it.
    listen: String,
    /// `up` or `serve`.
    verb: &'static str,
    options: Vec<String>,
    /// Where its server finds programs, in front of the usual places.
    programs: Option<PathBuf>,
    child: Option<Child>,
}

/// An address that no other test uses: all of 127.0.0.0/8 is this machine, so each server gets one of its own.
fn own_address() -> String {
    static SERVERS: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id() << 6 | SERVERS.fetch_add(1, Ordering::Relaxed) & 0x3f;
    let [_, a, b, c] = own.to_be_bytes();
    format!("127.{a}.{b}.{c}:7440")
}

impl Server {
    /// A running server with eight virtual GPUs on one node.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(options: &[&str]) -> Self {
        Self::start_as("up", "", options, None)
    }

    /// A running server over this machine, with this configuration.
    pub(crate) fn up_with(configuration: &str) -> Self {
        Self::start_as("up", configuration, &[], None)
    }

    /// A running server over a cluster, with this configuration.
    pub(crate) fn serve(configuration: &str, options: &[&str]) -> Self {
        Self::start_as("serve", configuration, options, None)
    }

    /// The same, with these programs in front of the usual ones.
    pub(crate) fn serve_with(programs: &Path, configuration: &str, options: &[&str]) -> Self {
        let programs = Some(programs.to_owned());
        Self::start_as("serve", configuration, options, programs)
    }

    fn start_as(
        verb: &'static str,
        configuration: &str,
        options: &[&str],
        programs: Option<PathBuf>,
    ) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("antiphon-e2e-")
            .tempdir()
            .unwrap();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self {
            dir,
            listen: own_address(),
            verb,
            options,
            programs,
            child: None,
        };
        if !configuration.is_empty() {
            let config = server.dir().join("config/antiphon");
            fs::create_dir_all(&config).unwrap();
            fs::write(config.join("antiphon.toml"), configuration).unwrap();
        }
        server.up();
        server
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir().join("state")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command
            .current_dir(self.dir())
            .env_remove("ANTIPHON_URL")
            .env_remove("ANTIPHON_TOKEN")
            .env("ANTIPHON_STATE_DIR", self.state_dir())
            .env("XDG_CONFIG_HOME", self.dir().join("config"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    /// The command that starts the server, for tests that expect it to fail.
    pub(crate) fn up_command(&self) -> Command {
        let mut command = self.command();
        command
            .args([self.verb, "--listen", &self.listen])
            .args(&self.options);
        if rustix::process::geteuid().is_root() {
            command.arg("--allow-root");
        }
        if let Some(programs) = &self.programs {
            let path = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{}:{path}", programs.display()));
        }
        command
    }

    /// Starts the server again over the same state, and waits until it answers.
    pub(crate) fn up(&mut self) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())
            .unwrap();
        let mut child = self
            .up_command()
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        // Its first line says that it listens; the rest goes to the log.
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        assert!(first.contains("listens on"), "{first}{}", rest(&mut lines));
        std::thread::spawn(move || std::io::copy(&mut lines, &mut { log }));
        self.child = Some(child);
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir().join("server.log")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Ends the server as a power cut of its process would.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Asks the server to stop, as Ctrl-C does.
    pub(crate) fn interrupt(&mut self) {
        let mut child = self.child.take().unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert!(child.wait().unwrap().success());
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// Runs a command that has to succeed, and returns its standard output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "antiphon {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that has to be refused, and returns its exit code and standard error.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "antiphon {arguments:?} succeeded");
        assert!(!error.contains("panicked"), "{error}");
        let error = error.replace(&self.dir().display().to_string(), "DIR");
        let error = error.replace(&std::env::var("PATH").unwrap(), "PATH");
        format!("exit {}\n{error}", output.status.code().unwrap())
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let mut arguments = arguments.to_vec();
        arguments.push("--json");
        serde_json::from_str(&self.ok(&arguments)).unwrap()
    }

    /// Writes a file beside the state.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.dir().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Submits a job that runs a line of shell, and returns its id.
    pub(crate) fn submit(&self, name: &str, head: &str, script: &str) -> String {
        let command = serde_json::to_string(&["sh", "-c", script]).unwrap();
        let text = format!("name = \"{name}\"\n{head}\n[run]\ncommand = {command}\n");
        let path = self.write(&format!("{name}.toml"), &text);
        self.ok(&["submit", &path]).trim().to_owned()
    }

    pub(crate) fn job(&self, job: &str) -> Value {
        self.json(&["job", job])
    }

    pub(crate) fn state(&self, job: &str) -> String {
        self.job(job)["summary"]["state"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    pub(crate) fn wait_for(&self, job: &str, state: &str) {
        wait(
            &format!("{job} to be {state}"),
            || self.state(job) == state,
            || {
                let log = fs::read_to_string(self.log()).unwrap_or_default();
                format!("{:#}\n{log}", self.job(job))
            },
        );
    }

    /// The server's digest of its state, and the digest of what the log replays to.
    pub(crate) fn digests(&self) -> (String, String) {
        let url = fs::read_to_string(self.state_dir().join("address")).unwrap();
        let token = fs::read_to_string(self.state_dir().join("token")).unwrap();
        loop {
            let live = get(&url, "/v1/digest", &token);
            let audit = self.json(&["audit"]);
            let again = get(&url, "/v1/digest", &token);
            // Compared only where nothing was logged in between.
            if live["seq"] == again["seq"] && live["seq"] == audit["events"] {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                return (text(&live["digest"]), text(&audit["digest"]));
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Jobs outlive servers, by design; tests do not leave them behind. Again, for what was being forked.
        for _ in 0..3 {
            for pid in processes_with(&format!("ANTIPHON_TASK_DIR={}", self.dir().display())) {
                let _ = kill_process(pid, Signal::KILL);
            }
            for pid in supervisors_in(self.dir()) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

fn rest(lines: &mut impl BufRead) -> String {
    let mut rest = String::new();
    let _ = lines.read_to_string(&mut rest);
    rest
}

/// Processes whose environment holds this text.
pub(crate) fn processes_with(text: &str) -> Vec<Pid> {
    processes(|proc| fs::read(proc.join("environ")).is_ok_and(|bytes| contains(&bytes, text)))
}

/// Supervisors of tasks under a directory.
pub(crate) fn supervisors_in(dir: &Path) -> Vec<Pid> {
    let text = format!("supervise\0{}", dir.display());
    processes(|proc| fs::read(proc.join("cmdline")).is_ok_and(|bytes| contains(&bytes, &text)))
}

fn processes(matches: impl Fn(&Path) -> bool) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let own = i32::try_from(std::process::id()).unwrap();
    entries
        .filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .parse()
                .ok()
                .map(|pid: i32| (pid, entry.path()))
        })
        .filter(|(pid, path)| *pid != own && matches(path))
        .filter_map(|(pid, _)| Pid::from_raw(pid))
        .collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

/// Waits until something is so.
pub(crate) fn wait(what: &str, mut ready: impl FnMut() -> bool, else_say: impl Fn() -> String) {
    let begun = Instant::now();
    while !ready() {
        assert!(
            begun.elapsed() < PATIENCE,
            "waited {PATIENCE:?} for {what}\n{}",
            else_say()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One GET, as any HTTP client would send it.
pub(crate) fn get(address: &str, path: &str, token: &str) -> Value {
    let (status, body) = request(
        address,
        "GET",
        path,
        &[("authorization", &format!("Bearer {token}"))],
        "",
    );
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// One request; returns status and body.
pub(crate) fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let url = format!("http://{}{path}", address.trim());
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .build();
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let agent: ureq::Agent = config.into();
    let mut response = agent.run(request.body(body.to_owned()).unwrap()).unwrap();
    (
        response.status().as_u16(),
        response.body_mut().read_to_string().unwrap(),
    )
}

/// A Python that can import the trainer's package: the one that the Makefile set up, else the machine's own.
pub(crate) fn python() -> String {
    std::env::var("ANTIPHON_TEST_PYTHON").unwrap_or_else(|_| "python3".into())
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}
