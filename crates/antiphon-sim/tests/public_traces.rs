//! Reads every public trace that the variable `TRACES` leads to, and says so where it is not set.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a trace that cannot be read fails the test; counts are shown with `--nocapture`"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use antiphon_sim::profile::Profile;
use antiphon_sim::throughput::{Placed, SharedThroughputs, Throughputs};
use antiphon_sim::trace::{Format, Strict, Trace, fgd_nodes, read};
use antiphon_sim::workload::{Phase, TraceJob, Work};

/// The folder of the traces, or a line that says that there is none.
fn traces() -> Option<PathBuf> {
    let folder = std::env::var_os("TRACES").filter(|folder| !folder.is_empty());
    if folder.is_none() {
        println!("skipped: TRACES is not set");
    }
    folder.map(PathBuf::from)
}

/// Reads a file whose format is told from its content, without a bad row.
fn clean(path: &Path, format: Format) -> Trace {
    let trace = read(path, None, Strict::On).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(trace.format, format, "{}", path.display());
    assert_eq!(trace.bad_total, 0, "{}", path.display());
    let jobs = &trace.workload.jobs;
    assert_eq!(jobs[0].submitted.as_millis(), 0, "{}", path.display());
    assert!(jobs.is_sorted_by_key(|job| job.submitted));
    trace
}

/// All files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// GPU-hours of the jobs that say how long they run, rounded.
fn gpu_hours(trace: &Trace) -> u64 {
    let hours = |job: &TraceJob| match job.work {
        Work::Time(time) => u128::from(job.gpus.thousandths()) * u128::from(time.as_millis()),
        _ => 0,
    };
    let sum: u128 = trace.workload.jobs.iter().map(hours).sum();
    u64::try_from((sum + 1_800_000_000) / 3_600_000_000).unwrap()
}

#[test]
fn fgd_pods_and_nodes_are_all_read() {
    let Some(traces) = traces() else { return };
    let folder = traces.join("alibaba-gpu-v2023-fgd");
    let mut seen = 0;
    for path in files(&folder) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(variant) = name.strip_prefix("openb_pod_list_") else {
            continue;
        };
        let trace = clean(&path, Format::Fgd);
        let jobs = &trace.workload.jobs;
        let gpus: u64 = jobs.iter().map(|job| job.gpus.thousandths()).sum();
        println!("{name}: {} pods, {gpus} thousandths of a GPU", jobs.len());
        let expected = match variant.trim_end_matches(".csv.gz") {
            "default" | "gpuspec10" | "gpuspec33" => Some((8_152, 6_086)),
            "gpushare40" => Some((8_152, 5_641)),
            "gpushare100" => Some((8_152, 3_952)),
            "cpu0" => Some((7_064, 6_086)),
            "cpu250" => Some((9_420, 6_086)),
            "multigpu20" => Some((8_324, 7_086)),
            "multigpu50" => Some((9_061, 11_358)),
            _ => None,
        };
        if let Some(expected) = expected {
            assert_eq!((jobs.len(), gpus / 1_000), expected, "{name}");
            seen += 1;
        }
    }
    assert!(seen > 0);
    let nodes = fgd_nodes(&folder.join("openb_node_list_gpu_node.csv.gz")).unwrap();
    let gpus: u32 = nodes.iter().map(|node| node.gpus).sum();
    let cpu_milli: u64 = nodes.iter().map(|node| node.cpu_milli).sum();
    let memory: u64 = nodes.iter().map(|node| node.memory.get() >> 20).sum();
    assert_eq!((nodes.len(), gpus), (1_213, 6_212));
    assert_eq!((cpu_milli, memory), (107_018_000, 503_828_480));
    let nodes = fgd_nodes(&folder.join("openb_node_list_all_node.csv.gz")).unwrap();
    assert_eq!(nodes.len(), 1_523);
}

#[test]
fn muri_and_tiresias_are_all_read() {
    let Some(traces) = traces() else { return };
    for path in files(&traces.join("muri")) {
        let trace = clean(&path, Format::Muri);
        let (jobs, hours) = (trace.workload.jobs.len(), gpu_hours(&trace));
        println!("{}: {jobs} jobs, {hours} GPU-hours", trace.workload.name);
        match trace.workload.name.as_str() {
            "trace1" | "trace1_pr" => assert_eq!((jobs, hours), (1_494, 383_327)),
            "trace3" | "trace3_pr" | "job_type_1" | "job_type_2" | "job_type_3" | "job_type_4" => {
                assert_eq!(jobs, 992);
                assert!(hours.abs_diff(116_690) <= 1);
            }
            "testbed_cluster_trace" => assert_eq!(jobs, 400),
            _ => {}
        }
    }
    let trace = clean(&traces.join("tiresias/60_job.csv.gz"), Format::Tiresias);
    assert_eq!(trace.workload.jobs.len(), 60);
}

