//! Each screen as it stands on a terminal of 80 by 24.

use antiphon_server::api::model::{JobDetail, JobSummary, NumbersView, ServerStatus};
use expect_test::{Expect, expect};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use serde_json::{Value, json};

use super::super::app::Go;
use super::super::fetch::Snapshot;
use super::*;

const NOW: u64 = 1_764_430_000_000;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn job(id: u64, name: &str, class: &str, state: &str, reason: &str) -> Value {
    json!({
        "id": format!("job-{id}"), "name": name, "team": "rlhf", "user": "ada", "class": class, "state": state,
        "since_ms": NOW - 90_000 * id, "submitted_ms": NOW - 100_000 * id, "gpus_thousandths": 8_000 * id,
        "allocation": (state == "running").then_some("n0[0-7]"), "attempts": 1, "step": 120, "steps_total": 300,
        "loss": 1.925, "ends_in_ms": (state == "running").then_some(1_450_000), "array": null, "priority": 0,
        "deadline": null, "expected": {"expected_ms": 0, "high_ms": null, "source": "nothing"}, "runs_as": null,
        "slot": null, "start": null, "reason": reason,
    })
}

fn number(name: &str, value: Option<f64>, unit: &str, redline: Option<f64>, over: bool) -> Value {
    let history: Vec<(u64, f64)> = (0..24)
        .map(|hour| (NOW - (24 - hour) * 3_600_000 + 1, (hour % 7) as f64))
        .collect();
    json!({
        "name": name, "title": name, "value": value, "unit": unit, "redline": redline, "over": over, "samples": 57,
        "raw": null, "history": if value.is_some() { history } else { Vec::new() },
    })
}

fn snapshot() -> Snapshot {
    let status: ServerStatus = read(json!({
        "version": "0.1.0", "pid": 7, "backend": "local", "gpus_virtual": false, "mode": "deciding", "mode_reason": null,
        "seq": 4711, "now_ms": NOW, "jobs": {"pending": 2, "running": 1, "succeeded": 40}, "state_dir": "/s",
    }));
    let numbers: NumbersView = read(json!({
        "numbers": [
            number("effective throughput", Some(1234.5), "tokens/s per $/h", None, false),
            number("job completion rate", Some(0.973), "share", Some(0.85), false),
            number("time to checkpoint", Some(245_000.0), "ms", Some(180_000.0), true),
            number("scheduling delay of production", Some(800.0), "ms", Some(30_000.0), false),
            number("scheduling delay of best-effort", None, "ms", Some(300_000.0), false),
        ],
        "gate": {"open": false, "enabled": true, "since_ms": NOW - 60_000, "until_ms": NOW + 6_720_000,
                 "why": "the gate is shut", "kept_back": 3},
    }));
    let jobs: Vec<JobSummary> = vec![
        read(job(1, "sft-8b", "production", "running", "")),
        read(job(
            2,
            "sweep-\u{1b}[2J7",
            "best-effort",
            "pending",
            "waiting for 16 GPUs: 8 free, best node n3 has 8 of 8",
        )),
        read(job(
            3,
            "eval",
            "standard",
            "pending",
            "behind job-2 (standard), which waits for what this one would take",
        )),
    ];
    Snapshot {
        status,
        numbers,
        jobs,
        more: false,
        gpus: Gpus {
            busy: 8_000,
            held: 8_000,
            idle: 12_000,
            out: 4_000,
        },
        job: None,
    }
}

fn detail() -> JobDetail {
    read(json!({
        "summary": job(1, "sft-8b", "production", "running", ""),
        "roles": [], "workdir": "/", "checkpoint_dir": null, "train": {}, "after": [], "grace_ms": 60_000,
        "checkpoint": {"step": 100, "path": "step-100", "bytes": 1, "save_ms": 4_000, "at_ms": NOW - 61_000,
                       "attempt": "job-1.2"},
        "attached": true, "tasks": [],
        "attempts": [{"id": "job-1.1", "allocation": "n1[0-7]", "launched_ms": 0, "started_ms": 1, "ended_ms": 2,
                      "stopped": "for job-9 (priority)", "exit": "exit code 0", "outcome": "requeued",
                      "checkpoint_step": 80, "lost_gpu_ms": 5}],
        "lost_gpu_ms": 5,
        "directives": [{"id": 1, "do": "set_weights neuro_002=0", "reason": "noise", "at_ms": 1, "answer": null}],
        "findings": [{"rule": "shard", "subject": "neuro_002", "verdict": "noise", "evidence": "gap +2.4 nat over 2 ticks",
                      "step": 90, "at_ms": 1, "remedies": [], "stage": "directed #1"}],
        "shards": [], "signals": {"attempt": "job-1.2", "grad_norm": 0.8, "step_ms": 812.0, "tokens_per_s": 645_675.0,
                                  "at_ms": NOW, "dropped": 0},
    }))
}

