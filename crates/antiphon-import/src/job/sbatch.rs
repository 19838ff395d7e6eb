//! Slurm batch scripts. The script stays what runs: its options become resources, and what stands in for `srun` and for Slurm's
//! variables is put around it. Reads no file and runs nothing.

use super::Origin;
use super::error::JobError;
use super::form::{Job, Resources, Retry, Role, job_name, one_for_each};
use super::keys::Fate;
use super::quantity::{seconds, slurm_size, slurm_time};
use crate::place::{Place, short};
use crate::warning::Warning;

mod dependency;
mod layout;
mod options;
mod script;

use layout::{Ask, At, Layout, layout};
use options::{Given, OPTIONS};
use script::Uses;

/// Numbers of nodes of one job: `--nodes=2-4` makes three shapes.
const SIZES_MAX: u64 = 16;

/// Whether a text is a batch script, though it has no first line that says who runs it.
pub(super) fn is_batch_script(text: &str) -> bool {
    let mut lines = text
        .lines()
        .take_while(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    lines.any(|line| line.starts_with("#SBATCH"))
}

/// What is known of the format.
pub(super) fn tables() -> Vec<(&'static str, Vec<(String, Fate)>)> {
    let written = |known: &options::Known| {
        let key = match known.short {
            Some(letter) => format!("--{}, -{letter}", known.long),
            None => format!("--{}", known.long),
        };
        (key, known.fate)
    };
    let mut tables = vec![("option of `#SBATCH`", OPTIONS.iter().map(written).collect())];
    tables.extend(super::keys::plain(&[
        ("option of `srun`", script::STEP),
        ("variable", script::PROVIDED),
    ]));
    tables
}

/// The job of a script.
pub(super) fn jobs(text: &str, origin: &Origin<'_>) -> Result<(Vec<Job>, Vec<Warning>), JobError> {
    let batch = options::read(text, origin.name)?;
    let mut uses = script::uses(text, origin.name);
    let mut warnings = batch.warnings;
    warnings.append(&mut uses.warnings);
    let mut job = Job {
        name: job_name(origin.name),
        ..Job::default()
    };
    let mut reader = Reader {
        job: &mut job,
        origin,
        warnings: &mut warnings,
        wrap: None,
    };
    let mut asks = Vec::new();
    for component in &batch.components {
        let mut ask = Component::default();
        for given in component {
            reader.option(given, &mut ask)?;
        }
        asks.push(ask);
    }
    let wrap = reader.wrap.take();
    let script = match (&wrap, origin.path) {
        (Some(_), _) => Vec::new(),
        (None, Some(path)) => vec![path.to_owned()],
        (None, None) => vec!["-c".into(), text.to_owned(), origin.name.to_owned()],
    };
    let script: Vec<String> = script
        .into_iter()
        .chain(origin.arguments.iter().cloned())
        .collect();
    if let Some(wrapped) = &wrap {
        let mut inner = script::uses(&format!("#!/bin/sh\n{wrapped}\n"), origin.name);
        inner.interpreter = vec!["sh".into(), "-c".into(), wrapped.clone(), "wrap".into()];
        uses = inner;
    }
    let several = asks.len() > 1;
    let mut first = None;
    for (index, component) in asks.iter().enumerate() {
        let (shape, layout) = shape(component, &uses, origin, &mut warnings)?;
        let command = uses.around(script.clone(), layout.tasks_per_node, layout.steps_per_task);
        if several {
            let resources = shape;
            job.roles
                .insert(format!("het{index}"), Role { command, resources });
        } else {
            job.run.command = command;
            job.resources = Some(shape);
        }
        first.get_or_insert(layout);
    }
    if several {
        warnings.push(Warning::Differs {
            place: Place::new(origin.name, hetjob_line(text)),
            option: "hetjob".into(),
            how: "the script runs in every component; Slurm runs it in the first, and the others run what `srun` starts there".into(),
        });
    }
    if let Some(layout) = first.filter(|_| uses.needs_slurm()) {
        variables(&mut job, &uses, &layout, &asks);
    }
    warnings.sort_by_key(|warning| warning.place().map_or(u64::MAX, |place| place.line));
    Ok((vec![job], warnings))
}

fn hetjob_line(text: &str) -> u64 {
    let separator = |line: &str| {
        line.starts_with("#SBATCH") && (line.contains("hetjob") || line.contains("packjob"))
    };
    text.lines()
        .zip(1..)
        .find(|(line, _)| separator(line))
        .map_or(1, |(_, number)| number)
}

/// One component of a job: Slurm's numbers, and where it may run.
#[derive(Default)]
struct Component {
    ask: Ask,
    partitions: Vec<String>,
    gpu_types: Vec<String>,
}

/// The shapes of a component: one for each number of nodes, partition and GPU type that it takes.
fn shape(
    component: &Component,
    uses: &Uses,
    origin: &Origin<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<(Resources, Layout), JobError> {
    let ask = &component.ask;
    let sizes: Vec<Option<u64>> = match &ask.nodes {
        None => vec![None],
        Some(at) => {
            let (least, most) = at.value;
            let least = least.max(most.saturating_sub(SIZES_MAX - 1));
            (least..=most).rev().map(Some).collect()
        }
    };
    let mut layouts = Vec::new();
    for (index, nodes) in sizes.iter().enumerate() {
        let mut once = Vec::new();
        layouts.push(layout(ask, *nodes, uses, &mut once)?);
        if index == 0 {
            warnings.append(&mut once);
        }
    }
    let mut shapes: Vec<Resources> = layouts
        .iter()
        .map(|layout| layout.resources.clone())
        .collect();
    let layout = layouts.swap_remove(0);
    let mut all = shapes.remove(0);
    // Where processes are one a GPU, they are so in every shape.
    all.alternatives = shapes
        .into_iter()
        .filter(|shape| shape.processes == all.processes)
        .collect();
    if !component.partitions.is_empty() {
        all = one_for_each(all, &component.partitions, |shape, partition| {
            shape.partition = Some(partition.clone());
        });
    }
    if all.gpu_type.is_none() && all.gpus.0 > 0 && !component.gpu_types.is_empty() {
        all = one_for_each(all, &component.gpu_types, |shape, gpu_type| {
            shape.gpu_type = Some(named(gpu_type, origin));
        });
    } else if let Some(gpu_type) = all.gpu_type.clone() {
        all = one_for_each(all, &[named(&gpu_type, origin)], |shape, gpu_type| {
            shape.gpu_type = Some(gpu_type.clone());
        });
    }
    Ok((all, layout))
}

/// A GPU type by the name of the catalog, where it means one part alone; else as it is written.
fn named(name: &str, origin: &Origin<'_>) -> String {
    match (origin.gpu_types)(name).as_slice() {
        [one] => one.clone(),
        _ => name.to_owned(),
    }
}

/// Slurm's variables that follow from the script's options alone.
fn variables(job: &mut Job, uses: &Uses, layout: &Layout, asks: &[Component]) {
    let partition = asks
        .first()
        .and_then(|component| component.partitions.first().cloned());
    let memory = asks.first().and_then(|component| component.ask.memory);
    let indices = job.array.as_deref().and_then(array_ends);
    let number = |number: u64| Some(number.to_string());
    // Where antiphon chooses the nodes, nothing can be said of one.
    let of_node = (layout.tasks_per_node > 0).then_some(layout.per_node);
    for (name, value) in [
        ("SLURM_JOB_NAME", Some(job.name.clone())),
        ("SLURM_JOB_ACCOUNT", job.team.clone()),
        ("SLURM_JOB_PARTITION", partition),
        ("SLURM_NTASKS_PER_NODE", of_node.and_then(number)),
        ("SLURM_TASKS_PER_NODE", of_node.and_then(number)),
        ("SLURM_CPUS_PER_TASK", layout.cpus.and_then(number)),
        (
            "SLURM_CPUS_ON_NODE",
            layout
                .cpus
                .and_then(|cpus| number(cpus.saturating_mul(of_node?))),
        ),
        (
            "SLURM_GPUS",
            Some(layout.resources.gpus.0 / 1_000)
                .filter(|gpus| *gpus > 0)
                .and_then(number),
        ),
        (
            "SLURM_GPUS_PER_NODE",
            of_node
                .map(|_| layout.gpus_per_node)
                .filter(|gpus| *gpus > 0)
                .and_then(number),
        ),
        ("SLURM_MEM_PER_NODE", memory.and_then(number)),
        (
            "SLURM_ARRAY_TASK_COUNT",
            indices.and_then(|(count, _, _)| number(count)),
        ),
        (
            "SLURM_ARRAY_TASK_MIN",
            indices.and_then(|(_, least, _)| number(least)),
        ),
        (
            "SLURM_ARRAY_TASK_MAX",
            indices.and_then(|(_, _, most)| number(most)),
        ),
    ] {
        let reads = uses.variables.iter().any(|(read, _)| read == name);
        if let Some(value) = value.filter(|_| reads) {
            job.run.environment.entry(name.into()).or_insert(value);
        }
    }
}

/// How many indices an array has, the least and the most.
fn array_ends(text: &str) -> Option<(u64, u64, u64)> {
    let list = text.split('%').next()?;
    let (mut count, mut least, mut most) = (0_u64, u64::MAX, 0_u64);
    for part in list.split(',') {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last, step): (u64, u64, u64) = (
            first.trim().parse().ok()?,
            last.trim().parse().ok()?,
            step.trim().parse().ok()?,
        );
        count = count.checked_add(last.checked_sub(first)?.checked_div(step)?.checked_add(1)?)?;
        least = least.min(first);
        most = most.max(last);
    }
    Some((count, least, most))
}

struct Reader<'a, 'o> {
    job: &'a mut Job,
    origin: &'a Origin<'o>,
    warnings: &'a mut Vec<Warning>,
    wrap: Option<String>,
}

impl Reader<'_, '_> {
    fn not_honored(&mut self, given: &Given, effect: impl Into<String>) {
        self.warnings.push(Warning::NotHonored {
            place: given.place.clone(),
            option: given.written(),
            effect: effect.into(),
        });
    }

    fn differs(&mut self, given: &Given, how: impl Into<String>) {
        self.warnings.push(Warning::Differs {
            place: given.place.clone(),
            option: given.written(),
            how: how.into(),
        });
    }

    fn option(&mut self, given: &Given, component: &mut Component) -> Result<(), JobError> {
        match given.known.fate {
            Fate::Refused(effect) => {
                self.not_honored(given, effect);
                return Ok(());
            }
            Fate::Harmless(_) => return Ok(()),
            Fate::Becomes(_) => (),
        }
        let ask = &mut component.ask;
        let value = given.value.trim();
        let at = |number: u64| {
            Some(At {
                value: number,
                place: given.place.clone(),
                written: given.written(),
            })
        };
        match given.known.long {
            "account" => self.job.team = Some(self.name(given, "team")),
            "array" => self.job.array = Some(value.replace(char::is_whitespace, "")),
            "begin" => self.job.not_before = moment(given)?,
            "chdir" => self.job.run.workdir = Some(self.plain_path(given)),
            "constraint" => self.constraint(given, component),
            "cpus-per-gpu" => ask.cpus_per_gpu = Some(count(given)?),
            "cpus-per-task" => ask.cpus_per_task = Some(count(given)?),
            "deadline" => self.job.deadline = moment(given)?,
            "dependency" => dependency::read(given, self.job, self.warnings)?,
            "export" => self.export(given),
            "gpus" => ask.gpus = at(gpus(given, ask)?),
            "gpus-per-node" => ask.gpus_per_node = at(gpus(given, ask)?),
            "gpus-per-task" => ask.gpus_per_task = at(gpus(given, ask)?),
            "gres" => self.gres(given, ask)?,
            "hold" => self.job.held = Some(true),
            "job-name" => {
                let name = self.name(given, "name");
                self.job.name = name;
            }
            "licenses" => self.licenses(given)?,
            "mem" => ask.memory = Some(size(given)?),
            "mem-per-cpu" => ask.memory_per_cpu = Some(size(given)?),
            "mem-per-gpu" => ask.memory_per_gpu = Some(size(given)?),
            "nice" => self.job.priority = Some(priority(given, "100", -1)?),
            "priority" => self.job.priority = Some(priority(given, "0", 1)?),
            "no-requeue" => self.job.retry = Some(Retry { retries: 0 }),
            "nodes" => {
                ask.nodes = Some(At {
                    value: node_range(given)?,
                    place: given.place.clone(),
                    written: given.written(),
                });
            }
            "ntasks" => ask.tasks = at(count(given)?),
            "ntasks-per-gpu" => ask.tasks_per_gpu = at(count(given)?),
            "ntasks-per-node" => ask.tasks_per_node = at(count(given)?),
            "partition" => {
                let names = value
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty());
                component.partitions = names.map(str::to_owned).collect();
            }
            "qos" => self.qos(given),
            "signal" => self.signal(given)?,
            "time" => {
                let limit = slurm_time(value)
                    .ok_or_else(|| given.bad("a time like `90`, `4:00:00` or `2-12`"))?;
                self.job.run.time_limit = limit.map(seconds);
            }
            "tmp" => ask.scratch = Some(size(given)?),
            "wrap" => self.wrap = Some(given.value.clone()),
            other => unreachable!("`--{other}` is in the table as followed, and nobody follows it"),
        }
        Ok(())
    }

    /// A name that antiphon takes, with a warning where it is another than the one that stands there.
    fn name(&mut self, given: &Given, what: &str) -> String {
        // Patterns of file names stand for nothing here.
        let name = job_name(given.value.trim());
        if name != given.value.trim() {
            self.differs(
                given,
                format!("the {what} is `{name}`: one has letters, digits, `-`, `_` and `.`"),
            );
        }
        name
    }

    fn plain_path(&mut self, given: &Given) -> String {
        if given.value.contains('%') {
            self.differs(given, "`%` stands for nothing in a path here");
        }
        given.value.clone()
    }

    /// Features: those that name a GPU type are followed.
    fn constraint(&mut self, given: &Given, component: &mut Component) {
        let known = |word: &str| !(self.origin.gpu_types)(word).is_empty();
        let bare = |word: &str| word.split('*').next().unwrap_or(word).trim().to_owned();
        let words: Vec<String> = given
            .value
            .split(['|', '&', ',', '[', ']', '(', ')'])
            .map(bare)
            .filter(|word| !word.is_empty())
            .collect();
        let (types, others): (Vec<String>, Vec<String>) =
            words.into_iter().partition(|word| known(word));
        let either = given.value.contains('|');
        if !types.is_empty() && (others.is_empty() || !either) && (types.len() == 1 || either) {
            component.gpu_types = types;
        } else if !types.is_empty() {
            self.not_honored(given, "it names GPU types together with what antiphon does not know; give `--gres=gpu:TYPE:N`");
            return;
        }
        if !others.is_empty() {
            self.not_honored(
                given,
                format!(
                    "antiphon knows no feature {}",
                    crate::error::quoted(&others)
                ),
            );
        }
    }

    /// `ALL,NAME=value,OTHER`.
    fn export(&mut self, given: &Given) {
        let mut handed_on = Vec::new();
        for part in given
            .value
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            match part.split_once('=') {
                Some((name, value)) if !name.is_empty() && !name.starts_with("ANTIPHON_") => {
                    self.job
                        .run
                        .environment
                        .insert(name.to_owned(), value.to_owned());
                }
                _ if part == "NONE" || part == "NIL" => (),
                _ => handed_on.push(part.to_owned()),
            }
        }
        if !handed_on.is_empty() {
            self.not_honored(
                given,
                "nothing of the submitting shell's environment is handed on; write what the script needs into `run.environment`",
            );
        }
    }

    /// `gpu:h100:8,nvme:1`.
    fn gres(&mut self, given: &Given, ask: &mut Ask) -> Result<(), JobError> {
        for part in given.value.split(',').map(str::trim) {
            let part = part
                .strip_prefix("gres/")
                .or(part.strip_prefix("gres:"))
                .unwrap_or(part);
            if part == "none" || part.is_empty() {
                continue;
            }
            let of_gpu = part
                .strip_prefix("gpu")
                .filter(|rest| rest.is_empty() || rest.starts_with([':', '=']));
            let Some(rest) = of_gpu else {
                self.not_honored(
                    given,
                    format!(
                        "antiphon knows no `{}` of a node; `--tmp` asks for local storage",
                        short(part)
                    ),
                );
                continue;
            };
            let rest = rest.trim_start_matches([':', '=']);
            let number =
                typed(rest).ok_or_else(|| given.bad("GPUs like `gpu:8` or `gpu:h100:8`"))?;
            take_type(number.0, ask);
            ask.gpus_per_node = Some(At {
                value: number.1,
                place: given.place.clone(),
                written: given.written(),
            });
        }
        Ok(())
    }

    /// `matlab:2,ansys@server:1`.
    fn licenses(&mut self, given: &Given) -> Result<(), JobError> {
        for part in given
            .value
            .split([',', ';'])
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (name, number) = part.split_once([':', '=']).unwrap_or((part, "1"));
            let number = number
                .parse::<u64>()
                .map_err(|_| given.bad("licenses like `matlab:2`"))?;
            self.job.shared.insert(job_name(name), number);
        }
        Ok(())
    }

    /// Quality of service: what is called like a class is one.
    fn qos(&mut self, given: &Given) {
        let class = match given.value.trim().to_ascii_lowercase().as_str() {
            "service" => "service",
            "production" | "prod" => "production",
            "standard" | "normal" => "standard",
            "best-effort" | "besteffort" | "best_effort" => "best-effort",
            "scavenger" | "scavenge" | "preempt" | "preemptible" | "preemptable" => {
                self.differs(
                    given,
                    "the class is `best-effort`: it runs on what others leave",
                );
                "best-effort"
            }
            _ => {
                self.not_honored(given, "the class is `standard`; there are `service`, `production`, `standard` and `best-effort`");
                return;
            }
        };
        self.job.class = Some(class);
    }

    /// `[B:]USR1@120`.
    fn signal(&mut self, given: &Given) -> Result<(), JobError> {
        let (who, rest) = given.value.rsplit_once(':').unwrap_or(("", &given.value));
        let (signal, before) = match rest.split_once('@') {
            // Slurm's own: 60 seconds.
            None => (rest, "60"),
            Some(parts) => parts,
        };
        let before: u64 = before
            .trim()
            .parse()
            .map_err(|_| given.bad("a signal and seconds like `B:TERM@120`"))?;
        self.job.run.grace = Some(seconds(before.clamp(1, 86_400)));
        let name = signal.trim().to_ascii_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        if !matches!(name, "TERM" | "15") || !who.is_empty() {
            self.differs(
                given,
                format!("antiphon sends SIGTERM to all processes of a task, and SIGKILL {} later; trap TERM instead", seconds(before)),
            );
        }
        Ok(())
    }
}

