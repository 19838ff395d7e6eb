//! Trading of claims between users to whom GPU types are worth different things (Chaudhary et al., EuroSys 2020). Knows no jobs.

/// Gains closer than that are the same.
const NEAR: f64 = 1e-6;

/// Lets users trade every faster type against every slower one. `claims` and `rates`: by user, then by GPU type.
pub(super) fn trade(claims: &mut [Vec<f64>], rates: &[Vec<f64>]) {
    let types = claims.first().map_or(0, Vec::len);
    let speed = |i: usize| rates.iter().map(|rates| rates[i]).sum::<f64>();
    let mut order: Vec<usize> = (0..types).collect();
    order.sort_by(|a, b| speed(*b).total_cmp(&speed(*a)));
    // The widest difference first.
    for (at, fast) in order.iter().enumerate() {
        for slow in order[at + 1..].iter().rev() {
            pair(claims, rates, *fast, *slow);
        }
    }
}

/// Whoever gains least from the faster type lends it to whoever gains most, at the second highest gain.
fn pair(claims: &mut [Vec<f64>], rates: &[Vec<f64>], fast: usize, slow: usize) {
    // Who cannot run on one of the two has nothing to compare.
    let mut gains: Vec<(f64, usize)> = (0..claims.len())
        .filter(|user| rates[*user][fast] > 0.0 && rates[*user][slow] > 0.0)
        .map(|user| (rates[user][fast] / rates[user][slow], user))
        .collect();
    gains.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut low, mut high) = (0, gains.len().saturating_sub(1));
    while low < high {
        let (least, lender) = gains[low];
        let (most, borrower) = gains[high];
        // With two users left the second highest gain is the lender's own: it would gain nothing.
        let price = if high == low + 1 {
            (least * most).sqrt()
        } else {
            gains[high - 1].0
        };
        if most <= least * (1.0 + NEAR) {
            break;
        }
        let lent = claims[lender][fast].min(claims[borrower][slow] / price);
        claims[lender][fast] -= lent;
        claims[lender][slow] += lent * price;
        claims[borrower][fast] += lent;
        claims[borrower][slow] -= lent * price;
        if claims[lender][fast] <= NEAR {
            low += 1;
        } else {
            high -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worth(claims: &[f64], rates: &[f64]) -> f64 {
        claims
            .iter()
            .zip(rates)
            .map(|(claim, rate)| claim * rate)
            .sum()
    }

    #[test]
    fn both_are_better_off_and_no_gpu_is_lost() {
        let rates = [vec![1.0, 0.8], vec![1.0, 0.5], vec![1.0, 0.2]];
        let before = vec![vec![4.0, 4.0]; 3];
        let mut claims = before.clone();
        trade(&mut claims, &rates);
        for user in 0..3 {
            let now = worth(&claims[user], &rates[user]);
            assert!(
                now >= worth(&before[user], &rates[user]) - 1e-9,
                "{claims:?}"
            );
        }
        assert!(worth(&claims[2], &rates[2]) > 5.0, "{claims:?}");
        for gpu_type in 0..2 {
            let all: f64 = claims.iter().map(|claims| claims[gpu_type]).sum();
            assert!((all - 12.0).abs() < 1e-9);
        }
    }

    #[test]
    fn users_that_gain_the_same_keep_what_they_have() {
        let mut claims = vec![vec![4.0, 4.0]; 2];
        trade(&mut claims, &[vec![1.0, 0.5], vec![2.0, 1.0]]);
        assert_eq!(claims, vec![vec![4.0, 4.0]; 2]);
    }
}
