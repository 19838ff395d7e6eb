//! What `scontrol show` prints: records of `Key=Value`, on many lines or, with `-o`, on one. Knows no key's meaning.

/// The keys of one record.
#[derive(Debug)]
pub(super) struct Record<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Record<'a> {
    /// A value, where there is one: Slurm writes `(null)` and `N/A` where there is none.
    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        let pair = self.0.iter().find(|(known, _)| *known == key);
        pair.map(|(_, value)| *value)
            .filter(|value| !value.is_empty() && *value != "(null)" && *value != "N/A")
    }
}

/// Splits a text at every `first=`, the key that begins a record, and keeps what stands under `keys`.
pub(super) fn records<'a>(text: &'a str, first: &str, keys: &[&str]) -> Vec<Record<'a>> {
    let begin = format!("{first}=");
    let starts: Vec<usize> = text
        .match_indices(&begin)
        .map(|(at, _)| at)
        .filter(|at| *at == 0 || text.as_bytes()[at - 1].is_ascii_whitespace())
        .collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let texts = starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| &text[start..end]);
    texts.map(|text| record(text, keys)).collect()
}

/// Values end at a space, but for a reason, which ends where its line does.
fn record<'a>(text: &'a str, keys: &[&str]) -> Record<'a> {
    let mut pairs = Vec::new();
    for line in text.lines().map(str::trim) {
        let mut rest = line;
        while let Some((key, behind)) = rest.split_once('=') {
            // A key is the last word in front of its sign: what stands before belongs to a text with spaces.
            let key = key.rsplit(char::is_whitespace).next().unwrap_or(key);
            let value = match key {
                "Reason" => behind,
                _ => behind.split_whitespace().next().unwrap_or(""),
            };
            // An empty value (`AllocTRES=`) is followed by a space and the next key.
            let empty = behind.starts_with(char::is_whitespace);
            let value = if empty { "" } else { value };
            if keys.contains(&key) {
                pairs.push((key, value.trim()));
            }
            rest = &behind[value.len()..];
        }
    }
    Record(pairs)
}
