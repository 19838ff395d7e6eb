//! The ledger of what is free, for finding room fast: derived from the state and never stored. Decides nothing; a trial is
//! a copy, and dropping it is the undo.

mod floor;
mod room;
mod stock;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use antiphon_types::{
    Allocation, Class, GpuAmount, JobId, NodeSpec, PartitionSpec, TaskAllocation, Timestamp,
};

pub(crate) use floor::{Floor, Kind, Level, Size, Stand};
pub(crate) use room::{Part, Room};
pub(crate) use stock::{Field, HeldField, Stock, words};

/// A node: its place in the state's list, in order of first offer.
pub(crate) type NodeId = u32;

/// What is free, node by node and summed up over the network. The parts that placing changes are flat, so that a copy for a
/// trial costs little more than reading it; what stays as it is, is shared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Capacity {
    floor: Arc<Floor>,
    rooms: Vec<Room>,
    /// GPUs held in shares, by node and index.
    parts: Vec<Part>,
    /// Held nodes; shared between copies until one changes it.
    holds: Arc<BTreeMap<NodeId, Hold>>,
    stocks: Vec<Stock>,
    /// Tasks under each leaf whose gang crosses leaves.
    crossing: Vec<u32>,
    /// What is free of the resources that belong to no node, and what there is in all.
    resources: BTreeMap<String, (u64, u64)>,
}

/// Held members that a job may use, by kind: as they stood when this was made.
#[derive(Debug, Clone)]
pub(crate) struct HeldFields(Vec<Option<HeldField>>);

impl HeldFields {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// How many nodes of a kind have how many whole GPUs free.
#[derive(Debug, Clone)]
pub(crate) struct ByFree([u32; 65]);

impl ByFree {
    const NONE: Self = Self([0; 65]);

    fn count(&mut self, free: u32) {
        self.0[at(free)] += 1;
    }

    /// Tasks of so many whole GPUs each that they have room for.
    pub(crate) fn tasks(&self, gpus: u32) -> u32 {
        let tasks = |(free, nodes): (u32, &u32)| free / gpus * nodes;
        (0..).zip(&self.0).map(tasks).sum()
    }
}

/// Why a node is kept free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    /// For which job; for maintenance without one.
    pub(crate) job: Option<JobId>,
    /// Its class.
    pub(crate) class: Class,
    /// When it is needed. Without a moment nothing is sure to end before it.
    pub(crate) at: Option<Timestamp>,
    /// When it goes out of service as planned: for whomever it is held, nobody runs there beyond that.
    pub(crate) closes: Option<Timestamp>,
}

impl Hold {
    /// For nobody, but until the node goes out of service.
    pub(crate) const fn until(closes: Timestamp) -> Self {
        Self {
            job: None,
            class: Class::Service,
            at: Some(closes),
            closes: Some(closes),
        }
    }
}

/// The index that an id stands for.
pub(crate) const fn at(id: u32) -> usize {
    id as usize
}

/// The id of an index.
///
/// # Panics
/// Where there are more things than ids, far above any limit on nodes.
pub(crate) fn id(index: usize) -> u32 {
    u32::try_from(index).expect("indices fit 32 bits")
}

impl Capacity {
    /// Of nodes that are open and of which nothing is held.
    pub(crate) fn build(
        nodes: &[NodeSpec],
        partitions: &BTreeMap<String, PartitionSpec>,
        resources: &BTreeMap<String, u64>,
    ) -> Self {
        let bare = Self {
            floor: Arc::new(Floor::build(nodes, partitions)),
            resources: resources
                .iter()
                .map(|(name, &total)| (name.clone(), (total, total)))
                .collect(),
            ..Self::default()
        };
        bare.emptied()
    }

    /// The same nodes, all of them open and nothing of them held: cheaper than building it.
    pub(crate) fn emptied(&self) -> Self {
        let floor = Arc::clone(&self.floor);
        let mut stocks: Vec<Stock> = floor.kinds.iter().map(Stock::empty).collect();
        let rooms: Vec<Room> = floor.nodes.iter().map(Room::all).collect();
        for (stand, room) in floor.nodes.iter().zip(&rooms) {
            let free = room.free(stand);
            stocks[stand.kind].shift(stand, 0, free);
            stocks[stand.kind].mark(stand, free, true, true);
        }
        let all = |(name, &(_, total)): (&String, &(u64, u64))| (name.clone(), (total, total));
        Self {
            crossing: vec![0; floor.leaves],
            resources: self.resources.iter().map(all).collect(),
            floor,
            rooms,
            parts: Vec::new(),
            holds: Arc::default(),
            stocks,
        }
    }