/// A whole number of at least 1; Slurm also takes `8k`.
fn count(given: &Given) -> Result<u64, JobError> {
    number(given, 1)
}

fn number(given: &Given, least: u64) -> Result<u64, JobError> {
    let number = given.value.trim().parse::<u64>().ok();
    number
        .filter(|number| (least..=1_000_000).contains(number))
        .ok_or_else(|| given.bad(&format!("a whole number from {least} to 1000000")))
}

fn size(given: &Given) -> Result<u64, JobError> {
    slurm_size(&given.value).ok_or_else(|| given.bad("a size like `64G`"))
}

fn priority(given: &Given, default: &str, sign: i64) -> Result<i32, JobError> {
    let text = if given.value.is_empty() {
        default
    } else {
        given.value.trim()
    };
    let number = text
        .parse::<i64>()
        .ok()
        .filter(|number| number.abs() <= i64::from(i32::MAX));
    let number = number.ok_or_else(|| given.bad("a whole number"))?;
    Ok(i32::try_from(number * sign).unwrap_or(i32::MAX))
}

/// `8`, `h100:8`, `a100_3g.20gb:1` or a type alone: the type, and how many.
fn typed(text: &str) -> Option<(Option<String>, u64)> {
    let count = |text: &str| text.parse::<u64>().ok().filter(|count| *count <= 1_000_000);
    let text = text.split('(').next().unwrap_or(text);
    match text.rsplit_once([':', '=']) {
        None if text.is_empty() => Some((None, 1)),
        None => match count(text) {
            Some(number) => Some((None, number)),
            None if text.starts_with(|c: char| c.is_ascii_digit() && c != '0')
                && !text.contains(|c: char| c.is_ascii_alphabetic()) =>
            {
                None
            }
            None => Some((Some(text.to_owned()), 1)),
        },
        Some((kind, number)) => Some((Some(kind.to_owned()), count(number)?)),
    }
}

