//! The two-way loop's words: what rules find, what a person says to it, what a trainer asks and answers.

use std::collections::BTreeMap;

use antiphon_kernel::{FindingRecord, FindingStage, Job, ReachedRecord, waits_for_approval};
use antiphon_types::*;

use super::World;

impl World {
    /// `shard s1 noise: set_weights s1=0; stop`.
    pub(super) fn diagnose(&mut self, job: &str, text: &str) {
        let (what, remedies) = text.split_once(':').unwrap_or((text, ""));
        let words: Vec<_> = what.split_whitespace().collect();
        let [rule, subject, verdict] = words[..] else {
            panic!("a rule, a subject and a verdict: {what}")
        };
        let remedies = remedies.split(';').filter(|text| !text.trim().is_empty());
        self.finding(Finding::Diagnosis(Box::new(Diagnosis {
            attempt: self.attempt(self.id(job)),
            rule: named(rule),
            subject: subject.trim_matches('-').into(),
            verdict: named(verdict),
            evidence: "its numbers".into(),
            step: 80,
            remedies: remedies.map(remedy).collect(),
        })));
    }

    pub(super) fn of_loop(&self, words: &[&str]) -> Command {
        match *words {
            ["approve", job, rule] => self.approval(job, rule, ""),
            ["approve", job, rule, subject] => self.approval(job, rule, subject),
            ["undo", job, directive] => Command::Undo {
                job: self.id(job),
                directive: DirectiveId(directive.parse().unwrap()),
            },
            ["ask", job, ref what @ ..] => Command::Ask(Ask {
                attempt: self.attempt(self.id(job)),
                body: ask(what),
                reason: "it knows".into(),
            }),
            ref other => panic!("unknown command {other:?}"),
        }
    }

    fn approval(&self, job: &str, rule: &str, subject: &str) -> Command {
        Command::Approve {
            job: self.id(job),
            rule: named(rule),
            subject: subject.into(),
        }
    }

    pub(super) fn answers(&mut self, job: &str, directive: &str, word: &str) {
        let reason = || "not now".to_owned();
        let ack = Ack {
            directive: DirectiveId(directive.parse().unwrap()),
            body: match word {
                "applied" => AckBody::Applied { slot: 16 },
                "rejected" => AckBody::Rejected { reason: reason() },
                "failed" => AckBody::Failed { error: reason() },
                _ => AckBody::Expired,
            },
        };
        let attempt = self.attempt(self.id(job));
        self.input(Body::Observation(Observation::Acknowledged {
            attempt,
            ack,
        }));
    }

    /// `s1:law` or `s1:law:s0` with a parent, `s1@30:law` with the weight that it began with, in percent.
    pub(super) fn draws(&mut self, job: &str, shard: &str) {
        let (name, origin) = origin(shard);
        self.input(Body::Observation(Observation::Shards {
            attempt: self.attempt(self.id(job)),
            shards: BTreeMap::from([(name, origin)]),
        }));
    }

    /// How close a job has come to its `accept` line.
    pub(super) fn reached(&self, job: &Job) -> Vec<String> {
        let line = |known: &ReachedRecord| {
            let met = if job.accepted().is_some() {
                "met"
            } else {
                "not met"
            };
            let (value, step) = (Decimal(known.reached.value_micro), known.reached.step);
            format!("{met}: {value} at step {step}")
        };
        job.reached.iter().map(line).collect()
    }

    /// Every finding of a job, and how far it has come.
    pub(super) fn findings(&self, job: &Job) -> Vec<String> {
        let line = |record: &FindingRecord| {
            let stage = match &record.stage {
                _ if record.undone => "undone".into(),
                FindingStage::Told if waits_for_approval(&self.state, job, record) => {
                    "waits for approval".into()
                }
                FindingStage::Directed { directive } => format!("directed #{directive}"),
                FindingStage::Started { job } => format!("started {job}"),
                FindingStage::Refused { why } => format!("refused: {why}"),
                FindingStage::Told => "told".into(),
                FindingStage::Approved => "approved".into(),
                FindingStage::Done => "done".into(),
                FindingStage::Cleared => "cleared".into(),
            };
            let said = &record.diagnosis;
            let subject = Some(&said.subject).filter(|subject| !subject.is_empty());
            let subject = subject.map_or_else(String::new, |subject| format!(" {subject}"));
            format!("{}{subject} {}: {stage}", said.rule, said.verdict)
        };
        job.steering.all().map(line).collect()
    }

