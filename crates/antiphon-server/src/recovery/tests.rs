//! A restart finds the state that was committed, whatever became of the images.

use antiphon_store::MemoryLog;
use antiphon_types::{Command, JobId, Observation};

use super::*;
use crate::fixture::*;

/// A log with a few jobs in different states, with an image at its end; and the state it stands for.
async fn lived_in() -> (MemoryLog, State) {
    let log = MemoryLog::new();
    let mut server = Running::on(log.clone()).await;
    server.with_a_running_job().await;
    for (name, gpus) in [("second", 8), ("third", 1), ("fourth", 1)] {
        server.command(submit(spec(name, gpus))).await.unwrap();
    }
    let fourth = JobId(4);
    server.command(Command::Hold { job: fourth }).await.unwrap();
    let (task, exit) = (task("job-1.1"), done());
    let ended = Observation::TaskEnded { task, exit };
    server.inputs.observe(ended).await.unwrap();
    let state = server.view.state().clone();
    server.stop().await.unwrap();
    (log, state)
}

async fn put(log: &MemoryLog, seq: u64, version: u32, state: Vec<u8>) {
    let fence = log.acquire("test").await.unwrap();
    let digest = digest(&state);
    let image = Image {
        seq,
        version,
        digest,
        state,
    };
    log.put_image(fence, image).await.unwrap();
}

#[tokio::test]
async fn a_restart_finds_the_state_that_was_committed() {
    let (log, state) = lived_in().await;
    assert_eq!(log.images().await.unwrap()[0].seq, state.seq().0);
    let loaded = load(&log).await.unwrap();
    assert_eq!(state_digest(&loaded), state_digest(&state));
    assert_eq!(loaded, state);
}

#[tokio::test]
async fn images_of_another_version_are_passed_over() {
    let (log, state) = lived_in().await;
    let seq = state.seq().0;
    put(&log, seq, STATE_VERSION - 1, b"an older form".to_vec()).await;
    put(&log, seq - 1, STATE_VERSION + 1, b"a newer form".to_vec()).await;
    assert_eq!(load(&log).await.unwrap(), state);
}

#[tokio::test]
async fn a_damaged_newest_image_gives_way_to_the_one_before_it() {
    let (log, state) = lived_in().await;
    let (last, middle) = (state.seq().0, state.seq().0 / 2);
    let mut half = State::default();
    replay(&log, &mut half, middle).await.unwrap();
    put(&log, middle, STATE_VERSION, encode_state(&half)).await;

    let mut damaged = WatchedLog::new(log.clone());
    damaged.damaged = Some(last);
    assert_eq!(load(&damaged).await.unwrap(), state);
    damaged.damaged = Some(middle);
    assert_eq!(load(&damaged).await.unwrap(), state);
    // One that reads well but is no state.
    put(&log, last, STATE_VERSION, vec![0xff; 40]).await;
    assert_eq!(load(&damaged).await.unwrap(), state);
    assert_eq!(load(&log).await.unwrap(), state);
}

#[tokio::test]
async fn an_audit_finds_a_planted_difference_and_nothing_else() {
    let (log, state) = lived_in().await;
    let report = audit(&log).await.unwrap();
    assert_eq!((report.images_compared, report.images_passed_over), (1, 0));
    assert!(report.differences.is_empty() && report.broken.is_none());
    assert_eq!(report.digest, state_digest(&state));
    assert_eq!(report.events, state.seq().0);
    assert_eq!(report.jobs_living, 3);

    let planted = state.seq().0 - 2;
    let mut other = State::default();
    replay(&log, &mut other, planted - 1).await.unwrap();
    put(&log, planted, STATE_VERSION, encode_state(&other)).await;
    put(&log, planted - 1, STATE_VERSION - 1, encode_state(&other)).await;
    let report = audit(&log).await.unwrap();
    assert_eq!(report.differences, [Seq(planted)]);
    assert_eq!((report.images_compared, report.images_passed_over), (2, 1));
}

#[tokio::test]
async fn an_event_of_a_newer_version_is_refused_by_name() {
    let log = MemoryLog::new();
    let fence = log.acquire("test").await.unwrap();
    let entry = Entry {
        seq: 1,
        at_ms: 1,
        version: EVENT_VERSION + 1,
        kind: "tick".into(),
        body: "\"tick\"".into(),
    };
    log.append(fence, vec![entry]).await.unwrap();
    assert!(matches!(
        load(&log).await,
        Err(LoadError::Store(StoreError::Newer { .. }))
    ));
}
