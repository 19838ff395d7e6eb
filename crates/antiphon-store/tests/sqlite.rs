//! What the log on disk adds to the contract: reopening, locking, access, damage and formats. Crashes are in `kill.rs`.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use antiphon_store::{
    Entry, Image, Log, SqliteLog, StoreError, decode_state, digest, encode_state,
};
use rusqlite::Connection;

fn entries(seqs: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
    seqs.map(|seq| Entry {
        seq,
        at_ms: seq,
        version: 1,
        kind: "tick".into(),
        body: format!(r#"{{"n":{seq}}}"#),
    })
    .collect()
}

#[expect(
    clippy::unwrap_used,
    reason = "a test that cannot set up its log has failed"
)]
async fn fill(dir: &Path, last: u64) {
    let log = SqliteLog::open(dir).unwrap();
    let fence = log.acquire("a").await.unwrap();
    log.append(fence, entries(1..=last)).await.unwrap();
}

fn open_error(dir: &Path) -> StoreError {
    SqliteLog::open(dir).err().expect("the log opened")
}

#[tokio::test]
async fn reopened_log_has_kept_everything() {
    let dir = tempfile::tempdir().unwrap();
    let state = vec![1; 100_000];
    let image = Image {
        seq: 5,
        version: 3,
        digest: digest(&state),
        state,
    };
    let fence = {
        let log = SqliteLog::open(dir.path()).unwrap();
        let fence = log.acquire("a").await.unwrap();
        log.append(fence, entries(1..=5)).await.unwrap();
        log.put_image(fence, image.clone()).await.unwrap();
        fence
    };
    let log = SqliteLog::open(dir.path()).unwrap();
    assert_eq!(log.read(0, 100).await.unwrap(), entries(1..=5));
    assert_eq!(log.image(5).await.unwrap(), image);
    log.append(fence, entries(6..=6)).await.unwrap();
    assert!(log.acquire("b").await.unwrap() > fence);
    log.verify().await.unwrap();
}

#[tokio::test]
async fn second_writer_is_told_who_holds_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = SqliteLog::open(dir.path()).unwrap();
    let pid = std::process::id();
    let error = open_error(dir.path());
    assert_eq!(
        error.to_string(),
        format!(
            "the log in `{}` is held by process {pid}",
            dir.path().display()
        )
    );
    drop(log);
    SqliteLog::open(dir.path()).unwrap();
}

#[tokio::test]
async fn directory_and_files_are_for_their_owner_alone() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("state/antiphon");
    let log = SqliteLog::open(&dir).unwrap();
    log.acquire("a").await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for file in ["lock", "log.db", "log.db-wal", "log.db-shm"] {
        assert_eq!(mode(&dir.join(file)), 0o600, "{file}");
    }
}

#[tokio::test]
async fn reader_follows_a_log_that_is_being_written_and_cannot_write() {
    let dir = tempfile::tempdir().unwrap();
    let log = SqliteLog::open(dir.path()).unwrap();
    let fence = log.acquire("a").await.unwrap();
    log.append(fence, entries(1..=2)).await.unwrap();

    let reader = SqliteLog::open_read_only(dir.path()).unwrap();
    assert_eq!(reader.read(0, 100).await.unwrap(), entries(1..=2));
    log.append(fence, entries(3..=3)).await.unwrap();
    assert_eq!(reader.read(2, 100).await.unwrap(), entries(3..=3));
    reader.verify().await.unwrap();
    assert!(matches!(
        reader.append(fence, entries(4..=4)).await,
        Err(StoreError::ReadOnly { .. })
    ));
    assert!(matches!(
        reader.acquire("b").await,
        Err(StoreError::ReadOnly { .. })
    ));
}

#[test]
fn reading_where_there_is_no_log_creates_none() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(
        SqliteLog::open_read_only(dir.path()),
        Err(StoreError::Missing { .. })
    ));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn file_of_another_kind_is_damage_and_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 9).await;
    let file = dir.path().join("log.db");
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .write_all_at(&[0xff; 100], 0)
        .unwrap();
    let before = fs::read(&file).unwrap();
    assert!(matches!(open_error(dir.path()), StoreError::Corrupt { .. }));
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[tokio::test]
async fn database_of_another_program_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    Connection::open(dir.path().join("log.db"))
        .unwrap()
        .execute_batch("CREATE TABLE events (x)")
        .unwrap();
    let before = fs::read(dir.path().join("log.db")).unwrap();
    let error = open_error(dir.path());
    assert!(
        error
            .to_string()
            .ends_with("it has 1 of the 3 tables of a log"),
        "{error}"
    );
    assert_eq!(fs::read(dir.path().join("log.db")).unwrap(), before);
}

