//! What a batch script runs, as far as its text tells: whether `srun` starts its processes, and which of Slurm's variables it reads.

use super::super::keys::{self, Fate};
use std::fmt::Write as _;

use super::super::keys::{Key, becomes, harmless, refused};
use super::options::OPTIONS;
use crate::place::Place;
use crate::shell::{self, Word};
use crate::warning::Warning;

/// The parts of what stands in for Slurm around a script; `docs/reference/imports.md` says what they do.
const VARIABLES: &str = include_str!("../slurm/variables.sh");
const SRUN: &str = include_str!("../slurm/srun.sh");
const SCONTROL: &str = include_str!("../slurm/scontrol.sh");
const TOOLS: &str = include_str!("../slurm/tools.sh");
const RUN: &str = include_str!("../slurm/run.sh");

/// Variables of Slurm that a script finds, when it reads any.
pub(super) const PROVIDED: &[Key] = &[
    becomes("SLURM_ARRAY_JOB_ID", "the number of `ANTIPHON_ARRAY_JOB`"),
    becomes("SLURM_ARRAY_TASK_ID", "`ANTIPHON_ARRAY_INDEX`"),
    becomes("SLURM_ARRAY_TASK_COUNT", "as the script asks for"),
    becomes("SLURM_ARRAY_TASK_MAX", "as the script asks for"),
    becomes("SLURM_ARRAY_TASK_MIN", "as the script asks for"),
    becomes("SLURM_CPUS_PER_TASK", "as the script asks for"),
    becomes("SLURM_CPUS_ON_NODE", "as the script asks for"),
    becomes("SLURM_GPUS", "as the script asks for"),
    becomes(
        "SLURM_GPUS_ON_NODE",
        "how many are in `CUDA_VISIBLE_DEVICES`",
    ),
    becomes("SLURM_GPUS_PER_NODE", "as the script asks for"),
    becomes("SLURM_JOBID", "the number of `ANTIPHON_JOB`"),
    becomes("SLURM_JOB_ACCOUNT", "as the script asks for"),
    becomes("SLURM_JOB_GPUS", "`CUDA_VISIBLE_DEVICES`"),
    becomes("SLURM_JOB_ID", "the number of `ANTIPHON_JOB`"),
    becomes("SLURM_JOB_NAME", "the job's name"),
    becomes(
        "SLURM_JOB_NODELIST",
        "`ANTIPHON_NODES`, with commas; `scontrol show hostnames` takes it apart",
    ),
    becomes("SLURM_JOB_NUM_NODES", "as `SLURM_NNODES`"),
    becomes("SLURM_JOB_PARTITION", "as the script asks for"),
    becomes("SLURM_LAUNCH_NODE_IPADDR", "`PET_MASTER_ADDR`"),
    becomes(
        "SLURM_LOCALID",
        "`LOCAL_RANK`: 0, as a process with one GPU sees that one alone",
    ),
    becomes("SLURM_MEM_PER_NODE", "as the script asks for"),
    becomes(
        "SLURM_NNODES",
        "tasks of the job, by those of a node; where Slurm would choose, as many as `ANTIPHON_NODES` names",
    ),
    becomes("SLURM_NODEID", "the task, by those of a node"),
    becomes("SLURM_NODELIST", "as `SLURM_JOB_NODELIST`"),
    becomes("SLURM_NPROCS", "as `SLURM_NTASKS`"),
    becomes("SLURM_NTASKS", "tasks of the job"),
    becomes("SLURM_NTASKS_PER_NODE", "as the script asks for"),
    becomes("SLURM_TASKS_PER_NODE", "as the script asks for"),
    becomes("SLURM_PROCID", "`ANTIPHON_TASK_INDEX`"),
    becomes(
        "SLURM_RESTART_COUNT",
        "attempts before this one, from the second on",
    ),
    becomes("SLURM_SUBMIT_DIR", "`run.workdir`"),
    becomes("SLURMD_NODENAME", "`ANTIPHON_NODE`"),
];

/// Options of `srun` that change what its command does.
pub(super) const STEP: &[Key] = &[
    becomes("chdir", "the step's directory"),
    becomes("export", "`NAME=value` for the step"),
    becomes("het-group", "in which role the step runs"),
    becomes(
        "nodelist",
        "in which task the step runs; `hostname` on another node is answered",
    ),
    becomes(
        "ntasks",
        "`tasks` of the job; 1 runs the step in the first task alone",
    ),
    harmless("nodes", "the job's nodes are the step's"),
    harmless("ntasks-per-node", "the job's tasks are the step's"),
    refused(
        "container-image",
        "the job file has no containers: the command runs on the node as it is",
    ),
    refused(
        "container-mounts",
        "the job file has no containers: the command sees the node's paths",
    ),
    refused(
        "container-name",
        "the job file has no containers: the command runs on the node as it is",
    ),
    refused(
        "mpi",
        "MPI programs started by `srun` find each other by Slurm alone",
    ),
    refused("multi-prog", "write each program as a role of a job file"),
    refused("output", "output stays with antiphon: `antiphon logs JOB`"),
    refused("error", "output stays with antiphon: `antiphon logs JOB`"),
    refused("bcast", "files are not copied to nodes"),
];

