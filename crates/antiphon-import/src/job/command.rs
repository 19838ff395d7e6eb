//! Command lines that start a training: torchrun, accelerate and deepspeed say how many GPUs they need, and where they would look for
//! other nodes; antiphon says that itself.

use super::Origin;
use super::error::{JobError, JobProblem};
use super::form::{Gpus, Job, Resources, Run, job_name};
use super::keys::{self, Fate, Key, becomes, harmless, refused};
use crate::options::nearest_of;
use crate::place::{Place, short};
use crate::shell;
use crate::warning::{UnknownOption, Warning};

const TORCHRUN: &[Key] = &[
    becomes("nproc-per-node", "`gpus`, times nodes"),
    becomes("nnodes", "`tasks`; of `1:4` the most"),
    harmless("standalone", "kept"),
    harmless(
        "max-restarts",
        "kept; antiphon tries failed attempts again as well",
    ),
    harmless("monitor-interval", "kept"),
    harmless("start-method", "kept"),
    harmless("role", "kept"),
    harmless("module", "kept"),
    harmless("m", "kept"),
    harmless("no-python", "kept"),
    harmless("run-path", "kept"),
    harmless("log-dir", "kept"),
    harmless("redirects", "kept"),
    harmless("r", "kept"),
    harmless("tee", "kept"),
    harmless("t", "kept"),
    harmless("local-ranks-filter", "kept"),
    harmless("logs-specs", "kept"),
    harmless("local-addr", "kept"),
    harmless("numa-binding", "kept"),
    harmless("event-log-handler", "kept"),
    harmless("signals-to-handle", "kept"),
    harmless("duplicate-stdout-filters", "kept"),
    harmless("duplicate-stderr-filters", "kept"),
    harmless("use-agent-store", "kept"),
    harmless("use-env", "kept"),
    harmless(
        "node-rank",
        "left out where there are several nodes: `PET_NODE_RANK` says it",
    ),
    harmless(
        "rdzv-backend",
        "left out where there are several nodes: `PET_RDZV_BACKEND` says it",
    ),
    harmless(
        "rdzv-endpoint",
        "left out where there are several nodes: `PET_RDZV_ENDPOINT` says it",
    ),
    harmless(
        "rdzv-id",
        "left out where there are several nodes: `PET_RDZV_ID` says it",
    ),
    harmless("rdzv-conf", "left out where there are several nodes"),
    harmless(
        "master-addr",
        "left out where there are several nodes: `PET_MASTER_ADDR` says it",
    ),
    harmless(
        "master-port",
        "left out where there are several nodes: `PET_MASTER_PORT` says it",
    ),
];

/// Of torchrun's options those without a value.
const TORCHRUN_FLAGS: &[&str] = &[
    "standalone",
    "module",
    "m",
    "no-python",
    "run-path",
    "use-env",
];

const ACCELERATE: &[Key] = &[
    becomes("num-processes", "`gpus`"),
    becomes("num-machines", "`tasks`"),
    harmless(
        "machine-rank",
        "said anew where there are several nodes, from `PET_NODE_RANK`",
    ),
    harmless(
        "main-process-ip",
        "said anew where there are several nodes, from `PET_MASTER_ADDR`",
    ),
    harmless(
        "main-process-port",
        "said anew where there are several nodes, from `PET_MASTER_PORT`",
    ),
    harmless("rdzv-backend", "kept"),
    harmless("rdzv-conf", "kept"),
    harmless("same-network", "kept"),
    harmless(
        "config-file",
        "kept; its `num_processes` is not read: name it on the line",
    ),
    harmless("multi-gpu", "kept"),
    harmless("cpu", "kept"),
    harmless("mixed-precision", "kept"),
    harmless("dynamo-backend", "kept"),
    harmless("num-cpu-threads-per-process", "kept"),
    harmless("use-deepspeed", "kept"),
    harmless("use-fsdp", "kept"),
    harmless("use-megatron-lm", "kept"),
    harmless("module", "kept"),
    harmless("m", "kept"),
    harmless("no-python", "kept"),
    harmless("debug", "kept"),
    harmless("quiet", "kept"),
    harmless("zero-stage", "kept"),
    harmless("gradient-accumulation-steps", "kept"),
    harmless("gradient-clipping", "kept"),
    harmless("offload-optimizer-device", "kept"),
    harmless("offload-param-device", "kept"),
    harmless("deepspeed-config-file", "kept"),
    harmless("fsdp-*", "kept"),
    harmless("enable-cpu-affinity", "kept"),
    refused(
        "gpu-ids",
        "antiphon chooses the GPUs: `CUDA_VISIBLE_DEVICES`",
    ),
    refused("deepspeed-hostfile", "antiphon chooses the nodes"),
    refused(
        "deepspeed-multinode-launcher",
        "tasks of a job do not reach each other by ssh",
    ),
    refused("tpu", "there are no TPUs"),
];