#[tokio::test]
async fn overwritten_pages_are_damage_wherever_they_are_met() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 5_000).await;
    let file = File::options()
        .write(true)
        .open(dir.path().join("log.db"))
        .unwrap();
    let pages = file.metadata().unwrap().len() / 4096;
    file.write_all_at(&[0xff; 4096], pages / 2 * 4096).unwrap();

    let log = SqliteLog::open(dir.path()).unwrap();
    assert!(matches!(
        log.read(0, usize::MAX).await,
        Err(StoreError::Corrupt { .. })
    ));
    assert!(matches!(
        log.verify().await,
        Err(StoreError::Corrupt { .. })
    ));
    assert_eq!(log.last_seq().await.unwrap(), 5_000);
}

/// The sync of the last commits may not have happened, so after a power cut any tail of the WAL can be missing or torn.
#[tokio::test]
async fn write_ahead_log_cut_anywhere_leaves_a_prefix_of_whole_commits() {
    let dir = tempfile::tempdir().unwrap();
    let log = SqliteLog::open(dir.path()).unwrap();
    let fence = log.acquire("a").await.unwrap();
    for batch in 0..8 {
        log.append(fence, entries(batch * 20 + 1..=batch * 20 + 20))
            .await
            .unwrap();
    }
    let database = fs::read(dir.path().join("log.db")).unwrap();
    let ahead = fs::read(dir.path().join("log.db-wal")).unwrap();

    let mut found = std::collections::BTreeSet::new();
    // A stride that is prime to the size of a page cuts at every kind of place.
    for cut in (0..=ahead.len()).rev().step_by(997) {
        let copy = tempfile::tempdir().unwrap();
        fs::write(copy.path().join("log.db"), &database).unwrap();
        fs::write(copy.path().join("log.db-wal"), &ahead[..cut]).unwrap();
        let log = SqliteLog::open(copy.path()).unwrap();
        let last = log.last_seq().await.unwrap();
        assert_eq!(last % 20, 0, "cut at {cut}");
        assert_eq!(
            log.read(0, 1000).await.unwrap(),
            entries(1..=last),
            "cut at {cut}"
        );
        found.insert(last);
    }
    assert_eq!(found.len(), 9, "{found:?}");
}

#[tokio::test]
async fn newer_format_is_refused_with_both_numbers() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 1).await;
    Connection::open(dir.path().join("log.db"))
        .unwrap()
        .execute("UPDATE meta SET format = 7", ())
        .unwrap();
    for error in [
        open_error(dir.path()),
        SqliteLog::open_read_only(dir.path()).err().unwrap(),
    ] {
        assert!(
            error
                .to_string()
                .ends_with("has format 7, and this antiphon knows formats up to 1"),
            "{error}"
        );
    }
}

/// Frozen when format 1 was new: never change the file, only add one beside it.
#[tokio::test]
async fn log_of_format_1_still_opens() {
    let dir = tempfile::tempdir().unwrap();
    Connection::open(dir.path().join("log.db"))
        .unwrap()
        .execute_batch(include_str!("format/1.sql"))
        .unwrap();

    let log = SqliteLog::open(dir.path()).unwrap();
    let read = log.read(0, 10).await.unwrap();
    let expected = [(1, r#"{"Tick":{}}"#), (2, r#"{"Submitted":{"job":1}}"#)];
    assert_eq!(
        read.iter()
            .map(|entry| (entry.seq, entry.body.as_str()))
            .collect::<Vec<_>>(),
        expected
    );
    let image = log.image(2).await.unwrap();
    assert_eq!(
        decode_state::<(u64, String)>(&image.state).unwrap(),
        (300, "pending".to_owned())
    );
    assert_eq!(encode_state(&(300_u64, "pending")), image.state);
    assert_eq!(log.acquire("b").await.unwrap().number(), 5);
    log.append(log.acquire("c").await.unwrap(), entries(3..=3))
        .await
        .unwrap();
}
