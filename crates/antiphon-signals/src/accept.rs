//! What a job's `accept` line asks for, as it is measured: the best so far, told when it is first met and now and then on
//! the way there. It asks for nothing: whether a run goes on is not its question.

use std::collections::VecDeque;

use antiphon_types::{Accept, AcceptFrom, AttemptId, Finding, Millis, Reached, Timestamp};

/// Training losses behind one measure: a single batch says little.
const STEPS: usize = 64;
/// The best of a run that has not met its line is told at most so often,
const INTERVAL: Millis = Millis::from_secs(60);
/// and only once this part of what was missing is gone: a quiet run adds next to nothing to the log.
const CLOSER: f64 = 0.1;

/// Losses of the categories of one step.
#[derive(Debug, Clone, Copy)]
struct Probing {
    step: u64,
    sum: f64,
    count: u32,
}

/// The rule of one attempt.
#[derive(Debug)]
pub(crate) struct AcceptRule {
    attempt: AttemptId,
    accept: Accept,
    probing: Option<Probing>,
    /// Categories that the last complete step reported.
    categories: u32,
    losses: VecDeque<f64>,
    best: Option<(u64, i64)>,
    told: Option<(Timestamp, i64)>,
    /// Whether all steps are done: then nothing better is waited for.
    finished: bool,
}

impl AcceptRule {
    /// The rule of an attempt whose job has such a line.
    pub(crate) const fn new(attempt: AttemptId, accept: Accept) -> Self {
        Self {
            attempt,
            accept,
            probing: None,
            categories: 0,
            losses: VecDeque::new(),
            best: None,
            told: None,
            finished: false,
        }
    }

    /// Takes in the training loss of a step, and that probes of earlier steps are complete.
    pub(crate) fn step(&mut self, step: u64, loss: Option<f64>, at: Timestamp) -> Option<Finding> {
        let complete = self.probing.is_some_and(|probing| probing.step < step);
        match (&self.accept.from, loss) {
            (AcceptFrom::Probe { .. }, _) if complete => self.close(at),
            (AcceptFrom::Train, Some(loss)) => {
                if self.losses.len() == STEPS {
                    self.losses.pop_front();
                }
                self.losses.push_back(loss);
                let mean = self.losses.iter().sum::<f64>() / STEPS as f64;
                let full = self.losses.len() == STEPS;
                full.then(|| self.measured(step, mean, at)).flatten()
            }
            (AcceptFrom::Probe { .. } | AcceptFrom::Train | AcceptFrom::Eval, _) => None,
        }
    }

    /// Takes in a held-out loss.
    pub(crate) fn probe(
        &mut self,
        (step, category): (u64, &str),
        loss: f64,
        at: Timestamp,
    ) -> Option<Finding> {
        match &self.accept.from {
            AcceptFrom::Probe {
                category: Some(wanted),
            } => (wanted == category)
                .then(|| self.measured(step, loss, at))
                .flatten(),
            AcceptFrom::Probe { category: None } => {
                let other = self.probing.filter(|probing| probing.step != step);
                let before = other.and_then(|_| self.close(at));
                let probing = self.probing.get_or_insert(Probing {
                    step,
                    sum: 0.0,
                    count: 0,
                });
                probing.sum += loss;
                probing.count += 1;
                // A loss of no category is all there is. Of several, as many are waited for as the step before had.
                let complete = category.is_empty() || probing.count == self.categories;
                let now = complete.then(|| self.close(at)).flatten();
                now.or(before)
            }
            AcceptFrom::Train | AcceptFrom::Eval => None,
        }
    }

    /// Takes in what the trainer reports under a name of its own.
    pub(crate) fn eval(
        &mut self,
        (step, metric): (u64, &str),
        value: f64,
        at: Timestamp,
    ) -> Option<Finding> {
        let wanted = self.accept.from == AcceptFrom::Eval && self.accept.metric == metric;
        wanted.then(|| self.measured(step, value, at)).flatten()
    }

    /// Takes in that all steps are done.
    pub(crate) fn finished(&mut self, at: Timestamp) -> Option<Finding> {
        self.finished = true;
        self.tell(at)
    }

    /// Time has passed: what a sender still alive has not added to its last probes is not coming.
    pub(crate) fn tick(&mut self, at: Timestamp) -> Option<Finding> {
        self.close(at)
    }

    fn close(&mut self, at: Timestamp) -> Option<Finding> {
        let probing = self.probing.take()?;
        self.categories = probing.count;
        let mean = probing.sum / f64::from(probing.count);
        self.measured(probing.step, mean, at)
    }

    fn measured(&mut self, step: u64, value: f64, at: Timestamp) -> Option<Finding> {
        // The cast saturates: a value beyond what is counted lies on its side of any line.
        let micro = (value * 1e6).round() as i64;
        if self.best.is_some_and(|(best, _)| step < best) {
            // The run went back: what came after it never was.
            self.best = None;
            self.told = None;
        }
        if self
            .best
            .is_none_or(|(_, best)| self.accept.is_better(micro, best))
        {
            self.best = Some((step, micro));
        }
        self.tell(at)
    }

