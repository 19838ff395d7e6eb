//! Times the path from a submit to the job's first instruction on one machine, beside Slurm in the same run, and prints
//! one JSON object a line. Measures the local backend alone, runs no GPU and judges no figure: the bars stand in the page.
//!
//! Every job runs `/bin/date +%s%N`: as light as `true`, but its output is the time at which it ran. The latency of a
//! submit ends there, so it holds the loading of `date` itself (about a millisecond), for both schedulers. Jobs are sent
//! by the clock, not when the one before has started, so a slow start does not thin out what follows it.

mod antiphon;
mod figures;
mod machine;
mod slurm;

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use serde_json::{Value, json};

use self::figures::{Figures, round};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What every job runs.
const COMMAND: [&str; 2] = ["/bin/date", "+%s%N"];

/// The longest wait for all jobs of a phase to have ended.
const END_WAIT: Duration = Duration::from_secs(120);

/// How much is measured. The defaults are the small size.
#[derive(Debug, Clone, Parser)]
#[command(name = "local", about = "Times submit to start on this machine")]
struct Size {
    /// How often everything is measured; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    runs: u32,
    /// How often Slurm is; 0 leaves it out
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=20))]
    slurm_runs: u32,
    /// How long jobs are submitted at a steady rate
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Jobs a second meanwhile
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    rate: u32,
    /// Jobs submitted at once
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    burst: u32,
    /// Submits by command, one after the other: `antiphon submit`, and `srun` for Slurm
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    commands: u32,
    /// Where state directories are made [default: beside the build, since a file system in memory syncs for nothing]
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"), hide_default_value = true)]
    dir: PathBuf,
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
    if !size.bench {
        return ExitCode::SUCCESS;
    }
    match measure(&size) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench local: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(size: &Size) -> Result<()> {
    let interrupted = Interrupted::install()?;
    let mut local = Figures::default();
    let mut restarts = Figures::default();
    let mut slurm = Figures::default();
    let mut through = Figures::default();
    let mut no_slurm = (size.slurm_runs == 0).then(|| "left out by `--slurm-runs 0`".to_owned());
    let mut dirs = Vec::new();
    let disk = machine::sync_ms(&size.dir)?;
    for run in 0..size.runs.max(size.slurm_runs) {
        // In turn, never side by side: what slows the machine down for a while then meets both.
        if run < size.runs {
            let measured = antiphon::run(size, &interrupted)?;
            local.push(measured.submits);
            restarts.push(measured.restart);
            dirs.push(measured.dir);
        }
        if run < size.slurm_runs && no_slurm.is_none() {
            match slurm::run(size, &interrupted)? {
                slurm::Measured::Figures(figures) => slurm.push(figures),
                slurm::Measured::Skipped(reason) => no_slurm = Some(reason),
            }
            match slurm::beside_antiphon(size, &interrupted)? {
                slurm::Measured::Figures(figures) => through.push(figures),
                slurm::Measured::Skipped(reason) => no_slurm = Some(reason),
            }
        }
    }
    let common = |bench: &str| {
        json!({
            "bench": bench,
            "machine": machine::describe(&size.dir),
            "sync_ms": round(disk),
            "profile": "release",
            "rate": size.rate,
            "seconds": size.seconds,
            "burst": size.burst,
        })
    };
    print(local.line(common("local/submit_to_start"), "p99_ms", "ms"))?;
    print(restarts.line(common("local/restart"), "answer_ms", "ms"))?;
    match no_slurm {
        Some(reason) => {
            print(json!({"bench": "slurm/submit_to_start", "skipped": &reason}))?;
            print(json!({"bench": "slurm/through_antiphon", "skipped": reason}))
        }
        None => {
            print(slurm.line(common("slurm/submit_to_start"), "p99_ms", "ms"))?;
            print(through.line(common("slurm/through_antiphon"), "added_percent", "%"))
        }
    }
}

fn print(line: Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Ctrl-C and SIGTERM end the measurement through an error, so that everything it has started is stopped.
struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    fn install() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
        ] {
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Self(flag))
    }

    fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err("interrupted".into());
        }
        Ok(())
    }

    /// Asks until there is an answer, or `wait` is over.
    fn poll<T>(
        &self,
        what: &str,
        wait: Duration,
        pause: Duration,
        mut ask: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let give_up = Instant::now() + wait;
        loop {
            self.check()?;
            if let Some(answer) = ask()? {
                return Ok(answer);
            }
            if Instant::now() > give_up {
                return Err(format!("{what} did not happen within {} s", wait.as_secs()).into());
            }
            std::thread::sleep(pause);
        }
    }
}

/// Calls `submit` for each number at a steady rate, and catches up where a call took longer than its share.
fn steadily(
    size: &Size,
    interrupted: &Interrupted,
    mut submit: impl FnMut(u32) -> Result<()>,
) -> Result<()> {
    let begin = Instant::now();
    for number in 0..size.rate * size.seconds {
        let due = begin + Duration::from_secs(1) * number / size.rate;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        interrupted.check()?;
        submit(number)?;
    }
    Ok(())
}

/// Nanoseconds since the epoch, on the clock that `date` reads.
fn now_ns() -> Result<u64> {
    Ok(u64::try_from(
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos(),
    )?)
}

/// Milliseconds from `sent` to the time that a job has printed.
fn latency_ms(sent: u64, printed: &[u8]) -> Result<f64> {
    let text = String::from_utf8_lossy(printed);
    let ran: u64 = text
        .trim()
        .parse()
        .map_err(|_| format!("a job printed `{}` and not a time", text.trim()))?;
    let late = ran
        .checked_sub(sent)
        .ok_or("a job ran before it was sent: the clock was set")?;
    Ok(late as f64 / 1e6)
}
