//! What no compiler checks: who may use whom, what each file says first, and that codes, pages and help belong together.

#![expect(
    clippy::unwrap_used,
    reason = "a repository that cannot be read fails the check"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// Which of our crates each may use. A new arrow is a decision record.
const MAY_USE: [(&str, &[&str]); 11] = [
    ("antiphon-chart", &[]),
    ("antiphon-types", &[]),
    ("antiphon-kernel", &["antiphon-types"]),
    ("antiphon-planner", &["antiphon-types"]),
    ("antiphon-signals", &["antiphon-types"]),
    ("antiphon-import", &["antiphon-types"]),
    ("antiphon-store", &["antiphon-types"]),
    ("antiphon-backends", &["antiphon-types"]),
    (
        "antiphon-server",
        &[
            "antiphon-types",
            "antiphon-kernel",
            "antiphon-planner",
            "antiphon-signals",
            "antiphon-store",
            "antiphon-backends",
        ],
    ),
    (
        "antiphon-sim",
        &[
            "antiphon-chart",
            "antiphon-types",
            "antiphon-kernel",
            "antiphon-signals",
            "antiphon-store",
        ],
    ),
    (
        "antiphon",
        &[
            "antiphon-chart",
            "antiphon-types",
            "antiphon-kernel",
            "antiphon-import",
            "antiphon-planner",
            "antiphon-signals",
            "antiphon-store",
            "antiphon-backends",
            "antiphon-server",
            "antiphon-sim",
        ],
    ),
];

/// What the kernel may use besides: nothing that has a clock, a thread or a random number in it.
const KERNEL_MAY_USE: [&str; 3] = ["antiphon-types", "serde", "thiserror"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn packages() -> Vec<Package> {
    let metadata = MetadataCommand::new()
        .current_dir(root())
        .no_deps()
        .exec()
        .unwrap();
    metadata.workspace_packages().into_iter().cloned().collect()
}

fn normal_dependencies(package: &Package) -> Vec<String> {
    let normal = package
        .dependencies
        .iter()
        .filter(|d| d.kind == DependencyKind::Normal);
    normal.map(|dependency| dependency.name.clone()).collect()
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn crates_use_only_those_that_they_may() {
    let table: BTreeMap<_, _> = MAY_USE.into_iter().collect();
    for package in packages() {
        let allowed = table.get(package.name.as_str());
        let allowed = allowed.unwrap_or_else(|| panic!("{} is not in the table", package.name));
        for name in normal_dependencies(&package) {
            let ours = name.starts_with("antiphon");
            assert!(
                !ours || allowed.contains(&name.as_str()),
                "{} uses {name}",
                package.name
            );
            let pure = package.name.as_str() == "antiphon-kernel";
            assert!(
                !pure || KERNEL_MAY_USE.contains(&name.as_str()),
                "the kernel uses {name}"
            );
        }
    }
}

#[test]
fn packages_are_licensed_and_described() {
    for package in packages() {
        assert_eq!(
            package.license.as_deref(),
            Some("Apache-2.0"),
            "{}",
            package.name
        );
        assert!(package.description.is_some(), "{}", package.name);
    }
    assert!(root().join("LICENSE").exists());
}

#[test]
fn every_file_says_first_what_it_is_for() {
    for path in files(&root().join("crates"), "rs") {
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("//! "),
            "{} does not begin with `//! `",
            path.display()
        );
    }
    for dir in ["python", "examples"] {
        for path in files(&root().join(dir), "py") {
            let text = fs::read_to_string(&path).unwrap();
            assert!(
                text.starts_with("\"\"\""),
                "{} does not begin with a docstring",
                path.display()
            );
        }
    }
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let mut codes = BTreeSet::new();
    for path in files(&root().join("crates"), "rs") {
        if path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices("\"AP0") {
            codes.extend(text.get(at + 1..at + 7).map(str::to_owned));
        }
    }
    let pages = files(&root().join("docs/errors"), "md");
    let pages: BTreeSet<String> = pages
        .iter()
        .map(|page| page.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("AP"))
        .collect();
    assert_eq!(codes, pages);
    let index = fs::read_to_string(root().join("docs/errors/README.md")).unwrap();
    for code in &codes {
        assert!(
            index.contains(code),
            "docs/errors/README.md does not list {code}"
        );
    }
}

#[test]
fn scripts_name_files_of_the_crates_that_are_there() {
    let named = |text: &str| -> Vec<String> {
        let rest = text
            .match_indices("crates/antiphon")
            .map(|(at, _)| &text[at..]);
        let of_path = |c: char| !c.is_ascii_alphanumeric() && !"/-_.".contains(c);
        let paths = rest.map(|rest| rest.split(of_path).next().unwrap_or(rest));
        paths
            .map(|path| path.trim_end_matches('.').to_owned())
            .collect()
    };
    let mut seen = 0;
    for script in files(&root().join("scripts"), "py") {
        for path in named(&fs::read_to_string(&script).unwrap()) {
            let there = root().join(&path).exists();
            assert!(there, "{}: there is no {path}", script.display());
            seen += 1;
        }
    }
    assert!(seen > 0, "no script names a file of a crate");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut documents = files(&root().join("docs"), "md");
    documents
        .extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let path = target.split('#').next().unwrap();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let found = document.parent().unwrap().join(path);
            assert!(
                found.exists(),
                "{}: {target} leads nowhere",
                document.display()
            );
        }
    }
}

