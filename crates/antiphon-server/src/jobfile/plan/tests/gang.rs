//! PPO and GRPO as jobs: all models on the trainer's GPUs, or roles with GPUs of their own.

use antiphon_types::{Role, Shape};

use super::*;

const GRPO: &str = "[train]\nmodel = \"Qwen2.5-7B\"\nmethod = \"grpo\"\nframework = \"trl\"\nsequence_length = 4096\nglobal_batch = 128\nanswers = 8\nexamples = 1600\n";

const PPO: &str = "[train]\nmodel = \"Qwen2.5-7B\"\ntask = \"ppo\"\nframework = \"open-rlhf\"\nsequence_length = 2048\nglobal_batch = 128\nsteps = 100\n";

/// A job of roles: each with its name and what stands in its table beside the command.
fn gang_file(train: &str, roles: &[(&str, &str)]) -> String {
    let tables: String = roles
        .iter()
        .map(|(name, rest)| format!("[roles.{name}]\ncommand = [\"x\"]\n{rest}\n"))
        .collect();
    format!("name = \"j\"\n{train}{tables}[checkpoint]\ndir = \"/ckpt\"\n")
}

fn gang(train: &str, roles: &[(&str, &str)]) -> Made {
    made_on(site, &gang_file(train, roles)).unwrap()
}

fn refused(train: &str, roles: &[(&str, &str)]) -> String {
    let error = made_on(site, &gang_file(train, roles)).expect_err("it cannot be planned");
    format!("[{}] {}; {}", error.code, error.what, error.help)
}

fn sizes(roles: &[Role]) -> Vec<(&str, u32)> {
    let whole = |shape: &Shape| shape.gpus.whole().unwrap();
    roles
        .iter()
        .map(|role| (role.name.as_str(), whole(&role.shape)))
        .collect()
}

#[test]
fn without_roles_all_models_share_the_gpus_that_train() {
    for (train, names) in [
        (GRPO, "`trainer`, `rollout` share "),
        (
            PPO,
            "`trainer`, `critic`, `reference`, `reward`, `rollout` share ",
        ),
    ] {
        let made = made(train);
        assert_eq!(made.spec.roles.len(), 1);
        let told = made.notes.iter().find(|note| note.starts_with(names));
        let told = told.unwrap_or_else(|| panic!("{:?}", made.notes));
        assert!(
            told.ends_with("; a model gets its own as a role of the job"),
            "{told}"
        );
        assert!(made.warnings.is_empty(), "{:?}", made.warnings);
        assert!(made.spec.estimate.is_some());
        let plan = &made.spec.plans[0];
        assert!(plan.peak < plan.usable);
        assert!(!plan.environment.contains_key("ROLLOUT_GPUS"));
    }
}

#[test]
fn roles_without_resources_get_gpus_that_fit_their_models() {
    let made = gang(GRPO, &[("rollout", ""), ("trainer", "")]);
    let roles = &made.spec.roles;
    // The trainer is the first: its shape is the one that is planned, measured and laddered.
    assert_eq!(roles[0].name, "trainer");
    let all: u32 = sizes(roles).iter().map(|(_, gpus)| gpus).sum();
    assert!(
        all <= 8 && sizes(roles).iter().all(|(_, gpus)| *gpus > 0),
        "{roles:?}"
    );
    let gpu_types: BTreeSet<_> = roles.iter().map(|role| &role.shape.gpu_type).collect();
    assert_eq!(gpu_types.len(), 1, "a gang is planned on one GPU type");
    let plan = &made.spec.plans[0];
    assert!(plan.is_of(&roles[0].shape));
    assert_eq!(
        plan.environment["ROLLOUT_GPUS"],
        sizes(roles)[1].1.to_string()
    );
    assert!(plan.layout.contains("rollout on "), "{}", plan.layout);
    // 1,600 prompts, 16 a step.
    let duration_us = made.spec.estimate.unwrap().expected.as_millis() * 1_000;
    let steps = (duration_us + plan.step_us / 2) / plan.step_us;
    assert_eq!(steps, 100);
    assert!(!made.spec.ladder.is_empty());
    assert!(made.warnings.is_empty(), "{:?}", made.warnings);
    assert!(made.notes[0].starts_with("planned: "), "{:?}", made.notes);
}

