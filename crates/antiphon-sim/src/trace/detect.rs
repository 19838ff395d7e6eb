//! Tells a trace's format from its first lines. Never looks at the file's name.

use super::{Format, load};

/// The format, where the content leaves no doubt.
pub(super) fn format(text: &str) -> Option<Format> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.find(|line| !line.starts_with('#'))?.trim_end();
    if first.trim_start().starts_with('{') {
        let begin: String = text.chars().take(100_000).collect();
        let kubernetes = begin.contains("\"apiVersion\"") && begin.contains("\"kind\"");
        return kubernetes.then_some(Format::Kubernetes);
    }
    if first.trim() == load::HEADER {
        return Some(Format::Load);
    }
    if first.contains('|') {
        let job = |name: &str| {
            name.trim().eq_ignore_ascii_case("JobID")
                || name.trim().eq_ignore_ascii_case("JobIDRaw")
        };
        return first.split('|').any(job).then_some(Format::Sacct);
    }
    if first.contains('\t') {
        return match first.split('\t').count() {
            12 => Some(Format::Shockwave),
            7 | 10 => Some(Format::Gavel),
            _ => None,
        };
    }
    let columns: Vec<&str> = first
        .split(',')
        .map(|name| name.trim().trim_matches('"'))
        .collect();
    let has = |names: &[&str]| names.iter().all(|name| columns.contains(name));
    // The order matters: a later line would also fit some that an earlier one names.
    let signs: [(Format, &[&str]); 10] = [
        (Format::Fgd, &["gpu_milli"]),
        (Format::Muri, &["resource_time_0"]),
        (Format::Chronus, &["expect_time_list"]),
        (Format::Acme, &["submit_s"]),
        (Format::Pollux, &["application", "num_replicas"]),
        (Format::Philly, &["timestamp", "num_gpus"]),
        (Format::ElasticFlow, &["submission_time"]),
        (Format::ElasticFlow, &["deadline"]),
        (Format::ElasticFlow, &["ddl"]),
        (Format::Tiresias, &["job_id", "interval", "model_name"]),
    ];
    let found = signs.into_iter().find(|(_, names)| has(names));
    found.map(|(format, _)| format)
}
