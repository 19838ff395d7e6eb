//! Why a job waits, with numbers. Data: the server and the CLI turn it into sentences, the same ones everywhere.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Class, GpuAmount, GpuTime, JobId, Millis, NodeName, Number, Reading, Span, Timestamp};

/// Why a job does not run now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// Its user put it on hold.
    Held,
    /// An operator stopped all deciding.
    Paused {
        /// What the operator wrote.
        reason: String,
    },
    /// A bug was caught; an operator has to look.
    SafeMode {
        /// The assertion's text.
        bug: String,
    },
    /// Jobs that have to succeed first.
    After {
        /// Those that have not yet.
        jobs: Vec<JobId>,
    },
    /// Jobs that have to end first, however they end.
    AfterEnd {
        /// Those that have not yet.
        jobs: Vec<JobId>,
    },
    /// Jobs that have to start first.
    AfterStart {
        /// Those that have not yet.
        jobs: Vec<JobId>,
    },
    /// Its user asked for a later start.
    NotBefore {
        /// When.
        at: Timestamp,
        /// From now on.
        left: Millis,
    },
    /// As many jobs of its array run as may.
    Throttled {
        /// How many run.
        running: u32,
        /// How many may.
        at_once: u32,
    },
    /// Its team, or one that its team is part of, holds all it may.
    TeamLimit {
        /// That team.
        team: String,
        /// The GPU type that the limit is about; of all types without one.
        gpu_type: Option<String>,
        /// What the team holds.
        allocated: GpuAmount,
        /// What the job asks for.
        asked: GpuAmount,
        /// What the team may hold.
        limit: GpuAmount,
    },
    /// Its team has used up its GPU-time of this week: the job counts as best-effort.
    OverBudget {
        /// That team.
        team: String,
        /// What it used in seven days.
        used: GpuTime,
        /// What it may use.
        budget: GpuTime,
        /// When enough of that is more than seven days old again.
        free_at: Timestamp,
        /// From now on.
        left: Millis,
    },
    /// Its team holds all that its quota covers of service and production: the job counts as standard.
    OverQuota {
        /// That team.
        team: String,
        /// What the team holds.
        allocated: GpuAmount,
        /// What the job asks for.
        asked: GpuAmount,
        /// The quota.
        quota: GpuAmount,
    },
    /// A resource that belongs to no node is short.
    Resource {
        /// Which.
        name: String,
        /// What the job asks for.
        asked: u64,
        /// What is free.
        free: u64,
    },
    /// There are enough free GPUs, but not close enough to each other.
    Span {
        /// What it asks for.
        asked: GpuAmount,
        /// Within what.
        span: Span,
        /// Where the most are free: a switch, a domain, a node.
        best: String,
        /// How many are free there.
        free: GpuAmount,
        /// Free everywhere.
        free_anywhere: GpuAmount,
    },
    /// Nodes that would do are about to be taken out of service, and it might not have ended by then.
    Maintenance {
        /// When.
        from: Timestamp,
        /// From now on.
        left: Millis,
        /// How long the job runs at most, if anything says so.
        longest: Option<Millis>,
    },
    /// A failed attempt is tried again later.
    BackOff {
        /// When.
        until: Timestamp,
        /// From now on.
        left: Millis,
        /// Failed attempts so far.
        failures: u32,
        /// Failed attempts that end the job.
        failures_max: u32,
    },
    /// Other attempts are being stopped to make room for it.
    Victims {
        /// Their jobs.
        jobs: Vec<JobId>,
        /// When they are gone at the latest.
        until: Timestamp,
        /// From now on.
        left: Millis,
    },
    /// There are not enough free GPUs of the right kind in the right places.
    Gpus {
        /// What it asks for.
        asked: GpuAmount,
        /// The only GPU type that will do, if it matters.
        gpu_type: Option<String>,
        /// Free on nodes that take tasks, all together.
        free: GpuAmount,
        /// The node that comes closest.
        best: Option<BestNode>,
        /// Who holds the GPUs, largest first, at most five.
        holders: Vec<Holder>,
        /// GPUs that could serve it on nodes that drain or are down.
        out_of_service: u32,
    },
    /// There are not enough free CPUs or memory.
    CpusOrMemory {
        /// CPUs of its widest task.
        cpus: u32,
        /// Most free CPUs on one node.
        cpus_free: u32,
    },
    /// A job in front of it waits for the same GPUs, and starting this one would delay that one.
    Behind {
        /// That job.
        job: JobId,
        /// Its class.
        class: Class,
        /// When that job can start at the latest, if anything says so.
        starts_in: Option<Millis>,
        /// How long this one runs at most, if anything says so.
        longest: Option<Millis>,
    },
    /// Nothing keeps it: it starts in the next cycle.
    Turn,
    /// It came while a number of the platform was over its redline: new best-effort jobs wait until that recovers.
    Gate {
        /// Which number.
        number: Number,
        /// What it read when the gate was shut.
        value: Reading,
        /// Its redline.
        redline: Reading,
        /// Samples behind it.
        samples: u32,
        /// How long it has been over.
        over: Millis,
        /// Until the gate opens at the latest.
        left: Millis,
    },
}

/// The node that comes closest to holding a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestNode {
    /// The node.
    pub node: NodeName,
    /// Free GPUs there.
    pub free: GpuAmount,
    /// GPUs there.
    pub total: u32,
}

