//! Gathers a gang under the smallest switch that holds it, and touches few switches where it needs several. Leaves the choice
//! among like nodes to `pick`.

use std::cmp::Reverse;
use std::ops::Range;

use antiphon_types::Span;

use super::demand::Waste;
use super::pick::{Ask, Search, Unit, pick};
use super::role::Spot;
use crate::capacity::{Capacity, Field, Level, at, id};

/// Room for all tasks in the smallest span, at most the shape's.
pub(super) fn gather(
    capacity: &Capacity,
    field: &Field<'_>,
    ask: &Ask<'_>,
    waste: &Waste,
) -> Option<(Span, Vec<Spot>)> {
    let search = Search {
        capacity,
        field,
        ask,
        waste,
    };
    let allowed = |span: &&Span| **span <= ask.shape.span;
    Span::ALL.iter().filter(allowed).find_map(|&span| {
        let spots = match span {
            Span::Node => in_one_node(&search),
            Span::NvlinkDomain if !field.kind.domains_wide => None,
            Span::NvlinkDomain | Span::Leaf | Span::Spine | Span::Cluster => {
                in_one_range(&search, span)
            }
        };
        Some((span, spots?))
    })
}

fn in_one_node(search: &Search<'_>) -> Option<Vec<Spot>> {
    let Ask { tasks, gpus, .. } = *search.ask;
    if tasks
        .checked_mul(gpus)
        .is_none_or(|all| all > search.field.kind.gpus_max)
    {
        return None;
    }
    let unit = Unit { tasks: 1, gpus };
    let whole = 0..id(search.field.kind.members.len());
    pick(search, &whole, &[], unit, tasks, tasks).map(|spot| vec![spot])
}

/// The range of one level that holds all tasks and has the fewest GPUs left over.
fn in_one_range(search: &Search<'_>, span: Span) -> Option<Vec<Spot>> {
    let level = search.field.kind.level(span);
    let tasks = search.ask.tasks;
    let mut tried = None;
    loop {
        let fits = |(free, range): &(u32, u32)| {
            Some((*free, *range)) > tried && room_in(search, span, level, *range) >= tasks
        };
        let rows = (0..id(level.ranges.len()))
            .map(|range| (search.field.free_in(level.row + range), range));
        let best = rows
            .filter(|(free, _)| u64::from(*free) >= gpus_asked(search))
            .filter(fits)
            .min()?;
        let mut filling = Filling::new(search);
        if filling.fill(span, &level.ranges[at(best.1)], tasks) == tasks {
            return Some(filling.into_spots());
        }
        // Its GPUs would do and its CPUs or memory do not.
        tried = Some(best);
    }
}

fn gpus_asked(search: &Search<'_>) -> u64 {
    u64::from(search.ask.tasks) * u64::from(search.ask.gpus)
}

/// Tasks for which a range has the GPUs, in groups that share a domain.
fn room_in(search: &Search<'_>, span: Span, level: &Level, range: u32) -> u32 {
    let Ask { gpus, joined, .. } = *search.ask;
    let field = search.field;
    if joined == 1 {
        return field.tasks_in(level.row + range, gpus);
    }
    if !field.kind.domains_wide {
        let together = joined
            .checked_mul(gpus)
            .filter(|gpus| *gpus <= field.kind.gpus_max);
        return together.map_or(0, |gpus| field.tasks_in(level.row + range, gpus) * joined);
    }
    if span == Span::NvlinkDomain {
        return field.tasks_in(level.row + range, gpus) / joined * joined;
    }
    let domains = field.kind.level(Span::NvlinkDomain);
    within(domains, &level.ranges[at(range)])
        .map(|domain| field.tasks_in(domains.row + domain, gpus) / joined * joined)
        .sum()
}

/// Which ranges of a lower level lie in a range of a higher one.
fn within(level: &Level, range: &Range<u32>) -> Range<u32> {
    let first = level
        .ranges
        .partition_point(|lower| lower.start < range.start);
    let last = level
        .ranges
        .partition_point(|lower| lower.start < range.end);
    id(first)..id(last)
}

/// A gang that is being put together.
struct Filling<'a> {
    search: &'a Search<'a>,
    unit: Unit,
    /// Members that have their tasks.
    taken: Vec<u64>,
    spots: Vec<Spot>,
}

impl<'a> Filling<'a> {
    fn new(search: &'a Search<'a>) -> Self {
        let Ask {
            tasks,
            gpus,
            joined,
            ..
        } = *search.ask;
        // Where domains are nodes, the tasks that share a domain go onto one node together.
        let together = if search.field.kind.domains_wide {
            1
        } else {
            joined
        };
        Self {
            search,
            unit: Unit {
                tasks: together,
                gpus: gpus * together,
            },
            taken: vec![0; search.field.kind.members.len().div_ceil(64)],
            spots: Vec::with_capacity(at(tasks)),
        }
    }

