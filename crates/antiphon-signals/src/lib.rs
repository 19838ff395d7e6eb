//! Signal rules: windows over what training loops report, and what they conclude. Pure: time comes in with the signal.
//! Floats are allowed here; findings are rounded to integers at the door.
//!
//! ```
//! use antiphon_signals::{JobWindow, Signal};
//! use antiphon_types::Timestamp;
//!
//! let mut window = JobWindow::new("job-1.1".parse()?);
//! window.observe(&Signal { step: Some(10), loss: Some(3.2), ..Signal::default() }, Timestamp::from_millis(0));
//! assert_eq!(window.latest().step, 10);
//! # Ok::<(), antiphon_types::IdError>(())
//! ```

mod accept;
mod batch;
mod bottleneck;
mod conclusion;
mod context;
mod convergence;
#[cfg(test)]
mod draw;
mod gap;
mod hang;
mod interval;
mod measured;
mod mix;
mod names;
mod progress;
mod provenance;
#[cfg(test)]
mod rehearsal;
mod robust;
mod run;
mod series;
mod shard;
mod signal;
mod sorted;
mod starving;
mod straggler;
mod stream;
mod window;

pub use conclusion::Conclusion;
pub use context::Context;
pub use convergence::{Estimate, Forecast};
pub use series::Point;
pub use shard::ShardLoss;
pub use signal::{ProgressSignal, Signal};
pub use straggler::TaskTime;
pub use window::{JobWindow, Latest};