    /// The directive log.
    pub(super) fn directives(&self, job: &Job) -> Vec<String> {
        let log = job.directives.iter();
        log.map(|entry| format!("#{} {} ({})", entry.id, entry.body, entry.reason))
            .collect()
    }

    /// Every shard whose origin is known.
    pub(super) fn shards(&self, job: &Job) -> Vec<String> {
        let line = |(name, origin): (&String, &ShardOrigin)| {
            let made_by = origin.made_by.map(|attempt| format!(", made by {attempt}"));
            format!(
                "{name} of {} from [{}]{}{}",
                origin.category,
                origin.parents.join(" "),
                origin.generator,
                made_by.unwrap_or_default()
            )
        };
        job.spec.data.shards.iter().map(line).collect()
    }
}

/// A rule or a verdict by its name.
fn named<T: serde::de::DeserializeOwned>(name: &str) -> T {
    serde_json::from_value(name.into()).unwrap()
}

pub(super) fn origin(text: &str) -> (String, ShardOrigin) {
    let mut words = text.split(':');
    let name = words.next().unwrap();
    let (name, weight) = match name.split_once('@') {
        Some((name, percent)) => (name, Some(percent.parse::<u32>().unwrap() * 10_000)),
        None => (name, None),
    };
    let name = name.to_owned();
    let origin = ShardOrigin {
        weight_ppm: weight,
        category: words.next().unwrap().into(),
        parents: words.map(str::to_owned).collect(),
        ..ShardOrigin::default()
    };
    (name, origin)
}

fn remedy(text: &str) -> Remedy {
    let words: Vec<_> = text.split_whitespace().collect();
    Remedy::Direct(match words[..] {
        ["weigh", permille] => {
            return Remedy::Weigh {
                permille: permille.parse().unwrap(),
            };
        }
        ["replace", task] => {
            return Remedy::Replace {
                task: task.parse().unwrap(),
            };
        }
        ["restart"] => return Remedy::Restart,
        ["augment", of] => return Remedy::Augment { of: of.into() },
        ["set_weights", ref weights @ ..] => {
            let weight = |word: &&str| {
                let (shard, percent) = word.split_once('=').unwrap();
                let percent: u32 = percent.parse().unwrap();
                (shard.to_owned(), percent * 10_000)
            };
            DirectiveBody::SetWeights {
                weights: weights.iter().map(weight).collect(),
            }
        }
        ["pause_shard", shard] => DirectiveBody::PauseShard {
            shard: shard.into(),
        },
        ["set_micro_batch", rows] => DirectiveBody::SetMicroBatch {
            rows: rows.parse().unwrap(),
        },
        ["drain", task, share] => DirectiveBody::Drain {
            task: task.parse().unwrap(),
            share_permille: share.parse().unwrap(),
            steps: 1,
        },
        ["checkpoint"] => DirectiveBody::Checkpoint,
        ["stop"] => DirectiveBody::Stop,
        ref other => panic!("unknown remedy {other:?}"),
    })
}

fn ask(words: &[&str]) -> AskBody {
    match *words {
        ["gpus", gpus] => AskBody::Gpus {
            gpus: gpus.parse().unwrap(),
        },
        ["time", more] => AskBody::Time {
            more: more.parse().unwrap(),
        },
        ["samples", category] => AskBody::Samples {
            category: category.into(),
        },
        ["pause"] => AskBody::Pause,
        ["protection", during] => AskBody::Protection {
            during: during.parse().unwrap(),
        },
        ref other => panic!("unknown ask {other:?}"),
    }
}
