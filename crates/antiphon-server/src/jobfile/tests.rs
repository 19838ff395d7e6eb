//! Job files that are right and wrong, and what is said about them.

use super::*;
use antiphon_types::{Class, GpuAmount, Millis};

fn error(text: &str) -> String {
    let context = Context {
        user: "someone",
        find: &|_| None,
    };
    let read = read(text, Format::Toml);
    let spec = read.and_then(|mut file| {
        absolute(&mut file, std::path::Path::new("/home/someone"));
        to_spec(&file, &context)
    });
    let error = spec.expect_err("this file is wrong");
    format!("[{}] {}; {}", error.code, error.what, error.help)
}

const GOOD: &str = r#"
    name = "sft-8b"
    class = "best-effort"
    [resources]
    gpus = 8
    [run]
    command = ["torchrun", "train.py"]
    grace = "30s"
    [checkpoint]
    dir = "ckpt"
"#;

#[test]
fn a_job_file_becomes_a_job_with_absolute_paths() {
    let mut file = read(GOOD, Format::Toml).unwrap();
    absolute(&mut file, std::path::Path::new("/home/someone"));
    let spec = to_spec(
        &file,
        &Context {
            user: "someone",
            find: &|_| None,
        },
    )
    .unwrap();
    assert_eq!(spec.class, Class::BestEffort);
    assert_eq!(spec.gpus(), GpuAmount::from_gpus(8));
    assert_eq!(spec.grace, Millis::from_secs(30));
    assert_eq!(spec.workdir, "/home/someone");
    assert_eq!(spec.checkpoint.unwrap().dir, "/home/someone/ckpt");
}

#[test]
fn yaml_reads_like_toml() {
    let yaml = "name: a\nresources: {gpus: 0.5}\nrun: {command: [\"true\"]}\n";
    assert!((read(yaml, Format::Yaml).unwrap().resources.unwrap().gpus - 0.5).abs() < 1e-9);
}

#[test]
fn wrong_files_say_what_where_and_what_to_do() {
    let cases = [
        (
            "name = \"a\"\nclas = \"standard\"",
            "[AP0201] unknown key `clas` in a job file; did you mean `class`?",
        ),
        (
            "name = \"a\"\n[resources]\ngpu = 8",
            "[AP0201] unknown key `gpu` in `[resources]`; did you mean `gpus`?",
        ),
        (
            "name = \"a\"\n[run]\ncommand = [\"x\"]",
            "[AP0203] `[resources]` is missing; add `[resources]` with `gpus = 8`, or `gpus = 0` for a job on CPUs",
        ),
        (
            "name = \"a\"\n[resources]\ngpus = 1\n[run]\ncommand = [\"x\"]\ngrace = \"60\"",
            "[AP0202] `run.grace`: `60` is no duration; give a number with a unit like `500ms`, `90s`, `10min`, `4h` or `2d`",
        ),
        (
            "name = \"a\"\n[resources]\ngpus = -1\n[run]\ncommand = [\"x\"]",
            "[AP0202] `resources.gpus`: -1 is no number of GPUs; give a number like `8`, or a share of one GPU like `0.5`, in thousandths at the finest",
        ),
        (
            "name = \"a b\"",
            "[AP0204] `name`: `a b` cannot be a name; use at most 100 letters, digits, `-`, `_` and `.`, first a letter or digit, and no job id",
        ),
        (
            "name = \"a\"\nafter = [\"a\"]\n[resources]\ngpus = 1\n[run]\ncommand = [\"x\"]",
            "[AP0107] `after`: `a` waits for itself; take it out of `after`",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text), expected);
    }
    assert!(
        error("name = \"a\"\n[resources]\ngpus = \"eight\"")
            .starts_with("[AP0202] `resources.gpus`:")
    );
    assert!(error("name = ").starts_with("[AP0205]"));
    assert!(error("class = \"standard\"").starts_with("[AP0203] missing field `name`"));
}

#[test]
fn a_yaml_key_that_stands_twice_and_endless_nesting_are_refused() {
    let twice = read("name: a\nname: b\n", Format::Yaml).unwrap_err();
    assert!(twice.what.contains("duplicate"), "{}", twice.what);
    let deep = read(&"[".repeat(100_000), Format::Yaml).unwrap_err();
    assert_eq!(deep.what, "it is nested more than 64 deep");
}

#[test]
fn what_no_process_can_take_is_refused() {
    let run = |rest: &str| {
        error(&format!(
            "name = \"a\"\n[resources]\ngpus = 1\n[run]\n{rest}"
        ))
    };
    assert!(
        run("command = [\"a\\u0000b\"]")
            .starts_with("[AP0202] `run.command`: \"a\\0b\" holds a NUL")
    );
    let long = "x".repeat(200_000);
    assert!(run(&format!("command = [\"{long}\"]")).starts_with("[AP0108]"));
    let empty =
        "name = \"a\"\n[resources]\ngpus = 1\n[run]\ncommand = [\"x\"]\n[checkpoint]\ndir = \"\"";
    assert!(error(empty).starts_with("[AP0202] `checkpoint.dir`"));
}
