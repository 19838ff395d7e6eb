//! Every pass of every micro-batch through stages that may differ, played in the order of a schedule.

use antiphon_types::training::Schedule;

use super::Stage;

/// What a stage does in one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Forward.
    Forward,
    /// Backward; to inputs only where a schedule splits it.
    Backward,
    /// Backward to weights, where a schedule splits it.
    Weights,
}

/// One pass of one micro-batch through one stage's chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pass {
    /// Stage.
    pub stage: usize,
    /// Which of its chunks.
    pub chunk: usize,
    /// Micro-batch.
    pub micro: usize,
    /// What it does.
    pub kind: Kind,
    /// Seconds from the start.
    pub start: f64,
    /// The same, of its end.
    pub end: f64,
}

/// All passes of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// In the order in which they start on each stage.
    pub passes: Vec<Pass>,
    /// Seconds until the last has ended.
    pub makespan: f64,
    /// Seconds that each stage is idle.
    pub idle: Vec<f64>,
}

/// Plays a step on stages that may differ, pass by pass.
#[must_use]
pub fn simulate(schedule: Schedule, stages: &[Stage], chunks: usize, micro_batches: usize) -> Grid {
    Player::new(schedule, stages, chunks, micro_batches).play()
}

/// Plays passes in the order that each stage's schedule has, or takes what is ready where a schedule fills gaps.
struct Player<'a> {
    schedule: Schedule,
    stages: &'a [Stage],
    /// Chunks of a stage.
    chunks: usize,
    micro_batches: usize,
    /// When forward and backward of (micro-batch, position) ended; positions go through all chunks in the order of layers.
    forward: Vec<f64>,
    backward: Vec<f64>,
}

impl<'a> Player<'a> {
    fn new(schedule: Schedule, stages: &'a [Stage], chunks: usize, micro_batches: usize) -> Self {
        let chunks = match schedule {
            // Interleaving needs whole groups of micro-batches.
            Schedule::OneForwardOneBackward if micro_batches.is_multiple_of(stages.len()) => {
                chunks.max(1)
            }
            // Down and up again; or one from either end.
            Schedule::ZeroBubbleV | Schedule::DualPipe | Schedule::DualPipeV => 2,
            Schedule::Gpipe
            | Schedule::OneForwardOneBackward
            | Schedule::ZeroBubbleH1
            | Schedule::ZeroBubbleH2 => 1,
        };
        let cells = micro_batches * stages.len() * chunks;
        Self {
            schedule,
            stages,
            chunks,
            micro_batches,
            forward: vec![f64::INFINITY; cells],
            backward: vec![f64::INFINITY; cells],
        }
    }

    fn play(mut self) -> Grid {
        let mut passes = if self.splits() {
            self.fill_gaps()
        } else {
            self.in_order()
        };
        passes.sort_by(|a, b| a.stage.cmp(&b.stage).then(a.start.total_cmp(&b.start)));
        let makespan = passes.iter().map(|pass| pass.end).fold(0.0, f64::max);
        let idle = (0..self.stages.len())
            .map(|stage| {
                let own = passes.iter().filter(|pass| pass.stage == stage);
                makespan - own.map(|pass| pass.end - pass.start).sum::<f64>()
            })
            .collect();
        Grid {
            passes,
            makespan,
            idle,
        }
    }

    /// Each stage in the order of its schedule.
    fn in_order(&mut self) -> Vec<Pass> {
        let count = self.stages.len();
        let orders: Vec<Vec<(usize, usize, Kind)>> =
            (0..count).map(|stage| self.order(stage)).collect();
        let mut next = vec![0; count];
        let mut free = vec![0.0_f64; count];
        let mut passes = Vec::new();
        // The pass that can start first is played first, so that what it depends on is known.
        loop {
            let first = (0..count)
                .filter_map(|stage| {
                    let &(micro, chunk, kind) = orders[stage].get(next[stage])?;
                    let start = self.ready(stage, chunk, micro, kind).max(free[stage]);
                    start.is_finite().then_some((stage, start))
                })
                .min_by(|a, b| a.1.total_cmp(&b.1));
            let Some((stage, start)) = first else {
                break passes;
            };
            let (micro, chunk, kind) = orders[stage][next[stage]];
            next[stage] += 1;
            let pass = self.pass(stage, chunk, micro, kind, start);
            free[stage] = pass.end;
            self.done(&pass);
            passes.push(pass);
        }
    }