#[test]
fn gavel_and_shockwave_are_all_read() {
    let Some(traces) = traces() else { return };
    let gavel = traces.join("gavel");
    for folder in ["physical_cluster", "generated", "msr_seed0"] {
        for path in files(&gavel.join(folder)) {
            let trace = clean(&path, Format::Gavel);
            let jobs = trace.workload.jobs.len();
            let last = trace.workload.jobs.last().unwrap().submitted.as_millis() / 1_000;
            println!("{}: {jobs} jobs in {last} s", trace.workload.name);
            match trace.workload.name.as_str() {
                "max_min_fairness" => assert_eq!((jobs, last), (96, 46_317)),
                "minimize_makespan" => assert_eq!((jobs, last), (100, 0)),
                "artifact_evaluation" => assert_eq!(jobs, 15),
                "continuous_multigpu_lam1200_seed0_400jobs" => {
                    assert_eq!((jobs, last), (400, 476_426));
                }
                _ => {}
            }
        }
    }
    for path in files(&traces.join("shockwave/traces")) {
        let trace = clean(&path, Format::Shockwave);
        let jobs = &trace.workload.jobs;
        let name = &trace.workload.name;
        assert!(name.starts_with(&format!("{}_", jobs.len())), "{name}");
        let changing = jobs.iter().filter(|job| match &job.work {
            Work::Steps(phases) => phases.len() > 1,
            _ => false,
        });
        println!("{name}: {} jobs, {} change", jobs.len(), changing.count());
    }
}

#[test]
fn pollux_and_elasticflow_are_all_read() {
    let Some(traces) = traces() else { return };
    for (folder, count) in [
        ("workloads", 160),
        ("workloads-0.5", 80),
        ("workloads-1.5", 240),
        ("workloads-2.0", 320),
        ("workloads-realistic", 160),
    ] {
        for path in files(&traces.join("pollux").join(folder)) {
            let trace = clean(&path, Format::Pollux);
            assert_eq!(trace.workload.jobs.len(), count, "{}", path.display());
        }
    }
    let counts = [
        (1_595, 22_740),
        (5_778, 123_748),
        (3_011, 165_443),
        (15_802, 705_683),
        (3_629, 14_303),
        (2_396, 123_879),
        (12_699, 366_800),
        (13_047, 67_100),
        (11_134, 39_001),
        (260, 4_023),
    ];
    let elasticflow = traces.join("elasticflow");
    for (index, (jobs, hours)) in counts.into_iter().enumerate() {
        let name = format!("cluster{:02}.csv.gz", index + 1);
        let raw = clean(&elasticflow.join("raw").join(&name), Format::ElasticFlow);
        assert_eq!(raw.workload.jobs.len(), jobs, "{name}");
        assert!(gpu_hours(&raw).abs_diff(hours) <= 1, "{name}");
        let full = clean(&elasticflow.join(&name), Format::ElasticFlow);
        assert_eq!(full.workload.jobs.len(), jobs, "{name}");
        assert!(full.workload.jobs.iter().all(|job| job.deadline.is_some()));
    }
    for path in files(&elasticflow.join("traces")) {
        let trace = clean(&path, Format::ElasticFlow);
        println!(
            "{}: {} jobs",
            trace.workload.name,
            trace.workload.jobs.len()
        );
    }
    let trace = clean(&elasticflow.join("195job.csv.gz"), Format::ElasticFlow);
    assert_eq!(trace.workload.jobs.len(), 195);
}

#[test]
fn philly_chronus_and_acme_are_all_read() {
    let Some(traces) = traces() else { return };
    let philly = traces.join("philly");
    let trace = clean(
        &philly.join("philly_jobs_pollux_extract.csv.gz"),
        Format::Philly,
    );
    assert_eq!(trace.workload.jobs.len(), 82_247);
    assert!(gpu_hours(&trace).abs_diff(978_078) <= 1);
    let teams: std::collections::BTreeSet<_> =
        trace.workload.jobs.iter().map(|job| &job.team).collect();
    assert_eq!(teams.len(), 15);
    for (name, without_gpus) in [("SLO", 205), ("MIX1", 184), ("MIX2", 194)] {
        let path = philly.join(format!("chronus_philly_{name}.csv.gz"));
        let trace = clean(&path, Format::Chronus);
        let jobs = &trace.workload.jobs;
        let none = jobs.iter().filter(|job| job.gpus.is_zero()).count();
        assert_eq!((jobs.len(), none), (30_940, without_gpus));
    }
    let path = traces.join("acme/kalos_completed_nonEval_jobs.csv");
    let trace = clean(&path, Format::Acme);
    assert_eq!(trace.workload.jobs.len(), 319);
}