#[test]
fn every_model_of_ppo_may_have_its_role() {
    let names = ["actor", "critic", "ref", "reward", "rollout"];
    let train = PPO.replace("steps", "gpus = \"1..32\"\nsteps");
    let made = gang(&train, &names.map(|name| (name, "")));
    let roles = &made.spec.roles;
    let found: Vec<_> = roles.iter().map(|role| role.name.as_str()).collect();
    assert_eq!(found, names);
    let size = |name: &str| {
        let sizes = sizes(roles);
        sizes.iter().find(|(of, _)| *of == name).unwrap().1
    };
    assert_eq!(size("critic"), size("actor"), "both train at once");
    assert!(size("ref") <= size("actor") && size("reward") <= size("actor"));
    assert!(sizes(roles).iter().map(|(_, gpus)| gpus).sum::<u32>() <= 32);
    assert!(
        !made.notes.iter().any(|note| note.contains("share")),
        "{:?}",
        made.notes
    );
}

#[test]
fn a_model_without_a_role_shares_the_trainers_gpus() {
    let made = gang(PPO, &[("trainer", ""), ("rollout", "")]);
    let told = "`trainer`, `critic`, `reference`, `reward` share the trainer's GPUs";
    assert!(
        made.notes.iter().any(|note| note == told),
        "{:?}",
        made.notes
    );
}

#[test]
fn a_role_with_resources_keeps_them_and_the_others_are_planned_around_it() {
    let four = "resources = { gpus = 4, gpu_type = \"h100\" }";
    let made = gang(GRPO, &[("trainer", four), ("rollout", "")]);
    let roles = &made.spec.roles;
    assert_eq!(roles[0].shape.gpus, GpuAmount::from_gpus(4));
    assert!((1..=4).contains(&sizes(roles)[1].1), "{roles:?}");
    // Its command follows its own config.
    assert!(made.spec.plans[0].environment.is_empty());
    assert!(made.spec.ladder.is_empty());

    let both = gang(
        GRPO,
        &[("trainer", four), ("rollout", "resources = { gpus = 2 }")],
    );
    assert_eq!(sizes(&both.spec.roles), [("trainer", 4), ("rollout", 2)]);
    assert!(both.spec.estimate.is_some());
    assert!(both.spec.plans[0].is_of(&both.spec.roles[0].shape));
    assert!(both.warnings.is_empty(), "{:?}", both.warnings);
}

#[test]
fn what_the_file_decides_is_warned_of_and_not_refused() {
    let large = GRPO.replace("Qwen2.5-7B", "Llama-3.1-70B");
    let one = "resources = { gpus = 1, gpu_type = \"h100\" }";
    let made = gang(&large, &[("trainer", one), ("rollout", one)]);
    assert_eq!(sizes(&made.spec.roles), [("trainer", 1), ("rollout", 1)]);
    assert!(made.spec.plans.is_empty() && made.spec.estimate.is_none());
    let [warning] = &made.warnings[..] else {
        panic!("{:?}", made.warnings);
    };
    assert!(
        warning.starts_with("not planned: ") && warning.contains("nothing fits"),
        "{warning}"
    );
}

#[test]
fn a_program_that_judges_is_no_model() {
    let program = gang(
        GRPO,
        &[
            ("trainer", ""),
            ("rollout", ""),
            ("reward", "resources = { gpus = 0, cpus = 4 }"),
        ],
    );
    let last = program.spec.roles.iter().find(|role| role.name == "reward");
    assert!(last.unwrap().shape.gpus.is_zero());
    assert!(program.warnings.is_empty(), "{:?}", program.warnings);
    let model = gang(GRPO, &[("trainer", ""), ("rollout", ""), ("reward", "")]);
    assert_eq!(
        model.warnings,
        [
            "role `reward` is planned as a model as large as the trained one; where it is a program, give it `resources = { gpus = 0 }`"
        ]
    );
    // Another role is its own affair, as ever.
    let logger = gang(GRPO, &[("trainer", ""), ("rollout", ""), ("logger", "")]);
    let last = logger.spec.roles.iter().find(|role| role.name == "logger");
    assert!(last.unwrap().shape.gpus.is_zero());
}

