//! Many runs of one workload: every policy under every knowledge, load, cluster size and seed; and the table that their
//! figures stand in, one row a run. Runs nothing and writes no file.

mod scaled;
mod table;

use antiphon_types::GpuAmount;

use crate::world::Knowledge;

pub use scaled::{at_load, at_size};
pub use table::{COLUMNS, Key, Row, TableError, header, parse, sorted};

/// What a sweep varies. Loads and sizes are in thousandths.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Policies, by name.
    pub policies: Vec<String>,
    /// What they may know.
    pub knowledge: Vec<Knowledge>,
    /// How many times as fast as recorded jobs come.
    pub loads: Vec<u32>,
    /// How many times as many nodes there are, of each kind.
    pub sizes: Vec<u32>,
    /// What is drawn from.
    pub seeds: Vec<u64>,
}

/// One run of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// The policy.
    pub policy: String,
    /// What it may know.
    pub knowledge: Knowledge,
    /// How many times as fast as recorded jobs come, in thousandths.
    pub load: u32,
    /// How many times as many nodes there are, in thousandths.
    pub size: u32,
    /// What is drawn from.
    pub seed: u64,
}

impl Grid {
    /// All runs; those of one policy are apart from each other, so that policies can be compared early.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for &seed in &self.seeds {
            for &size in &self.sizes {
                for &load in &self.loads {
                    for &knowledge in &self.knowledge {
                        for policy in &self.policies {
                            points.push(Point {
                                policy: policy.clone(),
                                knowledge,
                                load,
                                size,
                                seed,
                            });
                        }
                    }
                }
            }
        }
        points
    }
}

/// Thousandths as people write them: `1.25`.
#[must_use]
pub fn times(permille: u32) -> String {
    GpuAmount::from_thousandths(u64::from(permille)).to_string()
}
