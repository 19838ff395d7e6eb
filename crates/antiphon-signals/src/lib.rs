//! antiphon-signals.