/// What a script runs.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// Program and arguments of its first line.
    pub(super) interpreter: Vec<String>,
    /// Where `srun` starts processes of the training, if it does.
    pub(super) srun: Option<Place>,
    /// Whether what stands in for Slurm has to know `srun` and `scontrol`.
    names_srun: bool,
    names_scontrol: bool,
    /// Variables of Slurm that it reads, each with its first line.
    pub(super) variables: Vec<(String, u64)>,
    /// Where each of them needs hosts of its own: `mpirun`, `pdsh`, `ssh`.
    pub(super) warnings: Vec<Warning>,
}

/// Looks through a script.
pub(super) fn uses(text: &str, file: &str) -> Uses {
    let mut uses = Uses {
        interpreter: interpreter(text),
        ..Uses::default()
    };
    for (line, number) in text.lines().zip(1_u64..) {
        if line.trim_start().starts_with('#') {
            continue;
        }
        let line = line.split(" #").next().unwrap_or(line);
        uses.names_srun |= has_word(line, "srun");
        uses.names_scontrol |= has_word(line, "scontrol");
        for name in slurm_names(line) {
            if !uses.variables.iter().any(|(known, _)| known == name) {
                uses.variables.push((name.to_owned(), number));
            }
        }
    }
    for (name, line) in &uses.variables {
        if keys::find(&[PROVIDED], name).is_none() {
            uses.warnings.push(Warning::NotHonored {
                place: Place::new(file, *line),
                option: name.clone(),
                effect: "antiphon does not set it".into(),
            });
        }
    }
    // The shell's own parser reads no other language.
    if uses.is_shell() {
        for words in shell::parse(text).commands {
            command(&words, file, &mut uses);
        }
    }
    uses
}

impl Uses {
    fn is_shell(&self) -> bool {
        let program = self.interpreter.iter().rfind(|word| !word.starts_with('-'));
        let program = program.and_then(|program| program.rsplit('/').next());
        matches!(program, Some("sh" | "bash" | "zsh" | "dash" | "ksh"))
    }

    /// Whether it needs anything of Slurm's around it.
    pub(super) const fn needs_slurm(&self) -> bool {
        !self.variables.is_empty() || self.names_srun || self.names_scontrol
    }

    /// The command that runs a script, with what stands in for Slurm where it needs it.
    pub(super) fn around(
        &self,
        script: Vec<String>,
        tasks_per_node: u64,
        steps_per_task: u64,
    ) -> Vec<String> {
        let mut command = self.interpreter.clone();
        if !self.needs_slurm() {
            command.extend(script);
            return command;
        }
        let mut prelude = String::from(VARIABLES);
        if self.names_srun || self.names_scontrol {
            prelude += TOOLS;
        }
        // Programs and no functions: `exec`, `timeout` and other shells find them too.
        for (named, tool, text) in [
            (self.names_srun, "srun", SRUN),
            (self.names_scontrol, "scontrol", SCONTROL),
        ] {
            if named {
                let _ = write!(
                    prelude,
                    "cat >\"$bin/{tool}\" <<'END OF {tool}'\n{text}END OF {tool}\nchmod +x \"$bin/{tool}\"\n"
                );
            }
        }
        prelude += RUN;
        let numbers = [tasks_per_node, steps_per_task].map(|number| number.to_string());
        let mut all = vec!["bash".into(), "-c".into(), prelude, "slurm".into()];
        all.extend(numbers);
        all.extend(command);
        all.extend(script);
        all
    }
}

/// `#!/bin/bash -l`: the program and its one argument, as the system takes them; `bash` without a first line.
fn interpreter(text: &str) -> Vec<String> {
    let first = text.lines().next().unwrap_or_default();
    let Some(rest) = first.strip_prefix("#!") else {
        return vec!["bash".into()];
    };
    let words: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
    match words.first().and_then(|word| word.rsplit('/').next()) {
        None => vec!["bash".into()],
        // `env` looks its program up, as antiphon does.
        Some("env") if words.len() > 1 => {
            let words = words.into_iter().skip(1);
            words.filter(|word| word != "-S").collect()
        }
        Some(_) => words,
    }
}

/// A command of a script.
fn command(words: &[Word], file: &str, uses: &mut Uses) {
    let text = |at: usize| words.get(at).map_or("", |word: &Word| word.text.as_str());
    let line = words.first().map_or(1, |word| word.line);
    let place = Place::new(file, line);
    match text(0).rsplit('/').next().unwrap_or_default() {
        "srun" => step(words, &place, uses),
        "mpirun" | "mpiexec" => uses.warnings.push(Warning::Differs {
            place,
            option: text(0).to_owned(),
            how: "it finds no hosts of Slurm's: it starts processes in its own task alone".into(),
        }),
        "pdsh" | "clush" => uses.warnings.push(Warning::NotHonored {
            place,
            option: text(0).to_owned(),
            effect: "tasks of a job do not reach each other by ssh; the script runs in each of them already".into(),
        }),
        "sbatch" | "scancel" | "squeue" | "sacct" => uses.warnings.push(Warning::NotHonored {
            place,
            option: text(0).to_owned(),
            effect: "it speaks to Slurm and not to antiphon".into(),
        }),
        _ => (),
    }
}

