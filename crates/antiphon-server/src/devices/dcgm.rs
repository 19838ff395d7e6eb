//! Reads what a DCGM exporter says of a node's GPUs: text of Prometheus, in which each line is one number of one GPU. What it
//! does not say stays unknown; slices of a GPU (MIG) are left to their GPU's own lines.

use std::collections::BTreeMap;

use antiphon_backends::DeviceReading;
use antiphon_types::{Bytes, NodeName};

/// Bits of NVIDIA's clock event reasons that cost speed and are not the user's own wish, in the words that NVML's get.
const HELD_DOWN: [(u64, &str); 4] = [
    (0x04, "power cap"),
    (0x20, "heat"),
    (0x40, "heat (hardware)"),
    (0x80, "power brake"),
];

/// Numbers of one GPU by the names of their fields, without `DCGM_FI_DEV_`.
type Fields = BTreeMap<String, f64>;

/// The GPUs in an exposition, by their number on the node. `node` is whose exporter was asked; where that is not known, as where
/// one endpoint answers for all, each line says it.
pub(super) fn read(text: &str, node: Option<&NodeName>) -> Vec<DeviceReading> {
    let mut gpus: BTreeMap<(NodeName, u32), Fields> = BTreeMap::new();
    for line in text.lines() {
        let Some((name, labels, value)) = sample(line) else {
            continue;
        };
        let Some(field) = name.strip_prefix("DCGM_FI_DEV_") else {
            continue;
        };
        if labels.contains_key("GPU_I_ID") {
            continue;
        }
        let gpu = labels.get("gpu").and_then(|gpu| gpu.parse().ok());
        let said = labels.get("Hostname").map(|name| NodeName::from(&**name));
        if let Some((gpu, node)) = gpu.zip(node.cloned().or(said)) {
            let fields = gpus.entry((node, gpu)).or_default();
            fields.insert(field.to_owned(), value);
        }
    }
    let readings = gpus.into_iter();
    readings
        .map(|((node, gpu), fields)| reading(node, gpu, &fields))
        .collect()
}

fn reading(node: NodeName, gpu: u32, fields: &Fields) -> DeviceReading {
    // The casts saturate, and none of these is negative or beyond 32 bits on any device.
    let whole = |name: &str| fields.get(name).map(|value| value.round() as u64);
    let small = |name: &str| whole(name).and_then(|value| u32::try_from(value).ok());
    let mib = |name: &str| whole(name).map(|value| value.saturating_mul(1 << 20));
    let used = mib("FB_USED");
    let total = mib("FB_TOTAL").or_else(|| {
        let reserved = mib("FB_RESERVED").unwrap_or(0);
        Some(used? + mib("FB_FREE")? + reserved)
    });
    // The field was renamed; exporters of both ages are about.
    let reasons = whole("CLOCKS_EVENT_REASONS").or_else(|| whole("CLOCK_THROTTLE_REASONS"));
    let reasons = reasons.unwrap_or(0);
    let held = HELD_DOWN.into_iter();
    DeviceReading {
        node,
        gpu,
        utilization_percent: small("GPU_UTIL").filter(|percent| *percent <= 100),
        memory_used: used.map(Bytes::new),
        memory_total: total.map(Bytes::new),
        temperature_c: small("GPU_TEMP"),
        power_mw: fields.get("POWER_USAGE").map(|watts| (watts * 1e3) as u32),
        throttled: held
            .filter(|(bit, _)| reasons & bit != 0)
            .map(|(_, name)| name)
            .collect(),
        ecc_errors: whole("ECC_DBE_VOL_TOTAL"),
        xid: small("XID_ERRORS").filter(|code| *code != 0),
    }
}

/// One line: a name, its labels, a number. Nothing for comments, and for what is no number.
fn sample(line: &str) -> Option<(&str, BTreeMap<&str, String>, f64)> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let (name, labels, rest) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, rest) = labels(rest)?;
            (name, labels, rest)
        }
        None => {
            let (name, rest) = line.split_once(' ')?;
            (name, BTreeMap::new(), rest)
        }
    };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    // DCGM's own word for what a device does not measure lies near 2^63.
    let known = value.is_finite() && (0.0..1e15).contains(&value);
    known.then_some((name, labels, value))
}

/// Labels up to their closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(BTreeMap<&str, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => match letters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, letter) => value.push(letter),
            }
        };
        labels.insert(name, value);
        rest = &after[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_its_labels_hold() {
        let line = r#"DCGM_FI_DEV_GPU_UTIL{gpu="3",modelName="a \"b\", {c}",Hostname="n1",} 97 1700000000"#;
        let (name, labels, value) = sample(line).unwrap();
        assert_eq!((name, value), ("DCGM_FI_DEV_GPU_UTIL", 97.0));
        assert_eq!(labels["modelName"], r#"a "b", {c}"#);
        assert_eq!(labels["gpu"], "3");
        let no_samples = [
            "# HELP x y",
            "",
            "x",
            "x{",
            "x{a=\"",
            "x{a=\"b\"}",
            "x{} none",
            "x 1e300",
        ];
        assert!(no_samples.into_iter().all(|line| sample(line).is_none()));
    }

    #[test]
    fn slices_and_what_is_not_of_a_gpu_are_passed_over() {
        let text = r#"
            DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="n1"} 40
            DCGM_FI_DEV_GPU_TEMP{gpu="0",GPU_I_ID="7",Hostname="n1"} 80
            DCGM_FI_DEV_GPU_TEMP{Hostname="n1"} 50
            go_goroutines 12
            DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="n1"} 9223372036854775794
        "#;
        let readings = read(text, None);
        assert_eq!(readings.len(), 1);
        assert_eq!(readings[0].temperature_c, Some(40));
        assert_eq!(readings[0].utilization_percent, None);
    }
}
