//! `antiphon simulate --sweep`: the same rows however often it was stopped, and on any number of threads.

use std::fs;

use crate::bench::{Bench, until};

const GRID: [&str; 10] = [
    "--policy",
    "antiphon,las,srsf",
    "--knowledge",
    "none,durations",
    "--load",
    "0.5,1",
    "--seed",
    "1,2",
    "--noise",
    "--sweep",
];

/// Rows of the grid: `srsf` is left out where nothing is known.
const ROWS: usize = (3 + 2) * 2 * 2;

fn sweep<'a>(file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&GRID[..], &[file], more].concat()
}

#[test]
fn a_sweep_killed_and_run_again_gives_the_file_of_one_run_through() {
    let bench = Bench::with_jobs(150);
    let told = bench.simulate(&sweep("whole.csv", &["--threads", "1"]));
    assert!(told.status.success(), "{told:?}");
    let whole = bench.read("whole.csv");
    assert_eq!(whole.lines().count(), 1 + ROWS);

    let lines = || fs::read_to_string(bench.path("cut.csv")).map_or(0, |text| text.lines().count());
    let going = bench.start(&sweep("cut.csv", &["--threads", "2"]));
    until("two rows are there", || lines() > 2);
    going.kill();
    going.end();
    // As a write that was cut in its middle leaves it.
    let mut text = bench.read("cut.csv");
    let rows = text.lines().count() - 1;
    assert!(rows < ROWS, "killed too late to show anything");
    text.truncate(text.len() - 30);
    fs::write(bench.path("cut.csv"), &text).unwrap();

    let output = bench.simulate(&sweep("cut.csv", &["--threads", "2"]));
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("is torn"), "{told}");
    assert!(
        told.contains(&format!("{} of them in `cut.csv`", rows - 1)),
        "{told}"
    );
    assert_eq!(bench.read("cut.csv"), whole);

    // Nothing is left to do.
    let output = bench.simulate(&sweep("cut.csv", &[]));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("0 of them new"), "{told}");
    assert_eq!(bench.read("cut.csv"), whole);
}

#[test]
fn ctrl_c_leaves_whole_rows_and_says_how_many() {
    let bench = Bench::with_jobs(1_000);
    let going = bench.start(&sweep("sweep.csv", &[]));
    until("a row is there", || {
        fs::read_to_string(bench.path("sweep.csv")).is_ok_and(|text| text.lines().count() > 1)
    });
    going.interrupt();
    let output = going.end();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let text = bench.read("sweep.csv");
    let rows = text.lines().count() - 1;
    assert!(text.ends_with('\n') && rows < ROWS);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains(&format!("stopped: {rows} of {ROWS}")),
        "{told}"
    );
}

#[test]
fn another_setting_or_trace_is_another_run() {
    let bench = Bench::with_jobs(30);
    let rows = |arguments: &[&str]| {
        bench.ok(&[arguments, &["--policy", "fifo", "--sweep", "sweep.csv"]].concat());
        bench.read("sweep.csv").lines().count() - 1
    };
    assert_eq!(rows(&[]), 1);
    assert_eq!(rows(&[]), 1);
    assert_eq!(rows(&["--start-cost", "1m"]), 2);
    assert_eq!(rows(&["--noise"]), 3);
    assert_eq!(rows(&["--load", "1,2"]), 4);
    let trace = bench.read("made-up.csv").replace(",300000,", ",300001,");
    fs::write(bench.path("made-up.csv"), trace).unwrap();
    assert_eq!(rows(&[]), 5);
}

#[test]
fn a_row_is_what_a_run_of_its_own_gives() {
    let bench = Bench::with_jobs(30);
    let run = ["--policy", "las", "--load", "2", "--size", "0.5"];
    bench.ok(&[&run[..], &["--sweep", "sweep.csv"]].concat());
    let json: serde_json::Value =
        serde_json::from_str(&bench.ok(&[&run[..], &["--json"]].concat())).unwrap();
    let table = bench.read("sweep.csv");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    let cell = |name: &str| {
        let column = rows[0].iter().position(|column| *column == name);
        rows[1][column.unwrap()]
    };
    assert_eq!(cell("digest"), json["runs"][0]["digest"].as_str().unwrap());
    assert_eq!(cell("avg_jct_s"), json["runs"][0]["avg_jct_s"].to_string());
    assert_eq!(cell("gpus"), "32");
}

#[test]
fn a_file_of_something_else_stays_as_it_is() {
    let bench = Bench::with_jobs(5);
    for text in ["job,team\nx,y", "no end of a line", "\u{0}"] {
        fs::write(bench.path("other.csv"), text).unwrap();
        bench.fails(&["--sweep", "other.csv"], "AP0614");
        assert_eq!(bench.read("other.csv"), text);
    }
    bench.fails(&["--sweep", "/dev/full"], "AP0614");
    bench.fails(&["--sweep", "no-such-folder/sweep.csv"], "AP0612");
}

#[test]
fn two_sweeps_do_not_share_a_file() {
    let bench = Bench::with_jobs(1_000);
    let going = bench.start(&sweep("sweep.csv", &[]));
    until("the first has begun", || {
        fs::read_to_string(bench.path("sweep.csv")).is_ok_and(|text| !text.is_empty())
    });
    bench.fails(&sweep("sweep.csv", &[]), "AP0613");
    drop(going);
}
