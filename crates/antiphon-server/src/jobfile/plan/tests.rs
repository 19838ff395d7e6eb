//! Jobs that say what they train: what the planner makes of them, and what it refuses.

use std::collections::BTreeSet;
use std::path::Path;

use antiphon_planner::search;
use antiphon_types::{Bytes, GpuAmount, NodeSpec, PartitionSpec, Span, Timestamp, UsdMicros};

use crate::jobfile::{Context, Format, JobFileError, Made, absolute, read, to_spec};
use crate::lessons::{Lessons, Site};

mod gang;

/// Four nodes of eight H100 and one of eight L40S, at these prices a GPU-hour.
fn site() -> Site {
    let node = |name: &str, gpu_type: &str, partition: &str| NodeSpec {
        name: name.into(),
        gpus: 8,
        gpu_type: gpu_type.into(),
        gpu_memory: Bytes::new(80 << 30),
        cpus: 128,
        memory: Bytes::new(2 << 40),
        partition: partition.into(),
        ..NodeSpec::default()
    };
    let mut nodes: Vec<NodeSpec> = (1..=4)
        .map(|number| node(&format!("n{number}"), "h100", "train"))
        .collect();
    nodes.push(node("m1", "L40S", "small"));
    let partition = |name: &str, cents: u64| PartitionSpec {
        name: name.into(),
        price_per_gpu_hour: UsdMicros::from_micros(cents * 10_000),
        ..PartitionSpec::default()
    };
    let partitions = [partition("train", 250), partition("small", 80)];
    let (offers, unknown) = search::offers(&nodes, &partitions);
    Site {
        offers,
        unknown,
        lessons: Lessons::default(),
    }
}

fn made_on(site: fn() -> Site, text: &str) -> Result<Made, JobFileError> {
    let context = Context {
        user: "someone",
        now: Timestamp::from_millis(1_796_083_200_000),
        find: &|_| Vec::new(),
        site: &site,
    };
    let mut file = read(text, Format::Toml)?;
    absolute(&mut file, Path::new("/home/someone"));
    to_spec(&file, &context)
}

fn made(tables: &str) -> Made {
    made_on(site, &file(tables)).unwrap()
}

fn error(tables: &str) -> String {
    let error = made_on(site, &file(tables)).expect_err("this file is wrong");
    format!("[{}] {}; {}", error.code, error.what, error.help)
}

fn file(tables: &str) -> String {
    format!("name = \"j\"\n[run]\ncommand = [\"x\"]\n[checkpoint]\ndir = \"/ckpt\"\n{tables}")
}

const LORA: &str = "[train]\nmodel = \"Llama-3.1-8B\"\nmethod = \"lora\"\nframework = \"axolotl\"\nsequence_length = 4096\nglobal_batch = 32\ntokens = \"200M\"\n";

#[test]
fn what_is_trained_becomes_shapes_an_estimate_and_a_ladder() {
    let made = made(LORA);
    let role = &made.spec.roles[0];
    let plans = &made.spec.plans;
    assert_eq!(plans.len(), 1 + role.alternatives.len());
    for (shape, plan) in role.shapes().zip(plans) {
        assert!(plan.is_of(shape));
        assert!(plan.peak < plan.usable, "{plan:?}");
        assert_eq!(plan.tokens_per_step, 32 * 4_096);
        let of = |name: &str| plan.environment[name].parse::<u64>().unwrap();
        let replicas = u64::from(shape.gpus.whole().unwrap());
        assert_eq!(
            of("MICRO_BATCH") * of("GRADIENT_ACCUMULATION") * replicas,
            32
        );
        // The cluster's own name, by which the kernel finds the GPUs.
        assert!(["h100", "L40S"].contains(&shape.gpu_type.as_deref().unwrap()));
        assert_eq!(
            shape.span == Span::Node,
            shape.gpus <= GpuAmount::from_gpus(8)
        );
    }
    assert!(role.shapes().any(|shape| shape.speed == 1_000));
    let estimate = made.spec.estimate.unwrap();
    let fastest = plans.iter().filter_map(|plan| plan.duration).min().unwrap();
    assert_eq!(estimate.expected, fastest);
    assert!(estimate.low < estimate.expected && estimate.expected < estimate.high);
    assert!(!made.spec.ladder.is_empty());
    assert!(made.warnings.is_empty(), "{:?}", made.warnings);
    assert!(made.notes[0].starts_with("planned: "), "{:?}", made.notes);
}

#[test]
fn no_shape_costs_half_as_much_again_a_token() {
    let made = made(LORA);
    let price = |plan: &antiphon_types::ShapePlan| plan.cost.unwrap().micros();
    let first = price(&made.spec.plans[0]);
    assert!(
        made.spec
            .plans
            .iter()
            .all(|plan| price(plan) * 2 <= first * 3 + 2)
    );
}

#[test]
fn limits_are_kept_in_every_shape() {
    let within = made(&format!("{LORA}within = \"2h\"\n"));
    for plan in &within.spec.plans {
        assert!(
            plan.duration.unwrap().as_millis() <= 2 * 3_600_000,
            "{plan:?}"
        );
    }
    let few = made(&format!("{LORA}gpus = \"2..4\"\n"));
    for shape in few.spec.roles[0].shapes() {
        assert!((2..=4).contains(&shape.gpus.whole().unwrap()));
    }
}

