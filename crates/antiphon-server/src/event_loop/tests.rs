//! What the loop promises: one commit for an input and what it causes, nothing before it is durable, and no bug or disk
//! that fails makes it act on what is not in the log.

use std::sync::atomic::{AtomicBool, Ordering};

use antiphon_store::{Fault, FaultyLog, MemoryLog};
use antiphon_types::{DirectiveId, Exit};

use super::*;
use crate::fixture::*;
use crate::recovery::{load, state_digest};

fn key(text: &str, content: &str) -> Option<CommandId> {
    Some(CommandId {
        key: text.into(),
        content: content.into(),
    })
}

#[tokio::test]
async fn a_command_and_what_it_causes_share_one_commit() {
    let log = WatchedLog::new(MemoryLog::new());
    let server = Running::on(log.clone()).await;
    server.offer_nodes().await;
    server.command(submit(spec("a", 8))).await.unwrap();
    assert_eq!(
        log.commits(),
        [vec!["observation"], vec!["command", "decision"]]
    );
}

#[tokio::test]
async fn nothing_is_answered_shown_or_acted_on_before_it_is_durable() {
    let log = WatchedLog::new(MemoryLog::new());
    let mut server = Running::on(log.clone()).await;
    server.offer_nodes().await;
    let spent = log.gate.forget_permits(usize::MAX);
    assert!(spent > 0);

    let inputs = server.inputs.clone();
    let command = submit(spec("a", 8));
    let answer = tokio::spawn(async move { inputs.command("x".into(), None, command).await });
    settle(|| log.commits().len() == 2).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!answer.is_finished());
    assert_eq!(state_of(&server.view, 1), "absent");
    assert_eq!(server.actions(), []);

    log.gate.add_permits(1);
    assert_eq!(answer.await.unwrap().unwrap().job, Some(JobId(1)));
    assert_eq!(state_of(&server.view, 1), "starting");
    assert!(matches!(
        server.actions.recv().await,
        Some(Action::Launch { .. })
    ));
}

#[tokio::test]
async fn inputs_that_wait_share_the_next_commit() {
    let log = WatchedLog::new(MemoryLog::new());
    let server = Running::on(log.clone()).await;
    server.offer_nodes().await;
    log.gate.forget_permits(usize::MAX);
    let send = |name: &str| {
        let (inputs, command) = (server.inputs.clone(), submit(spec(name, 1)));
        tokio::spawn(async move { inputs.command("x".into(), None, command).await })
    };
    let first = send("first");
    settle(|| log.commits().len() == 2).await;
    let others = ["b", "c", "d"].map(send);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    log.gate.add_permits(100);
    first.await.unwrap().unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
    let kinds = vec!["command", "command", "command", "decision"];
    assert_eq!(log.commits()[2], kinds);
}

#[tokio::test]
async fn a_failed_append_stops_the_loop_and_nobody_hears_of_success() {
    for fault in [Fault::Lost, Fault::Unreported] {
        let kept = MemoryLog::new();
        let mut server = Running::on(FaultyLog::new(kept.clone(), 2, fault)).await;
        server.offer_nodes().await;
        let answer = server.command(submit(spec("a", 8))).await;
        assert_eq!(answer, Err(Refused::Stopping));
        assert_eq!(state_of(&server.view, 1), "absent");
        let nodes = nodes();
        let told = server
            .inputs
            .observe(Observation::Inventory {
                nodes,
                partitions: Vec::new(),
                resources: std::collections::BTreeMap::new(),
            })
            .await;
        assert_eq!(told, Err(Refused::Stopping));
        assert!(matches!(
            server.ended.await.unwrap(),
            Err(StoreError::Io { .. })
        ));
        assert_eq!(server.actions.recv().await, None, "nothing was acted on");

        // After the restart the log says which it was, and the loop goes on from there.
        let mut again = Running::on(kept).await;
        match fault {
            Fault::Lost => assert_eq!(state_of(&again.view, 1), "absent"),
            Fault::Unreported => assert_eq!(state_of(&again.view, 1), "starting"),
        }
        let repeated = again.command(submit(spec("a", 8))).await;
        assert_eq!(repeated.is_ok(), fault == Fault::Lost, "{repeated:?}");
        assert_eq!(again.actions().len(), usize::from(fault == Fault::Lost));
    }
}