    /// Each stage takes what is ready: backward before forward, and weight gradients where nothing else is.
    fn fill_gaps(&mut self) -> Vec<Pass> {
        let count = self.stages.len();
        let mut free = vec![0.0_f64; count];
        let mut passes = Vec::new();
        // Micro-batches of each lane whose forward, backward and weight pass have been played.
        let mut played = vec![[[0_usize; 3]; 2]; count];
        loop {
            let mut first: Option<(f64, u8, usize, usize, Kind)> = None;
            for (stage, lanes) in played.iter().enumerate() {
                for (lane, counts) in lanes.iter().enumerate().take(self.lanes()) {
                    let &[forward, backward, weights] = counts;
                    let (before, most) = self.most(stage, lane);
                    let candidates = [
                        (Kind::Backward, backward, backward < forward, 0),
                        (
                            Kind::Forward,
                            forward,
                            forward - backward < before && forward - weights < most,
                            1,
                        ),
                        (Kind::Weights, weights, weights < backward, 2),
                    ];
                    for (kind, turn, allowed, rank) in candidates {
                        let Some(micro) = self.micro(lane, turn).filter(|_| allowed) else {
                            continue;
                        };
                        let start = self.ready(stage, lane, micro, kind).max(free[stage]);
                        let sooner = first.is_none_or(|(then, other, ..)| {
                            start < then || (start <= then && rank < other)
                        });
                        if start.is_finite() && sooner {
                            first = Some((start, rank, stage, lane, kind));
                        }
                    }
                }
            }
            let Some((start, _, stage, lane, kind)) = first else {
                break passes;
            };
            let turn = &mut played[stage][lane][kind as usize];
            let micro = self.micro(lane, *turn).expect("it was a candidate");
            *turn += 1;
            let pass = self.pass(stage, lane, micro, kind, start);
            free[stage] = pass.end;
            self.done(&pass);
            passes.push(pass);
        }
    }

    /// Ways of passes that a stage takes turns on: its chunks, or the two ends.
    const fn lanes(&self) -> usize {
        self.chunks
    }

    /// The micro-batch that is a lane's so-and-so-many-th.
    fn micro(&self, lane: usize, turn: usize) -> Option<usize> {
        let micro = match self.schedule {
            Schedule::DualPipe => 2 * turn + lane,
            _ => turn,
        };
        (micro < self.micro_batches).then_some(micro)
    }

    /// Micro-batches that a stage may hold for a lane until their backward passes are there, and until their weight gradients
    /// are.
    const fn most(&self, stage: usize, lane: usize) -> (usize, usize) {
        let stages = self.stages.len();
        match (self.schedule, lane) {
            (Schedule::ZeroBubbleH2, _) => (2 * (stages - stage) - 1, 2 * stages - 1),
            (Schedule::ZeroBubbleV, 0) => (stages, stages),
            (Schedule::ZeroBubbleV, _) => (stages, 2 * stages),
            (Schedule::DualPipeV, 0) => (2 * stages - stage, 2 * stages + 1),
            (Schedule::DualPipeV, _) => (stage + 1, 2 * stages + 1),
            (Schedule::DualPipe, 1) => (stage + 1, stages + 1),
            (Schedule::DualPipe, _) => (stages - stage, stages + 1),
            _ => (stages - stage, stages),
        }
    }

    /// Remembers when a pass ended.
    fn done(&mut self, pass: &Pass) {
        let cell = self.cell(
            pass.micro,
            self.position(pass.stage, pass.chunk, pass.micro),
        );
        match pass.kind {
            Kind::Forward => self.forward[cell] = pass.end,
            Kind::Backward => self.backward[cell] = pass.end,
            Kind::Weights => {}
        }
    }

