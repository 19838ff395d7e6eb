//! Quantities as other systems write them: Slurm's sizes and times, Kubernetes' quantities. Results are in the job file's words.

/// So many mebibytes, as a job file says it.
pub(super) fn mebibytes(count: u64) -> String {
    if count > 0 && count.is_multiple_of(1 << 20) {
        format!("{}TiB", count >> 20)
    } else if count > 0 && count.is_multiple_of(1 << 10) {
        format!("{}GiB", count >> 10)
    } else {
        format!("{count}MiB")
    }
}

/// So many seconds, as a job file says it.
pub(super) fn seconds(count: u64) -> String {
    match count {
        count if count > 0 && count.is_multiple_of(86_400) => format!("{}d", count / 86_400),
        count if count > 0 && count.is_multiple_of(3_600) => format!("{}h", count / 3_600),
        count if count > 0 && count.is_multiple_of(60) => format!("{}min", count / 60),
        count => format!("{count}s"),
    }
}

/// A size of Slurm's (`64G`, `512000`, `1.5T`, `32GB`): mebibytes, its unit being powers of 1024.
pub(super) fn slurm_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.to_ascii_lowercase();
    let scale = match unit.trim_end_matches('b').trim_end_matches('i') {
        "k" => 1.0 / 1024.0,
        "" | "m" => 1.0,
        "g" => 1024.0,
        "t" => 1024.0 * 1024.0,
        _ => return None,
    };
    whole((digits.parse::<f64>().ok()? * scale).ceil())
}

/// A time of Slurm's: minutes, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`. Without a limit it is none.
pub(super) fn slurm_time(text: &str) -> Option<Option<u64>> {
    let text = text.trim();
    if ["unlimited", "infinite", "-1"].contains(&text.to_ascii_lowercase().as_str()) {
        return Some(None);
    }
    let number = |text: &str| {
        let digits =
            !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts: Vec<u64> = rest.split(':').map(number).collect::<Option<_>>()?;
    let seconds = match (days, parts.as_slice()) {
        (None, [minutes]) => minutes * 60,
        (None, [minutes, seconds]) => minutes * 60 + seconds,
        (None, [hours, minutes, seconds]) => hours * 3_600 + minutes * 60 + seconds,
        (Some(days), [hours]) => days * 86_400 + hours * 3_600,
        (Some(days), [hours, minutes]) => days * 86_400 + hours * 3_600 + minutes * 60,
        (Some(days), [hours, minutes, seconds]) => {
            days * 86_400 + hours * 3_600 + minutes * 60 + seconds
        }
        _ => return None,
    };
    // Slurm takes a limit of nothing as none.
    Some((seconds > 0).then_some(seconds))
}

/// A count of Kubernetes' (`8`, `500m`, `2k`), in thousandths.
pub(super) fn kubernetes_millis(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(digits) = text.strip_suffix('m') {
        return digits.parse().ok();
    }
    let (digits, scale) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000_000.0),
        None => (text, 1_000.0),
    };
    whole((digits.parse::<f64>().ok()? * scale).round())
}

/// A size of Kubernetes' or SkyPilot's (`64Gi`, `1500M`, `1e9`): mebibytes, rounded up.
pub(super) fn kubernetes_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let units = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("k", 1e3),
        ("K", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("m", 1e-3),
    ];
    let found = units
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)));
    let (digits, scale) = found.unwrap_or((text, 1.0));
    let bytes = digits.trim().parse::<f64>().ok()? * scale;
    whole((bytes / 1_048_576.0).ceil())
}

/// A number that is whole, not negative, and far below what arithmetic takes.
fn whole(number: f64) -> Option<u64> {
    if !(0.0..=1e12).contains(&number) || number.is_sign_negative() {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in range, as just checked"
    )]
    Some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_slurm_reads_them() {
        for (text, seconds) in [
            ("90", Some(Some(5_400))),
            ("10:30", Some(Some(630))),
            ("24:00:00", Some(Some(86_400))),
            ("2-12", Some(Some(216_000))),
            ("1-0:30", Some(Some(88_200))),
            ("1-00:00:01", Some(Some(86_401))),
            ("UNLIMITED", Some(None)),
            ("0", Some(None)),
            ("4h", None),
            ("", None),
            ("1-", None),
            ("1:2:3:4", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(slurm_time(text), seconds, "{text}");
        }
    }

    #[test]
    fn sizes_have_their_own_units_in_each_system() {
        for (text, size) in [
            ("64G", Some(65_536)),
            ("512000", Some(512_000)),
            ("1.5T", Some(1_572_864)),
            ("32gb", Some(32_768)),
            ("100K", Some(1)),
            ("0", Some(0)),
            ("lots", None),
            ("", None),
        ] {
            assert_eq!(slurm_size(text), size, "{text}");
        }
        for (text, size) in [
            ("64Gi", Some(65_536)),
            ("1500M", Some(1_431)),
            ("1073741824", Some(1_024)),
            ("2e9", Some(1_908)),
            ("-1", None),
            ("x", None),
        ] {
            assert_eq!(kubernetes_size(text), size, "{text}");
        }
        assert_eq!(kubernetes_millis("500m"), Some(500));
        assert_eq!(kubernetes_millis("8"), Some(8_000));
        assert_eq!(kubernetes_millis("0.5"), Some(500));
    }

    #[test]
    fn quantities_are_told_in_the_largest_unit_that_is_whole() {
        let told = [
            mebibytes(512),
            mebibytes(65_536),
            mebibytes(2 << 20),
            mebibytes(0),
        ];
        assert_eq!(told, ["512MiB", "64GiB", "2TiB", "0MiB"]);
        let told = [
            seconds(90),
            seconds(5_400),
            seconds(7_200),
            seconds(172_800),
        ];
        assert_eq!(told, ["90s", "90min", "2h", "2d"]);
    }
}
