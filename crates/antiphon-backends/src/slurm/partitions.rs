//! Partitions as `scontrol show partition` prints them, from 22.05 on.

use antiphon_types::{Millis, PartitionSpec};

use super::record::records;

/// The keys that are read.
const KEYS: [&str; 4] = ["PartitionName", "MaxTime", "PreemptMode", "State"];

/// A partition as Slurm has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmPartition {
    /// What antiphon keeps of it.
    pub spec: PartitionSpec,
    /// Whether it starts jobs: one that is `DOWN`, `DRAIN` or `INACTIVE` does not.
    pub up: bool,
}

/// Reads what `scontrol show partition` printed.
///
/// # Errors
/// A time limit that is none.
pub fn parse(text: &str) -> Result<Vec<SlurmPartition>, String> {
    let partition = |record: &super::record::Record<'_>| {
        let name = record.get("PartitionName").unwrap_or_default().to_owned();
        let limit = record.get("MaxTime").unwrap_or("UNLIMITED");
        let duration_max = time_limit(limit)
            .ok_or_else(|| format!("`MaxTime={limit}` of partition `{name}` is no time limit"))?;
        let preempt = record.get("PreemptMode").unwrap_or("OFF");
        Ok(SlurmPartition {
            spec: PartitionSpec {
                duration_max,
                preemptible: !preempt.split(',').any(|mode| mode == "OFF"),
                name,
                ..PartitionSpec::default()
            },
            up: record.get("State").is_none_or(|state| state == "UP"),
        })
    };
    records(text, "PartitionName", &KEYS)
        .iter()
        .map(partition)
        .collect()
}

/// A time as Slurm writes it: `30` (minutes), `30:00`, `8:00:00`, `7-00:00:00`, `2-12`. `Some(None)` is without a limit.
pub(super) fn time_limit(text: &str) -> Option<Option<Millis>> {
    if text.eq_ignore_ascii_case("UNLIMITED") || text.eq_ignore_ascii_case("INFINITE") {
        return Some(None);
    }
    let number = |text: &str| text.parse::<u64>().ok();
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts: Vec<u64> = rest.split(':').map(number).collect::<Option<_>>()?;
    let seconds = match (days, parts.as_slice()) {
        (None, [minutes]) => minutes.checked_mul(60)?,
        (None, [minutes, seconds]) => minutes.checked_mul(60)?.checked_add(*seconds)?,
        (_, [hours, rest @ ..]) if rest.len() <= 2 => {
            let below = rest.first().copied().unwrap_or(0).checked_mul(60)?;
            let below = below.checked_add(rest.get(1).copied().unwrap_or(0))?;
            hours.checked_mul(3_600)?.checked_add(below)?
        }
        _ => return None,
    };
    let seconds = seconds.checked_add(days.unwrap_or(0).checked_mul(86_400)?)?;
    Some(Some(Millis::from_millis(seconds.checked_mul(1_000)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What 22.05.8 prints, and what 24.11 adds by its documentation.
    const PARTITIONS: &str = "\
PartitionName=general
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=YES QoS=N/A
   DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   Nodes=n[1-8]
   OverTimeLimit=NONE PreemptMode=OFF
   State=UP TotalCPUs=512 TotalNodes=8 SelectTypeParameters=NONE

PartitionName=spot
   MaxNodes=UNLIMITED MaxTime=2-12:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED
   PreemptMode=GANG,SUSPEND
   State=DRAIN TotalCPUs=512 TotalNodes=8 SelectTypeParameters=NONE
";

    #[test]
    fn partitions_have_their_limit_and_their_manners() {
        let partitions = parse(PARTITIONS).unwrap();
        let [general, spot] = partitions.as_slice() else {
            panic!("two partitions")
        };
        assert_eq!(general.spec.name, "general");
        assert_eq!(general.spec.duration_max, None);
        assert!(general.up && !general.spec.preemptible);
        assert_eq!(spot.spec.duration_max, Some(Millis::from_secs(60 * 3_600)));
        assert!(!spot.up && spot.spec.preemptible);
    }

    #[test]
    fn times_are_read_in_every_form() {
        for (text, seconds) in [
            ("30", 1_800),
            ("30:10", 1_810),
            ("8:00:00", 28_800),
            ("7-00:00:00", 604_800),
            ("2-12", 216_000),
            ("1-01:30", 91_800),
        ] {
            let read = time_limit(text);
            assert_eq!(read, Some(Some(Millis::from_secs(seconds))), "{text}");
        }
        assert_eq!(time_limit("UNLIMITED"), Some(None));
        for text in [
            "",
            "NONE",
            "a:b",
            "1-2-3",
            "1:2:3:4",
            "99999999999999999999",
        ] {
            assert_eq!(time_limit(text), None, "{text}");
        }
    }
}
