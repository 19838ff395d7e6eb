//! Which options of a format nobody asks for, and which known name an unknown one looks like.

/// Options of a format that nobody asks for: those that change what a run needs, each with what it changes, and those that do not.
/// The latter are words of texts. A name may end in `*`, and in `>1` where the option changes nothing at 1.
pub(crate) struct Known {
    pub(crate) matters: &'static [&'static [(&'static str, &'static str)]],
    pub(crate) silent: &'static [&'static str],
}

impl Known {
    pub(super) fn silent(&self) -> impl Iterator<Item = &str> {
        self.silent
            .iter()
            .flat_map(|words| words.split_whitespace())
    }
}

/// The name that a misspelled one looks like.
pub(crate) fn nearest_of<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    /// Longer names are no slips of the finger, and comparing takes the square of their length.
    const COMPARED: usize = 80;
    let plain = |text: &str| text.to_ascii_lowercase().replace(['_', '-', ' ', '.'], "");
    let wanted = plain(name);
    // One slip in five letters is a slip; more is another name.
    let slips = wanted.len() / 5 + 1;
    if wanted.len() > COMPARED || wanted.len() <= slips {
        return None;
    }
    names
        .filter(|other| other.len().abs_diff(name.len()) <= slips + 4)
        .map(|other| (strsim::damerau_levenshtein(&wanted, &plain(other)), other))
        .min()
        .filter(|(distance, _)| *distance <= slips)
        .map(|(_, other)| other.to_owned())
}

/// Whether a name is a pattern's, which may end in `*`.
pub(super) fn matches(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}
