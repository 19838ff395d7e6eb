//! What is promised about each action, checked against what really runs and what people asked before the decision is
//! logged.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_kernel::{Job, JobState};
use antiphon_types::{
    Action, Allocation, AttemptId, Class, Decision, GpuAmount, JobSpec, Location, NodeName, Slot,
    Span, StopCause, TaskAllocation, Tasks, Terms, Timestamp,
};

use super::{Broken, Checked, Storm, must};

type Launched<'a> = Vec<(AttemptId, &'a Allocation)>;

impl Storm {
    /// What is promised about actions, in their order.
    pub(super) fn check_decision(&self, decision: &Decision) -> Checked {
        let deciding = self.is_deciding();
        let mut slots = self.server.state.slots().clone();
        let mut launched: Launched<'_> = Vec::new();
        for action in &decision.actions {
            match action {
                Action::Launch {
                    attempt,
                    allocation,
                    terms,
                } => {
                    must(deciding, || {
                        format!("{attempt} starts while nothing is decided")
                    })?;
                    self.check_launch(*attempt, allocation, terms, &launched)?;
                    self.check_holds(*attempt, allocation, terms, &mut slots)?;
                    launched.push((*attempt, allocation));
                }
                Action::Kill { attempt, .. } => {
                    let promised = self.promises.terminated.get(attempt);
                    let over = promised.is_some_and(|(at, grace)| at.after(*grace) <= self.now);
                    must(over, || format!("{attempt} is killed within its grace"))?;
                }
                Action::Yield {
                    attempt,
                    cause,
                    until,
                    ..
                } => {
                    let most = self.server.state.policy().checkpoint_wait_ms_max;
                    must(until.since(self.now) <= most, || {
                        format!("{attempt} is waited for until {until:?}")
                    })?;
                    self.check_stop(*attempt, cause)?;
                }
                Action::Terminate {
                    attempt,
                    cause,
                    kill_at,
                } => {
                    let grace = self.job(*attempt)?.spec.grace;
                    must(*kill_at == self.now.after(grace), || {
                        format!("{attempt} has a grace of {grace} and is killed at {kill_at:?}")
                    })?;
                    self.check_stop(*attempt, cause)?;
                }
                Action::Settle { attempt, .. } => {
                    let living = self.processes.get(attempt);
                    let gone = living.is_none_or(super::Living::is_gone);
                    must(gone, || format!("{attempt} is settled while a task lives"))?;
                }
                Action::Abandon { job, .. } => {
                    must(deciding, || {
                        format!("{job} is given up while nothing is decided")
                    })?;
                }
                Action::Reserve { job, slot } => {
                    slots.retain(|_, held| !slot.nodes.iter().any(|n| held.nodes.contains(n)));
                    slots.insert(*job, slot.clone());
                }
                Action::Unreserve { job } => {
                    slots.remove(job);
                }
                Action::Remedy { job, .. } | Action::Augment { job, .. } => {
                    must(deciding, || {
                        format!("{job} is treated while nothing is decided")
                    })?;
                }
                Action::Gate(change) => must(deciding, || {
                    format!("the gate is {change} while nothing is decided")
                })?,
                Action::Direct { .. } | Action::PutAside { .. } => (),
            }
        }
        Ok(())
    }

    fn job(&self, attempt: AttemptId) -> Result<&Job, Broken> {
        let job = self.server.state.job(attempt.job);
        job.ok_or_else(|| Broken(format!("{attempt} has no job")))
    }

    fn check_launch(
        &self,
        attempt: AttemptId,
        allocation: &Allocation,
        terms: &Terms,
        launched: &Launched<'_>,
    ) -> Checked {
        let job = self.job(attempt)?;
        let asked = [
            ("is on hold", self.promises.on_hold.contains(&job.id)),
            ("was canceled", self.promises.canceled.contains(&job.id)),
            ("is throttled", job.throttled),
        ];
        for (what, holds) in asked {
            must(!holds, || format!("{attempt} starts while its job {what}"))?;
        }
        let due = |at: Option<Timestamp>| at.is_none_or(|at| at <= self.now);
        must(due(job.not_before) && due(job.spec.not_before), || {
            format!("{attempt} starts before it is due")
        })?;
        self.check_dependencies(attempt, &job.spec)?;
        self.check_whole(attempt, &job.spec, allocation, terms)?;
        for task in allocation.tasks.iter() {
            self.check_node(attempt, task)?;
        }
        self.check_limits(attempt, allocation, launched)
    }

    fn check_dependencies(&self, attempt: AttemptId, spec: &JobSpec) -> Checked {
        let known = |id| self.server.state.job(id);
        for first in spec.after.iter().filter_map(|id| known(*id)) {
            let met = matches!(first.state, JobState::Succeeded { .. });
            must(met, || {
                format!("{attempt} before {} has succeeded", first.id)
            })?;
        }
        for first in spec.after_any.iter().filter_map(|id| known(*id)) {
            must(first.state.is_ended(), || {
                format!("{attempt} before {} ended", first.id)
            })?;
        }
        for first in spec.after_start.iter().filter_map(|id| known(*id)) {
            must(first.launches > 0, || {
                format!("{attempt} before {} started", first.id)
            })?;
        }
        Ok(())
    }

