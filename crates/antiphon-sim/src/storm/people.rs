//! What people ask: jobs of every form, and commands. Decides nothing about processes.

use std::collections::BTreeMap;

use antiphon_kernel::JobState;
use antiphon_types::{
    Amounts, ArraySpec, Ask, AskBody, AugmentSpec, Bytes, CheckpointSpec, Class, Command,
    CommandId, DataSpec, Direct, DirectiveBody, DirectiveId, Estimate, GpuAmount, GpuTime, JobId,
    JobSpec, Maintenance, Millis, Notice, NoticeCause, Policy, Processes, PromoteAfter, RetrySpec,
    Role, Rule, RuleMode, Rung, Shape, Span, Tasks, TeamSpec, Timestamp,
};

use super::nodes::{LICENSE, PARTITIONS, type_name};
use super::server::Input;
use super::{Checked, Fault, Storm};

/// The team of a number.
fn team_name(number: u64) -> String {
    format!("team{number}")
}

impl Storm {
    /// The first commands of all: settings and teams.
    pub(super) fn set_up(&mut self) -> Checked {
        self.offer()?;
        let policy = Box::new(self.policy());
        self.ask(Command::SetPolicy { policy })?;
        self.set_teams()
    }

    pub(super) fn set_teams(&mut self) -> Checked {
        let teams = if self.draw.one_in(3) {
            Vec::new()
        } else {
            self.teams()
        };
        self.ask(Command::SetTeams { teams })
    }

    /// A person asks.
    pub(super) fn ask(&mut self, command: Command) -> Checked {
        let input = self.named(command);
        self.turn(vec![input])
    }

    /// A command with a key of its own.
    pub(super) fn named(&mut self, command: Command) -> Input {
        self.keys += 1;
        let id = CommandId {
            key: format!("key-{}", self.keys),
            content: String::new(),
        };
        Input::Command(id, command)
    }

    pub(super) fn submit(&mut self) -> Checked {
        let spec = Box::new(self.spec());
        self.ask(Command::Submit { spec })
    }

    fn any_job(&mut self) -> Option<JobId> {
        let living = self.jobs_where(|state| !state.is_ended());
        self.draw.pick(&living)
    }

    pub(super) fn user(&mut self) -> Checked {
        let Some(job) = self.any_job() else {
            return Ok(());
        };
        self.strike(Fault::User);
        let command = match self.draw.below(11) {
            0 | 1 => Command::Cancel { job },
            2 | 3 => Command::Hold { job },
            4 => Command::Direct(Direct {
                job,
                body: DirectiveBody::Checkpoint,
                reason: "asked".into(),
            }),
            5 => Command::Approve {
                job,
                rule: self.draw.pick(&Rule::ALL).expect("there are rules"),
                subject: format!("shard-{}", self.draw.below(3)),
            },
            6 => Command::Undo {
                job,
                directive: DirectiveId(self.draw.between(1, 6)),
            },
            7 => return self.trainer_asks(job),
            8 => Command::SetClass {
                job,
                class: self.draw.pick(&Class::ALL).expect("there are classes"),
            },
            _ => {
                let held = self.jobs_where(|state| matches!(state, JobState::Held { .. }));
                let job = self.draw.pick(&held).unwrap_or(job);
                Command::Release { job }
            }
        };
        self.ask(command)
    }

    fn trainer_asks(&mut self, job: JobId) -> Checked {
        let active = self
            .server
            .state
            .job(job)
            .and_then(|job| job.state.active());
        let Some(attempt) = active.map(|active| active.attempt) else {
            return Ok(());
        };
        let span = Millis::from_secs(self.draw.below(4_000));
        let body = match self.draw.below(4) {
            0 => AskBody::Gpus {
                gpus: self.draw.count(0, 8),
            },
            1 => AskBody::Time { more: span },
            2 => AskBody::Samples {
                category: format!("shard-{}", self.draw.below(3)),
            },
            _ => AskBody::Protection { during: span },
        };
        self.ask(Command::Ask(Ask {
            attempt,
            body,
            reason: "asked".into(),
        }))
    }

