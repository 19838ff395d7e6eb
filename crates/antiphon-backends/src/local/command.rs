//! Which file a command means, and whether a job could start here at all. Starts nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, io, process};

use antiphon_types::{JobSpec, Role};

use crate::Preflight;

/// Where commands are looked for if nobody says.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The search path of a job: its own, or this process's.
pub(crate) fn search_path(environment: &BTreeMap<String, String>) -> String {
    environment
        .get("PATH")
        .cloned()
        .or_else(|| env::var("PATH").ok())
        .unwrap_or_else(|| PATH.to_owned())
}

/// The file that a command means, or where it was looked for, as ` in ..`.
///
/// The same for the look before the submit and for the start, and independent of who starts it: a name with a slash
/// counts from the workdir, one without is searched.
pub(crate) fn resolve(name: &str, workdir: &str, search: &str) -> Result<PathBuf, String> {
    let workdir = Path::new(workdir);
    if name.contains('/') {
        let path = workdir.join(name);
        return match fs::metadata(&path) {
            Ok(_) if is_executable(&path) => Ok(path),
            Ok(_) => Err(format!(": `{}` is not executable", path.display())),
            Err(error) => Err(format!(": `{}`: {error}", path.display())),
        };
    }
    search
        .split(':')
        .filter(|dir| !name.is_empty() && !dir.is_empty())
        .map(|dir| workdir.join(dir).join(name))
        .find(|path| is_executable(path))
        .ok_or_else(|| format!(" in PATH `{search}`"))
}

/// The first thing in a job that cannot work here.
pub(crate) fn preflight(spec: &JobSpec) -> Result<(), Preflight> {
    let no_workdir = |error: String| Preflight::NoWorkdir {
        dir: spec.workdir.clone(),
        error,
    };
    match fs::metadata(&spec.workdir) {
        Ok(found) if found.is_dir() => (),
        Ok(_) => return Err(no_workdir("it is not a directory".to_owned())),
        Err(error) => return Err(no_workdir(error.to_string())),
    }
    let search = search_path(&spec.environment);
    for Role { name, command, .. } in &spec.roles {
        let program = command.first().map_or("", String::as_str);
        resolve(program, &spec.workdir, &search).map_err(|looked| Preflight::NoSuchCommand {
            role: name.clone(),
            command: program.to_owned(),
            looked,
        })?;
    }
    if let Some(checkpoint) = &spec.checkpoint {
        write_probe(Path::new(&checkpoint.dir)).map_err(|error| Preflight::CheckpointDir {
            dir: checkpoint.dir.clone(),
            error: error.to_string(),
        })?;
    }
    Ok(())
}

/// Permission bits do not tell whether a directory can be written (read-only mounts, quotas, network file systems):
/// writing does. Leaves nothing behind, since a job that is only checked is not there.
fn write_probe(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    let written = fs::create_dir_all(dir).and_then(|()| {
        let probe = dir.join(format!(".antiphon-probe-{}", process::id()));
        File::create(&probe)?;
        fs::remove_file(probe)
    });
    for made in missing {
        // One that somebody else has put something into meanwhile stays.
        let _ = fs::remove_dir(made);
    }
    written
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_searched_and_paths_count_from_the_workdir() {
        let dir = tempfile::tempdir().unwrap();
        let workdir = dir.path().to_str().unwrap();
        let script = dir.path().join("run.sh");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let refused = resolve("./run.sh", workdir, "/bin").unwrap_err();
        assert!(refused.contains("is not executable"), "{refused}");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(resolve("./run.sh", workdir, "/bin").is_ok());
        assert_eq!(
            resolve("run.sh", workdir, &format!("/bin:{workdir}")),
            Ok(script)
        );
        assert_eq!(
            resolve("run.sh", workdir, "/bin").unwrap_err(),
            " in PATH `/bin`"
        );
        assert!(resolve("", workdir, "/bin").is_err());
        assert!(resolve("..", workdir, "/bin").is_err());
    }
}
