//! antiphon-kernel.
