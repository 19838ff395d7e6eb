//! The teams as a tree with their books, and what each may hold: limits, quotas, budgets. Who goes first is `share`.

use std::collections::BTreeMap;
use std::sync::Arc;

use antiphon_types::{Amounts, GpuAmount, GpuTime, TeamSpec, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ledger::{Account, Accounts, HOURS, falls_below};

/// A team's place in the list of teams.
pub(crate) type TeamId = u32;

/// What the claims of a team that keeps its word count for.
const BELIEVED: u32 = 1_000;
/// What the claims of a team that never does count for.
const DOUBTED: u32 = 16_000;

/// A team and its books.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Team {
    /// What its operator set up; defaults where nobody did.
    pub spec: TeamSpec,
    /// The team that it is part of.
    pub(crate) parent: Option<TeamId>,
    /// What it holds and has used, by GPU type, without its parts.
    pub accounts: Accounts,
    /// GPU-time that it and its parts held beyond its quota: lent to it by the others.
    borrowed: GpuTime,
    /// GPU-time of its quota that they left to the others.
    lent: GpuTime,
    /// Until when these two count.
    settled: Timestamp,
    /// By how much the times it names have to be stretched, in thousandths, for what it said before turned out wrong.
    pub(crate) doubt_permille: u32,
}

/// All teams.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Teams {
    list: Vec<Team>,
    ids: BTreeMap<String, TeamId>,
    /// As an operator set them up.
    specs: Vec<TeamSpec>,
}

/// A budget that is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overspent<'a> {
    /// Whose it is.
    pub(crate) team: &'a str,
    /// GPU-time of seven days, that of its parts included.
    pub(crate) used: GpuTime,
    pub(crate) budget: GpuTime,
    /// When enough of it is more than seven days old.
    pub(crate) free_at: Timestamp,
}

impl Teams {
    /// As an operator set them up; none where every name is a team.
    #[must_use]
    pub fn specs(&self) -> &[TeamSpec] {
        &self.specs
    }

    /// Every team, those without books included, by its place.
    pub fn all(&self) -> impl Iterator<Item = &Team> {
        self.list.iter()
    }

