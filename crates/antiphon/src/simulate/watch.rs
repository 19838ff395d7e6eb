//! What goes on beside a simulation: the stopwatch, the progress bar, Ctrl-C, and how much memory it took.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Nanoseconds since now.
pub(super) fn stopwatch() -> impl Fn() -> u64 {
    let began = Instant::now();
    move || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A person's wish to stop.
#[derive(Clone)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Is wished by Ctrl-C or SIGTERM: what is done so far is still printed. A second one ends the program.
    pub(super) fn by_hand() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let again = Arc::new(AtomicBool::new(false));
        for (signal, code) in [(SIGINT, 130), (SIGTERM, 143)] {
            // Done in this order at each signal, and begun in it: one that comes in between is a wish already, and whether
            // it is the second shows in a flag of its own. Where a signal cannot be caught, it ends the program as ever.
            let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
            let _ =
                signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&again));
            let _ = signal_hook::flag::register(signal, Arc::clone(&again));
        }
        Self(stop)
    }

    pub(super) fn is_wished(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The progress of one policy, in jobs.
pub(super) fn bar(name: &str, jobs: usize) -> ProgressBar {
    bar_of(name, jobs, "jobs")
}

/// The progress of so many things; hidden where nobody looks.
pub(super) fn bar_of(name: &str, count: usize, things: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::try_from(count).unwrap_or(u64::MAX));
    let template = format!("{{msg:16}} {{wide_bar}} {{pos}}/{{len}} {things} {{eta}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    bar
}

/// The largest memory that this process has had.
pub(super) fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
