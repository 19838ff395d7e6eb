//! What happens to nodes: they fail, lose a GPU, are slow for a while, are taken away, go into maintenance. All of it reaches
//! the kernel as what a backend observes or an operator commands.

use antiphon_kernel::admit;
use antiphon_types::{
    Action, Allocation, Body, Command, Exit, ExitClass, Millis, NodeName, Observation,
    TaskAllocation, Timestamp,
};

use super::draw::{Lot, Stream};
use super::record::Cause;
use super::{BEGIN, Happening, World};
use crate::course::{millis, span};

/// Nothing strikes later than this after the last job has come: jobs that still wait then never start.
const LAST: Millis = Millis::from_secs(365 * 86_400);

/// How long an operator takes to look at a node that was put aside, where nodes do not fail otherwise.
const LOOK: Millis = Millis::from_secs(4 * 3_600);

/// What happens to a node, named by its place in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strike {
    /// It fails; what runs there hangs.
    NodeFails(usize),
    /// The backend reports that it is gone.
    NodeGoes(usize),
    NodeReturns(usize),
    /// One of its GPUs fails; what holds it hangs.
    GpuFails(usize),
    /// The backend reports that the GPU is gone.
    GpuGoes(usize, u32),
    GpuReturns(usize, u32),
    Slows(usize),
    /// Somebody has noticed how slow it is, and empties it.
    SlowEmptied(usize),
    Recovers(usize),
    /// It is said that it will be taken away.
    SpotTold(usize),
    SpotGoes(usize),
    SpotReturns(usize),
    /// The next window is planned.
    Planned(u32),
    /// An operator has looked at a node that was put aside.
    Looked(usize),
}

/// A node as it is beyond its specification.
#[derive(Debug, Clone, Default)]
pub(super) struct Machine {
    /// For how many reasons it is away.
    away: u32,
    gpus_lost: Vec<u32>,
    slow: bool,
    /// Why it is being emptied.
    emptied_for: Option<Cause>,
    /// What it is drawn from when things happen to it, by subject.
    lots: Vec<(Stream, Lot)>,
}

