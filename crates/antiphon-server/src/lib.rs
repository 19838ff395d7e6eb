//! antiphon-server.