    /// Every role has exactly the GPUs that one of its shapes asks for, in equal tasks, no wider than it may be.
    fn check_whole(
        &self,
        attempt: AttemptId,
        spec: &JobSpec,
        allocation: &Allocation,
        terms: &Terms,
    ) -> Checked {
        for (index, role) in spec.roles.iter().enumerate() {
            let chosen = terms.shapes.get(index).copied().unwrap_or(0);
            let chosen = usize::try_from(chosen).expect("few shapes");
            let shape = role.shapes().nth(chosen);
            let shape = shape
                .ok_or_else(|| Broken(format!("{attempt}: `{}` has no such shape", role.name)))?;
            let tasks: Vec<&TaskAllocation> = allocation
                .tasks
                .iter()
                .filter(|task| task.role == role.name)
                .collect();
            let broken = |what: &str| format!("{attempt} is not whole in `{}`: {what}", role.name);
            let Some(first) = tasks.first() else {
                return Err(Broken(broken("no task")));
            };
            if first.sliced {
                // One slice stands for one GPU.
                must(tasks.len() == 1 && first.gpus.len() == 1, || {
                    broken("slices")
                })?;
                continue;
            }
            let held: GpuAmount = tasks.iter().map(|task| task.gpu_amount()).sum();
            must(held == shape.gpus, || {
                broken(&format!("{held} of {}", shape.gpus))
            })?;
            let each = first.gpu_amount();
            must(tasks.iter().all(|task| task.gpu_amount() == each), || {
                broken("unequal tasks")
            })?;
            let indices = tasks.iter().map(|task| task.index);
            must(indices.eq((0..).take(tasks.len())), || broken("indices"))?;
            if let Tasks::Exactly(count) = shape.tasks {
                must(u32::try_from(tasks.len()) == Ok(count), || broken("tasks"))?;
            }
            let nodes: BTreeSet<&NodeName> = tasks.iter().map(|task| &task.node).collect();
            must(self.spans(&nodes) <= shape.span, || {
                broken("wider than its span")
            })?;
        }
        Ok(())
    }

    /// The smallest span of some nodes.
    fn spans(&self, nodes: &BTreeSet<&NodeName>) -> Span {
        let specs = self.machines.specs.iter();
        let places: Vec<&Location> = specs
            .filter(|spec| nodes.contains(&spec.name))
            .map(|spec| &spec.location)
            .collect();
        let same = |part: &dyn Fn(&Location) -> String| {
            places.windows(2).all(|two| part(two[0]) == part(two[1]))
        };
        if nodes.len() <= 1 {
            Span::Node
        } else if same(&|place| place.nvlink_domain.clone()) && !places[0].nvlink_domain.is_empty()
        {
            Span::NvlinkDomain
        } else if same(&|place| format!("{}/{}", place.spine, place.leaf)) {
            Span::Leaf
        } else if same(&|place| place.spine.clone()) {
            Span::Spine
        } else {
            Span::Cluster
        }
    }

    fn check_node(&self, attempt: AttemptId, task: &TaskAllocation) -> Checked {
        let name = &task.node;
        let offered = self.promises.offered.get(name);
        let offered =
            offered.ok_or_else(|| Broken(format!("{attempt} on {name}, which is gone")))?;
        must(!self.promises.drained.contains(name), || {
            format!("{attempt} on {name}, which is drained or put aside")
        })?;
        must(!self.promises.noticed.contains_key(name), || {
            format!("{attempt} on {name}, which is to be given back")
        })?;
        let cut = |gpu: &u32| offered.slices.iter().any(|slice| slice.gpu == *gpu);
        let broken = |gpu: &u32| offered.gpus_lost.contains(gpu) || cut(gpu);
        must(task.sliced || !task.gpus.iter().any(broken), || {
            format!("{attempt} on a broken or cut GPU of {name}")
        })?;
        let now = self.now;
        let window =
            self.promises.windows.iter().find(|window| {
                window.nodes.contains(name) && window.from <= now && now < window.until
            });
        must(window.is_none(), || {
            format!("{attempt} on {name} in maintenance")
        })
    }

