//! The parts of its time that each job should spend on each GPU type: the programs of Narayanan et al., OSDI 2020. Knows no
//! rounds.
//!
//! Most of these programs have many solutions, and what a job gets beyond its due differs between them: a vertex gives all
//! that is left to few. The published figures come from an interior-point solver, so these do too.

use std::collections::BTreeMap;

use antiphon_types::JobId;
use clarabel::algebra::CscMatrix;
use clarabel::solver::{DefaultSettings, DefaultSolver, IPSolver, SolverStatus, SupportedConeT};

/// What a job brings into a program.
#[derive(Debug, Clone)]
pub(in super::super) struct Claim {
    pub(in super::super) job: JobId,
    /// Its speed on each GPU type, as a part of its best.
    pub(in super::super) rates: Vec<f64>,
    pub(in super::super) gpus: f64,
    pub(in super::super) weight: f64,
    /// What remains of it at its best; only where that may be known.
    pub(in super::super) left_s: f64,
    /// How long ago it came.
    pub(in super::super) waited_s: f64,
}

/// By job and GPU type: the part of its time.
pub(super) type Parts = Vec<Vec<f64>>;

/// The smallest throughput is as large as can be, each job's in units of what it would make on an equal part of every type.
pub(super) fn fairest(claims: &[Claim], gpus: &[f64]) -> Parts {
    let all: f64 = gpus.iter().sum();
    let worth = |claim: &Claim| {
        let each = claim.rates.iter().zip(gpus);
        let alike: f64 = each.map(|(rate, gpus)| rate * gpus / all).sum();
        let unit = claim.gpus / (claim.weight * alike);
        claim.rates.iter().map(|rate| rate * unit).collect()
    };
    let worths: Vec<Vec<f64>> = claims.iter().map(worth).collect();
    let (parts, _) = largest_minimum(claims, gpus, &worths);
    parts
}

/// In the order in which they came, each gets all of its time on the fastest type of which enough is left; from the first
/// that finds none on, nobody gets anything.
pub(super) fn first_come(claims: &[Claim], gpus: &[f64]) -> Parts {
    let mut left = gpus.to_vec();
    let mut parts = vec![vec![0.0; gpus.len()]; claims.len()];
    for (claim, parts) in claims.iter().zip(&mut parts) {
        let fits = (0..left.len()).filter(|i| left[*i] >= claim.gpus);
        let fastest = fits
            .rev()
            .max_by(|a, b| claim.rates[*a].total_cmp(&claim.rates[*b]));
        let Some(gpu_type) = fastest else { break };
        left[gpu_type] -= claim.gpus;
        parts[gpu_type] = 1.0;
    }
    parts
}

/// All end within a time that is at most a twentieth above the shortest in which they can: the peer halves its way to it from
/// 100 s and 1,000,000 s and keeps the last time that was enough.
pub(super) fn shortest_makespan(claims: &[Claim], gpus: &[f64]) -> Parts {
    // In units of the time that the work of all needs on all GPUs, so that the numbers stay near one.
    let work: f64 = claims.iter().map(|claim| claim.left_s * claim.gpus).sum();
    let unit_s = (work / gpus.iter().sum::<f64>()).max(1e-3);
    let worth = |claim: &Claim| {
        let rates = claim.rates.iter();
        rates.map(|rate| rate * unit_s / claim.left_s).collect()
    };
    let worths: Vec<Vec<f64>> = claims.iter().map(worth).collect();
    let (parts, speed) = largest_minimum(claims, gpus, &worths);
    if speed <= 0.0 {
        return parts;
    }
    let shortest_s = unit_s / speed;
    let (mut below_s, mut enough_s) = (100.0_f64, 1_000_000.0_f64);
    while enough_s < shortest_s {
        below_s = enough_s;
        enough_s *= 10.0;
    }
    while 1.05 * below_s < enough_s {
        let middle_s = f64::midpoint(below_s, enough_s);
        if middle_s >= shortest_s {
            enough_s = middle_s;
        } else {
            below_s = middle_s;
        }
    }
    let mut program = Program::of(claims, gpus, 0);
    for (i, worth) in worths.iter().enumerate() {
        let least = program.rows(-unit_s / enough_s);
        for (j, worth) in worth.iter().enumerate() {
            program.set(least, i * gpus.len() + j, -worth);
        }
    }
    program
        .solve(&[])
        .map_or(parts, |solution| split(&solution, claims.len(), gpus.len()))
}

/// What finish-time fairness remembers: the time that each job would have needed so far in a cluster of its own.
#[derive(Debug, Default)]
pub(in super::super) struct Isolated {
    /// By job: seconds so far, seconds that were left, speed then.
    jobs: BTreeMap<JobId, (f64, f64, f64)>,
}

