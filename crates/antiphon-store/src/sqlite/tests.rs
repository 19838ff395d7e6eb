//! What needs the connection itself: settings, a disk that is full, damage inside the tables.

use super::*;
use crate::{IMAGES_KEPT, digest};

const FULL: u32 = 40;

fn entries(seqs: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
    seqs.map(|seq| Entry {
        seq,
        at_ms: seq,
        version: 1,
        kind: "tick".into(),
        body: format!("{{\"n\":{seq}}}"),
    })
    .collect()
}

fn image(seq: u64) -> Image {
    let state = seq.to_string().repeat(100).into_bytes();
    Image {
        seq,
        version: 1,
        digest: digest(&state),
        state,
    }
}

/// Runs SQL on the log's own connection.
async fn execute(log: &SqliteLog, sql: String) {
    log.call(move |database| {
        database.connection().execute_batch(&sql).unwrap();
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn every_commit_is_synced_before_it_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let log = SqliteLog::open(dir.path()).unwrap();
    let settings = log
        .call(|database| {
            let setting = |name| {
                database
                    .connection()
                    .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            };
            let mode: String = database
                .connection()
                .pragma_query_value(None, "journal_mode", |row| row.get(0))
                .unwrap();
            Ok((mode, setting("synchronous").unwrap()))
        })
        .await
        .unwrap();
    assert_eq!(settings, ("wal".to_owned(), 2));
}

#[tokio::test]
async fn full_disk_is_said_and_ends_all_writes_until_the_log_is_reopened() {
    let dir = tempfile::tempdir().unwrap();
    let log = SqliteLog::open(dir.path()).unwrap();
    let fence = log.acquire("a").await.unwrap();
    execute(&log, format!("PRAGMA max_page_count = {FULL}")).await;

    let mut last = 0;
    let error = loop {
        match log.append(fence, entries(last + 1..=last + 100)).await {
            Ok(()) => last += 100,
            Err(error) => break error,
        }
    };
    assert!(last > 0);
    assert!(
        matches!(&error, StoreError::DiskFull { dir: full, .. } if full == dir.path()),
        "{error:?}"
    );
    assert!(error.help().contains("free space"), "{}", error.help());

    execute(&log, format!("PRAGMA max_page_count = {}", 10 * FULL)).await;
    let refused = log
        .append(fence, entries(last + 1..=last + 1))
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, StoreError::Failed { cause, .. } if cause.contains("full")),
        "{refused}"
    );
    assert!(matches!(
        log.put_image(fence, image(1)).await,
        Err(StoreError::Failed { .. })
    ));
    assert_eq!(log.last_seq().await.unwrap(), last);

    drop(log);
    let log = SqliteLog::open(dir.path()).unwrap();
    assert_eq!(log.last_seq().await.unwrap(), last);
    log.append(fence, entries(last + 1..=last + 1))
        .await
        .unwrap();
}

#[tokio::test]
async fn refused_append_leaves_the_log_writable() {
    let dir = tempfile::tempdir().unwrap();
    let log = SqliteLog::open(dir.path()).unwrap();
    let fence = log.acquire("a").await.unwrap();
    assert!(matches!(
        log.append(fence, entries(2..=3)).await,
        Err(StoreError::Gap {
            expected: 1,
            got: 2
        })
    ));
    log.append(fence, entries(1..=3)).await.unwrap();
}

#[tokio::test]
async fn damaged_image_is_refused_and_the_older_one_still_reads() {
    let dir = tempfile::tempdir().unwrap();
    let log = SqliteLog::open(dir.path()).unwrap();
    let fence = log.acquire("a").await.unwrap();
    log.append(fence, entries(1..=3)).await.unwrap();
    for seq in 1..=3 {
        log.put_image(fence, image(seq)).await.unwrap();
    }
    // Image 3 is no longer compressed data; image 2 is whole, but the state of image 1.
    execute(
        &log,
        "UPDATE images SET state = zeroblob(length(state)) WHERE seq = 3".into(),
    )
    .await;
    execute(
        &log,
        "UPDATE images SET state = (SELECT state FROM images WHERE seq = 1) WHERE seq = 2".into(),
    )
    .await;

    for seq in [3, 2] {
        let error = log.image(seq).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Corrupt { what, .. } if what.contains(&format!("event {seq} "))),
            "{error}"
        );
    }
    assert_eq!(log.image(1).await.unwrap(), image(1));
    assert!(matches!(
        log.verify().await,
        Err(StoreError::Corrupt { .. })
    ));
}

#[tokio::test]
async fn image_with_a_false_size_does_not_fill_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let log = SqliteLog::open(dir.path()).unwrap();
    let fence = log.acquire("a").await.unwrap();
    log.append(fence, entries(1..=1)).await.unwrap();
    log.put_image(fence, image(1)).await.unwrap();
    for bytes in ["9", "9223372036854775807"] {
        execute(&log, format!("UPDATE images SET bytes = {bytes}")).await;
        // A size too small cuts the state; one too large is not believed, and the state itself is whole.
        assert_eq!(log.image(1).await.is_ok(), bytes.len() > 1);
    }
}

#[tokio::test]
async fn missing_event_is_told_by_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let log = SqliteLog::open(dir.path()).unwrap();
    let fence = log.acquire("a").await.unwrap();
    log.append(fence, entries(1..=9)).await.unwrap();
    log.verify().await.unwrap();
    execute(&log, "DELETE FROM events WHERE seq IN (4, 5)".into()).await;

    let error = log.read(0, 100).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("is damaged: event 4 is missing, and event 6 follows"),
        "{error}"
    );
    assert_eq!(log.read(0, 3).await.unwrap(), entries(1..=3));
    let error = log.verify().await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("it has 7 events from event 1 to event 9"),
        "{error}"
    );
}

#[tokio::test]
async fn log_that_lost_its_start_is_refused_at_open() {
    let dir = tempfile::tempdir().unwrap();
    let log = SqliteLog::open(dir.path()).unwrap();
    let fence = log.acquire("a").await.unwrap();
    log.append(fence, entries(1..=9)).await.unwrap();
    execute(&log, "DELETE FROM events WHERE seq < 3".into()).await;
    drop(log);
    let error = SqliteLog::open(dir.path()).err().unwrap();
    assert!(
        error
            .to_string()
            .ends_with("it starts at event 3 and not at 1"),
        "{error}"
    );
}

#[tokio::test]
async fn images_take_a_bounded_part_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let log = SqliteLog::open(dir.path()).unwrap();
    let fence = log.acquire("a").await.unwrap();
    log.append(fence, entries(1..=50)).await.unwrap();
    let mut pages = Vec::new();
    for seq in 1..=50 {
        // Noise, so that compression does not hide the size.
        let state: Vec<u8> = (0..1000_u64)
            .flat_map(|n| digest(&(seq << 32 | n).to_le_bytes()).0)
            .collect();
        log.put_image(
            fence,
            Image {
                seq,
                version: 1,
                digest: digest(&state),
                state,
            },
        )
        .await
        .unwrap();
        let count = log.call(|database| {
            Ok(database
                .connection()
                .pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))
                .unwrap())
        });
        pages.push(count.await.unwrap());
    }
    assert_eq!(pages[IMAGES_KEPT], pages[49], "{pages:?}");
}