fn screen(app: &mut App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = (0..height).map(|y| {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

fn press(app: &mut App, keys: &[KeyCode]) -> Go {
    let gos = keys.iter().map(|code| app.key(KeyEvent::from(*code)));
    gos.last().unwrap()
}

#[track_caller]
fn check(app: &mut App, expected: Expect) {
    expected.assert_eq(&screen(app, 80, 24));
}

#[test]
fn now() {
    check(
        &mut App::new(snapshot()),
        expect![[r#"
            [1 Now]  2 Queue   3 Job    antiphon 0.1.0 on local
            event 4711 of the log
            THE LAST HOUR                           READS    REDLINE          A DAY
            effective throughput                   1234.5                     ▂▅▇█▂▅▆█▂▅▆█▂▃
            job completion rate                    97.3 %     85.0 %  ok      ▂▅▇█▂▅▆█▂▅▆█▂▃
            time to checkpoint                      4m05s      3m00s  OVER    ▂▅▇█▂▅▆█▂▅▆█▂▃
            scheduling delay of production         800 ms        30s  ok      ▂▅▇█▂▅▆█▂▅▆█▂▃
            scheduling delay of best-effort             -      5m00s  no data
            the gate is SHUT: 3 best-effort jobs wait for it, at most 1h52m more

            GPUS  ###############===============......................xxxxxxx 32
                  # 8 busy   = 8 held back   . 12 idle   x 4 out of service

            JOBS  2 pending, 0 starting, 1 running, 0 stopping, 0 held
                  40 succeeded, 0 failed, 0 canceled
                  production        1 running      0 waiting
                  standard          0 running      1 waiting
                  best-effort       0 running      1 waiting





            tab 1 2 3: screen  arrows: move  enter: job  /: filter  esc: back  q: quit
        "#]],
    );
}

#[test]
fn queue() {
    let mut app = App::new(snapshot());
    press(&mut app, &[KeyCode::Tab, KeyCode::Down]);
    check(
        &mut app,
        expect![[r#"
             1 Now  [2 Queue]  3 Job    antiphon 0.1.0 on local
            event 4711 of the log
              JOB       NAME               CLASS       STATE     GPUS  SINCE
              job-1     sft-8b             production  running   8     1m30s    ends in abou
            > job-2     sweep- [2J7        best-effort pending   16    3m00s    waiting for
              job-3     eval               standard    pending   24    4m30s    behind job-2














            waiting for 16 GPUs: 8 free, best node n3 has 8 of 8


            tab 1 2 3: screen  arrows: move  enter: job  /: filter  esc: back  q: quit
        "#]],
    );
}

#[test]
fn a_job() {
    let mut app = App::new(snapshot());
    let go = press(&mut app, &[KeyCode::Char('2'), KeyCode::Enter]);
    assert_eq!(go, Go::Fetch(Some("job-1".into())));
    assert!(screen(&mut app, 80, 24).contains("job-1 is fetched"));
    app.shown.job = Some(detail());
    check(
        &mut app,
        expect![[r#"
         1 Now   2 Queue  [3 Job]   antiphon 0.1.0 on local
        event 4711 of the log
        job         job-1 `sft-8b`
        for         production, team rlhf, user ada
        state       running for 1m30s
        on          n0[0-7]
        GPUs        8
        steps       120/300
        loss        1.9250 nat
        speed       645675 tokens/s
        ends in     about 24m10s
        checkpoint  step 100, 1m01s ago
        attempt     job-1.1 on n1[0-7], stopped for job-9 (priority): requeued
        finding     shard neuro_002: gap +2.4 nat over 2 ticks
        directive   #1 set_weights neuro_002=0: no answer yet








        tab 1 2 3: screen  arrows: move  enter: job  /: filter  esc: back  q: quit
    "#]],
    );
}

#[test]
fn a_filter_narrows_the_queue_and_keeps_the_choice_in_it() {
    let mut app = App::new(snapshot());
    let keys = "/EVAL".chars().map(KeyCode::Char);
    let keys: Vec<KeyCode> = std::iter::once(KeyCode::End).chain(keys).collect();
    press(&mut app, &keys);
    let text = screen(&mut app, 80, 24);
    assert!(
        text.contains("> job-3") && !text.contains("job-1 "),
        "{text}"
    );
    assert!(text.contains("/EVAL_"), "{text}");
    press(&mut app, &[KeyCode::Char('x')]);
    assert!(screen(&mut app, 80, 24).contains("no job matches"));
    assert_eq!(press(&mut app, &[KeyCode::Enter, KeyCode::Enter]), Go::On);
    press(&mut app, &[KeyCode::Esc]);
    assert_eq!(app.queue().len(), 3);
    assert_eq!(press(&mut app, &[KeyCode::Char('q')]), Go::Out);
}

#[test]
fn no_size_is_too_small_or_too_large() {
    let mut app = App::new(snapshot());
    app.shown.job = Some(detail());
    for (width, height) in [(1, 1), (10, 3), (80, 4), (300, 100)] {
        for key in ['1', '2', '3'] {
            press(&mut app, &[KeyCode::Char(key), KeyCode::PageDown]);
            screen(&mut app, width, height);
        }
    }
}

#[test]
fn what_is_old_says_so_and_stays_in_sight() {
    let mut app = App::new(snapshot());
    let gone = crate::failure::Failure::new(crate::cli::Exit::Failed, "", "no server answers");
    app.take(Err(gone));
    app.now_ms = NOW + 65_000;
    let text = screen(&mut app, 80, 24);
    assert!(text.contains("! 1m05s old: no server answers"), "{text}");
    assert!(text.contains("time to checkpoint"), "{text}");
}
