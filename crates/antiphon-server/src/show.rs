//! Shows a log that somebody else writes under virtual time: the same pages and the same API over a simulation. There is no
//! loop behind it and no executor, so nothing can be asked for, and no clock of this machine is shown.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use antiphon_store::{Fence, Log, SqliteLog};
use antiphon_types::{Event, Timestamp};
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::api::{Shared, router};
use crate::dashboard::{self, Dashboard};
use crate::devices::DeviceBook;
use crate::event_loop::{LoopHandle, encode};
use crate::forecasts::Forecasts;
use crate::over::Source;
use crate::recovery::ImageKeeper;
use crate::serve::{Limits, serve};
use crate::signal_plane::SignalPlane;
use crate::start::{StartError, leave_address, listen};
use crate::throughput::Throughput;
use crate::tokens::{Allowance, Tokens};
use crate::view::View;

/// What is shown, and where.
#[derive(Debug)]
pub struct ShowConfig {
    /// Where it listens: on loopback, as there is no TLS.
    pub listen: SocketAddr,
    /// Directory of log and token.
    pub state_dir: PathBuf,
    /// The person on whose behalf it runs.
    pub user: String,
    /// What is simulated, in a few words.
    pub title: String,
    /// When virtual time begins.
    pub begins: Timestamp,
}

/// The clock of what is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualTime {
    /// The time.
    pub at: Timestamp,
    /// How it goes on.
    pub pace: Pace,
}

/// How virtual time goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As fast as this machine can.
    Ahead,
    /// So many times as fast as this machine's clock.
    Times {
        /// How many.
        speed: u64,
    },
    /// Not at all: this is the time that was to be seen.
    Still,
    /// Not at all: nothing more happens.
    Over,
}

/// A log that is shown.
pub struct Showing {
    /// Where it listens.
    pub listen: SocketAddr,
    log: Arc<dyn Log>,
    fence: Fence,
    shared: Arc<Shared>,
    images: Mutex<ImageKeeper>,
    tasks: Vec<JoinHandle<()>>,
}

/// What stands on every page: what is simulated, and what time it is there.
#[derive(Serialize)]
pub(crate) struct Simulated<'a> {
    title: &'a str,
    begins_ms: u64,
    at_ms: u64,
    pace: &'static str,
    /// Milliseconds of it that pass in one of the reader's.
    speed: u64,
}

/// What is simulated, and since when.
pub(crate) struct Subject {
    title: String,
    begins: Timestamp,
}

impl Subject {
    pub(crate) fn at(&self, time: VirtualTime) -> Simulated<'_> {
        let (pace, speed) = match time.pace {
            Pace::Ahead => ("ahead", 0),
            Pace::Times { speed } => ("times", speed),
            Pace::Still => ("still", 0),
            Pace::Over => ("over", 0),
        };
        Simulated {
            title: &self.title,
            begins_ms: self.begins.as_millis(),
            at_ms: time.at.as_millis(),
            pace,
            speed,
        }
    }
}

/// Shows an empty log, at first.
///
/// # Errors
/// Where the address or the directory cannot be used.
pub async fn show(config: ShowConfig) -> Result<Showing, StartError> {
    let log: Arc<dyn Log> = Arc::new(SqliteLog::open(&config.state_dir)?);
    let listener = listen(config.listen).await?;
    let address = listener.local_addr().map_err(StartError::Http)?;
    let limits = Limits::default();
    let allowance = Allowance {
        per_second: limits.requests_per_second,
        burst: limits.requests_burst,
    };
    let tokens = Tokens::open(&config.state_dir, &config.user, allowance);
    let tokens = tokens.map_err(|source| StartError::StateDir {
        dir: config.state_dir.clone(),
        source,
    })?;
    let fence = log.acquire(&format!("pid {}", std::process::id())).await?;
    leave_address(&config.state_dir, "address", &address.to_string());
    let view = View::new(antiphon_kernel::State::default());
    view.set_virtual_time(VirtualTime {
        at: config.begins,
        pace: Pace::Ahead,
    });
    let shared = Arc::new(Shared {
        view: Arc::new(view),
        inputs: LoopHandle::to_nobody(),
        log: log.clone(),
        source: Source::Shows(Subject {
            title: config.title,
            begins: config.begins,
        }),
        tokens: Arc::new(tokens),
        signals: SignalPlane::default(),
        forecasts: Arc::new(Forecasts::default()),
        dashboard: Dashboard::default(),
        state_dir: config.state_dir.display().to_string(),
        gpus_virtual: false,
        tls: false,
        throughput: Throughput::default(),
        devices: DeviceBook::default(),
        metrics_open: false,
    });
    let forecasting = {
        let shared = shared.clone();
        tokio::spawn(async move { shared.forecasts.run(shared.view.clone()).await })
    };
    let watching = tokio::spawn(dashboard::run(shared.clone()));
    let app = router(shared.clone());
    let serving = tokio::spawn(async move {
        if let Err(error) = serve(listener, app, None, limits).await {
            tracing::error!(%error, "nobody can look any more");
        }
    });
    Ok(Showing {
        listen: address,
        images: Mutex::new(ImageKeeper::new(log.clone(), fence, Default::default())),
        log,
        fence,
        shared,
        tasks: vec![forecasting, watching, serving],
    })
}

impl Showing {
    /// Takes in what happened up to a time.
    ///
    /// # Errors
    /// Where the log cannot be written.
    pub async fn take(&self, events: Vec<Event>, time: VirtualTime) -> Result<(), StartError> {
        if !events.is_empty() {
            let entries = events.iter().map(encode).collect();
            let written = self.log.append(self.fence, entries).await;
            written.map_err(StartError::LogFailed)?;
            self.shared.view.commit(events);
        }
        self.shared.view.set_virtual_time(time);
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        images.after_commit(&self.shared.view.state());
        drop(images);
        dashboard::sample_if_due(&self.shared);
        Ok(())
    }

    /// Ends it.
    pub fn end(self) {
        for task in self.tasks {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
