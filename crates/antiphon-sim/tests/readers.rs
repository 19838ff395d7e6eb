//! Each reader on a small trace of our own making, each kind of bad input, and whatever chance makes of them.

#![expect(
    clippy::unwrap_used,
    reason = "a fixture that is missing fails the test"
)]

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use antiphon_sim::trace::{Format, Strict, Trace, TraceError, fgd_nodes, read};
use antiphon_sim::workload::{TraceJob, Work};
use expect_test::{Expect, expect};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/traces")
        .join(name)
}

/// A job in one line.
fn line(job: &TraceJob) -> String {
    let mut text = format!("{} ms {}", job.submitted.as_millis(), job.name);
    let milli = job.gpus.thousandths();
    let _ = write!(text, ": {} GPU", milli as f64 / 1e3);
    if !job.gpu_types.is_empty() {
        let _ = write!(text, " {}", job.gpu_types.join("|"));
    }
    match &job.work {
        Work::Time(time) => {
            let _ = write!(text, ", {} ms", time.as_millis());
        }
        Work::Steps(phases) => {
            for phase in phases {
                let _ = write!(text, ", {} x {}", phase.steps, phase.kind);
            }
        }
        Work::Profile {
            application,
            batch_size,
        } => {
            let _ = write!(text, ", {application} at {batch_size}");
        }
        Work::Endless => text.push_str(", endless"),
    }
    if !job.team.is_empty() {
        let _ = write!(text, ", team {}", job.team);
    }
    if !job.user.is_empty() {
        let _ = write!(text, ", user {}", job.user);
    }
    if let Some(cpu) = job.cpu_milli {
        let _ = write!(text, ", {} CPU", cpu as f64 / 1e3);
    }
    if let Some(memory) = job.memory {
        let _ = write!(text, ", {} MiB", memory.get() >> 20);
    }
    for (name, time) in [
        ("deadline", job.deadline),
        ("limit", job.limit),
        ("estimate", job.estimate),
    ] {
        if let Some(time) = time {
            let _ = write!(text, ", {name} {} ms", time.as_millis());
        }
    }
    if job.weight_permille != 1_000 {
        let _ = write!(text, ", weight {}", job.weight_permille);
    }
    let _ = write!(text, ", {:?}, {:?}", job.class, job.end);
    text
}