impl World<'_> {
    /// Announces what strikes first.
    pub(super) fn begin_strikes(&mut self) {
        for node in 0..self.setting.cluster.nodes.len() {
            self.next_strike(node, Stream::Node);
            self.next_strike(node, Stream::Gpu);
            self.next_strike(node, Stream::Straggler);
            if self.is_preemptible(node) {
                self.next_strike(node, Stream::Spot);
            }
        }
        if let Some(plan) = self.setting.faults.maintenance {
            let first = BEGIN.after(plan.every.saturating_sub(plan.notice));
            self.announce(first, Happening::Strikes(Strike::Planned(0)));
        }
    }

    fn is_preemptible(&self, node: usize) -> bool {
        let cluster = &self.setting.cluster;
        let name = &cluster.nodes[node].partition;
        let mut partitions = cluster.partitions.iter();
        partitions.any(|partition| partition.name == *name && partition.preemptible)
    }

    /// Draws when a node is struck next.
    fn next_strike(&mut self, node: usize, stream: Stream) {
        let faults = &self.setting.faults;
        let gpus = f64::from(self.setting.cluster.nodes[node].gpus);
        let (mean, strike) = match stream {
            Stream::Node => (
                faults.node.map(|it| millis(it.mtbf)),
                Strike::NodeFails(node),
            ),
            Stream::Gpu if gpus < 1.0 => return,
            Stream::Gpu => (
                faults.gpu.map(|it| millis(it.mtbf) / gpus),
                Strike::GpuFails(node),
            ),
            Stream::Straggler => (
                faults.straggler.map(|it| millis(it.mtbf)),
                Strike::Slows(node),
            ),
            Stream::Spot => (
                faults.spot.map(|it| millis(it.mtbf)),
                Strike::SpotTold(node),
            ),
            Stream::Request | Stream::Fate | Stream::Glitch | Stream::Limit => {
                unreachable!("only nodes are struck")
            }
        };
        let Some(mean) = mean else {
            return;
        };
        let wait = self.lot(node, stream).wait(mean);
        let at = self.now.after(span(wait));
        if at <= self.strikes_until() {
            self.announce(at, Happening::Strikes(strike));
        }
    }

    fn strikes_until(&self) -> Timestamp {
        let last = self.workload.jobs.last();
        BEGIN.after(last.map_or(Millis::ZERO, |job| job.submitted) + LAST)
    }

    fn lot(&mut self, node: usize, stream: Stream) -> &mut Lot {
        let seed = self.setting.seed;
        let lots = &mut self.machines[node].lots;
        let place = match lots.iter().position(|(of, _)| *of == stream) {
            Some(place) => place,
            None => {
                lots.push((stream, Lot::of(seed, stream, node)));
                lots.len() - 1
            }
        };
        &mut lots[place].1
    }

    pub(super) fn strike(&mut self, strike: Strike) {
        let strikes = Happening::Strikes;
        match strike {
            Strike::NodeFails(node) => {
                let Some(outage) = self.setting.faults.node else {
                    return;
                };
                for attempt in self.attempts_on(&self.name(node)) {
                    self.hang(attempt);
                }
                let at = self.now.after(outage.noticed_after);
                self.announce(at, strikes(Strike::NodeGoes(node)));
            }
            Strike::NodeGoes(node) => {
                let Some(outage) = self.setting.faults.node else {
                    return;
                };
                self.take_away(node, Cause::Hardware, "the node failed");
                let at = self.now.after(outage.repair);
                self.announce(at, strikes(Strike::NodeReturns(node)));
            }
            Strike::NodeReturns(node) => {
                self.bring_back(node);
                self.next_strike(node, Stream::Node);
            }
            Strike::GpuFails(node) => self.gpu_fails(node),
            Strike::GpuGoes(node, gpu) => self.gpu_goes(node, gpu),
            Strike::GpuReturns(node, gpu) => {
                self.machines[node].gpus_lost.retain(|lost| *lost != gpu);
                self.offer();
                self.next_strike(node, Stream::Gpu);
            }
            Strike::Slows(node) => self.slows(node),
            Strike::SlowEmptied(node) => {
                let straggler = self.setting.faults.straggler;
                let noticed = straggler.and_then(|it| Some((it.lasts, it.drained_after?)));
                if let Some((lasts, after)) = noticed {
                    let left = lasts.saturating_sub(after);
                    self.empty(&[node], Cause::Straggler, self.now, left, "it is slow");
                }
            }
            Strike::Recovers(node) => {
                self.machines[node].slow = false;
                self.speeds_changed(node);
                self.next_strike(node, Stream::Straggler);
            }
            Strike::SpotTold(node) => {
                let Some(spot) = self.setting.faults.spot else {
                    return;
                };
                let gone = spot.notice + spot.away;
                self.empty(
                    &[node],
                    Cause::Spot,
                    self.now,
                    gone,
                    "it will be taken away",
                );
                let at = self.now.after(spot.notice);
                self.announce(at, strikes(Strike::SpotGoes(node)));
            }
            Strike::SpotGoes(node) => {
                let Some(spot) = self.setting.faults.spot else {
                    return;
                };
                self.take_away(node, Cause::Spot, "the node was taken away");
                let at = self.now.after(spot.away);
                self.announce(at, strikes(Strike::SpotReturns(node)));
            }
            Strike::SpotReturns(node) => {
                self.bring_back(node);
                self.next_strike(node, Stream::Spot);
            }
            Strike::Planned(window) => self.plan(window),
            Strike::Looked(node) => {
                let node = self.name(node);
                self.try_command(Command::Undrain { node });
            }
        }
    }

    fn name(&self, node: usize) -> NodeName {
        self.setting.cluster.nodes[node].name.clone()
    }

    fn gpu_fails(&mut self, node: usize) {
        let Some(outage) = self.setting.faults.gpu else {
            return;
        };
        let gpus = self.setting.cluster.nodes[node].gpus;
        let gpu = self.lot(node, Stream::Gpu).below(gpus);
        for attempt in self.attempts_on(&self.name(node)) {
            let tasks = self
                .state
                .job(attempt.job)
                .and_then(|job| job.state.active());
            let name = &self.setting.cluster.nodes[node].name;
            let holds = |task: &TaskAllocation| task.node == *name && task.gpus.contains(&gpu);
            if tasks.is_some_and(|active| active.allocation.tasks.iter().any(holds)) {
                self.hang(attempt);
            }
        }
        let at = self.now.after(outage.noticed_after);
        self.announce(at, Happening::Strikes(Strike::GpuGoes(node, gpu)));
    }

    /// What holds a GPU ends when it is gone; the rest of its node goes on.
    fn gpu_goes(&mut self, node: usize, gpu: u32) {
        let Some(outage) = self.setting.faults.gpu else {
            return;
        };
        let name = self.name(node);
        let holds = |task: &TaskAllocation| task.node == name && task.gpus.contains(&gpu);
        let exit = Exit::Code {
            code: 1,
            class: Some(ExitClass::Hardware),
            evidence: format!("simulated: GPU {gpu} of {name} is lost"),
        };
        for attempt in self.attempts_on(&name) {
            self.hit(attempt, Cause::Hardware, &holds, &exit);
        }
        let lost = &mut self.machines[node].gpus_lost;
        if !lost.contains(&gpu) {
            lost.push(gpu);
            lost.sort_unstable();
        }
        self.offer();
        let at = self.now.after(outage.repair);
        self.announce(at, Happening::Strikes(Strike::GpuReturns(node, gpu)));
    }

    /// A node goes away, and what still runs there with it.
    fn take_away(&mut self, node: usize, cause: Cause, evidence: &str) {
        let name = self.name(node);
        let here = |task: &TaskAllocation| task.node == name;
        let evidence = format!("simulated: {evidence}");
        let exit = Exit::Lost { evidence };
        for attempt in self.attempts_on(&name) {
            self.hit(attempt, cause, &here, &exit);
        }
        self.machines[node].away += 1;
        self.offer();
    }

    fn bring_back(&mut self, node: usize) {
        let away = &mut self.machines[node].away;
        *away = away.saturating_sub(1);
        self.offer();
    }

    /// The backend says what it offers.
    fn offer(&mut self) {
        let cluster = &self.setting.cluster;
        let machines = cluster.nodes.iter().zip(&self.machines);
        let there = machines.filter(|(_, machine)| machine.away == 0);
        let nodes = there.map(|(spec, machine)| {
            let mut spec = spec.clone();
            spec.gpus_lost.clone_from(&machine.gpus_lost);
            spec
        });
        self.event(Body::Observation(Observation::Inventory {
            nodes: nodes.collect(),
            partitions: cluster.partitions.clone(),
            resources: cluster.resources.clone(),
        }));
    }

    fn slows(&mut self, node: usize) {
        let Some(straggler) = self.setting.faults.straggler else {
            return;
        };
        self.machines[node].slow = true;
        self.speeds_changed(node);
        let at = self.now.after(straggler.lasts);
        self.announce(at, Happening::Strikes(Strike::Recovers(node)));
        let noticed = straggler.drained_after;
        if let Some(after) = noticed.filter(|after| *after < straggler.lasts) {
            let at = self.now.after(after);
            self.announce(at, Happening::Strikes(Strike::SlowEmptied(node)));
        }
    }

    /// The gangs on a node run at another speed.
    fn speeds_changed(&mut self, node: usize) {
        for attempt in self.attempts_on(&self.name(node)) {
            let job = self.state.job(attempt.job);
            let active = job.and_then(|job| job.state.active());
            let speed = active.map(|active| self.slowest(&active.allocation));
            let place = self.place_of(attempt.job);
            if let Some(speed) = speed {
                self.change_speed(place, speed);
            }
        }
    }

    /// The speed of the slowest node of an allocation.
    pub(super) fn slowest(&self, allocation: &Allocation) -> f64 {
        let Some(straggler) = self.setting.faults.straggler else {
            return 1.0;
        };
        let mut nodes = allocation.tasks.iter().map(|task| self.node_at(&task.node));
        let slow = nodes.any(|node| node.is_some_and(|node| self.machines[node].slow));
        if slow {
            f64::from(straggler.speed_permille) / 1_000.0
        } else {
            1.0
        }
    }

    /// Where a node stands in the cluster.
    fn node_at(&self, name: &NodeName) -> Option<usize> {
        let mut nodes = self.setting.cluster.nodes.iter();
        nodes.position(|node| node.name == *name)
    }

    /// An operator has nodes emptied, and keeps them so for a while.
    fn empty(
        &mut self,
        nodes: &[usize],
        cause: Cause,
        from: Timestamp,
        lasts: Millis,
        reason: &str,
    ) {
        for node in nodes {
            self.machines[*node].emptied_for = Some(cause);
        }
        self.try_command(Command::Maintain(antiphon_types::Maintenance {
            nodes: nodes.iter().map(|node| self.name(*node)).collect(),
            from,
            until: from.after(lasts),
            reason: reason.into(),
        }));
    }

    /// Why a node is being emptied.
    pub(super) fn emptied_for(&self, node: &NodeName) -> Cause {
        let node = self.node_at(node);
        let cause = node.and_then(|node| self.machines[node].emptied_for);
        cause.unwrap_or(Cause::Maintenance)
    }

    /// Plans a window: the nodes that come after those of the last.
    fn plan(&mut self, window: u32) {
        let Some(plan) = self.setting.faults.maintenance else {
            return;
        };
        let all = u32::try_from(self.setting.cluster.nodes.len()).expect("few nodes");
        let nodes = plan.nodes.min(all);
        let first = u64::from(window) * u64::from(nodes);
        let place = |index: u32| (first + u64::from(index)) % u64::from(all.max(1));
        let places = (0..nodes).map(|index| usize::try_from(place(index)).expect("few nodes"));
        let places: Vec<usize> = places.collect();
        let from = self.now.after(plan.notice);
        self.empty(&places, Cause::Maintenance, from, plan.lasts, "planned");
        let next = self.now.after(plan.every);
        if next <= self.strikes_until() {
            let strike = Strike::Planned(window.wrapping_add(1));
            self.announce(next, Happening::Strikes(strike));
        }
    }

    /// A node was put aside: an operator looks at it.
    pub(super) fn look_after(&mut self, action: &Action) {
        let Action::PutAside { node, .. } = action else {
            return;
        };
        let Some(place) = self.node_at(node) else {
            return;
        };
        let after = self.setting.faults.node.map_or(LOOK, |node| node.repair);
        let at = self.now.after(after);
        self.announce(at, Happening::Strikes(Strike::Looked(place)));
    }

    /// Gives a command that the kernel may refuse.
    pub(super) fn try_command(&mut self, command: Command) {
        if admit(&self.state, &command).is_ok() {
            self.command(command);
        }
    }
}
