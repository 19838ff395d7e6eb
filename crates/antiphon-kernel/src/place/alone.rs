//! Finds the node for a job of one task: the one that it makes the least worse for those who come after it, whatever its GPU
//! type, as long as nothing else speaks for one type. Takes nothing.

use antiphon_types::{GpuAmount, Processes, Shape, Span, Tasks};

use super::View;
use super::gradient::{Gradient, Idle, Table};
use super::kinds::is_sliced;
use super::needs::needs;
use super::pick::{Ask, Search};
use super::role::{Found, On, Spot, field};
use super::width::is_too_wide_with_held;
use crate::capacity::{Capacity, NodeId, Part, at, id, words};

/// The best of the nodes of several kinds, among which the job does not mind.
pub(super) fn find(
    capacity: &Capacity,
    gradient: &Gradient,
    shape: &Shape,
    view: &View<'_>,
    on: On,
    kinds: &[usize],
) -> Option<Found> {
    if !is_alone(shape) {
        return None;
    }
    let mut best: Option<(Choice, usize)> = None;
    for &kind in kinds {
        if is_too_wide_with_held(capacity, kind, shape, view, on) {
            continue;
        }
        let Some(field) = field(capacity, kind, view, on) else {
            continue;
        };
        if is_sliced(field.kind, shape) {
            return None;
        }
        let table = gradient.table(&field.kind.gpu_type);
        let ask = Ask {
            shape,
            tasks: 1,
            each: shape.gpus,
            gpus: shape.gpus.whole().unwrap_or(1),
            joined: 1,
        };
        let search = Search {
            capacity,
            field: &field,
            ask: &ask,
            waste: &[0; 65],
        };
        let mut look = Look::new(&search, table);
        look.around();
        if let Some(found) = look.best
            && best
                .as_ref()
                .is_none_or(|(best, _)| found.growth < best.growth)
        {
            best = Some((found, kind));
        }
    }
    best.map(|(choice, kind)| Found {
        kind,
        span: Span::Node,
        each: shape.gpus,
        spots: vec![Spot {
            position: choice.position,
            tasks: 1,
        }],
        single: choice.gpu,
        sliced: false,
        growth: choice.growth,
    })
}

/// Whether the shape is one task where a node holds all of it.
fn is_alone(shape: &Shape) -> bool {
    let cut_up = match (shape.gpus.whole(), shape.tensor_parallel) {
        (_, 0) | (None, _) => false,
        (Some(gpus), together) => !gpus.is_multiple_of(together),
    };
    let one = match (shape.tasks, shape.processes) {
        (Tasks::Exactly(tasks), _) => tasks == 1,
        (Tasks::Fewest, Processes::PerNode) => true,
        (Tasks::Fewest, Processes::PerGpu) => shape.gpus <= GpuAmount::from_gpus(1),
    };
    one && !cut_up
}

/// A node, and the shared GPU there for a share.
#[derive(Debug, Clone, Copy)]
struct Choice {
    growth: i64,
    position: u32,
    gpu: Option<u32>,
}

/// What nodes look like that are alike: they are weighed once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Likeness {
    whole: u32,
    parts: Vec<u32>,
    cpus: u32,
    memory: u64,
    needs: (u32, u64),
}

/// A search for one task through one kind.
struct Look<'a> {
    search: &'a Search<'a>,
    /// Nothing where any node will do.
    table: Option<&'a Table>,
    best: Option<Choice>,
    last: Likeness,
    /// The node in hand.
    this: Likeness,
    /// Its shared GPUs, in the order of `this.parts`.
    gpus: Vec<u32>,
    after: Vec<u32>,
    /// Where the shares of the node in hand begin.
    cursor: usize,
}

impl<'a> Look<'a> {
    fn new(search: &'a Search<'a>, table: Option<&'a Table>) -> Self {
        Self {
            search,
            table,
            best: None,
            last: Likeness::default(),
            this: Likeness::default(),
            gpus: Vec::new(),
            after: Vec::new(),
            cursor: 0,
        }
    }

    /// Looks at every node that could hold the task.
    fn around(&mut self) {
        let field = self.search.field;
        let shape = self.search.ask.shape;
        let least = shape.gpus.whole().unwrap_or(0);
        let whole = 0..id(field.kind.members.len());
        for free in least..=field.kind.gpus_max {
            for word in words(&whole) {
                let mut bits = field.exactly(free, word, &whole);
                while bits != 0 {
                    let position = id(word) * 64 + bits.trailing_zeros();
                    bits &= bits - 1;
                    self.look_at(position, free);
                    // A job without GPUs that leaves no GPU worse off cannot be outdone.
                    let good = |best: Choice| shape.gpus.is_zero() && best.growth <= 0;
                    if self
                        .best
                        .is_some_and(|best| self.table.is_none() || good(best))
                    {
                        return;
                    }
                }
            }
        }
    }