    /// No team goes over its limit by a start, nor any that it is part of: counted by what really lives.
    fn check_limits(
        &self,
        attempt: AttemptId,
        allocation: &Allocation,
        launched: &Launched<'_>,
    ) -> Checked {
        let teams = self.server.state.teams();
        let parents: BTreeMap<&str, Option<&String>> = teams
            .specs()
            .iter()
            .map(|spec| (spec.name.as_str(), spec.parent.as_ref()))
            .collect();
        let inside = |team: &str, of: &str| {
            let mut next = Some(team);
            while let Some(name) = next {
                if name == of {
                    return true;
                }
                next = parents.get(name).copied().flatten().map(String::as_str);
            }
            false
        };
        let own = &self.job(attempt)?.spec.team;
        for spec in teams.specs() {
            let Some(limit) = spec.limit.all.filter(|_| inside(own, &spec.name)) else {
                continue;
            };
            let added = allocation.gpu_amount();
            let living = self
                .processes
                .values()
                .filter(|living| !living.is_gone() && inside(&living.team, &spec.name));
            let living: GpuAmount = living.map(|living| living.allocation.gpu_amount()).sum();
            let mut before = GpuAmount::ZERO;
            for (other, held) in launched {
                if inside(&self.job(*other)?.spec.team, &spec.name) {
                    before = before + held.gpu_amount();
                }
            }
            must(added.is_zero() || living + before + added <= limit, || {
                format!(
                    "{attempt} takes team `{}` over its limit of {limit}",
                    spec.name
                )
            })?;
        }
        Ok(())
    }

    /// Nobody starts on a node that is held for another of its class or above, or into planned maintenance, unless it ends
    /// before that.
    fn check_holds(
        &self,
        attempt: AttemptId,
        allocation: &Allocation,
        terms: &Terms,
        slots: &mut BTreeMap<antiphon_types::JobId, Slot>,
    ) -> Checked {
        slots.remove(&attempt.job);
        let class = terms.class.unwrap_or(self.job(attempt)?.spec.class);
        let on = |slot: &Slot| {
            // Nobody waits for whole GPUs on what is cut into slices.
            let mut tasks = allocation.tasks.iter().filter(|task| !task.sliced);
            tasks.any(|task| slot.nodes.contains(&task.node))
        };
        let mut given_up = Vec::new();
        for (holder, slot) in &*slots {
            let in_time = matches!((terms.ends_by, slot.at), (Some(end), Some(at)) if end <= at);
            if !on(slot) || in_time {
                continue;
            }
            let holder_class = self.server.state.job(*holder).map(|job| job.spec.class);
            must(holder_class.is_none_or(|holder| holder > class), || {
                format!("{attempt} starts on what is held for {holder}")
            })?;
            given_up.push(*holder);
        }
        for holder in given_up {
            slots.remove(&holder);
        }
        for window in &self.promises.windows {
            let mut tasks = allocation.tasks.iter();
            let here = tasks.any(|task| window.nodes.contains(&task.node));
            let in_time = terms.ends_by.is_some_and(|end| end <= window.from);
            must(window.from <= self.now || !here || in_time, || {
                format!("{attempt} runs into maintenance at {:?}", window.from)
            })?;
        }
        Ok(())
    }

    /// A stop that begins for another job's sake takes who has to give way, and not too often.
    fn check_stop(&self, attempt: AttemptId, cause: &StopCause) -> Checked {
        let victim = self.job(attempt)?;
        let (JobState::Starting { active } | JobState::Running { active }) = &victim.state else {
            return Ok(());
        };
        let policy = self.server.state.policy();
        let lately = self.promises.preempted_lately(victim.id, self.now);
        let often = lately >= usize::try_from(policy.preemptions_per_hour_max).expect("few");
        let too_often = || format!("{attempt} gives way {lately} times an hour already");
        let (StopCause::Priority { preemptor }
        | StopCause::Reclaim { preemptor }
        | StopCause::Turn { preemptor }) = cause
        else {
            return Ok(());
        };
        let of = self.server.state.job(*preemptor);
        let of =
            of.ok_or_else(|| Broken(format!("{attempt} gives way to {preemptor}, which is gone")))?;
        let JobState::Pending { since } = of.state else {
            return Err(Broken(format!(
                "{attempt} gives way to {preemptor}, which does not wait"
            )));
        };
        must(self.is_deciding(), || {
            format!("{attempt} gives way while nothing is decided")
        })?;
        let all = self.promises.all_preempted_lately(self.now);
        let most = usize::try_from(policy.preemptions_per_hour_cluster_max).expect("few");
        match cause {
            StopCause::Priority { .. } => {
                must(active.class > of.spec.class, || {
                    format!("{attempt} is no lower than {preemptor}")
                })?;
                must(!often, too_often)?;
            }
            StopCause::Turn { .. } => {
                must(of.spec.team == victim.spec.team, || {
                    format!("{attempt} gives way to another team's turn")
                })?;
                must(!often && active.attached, too_often)?;
            }
            _ => {
                let waited = self.now.since(since) >= policy.reclaim_wait_ms_max;
                must(!often || waited, too_often)?;
                must(active.class >= Class::Standard, || {
                    format!("{attempt} is inside its quota")
                })?;
                if waited {
                    return Ok(());
                }
            }
        }
        must(all < most, || {
            format!("{attempt} gives way: {all} did in this hour")
        })
    }
}
