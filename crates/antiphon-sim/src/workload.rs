//! A set of jobs with the times at which they come: what a trace holds and what a generator makes. Knows no cluster and
//! no policy.

use antiphon_types::{Bytes, Class, GpuAmount, Millis};

/// A set of jobs, in the order in which they come.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Workload {
    /// What it is called in reports: the file's name without its endings.
    pub name: String,
    /// The jobs, by time of submission; jobs of one time in the order of the file.
    pub jobs: Vec<TraceJob>,
}

/// A job as its trace has it.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceJob {
    /// Where it stands in its file, from 1; 0 where it was made up.
    pub line: u64,
    /// What its trace calls it; unique in the workload.
    pub name: String,
    /// Who is charged; empty where the trace names nobody.
    pub team: String,
    /// The person; empty where the trace names nobody.
    pub user: String,
    /// When it comes, after the workload's first job.
    pub submitted: Millis,
    /// GPUs of the whole gang. Zero is legal; a fraction is a share of exactly one GPU.
    pub gpus: GpuAmount,
    /// The only GPU types that will do; empty where any will.
    pub gpu_types: Vec<String>,
    /// CPUs of the whole job, in thousandths of a CPU; nothing where the trace does not say.
    pub cpu_milli: Option<u64>,
    /// Memory of the whole job; nothing where the trace does not say.
    pub memory: Option<Bytes>,
    /// How urgent it is.
    pub class: Class,
    /// What has to be done.
    pub work: Work,
    /// When it should have ended, after the workload's first job came.
    pub deadline: Option<Millis>,
    /// How much of a share it claims, in thousandths of an ordinary job's.
    pub weight_permille: u32,
    /// The longest run time that its user named.
    pub limit: Option<Millis>,
    /// How long its trace expects it to run on the GPUs that it asks for; nothing where the trace does not say.
    pub estimate: Option<Millis>,
    /// How it ended when it was recorded.
    pub end: End,
}

/// What has to be done until a job is done.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// It runs this long at full speed, wherever it is placed.
    Time(Millis),
    /// Steps, as fast as a table of throughputs says for each kind of training: one phase after the other.
    Steps(Vec<Phase>),
    /// A training whose progress follows a profile of throughput and statistical efficiency.
    Profile {
        /// The profile's name.
        application: String,
        /// Samples of one step over all GPUs, as its user tuned it.
        batch_size: u64,
    },
    /// It never ends: only where it is placed counts.
    Endless,
}

/// Steps of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// The row of the table: model and batch size.
    pub kind: String,
    /// How many steps.
    pub steps: f64,
}

/// How a job ended when it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum End {
    /// It did what it was to do.
    #[default]
    Completed,
    /// Its own doing: an error, out of memory.
    Failed,
    /// Its user ended it. How long it would have run is not known.
    Canceled,
    /// It ran into its limit.
    Limit,
    /// The hardware's doing.
    Hardware,
    /// It still ran when the trace was taken. How long it would have run is not known.
    Running,
}
