//! Text from traces inside HTML, SVG and links: no name of a job, a team or a file becomes markup.

/// Text as it stands between tags or in a quoted attribute. What XML forbids, and what turns the direction of the text that
/// follows, becomes a space.
#[must_use]
pub fn text(raw: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut out = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            c if c.is_control() || turns(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                out.push(' ')
            }
            c => out.push(c),
        }
    }
    out
}

/// A cell of a CSV, quoted where it has to be.
#[must_use]
pub fn cell(raw: &str) -> String {
    if raw.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", raw.replace('"', "\"\""))
    } else {
        raw.to_owned()
    }
}

/// A link that downloads a text as a file, without a server.
#[must_use]
pub fn download(label: &str, file: &str, content: &str) -> String {
    let mut data = String::with_capacity(content.len() + content.len() / 8);
    for byte in content.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b',' | b'.' | b'-' | b'_' | b'/' | b':' => {
                data.push(char::from(byte));
            }
            byte => data.push_str(&format!("%{byte:02X}")),
        }
    }
    format!(
        "<a download=\"{}\" href=\"data:text/csv;charset=utf-8,{data}\">{}</a>",
        text(file),
        text(label)
    )
}

#[cfg(test)]
mod tests {
    use super::{cell, download, text};

    #[test]
    fn markup_stays_text() {
        assert_eq!(
            text("<script>\"a\" & 'b'\u{202e}\u{1}"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;  "
        );
    }

    #[test]
    fn cells_are_quoted_where_they_have_to_be() {
        assert_eq!(cell("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(cell("-0.5"), "-0.5");
    }

    #[test]
    fn a_download_holds_no_character_that_ends_it() {
        let link = download("CSV", "a.csv", "x,\"y\"\n<é");
        assert!(link.contains("x,%22y%22%0A%3C%C3%A9"), "{link}");
    }
}
