//! Recorded answers of several Slurms, and what is seen in them.

use antiphon_types::{Millis, Tasks, Timestamp};
use expect_test::{Expect, expect};

use super::*;
use crate::observe::{SeenJob, SeenPhase, Service};

macro_rules! recorded {
    ($release:literal) => {
        [
            include_str!(concat!("../../../tests/observed/", $release, "/nodes.txt")),
            include_str!(concat!(
                "../../../tests/observed/",
                $release,
                "/partitions.txt"
            )),
            include_str!(concat!("../../../tests/observed/", $release, "/jobs.txt")),
            include_str!(concat!("../../../tests/observed/", $release, "/ids.txt")),
            include_str!(concat!(
                "../../../tests/observed/",
                $release,
                "/topology.txt"
            )),
        ]
    };
}

fn seen(config: &ObserverConfig, texts: [&str; 5]) -> Result<Picture, SlurmError> {
    let [nodes, partitions, jobs, ids, places] = texts;
    picture(
        config,
        &Texts {
            nodes,
            partitions,
            jobs,
            ids,
            places,
        },
    )
}

fn config(partitions: &[&str]) -> ObserverConfig {
    ObserverConfig {
        partitions: partitions.iter().map(|name| (*name).to_owned()).collect(),
        gpu_types: BTreeMap::from([("h100".into(), "H100-SXM-80GB".into())]),
        classes: BTreeMap::from([("high".into(), Class::Production)]),
        ..ObserverConfig::default()
    }
}

fn check(config: &ObserverConfig, texts: [&str; 5], expected: Expect) {
    let picture = seen(config, texts).unwrap();
    let mut text = String::new();
    for node in &picture.nodes {
        let spec = &node.spec;
        let service = match &node.service {
            Service::In => String::new(),
            Service::Drained(why) => format!(", drained: {why}"),
            Service::Down(why) => format!(", down: {why}"),
        };
        text += &format!(
            "{} {}x{} in {} ({}), leaf {}{service}\n",
            spec.name,
            spec.gpus,
            spec.gpu_type,
            spec.partition,
            node.partitions.join(","),
            spec.location.leaf,
        );
    }
    picture.jobs.iter().for_each(|job| text += &told(job));
    picture
        .left_out
        .iter()
        .for_each(|line| text += &format!("left out: {line}\n"));
    expected.assert_eq(&text);
}

fn clock(at: Timestamp) -> String {
    let minutes = at.as_millis() / 60_000;
    format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60)
}

fn told(job: &SeenJob) -> String {
    let spec = &job.spec;
    let mut text = format!(
        "{} `{}` of {}/{}, {}, limit {}, at {}, priority {}\n",
        job.key,
        spec.name,
        spec.team,
        spec.user,
        spec.class,
        spec.time_limit
            .map_or("none".into(), |limit: Millis| limit.to_string()),
        clock(job.submitted),
        job.priority,
    );
    for role in &spec.roles {
        let shape = &role.shape;
        let tasks = match shape.tasks {
            Tasks::Fewest => "fewest".to_owned(),
            Tasks::Exactly(count) => count.to_string(),
        };
        text += &format!(
            "  {}: {} {} in {tasks} of {:?} CPUs, {} in {}\n",
            role.name,
            shape.gpus,
            shape.gpu_type.as_deref().unwrap_or("GPUs"),
            shape.cpus,
            shape.memory.unwrap_or_default(),
            shape.partition.as_deref().unwrap_or_default(),
        );
    }
    let reason = job.reason.as_deref().unwrap_or("-");
    let starts = job
        .starts
        .map_or(String::new(), |at| format!(", starts at {}", clock(at)));
    let run = |run: &crate::observe::Run| {
        let held = run.held.iter().map(|held| {
            let (role, node, gpus, which) = (&held.role, &held.node, held.gpus, &held.indices);
            format!(
                " {node}/{role}:{gpus}{which:?}+{}+{}",
                held.cpus, held.memory
            )
        });
        format!("since {} on{}", clock(run.since), held.collect::<String>())
    };
    text += &match &job.phase {
        SeenPhase::Waiting => format!("  waits: {reason}{starts}\n"),
        SeenPhase::KeptBack => format!("  is kept back: {reason}{starts}\n"),
        SeenPhase::Running(held) => format!("  runs {}\n", run(held)),
        SeenPhase::Ended {
            run: held,
            at,
            exit,
            outcome,
        } => {
            let ran = held.as_ref().map_or("never ran".into(), run);
            format!(
                "  ended at {}: {exit}, {outcome:?}; ran {ran}\n",
                clock(*at)
            )
        }
    };
    if !job.not_weighed.is_empty() {
        text += &format!("  not weighed: {}\n", job.not_weighed.join(", "));
    }
    text
}

