//! Measures durable appends: how many commits and events a second a log in the given directory takes. It measures neither
//! reading nor images.
//!
//! ```text
//! cargo run --release -p antiphon-store --example append -- [DIR [EVENTS_PER_COMMIT [SECONDS]]]
//! ```

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use antiphon_store::{Entry, Log, SqliteLog};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let parent = args
        .next()
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    let batch: u64 = args.next().map_or(Ok(64), |text| text.parse())?;
    let seconds: u64 = args.next().map_or(Ok(5), |text| text.parse())?;

    let dir = tempfile::tempdir_in(parent)?;
    let log = SqliteLog::open(dir.path())?;
    let fence = log.acquire("bench").await?;
    // About the size of an event that starts a gang.
    let body = format!(
        r#"{{"Launched":{{"job":42,"attempt":3,"gpus":"{}"}}}}"#,
        "n001[0-7] ".repeat(16)
    );

    let start = Instant::now();
    let mut commits = 0;
    while start.elapsed() < Duration::from_secs(seconds) {
        let first = commits * batch + 1;
        let entries = (first..first + batch).map(|seq| Entry {
            seq,
            at_ms: 1_764_430_000_000 + seq,
            version: 1,
            kind: "launched".into(),
            body: body.clone(),
        });
        log.append(fence, entries.collect()).await?;
        commits += 1;
    }
    let elapsed = start.elapsed().as_secs_f64();

    let events = commits * batch;
    drop(log);
    let reopened = Instant::now();
    let log = SqliteLog::open(dir.path())?;
    let open_ms = reopened.elapsed().as_secs_f64() * 1e3;
    assert_eq!(log.last_seq().await?, events);

    let line = serde_json::json!({
        "bench": "store/append",
        "value": (events as f64 / elapsed).round(),
        "unit": "events/s",
        "events_per_s": (events as f64 / elapsed).round(),
        "commits_per_s": (commits as f64 / elapsed).round(),
        "events_per_commit": batch,
        "body_bytes": body.len(),
        "events": events,
        "open_ms": open_ms,
    });
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}
