//! Every metric by its name, with what it means: what is registered and what the reference says is one list.

/// A metric as Prometheus knows it.
pub(crate) struct Described {
    /// Without the prefix `antiphon_`, and without the `_total` of counters.
    pub(crate) name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub(crate) kind: &'static str,
    /// Its labels, with the values that they may have.
    pub(crate) labels: &'static [(&'static str, &'static str)],
    /// What it counts, in which unit.
    pub(crate) help: &'static str,
}

const CLASS: (&str, &str) = (
    "class",
    "`service`, `production`, `standard`, `best-effort`",
);
const NUMBER: (&str, &str) = (
    "number",
    "`completion_rate`, `time_to_checkpoint`, `scheduling_delay_production`, `scheduling_delay_best_effort`",
);

macro_rules! described {
    ($($constant:ident = $kind:literal $name:literal [$($label:expr),*] $help:literal;)*) => {
        $(pub(crate) const $constant: Described = Described {
            name: $name,
            kind: $kind,
            labels: &[$($label),*],
            help: $help,
        };)*
        /// All of them, in the order of the reference.
        pub(crate) const ALL: &[Described] = &[$($constant),*];
    };
}

described! {
    JOBS = "gauge" "jobs" [CLASS, ("state", "`pending`, `starting`, `running`, `stopping`, `held`, `succeeded`, `failed`, `canceled`")]
        "Jobs that the server remembers";
    GPUS = "gauge" "gpus" [("state", "`busy`, `held` (back for a blocked job), `idle`, `out_of_service`"), ("gpu_type", "as the cluster names it; `other` beyond 50")]
        "GPUs of all nodes that were ever offered";
    NODES = "gauge" "nodes" [("state", "`ready`, `draining`, `down`")]
        "Nodes";
    TEAM_GPUS = "gauge" "team_gpus" [("team", "as jobs name it; `other` beyond 200")]
        "GPUs that a team's own jobs hold, without those of its parts";
    DEVICE_UTILIZATION = "gauge" "device_utilization_ratio" [("gpu_type", "as above")]
        "Mean utilization of the GPUs that can be measured from the server, on the device";
    DEVICES_THROTTLED = "gauge" "devices_throttled" [("gpu_type", "as above")]
        "GPUs whose clocks are held down by heat or power";
    DEVICE_ECC_ERRORS = "gauge" "device_ecc_errors" [("gpu_type", "as above")]
        "Memory errors that could not be corrected, since the drivers were loaded";
    QUEUE_DELAY = "histogram" "queue_delay_seconds" [CLASS]
        "From the time at which a job could have started, as far as it goes, to its launch";
    CYCLE = "histogram" "decide_cycle_seconds" []
        "Time of one call of decide with the check of its decision";
    COMMIT = "histogram" "commit_seconds" []
        "Time of one commit of the log, its sync included";
    LOG_EVENTS = "gauge" "log_events" []
        "Events in the log";
    LOG_BYTES = "gauge" "log_bytes" []
        "Size of the log on disk with its write-ahead log";
    DECIDING = "gauge" "deciding" []
        "1 while jobs are started, 0 while antiphon is paused or in safe mode";
    SIGNALS = "counter" "signals" []
        "Signals taken in from trainers, each once";
    SIGNALS_DROPPED = "counter" "signals_dropped" []
        "Signals that trainers say they had to drop";
    DIRECTIVES = "counter" "directives" [("directive", "its name"), ("outcome", "`issued`, `applied`, `rejected`, `failed`, `expired`")]
        "Directives to trainers, and their answers";
    PREEMPTIONS = "counter" "preemptions" [("cause", "`priority`, `reclaim`, `turn`, `drain`, `notice`, `operator`, `asked`")]
        "Running attempts that were asked to give way";
    ATTEMPTS = "counter" "attempts" [("outcome", "`succeeded`, `failed`, `canceled`, `held`, `requeued`, `retried`")]
        "Attempts that are over, by what became of the job";
    JOBS_ENDED = "counter" "jobs_ended" [CLASS, ("outcome", "`succeeded`, `failed`, `canceled`")]
        "Jobs that have ended for good";
    HELD = "counter" "held_gpu_seconds" []
        "GPU-seconds that attempts which are over have held";
    LOST = "counter" "lost_gpu_seconds" [("cause", "`preemption`, `failure`, `straggler`, `user`, `hand_over` (held while an attempt starts), `idle`")]
        "GPU-seconds of attempts which are over that led to nothing";
    COST = "counter" "cost_usd" []
        "Price in dollars of what attempts which are over have held, as far as partitions have one";
    NUMBERS = "gauge" "number" [("number", "`effective_throughput` (tokens a second for a dollar an hour), `completion_rate` (ratio), `time_to_checkpoint`, `scheduling_delay_production`, `scheduling_delay_best_effort` (seconds)")]
        "The numbers by which the platform is judged, over the last hour";
    REDLINES = "gauge" "number_redline" [NUMBER]
        "Their redlines, in the same units";
    SAMPLES = "gauge" "number_samples" [NUMBER]
        "Samples behind them";
    OVER = "gauge" "number_over_redline" [NUMBER]
        "1 while a number lies on the wrong side of its redline";
    GATE_SHUT = "gauge" "gate_shut" []
        "1 while new best-effort jobs are kept back";
    KEPT_BACK = "gauge" "gate_kept_back_jobs" []
        "Jobs that the gate keeps back";
    GATE_CHANGES = "counter" "gate_changes" [("to", "`shut`, `open`")]
        "Changes of the gate";
}

/// The table of `docs/reference/metrics.md`.
#[must_use]
pub fn reference() -> String {
    let mut table =
        "| metric | kind | labels | what it says |\n| --- | --- | --- | --- |\n".to_owned();
    for described in ALL {
        let total = if described.kind == "counter" {
            "_total"
        } else {
            ""
        };
        let labels = described.labels.iter();
        let labels: Vec<String> = labels
            .map(|(name, values)| format!("`{name}`: {values}"))
            .collect();
        table += &format!(
            "| `antiphon_{}{total}` | {} | {} | {}. |\n",
            described.name,
            described.kind,
            labels.join("; "),
            described.help
        );
    }
    table
}