    /// The team of this name, if anybody has heard of it.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Team> {
        self.ids.get(name).map(|id| self.get(*id))
    }

    pub(crate) fn id(&self, name: &str) -> Option<TeamId> {
        self.ids.get(name).copied()
    }

    pub(crate) fn get(&self, id: TeamId) -> &Team {
        &self.list[place(id)]
    }

    pub(crate) fn get_mut(&mut self, id: TeamId) -> &mut Team {
        &mut self.list[place(id)]
    }

    pub(crate) const fn len(&self) -> usize {
        self.list.len()
    }

    /// The place of a team, which is made where there is none yet.
    pub(crate) fn enter(&mut self, name: &str) -> TeamId {
        if let Some(id) = self.id(name) {
            return id;
        }
        let id = u32::try_from(self.list.len()).expect("few teams");
        self.ids.insert(name.to_owned(), id);
        self.list.push(Team {
            spec: TeamSpec {
                name: name.to_owned(),
                ..TeamSpec::default()
            },
            parent: None,
            accounts: Accounts::new(),
            borrowed: GpuTime::ZERO,
            lent: GpuTime::ZERO,
            settled: Timestamp::ZERO,
            doubt_permille: BELIEVED,
        });
        id
    }

    /// Sets the teams up anew at `now`; books and places stay.
    pub(crate) fn set_up(&mut self, specs: &[TeamSpec], holdings: &Holdings, now: Timestamp) {
        self.specs = specs.to_vec();
        for spec in specs {
            self.enter(&spec.name);
        }
        // What was lent under the old quotas is known, and nothing was before there were any.
        for (id, team) in (0..).zip(&mut self.list) {
            team.settle_debts(holdings.all(id), now);
        }
        for team in &mut self.list {
            let spec = specs.iter().find(|spec| spec.name == team.spec.name);
            team.spec = spec.cloned().unwrap_or_else(|| TeamSpec {
                name: team.spec.name.clone(),
                ..TeamSpec::default()
            });
            team.parent = team.spec.parent.as_ref().map(|name| self.ids[name]);
        }
    }

    /// Brings the debts of a team and of those that it is part of up to `now`, before what they hold changes.
    pub(crate) fn settle_debts(&mut self, team: TeamId, holdings: &Holdings, now: Timestamp) {
        let mut next = Some(team);
        while let Some(id) = next {
            let team = self.get_mut(id);
            team.settle_debts(holdings.all(id), now);
            next = team.parent;
        }
    }

    /// A team and those that it is part of, the innermost first.
    pub(crate) fn chain(&self, id: TeamId) -> impl Iterator<Item = TeamId> {
        std::iter::successors(Some(id), |id| self.get(*id).parent)
    }

    /// The first used-up budget of a team or of one that it is part of; of those that bound `gpu_type`, if one is named.
    pub(crate) fn overspent(
        &self,
        team: TeamId,
        gpu_type: Option<&str>,
        now: Timestamp,
    ) -> Option<Overspent<'_>> {
        self.chain(team).find_map(|id| {
            let team = self.get(id);
            let budgets = team.spec.budget.iter().filter(|(of, _)| {
                let bounds = |named| *of == "*" || *of == named;
                gpu_type.is_none_or(bounds)
            });
            budgets.into_iter().find_map(|(of, budget)| {
                let accounts = || {
                    let parts = (0..).zip(&self.list);
                    let parts = parts.filter(|(part, _)| self.chain(*part).any(|up| up == id));
                    let accounts = parts.flat_map(|(_, part)| &part.accounts);
                    let counted = accounts.filter(|(name, _)| *of == "*" || *name == of);
                    counted.map(|(_, account)| account)
                };
                let used: GpuTime = accounts().map(|account| account.week(now)).sum();
                (used >= *budget).then(|| Overspent {
                    team: &team.spec.name,
                    used,
                    budget: *budget,
                    free_at: falls_below(accounts(), *budget, now),
                })
            })
        })
    }

    /// GPU-time of the last seven days by GPU type, that of its parts included.
    #[must_use]
    pub fn week(&self, team: &str, now: Timestamp) -> BTreeMap<String, GpuTime> {
        let mut week: BTreeMap<String, GpuTime> = BTreeMap::new();
        let id = self.id(team);
        let parts = (0..).zip(&self.list);
        let parts = parts.filter(|(part, _)| self.chain(*part).any(|up| Some(up) == id));
        for (gpu_type, account) in parts.flat_map(|(_, part)| &part.accounts) {
            let sum = week.entry(gpu_type.clone()).or_default();
            *sum = *sum + account.week(now);
        }
        week
    }

    /// GPU-time of each hour of the last seven days, the newest first, that of its parts included.
    #[must_use]
    pub fn hours(&self, team: &str, now: Timestamp) -> Vec<GpuTime> {
        let mut hours = vec![GpuTime::ZERO; usize::try_from(HOURS).expect("a week has few hours")];
        let id = self.id(team);
        let parts = (0..).zip(&self.list);
        let parts = parts.filter(|(part, _)| self.chain(*part).any(|up| Some(up) == id));
        for account in parts.flat_map(|(_, part)| part.accounts.values()) {
            account.add_hours(now, &mut hours);
        }
        hours
    }

    /// When a used-up budget of a team, or of one that it is part of, allows something again, if nothing is used meanwhile.
    #[must_use]
    pub fn free_again(&self, team: &str, now: Timestamp) -> Option<Timestamp> {
        let spent = self.overspent(self.id(team)?, None, now);
        spent.map(|spent| spent.free_at)
    }

    /// The innermost team of a chain that has a quota: whose it is, if anybody set one.
    pub(crate) fn quota_owner(&self, id: TeamId) -> Option<TeamId> {
        self.chain(id)
            .find(|id| !self.get(*id).spec.quota.is_empty())
    }
}

