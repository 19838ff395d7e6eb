//! The command line, as data: every command, option and exit code. What they do stands elsewhere.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use antiphon_sim::trace::Format;
use antiphon_sim::world::Knowledge;
use antiphon_types::{Class, GpuAmount, Millis};
use clap::{Args, CommandFactory, Parser, Subcommand};

/// The two-way scheduler for LLM post-training.
#[derive(Debug, Parser)]
#[command(
    name = "antiphon",
    version,
    about,
    propagate_version = true,
    max_term_width = 100
)]
#[command(after_help = "Start with `antiphon up`, then `antiphon submit job.toml`.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which server, and where its state is.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// Directory of log, outputs and token [default: $XDG_STATE_HOME/antiphon]
    #[arg(
        long = "state-dir",
        value_name = "DIR",
        env = "ANTIPHON_STATE_DIR",
        global = true,
        id = "state_dir"
    )]
    pub(crate) state_dir: Option<PathBuf>,
    /// Address of the server [default: the one that runs over the state directory]
    #[arg(long, value_name = "URL", env = "ANTIPHON_URL", global = true)]
    pub(crate) url: Option<String>,
    /// Certificates of the authority that vouches for the server, in PEM [default: the system's authorities]
    #[arg(long, value_name = "FILE", env = "ANTIPHON_CA", global = true)]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a server on this machine: scheduler and local backend in one process
    Up(UpArgs),
    /// Start a server over a cluster: its engine starts the processes, none run here
    Serve(ServeArgs),
    /// Submit jobs
    Submit(SubmitArgs),
    /// Say what a job file would do, without submitting it
    Check(CheckArgs),
    /// List jobs in service order
    Jobs(JobsArgs),
    /// Show everything about a job
    Job(JobArgs),
    /// Say why a job waits, runs where it runs, or ended
    Why(JobArgs),
    /// Print what a job's processes print
    Logs(LogsArgs),
    /// End jobs for good
    Cancel(JobsToChange),
    /// Keep jobs from running; running ones save a checkpoint and stop first
    Hold(JobsToChange),
    /// Let held jobs run again
    Release(JobsToChange),
    /// Make running jobs save a checkpoint and go back to their place in the queue
    Preempt(JobsToChange),
    /// Give a job that waits another class; one that runs keeps its own until it waits again
    Class(ClassArgs),
    /// Act on what a rule found, where that waits for a person
    Approve(ApproveArgs),
    /// Take back what a directive changed
    Undo(UndoArgs),
    /// Send a directive to a job's trainer
    Direct(DirectArgs),
    /// Draw where a shard of training data came from, and what else came from there
    Provenance(ProvenanceArgs),
    /// List nodes and who is on them
    Nodes(ReadArgs),
    /// Take no new tasks on nodes, now or in a planned time, or give them back soon
    Drain(DrainArgs),
    /// List teams: what each may hold, holds, and has used
    Teams(ReadArgs),
    /// Make, list and revoke the tokens of people
    #[command(subcommand)]
    Token(TokenCommand),
    /// Watch the server on one screen, by keyboard
    Top,
    /// Say what GPU-time and money went into, and what was lost, from the log
    Report(ReportArgs),
    /// Stop deciding: jobs run on, nothing starts or gives way
    Pause(ReasonArgs),
    /// Decide again; also the way out of safe mode
    Unpause(ReadArgs),
    /// Say what a training run needs, how fast it is and what it costs
    Plan(Box<PlanArgs>),
    /// Run policies over a recorded workload under virtual time
    Simulate(Box<SimulateArgs>),
    /// Let everything go wrong around the scheduler, by seed, and check what must always hold
    Storm(StormArgs),
    /// Run the jobs of a log under another policy or cluster, or decide its cycles anew
    Replay(ReplayArgs),
    /// Replay a log from its first event and compare every state image on the way
    Audit(ReadArgs),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Start and watch one task (used by the server)
    #[command(hide = true)]
    Supervise {
        /// The task's directory; with a role that of its attempt
        dir: PathBuf,
        /// The role, where Slurm says which task of it this is
        role: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// Nodes to offer, all of them on this machine: a cluster file, or what `scontrol show node` prints [default: this machine as it is]
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: Option<PathBuf>,
    /// Slurm's `topology.conf` for those nodes [default: the one beside nodes in Slurm's form]
    #[arg(long, value_name = "FILE")]
    pub(crate) topology: Option<PathBuf>,
    /// Virtual GPUs to offer where there are no real ones [default: 8]
    #[arg(long, value_name = "N")]
    pub(crate) virtual_gpus: Option<u32>,
    /// Run as root; jobs then run as root
    #[arg(long)]
    pub(crate) allow_root: bool,
}

