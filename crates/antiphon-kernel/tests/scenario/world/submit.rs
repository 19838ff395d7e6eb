//! What is said about a job when it is submitted.
//!
//! ```text
//! submit a: 16 production team=rlhf priority=5 type=H100 or=16xA100@600
//! ```
//! Behaviours of its processes: `attached` (obey directives), `stubborn` (ignore SIGTERM; others end on it at once),
//! `runs=60s` (end with 0 after that), `starts=40s` (run so long after the launch). Of the job: a class, `team= priority= deadline=1h not-before= after=a+b after-any=
//! after-start= held array=0-3 at-once=2 estimate=30m-1h-2h limit= grace= retries= uses=licences:2 checkpoint auto approve shard=s1:law augment=METHOD:RUNS
//! ladder=small-batch+more:16 shrinks`. Of its first role: `type= tasks= per-gpu cpus= memory= scratch= read= gpu-memory= partition=
//! span=leaf tp=8 speed=800 or=GPUSxTYPE@SPEED`, and `by-default` for the CPUs and memory that a GPU gets where nobody
//! says. Further roles: `role=rollout:8xA100`.

use std::collections::BTreeMap;

use antiphon_types::*;

use super::steering::origin;
use super::{World, time};

/// How the processes of a job behave.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trainer {
    pub(super) attached: bool,
    pub(super) stubborn: bool,
    /// How long until they run, where that takes a while.
    pub(super) starts: Option<Millis>,
    /// How long until they end by themselves.
    pub(super) runs: Option<Millis>,
}

impl World {
    pub(super) fn submit(&mut self, name: &str, words: &[&str]) {
        let (spec, trainer) = self.spec(name, words);
        let first = self.state.newest_job().map_or(1, |newest| newest.0 + 1);
        let members = spec.array.as_ref().map_or(1, |array| array.indices.len());
        let ids = (first..).map(JobId).take(members);
        self.trainers.extend(ids.map(|id| (id, trainer)));
        self.command(Command::Submit {
            spec: Box::new(spec),
        });
    }

    pub(super) fn spec(&self, name: &str, words: &[&str]) -> (JobSpec, Trainer) {
        let mut shape = Shape {
            gpus: words[0].parse().unwrap(),
            cpus: Some(0),
            memory: Some(Bytes::ZERO),
            ..Shape::default()
        };
        let mut spec = JobSpec {
            name: name.into(),
            team: "default".into(),
            user: "someone".into(),
            workdir: "/".into(),
            retry: RetrySpec {
                retries_max: 5,
                backoff_first: Millis::from_secs(10),
                backoff_max: Millis::from_secs(120),
            },
            grace: Millis::from_secs(60),
            ..JobSpec::default()
        };
        let mut trainer = Trainer::default();
        let mut alternatives = Vec::new();
        let mut roles = Vec::new();
        for word in &words[1..] {
            let said = of_trainer(word, &mut trainer)
                || of_shape(word, &mut shape)
                || self.of_job(word, &mut spec);
            match word.split_once('=') {
                _ if said => (),
                Some(("or", text)) => alternatives.push(other_shape(text, &shape)),
                Some(("role", text)) => {
                    let (name, text) = text.split_once(':').unwrap();
                    roles.push(role(name, other_shape(text, &shape)));
                }
                _ => panic!("unknown word of a job: {word}"),
            }
        }
        let mut main = role("main", shape);
        main.alternatives = alternatives;
        spec.roles = std::iter::once(main).chain(roles).collect();
        (spec, trainer)
    }

    fn of_job(&self, word: &str, spec: &mut JobSpec) -> bool {
        let jobs = |list: &str| list.split('+').map(|job| self.id(job)).collect();
        match word.split_once('=') {
            None if word == "auto" => rules(spec, RuleMode::Auto),
            None if word == "approve" => rules(spec, RuleMode::Approve),
            None if word == "held" => spec.held = true,
            None if word == "shrinks" => spec.shrinks = true,
            None if word == "checkpoint" => {
                let dir = "/checkpoints".into();
                spec.checkpoint = Some(CheckpointSpec { dir, keep: None });
            }
            None => match Class::ALL.into_iter().find(|class| class.name() == word) {
                Some(class) => spec.class = class,
                None => return false,
            },
            Some(("team", name)) => spec.team = name.into(),
            Some(("accept", loss)) => spec.accept = Some(accept(loss)),
            Some(("priority", n)) => spec.priority = n.parse().unwrap(),
            Some(("deadline", at)) => spec.deadline = Some(time(at)),
            Some(("not-before", at)) => spec.not_before = Some(time(at)),
            Some(("grace", span)) => spec.grace = span.parse().unwrap(),
            Some(("limit", span)) => spec.time_limit = Some(span.parse().unwrap()),
            Some(("retries", n)) => spec.retry.retries_max = n.parse().unwrap(),
            Some(("after", list)) => spec.after = jobs(list),
            Some(("after-any", list)) => spec.after_any = jobs(list),
            Some(("after-start", list)) => spec.after_start = jobs(list),
            Some(("array", range)) => {
                let (first, last) = range.split_once('-').unwrap();
                let (first, last): (u32, u32) = (first.parse().unwrap(), last.parse().unwrap());
                let array = spec.array.get_or_insert_default();
                array.indices = (first..=last).collect();
            }
            Some(("at-once", n)) => {
                spec.array.get_or_insert_default().at_once = n.parse().unwrap();
            }
            Some(("estimate", text)) => spec.estimate = Some(estimate(text)),
            Some(("uses", text)) => {
                let (name, amount) = text.split_once(':').unwrap();
                spec.resources.insert(name.into(), amount.parse().unwrap());
            }
            Some(("shard", text)) => {
                let (name, origin) = origin(text);
                spec.data.shards.insert(name, origin);
            }
            Some(("augment", text)) => {
                let (method, runs) = text.split_once(':').unwrap();
                let method = method.to_owned();
                spec.data.augment.insert(method, augmentation(runs));
            }
            Some(("ladder", text)) => spec.ladder = text.split('+').map(rung).collect(),
            Some(_) => return false,
        }
        true
    }
}