/// By the documentation of 24.11: ranges of nodes, `ReqTRES` and `AllocTRES`, `gres/gpu` in place of `gres:gpu`.
#[test]
fn a_24_11_is_read() {
    check(
        &config(&["train", "spot"]),
        recorded!("24.11"),
        expect![[r#"
            g1 8xH100-SXM-80GB in train+spot (train), leaf leaf0
            g2 8xH100-SXM-80GB in train+spot (train,spot), leaf leaf0, drained: mixed+drain: fan 3 is loud [root@2026-11-30T09:00:00]
            g3 8xH100-SXM-80GB in train+spot (spot), leaf leaf0
            g4 8xH100-SXM-80GB in train+spot (train), leaf leaf0, down: idle+not_responding: Not responding [slurm@2026-11-30T09:30:00]
            3990 `evaluate` of lab/ann, standard, limit 4h00m, at 09:40, priority 60000
              main: 2 GPUs in 1 of Some(16) CPUs, 0 B in train+spot
              ended at 09:55: exit code 7: Slurm: FAILED, Failed { class: Software }; ran since 09:50 on g3/main:2[]+16+0 B
            4001 `grpo` of rlhf/ben, standard, limit 1d00h, at 07:00, priority 90000
              main: 12 GPUs in 2 of Some(32) CPUs, 256.0 GiB in train+spot
              runs since 08:00 on g1/main:8[0, 1, 2, 3, 4, 5, 6, 7]+32+256.0 GiB g2/main:4[2, 3, 4, 5]+32+256.0 GiB
            4012 `sft-8b` of lab/ann, production, limit 2d00h, at 08:00, priority 100234
              main: 16 H100-SXM-80GB in 2 of Some(16) CPUs, 128.0 GiB in train+spot
              waits: Priority, starts at 18:00
              not weighed: any nodes but `g9`
            4020_3 `sweep` of lab/ann, standard, limit 2d00h, at 09:00, priority 80000
              main: 1 GPUs in 1 of Some(8) CPUs, 32.0 GiB in train+spot
              waits: Resources
              not weighed: nodes with the feature `nvlink`
            4020_4 `sweep` of lab/ann, standard, limit 2d00h, at 09:00, priority 80000
              main: 1 GPUs in 1 of Some(8) CPUs, 32.0 GiB in train+spot
              is kept back: JobArrayTaskLimit
              not weighed: nodes with the feature `nvlink`
            4020_5 `sweep` of lab/ann, standard, limit 2d00h, at 09:00, priority 80000
              main: 1 GPUs in 1 of Some(8) CPUs, 32.0 GiB in train+spot
              is kept back: JobArrayTaskLimit
              not weighed: nodes with the feature `nvlink`
            4020_9 `sweep` of lab/ann, standard, limit 2d00h, at 09:00, priority 80000
              main: 1 GPUs in 1 of Some(8) CPUs, 32.0 GiB in train+spot
              is kept back: JobArrayTaskLimit
              not weighed: nodes with the feature `nvlink`
            4020_2 `sweep` of lab/ann, best-effort, limit 12h00m, at 09:00, priority 80000
              main: 1 GPUs in 1 of Some(8) CPUs, 32.0 GiB in train+spot
              runs since 09:50 on g3/main:1[0]+8+32.0 GiB
            4030 `rollout and train` of rlhf/ben, standard, limit 4h00m, at 09:30, priority 70000
              part0: 8 GPUs in 1 of Some(16) CPUs, 64.0 GiB in train+spot
              part1: 0 GPUs in 2 of Some(4) CPUs, 8.0 GiB in train+spot
              waits: Resources
            left out: 1 job waits for partitions that are not looked at
        "#]],
    );
}

/// A real one of four nodes: partitions that share them, an array, a heterogeneous job, needs by node, task and job, and a name
/// that reads like another job.
#[test]
fn a_22_05_is_read() {
    check(
        &config(&[]),
        recorded!("22.05"),
        expect![[r#"
            n1 8xH100-SXM-80GB in general+3 (general,fast-ib,preemptible,spot), leaf leaf0
            n2 8xH100-SXM-80GB in general+3 (general,fast-ib,preemptible,spot), leaf leaf0
            n3 8xH100-SXM-80GB in general+3 (general,preemptible,spot), leaf leaf1
            n4 8xH100-SXM-80GB in general+3 (general,preemptible,spot), leaf leaf1, drained: mixed+drain: fan 3 is loud [root@2026-11-30T20:55:15]
            1 `long` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 8 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              runs since 20:52 on n1/main:8[0, 1, 2, 3, 4, 5, 6, 7]+1+0 B
            2 `half run` of default/nobody, best-effort, limit 1d00h, at 20:52, priority 1
              main: 4 H100-SXM-80GB in 1 of Some(1) CPUs, 0 B in general+3
              runs since 20:52 on n2/main:4[4, 5, 6, 7]+1+0 B
            4 `pair` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 4 GPUs in 2 of Some(4) CPUs, 0 B in general+3
              runs since 20:52 on n3/main:2[0, 1]+4+0 B n4/main:2[0, 1]+4+0 B
            5 `byjob` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 6 GPUs in fewest of None CPUs, 0 B in general+3
              ended at 20:55: ended by signal 15: Slurm: CANCELLED, Canceled; ran since 20:52 on n3/main:6[]+2+0 B
            6 `wide` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 32 GPUs in 4 of Some(1) CPUs, 0 B in general+3
              waits: Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions
            7 `held` of default/nobody, standard, limit 1h00m, at 20:52, priority 0
              main: 1 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              is kept back: JobHeldUser
            8_1 `sweep` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 8 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              waits: Resources, starts at 21:55
            8_2 `sweep` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 8 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              is kept back: JobArrayTaskLimit, starts at 21:55
            8_3 `sweep` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 8 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              is kept back: JobArrayTaskLimit, starts at 21:55
            8_4 `sweep` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 8 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              is kept back: JobArrayTaskLimit, starts at 21:55
            9 `late` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 1 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              is kept back: Dependency
            10 `excl` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 0 GPUs in 1 of Some(64) CPUs, 0 B in general+3
              waits: Priority, starts at 22:52
            11 `feat` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 4 GPUs in 1 of Some(2) CPUs, 0 B in general+3
              waits: Priority, starts at 22:55
              not weighed: nodes with the feature `ib`
            12 `pertask` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 3 GPUs in 1 of Some(3) CPUs, 0 B in general+3
              runs since 20:55 on n3/main:3[4, 5, 6]+3+0 B
            13 `het` of default/root, standard, limit 1h00m, at 20:52, priority 1
              part0: 8 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              part1: 0 GPUs in 2 of Some(2) CPUs, 0 B in general+3
              waits: Resources, starts at 22:55
            15 `fails` of default/nobody, standard, limit 1h00m, at 20:52, priority 1
              main: 1 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              waits: Priority, starts at 23:55
            16 `quick` of default/nobody, best-effort, limit 1h00m, at 20:52, priority 1
              main: 1 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              waits: Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions, starts at 00:55
            17 `x` of default/nobody, standard, limit 1h00m, at 20:55, priority 1
              main: 0 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              waits: ReqNodeNotAvail,_UnavailableNodes:n4
              not weighed: the nodes `n4`
            18 `fails` of default/nobody, standard, limit 1h00m, at 20:55, priority 1
              main: 0 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              ended at 20:55: ended by signal 1: Slurm: FAILED, Failed { class: Software }; ran never ran
            19 `fails` of default/nobody, standard, limit 1h00m, at 20:55, priority 1
              main: 0 GPUs in 1 of Some(1) CPUs, 0 B in general+3
              ended at 20:55: exit code 7: Slurm: FAILED, Failed { class: Software }; ran since 20:55 on n2/main:0[]+1+0 B
            left out: 3: somebody typed line breaks into a job's name or comment that read like another job
        "#]],
    );
}

#[test]
fn a_partition_that_is_not_there_is_named() {
    let error = seen(&config(&["trian"]), recorded!("24.11")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Slurm has no partition `trian` with nodes; it has train, spot, debug"
    );
}
