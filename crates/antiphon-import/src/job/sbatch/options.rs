//! The batch options of a script: which there are, what becomes of each, and where reading them ends. Values are read elsewhere.

use super::super::error::{JobError, JobProblem};
use super::super::keys::Fate;
use super::super::keys::Fate::{Becomes, Harmless, Refused};
use crate::options::nearest_of;
use crate::place::{Place, short};
use crate::warning::{UnknownOption, Warning};

/// Whether an option has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Value,
    /// A value only behind `=`.
    Maybe,
}

use Takes::{Maybe, Nothing, Value};

/// An option of `sbatch`.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) long: &'static str,
    pub(super) short: Option<char>,
    pub(super) takes: Takes,
    pub(super) fate: Fate,
}

const fn option(long: &'static str, short: Option<char>, takes: Takes, fate: Fate) -> Known {
    Known {
        long,
        short,
        takes,
        fate,
    }
}

const PINNED: Fate = Refused("antiphon places tasks and binds nothing to cores or sockets");
const SITE: Fate = Refused("it speaks of this Slurm site alone");
const NODES: Fate =
    Refused("antiphon chooses the nodes; name a `partition` or a GPU type to narrow them down");
const MAIL: Fate =
    Refused("antiphon sends no mail; `antiphon submit --wait` ends when the job does");
const OUTPUT: Fate = Refused("output stays with antiphon: `antiphon logs JOB`");

