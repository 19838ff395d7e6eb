//! The client's side of the HTTP API. Finds the server and the token, turns problems into failures; knows no commands.

use std::io::Read as _;
use std::time::Duration;

use antiphon_backends::trust;
use antiphon_server::api::model::Problem;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::Agent;
use ureq::http::Response;

use crate::cli::{Exit, Target};
use crate::failure::Failure;
use crate::render::{self, say};
use crate::settings::{LISTEN, Settings};

/// Answers larger than this are not antiphon's.
const BODY_BYTES_MAX: u64 = 256 << 20;

/// A connection to a server.
pub(crate) struct Client {
    agent: Agent,
    base: String,
    token: Option<String>,
}

/// A piece of a task's output.
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    pub(crate) attempt: String,
    pub(crate) offset: u64,
    pub(crate) ended: bool,
}

impl Client {
    /// Finds the server: flag or environment, else the address that a server left in the state directory.
    pub(crate) fn new(target: &Target) -> Result<Self, Failure> {
        let settings = Settings::read()?;
        let dir = settings.state_dir(target)?;
        let ca = settings.ca(target);
        let left = std::fs::read_to_string(dir.join("address")).ok();
        // A server that speaks TLS leaves a URL, another one its address.
        let left = left.as_deref().map_or(LISTEN, str::trim);
        let left = match left.contains("://") {
            true => left.to_owned(),
            false => format!("http://{left}"),
        };
        let base = target.url.clone().unwrap_or(left);
        let tls = trust::of_client(ca.as_deref()).map_err(|error| {
            Failure::new(Exit::Usage, "AP0853", error.to_string())
                .help("give a file with the authority's certificate in PEM with `--ca FILE` or ANTIPHON_CA")
        })?;
        let given = std::env::var("ANTIPHON_TOKEN")
            .ok()
            .filter(|token| !token.is_empty());
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .tls_config(tls)
            .proxy(None)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_global(Some(Duration::from_secs(60)))
            .build();
        Ok(Self {
            agent: config.into(),
            base: base.trim_end_matches('/').to_owned(),
            token: given.or_else(|| antiphon_server::read_token(&dir).ok()),
        })
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = request.call().map_err(|error| self.unreachable(&error))?;
        self.read(response)
    }

    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        key: &str,
        body: &Value,
    ) -> Result<T, Failure> {
        let mut request = self
            .agent
            .post(format!("{}{path}", self.base))
            .header("idempotency-key", key);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = request
            .send_json(body)
            .map_err(|error| self.unreachable(&error))?;
        self.read(response)
    }

    pub(crate) fn output(&self, job: &str, query: &str, offset: u64) -> Result<Output, Failure> {
        let url = format!(
            "{}/v1/jobs/{}/output?offset={offset}{query}",
            self.base,
            escape(job)
        );
        let mut request = self.agent.get(url);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = request.call().map_err(|error| self.unreachable(&error))?;
        if !response.status().is_success() {
            return self
                .read::<Value>(response)
                .map(|_| unreachable!("a problem is a failure"));
        }
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or("")
                .to_owned()
        };
        let (attempt, next, ended) = (
            header("antiphon-attempt"),
            header("antiphon-offset"),
            header("antiphon-ended"),
        );
        let mut bytes = Vec::new();
        let mut body = response.into_body().into_reader();
        body.read_to_end(&mut bytes)
            .map_err(|error| self.broken(&error.to_string()))?;
        Ok(Output {
            bytes,
            attempt,
            offset: next.parse().unwrap_or(offset),
            ended: ended == "true",
        })
    }

    fn read<T: DeserializeOwned>(&self, response: Response<ureq::Body>) -> Result<T, Failure> {
        let status = response.status();
        if let Some(now) = response.headers().get("antiphon-now") {
            render::go_by(now.to_str().ok().and_then(|now| now.parse().ok()));
        }
        let mut body = response.into_body();
        let text = body
            .with_config()
            .limit(BODY_BYTES_MAX)
            .read_to_string()
            .map_err(|error| self.broken(&error.to_string()))?;
        if status.is_success() {
            return serde_json::from_str(&text).map_err(|error| self.broken(&error.to_string()));
        }
        match serde_json::from_str::<Problem>(&text) {
            Ok(problem) => Err(problem.into()),
            Err(_) => Err(self.broken(&format!(
                "HTTP status {status} without an antiphon problem in it"
            ))),
        }
    }

    fn broken(&self, why: &str) -> Failure {
        let what = format!(
            "what listens at {} does not answer as antiphon does",
            self.base
        );
        Failure::new(Exit::Failed, "AP0408", what)
            .why(why)
            .help("choose the server with `--url`")
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        // What answers cannot show that it is the server: another kind of trouble than no answer, and no time mends it.
        if let Some(why) = distrust(error) {
            return Failure::new(
                Exit::Failed,
                "AP0854",
                format!("what answers at {} is not believed to be the server", self.base),
            )
            .why(why)
            .help("name the authority of its certificate with `--ca FILE` or ANTIPHON_CA, and the server as its certificate does with `--url`");
        }
        Failure::new(
            Exit::NoServer,
            "AP0405",
            format!("no antiphon server answers at {}", self.base),
        )
        .why(error.to_string())
        .help(match error {
            // What came back is no HTTP: most likely the beginning of TLS.
            ureq::Error::Protocol(_) if self.base.starts_with("http://") => {
                "if the server speaks TLS, give its URL with `https://`"
            }
            _ => "start one with `antiphon up`, or choose another with `--url`",
        })
    }
}

/// What is wrong with the certificate of what answered, if that is what went wrong.
fn distrust(error: &ureq::Error) -> Option<String> {
    match error {
        ureq::Error::Rustls(error) => Some(error.to_string()),
        ureq::Error::Tls(why) => Some((*why).to_owned()),
        // The handshake runs below what reads and writes.
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Some(error.to_string())
        }
        _ => None,
    }
}

/// Asks again while no server answers, since one that restarts is back in a moment and jobs run on meanwhile; a person who
/// has waited long enough presses Ctrl-C.
pub(crate) fn patiently<T>(mut ask: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let mut told = false;
    loop {
        match ask() {
            Err(failure) if failure.exit == Exit::NoServer => {
                if !told {
                    say(&format!(
                        "-- {}; waiting for it to come back, jobs run on",
                        failure.what
                    ));
                    told = true;
                }
                std::thread::sleep(Duration::from_secs(1));
            }
            answer => return answer,
        }
    }
}

/// Percent-encodes what a user typed, so that it stays one piece of a path.
pub(crate) fn escape(text: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// A new idempotency key.
pub(crate) fn new_key() -> String {
    let mut random = [0; 16];
    // Where the system has no randomness, time and pid keep keys of one machine apart.
    if getrandom::fill(&mut random).is_err() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_nanos());
        return format!("{}-{now}", std::process::id());
    }
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}