    pub(super) fn operator(&mut self) -> Checked {
        self.strike(Fault::Operator);
        let node = self
            .draw
            .pick(&self.machines.specs)
            .expect("there are nodes");
        let node = node.name;
        let command = match self.draw.below(13) {
            0..=2 => match self.any_job() {
                Some(job) => Command::Preempt { job },
                None => return Ok(()),
            },
            3 => Command::Drain {
                node,
                reason: "asked".into(),
            },
            4..=6 => Command::Undrain { node },
            7 => {
                let from = self.ahead(1_000);
                Command::Maintain(Maintenance {
                    nodes: vec![node],
                    from,
                    until: from.after(Millis::from_secs(self.draw.between(60, 2_000))),
                    reason: "firmware".into(),
                })
            }
            8 => Command::Notice(Notice {
                node,
                gpus: self.draw.one_in(2).then(|| self.draw.count(1, 8)),
                within: Millis::from_secs(self.draw.between(1, 600)),
                cause: NoticeCause::Inference,
                reason: String::new(),
            }),
            9 => Command::Pause {
                reason: "asked".into(),
            },
            _ => Command::Unpause,
        };
        self.ask(command)
    }

    pub(super) fn settings(&mut self) -> Checked {
        self.strike(Fault::Settings);
        if self.draw.one_in(3) {
            return self.set_teams();
        }
        let policy = Box::new(self.policy());
        self.ask(Command::SetPolicy { policy })
    }

    fn ahead(&mut self, most_s: u64) -> Timestamp {
        let s = self.draw.below(most_s);
        self.now.after(Millis::from_secs(s))
    }

    /// Settings at their edges. Ended jobs are forgotten early: it bounds what a check has to look through.
    pub(super) fn policy(&mut self) -> Policy {
        let draw = &mut self.draw;
        let promote = Millis::from_secs(draw.between(1, 7_200));
        Policy {
            checkpoint_wait_ms_max: Millis::from_secs(draw.below(600)),
            ended_jobs_max: draw.count(0, 40),
            // A client that got no answer asks again: its key must still be known then.
            command_ids_max: draw.count(100, 200),
            attempts_kept_max: draw.count(0, 5),
            promote_after_ms: PromoteAfter {
                service: promote,
                production: promote,
                standard: promote,
                best_effort: promote,
            },
            reservations_per_class_max: draw.count(0, 4),
            preemptions_per_hour_max: draw.count(0, 3),
            preemptions_per_hour_cluster_max: if draw.one_in(4) {
                draw.count(0, 5)
            } else {
                1_000
            },
            collateral_percent_max: draw.count(0, 100),
            idle_reclaim_after_ms: draw.one_in(2).then(|| Millis::from_secs(draw.below(600))),
            node_check: draw.one_in(2).then(|| "true".into()).into_iter().collect(),
            usage_half_life_ms: Millis::from_secs(draw.between(60, 100_000)),
            turn_gain_permille: draw.pick(&[0, 1_100, 1_300]).expect("three"),
            ..Policy::default()
        }
    }

    fn teams(&mut self) -> Vec<TeamSpec> {
        let draw = &mut self.draw;
        let gpus = |gpus: u32| Amounts {
            all: Some(GpuAmount::from_gpus(gpus)),
            by_type: BTreeMap::new(),
        };
        let mut specs = Vec::new();
        for number in 0..4 {
            let quota = draw.count(0, 12);
            let limit = quota + draw.count(1, 24);
            // Part of the first team, which has neither and so promises nothing.
            let parent = (number > 0 && draw.one_in(3)).then(|| team_name(0));
            let free = number == 0;
            specs.push(TeamSpec {
                name: team_name(number),
                parent,
                weight: draw.count(1, 4),
                quota: if free || draw.one_in(2) {
                    Amounts::default()
                } else {
                    gpus(quota)
                },
                limit: if free || draw.one_in(2) {
                    Amounts::default()
                } else {
                    gpus(limit)
                },
                budget: draw
                    .one_in(5)
                    .then(|| {
                        (
                            "*".to_owned(),
                            GpuTime::from_gpu_millis(draw.below(20_000_000)),
                        )
                    })
                    .into_iter()
                    .collect(),
                rules: BTreeMap::new(),
            });
        }
        specs
    }

