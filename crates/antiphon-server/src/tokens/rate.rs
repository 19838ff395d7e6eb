//! How many requests a token may send: a bucket that fills evenly, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a token may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// For as long as it likes; 0 for no bound.
    pub(crate) per_second: u32,
    /// At once, after a rest.
    pub(crate) burst: u32,
}

impl Default for Allowance {
    /// Far above what a person, a dashboard or a script that submits a thousand jobs needs.
    fn default() -> Self {
        Self {
            per_second: 500,
            burst: 5_000,
        }
    }
}

/// The bucket of one token. It holds a single number, the time at which it would be full again (the generic cell rate
/// algorithm), so that many requests at once need no more than a compare and swap.
#[derive(Debug)]
pub(crate) struct Bucket {
    began: Instant,
    full_at_ns: AtomicU64,
    allowance: Allowance,
}

impl Bucket {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self {
            began: Instant::now(),
            full_at_ns: AtomicU64::new(0),
            allowance,
        }
    }

    /// Takes one request out of it, or says how long to wait for the next.
    pub(crate) fn take(&self) -> Result<(), Duration> {
        let since = self.began.elapsed().as_nanos();
        self.take_at(u64::try_from(since).unwrap_or(u64::MAX))
    }

    fn take_at(&self, now_ns: u64) -> Result<(), Duration> {
        let Allowance { per_second, burst } = self.allowance;
        if per_second == 0 {
            return Ok(());
        }
        let each = 1_000_000_000 / u64::from(per_second);
        let most = each * u64::from(burst.max(1));
        let mut full_at = self.full_at_ns.load(Ordering::Relaxed);
        loop {
            let next = full_at.max(now_ns) + each;
            let over = next.saturating_sub(now_ns.saturating_add(most));
            if over > 0 {
                return Err(Duration::from_nanos(over));
            }
            match self.full_at_ns.compare_exchange_weak(
                full_at,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(other) => full_at = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_is_taken_at_once_and_the_rest_at_the_rate() {
        let bucket = Bucket::new(Allowance {
            per_second: 10,
            burst: 3,
        });
        for _ in 0..3 {
            assert_eq!(bucket.take_at(0), Ok(()));
        }
        assert_eq!(bucket.take_at(0), Err(Duration::from_millis(100)));
        // A refused request costs nothing.
        assert_eq!(bucket.take_at(SECOND / 10), Ok(()));
        assert_eq!(bucket.take_at(SECOND / 10), Err(Duration::from_millis(100)));
        // A long rest fills it to the burst, and no further.
        let later = 3_600 * SECOND;
        let taken = (0..10).filter(|_| bucket.take_at(later).is_ok()).count();
        assert_eq!(taken, 3);
    }

    #[test]
    fn no_rate_is_no_bound() {
        let bucket = Bucket::new(Allowance {
            per_second: 0,
            burst: 0,
        });
        assert!((0..100_000).all(|_| bucket.take_at(0).is_ok()));
    }
}
