//! How intervals stand in a file of faults, and shares that are left out. Says nothing of which values make sense together.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};

use super::Interval;

pub(super) fn interval<'de, D: Deserializer<'de>>(from: D) -> Result<Interval, D::Error> {
    let text = Cow::<'de, str>::deserialize(from)?;
    match text.as_ref() {
        "never" => Ok(Interval::Never),
        "young-daly" => Ok(Interval::YoungDaly),
        text => text
            .parse()
            .map(Interval::Every)
            .map_err(|error| D::Error::custom(format!("{error}; or give `never` or `young-daly`"))),
    }
}

pub(super) const fn whole() -> u32 {
    1_000
}

pub(super) const fn one() -> u32 {
    1
}
