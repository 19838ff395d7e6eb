//! Node names and ranges of them, as Slurm writes them too: `n7`, `n[001-064]`, `r[1-2]n[01-16,20]`, `a1,b[0-3]`.

use std::collections::BTreeMap;

/// Names that one text may stand for: the widest clusters have 5,000 nodes, and it bounds what a mistyped range can make.
pub const NAMES_MAX: usize = 20_000;

/// All names that a text stands for, in its order.
///
/// # Errors
/// Why it stands for none.
pub fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for part in outside_brackets(text) {
        let more = range(part.trim()).ok_or_else(|| {
            format!(
                "`{text}` is no node name or range: give a form like `n7`, `n[001-064]` or `r[1-2]n[01-16,20]`"
            )
        })?;
        names.extend(more);
        if names.len() > NAMES_MAX {
            return Err(format!(
                "`{text}` makes more than {NAMES_MAX} names: the limit is {NAMES_MAX} in one file"
            ));
        }
    }
    Ok(names)
}

/// The parts between commas that do not stand in brackets.
#[must_use]
pub fn outside_brackets(text: &str) -> Vec<&str> {
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
            .take(NAMES_MAX + 1)
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
        numbers.extend(range.take(NAMES_MAX + 1));
    }
    Some(numbers)
}

/// Names as one text that [`expand`] reads back: `n[1-3,7],gpu-a`. The order is lost where ranges are made.
#[must_use]
pub fn compress<N: AsRef<str>>(names: &[N]) -> String {
    let mut plain: Vec<&str> = Vec::new();
    // By what stands before the number, and by the width of the number, which counts where it begins with 0.
    let mut numbered: BTreeMap<(&str, usize), Vec<u64>> = BTreeMap::new();
    for name in names.iter().map(AsRef::as_ref) {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[stem.len()..];
        match digits.parse() {
            Ok(number) => {
                let padded = digits.starts_with('0') && digits.len() > 1;
                let width = if padded { digits.len() } else { 0 };
                numbered.entry((stem, width)).or_default().push(number);
            }
            Err(_) => plain.push(name),
        }
    }
    let mut parts: Vec<String> = plain.into_iter().map(str::to_owned).collect();
    for ((stem, width), mut numbers) in numbered {
        numbers.sort_unstable();
        numbers.dedup();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == number && digits(number) == digits(*last) => {
                    *last = number;
                }
                _ => ranges.push((number, number)),
            }
        }
        if let [(first, last)] = ranges.as_slice()
            && first == last
        {
            parts.push(format!("{stem}{first:0width$}"));
            continue;
        }
        let ranges: Vec<String> = ranges
            .iter()
            .map(|(first, last)| {
                if first == last {
                    format!("{first:0width$}")
                } else {
                    format!("{first:0width$}-{last:0width$}")
                }
            })
            .collect();
        parts.push(format!("{stem}[{}]", ranges.join(",")));
    }
    parts.join(",")
}

/// How wide a number is: a range keeps the width in which it begins.
const fn digits(number: u64) -> u32 {
    match number.checked_ilog10() {
        Some(log) => log + 1,
        None => 1,
    }
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

    #[test]
    fn names_become_ranges_that_read_back() {
        for (names, expected) in [
            ("n1 n2 n3 n7", "n[1-3,7]"),
            ("n9 n10 n11", "n[9,10-11]"),
            ("n08 n09 n10", "n10,n[08-09]"),
            ("gpu-a n2", "gpu-a,n2"),
            ("r1n01 r1n02 r2n01", "r1n[01-02],r2n01"),
            ("n0 n1", "n[0-1]"),
        ] {
            let names: Vec<&str> = names.split(' ').collect();
            let text = compress(&names);
            assert_eq!(text, expected);
            let mut back = expand(&text).unwrap();
            back.sort();
            let mut sorted = names.clone();
            sorted.sort_unstable();
            assert_eq!(back, sorted, "{text}");
        }
    }
}
