//! Job files that are right and wrong, and what is said about them.

use super::*;
use crate::lessons::Site;
use antiphon_types::{
    Bytes, Class, Estimate, GpuAmount, JobId, JobSpec, KeepSpec, Millis, Processes, Span, Timestamp,
};

/// 2026-12-01T00:00:00Z.
const NOW: Timestamp = Timestamp::from_millis(1_796_083_200_000);

/// Reads a file as it is read at [`NOW`], when there are jobs `a` (job-1), `b` (job-2) and so on to `e`.
fn spec(text: &str) -> Result<JobSpec, JobFileError> {
    let letters = ["a", "b", "c", "d", "e"];
    let find = |name: &str| {
        let place = letters.iter().position(|letter| *letter == name);
        place
            .map(|place| JobId(place as u64 + 1))
            .into_iter()
            .collect()
    };
    let context = Context {
        user: "someone",
        now: NOW,
        find: &find,
        site: &Site::default,
    };
    let mut file = read(text, Format::Toml)?;
    absolute(&mut file, std::path::Path::new("/home/someone"));
    to_spec(&file, &context).map(|made| made.spec)
}

/// A whole file from what is special in it: keys of the top, then of `[resources]`, then further tables.
fn file(top: &str, resources: &str, tables: &str) -> String {
    format!("name = \"j\"\n{top}\n[resources]\n{resources}\n[run]\ncommand = [\"x\"]\n{tables}")
}