    fn spec(&mut self) -> JobSpec {
        let roles = if self.draw.one_in(8) {
            self.draw.below(2) + 2
        } else {
            1
        };
        let kind = self.draw.one_in(4).then(|| self.draw.below(4));
        let roles = (0..roles).map(|index| {
            let alternatives = if index == 0 && self.draw.one_in(5) {
                vec![self.shape(None)]
            } else {
                Vec::new()
            };
            Role {
                name: format!("role{index}"),
                command: vec!["train".into()],
                shape: self.shape(kind),
                alternatives,
            }
        });
        let roles = roles.collect();
        let living = self.jobs_where(|state| !state.is_ended());
        let draw = &mut self.draw;
        let s = |seconds| Millis::from_secs(seconds);
        let mut spec = JobSpec {
            name: format!("job{}-{}", draw.below(4), self.keys),
            team: team_name(draw.below(4)),
            user: "someone".into(),
            class: draw.weighted(&[
                (1, Class::Service),
                (3, Class::Production),
                (6, Class::Standard),
                (6, Class::BestEffort),
            ]),
            roles,
            workdir: "/".into(),
            checkpoint: Some(CheckpointSpec {
                dir: "/c".into(),
                keep: None,
            }),
            retry: RetrySpec {
                retries_max: draw.count(0, 5),
                backoff_first: s(10),
                backoff_max: s(120),
            },
            grace: s(draw.below(120)),
            time_limit: draw.one_in(3).then(|| s(draw.between(1, 7_200))),
            priority: i32::from(draw.one_in(5)),
            held: draw.one_in(20),
            array: draw.one_in(12).then(|| ArraySpec {
                indices: (0..draw.count(1, 4)).collect(),
                at_once: draw.count(0, 2),
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
            rules: if draw.one_in(2) {
                Rule::ALL.map(|rule| (rule, RuleMode::Auto)).into()
            } else {
                BTreeMap::new()
            },
            ..JobSpec::default()
        };
        if draw.one_in(5) {
            spec.resources.insert(LICENSE.to_owned(), draw.below(3));
        }
        if draw.one_in(2) {
            let expected = draw.between(1, 10_000);
            spec.estimate = Some(Estimate {
                low: s(expected / 2),
                expected: s(expected),
                high: s(expected * 2),
            });
        }
        if draw.one_in(5) {
            spec.ladder = vec![Rung {
                gpus: draw
                    .one_in(2)
                    .then(|| GpuAmount::from_gpus(draw.count(1, 8))),
                ..Rung::default()
            }];
        }
        if draw.one_in(5)
            && let Some(first) = draw.pick(&living)
        {
            match draw.below(3) {
                0 => spec.after.push(first),
                1 => spec.after_any.push(first),
                _ => spec.after_start.push(first),
            }
        }
        if self.draw.one_in(10) {
            spec.not_before = Some(self.ahead(600));
        }
        if self.draw.one_in(5) {
            spec.deadline = Some(self.ahead(20_000));
        }
        spec
    }

    fn shape(&mut self, kind: Option<u64>) -> Shape {
        let draw = &mut self.draw;
        let (gpus, tasks, processes) = match draw.below(12) {
            0..=4 => (draw.count(1, 8).into(), Tasks::Fewest, Processes::PerNode),
            5 => (draw.count(8, 24).into(), Tasks::Fewest, Processes::PerNode),
            6 => (draw.count(1, 8).into(), Tasks::Fewest, Processes::PerGpu),
            7 | 8 => {
                let tasks = draw.count(1, 4);
                let gpus = u64::from(tasks * draw.count(0, 8));
                (gpus, Tasks::Exactly(tasks), Processes::PerNode)
            }
            9 => (0, Tasks::Fewest, Processes::PerNode),
            _ => {
                let part = GpuAmount::from_thousandths(draw.between(1, 999));
                return Shape {
                    gpus: part,
                    gpu_type: kind.map(type_name),
                    ..Shape::default()
                };
            }
        };
        Shape {
            gpus: GpuAmount::from_thousandths(gpus * 1_000),
            gpu_type: kind.map(type_name),
            tasks,
            processes,
            cpus: draw.one_in(3).then(|| draw.count(0, 6)),
            memory: draw.one_in(3).then(|| Bytes::new(draw.below(24) << 30)),
            scratch: Bytes::new(if draw.one_in(5) {
                draw.below(60) << 30
            } else {
                0
            }),
            read_bandwidth: Bytes::new(if draw.one_in(5) {
                draw.below(2) << 30
            } else {
                0
            }),
            partition: draw.one_in(8).then(|| {
                let partition = draw.pick(&PARTITIONS).expect("two partitions");
                partition.to_owned()
            }),
            span: if draw.one_in(4) {
                draw.pick(&Span::ALL).expect("five spans")
            } else {
                Span::Cluster
            },
            ..Shape::default()
        }
    }
}
