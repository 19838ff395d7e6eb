//! Which pages somebody looks at, and the one task for each that makes its rows anew at most once a second.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::page::{Look, Page, Scope, scope};
use super::sheet::Sheet;
use crate::api::auth::Caller;
use crate::api::{Shared, now};
use crate::event_loop::caught;

/// Between two looks at what a page shows, at least.
const EVERY: Duration = Duration::from_secs(1);
/// Pauses at least so many times as long as making the rows took: a page uses a fifth of one core at most.
const PAUSE_TIMES: u32 = 4;
/// A page is kept so long for a reader that lost its connection.
const KEPT: Duration = Duration::from_secs(120);
/// Pages that are watched at one time: bounds memory and time whatever is asked for.
const PAGES_MAX: usize = 128;

pub(super) struct Watched {
    /// By whose jobs are seen: nobody gets a page that was made for others.
    pages: Mutex<BTreeMap<(Page, Scope), Arc<Open>>>,
    /// Tells the versions of this server's sheets from those of the one before.
    pub(super) boot: u64,
}

impl Default for Watched {
    fn default() -> Self {
        Self {
            pages: Mutex::default(),
            boot: now().as_millis(),
        }
    }
}

/// A page that somebody looks at.
pub(super) struct Open {
    pub(super) sheet: Mutex<Sheet>,
    changed: watch::Sender<u64>,
}

impl Open {
    pub(super) fn sheet(&self) -> MutexGuard<'_, Sheet> {
        lock(&self.sheet)
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// So many pages are watched that there is no place for another.
#[derive(Debug)]
pub(super) struct TooMany(pub(super) usize);

impl Watched {
    /// Opens a page: its rows are there when this returns.
    pub(super) async fn open(
        shared: &Arc<Shared>,
        caller: &Caller,
        page: Page,
    ) -> Result<Arc<Open>, TooMany> {
        let watched = &shared.dashboard.watched;
        let key = (page, scope(caller));
        if let Some(open) = lock(&watched.pages).get(&key) {
            return Ok(open.clone());
        }
        let open = Arc::new(Open {
            sheet: Mutex::default(),
            changed: watch::Sender::new(0),
        });
        make(shared, caller, &key.0, &open).await;
        let mut pages = lock(&watched.pages);
        if let Some(open) = pages.get(&key) {
            return Ok(open.clone());
        }
        if pages.len() >= PAGES_MAX {
            return Err(TooMany(PAGES_MAX));
        }
        pages.insert(key.clone(), open.clone());
        tokio::spawn(keep(shared.clone(), caller.clone(), key, open.clone()));
        Ok(open)
    }
}

/// Keeps a page's rows up to date while somebody looks at it, and forgets it when nobody has for a while.
async fn keep(shared: Arc<Shared>, caller: Caller, key: (Page, Scope), open: Arc<Open>) {
    let page = &key.0;
    let mut looked_at = Instant::now();
    let mut seq = None;
    let mut made = Instant::now();
    let mut rest = EVERY;
    loop {
        tokio::time::sleep(rest).await;
        rest = EVERY;
        if open.changed.receiver_count() == 0 {
            if looked_at.elapsed() > KEPT {
                let mut pages = lock(&shared.dashboard.watched.pages);
                // Somebody may have come meanwhile: who takes it from the map holds the map's lock.
                if open.changed.receiver_count() == 0 && Arc::strong_count(&open) == 2 {
                    pages.remove(&key);
                    return;
                }
            }
            continue;
        }
        looked_at = Instant::now();
        let committed = shared.view.state().seq();
        if seq == Some(committed) && made.elapsed() < page.stale_after() {
            continue;
        }
        seq = Some(committed);
        made = Instant::now();
        if make(&shared, &caller, page, &open).await {
            let version = open.sheet().version();
            open.changed.send_replace(version);
        }
        rest = EVERY.max(made.elapsed() * PAUSE_TIMES);
    }
}

/// Makes a page's rows, beside the threads that answer requests; says whether any changed.
async fn make(shared: &Arc<Shared>, caller: &Caller, page: &Page, open: &Arc<Open>) -> bool {
    let (shared, caller) = (shared.clone(), caller.clone());
    let (page, open) = (page.clone(), open.clone());
    let made = tokio::task::spawn_blocking(move || {
        let rows = caught(|| {
            page.rows(&Look {
                shared: &shared,
                caller: &caller,
            })
        });
        match rows {
            Ok(rows) => open.sheet().update(rows),
            Err(error) => {
                tracing::error!(error, ?page, "a page could not be made");
                false
            }
        }
    });
    made.await.unwrap_or(false)
}

/// What a panic left half-done is made anew a second later.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
