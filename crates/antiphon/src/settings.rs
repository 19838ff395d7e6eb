//! Where things are, and the configuration file: flag over environment over file over default.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use antiphon_types::Policy;
use serde::Deserialize;

use crate::cli::{Exit, Target};
use crate::failure::Failure;

/// Where a server listens if nobody says otherwise.
pub(crate) const LISTEN: &str = "127.0.0.1:7440";
/// Virtual GPUs of a machine without real ones: as many as the usual node has.
const VIRTUAL_GPUS: u32 = 8;

/// `antiphon.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    listen: Option<SocketAddr>,
    state_dir: Option<PathBuf>,
    cluster: Option<PathBuf>,
    virtual_gpus: Option<u32>,
    policy: Policy,
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
        let mut settings: Self = toml::from_str(&text).map_err(|error| {
            let what = format!("the configuration `{}` is wrong", path.display());
            Failure::new(Exit::Usage, "AP0206", what)
                .why(error.to_string().trim().to_owned())
                .help("correct it, or move it away to run with the defaults")
        })?;
        // Paths in a file count from the file.
        let beside = path.parent().unwrap_or(Path::new("/"));
        settings.cluster = settings.cluster.map(|cluster| beside.join(cluster));
        settings.state_dir = settings.state_dir.map(|dir| beside.join(dir));
        Ok(settings)
    }

    pub(crate) fn listen(&self, flag: Option<SocketAddr>) -> SocketAddr {
        flag.or(self.listen)
            .unwrap_or_else(|| LISTEN.parse().expect("the default is an address"))
    }

    pub(crate) fn cluster(&self, flag: Option<PathBuf>) -> Option<PathBuf> {
        flag.or_else(|| self.cluster.clone())
    }

    pub(crate) fn virtual_gpus(&self, flag: Option<u32>) -> u32 {
        flag.or(self.virtual_gpus).unwrap_or(VIRTUAL_GPUS)
    }

    pub(crate) const fn policy(&self) -> Policy {
        self.policy
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
