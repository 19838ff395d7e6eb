//! Which team goes first: bands of decayed GPU-time by weight, compared level by level from the root. Reads the books of
//! `ledger`; orders teams only, never the jobs inside one.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{GpuAmount, GpuTime, Millis, Timestamp};

use crate::ledger::{Decay, HOUR_MS};
use crate::state::{Known, State};
use crate::teams::{TeamId, Teams};

/// What a start counts for at once, beside what was used: an hour of what it holds. Without it, one team could start a
/// thousand jobs in a cycle before its usage shows.
const HORIZON: Millis = Millis::from_secs(3_600);

/// GPU-time under which teams of weight 1 are all alike: one GPU-hour.
const LEAST: u64 = 3_600_000;

/// Deepest nesting that is compared.
const DEPTH: usize = 4;

/// A team's place among the others: the band of each team from the root down to it. The smallest goes first.
pub(crate) type Rank = [u8; DEPTH];

/// What teams have used, older hours counting less. Kept in the index: it changes with the hour and with what is booked
/// alone, and a sum over the hours of a week, for every team, is more than a cycle may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Used {
    /// Hours since the Unix epoch.
    hour: u64,
    decay: Decay,
    /// By team, for each of its accounts in their order; nothing behind the last team that has one.
    by_team: Vec<Vec<GpuTime>>,
}

impl Default for Used {
    fn default() -> Self {
        Self::of(&Known::default())
    }
}

impl Used {
    pub(crate) fn of(known: &Known) -> Self {
        let mut used = Self {
            hour: hour(known),
            decay: Decay::new(known.policy.usage_half_life_ms),
            by_team: Vec::new(),
        };
        for id in (0..).take(known.teams.len()) {
            used.renew(known, id);
        }
        used
    }

    /// Takes in that something was booked to a team.
    pub(crate) fn renew(&mut self, known: &Known, team: TeamId) {
        let accounts = known.teams.get(team).accounts.values();
        let decayed = accounts.map(|account| account.usage.decayed(known.now, &self.decay));
        let decayed: Vec<GpuTime> = decayed.collect();
        if decayed.is_empty() {
            return;
        }
        if self.by_team.len() <= place(team) {
            self.by_team.resize(place(team) + 1, Vec::new());
        }
        self.by_team[place(team)] = decayed;
    }

    /// Takes in that time has passed.
    pub(crate) fn pass(&mut self, known: &Known) {
        if hour(known) != self.hour {
            *self = Self::of(known);
        }
    }

    fn of_team(&self, team: TeamId) -> &[GpuTime] {
        self.by_team.get(place(team)).map_or(&[], Vec::as_slice)
    }
}

const fn hour(known: &Known) -> u64 {
    known.now.as_millis() / HOUR_MS
}

/// Every team's claim, as it stands and as starts of this cycle change it.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    /// By team, its parts included.
    counted: Vec<u64>,
    bands: Vec<u8>,
    ranks: Vec<Rank>,
    now: Timestamp,
}

impl Shares {
    pub(crate) fn new(state: &State) -> Self {
        let teams = &state.teams;
        let mut shares = Self {
            counted: vec![0; teams.len()],
            bands: vec![0; teams.len()],
            ranks: vec![Rank::default(); teams.len()],
            now: state.now,
        };
        for (id, team) in (0..).zip(teams.all()) {
            let booked = state.index.used.of_team(id).iter();
            for ((gpu_type, account), booked) in team.accounts.iter().zip(booked) {
                let used = *booked + account.pending(shares.now);
                let ahead = account.allocated.over(HORIZON);
                let weight = weight(state, gpu_type);
                shares.count(teams, id, weigh(used, weight) + weigh(ahead, weight));
            }
        }
        for id in (0..).take(teams.len()) {
            shares.bands[place(id)] = shares.band(teams, id);
        }
        shares.rank_all(teams);
        shares
    }

    /// Counts a start.
    pub(crate) fn started(&mut self, state: &State, team: TeamId, gpu_type: &str, gpus: GpuAmount) {
        let teams = &state.teams;
        let ahead = weigh(gpus.over(HORIZON), weight(state, gpu_type));
        self.count(teams, team, ahead);
        let mut moved = false;
        for id in teams.chain(team) {
            let band = self.band(teams, id);
            moved |= std::mem::replace(&mut self.bands[place(id)], band) != band;
        }
        // Bands are powers of two: few starts move one.
        if moved {
            self.rank_all(teams);
        }
    }

    fn count(&mut self, teams: &Teams, team: TeamId, time: u64) {
        for id in teams.chain(team) {
            self.counted[place(id)] += time;
        }
    }

    fn rank_all(&mut self, teams: &Teams) {
        for id in (0..).take(teams.len()) {
            let depth = teams.chain(id).count();
            let mut rank = Rank::default();
            for (above, id) in teams.chain(id).enumerate() {
                if let Some(level) = rank.get_mut(depth - 1 - above) {
                    *level = self.bands[place(id)];
                }
            }
            self.ranks[place(id)] = rank;
        }
    }

    /// A team's place among the others.
    pub(crate) fn rank(&self, team: TeamId) -> Rank {
        self.ranks[place(team)]
    }

    /// The log2 band of a team's GPU-time by weight: twice as much is one band further back.
    fn band(&self, teams: &Teams, team: TeamId) -> u8 {
        let weight = u64::from(teams.get(team).spec.weight.max(1));
        let by_weight = self.counted[place(team)] / weight;
        let bits = (by_weight / LEAST).checked_ilog2().map_or(0, |log| log + 1);
        u8::try_from(bits).expect("at most 64 bits")
    }
}

/// A team's claim among all others, for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Its place in the order; teams of one band of usage by weight share a place.
    pub place: u32,
    /// Decayed and weighted GPU-time that stands against it, its parts included, with an hour of what it holds now.
    pub counted: GpuTime,
}

/// Every team's claim as it stands, by name.
#[must_use]
pub fn standing(state: &State) -> BTreeMap<&str, Standing> {
    let shares = Shares::new(state);
    let teams = &state.teams;
    let ranked: Vec<(Rank, TeamId)> = (0..)
        .zip(teams.all())
        .map(|(id, _)| (shares.rank(id), id))
        .collect();
    let ranks: BTreeSet<Rank> = ranked.iter().map(|(rank, _)| *rank).collect();
    let standing = |(rank, id): (Rank, TeamId)| {
        let before = ranks.range(..rank).count();
        let standing = Standing {
            place: u32::try_from(before + 1).expect("few teams"),
            counted: GpuTime::from_gpu_millis(shares.counted[place(id)]),
        };
        (teams.get(id).spec.name.as_str(), standing)
    };
    ranked.into_iter().map(standing).collect()
}

fn weight(state: &State, gpu_type: &str) -> u32 {
    let named = state.policy.gpu_weight_permille.get(gpu_type);
    named.copied().unwrap_or(1_000)
}

fn weigh(time: GpuTime, permille: u32) -> u64 {
    // Most GPUs count as what they are, and a division of 128 bits is slow.
    if permille == 1_000 {
        return time.gpu_millis();
    }
    let weighed = u128::from(time.gpu_millis()) * u128::from(permille) / 1_000;
    // The bound on GPUs and the week keep this far below 64 bits.
    u64::try_from(weighed).unwrap_or(u64::MAX)
}

fn place(id: TeamId) -> usize {
    usize::try_from(id).expect("few teams")
}