    /// What the node has in all and where it stands.
    pub(crate) fn stand(&self, node: NodeId) -> &Stand {
        &self.floor.nodes[at(node)]
    }

    /// What is free of the node.
    pub(crate) fn room(&self, node: NodeId) -> &Room {
        &self.rooms[at(node)]
    }

    /// GPUs of the node that could be handed out whole: neither held, nor lost, nor cut.
    pub(crate) fn whole_gpus(&self, node: NodeId) -> u64 {
        self.room(node).whole & self.stand(node).offered
    }

    /// GPUs held in shares, by node and index.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The kinds, by partition and GPU type.
    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.floor.kinds
    }

    /// GPUs wholly free on open nodes of a kind, held nodes included.
    pub(crate) fn free_of_kind(&self, kind: usize) -> u64 {
        self.stocks[kind].free
    }

    /// What is free of GPUs on open nodes, held nodes included: more than this nobody can be given.
    pub(crate) fn free_gpus(&self) -> GpuAmount {
        let whole: u64 = self.stocks.iter().map(|stock| stock.free).sum();
        let parts: GpuAmount = self.parts.iter().map(|part| part.free).sum();
        GpuAmount::from_thousandths(whole * 1_000) + parts
    }

    /// Whether so many GPUs are more than are free, whomever they are held for. Not said where GPUs are cut up: a slice counts
    /// as a whole one where it is asked for, and as its part where it is held.
    pub(crate) fn lacks(&self, gpus: GpuAmount) -> bool {
        let whole: u64 = self.stocks.iter().map(|stock| stock.free).sum();
        GpuAmount::from_thousandths(whole * 1_000) < gpus
            && !self.is_cut()
            && self.free_gpus() < gpus
    }

    /// Whether some GPU is cut into slices.
    pub(crate) fn is_cut(&self) -> bool {
        let mut kinds = self.floor.kinds.iter();
        kinds.any(|kind| !kind.profiles.is_empty())
    }

    /// Tasks under the node's leaf switch whose gang crosses leaves.
    pub(crate) fn crossing(&self, node: NodeId) -> u32 {
        self.crossing[at(self.stand(node).leaf)]
    }

    /// Whether the node takes tasks.
    pub(crate) fn is_open(&self, node: NodeId) -> bool {
        let stand = self.stand(node);
        self.stocks[stand.kind].is_open(stand.position)
    }

    /// Whether the node takes tasks and is held for nobody.
    pub(crate) fn is_unheld(&self, node: NodeId) -> bool {
        let stand = self.stand(node);
        self.stocks[stand.kind].is_usable(stand.position)
    }

    /// For whom the node is held.
    pub(crate) fn hold_on(&self, node: NodeId) -> Option<&Hold> {
        self.holds.get(&node)
    }

    /// The held nodes, ascending.
    pub(crate) fn holds(&self) -> &BTreeMap<NodeId, Hold> {
        &self.holds
    }

    /// The members of a kind that anybody may use: open and not held.
    pub(crate) fn field(&self, kind: usize) -> Field<'_> {
        self.stocks[kind].field(&self.floor.kinds[kind])
    }

    /// The same with the held members whose hold lets the job in; nothing where there is none.
    pub(crate) fn field_with_held(
        &self,
        kind: usize,
        lets_in: impl Fn(&Hold) -> bool,
    ) -> Option<Field<'_>> {
        let of_kind = |node: &NodeId| self.stand(*node).kind == kind;
        let held = self.held_where(of_kind, lets_in).0.swap_remove(kind)?;
        Some(self.field(kind).with(Cow::Owned(held)))
    }

    /// The held members of a kind whose hold lets a job in; nothing where there is none.
    pub(crate) fn held_by_free(
        &self,
        kind: usize,
        lets_in: impl Fn(&Hold) -> bool,
    ) -> Option<ByFree> {
        let mut by_free = None;
        for (node, hold) in self.holds.iter() {
            let stand = self.stand(*node);
            if stand.kind == kind && lets_in(hold) && self.is_open(*node) {
                let by_free = by_free.get_or_insert(ByFree::NONE);
                by_free.count(self.room(*node).free(stand));
            }
        }
        by_free
    }

    /// The open members of a kind as they would be with `gone` GPUs more free on each, for whomever they are held.
    pub(crate) fn by_free(&self, kind: usize, gone: impl Fn(NodeId) -> u32) -> ByFree {
        let mut by_free = ByFree::NONE;
        for node in &self.floor.kinds[kind].members {
            if self.is_open(*node) {
                let stand = self.stand(*node);
                let free = self.room(*node).free(stand) + gone(*node);
                by_free.count(free.min(stand.offered.count_ones()));
            }
        }
        by_free
    }

    /// The held members whose hold lets a job in, of all kinds at once, to be looked at often. Room elsewhere is not part of
    /// it: it stays true until a held node changes.
    pub(crate) fn held(&self, lets_in: impl Fn(&Hold) -> bool) -> HeldFields {
        self.held_where(|_| true, lets_in)
    }

    fn held_where(
        &self,
        looked_at: impl Fn(&NodeId) -> bool,
        lets_in: impl Fn(&Hold) -> bool,
    ) -> HeldFields {
        let mut fields: Vec<Option<HeldField>> = vec![None; self.floor.kinds.len()];
        for (node, hold) in self.holds.iter() {
            if looked_at(node) && self.is_open(*node) && lets_in(hold) {
                let stand = self.stand(*node);
                let stock = &self.stocks[stand.kind];
                let field = fields[stand.kind].get_or_insert_with(|| stock.no_held());
                field.let_in(stock, stand, self.room(*node).free(stand));
            }
        }
        HeldFields(fields)
    }

    /// Notes that a task took so many whole GPUs of a node that is counted among held members.
    pub(crate) fn taken_of(&self, held: &mut HeldFields, node: NodeId, gpus: u32) {
        let stand = self.stand(node);
        if let Some(field) = &mut held.0[stand.kind] {
            field.take(&self.stocks[stand.kind], stand, gpus);
        }
    }

    /// The members of a kind that a job may use which has looked for the held ones before.
    pub(crate) fn field_of<'a>(&'a self, held: &'a HeldFields, kind: usize) -> Option<Field<'a>> {
        let held = held.0[kind].as_ref()?;
        Some(self.field(kind).with(Cow::Borrowed(held)))
    }

    /// Lets the node take tasks.
    pub(crate) fn open(&mut self, node: NodeId) {
        self.mark(node, true);
    }

    /// Keeps new tasks off the node; what it has stays on the books.
    pub(crate) fn close(&mut self, node: NodeId) {
        self.mark(node, false);
    }

    /// Keeps the node free for somebody, in place of whom it was held for before.
    pub(crate) fn hold(&mut self, node: NodeId, hold: Hold) {
        Arc::make_mut(&mut self.holds).insert(node, hold);
        self.mark(node, self.is_open(node));
    }

    /// Ends what the node is held for, if it is; what is planned for it stays.
    pub(crate) fn release(&mut self, node: NodeId) {
        match self.hold_on(node).and_then(|hold| hold.closes) {
            Some(closes) => self.hold(node, Hold::until(closes)),
            None => self.unhold(node),
        }
    }

    /// Ends the node's hold, if it has one.
    pub(crate) fn unhold(&mut self, node: NodeId) {
        if self.holds.contains_key(&node) {
            Arc::make_mut(&mut self.holds).remove(&node);
            self.mark(node, self.is_open(node));
        }
    }

    /// Keeps everybody off the nodes whose hold is among these, and forgets the hold: what is left to look at is little.
    pub(crate) fn close_held(&mut self, closes: impl Fn(&Hold) -> bool) {
        let holds = std::mem::take(&mut self.holds);
        let left = holds.iter().filter(|(_, hold)| !closes(hold));
        self.holds = Arc::new(left.map(|(node, hold)| (*node, *hold)).collect());
        for (node, hold) in holds.iter() {
            if closes(hold) {
                self.close(*node);
            }
        }
    }

    fn mark(&mut self, node: NodeId, open: bool) {
        let usable = open && self.hold_on(node).is_none();
        let stand = &self.floor.nodes[at(node)];
        let free = self.rooms[at(node)].free(stand);
        self.stocks[stand.kind].mark(stand, free, open, usable);
    }

    /// What a task would hold and is not free, in words; nothing where it fits.
    pub(crate) fn shortage(&self, node: NodeId, task: &TaskAllocation) -> Option<String> {
        let stand = self.stand(node);
        room::shortage(
            self.room(node),
            stand,
            &self.parts,
            node,
            task,
            stand.offered,
        )
    }

    /// Takes what a task holds. A lost GPU may be taken: whoever held it before it was lost still does.
    ///
    /// # Panics
    /// Where something of it is not free: nothing is ever held twice.
    pub(crate) fn take(&mut self, node: NodeId, task: &TaskAllocation) {
        self.change(node, |room, stand, parts| {
            room::take(room, stand, parts, node, task)
        });
    }

    /// Gives back what a task held.
    ///
    /// # Panics
    /// Where more comes back than was taken.
    pub(crate) fn give_back(&mut self, node: NodeId, task: &TaskAllocation) {
        self.change(node, |room, stand, parts| {
            room::give_back(room, stand, parts, node, task)
        });
    }

    fn change(&mut self, node: NodeId, change: impl FnOnce(&mut Room, &Stand, &mut Vec<Part>)) {
        let stand = &self.floor.nodes[at(node)];
        let room = &mut self.rooms[at(node)];
        let before = room.free(stand);
        change(room, stand, &mut self.parts);
        let after = room.free(stand);
        if before != after {
            self.stocks[stand.kind].shift(stand, before, after);
        }
    }

    /// Takes what a gang holds, `nodes` being where its tasks run.
    ///
    /// # Panics
    /// Where something of it is not free.
    pub(crate) fn take_gang(&mut self, nodes: &[NodeId], allocation: &Allocation) {
        for (&node, task) in nodes.iter().zip(allocation.tasks.iter()) {
            self.take(node, task);
        }
        self.note_crossing(nodes, allocation);
    }

    /// Gives back what a gang held.
    ///
    /// # Panics
    /// Where more comes back than was taken.
    pub(crate) fn give_back_gang(&mut self, nodes: &[NodeId], allocation: &Allocation) {
        for (&node, task) in nodes.iter().zip(allocation.tasks.iter()) {
            self.give_back(node, task);
        }
        for leaf in self.leaves_crossed(nodes, allocation) {
            let tasks = &mut self.crossing[at(leaf)];
            *tasks = tasks
                .checked_sub(1)
                .expect("a gang that crosses leaves was counted");
        }
    }

    /// Counts the traffic of a gang whose tasks are taken already.
    pub(crate) fn note_crossing(&mut self, nodes: &[NodeId], allocation: &Allocation) {
        for leaf in self.leaves_crossed(nodes, allocation) {
            self.crossing[at(leaf)] += 1;
        }
    }

    /// The leaf of each task with GPUs, if the gang crosses leaves. Tasks without GPUs only feed the others.
    fn leaves_crossed(&self, nodes: &[NodeId], allocation: &Allocation) -> Vec<u32> {
        if nodes.len() < 2 {
            return Vec::new();
        }
        let with_gpus = nodes
            .iter()
            .zip(allocation.tasks.iter())
            .filter(|(_, task)| !task.gpus.is_empty());
        let leaves: Vec<u32> = with_gpus.map(|(&node, _)| self.stand(node).leaf).collect();
        if leaves.windows(2).all(|pair| pair[0] == pair[1]) {
            return Vec::new();
        }
        leaves
    }

    /// What is free of a resource that belongs to no node; nothing of one that nobody has.
    pub(crate) fn resource_free(&self, name: &str) -> u64 {
        self.resources.get(name).map_or(0, |(free, _)| *free)
    }

    /// Takes resources that belong to no node.
    ///
    /// # Panics
    /// Where more is taken than is free.
    pub(crate) fn take_resources(&mut self, resources: &BTreeMap<String, u64>) {
        for (name, &amount) in resources {
            let free = self.resource_free(name);
            assert!(
                amount <= free,
                "{amount} of resource `{name}` are taken, {free} are free"
            );
            if let Some((free, _)) = self.resources.get_mut(name) {
                *free -= amount;
            }
        }
    }

    /// Gives back resources that belong to no node.
    ///
    /// # Panics
    /// Where more comes back than was taken.
    pub(crate) fn give_back_resources(&mut self, resources: &BTreeMap<String, u64>) {
        for (name, &amount) in resources.iter().filter(|(_, amount)| **amount > 0) {
            let Some((free, total)) = self.resources.get_mut(name) else {
                panic!("{amount} of resource `{name}` come back, which nobody has");
            };
            *free += amount;
            assert!(
                free <= total,
                "{free} of {total} of resource `{name}` are free after {amount} came back"
            );
        }
    }
}

#[cfg(test)]
mod tests;
