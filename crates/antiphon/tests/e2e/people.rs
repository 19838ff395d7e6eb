//! A server that others reach: TLS, tokens, roles and secrets, as an operator, two users and a trainer meet them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use serde_json::Value;

use crate::server::{Server, python, root, wait};

/// Who signs the certificates of a test.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "the test's authority");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes a certificate for a host, its key and the authority's own.
    fn write(&self, dir: &Path, host: &str) {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.0).unwrap();
        fs::write(dir.join("server.pem"), signed.pem()).unwrap();
        fs::write(dir.join("server.key"), key.serialize_pem()).unwrap();
        fs::write(dir.join("ca.pem"), self.0.pem()).unwrap();
    }
}

struct Shared {
    server: Server,
    authority: Authority,
    host: String,
    url: String,
}

impl Shared {
    /// A server with TLS, and with two teams.
    fn start() -> Self {
        let mut server = Server::start();
        let address = fs::read_to_string(server.state_dir().join("address")).unwrap();
        let host = address.split(':').next().unwrap().to_owned();
        server.interrupt();
        let authority = Authority::new();
        let config = server.dir().join("config/antiphon");
        fs::create_dir_all(&config).unwrap();
        authority.write(&config, &host);
        let settings = "[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nca = \"ca.pem\"\n\
            [[team]]\nname = \"rlhf\"\n[[team]]\nname = \"eval\"\n";
        server.write("config/antiphon/antiphon.toml", settings);
        server.up();
        let url = fs::read_to_string(server.state_dir().join("address")).unwrap();
        assert_eq!(url, format!("https://{address}"));
        Self {
            server,
            authority,
            host,
            url,
        }
    }

    fn ca(&self) -> String {
        let ca = self.server.dir().join("config/antiphon/ca.pem");
        ca.display().to_string()
    }

    /// What somebody types on another machine: no state directory, no configuration, a token.
    fn away(&self, token: &str, arguments: &[&str]) -> Output {
        let elsewhere = self.server.dir().join("elsewhere");
        fs::create_dir_all(&elsewhere).unwrap();
        Command::new(env!("CARGO_BIN_EXE_antiphon"))
            .current_dir(self.server.dir())
            .env("XDG_CONFIG_HOME", &elsewhere)
            .env("XDG_STATE_HOME", &elsewhere)
            .env_remove("ANTIPHON_STATE_DIR")
            .env("ANTIPHON_URL", &self.url)
            .env("ANTIPHON_CA", self.ca())
            .env("ANTIPHON_TOKEN", token)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .args(arguments)
            .output()
            .unwrap()
    }