fn error(text: &str) -> String {
    let error = spec(text).expect_err("this file is wrong");
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
    let spec = spec(GOOD).unwrap();
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
            "[AP0203] `[resources]` is missing; add `[resources]` with `gpus = 8`, or `gpus = 0` for a job on CPUs; or `[train]` with what it trains, and the planner says what it needs",
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

#[test]
fn what_is_said_of_old_checkpoints_has_defaults_and_makes_sense() {
    let with = |keys: &str| {
        file(
            "",
            "gpus = 1",
            &format!("[checkpoint]\ndir = \"/c\"\n{keys}"),
        )
    };
    let keep = |keys: &str| spec(&with(keys)).unwrap().checkpoint.unwrap().keep;
    assert_eq!(keep(""), None);
    let (newest, best, days) = (3, 1, 7);
    assert_eq!(keep("keep = 3"), Some(KeepSpec { newest, best, days }));
    let (best, days) = (0, 2);
    assert_eq!(
        keep("keep = 3\nkeep_best = 0\nkeep_days = 2"),
        Some(KeepSpec { newest, best, days })
    );
    assert_eq!(
        error(&with("keep = 0")),
        "[AP0202] `checkpoint.keep`: 0 keeps none; give 1 or more, or leave it out to keep all"
    );
    assert_eq!(
        error(&with("keep_best = 2")),
        "[AP0202] `checkpoint.keep_best`: it stands without `keep`, so nothing is deleted; add `keep = 3`, or take it out"
    );
}

#[test]
fn every_key_of_the_top_becomes_part_of_the_job() {
    let top = r#"
        priority = -5
        deadline = 2026-12-02T00:00:00Z
        not_before = "+4h"
        held = true
        after = ["a"]
        after_ok = ["b", "a"]
        after_any = ["c"]
        after_start = ["d", "e"]
        array = "0-3%2"
        estimate = "6h"
    "#;
    let spec = spec(&file(
        top,
        "gpus = 8",
        "[shared]\nlustre_gbps = 40\nnone = 0",
    ))
    .unwrap();
    assert_eq!(spec.priority, -5);
    assert_eq!(spec.deadline, Some(NOW.after(Millis::from_secs(86_400))));
    assert_eq!(
        spec.not_before,
        Some(NOW.after(Millis::from_secs(4 * 3_600)))
    );
    assert!(spec.held);
    assert_eq!(
        spec.after,
        [JobId(1), JobId(2)],
        "both names, each job once"
    );
    assert_eq!(spec.after_any, [JobId(3)]);
    assert_eq!(spec.after_start, [JobId(4), JobId(5)]);
    let array = spec.array.unwrap();
    assert_eq!((array.indices.len(), array.at_once), (4, 2));
    let hours = |h: u64| Millis::from_secs(h * 3_600);
    let (low, expected, high) = (hours(3), hours(6), hours(9));
    assert_eq!(
        spec.estimate,
        Some(Estimate {
            low,
            expected,
            high
        })
    );
    let shared: Vec<_> = spec.resources.into_iter().collect();
    assert_eq!(shared, [("lustre_gbps".to_owned(), 40)]);
}

#[test]
fn what_is_left_out_has_its_default() {
    let spec = spec(&file("", "gpus = 8", "")).unwrap();
    let shape = &spec.roles[0].shape;
    // The kernel fills these in from the node that the job gets.
    assert_eq!((shape.cpus, shape.memory), (None, None));
    assert_eq!(
        (shape.span, shape.tensor_parallel, shape.speed),
        (Span::Cluster, 0, 1_000)
    );
    assert!(spec.roles[0].alternatives.is_empty() && spec.ladder.is_empty());
    assert!(!spec.held && spec.array.is_none() && spec.estimate.is_none());
}

#[test]
fn an_interval_may_leave_its_ends_out() {
    let read = |estimate: &str| {
        let text = file(&format!("estimate = {estimate}"), "gpus = 1", "");
        spec(&text).unwrap().estimate.unwrap()
    };
    let hours = |h: u64| Millis::from_secs(h * 3_600);
    let given = read("{ low = \"1h\", expected = \"2h\", high = \"10h\" }");
    assert_eq!(
        (given.low, given.expected, given.high),
        (hours(1), hours(2), hours(10))
    );
    let half = read("{ expected = \"2h\", high = \"10h\" }");
    assert_eq!((half.low, half.high), (hours(1), hours(10)));
}

#[test]
fn resources_say_where_and_in_which_shapes() {
    let resources = r#"
        gpus = 8
        gpu_type = "H100"
        processes = "per-gpu"
        cpus = 4
        memory = "64GiB"
        scratch = "2TB"
        read_bandwidth = "2GB/s"
        gpu_memory = "80GB"
        partition = "train"
        span = "nvlink-domain"
        tensor_parallel = 4
        or = [{ gpus = 16, gpu_type = "A100", speed = 0.4567, span = "leaf" }, { gpus = 4 }]
    "#;
    let spec = spec(&file("", resources, "")).unwrap();
    let shapes: Vec<_> = spec.roles[0].shapes().collect();
    let first = shapes[0];
    assert_eq!(
        (first.cpus, first.memory),
        (Some(4), Some(Bytes::new(64 << 30)))
    );
    assert_eq!(first.scratch, Bytes::new(2_000_000_000_000));
    assert_eq!(first.read_bandwidth, Bytes::new(2_000_000_000));
    assert_eq!(first.gpu_memory, Bytes::new(80_000_000_000));
    assert_eq!(first.partition.as_deref(), Some("train"));
    assert_eq!((first.span, first.tensor_parallel), (Span::NvlinkDomain, 4));
    assert_eq!(shapes.len(), 3);
    assert_eq!(shapes[1].gpus, GpuAmount::from_gpus(16));
    assert_eq!((shapes[1].speed, shapes[1].span), (457, Span::Leaf));
    // Nothing is inherited but how the command is started.
    assert_eq!(
        (shapes[2].gpu_type.as_ref(), shapes[2].processes),
        (None, Processes::PerGpu)
    );
}

#[test]
fn a_ladder_becomes_its_steps() {
    let ladder = r#"
        [[ladder]]
        name = "micro-batch 1"
        environment = { MICRO_BATCH = "1" }
        [[ladder]]
        name = "twice the GPUs"
        gpus = 16
    "#;
    let spec = spec(&file("", "gpus = 8", ladder)).unwrap();
    assert_eq!(spec.ladder[0].environment["MICRO_BATCH"], "1");
    assert_eq!(spec.ladder[1].gpus, Some(GpuAmount::from_gpus(16)));
}

#[test]
fn wrong_times_say_by_how_much() {
    let wrong = |top: &str| error(&file(top, "gpus = 1", ""));
    for (top, expected) in [
        (
            "deadline = \"tomorrow\"",
            "[AP0202] `deadline`: `tomorrow` is no time; give one with its offset, like `2026-12-01T08:00:00Z`, or a span from now like `+4h`",
        ),
        (
            "not_before = 2026-12-01T08:00:00",
            "[AP0202] `not_before`: `2026-12-01T08:00:00` is no time; give one with its offset, like `2026-12-01T08:00:00Z`, or a span from now like `+4h`",
        ),
        (
            "deadline = \"+4\"",
            "[AP0202] `deadline`: `4` is no duration; give a number with a unit like `500ms`, `90s`, `10min`, `4h` or `2d`",
        ),
        (
            "deadline = \"2026-11-30T22:00:00Z\"",
            "[AP0202] `deadline`: it passed 2h00m ago; give a time that lies ahead, or leave it out",
        ),
        (
            "deadline = \"+1h\"\nnot_before = \"+3h\"",
            "[AP0202] `deadline`: it lies 2h00m before the job may start (`not_before`); give a later `deadline` or an earlier `not_before`",
        ),
        (
            "not_before = \"2126-12-01T00:00:00Z\"",
            "[AP0202] `not_before`: 2126-12-01T00:00:00Z lies 36524d00h ahead, more than 3650d00h; give an earlier one",
        ),
        (
            "estimate = \"0s\"",
            "[AP0202] `estimate`: a job takes longer than 0s; give how long it runs from its start to its end, like `6h`",
        ),
        (
            "estimate = { low = \"3h\", expected = \"2h\" }",
            "[AP0202] `estimate`: its ends are not in order: 3h00m, 2h00m, 3h00m; give `low` at most as long as `expected`, and that at most as long as `high`",
        ),
        (
            "estimate = { expected = \"2h\", hihg = \"4h\" }",
            "[AP0201] unknown key `hihg` in `[estimate]`; did you mean `high`?",
        ),
    ] {
        assert_eq!(wrong(top), expected);
    }
    assert!(
        wrong("estimate = 6").starts_with(
            "[AP0202] `estimate`: invalid type: integer `6`, expected a span like `6h`"
        )
    );
    assert!(wrong("priority = 1.5").starts_with("[AP0202] `priority`:"));
}

#[test]
fn wrong_shapes_say_which_and_why() {
    let wrong = |resources: &str| error(&file("", resources, ""));
    for (resources, expected) in [
        (
            "gpus = 12\ntensor_parallel = 8",
            "[AP0202] `resources.tensor_parallel`: 12 GPUs cannot be split into groups of 8; choose a number that divides `gpus`, or leave it out",
        ),
        (
            "gpus = 0.5\ntensor_parallel = 1",
            "[AP0202] `resources.tensor_parallel`: 0.5 GPUs cannot be split into groups of 1; choose a number that divides `gpus`, or leave it out",
        ),
        (
            "gpus = 8\nspeed = 2",
            "[AP0202] `resources.speed`: 2 is no part of the fastest shape's speed; give a number from 0.001 to 1.0; the fastest shape has 1.0",
        ),
        (
            "gpus = 8\nread_bandwidth = \"fast\"",
            "[AP0202] `resources.read_bandwidth`: `fast` is no size; give a number with a unit like `512MiB`, `64GiB` or `2TB`",
        ),
        (
            "gpus = 8\nor = [{ gpu_type = \"A100\" }]",
            "[AP0202] `resources.or[0]`: it names no GPUs; give `gpus`, like `{ gpus = 8, .. }`",
        ),
        (
            "gpus = 8\nor = [{ gpus = 4, or = [{ gpus = 2 }] }]",
            "[AP0202] `resources.or[0]`: it has an `or` of its own; put its shapes beside it, into the list of `resources.or`",
        ),
        (
            "gpus = 8\nor = [{ gpus = 4, processes = \"per-gpu\" }]",
            "[AP0202] `resources.or[0]`: `processes` cannot change with the shape: the command is started the same way in all of them; give it once, beside `or`",
        ),
        (
            "gpus = 8\nor = [{ gpus = 4 }, { gpu = 2 }]",
            "[AP0201] unknown key `gpu` in `resources.or[1]`; did you mean `gpus`?",
        ),
    ] {
        assert_eq!(wrong(resources), expected);
    }
    let many = format!("gpus = 8\nor = [{}]", "{ gpus = 4 },".repeat(17));
    assert_eq!(
        wrong(&many),
        "[AP0108] `resources.or`: there are 17 shapes: the limit is 16; give at most 16"
    );
    assert!(wrong("gpus = 8\nspan = \"rack\"").starts_with(
        "[AP0202] `resources.span`: unknown variant `rack`, expected one of `node`, `nvlink-domain`"
    ));
    let of_a_role =
        "name = \"j\"\n[roles.r]\ncommand = [\"x\"]\nresources = { gpus = 8, or = [{}] }";
    assert!(error(of_a_role).starts_with("[AP0202] `roles.r.resources.or[0]`: it names no GPUs"));
}

#[test]
fn wrong_dependencies_name_their_key() {
    let wrong = |top: &str| error(&file(top, "gpus = 1", ""));
    assert_eq!(
        wrong("after_any = [\"j\"]"),
        "[AP0107] `after_any`: `j` waits for itself; take it out of `after_any`"
    );
    assert_eq!(
        wrong("after_start = [\"zzz\"]"),
        "[AP0106] `after_start`: there is no job `zzz` in team `default`; submit it first, or give both files to one `antiphon submit`"
    );
}

#[test]
fn an_id_that_is_not_there_is_looked_for_in_every_team() {
    let of_a_team = file("team = \"rlhf\"\nafter = [\"job-9\"]", "gpus = 1", "");
    assert!(error(&of_a_team).starts_with("[AP0106] `after`: there is no job-9;"));
}

#[test]
fn wrong_ladders_and_shared_resources_are_refused() {
    let wrong = |tables: &str| error(&file("", "gpus = 1", tables));
    for (tables, expected) in [
        (
            "[[ladder]]\nname = \"again\"",
            "[AP0202] `ladder[0]`: `again` changes nothing, so memory would run out again; give `environment` that makes the trainer need less, or more `gpus`",
        ),
        (
            "[[ladder]]\nname = \"a\"\nenvironment = { ANTIPHON_URL = \"x\" }",
            "[AP0202] `ladder[0].environment`: `ANTIPHON_URL` cannot be set; names hold no `=`, values no NUL, and `ANTIPHON_*` is set by antiphon",
        ),
        (
            "[[ladder]]\nname = \"a\"\ngpus = -1",
            "[AP0202] `ladder[0].gpus`: -1 is no number of GPUs; give a number like `8`, or a share of one GPU like `0.5`, in thousandths at the finest",
        ),
        (
            "[[ladder]]\nnam = \"a\"",
            "[AP0201] unknown key `nam` in `ladder[0]`; did you mean `name`?",
        ),
        (
            "[shared]\n\"a b\" = 1",
            "[AP0204] `shared`: `a b` cannot be a name; use at most 100 letters, digits, `-`, `_` and `.`, first a letter or digit, and no job id",
        ),
    ] {
        assert_eq!(wrong(tables), expected);
    }
    let many = "[[ladder]]\nname = \"a\"\ngpus = 2\n".repeat(17);
    assert!(wrong(&many).starts_with("[AP0108] `ladder`: there are 17 steps: the limit is 16"));
    assert!(wrong("[shared]\nlustre = -1").starts_with("[AP0202] `shared.lustre`:"));
}

#[test]
fn an_accept_line_says_what_is_measured_and_on_what() {
    let accept = |line: &str| {
        let spec = spec(&file(&format!("accept = {line}"), "gpus = 1", ""));
        let accept = spec.map(|spec| spec.accept.expect("it stands there"));
        accept.map(|accept| format!("{accept} on {}", accept.from))
    };
    for (line, read) in [
        (
            r#"{ metric = "eval_loss", op = "<=", value = 1.2 }"#,
            "eval_loss <= 1.2 on probe",
        ),
        (
            r#"{ metric = "loss", op = "<=", value = 0.25, from = "probe/law" }"#,
            "loss <= 0.25 on probe/law",
        ),
        (
            r#"{ metric = "loss", op = "<=", value = 2, from = "train" }"#,
            "loss <= 2 on train",
        ),
        (
            r#"{ metric = "gsm8k", op = ">=", value = 0.71 }"#,
            "gsm8k >= 0.71 on eval",
        ),
    ] {
        assert_eq!(accept(line).unwrap(), read);
    }
    let wrong = |line: &str| accept(line).expect_err("it is wrong").what;
    for (line, why) in [
        (
            r#"{ metric = "loss", op = "<", value = 1.0 }"#,
            "`accept.op`: `<` compares nothing",
        ),
        (
            r#"{ metric = "loss", op = "<=", value = 1e10 }"#,
            "`accept.value`: 10000000000 cannot be reached",
        ),
        (
            r#"{ metric = "loss", op = "<=", value = 1.0, from = "test" }"#,
            "`accept.from`: nothing is measured on `test`",
        ),
        (
            r#"{ metric = "gsm8k", op = ">=", value = 0.7, from = "probe" }"#,
            "`accept.from`: on `probe` only losses are measured, not `gsm8k`",
        ),
    ] {
        assert_eq!(wrong(line), why);
    }
}