/// How others reach a server.
#[derive(Debug, Args)]
pub(crate) struct ReachArgs {
    /// Where to listen; anything but loopback takes a certificate [default: 127.0.0.1:7440]
    #[arg(long, value_name = "ADDR:PORT", env = "ANTIPHON_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
    /// Certificate to show to clients, in PEM, followed by those between it and its authority
    #[arg(long, value_name = "FILE")]
    pub(crate) certificate: Option<PathBuf>,
    /// The certificate's private key, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// The URL by which clients and tasks know the server [default: from where it listens, or this machine's name]
    #[arg(long, value_name = "URL")]
    pub(crate) advertise: Option<String>,
    /// Speak plain HTTP to other machines: whoever is on the way can read tokens and outputs
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// Drive the Slurm that this machine's `scontrol` reaches [default: where `[backend.slurm]` is there]
    #[arg(long)]
    pub(crate) slurm: bool,
    /// Only look: show what is there and what antiphon would do, and command nothing
    #[arg(long, conflicts_with_all = ["mode", "cluster"])]
    pub(crate) observe: bool,
    /// A partition of Slurm's to use; may be given several times [default: the only one; with `--observe` all]
    #[arg(long = "partition", value_name = "NAME", value_delimiter = ',')]
    pub(crate) partitions: Vec<String>,
    /// Nodes to offer beside the cluster's, all of them on this machine: a cluster file [default: none]
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: Option<PathBuf>,
    /// Whose the partitions are: antiphon's own, or everybody's, in which it is a guest [default: own]
    #[arg(long, value_name = "own|guest")]
    pub(crate) mode: Option<crate::settings::slurm::Mode>,
    /// Run as root; jobs then run as root
    #[arg(long)]
    pub(crate) allow_root: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A training config as its tool reads it: Axolotl, LLaMA-Factory, TRL, torchtune, DeepSpeed, Megatron and others; or a job that runs one
    #[arg(value_name = "FILE", conflicts_with_all = ["batch", "validate"])]
    pub(crate) file: Option<PathBuf>,
    /// The config's format [default: found from its content]
    #[arg(long, value_name = "NAME", requires = "file")]
    pub(crate) format: Option<antiphon_import::Format>,
    /// With what measured attempts have taught the cluster's server; alone: print that
    #[arg(long, conflicts_with_all = ["batch", "validate"])]
    pub(crate) learned: bool,
    /// Also write a page: memory over the step, and what a step's time goes into
    #[arg(long, value_name = "FILE", conflicts_with_all = ["batch", "search"])]
    pub(crate) html: Option<PathBuf>,
    /// A model's name, or its `config.json`
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) model: Option<String>,
    /// full, lora, qlora, dora, prefix-tuning, prompt-tuning or p-tuning
    #[arg(long, value_name = "NAME")]
    pub(crate) method: Option<String>,
    /// Width of a low-rank adapter [default: 16]
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u64>,
    /// Which layers a low-rank adapter is on, as `q_proj,v_proj`, or `all` [default: the framework's]
    #[arg(long, value_name = "LAYERS")]
    pub(crate) targets: Option<String>,
    /// pretrain, sft, dpo, orpo, kto, reward-model, ppo or grpo [default: sft]
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Option<String>,
    /// adam-w, adam-w8bit, adafactor, lion, muon and others
    #[arg(long, value_name = "NAME")]
    pub(crate) optimizer: Option<String>,
    /// Whose habits are assumed: megatron, deepspeed, torchtitan, torchtune, transformers, axolotl and others
    #[arg(long, value_name = "NAME")]
    pub(crate) framework: Option<String>,
    /// GPU type, as `H100-SXM-80GB` or `h100` [default: H100-SXM-80GB]
    #[arg(long, value_name = "TYPE")]
    pub(crate) gpu: Option<String>,
    /// How many GPUs; with `--search` a range as `8..64`
    #[arg(long, value_name = "N")]
    pub(crate) gpus: Option<String>,
    /// A cluster file: its GPU types, nodes, network and prices
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: Option<PathBuf>,
    /// US dollars for a GPU an hour [default: a public catalog's]
    #[arg(long, value_name = "USD")]
    pub(crate) price: Option<f64>,
    /// Tokens of a sequence
    #[arg(long, value_name = "N")]
    pub(crate) sequence_length: Option<u64>,
    /// Sequences of a forward pass
    #[arg(long, value_name = "N")]
    pub(crate) micro_batch: Option<u64>,
    /// Forward passes before weights move
    #[arg(long, value_name = "N")]
    pub(crate) accumulation: Option<u64>,
    /// Sequences before weights move, over all GPUs
    #[arg(long, value_name = "N")]
    pub(crate) global_batch: Option<u64>,
    /// Tensor parallelism
    #[arg(long, value_name = "N")]
    pub(crate) tp: Option<u64>,
    /// Pipeline stages
    #[arg(long, value_name = "N")]
    pub(crate) pp: Option<u64>,
    /// Context parallelism
    #[arg(long, value_name = "N")]
    pub(crate) cp: Option<u64>,
    /// Expert parallelism
    #[arg(long, value_name = "N")]
    pub(crate) ep: Option<u64>,
    /// What data-parallel ranks share: none, zero1, zero2 or zero3
    #[arg(long, value_name = "NAME")]
    pub(crate) sharding: Option<String>,
    /// What is computed again: none, full or per-operation [default: as little as fits]
    #[arg(long, value_name = "NAME")]
    pub(crate) recompute: Option<String>,
    /// Optimizer steps of the whole run
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u64>,
    /// Tokens of the whole run, as `200M`
    #[arg(long, value_name = "N")]
    pub(crate) tokens: Option<String>,
    /// Examples in the data
    #[arg(long, value_name = "N")]
    pub(crate) examples: Option<u64>,
    /// What the task is: narrow (classification, extraction), reasoning (code, summaries) or open (chat)
    #[arg(long, value_name = "NAME")]
    pub(crate) breadth: Option<String>,
    /// Search all layouts on the cluster's GPUs, or on every GPU type of the catalog
    #[arg(long)]
    pub(crate) search: bool,
    /// With `--search`: in how much time it has to end, as `4h`
    #[arg(long, value_name = "SPAN", requires = "search")]
    pub(crate) within: Option<Millis>,
    /// With `--search`: what it may cost
    #[arg(long, value_name = "USD", requires = "search")]
    pub(crate) budget: Option<f64>,
    /// Answer every row of a table: the row as it came, with our columns
    #[arg(long, value_name = "FILE", conflicts_with_all = ["validate"])]
    pub(crate) batch: Option<PathBuf>,
    /// Compare with a table of measurements
    #[arg(long, value_name = "FILE")]
    pub(crate) validate: Option<PathBuf>,
    /// A table of what frameworks do, in place of the one that is compiled in
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) frameworks: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// The workload: a public trace, what `sacct --parsable2` or `kubectl get pods,jobs -o json` prints; gz and zst are read as they are
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,
    /// The trace's format [default: found from its content]
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<Format>,
    /// A preset (muri, gavel-testbed, gavel-108, shockwave, pollux, elasticflow, kalos, fgd) or a cluster file [default: the preset of the format]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) cluster: Option<String>,
    /// `antiphon`, a published policy, or a file with `[policy]`; may be given several times [default: antiphon]
    #[arg(long, value_name = "NAME|FILE", value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// What everything drawn is drawn from; several in a sweep
    #[arg(
        long = "seed",
        value_name = "N",
        default_value = "1",
        value_delimiter = ','
    )]
    pub(crate) seeds: Vec<u64>,
    /// What the policy may know: none (the past alone), limits, progress (what training loops report) or durations; several in a sweep
    #[arg(long, value_name = "WHAT", default_value = "progress", value_delimiter = ',', value_parser = knowledge)]
    pub(crate) knowledge: Vec<Knowledge>,
    /// Let jobs come so many times as fast as recorded; several in a sweep
    #[arg(long = "load", value_name = "TIMES", default_value = "1", value_delimiter = ',', value_parser = permille)]
    pub(crate) loads: Vec<u32>,
    /// Run on so many times as many nodes of each kind; several in a sweep
    #[arg(long = "size", value_name = "TIMES", default_value = "1", value_delimiter = ',', value_parser = permille)]
    pub(crate) sizes: Vec<u32>,
    /// Let reports be off: step times by 15 %, three jobs of ten by half, one of ten by a factor of five
    #[arg(long)]
    pub(crate) noise: bool,
    /// Decide in rounds of this length; 0s for whenever something happens [default: the preset's]
    #[arg(long, value_name = "SPAN")]
    pub(crate) rounds: Option<Millis>,
    /// What the first start of a job costs [default: the preset's, else 60s]
    #[arg(long, value_name = "SPAN")]
    pub(crate) start_cost: Option<Millis>,
    /// What every later start of a job costs [default: the preset's, else 60s]
    #[arg(long, value_name = "SPAN")]
    pub(crate) resize_cost: Option<Millis>,
    /// The table of throughputs [default: the preset's, in the trace's folder or its parents]
    #[arg(long, value_name = "FILE")]
    pub(crate) throughputs: Option<PathBuf>,
    /// What goes wrong, and what saving costs: a file of rates and shares
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: Option<PathBuf>,
    /// Placement alone (cluster fgd): GPUs asked for, as a multiple of those that there are
    #[arg(long, value_name = "TIMES", default_value = "1.3", value_parser = permille)]
    pub(crate) offered: u32,
    /// Placement alone: how many orders of the jobs are tried
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) shuffles: u32,
    /// Make so many forecasts of starts on the way, and judge them by what comes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) forecasts: u32,
    /// Stop at the first bad row or job that cannot run
    #[arg(long)]
    pub(crate) strict: bool,
    /// Write one line a job; with several policies one file each
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write a page with charts; it is one file and loads nothing
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the page's charts as SVG files
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Run every combination on all cores into one CSV, a row a run; what is there is not run again
    #[arg(long, value_name = "FILE", conflicts_with_all = ["csv", "html", "svg", "json"])]
    pub(crate) sweep: Option<PathBuf>,
    /// Show it in the dashboard while it runs and after; Ctrl-C ends it
    #[arg(long, conflicts_with = "sweep")]
    pub(crate) serve: bool,
    /// Run ahead to this virtual time, counted from the beginning, and stand still there, or go on at `--speed`
    #[arg(long, value_name = "SPAN", requires = "serve")]
    pub(crate) until: Option<Millis>,
    /// How fast virtual time goes: `100x`, or `max` for as fast as it can [default: 60x, a minute in a second]
    #[arg(long, value_name = "TIMES", requires = "serve", value_parser = speed)]
    pub(crate) speed: Option<Speed>,
    /// Where the dashboard listens, on loopback alone
    #[arg(long, value_name = "ADDR:PORT", requires = "serve", default_value = "127.0.0.1:0", value_parser = loopback)]
    pub(crate) listen: SocketAddr,
    /// How many runs of a sweep go on at once [default: one a core]
    #[arg(long, value_name = "N", requires = "sweep", value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl SimulateArgs {
    /// What is drawn from, where there is no sweep.
    pub(crate) fn seed(&self) -> u64 {
        self.seeds.first().copied().unwrap_or(1)
    }

    /// What policies may know, where there is no sweep.
    pub(crate) fn knowledge(&self) -> Knowledge {
        let first = self.knowledge.first().copied();
        first.unwrap_or(Knowledge::Progress)
    }

    /// How fast jobs come, in thousandths, where there is no sweep.
    pub(crate) fn load(&self) -> u32 {
        self.loads.first().copied().unwrap_or(1_000)
    }

    /// How many nodes there are, in thousandths, where there is no sweep.
    pub(crate) fn size(&self) -> u32 {
        self.sizes.first().copied().unwrap_or(1_000)
    }
}

