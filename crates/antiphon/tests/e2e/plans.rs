//! Jobs that say what they train: planned when they are submitted, held against what their trainer measures, and learned from.

use serde_json::{Value, json};

use crate::server::{Server, wait};
use crate::two_way::{SCRIPT, Trainer};

const CLUSTER: &str = r#"
[[partition]]
name = "train"
price_per_gpu_hour = "2.50"
nodes = [{ names = "n[1-4]", gpus = 8, gpu_type = "h100", cpus = 128, memory = "2TiB" }]
"#;

const CONFIG: &str = "base_model: meta-llama/Llama-3.1-8B\nadapter: lora\nlora_r: 32\nlora_target_linear: true\n\
    sequence_len: 4096\nsample_packing: true\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\noptimizer: adamw_torch_fused\n\
    gradient_checkpointing: true\nbf16: true\nmax_steps: 1000\n";

fn server() -> Server {
    let mut server = Server::start();
    server.interrupt();
    server.write("cluster.toml", CLUSTER);
    server.write("axolotl.yml", CONFIG);
    std::fs::create_dir_all(server.dir().join("config/antiphon")).unwrap();
    let cluster = server.dir().join("cluster.toml");
    let settings = format!("cluster = {:?}\n", cluster.display().to_string());
    server.write("config/antiphon/antiphon.toml", &settings);
    server.up();
    server
}

/// Submits a job with the config, and reports so many steps that take this factor of the plan's time and memory.
fn trained(server: &Server, name: &str, job: &str, factors: (f64, f64)) -> Value {
    server.submit(name, "[train]\nconfig = \"axolotl.yml\"\ngpus = 2", SCRIPT);
    server.wait_for(job, "running");
    let plan = server.job(job)["plans"][0].clone();
    let mut trainer = Trainer::of(server, job);
    trainer.send(&json!({"attach": {"step": 0}}));
    let step_ms = plan["step_us"].as_f64().unwrap() / 1e3 * factors.0;
    let peak = (plan["allocated_bytes"].as_f64().unwrap() * factors.1).round();
    let signals: Vec<Value> = (1..=40)
        .map(|step| json!({"task": 0, "step": step, "step_ms": step_ms, "memory_peak_bytes": peak}))
        .collect();
    trainer.send(&json!({ "signals": signals }));
    let measured = || !server.job(job)["measured"].is_null();
    wait("the measurement", measured, String::new);
    plan
}

/// The only lesson.
fn lesson(server: &Server) -> Value {
    let lessons = server.json(&["plan", "--learned"]);
    assert_eq!(lessons["lessons"].as_array().unwrap().len(), 1);
    lessons["lessons"][0].clone()
}

#[test]
fn a_config_becomes_a_job_and_what_is_measured_corrects_the_next_plan() {
    let mut server = server();
    let first = trained(&server, "a", "job-1", (1.2, 1.1));
    assert_eq!(
        (&first["gpus_thousandths"], &first["gpu_type"]),
        (&json!(2_000), &json!("h100"))
    );
    assert_eq!(first["framework"], "axolotl");
    // 2 sequences, 4 times, on 2 GPUs, of 4,096 tokens.
    assert_eq!(first["tokens_per_step"], 2 * 4 * 2 * 4_096);
    assert_eq!(
        first["duration_ms"].as_u64().unwrap(),
        first["step_us"].as_u64().unwrap()
    );
    let sheet = server.ok(&["job", "a"]);
    assert!(
        sheet.contains("+20 % of the plan's") && sheet.contains("+10 % of"),
        "{sheet}"
    );

    let learned = lesson(&server);
    assert_eq!(
        (&learned["gpu_type"], &learned["framework"]),
        (&json!("H100-SXM-80GB"), &json!("axolotl"))
    );
    let factors = &learned["factors"];
    assert_eq!(
        (&factors["attempts"], &factors["compute_permille"]),
        (&json!(1), &json!(1_200))
    );
    assert_eq!(factors["memory_permille"], 1_100);
    assert!(learned["step_error_before"].as_f64().unwrap() > 0.16);
    assert!(learned["step_error_after"].as_f64().unwrap() < 0.001);

    // The next one is planned with that, and measured to be so: nothing is learned twice, nor forgotten in a restart.
    let second = trained(&server, "b", "job-2", (1.0, 1.0));
    let longer = second["step_us"].as_f64().unwrap() / first["step_us"].as_f64().unwrap();
    assert!((longer - 1.2).abs() < 1e-3, "{longer}");
    assert_eq!(second["learned"]["attempts"], 1);
    server.interrupt();
    server.up();
    let factors = lesson(&server)["factors"].clone();
    assert_eq!(
        (&factors["attempts"], &factors["compute_permille"]),
        (&json!(2), &json!(1_200))
    );

    let plan = [
        "plan",
        "axolotl.yml",
        "--gpu",
        "h100",
        "--gpus",
        "2",
        "--json",
    ];
    let alone: Value = serde_json::from_str(&server.ok(&plan)).unwrap();
    let with: Value =
        serde_json::from_str(&server.ok(&[&plan[..], &["--learned"]].concat())).unwrap();
    let longer = with["step_ms"].as_f64().unwrap() / alone["step_ms"].as_f64().unwrap();
    assert!((longer - 1.2).abs() < 1e-3, "{longer}");
}

