//! The reference names every key of every format, with what becomes of it: its tables are made from those of the readers.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use antiphon_import::{JobFormat, entries};
use expect_test::expect_file;

/// The tables of a format.
fn tables(format: JobFormat) -> String {
    let mut text = String::new();
    let mut part = "";
    for entry in entries(format) {
        if entry.part != part {
            part = entry.part;
            write!(text, "\n| {part} | | |\n| --- | --- | --- |\n").unwrap();
        }
        let key = entry
            .key
            .split(", ")
            .map(|key| format!("`{key}`"))
            .collect::<Vec<_>>()
            .join(", ");
        let note = entry.note.replace('|', "\\|");
        writeln!(text, "| {key} | {} | {note} |", entry.fate).unwrap();
    }
    text
}

#[test]
fn the_reference_is_made_from_the_tables_of_the_readers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/imports.md");
    let mut page = fs::read_to_string(&path).unwrap();
    for format in JobFormat::ALL {
        let begin = format!("<!-- keys of {format} -->\n");
        let end = "<!-- end -->";
        let at = page
            .find(&begin)
            .unwrap_or_else(|| panic!("imports.md has no place for {format}"))
            + begin.len();
        let length = page[at..].find(end).unwrap();
        page.replace_range(at..at + length, &format!("{}\n", tables(format)));
    }
    expect_file![path].assert_eq(&page);
}

#[test]
fn every_key_stands_once_in_its_part() {
    for format in JobFormat::ALL {
        let mut keys: Vec<_> = entries(format)
            .into_iter()
            .map(|entry| (entry.part, entry.key))
            .collect();
        let count = keys.len();
        assert!(count > 20, "{format}");
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count, "{format}");
    }
}