/// A line of `srun`: its options, and whether it starts the job's processes.
fn step(words: &[Word], place: &Place, uses: &mut Uses) {
    let mut alone = false;
    let mut named = false;
    let mut rest = words.iter().skip(1).peekable();
    while let Some(word) = rest.next_if(|word| word.text.starts_with('-')) {
        let (name, attached) = match word.text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.text.as_str(), None),
        };
        let letter = name.chars().nth(1).filter(|_| !name.starts_with("--"));
        let long = match letter {
            Some('n') => "ntasks",
            Some('w') => "nodelist",
            Some('o') => "output",
            Some('e') => "error",
            Some('D') => "chdir",
            _ => name.trim_start_matches('-'),
        };
        let of_sbatch = OPTIONS
            .iter()
            .find(|known| known.long == long || letter.is_some() && known.short == letter);
        let takes_value = of_sbatch.is_none_or(|known| known.takes == super::options::Takes::Value);
        let flag = matches!(
            long,
            "label"
                | "unbuffered"
                | "overlap"
                | "exact"
                | "whole"
                | "pty"
                | "multi-prog"
                | "kill-on-bad-exit"
                | "disable-status"
        ) || letter.is_some_and(|letter| "luXZK".contains(letter));
        let joined = letter.is_some() && name.chars().count() > 2;
        let value = match attached {
            Some(value) => value.to_owned(),
            None if joined => name.chars().skip(2).collect(),
            None if takes_value && !flag => rest
                .next()
                .map(|word| word.text.clone())
                .unwrap_or_default(),
            None => String::new(),
        };
        alone |= long == "ntasks" && value == "1";
        named |= long == "nodelist";
        if let Some(Fate::Refused(effect)) = keys::find(&[STEP], long).map(|key| key.fate) {
            uses.warnings.push(Warning::NotHonored {
                place: Place::new(&place.file, word.line),
                option: format!("srun --{long}"),
                effect: effect.into(),
            });
        }
    }
    // Steps of one task on one node prepare something, or start one process of several that are written out.
    if !(alone || named) {
        uses.srun.get_or_insert_with(|| place.clone());
    }
}

/// Whether a word stands in a line as a word of its own.
fn has_word(line: &str, word: &str) -> bool {
    let edge = |c: Option<char>| {
        c.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '-' && c != '.')
    };
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line
            .get(at + word.len()..)
            .and_then(|text| text.chars().next());
        edge(before) && edge(after)
    })
}

/// Names of variables that Slurm sets.
fn slurm_names(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| {
        let begins =
            word.starts_with("SLURM_") || word.starts_with("SLURMD_") || *word == "SLURM_JOBID";
        begins && word.len() > 6 && !word.ends_with('_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_who_runs_a_script() {
        for (first, program) in [
            ("#!/bin/bash -l", vec!["/bin/bash", "-l"]),
            ("#!/usr/bin/env python3", vec!["python3"]),
            ("#!/usr/bin/env -S bash -e", vec!["bash", "-e"]),
            ("#!", vec!["bash"]),
            ("echo x", vec!["bash"]),
        ] {
            assert_eq!(interpreter(&format!("{first}\nx\n")), program);
        }
    }

    #[test]
    fn a_script_that_reads_nothing_of_slurm_is_run_as_it_is() {
        let plain = uses("#!/bin/bash\npython train.py # srun\n", "a");
        assert_eq!(plain.around(vec!["a".into()], 1, 1), ["/bin/bash", "a"]);
        let reads = uses(
            "#!/bin/sh\nsrun python train.py $SLURM_PROCID $SLURM_TOPOLOGY_ADDR\n",
            "a",
        );
        let command = reads.around(vec!["a".into()], 1, 8);
        assert_eq!(
            command.get(3..).unwrap(),
            ["slurm", "1", "8", "/bin/sh", "a"]
        );
        assert!(reads.srun.is_some());
        assert_eq!(reads.warnings.len(), 1, "{:?}", reads.warnings);
    }

    #[test]
    fn a_step_on_one_node_does_not_start_the_jobs_processes() {
        for (line, starts) in [
            ("srun torchrun train.py", true),
            ("srun -l --ntasks-per-node=1 python x.py", true),
            ("srun --nodes=1 --ntasks=1 -w n0 hostname", false),
            ("srun -n1 python prepare.py", false),
            ("srun --mpi pmix ./x", true),
        ] {
            assert_eq!(uses(line, "a").srun.is_some(), starts, "{line}");
        }
        let container = uses(
            "srun --container-image=x.sqsh --container-mounts=/a:/a python x.py\n",
            "a",
        );
        assert_eq!(container.warnings.len(), 2);
    }
}
