//! Every config of `examples/plans`, and what it becomes.

#![expect(
    clippy::unwrap_used,
    reason = "a file that is not there fails the test"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use antiphon_import::Imported;
use expect_test::expect_file;
use serde_json::Value;

fn plans() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/plans")
}

fn import(file: &str) -> Imported {
    let text = fs::read_to_string(plans().join(file)).unwrap();
    let mut read = |path: &str| fs::read_to_string(plans().join(path)).ok();
    antiphon_import::training(&text, file, None, &mut read)
        .unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// What is stated of a run, a line each, and what was warned of.
fn shown(imported: &Imported) -> String {
    let mut text = format!("format: {}\n", imported.format);
    leaves(
        "",
        &serde_json::to_value(&imported.spec).unwrap(),
        &mut text,
    );
    for warning in &imported.warnings {
        writeln!(text, "warning[{}]: {warning}", warning.name()).unwrap();
    }
    text
}

fn leaves(path: &str, value: &Value, text: &mut String) {
    match value {
        Value::Null => (),
        Value::Object(map) => {
            for (key, value) in map {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(&format!("{path}{dot}{key}"), value, text);
            }
        }
        value => writeln!(text, "{path}: {value}").unwrap(),
    }
}

#[test]
fn every_example_becomes_what_it_says() {
    let mut seen = 0;
    for entry in fs::read_dir(plans()).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() || file == "README.md" {
            continue;
        }
        seen += 1;
        let snapshot = format!("{}/tests/examples/{file}.txt", env!("CARGO_MANIFEST_DIR"));
        expect_file![snapshot].assert_eq(&shown(&import(file)));
    }
    assert_eq!(seen, 20);
    let snapshots = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/examples");
    assert_eq!(
        fs::read_dir(snapshots).unwrap().count(),
        seen,
        "a snapshot without its example"
    );
}

#[test]
fn every_example_is_described() {
    let page = fs::read_to_string(plans().join("README.md")).unwrap();
    for dir in [plans(), plans().join("files")] {
        for entry in fs::read_dir(dir).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let described =
                page.contains(&format!("`{name}`")) || page.contains(&format!("/{name}`"));
            assert!(
                described || name == "README.md" || name == "files",
                "{name}"
            );
        }
    }
}
