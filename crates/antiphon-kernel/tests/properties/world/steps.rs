//! Does what a plan says.

use std::collections::BTreeMap;

use antiphon_types::*;

use super::processes::{Truth, exit_of};
use super::{World, pick};
use crate::plan::{NodeChange, PolicyPlan, Step, teams};

impl World {
    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Submit(plan) => {
                let spec = self.spec(plan);
                self.submit(spec, Self::behavior(plan));
            }
            Step::Cancel(job) => self.on_job(*job, |job| Command::Cancel { job }),
            Step::Hold(job) => self.on_job(*job, |job| Command::Hold { job }),
            Step::Release(job) => self.on_job(*job, |job| Command::Release { job }),
            Step::Preempt(job) => self.on_job(*job, |job| Command::Preempt { job }),
            Step::SetClass(job, class) => {
                let class = Class::ALL[usize::from(*class) % Class::ALL.len()];
                self.on_job(*job, |job| Command::SetClass { job, class });
            }
            Step::Direct(job) => self.on_job(*job, |job| {
                Command::Direct(Direct {
                    job,
                    body: DirectiveBody::Checkpoint,
                    reason: "asked".into(),
                })
            }),
            Step::Approve { job, rule, subject } => {
                let (rule, subject) = (*rule, subject_of(*subject));
                self.on_job(*job, |job| Command::Approve { job, rule, subject });
            }
            Step::Undo { job, directive } => {
                let directive = DirectiveId(*directive);
                self.on_job(*job, |job| Command::Undo { job, directive });
            }
            Step::Ask { job, body } => {
                if let Some(attempt) = self.trainer(*job) {
                    let (body, reason) = (body.clone(), "asked".into());
                    let _ = self.command(Command::Ask(Ask {
                        attempt,
                        body,
                        reason,
                    }));
                }
            }
            Step::Drain(_)
            | Step::Undrain(_)
            | Step::Maintain { .. }
            | Step::Notice { .. }
            | Step::Pause
            | Step::Unpause
            | Step::Policy(_)
            | Step::Gate(_)
            | Step::Teams(_) => {
                let command = self.of_operator(step);
                let _ = self.command(command);
            }
            Step::SafeMode => self.input(Body::SafeMode {
                bug: "1 != 2".into(),
            }),
            Step::Inventory(changes) => self.change_nodes(changes),
            Step::Start(number) => {
                let launched = self.tasks(|truth| matches!(truth, Truth::Launched));
                if let Some(task) = pick(launched, *number) {
                    self.start(&task);
                }
            }
            Step::End(number, exit) => {
                let living = self.tasks(|truth| !matches!(truth, Truth::Ended(_)));
                if let Some(task) = pick(living, *number) {
                    self.end(&task, exit_of(exit));
                }
            }
            Step::Attach(_)
            | Step::Save { .. }
            | Step::Answer(..)
            | Step::Progress { .. }
            | Step::Found { .. }
            | Step::Shards { .. }
            | Step::Idle { .. } => self.of_trainer(step),
            Step::Deliver(number) => {
                if !self.outbox.is_empty() {
                    let report = self.outbox.remove(number % self.outbox.len());
                    self.deliver(report);
                }
            }
            Step::Double(number) => {
                if let Some(report) = pick(self.outbox.clone(), *number) {
                    self.deliver(report);
                }
            }
            Step::Lose(number) => {
                if !self.outbox.is_empty() {
                    self.outbox.remove(number % self.outbox.len());
                }
            }
            Step::Again(number) => {
                if let Some(report) = pick(self.arrived.clone(), *number) {
                    self.deliver(report);
                }
            }
            Step::Together(steps) => {
                self.together = true;
                steps.iter().for_each(|step| self.step(step));
                self.together = false;
                self.decide();
            }
            Step::Wait(_) if self.together => (),
            Step::Wait(ms) => {
                let until = self.at.after(Millis::from_millis(*ms));
                self.wait_until(until);
            }
        }
    }

    fn of_operator(&self, step: &Step) -> Command {
        match step {
            Step::Drain(node) => Command::Drain {
                node: self.node(*node),
                reason: "asked".into(),
            },
            Step::Undrain(node) => Command::Undrain {
                node: self.node(*node),
            },
            Step::Maintain {
                nodes,
                ahead_s,
                long_s,
            } => Command::Maintain(Maintenance {
                nodes: nodes.iter().map(|node| self.node(*node)).collect(),
                from: self.ahead(*ahead_s),
                until: self.ahead(ahead_s + long_s),
                reason: "firmware".into(),
            }),
            Step::Notice {
                node,
                gpus,
                within_s,
            } => Command::Notice(Notice {
                node: self.node(*node),
                gpus: *gpus,
                within: Millis::from_secs(*within_s),
                cause: NoticeCause::Spot,
                reason: String::new(),
            }),
            Step::Pause => Command::Pause {
                reason: "asked".into(),
            },
            Step::Unpause => Command::Unpause,
            Step::Policy(plan) => Command::SetPolicy {
                policy: Box::new(policy(plan)),
            },
            Step::Gate(gate) => Command::SetGate { gate: gate.clone() },
            Step::Teams(plans) => Command::SetTeams {
                teams: teams(plans),
            },
            other => panic!("{other:?} is no operator's"),
        }
    }

    fn change_nodes(&mut self, changes: &[Option<NodeChange>]) {
        let offered = |(node, change): (&NodeSpec, &Option<NodeChange>)| {
            let change = change.as_ref()?;
            let mut node = node.clone();
            node.gpus = node.gpus * change.gpus / 16;
            node.memory = Bytes::new(node.memory.get() / 16 * change.memory);
            node.slices.retain(|slice| slice.gpu < node.gpus);
            node.gpus_lost = change.lost.clone();
            node.gpus_lost.retain(|gpu| *gpu < node.gpus);
            Some(node)
        };
        let nodes = self.nodes.iter().zip(changes).filter_map(offered).collect();
        self.offer(nodes);
    }

    fn of_trainer(&mut self, step: &Step) {
        let (Step::Attach(number)
        | Step::Answer(number, _)
        | Step::Save { job: number, .. }
        | Step::Progress { job: number, .. }
        | Step::Found { job: number, .. }
        | Step::Shards { job: number, .. }
        | Step::Idle { job: number, .. }) = step
        else {
            panic!("{step:?} is no trainer's");
        };
        let Some(attempt) = self.trainer(*number) else {
            return;
        };
        match step {
            Step::Attach(_) => self.outbox.push(Observation::Attached { attempt, step: 0 }),
            Step::Answer(_, answer) => self.answer(attempt, answer),
            Step::Save { step, save_ms, .. } => {
                let checkpoint = self.checkpoint(attempt, *step, Millis::from_millis(*save_ms));
                self.outbox.push(Observation::Checkpointed { checkpoint });
            }
            Step::Progress { step, step_ms, .. } => self.find(Finding::Progress {
                attempt,
                step: *step,
                steps_total: 100,
                step_time: Millis::from_millis(*step_ms),
            }),
            Step::Found {
                rule,
                subject,
                verdict,
                remedies,
                ..
            } => self.find(Finding::Diagnosis(Box::new(Diagnosis {
                attempt,
                rule: *rule,
                subject: subject_of(*subject),
                verdict: *verdict,
                evidence: "numbers".into(),
                step: 1,
                remedies: remedies.clone(),
            }))),
            Step::Shards { shard, .. } => {
                let origin = ShardOrigin {
                    category: subject_of(*shard),
                    ..ShardOrigin::default()
                };
                let shards = BTreeMap::from([(subject_of(*shard), origin)]);
                self.outbox.push(Observation::Shards { attempt, shards });
            }
            Step::Idle { since_s, .. } => self.find(Finding::Idle {
                attempt,
                utilization_percent: 1,
                since: Millis::from_secs(*since_s),
            }),
            other => panic!("{other:?} is no trainer's"),
        }
    }

    fn find(&mut self, finding: Finding) {
        self.input(Body::Finding(finding));
    }
}

fn subject_of(number: u8) -> String {
    format!("shard-{}", number % 4)
}

fn policy(plan: &PolicyPlan) -> Policy {
    let promote = Millis::from_secs(plan.promote_s);
    Policy {
        checkpoint_wait_ms_max: Millis::from_secs(plan.wait_s),
        ended_jobs_max: plan.kept,
        command_ids_max: plan.kept,
        attempts_kept_max: plan.kept,
        promote_after_ms: PromoteAfter {
            service: promote,
            production: promote,
            standard: promote,
            best_effort: promote,
        },
        reservations_per_class_max: plan.reservations,
        preemptions_per_hour_max: plan.preemptions,
        preemptions_per_hour_cluster_max: plan.preemptions_cluster,
        collateral_percent_max: plan.collateral,
        idle_reclaim_after_ms: plan.idle_s.map(Millis::from_secs),
        node_check: plan.checks.then(|| "true".into()).into_iter().collect(),
        usage_half_life_ms: Millis::from_secs(plan.half_life_s),
        ..Policy::default()
    }
}