#[test]
fn a_config_that_the_command_follows_decides_the_layout() {
    let stated = made(
        &format!("{LORA}micro_batch = 2\naccumulation = 4\nlayout = \"stated\"\n")
            .replace("global_batch = 32\n", ""),
    );
    assert!(stated.spec.ladder.is_empty());
    for plan in &stated.spec.plans {
        assert!(plan.environment.is_empty());
        let gpus = u64::from(plan.gpus.whole().unwrap());
        assert_eq!(plan.tokens_per_step, 2 * 4 * gpus * 4_096);
    }
}

#[test]
fn resources_decide_and_the_plan_is_held_against_them() {
    let fits = made(&format!(
        "{LORA}[resources]\ngpus = 2\ngpu_type = \"h100\"\n"
    ));
    assert_eq!(fits.spec.gpus(), GpuAmount::from_gpus(2));
    assert_eq!(fits.spec.plans.len(), 1);
    assert!(fits.spec.plans[0].environment.is_empty());
    assert_eq!(
        fits.spec.plans[0].duration,
        fits.spec.estimate.map(|it| it.expected)
    );
    assert!(fits.warnings.is_empty(), "{:?}", fits.warnings);
    let train = "[train]\nmodel = \"Llama-3.1-70B\"\nmethod = \"full\"\nsequence_length = 4096\n";
    let large = made(&format!(
        "{train}[resources]\ngpus = 2\ngpu_type = \"h100\"\n"
    ));
    assert!(
        large.warnings[0].starts_with("planned to run out of memory: it needs ")
            && large.warnings[0].contains(" of 2 h100"),
        "{:?}",
        large.warnings
    );
    // Two types would do: which one it will be is not known yet.
    let any = made(&format!("{LORA}[resources]\ngpus = 2\n"));
    assert!(any.spec.plans.is_empty() && any.spec.estimate.is_none());
}

#[test]
fn what_a_user_says_wins() {
    let estimate =
        "estimate = \"6h\"\n[[ladder]]\nname = \"less\"\nenvironment = { MICRO_BATCH = \"1\" }\n";
    let text = file(LORA).replace("[run]", &format!("{estimate}[run]"));
    let made = made_on(site, &text).unwrap();
    assert_eq!(
        made.spec.estimate.unwrap().expected.as_millis(),
        6 * 3_600_000
    );
    assert_eq!(made.spec.ladder.len(), 1);
}

#[test]
fn refusals_name_what_would_do() {
    expect_test::expect![[r#"
        [AP0720] `train.model`: no model is called `Lama`; the nearest are meta-llama/Llama-3.2-1B, meta-llama/Llama-3.2-3B, meta-llama/Llama-3.1-8B; give one of these, or its `config.json` with `--model path/to/config.json`
        [AP0202] `train.method`: `lorra` is not known; did you mean `lora`? give one of: full, lora, qlora, dora, prefix-tuning, prompt-tuning, p-tuning
        [AP0202] `train.tokens`: `many` is no number of tokens; give one like `200M`
        [AP0202] `train.gpus`: `8..2` is no number of GPUs; give one like `8`, or `"8..64"`
        [AP0202] `train.steps`: it is 0; give a whole number of at least 1, or leave it out
        [AP0202] `train.budget`: it buys nothing; give US dollars, like `500`
        [AP0202] `train.config`: the server reads no files of the person who submits; use `antiphon submit`, which reads it, or give `train.model` and what goes with it"#]]
    .assert_eq(
        &[
            "[train]\nmodel = \"Lama\"",
            "[train]\nmodel = \"Llama-3.1-8B\"\nmethod = \"lorra\"",
            "[train]\nmodel = \"Llama-3.1-8B\"\ntokens = \"many\"",
            "[train]\nmodel = \"Llama-3.1-8B\"\ngpus = \"8..2\"",
            "[train]\nmodel = \"Llama-3.1-8B\"\nsteps = 0",
            "[train]\nmodel = \"Llama-3.1-8B\"\nbudget = -1",
            "[train]\nconfig = \"/a.yml\"",
        ]
        .map(error)
        .join("\n"),
    );
}

#[test]
fn a_cluster_that_cannot_be_planned_for_says_so() {
    let unknown = || Site {
        unknown: BTreeSet::from(["virtual".to_owned()]),
        ..Site::default()
    };
    let error = made_on(unknown, &file(LORA)).expect_err("nothing is on offer");
    assert_eq!(error.code, "AP0209");
    assert!(
        error.what.contains("does not know `virtual`"),
        "{}",
        error.what
    );
    let huge = "[train]\nmodel = \"DeepSeek-V3\"\nmethod = \"full\"\ngpus = 8\n";
    let error = made_on(site, &file(huge)).expect_err("nothing fits");
    assert_eq!(error.code, "AP0209");
    assert!(
        error.what.contains("nothing fits") && error.what.contains("GiB"),
        "{}",
        error.what
    );
}
