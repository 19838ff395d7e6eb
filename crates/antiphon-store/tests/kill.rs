//! Kills a writing process without warning and looks at what it left. A kill loses nothing that the kernel was given, so
//! this shows atomicity and order; what a power cut may take is in `sqlite.rs`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use antiphon_store::{Entry, Log, SqliteLog};

const DIR: &str = "ANTIPHON_TEST_KILL_DIR";
const BATCH: u64 = 7;

fn entry(seq: u64) -> Entry {
    // Bodies of very different sizes, so that a commit is one page or many.
    let pad = "x".repeat((seq * seq % 5_000) as usize);
    Entry {
        seq,
        at_ms: seq,
        version: 1,
        kind: "tick".into(),
        body: format!(r#"{{"n":{seq},"pad":"{pad}"}}"#),
    }
}

/// The process that is killed: this same test binary, told so by the environment. Says the last seq after each commit.
#[tokio::test]
async fn writer_appends_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let log = SqliteLog::open(Path::new(&dir)).unwrap();
    let fence = log.acquire("writer").await.unwrap();
    let mut last = log.last_seq().await.unwrap();
    let mut stdout = std::io::stdout();
    loop {
        log.append(fence, (last + 1..=last + BATCH).map(entry).collect())
            .await
            .unwrap();
        last += BATCH;
        writeln!(stdout, "\nacknowledged {last}").unwrap();
    }
}

#[tokio::test]
async fn killed_writer_leaves_whole_commits_and_all_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut last_before = 0;
    for round in 0..24_u64 {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "writer_appends_until_it_is_killed",
                "--nocapture",
            ])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap);
        let mut acknowledged = 0;
        let mut listen = |commits: usize| {
            let said = lines
                .by_ref()
                .filter_map(|line| line.strip_prefix("acknowledged ")?.parse::<u64>().ok());
            said.take(commits)
                .inspect(|seq| acknowledged = *seq)
                .count()
        };

        assert_eq!(
            listen(1 + round as usize % 5),
            1 + round as usize % 5,
            "the writer ended by itself"
        );
        // Somewhere inside the next commits: spread over about a millisecond, a few times what one of them takes.
        (0..round * 7_919 % 60_000).for_each(|_| std::hint::spin_loop());
        writer.kill().unwrap();
        writer.wait().unwrap();
        // What it said before it died counts, whether or not it had been heard.
        listen(usize::MAX);

        let log = SqliteLog::open(dir.path()).unwrap();
        let last = log.last_seq().await.unwrap();
        assert!(
            last >= acknowledged,
            "round {round}: acknowledged {acknowledged}, kept {last}"
        );
        assert_eq!(last % BATCH, 0, "round {round}: part of a commit was kept");
        assert!(last > last_before);
        let kept = log.read(last_before, usize::MAX).await.unwrap();
        assert_eq!(
            kept,
            (last_before + 1..=last).map(entry).collect::<Vec<_>>()
        );
        log.verify().await.unwrap();
        last_before = last;
    }
}