impl Team {
    /// What it and its parts have borrowed and lent until `now`, having held so much since the debts were settled.
    pub(crate) fn debts(&self, held: GpuAmount, now: Timestamp) -> (GpuTime, GpuTime) {
        if self.spec.quota.is_empty() {
            return (self.borrowed, self.lent);
        }
        let quota = total(&self.spec.quota);
        let span = now.since(self.settled);
        let borrowed = held.saturating_sub(quota).over(span);
        let lent = quota.saturating_sub(held).over(span);
        (self.borrowed + borrowed, self.lent + lent)
    }

    fn settle_debts(&mut self, held: GpuAmount, now: Timestamp) {
        (self.borrowed, self.lent) = self.debts(held, now);
        self.settled = now;
    }

    /// Brings the accounts up to `now`, before what the team holds changes.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        self.accounts
            .values_mut()
            .for_each(|account| account.settle(now));
    }

    /// What its own attempts hold.
    #[must_use]
    pub fn allocated(&self) -> GpuAmount {
        self.accounts
            .values()
            .map(|account| account.allocated)
            .sum()
    }

    /// Notes that one of its jobs ran longer than it said it would.
    pub(crate) fn doubt(&mut self) {
        self.doubt_permille = (self.doubt_permille * 5 / 4).min(DOUBTED);
    }

    /// Notes that one of its jobs kept its word.
    pub(crate) fn believe(&mut self) {
        self.doubt_permille = (self.doubt_permille * 49 / 50).max(BELIEVED);
    }

    /// Its books of a GPU type, which begin at `now` where there were none.
    pub(crate) fn account(&mut self, gpu_type: &str, now: Timestamp) -> &mut Account {
        // Most often it is there: no name is copied for that.
        if !self.accounts.contains_key(gpu_type) {
            let mut account = Account::default();
            account.settle(now);
            self.accounts.insert(gpu_type.to_owned(), account);
        }
        self.accounts
            .get_mut(gpu_type)
            .expect("it was put there just now")
    }
}

/// What teams hold, their parts included: to try out what a start would do. Shared between copies until one changes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Holdings(Arc<Vec<Holding>>);

/// What one team holds, its parts included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Holding {
    pub(crate) all: GpuAmount,
    /// As class production or service.
    pub(crate) urgent: GpuAmount,
    pub(crate) by_type: BTreeMap<String, GpuAmount>,
}

/// A limit that a start would break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) team: TeamId,
    pub(crate) gpu_type: Option<String>,
    pub(crate) allocated: GpuAmount,
    pub(crate) limit: GpuAmount,
}

impl Holdings {
    /// What a team holds of all types.
    pub(crate) fn all(&self, team: TeamId) -> GpuAmount {
        let held = self.0.get(place(team));
        held.map(|held| held.all).unwrap_or_default()
    }

    /// What a team holds as class production or service.
    pub(crate) fn urgent(&self, team: TeamId) -> GpuAmount {
        let held = self.0.get(place(team));
        held.map(|held| held.urgent).unwrap_or_default()
    }

    /// What a team holds of one GPU type.
    pub(crate) fn of_type(&self, team: TeamId, gpu_type: &str) -> GpuAmount {
        let held = self.0.get(place(team));
        let of_type = held.and_then(|held| held.by_type.get(gpu_type));
        of_type.copied().unwrap_or_default()
    }

    /// Adds what an attempt takes, to its team and all that it is part of.
    pub(crate) fn add(
        &mut self,
        teams: &Teams,
        team: TeamId,
        gpu_type: &str,
        amount: GpuAmount,
        urgent: bool,
    ) {
        let held = Arc::make_mut(&mut self.0);
        for id in teams.chain(team) {
            let length = held.len().max(place(id) + 1);
            held.resize_with(length, Holding::default);
            let holding = &mut held[place(id)];
            holding.all = holding.all + amount;
            if urgent {
                holding.urgent = holding.urgent + amount;
            }
            match holding.by_type.get_mut(gpu_type) {
                Some(held) => *held = *held + amount,
                None => {
                    holding.by_type.insert(gpu_type.to_owned(), amount);
                }
            }
        }
    }

