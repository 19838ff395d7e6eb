//! `antiphon simulate`: pages, job lines, outputs that cannot be written, and Ctrl-C.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::bench::Bench;

fn runs(json: &str) -> Vec<Value> {
    let report: Value = serde_json::from_str(json).unwrap();
    report["runs"].as_array().unwrap().clone()
}

#[test]
fn a_page_shows_the_figures_that_json_has() {
    let bench = Bench::with_jobs(200);
    let json = bench.ok(&[
        "--policy",
        "antiphon,fifo",
        "--html",
        "page.html",
        "--svg",
        "charts",
        "--json",
    ]);
    let page = bench.read("page.html");
    for run in runs(&json) {
        // Figures are downloaded with all their digits.
        assert!(page.contains(&run["avg_jct_s"].to_string()), "{run}");
        assert!(page.contains(run["digest"].as_str().unwrap()), "{run}");
    }
    for chart in ["jct", "fairness", "waiting", "held", "bound", "lost"] {
        let svg = bench.read(&format!("charts/{chart}.svg"));
        assert!(svg.starts_with("<svg"), "{svg}");
    }
}

#[test]
fn each_of_several_policies_has_a_file_of_jobs() {
    let bench = Bench::with_jobs(50);
    fs::create_dir(bench.path("policies")).unwrap();
    fs::write(
        bench.path("policies/few.toml"),
        "[policy]\nreservations_per_class_max = 1\n",
    )
    .unwrap();
    bench.ok(&[
        "--policy",
        "fifo,policies/few.toml,fifo",
        "--csv",
        "jobs.csv",
    ]);
    for name in ["jobs-fifo.csv", "jobs-policies-few.toml.csv"] {
        assert_eq!(bench.read(name).lines().count(), 51, "{name}");
    }
    bench.ok(&["--policy", "fifo", "--csv", "jobs.csv"]);
    assert_eq!(bench.read("jobs.csv"), bench.read("jobs-fifo.csv"));
}

#[test]
fn an_output_that_cannot_be_written_is_told_and_leaves_the_old_one() {
    let bench = Bench::with_jobs(20);
    for option in ["--csv", "--html"] {
        bench.fails(&[option, "no-such-folder/out"], "AP0612");
        bench.fails(&[option, "/dev/full"], "AP0612");
        let out = bench.path("out");
        fs::create_dir_all(out.join("folder")).unwrap();
        bench.fails(&[option, "out/folder"], "AP0612");
    }
    let left = fs::read_dir(bench.path("out")).unwrap().count();
    assert_eq!(left, 1, "nothing is left of what was tried");
    assert_eq!(
        bench.simulate(&["--csv", "/dev/stdout"]).status.code(),
        Some(0)
    );
}

#[test]
fn a_wrong_policy_is_told_before_the_first_run() {
    let bench = Bench::with_jobs(20);
    bench.fails(&["--policy", "fifo,fife", "--csv", "jobs.csv"], "AP0607");
    bench.fails(
        &[
            "--policy",
            "fifo,srsf",
            "--knowledge",
            "none",
            "--csv",
            "jobs.csv",
        ],
        "AP0608",
    );
    bench.fails(&["--load", "1,2"], "AP0615");
    bench.fails(&["--cluster", "fgd", "--load", "2"], "AP0615");
    let names = fs::read_dir(bench.path("")).unwrap();
    assert_eq!(names.count(), 1, "the trace alone");
}

#[test]
fn ctrl_c_prints_what_is_done_so_far() {
    let bench = Bench::with_jobs(40_000);
    let going = bench.start(&["--policy", "las,fifo", "--json", "--html", "page.html"]);
    going.interrupt();
    let output = going.end();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let runs = runs(&String::from_utf8(output.stdout).unwrap());
    let count = |name: &str| runs[0][name].as_u64().unwrap();
    assert_eq!(runs.len(), 1);
    assert!(count("completed") < 40_000);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("stopped in `las`"), "{told}");
    assert!(bench.read("page.html").contains("stopped in `las`"));
}

#[test]
fn hundreds_of_policies_stand_in_one_table() {
    let bench = Bench::with_jobs(10);
    let mut names = Vec::new();
    for reservations in 1..=300 {
        let name = format!("p{reservations}.toml");
        let text = format!("[policy]\nreservations_per_class_max = {reservations}\n");
        fs::write(bench.path(&name), text).unwrap();
        names.push(name);
    }
    let json = bench.ok(&[
        "--policy",
        &names.join(","),
        "--html",
        "page.html",
        "--json",
    ]);
    assert_eq!(runs(&json).len(), 300);
    let page = bench.read("page.html");
    assert!(page.contains("p300.toml") && page.contains("The first 8 policies are drawn"));
}