/// Every option of Slurm 25.05's `sbatch`, with older names.
pub(super) const OPTIONS: &[Known] = &[
    option("account", Some('A'), Value, Becomes("`team`")),
    option(
        "array",
        Some('a'),
        Value,
        Becomes("`array`, at most 10,000 indices"),
    ),
    option(
        "begin",
        Some('b'),
        Value,
        Becomes("`not_before`; `now+..` and full dates"),
    ),
    option(
        "chdir",
        Some('D'),
        Value,
        Becomes("`run.workdir`; else where `antiphon submit` is called"),
    ),
    option("comment", None, Value, Harmless("for people")),
    option(
        "constraint",
        Some('C'),
        Value,
        Becomes(
            "`gpu_type`, where it names GPU types; `|` makes several shapes. Other features are not honored",
        ),
    ),
    option(
        "cpus-per-gpu",
        None,
        Value,
        Becomes("`cpus`, times the GPUs of a task"),
    ),
    option(
        "cpus-per-task",
        Some('c'),
        Value,
        Becomes("`cpus`, times the Slurm tasks of a task"),
    ),
    option(
        "deadline",
        None,
        Value,
        Becomes("`deadline`; `now+..` and full dates"),
    ),
    option(
        "dependency",
        Some('d'),
        Value,
        Becomes(
            "`after_ok`, `after_any`, `after_start` for jobs of antiphon. A Slurm job's number is an error",
        ),
    ),
    option(
        "exclusive",
        None,
        Maybe,
        Refused(
            "others may run on what the job leaves free of its nodes; ask for all GPUs of a node to have it alone",
        ),
    ),
    option(
        "export",
        None,
        Value,
        Becomes(
            "`run.environment` for `NAME=value`. Nothing else of the submitting shell is handed on",
        ),
    ),
    option("gpus", Some('G'), Value, Becomes("`gpus`, with its type")),
    option(
        "gpus-per-node",
        None,
        Value,
        Becomes("`gpus`, times nodes, with its type"),
    ),
    option(
        "gpus-per-task",
        None,
        Value,
        Becomes("`gpus`, times tasks, with its type"),
    ),
    option(
        "gres",
        None,
        Value,
        Becomes("`gpus` and `gpu_type` (a MIG profile too) for `gpu`. Others are not honored"),
    ),
    option("hold", Some('H'), Nothing, Becomes("`held`")),
    option(
        "job-name",
        Some('J'),
        Value,
        Becomes("`name`, with `-` for what a name may not hold"),
    ),
    option("licenses", Some('L'), Value, Becomes("`[shared]`")),
    option(
        "mem",
        None,
        Value,
        Becomes("`memory`, by the tasks of a node; 0 is antiphon's default"),
    ),
    option(
        "mem-per-cpu",
        None,
        Value,
        Becomes("`memory`, times `cpus`"),
    ),
    option(
        "mem-per-gpu",
        None,
        Value,
        Becomes("`memory`, times the GPUs of a task"),
    ),
    option(
        "nice",
        None,
        Maybe,
        Becomes("`priority`, with the sign turned: 100 lower without a value"),
    ),
    option("no-requeue", None, Nothing, Becomes("`retry.retries` 0")),
    option(
        "nodes",
        Some('N'),
        Value,
        Becomes("`tasks`; `2-4` makes a shape for each number"),
    ),
    option(
        "ntasks",
        Some('n'),
        Value,
        Becomes("`tasks`, where `srun` starts them"),
    ),
    option(
        "ntasks-per-gpu",
        None,
        Value,
        Becomes("`tasks`, where `srun` starts them"),
    ),
    option(
        "ntasks-per-node",
        None,
        Value,
        Becomes("`tasks`, or `processes = \"per-gpu\"`, where `srun` starts them"),
    ),
    option(
        "partition",
        Some('p'),
        Value,
        Becomes("`partition`; several make several shapes"),
    ),
    option("priority", None, Value, Becomes("`priority`")),
    option(
        "qos",
        Some('q'),
        Value,
        Becomes("`class`, where it is called like one; else not honored"),
    ),
    option(
        "requeue",
        None,
        Nothing,
        Harmless("antiphon tries failed attempts again by itself: `[retry]`"),
    ),
    option(
        "signal",
        None,
        Value,
        Becomes("`run.grace`: antiphon sends SIGTERM, other signals are not honored"),
    ),
    option("time", Some('t'), Value, Becomes("`run.time_limit`")),
    option("tmp", None, Value, Becomes("`scratch`")),
    option("wrap", None, Value, Becomes("the command, run by `sh`")),
    // Without effect here.
    option(
        "get-user-env",
        None,
        Maybe,
        Harmless("the script's login shell reads the profile"),
    ),
    option(
        "ignore-pbs",
        None,
        Nothing,
        Harmless("`#PBS` lines are comments"),
    ),
    option(
        "kill-on-invalid-dep",
        None,
        Value,
        Harmless("a job whose dependency failed has failed"),
    ),
    option("mcs-label", None, Value, Harmless("for site policies")),
    option(
        "no-kill",
        Some('k'),
        Maybe,
        Harmless("an attempt that loses a node is tried again"),
    ),
    option(
        "open-mode",
        None,
        Value,
        Harmless("every attempt has an output of its own"),
    ),
    option(
        "overcommit",
        Some('O'),
        Nothing,
        Harmless("CPUs are counted, not bound"),
    ),
    option(
        "oversubscribe",
        Some('s'),
        Maybe,
        Harmless("CPUs of a node are shared"),
    ),
    option(
        "parsable",
        None,
        Nothing,
        Harmless("`antiphon submit` prints the id"),
    ),
    option(
        "propagate",
        None,
        Maybe,
        Harmless("limits are the server's"),
    ),
    option(
        "quiet",
        Some('Q'),
        Nothing,
        Harmless("it changes what is printed"),
    ),
    option(
        "reboot",
        None,
        Nothing,
        Refused("nodes are not rebooted for a job"),
    ),
    option("spread-job", None, Nothing, PINNED),
    option(
        "use-min-nodes",
        None,
        Nothing,
        Harmless("gangs take as few nodes as they can"),
    ),
    option(
        "verbose",
        Some('v'),
        Nothing,
        Harmless("it changes what is printed"),
    ),
    option(
        "wait-all-nodes",
        None,
        Value,
        Harmless("a gang starts whole"),
    ),
    option("wckey", None, Value, Harmless("for accounting")),
    option("profile", None, Value, Harmless("for accounting")),
    option("acctg-freq", None, Value, Harmless("for accounting")),
    option(
        "delay-boot",
        None,
        Value,
        Harmless("nodes are not booted for a job"),
    ),
    option(
        "contiguous",
        None,
        Nothing,
        Refused("`span = \"leaf\"` says that nodes have to be near each other"),
    ),
    option(
        "switches",
        None,
        Value,
        Refused("`span = \"leaf\"` says that nodes have to be under one switch"),
    ),
    option(
        "segment",
        None,
        Value,
        Refused("`span = \"leaf\"` says that nodes have to be near each other"),
    ),
    // Cannot be honored.
    option("batch", None, Value, NODES),
    option("bb", None, Value, SITE),
    option("bbf", None, Value, SITE),
    option("cluster-constraint", None, Value, SITE),
    option("clusters", Some('M'), Value, SITE),
    option("consolidate-segments", None, Nothing, NODES),
    option(
        "container",
        None,
        Value,
        Refused("the job file has no containers: the script runs on the node as it is"),
    ),
    option(
        "container-id",
        None,
        Value,
        Refused("the job file has no containers: the script runs on the node as it is"),
    ),
    option(
        "container-image",
        None,
        Value,
        Refused("the job file has no containers: the script runs on the node as it is"),
    ),
    option(
        "container-mounts",
        None,
        Value,
        Refused("the job file has no containers: the script sees the node's paths"),
    ),
    option("core-spec", Some('S'), Value, PINNED),
    option("cores-per-socket", None, Value, PINNED),
    option("cpu-freq", None, Value, PINNED),
    option("distribution", Some('m'), Value, PINNED),
    option("error", Some('e'), Value, OUTPUT),
    option("exclude", Some('x'), Value, NODES),
    option(
        "export-file",
        None,
        Value,
        Refused("write its variables into `run.environment`"),
    ),
    option("extra", None, Value, SITE),
    option("extra-node-info", Some('B'), Value, PINNED),
    option(
        "gid",
        None,
        Value,
        Refused("a job runs as the server's user"),
    ),
    option("gpu-bind", None, Value, PINNED),
    option("gpu-freq", None, Value, PINNED),
    option(
        "gpus-per-socket",
        None,
        Value,
        Refused("give `--gpus-per-node`"),
    ),
    option("gres-flags", None, Value, PINNED),
    option("hint", None, Value, PINNED),
    option(
        "input",
        Some('i'),
        Value,
        Refused("standard input is empty"),
    ),
    option("mail-type", None, Value, MAIL),
    option("mail-user", None, Value, MAIL),
    option("mem-bind", None, Value, PINNED),
    option("mincpus", None, Value, Refused("give `--cpus-per-task`")),
    option("network", None, Value, SITE),
    option("nodefile", Some('F'), Value, NODES),
    option("nodelist", Some('w'), Value, NODES),
    option("ntasks-per-core", None, Value, PINNED),
    option("ntasks-per-socket", None, Value, PINNED),
    option(
        "oom-kill-step",
        None,
        Maybe,
        Harmless("an attempt that runs out of memory ends whole"),
    ),
    option("output", Some('o'), Value, OUTPUT),
    option("power", None, Value, SITE),
    option("prefer", None, Value, NODES),
    option(
        "reservation",
        None,
        Value,
        Refused("it is Slurm's; antiphon holds nodes by `antiphon drain --at`"),
    ),
    option(
        "resv-ports",
        None,
        Maybe,
        Harmless("each attempt has a free port: `PET_MASTER_PORT`"),
    ),
    option("sockets-per-node", None, Value, PINNED),
    option("stepmgr", None, Nothing, Harmless("there are no steps")),
    option(
        "test-only",
        None,
        Nothing,
        Refused("`antiphon check FILE` says when it would start"),
    ),
    option("thread-spec", None, Value, PINNED),
    option("threads-per-core", None, Value, PINNED),
    option("time-min", None, Value, Refused("the limit is `--time`")),
    option("tres-bind", None, Value, PINNED),
    option(
        "tres-per-task",
        None,
        Value,
        Refused("give `--gpus-per-task` and `--cpus-per-task`"),
    ),
    option(
        "uid",
        None,
        Value,
        Refused("a job runs as the server's user"),
    ),
    option(
        "wait",
        Some('W'),
        Nothing,
        Refused("`antiphon submit --wait` waits"),
    ),
    option("x11", None, Maybe, Refused("there are no windows")),
];

