//! What every log promises, run over each of them. Durability is not tried here: a log in memory has none.

use antiphon_store::{
    Digest, Entry, IMAGES_KEPT, Image, Log, MemoryLog, SqliteLog, StoreError, digest,
};
use proptest::prelude::*;

/// Runs `check` over an empty log of each kind.
#[expect(
    clippy::unwrap_used,
    reason = "a test that cannot set up its log has failed"
)]
async fn over_every_log(check: impl AsyncFn(&dyn Log)) {
    check(&MemoryLog::new()).await;
    let dir = tempfile::tempdir().unwrap();
    check(&SqliteLog::open(dir.path()).unwrap()).await;
}

fn entry(seq: u64) -> Entry {
    Entry {
        seq,
        at_ms: 1_764_430_000_000 + seq,
        version: 1,
        kind: "tick".into(),
        body: format!(r#"{{"n":{seq}}}"#),
    }
}

fn image(seq: u64) -> Image {
    let state = vec![7; seq as usize];
    Image {
        seq,
        version: 2,
        digest: digest(&state),
        state,
    }
}

#[tokio::test]
async fn empty_log_has_nothing_to_read() {
    over_every_log(async |log| {
        assert_eq!(log.last_seq().await.unwrap(), 0);
        assert_eq!(log.read(0, 10).await.unwrap(), []);
        assert_eq!(log.read(u64::MAX, usize::MAX).await.unwrap(), []);
        assert_eq!(log.images().await.unwrap(), []);
        assert!(matches!(
            log.image(u64::MAX).await,
            Err(StoreError::NoImage { seq: u64::MAX })
        ));
    })
    .await;
}

#[tokio::test]
async fn later_writer_makes_the_earlier_one_stale() {
    over_every_log(async |log| {
        let first = log.acquire("a").await.unwrap();
        log.append(first, vec![entry(1)]).await.unwrap();
        let second = log.acquire("b").await.unwrap();
        assert!(second > first);

        let error = log.append(first, vec![entry(2)]).await.unwrap_err();
        assert_eq!(error.to_string(), "fence 1 is stale: `b` holds fence 2");
        assert!(matches!(
            log.append(first, vec![]).await,
            Err(StoreError::Stale { .. })
        ));
        assert!(matches!(
            log.put_image(first, image(1)).await,
            Err(StoreError::Stale { .. })
        ));
        assert_eq!(log.last_seq().await.unwrap(), 1);
        log.append(second, vec![entry(2)]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn gap_is_refused_whole_with_both_numbers() {
    over_every_log(async |log| {
        let fence = log.acquire("a").await.unwrap();
        log.append(fence, vec![entry(1)]).await.unwrap();
        for (entries, got) in [
            (vec![entry(3)], 3),
            (vec![entry(1)], 1),
            (vec![entry(2), entry(4)], 4),
            (vec![entry(0)], 0),
        ] {
            let error = log.append(fence, entries).await.unwrap_err();
            assert!(
                matches!(error, StoreError::Gap { got: seq, .. } if seq == got),
                "{error}"
            );
        }
        assert_eq!(log.read(0, 10).await.unwrap(), [entry(1)]);
    })
    .await;
}

#[tokio::test]
async fn empty_append_changes_nothing() {
    over_every_log(async |log| {
        let fence = log.acquire("a").await.unwrap();
        log.append(fence, vec![]).await.unwrap();
        assert_eq!(log.last_seq().await.unwrap(), 0);
    })
    .await;
}

#[tokio::test]
async fn only_the_newest_images_are_kept() {
    over_every_log(async |log| {
        let fence = log.acquire("a").await.unwrap();
        log.append(fence, (1..=9).map(entry).collect())
            .await
            .unwrap();
        for seq in [0, 4, 5, 9, 7, 7] {
            log.put_image(fence, image(seq)).await.unwrap();
        }
        let headers = log.images().await.unwrap();
        let found: Vec<_> = headers
            .iter()
            .map(|header| (header.seq, header.version, header.bytes))
            .collect();
        assert_eq!(found, [(9, 2, 9), (7, 2, 7), (5, 2, 5)]);
        assert_eq!(found.len(), IMAGES_KEPT);
        assert_eq!(log.image(7).await.unwrap(), image(7));
        assert!(matches!(
            log.image(4).await,
            Err(StoreError::NoImage { seq: 4 })
        ));
    })
    .await;
}

#[tokio::test]
async fn image_ahead_of_the_log_is_refused() {
    over_every_log(async |log| {
        let fence = log.acquire("a").await.unwrap();
        log.append(fence, vec![entry(1)]).await.unwrap();
        let error = log.put_image(fence, image(2)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "an image at event 2 is ahead of the log, which ends at event 1"
        );
    })
    .await;
}

#[tokio::test]
async fn image_with_the_digest_of_another_state_is_refused() {
    over_every_log(async |log| {
        let fence = log.acquire("a").await.unwrap();
        let error = log
            .put_image(
                fence,
                Image {
                    digest: Digest([0; 32]),
                    ..image(0)
                },
            )
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        log.put_image(fence, image(0)).await.unwrap();
    })
    .await;
}

#[tokio::test]
#[should_panic(expected = "event 1 has at_ms 9223372036854775808")]
async fn time_that_no_store_can_hold_is_a_bug() {
    let log = MemoryLog::new();
    let fence = log.acquire("a").await.unwrap();
    let _ = log
        .append(
            fence,
            vec![Entry {
                at_ms: 1 << 63,
                ..entry(1)
            }],
        )
        .await;
}

type Contents = (u64, u32, String, String);

fn contents() -> impl Strategy<Value = Contents> {
    (
        0..=i64::MAX as u64,
        any::<u32>(),
        any::<String>(),
        any::<String>(),
    )
}

fn numbered(first: u64, contents: Vec<Contents>) -> Vec<Entry> {
    (first..)
        .zip(contents)
        .map(|(seq, (at_ms, version, kind, body))| Entry {
            seq,
            at_ms,
            version,
            kind,
            body,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_was_appended_is_read_back_from_anywhere(
        batches in prop::collection::vec(prop::collection::vec(contents(), 0..6), 0..6),
        after in 0..40_u64,
        limit in 0..40_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(over_every_log(async |log| {
            let fence = log.acquire("a").await.unwrap();
            let mut all = Vec::new();
            for batch in &batches {
                let entries = numbered(all.len() as u64 + 1, batch.clone());
                log.append(fence, entries.clone()).await.unwrap();
                all.extend(entries);
            }
            assert_eq!(log.last_seq().await.unwrap(), all.len() as u64);
            assert_eq!(log.read(0, usize::MAX).await.unwrap(), all);
            let rest: Vec<_> = all.into_iter().skip(after as usize).take(limit).collect();
            assert_eq!(log.read(after, limit).await.unwrap(), rest);
        }));
    }
}
