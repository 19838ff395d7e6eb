//! Statistics that a few wild numbers do not move. Knows nothing of signals.

/// What the median absolute deviation of a normal distribution is multiplied with to give its standard deviation.
pub(crate) const MAD_TO_SD: f64 = 1.4826;

/// The middle of the numbers, or the mean of the middle two; nothing where there are none. Reorders them.
pub(crate) fn median(numbers: &mut [f64]) -> Option<f64> {
    if numbers.is_empty() {
        return None;
    }
    let middle = numbers.len() / 2;
    let odd = !numbers.len().is_multiple_of(2);
    let (below, upper, _) = numbers.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    if odd {
        return Some(upper);
    }
    below
        .iter()
        .copied()
        .max_by(f64::total_cmp)
        .map(|lower| f64::midpoint(lower, upper))
}

/// The standard deviation, judged by the median absolute deviation from `center`.
pub(crate) fn deviation(numbers: impl Iterator<Item = f64>, center: f64) -> f64 {
    let mut away: Vec<f64> = numbers.map(|number| (number - center).abs()).collect();
    MAD_TO_SD * median(&mut away).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wild_number_moves_neither_the_median_nor_the_deviation() {
        let mut numbers = [3.0, 1.0, 2.0, 1e9, 4.0];
        assert_eq!(median(&mut numbers), Some(3.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
        assert!((deviation(numbers.into_iter(), 3.0) - MAD_TO_SD).abs() < 1e-12);
    }
}