    fn ok(&self, token: &str, arguments: &[&str]) -> String {
        let output = self.away(token, arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "antiphon {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, token: &str, arguments: &[&str]) -> String {
        let output = self.away(token, arguments);
        assert!(!output.status.success(), "antiphon {arguments:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    fn token(&self, arguments: &[&str]) -> String {
        let all = [&["token", "create"], arguments].concat();
        self.server.ok(&all).trim().to_owned()
    }

    /// Everything that the server keeps on its disk, and that is not the tasks' own.
    fn kept(&self) -> Vec<u8> {
        let mut kept = Vec::new();
        let mut dirs = vec![self.server.state_dir()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    dirs.push(path);
                } else if !path.ends_with("output.log") {
                    kept.extend(fs::read(path).unwrap_or_default());
                }
            }
        }
        kept.extend(fs::read(self.server.log()).unwrap_or_default());
        kept
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    let mut windows = bytes.windows(text.len());
    windows.any(|window| window == text.as_bytes())
}

fn job(team: &str, name: &str, script: &str) -> String {
    format!(
        "name = \"{name}\"\nteam = \"{team}\"\n[resources]\ngpus = 1\n[run]\ncommand = [\"sh\", \"-c\", {script:?}]\n"
    )
}

#[test]
fn two_users_share_a_server_and_see_their_own() {
    let shared = Shared::start();
    let server = &shared.server;
    let ann = shared.token(&["ann", "--role", "member", "--team", "rlhf"]);
    let ben = shared.token(&["ben", "--role", "member", "--team", "eval"]);
    server.write("tune.toml", &job("rlhf", "tune", "sleep 600"));
    server.write("judge.toml", &job("eval", "judge", "sleep 600"));
    assert_eq!(shared.ok(&ann, &["submit", "tune.toml"]).trim(), "job-1");
    assert_eq!(shared.ok(&ben, &["submit", "judge.toml"]).trim(), "job-2");
    // The launch check goes over TLS as well: without it neither would run.
    server.wait_for("job-1", "running");
    server.wait_for("job-2", "running");

    let seen = |token: &str| -> Vec<String> {
        let list: Value = serde_json::from_str(&shared.ok(token, &["jobs", "--json"])).unwrap();
        let jobs = list["jobs"].as_array().unwrap().iter();
        jobs.map(|job| {
            format!(
                "{} {}",
                job["name"].as_str().unwrap(),
                job["user"].as_str().unwrap()
            )
        })
        .collect()
    };
    assert_eq!(seen(&ann), ["tune ann"]);
    assert_eq!(seen(&ben), ["judge ben"]);
    assert!(shared.refused(&ben, &["job", "tune"]).contains("AP0101"));
    assert!(
        shared
            .refused(&ben, &["cancel", "job-1"])
            .contains("AP0101")
    );
    assert!(shared.refused(&ben, &["logs", "job-1"]).contains("AP0101"));
    let other = shared.refused(&ben, &["submit", "tune.toml"]);
    assert!(
        other.contains("error[AP0843]") && other.contains("`ben` is no member of team `rlhf`"),
        "{other}"
    );
    assert!(shared.refused(&ann, &["pause"]).contains("AP0842"));
    assert!(shared.refused(&ann, &["token", "list"]).contains("AP0842"));

    let otto = shared.token(&["otto", "--role", "operator", "--expires", "30d"]);
    assert_eq!(seen(&otto).len(), 2);
    shared.ok(&otto, &["cancel", "job-2"]);
    server.wait_for("job-2", "canceled");
    let listed: Value = serde_json::from_str(&server.ok(&["token", "list", "--json"])).unwrap();
    let names = listed["tokens"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|token| token["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ann", "ben", "otto"]);

    server.ok(&["token", "revoke", "ann"]);
    let gone = shared.refused(&ann, &["jobs"]);
    assert!(
        gone.contains("error[AP0841]: the token `ann` was revoked"),
        "{gone}"
    );
    assert_eq!(
        server.state("job-1"),
        "running",
        "what was submitted runs on"
    );
    assert!(server.ok(&["token", "list"]).contains("revoked"));
    for secret in [&ann, &ben, &otto] {
        let kept = shared.kept();
        assert!(!holds(&kept, secret.trim_start_matches("antiphon-")));
    }
    let again = shared.token(&["ann", "--role", "viewer"]);
    assert_eq!(seen(&again).len(), 1);
    shared.ok(&otto, &["cancel", "job-1"]);
    server.wait_for("job-1", "canceled");
}

#[test]
fn a_client_sends_nothing_to_whom_it_does_not_believe() {
    let shared = Shared::start();
    let others = shared.server.write("others.pem", &Authority::new().0.pem());
    let client = |ca: Option<&str>, url: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command
            .env("XDG_CONFIG_HOME", shared.server.dir().join("elsewhere"))
            // The system's authorities, which do not know the test's.
            .env("SSL_CERT_FILE", &others)
            .env("ANTIPHON_TOKEN", "x")
            .args(["jobs", "--url", url]);
        command.env_remove("ANTIPHON_CA");
        if let Some(ca) = ca {
            command.args(["--ca", ca]);
        }
        let output = command.output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, error) = client(None, &shared.url);
    assert!(code == 1 && error.contains("AP0854"), "{code} {error}");
    let (_, error) = client(Some(&shared.ca()), &shared.url);
    assert!(
        error.contains("AP0502"),
        "believed, and the token refused: {error}"
    );
    let (code, error) = client(Some("/nowhere/ca.pem"), &shared.url);
    assert!(code == 2 && error.contains("AP0853"), "{code} {error}");
    // The authority is right and the name is not.
    let other = shared.url.replace(&shared.host, "localhost");
    let (_, error) = client(Some(&shared.ca()), &other);
    assert!(
        error.contains("AP0854") || error.contains("AP0405"),
        "{error}"
    );
    let plain = shared.url.replace("https", "http");
    let (code, error) = client(Some(&shared.ca()), &plain);
    assert!(
        code == 4 && error.contains("with `https://`"),
        "{code} {error}"
    );
}

