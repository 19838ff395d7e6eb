//! What becomes of each key of a format: understood, without effect here, or named in a warning. The reference page is made of it.

use super::{JobFormat, command, kubernetes, sbatch, skypilot};
use crate::options::nearest_of;

/// What becomes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is followed: what it becomes.
    Becomes(&'static str),
    /// It changes nothing here: why.
    Harmless(&'static str),
    /// It cannot be honored: what happens instead.
    Refused(&'static str),
}

/// A key of a format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) fate: Fate,
}

/// A key that is followed.
pub(super) const fn becomes(name: &'static str, what: &'static str) -> Key {
    let fate = Fate::Becomes(what);
    Key { name, fate }
}

/// A key that changes nothing here.
pub(super) const fn harmless(name: &'static str, why: &'static str) -> Key {
    let fate = Fate::Harmless(why);
    Key { name, fate }
}

/// A key that cannot be honored.
pub(super) const fn refused(name: &'static str, instead: &'static str) -> Key {
    let fate = Fate::Refused(instead);
    Key { name, fate }
}

/// Looks a key up.
pub(super) fn find<'a>(tables: &[&'a [Key]], name: &str) -> Option<&'a Key> {
    tables
        .iter()
        .copied()
        .flatten()
        .find(|key| key.name == name)
}

/// The known key that an unknown one looks like.
pub(super) fn nearest(tables: &[&[Key]], name: &str) -> Option<String> {
    nearest_of(name, tables.iter().copied().flatten().map(|key| key.name))
}

/// A row of the reference page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where the key may stand: `pod`, `container`.
    pub part: &'static str,
    /// The key, as it is written.
    pub key: String,
    /// `becomes`, `harmless` or `not honored`.
    pub fate: &'static str,
    /// What it becomes, why it changes nothing, or what happens instead.
    pub note: &'static str,
}

/// All that is known of a format, in the order of its tables.
#[must_use]
pub fn entries(format: JobFormat) -> Vec<Entry> {
    let tables: Vec<(&'static str, Vec<(String, Fate)>)> = match format {
        JobFormat::Sbatch => sbatch::tables(),
        JobFormat::Kubernetes => kubernetes::tables(),
        JobFormat::SkyPilot => skypilot::tables(),
        JobFormat::Command => command::tables(),
    };
    let mut rows = Vec::new();
    for (part, keys) in tables {
        for (key, fate) in keys {
            let (fate, note) = match fate {
                Fate::Becomes(note) => ("becomes", note),
                Fate::Harmless(note) => ("harmless", note),
                Fate::Refused(note) => ("not honored", note),
            };
            rows.push(Entry {
                part,
                key,
                fate,
                note,
            });
        }
    }
    rows
}

/// The rows of plain tables.
pub(super) fn plain(tables: &[(&'static str, &[Key])]) -> Vec<(&'static str, Vec<(String, Fate)>)> {
    let row = |key: &Key| (key.name.to_owned(), key.fate);
    tables
        .iter()
        .map(|(part, keys)| (*part, keys.iter().map(row).collect()))
        .collect()
}
