//! Faults and costs in a simulation, one scenario for each kind: what is lost is what was done since the last save, and it is
//! counted under its cause. Every invariant of the kernel is checked after every event.

#![expect(
    clippy::unwrap_used,
    reason = "a scenario that cannot be set up fails the test"
)]

use antiphon_sim::cluster::{Cluster, nodes};
use antiphon_sim::faults::Faults;
use antiphon_sim::generate::{Load, generate};
use antiphon_sim::simulate::{Tables, courses, decider, policy};
use antiphon_sim::workload::{End, TraceJob, Work, Workload};
use antiphon_sim::world::{Cause, Finished, Knowledge, Record, Setting, World};
use antiphon_types::{Class, ExitClass, GpuAmount, Millis, PartitionSpec};
use expect_test::expect;

const HOUR: f64 = 3_600_000.0;

/// A job of so many GPUs that comes at the beginning and takes so many hours.
fn job(name: &str, gpus: u32, hours: u64) -> TraceJob {
    TraceJob {
        line: 0,
        name: name.into(),
        team: "all".into(),
        user: "all".into(),
        submitted: Millis::ZERO,
        gpus: GpuAmount::from_gpus(gpus),
        gpu_types: Vec::new(),
        cpu_milli: None,
        memory: None,
        class: Class::Standard,
        work: Work::Time(Millis::from_secs(hours * 3_600)),
        deadline: None,
        weight_permille: 1_000,
        limit: None,
        estimate: None,
        end: End::Completed,
    }
}

fn workload(jobs: Vec<TraceJob>) -> Workload {
    let name = "made".into();
    Workload { name, jobs }
}

/// Nodes of 8 GPUs where a start costs nothing.
fn cluster(count: u32) -> Cluster {
    Cluster {
        name: "made".into(),
        nodes: nodes("n", count, 8, "gpu"),
        partitions: Vec::new(),
        resources: std::collections::BTreeMap::new(),
        rounds: None,
        start_cost: Millis::ZERO,
        resize_cost: Millis::ZERO,
        wide: None,
        table: None,
    }
}

/// Runs a policy on a workload with these faults.
fn run(name: &str, workload: &Workload, cluster: &Cluster, faults: &str, seed: u64) -> Finished {
    run_knowing(Knowledge::Progress, name, workload, cluster, faults, seed)
}

/// The same for a policy that may know this.
fn run_knowing(
    knowledge: Knowledge,
    name: &str,
    workload: &Workload,
    cluster: &Cluster,
    faults: &str,
    seed: u64,
) -> Finished {
    let faults: Faults = toml::from_str(faults).unwrap();
    faults.check().unwrap();
    let setting = Setting {
        cluster: cluster.clone(),
        knowledge,
        noise: None,
        seed,
        policy: policy(),
        faults,
        spans: antiphon_sim::world::Spans::Dropped,
        forecasts: 0,
    };
    let gpus = cluster.nodes.iter().map(|node| node.gpus).sum();
    let (asked, used) = setting.faults.requested(workload, seed, gpus);
    let courses = courses(&asked, cluster, &Tables::None);
    let decider = decider(name, &setting).unwrap();
    let world = World::new(&asked, &setting, decider, courses, &|| 0);
    world.with_used(&used).checked().run(&mut |_| true)
}

/// What becomes of jobs on nodes of 8 GPUs under antiphon's own policy.
fn play(jobs: Vec<TraceJob>, nodes: u32, faults: &str) -> Vec<Record> {
    let finished = run("antiphon", &workload(jobs), &cluster(nodes), faults, 1);
    finished.records.into_iter().flatten().collect()
}

/// Hours from the submission to the end.
fn hours(record: &Record) -> f64 {
    let ended = record.ended.unwrap().saturating_sub(record.submitted);
    ms(ended) / HOUR
}

fn ms(span: Millis) -> f64 {
    f64::from(u32::try_from(span.as_millis()).unwrap())
}

/// GPU-hours lost to a cause.
fn lost(record: &Record, cause: Cause) -> f64 {
    record.lost.by(cause) / HOUR
}

#[track_caller]
fn same(made: f64, expected: f64) {
    assert!((made - expected).abs() < 0.001, "{made} is not {expected}");
}

