//! Signal rules: windows over what training loops report, and what they conclude. Pure: time comes in with the signal.
//! Floats are allowed here; findings are rounded to integers at the door.

pub mod batch;
pub mod bottleneck;
mod conclusion;
pub mod convergence;
#[cfg(test)]
mod draw;
pub mod hang;
pub mod interval;
mod robust;
pub mod straggler;

pub use conclusion::Conclusion;
