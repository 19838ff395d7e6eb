//! Worlds and jobs without surprises: for what is derived by hand.

use std::collections::BTreeMap;

use antiphon_types::*;

use super::{Behavior, Watch, World};
use crate::plan::JobPlan;

/// A behavior that keeps to what was asked.
pub(crate) const fn honest(runs_s: u64) -> Behavior {
    Behavior {
        attaches: false,
        stubborn: false,
        runs: Millis::from_secs(runs_s),
        saves: false,
    }
}

/// A team of weight 1 with a quota, if it has one.
pub(crate) fn team(name: &str, quota: Option<u32>) -> TeamSpec {
    TeamSpec {
        name: name.into(),
        quota: Amounts {
            all: quota.map(GpuAmount::from_gpus),
            by_type: BTreeMap::new(),
        },
        ..TeamSpec::default()
    }
}

/// A job of one role that asks for GPUs and nothing else.
pub(crate) fn spec(team: &str, name: String, gpus: u32, class: Class) -> JobSpec {
    JobSpec {
        name,
        team: team.into(),
        user: "someone".into(),
        class,
        roles: vec![Role {
            name: "main".into(),
            command: vec!["train".into()],
            shape: Shape {
                gpus: GpuAmount::from_gpus(gpus),
                ..Shape::default()
            },
            alternatives: Vec::new(),
        }],
        workdir: "/".into(),
        retry: RetrySpec {
            retries_max: 5,
            backoff_first: Millis::from_secs(10),
            backoff_max: Millis::from_secs(120),
        },
        grace: Millis::from_secs(30),
        ..JobSpec::default()
    }
}

impl World {
    /// Equal nodes under one leaf switch, watched in every event.
    pub(crate) fn plain(nodes: usize, gpus: u32, teams: Vec<TeamSpec>) -> Self {
        Self::plain_watched(nodes, gpus, teams, Watch::Everything)
    }

    pub(crate) fn plain_watched(
        nodes: usize,
        gpus: u32,
        teams: Vec<TeamSpec>,
        watch: Watch,
    ) -> Self {
        let node = |index: usize| NodeSpec {
            name: NodeName(format!("n{index}")),
            gpus,
            gpu_type: "H100".into(),
            gpus_virtual: true,
            cpus: 64,
            memory: Bytes::new(1 << 40),
            ..NodeSpec::default()
        };
        let nodes = (0..nodes).map(node).collect();
        Self::new(nodes, Vec::new(), BTreeMap::new(), teams, watch)
    }

    /// Submits a job that says how long it runs, and keeps to it.
    pub(crate) fn submit_plain(
        &mut self,
        team: &str,
        gpus: u32,
        class: Class,
        runs_s: u64,
    ) -> Option<JobId> {
        let name = format!("x{}x", self.submitted);
        let mut spec = spec(team, name, gpus, class);
        spec.time_limit = Some(Millis::from_secs(runs_s));
        self.submit(spec, honest(runs_s.saturating_sub(1).max(1)))
    }

    /// Takes jobs in without deciding.
    pub(crate) fn let_pile_up(&mut self, jobs: &[JobPlan]) {
        self.together = true;
        for job in jobs {
            let spec = self.spec(job);
            self.submit(spec, Self::behavior(job));
        }
    }
}