#[test]
fn a_failed_node_costs_what_was_done_since_the_last_save() {
    let faults = "
        checkpoints = { interval = '1h' }
        retry = { retries_max = 9 }
        node = { mtbf = '6h', repair = '2h' }";
    let record = &play(vec![job("a", 8, 24)], 1, faults)[0];
    let gone = lost(record, Cause::Hardware) / 8.0;
    let failures = f64::from(record.failures);
    assert!(
        failures >= 1.0 && gone > 0.0 && gone < failures,
        "{record:?}"
    );
    // Nothing but the work since the last save is done twice, and nothing but the repair is waited for.
    same(hours(record), 24.0 + gone + 2.0 * failures);
    same(record.lost.total() / HOUR, gone * 8.0);
}

#[test]
fn a_failure_hangs_the_gang_until_it_is_noticed() {
    let faults = "
        checkpoints = { interval = '1h' }
        retry = { retries_max = 9 }
        node = { mtbf = '6h', noticed_after = '30min', repair = '2h' }";
    let record = &play(vec![job("a", 16, 24)], 4, faults)[0];
    let failures = f64::from(record.failures);
    assert!(failures >= 1.0, "{record:?}");
    same(lost(record, Cause::Hanging), failures * 16.0 * 0.5);
}

#[test]
fn a_save_stops_the_training_for_as_long_as_it_takes() {
    let faults = "checkpoints = { interval = '1h', save = '6min' }";
    let record = &play(vec![job("a", 8, 10)], 1, faults)[0];
    // The tenth would come with the end.
    same(hours(record), 10.9);
    same(lost(record, Cause::Saving), 8.0 * 0.9);
}

#[test]
fn what_saves_when_it_is_asked_to_stop_loses_nothing() {
    let faults = "maintenance = { every = '90min', nodes = 1, lasts = '1h' }";
    let record = &play(vec![job("a", 8, 2)], 1, faults)[0];
    same(hours(record), 3.0);
    same(record.lost.total(), 0.0);
}

#[test]
fn a_stop_without_a_save_loses_what_was_done_since_the_last() {
    let stopped = |interval: &str| {
        let faults = format!(
            "checkpoints = {{ interval = '{interval}', attached_permille = 0 }}
             maintenance = {{ every = '2h', nodes = 1, lasts = '1h' }}"
        );
        let work = Work::Time(Millis::from_secs(9_000));
        let job = TraceJob {
            work,
            ..job("a", 8, 0)
        };
        play(vec![job], 1, &faults).remove(0)
    };
    same(lost(&stopped("90min"), Cause::Maintenance), 8.0 * 0.5);
    same(hours(&stopped("90min")), 4.0);
    // The last save was just taken.
    same(stopped("1h").lost.total(), 0.0);
    same(hours(&stopped("1h")), 3.5);
}

#[test]
fn a_job_that_never_saves_begins_anew() {
    let faults = "
        checkpoints = { interval = '1h', saving_permille = 0 }
        maintenance = { every = '3h', nodes = 1, lasts = '1h' }";
    let record = &play(vec![job("a", 8, 2), job("b", 8, 2)], 1, faults);
    // The second had done an hour when the window came, and has two hours until the next but one.
    same(lost(&record[1], Cause::Maintenance), 8.0);
    same(hours(&record[1]), 6.0);
}

#[test]
fn a_gang_runs_at_the_speed_of_its_slowest_node() {
    let faults = "straggler = { mtbf = '4h', lasts = '1000d', speed_permille = 500 }";
    let record = &play(vec![job("a", 16, 10)], 2, faults)[0];
    let late = hours(record) - 10.0;
    assert!(late > 1.0, "{record:?}");
    // From the first slow node on half of what both hold is lost, whether the other is slow or not.
    same(lost(record, Cause::Straggler), 16.0 * late);
}

#[test]
fn a_slow_node_is_left_once_somebody_has_noticed() {
    let slow = "mtbf = '60h', lasts = '1000d', speed_permille = 500";
    let stays = format!("straggler = {{ {slow} }}");
    let leaves = format!("straggler = {{ {slow}, drained_after = '30min' }}");
    let stays = &play(vec![job("a", 16, 20)], 8, &stays)[0];
    let leaves = &play(vec![job("a", 16, 20)], 8, &leaves)[0];
    assert!(hours(leaves) < hours(stays), "{leaves:?} {stays:?}");
    // Half an hour at half speed for each node that it left.
    let left = lost(leaves, Cause::Straggler) / 16.0;
    assert!(left >= 0.25, "{leaves:?}");
    same(left % 0.25, 0.0);
}

