//! On what a figure was measured: processor, memory, file system, load, and how long a sync takes. Changes nothing.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use crate::Result;
use crate::figures::median;

/// One line about the machine and the file system that holds `dir`.
pub(crate) fn describe(dir: &Path) -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = value(&cpuinfo, "model name").unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = value(&meminfo, "MemTotal")
        .and_then(|value| value.trim_end_matches("kB").trim().parse::<u64>().ok());
    let gib = kib.unwrap_or(0).div_ceil(1 << 20);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.trim().split('-').next().unwrap_or("");
    let system = file_system(dir);
    format!("{cores} x {model}, {gib} GiB, Linux {kernel}, {system}")
}

/// The load average of the last minute.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|first| first.parse().ok());
    first.unwrap_or(f64::NAN)
}

/// How long the disk takes to make 4 KiB durable, median of 50: every submit waits for one such commit.
pub(crate) fn sync_ms(dir: &Path) -> Result<f64> {
    let path = dir.join(".sync");
    let mut file = File::create(&path)?;
    let mut times = Vec::new();
    for _ in 0..50 {
        let begin = Instant::now();
        file.write_all(&[0x5a; 4_096])?;
        file.sync_data()?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    fs::remove_file(path)?;
    Ok(median(times))
}

fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn file_system(dir: &Path) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let nearest = fields
        .filter(|(place, _)| dir.starts_with(place))
        .max_by_key(|(place, _)| place.len());
    nearest
        .map_or("unknown file system", |(_, kind)| kind)
        .to_owned()
}
