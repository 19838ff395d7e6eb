//! Jobs as `scontrol show job -d` prints them, from 22.05 on: the text of each taken apart, and what its values mean.
//!
//! Slurm prints what users typed (names, comments, paths) as it is, line breaks included, so a name may read like another job.
//! What is typed ends where its line does; and since the real lines of a record always come too, one that was added shows: a
//! value stands there twice, or an id twice, or one that Slurm's plain list of ids does not have. Such records are told to be
//! unclear, and nothing is believed of them.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{Bytes, Timestamp};

use super::names::{expand, outside_brackets};

/// The values that are read, but for the name.
const KEYS: [&str; 38] = [
    "JobId",
    "ArrayJobId",
    "ArrayTaskId",
    "ArrayTaskThrottle",
    "HetJobId",
    "HetJobOffset",
    "UserId",
    "Priority",
    "Account",
    "QOS",
    "JobState",
    "Reason",
    "Dependency",
    "Restarts",
    "ExitCode",
    "TimeLimit",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "Partition",
    "ReqNodeList",
    "ExcNodeList",
    "NodeList",
    "NumNodes",
    "NumCPUs",
    "NumTasks",
    "TRES",
    "ReqTRES",
    "AllocTRES",
    "MinMemoryNode",
    "MinMemoryCPU",
    "Features",
    "OverSubscribe",
    "Reservation",
    "Licenses",
    "TresPerJob",
    "TresPerNode",
    "TresPerTask",
];

/// Lines that hold what a user typed, or that repeat it.
const TYPED: [&str; 13] = [
    "AdminComment",
    "BurstBuffer",
    "Command",
    "Comment",
    "Container",
    "Extra",
    "MailUser",
    "StdErr",
    "StdIn",
    "StdOut",
    "SubmitLine",
    "SystemComment",
    "WorkDir",
];

/// One record: a job, one component of a job that has several, or all tasks of an array that wait.
#[derive(Debug, Default)]
pub(super) struct Record<'a> {
    values: BTreeMap<&'a str, &'a str>,
    /// As its user named it.
    pub(super) name: &'a str,
    /// What it holds, by node.
    pub(super) nodes: Vec<OnNode>,
    /// Whether somebody typed what reads like values of it, or of another.
    pub(super) unclear: bool,
    part: Part,
}

/// Where in a record a line stands: values that decide whose it is and what it holds come before what is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    #[default]
    Head,
    /// Behind `JOB_GRES=`, where nodes are.
    Nodes,
    /// Behind the first line that a user typed.
    Typed,
}

/// What a job holds of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OnNode {
    pub(super) node: String,
    pub(super) cpus: u32,
    pub(super) memory: Bytes,
    /// How many GPUs, and which where Slurm says so.
    pub(super) gpus: u32,
    pub(super) indices: Vec<u32>,
}

impl<'a> Record<'a> {
    /// A value, where there is one.
    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        let value = self.values.get(key).copied()?;
        (!["", "(null)", "N/A", "Unknown", "None"].contains(&value)).then_some(value)
    }

    /// A number; of a range like `2-4` its lower end.
    pub(super) fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        let value = self.get(key)?;
        value.split('-').next().unwrap_or(value).parse().ok()
    }

    pub(super) fn time(&self, key: &str) -> Option<Timestamp> {
        time(self.get(key)?)
    }

    /// The nodes that it holds or held.
    pub(super) fn node_list(&self) -> Vec<String> {
        let list = self.get("NodeList").map(expand);
        list.and_then(Result::ok).unwrap_or_default()
    }
}

/// Reads ids of jobs, a line each: what `squeue --format=%A` prints.
pub(super) fn ids(text: &str) -> BTreeSet<u64> {
    text.lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect()
}

/// Takes what `scontrol show job -d` printed apart, of jobs that have one of these ids.
pub(super) fn parse<'a>(text: &'a str, ids: &BTreeSet<u64>) -> Vec<Record<'a>> {
    let mut records: Vec<Record<'_>> = Vec::new();
    for line in text.lines() {
        // Everything else of a record is indented.
        if line.starts_with("JobId=") {
            records.push(Record::default());
        }
        if let Some(record) = records.last_mut() {
            take(record, line.trim());
        }
    }
    let id = |record: &Record<'_>| record.number::<u64>("JobId");
    let mut times: BTreeMap<u64, u32> = BTreeMap::new();
    for id in records.iter().filter_map(id) {
        *times.entry(id).or_default() += 1;
    }
    // A record that should not be there was typed into the one before it.
    let forged = |record: &Record<'_>| {
        let known = id(record).filter(|id| ids.contains(id));
        known.is_none_or(|id| times[&id] > 1)
    };
    let unclear: Vec<bool> = records.iter().map(forged).collect();
    for (place, record) in records.iter_mut().enumerate() {
        let before_one = unclear.get(place + 1).copied().unwrap_or(false);
        record.unclear |= unclear[place] || before_one;
    }
    records.retain(|record| id(record).is_some_and(|id| ids.contains(&id)));
    records
}

