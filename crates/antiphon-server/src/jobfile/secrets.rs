//! `[run.secrets]`: variables whose values stay where they are. Never repeats what was written in place of a reference: it
//! may be the secret itself.

use std::collections::BTreeMap;

use antiphon_types::SecretRef;

use super::read::JobFileError;

/// Secrets of one job.
const SECRETS_MAX: usize = 100;
/// Words in a variable's name behind which people keep what others must not read.
const TELLING: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "API_KEY",
    "ACCESS_KEY",
];

/// The secrets, by the variable that a task sees.
pub(super) fn secrets(
    file: &BTreeMap<String, String>,
    environment: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, SecretRef>, JobFileError> {
    let wrong = |key: &str, what: &str, help: &str| JobFileError {
        code: "AP0855",
        at: format!("run.secrets.{key}"),
        what: format!("`run.secrets`: `{key}` {what}"),
        help: help.to_owned(),
    };
    if file.len() > SECRETS_MAX {
        let what = format!("`run.secrets`: there are {}", file.len());
        return Err(JobFileError {
            code: "AP0855",
            at: "run.secrets".into(),
            what,
            help: format!("give at most {SECRETS_MAX}; a file may hold several"),
        });
    }
    let mut secrets = BTreeMap::new();
    for (key, reference) in file {
        if key.is_empty() || key.contains(['=', '\0']) || key.starts_with("ANTIPHON_") {
            let help = "names hold no `=` and no NUL, and `ANTIPHON_*` is set by antiphon";
            return Err(wrong(key, "cannot be set", help));
        }
        if environment.contains_key(key) {
            let help = "leave it out of one of the two";
            return Err(wrong(key, "stands in `run.environment` as well", help));
        }
        let help =
            "give `file:/full/path` or `env:NAME`; the value itself never stands in a job file";
        let what = "is no reference to a secret";
        let read = reference_of(reference).ok_or_else(|| wrong(key, what, help))?;
        secrets.insert(key.clone(), read);
    }
    Ok(secrets)
}

fn reference_of(text: &str) -> Option<SecretRef> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match text.split_once(':')? {
        ("file", path) if path.starts_with('/') && !path.contains('\0') => {
            let path = path.to_owned();
            Some(SecretRef::File { path })
        }
        ("env", name) if !name.is_empty() && name.chars().all(plain) => {
            let name = name.to_owned();
            Some(SecretRef::Env { name })
        }
        _ => None,
    }
}

/// Says which variables look as if their value should be a reference.
pub(super) fn warnings(environment: &BTreeMap<String, String>) -> Vec<String> {
    let telling = |(name, value): &(&String, &String)| {
        let name = name.to_ascii_uppercase();
        // A path to a secret is none.
        TELLING.iter().any(|word| name.contains(word)) && !value.starts_with('/')
    };
    let named = environment.iter().filter(telling);
    named
        .map(|(name, _)| {
            format!("`run.environment.{name}` is in the log for everybody who may look at it: if it is a secret, give a reference in `[run.secrets]`")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let entries = entries.iter();
        entries
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn files_and_offered_variables_are_references() {
        let file = table(&[
            ("HF_TOKEN", "file:/home/ann/.hf"),
            ("WANDB_API_KEY", "env:WANDB"),
        ]);
        let read = secrets(&file, &BTreeMap::new()).unwrap();
        assert_eq!(read["HF_TOKEN"].to_string(), "file:/home/ann/.hf");
        assert_eq!(read["WANDB_API_KEY"].to_string(), "env:WANDB");
    }

    #[test]
    fn a_value_in_place_of_a_reference_is_refused_and_not_repeated() {
        for value in [
            "hunter2",
            "file:relative",
            "env:",
            "env:A B",
            "vault:x",
            ":hunter2",
            "",
        ] {
            let refused = secrets(&table(&[("HF_TOKEN", value)]), &BTreeMap::new());
            let error = refused.unwrap_err();
            assert_eq!(error.code, "AP0855");
            let told = format!("{}{}{}", error.at, error.what, error.help);
            assert!(!told.contains("hunter2"), "{told}");
        }
        for key in ["", "A=B", "ANTIPHON_URL"] {
            assert!(secrets(&table(&[(key, "env:A")]), &BTreeMap::new()).is_err());
        }
        let twice = secrets(&table(&[("A", "env:A")]), &table(&[("A", "x")])).unwrap_err();
        assert!(twice.what.contains("as well"), "{}", twice.what);
    }

    #[test]
    fn a_variable_that_looks_like_a_secret_is_warned_of() {
        let plain = table(&[
            ("HF_HOME", "/data"),
            ("HF_TOKEN_PATH", "/data/token"),
            ("LR", "1"),
        ]);
        assert!(warnings(&plain).is_empty());
        let told = warnings(&table(&[("WANDB_API_KEY", "hunter2")]));
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("WANDB_API_KEY") && !told[0].contains("hunter2"));
    }
}
