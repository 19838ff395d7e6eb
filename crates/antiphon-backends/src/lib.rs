//! antiphon-backends.
