//! How many GPUs each job gets: from those that it has by the best single steps. Knows no nodes.

/// What a job may have.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    /// GPUs that it has.
    pub(super) now: u32,
    /// By number of GPUs, which rises from zero: what it adds to the sum that is to be small.
    pub(super) costs: Vec<(u32, f64)>,
}

/// A way to grow.
#[derive(Debug, Clone, Copy)]
struct Growth {
    gain: f64,
    job: usize,
    /// Its place in the job's costs.
    to: usize,
}

/// Less than that is no gain.
const GAIN_MIN: f64 = 1e-9;

/// The numbers of GPUs at which no single step makes the sum of the costs smaller: a job grows on what is free, together with what
/// one other job gives up.
pub(super) fn counts(choices: &[Choice], all: u32) -> Vec<u32> {
    let now = |choice: &Choice| {
        choice
            .costs
            .iter()
            .position(|(gpus, _)| *gpus == choice.now)
    };
    let mut at: Vec<usize> = choices
        .iter()
        .map(|choice| now(choice).unwrap_or(0))
        .collect();
    let gpus = |at: &[usize], job: usize| choices[job].costs[at[job]].0;
    loop {
        let held: u32 = (0..at.len()).map(|job| gpus(&at, job)).sum();
        let free = all - held;
        let growths = growths(choices, &at, all);
        let on_free = growths[index(free)][0];
        let mut best = on_free.map(|growth| (growth.gain, growth, None));
        for (donor, choice) in choices.iter().enumerate() {
            let (has, cost) = choice.costs[at[donor]];
            for (to, (keeps, more)) in choice.costs[..at[donor]].iter().enumerate() {
                let budget = index(free + has - keeps);
                let others = growths[budget].iter().flatten();
                let Some(growth) = others.copied().find(|growth| growth.job != donor) else {
                    continue;
                };
                let gain = growth.gain - (more - cost);
                if best.is_none_or(|(most, ..)| gain > most) {
                    best = Some((gain, growth, Some((donor, to))));
                }
            }
        }
        let Some((_, growth, donor)) = best.filter(|(gain, ..)| *gain > GAIN_MIN) else {
            break;
        };
        at[growth.job] = growth.to;
        if let Some((donor, to)) = donor {
            at[donor] = to;
        }
    }
    (0..at.len()).map(|job| gpus(&at, job)).collect()
}

/// By how many more GPUs there are: the two jobs that gain most by no more than these.
fn growths(choices: &[Choice], at: &[usize], all: u32) -> Vec<[Option<Growth>; 2]> {
    let mut growths = vec![[None; 2]; index(all) + 1];
    for (job, choice) in choices.iter().enumerate() {
        let (has, cost) = choice.costs[at[job]];
        for (to, (gpus, less)) in choice.costs.iter().enumerate().skip(at[job] + 1) {
            let more = index(gpus - has);
            if let Some(known) = growths.get_mut(more) {
                let gain = cost - less;
                offer(known, Growth { gain, job, to });
            }
        }
    }
    for more in 1..growths.len() {
        for growth in growths[more - 1].into_iter().flatten() {
            offer(&mut growths[more], growth);
        }
    }
    growths
}

/// Keeps the two best of different jobs, the first of equals.
fn offer(known: &mut [Option<Growth>; 2], growth: Growth) {
    let beats = |other: Option<Growth>| other.is_none_or(|other| growth.gain > other.gain);
    if beats(known[0]) {
        if known[0].is_none_or(|first| first.job != growth.job) {
            known[1] = known[0];
        }
        known[0] = Some(growth);
    } else if known[0].is_none_or(|first| first.job != growth.job) && beats(known[1]) {
        known[1] = Some(growth);
    }
}

fn index(count: u32) -> usize {
    usize::try_from(count).expect("few GPUs")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job whose speed-up is that of Amdahl's law.
    fn choice(now: u32, serial: f64) -> Choice {
        let cost = |gpus: u32| match gpus {
            0 => 1_000.0,
            _ => serial + (1.0 - serial) / f64::from(gpus),
        };
        Choice {
            now,
            costs: (0..=8).map(|gpus| (gpus, cost(gpus))).collect(),
        }
    }

    #[test]
    fn nobody_waits_while_another_has_two() {
        assert_eq!(counts(&[choice(4, 0.0), choice(0, 0.9)], 4), [3, 1]);
        assert_eq!(counts(&[choice(4, 0.0), choice(0, 0.0)], 4), [2, 2]);
    }

    #[test]
    fn who_gains_nothing_gets_no_more() {
        assert_eq!(counts(&[choice(1, 1.0), choice(1, 0.1)], 8), [1, 7]);
    }
}