fn take<'a>(record: &mut Record<'a>, line: &'a str) {
    let first = line.split('=').next().unwrap_or_default();
    if TYPED.contains(&first) {
        record.part = Part::Typed;
        return;
    }
    match (first, record.part) {
        ("JOB_GRES", Part::Head) => {
            record.part = Part::Nodes;
            return;
        }
        ("JOB_GRES", _) => {
            record.unclear = true;
            return;
        }
        ("Nodes", Part::Nodes) => return record.nodes.extend(on_nodes(line)),
        ("Nodes", _) => return,
        _ => (),
    }
    let begins = first == "JobId";
    let mut rest = line;
    while let Some((key, behind)) = rest.split_once('=') {
        if key == "JobName" {
            record.name = behind.trim();
            return;
        }
        let end = behind.find(char::is_whitespace).unwrap_or(behind.len());
        let of_head =
            key.starts_with("Array") || key.starts_with("HetJobI") || key == "HetJobOffset";
        let here = match record.part {
            Part::Head | Part::Nodes => begins || !of_head,
            Part::Typed => key.starts_with("Tres"),
        };
        if here && KEYS.contains(&key) && record.values.insert(key, &behind[..end]).is_some() {
            record.unclear = true;
        }
        rest = behind[end..].trim_start();
    }
}

/// `Nodes=n[1-2] CPU_IDs=0-7,9 Mem=64000 GRES=gpu:h100:2(IDX:0-1)`.
fn on_nodes(line: &str) -> Vec<OnNode> {
    let mut values: BTreeMap<&str, &str> = BTreeMap::new();
    for word in line.split_whitespace() {
        if let Some((key, value)) = word.split_once('=') {
            values.entry(key).or_insert(value);
        }
    }
    let value = |key: &str| values.get(key).copied().unwrap_or_default();
    let cpus = ranges(value("CPU_IDs")).map(|(first, last)| last - first + 1);
    let cpus = cpus.sum();
    let memory = value("Mem").parse::<u64>().unwrap_or(0);
    let (mut gpus, mut indices) = (0, Vec::new());
    for one in outside_brackets(value("GRES")) {
        let Some((_, count)) = gpus_of(one) else {
            continue;
        };
        gpus += count;
        let list = one.split_once("(IDX:").map(|(_, list)| list);
        let list = list.unwrap_or_default().trim_end_matches(')');
        indices.extend(ranges(list).flat_map(|(first, last)| first..=last));
    }
    let nodes = expand(value("Nodes")).unwrap_or_default();
    nodes
        .into_iter()
        .map(|node| OnNode {
            node,
            cpus,
            memory: Bytes::new(memory.saturating_mul(1 << 20)),
            gpus,
            indices: indices.clone(),
        })
        .collect()
}

/// `0-3,7`: pairs of first and last, none wider than any machine.
fn ranges(list: &str) -> impl Iterator<Item = (u32, u32)> {
    list.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        (first <= last).then_some((first, last.min(first.saturating_add(4_095))))
    })
}

/// Type and count of GPUs in one entry of Slurm's lists: `gres:gpu:h100:2`, `gres/gpu=8`, `gpu:2`, `gpu:h100:4(IDX:0-3)`. The type
/// is empty where none is named; nothing where the entry is about something else.
pub(super) fn gpus_of(entry: &str) -> Option<(&str, u32)> {
    let entry = entry.split('(').next().unwrap_or(entry);
    let entry = entry.strip_prefix("gres:").unwrap_or(entry);
    let entry = entry.strip_prefix("gres/").unwrap_or(entry);
    let rest = entry.strip_prefix("gpu")?;
    if rest.is_empty() {
        return Some(("", 1));
    }
    let rest = rest.strip_prefix([':', '='])?;
    match rest.rsplit_once([':', '=']) {
        Some((kind, count)) => Some((kind, count.parse().ok()?)),
        None => Some(rest.parse().map_or((rest, 1), |count| ("", count))),
    }
}

