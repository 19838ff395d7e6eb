//! Where things are, and the configuration file: flag over environment over file over default.

mod notify;
pub(crate) mod slurm;
mod team;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use antiphon_server::{Exporters, Limits, NotifyConfig, TlsFiles};
use antiphon_types::{GatePolicy, Policy, TeamSpec};
use serde::Deserialize;

use crate::cli::{Exit, Target};
use crate::failure::Failure;

pub(crate) use team::in_words_of;

/// Where a server listens if nobody says otherwise.
pub(crate) const LISTEN: &str = "127.0.0.1:7440";
/// Virtual GPUs of a machine without real ones: as many as the usual node has.
const VIRTUAL_GPUS: u32 = 8;

/// `antiphon.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    listen: Option<SocketAddr>,
    advertise: Option<String>,
    tls: TlsSettings,
    limits: Limits,
    state_dir: Option<PathBuf>,
    cluster: Option<PathBuf>,
    topology: Option<PathBuf>,
    virtual_gpus: Option<u32>,
    secrets: BTreeSet<String>,
    policy: Policy,
    gate: GatePolicy,
    metrics: MetricsFile,
    telemetry: TelemetryFile,
    dcgm: Option<DcgmFile>,
    webhook: Vec<notify::WebhookFile>,
    mail: Vec<notify::MailFile>,
    team: Vec<team::TeamFile>,
    backend: Backends,
    /// Where paths of the file count from.
    #[serde(skip)]
    beside: PathBuf,
}

/// `[metrics]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MetricsFile {
    open_to_loopback: bool,
}

/// `[telemetry]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TelemetryFile {
    otlp: Option<String>,
}

/// `[dcgm]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DcgmFile {
    url: String,
    #[serde(default)]
    hosts: BTreeMap<String, String>,
}

/// `[backend.*]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Backends {
    slurm: Option<slurm::SlurmFile>,
}

/// `[tls]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TlsSettings {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
}

