//! antiphon-store.
