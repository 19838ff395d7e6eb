//! What a simulation left out, told by line: bad rows of a trace, and jobs that the cluster cannot hold. With `--strict`
//! the first of them stops it.

use std::path::Path;

use antiphon_sim::trace::Trace;
use antiphon_sim::world::{Finished, Refused};

use crate::cli::{Exit, SimulateArgs};
use crate::failure::Failure;
use crate::render::say;

/// Bad rows that are shown; the rest is counted.
const SHOWN: usize = 5;

/// Rows that were left out of the workload.
pub(super) fn bad_rows(path: &Path, trace: &Trace) {
    if trace.bad_total == 0 {
        return;
    }
    let shown = trace.bad.iter().take(SHOWN);
    for row in shown {
        say(&format!("warning: {}, {row}", path.display()));
    }
    say(&format!(
        "warning: {} bad rows of `{}` were left out; `--strict` stops at the first",
        trace.bad_total,
        path.display()
    ));
}

/// Jobs that were not simulated.
pub(super) fn refused(args: &SimulateArgs, finished: &Finished) -> Result<(), Failure> {
    strict(args, finished)?;
    let refused = &finished.tally.refused;
    for job in refused.iter().take(SHOWN) {
        say(&format!("warning: {}, {}", args.trace.display(), told(job)));
    }
    if !refused.is_empty() {
        say(&format!(
            "warning: {} jobs cannot run on this cluster and were left out",
            refused.len()
        ));
    }
    Ok(())
}

/// Under `--strict` the first of them ends it.
pub(super) fn strict(args: &SimulateArgs, finished: &Finished) -> Result<(), Failure> {
    match finished.tally.refused.first() {
        Some(first) if args.strict => {
            let what = format!("`{}` holds a job that cannot run", args.trace.display());
            let help =
                "leave `--strict` out to go on without such jobs, or give a larger `--cluster`";
            Err(Failure::new(Exit::Refused, "AP0611", what)
                .why(told(first))
                .help(help))
        }
        Some(_) | None => Ok(()),
    }
}

fn told(job: &Refused) -> String {
    format!("line {}: job `{}`: {}", job.line, job.name, job.reason)
}