impl Isolated {
    /// How long a job would take in all with an equal part of each GPU type for itself.
    pub(in super::super) fn total_s(&mut self, claim: &Claim, claims: usize, gpus: &[f64]) -> f64 {
        let count = f64::from(u32::try_from(claims).expect("few jobs"));
        let parts = gpus.iter().map(|gpus| gpus / count / claim.gpus);
        let most = parts.clone().sum::<f64>().max(1.0);
        let speeds = parts.zip(&claim.rates).map(|(part, rate)| part * rate);
        let speed = speeds.sum::<f64>() / most;
        let entry = self.jobs.entry(claim.job);
        let (so_far, left, before) = *entry.or_insert((0.0, claim.left_s, speed));
        let so_far = so_far + (left - claim.left_s) / before;
        self.jobs.insert(claim.job, (so_far, claim.left_s, speed));
        so_far + claim.left_s / speed
    }
}

/// The largest ratio of the time that a job takes to that in a cluster of its own is as small as can be.
pub(super) fn fairest_finish(claims: &[Claim], gpus: &[f64], isolated: &mut Isolated) -> Parts {
    let types = gpus.len();
    let parts = claims.len() * types;
    // Beyond the parts: the ratio, and for each job how many times longer it takes than at its best.
    let ratio = parts;
    let mut program = Program::of(claims, gpus, 1 + claims.len());
    for (i, claim) in claims.iter().enumerate() {
        let alone_s = isolated.total_s(claim, claims.len(), gpus);
        let row = program.rows(-claim.waited_s / alone_s);
        program.set(row, ratio + 1 + i, claim.left_s / alone_s);
        program.set(row, ratio, -1.0);
    }
    program.begin_cones();
    for (i, claim) in claims.iter().enumerate() {
        let longer = ratio + 1 + i;
        // Speed x longer >= 1, as a second-order cone.
        let sum = program.rows(0.0);
        let difference = program.rows(0.0);
        program.rows(2.0);
        for (j, rate) in claim.rates.iter().enumerate() {
            program.set(sum, i * types + j, -rate);
            program.set(difference, i * types + j, -rate);
        }
        program.set(sum, longer, -1.0);
        program.set(difference, longer, 1.0);
    }
    let solution = program.solve(&[(ratio, 1.0)]);
    solution.map_or_else(
        || fairest(claims, gpus),
        |solution| split(&solution, claims.len(), types),
    )
}

/// The smallest of the jobs' values is as large as can be; and how large that is.
fn largest_minimum(claims: &[Claim], gpus: &[f64], worths: &[Vec<f64>]) -> (Parts, f64) {
    let types = gpus.len();
    let least = claims.len() * types;
    let mut program = Program::of(claims, gpus, 1);
    for (i, worth) in worths.iter().enumerate() {
        let row = program.rows(0.0);
        program.set(row, least, 1.0);
        for (j, worth) in worth.iter().enumerate() {
            program.set(row, i * types + j, -worth);
        }
    }
    let solution = program.solve(&[(least, -1.0)]);
    let solution = solution.unwrap_or_else(|| vec![0.0; least + 1]);
    (split(&solution, claims.len(), types), solution[least])
}

fn split(solution: &[f64], jobs: usize, types: usize) -> Parts {
    let part = |value: &f64| value.clamp(0.0, 1.0);
    let rows = solution[..jobs * types].chunks(types);
    rows.map(|row| row.iter().map(part).collect()).collect()
}

/// A program in the making: rows of `a x <= b`, then second-order cones of three rows.
struct Program {
    columns: usize,
    row: Vec<usize>,
    column: Vec<usize>,
    value: Vec<f64>,
    bounds: Vec<f64>,
    linear: Option<usize>,
}

impl Program {
    /// No part is negative, no type gives more than it has, no job gets more than all of its time.
    fn of(claims: &[Claim], gpus: &[f64], more: usize) -> Self {
        let types = gpus.len();
        let parts = claims.len() * types;
        let mut program = Self {
            columns: parts + more,
            row: Vec::new(),
            column: Vec::new(),
            value: Vec::new(),
            bounds: Vec::new(),
            linear: None,
        };
        for part in 0..parts {
            let row = program.rows(0.0);
            program.set(row, part, -1.0);
        }
        for (j, gpus) in gpus.iter().enumerate() {
            let row = program.rows(*gpus);
            for (i, claim) in claims.iter().enumerate() {
                program.set(row, i * types + j, claim.gpus);
            }
        }
        for i in 0..claims.len() {
            let row = program.rows(1.0);
            for j in 0..types {
                program.set(row, i * types + j, 1.0);
            }
        }
        program
    }

