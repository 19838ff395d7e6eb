//! What held on average in each of equal stretches of a run: how many jobs waited, how many GPUs were held. Down-sampled, so
//! that a picture of a million jobs is as small as one of ten.

/// Stretches that a run is cut into.
pub(super) const STRETCHES: usize = 240;

/// A sum over time in equal stretches.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    /// How long a stretch is.
    wide_ms: f64,
    /// What lay partly inside a stretch, times how long.
    partly: Vec<f64>,
    /// What began to fill stretches whole, and ended to.
    whole: Vec<f64>,
}

impl Series {
    /// Of a run that lasted so long.
    pub(super) fn new(length_ms: f64) -> Self {
        let count = u32::try_from(STRETCHES).map_or(1.0, f64::from);
        Self {
            wide_ms: (length_ms / count).max(1e-3),
            partly: vec![0.0; STRETCHES],
            whole: vec![0.0; STRETCHES + 1],
        }
    }

    /// The stretch that a time lies in.
    pub(super) fn stretch(&self, ms: f64) -> usize {
        let index = crate::course::span((ms / self.wide_ms).floor().max(0.0)).as_millis();
        usize::try_from(index).map_or(STRETCHES - 1, |index| index.min(STRETCHES - 1))
    }

    /// When a stretch begins.
    pub(super) fn begins(&self, stretch: usize) -> f64 {
        self.wide_ms * u32::try_from(stretch).map_or(0.0, f64::from)
    }

    /// Counts an amount from one time to another.
    pub(super) fn add(&mut self, from: f64, until: f64, amount: f64) {
        if until <= from {
            return;
        }
        let (first, last) = (self.stretch(from), self.stretch(until));
        if first == last {
            self.partly[first] += (until - from) * amount;
            return;
        }
        self.partly[first] += (self.begins(first + 1) - from) * amount;
        self.partly[last] += (until - self.begins(last)) * amount;
        self.whole[first + 1] += amount;
        self.whole[last] -= amount;
    }

    /// The mean of each stretch, at its beginning in seconds, divided by `by`; and the last one's once more at the end.
    pub(super) fn points(&self, by: f64) -> Vec<(f64, f64)> {
        let mut filled = 0.0;
        let mut points = Vec::with_capacity(STRETCHES + 1);
        for stretch in 0..STRETCHES {
            filled += self.whole[stretch];
            // Differences of sums leave dust.
            let mean = (filled + self.partly[stretch] / self.wide_ms) / by;
            let mean = if mean.abs() < 1e-9 { 0.0 } else { mean };
            points.push((self.begins(stretch) / 1_000.0, mean));
        }
        if let Some((_, mean)) = points.last().copied() {
            points.push((self.begins(STRETCHES) / 1_000.0, mean));
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::{STRETCHES, Series};

    #[test]
    fn the_mean_over_all_stretches_is_the_whole() {
        let mut series = Series::new(1_000.0);
        series.add(0.0, 1_000.0, 2.0);
        series.add(33.0, 777.0, 1.0);
        series.add(10.0, 10.5, 8.0);
        let points = series.points(1.0);
        let count = f64::from(u32::try_from(STRETCHES).unwrap());
        let sum: f64 = points[..STRETCHES].iter().map(|point| point.1).sum();
        assert!((sum / count * 1_000.0 - (2_000.0 + 744.0 + 4.0)).abs() < 1e-6);
    }
}
