//! The promises of the straggler rule, on series with fixed seeds.

use super::*;
use crate::draw::Draw;

/// How one gang's own step times scatter.
#[derive(Debug, Clone, Copy)]
enum Noise {
    /// Normal, 4 %.
    Gaussian,
    /// Log-normal, 6 %.
    LogNormal,
    /// Student's t of two degrees of freedom: no variance at all; scale 3 %.
    HeavyTailed,
    /// Normal, 3 %, while the whole gang drifts by 40 % and each task by up to 3 %.
    Drifting,
    /// First-order autoregressive, 0.8 from step to step, 3 % overall, and half of it common to the gang.
    Correlated,
    /// Normal, 2 %, with one task or all of them held for 1 to 20 steps' time every 25 steps or so.
    Pauses,
}

const NOISES: [Noise; 6] = [
    Noise::Gaussian,
    Noise::LogNormal,
    Noise::HeavyTailed,
    Noise::Drifting,
    Noise::Correlated,
    Noise::Pauses,
];

struct Gang {
    draw: Draw,
    noise: Noise,
    base_ms: f64,
    /// What each task is always slower or faster by, and drifts by over the series.
    tasks: Vec<(f64, f64)>,
    correlated: Vec<f64>,
    common: f64,
}

impl Gang {
    fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let noise = NOISES[draw.index(6) as usize];
        let size = [8, 16, 32, 64][draw.index(4) as usize];
        let base_ms = [200.0, 700.0, 3_000.0][draw.index(3) as usize];
        let tasks = (0..size).map(|_| (0.01 * draw.normal(), draw.between(-0.03, 0.03)));
        Self {
            tasks: tasks.collect(),
            correlated: vec![0.0; size],
            common: 0.0,
            draw,
            noise,
            base_ms,
        }
    }

    /// The own time of each task in a step, `done` of the series being over.
    fn step(&mut self, done: f64) -> Vec<f64> {
        let draw = &mut self.draw;
        self.common = 0.8 * self.common + 0.6 * draw.normal();
        let all_pause = draw.chance(0.04).then(|| draw.between(1.0, 20.0));
        let one_pauses = draw
            .chance(0.04)
            .then(|| draw.index(self.tasks.len() as u64));
        let mut times = Vec::with_capacity(self.tasks.len());
        for (rank, (always, drift)) in self.tasks.iter().enumerate() {
            let factor = match self.noise {
                Noise::Gaussian => 1.0 + 0.04 * draw.normal(),
                Noise::LogNormal => (0.06 * draw.normal()).exp(),
                Noise::HeavyTailed => {
                    (1.0 + 0.03 * draw.normal() / draw.exponential().sqrt()).max(0.3)
                }
                Noise::Drifting => {
                    (1.0 + 0.03 * draw.normal()) * (1.0 + 0.4 * done) * (1.0 + drift * done)
                }
                Noise::Correlated => {
                    let own = &mut self.correlated[rank];
                    *own = 0.8 * *own + 0.6 * draw.normal();
                    1.0 + 0.03 * (*own + self.common) / 2_f64.sqrt()
                }
                Noise::Pauses => {
                    let held = one_pauses == Some(rank as u64);
                    let held = if held { draw.between(1.0, 20.0) } else { 0.0 };
                    1.0 + 0.02 * draw.normal() + held + all_pause.unwrap_or(0.0)
                }
            };
            times.push(self.base_ms * (1.0 + always) * factor);
        }
        times
    }
}

/// Feeds one step: all wait for the slowest, and say how long they did.
fn feed(rule: &mut StragglerRule, step: u64, own_ms: &[f64]) -> Vec<Conclusion> {
    feed_with(rule, step, own_ms, None)
}

/// The same, with one task whose device says that it is throttled.
fn feed_with(
    rule: &mut StragglerRule,
    step: u64,
    own_ms: &[f64],
    throttled: Option<u32>,
) -> Vec<Conclusion> {
    let step_ms = own_ms.iter().fold(0.0, |a: f64, b| a.max(*b)) + 30.0;
    let mut said = Vec::new();
    for (rank, own_ms) in own_ms.iter().enumerate() {
        let signal = TaskStep {
            task: rank as u32,
            step,
            step_ms,
            communication_ms: Some(step_ms - own_ms),
            throttled: throttled == Some(rank as u32),
        };
        said.extend(rule.observe(&signal, Timestamp::from_millis(step * 1_000)));
    }
    said
}