/// The indices of an array's tasks: `1-9`, `0-8:2`, `1,4,7-9%2`, at most `max` of them, and how many are left out.
pub(super) fn tasks(list: &str, max: usize) -> (Vec<u32>, usize) {
    let list = list.split('%').next().unwrap_or(list);
    let mut indices = Vec::new();
    for part in list.split(',') {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let step = step.parse::<usize>().unwrap_or(1).max(1);
        indices.extend(ranges(range).flat_map(|(first, last)| (first..=last).step_by(step)));
    }
    let left = indices.len().saturating_sub(max);
    indices.truncate(max);
    (indices, left)
}

/// `64G`, `4000M`, `0`: without a letter megabytes, as everywhere in Slurm.
pub(super) fn memory(text: &str) -> Option<Bytes> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "M" | "m" | "MB" => 20,
        "K" | "k" | "KB" => 10,
        "G" | "g" | "GB" => 30,
        "T" | "t" | "TB" => 40,
        _ => return None,
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let tenths = part.get(..1).unwrap_or("0").parse::<u64>().ok()?;
    let unit = 1_u64 << shift;
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    Some(Bytes::new(whole.checked_add(unit / 10 * tenths)?))
}

/// `2026-11-30T10:00:00`, in UTC.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    let (date, clock) = text.split_once('T')?;
    let numbers = |text: &str, between: char| -> Option<Vec<i64>> {
        text.split(between).map(|one| one.parse().ok()).collect()
    };
    let [year, month, day] = numbers(date, '-')?.try_into().ok()?;
    let [hour, minute, second] = numbers(clock, ':')?.try_into().ok()?;
    if !(1..=12).contains(&month) || !(1970..10_000).contains(&year) {
        return None;
    }
    // Days since 1970 in the Gregorian calendar, counting years from March, so that a leap day is a year's last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(Timestamp::from_millis(u64::try_from(seconds * 1_000).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        let of = |text: &str| time(text).map(|at| at.as_millis() / 1_000);
        assert_eq!(of("1970-01-01T00:00:00"), Some(0));
        assert_eq!(of("2000-02-29T12:00:01"), Some(951_825_601));
        assert_eq!(of("2026-11-30T10:00:00"), Some(1_796_032_800));
        for text in ["Unknown", "2026-13-01T00:00:00", "2026-11-30", "T"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn gpus_are_counted_in_every_form() {
        for (entry, expected) in [
            ("gres:gpu:h100:2", Some(("h100", 2))),
            ("gres/gpu:h100:2", Some(("h100", 2))),
            ("gres/gpu:h100=8", Some(("h100", 8))),
            ("gres/gpu=8", Some(("", 8))),
            ("gres:gpu:2", Some(("", 2))),
            ("gpu:h100:4(IDX:0-3)", Some(("h100", 4))),
            ("gpu:h100", Some(("h100", 1))),
            ("gpu", Some(("", 1))),
            ("cpu=4", None),
            ("gres/gpumem=80G", None),
            ("scratch:2000", None),
        ] {
            assert_eq!(gpus_of(entry), expected, "{entry}");
        }
    }

    #[test]
    fn tasks_and_sizes_are_read() {
        assert_eq!(tasks("1-3,7%2", 10), (vec![1, 2, 3, 7], 0));
        assert_eq!(tasks("0-8:4", 10), (vec![0, 4, 8], 0));
        assert_eq!(tasks("1-1000", 3), (vec![1, 2, 3], 997));
        assert_eq!(memory("64G"), Some(Bytes::new(64 << 30)));
        assert_eq!(memory("4000M"), Some(Bytes::new(4_000 << 20)));
        assert_eq!(
            memory("1.50G"),
            Some(Bytes::new((1 << 30) + (1 << 30) / 10 * 5))
        );
        assert_eq!(memory("0"), Some(Bytes::ZERO));
        assert_eq!(memory("lots"), None);
    }

    fn clear<'a>(text: &'a str, known: &[u64]) -> (Vec<Record<'a>>, Vec<Record<'a>>) {
        let known = known.iter().copied().collect();
        let records = parse(text, &known);
        records.into_iter().partition(|record| !record.unclear)
    }

    #[test]
    fn what_a_user_types_on_a_line_is_no_value() {
        let text = "\
JobId=7 JobName=a JobId=8 UserId=root(0) TresPerNode=gres:gpu:8
   UserId=alice(1000) GroupId=lab(100) MCS_label=N/A
   Priority=5 Nice=0 Account=lab QOS=normal
   JobState=PENDING Reason=Resources Dependency=(null)
   Comment=x Account=other JobId=9
   Command=/home/alice/JobId=10 TresPerJob=gres:gpu:64
   TresPerNode=gres:gpu:2

JobId=11 JobName=
   JobState=RUNNING Reason=None
";
        let (records, unclear) = clear(text, &[7, 11]);
        assert!(unclear.is_empty(), "{unclear:?}");
        let ids: Vec<_> = records.iter().filter_map(|one| one.get("JobId")).collect();
        assert_eq!(ids, ["7", "11"]);
        let job = &records[0];
        assert_eq!(job.name, "a JobId=8 UserId=root(0) TresPerNode=gres:gpu:8");
        assert_eq!(job.get("UserId"), Some("alice(1000)"));
        assert_eq!(job.get("Account"), Some("lab"));
        assert_eq!(job.get("TresPerNode"), Some("gres:gpu:2"));
        assert_eq!(job.get("TresPerJob"), None);
        assert_eq!(job.get("Dependency"), None);
        assert_eq!(job.get("Reason"), Some("Resources"));
    }

    /// Slurm 22.05 takes a name with line breaks and prints it so. Whoever tries to speak for another job is not believed, and
    /// the other job is never thought to be his.
    #[test]
    fn what_a_user_types_on_many_lines_is_not_believed() {
        let real = "   UserId=eve(1003) GroupId=lab(100)\n   JobState=RUNNING Reason=None\n";
        let victim =
            "JobId=1 JobName=sft\n   UserId=ann(1001)\n   JobState=RUNNING Reason=None\n\n";
        for (typed, unclear) in [
            // Another user, in his own job.
            ("x\n   UserId=ann(1001) GroupId=lab(100)", &[3][..]),
            // A job that is not there.
            ("x\n\nJobId=98 JobName=fake\n   UserId=root(0)", &[3]),
            // A job that is there: then of neither anything is believed.
            ("x\n\nJobId=1 JobName=fake\n   UserId=root(0)", &[1, 3, 1]),
            ("x\n\nJobId=3 JobName=fake\n   UserId=root(0)", &[1, 3, 3]),
            // Harmless.
            ("two\nlines", &[]),
        ] {
            let text = format!(
                "{victim}JobId=3 JobName={typed}\n{real}\nJobId=5 JobName=y\n   JobState=RUNNING\n"
            );
            let (believed, others) = clear(&text, &[1, 3, 5]);
            let ids: Vec<u64> = others
                .iter()
                .filter_map(|one| one.number("JobId"))
                .collect();
            assert_eq!(ids, unclear, "{typed}");
            assert!(
                believed.iter().any(|one| one.get("JobId") == Some("5")),
                "{typed}"
            );
            assert!(
                believed
                    .iter()
                    .all(|one| one.get("UserId") != Some("root(0)")),
                "{typed}"
            );
        }
        // Behind what is typed nothing says whose part a job is, or what it holds.
        let text = format!(
            "JobId=3 JobName=x\n{real}   Comment=y\n   HetJobId=1\n   JOB_GRES=gpu:8\n     Nodes=n1 CPU_IDs=0 GRES=gpu:8\n"
        );
        let (_, unclear) = clear(&text, &[3]);
        assert_eq!(unclear.len(), 1);
        assert!(unclear[0].get("HetJobId").is_none() && unclear[0].nodes.is_empty());
    }

    #[test]
    fn what_a_job_holds_is_told_by_node() {
        let text = "\
JobId=3 JobName=wrap
   JOB_GRES=gpu:h100:6
     Nodes=n[1-2] CPU_IDs=0-3,8 Mem=1000 GRES=gpu:h100:2(IDX:0,5),scratch:0
     Nodes=n3 CPU_IDs=0 Mem=0 GRES=gpu:h100:2(IDX:0-1)
";
        let (records, _) = clear(text, &[3]);
        let [n1, n2, n3] = records[0].nodes.as_slice() else {
            panic!("three nodes: {records:?}")
        };
        assert_eq!((n1.node.as_str(), n2.node.as_str()), ("n1", "n2"));
        assert_eq!((n1.cpus, n1.memory), (5, Bytes::new(1_000 << 20)));
        assert_eq!((n2.gpus, n2.indices.as_slice()), (2, &[0, 5][..]));
        assert_eq!((n3.gpus, n3.indices.as_slice()), (2, &[0, 1][..]));
    }
}