    /// Ranks run along the network.
    fn into_spots(mut self) -> Vec<Spot> {
        self.spots.sort_unstable_by_key(|spot| spot.position);
        self.spots
    }

    /// Puts up to `tasks` tasks into a range, and returns how many found room.
    fn fill(&mut self, span: Span, range: &Range<u32>, tasks: u32) -> u32 {
        match span {
            Span::Cluster | Span::Spine => self.fill_ranges(Span::Leaf, range, tasks),
            Span::Leaf if self.search.field.kind.domains_wide => {
                self.fill_ranges(Span::NvlinkDomain, range, tasks)
            }
            Span::Leaf => self.fill_nodes(range, tasks),
            Span::NvlinkDomain | Span::Node => {
                let joined = self.search.ask.joined;
                self.fill_nodes(range, tasks / joined * joined)
            }
        }
    }

    /// Fills the switches of a lower level: as few as will do, and among those the ones with the least traffic.
    fn fill_ranges(&mut self, lower: Span, range: &Range<u32>, tasks: u32) -> u32 {
        let level = self.search.field.kind.level(lower);
        let mut rooms: Vec<Under> = within(level, range)
            .map(|index| self.under(lower, level, index))
            .filter(|under| under.tasks > 0)
            .collect();
        rooms.sort_unstable_by_key(|under| (Reverse(under.tasks), under.crossing, under.index));
        keep_quiet(&mut rooms, tasks);
        let mut left = tasks;
        while left > 0 && !rooms.is_empty() {
            let next = next_under(&rooms, left);
            let index = at(rooms.remove(next).index);
            left -= self.fill(lower, &level.ranges[index], left);
        }
        tasks - left
    }

    fn under(&self, span: Span, level: &Level, index: u32) -> Under {
        let first = level.ranges[at(index)].start;
        let node = self.search.field.kind.members[at(first)];
        Under {
            index,
            tasks: room_in(self.search, span, level, index),
            free: self.search.field.free_in(level.row + index),
            crossing: self.search.capacity.crossing(node),
        }
    }

    fn fill_nodes(&mut self, range: &Range<u32>, tasks: u32) -> u32 {
        let mut left = tasks / self.unit.tasks;
        while left > 0 {
            let Some(spot) = pick(self.search, range, &self.taken, self.unit, left, 1) else {
                break;
            };
            self.taken[at(spot.position) / 64] |= 1 << (spot.position % 64);
            left -= spot.tasks / self.unit.tasks;
            self.spots.push(spot);
        }
        // Tasks that share a domain come in whole groups: one that is cut off at the end takes its beginning along.
        let placed = tasks / self.unit.tasks * self.unit.tasks - left * self.unit.tasks;
        let over = placed % self.search.ask.joined;
        self.take_off(over);
        placed - over
    }

    fn take_off(&mut self, mut tasks: u32) {
        while tasks > 0 {
            let last = self.spots.last_mut().expect("the tasks were placed");
            let off = last.tasks.min(tasks);
            last.tasks -= off;
            tasks -= off;
            if last.tasks == 0 {
                self.spots.pop();
            }
        }
    }
}

/// A switch and what would go under it.
#[derive(Debug, Clone, Copy)]
struct Under {
    index: u32,
    /// Tasks that it has room for.
    tasks: u32,
    /// GPUs that are free there.
    free: u32,
    /// Tasks there of gangs that cross leaves.
    crossing: u32,
}

/// Drops the switches with the most traffic, as long as the gang needs no more switches without them. `rooms` stand with the
/// largest first.
fn keep_quiet(rooms: &mut Vec<Under>, tasks: u32) {
    // How many of the switches with at most so much traffic the gang needs; nothing where all of them do not hold it.
    let touched = |limit: u32| {
        let mut left = tasks;
        let quiet = rooms.iter().filter(|under| under.crossing <= limit);
        quiet.zip(1u32..).find_map(|(under, touched)| {
            left = left.saturating_sub(under.tasks);
            (left == 0).then_some(touched)
        })
    };
    let busiest = rooms.iter().map(|under| under.crossing).max().unwrap_or(0);
    let quietest = rooms.iter().map(|under| under.crossing).min().unwrap_or(0);
    if busiest == quietest {
        return;
    }
    let Some(fewest) = touched(busiest) else {
        return;
    };
    let mut limits: Vec<u32> = rooms.iter().map(|under| under.crossing).collect();
    limits.sort_unstable();
    limits.dedup();
    let limit = limits[limits.partition_point(|&limit| touched(limit) != Some(fewest))];
    rooms.retain(|under| under.crossing <= limit);
}

/// The switch to fill next: the largest, or for the rest of the gang the one that it fills best.
fn next_under(rooms: &[Under], left: u32) -> usize {
    let holds_rest = rooms
        .iter()
        .enumerate()
        .filter(|(_, under)| under.tasks >= left);
    holds_rest
        .min_by_key(|(_, under)| (under.crossing, under.free, under.index))
        .map_or(0, |(place, _)| place)
}