fn accused(said: &[Conclusion]) -> Vec<&str> {
    let slow = said.iter().filter(|one| one.verdict == Verdict::Slow);
    slow.map(|one| one.subject.as_str()).collect()
}

fn steps_of_a_window(rule: &StragglerRule) -> u64 {
    rule.steps.expect("the first window is over")
}

#[test]
fn of_a_thousand_healthy_noisy_gangs_at_most_one_is_accused() {
    let mut wrong = Vec::new();
    for seed in 0..1_000 {
        let mut gang = Gang::new(seed);
        let mut rule = StragglerRule::default();
        let mut said = Vec::new();
        for step in 1..=800 {
            let times = gang.step(step as f64 / 800.0);
            said.extend(feed(&mut rule, step, &times));
        }
        if let Some(task) = accused(&said).first() {
            wrong.push((seed, gang.noise, (*task).to_owned()));
        }
    }
    println!("healthy gangs accused: {} of 1000", wrong.len());
    assert!(wrong.len() <= 1, "{wrong:?}");
}

#[test]
fn a_task_that_is_fifteen_percent_slow_is_named_within_three_windows() {
    let mut named = 0;
    let mut others = 0;
    let mut by_noise = BTreeMap::new();
    for seed in 10_000..11_000 {
        let mut gang = Gang::new(seed);
        let mut rule = StragglerRule::default();
        let slow = gang.draw.index(gang.tasks.len() as u64) as usize;
        gang.tasks[slow].0 = 0.0;
        let mut step = 0;
        while rule.steps.is_none() || rule.window < 4 {
            step += 1;
            let times = gang.step(0.0);
            assert!(accused(&feed(&mut rule, step, &times)).is_empty());
        }
        // Slow for exactly three windows; the third is over when the next step begins.
        let length = steps_of_a_window(&rule);
        let begins = (step / length + 1) * length;
        let mut said = Vec::new();
        while step < begins + 3 * length {
            step += 1;
            let mut times = gang.step(0.0);
            if step >= begins {
                times[slow] *= 1.15;
            }
            said.extend(feed(&mut rule, step, &times));
        }
        let found = accused(&said).contains(&format!("task {slow}").as_str());
        named += u32::from(found);
        others += accused(&said).len() - usize::from(found);
        let (of, hit) = by_noise
            .entry(format!("{:?}", gang.noise))
            .or_insert((0, 0));
        (*of, *hit) = (*of + 1, *hit + u32::from(found));
    }
    println!(
        "named within three windows: {named} of 1000, others accused: {others}, by noise {by_noise:?}"
    );
    assert!(named >= 950, "{named}: {by_noise:?}");
    assert!(others <= 1, "{others}");
}

/// A steady gang of eight whose task 3 takes `excess` longer; `windows` windows from `step` on.
fn run(rule: &mut StragglerRule, step: &mut u64, windows: u64, excess: f64) -> Vec<Conclusion> {
    run_with(rule, step, windows, excess, None)
}

fn run_with(
    rule: &mut StragglerRule,
    step: &mut u64,
    windows: u64,
    excess: f64,
    throttled: Option<u32>,
) -> Vec<Conclusion> {
    let length = rule.steps.unwrap_or(STEPS_MIN);
    let mut said = Vec::new();
    for _ in 0..windows * length {
        *step += 1;
        let mut times = [1_000.0; 8];
        for (rank, ms) in times.iter_mut().enumerate() {
            *ms += ((*step * 7 + rank as u64 * 3) % 11) as f64;
        }
        times[3] *= 1.0 + excess;
        said.extend(feed_with(rule, *step, &times, throttled));
    }
    said
}

fn settled() -> (StragglerRule, u64) {
    let (mut rule, mut step) = (StragglerRule::default(), 0);
    assert!(run(&mut rule, &mut step, 4, 0.0).is_empty());
    (rule, step)
}

#[test]
fn remedies_escalate_while_it_stays_slow_and_end_with_another_node() {
    let (mut rule, mut step) = settled();
    let said = run(&mut rule, &mut step, 9, 0.25);
    let remedies: Vec<&Remedy> = said.iter().flat_map(|one| &one.remedies).collect();
    assert_eq!(
        remedies,
        [
            &drain(3, 0, 1),
            &drain(3, 800, 0),
            &Remedy::Replace { task: 3 }
        ]
    );
    let spread = said.iter().filter(|one| one.verdict == Verdict::Spread);
    assert_eq!(spread.count(), 1);
}

