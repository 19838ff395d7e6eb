//! Medians and extremes of the others: of numbers without one of them.

/// Numbers in order, to be asked about without one of them.
#[derive(Debug)]
pub(crate) struct Sorted(Vec<f64>);

impl Sorted {
    pub(crate) fn new(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        Self(numbers)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Where a number stands, if it is one of these.
    fn find(&self, number: f64) -> Option<usize> {
        self.0
            .binary_search_by(|other| other.total_cmp(&number))
            .ok()
    }

    /// The median of the others.
    pub(crate) fn median_without(&self, number: f64) -> Option<f64> {
        let without = self.find(number);
        let count = self.0.len() - usize::from(without.is_some());
        let at =
            |index: usize| self.0[index + usize::from(without.is_some_and(|gone| index >= gone))];
        match count {
            0 => None,
            _ if count.is_multiple_of(2) => Some(f64::midpoint(at(count / 2 - 1), at(count / 2))),
            _ => Some(at(count / 2)),
        }
    }

    /// The least of the others.
    pub(crate) fn lowest_without(&self, number: f64) -> Option<f64> {
        let skipped = usize::from(self.find(number) == Some(0));
        self.0.get(skipped).copied()
    }

    /// The greatest of the others.
    pub(crate) fn highest_without(&self, number: f64) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        let skipped = usize::from(self.find(number) == Some(last));
        last.checked_sub(skipped).map(|index| self.0[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_are_asked_without_the_one() {
        let sorted = Sorted::new(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!(sorted.median_without(4.0), Some(2.0));
        assert_eq!(sorted.median_without(1.0), Some(3.0));
        assert_eq!(sorted.median_without(9.0), Some(2.5));
        assert_eq!(sorted.lowest_without(1.0), Some(2.0));
        assert_eq!(sorted.highest_without(4.0), Some(3.0));
        assert_eq!(Sorted::new(vec![7.0]).lowest_without(7.0), None);
        assert_eq!(Sorted::new(vec![7.0]).highest_without(7.0), None);
        assert_eq!(Sorted::new(vec![7.0]).median_without(7.0), None);
    }
}