#[test]
fn files_without_jobs_are_refused() {
    let Some(traces) = traces() else { return };
    for name in [
        "philly/philly_runtime_only.csv.gz",
        "tiresias/yarn-gput1000.csv.gz",
        "gavel/simulation_throughputs.json.gz",
        "acme/cluster_summary.csv",
    ] {
        let error = read(&traces.join(name), None, Strict::Off).unwrap_err();
        assert_eq!(error.code(), "AP0602", "{name}: {error}");
    }
}

/// Phases whose kind a table has, and all phases.
fn known(trace: &Trace, table: &Throughputs, gpu_type: &str) -> (usize, usize) {
    let (mut known, mut all) = (0, 0);
    for job in &trace.workload.jobs {
        let Work::Steps(phases) = &job.work else {
            continue;
        };
        for phase in phases {
            let gpus = job.gpus.whole().unwrap();
            let rate = table.steps_per_s(&phase.kind, gpus, gpu_type, Placed::Consolidated);
            known += usize::from(rate.is_some());
            all += 1;
        }
    }
    (known, all)
}

#[test]
fn every_step_of_gavel_and_shockwave_has_its_throughput() {
    let Some(traces) = traces() else { return };
    let begin = std::time::Instant::now();
    let gavel = Throughputs::read(&traces.join("gavel/simulation_throughputs.json.gz")).unwrap();
    println!("the table was read in {:?}", begin.elapsed());
    let types: Vec<_> = gavel.gpu_types().collect();
    assert_eq!(types, ["k80", "p100", "v100"]);
    let shared = traces.join("gavel/simulation_throughputs.json.gz");
    let shared = SharedThroughputs::read(&shared).unwrap();
    let kinds = [
        "('ResNet-18 (batch size 16)', 1)",
        "('LM (batch size 5)', 1)",
    ];
    let (one, other) = shared.steps_per_s(kinds[0], kinds[1], "v100").unwrap();
    for (kind, rate) in kinds.into_iter().zip([one, other]) {
        let alone = gavel.steps_per_s(kind, 1, "v100", Placed::Consolidated);
        assert!(rate < alone.unwrap() * 1.05, "{kind}: {rate}");
    }
    for name in [
        "physical_cluster/max_min_fairness",
        "physical_cluster/minimize_makespan",
        "physical_cluster/artifact_evaluation",
        "generated/continuous_multigpu_lam1200_seed0_400jobs",
    ] {
        let path = traces.join("gavel").join(format!("{name}.trace.gz"));
        let (known, all) = known(&clean(&path, Format::Gavel), &gavel, "v100");
        assert_eq!(known, all, "{name}");
    }
    for name in ["actual", "tacc", "wisr"] {
        let path = traces.join(format!("shockwave/{name}_throughputs.json.gz"));
        let table = Throughputs::read(&path).unwrap();
        for path in files(&traces.join("shockwave/traces")) {
            let trace = clean(&path, Format::Shockwave);
            let (known, all) = known(&trace, &table, "v100");
            println!("{name}: {known} of {all} phases of {}", trace.workload.name);
            assert_eq!(known, all, "{name}");
        }
    }
}

/// The estimate of a Shockwave job is the time of all its steps at the first batch size. With a changing one the whole
/// takes less; single jobs may take longer, for not every model handles more samples a second in larger batches.
#[test]
fn a_growing_batch_size_shortens_shockwave_jobs() {
    let Some(traces) = traces() else { return };
    let table = Throughputs::read(&traces.join("shockwave/tacc_throughputs.json.gz")).unwrap();
    let folder = files(&traces.join("shockwave/traces"));
    let path = folder
        .iter()
        .find(|path| path.to_string_lossy().contains("/120_"));
    let trace = clean(path.unwrap(), Format::Shockwave);
    let (mut changed_s, mut estimate_s) = (0.0, 0.0);
    for job in &trace.workload.jobs {
        let Work::Steps(phases) = &job.work else {
            panic!()
        };
        let gpus = job.gpus.whole().unwrap();
        let rate = |kind: &str| table.steps_per_s(kind, gpus, "v100", Placed::Consolidated);
        let seconds = |phase: &Phase| phase.steps / rate(&phase.kind).unwrap();
        let seconds: f64 = phases.iter().map(seconds).sum();
        let estimate = f64::from(u32::try_from(job.estimate.unwrap().as_millis()).unwrap()) / 1e3;
        if phases.len() == 1 {
            assert!(
                (seconds / estimate - 1.0).abs() < 0.02,
                "{seconds} {estimate} {phases:?}"
            );
        }
        changed_s += seconds;
        estimate_s += estimate;
    }
    println!("{changed_s:.0} s of work, {estimate_s:.0} s estimated");
    assert!(changed_s < estimate_s * 0.96);
}

