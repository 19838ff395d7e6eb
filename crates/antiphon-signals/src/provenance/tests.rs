//! Explosions blamed on the right shard or on none; relations over graphs as people leave them.

use antiphon_types::{Diagnosis, Finding, ShardOrigin, Timestamp, Verdict};

use super::{RELATED_MAX, relations};
use crate::{Context, JobWindow, Signal};

fn child_of(parents: &[&str]) -> ShardOrigin {
    ShardOrigin {
        parents: parents.iter().map(|name| (*name).to_owned()).collect(),
        ..ShardOrigin::default()
    }
}

fn made_at(generator: &str, temperature_milli: u32) -> ShardOrigin {
    ShardOrigin {
        generator: generator.to_owned(),
        temperature_milli: Some(temperature_milli),
        ..ShardOrigin::default()
    }
}

fn context(shards: impl IntoIterator<Item = (String, ShardOrigin)>) -> Context {
    Context {
        shards: shards.into_iter().collect(),
        ..Context::default()
    }
}

/// Feeds steps 1 to `steps`: by step, the norm of the whole step, and the shards drawn with their own norms.
fn run(
    context: Context,
    steps: u64,
    mut at: impl FnMut(u64) -> (f64, Vec<(&'static str, Option<f64>)>),
) -> Vec<Diagnosis> {
    let mut window = JobWindow::new("job-1.1".parse().unwrap()).with_context(context);
    let mut said = Vec::new();
    for step in 1..=steps {
        let (norm, shards) = at(step);
        let time = Timestamp::from_millis(step * 1_000);
        for task in 0..4 {
            let whole = Signal {
                task: Some(task),
                step: Some(step),
                grad_norm: Some(norm),
                ..Signal::default()
            };
            window.observe(&whole, time);
        }
        for (shard, norm) in shards {
            let part = Signal {
                step: Some(step),
                shard: Some(shard.into()),
                loss: Some(2.0),
                samples: Some(4),
                grad_norm: norm,
                ..Signal::default()
            };
            window.observe(&part, time);
        }
        said.extend(window.take_findings());
    }
    said.into_iter()
        .filter_map(|finding| match finding {
            Finding::Diagnosis(diagnosis) => Some(*diagnosis),
            Finding::Progress { .. }
            | Finding::Idle { .. }
            | Finding::Measured(_)
            | Finding::Reached(_) => None,
        })
        .collect()
}

/// Feeds losses of shards: task, step, shard, and the loss, where it is a number.
fn losses(reports: &[(u32, u64, &'static str, Option<f64>)]) -> Vec<String> {
    let mut window = JobWindow::new("job-1.1".parse().unwrap());
    for (task, step, shard, loss) in reports {
        let part = Signal {
            task: Some(*task),
            step: Some(*step),
            shard: Some((*shard).into()),
            loss: *loss,
            not_finite: loss.is_none().then_some(true),
            samples: Some(4),
            ..Signal::default()
        };
        window.observe(&part, Timestamp::from_millis(step * 1_000));
    }
    let said = window.take_findings().into_iter();
    said.filter_map(|finding| match finding {
        Finding::Diagnosis(of) => Some(format!("{} {}: {:?}", of.subject, of.verdict, of.remedies)),
        Finding::Progress { .. }
        | Finding::Idle { .. }
        | Finding::Measured(_)
        | Finding::Reached(_) => None,
    })
    .collect()
}

#[test]
fn a_loss_that_is_no_number_blames_the_shard_beside_others_that_have_one_and_once() {
    let paused = r#"c explosion: [Direct(PauseShard { shard: "c" })]"#;
    let after = [(0, 8, "a", Some(1.0)), (0, 8, "c", None), (0, 9, "a", None)];
    assert_eq!(losses(&after), [paused]);
    let before = [(0, 8, "c", None), (0, 8, "d", Some(1.0)), (0, 9, "c", None)];
    assert_eq!(losses(&before), [paused]);
    let again = [&after[..], &after[..]].concat();
    assert_eq!(losses(&again), [paused]);
}

/// Once the weights are no numbers, no shard's loss is: neither of a later step nor of another task, which may report later.
#[test]
fn a_model_that_is_no_number_blames_no_shard() {
    let model = [
        (0, 8, "a", Some(1.0)),
        (0, 9, "a", None),
        (0, 9, "b", None),
        (1, 9, "c", None),
    ];
    assert_eq!(losses(&model), [""; 0]);
    // Back at the checkpoint the same steps come again.
    let again = [
        (0, 9, "a", None),
        (0, 9, "b", None),
        (0, 8, "a", Some(1.0)),
        (0, 9, "a", Some(1.0)),
    ];
    assert_eq!(losses(&again), [""; 0]);
    // Then one task steps on, while what another had to say of the time before comes in.
    let late = [
        (0, 9, "a", None),
        (0, 9, "a", Some(1.0)),
        (1, 9, "b", None),
        (1, 10, "b", None),
    ];
    assert_eq!(losses(&late), [""; 0]);
}

/// Evenly over 0..1, the same from the same state.
fn unit(state: &mut u64) -> f64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 11) as f64 / (1_u64 << 53) as f64
}

/// A norm as healthy runs have it: log-normal, so with a tail.
fn healthy(state: &mut u64) -> f64 {
    let normal = (0..12).map(|_| unit(state)).sum::<f64>() - 6.0;
    (0.25 * normal).exp()
}

#[test]
fn an_explosion_on_a_shard_flags_its_ancestors_and_siblings_and_nobody_else() {
    let mut origins = vec![
        (
            "bad".to_owned(),
            ShardOrigin {
                parents: vec!["seed".to_owned()],
                ..made_at("m1", 900)
            },
        ),
        ("seed".to_owned(), child_of(&["book"])),
        ("book".to_owned(), ShardOrigin::default()),
        ("twin".to_owned(), made_at("m1", 900)),
        ("cooler".to_owned(), made_at("m1", 200)),
        ("child".to_owned(), child_of(&["bad"])),
    ];
    origins.push(("other".to_owned(), made_at("m2", 900)));
    let mut state = 1;
    let said = run(context(origins), 100, |step| {
        let bad = if step > 60 { 40.0 } else { healthy(&mut state) };
        (
            1.0,
            vec![("bad", Some(bad)), ("other", Some(healthy(&mut state)))],
        )
    });
    let of = |verdict| -> Vec<&str> {
        let said = said.iter().filter(|said| said.verdict == verdict);
        said.map(|said| said.subject.as_str()).collect()
    };
    assert_eq!(of(Verdict::Explosion), ["bad"]);
    assert_eq!(of(Verdict::Related), ["seed", "book", "twin"]);
    let related = said.iter().filter(|said| said.verdict == Verdict::Related);
    assert!(
        related.clone().all(|said| said.remedies.is_empty()),
        "flagged, not changed"
    );
    assert!(
        said[0].evidence.contains("generator m1; temperature 0.9"),
        "{}",
        said[0].evidence
    );
    assert_eq!(said[0].remedies[0].to_string(), "pause_shard bad");
}

#[test]
fn spikes_of_whole_steps_blame_the_new_shard_that_they_fall_on() {
    for seed in 0..20 {
        let mut state = seed;
        let said = run(Context::default(), 400, |step| {
            let mut shards = vec![("a", None), ("b", None)];
            let mut norm = healthy(&mut state);
            if step > 340 && step % 5 == 0 {
                shards.push(("new", None));
                norm = 30.0;
            }
            (norm, shards)
        });
        let found: Vec<_> = said
            .iter()
            .map(|said| (said.subject.as_str(), said.verdict))
            .collect();
        assert_eq!(found, [("new", Verdict::Explosion)], "seed {seed}");
    }
}

#[test]
fn spikes_that_fall_on_every_shard_alike_blame_none() {
    let mut state = 7;
    let said = run(Context::default(), 400, |step| {
        let norm = if step % 50 == 0 {
            30.0
        } else {
            healthy(&mut state)
        };
        (norm, vec![("a", None), ("b", None), ("c", None)])
    });
    assert_eq!(said, []);
}

#[test]
fn healthy_norms_with_a_tail_blame_nobody() {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    for seed in 0..200 {
        let mut state = seed;
        let said = run(Context::default(), 500, |_| {
            let drawn = NAMES
                .into_iter()
                .filter(|_| unit(&mut state) < 0.4)
                .collect::<Vec<_>>();
            let drawn = drawn
                .into_iter()
                .map(|name| (name, Some(healthy(&mut state))))
                .collect();
            (healthy(&mut state), drawn)
        });
        assert_eq!(said, [], "seed {seed}");
    }
}

#[test]
fn cycles_and_missing_parents_are_taken_as_they_are() {
    let origins = context([
        ("a".to_owned(), child_of(&["b", "gone"])),
        ("b".to_owned(), child_of(&["c"])),
        ("c".to_owned(), child_of(&["a", "c"])),
    ]);
    let names: Vec<String> = relations(&origins.shards, "a")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["b", "gone", "c"]);
    assert_eq!(relations(&origins.shards, "unknown"), []);
}

#[test]
fn of_a_thousand_siblings_the_nearest_are_named_and_all_are_counted() {
    let siblings = (0..1_000).map(|index| (format!("s{index:04}"), made_at("m1", 700)));
    let bad = (
        "bad".to_owned(),
        ShardOrigin {
            parents: vec!["zoo".to_owned()],
            ..made_at("m1", 700)
        },
    );
    let said = run(context(siblings.chain([bad])), 60, |step| {
        let norm = if step > 40 { 50.0 } else { 1.0 };
        (1.0, vec![("bad", Some(norm)), ("s0001", Some(1.0))])
    });
    let related: Vec<&Diagnosis> = said
        .iter()
        .filter(|said| said.verdict == Verdict::Related)
        .collect();
    assert_eq!(related.len(), RELATED_MAX);
    assert_eq!(related[0].subject, "zoo");
    assert!(
        related[1].evidence.contains("one of 1001 related"),
        "{}",
        related[1].evidence
    );
}

#[test]
fn the_same_source_in_another_chunk_is_no_sibling() {
    let from = |chunk: &str| ShardOrigin {
        source: "book".to_owned(),
        chunk: chunk.to_owned(),
        ..ShardOrigin::default()
    };
    let origins = context([
        ("bad".to_owned(), from("B")),
        ("same".to_owned(), from("B")),
        ("next".to_owned(), from("C")),
        ("whole".to_owned(), from("")),
        ("blank".to_owned(), ShardOrigin::default()),
    ]);
    let found = relations(&origins.shards, "bad");
    assert_eq!(
        found,
        [(
            "same".to_owned(),
            "from the same chunk of the same source as"
        )]
    );
}

#[test]
fn noise_names_its_origin_and_is_traced() {
    use crate::rehearsal::{Kind, Rehearsal};
    let mut run = Rehearsal::new(
        1,
        &[("code", (7.0, 3.2, 90.0)), ("prose", (7.0, 4.2, 110.0))],
    )
    .shard("a", "code", 0.4, Kind::Healthy(0.0))
    .shard("b", "prose", 0.4, Kind::Healthy(0.0))
    .shard("n", "code", 0.2, Kind::Noise);
    run.context = context([
        ("a".to_owned(), made_at("m1", 200)),
        ("n".to_owned(), made_at("m1", 1_500)),
        ("unread".to_owned(), made_at("m1", 1_500)),
    ]);
    let said = run.run(200);
    let noise = said
        .iter()
        .find(|said| said.verdict == Verdict::Noise)
        .unwrap();
    assert!(
        noise.evidence.ends_with("; generator m1; temperature 1.5"),
        "{}",
        noise.evidence
    );
    let related: Vec<&str> = said
        .iter()
        .filter(|said| said.verdict == Verdict::Related)
        .map(|said| said.subject.as_str())
        .collect();
    assert_eq!(related, ["unread"]);
}
