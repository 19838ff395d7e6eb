//! What `sacct --parsable2` of a Slurm cluster prints, of any version, with any columns in any order. Only jobs are read:
//! steps (`123.batch`) are passed over.
//!
//! Source: <https://slurm.schedmd.com/sacct.html>. Columns between `|`, with a header, upper and lower case alike:
//!
//! | column | unit | used as |
//! | --- | --- | --- |
//! | `JobID` or `JobIDRaw` | `123`, `123_4`, `123_[5-9%2]`, `123+0` | name |
//! | `Submit`, else `Eligible`, else `Start` | local time, seconds since 1970 also read | submission |
//! | `Eligible`, where it is later than `Submit` | | submission: before, the job was held back by a dependency, a begin time or a hold |
//! | `ElapsedRaw`, else `Elapsed`, else `End` - `Start` | s; `D-HH:MM:SS`, `MM:SS.mmm`; times | [`Work::Time`] |
//! | `AllocTRES`, else `ReqTRES` | `gres/gpu=8`, `gres/gpu:h100=8`, `cpu=`, `mem=` | GPUs, type, CPUs, memory |
//! | `AllocGRES` or `ReqGRES`, where the above do not name GPUs | `gpu:h100:8`, for each of `NNodes` | GPUs |
//! | `State` | | end |
//! | `TimelimitRaw`, else `Timelimit` | min; `D-HH:MM:SS` | limit |
//! | `Account`, `User` | | team, user |
//! | `NCPUS`, `ReqMem` | CPUs; `64G`, `4000Mc`, `64Gn` | CPUs, memory, where the TRES do not say |
//! | others | | not used |
//!
//! - One of the four columns that name GPUs has to be there. A job that names none in it is kept: it needs no GPU.
//! - A pending array `123_[5-9%2]` is as many jobs as it has tasks; the parts of a heterogeneous job `123+0`, `123+1` are
//!   one job, for they start together.
//! - A job that stands there twice (`--duplicates`) was requeued: its last record counts, with the first submission.
//! - How long a cancelled, preempted, pending or running job would have run is not known: the time that it ran is given, and
//!   its end says so. `PREEMPTED` is read as canceled.
//! - Slurm prints local times; the hour in which the clock goes back is ambiguous.

mod needs;

use std::collections::{BTreeMap, HashMap};

use antiphon_types::{Bytes, Millis};

use super::clock::{date_time, span};
use super::mig::share;
use super::table::{Between, Column, Row, Rows, Table, job, wrong};
use super::{Source, TraceError};
use crate::workload::{End, TraceJob, Work};

/// Tasks that one row of a pending array stands for at most: Slurm's own limit is lower by default.
const ARRAY_TASKS_MAX: usize = 10_000;

struct Columns {
    id: Column,
    names: usize,
    job_name: Option<Column>,
    submit: Column,
    eligible: Option<Column>,
    start: Option<Column>,
    end: Option<Column>,
    elapsed_raw: Option<Column>,
    elapsed: Option<Column>,
    tres: [Option<Column>; 2],
    gres: [Option<Column>; 2],
    nodes: Option<Column>,
    state: Option<Column>,
    limit_raw: Option<Column>,
    limit: Option<Column>,
    account: Option<Column>,
    user: Option<Column>,
    cpus: Option<Column>,
    memory: Option<Column>,
}

impl Columns {
    fn of(table: &Table<'_>) -> Result<Self, TraceError> {
        let columns = Self {
            id: table.need_any(&["JobID", "JobIDRaw"])?,
            names: table.header().len(),
            job_name: table.find("JobName"),
            submit: table.need_any(&["Submit", "Eligible", "Start"])?,
            eligible: table.find("Eligible"),
            start: table.find("Start"),
            end: table.find("End"),
            elapsed_raw: table.find("ElapsedRaw"),
            elapsed: table.find("Elapsed"),
            tres: ["AllocTRES", "ReqTRES"].map(|name| table.find(name)),
            gres: ["AllocGRES", "ReqGRES"].map(|name| table.find(name)),
            nodes: table.find("NNodes").or_else(|| table.find("AllocNodes")),
            state: table.find("State"),
            limit_raw: table.find("TimelimitRaw"),
            limit: table.find("Timelimit"),
            account: table.find("Account"),
            user: table.find("User"),
            cpus: table.find("NCPUS").or_else(|| table.find("AllocCPUS")),
            memory: table.find("ReqMem"),
        };
        if columns.elapsed_raw.or(columns.elapsed).is_none() {
            table.need("Start")?;
            table.need("End")?;
        }
        if columns
            .tres
            .iter()
            .chain(&columns.gres)
            .all(Option::is_none)
        {
            table.need("AllocTRES")?;
        }
        Ok(columns)
    }
}

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let table = Table::open(source, "sacct", Between::Bar);
    let columns = Columns::of(&table)?;
    let mut records = Records::default();
    table.each(|row| {
        let repaired;
        let row = match columns.job_name {
            Some(name) if row.len() > columns.names => {
                repaired = row.joined(name, columns.names);
                &repaired.row()
            }
            _ => row,
        };
        if row.get(Some(columns.id)).contains('.') {
            return Ok(());
        }
        match record(&columns, row) {
            Err(reason) => rows.refuse(row.line, reason)?,
            Ok(record) if record.name.contains('[') => {
                for name in tasks(&record.name) {
                    records.put(TraceJob {
                        name,
                        ..record.clone()
                    });
                }
            }
            Ok(record) => records.put(record),
        }
        Ok(())
    })?;
    for job in with_whole_gangs(records.jobs) {
        rows.take(job.line, Ok(job))?;
    }
    Ok(())
}

