//! The promises of the convergence rule, on the real curves of `tests/data/curves.txt`.

use super::fit::SMOOTH;
use super::*;
use crate::draw::Draw;
use crate::robust::median;

/// One training run: its losses over stretches of steps, and its held-out losses.
struct Run {
    name: &'static str,
    steps: u64,
    train: Vec<(u64, f64)>,
    probes: Vec<(u64, f64)>,
}

fn runs() -> Vec<Run> {
    let spread = |losses: &str, steps: u64| -> Vec<(u64, f64)> {
        let losses: Vec<f64> = losses
            .split(' ')
            .map(|loss| loss.parse().unwrap())
            .collect();
        let step = |place: usize| (place + 1) as u64 * steps / losses.len() as u64;
        let numbered = losses.iter().enumerate();
        numbered
            .map(|(place, loss)| (step(place), loss / 10_000.0))
            .collect()
    };
    let lines = include_str!("../../tests/data/curves.txt").lines();
    lines
        .map(|line| {
            let (head, losses) = line.split_once(" train ").unwrap();
            let (name, steps) = head.split_once(' ').unwrap();
            let (train, probes) = losses.split_once(" probe ").unwrap();
            let steps = steps.parse().unwrap();
            Run {
                name,
                steps,
                train: spread(train, steps),
                probes: spread(probes, steps),
            }
        })
        .collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Seen {
    Probes,
    TrainAlone,
}

impl Run {
    /// Feeds the run up to a part of it; returns what was said.
    fn feed(&self, rule: &mut ConvergenceRule, seen: Seen, until: f64) -> Vec<Conclusion> {
        rule.aims(Goal {
            total_steps: Some(self.steps),
            target_loss: rule.goal.target_loss,
        });
        let last = (self.steps as f64 * until) as u64;
        let mut probes = self.probes.iter().peekable();
        let mut said = Vec::new();
        for (step, loss) in self.train.iter().filter(|(step, _)| *step <= last) {
            said.extend(rule.observe(*step, *loss, Timestamp::ZERO));
            while let Some((step, loss)) =
                probes.next_if(|probe| seen == Seen::Probes && probe.0 <= *step)
            {
                rule.probe(*step, *loss);
            }
        }
        said
    }

    /// What truly remained at half-way: until the loss, smoothed over 5 % of the run, first reached its last value and
    /// 2 % of the whole fall; and that last value.
    fn truth(&self, seen: Seen) -> (f64, f64) {
        let curve = match seen {
            Seen::Probes => &self.probes,
            Seen::TrainAlone => &self.train,
        };
        let aside = (curve.len() as f64 * SMOOTH / 2.0).round() as usize;
        let smooth: Vec<f64> = (0..curve.len())
            .map(|at| {
                let around = &curve[at.saturating_sub(aside)..(at + aside + 1).min(curve.len())];
                around.iter().map(|(_, loss)| loss).sum::<f64>() / around.len() as f64
            })
            .collect();
        let end = smooth[smooth.len() - 1];
        let target = end + 0.02 * (curve[0].1 - end);
        let reached = smooth.iter().position(|loss| *loss <= target).unwrap();
        (curve[reached].0 as f64 - self.steps as f64 / 2.0, end)
    }
}

/// How well what remains was told at half-way.
struct Score {
    count: usize,
    median_error: f64,
    covered: f64,
    end_covered: f64,
}

/// Over the runs that had not reached their target by half-way.
fn score<'a>(runs: impl Iterator<Item = &'a Run>, seen: Seen) -> Score {
    let (mut errors, mut covered, mut end_covered) = (Vec::new(), 0, 0);
    for run in runs {
        let (remaining, end) = run.truth(seen);
        if remaining < 0.02 * run.steps as f64 {
            continue;
        }
        let mut rule = ConvergenceRule::default();
        run.feed(&mut rule, seen, 0.5);
        let Some(forecast) = rule.forecast() else {
            errors.push(f64::INFINITY);
            continue;
        };
        let told = forecast.remaining;
        errors.push((told.middle - remaining).abs() / remaining);
        covered += u32::from(told.low <= remaining && remaining <= told.high);
        end_covered += u32::from(forecast.end.low <= end && end <= forecast.end.high);
    }
    let count = errors.len();
    Score {
        count,
        median_error: median(&mut errors).unwrap(),
        covered: f64::from(covered) / count as f64,
        end_covered: f64::from(end_covered) / count as f64,
    }
}

fn print(what: &str, score: &Score) {
    println!(
        "{what}: {} curves, median error of the remaining steps {:.1} %, 80 % interval covers {:.0} %, that of the end's \
         loss {:.0} %",
        score.count,
        100.0 * score.median_error,
        100.0 * score.covered,
        100.0 * score.end_covered
    );
}

