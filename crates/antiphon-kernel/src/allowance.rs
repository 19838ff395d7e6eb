//! What a team may still take, of all GPU types and of single ones: what its limits, its quota and its budget leave. Looks
//! at no node: placement holds every shape against it.

use std::collections::BTreeMap;

use antiphon_types::{Class, GpuAmount, JobSpec, Role, Shape};

use crate::capacity::Kind;
use crate::jobs::Job;
use crate::order::{Cycle, Verdict};
use crate::teams::{Holdings, TeamId, Teams, total};

/// What may still be taken; nothing bounds what is not named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Allowance {
    all: Option<GpuAmount>,
    by_type: BTreeMap<String, GpuAmount>,
}

/// For whom nothing is bounded.
pub(crate) static UNBOUNDED: Allowance = Allowance {
    all: None,
    by_type: BTreeMap::new(),
};

impl Allowance {
    /// What the limits of a team and of those that it is part of leave.
    pub(crate) fn within_limits(holdings: &Holdings, teams: &Teams, team: TeamId) -> Self {
        let mut allowance = Self::default();
        for id in teams.chain(team) {
            let limit = &teams.get(id).spec.limit;
            if limit.is_empty() {
                continue;
            }
            if let Some(limit) = limit.all {
                allowance.cap(limit.saturating_sub(holdings.all(id)));
            }
            for (name, limit) in &limit.by_type {
                let held = holdings.of_type(id, name);
                allowance.cap_type(name, limit.saturating_sub(held));
            }
        }
        allowance
    }

    fn cap(&mut self, gpus: GpuAmount) {
        self.all = Some(self.all.map_or(gpus, |all| all.min(gpus)));
    }

    /// Lets no more than this be taken of a type.
    pub(crate) fn cap_type(&mut self, gpu_type: &str, gpus: GpuAmount) {
        let cap = self.by_type.entry(gpu_type.to_owned()).or_insert(gpus);
        *cap = (*cap).min(gpus);
    }

    /// Whether nothing is bounded.
    pub(crate) fn is_unbounded(&self) -> bool {
        *self == UNBOUNDED
    }

    /// Whether so many GPUs of a type may be taken.
    pub(crate) fn lets(&self, gpu_type: &str, gpus: GpuAmount) -> bool {
        let of_type = self.by_type.get(gpu_type);
        self.all.is_none_or(|all| gpus <= all) && of_type.is_none_or(|left| gpus <= *left)
    }

    /// Notes that they were.
    pub(crate) fn take(&mut self, gpu_type: &str, gpus: GpuAmount) {
        self.all = self.all.map(|all| all.saturating_sub(gpus));
        if let Some(left) = self.by_type.get_mut(gpu_type) {
            *left = left.saturating_sub(gpus);
        }
    }

    /// Whether it could keep a job from any place that there might be.
    fn binds(&self, spec: &JobSpec) -> bool {
        let most = most(spec);
        let left = self.by_type.values().copied().chain(self.all).min();
        left.is_some_and(|left| left < most)
    }

    /// The preferred shape of a role that may be put on no kind of node, with the first of those that would do otherwise.
    pub(crate) fn kept_out<'a>(
        &self,
        spec: &'a JobSpec,
        kinds: &'a [Kind],
    ) -> Option<(&'a Shape, &'a Kind)> {
        spec.roles.iter().find_map(|role| {
            let mut would_do = role.shapes().flat_map(|shape| {
                let named = shape.gpu_type.as_ref();
                let does = move |kind: &&Kind| {
                    let typed = named
                        .is_none_or(|name| *name == kind.gpu_type || kind.profiles.contains(name));
                    kind.has_gpus && typed && !shape.gpus.is_zero()
                };
                kinds.iter().filter(does).map(move |kind| (shape, kind))
            });
            let first = would_do.next()?;
            let any_lets = std::iter::once(first)
                .chain(would_do)
                .any(|(shape, kind)| self.lets(&kind.gpu_type, shape.gpus));
            let without = role.shapes().any(|shape| shape.gpus.is_zero());
            (!any_lets && !without).then_some(first)
        })
    }
}

/// GPUs of all roles together, in the smallest shape of each.
pub(crate) fn least(spec: &JobSpec) -> GpuAmount {
    let smallest = |role: &Role| role.shapes().map(|shape| shape.gpus).min();
    spec.roles.iter().filter_map(smallest).sum()
}

/// The same in the largest shape of each.
pub(crate) fn most(spec: &JobSpec) -> GpuAmount {
    let largest = |role: &Role| role.shapes().map(|shape| shape.gpus).max();
    spec.roles.iter().filter_map(largest).sum()
}

impl Cycle<'_> {
    /// What a job's team may still take for it as a class, or what keeps it from starting whatever is free.
    pub(crate) fn barred(&self, job: &Job, class: Class) -> Result<Allowance, Verdict> {
        let state = self.state;
        let teams = &state.teams;
        let spec = &job.spec;
        let least = least(spec);
        if most(spec).is_zero() || teams.specs().is_empty() {
            return Ok(Allowance::default());
        }
        let urgent = class <= Class::Production;
        // In a shape without GPUs it needs nobody's leave.
        let asks = !least.is_zero();
        if asks && urgent && self.holdings.urgent_covered(teams, job.team, least) == Some(false) {
            return Err(Verdict::OverQuota);
        }
        if asks && let Some(exceeded) = self.holdings.exceeded(teams, job.team, None, least) {
            return Err(Verdict::Limit(exceeded));
        }
        let mut allowance = Allowance::within_limits(&self.holdings, teams, job.team);
        if urgent && let Some(owner) = teams.quota_owner(job.team) {
            let quota = total(&teams.get(owner).spec.quota);
            allowance.cap(quota.saturating_sub(self.holdings.urgent(owner)));
        }
        if class != Class::BestEffort {
            for kind in self.free.kinds() {
                if self.budget_bars(job.team, &kind.gpu_type) {
                    allowance.cap_type(&kind.gpu_type, GpuAmount::ZERO);
                }
            }
        }
        if !allowance.binds(spec) {
            return Ok(Allowance::default());
        }
        match allowance.kept_out(spec, self.free.kinds()) {
            Some((shape, kind)) => Err(self.by_type(job, shape.gpus, &kind.gpu_type)),
            None => Ok(allowance),
        }
    }

    /// What keeps so many GPUs of a type from being taken.
    fn by_type(&self, job: &Job, gpus: GpuAmount, gpu_type: &str) -> Verdict {
        let teams = &self.state.teams;
        match self
            .holdings
            .exceeded(teams, job.team, Some(gpu_type), gpus)
        {
            Some(exceeded) => Verdict::Limit(exceeded),
            None if self.budget_bars(job.team, gpu_type) => Verdict::OverBudget,
            None => Verdict::OverQuota,
        }
    }

    fn budget_bars(&self, team: TeamId, gpu_type: &str) -> bool {
        let now = self.state.now;
        let over = self.state.teams.overspent(team, Some(gpu_type), now);
        over.is_some()
    }
}
