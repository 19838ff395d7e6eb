//! `--csv`: what became of each job, one file a policy.

use std::path::{Path, PathBuf};

use antiphon_sim::report::jobs_csv;
use antiphon_sim::workload::Workload;
use antiphon_sim::world::Finished;

use super::files;
use crate::failure::Failure;

/// Where the jobs of each policy go: where that was asked for, or beside it with the policy in the name where there are
/// several.
pub(super) fn paths(path: &Path, policies: &[String]) -> Vec<PathBuf> {
    if policies.len() == 1 {
        return vec![path.to_owned()];
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let named = |policy: &String| {
        let policy = policy.replace('/', "-");
        path.with_file_name(format!("{stem}-{policy}.csv"))
    };
    policies.iter().map(named).collect()
}

/// Writes one line a job.
pub(super) fn write(path: &Path, workload: &Workload, finished: &Finished) -> Result<(), Failure> {
    files::write(path, &jobs_csv(workload, finished))
}