#[test]
fn remaining_steps_at_half_way_are_told_within_a_fifth_and_the_interval_holds_what_it_says() {
    let runs = runs();
    // Every second line shaped the rule; the others only judge it.
    let shaped = score(runs.iter().step_by(2), Seen::Probes);
    let held_out = score(runs.iter().skip(1).step_by(2), Seen::Probes);
    let all = score(runs.iter(), Seen::Probes);
    print("probes, the half that shaped the rule", &shaped);
    print("probes, the held-out half", &held_out);
    print("probes, all", &all);
    print(
        "training loss alone, shaped",
        &score(runs.iter().step_by(2), Seen::TrainAlone),
    );
    print(
        "training loss alone, held out",
        &score(runs.iter().skip(1).step_by(2), Seen::TrainAlone),
    );
    print(
        "training loss alone, all",
        &score(runs.iter(), Seen::TrainAlone),
    );
    assert!(all.count >= 60, "{}", all.count);
    for score in [&all, &held_out] {
        assert!(score.median_error <= 0.20, "{}", score.median_error);
        assert!((0.7..=0.9).contains(&score.covered), "{}", score.covered);
    }
}

/// How far the lowest of the last three held-out losses are above the best one, as a part of its fall.
fn memorized(run: &Run) -> f64 {
    let losses: Vec<f64> = run.probes.iter().map(|(_, loss)| *loss).collect();
    let best = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let last = losses[losses.len() - 3..]
        .iter()
        .copied()
        .fold(f64::INFINITY, f64::min);
    (last - best) / (losses[0] - best)
}

#[test]
fn real_runs_that_learn_by_heart_are_told_and_those_that_do_not_are_left_alone() {
    let (mut missed, mut surely, mut wrong) = (Vec::new(), 0, Vec::new());
    for run in runs() {
        let said = run.feed(&mut ConvergenceRule::default(), Seen::Probes, 1.0);
        let overfit = said.iter().find(|one| one.verdict == Verdict::Overfit);
        let above = memorized(&run);
        // A low-rank model with more parameters than its data hold; others are moved by a rate that is too high.
        if above > 0.05 && run.name.starts_with("factors") {
            surely += 1;
            missed.extend(overfit.is_none().then(|| run.name.to_owned()));
        } else if above < 0.01
            && let Some(one) = overfit
        {
            wrong.push(format!("{}: {}", run.name, one.evidence));
        }
        if let Some(one) = overfit {
            let Remedy::Direct(DirectiveBody::Rollback { step }) = one.remedies[0] else {
                panic!("{one:?}");
            };
            assert!(step < one.step && one.remedies[1] == Remedy::Direct(DirectiveBody::Stop));
        }
    }
    println!("overfit: missed {missed:?} of {surely}, wrong {wrong:?}");
    assert!(surely >= 8 && missed.is_empty());
    assert!(wrong.is_empty());
}

#[test]
fn no_real_run_diverges_or_swings_between_verdicts() {
    let mut most = 0;
    let mut by_verdict = std::collections::BTreeMap::new();
    for run in runs() {
        let said = run.feed(&mut ConvergenceRule::default(), Seen::Probes, 1.0);
        for one in &said {
            *by_verdict.entry(one.verdict).or_insert(0) += 1;
        }
        assert!(
            said.iter().all(|one| one.verdict != Verdict::Diverged),
            "{}: {said:?}",
            run.name
        );
        most = most.max(said.len());
    }
    println!("words a run at most {most}, in all {by_verdict:?}");
    assert!(most <= 8);
}

/// A loss of `level(step)` with noise of 0.05, for 2,000 steps.
fn synthetic(
    rule: &mut ConvergenceRule,
    steps: std::ops::Range<u64>,
    level: impl Fn(f64) -> f64,
) -> Vec<Conclusion> {
    let mut draw = Draw::new(steps.start);
    let fed = steps.filter_map(|step| {
        let loss = level(step as f64) + 0.05 * draw.normal();
        rule.observe(step, loss, Timestamp::ZERO)
    });
    fed.collect()
}

fn aiming(target_loss: Option<f64>) -> ConvergenceRule {
    let mut rule = ConvergenceRule::default();
    rule.aims(Goal {
        total_steps: Some(2_000),
        target_loss,
    });
    rule
}

fn verdicts(said: &[Conclusion]) -> Vec<Verdict> {
    said.iter().map(|one| one.verdict).collect()
}