#[test]
fn a_lost_gpu_ends_what_holds_it_and_the_rest_of_its_node_goes_on() {
    let faults = "
        retry = { retries_max = 9 }
        gpu = { mtbf = '7d', repair = '20d' }";
    let records = play(vec![job("a", 4, 30), job("b", 4, 30)], 1, faults);
    let (failed, well): (Vec<_>, Vec<_>) = records.iter().partition(|it| it.failures > 0);
    let ([failed], [well]) = (failed.as_slice(), well.as_slice()) else {
        panic!("one of them fails: {records:?}");
    };
    // Seven GPUs are left: the one that failed waits until the other is done, and begins anew.
    assert!(lost(failed, Cause::Hardware) > 0.0, "{failed:?}");
    same(hours(well), 30.0);
    same(hours(failed), 60.0);
}

#[test]
fn a_job_that_can_never_succeed_is_given_up() {
    let faults = "
        checkpoints = { interval = '1h' }
        retry = { retries_max = 5 }
        bug = { share_permille = 1000 }";
    let record = &play(vec![job("a", 8, 10)], 1, faults)[0];
    assert_eq!(record.failures, 6);
    let (_, class) = record.failed.unwrap();
    assert_eq!(class, Some(ExitClass::Software));
    // All of it was for nothing.
    same(record.lost.total(), record.held_gpu_ms);
}

#[test]
fn data_that_cannot_be_read_is_not_tried_again() {
    let faults = "
        retry = { retries_max = 5 }
        data = { share_permille = 1000, within_permille = 500 }";
    let record = &play(vec![job("a", 8, 10)], 1, faults)[0];
    assert_eq!(record.failures, 1);
    let (at, class) = record.failed.unwrap();
    assert_eq!(class, Some(ExitClass::DataError));
    assert!(ms(at) <= 5.0 * HOUR, "{record:?}");
}

#[test]
fn a_ladder_gets_a_job_past_its_lack_of_memory() {
    let memory = "memory = { share_permille = 1000, within_permille = 0, speed_permille = 800 }";
    let without = &play(vec![job("a", 8, 8)], 1, memory)[0];
    let (_, class) = without.failed.unwrap();
    assert_eq!(class, Some(ExitClass::OutOfMemory));
    let ladder = format!("retry = {{ ladder = 1 }}\n{memory}");
    let with = &play(vec![job("a", 8, 8)], 1, &ladder)[0];
    assert_eq!(with.failures, 1);
    same(hours(with), 10.0);
}

#[test]
fn software_that_fails_now_and_then_is_tried_again() {
    let faults = "
        checkpoints = { interval = '30min' }
        retry = { retries_max = 5, backoff_first = '6min', backoff_max = '6min' }
        software = { mtbf = '4d' }";
    let record = &play(vec![job("a", 8, 24)], 1, faults)[0];
    let gone = lost(record, Cause::Software) / 8.0;
    let failures = f64::from(record.failures);
    assert!(failures >= 1.0 && gone < 0.5 * failures, "{record:?}");
    same(hours(record), 24.0 + gone + 0.1 * failures);
}

#[test]
fn a_spot_node_is_left_within_its_notice_where_a_save_takes_no_longer() {
    let taken = |notice: &str| {
        let faults = format!(
            "checkpoints = {{ save = '1min' }}
             retry = {{ retries_max = 9 }}
             spot = {{ mtbf = '20h', notice = '{notice}', away = '1h' }}"
        );
        let mut cluster = cluster(2);
        cluster.partitions = vec![PartitionSpec {
            name: "spot".into(),
            preemptible: true,
            ..PartitionSpec::default()
        }];
        for node in &mut cluster.nodes {
            node.partition = "spot".into();
        }
        let jobs = workload(vec![job("a", 8, 24)]);
        let finished = run("antiphon", &jobs, &cluster, &faults, 1);
        finished.records.into_iter().flatten().next().unwrap()
    };
    let warned = taken("2min");
    same(lost(&warned, Cause::Spot), 0.0);
    assert_eq!(warned.failures, 0);
    assert!(lost(&warned, Cause::Saving) > 0.0, "{warned:?}");
    let torn = taken("30s");
    assert!(lost(&torn, Cause::Spot) > 0.0, "{torn:?}");
}

#[test]
fn a_person_ends_what_has_learned_all_that_it_will() {
    let loss = |turn: &str| {
        let faults = format!(
            "loss = {{ {turn}_permille = 1000, after_permille = 500, noticed_after = '30min' }}"
        );
        play(vec![job("a", 8, 10)], 1, &faults).remove(0)
    };
    let flat = loss("plateau");
    assert!(hours(&flat) < 10.0 && hours(&flat) > 5.0, "{flat:?}");
    same(lost(&flat, Cause::PastUse), 8.0 * 0.5);
    let wild = loss("diverge");
    let (_, class) = wild.failed.unwrap();
    assert_eq!(class, None);
    same(wild.lost.total(), wild.held_gpu_ms);
}