impl Settings {
    /// Reads `$XDG_CONFIG_HOME/antiphon/antiphon.toml`, if it is there.
    pub(crate) fn read() -> Result<Self, Failure> {
        let Some(path) =
            home("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("antiphon/antiphon.toml"))
        else {
            return Ok(Self::default());
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => {
                let what = format!("the configuration `{}` cannot be read", path.display());
                return Err(Failure::new(Exit::Usage, "AP0206", what).why(error.to_string()));
            }
        };
        let mut settings = Self::from_text(&text).map_err(|why| {
            let what = format!("the configuration `{}` is wrong", path.display());
            Failure::new(Exit::Usage, "AP0206", what)
                .why(why)
                .help("correct it, or move it away to run with the defaults")
        })?;
        // Paths in a file count from the file.
        let beside = path.parent().unwrap_or(Path::new("/"));
        settings.beside = beside.to_owned();
        settings.cluster = settings.cluster.map(|cluster| beside.join(cluster));
        settings.topology = settings.topology.map(|file| beside.join(file));
        settings.state_dir = settings.state_dir.map(|dir| beside.join(dir));
        let TlsSettings {
            certificate,
            key,
            ca,
        } = &mut settings.tls;
        for path in [certificate, key, ca].into_iter().flatten() {
            *path = beside.join(&*path);
        }
        if let Some(slurm) = &mut settings.backend.slurm {
            slurm.count_from(beside);
        }
        Ok(settings)
    }

    /// Reads the text of one.
    pub(crate) fn from_text(text: &str) -> Result<Self, String> {
        let settings: Self =
            toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
        // A team that cannot be read is found before a server is asked to take it.
        settings.read_teams().map(|_| settings)
    }

    fn read_teams(&self) -> Result<Vec<TeamSpec>, String> {
        self.team.iter().map(team::TeamFile::spec).collect()
    }

    pub(crate) fn listen(&self, flag: Option<SocketAddr>) -> SocketAddr {
        flag.or(self.listen)
            .unwrap_or_else(|| LISTEN.parse().expect("the default is an address"))
    }

    /// Variables of the server's environment that jobs may have as secrets.
    pub(crate) fn secrets(&self) -> BTreeSet<String> {
        self.secrets.clone()
    }

    pub(crate) fn advertise(&self, flag: Option<String>) -> Option<String> {
        flag.or_else(|| self.advertise.clone())
    }

    pub(crate) const fn limits(&self) -> Limits {
        self.limits
    }

    /// The certificates of the authority that vouches for the server.
    pub(crate) fn ca(&self, target: &Target) -> Option<PathBuf> {
        let given = target.ca.clone();
        let given = given.filter(|path| !path.as_os_str().is_empty());
        // Tasks start elsewhere: they are told where it lies in whole.
        let given = given.or_else(|| self.tls.ca.clone())?;
        Some(std::path::absolute(&given).unwrap_or(given))
    }

    /// The server's certificate, where it has one.
    pub(crate) fn tls(
        &self,
        target: &Target,
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> Result<Option<TlsFiles>, Failure> {
        let certificate = certificate.or_else(|| self.tls.certificate.clone());
        let key = key.or_else(|| self.tls.key.clone());
        let ca = self.ca(target);
        let missing = match (certificate, key) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => {
                return Ok(Some(TlsFiles {
                    certificate,
                    key,
                    ca,
                }));
            }
            (Some(_), None) => "a certificate is given without its key",
            (None, Some(_)) => "a key is given without its certificate",
        };
        Err(Failure::new(Exit::Usage, "AP0850", missing).help(
            "give both: `--certificate FILE --key FILE`, or `certificate` and `key` in `[tls]`",
        ))
    }

    pub(crate) fn cluster(&self, flag: Option<PathBuf>) -> Option<PathBuf> {
        flag.or_else(|| self.cluster.clone())
    }

    pub(crate) fn virtual_gpus(&self, flag: Option<u32>) -> u32 {
        flag.or(self.virtual_gpus).unwrap_or(VIRTUAL_GPUS)
    }

    pub(crate) fn topology(&self, flag: Option<PathBuf>) -> Option<PathBuf> {
        flag.or_else(|| self.topology.clone())
    }

    /// `[backend.slurm]`, where it is there.
    pub(crate) const fn slurm(&self) -> Option<&slurm::SlurmFile> {
        self.backend.slurm.as_ref()
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy.clone()
    }

    pub(crate) fn gate(&self) -> GatePolicy {
        self.gate.clone()
    }

    /// Whether `/metrics` is read without a token.
    pub(crate) const fn metrics_open(&self) -> bool {
        self.metrics.open_to_loopback
    }

    /// Who is told what happens.
    pub(crate) fn notify(&self) -> Result<NotifyConfig, Failure> {
        let hooks = self.webhook.iter().map(|hook| hook.read(&self.beside));
        let mails = self.mail.iter().map(notify::MailFile::read);
        let read = || {
            Ok(NotifyConfig {
                webhooks: hooks.collect::<Result<_, String>>()?,
                mails: mails.collect::<Result<_, String>>()?,
            })
        };
        read().map_err(|why: String| {
            let what = "the configuration names somebody who cannot be told what happens";
            Failure::new(Exit::Usage, "AP0890", what)
                .why(why)
                .help("correct `[[webhook]]` or `[[mail]]` in `antiphon.toml`")
        })
    }

    /// Where DCGM exporters answer.
    pub(crate) fn exporters(&self) -> Result<Option<Exporters>, Failure> {
        let Some(DcgmFile { url, hosts }) = &self.dcgm else {
            return Ok(None);
        };
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            let what = "the configuration names exporters that cannot be asked";
            return Err(Failure::new(Exit::Usage, "AP0876", what)
                .why(format!("`url` of `[dcgm]` is `{url}`"))
                .help(
                    "give one like `http://{node}:9400/metrics`; `{node}` stands for each node",
                ));
        }
        Ok(Some(Exporters {
            url: url.clone(),
            hosts: hosts.clone(),
        }))
    }

    /// Where spans are posted, if anywhere: the standard variables, then the file.
    pub(crate) fn traces_to(&self) -> Option<String> {
        let said = |name| std::env::var(name).ok().filter(|url| !url.is_empty());
        if let Some(exactly) = said("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            return Some(exactly);
        }
        let base = said("OTEL_EXPORTER_OTLP_ENDPOINT").or_else(|| self.telemetry.otlp.clone())?;
        Some(format!("{}/v1/traces", base.trim_end_matches('/')))
    }

    pub(crate) fn teams(&self) -> Vec<TeamSpec> {
        self.read_teams().expect("read with the file")
    }

    pub(crate) fn state_dir(&self, target: &Target) -> Result<PathBuf, Failure> {
        let given = target
            .state_dir
            .clone()
            .filter(|dir| !dir.as_os_str().is_empty())
            .or_else(|| self.state_dir.clone());
        let dir = given.or_else(|| Some(home("XDG_STATE_HOME", ".local/state")?.join("antiphon")));
        let dir = dir.ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                "AP0206",
                "there is no place for the state directory",
            )
            .why("neither XDG_STATE_HOME nor HOME is set")
            .help("give one with `--state-dir DIR`")
        })?;
        Ok(std::path::absolute(&dir).unwrap_or(dir))
    }
}

fn home(variable: &str, below: &str) -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set(variable).or_else(|| Some(set("HOME")?.join(below)))
}