/// Names that Slurm takes as well.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("tasks-per-node", "ntasks-per-node"),
    ("workdir", "chdir"),
    ("share", "oversubscribe"),
    ("burst-buffer", "bb"),
];

/// An option as it stands in a script.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) known: &'static Known,
    pub(super) value: String,
    pub(super) place: Place,
}

impl Given {
    /// `--name=value`.
    pub(super) fn written(&self) -> String {
        let long = self.known.long;
        if self.value.is_empty() {
            format!("--{long}")
        } else {
            format!("--{long}={}", short(&self.value))
        }
    }

    pub(super) fn bad(&self, expected: &str) -> JobError {
        JobProblem::Value {
            place: self.place.clone(),
            option: format!("--{}", self.known.long),
            found: short(&self.value),
            expected: expected.to_owned(),
        }
        .into()
    }
}

/// The options of a script, a list for each component of a heterogeneous job.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) components: Vec<Vec<Given>>,
    pub(super) warnings: Vec<Warning>,
}

/// Reads the lines of `#SBATCH` in front of the first command: Slurm looks no further.
pub(super) fn read(text: &str, file: &str) -> Result<Batch, JobError> {
    let mut batch = Batch {
        components: vec![Vec::new()],
        warnings: Vec::new(),
    };
    let mut unknown = Vec::new();
    let mut first_command = None;
    for (line, number) in text.lines().zip(1_u64..) {
        let Some(rest) = line
            .strip_prefix("#SBATCH")
            .filter(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
        else {
            let bare = line.trim_start();
            if first_command.is_none() && !bare.is_empty() && !bare.starts_with('#') {
                first_command = Some(number);
            }
            continue;
        };
        let place = Place::new(file, number);
        if let Some(command) = first_command {
            batch.warnings.push(Warning::Overruled {
                place,
                option: short(rest),
                by: format!("Slurm reads no options behind the first command, which stands on line {command}"),
            });
            continue;
        }
        let words = words(rest).map_err(|reason| {
            JobError::from(JobProblem::Syntax {
                place: place.clone(),
                reason,
            })
        })?;
        if matches!(words.as_slice(), [word] if word == "hetjob" || word == "packjob") {
            batch.components.push(Vec::new());
            continue;
        }
        let component = batch
            .components
            .last_mut()
            .expect("there is one from the start");
        options(words, &place, component, &mut unknown)?;
    }
    if !unknown.is_empty() {
        batch.warnings.push(Warning::Unknown {
            file: file.to_owned(),
            options: unknown,
        });
    }
    Ok(batch)
}

/// The words of a line, with quotes and backslashes taken off; a `#` at the beginning of a word ends it.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"') | None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("a {quote} that is not closed"));
    }
    words.extend(word);
    Ok(words)
}