/// Reads a fixture, its format told from its content, and compares all its jobs.
fn check(name: &str, format: Format, expected: Expect) {
    let trace = read(&fixture(name), None, Strict::On).unwrap();
    assert_eq!(trace.format, format);
    let lines: Vec<String> = trace.workload.jobs.iter().map(line).collect();
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn fgd_pods_are_shapes_with_a_time_from_their_start() {
    check(
        "fgd-pods.csv",
        Format::Fgd,
        expect![[r#"
            0 ms pod-d: 8 GPU V100M32, endless, 96 CPU, 393216 MiB, Standard, Running
            10000 ms pod-a: 1 GPU, 270000 ms, 4 CPU, 8192 MiB, Standard, Completed
            20000 ms pod-b: 0.25 GPU T4|P100, 50000 ms, 2 CPU, 4096 MiB, BestEffort, Failed
            30000 ms pod-c: 0 GPU, 500000 ms, 8 CPU, 16384 MiB, Standard, Running
        "#]],
    );
}

#[test]
fn fgd_nodes_may_have_no_gpu() {
    let nodes = fgd_nodes(&fixture("fgd-nodes.csv")).unwrap();
    let lines: Vec<String> = nodes.iter().map(|node| format!("{node:?}")).collect();
    expect![[r#"
        NodeRow { name: "node-a", cpu_milli: 64000, memory: Bytes(274877906944), gpus: 2, gpu_type: "P100" }
        NodeRow { name: "node-b", cpu_milli: 96000, memory: Bytes(412316860416), gpus: 8, gpu_type: "V100M32" }
        NodeRow { name: "node-c", cpu_milli: 32000, memory: Bytes(137438953472), gpus: 0, gpu_type: "" }"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn muri_counts_milliseconds() {
    check(
        "muri.csv",
        Format::Muri,
        expect![[r#"
            0 ms 0: 8 GPU, 250000 ms, Standard, Completed
            60000 ms 1: 1 GPU, 8000 ms, Standard, Completed
        "#]],
    );
}

#[test]
fn tiresias_counts_seconds() {
    check(
        "tiresias.csv",
        Format::Tiresias,
        expect![[r#"
            0 ms 0: 2 GPU, 125000 ms, Standard, Completed
            30000 ms 1: 4 GPU, 55000 ms, Standard, Completed
        "#]],
    );
}

#[test]
fn gavel_has_steps_and_weights() {
    check(
        "gavel.trace",
        Format::Gavel,
        expect![[r#"
            0 ms line-2: 1 GPU, 300 x ('Net-18 (batch size 16)', 1), weight 5000, Standard, Completed
            39500 ms line-1: 2 GPU, 1200 x ('Net-18 (batch size 32)', 2), Standard, Completed
        "#]],
    );
}

#[test]
fn the_older_layout_of_gavel_is_read() {
    check(
        "gavel-seven.trace",
        Format::Gavel,
        expect![[r#"
            0 ms line-1: 4 GPU, 1200 x ('Net-18 (batch size 32)', 4), Standard, Completed
            2500 ms line-2: 1 GPU, 300 x ('Net-18 (batch size 16)', 1), Standard, Completed
        "#]],
    );
}

#[test]
fn shockwave_jobs_change_their_batch_size() {
    check(
        "shockwave.trace",
        Format::Shockwave,
        expect![[r#"
            0 ms line-1: 1 GPU, 32823 x ('ResNet-18 (batch size 32)', 1), 3590.7959053103004 x ('ResNet-18 (batch size 64)', 1), estimate 900000 ms, Standard, Completed
            2000 ms line-2: 2 GPU, 29840 x ('LM (batch size 20)', 2), 3789.9999999999995 x ('LM (batch size 80)', 2), estimate 500000 ms, Standard, Completed
            2000 ms line-3: 4 GPU, 1000 x ('Transformer (batch size 64)', 4), estimate 70000 ms, Standard, Completed
            10000 ms line-4: 1 GPU, 50 x ('Unheard (batch size 8)', 1), estimate 5000 ms, Standard, Completed
        "#]],
    );
}

#[test]
fn pollux_jobs_follow_a_profile() {
    check(
        "pollux.csv",
        Format::Pollux,
        expect![[r#"
            0 ms net-1: 1 GPU, net at 32, Standard, Completed
            18000 ms net-0: 4 GPU, net at 256, Standard, Completed
        "#]],
    );
}

#[test]
fn elasticflow_without_generated_columns_has_times() {
    check(
        "elastic-flow-raw.csv",
        Format::ElasticFlow,
        expect![[r#"
            0 ms 2d3c: 1 GPU, 3600000 ms, Standard, Completed
            600000 ms 0f1e: 8 GPU, 60000 ms, Standard, Completed
        "#]],
    );
}

#[test]
fn elasticflow_with_generated_columns_has_steps_and_deadlines() {
    check(
        "elastic-flow.csv",
        Format::ElasticFlow,
        expect![[r#"
            0 ms 2d3c: 1 GPU, 7200 x net/128, estimate 3600000 ms, BestEffort, Completed
            600000 ms 0f1e: 8 GPU, 900 x net/64, deadline 690000 ms, estimate 60000 ms, Standard, Completed
        "#]],
    );
}

#[test]
fn philly_jobs_are_named_by_their_line() {
    check(
        "philly.csv",
        Format::Philly,
        expect![[r#"
            0 ms line-3: 8 GPU, 2951500 ms, team 33bb44, Standard, Completed
            25320000 ms line-2: 1 GPU, 66000 ms, team 11aa22, Standard, Completed
        "#]],
    );
}

#[test]
fn chronus_counts_minutes_and_has_jobs_without_gpus() {
    check(
        "chronus.csv",
        Format::Chronus,
        expect![[r#"
            0 ms 1: 0 GPU, 1200000 ms, team vc_b, deadline 2400000 ms, Standard, Completed
            600000 ms 2: 4 GPU, 1200000 ms, team vc_b, BestEffort, Completed
            1200000 ms 0: 1 GPU, 4500000 ms, team vc_a, deadline 7800000 ms, Standard, Completed
        "#]],
    );
}

#[test]
fn acme_jobs_have_cpus_and_memory() {
    check(
        "acme.csv",
        Format::Acme,
        expect![[r#"
            0 ms 0: 64 GPU, 104500 ms, team pretrain, 960 CPU, 7629394 MiB, Standard, Completed
            313000 ms 1: 8 GPU, 78000 ms, team other-or-sft, 96 CPU, 476837 MiB, Standard, Completed
        "#]],
    );
}

#[test]
fn sacct_jobs_are_whole_and_steps_are_passed_over() {
    check(
        "sacct.txt",
        Format::Sacct,
        expect![[r#"
            0 ms 105: 0 GPU, 30000 ms, team data, user u3, 2 CPU, 4000 MiB, limit 1800000 ms, Standard, Failed
            60000 ms 100: 8 GPU h100, 3600000 ms, team vision, user u1, 64 CPU, 524288 MiB, limit 7200000 ms, Standard, Completed
            120000 ms 101_1: 1 GPU, 600000 ms, team vision, user u1, 4 CPU, 16384 MiB, limit 600000 ms, Standard, Limit
            120000 ms 101_2: 1 GPU, 0 ms, team vision, user u1, 4 CPU, 16384 MiB, limit 600000 ms, Standard, Running
            120000 ms 101_3: 1 GPU, 0 ms, team vision, user u1, 4 CPU, 16384 MiB, limit 600000 ms, Standard, Running
            120000 ms 101_4: 1 GPU, 0 ms, team vision, user u1, 4 CPU, 16384 MiB, limit 600000 ms, Standard, Running
            120000 ms 101_8: 1 GPU, 0 ms, team vision, user u1, 4 CPU, 16384 MiB, limit 600000 ms, Standard, Running
            660000 ms 102: 4 GPU, 600000 ms, team speech, user u2, 104 CPU, 98304 MiB, Standard, Failed
            960000 ms 103: 2 GPU, 1200000 ms, team speech, user u2, 8 CPU, limit 3600000 ms, Standard, Completed
            2460000 ms 104: 0.284 GPU, 60000 ms, team speech, user u2, 8 CPU, limit 3600000 ms, Standard, Canceled
            2760000 ms 106: 1 GPU a100, 840000 ms, team data, user u3, 2 CPU, Standard, Running
        "#]],
    );
}

#[test]
fn kubernetes_pods_of_one_owner_are_a_gang() {
    check(
        "kubernetes.json",
        Format::Kubernetes,
        expect![[r#"
            0 ms vision/finetune: 8 GPU H100, 1800000 ms, team vision, 1 CPU, 4096 MiB, limit 7200000 ms, Standard, Completed
            600000 ms speech/tune: 16 GPU, 604000 ms, team speech, Standard, Failed
            1200000 ms speech/notebook: 0.142 GPU, 600000 ms, team speech, Standard, Running
        "#]],
    );
}

/// Reads a text as if it were a file.
fn try_text(text: &str, format: Option<Format>, strict: Strict) -> Result<Trace, TraceError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    fs::write(&path, text).unwrap();
    read(&path, format, strict)
}

const MURI: &str = "job_id,num_gpu,submit_time,duration,resource_time_0\n";

/// One good row, one bad: the bad one is skipped and counted, or ends the reading.
fn bad(header: &str, good: &str, bad: &str, reason: &str) {
    let text = format!("{header}{good}\n{bad}\n");
    let line = text.lines().count() as u64;
    let trace = try_text(&text, None, Strict::Off).unwrap();
    assert_eq!(trace.workload.jobs.len(), 1, "{text}");
    assert_eq!(trace.bad_total, 1);
    let found = &trace.bad[0];
    assert_eq!((found.line, found.reason.as_str()), (line, reason));
    let error = try_text(&text, None, Strict::On).unwrap_err();
    assert_eq!(error.code(), "AP0604");
    let text = error.to_string();
    assert!(text.ends_with(&format!("line {line}: {reason}")), "{text}");
}

#[test]
fn a_negative_time_is_bad() {
    let reason = "`duration` is `-3`: expected a time of at least 0";
    bad(MURI, "0,1,0,5,1", "1,1,0,-3,1", reason);
    let reason = "`submit_time` is `-1`: expected a time of at least 0";
    bad(MURI, "0,1,0,5,1", "1,1,-1,3,1", reason);
}

#[test]
fn no_gpus_are_bad_where_the_format_knows_none() {
    let reason = "`num_gpu` is `0`: expected at least 1 GPU in a trace of this format";
    bad(MURI, "0,1,0,5,1", "1,0,0,3,1", reason);
}

#[test]
fn a_job_that_stands_there_twice_is_bad() {
    let reason = "job `0` stands in the trace twice: expected each once";
    bad(MURI, "0,1,0,5,1", "0,1,9,3,1", reason);
}

#[test]
fn what_is_no_number_is_bad() {
    let reason = "`num_gpu` is `eight`: expected a number";
    bad(MURI, "0,1,0,5,1", "1,eight,0,3,1", reason);
    let reason = "`num_gpu` is `1.5`: expected a whole number of at least 0";
    bad(MURI, "0,1,0,5,1", "1,1.5,0,3,1", reason);
    let reason = "`duration` is `NaN`: expected a number";
    bad(MURI, "0,1,0,5,1", "1,1,0,NaN,1", reason);
    let reason = "`duration` is empty: expected a number";
    bad(MURI, "0,1,0,5,1", "1,1,0,,1", reason);
}

#[test]
fn too_few_columns_are_bad() {
    let reason = "`duration` is column 4: expected at least as many, there are 2";
    bad(MURI, "0,1,0,5,1", "1,1", reason);
    let good = "net\tc\tf\ta\t1\t9\t1\t1\t-1\t0";
    let reason = "there are 3 columns: expected 10, or 7";
    bad("", good, "net\tc\tf", reason);
}

#[test]
fn what_ends_before_it_starts_is_bad() {
    bad(
        "JobID|Submit|Start|End|AllocTRES\n",
        "1|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T00:02:00|gres/gpu=1",
        "2|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T00:00:59|gres/gpu=1",
        "`End` is `2024-01-01T00:00:59`: expected a time that is not before `Start`",
    );
    bad(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n",
        "a,1,1,1,1000,5,9,6",
        "b,1,1,1,1000,5,5,6",
        "`deletion_time` is `5`: expected a time after the pod began",
    );
}

#[test]
fn more_than_can_be_counted_is_bad() {
    let reason = "`duration` is `1e300`: expected less than ten thousand years";
    bad(MURI, "0,1,0,5,1", "1,1,0,1e300,1", reason);
    let reason = "`num_gpu` is `2000000`: expected at most 1,000,000";
    bad(MURI, "0,1,0,5,1", "1,2000000,0,5,1", reason);
    let reason =
        "1000000000 thousandths of a GPU over 300000000000000 ms are more than can be counted";
    bad(MURI, "0,1,0,5,1", "1,1000000,0,3e14,1", reason);
}

#[test]
fn a_share_of_several_gpus_is_bad() {
    bad(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n",
        "a,1,1,1,500",
        "b,1,1,2,500",
        "`gpu_milli` is `500`: expected 1,000 for whole GPUs, or 1 to 999 of a single one",
    );
}

#[test]
fn an_unknown_state_or_mode_is_bad() {
    bad(
        "JobID|Submit|ElapsedRaw|State|AllocTRES\n",
        "1|2024-01-01T00:00:00|5|COMPLETED|gres/gpu=1",
        "2|2024-01-01T00:00:00|5|MELTED|gres/gpu=1",
        "`State` is `MELTED`: expected a state of a Slurm job",
    );
    bad(
        "",
        "Net (batch size 8)\tc\tf\ta\t1\t9\t1\tgns\t1\t-1\t4\t0",
        "Net (batch size 8)\tc\tf\ta\t1\t9\t1\twild\t1\t-1\t4\t0",
        "`mode` is `wild`: expected `static`, `accordion` or `gns`",
    );
}

#[test]
fn a_deadline_before_the_submission_is_bad() {
    bad(
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n",
        "a,10,5,net,20,8,1,5",
        "b,10,5,net,4,8,1,5",
        "`deadline` is 6 s before the submission: expected it after",
    );
}

#[test]
fn a_pod_without_a_time_is_bad_by_the_line_it_begins_on() {
    let text = r#"{"apiVersion": "v1", "kind": "List", "items": [
{"kind": "Pod", "metadata": {"name": "a", "creationTimestamp": "2024-01-01T00:00:00Z"}},
{"kind": "Pod",
 "metadata": {"name": "b"}},
{"kind": "Pod", "metadata": {"name": 7}}]}"#;
    let trace = try_text(text, None, Strict::Off).unwrap();
    assert_eq!(trace.workload.jobs.len(), 1);
    let lines: Vec<_> = trace.bad.iter().map(ToString::to_string).collect();
    expect![[r#"
        line 3: `metadata.creationTimestamp` is empty: expected the time of submission
        line 5: the item cannot be parsed: invalid type: integer `7`, expected a string at line 1 column 38"#]].assert_eq(&lines.join("\n"));
    let error = try_text(text, None, Strict::On).unwrap_err();
    assert_eq!(error.code(), "AP0604");
}

#[test]
fn lines_are_those_of_the_file_whatever_stands_between() {
    let text = format!("# by somebody, CC-BY-4.0\n# two lines\n{MURI}0,1,0,5,1\n\n\r\n1,1,0,x,1\n");
    let trace = try_text(&text, None, Strict::Off).unwrap();
    assert_eq!(trace.workload.jobs[0].line, 4);
    assert_eq!(trace.bad[0].line, 7);
}

#[test]
fn a_missing_column_is_named_with_the_nearest() {
    let text = "job_id,num_gpus,submit_time,duration,resource_time_0\n0,1,0,5,1\n";
    let error = try_text(text, None, Strict::Off).unwrap_err();
    assert_eq!(error.code(), "AP0603");
    assert!(
        error
            .to_string()
            .ends_with("has no column `num_gpu`, which a muri trace must have")
    );
    assert_eq!(error.help(), "is `num_gpus` meant? Name it `num_gpu`");
    assert!(error.why().contains("`num_gpus`"));
    let text = "JobID|Submit|ElapsedRaw|State\n1|2024-01-01T00:00:00|5|COMPLETED\n";
    let error = try_text(text, None, Strict::Off).unwrap_err();
    assert!(error.to_string().contains("`AllocTRES`"), "{error}");
    let text = "JobID|Submit|State|ReqTRES\n1|2024-01-01T00:00:00|COMPLETED|cpu=1\n";
    let error = try_text(text, None, Strict::Off).unwrap_err();
    assert!(error.to_string().contains("`Start`"), "{error}");
}

#[test]
fn an_unknown_format_lists_those_that_are_known() {
    for text in ["a,b,c\n1,2,3\n", "", "{\"v100\": {}}", "x\ty\n", "a|b\n"] {
        let error = try_text(text, None, Strict::Off).unwrap_err();
        assert_eq!(error.code(), "AP0602");
        for format in Format::ALL {
            assert!(error.help().contains(format.name()));
        }
    }
}

#[test]
fn formats_are_named_in_kebab_case_and_the_nearest_is_offered() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    assert_eq!("ElasticFlow".parse(), Ok(Format::ElasticFlow));
    let error = "sact".parse::<Format>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no trace format `sact`: is `sacct` meant?"
    );
}

#[test]
fn a_trace_without_a_job_is_refused() {
    let error = try_text(MURI, None, Strict::Off).unwrap_err();
    assert_eq!(
        (error.code(), error.why().as_str()),
        ("AP0605", "there are no rows")
    );
    let error = try_text(&format!("{MURI}0,1,x,5,1\n"), None, Strict::Off).unwrap_err();
    assert_eq!(
        error.why(),
        "1 rows are bad, the first: line 2: `submit_time` is `x`: expected a number"
    );
}

#[test]
fn only_the_first_thousand_bad_rows_are_kept_and_all_are_counted() {
    let mut text = format!("{MURI}0,1,0,5,1\n");
    for _ in 0..1_500 {
        text.push_str("0,1,0,5,1\n");
    }
    let trace = try_text(&text, None, Strict::Off).unwrap();
    assert_eq!((trace.bad.len(), trace.bad_total), (1_000, 1_500));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Reads bytes under a name that says nothing of them.
fn try_bytes(bytes: &[u8], strict: Strict) -> Result<Trace, TraceError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    fs::write(&path, bytes).unwrap();
    read(&path, None, strict)
}

#[test]
fn compressed_traces_are_read_as_they_are() {
    let plain = fs::read(fixture("muri.csv")).unwrap();
    let expected = try_bytes(&plain, Strict::On).unwrap();
    assert_eq!(try_bytes(&gzip(&plain), Strict::On).unwrap(), expected);
    let packed = zstd::encode_all(&plain[..], 1).unwrap();
    assert_eq!(try_bytes(&packed, Strict::On).unwrap(), expected);
    let twice = [gzip(&plain[..100]), gzip(&plain[100..])].concat();
    assert_eq!(try_bytes(&twice, Strict::On).unwrap(), expected);
}

#[test]
fn a_trace_that_is_cut_short_is_used_up_to_there_or_refused() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut text = MURI.to_owned();
    for index in 0..5_000 {
        let _ = writeln!(text, "{index},1,{index},{},1", rng.next_u32());
    }
    let packed = gzip(text.as_bytes());
    let half = &packed[..packed.len() / 2];
    let trace = try_bytes(half, Strict::Off).unwrap();
    let jobs = trace.workload.jobs.len() as u64;
    assert!((1_000..4_000).contains(&jobs), "{jobs}");
    assert_eq!(trace.bad_total, 1);
    assert_eq!(trace.bad[0].line, jobs + 2);
    let reason = &trace.bad[0].reason;
    assert!(reason.starts_with("the file is cut short: "), "{reason}");
    assert!(
        reason.ends_with(&format!("{jobs} jobs before are used")),
        "{reason}"
    );
    let error = try_bytes(half, Strict::On).unwrap_err();
    assert_eq!(error.code(), "AP0601");
    assert!(
        error
            .to_string()
            .contains(&format!("cut short in line {}", jobs + 2))
    );
    let packed = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let error = try_bytes(&packed[..packed.len() / 2], Strict::On).unwrap_err();
    assert_eq!(error.code(), "AP0601");
    let error = try_bytes(&gzip(b"x")[..4], Strict::Off).unwrap_err();
    assert_eq!(error.code(), "AP0601");
}

#[test]
fn what_is_not_there_is_unreadable() {
    let error = read(Path::new("/nowhere/trace.csv"), None, Strict::Off).unwrap_err();
    assert_eq!(error.code(), "AP0601");
    assert!(error.why().contains("No such file"), "{}", error.why());
}

#[test]
fn sacct_is_read_with_other_columns_in_another_order() {
    let text = "State|ReqGRES|NNodes|elapsed|timelimit|ReqMem|NCPUS|JobIDRaw|Submit|AllocGRES|Eligible\n\
                CANCELLED+|gpu:h100:8|2|1-00:00:01|2-00:00:00|4Gc|16|7|1700000000||2023-11-14T22:13:25\n\
                PREEMPTED|gpu:2|1|03:04.500|Partition_Limit|64Gn|4|8|2023-11-14T22:13:21|gres:gpu:4|Unknown\n\
                BOOT_FAIL|PER_NODE:gpu:a100:4|2|00:00:00|UNLIMITED|0n|1|9|2023-11-14T22:13:22||2023-11-14T22:13:22\n";
    let trace = try_text(text, None, Strict::On).unwrap();
    let lines: Vec<String> = trace.workload.jobs.iter().map(line).collect();
    expect![[r#"
        0 ms 8: 4 GPU, 184500 ms, 4 CPU, 65536 MiB, Standard, Canceled
        1000 ms 9: 8 GPU a100, 0 ms, 1 CPU, Standard, Hardware
        4000 ms 7: 16 GPU h100, 86401000 ms, 16 CPU, 65536 MiB, limit 172800000 ms, Standard, Canceled"#]]
    .assert_eq(&lines.join("\n"));
}

/// Whatever a file holds, it is read or refused: 120 times each fixture is cut off or bytes of it are changed.
#[test]
fn nothing_that_chance_makes_of_a_trace_ends_in_a_panic() {
    let mut rng = ChaCha8Rng::seed_from_u64(2024);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut fixtures: Vec<_> = fs::read_dir(fixture(""))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    fixtures.sort();
    assert_eq!(fixtures.len(), 15);
    for fixture in fixtures {
        let whole = fs::read(&fixture).unwrap();
        for round in 0..120 {
            let mut bytes = whole.clone();
            let place = |rng: &mut ChaCha8Rng, len: usize| rng.next_u32() as usize % len.max(1);
            if round % 3 == 0 {
                bytes.truncate(place(&mut rng, whole.len()));
            }
            if round % 3 != 1 {
                for _ in 0..1 + round % 7 {
                    let at = place(&mut rng, bytes.len());
                    let signs = b"0123456789-+.,|\t:eE\"[]{}\n\0\xff\xc3";
                    let sign = signs[place(&mut rng, signs.len())];
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = sign;
                    }
                }
            }
            if round % 3 == 1 {
                bytes = gzip(&bytes);
                let at = place(&mut rng, bytes.len());
                bytes[at] ^= 1 << (rng.next_u32() % 8);
                if round % 2 == 0 {
                    bytes.truncate(at);
                }
            }
            fs::write(&path, &bytes).unwrap();
            let _ = fgd_nodes(&path);
            for strict in [Strict::Off, Strict::On] {
                let _ = read(&path, None, strict);
            }
            let format = Format::ALL[place(&mut rng, Format::ALL.len())];
            if let Err(error) = read(&path, Some(format), Strict::Off) {
                assert!(!error.help().is_empty());
                let _ = error.why();
            }
        }
    }
}
