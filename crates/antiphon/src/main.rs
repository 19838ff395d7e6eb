//! The antiphon binary: reads the command line, calls what does the work, and says what went wrong. Decides nothing.

mod cli;
mod client;
mod cluster_file;
mod failure;
mod follow;
mod import;
mod operate;
mod plan;
mod queue;
mod render;
mod replay;
mod report;
mod serve;
mod settings;
mod simulate;
mod steer;
mod storm;
mod submit;
mod telemetry;
mod token;
mod top;
mod training;
mod up;

use antiphon_backends::supervisor;
use clap::Parser;

use cli::{Cli, Command};
use failure::Failure;

/// The kernel makes and drops many small texts: the system's allocator takes a fifth of its time for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // Where the small program is not there this one is every task's supervisor: without a look at the whole command line,
    // which would cost more than all that it does itself.
    if let Some(code) = supervisor::called() {
        return code;
    }
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
        Command::Serve(args) => serve::run(&target, args),
        Command::Supervise { dir, role } => Ok(supervisor::run(&dir, role.as_deref())),
        Command::Plan(args) => plan::run(&target, &args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Replay(args) => replay::run(&target, &args),
        Command::Storm(args) => storm::run(&args),
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
        Command::Class(args) => operate::class(&target, &args),
        Command::Preempt(args) => operate::on_jobs(&target, &args, operate::JobVerb::Preempt),
        Command::Approve(args) => steer::approve(&target, &args),
        Command::Undo(args) => steer::undo(&target, &args),
        Command::Direct(args) => steer::direct(&target, &args),
        Command::Provenance(args) => steer::provenance(&target, &args),
        Command::Teams(args) => queue::teams(&target, &args),
        Command::Token(command) => token::run(&target, &command),
        Command::Top => top::run(&target),
        Command::Report(args) => report::run(&target, &args),
        Command::Drain(args) => operate::drain(&target, &args),
        Command::Pause(args) => operate::pause(&target, &args),
        Command::Unpause(args) => operate::unpause(&target, &args),
        Command::Completions { shell } => Ok(cli::completions(shell)),
    }
}