#[derive(Debug, Args)]
pub(crate) struct StormArgs {
    /// How many seeds [default: 20, or 1 with `--seed`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: Option<u64>,
    /// The first seed [default: 1]
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// Events over all seeds, before the faults stop [default: 5000 a seed]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) events: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// How far back, like `24h` or `7d`
    #[arg(long, value_name = "SPAN", default_value = "7d")]
    pub(crate) since: Millis,
    /// Of one team alone
    #[arg(long, value_name = "TEAM")]
    pub(crate) team: Option<String>,
    /// The log: a state directory or the `log.db` in one; reported up to its last event [default: that of `--state-dir`]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Write a page with charts; it is one file and loads nothing
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The log: a state directory or the `log.db` in one [default: that of `--state-dir`]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// A file with `[policy]` [default: the usual settings]
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// A cluster file or a preset [default: the nodes of the log]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) cluster: Option<String>,
    /// Decide every recorded cycle anew and show the first difference
    #[arg(long, conflicts_with_all = ["policy", "cluster", "csv", "html"])]
    pub(crate) check: bool,
    /// Write one line a job: as it was recorded, and as it was simulated
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write a page with charts; it is one file and loads nothing
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn knowledge(text: &str) -> Result<Knowledge, String> {
    let found = Knowledge::ALL.into_iter().find(|one| one.name() == text);
    found.ok_or_else(|| {
        let names = Knowledge::ALL.map(|one| format!("`{}`", one.name()));
        format!("give one of {}", names.join(", "))
    })
}

/// `3`, or `#3` as it is shown.
fn directive_number(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix('#').unwrap_or(text).parse();
    number.map_err(|_| {
        "give the number in front of the directive in `antiphon job JOB`, like `3`".into()
    })
}

/// How fast virtual time goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speed {
    /// As fast as this machine can.
    Max,
    /// So many times as fast as its clock.
    Times(u64),
}