#[test]
fn jobs_that_come_twice_as_fast_end_sooner_on_twice_the_nodes() {
    let bench = Bench::with_jobs(100);
    let json = |arguments: &[&str]| runs(&bench.ok(&[arguments, &["--json"]].concat()))[0].clone();
    let usual = json(&[]);
    assert_eq!(
        json(&["--load", "1", "--size", "1"])["digest"],
        usual["digest"]
    );
    let other = json(&["--load", "2", "--size", "2"]);
    let makespan = |run: &Value| run["makespan_s"].as_f64().unwrap();
    assert!(makespan(&other) < makespan(&usual));
}

#[test]
fn forecasts_are_judged_and_change_nothing() {
    let bench = Bench::with_jobs(300);
    let policies = ["--policy", "antiphon,fifo", "--json"];
    let plain = runs(&bench.ok(&policies));
    let judged = runs(&bench.ok(&[&policies[..], &["--forecasts", "30"]].concat()));
    let [ours, theirs] = &judged[..] else {
        panic!("{judged:?}");
    };
    assert!(ours["forecasts"].as_u64().unwrap() > 40, "{ours}");
    let share = |name: &str| ours[name].as_f64().unwrap();
    let coverage = share("forecast_coverage");
    assert!((0.5..=1.0).contains(&coverage), "{ours}");
    assert!(
        coverage > share("forecast_played_coverage"),
        "what was learned is worth nothing: {ours}"
    );
    assert!(share("forecast_width_s") > 0.0, "{ours}");
    assert!(theirs["forecasts"].is_null(), "{theirs}");
    for (plain, judged) in plain.iter().zip(&judged) {
        assert_eq!(plain["digest"], judged["digest"]);
    }
}

/// With nothing but limits, jobs are ordered by these: neither as if nothing nor as if all were known.
#[test]
fn limits_tell_less_than_run_times_and_more_than_nothing() {
    let bench = Bench::with_jobs(300);
    let jct = |knowledge: &str| {
        let run = &runs(&bench.ok(&["--knowledge", knowledge, "--json"]))[0];
        assert_eq!(run["completed"], 300, "{run}");
        run["avg_jct_s"].as_f64().unwrap()
    };
    let (none, limits, durations) = (jct("none"), jct("limits"), jct("durations"));
    assert!(
        durations < limits && limits < none,
        "{none} {limits} {durations}"
    );
}

/// Calls the binary over what a simulation shows.
fn of_shown(state_dir: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    command
        .env_remove("ANTIPHON_URL")
        .env_remove("ANTIPHON_TOKEN");
    command.args(["--state-dir", state_dir]).args(arguments);
    let output = command.output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(told).unwrap())
}

#[test]
fn a_simulation_is_served_at_the_time_that_was_asked_for_and_cannot_be_changed() {
    let bench = Bench::with_jobs(200);
    let mut going = bench.start(&["--serve", "--until", "2h"]);
    let said = going
        .says("2h00m after its beginning is reached")
        .join("\n");
    let dir = said.split("`antiphon --state-dir ").nth(1).unwrap();
    let dir = dir.split(' ').next().unwrap();
    let (_, jobs) = of_shown(dir, &["jobs", "--json"]);
    let jobs: Value = serde_json::from_str(&jobs).unwrap();
    let first = jobs["jobs"][0].clone();
    assert_eq!(first["state"], "running", "{first}");
    // Virtual time began years ago, and two hours have passed in it.
    let since_ms = first["since_ms"].as_u64().unwrap();
    assert!((1_704_067_200_000..=1_704_074_400_000).contains(&since_ms));
    let (_, why) = of_shown(dir, &["why", first["id"].as_str().unwrap()]);
    assert!(why.contains("runs"), "{why}");
    let (done, told) = of_shown(dir, &["cancel", "job-1"]);
    assert!(!done && told.contains("error[AP0874]"), "{told}");

    going.interrupt();
    let output = going.end();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!Path::new(dir).exists(), "its log goes with it");
}

#[test]
fn what_is_served_to_its_end_prints_its_figures_and_stays() {
    let bench = Bench::with_jobs(50);
    let same = runs(&bench.ok(&["--json"]))[0]["avg_jct_s"].clone();
    let mut going = bench.start(&["--serve", "--speed", "max", "--json"]);
    going.says("nothing more happens");
    going.interrupt();
    let output = going.end();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = runs(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(
        shown[0]["avg_jct_s"], same,
        "to be looked at changes nothing"
    );
}

#[test]
fn what_cannot_be_served_is_told_before_anything_runs() {
    let bench = Bench::with_jobs(20);
    bench.fails(&["--serve", "--policy", "antiphon,fifo"], "AP0615");
    let output = bench.simulate(&["--serve", "--listen", "0.0.0.0:7441"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("of this machine alone"), "{told}");
}