#[test]
fn what_cannot_be_planned_as_roles_says_why() {
    let sft = GRPO
        .replace("method = \"grpo\"\n", "")
        .replace("answers = 8\n", "");
    expect_test::expect![[r#"
        [AP0202] `roles.rollout.resources`: a task `sft` has no rollout, so that no plan says what the role needs; give the role `resources = { gpus = 1 }`, or say in `train.task` what is trained
        [AP0202] `roles.critic.resources`: a task `grpo` has no critic, so that no plan says what the role needs; give the role `resources = { gpus = 1 }`, or say in `train.task` what is trained
        [AP0209] no roles on this cluster will do: the roles need at least 33 GPUs, one that trains and what holds each of the other models: 8 are allowed and 32 of a type are there; allow more with `train.gpus`, `within` or `budget`, let models share the trainer's GPUs by taking out their roles, or give each role `resources`
        [AP0202] `train.method`: it names another task than `train.task`; give the task in `task`, and in `method` which weights move: `full`, `lora`
        [AP0202] `train.answers`: nothing is generated; give `task = "grpo"` or `task = "ppo"`, or take it out
        [AP0202] `roles.trainer.resources.gpu_type`: the cluster has several GPU types, and which one it will be is not known; name the GPU type, or leave out `resources`, and the planner chooses
        `[train]` is not planned: none of the roles `engine`, `main` is called `trainer`, so their `resources` alone decide what they get"#]].assert_eq(
        &[
            refused(&sft, &[("trainer", ""), ("rollout", "")]),
            refused(GRPO, &[("trainer", ""), ("critic", "")]),
            refused(
                &GRPO
                    .replace("Qwen2.5-7B", "Llama-3.1-405B")
                    .replace("examples", "gpus = 8\nexamples"),
                &[("trainer", ""), ("rollout", "")],
            ),
            refused(
                &GRPO.replace("examples", "task = \"ppo\"\nexamples"),
                &[("trainer", ""), ("rollout", "")],
            ),
            refused(
                &sft.replace("examples", "answers = 8\nexamples"),
                &[("trainer", "")],
            ),
            refused(
                GRPO,
                &[("trainer", "resources = { gpus = 8 }"), ("rollout", "")],
            ),
            gang(
                GRPO,
                &[("main", ""), ("engine", "resources = { gpus = 2 }")],
            )
            .warnings
            .join("; "),
        ]
        .join("\n"),
    );
}

/// What a config says of roles, as `antiphon submit` has read it.
fn with_config(framework: &str, rollout: &str) -> String {
    format!(
        "[train]\nconfig = \"/run.sh\"\nsteps = 100\n[train.spec]\nmodel = {{ named = \"Qwen2.5-7B\" }}\ntask = \"grpo\"\nframework = \"{framework}\"\nlayout = {{ gpus = 8 }}\nrollout = {{ {rollout} }}\nbatch = {{ sequence_length = 2048, micro = 1, global = 128 }}\n"
    )
}

#[test]
fn one_command_that_starts_all_roles_gets_the_gpus_of_all() {
    let train = with_config(
        "open-rlhf",
        "gpus = 4, tp = 2, reference = true, reference_gpus = 4",
    );
    let ray = made(&train);
    assert_eq!(ray.spec.roles[0].shape.gpus, GpuAmount::from_gpus(16));
    assert_eq!(ray.spec.roles[0].alternatives.len(), 0);
    // Eight that train, four that generate, four for the reference: four parts of four.
    assert_eq!(
        ray.spec.roles[0].shape.tasks,
        antiphon_types::Tasks::Exactly(4)
    );
    assert!(ray.spec.plans[0].is_of(&ray.spec.roles[0].shape));
    assert!(
        ray.spec.plans[0].layout.starts_with("trainer on 8: "),
        "{}",
        ray.spec.plans[0].layout
    );
    assert!(ray.warnings.is_empty(), "{:?}", ray.warnings);

    let less = made(&format!(
        "{train}[resources]\ngpus = 12\ngpu_type = \"h100\"\n"
    ));
    assert_eq!(
        less.warnings[0],
        "the config is for 16 GPUs, 8 of them for roles beside the trainer, and `resources` asks for 12"
    );
}

#[test]
fn a_server_that_nobody_starts_is_said() {
    let served = made(&with_config("trl", "gpus = 2"));
    assert_eq!(served.spec.roles[0].shape.gpus, GpuAmount::from_gpus(8));
    let [warning] = &served.warnings[..] else {
        panic!("{:?}", served.warnings);
    };
    assert!(
        warning.starts_with(
            "the config gives `rollout` 2 GPUs of its own, and the job has no role for it"
        ),
        "{warning}"
    );
    // With roles, the config's own numbers give way to the roles'.
    let train = with_config("trl", "gpus = 2, reference = true, reference_gpus = 4");
    let roles = gang(&train, &[("trainer", ""), ("rollout", "")]);
    assert_eq!(roles.spec.roles.len(), 2);
    assert_eq!(
        roles.warnings,
        [
            "the config gives reference 4 GPUs of its own and the job has no role `reference`: planned on the trainer's"
        ]
    );
}