fn speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    let times = text.strip_suffix('x').unwrap_or(text).parse().ok();
    let bounded = times.filter(|times| (1..=1_000_000).contains(times));
    bounded
        .map(Speed::Times)
        .ok_or_else(|| "give a number from 1x to 1000000x, or `max`".into())
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: Option<SocketAddr> = text.parse().ok();
    let address = address.filter(|address| address.ip().is_loopback());
    address.ok_or_else(|| {
        "give an address of this machine alone, like 127.0.0.1:7441; `ssh -L` reaches it from elsewhere".into()
    })
}

fn threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok();
    let bounded = threads.filter(|threads| (1..=1_024).contains(threads));
    bounded.ok_or_else(|| "give a number from 1 to 1024".into())
}

/// A multiple like `1.3`, in thousandths.
fn permille(text: &str) -> Result<u32, String> {
    let amount: GpuAmount = text.parse().map_err(|_| "give a number like `1.3`")?;
    let permille = u32::try_from(amount.thousandths()).ok();
    let bounded = permille.filter(|permille| (1..=100_000).contains(permille));
    bounded.ok_or_else(|| "give a number from 0.001 to 100".into())
}

/// Options of every command that only reads.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReadArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    /// Job files, sbatch scripts, Kubernetes manifests or SkyPilot tasks; `-` reads standard input. Files may name each other in `after`
    #[arg(required_unless_present = "command", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The format of the files: sbatch, kubernetes, skypilot or command [default: found from their content]
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<antiphon_import::JobFormat>,
    /// Print the job files that they become, in TOML, and submit nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// Wait until the jobs have ended; the exit code says whether all succeeded
    #[arg(long)]
    pub(crate) wait: bool,
    /// Key under which sending again does nothing again [default: a new one]
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Instead of a file, a command that torchrun, accelerate or deepspeed begins; behind an sbatch script its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A job file, sbatch script, Kubernetes manifest or SkyPilot task
    #[arg(value_name = "FILE", required_unless_present_any = ["schema", "command"])]
    pub(crate) file: Option<PathBuf>,
    /// The format of the file: sbatch, kubernetes, skypilot or command [default: found from its content]
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<antiphon_import::JobFormat>,
    /// Print the JSON Schema of job files instead
    #[arg(long)]
    pub(crate) schema: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Instead of a file, a command that torchrun, accelerate or deepspeed begins; behind an sbatch script its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    /// Ended jobs too
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Only jobs in this state
    #[arg(long, value_name = "STATE", value_parser = ["pending", "starting", "running", "stopping", "held", "succeeded", "failed", "canceled"])]
    pub(crate) state: Option<String>,
    /// Only the members of this array, named by one of them or by the array's name
    #[arg(long, value_name = "JOB")]
    pub(crate) array: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    /// Id or name of a job
    pub(crate) job: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// Id or name of a job
    pub(crate) job: String,
    /// The rule: shard, provenance, straggler, convergence, batch, checkpoint, bottleneck, hang or system
    pub(crate) rule: String,
    /// Of what, as `antiphon job` shows it [default: the rule's only finding]
    pub(crate) subject: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Id or name of a job
    pub(crate) job: String,
    /// The directive's number, as `antiphon job` shows it
    #[arg(value_parser = directive_number)]
    pub(crate) directive: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DirectArgs {
    /// Id or name of a job
    pub(crate) job: String,
    /// The directive, like `set_weights` or `checkpoint`
    #[arg(value_name = "DIRECTIVE")]
    pub(crate) what: String,
    /// What it takes, like `shard=neuro_002`; for `set_weights` shards and their weights
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) fields: Vec<String>,
    /// Why, for those who read it later
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProvenanceArgs {
    /// The shard's id
    pub(crate) shard: String,
    /// Of which job [default: the newest that knows the shard]
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Id or name of a job
    pub(crate) job: String,
    /// Go on printing until the job has ended
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Number of the attempt [default: the newest]
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Task, like `trainer.0` [default: the first]
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ClassArgs {
    /// Id or name of a job
    pub(crate) job: String,
    /// Its class from now on
    #[arg(value_parser = Class::ALL.map(Class::name))]
    pub(crate) class: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobsToChange {
    /// Ids or names of jobs
    #[arg(required = true)]
    pub(crate) jobs: Vec<String>,
    /// All members of the arrays that these jobs are members of, as far as they are in a state for it
    #[arg(long)]
    pub(crate) array: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Names of nodes
    #[arg(required = true, value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    /// Take tasks on the nodes again, and forget what was planned for them
    #[arg(long, conflicts_with_all = ["at", "span", "within"])]
    pub(crate) undo: bool,
    /// Only from then on: a time like `2026-12-01T08:00`, or a span from now like `+4h` [default: now]
    #[arg(
        long,
        value_name = "TIME",
        requires = "span",
        allow_hyphen_values = true
    )]
    pub(crate) at: Option<String>,
    /// Only for so long, like `2h`: nothing runs there in that time, and nothing starts that would run into it
    #[arg(long = "for", value_name = "SPAN")]
    pub(crate) span: Option<String>,
    /// Give the nodes back after that, like `120s`: what runs there saves before and leaves
    #[arg(long, value_name = "SPAN", conflicts_with_all = ["at", "span"])]
    pub(crate) within: Option<String>,
    /// Give back only so many GPUs of each node; those that cost the least work
    #[arg(long, value_name = "N", requires = "within")]
    pub(crate) gpus: Option<u32>,
    /// Who wants them: spot, inference or other
    #[arg(long, value_name = "CAUSE", requires = "within")]
    pub(crate) cause: Option<String>,
    /// Why, for those who read it later
    #[arg(long, default_value = "")]
    pub(crate) reason: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print its secret, this once
    Create(TokenCreateArgs),
    /// List tokens, without their secrets
    List(ReadArgs),
    /// Take a token back; the next request with it is refused
    Revoke(TokenRevokeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    /// Of the person or program that carries it; the log calls them so
    pub(crate) name: String,
    /// What it may do: see all, see and touch the jobs of teams, see and touch all jobs and nodes, or that and tokens
    #[arg(long, value_name = "ROLE", value_parser = ["viewer", "member", "operator", "admin"])]
    pub(crate) role: String,
    /// Of a member: whose jobs, with those of the teams below; may be given several times
    #[arg(long = "team", value_name = "TEAM")]
    pub(crate) teams: Vec<String>,
    /// For how long it is good, like `30d` [default: until it is revoked]
    #[arg(long, value_name = "SPAN")]
    pub(crate) expires: Option<Millis>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenRevokeArgs {
    /// The token's name
    pub(crate) name: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReasonArgs {
    /// Why, for those who read it later
    #[arg(long, default_value = "")]
    pub(crate) reason: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How the program ends. Scripts depend on these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Anything that has no number of its own.
    Failed = 1,
    /// The command line is wrong. Clap uses the same number.
    Usage = 2,
    /// Refused: something that its sender can change.
    Refused = 3,
    /// No server answers.
    NoServer = 4,
    /// `submit --wait`: a job did not succeed.
    JobFailed = 5,
    /// The server could not be started, or went down.
    Server = 6,
    /// `audit`: the log does not agree with itself.
    Audit = 7,
    /// `storm`: something that must always hold did not.
    Storm = 8,
    /// `replay --check`: a recorded decision is not the one that is made now.
    Replay = 9,
    /// Ctrl-C: what was done so far was printed.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "antiphon", &mut script);
    crate::render::print(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