/// The options that words make up.
fn options(
    words: Vec<String>,
    place: &Place,
    given: &mut Vec<Given>,
    unknown: &mut Vec<UnknownOption>,
) -> Result<(), JobError> {
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let (name, attached, known) = if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            (format!("--{name}"), value, by_long(name))
        } else if let Some(short) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            let letter = short.chars().next().unwrap_or_default();
            let rest = short.get(letter.len_utf8()..).unwrap_or_default();
            let known = OPTIONS.iter().find(|known| known.short == Some(letter));
            (
                format!("-{letter}"),
                Some(rest.to_owned()).filter(|rest| !rest.is_empty()),
                known,
            )
        } else {
            return Err(JobProblem::Syntax {
                place: place.clone(),
                reason: format!("`{}` is no option", crate::place::short(&word)),
            }
            .into());
        };
        let Some(known) = known else {
            unknown.push(UnknownOption {
                nearest: nearest_of(&name, OPTIONS.iter().map(|known| known.long))
                    .map(|near| format!("--{near}")),
                name,
                line: place.line,
            });
            // Its value is no option of its own.
            if attached.is_none() && words.peek().is_some_and(|next| !next.starts_with('-')) {
                words.next();
            }
            continue;
        };
        let value = match (known.takes, attached) {
            (Takes::Nothing, _) => String::new(),
            (_, Some(value)) => value,
            (Takes::Maybe, None) => String::new(),
            (Takes::Value, None) => words.next().ok_or_else(|| {
                JobError::from(JobProblem::Syntax {
                    place: place.clone(),
                    reason: format!("`{name}` has no value"),
                })
            })?,
        };
        given.push(Given {
            known,
            value,
            place: place.clone(),
        });
    }
    Ok(())
}