#[test]
fn a_certificate_is_replaced_while_jobs_run_and_a_broken_one_is_not_taken() {
    let mut shared = Shared::start();
    let config = shared.server.dir().join("config/antiphon");
    let hangup = |server: &Server, told: &str| {
        let pid = i32::try_from(server.pid()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        let log = || fs::read_to_string(server.log()).unwrap();
        wait(told, || log().contains(told), log);
    };
    fs::write(config.join("server.key"), "no key").unwrap();
    hangup(&shared.server, "the old one is kept");
    shared.server.ok(&["jobs"]);
    shared.authority.write(&config, &shared.host);
    hangup(&shared.server, "the certificate was read again");
    shared.server.ok(&["jobs"]);
    // One that is for somebody else would lock every task out: it is no start.
    shared.server.interrupt();
    shared.authority.write(&config, "other.example");
    let output = shared.server.up_command().output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("error[AP0851]") && error.contains(&shared.host),
        "{error}"
    );
    assert_eq!(output.status.code(), Some(6));
}

#[test]
fn a_trainer_reports_over_tls() {
    let shared = Shared::start();
    let server = &shared.server;
    let trainer = root().join("crates/antiphon/tests/e2e/trainer.py");
    let command = [
        python(),
        trainer.display().to_string(),
        "20".into(),
        "5".into(),
    ];
    let text = format!(
        "name = \"train\"\nteam = \"rlhf\"\n[resources]\ngpus = 1\n[run]\ncommand = {}\n[run.environment]\nPYTHONPATH = \"{}\"\n[checkpoint]\ndir = \"ckpt\"\n",
        serde_json::to_string(&command).unwrap(),
        root().join("python").display(),
    );
    let path = server.write("train.toml", &text);
    server.ok(&["submit", &path]);
    server.wait_for("job-1", "succeeded");
    let job = server.job("job-1");
    assert_eq!(job["checkpoint"]["step"], 20, "{job:#}");
}

#[test]
fn a_secret_reaches_the_task_and_nothing_else() {
    let shared = Shared::start();
    let server = &shared.server;
    let path = server.write("key", "hunter2-of-ann\n");
    let text = |reference: &str| {
        let script = "printf %s \"$KEY\" | tr a-z A-Z";
        job("rlhf", "secret", script) + &format!("[run.secrets]\nKEY = {reference:?}\n")
    };
    server.write("job.toml", &text(&format!("file:{path}")));
    let ann = shared.token(&["ann", "--role", "member", "--team", "rlhf"]);
    shared.ok(&ann, &["submit", "job.toml"]);
    server.wait_for("job-1", "succeeded");
    assert_eq!(shared.ok(&ann, &["logs", "job-1"]), "HUNTER2-OF-ANN");
    assert!(
        !shared
            .ok(&ann, &["job", "job-1", "--json"])
            .contains("hunter2")
    );
    assert!(
        !holds(&shared.kept(), "hunter2"),
        "it is on no disk but its own"
    );
    // Nor is it repeated where it stands in place of a reference.
    server.write("job.toml", &text("hunter2-of-ann"));
    let refused = shared.refused(&ann, &["submit", "job.toml"]);
    assert!(
        refused.contains("AP0855") && !refused.contains("hunter2"),
        "{refused}"
    );
    server.write("job.toml", &text("env:PATH"));
    let refused = shared.refused(&ann, &["submit", "job.toml"]);
    assert!(
        refused.contains("AP0856") && refused.contains("does not offer"),
        "{refused}"
    );
}
