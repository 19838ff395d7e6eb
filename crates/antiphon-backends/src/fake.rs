//! A backend without processes, for tests.
