//! How spans of time stand in the files of a simulation: as text with a unit. Knows no key.

use std::borrow::Cow;

use antiphon_types::Millis;
use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};

pub(crate) fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Millis, D::Error> {
    let text = Cow::<'de, str>::deserialize(from)?;
    text.parse().map_err(D::Error::custom)
}

pub(crate) fn maybe_span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Millis>, D::Error> {
    span(from).map(Some)
}