/// Somebody who holds GPUs that a waiting job could use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The job.
    pub job: JobId,
    /// Its class.
    pub class: Class,
    /// What it holds.
    pub gpus: GpuAmount,
    /// When its progress says that it ends, if it says so.
    pub ends_in: Option<Millis>,
}

fn list(f: &mut fmt::Formatter<'_>, jobs: &[JobId]) -> fmt::Result {
    for (i, job) in jobs.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{job}")?;
    }
    Ok(())
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("on hold until `antiphon release`"),
            Self::Paused { reason } if reason.is_empty() => {
                f.write_str("deciding is paused until `antiphon unpause`")
            }
            Self::Paused { reason } => {
                write!(f, "deciding is paused until `antiphon unpause`: {reason}")
            }
            Self::SafeMode { bug } => {
                write!(
                    f,
                    "antiphon is in safe mode until `antiphon unpause`: {bug}"
                )
            }
            Self::After { jobs } => {
                f.write_str("waiting for ")?;
                list(f, jobs)?;
                f.write_str(" to succeed")
            }
            Self::AfterEnd { jobs } => {
                f.write_str("waiting for ")?;
                list(f, jobs)?;
                f.write_str(" to end")
            }
            Self::AfterStart { jobs } => {
                f.write_str("waiting for ")?;
                list(f, jobs)?;
                f.write_str(" to start")
            }
            Self::NotBefore { left, .. } => write!(f, "not before a time that lies {left} ahead"),
            Self::Throttled { running, at_once } => write!(
                f,
                "{running} jobs of its array run, and at most {at_once} may at once"
            ),
            Self::TeamLimit {
                team,
                gpu_type,
                allocated,
                asked,
                limit,
            } => {
                let name = gpu_type.as_deref().unwrap_or("GPUs");
                write!(
                    f,
                    "team `{team}` holds {allocated} of at most {limit} {name}: {asked} more are over its limit"
                )
            }
            Self::OverBudget {
                team,
                used,
                budget,
                left,
                ..
            } => write!(
                f,
                "team `{team}` has used {used} of {budget} in seven days: its jobs count as best-effort for {left} more"
            ),
            Self::OverQuota {
                team,
                allocated,
                asked,
                quota,
            } => write!(
                f,
                "team `{team}` holds {allocated} of its quota of {quota}: {asked} more count as standard"
            ),
            Self::Resource { name, asked, free } => {
                write!(f, "waiting for {asked} of `{name}`: {free} free")
            }
            Self::Span {
                asked,
                span,
                best,
                free,
                free_anywhere,
            } => write!(
                f,
                "waiting for {asked} GPUs in one {span}: {best} has {free} free, {free_anywhere} are free in all"
            ),
            Self::Maintenance { left, longest, .. } => {
                write!(f, "nodes that would do go out of service in {left}")?;
                match longest {
                    Some(longest) => write!(f, ", and it may run for {longest}"),
                    None => f.write_str(", and nothing says how long it runs: give a `time_limit`"),
                }
            }
            Self::BackOff {
                left, failures: 0, ..
            } => write!(f, "tried again in {left}"),
            Self::BackOff {
                left,
                failures,
                failures_max,
                ..
            } => write!(
                f,
                "retry in {left}, after failed attempt {failures} of at most {failures_max}"
            ),
            Self::Victims { jobs, left, .. } => {
                f.write_str("waiting for ")?;
                list(f, jobs)?;
                write!(f, " to save and give way, at the latest in {left}")
            }
            Self::Gpus {
                asked,
                gpu_type,
                free,
                best,
                holders,
                out_of_service,
            } => {
                let name = gpu_type.as_deref().unwrap_or("GPUs");
                write!(f, "waiting for {asked} {name}: {free} free")?;
                if let Some(BestNode { node, free, total }) = best {
                    write!(f, ", best node {node} has {free} of {total}")?;
                }
                if *out_of_service > 0 {
                    write!(f, ", {out_of_service} on nodes that drain or are down")?;
                }
                for (i, holder) in holders.iter().enumerate() {
                    let Holder {
                        job,
                        class,
                        gpus,
                        ends_in,
                    } = holder;
                    let join = if i == 0 { ";" } else { "," };
                    write!(f, "{join} {job} ({class}) holds {gpus}")?;
                    if let Some(left) = ends_in {
                        write!(f, " for about {left}")?;
                    }
                }
                Ok(())
            }
            Self::CpusOrMemory { cpus, cpus_free } => write!(
                f,
                "waiting for {cpus} CPUs in one node: at most {cpus_free} free, or too little memory beside them"
            ),
            Self::Behind {
                job,
                class,
                starts_in,
                longest,
            } => {
                write!(
                    f,
                    "behind {job} ({class}), which waits for what this one would take"
                )?;
                match (starts_in, longest) {
                    (Some(left), Some(longest)) => {
                        write!(f, " and starts in {left}; this one may run for {longest}")
                    }
                    (Some(left), None) => write!(
                        f,
                        " and starts in {left}; nothing says how long this one runs: give a `time_limit`"
                    ),
                    (None, _) => Ok(()),
                }
            }
            Self::Turn => f.write_str("it starts in the next cycle"),
            Self::Gate {
                number,
                value,
                redline,
                samples,
                over,
                left,
            } => write!(
                f,
                "the gate is shut for new best-effort jobs: the {number} was {value} when it was shut, over its redline of {redline} for {over} now ({samples} samples); it opens when that recovers, at the latest in {left}"
            ),
        }
    }
}