fn gpus(given: &Given, ask: &mut Ask) -> Result<u64, JobError> {
    let several = given.value.contains(',');
    let (kind, number) = typed(given.value.trim())
        .filter(|_| !several)
        .ok_or_else(|| given.bad("GPUs of one type, like `8` or `h100:8`"))?;
    take_type(kind, ask);
    Ok(number)
}

/// A GPU's type; of a MIG device its profile, by which antiphon knows slices.
fn take_type(kind: Option<String>, ask: &mut Ask) {
    if let Some(kind) = kind.filter(|kind| !kind.is_empty()) {
        ask.gpu_type = Some(super::mig_profile(&kind).unwrap_or(kind));
    }
}

/// `4`, `2-4`.
fn node_range(given: &Given) -> Result<(u64, u64), JobError> {
    let count = |text: &str| {
        let text = text.trim();
        let (digits, scale) = text
            .strip_suffix(['k', 'K'])
            .map_or((text, 1), |digits| (digits, 1_024));
        digits
            .parse::<u64>()
            .ok()?
            .checked_mul(scale)
            .filter(|count| (1..=100_000).contains(count))
    };
    let (least, most) = given
        .value
        .split_once('-')
        .unwrap_or((&given.value, &given.value));
    match (count(least), count(most)) {
        (Some(least), Some(most)) if least <= most => Ok((least, most)),
        _ => Err(given.bad("a number of nodes like `2` or `2-4`")),
    }
}