    /// Another row; its number.
    fn rows(&mut self, bound: f64) -> usize {
        self.bounds.push(bound);
        self.bounds.len() - 1
    }

    fn set(&mut self, row: usize, column: usize, value: f64) {
        self.row.push(row);
        self.column.push(column);
        self.value.push(value);
    }

    /// All further rows are cones.
    fn begin_cones(&mut self) {
        self.linear = Some(self.bounds.len());
    }

    /// The point where the sum of what is named here is smallest; nothing where the solver found none.
    fn solve(self, objective: &[(usize, f64)]) -> Option<Vec<f64>> {
        let rows = self.bounds.len();
        let mut costs = vec![0.0; self.columns];
        for (column, cost) in objective {
            costs[*column] = *cost;
        }
        let linear = self.linear.unwrap_or(rows);
        let mut cones = vec![SupportedConeT::NonnegativeConeT(linear)];
        cones.resize(1 + (rows - linear) / 3, SupportedConeT::SecondOrderConeT(3));
        let flat = CscMatrix::zeros((self.columns, self.columns));
        let a = CscMatrix::new_from_triplets(rows, self.columns, self.row, self.column, self.value);
        let settings = DefaultSettings {
            verbose: false,
            ..DefaultSettings::default()
        };
        let solver = DefaultSolver::new(&flat, &costs, &a, &self.bounds, &cones, settings);
        let mut solver = solver.ok()?;
        solver.solve();
        let found = match solver.solution.status {
            SolverStatus::Solved | SolverStatus::AlmostSolved => true,
            // A part of what was reached is still a plan; that it is one of numbers is all that can be asked.
            SolverStatus::InsufficientProgress
            | SolverStatus::NumericalError
            | SolverStatus::MaxIterations => {
                solver.solution.x.iter().all(|value| value.is_finite())
            }
            _ => false,
        };
        found.then(|| solver.solution.x.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(job: u64, rates: [f64; 2], left_s: f64, waited_s: f64) -> Claim {
        Claim {
            job: JobId(job),
            rates: rates.to_vec(),
            gpus: 1.0,
            weight: 1.0,
            left_s,
            waited_s,
        }
    }

    fn speed(claim: &Claim, parts: &[f64]) -> f64 {
        let each = claim.rates.iter().zip(parts);
        each.map(|(rate, part)| rate * part).sum()
    }

    #[test]
    fn fairness_gives_the_fast_type_to_whom_it_helps() {
        let claims = [
            claim(1, [1.0, 0.125], 0.0, 0.0),
            claim(2, [1.0, 1.0], 0.0, 0.0),
        ];
        let parts = fairest(&claims, &[1.0, 1.0]);
        assert!(parts[0][0] > 0.5 && parts[1][1] > 0.5, "{parts:?}");
        let blind = claims.map(|claim| Claim {
            rates: vec![1.0; 2],
            ..claim
        });
        let parts = fairest(&blind, &[1.0, 1.0]);
        assert!((parts[0][0] - 0.5).abs() < 1e-3, "{parts:?}");
    }

    #[test]
    fn makespan_gives_time_by_what_is_left() {
        let claims = [
            claim(1, [1.0, 1.0], 30_000.0, 0.0),
            claim(2, [1.0, 1.0], 10_000.0, 0.0),
        ];
        let parts = shortest_makespan(&claims, &[1.0, 0.0]);
        let ratio = speed(&claims[0], &parts[0]) / speed(&claims[1], &parts[1]);
        assert!((2.6..3.4).contains(&ratio), "{parts:?}");
    }

    #[test]
    fn finish_time_fairness_makes_up_for_waiting() {
        let claims = [
            claim(1, [1.0, 1.0], 10_000.0, 20_000.0),
            claim(2, [1.0, 1.0], 10_000.0, 0.0),
        ];
        let parts = fairest_finish(&claims, &[1.0, 0.0], &mut Isolated::default());
        let speeds = [speed(&claims[0], &parts[0]), speed(&claims[1], &parts[1])];
        assert!(speeds[0] > 1.5 * speeds[1], "{parts:?}");
    }

    #[test]
    fn first_come_is_first_served_the_fastest_and_blocks_the_rest() {
        let wide = Claim {
            gpus: 2.0,
            ..claim(2, [1.0, 0.5], 0.0, 0.0)
        };
        let narrow = [
            claim(1, [1.0, 0.5], 0.0, 0.0),
            claim(3, [1.0, 0.5], 0.0, 0.0),
        ];
        let claims = [narrow[0].clone(), wide, narrow[1].clone()];
        let parts = first_come(&claims, &[2.0, 1.0]);
        assert_eq!(parts, [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]);
    }
}
