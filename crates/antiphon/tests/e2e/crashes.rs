//! What a crash may take: nothing. Servers and supervisors are killed without warning; jobs are neither lost nor doubled.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::server::{Server, processes_with, supervisors_in, wait};

/// A script that finds out whether two attempts of its job run at once, and keeps a journal.
const ALONE: &str = r#"
d="$PWD/alone-$ANTIPHON_JOB"
if ! mkdir "$d" 2>/dev/null; then
  read pid < "$d/pid"
  if kill -0 "$pid" 2>/dev/null; then echo "DOUBLE $ANTIPHON_ATTEMPT" >> doubles; fi
fi
echo $$ > "$d/pid"
trap 'rm -rf "$d"; exit 143' TERM
sleep $SPAN & wait $!
echo "$ANTIPHON_JOB" >> finished
rm -rf "$d"
"#;

/// Random enough to hit every moment, and printed so that a failure can be run again.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = std::env::var("ANTIPHON_TEST_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        let seed = seed.unwrap_or(u64::from(now.subsec_nanos()) | 1);
        eprintln!("ANTIPHON_TEST_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The work during which the server is killed: short and long jobs, gangs that fill the node, and jobs that preempt them.
fn submit_some(server: &Server, round: u64, dice: &mut Dice) -> Vec<String> {
    let kinds = ["gpus = 0", "gpus = 8", "gpus = 3", "gpus = 8"];
    let classes = ["standard", "best-effort", "best-effort", "production"];
    (0..2)
        .map(|index| {
            let kind = usize::try_from(dice.below(4)).unwrap();
            let name = format!("r{round}-{index}");
            let head = format!(
                "class = \"{}\"\n[resources]\n{}\n[retry]\nretries = 50\nbackoff = \"20ms\"\nbackoff_max = \"50ms\"",
                classes[kind], kinds[kind]
            );
            let script = format!("SPAN=0.{}; {ALONE}", 1 + dice.below(6));
            server.submit(&name, &head, &script)
        })
        .collect()
}

#[test]
fn a_server_killed_twenty_times_loses_and_doubles_no_job() {
    let mut dice = Dice::new();
    let mut server = Server::start();
    let mut jobs = Vec::new();
    for round in 0..20 {
        jobs.extend(submit_some(&server, round, &mut dice));
        // The moment is the point of this test: anywhere in starts, preemptions, commits and ends.
        let moment = Instant::now() + Duration::from_millis(dice.below(400));
        while Instant::now() < moment {
            std::thread::yield_now();
        }
        server.kill();
        server.up();
    }
    for job in &jobs {
        server.wait_for(job, "succeeded");
    }
    let read = |name: &str| fs::read_to_string(server.dir().join(name)).unwrap_or_default();
    assert_eq!(read("doubles"), "", "two attempts of a job ran at once");
    let finished = read("finished");
    for job in &jobs {
        let times = finished.lines().filter(|line| line == job).count();
        // A job that is told to give way between its last line and its exit is run again, and rightly so.
        let attempts = server.job(job)["attempts"].as_array().unwrap().clone();
        let stopped = attempts
            .iter()
            .filter(|attempt| attempt["stopped"].is_string())
            .count();
        assert!(
            (1..=1 + stopped).contains(&times),
            "{job} finished {times} times: {attempts:#?}"
        );
    }
    let (live, replayed) = server.digests();
    assert_eq!(live, replayed);
}

#[test]
fn a_server_killed_in_the_middle_of_a_preemption_carries_it_through() {
    let mut server = Server::start();
    let low = server.submit(
        "low",
        "class = \"best-effort\"\n[resources]\ngpus = 8",
        "trap 'sleep 1; exit 143' TERM; sleep 600 & wait",
    );
    server.wait_for(&low, "running");
    let high = server.submit(
        "high",
        "class = \"production\"\n[resources]\ngpus = 8",
        "sleep 0.2",
    );
    server.wait_for(&low, "stopping");
    server.kill();
    server.up();
    server.wait_for(&high, "succeeded");
    server.wait_for(&low, "running");
    assert_eq!(server.job(&low)["summary"]["attempts"], 2);
}

#[test]
fn a_server_that_stops_leaves_jobs_running_and_the_next_reads_what_ended() {
    let mut server = Server::start();
    let long = server.submit("long", "[resources]\ngpus = 1", "sleep 600");
    let short = server.submit(
        "short",
        "[resources]\ngpus = 1",
        "while [ ! -e go ]; do sleep 0.05; done; exit 3",
    );
    server.wait_for(&long, "running");
    server.wait_for(&short, "running");
    server.interrupt();
    wait(
        "what it says",
        || {
            fs::read_to_string(server.log())
                .unwrap()
                .contains("2 jobs run on")
        },
        || fs::read_to_string(server.log()).unwrap(),
    );
    fs::write(server.dir().join("go"), "").unwrap();
    let short_dir = server
        .state_dir()
        .join("attempts/job-2.1/trainer.0/exit.json");
    wait("the short one to end", || short_dir.exists(), String::new);
    server.up();
    wait(
        "the end to be read",
        || {
            server.job(&short)["summary"]["attempts"].as_u64() >= Some(1)
                && server.state(&short) == "pending"
        },
        || format!("{:#}", server.job(&short)),
    );
    let why = server.ok(&["why", &short]);
    assert!(why.contains("exit code 3"), "{why}");
    assert_eq!(
        server.job(&long)["summary"]["attempts"],
        1,
        "it was adopted, not started again"
    );
    assert_eq!(server.state(&long), "running");
    server.ok(&["cancel", &long, &short]);
    server.wait_for(&long, "canceled");
}

#[test]
fn an_attempt_whose_supervisor_was_killed_is_neither_ended_nor_started_again() {
    let server = Server::start();
    let id = server.submit(
        "orphan",
        "[resources]\ngpus = 8\n[retry]\nbackoff = \"50ms\"",
        "while [ ! -e go ]; do sleep 0.05; done",
    );
    server.wait_for(&id, "running");
    let marked = || {
        processes_with(&format!(
            "ANTIPHON_TASK_DIR={}",
            server.state_dir().display()
        ))
    };
    wait("its processes", || !marked().is_empty(), String::new);
    for supervisor in supervisors_in(&server.state_dir()) {
        kill_process(supervisor, Signal::KILL).unwrap();
    }
    // Longer than several looks of the backend.
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        assert_eq!(server.state(&id), "running");
        assert!(!marked().is_empty());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(server.job(&id)["summary"]["attempts"], 1);
    // Once its processes are gone the attempt is over, and nobody knows how it ended: it is tried again.
    fs::write(server.dir().join("go"), "").unwrap();
    server.wait_for(&id, "succeeded");
    assert_eq!(server.job(&id)["summary"]["attempts"], 2);
    let exit = server.job(&id)["attempts"][0]["exit"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(exit.contains("lost without a status"), "{exit}");
}

#[test]
fn a_job_of_a_restored_log_is_not_given_the_end_of_the_one_that_was_lost() {
    let mut server = Server::start();
    let head = "[resources]\ngpus = 0";
    server.submit("before", head, "true");
    server.wait_for("before", "succeeded");
    server.interrupt();
    let log = |name: &str| server.state_dir().join(name);
    fs::copy(log("log.db"), log("backup.db")).unwrap();
    server.up();
    let lost = server.submit("lost", head, "echo lost >> ran");
    server.wait_for(&lost, "succeeded");
    server.interrupt();
    for part in ["log.db-wal", "log.db-shm"] {
        let _ = fs::remove_file(server.state_dir().join(part));
    }
    fs::rename(
        server.state_dir().join("backup.db"),
        server.state_dir().join("log.db"),
    )
    .unwrap();
    server.up();
    let next = server.submit("next", head, "echo next >> ran");
    assert_eq!(next, lost, "the number is used again");
    server.wait_for(&next, "succeeded");
    assert_eq!(
        fs::read_to_string(server.dir().join("ran")).unwrap(),
        "lost\nnext\n"
    );
}