/// An option by its name, another name of it, or the beginning of one name alone, as `getopt` takes it.
fn by_long(name: &str) -> Option<&'static Known> {
    let other = OTHER_NAMES.iter().find(|(other, _)| *other == name);
    let name = other.map_or(name, |(_, long)| *long);
    let exact = OPTIONS.iter().find(|known| known.long == name);
    exact.or_else(|| {
        let mut begin = OPTIONS
            .iter()
            .filter(|known| known.long.starts_with(name) && name.len() >= 3);
        let first = begin.next()?;
        begin.next().is_none().then_some(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let batch = read(text, "a.sbatch").unwrap();
        let shown = |given: &Given| format!("{} ({})", given.written(), given.place.line);
        batch.components.iter().flatten().map(shown).collect()
    }

    #[test]
    fn options_are_read_in_every_form() {
        let text = "#!/bin/bash\n# a comment\n#SBATCH -J sft -N2 --time 1:00:00   # the limit\n\n##SBATCH --nodes=9\n#SBATCH --job-name=\"a b\" --comment='x # y' --tasks-per-node=8\n #SBATCH --qos=no\n#SBATCH --exclus --nice\n";
        assert_eq!(
            shown(text),
            [
                "--job-name=sft (3)",
                "--nodes=2 (3)",
                "--time=1:00:00 (3)",
                "--job-name=a b (6)",
                "--comment=x # y (6)",
                "--ntasks-per-node=8 (6)",
                "--exclusive (8)",
                "--nice (8)"
            ]
        );
    }

    #[test]
    fn reading_ends_at_the_first_command() {
        let batch = read("#!/bin/sh\n#SBATCH -N 1\necho x\n#SBATCH -N 2\n", "a").unwrap();
        assert_eq!(batch.components[0].len(), 1);
        assert_eq!(
            batch.warnings[0].to_string(),
            "`a`, line 4: `-N 2` has no effect: Slurm reads no options behind the first command, which stands on line 3"
        );
    }

    #[test]
    fn unknown_options_are_named_with_the_nearest() {
        let batch = read("#SBATCH --gpu-per-node=8 --frobnicate 3 -N 1\n", "a").unwrap();
        assert_eq!(batch.components[0].len(), 1);
        assert_eq!(
            batch.warnings[0].to_string(),
            "`a`: `--gpu-per-node`, `--frobnicate` are not known here; is `--gpus-per-node` meant by `--gpu-per-node` (line 1)?"
        );
    }

    #[test]
    fn what_no_shell_would_read_is_refused_with_its_line() {
        for (text, error) in [
            (
                "#SBATCH --comment='x\n",
                "`a`, line 1: the file cannot be parsed: a ' that is not closed",
            ),
            (
                "#SBATCH -N\n",
                "`a`, line 1: the file cannot be parsed: `-N` has no value",
            ),
            (
                "#SBATCH nodes=2\n",
                "`a`, line 1: the file cannot be parsed: `nodes=2` is no option",
            ),
        ] {
            assert_eq!(read(text, "a").unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn every_option_stands_once() {
        let mut names: Vec<_> = OPTIONS.iter().map(|known| known.long).collect();
        let letters: std::collections::BTreeSet<_> =
            OPTIONS.iter().filter_map(|known| known.short).collect();
        assert_eq!(
            letters.len(),
            OPTIONS.iter().filter(|known| known.short.is_some()).count()
        );
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
