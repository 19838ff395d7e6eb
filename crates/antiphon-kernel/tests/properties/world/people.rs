//! What people do: jobs as files would describe them, and commands. Decides nothing about processes.

use std::collections::BTreeMap;

use antiphon_kernel::JobState;
use antiphon_types::*;

use super::{Behavior, World, pick};
use crate::plan::{JobPlan, PARTITIONS, ShapePlan, Wait, team_name, type_name};

impl World {
    pub(crate) fn behavior(plan: &JobPlan) -> Behavior {
        Behavior {
            attaches: plan.behaves.attaches,
            stubborn: plan.behaves.stubborn,
            runs: Millis::from_secs(plan.behaves.runs_s),
            saves: plan.behaves.saves,
        }
    }

    pub(crate) fn spec(&self, plan: &JobPlan) -> JobSpec {
        let JobPlan {
            asks,
            claims,
            behaves,
        } = plan;
        let roles = asks.roles.iter().enumerate().map(|(index, shape)| Role {
            name: format!("role{index}"),
            command: vec!["train".into()],
            shape: self.shape(plan, shape),
            alternatives: asks
                .other_shape
                .iter()
                .filter(|_| index == 0)
                .map(|other| Shape {
                    gpu_type: None,
                    ..self.shape(plan, other)
                })
                .collect(),
        });
        let living = self.jobs_where(|state| !state.is_ended());
        let mut spec = JobSpec {
            // Jobs of a team that have like names ran about as long; one that lives keeps its name to itself.
            name: format!("job{}-{}", claims.name % 4, self.submitted),
            team: team_name(asks.team),
            user: "someone".into(),
            class: asks.class,
            roles: roles.collect(),
            workdir: "/".into(),
            checkpoint: behaves.saves.then(|| CheckpointSpec {
                dir: "/c".into(),
                keep: None,
            }),
            retry: RetrySpec {
                retries_max: behaves.retries,
                backoff_first: Millis::from_secs(10),
                backoff_max: Millis::from_secs(120),
            },
            grace: Millis::from_secs(behaves.grace_s),
            time_limit: claims.limit_s.map(Millis::from_secs),
            priority: claims.priority,
            not_before: claims.not_before_s.map(|s| self.ahead(s)),
            deadline: claims.deadline_s.map(|s| self.ahead(s)),
            held: claims.held,
            array: asks.array.map(|(count, at_once)| ArraySpec {
                indices: (0..count).collect(),
                at_once,
            }),
            resources: BTreeMap::from([("license".to_owned(), asks.licenses)]),
            estimate: claims.estimate_s.map(|s| Estimate {
                low: Millis::from_secs(s / 2),
                expected: Millis::from_secs(s),
                high: Millis::from_secs(s * 2),
            }),
            data: DataSpec {
                augment: BTreeMap::from([(
                    "paraphrase".to_owned(),
                    AugmentSpec {
                        command: vec!["generate".into()],
                        runs_max: 3,
                        ..AugmentSpec::default()
                    },
                )]),
                ..DataSpec::default()
            },
            rules: if behaves.auto {
                Rule::ALL.map(|rule| (rule, RuleMode::Auto)).into()
            } else {
                BTreeMap::new()
            },
            ..JobSpec::default()
        };
        spec.ladder = asks
            .rungs
            .iter()
            .map(|gpus| Rung {
                gpus: gpus.map(GpuAmount::from_gpus),
                ..Rung::default()
            })
            .collect();
        for (wait, number) in &claims.after {
            let Some(first) = pick(living.clone(), *number) else {
                continue;
            };
            match wait {
                Wait::Success => spec.after.push(first),
                Wait::End => spec.after_any.push(first),
                Wait::Start => spec.after_start.push(first),
            }
        }
        spec
    }

    fn shape(&self, plan: &JobPlan, of: &ShapePlan) -> Shape {
        let asks = &plan.asks;
        let (gpus, tasks, processes) = match of {
            ShapePlan::Whole(gpus) => (
                GpuAmount::from_gpus(*gpus),
                Tasks::Fewest,
                Processes::PerNode,
            ),
            ShapePlan::Thousandths(part) => (
                GpuAmount::from_thousandths(*part),
                Tasks::Fewest,
                Processes::PerNode,
            ),
            ShapePlan::PerGpu(gpus) => {
                let gpus = GpuAmount::from_gpus(*gpus);
                (gpus, Tasks::Fewest, Processes::PerGpu)
            }
            ShapePlan::Tasks { tasks, gpus_each } => (
                GpuAmount::from_gpus(tasks * gpus_each),
                Tasks::Exactly(*tasks),
                Processes::PerNode,
            ),
            ShapePlan::Cpus => (GpuAmount::ZERO, Tasks::Fewest, Processes::PerNode),
        };
        Shape {
            gpus,
            gpu_type: asks.kind.map(type_name),
            tasks,
            processes,
            cpus: asks.cpus,
            memory: asks.gib.map(|gib| Bytes::new(gib << 30)),
            scratch: Bytes::new(asks.scratch_gib << 30),
            read_bandwidth: Bytes::new(asks.reads << 30),
            gpu_memory: Bytes::ZERO,
            partition: asks.partition.map(|number| PARTITIONS[number].into()),
            span: asks.span,
            tensor_parallel: 0,
            speed: 1_000,
        }
    }

    pub(super) fn ahead(&self, s: u64) -> Timestamp {
        self.at.after(Millis::from_secs(s))
    }

    /// A command about some job.
    pub(super) fn on_job(&mut self, number: usize, command: impl FnOnce(JobId) -> Command) {
        if let Some(job) = pick(self.jobs_where(|_| true), number) {
            let _ = self.command(command(job));
        }
    }

    /// What admission would say of a job if it came now, without its dependencies.
    pub(super) fn is_admissible(&self, id: JobId) -> bool {
        let mut spec = self.state.job(id).unwrap().spec.clone();
        spec.name = "another".into();
        spec.after.clear();
        spec.after_any.clear();
        spec.after_start.clear();
        spec.deadline = None;
        let spec = Box::new(spec);
        antiphon_kernel::admit(&self.state, &Command::Submit { spec }).is_ok()
    }

    pub(super) fn release_all(&mut self) {
        for job in self.jobs_where(|state| matches!(state, JobState::Held { .. })) {
            self.command(Command::Release { job }).unwrap();
        }
    }
}