const ACCELERATE_FLAGS: &[&str] = &[
    "multi-gpu",
    "cpu",
    "use-deepspeed",
    "use-fsdp",
    "use-megatron-lm",
    "module",
    "m",
    "no-python",
    "debug",
    "quiet",
    "same-network",
    "enable-cpu-affinity",
    "tpu",
];

const DEEPSPEED: &[Key] = &[
    becomes(
        "num-gpus",
        "`gpus`, times nodes; left out of the command, which counts `CUDA_VISIBLE_DEVICES`",
    ),
    becomes(
        "num-nodes",
        "`tasks`; with several the command becomes torchrun's",
    ),
    harmless("master-addr", "left out: antiphon says it"),
    harmless("master-port", "left out: antiphon says it"),
    harmless("module", "kept"),
    harmless("no-python", "kept"),
    harmless("no-local-rank", "kept"),
    harmless("enable-each-rank-log", "kept"),
    harmless("bind-cores-to-rank", "kept"),
    harmless("save-pid", "kept"),
    harmless("node-rank", "left out: antiphon says it"),
    refused("hostfile", "antiphon chooses the nodes"),
    refused("H", "antiphon chooses the nodes"),
    refused("include", "antiphon chooses the GPUs"),
    refused("i", "antiphon chooses the GPUs"),
    refused("exclude", "antiphon chooses the GPUs"),
    refused("e", "antiphon chooses the GPUs"),
    refused("launcher", "tasks of a job do not reach each other by ssh"),
    refused(
        "launcher-args",
        "tasks of a job do not reach each other by ssh",
    ),
    refused("ssh-port", "tasks of a job do not reach each other by ssh"),
    refused("no-ssh", "tasks of a job do not reach each other by ssh"),
    refused(
        "elastic-training",
        "a job keeps its size, unless antiphon resizes it",
    ),
    refused("autotuning", "`antiphon plan` says which settings fit"),
];

const DEEPSPEED_FLAGS: &[&str] = &[
    "module",
    "no-python",
    "no-local-rank",
    "bind-cores-to-rank",
    "save-pid",
    "no-ssh",
    "elastic-training",
];

/// What is known of the format.
pub(super) fn tables() -> Vec<(&'static str, Vec<(String, Fate)>)> {
    let dashed = |name: &'static str, table: &'static [Key]| {
        let row = |key: &Key| {
            let dash = if key.name.len() == 1 { "-" } else { "--" };
            (format!("{dash}{}", key.name), key.fate)
        };
        (name, table.iter().map(row).collect())
    };
    vec![
        dashed("torchrun", TORCHRUN),
        dashed("accelerate launch", ACCELERATE),
        dashed("deepspeed", DEEPSPEED),
    ]
}

/// accelerate does not read from variables where the other nodes are: they become options behind the words of the launcher, of which
/// there are as many as the first argument says.
const AMONG_NODES: &str = "\
n=$1
shift
exec \"${@:1:n}\" --machine_rank \"$PET_NODE_RANK\" --main_process_ip \"$PET_MASTER_ADDR\" --main_process_port \"$PET_MASTER_PORT\" \"${@:n+1}\"
";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Launcher {
    Torchrun,
    Accelerate,
    Deepspeed,
}