    const fn splits(&self) -> bool {
        matches!(
            self.schedule,
            Schedule::ZeroBubbleH1
                | Schedule::ZeroBubbleH2
                | Schedule::ZeroBubbleV
                | Schedule::DualPipe
                | Schedule::DualPipeV
        )
    }

    /// When what a pass depends on has ended.
    fn ready(&self, stage: usize, chunk: usize, micro: usize, kind: Kind) -> f64 {
        let position = self.position(stage, chunk, micro);
        let last = self.stages.len() * self.depth() - 1;
        match kind {
            Kind::Forward if position == 0 => 0.0,
            Kind::Forward => self.forward[self.cell(micro, position - 1)],
            Kind::Backward if position == last => self.forward[self.cell(micro, position)],
            Kind::Backward => self.forward[self.cell(micro, position)]
                .max(self.backward[self.cell(micro, position + 1)]),
            Kind::Weights => self.backward[self.cell(micro, position)],
        }
    }

    /// Chunks that a micro-batch goes through on each stage.
    const fn depth(&self) -> usize {
        match self.schedule {
            // Its other chunk serves the micro-batches of the other end.
            Schedule::DualPipe => 1,
            _ => self.chunks,
        }
    }

    /// Where a stage's chunk stands in the order of layers.
    fn position(&self, stage: usize, chunk: usize, micro: usize) -> usize {
        let stages = self.stages.len();
        match self.schedule {
            Schedule::ZeroBubbleV | Schedule::DualPipeV if chunk == 1 => 2 * stages - 1 - stage,
            Schedule::ZeroBubbleV | Schedule::DualPipeV => stage,
            // Odd micro-batches enter at the other end.
            Schedule::DualPipe if micro % 2 == 1 => stages - 1 - stage,
            Schedule::DualPipe => stage,
            _ => chunk * stages + stage,
        }
    }

    const fn cell(&self, micro: usize, position: usize) -> usize {
        micro * self.stages.len() * self.chunks + position
    }

    fn length(&self, stage: usize, kind: Kind) -> f64 {
        let times = &self.stages[stage];
        let whole = match kind {
            Kind::Forward => times.forward,
            Kind::Backward if self.splits() => times.backward - times.weights,
            Kind::Backward => times.backward,
            Kind::Weights => times.weights,
        };
        whole / self.depth() as f64
    }

    fn pass(&self, stage: usize, chunk: usize, micro: usize, kind: Kind, start: f64) -> Pass {
        Pass {
            stage,
            chunk,
            micro,
            kind,
            start,
            end: start + self.length(stage, kind),
        }
    }

    /// Forward and backward passes of a stage, in the order of its schedule.
    fn order(&self, stage: usize) -> Vec<(usize, usize, Kind)> {
        let (stages, micro) = (self.stages.len(), self.micro_batches);
        let one_chunk = |index: usize| (index, 0);
        match self.schedule {
            Schedule::Gpipe => (0..micro)
                .map(|index| (index, 0, Kind::Forward))
                .chain((0..micro).map(|index| (index, 0, Kind::Backward)))
                .collect(),
            Schedule::OneForwardOneBackward if self.chunks > 1 => {
                // Megatron's interleaving: micro-batches go through in groups of as many as there are stages.
                let chunks = self.chunks;
                let group = stages * chunks;
                let place = move |index: usize, backward: bool| {
                    let chunk = index % group / stages;
                    let chunk = if backward { chunks - 1 - chunk } else { chunk };
                    (index / group * stages + index % stages, chunk)
                };
                let ahead = 2 * (stages - stage - 1) + (chunks - 1) * stages;
                alternating(
                    micro * chunks,
                    ahead,
                    |index| place(index, false),
                    |index| place(index, true),
                )
            }
            // The others have no order of their own.
            _ => alternating(micro, stages - stage - 1, one_chunk, one_chunk),
        }
    }
}