#[cfg(test)]
mod tests {
    use antiphon_types::{Class, GpuAmount, GpuTime, Millis};

    use super::*;

    #[test]
    fn teams_have_quotas_limits_and_budgets_in_all_or_by_type() {
        let settings = Settings::from_text(
            r#"
            [[team]]
            name = "research"
            weight = 3
            quota = 64
            [[team]]
            name = "rlhf"
            parent = "research"
            quota = { all = 32, "H100-SXM-80GB" = 16 }
            limit = { "*" = 96.5 }
            budget = { "*" = "1000h", "H100-SXM-80GB" = "500h" }
            [[team]]
            name = "eval"
            budget = "20h"
            "#,
        )
        .unwrap();
        let teams = settings.teams();
        let [research, rlhf, eval] = teams.as_slice() else {
            panic!("{teams:?}");
        };
        assert_eq!(research.weight, 3);
        assert_eq!(research.quota.all, Some(GpuAmount::from_gpus(64)));
        assert!(research.limit.is_empty() && research.budget.is_empty());
        assert_eq!((rlhf.parent.as_deref(), rlhf.weight), (Some("research"), 1));
        assert_eq!(rlhf.quota.all, Some(GpuAmount::from_gpus(32)));
        let h100 = "H100-SXM-80GB";
        assert_eq!(rlhf.quota.by_type[h100], GpuAmount::from_gpus(16));
        assert_eq!(rlhf.limit.all, Some(GpuAmount::from_thousandths(96_500)));
        assert_eq!(rlhf.budget[h100], GpuTime::from_gpu_millis(500 * 3_600_000));
        assert_eq!(eval.budget["*"], GpuTime::from_gpu_millis(20 * 3_600_000));
    }

    #[test]
    fn the_policy_reads_milliseconds_and_keeps_what_is_not_named() {
        let settings = Settings::from_text(
            r#"
            [policy]
            checkpoint_wait_ms_max = 5000
            usage_half_life_ms = 3600000
            node_check = ["/opt/check", "--quick"]
            gpu_weight_permille = { A100 = 500 }
            [policy.promote_after_ms]
            best-effort = 60000
            "#,
        )
        .unwrap();
        let policy = settings.policy();
        assert_eq!(policy.checkpoint_wait_ms_max, Millis::from_secs(5));
        assert_eq!(policy.usage_half_life_ms, Millis::from_secs(3_600));
        assert_eq!(policy.node_check, ["/opt/check", "--quick"]);
        assert_eq!(policy.gpu_weight_permille["A100"], 500);
        let promote = policy.promote_after_ms;
        assert_eq!(promote.of(Class::BestEffort), Millis::from_secs(60));
        assert_eq!(
            promote.of(Class::Service),
            Policy::default().promote_after_ms.service
        );
        assert_eq!(policy.jobs_max, Policy::default().jobs_max);
        assert!(settings.teams().is_empty());
    }

    #[test]
    fn the_gate_is_on_unless_it_is_switched_off() {
        let gate = |text| Settings::from_text(text).unwrap().gate();
        assert_eq!(gate(""), GatePolicy::default());
        assert!(gate("").enabled);
        let off = gate("[gate]\nenabled = false\ncheckpoint_ms_max = 60000");
        assert!(!off.enabled);
        assert_eq!(off.checkpoint_ms_max, Millis::from_secs(60));
        let why = Settings::from_text("[gate]\nenable = true").unwrap_err();
        assert!(why.contains("unknown field `enable`"), "{why}");
    }

    #[test]
    fn wrong_settings_say_what_could_stand_there() {
        for (text, expected) in [
            (
                "[[team]]\nname = \"a\"\nquota = -1",
                "`quota` of team `a`: -1 is no number of GPUs: give one like `64`, in thousandths at the finest",
            ),
            (
                "[[team]]\nname = \"a\"\nbudget = \"1000\"",
                "`budget` of team `a`: `1000` is no GPU-time: give GPU-hours a week, like `1000h`",
            ),
        ] {
            assert_eq!(Settings::from_text(text).unwrap_err(), expected);
        }
        for (text, part) in [
            (
                "[[team]]\nname = \"a\"\nquota = \"64\"",
                "expected a number of GPUs like `64`, or a table",
            ),
            (
                "[[team]]\nname = \"a\"\nbudget = 7",
                "expected GPU-hours a week like `1000h`, or a table",
            ),
            ("[[team]]\nname = \"a\"\nqota = 1", "unknown field `qota`"),
            ("[[team]]\nquota = 1", "missing field `name`"),
            (
                "[policy.promote_after_ms]\nbest_effort = 1",
                "unknown field `best_effort`",
            ),
        ] {
            let why = Settings::from_text(text).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