/// `now`, `now+1hour`, `2026-12-01T08:00`.
fn moment(given: &Given) -> Result<Option<String>, JobError> {
    let text = given.value.trim();
    let expected = "`now+4hours`, or a date and time like `2026-12-01T08:00:00`";
    if text == "now" {
        return Ok(None);
    }
    if let Some(rest) = text.strip_prefix("now+") {
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (digits, unit) = rest.split_at(end);
        let scale = match unit.trim_end_matches('s') {
            "" | "second" => 1,
            "minute" => 60,
            "hour" => 3_600,
            "day" => 86_400,
            "week" => 604_800,
            _ => return Err(given.bad(expected)),
        };
        let count = digits
            .parse::<u64>()
            .ok()
            .filter(|count| *count <= 1_000_000_000);
        let count = count.ok_or_else(|| given.bad(expected))?;
        return Ok(Some(format!("+{}", seconds(count.saturating_mul(scale)))));
    }
    // In the zone of the machine that submits: the caller knows it.
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    match shape.as_str() {
        "0000-00-00" => Ok(Some(format!("{text}T00:00:00"))),
        "0000-00-00T00:00" => Ok(Some(format!("{text}:00"))),
        "0000-00-00T00:00:00" => Ok(Some(text.to_owned())),
        _ => Err(given.bad(expected)),
    }
}

#[cfg(test)]
mod tests;