/// Two tasks of 50 ms a step, whose windows have 200 steps; `times` says what a step takes from `from` on.
fn two_from(
    from: u64,
    steps: u64,
    times: impl Fn(u64) -> [f64; 2],
) -> (StragglerRule, Vec<(u64, Conclusion)>) {
    let (mut rule, mut said) = (StragglerRule::default(), Vec::new());
    for step in 1..=steps {
        let own_ms = if step < from { [50.0; 2] } else { times(step) };
        let of_step = feed(&mut rule, step, &own_ms);
        said.extend(of_step.into_iter().map(|one| (step, one)));
    }
    (rule, said)
}

/// A step became forty times as long, and three windows of what used to be ten seconds would have been twenty minutes.
#[test]
fn a_task_that_falls_far_behind_is_told_within_sixteen_steps() {
    let (mut rule, said) = two_from(60, 75, |_| [50.0, 2_000.0]);
    assert!(
        steps_of_a_window(&rule) == 200 && said.len() == 1,
        "{said:?}"
    );
    let (step, slow) = &said[0];
    assert_eq!((*step, slow.subject.as_str()), (75, "task 1"));
    assert_eq!(slow.remedies, [drain(1, 25, 0)]);
    // With so small a part its step is as short as those of the others, and nothing more is asked for.
    rule.drained(1, 25);
    let calm = (76..190).flat_map(|step| feed(&mut rule, step, &[50.0, 50.0]));
    assert_eq!(calm.count(), 0);
    // Where the trainer could not make its part small enough, it has to go.
    let still = (190..230).flat_map(|step| feed(&mut rule, step, &[50.0, 2_000.0]));
    let remedies: Vec<Remedy> = still.flat_map(|one| one.remedies).collect();
    assert_eq!(remedies, [Remedy::Replace { task: 1 }]);
}

#[test]
fn steps_that_became_longer_for_everybody_accuse_nobody() {
    let (_, said) = two_from(60, 199, |_| [400.0, 410.0]);
    assert!(accused_at(&said).is_empty(), "{said:?}");
    // Nor do fifteen in a row, however long.
    let (_, said) = two_from(60, 199, |step| {
        [50.0, if step % 16 == 0 { 50.0 } else { 9_000.0 }]
    });
    assert!(accused_at(&said).is_empty(), "{said:?}");
}

/// Reports of one task may come long before those of the others, which took just as long.
#[test]
fn a_task_is_not_accused_before_the_others_have_reported_the_same_steps() {
    let mut rule = two_from(60, 59, |_| [50.0; 2]).0;
    let mut said = Vec::new();
    for task in [1, 0] {
        for step in 60..120 {
            let signal = TaskStep {
                task,
                step,
                step_ms: 900.0,
                communication_ms: Some(10.0),
                throttled: false,
            };
            said.extend(rule.observe(&signal, Timestamp::ZERO));
        }
    }
    assert!(accused(&said).is_empty(), "{said:?}");
}

fn accused_at(said: &[(u64, Conclusion)]) -> Vec<u64> {
    let slow = said.iter().filter(|(_, one)| one.verdict == Verdict::Slow);
    slow.map(|(step, _)| *step).collect()
}

#[test]
fn a_spread_of_a_tenth_is_told_once_and_nobody_is_accused() {
    let (mut rule, mut step) = settled();
    let said = run(&mut rule, &mut step, 9, 0.12);
    let verdicts: Vec<Verdict> = said.iter().map(|one| one.verdict).collect();
    assert_eq!(verdicts, [Verdict::Spread]);
    assert!(said[0].remedies.is_empty() && said[0].evidence.contains("task 3"));
    let said = run(&mut rule, &mut step, 4, 0.0);
    let verdicts: Vec<Verdict> = said.iter().map(|one| one.verdict).collect();
    assert_eq!(verdicts, [Verdict::Cleared]);
}

#[test]
fn a_smaller_share_that_makes_up_for_it_is_enough_and_is_restored_on_recovery() {
    let (mut rule, mut step) = settled();
    let said = run(&mut rule, &mut step, 4, 0.25);
    assert_eq!(accused(&said).len(), 2, "{said:?}");
    rule.drained(3, 800);
    assert!(accused(&run(&mut rule, &mut step, 9, 0.0)).is_empty());
    // As fast as the others again, with four fifths of the rows.
    let said = run(&mut rule, &mut step, 5, -0.2);
    let restored: Vec<&Conclusion> = said.iter().filter(|one| one.subject == "task 3").collect();
    assert_eq!(restored.len(), 1, "{said:?}");
    assert_eq!(restored[0].verdict, Verdict::Cleared);
    assert_eq!(restored[0].remedies, [drain(3, 1_000, 0)]);
}

