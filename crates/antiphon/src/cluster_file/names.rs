//! Node names and ranges of them, as Slurm writes them too: `n7`, `n[001-064]`, `r[1-2]n[01-16,20]`, `a1,b[0-3]`.

use super::NODES_MAX;

/// All names that a text stands for, in its order.
///
/// # Errors
/// Why it stands for none.
pub(super) fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for part in outside_brackets(text) {
        let more = range(part.trim()).ok_or_else(|| {
            format!(
                "`{text}` is no node name or range: give a form like `n7`, `n[001-064]` or `r[1-2]n[01-16,20]`"
            )
        })?;
        names.extend(more);
        if names.len() > NODES_MAX {
            return Err(format!(
                "`{text}` makes more than {NODES_MAX} names: the limit is {NODES_MAX} in one file"
            ));
        }
    }
    Ok(names)
}

/// The parts between commas that do not stand in brackets.
pub(super) fn outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0u32);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'(' => depth += 1,
            b']' | b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => (),
        }
    }
    parts.push(&text[start..]);
    parts
}

/// One name, with any number of brackets in it. Stops a little above the limit.
fn range(text: &str) -> Option<Vec<String>> {
    let mut names = vec![String::new()];
    let mut rest = text;
    while let Some((literal, behind)) = rest.split_once('[') {
        let (list, behind) = behind.split_once(']')?;
        let numbers = numbers(list)?;
        names = names
            .iter()
            .flat_map(|name| {
                numbers
                    .iter()
                    .map(move |number| format!("{name}{literal}{number}"))
            })
            .take(NODES_MAX + 1)
            .collect();
        rest = behind;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let named = |name: &String| !name.is_empty() && name.chars().all(legal);
    names.iter().all(named).then_some(names)
}

/// `01-16,20` as texts of the width in which they are written.
fn numbers(list: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let digits = |text: &str| {
            let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            all.then(|| text.parse::<u64>().ok()).flatten()
        };
        let (from, to) = (digits(first)?, digits(last)?);
        if to < from {
            return None;
        }
        let width = first.len();
        let range = (from..=to).map(|number| format!("{number:0width$}"));
        numbers.extend(range.take(NODES_MAX + 1));
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_names_in_their_order() {
        for (text, expected) in [
            ("n7", "n7"),
            ("n[08-10]", "n08 n09 n10"),
            ("r[1-2]n[01-02,20]", "r1n01 r1n02 r1n20 r2n01 r2n02 r2n20"),
            ("a1, b[0-1].lan", "a1 b0.lan b1.lan"),
        ] {
            assert_eq!(expand(text).unwrap().join(" "), expected);
        }
    }

    #[test]
    fn what_is_no_range_is_refused_with_its_text() {
        for text in ["n[3-1]", "n[1-", "n[a-b]", "", "n 1", "n[]", "n1,", "n]"] {
            assert!(
                expand(text)
                    .unwrap_err()
                    .starts_with(&format!("`{text}` is no node name")),
                "{text}"
            );
        }
        for text in ["n[0-99999999]", "r[0-999]n[0-999]", "a[0-19999],b"] {
            assert!(
                expand(text).unwrap_err().contains("more than 20000 names"),
                "{text}"
            );
        }
    }
}
