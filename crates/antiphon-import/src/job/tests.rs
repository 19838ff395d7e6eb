//! What tells formats apart, and what no value can break.
