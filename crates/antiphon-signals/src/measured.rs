//! What a planned run really needs: its step time and its memory, told once enough steps were seen and again when either has
//! moved by then. What plans are held against; judges nothing.

use antiphon_types::{AttemptId, Bytes, Finding, Measured};

use crate::signal::{Signal, finite};

/// Steps before the first word: half of them outweigh those in which kernels are compiled and caches filled.
const ENOUGH: u64 = 30;
/// A step time that moved by less is told no second time.
const STEP_MOVED: f64 = 0.05;
/// The same of memory, which repeats itself exactly where nothing changed.
const MEMORY_MOVED: f64 = 0.01;

#[derive(Debug, Default)]
pub(crate) struct MeasuredRule {
    steps: u64,
    /// The newest step, so that the tasks of a gang count once.
    newest: Option<u64>,
    peak_bytes: f64,
    told: Option<Measured>,
}

impl MeasuredRule {
    /// Takes a step in; the median step so far is what is told.
    pub(crate) fn observe(
        &mut self,
        attempt: AttemptId,
        signal: &Signal<'_>,
        median_ms: Option<f64>,
    ) -> Option<Finding> {
        if let Some(bytes) = finite(signal.memory_peak_bytes) {
            self.peak_bytes = self.peak_bytes.max(bytes);
        }
        let step = signal.step?;
        if self.newest.is_some_and(|newest| step <= newest) {
            return None;
        }
        self.newest = Some(step);
        self.steps += 1;
        let due = self.told.map_or(ENOUGH, |told| told.steps * 2);
        if self.steps < due {
            return None;
        }
        let measured = Measured {
            attempt,
            steps: self.steps,
            step_us: (median_ms? * 1e3).round().clamp(1.0, 1e15) as u64,
            allocated: Bytes::new(self.peak_bytes.clamp(0.0, 1e18) as u64),
        };
        let moved = |now: u64, then: u64, share: f64| {
            (now as f64 - then as f64).abs() > share * then as f64
        };
        let same = self.told.is_some_and(|told| {
            !moved(measured.step_us, told.step_us, STEP_MOVED)
                && !moved(measured.allocated.get(), told.allocated.get(), MEMORY_MOVED)
        });
        // What was looked at in vain is looked at again after as many steps as all so far.
        let told = self.told.map_or(measured, |told| Measured {
            steps: measured.steps,
            ..told
        });
        self.told = Some(if same { told } else { measured });
        (!same).then_some(Finding::Measured(measured))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        rule: &mut MeasuredRule,
        steps: std::ops::Range<u64>,
        ms: f64,
        bytes: f64,
    ) -> Vec<Measured> {
        let signals = steps.map(|step| Signal {
            step: Some(step),
            memory_peak_bytes: Some(bytes),
            ..Signal::default()
        });
        signals
            .filter_map(|signal| rule.observe("job-1.1".parse().unwrap(), &signal, Some(ms)))
            .map(|finding| match finding {
                Finding::Measured(measured) => measured,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_steady_run_is_told_once() {
        let mut rule = MeasuredRule::default();
        let told = run(&mut rule, 0..5_000, 812.4, 4e9);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].steps, told[0].step_us), (30, 812_400));
        assert_eq!(told[0].allocated, Bytes::new(4_000_000_000));
    }

    #[test]
    fn memory_that_grows_is_told_again() {
        let mut rule = MeasuredRule::default();
        assert_eq!(run(&mut rule, 0..40, 800.0, 4e9).len(), 1);
        let told = run(&mut rule, 40..200, 800.0, 5e9);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].allocated, Bytes::new(5_000_000_000));
    }

    #[test]
    fn the_tasks_of_a_gang_count_a_step_once() {
        let mut rule = MeasuredRule::default();
        let told = (0..8)
            .flat_map(|_| run(&mut rule, 0..29, 800.0, 4e9))
            .count();
        assert_eq!(told, 0);
    }
}
