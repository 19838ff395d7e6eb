//! The antiphon binary: reads the command line, calls what does the work, and says what went wrong. Decides nothing.

mod cli;
mod client;
mod cluster_file;
mod failure;
mod follow;
mod operate;
mod queue;
mod render;
mod settings;
mod submit;
mod up;

use clap::Parser;

use cli::{Cli, Command};
use failure::Failure;

fn main() -> std::process::ExitCode {
    // A reader that went away (`antiphon jobs | head`) ends the program quietly, as it does other tools.
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<std::process::ExitCode, Failure> {
    let target = cli.target;
    match cli.command {
        Command::Up(args) => up::run(&target, args),
        Command::Supervise { dir } => Ok(antiphon_backends::local::supervise::run(&dir)),
        Command::Audit(args) => up::audit(&target, &args),
        Command::Submit(args) => submit::submit(&target, &args),
        Command::Check(args) => submit::check(&target, &args),
        Command::Jobs(args) => queue::jobs(&target, &args),
        Command::Job(args) => queue::job(&target, &args),
        Command::Why(args) => queue::why(&target, &args),
        Command::Nodes(args) => queue::nodes(&target, &args),
        Command::Logs(args) => follow::logs(&target, &args),
        Command::Cancel(args) => operate::on_jobs(&target, &args, operate::JobVerb::Cancel),
        Command::Hold(args) => operate::on_jobs(&target, &args, operate::JobVerb::Hold),
        Command::Release(args) => operate::on_jobs(&target, &args, operate::JobVerb::Release),
        Command::Preempt(args) => operate::on_jobs(&target, &args, operate::JobVerb::Preempt),
        Command::Drain(args) => operate::drain(&target, &args),
        Command::Pause(args) => operate::pause(&target, &args),
        Command::Unpause(args) => operate::unpause(&target, &args),
        Command::Completions { shell } => Ok(cli::completions(shell)),
    }
}