/// A command taken apart: what is in front of the launcher's options, the options, and the program with its own.
struct Line {
    launcher: Launcher,
    front: Vec<String>,
    options: Vec<(String, Vec<String>)>,
    program: Vec<String>,
}

/// The job of the first command with a launcher in a text.
pub(super) fn jobs_of_text(
    text: &str,
    origin: &Origin<'_>,
) -> Result<(Vec<Job>, Vec<Warning>), JobError> {
    let commands = shell::parse(text).commands;
    let words = |words: &Vec<shell::Word>| -> Vec<String> {
        words.iter().map(|word| word.text.clone()).collect()
    };
    let commands: Vec<Vec<String>> = commands.iter().map(words).collect();
    let found = commands.iter().find(|words| split(words).is_some());
    match found.or(commands.first()) {
        Some(words) => jobs(words, origin),
        None => jobs(&[], origin),
    }
}

/// The job of a command.
pub(super) fn jobs(
    words: &[String],
    origin: &Origin<'_>,
) -> Result<(Vec<Job>, Vec<Warning>), JobError> {
    let place = Place::new(origin.name, 1);
    let mut run = Run::default();
    let mut rest = words;
    while let Some((name, value)) = rest.first().and_then(|word| assignment(word)) {
        run.environment.insert(name.to_owned(), value.to_owned());
        rest = rest.get(1..).unwrap_or_default();
    }
    if rest.is_empty() {
        return Err(JobProblem::NothingToRun {
            place,
            why: "the command is empty".into(),
            help: "write it behind `--`: `antiphon submit -- torchrun --nproc-per-node 8 train.py`"
                .into(),
        }
        .into());
    }
    let Some(line) = split(rest) else {
        return Err(JobProblem::CannotHonor {
            place,
            option: short(&rest.join(" ")),
            why: "it does not say how many GPUs it needs".into(),
            help: "start it with `torchrun --nproc-per-node N`, `accelerate launch --num-processes N` or `deepspeed --num-gpus N`, or write a job file".into(),
        }
        .into());
    };
    let mut warnings = Vec::new();
    line.check(&place, &mut warnings);
    let size = line.size(&place)?;
    let named = line.program.iter().find(|word| !word.starts_with('-'));
    let named = named.map_or("command", |word| {
        word.rsplit('/').next().unwrap_or_default()
    });
    let mut job = Job {
        name: job_name(named.trim_end_matches(".py")),
        ..Job::default()
    };
    run.command = line.command(size.nodes, &place, &mut warnings);
    if line.program.is_empty() {
        return Err(JobProblem::NothingToRun {
            place,
            why: format!(
                "no program stands behind `{}`",
                short(&line.front.join(" "))
            ),
            help: "name the script that trains".into(),
        }
        .into());
    }
    job.resources = Some(Resources {
        gpus: Gpus::whole(size.gpus),
        tasks: Some(size.nodes),
        ..Resources::default()
    });
    job.run = run;
    Ok((vec![job], warnings))
}

struct Size {
    nodes: u64,
    gpus: u64,
}

/// `NAME=value` in front of a command.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (begins && name.chars().all(legal) && !name.starts_with("ANTIPHON_")).then_some((name, value))
}