/// Jobs by name: the last record of each.
#[derive(Default)]
struct Records {
    jobs: Vec<TraceJob>,
    places: HashMap<String, usize>,
}

impl Records {
    fn put(&mut self, mut job: TraceJob) {
        let place = self.places.get(&job.name);
        if let Some(before) = place.and_then(|place| self.jobs.get_mut(*place)) {
            job.submitted = job.submitted.min(before.submitted);
            *before = job;
        } else {
            self.places.insert(job.name.clone(), self.jobs.len());
            self.jobs.push(job);
        }
    }
}

fn record(columns: &Columns, row: &Row<'_>) -> Result<TraceJob, String> {
    let id = row.name(columns.id)?;
    if !id.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(wrong(
            "JobID",
            id,
            "a number like `123`, `123_4` or `123+0`",
        ));
    }
    let submitted = row.text(columns.submit)?;
    let submitted = moment(submitted)
        .ok_or_else(|| wrong("Submit", submitted, "a time like `2024-01-31T12:00:00`"))?;
    let eligible = moment(row.get(columns.eligible));
    let submitted = eligible.map_or(submitted, |eligible| submitted.max(eligible));
    let state = row.get(columns.state);
    let end = end_of(state).ok_or_else(|| wrong("State", state, "a state of a Slurm job"))?;
    let needs = needs::of(columns, row)?;
    let work = Work::Time(elapsed(columns, row)?);
    let mut job = job(row.line, id, submitted, needs.gpus, work);
    job.gpu_types = needs.gpu_type.into_iter().collect();
    job.cpu_milli = needs.cpu_milli;
    job.memory = needs.memory;
    job.end = end;
    job.limit = limit(columns, row)?;
    row.get(columns.account).clone_into(&mut job.team);
    row.get(columns.user).clone_into(&mut job.user);
    Ok(job)
}

/// A time; nothing for `Unknown`, `None` and what else is no time.
fn moment(text: &str) -> Option<Millis> {
    let seconds = || text.parse::<u32>().ok().map(|s| u64::from(s) * 1_000);
    date_time(text).or_else(seconds).map(Millis::from_millis)
}

fn elapsed(columns: &Columns, row: &Row<'_>) -> Result<Millis, String> {
    let start = moment(row.get(columns.start));
    let end = moment(row.get(columns.end));
    if let (Some(start), Some(end)) = (start, end)
        && end < start
    {
        let seen = row.get(columns.end);
        return Err(wrong("End", seen, "a time that is not before `Start`"));
    }
    let raw = row.get(columns.elapsed_raw);
    if !raw.is_empty() {
        let seconds = raw.parse::<u32>().ok();
        let ms = seconds.map(|seconds| Millis::from_millis(u64::from(seconds) * 1_000));
        return ms.ok_or_else(|| wrong("ElapsedRaw", raw, "seconds, at least 0"));
    }
    let text = row.get(columns.elapsed);
    if !text.is_empty() {
        let ms = span(text).map(Millis::from_millis);
        return ms.ok_or_else(|| wrong("Elapsed", text, "a time like `1-02:03:04`"));
    }
    Ok(match (start, end) {
        (Some(start), Some(end)) => end - start,
        // It never started, or it still runs.
        _ => Millis::ZERO,
    })
}

