//! A Slurm that is looked at and left alone: everybody's jobs and all nodes in antiphon's terms, from the five questions of
//! [`Reader`]. It cannot submit, cancel or change anything, and keeps nothing between two looks.

mod cluster;
mod job;
mod needs;

use std::collections::BTreeMap;
use std::path::PathBuf;

use antiphon_types::{Class, Millis};
use async_trait::async_trait;

use self::cluster::Cluster;
use super::jobs;
use super::read::{Question, Reader};
use super::{GpuType, SlurmError};
use crate::BackendError;
use crate::observe::{Observe, Picture};

/// How a Slurm is looked at.
#[derive(Debug, Clone)]
pub struct ObserverConfig {
    /// Slurm's configuration, where it is not the one that its commands find by themselves.
    pub conf: Option<PathBuf>,
    /// The partitions to look at; none for all.
    pub partitions: Vec<String>,
    /// antiphon's names of GPU types, by Slurm's, where `catalog` does not know better.
    pub gpu_types: BTreeMap<String, String>,
    /// What is known of a GPU type by any of its names.
    pub catalog: fn(&str) -> Option<GpuType>,
    /// Classes of jobs by their QOS or their partition.
    pub classes: BTreeMap<String, Class>,
    /// How long one of Slurm's commands may take.
    pub command_timeout: Millis,
    /// How long to rest between two looks.
    pub poll: Millis,
}

impl Default for ObserverConfig {
    fn default() -> Self {
        Self {
            conf: None,
            partitions: Vec::new(),
            gpu_types: BTreeMap::new(),
            catalog: |_| None,
            classes: BTreeMap::new(),
            command_timeout: Millis::from_secs(15),
            poll: Millis::from_secs(5),
        }
    }
}

/// Looks at a Slurm.
#[derive(Debug)]
pub struct SlurmObserver {
    config: ObserverConfig,
    reader: Reader,
}

impl SlurmObserver {
    /// Asks Slurm nothing yet.
    #[must_use]
    pub fn new(config: ObserverConfig) -> Self {
        let reader = Reader {
            conf: config.conf.clone(),
            limit: config.command_timeout,
        };
        Self { config, reader }
    }
}

#[async_trait]
impl Observe for SlurmObserver {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn rest(&self) -> Millis {
        self.config.poll
    }

    async fn look(&self) -> Result<Picture, BackendError> {
        let reader = &self.reader;
        let (nodes, partitions, jobs, ids, places) = tokio::try_join!(
            reader.ask(Question::Nodes),
            reader.ask(Question::Partitions),
            reader.ask(Question::Jobs),
            reader.ask(Question::JobIds),
            reader.topology(),
        )?;
        let texts = Texts {
            nodes: &nodes,
            partitions: &partitions,
            jobs: &jobs,
            ids: &ids,
            places: &places,
        };
        Ok(picture(&self.config, &texts)?)
    }
}

/// What was answered.
struct Texts<'a> {
    nodes: &'a str,
    partitions: &'a str,
    jobs: &'a str,
    ids: &'a str,
    places: &'a str,
}

fn picture(config: &ObserverConfig, texts: &Texts<'_>) -> Result<Picture, SlurmError> {
    let cluster = Cluster::read(config, texts.nodes, texts.partitions, texts.places)?;
    let mut picture = Picture::default();
    let records = jobs::parse(texts.jobs, &jobs::ids(texts.ids));
    job::read(&cluster, &records, &mut picture);
    picture.nodes = cluster.nodes.into_values().collect();
    picture.partitions = cluster.groups;
    Ok(picture)
}

#[cfg(test)]
mod tests;