#[test]
fn a_loss_that_is_no_number_or_stays_far_above_goes_back_to_before() {
    let learns = |step: f64| 2.0 + 3.0 * (-step / 300.0).exp();
    let mut rule = aiming(None);
    synthetic(&mut rule, 1..500, learns);
    let said = rule.observe(500, f64::NAN, Timestamp::ZERO).unwrap();
    assert_eq!(said.verdict, Verdict::Diverged);
    assert_eq!(
        said.remedies,
        [Remedy::Direct(DirectiveBody::Rollback { step: 499 })]
    );
    assert!(rule.observe(501, f64::INFINITY, Timestamp::ZERO).is_none());

    let mut rule = aiming(None);
    synthetic(&mut rule, 1..500, learns);
    // One hard batch, or fifteen, are none; sixteen are.
    assert!(synthetic(&mut rule, 500..515, |_| 6.0).is_empty());
    synthetic(&mut rule, 515..600, learns);
    let said = synthetic(&mut rule, 600..640, |_| 6.0);
    assert_eq!(verdicts(&said), [Verdict::Diverged]);
    assert_eq!(
        said[0].remedies,
        [Remedy::Direct(DirectiveBody::Rollback { step: 599 })]
    );
    assert_eq!(said[0].step, 615);
}

#[test]
fn a_run_that_no_longer_improves_counts_twice_as_far_and_may_stop() {
    let mut rule = aiming(None);
    let said = synthetic(&mut rule, 1..1_500, |step| 2.0 + 3.0 * (-step / 60.0).exp());
    let flat = said
        .iter()
        .find(|one| one.verdict == Verdict::Flat)
        .unwrap();
    let stop = Remedy::Direct(DirectiveBody::Stop);
    assert_eq!(flat.remedies, [Remedy::Weigh { permille: 2_000 }, stop]);
    // It learns again: it counts as it is, or better.
    let said = synthetic(&mut rule, 1_500..1_800, |step| {
        2.0 - (step - 1_500.0) / 300.0
    });
    assert!(!said.is_empty() && said[0].verdict != Verdict::Flat);
    assert!(matches!(
        said[0].remedies[..],
        [Remedy::Weigh { permille: ..=1_000 }]
    ));
}

#[test]
fn a_run_near_its_end_and_one_that_improves_fast_go_in_front() {
    let mut rule = aiming(None);
    let said = synthetic(&mut rule, 1..2_000, |step| 5.0 - 3.0 * step / 2_000.0);
    assert_eq!(verdicts(&said), [Verdict::Improving, Verdict::NearEnd]);
    assert_eq!(said[1].remedies, [Remedy::Weigh { permille: 500 }]);
}

#[test]
fn a_target_out_of_reach_is_told_and_one_within_reach_is_not() {
    let learns = |step: f64| 2.0 + 3.0 / (1.0 + step / 50.0);
    let mut rule = aiming(Some(1.8));
    assert!(verdicts(&synthetic(&mut rule, 1..1_000, learns)).contains(&Verdict::OffTrack));
    let mut rule = aiming(Some(2.2));
    assert!(!verdicts(&synthetic(&mut rule, 1..2_000, learns)).contains(&Verdict::OffTrack));
}

/// A run that resumes has no calm step of its own yet, and step 0 is not what it came from.
#[test]
fn a_run_that_diverges_at_once_goes_back_to_what_it_resumed_from() {
    let said = aiming(None).observe(301, f64::NAN, Timestamp::ZERO);
    assert_eq!(
        said.unwrap().remedies,
        [Remedy::Direct(DirectiveBody::Rollback { step: 300 })]
    );
}

#[test]
fn after_going_back_it_judges_anew() {
    let learns = |step: f64| 2.0 + 3.0 * (-step / 300.0).exp();
    let mut rule = aiming(None);
    synthetic(&mut rule, 1..500, learns);
    assert!(rule.observe(500, f64::NAN, Timestamp::ZERO).is_some());
    // The same bad batch once more: the checkpoint of step 449 did not help, an older one may.
    synthetic(&mut rule, 450..500, learns);
    let said = rule.observe(500, f64::NAN, Timestamp::ZERO).unwrap();
    assert_eq!(
        said.remedies,
        [Remedy::Direct(DirectiveBody::Rollback { step: 448 })]
    );
    let said = synthetic(&mut rule, 400..900, learns);
    assert!(!verdicts(&said).contains(&Verdict::Diverged));
    assert!(rule.observe(900, f64::NAN, Timestamp::ZERO).is_some());
}

#[test]
fn memory_does_not_grow_with_the_steps() {
    let mut rule = ConvergenceRule::default();
    for step in 1..200_000_u64 {
        rule.observe(step, 1.0 + 1.0 / step as f64, Timestamp::ZERO);
        rule.probe(step, 1.0);
    }
    assert!(rule.train.len() <= 256 && rule.probes.len() <= 256);
    assert!(rule.recent.len() <= 64 && rule.recent_probes.len() <= PROBES);
}