#[tokio::test]
async fn a_decide_that_panics_leads_to_safe_mode_and_jobs_run_on() {
    static BROKEN: AtomicBool = AtomicBool::new(false);
    fn sometimes(state: &State) -> Decision {
        assert!(!BROKEN.load(Ordering::SeqCst), "two and two are five");
        decide(state)
    }
    let log = WatchedLog::new(MemoryLog::new());
    let mut server = Running::deciding(log.clone(), sometimes).await;
    server.with_a_running_job().await;

    BROKEN.store(true, Ordering::SeqCst);
    let accepted = server.command(submit(spec("second", 4))).await.unwrap();
    assert_eq!(accepted.job, Some(JobId(2)), "the command itself is fine");
    assert_eq!(log.commits().last().unwrap(), &["command", "safe_mode"]);
    let bug = "two and two are five".to_owned();
    assert_eq!(*server.view.state().mode(), Mode::Safe { bug });
    assert!(is_running(&server.view, 1));
    assert_eq!(server.actions(), []);
    // The log does not fill up with the same bug.
    server
        .command(Command::Hold { job: JobId(2) })
        .await
        .unwrap();
    assert_eq!(log.commits().last().unwrap(), &["command"]);

    BROKEN.store(false, Ordering::SeqCst);
    server
        .command(Command::Release { job: JobId(2) })
        .await
        .unwrap();
    assert_eq!(state_of(&server.view, 2), "pending", "nothing starts");
    server
        .command(Command::Cancel { job: JobId(1) })
        .await
        .unwrap();
    assert!(matches!(
        server.actions.recv().await,
        Some(Action::Terminate { .. })
    ));
    server.command(Command::Unpause).await.unwrap();
    assert_eq!(*server.view.state().mode(), Mode::Deciding);
    assert_eq!(state_of(&server.view, 2), "starting");
    let replayed = load(&log.log).await.unwrap();
    assert_eq!(state_digest(&replayed), state_digest(&server.view.state()));
}

#[tokio::test]
async fn leaving_safe_mode_while_the_bug_is_there_comes_back_to_it() {
    fn broken(_: &State) -> Decision {
        panic!("always")
    }
    let log = WatchedLog::new(MemoryLog::new());
    let server = Running::deciding(log.clone(), broken).await;
    server.offer_nodes().await;
    server.command(Command::Unpause).await.unwrap();
    assert_eq!(log.commits().last().unwrap(), &["command", "safe_mode"]);
    assert!(matches!(*server.view.state().mode(), Mode::Safe { .. }));
}

#[tokio::test]
async fn a_decision_that_is_impossible_is_not_logged() {
    fn greedy(state: &State) -> Decision {
        let mut decision = decide(state);
        for action in &mut decision.actions {
            if let Action::Launch { allocation, .. } = action {
                let mut tasks = allocation.tasks.to_vec();
                tasks.extend_from_within(..);
                *allocation = tasks.into();
            }
        }
        decision
    }
    let log = WatchedLog::new(MemoryLog::new());
    let mut server = Running::deciding(log.clone(), greedy).await;
    server.offer_nodes().await;
    server.command(submit(spec("a", 8))).await.unwrap();
    assert_eq!(log.commits().last().unwrap(), &["command", "safe_mode"]);
    assert_eq!(state_of(&server.view, 1), "pending");
    assert_eq!(server.actions(), []);
}

#[tokio::test]
async fn a_decision_that_breaks_off_half_folded_leaves_the_state_as_it_was() {
    fn half(state: &State) -> Decision {
        let mut decision = decide(state);
        if let Some(Action::Launch { attempt, .. }) = decision.actions.first() {
            let job = attempt.job;
            let directive = antiphon_types::Directive {
                id: DirectiveId(99),
                body: antiphon_types::DirectiveBody::Checkpoint,
                attempt: None,
                cause: antiphon_types::DirectiveCause::Person,
                reason: String::new(),
                at: state.now(),
                ack: None,
            };
            let directive = Box::new(directive);
            decision.actions.push(Action::Direct { job, directive });
        }
        decision
    }
    let log = WatchedLog::new(MemoryLog::new());
    let mut server = Running::deciding(log.clone(), half).await;
    server.offer_nodes().await;
    server.command(submit(spec("a", 8))).await.unwrap();
    assert_eq!(log.commits().last().unwrap(), &["command", "safe_mode"]);
    assert_eq!(state_of(&server.view, 1), "pending");
    assert_eq!(server.actions(), []);
    check::invariants(&server.view.state()).unwrap();
    let replayed = load(&log.log).await.unwrap();
    assert_eq!(state_digest(&replayed), state_digest(&server.view.state()));
}

