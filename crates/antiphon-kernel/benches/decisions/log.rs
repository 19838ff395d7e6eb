//! Where the events of the benchmark go: encoded as the log holds them, and into SQLite where that is measured.

use antiphon_store::{Entry, Fence, Log, SqliteLog};
use antiphon_types::{EVENT_VERSION, Event};

/// The log of one run.
pub(crate) struct EventLog {
    sqlite: Option<Sqlite>,
    entries: Vec<Entry>,
    pub(crate) bytes: u64,
}

struct Sqlite {
    log: SqliteLog,
    fence: Fence,
    runtime: tokio::runtime::Runtime,
    _dir: tempfile::TempDir,
}

impl EventLog {
    pub(crate) fn new(sqlite: bool) -> Self {
        Self {
            sqlite: sqlite.then(Sqlite::new),
            entries: Vec::new(),
            bytes: 0,
        }
    }

    /// Encodes an event.
    pub(crate) fn encode(&mut self, event: &Event) {
        let body = serde_json::to_string(&event.body).expect("an event is plain data");
        self.bytes += u64::try_from(body.len()).expect("a length fits");
        self.entries.push(Entry {
            seq: event.seq.0,
            at_ms: event.at.as_millis(),
            version: EVENT_VERSION,
            kind: event.body.kind().to_owned(),
            body,
        });
    }

    /// Commits what was encoded: as one transaction, as the event loop does for one turn.
    pub(crate) fn commit(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        if let Some(sqlite) = &self.sqlite {
            let append = sqlite.log.append(sqlite.fence, entries);
            sqlite
                .runtime
                .block_on(append)
                .expect("the log takes events");
        }
    }
}

impl Sqlite {
    fn new() -> Self {
        // Beside the build: a file system in memory syncs for nothing.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let (log, fence) = runtime.block_on(async {
            let log = SqliteLog::open(dir.path()).expect("a log");
            let fence = log.acquire("bench").await.expect("the lead");
            (log, fence)
        });
        Self {
            log,
            fence,
            runtime,
            _dir: dir,
        }
    }
}
