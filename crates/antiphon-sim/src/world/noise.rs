//! By how much what training loops and users say is off. Draws from a seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

/// By how much reports are off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// Times of a step are off by up to this part, either way.
    pub step_time: f64,
    /// This part of the jobs ends at half to one and a half times what it says.
    pub off: f64,
    /// This part says a fifth of what it will do.
    pub far_off: f64,
}

impl Default for Noise {
    fn default() -> Self {
        Self {
            step_time: 0.15,
            off: 0.3,
            far_off: 0.1,
        }
    }
}

/// Draws for one job after the other.
pub(super) struct Draws {
    noise: Option<Noise>,
    random: ChaCha8Rng,
}

impl Draws {
    pub(super) fn new(noise: Option<Noise>, seed: u64) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed);
        Self { noise, random }
    }

    /// What a job really does as a part of what it says, and the time of a step that it names as a part of the true one.
    pub(super) fn next(&mut self) -> (f64, f64) {
        let Some(noise) = self.noise else {
            return (1.0, 1.0);
        };
        let which = self.unit();
        let amount = self.unit();
        let claims = if which < noise.far_off {
            5.0
        } else if which < noise.far_off + noise.off {
            0.5 + amount
        } else {
            1.0
        };
        let step = 1.0 + noise.step_time * (2.0 * self.unit() - 1.0);
        (claims, step)
    }

    /// Evenly from 0 to 1.
    fn unit(&mut self) -> f64 {
        f64::from(self.random.next_u32()) / f64::from(u32::MAX)
    }
}
