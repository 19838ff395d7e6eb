//! Storms at fixed seeds and at one that nobody has seen; and broken kernels, which a storm has to catch.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use antiphon_kernel::{State, apply, decide};
use antiphon_sim::storm::{Kernel, Report, run, run_kernel};
use antiphon_types::{Action, Body, Decision, Event, Exit, Observation};

/// Events of a seed: small enough for every run.
const EVENTS: u64 = 1_200;

fn holds(report: &Report) {
    let seed = report.seed;
    assert_eq!(
        report.violation, None,
        "again with `antiphon storm --seed {seed} --events {EVENTS}`"
    );
    assert!(report.events >= EVENTS);
}

#[test]
fn fixed_seeds_hold_and_end() {
    for seed in [1, 2, 25, 29] {
        holds(&run(seed, EVENTS));
    }
}

#[test]
fn a_new_seed_holds_and_ends() {
    let seed = RandomState::new().build_hasher().finish() >> 32;
    println!("antiphon storm --seed {seed} --events {EVENTS}");
    holds(&run(seed, EVENTS));
}

#[test]
fn one_seed_is_one_storm() {
    let (first, second) = (run(7, 600), run(7, 600));
    assert_eq!(first, second);
    assert_ne!(first.digest, run(8, 600).digest);
}

/// The first violation of some seeds, which have to show one.
fn caught(kernel: Kernel) -> String {
    let violations = (1..=12).filter_map(|seed| run_kernel(seed, EVENTS, kernel).violation);
    let mut violations = violations.map(|violation| violation.what);
    violations.next().expect("a broken kernel is caught")
}

/// Takes a task that has started for one that has ended: its GPUs are free while it runs.
fn takes_starts_for_ends(state: &mut State, event: &Event) {
    let Body::Observation(Observation::TaskStarted { task }) = &event.body else {
        return apply(state, event);
    };
    let exit = Exit::Code {
        code: 0,
        class: None,
        evidence: String::new(),
    };
    let task = task.clone();
    let body = Body::Observation(Observation::TaskEnded { task, exit });
    apply(
        state,
        &Event {
            body,
            ..event.clone()
        },
    );
}

#[test]
fn gpus_that_are_free_while_a_task_runs_are_caught() {
    let what = caught(Kernel {
        apply: takes_starts_for_ends,
        ..Kernel::default()
    });
    assert!(what.contains("while a task lives"), "{what}");
}

/// Forgets checkpoints.
fn forgets_checkpoints(state: &mut State, event: &Event) {
    if matches!(
        event.body,
        Body::Observation(Observation::Checkpointed { .. })
    ) {
        let body = Body::Tick;
        return apply(
            state,
            &Event {
                body,
                ..event.clone()
            },
        );
    }
    apply(state, event);
}

#[test]
fn a_checkpoint_that_is_acknowledged_and_lost_is_caught() {
    let what = caught(Kernel {
        apply: forgets_checkpoints,
        ..Kernel::default()
    });
    assert!(what.contains("acknowledged was"), "{what}");
}

/// Launches without one of the gang's tasks.
fn tears_gangs(state: &State) -> Decision {
    let mut decision = decide(state);
    for action in &mut decision.actions {
        if let Action::Launch { allocation, .. } = action
            && allocation.tasks.len() > 1
        {
            Arc::make_mut(&mut allocation.tasks).pop();
        }
    }
    decision
}

#[test]
fn a_gang_that_is_not_whole_is_caught() {
    let what = caught(Kernel {
        decide: tears_gangs,
        ..Kernel::default()
    });
    assert!(
        what.contains("would hold") || what.contains("whole") || what.contains("without role"),
        "{what}"
    );
}

/// Promises a grace and does not keep to it.
fn is_impatient(state: &State) -> Decision {
    let mut decision = decide(state);
    for action in &mut decision.actions {
        if let Action::Terminate { kill_at, .. } = action {
            *kill_at = state.now();
        }
    }
    decision
}

#[test]
fn a_grace_that_is_not_kept_is_caught() {
    let what = caught(Kernel {
        decide: is_impatient,
        ..Kernel::default()
    });
    assert!(what.contains("grace"), "{what}");
}