    /// The best, if it is worth telling.
    fn tell(&mut self, at: Timestamp) -> Option<Finding> {
        let (step, value_micro) = self.best?;
        let missing = |value: i64| value.abs_diff(self.accept.value_micro) as f64;
        let due = match self.told {
            None => true,
            // Met once is met.
            Some((_, told)) if self.accept.is_met(told) || told == value_micro => false,
            Some((when, told)) => {
                let closer = missing(value_micro) <= (1.0 - CLOSER) * missing(told);
                let later = at.since(when) >= INTERVAL;
                self.accept.is_met(value_micro) || self.finished || (closer && later)
            }
        };
        due.then(|| {
            self.told = Some((at, value_micro));
            Finding::Reached(Reached {
                attempt: self.attempt,
                step,
                value_micro,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_types::AcceptOp;

    fn rule(from: AcceptFrom, op: AcceptOp) -> AcceptRule {
        let accept = Accept {
            metric: "score".into(),
            from,
            op,
            value_micro: 1_200_000,
        };
        AcceptRule::new("job-1.1".parse().unwrap(), accept)
    }

    fn told(finding: Option<Finding>) -> Option<(u64, i64)> {
        match finding? {
            Finding::Reached(reached) => Some((reached.step, reached.value_micro / 1_000)),
            other => panic!("{other:?}"),
        }
    }

    fn s(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_probe_of_several_categories_counts_as_their_mean_once_it_is_complete() {
        let mut rule = rule(AcceptFrom::Probe { category: None }, AcceptOp::AtMost);
        assert_eq!(told(rule.probe((100, "law"), 1.0, s(1))), None);
        assert_eq!(told(rule.probe((100, "code"), 2.0, s(1))), None);
        // Half of it alone would have met the line.
        assert_eq!(told(rule.step(101, None, s(2))), Some((100, 1_500)));
        assert_eq!(told(rule.probe((200, "law"), 0.9, s(3))), None);
        assert_eq!(
            told(rule.probe((200, "code"), 1.3, s(3))),
            Some((200, 1_100))
        );
    }

    #[test]
    fn the_last_probe_of_a_run_is_told_while_its_sender_lives() {
        let mut rule = rule(AcceptFrom::Probe { category: None }, AcceptOp::AtMost);
        assert_eq!(told(rule.probe((100, "law"), 1.1, s(1))), None);
        assert_eq!(told(rule.tick(s(5))), Some((100, 1_100)));
        assert_eq!(told(rule.tick(s(10))), None);
    }

    #[test]
    fn the_way_to_a_line_is_told_now_and_then_and_its_meeting_at_once_and_once() {
        let mut rule = rule(AcceptFrom::Eval, AcceptOp::AtMost);
        let mut eval = |step, value, at| told(rule.eval((step, "score"), value, s(at)));
        assert_eq!(eval(100, 2.2, 0), Some((100, 2_200)));
        assert_eq!(eval(200, 2.0, 10), None, "too soon");
        assert_eq!(eval(300, 2.15, 70), Some((200, 2_000)), "the best");
        assert_eq!(eval(400, 1.95, 200), None, "hardly closer");
        assert_eq!(eval(500, 1.19, 210), Some((500, 1_190)));
        assert_eq!(eval(600, 1.0, 900), None);
    }

    #[test]
    fn a_run_that_went_back_has_to_meet_it_again() {
        let mut rule = rule(AcceptFrom::Eval, AcceptOp::AtLeast);
        let mut eval = |step, value, at| told(rule.eval((step, "score"), value, s(at)));
        assert_eq!(eval(500, 1.3, 0), Some((500, 1_300)));
        assert_eq!(eval(400, 1.1, 1), Some((400, 1_100)));
        assert_eq!(eval(600, 1.25, 2), Some((600, 1_250)));
    }

    #[test]
    fn the_end_of_a_run_tells_the_best_that_was_not_worth_telling() {
        let mut rule = rule(AcceptFrom::Eval, AcceptOp::AtMost);
        assert!(rule.eval((100, "score"), 2.0, s(0)).is_some());
        assert!(rule.eval((200, "score"), 1.99, s(1)).is_none());
        assert!(rule.eval((200, "other"), 0.5, s(1)).is_none());
        assert_eq!(told(rule.finished(s(2))), Some((200, 1_990)));
        assert_eq!(told(rule.finished(s(3))), None);
    }

    #[test]
    fn a_lucky_batch_does_not_make_a_training_loss_acceptable() {
        let mut rule = rule(AcceptFrom::Train, AcceptOp::AtMost);
        let mut step = |step, loss| told(rule.step(step, Some(loss), s(step)));
        for number in 1..64 {
            assert_eq!(step(number, 1.5), None);
        }
        assert_eq!(step(64, 0.1), Some((64, 1_478)));
        let first =
            (65..300).find_map(|number| step(number, 1.1).filter(|(_, loss)| *loss <= 1_200));
        assert!(first.is_some_and(|(step, _)| step > 100), "{first:?}");
    }
}