#[test]
fn a_planned_job_finds_its_layout_and_a_check_says_what_was_planned() {
    let server = server();
    let head = "[train]\nmodel = \"Llama-3.1-8B\"\nmethod = \"lora\"\nglobal_batch = 16\nsequence_length = 2048\ntokens = \"20M\"\n";
    let script = "echo micro $MICRO_BATCH times $GRADIENT_ACCUMULATION sharing $SHARDING";
    let job = server.submit("a", head, script);
    server.wait_for(&job, "succeeded");
    let plan = server.job(&job)["plans"][0].clone();
    let of = |name: &str| plan["environment"][name].as_str().unwrap().to_owned();
    let (micro, times, sharing) = (
        of("MICRO_BATCH"),
        of("GRADIENT_ACCUMULATION"),
        of("SHARDING"),
    );
    assert_eq!(
        server.ok(&["logs", "a"]),
        format!("micro {micro} times {times} sharing {sharing}\n")
    );
    let checked = server.ok(&["check", &server.dir().join("a.toml").display().to_string()]);
    assert!(
        checked.contains("planned: ") && checked.contains("assumed: "),
        "{checked}"
    );
    let refused = server.write(
        "wrong.toml",
        "name = \"w\"\n[train]\nmodel = \"DeepSeek-V3\"\ngpus = 8\n[run]\ncommand = [\"x\"]\n",
    );
    let refused = server.refused(&["submit", &refused]);
    assert!(
        refused.contains("AP0209") && refused.contains("nothing fits"),
        "{refused}"
    );
}

#[test]
fn grpo_with_a_role_that_generates_starts_as_one_gang() {
    let server = server();
    let train = "name = \"grpo\"\n[train]\nmodel = \"Qwen2.5-7B\"\nmethod = \"grpo\"\nframework = \"trl\"\nglobal_batch = 128\nanswers = 8\n\
        sequence_length = 4096\nexamples = 1600\n[checkpoint]\ndir = \"ckpt\"\n";
    let role = |name: &str| {
        let script = "echo $ANTIPHON_ROLE with $ROLLOUT_GPUS for answers; sleep 600";
        format!("[roles.{name}]\ncommand = [\"sh\", \"-c\", \"{script}\"]\n")
    };
    let file = server.write(
        "grpo.toml",
        &format!("{train}{}{}", role("trainer"), role("rollout")),
    );
    let checked = server.ok(&["check", &file]);
    assert!(
        checked.contains("planned: ") && checked.contains("rollout on "),
        "{checked}"
    );
    server.ok(&["submit", &file]);
    server.wait_for("job-1", "running");
    let job = server.job("job-1");
    let roles = job["roles"].as_array().unwrap();
    let names: Vec<_> = roles
        .iter()
        .map(|role| role["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["trainer", "rollout"], "{job}");
    let plan = &job["plans"][0];
    let engines = plan["environment"]["ROLLOUT_GPUS"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(plan["duration_ms"].as_u64().unwrap() > 0);
    for name in names {
        let line = format!("{name} with {engines} for answers");
        wait(
            &line,
            || {
                let task = format!("{name}.0");
                server
                    .ok(&["logs", "grpo", "--task", &task])
                    .contains(&line)
            },
            String::new,
        );
    }
}