/// Takes a command apart, if a launcher begins it.
fn split(words: &[String]) -> Option<Line> {
    let text = |at: usize| words.get(at).map_or("", String::as_str);
    let base = text(0).rsplit('/').next().unwrap_or_default();
    let python = base.starts_with("python");
    let (launcher, begin) = match (base, text(1), text(2)) {
        ("torchrun", _, _) => (Launcher::Torchrun, 1),
        ("accelerate", "launch", _) => (Launcher::Accelerate, 2),
        ("deepspeed", _, _) => (Launcher::Deepspeed, 1),
        (_, "-m", "torch.distributed.run" | "torch.distributed.launch") if python => {
            (Launcher::Torchrun, 3)
        }
        (_, "-m", "accelerate.commands.launch") if python => (Launcher::Accelerate, 3),
        (_, "-m", "deepspeed.launcher.runner") if python => (Launcher::Deepspeed, 3),
        _ => return None,
    };
    let mut line = Line {
        launcher,
        front: words.get(..begin)?.to_vec(),
        options: Vec::new(),
        program: Vec::new(),
    };
    let mut at = begin;
    let mut module = false;
    while let Some(word) = words
        .get(at)
        .filter(|word| word.starts_with('-') && word.len() > 1)
    {
        if word == "--" {
            at += 1;
            break;
        }
        let name = word.trim_start_matches('-');
        let (name, attached) = name
            .split_once('=')
            .map_or((name, false), |(name, _)| (name, true));
        let name = name.replace('_', "-");
        // The module is the program.
        module |= matches!(name.as_str(), "m" | "module");
        let mut given = vec![word.clone()];
        at += 1;
        if !attached && !launcher.flags().contains(&name.as_str()) && launcher.knows(&name) {
            given.extend(words.get(at).cloned());
            at += 1;
        }
        line.options.push((name, given));
        if module && !attached {
            break;
        }
    }
    line.program = words.get(at..).unwrap_or_default().to_vec();
    Some(line)
}

impl Launcher {
    const fn table(self) -> &'static [Key] {
        match self {
            Self::Torchrun => TORCHRUN,
            Self::Accelerate => ACCELERATE,
            Self::Deepspeed => DEEPSPEED,
        }
    }

    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Torchrun => TORCHRUN_FLAGS,
            Self::Accelerate => ACCELERATE_FLAGS,
            Self::Deepspeed => DEEPSPEED_FLAGS,
        }
    }

    fn find(self, name: &str) -> Option<&'static Key> {
        let pattern = |key: &&Key| {
            key.name
                .strip_suffix('*')
                .is_some_and(|prefix| name.starts_with(prefix))
        };
        keys::find(&[self.table()], name).or_else(|| self.table().iter().find(pattern))
    }

    fn knows(self, name: &str) -> bool {
        self.find(name).is_some()
    }
}

impl Line {
    fn check(&self, place: &Place, warnings: &mut Vec<Warning>) {
        let mut unknown = Vec::new();
        for (name, words) in &self.options {
            match self.launcher.find(name).map(|key| key.fate) {
                Some(Fate::Becomes(_) | Fate::Harmless(_)) => (),
                Some(Fate::Refused(effect)) => warnings.push(Warning::NotHonored {
                    place: place.clone(),
                    option: short(&words.join(" ")),
                    effect: effect.into(),
                }),
                None => unknown.push(UnknownOption {
                    name: format!("--{name}"),
                    line: place.line,
                    nearest: nearest_of(name, self.launcher.table().iter().map(|key| key.name))
                        .map(|near| format!("--{near}")),
                }),
            }
        }
        if !unknown.is_empty() {
            warnings.push(Warning::Unknown {
                file: place.file.clone(),
                options: unknown,
            });
        }
    }

    fn value(&self, name: &str) -> Option<&str> {
        let (_, words) = self.options.iter().rfind(|(option, _)| option == name)?;
        match words.as_slice() {
            [one] => one.split_once('=').map(|(_, value)| value),
            [_, value, ..] => Some(value),
            [] => None,
        }
    }

    fn count(&self, name: &str, place: &Place) -> Result<Option<u64>, JobError> {
        let Some(text) = self.value(name) else {
            return Ok(None);
        };
        let most = text.rsplit(':').next().unwrap_or(text);
        let number = most
            .parse::<u64>()
            .ok()
            .filter(|number| (1..=100_000).contains(number));
        number.map(Some).ok_or_else(|| {
            JobProblem::Value {
                place: place.clone(),
                option: format!("--{name}"),
                found: short(text),
                expected: "a whole number from 1 to 100000: a job's size is known before it runs"
                    .into(),
            }
            .into()
        })
    }

