//! Batch scripts and the shapes, times and names that they come to.