/// A state that no log leads to: a job that lists a dependent which does not exist.
async fn inconsistent() -> State {
    let server = Running::on(MemoryLog::new()).await;
    server.offer_nodes().await;
    server
        .command(Command::Pause { reason: "".into() })
        .await
        .unwrap();
    server.command(submit(spec("a", 8))).await.unwrap();
    let mut known = serde_json::to_value(&*server.view.state()).unwrap();
    known["jobs"]["job-1"]["dependents"] = serde_json::json!(["job-9"]);
    let mut state = serde_json::to_value(State::default()).unwrap();
    state["jobs"] = known["jobs"].take();
    state["teams"] = known["teams"].take();
    state["jobs_submitted"] = 1.into();
    serde_json::from_value(state).unwrap()
}

#[tokio::test]
async fn a_panicking_apply_is_answered_as_a_bug_and_changes_nothing() {
    let before = inconsistent().await;
    let log = WatchedLog::new(MemoryLog::new());
    let mut server = Running::from(log.clone(), before.clone(), decide).await;
    let answer = server.command(Command::Cancel { job: JobId(1) }).await;
    let Err(Refused::Bug(bug)) = answer else {
        panic!("{answer:?}")
    };
    assert!(bug.contains("job-9"), "{bug}");
    assert_eq!(log.commits(), [["safe_mode"]]);
    assert_eq!(server.view.state().jobs(), before.jobs());
    assert_eq!(server.actions(), []);
    // The server still answers.
    server
        .command(Command::Hold { job: JobId(1) })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_bug_takes_nothing_from_the_inputs_that_share_its_commit() {
    let before = inconsistent().await;
    let log = WatchedLog::new(MemoryLog::new());
    let server = Running::from(log.clone(), before, decide).await;
    log.gate.forget_permits(usize::MAX);
    let send = |command: Command| {
        let inputs = server.inputs.clone();
        tokio::spawn(async move { inputs.command("x".into(), None, command).await })
    };
    let first = send(Command::Pause { reason: "1".into() });
    settle(|| log.commits().len() == 1).await;
    let commands = [
        Command::Pause { reason: "2".into() },
        Command::Cancel { job: JobId(1) },
        Command::Pause { reason: "3".into() },
    ];
    let [before, broken, after] = commands.map(send);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    log.gate.add_permits(100);
    first.await.unwrap().unwrap();
    before.await.unwrap().unwrap();
    assert!(matches!(broken.await.unwrap(), Err(Refused::Bug(_))));
    after.await.unwrap().unwrap();
    assert_eq!(log.commits()[1], ["command", "safe_mode", "command"]);
}

#[tokio::test]
async fn the_same_key_again_gets_the_first_answer_also_after_a_restart() {
    let log = MemoryLog::new();
    let server = Running::on(log.clone()).await;
    server.offer_nodes().await;
    let send = |inputs: LoopHandle| async move {
        let command = submit(spec("a", 1));
        inputs
            .command("x".into(), key("k", "submit a"), command)
            .await
            .unwrap()
    };
    let first = send(server.inputs.clone()).await;
    let again = send(server.inputs.clone()).await;
    assert!(!first.repeated && again.repeated);
    assert_eq!((again.seq, again.job), (first.seq, first.job));

    let other = Command::Cancel { job: JobId(7) };
    let reused = server
        .inputs
        .command("x".into(), key("k", "cancel job-7"), other)
        .await;
    assert!(matches!(
        reused,
        Err(Refused::Rejection(Rejection::KeyReused { .. }))
    ));
    server.stop().await.unwrap();

    let server = Running::on(log).await;
    let again = send(server.inputs.clone()).await;
    assert_eq!((again.seq, again.job), (first.seq, first.job));
    assert_eq!(server.view.state().jobs().len(), 1);
}

#[tokio::test]
async fn a_refused_command_leaves_no_trace() {
    let log = WatchedLog::new(MemoryLog::new());
    let server = Running::on(log.clone()).await;
    let answer = server.command(Command::Cancel { job: JobId(1) }).await;
    assert!(matches!(
        answer,
        Err(Refused::Rejection(Rejection::UnknownJob { .. }))
    ));
    assert_eq!(log.commits(), Vec::<Vec<String>>::new());
}

#[tokio::test]
async fn a_decision_that_a_crash_cut_off_is_made_at_the_next_start() {
    let kept = MemoryLog::new();
    let server = Running::on(kept.clone()).await;
    server.offer_nodes().await;
    server
        .command(Command::Pause { reason: "".into() })
        .await
        .unwrap();
    server.command(submit(spec("a", 1))).await.unwrap();
    server.stop().await.unwrap();
    // The log ends with an input whose decision was never written.
    let fence = kept.acquire("test").await.unwrap();
    let state = load(&kept).await.unwrap();
    let event = Event {
        seq: Seq(state.seq().0 + 1),
        at: state.now(),
        body: Body::Command {
            by: "x".into(),
            id: None,
            command: Command::Unpause,
        },
    };
    kept.append(fence, vec![encode(&event)]).await.unwrap();

    let mut server = Running::on(kept).await;
    assert!(matches!(
        server.actions.recv().await,
        Some(Action::Launch { .. })
    ));
    assert_eq!(state_of(&server.view, 1), "starting");
}

/// Time was the later of the system's clock and the log's last event. Behind a log that ran ahead it stood still, and no
/// grace, no back-off and no limit ever ran out.
#[tokio::test]
async fn timers_run_where_the_systems_clock_lies_behind_the_log() {
    let kept = MemoryLog::new();
    let fence = kept.acquire("test").await.unwrap();
    let ahead = Clock::new()
        .now(Timestamp::default())
        .after(Millis::from_secs(86_400));
    let tick = Event {
        seq: Seq(1),
        at: ahead,
        body: Body::Tick,
    };
    kept.append(fence, vec![encode(&tick)]).await.unwrap();
    let mut server = Running::on(kept).await;
    server.offer_nodes().await;
    let mut stubborn = spec("a", 8);
    stubborn.grace = Millis::from_millis(20);
    server.command(submit(stubborn)).await.unwrap();
    server
        .command(Command::Cancel { job: JobId(1) })
        .await
        .unwrap();
    until(&server.view, |state| {
        let killed = antiphon_kernel::StopPhase::Killed;
        matches!(&state.jobs()[&JobId(1)].state, antiphon_kernel::JobState::Stopping { phase, .. } if *phase == killed)
    })
    .await;
    let actions = server.actions();
    assert!(matches!(actions.last(), Some(Action::Kill { .. })));
}

#[test]
fn the_clock_never_goes_back_and_never_stands_still() {
    let mut clock = Clock::new();
    let first = clock.now(Timestamp::default());
    let ahead = first.after(Millis::from_secs(3_600));
    assert_eq!(clock.now(ahead), ahead);
    let mut last = ahead;
    // Bounded by the machine, not by a time: it moves on as soon as two milliseconds have passed.
    while last == ahead {
        let now = clock.now(last);
        assert!(now >= last);
        last = now;
    }
    assert!(last.since(ahead) < Millis::from_secs(60));
}

#[tokio::test]
async fn an_observation_of_an_unknown_attempt_is_not_logged_and_changes_nothing() {
    let server = Running::on(MemoryLog::new()).await;
    server.offer_nodes().await;
    let jobs = server.view.state().jobs().clone();
    let (task, exit) = (task("job-7.1"), Exit::Superseded);
    let told = Observation::TaskEnded { task, exit };
    let seq = server.view.state().seq();
    server.inputs.observe(told).await.unwrap();
    assert_eq!(*server.view.state().jobs(), jobs);
    assert_eq!(server.view.state().seq(), seq);
}