    /// Takes away what an attempt gives back.
    pub(crate) fn remove(
        &mut self,
        teams: &Teams,
        team: TeamId,
        gpu_type: &str,
        amount: GpuAmount,
        urgent: bool,
    ) {
        let all = Arc::make_mut(&mut self.0);
        for id in teams.chain(team) {
            let holding = &mut all[place(id)];
            holding.all = holding.all - amount;
            if urgent {
                holding.urgent = holding.urgent - amount;
            }
            let held = holding
                .by_type
                .get_mut(gpu_type)
                .expect("it was added once");
            *held = *held - amount;
            if held.is_zero() {
                holding.by_type.remove(gpu_type);
            }
        }
        // Teams that hold nothing are told by nothing, however long the list once was.
        while all.last() == Some(&Holding::default()) {
            all.pop();
        }
    }

    /// The first limit that `amount` more of a GPU type would break; of any type where none is named.
    pub(crate) fn exceeded(
        &self,
        teams: &Teams,
        team: TeamId,
        gpu_type: Option<&str>,
        amount: GpuAmount,
    ) -> Option<Exceeded> {
        teams.chain(team).find_map(|id| {
            let limit = &teams.get(id).spec.limit;
            if limit.is_empty() {
                return None;
            }
            let held = self.0.get(place(id));
            let all = held.map(|held| held.all).unwrap_or_default();
            let over_all = limit.all.filter(|limit| all + amount > *limit);
            let exceeded = |gpu_type: Option<&str>, allocated, limit| Exceeded {
                team: id,
                gpu_type: gpu_type.map(str::to_owned),
                allocated,
                limit,
            };
            over_all
                .map(|limit| exceeded(None, all, limit))
                .or_else(|| {
                    let limit = *limit.by_type.get(gpu_type?)?;
                    let held = held.and_then(|held| held.by_type.get(gpu_type?).copied());
                    let held = held.unwrap_or_default();
                    (held + amount > limit).then(|| exceeded(gpu_type, held, limit))
                })
        })
    }

    /// Whether a quota covers what is held and `amount` more; none where no quota is set up for the team.
    pub(crate) fn covered(
        &self,
        teams: &Teams,
        team: TeamId,
        gpu_type: Option<&str>,
        amount: GpuAmount,
    ) -> Option<bool> {
        let owner = teams.quota_owner(team)?;
        let quota = &teams.get(owner).spec.quota;
        let of_type = gpu_type.map(|name| {
            let held = self.0.get(place(owner));
            let held = held.and_then(|held| held.by_type.get(name));
            (name, held.copied().unwrap_or_default())
        });
        Some(within(quota, self.all(owner), of_type, amount))
    }

    /// Whether a quota covers what is held as service and production and `amount` more; none where none is set up.
    pub(crate) fn urgent_covered(
        &self,
        teams: &Teams,
        team: TeamId,
        amount: GpuAmount,
    ) -> Option<bool> {
        if teams.specs.is_empty() {
            return None;
        }
        // Teams were set up, and this one has no quota: then none of it is covered.
        let Some(owner) = teams.quota_owner(team) else {
            return Some(false);
        };
        let quota = total(&teams.get(owner).spec.quota);
        Some(self.urgent(owner) + amount <= quota)
    }
}

/// A quota in all types together.
pub(crate) fn total(quota: &Amounts) -> GpuAmount {
    quota
        .all
        .unwrap_or_else(|| quota.by_type.values().copied().sum())
}

fn within(
    quota: &Amounts,
    all: GpuAmount,
    of_type: Option<(&str, GpuAmount)>,
    amount: GpuAmount,
) -> bool {
    let in_all = quota.all.is_none_or(|quota| all + amount <= quota);
    let of_type = of_type.and_then(|(name, held)| Some((held, *quota.by_type.get(name)?)));
    let in_type = match of_type {
        Some((held, quota)) => held + amount <= quota,
        // A quota of some types only says nothing about the others.
        None => quota.all.is_some(),
    };
    in_all && in_type
}

fn place(id: TeamId) -> usize {
    usize::try_from(id).expect("few teams")
}