#[test]
fn a_throttled_task_gets_a_smaller_share_after_one_window_until_it_has_recovered() {
    let (mut rule, mut step) = settled();
    let begins = step;
    let said = run_with(&mut rule, &mut step, 2, 0.1, Some(3));
    let of_task: Vec<&Conclusion> = said.iter().filter(|one| one.subject == "task 3").collect();
    assert_eq!(of_task.len(), 1, "{said:?}");
    assert_eq!(of_task[0].verdict, Verdict::Throttled);
    assert!(of_task[0].step <= begins + 2 * steps_of_a_window(&rule));
    let evidence = &of_task[0].evidence;
    assert!(
        evidence.starts_with("its device says that it is throttled: "),
        "{evidence}"
    );
    let [
        Remedy::Direct(DirectiveBody::Drain {
            task: 3,
            share_permille,
            steps: 0,
        }),
    ] = of_task[0].remedies[..]
    else {
        panic!("{:?}", of_task[0].remedies)
    };
    assert!((900..=920).contains(&share_permille), "{share_permille}");
    rule.drained(3, share_permille);
    // Its share makes up for its speed: nothing more is asked for while it is throttled.
    let share = f64::from(share_permille) / 1_000.0;
    let said = run_with(&mut rule, &mut step, 6, 1.1 * share - 1.0, Some(3));
    assert!(said.iter().all(|one| one.subject != "task 3"), "{said:?}");
    let said = run(&mut rule, &mut step, 5, share - 1.0);
    let restored: Vec<&Remedy> = said.iter().flat_map(|one| &one.remedies).collect();
    assert_eq!(restored, [&drain(3, 1_000, 0)]);
}

#[test]
fn a_device_that_says_that_it_is_throttled_but_is_as_fast_is_left_alone() {
    let (mut rule, mut step) = settled();
    let said = run_with(&mut rule, &mut step, 9, 0.02, Some(3));
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn after_a_recovery_it_is_left_alone_for_a_while() {
    let (mut rule, mut step) = settled();
    run(&mut rule, &mut step, 4, 0.25);
    let cleared = run(&mut rule, &mut step, 4, 0.0);
    assert!(
        cleared
            .iter()
            .any(|one| one.verdict == Verdict::Cleared && one.subject == "task 3")
    );
    assert!(accused(&run(&mut rule, &mut step, 5, 0.25)).is_empty());
    assert!(!accused(&run(&mut rule, &mut step, 6, 0.25)).is_empty());
}

#[test]
fn two_windows_are_not_three() {
    let (mut rule, mut step) = settled();
    for _ in 0..5 {
        assert!(accused(&run(&mut rule, &mut step, 2, 0.25)).is_empty());
        assert!(accused(&run(&mut rule, &mut step, 1, 0.0)).is_empty());
    }
}

#[test]
fn a_rollback_and_a_leap_of_steps_accuse_nobody_and_do_not_stall_the_rule() {
    let (mut rule, _) = settled();
    for to in [7, 1 << 40, 50, 1 << 50] {
        let mut step = to;
        assert!(accused(&run(&mut rule, &mut step, 3, 0.0)).is_empty());
    }
    let mut step = 500;
    run(&mut rule, &mut step, 2, 0.0);
    assert!(!accused(&run(&mut rule, &mut step, 5, 0.25)).is_empty());
}

#[test]
fn memory_is_bounded_whatever_tasks_and_steps_are_sent() {
    let mut draw = Draw::new(1);
    let mut rule = StragglerRule::default();
    for _ in 0..200_000 {
        let bits = draw.index(60);
        let signal = TaskStep {
            task: draw.index(1 << 20) as u32,
            step: draw.index(1 << bits),
            step_ms: draw.between(-1.0, 1e6),
            communication_ms: Some(draw.between(-1e6, 1e6)),
            throttled: draw.chance(0.5),
        };
        rule.observe(&signal, Timestamp::ZERO);
    }
    assert!(rule.tasks.len() <= TASKS_MAX && rule.pending.len() <= 2 * TASKS_MAX);
    let kept = rule
        .tasks
        .values()
        .map(|task| task.now.len() + task.next.len());
    assert!(kept.sum::<usize>() as u64 <= 2 * TASKS_MAX as u64 * SAMPLES_MAX);
}
