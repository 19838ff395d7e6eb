//! antiphon-types.
