//! On which line each key of a YAML or JSON text stands. The parsers of others give values without places; this gives places without
//! values, and may be wrong only about a line number.

use std::collections::BTreeMap;

/// Lines by dotted path. An item of a list has the path of the list and `[]`.
#[derive(Debug, Default)]
pub(crate) struct Lines(BTreeMap<String, u64>);

impl Lines {
    /// The line of a path, or of what it stands in.
    pub(crate) fn of(&self, path: &str) -> u64 {
        let mut path = path;
        loop {
            if let Some(line) = self.0.get(path) {
                return *line;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = path.get(..end).unwrap_or_default(),
                None => return 1,
            }
        }
    }

    pub(crate) fn in_yaml(text: &str) -> Self {
        Self::scan(text, false)
    }

    /// As [`Self::in_yaml`], with the number of an item in place of `[]`: `containers[1].name`. The item has a line of its own.
    pub(crate) fn in_yaml_numbered(text: &str) -> Self {
        Self::scan(text, true)
    }

    fn scan(text: &str, numbered: bool) -> Self {
        let mut lines = Self::default();
        let mut items: BTreeMap<String, usize> = BTreeMap::new();
        // Indentation and path of the mappings that the line may belong to.
        let mut open: Vec<(usize, String)> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let mut rest = line.trim_start();
            let mut indent = line.len() - rest.len();
            if rest.is_empty() || rest.starts_with('#') {
                continue;
            }
            while let Some(item) = rest.strip_prefix("- ") {
                // A list may stand at the indentation of the key that holds it.
                open.retain(|(at, path)| *at < indent || (*at == indent && !path.ends_with(']')));
                let path = if numbered {
                    let number = items.entry(parent(&open).to_owned()).or_insert(0);
                    *number += 1;
                    format!("{}[{}]", parent(&open), *number - 1)
                } else {
                    format!("{}[]", parent(&open))
                };
                if numbered {
                    lines.0.entry(path.clone()).or_insert(index as u64 + 1);
                }
                open.push((indent, path));
                let inner = item.trim_start();
                indent += rest.len() - inner.len();
                rest = inner;
            }
            let Some(key) = key_of(rest) else { continue };
            while open.last().is_some_and(|(at, _)| *at >= indent) {
                open.pop();
            }
            let prefix = parent(&open);
            let path = if prefix.is_empty() {
                key.to_owned()
            } else {
                format!("{prefix}.{key}")
            };
            lines.0.entry(path.clone()).or_insert(index as u64 + 1);
            open.push((indent, path));
        }
        lines
    }

    pub(crate) fn in_json(text: &str) -> Self {
        let mut lines = Self::default();
        let mut line = 1;
        // The path of each open object or list, and the last key read in it.
        let mut open: Vec<String> = Vec::new();
        let mut key = String::new();
        let mut last_text = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '\n' => line += 1,
                '"' => last_text = quoted(&mut chars),
                ':' => {
                    key = match open.last() {
                        Some(path) if !path.is_empty() => format!("{path}.{last_text}"),
                        _ => last_text.clone(),
                    };
                    lines.0.entry(key.clone()).or_insert(line);
                }
                '{' => open.push(std::mem::take(&mut key)),
                '[' => {
                    key.push_str("[]");
                    open.push(key.clone());
                }
                '}' | ']' => {
                    open.pop();
                    key.clear();
                }
                _ => (),
            }
        }
        lines
    }

    /// As [`Self::in_json`], with the number of an item in place of `[]`.
    pub(crate) fn in_json_numbered(text: &str) -> Self {
        let mut lines = Self::default();
        let mut line = 1;
        // The path of each open object or list, and of a list which item it is at.
        let mut open: Vec<(String, Option<usize>)> = Vec::new();
        let mut key = String::new();
        let mut last_text = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '\n' => line += 1,
                '"' => last_text = quoted(&mut chars),
                ':' => {
                    key = match open.last() {
                        Some((path, _)) if !path.is_empty() => format!("{path}.{last_text}"),
                        _ => last_text.clone(),
                    };
                    lines.0.entry(key.clone()).or_insert(line);
                }
                '{' | '[' => {
                    let path = match open.last() {
                        Some((path, Some(item))) => format!("{path}[{item}]"),
                        _ => std::mem::take(&mut key),
                    };
                    lines.0.entry(path.clone()).or_insert(line);
                    open.push((path, (c == '[').then_some(0)));
                }
                ',' => {
                    if let Some((_, Some(item))) = open.last_mut() {
                        *item += 1;
                    }
                }
                '}' | ']' => {
                    open.pop();
                    key.clear();
                }
                _ => (),
            }
        }
        lines
    }
}