fn antiphon(arguments: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_antiphon"));
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "antiphon {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn reference(name: &str) -> String {
    fs::read_to_string(root().join("docs/reference").join(name)).unwrap()
}

#[test]
fn the_command_line_reference_names_every_command_and_option() {
    let page = reference("cli.md");
    let commands = antiphon(&["help"]);
    let commands = commands
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1);
    for line in commands.take_while(|line| !line.is_empty()) {
        let command = line.split_whitespace().next().unwrap();
        assert!(
            page.contains(&format!("`{command}")),
            "cli.md does not name `{command}`"
        );
        if command == "help" {
            continue;
        }
        let help = antiphon(&[command, "--help"]);
        let options = help
            .split_whitespace()
            .filter(|word| word.starts_with("--"));
        for option in
            options.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-'))
        {
            let common = matches!(option, "--help" | "--version");
            assert!(
                common || page.contains(option),
                "cli.md does not name `{option}` of `{command}`"
            );
        }
    }
}

#[test]
fn the_job_file_reference_names_every_key() {
    let page = reference("job-file.md");
    let schema: serde_json::Value =
        serde_json::from_str(&antiphon(&["check", "--schema"])).unwrap();
    let forms = schema["$defs"]
        .as_object()
        .unwrap()
        .values()
        .chain([&schema]);
    for key in forms
        .filter_map(|form| form["properties"].as_object())
        .flat_map(|keys| keys.keys())
    {
        assert!(
            page.contains(&format!("`{key}`")) || page.contains(&format!(".{key}`")),
            "job-file.md does not name `{key}`"
        );
    }
}

#[test]
fn the_configuration_reference_names_every_setting() {
    let page = reference("configuration.md");
    let policy = serde_json::to_value(antiphon_types::Policy::default()).unwrap();
    let promote = &policy["promote_after_ms"];
    for key in [&policy, promote]
        .map(|table| table.as_object().unwrap().keys())
        .into_iter()
        .flatten()
    {
        assert!(
            page.contains(&format!("| `{key}`")),
            "configuration.md does not name `{key}`"
        );
    }
}

#[test]
fn the_environment_reference_names_every_variable_of_a_task() {
    let page = reference("environment.md");
    for file in [
        "antiphon-backends/src/local/environment.rs",
        "antiphon-server/src/executor.rs",
    ] {
        let source = fs::read_to_string(root().join("crates").join(file)).unwrap();
        let source = source.split("mod tests").next().unwrap();
        for word in source
            .split('"')
            .filter(|word| word.starts_with("ANTIPHON_") || word.starts_with("PET_"))
        {
            assert!(page.contains(word), "environment.md does not name `{word}`");
        }
    }
}
