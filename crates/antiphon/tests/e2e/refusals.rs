//! Wrong input and broken surroundings: said with code, why and help; never a panic, nothing lost.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use expect_test::{Expect, expect};

use crate::server::{Server, wait};

fn check(server: &Server, arguments: &[&str], expected: Expect) {
    expected.assert_eq(&server.refused(arguments));
}

#[test]
fn wrong_job_files_are_refused() {
    let server = Server::start();
    let case = |text: &str, expected: Expect| {
        let path = server.write("job.toml", text);
        check(&server, &["submit", &path], expected);
    };
    case(
        "name = \"a\"\n[resources]\ngpu = 8\n",
        expect![[r#"
        exit 3
        error[AP0201]: job file `DIR/job.toml` is wrong, line 3
          why:  unknown key `gpu` in `[resources]`
          help: did you mean `gpus`?
    "#]],
    );
    case(
        "name = \"a\"\n[resources]\ngpus = 8\n[run]\ncommand = [\"true\"]\ngrace = \"60\"\n",
        expect![[r#"
            exit 3
            error[AP0202]: job `a` is refused
              why:  `run.grace`: `60` is no duration
              help: give a number with a unit like `500ms`, `90s`, `10min`, `4h` or `2d`
        "#]],
    );
    case(
        "name = \"a\"\n[resources]\ngpus = 96\n[run]\ncommand = [\"true\"]\n",
        expect![[r#"
            exit 3
            error[AP0104]: job `a` is refused
              why:  it asks for 96 GPUs: the whole cluster has 8, the widest node 8
              help: ask for at most 8 in `[resources] gpus`, in tasks that fit the nodes; `antiphon nodes` shows them
        "#]],
    );
    case(
        "name = \"a\"\n[resources]\ngpus = 1\n[run]\ncommand = [\"no-such-command\"]\n",
        expect![[r#"
            exit 3
            error[AP0301]: job `a` is refused
              why:  command `no-such-command` of role `trainer` is not found in PATH `PATH`
              help: give the program's full path, or a name that is in the server's PATH
        "#]],
    );
    case(
        "name = \"a\"\n[resources]\ngpus = 1\n[run]\ncommand = [\"true\"]\n[checkpoint]\ndir = \"/proc/nowhere\"\n",
        expect![[r#"
            exit 3
            error[AP0303]: job `a` is refused
              why:  checkpoint directory `/proc/nowhere` cannot be written: No such file or directory (os error 2)
              help: create it with `mkdir -p /proc/nowhere`, give the server's user write permission, or set `[checkpoint] dir`
        "#]],
    );
    case(
        "name = \"a\"\nafter = [\"b\"]\n[resources]\ngpus = 1\n[run]\ncommand = [\"true\"]\n",
        expect![[r#"
            exit 3
            error[AP0106]: job `a` is refused
              why:  `after`: there is no job `b` in team `default`
              help: submit it first, or give both files to one `antiphon submit`
        "#]],
    );
    case(
        "name = \"a\"\nafter = [\"a\"]\n[resources]\ngpus = 1\n[run]\ncommand = [\"true\"]\n",
        expect![[r#"
            exit 3
            error[AP0107]: job `a` is refused
              why:  `after`: `a` waits for itself
              help: take it out of `after`
        "#]],
    );
    case(
        "name = \"a\n",
        expect![[r#"
        exit 3
        error[AP0205]: job file `DIR/job.toml` is wrong
          why:  TOML parse error at line 1, column 10
                  |
                1 | name = "a
                  |          ^
                invalid basic string, expected `"`
          help: see `antiphon check --schema` for what a job file may hold
    "#]],
    );
    case(
        "name = \"a\"\n[resources]\ngpus = \"eight\"\n",
        expect![[r#"
            exit 3
            error[AP0202]: job file `DIR/job.toml` is wrong, line 3
              why:  `resources.gpus`: invalid type: string "eight", expected a number
              help: see `antiphon check --schema` for what stands there
        "#]],
    );
    check(
        &server,
        &["submit", "no-such-file.toml"],
        expect![[r#"
            exit 3
            error[AP0208]: job file `no-such-file.toml` cannot be read
              why:  No such file or directory (os error 2)
              help: give the path of a job file, an sbatch script, a Kubernetes manifest or a SkyPilot task
        "#]],
    );
    assert_eq!(
        server.json(&["jobs", "--all"])["jobs"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn a_circle_of_jobs_is_refused_and_a_chain_is_put_in_order() {
    let server = Server::start();
    let file = |name: &str, after: &str| {
        let text = format!(
            "name = \"{name}\"\nafter = [{after}]\n[resources]\ngpus = 0\n[run]\ncommand = [\"true\"]\n"
        );
        server.write(&format!("{name}.toml"), &text)
    };
    let (a, b) = (file("a", "\"b\""), file("b", "\"a\""));
    check(
        &server,
        &["submit", &a, &b],
        expect![[r#"
        exit 3
        error[AP0107]: the jobs cannot be ordered
          why:  `a`, `b` wait for each other in a circle
          help: take one of them out of another's `after`
    "#]],
    );
    let b = file("b", "");
    server.ok(&["submit", &a, &b]);
    server.wait_for("a", "succeeded");
}

#[test]
fn a_name_that_is_taken_and_commands_that_do_not_fit_are_refused() {
    let server = Server::start();
    let id = server.submit("a", "[resources]\ngpus = 1", "sleep 600");
    let path = server.write(
        "again.toml",
        "name = \"a\"\n[resources]\ngpus = 1\n[run]\ncommand = [\"true\"]\n",
    );
    check(
        &server,
        &["submit", &path],
        expect![[r#"
        exit 3
        error[AP0103]: job `a` is refused
          why:  the name `a` is taken by job-1 of team `default`, which has not ended
          help: choose another `name`, or end the first with `antiphon cancel job-1`
    "#]],
    );
    server.wait_for(&id, "running");
    check(
        &server,
        &["release", "a"],
        expect![[r#"
        exit 3
        error[AP0102]: job-1 is running: it cannot be released
          help: `antiphon job job-1` shows what it is doing
    "#]],
    );
    check(
        &server,
        &["why", "b"],
        expect![[r#"
            exit 3
            error[AP0101]: there is no job `b`
              help: `antiphon jobs --all` lists the jobs there are
        "#]],
    );
    check(
        &server,
        &["job", "job-99"],
        expect![[r#"
        exit 3
        error[AP0101]: there is no job-99
          help: the newest job is job-1; `antiphon jobs --all` lists them
    "#]],
    );
    check(
        &server,
        &["drain", "n7"],
        expect![[r#"
        exit 3
        error[AP0105]: there is no node `n7`
          help: there are `vm`; `antiphon nodes` lists all
    "#]],
    );
    check(
        &server,
        &["logs", "a", "--attempt", "7"],
        expect![[r#"
        exit 3
        error[AP0507]: there is no job-1.7
          help: job-1 has had 1 attempts; `antiphon job job-1` lists them
    "#]],
    );
    server.ok(&["cancel", "a"]);
    server.wait_for(&id, "canceled");
}

#[test]
fn without_a_server_the_way_to_start_one_is_said() {
    let mut server = Server::start();
    server.kill();
    let path = server.write(
        "job.toml",
        "name = \"a\"\n[resources]\ngpus = 1\n[run]\ncommand = [\"true\"]\n",
    );
    let said = server.refused(&["submit", &path]);
    assert!(
        said.starts_with("exit 4\nerror[AP0405]: no antiphon server answers at"),
        "{said}"
    );
    assert!(said.contains("antiphon up"), "{said}");
}

#[test]
fn a_second_server_over_the_same_state_names_the_first() {
    let server = Server::start();
    let output = server.up_command().output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{error}");
    assert!(
        error.contains("AP0402") && error.contains(&server.pid().to_string()),
        "{error}"
    );
    assert!(
        !server.ok(&["nodes"]).is_empty(),
        "the first one is not disturbed"
    );
}

#[test]
fn a_port_that_is_taken_is_said_with_another_to_choose() {
    let server = Server::start();
    let other = tempfile::tempdir().unwrap();
    let mut command = server.up_command();
    let output = command
        .env("ANTIPHON_STATE_DIR", other.path())
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{error}");
    assert!(
        error.contains("AP0401") && error.contains("--listen"),
        "{error}"
    );
}

#[test]
fn a_damaged_log_is_said_and_left_as_it_is() {
    let mut server = Server::start();
    server.submit("a", "[resources]\ngpus = 0", "true");
    server.wait_for("a", "succeeded");
    server.interrupt();
    let database = fs::read_dir(server.state_dir())
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "db" || extension == "sqlite")
        })
        .expect("a database");
    let mut bytes = fs::read(&database).unwrap();
    bytes[..4096].fill(0xA5);
    fs::write(&database, &bytes).unwrap();
    let output = server.up_command().output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{error}");
    assert!(error.contains("AP0404"), "{error}");
    assert_eq!(
        fs::read(&database).unwrap(),
        bytes,
        "it is left for whoever repairs it"
    );
}

#[test]
fn a_full_disk_stops_the_server_and_not_the_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=3m", "antiphon-test"])
        .arg(dir.path())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        eprintln!("skipped: this user may not mount a small file system to fill");
        return;
    }
    let _unmount = Unmount(dir.path().to_owned());
    let state = dir.path().join("state");
    let mut server = Server::start();
    // The same directory, but on the small disk.
    server.interrupt();
    std::os::unix::fs::symlink(&state, server.dir().join("small")).unwrap();
    let mut command = server.up_command();
    command.env("ANTIPHON_STATE_DIR", &state);
    let child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Ended(Some(child));
    wait("the server", || state.join("address").exists(), String::new);
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command
            .env("ANTIPHON_STATE_DIR", &state)
            .env_remove("ANTIPHON_URL")
            .args(arguments)
            .output()
            .unwrap()
    };
    let job = server.write(
        "job.toml",
        "name = \"long\"\n[resources]\ngpus = 1\n[run]\ncommand = [\"sleep\", \"600\"]\n",
    );
    wait(
        "a job to be taken",
        || run(&["submit", &job]).status.success(),
        String::new,
    );
    let marked =
        || crate::server::processes_with(&format!("ANTIPHON_TASK_DIR={}", state.display()));
    wait("it to run", || !marked().is_empty(), String::new);
    fs::write(dir.path().join("filler"), vec![1; 3 << 20]).unwrap_err();
    wait(
        "the log to be full",
        || {
            run(&["pause"]);
            child.0.as_mut().unwrap().try_wait().unwrap().is_some()
        },
        String::new,
    );
    let output = child.0.take().unwrap().wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{error}");
    assert!(error.contains("AP0403"), "{error}");
    assert!(!marked().is_empty(), "the job runs on");

    // Room again: the next server takes it up.
    fs::remove_file(dir.path().join("filler")).unwrap();
    let mut command = server.up_command();
    let child = command
        .env("ANTIPHON_STATE_DIR", &state)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let child = Ended(Some(child));
    let text = |arguments: &[&str]| String::from_utf8(run(arguments).stdout).unwrap();
    wait(
        "the job to be taken up",
        || text(&["jobs"]).contains("running"),
        || text(&["jobs"]),
    );
    run(&["unpause"]);
    assert!(run(&["cancel", "long"]).status.success());
    wait(
        "the job to end",
        || text(&["jobs", "--all"]).contains("canceled"),
        || text(&["jobs", "--all"]),
    );
    drop(child);
}

/// A server that does not outlive its test.
struct Ended(Option<std::process::Child>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

#[test]
fn secrets_are_readable_by_their_user_alone() {
    let server = Server::start();
    let id = server.submit("a", "[resources]\ngpus = 1", "sleep 600");
    server.wait_for(&id, "running");
    let mode = |path: &str| {
        fs::metadata(server.state_dir().join(path))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(""), 0o700);
    assert_eq!(mode("token"), 0o600);
    assert_eq!(mode("attempt-key"), 0o600);
    assert_eq!(mode("attempts/job-1.1/trainer.0/task.json"), 0o600);
    server.ok(&["cancel", "a"]);
    server.wait_for(&id, "canceled");
}