fn of_trainer(word: &str, trainer: &mut Trainer) -> bool {
    match word.split_once('=') {
        None if word == "attached" => trainer.attached = true,
        None if word == "stubborn" => trainer.stubborn = true,
        Some(("runs", span)) => trainer.runs = Some(span.parse().unwrap()),
        Some(("starts", span)) => trainer.starts = Some(span.parse().unwrap()),
        _ => return false,
    }
    true
}

fn of_shape(word: &str, shape: &mut Shape) -> bool {
    match word.split_once('=') {
        None if word == "per-gpu" => shape.processes = Processes::PerGpu,
        None if word == "by-default" => (shape.cpus, shape.memory) = (None, None),
        Some(("type", name)) => shape.gpu_type = Some(name.into()),
        Some(("tasks", n)) => shape.tasks = Tasks::Exactly(n.parse().unwrap()),
        Some(("cpus", n)) => shape.cpus = Some(n.parse().unwrap()),
        Some(("memory", size)) => shape.memory = Some(size.parse().unwrap()),
        Some(("scratch", size)) => shape.scratch = size.parse().unwrap(),
        Some(("read", size)) => shape.read_bandwidth = size.parse().unwrap(),
        Some(("gpu-memory", size)) => shape.gpu_memory = size.parse().unwrap(),
        Some(("partition", name)) => shape.partition = Some(name.into()),
        Some(("tp", n)) => shape.tensor_parallel = n.parse().unwrap(),
        Some(("speed", n)) => shape.speed = n.parse().unwrap(),
        Some(("span", name)) => {
            let mut spans = Span::ALL.into_iter();
            shape.span = spans.find(|span| span.name() == name).unwrap();
        }
        _ => return false,
    }
    true
}

/// `16xA100@600`: GPUs, their type, how fast; all else as in the first shape.
fn other_shape(text: &str, first: &Shape) -> Shape {
    let (text, speed) = text.split_once('@').unwrap_or((text, "1000"));
    let (gpus, of) = text.split_once('x').unwrap_or((text, ""));
    Shape {
        gpus: gpus.parse().unwrap(),
        gpu_type: Some(of.into()).filter(|of: &String| !of.is_empty()),
        speed: speed.parse().unwrap(),
        ..first.clone()
    }
}

fn role(name: &str, shape: Shape) -> Role {
    Role {
        name: name.into(),
        command: vec!["train".into()],
        shape,
        ..Role::default()
    }
}

fn rules(spec: &mut JobSpec, mode: RuleMode) {
    spec.rules = Rule::ALL.into_iter().map(|rule| (rule, mode)).collect();
}

/// So many runs at most.
fn augmentation(runs: &str) -> AugmentSpec {
    AugmentSpec {
        command: vec!["generate".into()],
        temperature_milli: 700,
        count: 500,
        cpus: 4,
        runs_max: runs.parse().unwrap(),
        ..AugmentSpec::default()
    }
}

/// `1h`, or `30m-1h-2h` with an interval.
fn estimate(text: &str) -> Estimate {
    let spans: Vec<Millis> = text.split('-').map(|span| span.parse().unwrap()).collect();
    match spans[..] {
        [low, expected, high] => Estimate {
            low,
            expected,
            high,
        },
        _ => Estimate {
            low: spans[0],
            expected: spans[0],
            high: spans[0],
        },
    }
}

/// `small-batch`, or `more:16` with GPUs.
fn rung(text: &str) -> Rung {
    let (name, gpus) = match text.split_once(':') {
        Some((name, gpus)) => (name, Some(gpus.parse().unwrap())),
        None => (text, None),
    };
    let told = ("RUNG".to_owned(), name.to_owned());
    Rung {
        name: name.into(),
        environment: BTreeMap::from([told]),
        gpus,
    }
}

/// A held-out loss that makes a model acceptable.
fn accept(loss: &str) -> Accept {
    let loss: f64 = loss.parse().unwrap();
    Accept {
        metric: "loss".into(),
        from: AcceptFrom::Probe { category: None },
        op: AcceptOp::AtMost,
        value_micro: (loss * 1e6) as i64,
    }
}
