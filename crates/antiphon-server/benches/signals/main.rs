//! Measures how many signals a second a server takes in over HTTP, on the same cores as the load that it is under, and
//! prints one JSON object a line. The server is a process of its own, so that its memory is its own; the jobs are real to
//! it, but no process of theirs runs. Judges no figure, except that not one signal may be missing at the end, and that what
//! is planted in one more job is found meanwhile.
//!
//! Every job has one connection a sender, as trainers do, and bodies that were encoded before: only the batch number is
//! written anew. In half of the signals a task reports its step, in the other half the loss of a shard.

mod bodies;
mod client;
mod host;
mod load;
mod planted;

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde_json::json;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How much is measured.
#[derive(Debug, Clone, Parser)]
#[command(name = "signals", about = "Times signals over HTTP on this machine")]
struct Size {
    /// Jobs that report
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    jobs: u32,
    /// Ranks of each
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    tasks: u32,
    /// Shards of each
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    shards: u32,
    /// Signals of one batch
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=8_192))]
    batch: u32,
    /// Senders at once: connections with a thread each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    senders: u32,
    /// How long signals are sent
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How often everything is measured; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    runs: u32,
    /// Be the server that is measured, with its state in this directory
    #[arg(long, hide = true, value_name = "DIR")]
    host: Option<PathBuf>,
    /// Passed by `cargo bench`; without it nothing runs, so that test runners which look at every target find no test
    #[arg(long, hide = true)]
    bench: bool,
    /// Passed by test runners
    #[arg(long, hide = true)]
    list: bool,
    /// Passed by test runners
    #[arg(long, hide = true)]
    format: Option<String>,
    /// Passed by test runners
    #[arg(long, hide = true)]
    ignored: bool,
}

fn main() -> ExitCode {
    let size = Size::parse();
    let outcome = match &size.host {
        Some(dir) => host::serve(dir, size.jobs, size.tasks),
        None if !size.bench => return ExitCode::SUCCESS,
        None => measure(&size),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench signals: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(size: &Size) -> Result<()> {
    let mut rates = Vec::new();
    let mut peak_rss = 0;
    let mut server_cpu = Vec::new();
    let mut batch_bytes = 0;
    let mut planted_found = Vec::new();
    for _ in 0..size.runs {
        let mut host = host::Host::start(size.jobs + 1, size.tasks)?;
        let watched = host.jobs.pop().ok_or("no jobs")?;
        let bodies = bodies::encode(&host, size);
        batch_bytes = bodies[0].bytes() / usize::try_from(size.batch)?;
        let during = Duration::from_secs(size.seconds.into());
        let (to, user) = (host.listen, host.user.clone());
        let planted = std::thread::spawn(move || planted::train(to, &watched, &user));
        let sent = load::send(&host, bodies, size.senders, during)?;
        let loaded = planted.is_finished();
        let found = planted.join().map_err(|_| "the planted job panicked")??;
        let counted = host.counted()?;
        if counted != sent.signals {
            return Err(format!(
                "{} signals were answered with 200, and {counted} counted",
                sent.signals
            )
            .into());
        }
        rates.push(sent.signals as f64 / sent.took.as_secs_f64());
        planted_found.push(json!({
            "within_load": loaded,
            "slow_task_s": found.straggler.0,
            "slow_task_step": found.straggler.1,
            "noise_s": found.noise.0,
            "noise_step": found.noise.1,
        }));
        let used = host.stop()?;
        peak_rss = peak_rss.max(used.peak_rss_bytes);
        server_cpu.push(used.cpu_s / sent.took.as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    server_cpu.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    let line = json!({
        "bench": "signals/http",
        "value": median.round(),
        "unit": "signals/s",
        "signals_per_s": median.round(),
        "spread": [rates[0].round(), rates[rates.len() - 1].round()],
        "peak_rss_bytes": peak_rss,
        "planted": planted_found,
        "server_cores": (server_cpu[server_cpu.len() / 2] * 100.0).round() / 100.0,
        "bytes_a_signal": batch_bytes,
        "jobs": size.jobs,
        "tasks": size.tasks,
        "shards": size.shards,
        "batch": size.batch,
        "senders": size.senders,
        "cores": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "seconds": size.seconds,
        "runs": size.runs,
    });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