    fn look_at(&mut self, position: u32, free: u32) {
        let Search {
            capacity,
            field,
            ask,
            ..
        } = *self.search;
        let node = field.kind.members[at(position)];
        if self.search.tasks_beside(node, 1) == 0 {
            return;
        }
        self.note_parts(capacity, node);
        let share = ask.each.whole().is_none().then(|| part_of(ask.each));
        let too_small = |share: u32| self.this.parts.iter().all(|part| *part < share);
        if free == 0 && share.is_some_and(too_small) {
            return;
        }
        let Some(table) = self.table else {
            let fits = |part: &u32| share.is_some_and(|share| *part >= share);
            let part = self.this.parts.iter().position(fits);
            self.best = Some(Choice {
                growth: 0,
                position,
                gpu: part.map(|place| self.gpus[place]),
            });
            return;
        };
        let room = capacity.room(node);
        let (cpus, memory) = needs(ask.shape, ask.each, &capacity.stand(node).size);
        self.this.whole = free;
        self.this.cpus = room.cpus;
        self.this.memory = room.memory.get();
        self.this.needs = (cpus, memory.get());
        if self.this == self.last {
            // The first of several that are alike is as good as any.
            return;
        }
        let Likeness {
            whole, ref parts, ..
        } = self.this;
        let before = table.lost(&Idle {
            whole,
            parts,
            cpus: room.cpus,
            memory: self.this.memory >> 20,
        });
        let left = (room.cpus - cpus, (self.this.memory - memory.get()) >> 20);
        let after = |whole, parts: &[u32]| {
            let (cpus, memory) = left;
            table.lost(&Idle {
                whole,
                parts,
                cpus,
                memory,
            })
        };
        let mut best: Option<(i64, u32, Option<u32>)> = None;
        match share {
            None => best = Some((after(whole - ask.each.whole().unwrap_or(0), parts), 0, None)),
            Some(share) => {
                self.after.clone_from(parts);
                for (place, &part) in parts.iter().enumerate().filter(|(_, part)| **part >= share) {
                    self.after[place] = part - share;
                    let key = (after(whole, &self.after), part, Some(self.gpus[place]));
                    self.after[place] = part;
                    if best.is_none_or(|best| key < best) {
                        best = Some(key);
                    }
                }
                if whole > 0 {
                    self.after.push(part_of(GpuAmount::from_gpus(1)) - share);
                    let key = (after(whole - 1, &self.after), 1_000, None);
                    if best.is_none_or(|best| key < best) {
                        best = Some(key);
                    }
                }
            }
        }
        if let Some((after, _, gpu)) = best {
            let growth = after - before;
            let key = (growth, position);
            if self
                .best
                .is_none_or(|best| key < (best.growth, best.position))
            {
                self.best = Some(Choice {
                    growth,
                    position,
                    gpu,
                });
            }
        }
        std::mem::swap(&mut self.this, &mut self.last);
    }

    /// The shared GPUs of a node that tasks may hold.
    fn note_parts(&mut self, capacity: &Capacity, node: NodeId) {
        self.this.parts.clear();
        self.gpus.clear();
        let all = capacity.parts();
        let first = self.seek(all, node);
        let offered = capacity.stand(node).offered;
        for part in all[first..].iter().take_while(|part| part.node == node) {
            if offered >> part.gpu & 1 == 1 {
                self.this.parts.push(part_of(part.free));
                self.gpus.push(part.gpu);
            }
        }
    }

    /// Where the shares of a node begin: near where those of the last one did, as neighbors mostly have neighboring ids.
    fn seek(&mut self, parts: &[Part], node: NodeId) -> usize {
        let is_before = |place: usize| parts.get(place).is_some_and(|part| part.node < node);
        let start = match self.cursor.checked_sub(1) {
            Some(before) if !is_before(before) => 0,
            Some(_) | None => self.cursor,
        };
        let mut width = 1;
        while is_before(start + width - 1) {
            width *= 2;
        }
        let found = start + width / 2;
        let end = (start + width).min(parts.len());
        let found = found.min(end);
        self.cursor = found + parts[found..end].partition_point(|part| part.node < node);
        self.cursor
    }
}

fn part_of(amount: GpuAmount) -> u32 {
    u32::try_from(amount.thousandths()).unwrap_or(u32::MAX)
}
