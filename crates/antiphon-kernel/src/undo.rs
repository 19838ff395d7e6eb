//! What takes a directive back: the directive that undoes it, or why there is none.

use std::collections::BTreeMap;

use antiphon_types::{
    AckBody, Directive, DirectiveBody, DirectiveCause, DirectiveId, JobId, Millis, Rejection,
};

use crate::jobs::Job;

/// The weight of a shard that no directive and no origin has named, in parts per million: that with which a stream begins.
const WEIGHT_FIRST: u32 = 1_000_000;

/// What undoes a directive of a job.
///
/// # Errors
/// Why it cannot be undone.
pub(crate) fn inverse(job: &Job, id: DirectiveId) -> Result<DirectiveBody, Rejection> {
    let Some(directive) = job.directives.iter().find(|entry| entry.id == id) else {
        return Err(Rejection::UnknownDirective {
            job: job.id,
            directive: id,
            issued: job.directives_issued,
            kept: u64::try_from(job.directives.len()).unwrap_or(u64::MAX),
        });
    };
    let undoes = DirectiveCause::Undo { directive: id };
    if let Some(by) = job.directives.iter().find(|entry| entry.cause == undoes) {
        return Err(cannot(job.id, id, format!("#{} has undone it", by.id)));
    }
    if !may_hold(directive) {
        let why = "its trainer never applied it".to_owned();
        return Err(cannot(job.id, id, why));
    }
    body(job, directive).map_err(|why| cannot(job.id, id, why))
}

const fn cannot(job: JobId, directive: DirectiveId, why: String) -> Rejection {
    Rejection::CannotUndo {
        job,
        directive,
        why,
    }
}

fn body(job: &Job, directive: &Directive) -> Result<DirectiveBody, String> {
    match &directive.body {
        DirectiveBody::SetWeights { weights } => weights_before(job, directive.id, weights),
        DirectiveBody::PauseShard { shard } => Ok(DirectiveBody::ResumeShard {
            shard: shard.clone(),
        }),
        DirectiveBody::ResumeShard { shard } | DirectiveBody::AddSamples { shard, .. } => {
            Ok(DirectiveBody::PauseShard {
                shard: shard.clone(),
            })
        }
        DirectiveBody::SetMicroBatch { .. } => Ok(DirectiveBody::SetMicroBatch { rows: 0 }),
        DirectiveBody::SetCheckpointInterval { .. } => Ok(DirectiveBody::SetCheckpointInterval {
            interval: Millis::ZERO,
        }),
        DirectiveBody::SetRecompute { on } => Ok(DirectiveBody::SetRecompute { on: !on }),
        DirectiveBody::SetOffload { on } => Ok(DirectiveBody::SetOffload { on: !on }),
        DirectiveBody::Drain { task, .. } => Ok(DirectiveBody::Drain {
            task: *task,
            share_permille: 1_000,
            steps: 0,
        }),
        once @ (DirectiveBody::Checkpoint
        | DirectiveBody::Snapshot
        | DirectiveBody::Resize { .. }
        | DirectiveBody::Rollback { .. }
        | DirectiveBody::GatherHardExamples { .. }
        | DirectiveBody::Yield
        | DirectiveBody::Stop) => Err(format!(
            "`{}` is done once and leaves nothing that could be set back",
            once.name()
        )),
    }
}

/// The weights that were in force before, of those shards whose weight nobody has set since.
fn weights_before(
    job: &Job,
    id: DirectiveId,
    set: &BTreeMap<String, u32>,
) -> Result<DirectiveBody, String> {
    let (before, since): (Vec<&Directive>, Vec<&Directive>) = job
        .directives
        .iter()
        .filter(|entry| entry.id != id && may_hold(entry))
        .partition(|entry| entry.id < id);
    let newest = |shard: &str| {
        let setting = |entry: &&&Directive| weight_of(&entry.body, shard).is_some();
        since.iter().rev().find(setting).map(|entry| entry.id)
    };
    let mut later = None;
    let mut weights = BTreeMap::new();
    for shard in set.keys() {
        if let Some(by) = newest(shard) {
            later = Some(by);
            continue;
        }
        let mut earlier = before.iter().rev();
        let weight = earlier.find_map(|entry| weight_of(&entry.body, shard));
        let first = || job.spec.data.shards.get(shard)?.weight_ppm;
        let weight = weight.or_else(first).unwrap_or(WEIGHT_FIRST);
        weights.insert(shard.clone(), weight);
    }
    match (weights.is_empty(), later) {
        (true, Some(by)) => Err(format!(
            "#{by} has set the weight of each of its {} shards since",
            set.len()
        )),
        (true, None) => Err("it set no weights".into()),
        (false, _) => Ok(DirectiveBody::SetWeights { weights }),
    }
}

fn weight_of(body: &DirectiveBody, of: &str) -> Option<u32> {
    match body {
        DirectiveBody::SetWeights { weights } => weights.get(of).copied(),
        DirectiveBody::AddSamples { shard, weight, .. } => (shard == of).then_some(*weight),
        DirectiveBody::PauseShard { .. }
        | DirectiveBody::ResumeShard { .. }
        | DirectiveBody::SetMicroBatch { .. }
        | DirectiveBody::SetCheckpointInterval { .. }
        | DirectiveBody::SetRecompute { .. }
        | DirectiveBody::SetOffload { .. }
        | DirectiveBody::Checkpoint
        | DirectiveBody::Snapshot
        | DirectiveBody::Resize { .. }
        | DirectiveBody::Drain { .. }
        | DirectiveBody::Rollback { .. }
        | DirectiveBody::GatherHardExamples { .. }
        | DirectiveBody::Yield
        | DirectiveBody::Stop => None,
    }
}

/// Whether it holds, or will once its trainer hears of it.
const fn may_hold(directive: &Directive) -> bool {
    match directive.ack {
        None | Some(AckBody::Applied { .. }) => true,
        Some(AckBody::Rejected { .. } | AckBody::Failed { .. } | AckBody::Expired) => false,
    }
}
