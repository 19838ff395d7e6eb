//! Whatever stands in a file: reading it ends in an answer or an error, and no value leaves its quotes in what is printed or run.

use std::fs;
use std::process::Command;
use std::sync::OnceLock;

use antiphon_import::{Job, JobFormat};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{command, examples, import};

/// The printed job file says the same as the job.
fn round_trip(job: &Job, warnings: &[antiphon_import::Warning]) -> Result<(), TestCaseError> {
    let text = job.to_toml("a \"file\"\nname = 'x'", warnings);
    let printed: toml::Value =
        toml::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
    let printed = serde_json::to_value(printed).unwrap();
    let meant = serde_json::to_value(job).unwrap();
    prop_assert_eq!(printed, meant, "{}", text);
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    prop_assert!(
        job.name.chars().all(legal) && !job.name.is_empty(),
        "{}",
        job.name
    );
    Ok(())
}

/// Texts that people and attackers write.
fn text() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        Just("'".to_owned()),
        Just("\"".to_owned()),
        Just("'''\n".to_owned()),
        Just("\"\"\"".to_owned()),
        Just("\\".to_owned()),
        Just("$(PET_NNODES)".to_owned()),
        "[$()]{1,6}",
        Just("$(touch broken)".to_owned()),
        Just("`touch broken`".to_owned()),
        Just("$HOME ${HOME}".to_owned()),
        Just("; touch broken #".to_owned()),
        Just("]\n[run]\n".to_owned()),
        Just("\u{e9}\u{1f600}\u{202e}".to_owned()),
        "[ -~\n\t]{0,8}",
    ];
    prop::collection::vec(pieces, 0..6).prop_map(|pieces| pieces.concat())
}

/// What a container would see: <https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/>.
/// Character by character, where the reader cuts at its marks.
fn as_kubernetes_would(text: &str, set: &[(&str, &str)]) -> String {
    let chars: Vec<char> = text.chars().collect();
    let (mut seen, mut at) = (String::new(), 0);
    while let Some(&char) = chars.get(at) {
        at += 1;
        match (char, chars.get(at)) {
            ('$', Some('$')) => {
                at += 1;
                seen.push('$');
            }
            ('$', Some('(')) => {
                if let Some(length) = chars[at..].iter().position(|&char| char == ')') {
                    let name: String = chars[at + 1..at + length].iter().collect();
                    let value = set.iter().find(|(key, _)| *key == name);
                    match value {
                        Some((_, value)) => seen.push_str(value),
                        None => seen.push_str(&format!("$({name})")),
                    }
                    at += length + 1;
                } else {
                    seen.push('$');
                }
            }
            _ => seen.push(char),
        }
    }
    seen
}

fn in_manifest(container: &Value) -> String {
    let spec = json!({ "template": { "spec": { "containers": [container] } } });
    json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "x" }, "spec": spec })
        .to_string()
}

fn files() -> &'static [(String, String)] {
    static FILES: OnceLock<Vec<(String, String)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let mut files = Vec::new();
        for dir in ["sbatch", "kubernetes", "skypilot"] {
            for entry in fs::read_dir(examples().join(dir)).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                files.push((name, fs::read_to_string(path).unwrap()));
            }
        }
        files.sort();
        files
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn no_value_of_a_batch_script_leaves_its_quotes(name in text(), value in text(), path in text(), body in text()) {
        let one_line = |text: &str| text.replace(['\n', '\\', '"'], " ");
        let script = format!(
            "#!/bin/bash\n#SBATCH --job-name=\"{}\" --chdir=\"{}\"\n#SBATCH --export=\"A={}\" --account=\"{}\"\n{body}\n",
            one_line(&name), one_line(&path), one_line(&value).replace(',', " "), one_line(&value)
        );
        let arguments = vec![value.clone(), path.clone()];
        let origin = antiphon_import::Origin { name: &name, path: Some(&path), arguments: &arguments, gpu_types: &|_| Vec::new() };
        if let Ok(imported) = antiphon_import::jobs(&script, Some(JobFormat::Sbatch), &origin) {
            let job = &imported.jobs[0];
            round_trip(job, &imported.warnings)?;
            // Path and arguments are words of their own, whatever they hold.
            prop_assert!(job.run.command.ends_with(&[path.clone(), value.clone(), path.clone()]));
            for word in &job.run.command {
                prop_assert!(word == &path || word == &value || !word.contains("broken"), "{}", word);
            }
        }
    }

    #[test]
    fn no_value_of_a_manifest_leaves_its_quotes(words in prop::collection::vec(text(), 0..4), value in text()) {
        let mut all = vec!["printf".to_owned(), "%s\\0".to_owned()];
        all.extend(words.iter().cloned());
        let manifest = in_manifest(&json!({ "command": all, "env": [{ "name": "A", "value": value }] }));
        let imported = import("x.json", &manifest, None).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let job = &imported.jobs[0];
        round_trip(job, &imported.warnings)?;
        prop_assert_eq!(&job.run.environment["A"], &as_kubernetes_would(&value, &[]));
        // The command is run as it is, by a shell where there is one.
        let dir = std::env::temp_dir();
        let output = Command::new(&job.run.command[0])
            .args(&job.run.command[1..])
            .env("PET_NNODES", "7")
            .current_dir(dir)
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let expected: String = words.iter().map(|word| as_kubernetes_would(word, &[("PET_NNODES", "7")]) + "\0").collect();
        let expected = if words.is_empty() { "\0".to_owned() } else { expected };
        prop_assert_eq!(printed, expected);
    }

    #[test]
    fn no_value_of_a_task_leaves_its_quotes(run in text(), setup in text(), value in text()) {
        let task = json!({ "name": value, "run": run, "setup": setup, "envs": { "A": value }, "num_nodes": 2 });
        if let Ok(imported) = import("x.json", &task.to_string(), Some(JobFormat::SkyPilot)) {
            let job = &imported.jobs[0];
            round_trip(job, &imported.warnings)?;
            prop_assert_eq!(job.run.command.last(), Some(&run));
        }
    }

    #[test]
    fn no_word_of_a_command_line_leaves_its_quotes(words in prop::collection::vec(text(), 0..4)) {
        let mut all = vec!["torchrun", "--nproc-per-node=2", "x.py"];
        all.extend(words.iter().map(String::as_str));
        let imported = command(&all).unwrap();
        round_trip(&imported.jobs[0], &imported.warnings)?;
        prop_assert!(imported.jobs[0].run.command.ends_with(&words));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), format in 0..4_usize) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = import("x", &text, Some(JobFormat::ALL[format]));
        let _ = import("x", &format!("#SBATCH {text}"), None);
        let _ = import("x", &format!("apiVersion: v1\nkind: Job\nspec: {text}"), None);
    }

    #[test]
    fn no_change_to_a_file_makes_a_reader_panic(
        which in any::<prop::sample::Index>(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..60_usize, "[ -~\n]{0,8}"), 1..6),
        format in 0..5_usize,
    ) {
        let (name, text) = which.get(files());
        let mut chars: Vec<char> = text.chars().collect();
        for (at, length, piece) in &cuts {
            let at = at.index(chars.len() + 1);
            let end = (at + length).min(chars.len());
            chars.splice(at..end, piece.chars());
        }
        let text: String = chars.into_iter().collect();
        if let Ok(imported) = import(name, &text, JobFormat::ALL.get(format).copied()) {
            for job in &imported.jobs {
                round_trip(job, &imported.warnings)?;
            }
        }
    }
}
