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
    /// All runs, each once; policies vary fastest, so that they can be compared before all is done.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for seed in once(&self.seeds) {
            for size in once(&self.sizes) {
                for load in once(&self.loads) {
                    for knowledge in once(&self.knowledge) {
                        for policy in once(&self.policies) {
                            points.push(Point {
                                policy: policy.clone(),
                                knowledge: *knowledge,
                                load: *load,
                                size: *size,
                                seed: *seed,
                            });
                        }
                    }
                }
            }
        }
        points
    }
}

/// The values in their order, without those that came before.
fn once<T: PartialEq>(values: &[T]) -> impl Iterator<Item = &T> {
    let new = |(place, value): &(usize, &T)| !values[..*place].contains(value);
    values
        .iter()
        .enumerate()
        .filter(new)
        .map(|(_, value)| value)
}

/// Thousandths as people write them: `1.25`.
#[must_use]
pub fn times(permille: u32) -> String {
    GpuAmount::from_thousandths(u64::from(permille)).to_string()
}

#[cfg(test)]
mod tests {
    use super::Grid;
    use crate::world::Knowledge;

    #[test]
    fn every_combination_is_one_point() {
        let grid = Grid {
            policies: vec!["a".into(), "b".into(), "a".into()],
            knowledge: vec![Knowledge::None, Knowledge::Durations],
            loads: vec![1_000, 1_000, 500],
            sizes: vec![1_000],
            seeds: vec![1, 2, 1],
        };
        let points = grid.points();
        assert_eq!(points.len(), 2 * 2 * 2 * 2);
        let again = points.iter().enumerate();
        assert!(
            again
                .into_iter()
                .all(|(place, point)| !points[..place].contains(point))
        );
    }
}