/// The rest of a text in quotes whose first quote was read, and its last one with it.
fn quoted(chars: &mut std::str::Chars<'_>) -> String {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => text.extend(chars.next()),
            _ => text.push(c),
        }
    }
    text
}

fn parent(open: &[(usize, String)]) -> &str {
    open.last().map_or("", |(_, path)| path.as_str())
}

/// The key that a line begins with.
fn key_of(rest: &str) -> Option<&str> {
    if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let inner = rest.get(1..)?;
        let end = inner.find(quote)?;
        let after = inner.get(end + 1..)?.trim_start();
        return after.starts_with(':').then(|| inner.get(..end)).flatten();
    }
    let colon = rest.match_indices(':').find(|(at, _)| {
        let after = rest.get(at + 1..).unwrap_or_default();
        after.is_empty() || after.starts_with([' ', '\t'])
    })?;
    let key = rest.get(..colon.0)?.trim_end();
    (!key.is_empty() && !key.starts_with(['{', '[', '#'])).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_yaml_are_found_through_indentation_and_lists() {
        let text = "a: 1\n# b: 2\nfsdp_config:\n  offload: true\n  \"state\": full\ndatasets:\n  - path: x\n    type: y\n  - path: z\nlast: {c: 3}\n";
        let lines = Lines::in_yaml(text);
        assert_eq!(lines.of("a"), 1);
        assert_eq!(lines.of("fsdp_config.offload"), 4);
        assert_eq!(lines.of("fsdp_config.state"), 5);
        assert_eq!(lines.of("datasets[].type"), 8);
        assert_eq!(lines.of("last"), 10);
        assert_eq!(lines.of("last.c"), 10, "inside braces: the line of the key");
    }

    #[test]
    fn items_of_a_list_have_lines_of_their_own() {
        let lines = Lines::in_yaml_numbered("a:\n- name: x\n  list:\n    - one\n- name: y\n");
        assert_eq!(lines.of("a[0].name"), 2);
        assert_eq!(lines.of("a[0].list[0]"), 4);
        assert_eq!(lines.of("a[1].name"), 5);
        assert_eq!(lines.of("a[1].missing"), 5);
        let text = "{\"a\": [\n {\"name\": [1, 2]},\n {\"name\": {\"b\":\n 1}}]}";
        let lines = Lines::in_json_numbered(text);
        assert_eq!((lines.of("a[0].name"), lines.of("a[1].name.b")), (2, 3));
    }

    #[test]
    fn a_list_at_the_indentation_of_its_key_ends_with_it() {
        let lines = Lines::in_yaml("plugins:\n- one: 1\n- two\nnext: 2\n");
        assert_eq!(lines.of("plugins[].one"), 2);
        assert_eq!(lines.of("next"), 4);
    }

    #[test]
    fn keys_of_json_are_found_through_braces() {
        let text = "{\n \"zero_optimization\": {\n  \"stage\": 3,\n  \"list\": [1, {\"x\": 2}],\n  \"offload\": {\"device\": \"cpu\"}\n },\n \"a:b\": 1\n}";
        let lines = Lines::in_json(text);
        assert_eq!(lines.of("zero_optimization.stage"), 3);
        assert_eq!(lines.of("zero_optimization.offload.device"), 5);
        assert_eq!(lines.of("a:b"), 7);
    }
}
