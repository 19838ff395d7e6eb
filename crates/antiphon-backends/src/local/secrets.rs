//! The values of a job's secrets: read by the supervisor as the last thing before the command starts, and kept nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;

use antiphon_types::SecretRef;

use crate::Preflight;

/// Bytes of one secret: Linux takes no longer variable than 128 KiB.
const BYTES_MAX: u64 = 64 << 10;

/// Reads the values. What it says in an error names the variable and where it was looked for, never a value.
pub(crate) fn read(
    secrets: &BTreeMap<String, SecretRef>,
) -> Result<BTreeMap<String, String>, String> {
    let read = |(variable, secret): (&String, &SecretRef)| {
        let value = value(secret)
            .map_err(|why| format!("secret `{variable}` cannot be read from `{secret}`: {why}"))?;
        Ok((variable.clone(), value))
    };
    secrets.iter().map(read).collect()
}

/// Looks before a submit whether they could be read. `offered` are the server's variables that jobs may have.
pub(crate) fn preflight(
    secrets: &BTreeMap<String, SecretRef>,
    offered: &BTreeSet<String>,
) -> Result<(), Preflight> {
    for (variable, secret) in secrets {
        let why = match secret {
            SecretRef::Env { name } if !offered.contains(name) => {
                Some("the server does not offer this variable to jobs".to_owned())
            }
            SecretRef::Env { .. } | SecretRef::File { .. } => value(secret).err(),
        };
        if let Some(why) = why {
            return Err(Preflight::Secret {
                variable: variable.clone(),
                reference: secret.to_string(),
                why,
            });
        }
    }
    Ok(())
}

/// The variables of this process that secrets are read from.
pub(super) fn handed_over<'a>(
    secrets: &'a BTreeMap<String, SecretRef>,
    offered: &'a BTreeSet<String>,
) -> impl Iterator<Item = (&'a str, std::ffi::OsString)> {
    let names = secrets.values().filter_map(move |secret| match secret {
        SecretRef::Env { name } if offered.contains(name) => Some(name.as_str()),
        SecretRef::Env { .. } | SecretRef::File { .. } => None,
    });
    names.filter_map(|name| Some((name, std::env::var_os(name)?)))
}

fn value(secret: &SecretRef) -> Result<String, String> {
    let text = match secret {
        SecretRef::Env { name } => match std::env::var(name) {
            Ok(text) => text,
            Err(std::env::VarError::NotPresent) => return Err("it is not set".into()),
            Err(std::env::VarError::NotUnicode(_)) => return Err("it is no text".into()),
        },
        SecretRef::File { path } => {
            let mut text = String::new();
            File::open(path)
                .and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text))
                .map_err(|error| error.to_string())?;
            text
        }
    };
    if text.len() as u64 > BYTES_MAX {
        return Err(format!("it is longer than {BYTES_MAX} bytes"));
    }
    if text.contains('\0') {
        return Err("it holds a NUL".into());
    }
    // Editors and `echo` leave a line end that no token has.
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &std::path::Path) -> BTreeMap<String, SecretRef> {
        let path = path.display().to_string();
        BTreeMap::from([("KEY".to_owned(), SecretRef::File { path })])
    }

    #[test]
    fn a_file_gives_its_text_without_the_line_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "hunter2\r\n").unwrap();
        assert_eq!(read(&file(&path)).unwrap()["KEY"], "hunter2");
        assert_eq!(preflight(&file(&path), &BTreeSet::new()), Ok(()));
    }

    #[test]
    fn what_cannot_be_a_value_is_refused_without_showing_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let long = "hunter2".repeat(10_000);
        for text in ["hunter2\0", &long] {
            std::fs::write(&path, text).unwrap();
            let error = read(&file(&path)).unwrap_err();
            assert!(
                error.contains("`KEY`") && !error.contains("hunter2"),
                "{error}"
            );
        }
        let gone = read(&file(&dir.path().join("gone"))).unwrap_err();
        assert!(gone.contains("No such file"), "{gone}");
    }

    #[test]
    fn only_variables_that_are_offered_are_handed_over() {
        let secrets = |name: &str| {
            let name = name.to_owned();
            BTreeMap::from([("KEY".to_owned(), SecretRef::Env { name })])
        };
        // Cargo sets it for every test.
        let there = "CARGO_MANIFEST_DIR";
        let offered = BTreeSet::from([there.to_owned(), "NOT_SET_ANYWHERE".to_owned()]);
        assert_eq!(preflight(&secrets(there), &offered), Ok(()));
        assert!(preflight(&secrets(there), &BTreeSet::new()).is_err());
        assert!(preflight(&secrets("NOT_SET_ANYWHERE"), &offered).is_err());
        assert_eq!(handed_over(&secrets(there), &offered).count(), 1);
        assert_eq!(handed_over(&secrets(there), &BTreeSet::new()).count(), 0);
    }
}