#[test]
fn elasticflow_traces_go_with_their_tables() {
    let Some(traces) = traces() else { return };
    let elasticflow = traces.join("elasticflow");
    let table = |name: &str| Throughputs::read(&elasticflow.join(name)).unwrap();
    let (a100, t4) = (table("throughputs_A100"), table("throughputs_T4"));
    for (name, table) in [
        ("195job", &a100),
        ("cluster03", &a100),
        ("traces/philly_103959", &a100),
        ("traces/resnet_cifar_trace", &a100),
        ("traces/elasticVpollux_e", &t4),
    ] {
        let path = elasticflow.join(format!("{name}.csv.gz"));
        let (known, all) = known(&clean(&path, Format::ElasticFlow), table, "any");
        println!("{name}: {known} of {all} jobs have a throughput");
        assert_eq!(known, all, "{name}");
    }
}

#[test]
fn every_pollux_job_progresses_by_its_profile() {
    let Some(traces) = traces() else { return };
    let mut profiles = BTreeMap::new();
    for (name, epochs) in [
        ("bert", 14_774.0),
        ("cifar10", 39_062.9),
        ("deepspeech2", 28_536.0),
        ("imagenet", 576_525.0),
        ("ncf", 194_174.0),
        ("yolov3", 103_444.0),
    ] {
        let profile = Profile::read(&traces.join("pollux/profiles").join(name)).unwrap();
        let total = profile.progress_total();
        assert!((total - epochs).abs() < 2.0, "{name}: {total}");
        assert!((profile.gain(profile.batch_min(), 0.0) - 1.0).abs() < 1e-9);
        for nodes in 1..=20 {
            for gpus in nodes..=nodes * 4 {
                let step = profile.step_time(nodes, gpus, profile.batch_min() / 2);
                let step = step.unwrap_or_else(|| panic!("{name} on {nodes}, {gpus}"));
                assert!(step.step_s > 0.0 && step.step_s < 100.0, "{name}: {step:?}");
            }
        }
        profiles.insert(name.to_owned(), profile);
    }
    let published = published_jcts(&traces.join("pollux/published_results"));
    let mut ratios = Vec::new();
    for path in files(&traces.join("pollux/workloads")) {
        let trace = clean(&path, Format::Pollux);
        for job in &trace.workload.jobs {
            let seconds = run_s(job, &profiles);
            let jct = published[&trace.workload.name][&job.name];
            // A first start of 30 s belongs to what was published; rounds of 60 s and waiting only add.
            ratios.push((seconds + 30.0) / jct);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let above = |bar: f64| ratios.iter().filter(|ratio| **ratio > bar).count();
    println!(
        "{} of {} jobs ran at once and without a stop, {} faster than alone, {:.3} at most",
        above(0.95),
        ratios.len(),
        above(1.005),
        ratios[ratios.len() - 1]
    );
    // Those that were faster had a placement that is none of the fewest nodes, as 3 and 3 for 4 and 2.
    assert!(above(0.95) > ratios.len() / 6);
    assert!(above(1.005) < ratios.len() / 100);
    assert_eq!(above(1.15), 0);
}

/// How long a job runs alone on as few nodes of four GPUs as hold it.
fn run_s(job: &TraceJob, profiles: &BTreeMap<String, Profile>) -> f64 {
    let Work::Profile {
        application,
        batch_size,
    } = &job.work
    else {
        panic!()
    };
    let profile = &profiles[application];
    let gpus = job.gpus.whole().unwrap();
    let mut placement = vec![4; (gpus / 4) as usize];
    placement.push(gpus % 4);
    let (mut at, mut seconds) = (0.0, 0.0);
    while at < profile.progress_total() {
        let rate = profile.progress_per_s(&placement, *batch_size, at).unwrap();
        let end = profile.epoch_end(at);
        seconds += (end - at) / rate;
        at = end;
    }
    seconds
}

/// When the authors' simulator had each job done, by workload, under Tiresias with tuned sizes.
fn published_jcts(folder: &Path) -> BTreeMap<String, BTreeMap<String, f64>> {
    let packed = fs::read(folder.join("jobload_tiresias-1.0.json.gz")).unwrap();
    let json = flate2::read::GzDecoder::new(&packed[..]);
    let mut results: serde_json::Value = serde_json::from_reader(json).unwrap();
    serde_json::from_value(results["jcts"].take()).unwrap()
}