fn limit(columns: &Columns, row: &Row<'_>) -> Result<Option<Millis>, String> {
    let raw = row.get(columns.limit_raw);
    if let Ok(minutes) = raw.parse::<u32>() {
        return Ok(Some(Millis::from_millis(u64::from(minutes) * 60_000)));
    }
    let text = row.get(columns.limit);
    let none = ["", "UNLIMITED", "Partition_Limit", "INVALID", "NONE"];
    if none.iter().any(|word| word.eq_ignore_ascii_case(text)) {
        return Ok(None);
    }
    let ms = span(text).map(Millis::from_millis);
    ms.map(Some).ok_or_else(|| {
        wrong(
            "Timelimit",
            text,
            "a time like `1-00:00:00`, or `UNLIMITED`",
        )
    })
}

/// How a state is read; states may carry who ended the job, or be cut short to `CANCELLED+`.
fn end_of(state: &str) -> Option<End> {
    let word = state.split([' ', '+']).next().unwrap_or_default();
    let is = |name: &str| {
        let cut_short = state.ends_with('+') && word.len() >= 4;
        word.eq_ignore_ascii_case(name)
            || (cut_short
                && name
                    .to_ascii_lowercase()
                    .starts_with(&word.to_ascii_lowercase()))
    };
    let any = |names: &[&str]| names.iter().any(|name| is(name));
    if state.is_empty() || any(&["COMPLETED", "CD"]) {
        Some(End::Completed)
    } else if any(&["FAILED", "OUT_OF_MEMORY", "F", "OOM", "LAUNCH_FAILED"]) {
        Some(End::Failed)
    } else if any(&["CANCELLED", "PREEMPTED", "REVOKED", "CA", "PR", "RV"]) {
        Some(End::Canceled)
    } else if any(&["TIMEOUT", "DEADLINE", "TO", "DL"]) {
        Some(End::Limit)
    } else if any(&["NODE_FAIL", "BOOT_FAIL", "NF", "BF", "RECONFIG_FAIL"]) {
        Some(End::Hardware)
    } else if any(&[
        "RUNNING",
        "PENDING",
        "SUSPENDED",
        "REQUEUED",
        "RESIZING",
        "COMPLETING",
        "CONFIGURING",
        "STAGE_OUT",
        "SIGNALING",
        "STOPPED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "SPECIAL_EXIT",
        "RESV_DEL_HOLD",
        "R",
        "PD",
        "S",
    ]) {
        Some(End::Running)
    } else {
        None
    }
}

/// The names of the jobs that a row stands for.
fn tasks(id: &str) -> Vec<String> {
    let whole = || vec![id.to_owned()];
    let Some((base, rest)) = id.split_once("_[") else {
        return whole();
    };
    let list = rest.split([']', '%']).next().unwrap_or_default();
    let mut names = Vec::new();
    for part in list.split(',') {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let numbers = (
            first.parse::<u64>(),
            last.parse::<u64>(),
            step.parse::<usize>(),
        );
        let (Ok(first), Ok(last), Ok(step)) = numbers else {
            // Slurm cuts long lists short with `...`.
            continue;
        };
        for task in (first..=last).step_by(step.max(1)) {
            if names.len() >= ARRAY_TASKS_MAX {
                return names;
            }
            names.push(format!("{base}_{task}"));
        }
    }
    if names.is_empty() { whole() } else { names }
}

/// Joins the parts of heterogeneous jobs.
fn with_whole_gangs(records: Vec<TraceJob>) -> Vec<TraceJob> {
    let mut jobs: Vec<TraceJob> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for mut record in records {
        let Some((base, _)) = record.name.split_once('+') else {
            jobs.push(record);
            continue;
        };
        let base = base.to_owned();
        let Some(job) = places.get(&base).and_then(|place| jobs.get_mut(*place)) else {
            record.name.clone_from(&base);
            places.insert(base, jobs.len());
            jobs.push(record);
            continue;
        };
        let thousandths = job.gpus.thousandths() + record.gpus.thousandths();
        job.gpus = share(thousandths).unwrap_or(job.gpus);
        let sum = |a: Option<u64>, b: Option<u64>| a?.checked_add(b?);
        job.cpu_milli = sum(job.cpu_milli, record.cpu_milli);
        let memory = sum(job.memory.map(Bytes::get), record.memory.map(Bytes::get));
        job.memory = memory.map(Bytes::new);
        job.submitted = job.submitted.min(record.submitted);
        if let (Work::Time(time), Work::Time(other)) = (&mut job.work, &record.work) {
            *time = (*time).max(*other);
        }
        if job.gpu_types.is_empty() {
            job.gpu_types = record.gpu_types;
        } else if !record.gpu_types.is_empty() && job.gpu_types != record.gpu_types {
            // One gang of two types cannot be said; either type is nearest to it.
            job.gpu_types.append(&mut record.gpu_types);
        }
        if job.end == End::Completed {
            job.end = record.end;
        }
    }
    jobs
}
