//! Random clusters, jobs and things that happen, as plain data that shrinks well. Knows no state: what a step is about is
//! a number that the world takes modulo what there is.

mod cluster;
mod job;
mod numbers;
mod step;

pub(crate) use cluster::{ClusterPlan, PARTITIONS, cluster, team_name, teams, type_name};
pub(crate) use job::{JobPlan, ShapePlan, Wait, choosy_job, job};
pub(crate) use numbers::numbers;
pub(crate) use step::{ExitPlan, NodeChange, PolicyPlan, Step, steps, steps_and_notices};