    /// How many nodes and GPUs it needs.
    fn size(&self, place: &Place) -> Result<Size, JobError> {
        let (nodes, of_node, all) = match self.launcher {
            Launcher::Torchrun => (
                self.count("nnodes", place)?,
                self.count("nproc-per-node", place)?.or(Some(1)),
                None,
            ),
            Launcher::Accelerate => (
                self.count("num-machines", place)?,
                None,
                self.count("num-processes", place)?,
            ),
            Launcher::Deepspeed => (
                self.count("num-nodes", place)?,
                self.count("num-gpus", place)?,
                None,
            ),
        };
        let nodes = nodes.unwrap_or(1);
        let Some(gpus) = all.or(of_node.map(|gpus| gpus.saturating_mul(nodes))) else {
            let option = if self.launcher == Launcher::Accelerate {
                "num-processes"
            } else {
                "num-gpus"
            };
            return Err(JobProblem::CannotHonor {
                place: place.clone(),
                option: short(&self.front.join(" ")),
                why: "it does not say how many GPUs it needs; by itself it takes all that it sees"
                    .into(),
                help: format!("add `--{option} N`"),
            }
            .into());
        };
        if !gpus.is_multiple_of(nodes) {
            return Err(JobProblem::Contradiction {
                place: place.clone(),
                option: format!("--num-processes {gpus}"),
                other: format!("`--num-machines {nodes}`"),
                why: format!("{gpus} processes cannot be split over {nodes} nodes"),
            }
            .into());
        }
        Ok(Size { nodes, gpus })
    }

    /// The command as antiphon starts it on each node.
    fn command(&self, nodes: u64, place: &Place, warnings: &mut Vec<Warning>) -> Vec<String> {
        let several = nodes > 1;
        let ours: &[&str] = match (self.launcher, several) {
            (Launcher::Torchrun, true) => &[
                "nnodes",
                "node-rank",
                "rdzv-backend",
                "rdzv-endpoint",
                "rdzv-id",
                "rdzv-conf",
                "master-addr",
                "master-port",
                "standalone",
            ],
            (Launcher::Accelerate, true) => &[
                "machine-rank",
                "main-process-ip",
                "main-process-port",
                "gpu-ids",
            ],
            (Launcher::Torchrun, false) => &[],
            (Launcher::Accelerate, false) => &["gpu-ids"],
            (Launcher::Deepspeed, _) => &[
                "num-gpus",
                "num-nodes",
                "master-addr",
                "master-port",
                "node-rank",
                "hostfile",
                "H",
                "include",
                "i",
                "exclude",
                "e",
                "launcher",
                "launcher-args",
                "ssh-port",
                "no-ssh",
                "elastic-training",
                "autotuning",
            ],
        };
        let kept = self
            .options
            .iter()
            .filter(|(name, _)| !ours.contains(&name.as_str()));
        let kept: Vec<String> = kept.flat_map(|(_, words)| words.clone()).collect();
        let mut command = self.front.clone();
        match (self.launcher, several) {
            (Launcher::Accelerate, true) => {
                let mut wrapped: Vec<String> = vec![
                    "bash".into(),
                    "-c".into(),
                    AMONG_NODES.into(),
                    "accelerate".into(),
                ];
                wrapped.push(command.len().to_string());
                wrapped.append(&mut command);
                wrapped.extend(kept);
                wrapped.extend(self.program.iter().cloned());
                return wrapped;
            }
            (Launcher::Deepspeed, true) => {
                warnings.push(Warning::Differs {
                    place: place.clone(),
                    option: "deepspeed".into(),
                    how:
                        "torchrun starts it on each node: deepspeed would reach other nodes by ssh"
                            .into(),
                });
                command = vec!["torchrun".into()];
            }
            (Launcher::Torchrun, _) | (Launcher::Accelerate | Launcher::Deepspeed, false) => (),
        }
        command.extend(kept);
        command.extend(self.program.iter().cloned());
        command
    }
}
