//! The dashboard: pages for people, kept live. Files that are part of the binary draw what sheets of rows say; a sheet is made
//! once for all who look at it. Decides nothing, and asks the API for whatever a person does.

mod cluster;
pub(crate) mod explain;
pub(crate) mod files;
mod gpus;
mod history;
mod job;
pub(crate) mod live;
mod now;
mod page;
mod queue;
mod sheet;
pub(crate) mod story;
mod teams;
mod told;
mod watched;

use std::sync::Arc;

use crate::api::Shared;
use history::History;
use story::Story;
use watched::Watched;

pub(crate) use history::sample_if_due;

/// What the dashboard remembers beside the state.
#[derive(Default)]
pub(crate) struct Dashboard {
    story: Story,
    history: History,
    watched: Watched,
    explained: explain::Latest,
}

/// Reads along in the log, and takes samples, for as long as it is polled.
pub(crate) async fn run(shared: Arc<Shared>) {
    tokio::join!(story::read(&shared), async {
        // The clock of a simulation is not this machine's.
        if shared.source.shown().is_none() {
            history::sample(&shared).await;
        }
    });
}