#[test]
fn gpus_beyond_what_a_job_uses_are_lost() {
    let faults = "requests = { over_permille = 1000, times_permille = 2000 }";
    let record = &play(vec![job("a", 4, 10)], 1, faults)[0];
    same(hours(record), 10.0);
    same(record.held_gpu_ms / HOUR, 80.0);
    same(lost(record, Cause::Unused), 40.0);
}

/// A load with everything in it.
fn mixed() -> (Workload, Cluster, &'static str) {
    let workload = generate(&Load {
        gpus: 128,
        jobs: 150,
        ..Load::default()
    });
    let cluster = Cluster {
        start_cost: Millis::from_secs(60),
        resize_cost: Millis::from_secs(60),
        ..cluster(16)
    };
    let faults = include_str!("../../../examples/simulate/faults.toml");
    (workload, cluster, faults)
}

#[test]
fn books_agree_whatever_goes_wrong_under_every_kind_of_policy() {
    let (workload, cluster, faults) = mixed();
    for name in ["antiphon", "fifo", "easy-backfill", "las"] {
        let finished = run(name, &workload, &cluster, faults, 3);
        for record in finished.records.iter().flatten() {
            let over = record.ended.is_some() || record.failed.is_some();
            assert!(over, "{name}: {record:?}");
            let lost = record.lost.total();
            assert!(lost <= record.held_gpu_ms + 1.0, "{name}: {record:?}");
            if record.failed.is_some() {
                // Of a job that was given up nothing is left.
                assert!(
                    (lost - record.held_gpu_ms).abs() < 1_000.0,
                    "{name}: {record:?}"
                );
            }
        }
    }
}

/// Nothing happens between the second job's coming and the first one's end but that the first has had its turn.
#[test]
fn the_kernel_is_asked_again_at_the_time_that_it_named() {
    let second = TraceJob {
        submitted: Millis::from_secs(1),
        ..job("b", 8, 1)
    };
    let both = workload(vec![job("a", 8, 20), second]);
    let nothing_known = Knowledge::None;
    let finished = run_knowing(nothing_known, "antiphon", &both, &cluster(1), "", 1);
    let [first, second] = finished.records.as_slice() else {
        panic!("two jobs came");
    };
    let (first, second) = (first.as_ref().unwrap(), second.as_ref().unwrap());
    assert!(first.preemptions > 0 && hours(second) < 3.0, "{second:?}");
    same(hours(first), 21.0);
}

#[test]
fn one_seed_gives_one_digest() {
    let (workload, cluster, faults) = mixed();
    let digest = |seed| run("antiphon", &workload, &cluster, faults, seed).digest;
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

/// On public traces the digests were those of the version before there were faults; this one came with it.
#[test]
fn without_faults_nothing_changes() {
    let (workload, cluster, _) = mixed();
    let finished = run("antiphon", &workload, &cluster, "", 1);
    expect!["d249dffec06f2376694231a45155d296569ced09c6a961b5555558bd26f0b0c2"]
        .assert_eq(&finished.digest);
}

#[test]
fn a_fault_turned_on_moves_no_other() {
    let jobs = || workload(vec![job("a", 8, 200)]);
    let node = "retry = { retries_max = 99 }\ncheckpoints = { interval = '1h' }\nnode = { mtbf = '60h', repair = '2h' }";
    let both = format!("{node}\ngpu = {{ mtbf = '9000d', repair = '2h' }}");
    let alone = run("antiphon", &jobs(), &cluster(1), node, 1);
    let together = run("antiphon", &jobs(), &cluster(1), &both, 1);
    assert_eq!(alone.digest, together.digest);
}

#[test]
fn shares_and_spans_that_cannot_be_are_refused() {
    let refused = |text: &str| {
        let faults: Faults = toml::from_str(text).unwrap();
        faults.check().unwrap_err().to_string()
    };
    expect!["`straggler.speed_permille` is 0: give 1 to 1000, which is full speed"].assert_eq(
        &refused("straggler = { mtbf = '1d', lasts = '1h', speed_permille = 0 }"),
    );
    expect!["`node.mtbf` is 1s: give a minute or more"]
        .assert_eq(&refused("node = { mtbf = '1s', repair = '1h' }"));
    expect!["`bug, data, memory: share_permille` is 1200: a job has at most one: give shares that add up to at most 1000"]
        .assert_eq(&refused("bug = { share_permille = 600 }\ndata = { share_permille = 600 }"));
}