/// Some forward passes ahead, then one forward and one backward in turn, then the backward passes that are left.
fn alternating(
    count: usize,
    ahead: usize,
    forward: impl Fn(usize) -> (usize, usize),
    backward: impl Fn(usize) -> (usize, usize),
) -> Vec<(usize, usize, Kind)> {
    let ahead = ahead.min(count);
    let mut order = Vec::with_capacity(2 * count);
    let mut push = |(micro, chunk): (usize, usize), kind| order.push((micro, chunk, kind));
    for index in 0..ahead {
        push(forward(index), Kind::Forward);
    }
    for index in ahead..count {
        push(forward(index), Kind::Forward);
        push(backward(index - ahead), Kind::Backward);
    }
    for index in count - ahead..count {
        push(backward(index), Kind::Backward);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::bubble;

    const EVEN: Stage = Stage {
        forward: 1.0,
        backward: 2.0,
        weights: 1.0,
    };

    fn played(schedule: Schedule, stages: usize, chunks: usize, micro: usize) -> Grid {
        let grid = simulate(schedule, &vec![EVEN; stages], chunks, micro);
        let expected = if matches!(schedule, Schedule::Gpipe | Schedule::OneForwardOneBackward) {
            2
        } else {
            3
        };
        let depth = if matches!(schedule, Schedule::ZeroBubbleV | Schedule::DualPipeV) {
            2
        } else {
            chunks.max(1)
        };
        assert_eq!(
            grid.passes.len(),
            expected * micro * stages * depth,
            "{schedule:?}: every pass is played"
        );
        grid
    }

    fn work(micro: usize) -> f64 {
        micro as f64 * (EVEN.forward + EVEN.backward)
    }

    #[test]
    fn closed_forms_agree_with_every_pass_played() {
        for stages in [2, 4, 8] {
            for groups in [1, 2, 4] {
                let micro = stages * groups;
                for (schedule, chunks) in [
                    (Schedule::Gpipe, 1),
                    (Schedule::OneForwardOneBackward, 1),
                    (Schedule::OneForwardOneBackward, 2),
                    (Schedule::OneForwardOneBackward, 4),
                ] {
                    let told = bubble(schedule, stages as f64, chunks as f64, EVEN);
                    let played = played(schedule, stages, chunks, micro).makespan - work(micro);
                    assert!(
                        (told - played).abs() < 1e-9,
                        "{schedule:?}, {stages} stages, {chunks} chunks, {micro} micro-batches: {told} told, {played} played"
                    );
                }
            }
        }
    }

    #[test]
    fn weight_gradients_fill_the_gaps_as_far_as_the_closed_form_says() {
        for stages in [2, 4, 8] {
            let micro = 4 * stages;
            let plain =
                played(Schedule::OneForwardOneBackward, stages, 1, micro).makespan - work(micro);
            for schedule in [
                Schedule::ZeroBubbleH1,
                Schedule::ZeroBubbleH2,
                Schedule::ZeroBubbleV,
                Schedule::DualPipe,
                Schedule::DualPipeV,
            ] {
                let told = bubble(schedule, stages as f64, 1.0, EVEN);
                let played = played(schedule, stages, 1, micro).makespan - work(micro);
                // Where both ends feed, the closed form counts a forward and a backward chunk at once as if neither waited less.
                let exact = !matches!(schedule, Schedule::DualPipe | Schedule::DualPipeV);
                assert!(
                    !exact || played >= told - 1e-9,
                    "{schedule:?}: {told} told, {played} played"
                );
                // A stage that takes what is ready does not always find the best order: within a tenth of the step.
                assert!(
                    played - told < 0.1 * micro as f64 * 3.0,
                    "{schedule:?}, {stages} stages: {told} told, {played} played"
                );
                assert!(
                    played <= plain,
                    "{schedule:?}: {played}, and {plain} without"
                );
            }
        }
    }

    #[test]
    fn the_slowest_stage_sets_the_pace() {
        let mut stages = vec![EVEN; 4];
        let even = simulate(Schedule::OneForwardOneBackward, &stages, 1, 16).makespan;
        stages[3].forward = 2.0;
        let uneven = simulate(Schedule::OneForwardOneBackward, &stages, 1, 16);
        assert!(
            uneven.makespan >= even + 15.0,
            "{} after {even}",
            uneven.makespan
        );
        assert!(uneven.idle[0] > uneven.idle[3]);
    }
}
