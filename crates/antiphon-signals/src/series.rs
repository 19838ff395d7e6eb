//! Down-sampled curves for pictures: a fixed number of points over the whole run. A full series halves its resolution; it
//! never forgets the beginning.

/// A series has at least half of its points' resolution left; doubling ends where steps end.
const SHIFT_MAX: u32 = 63;

/// A stretch of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The first step that it covers.
    pub step: u64,
    /// Smallest value.
    pub min: f32,
    /// Mean of all values.
    pub mean: f32,
    /// Largest value.
    pub max: f32,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    min: f32,
    mean: f32,
    max: f32,
    count: u32,
}

impl Bucket {
    const EMPTY: Self = Self {
        min: f32::INFINITY,
        mean: 0.0,
        max: f32::NEG_INFINITY,
        count: 0,
    };

    fn add(&mut self, value: f32) {
        self.count = self.count.saturating_add(1);
        self.mean += (value - self.mean) / self.count as f32;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn join(self, other: Self) -> Self {
        let count = self.count.saturating_add(other.count);
        let part = f64::from(other.count) / f64::from(count.max(1));
        Self {
            min: self.min.min(other.min),
            mean: self.mean + (other.mean - self.mean) * part as f32,
            max: self.max.max(other.max),
            count,
        }
    }
}

/// One curve over steps.
#[derive(Debug)]
pub(crate) struct Series {
    buckets: Vec<Bucket>,
    points_max: usize,
    /// The first step seen.
    base: Option<u64>,
    /// A bucket covers 2^shift steps.
    shift: u32,
}

impl Series {
    /// A curve of at most so many points; an even number.
    pub(crate) const fn new(points_max: usize) -> Self {
        Self {
            buckets: Vec::new(),
            points_max,
            base: None,
            shift: 0,
        }
    }

    /// Takes one value in; a step before the first counts as the first.
    pub(crate) fn push(&mut self, step: u64, value: f64) {
        let offset = step.saturating_sub(*self.base.get_or_insert(step));
        while offset >> self.shift >= self.points_max as u64 && self.shift < SHIFT_MAX {
            self.halve();
        }
        let index = (offset >> self.shift) as usize;
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, Bucket::EMPTY);
        }
        self.buckets[index].add(value as f32);
    }

    fn halve(&mut self) {
        self.shift += 1;
        self.buckets = self
            .buckets
            .chunks(2)
            .map(|pair| pair.iter().copied().fold(Bucket::EMPTY, Bucket::join))
            .collect();
    }

    /// The curve so far; steps at which nothing was said are left out.
    pub(crate) fn points(&self) -> Vec<Point> {
        let base = self.base.unwrap_or(0);
        let covered = self.buckets.iter().enumerate();
        covered
            .filter(|(_, bucket)| bucket.count > 0)
            .map(|(index, bucket)| Point {
                step: base + ((index as u64) << self.shift),
                min: bucket.min,
                mean: bucket.mean,
                max: bucket.max,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_ends_its_extremes_and_its_mean() {
        let mut series = Series::new(64);
        for step in 0..10_000_u64 {
            let value = if step == 4_321 { 99.0 } else { 2.0 };
            series.push(100 + step, value);
        }
        let points = series.points();
        assert!(
            points.len() > 32 && points.len() <= 64,
            "{} points",
            points.len()
        );
        assert_eq!(points[0].step, 100);
        assert!(points.windows(2).all(|pair| pair[0].step < pair[1].step));
        assert_eq!(points.iter().filter(|point| point.max == 99.0).count(), 1);
        let highest = points.iter().map(|point| point.mean).fold(0.0, f32::max);
        assert!((highest - (2.0 + 97.0 / 256.0)).abs() < 1e-3, "{highest}");
        assert!(points.iter().all(|point| point.min == 2.0));
    }

    #[test]
    fn absurd_steps_neither_fill_memory_nor_panic() {
        let mut series = Series::new(64);
        for step in [7, u64::MAX, 0, u64::MAX / 2] {
            series.push(step, 1.0);
        }
        assert!(series.points().len() <= 64);
        assert!(series.buckets.len() <= 64);
    }
}
