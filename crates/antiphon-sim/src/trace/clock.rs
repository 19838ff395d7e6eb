//! Times and spans as the tools of others write them. Knows no time zones but those that a text names.

/// Milliseconds since 1970-01-01, of `2017-10-09 07:01:55`, also with `T`, fractions, and `Z` or `+02:00` behind.
pub(super) fn date_time(text: &str) -> Option<u64> {
    let (date, time) = text.trim().split_once(['T', ' '])?;
    let mut numbers = date.split('-').map(digits);
    let (year, month, day) = (numbers.next()??, numbers.next()??, numbers.next()??);
    if numbers.next().is_some() || !(1970..=9999).contains(&year) {
        return None;
    }
    let (time, offset_min) = zone(time.trim())?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut numbers = clock.split(':').map(digits);
    let (hour, minute) = (numbers.next()??, numbers.next()??);
    let second = match numbers.next() {
        Some(second) => second?,
        None => 0,
    };
    let sound = numbers.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    let days = days_since_1970(year, month, day).filter(|_| sound)?;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    let utc = i64::try_from(seconds).ok()? - offset_min * 60;
    let ms = u64::try_from(utc).ok()?.checked_mul(1_000)?;
    ms.checked_add(fraction_ms(fraction)?)
}

/// Milliseconds of a span as Slurm writes it: `D-HH:MM:SS`, `HH:MM:SS`, `MM:SS`, each also with a fraction.
pub(super) fn span(text: &str) -> Option<u64> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (digits(days)?, rest),
        None => (0, text),
    };
    let (clock, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let numbers: Vec<u64> = clock.split(':').map(digits).collect::<Option<_>>()?;
    let seconds = match *numbers {
        [hours, minutes, seconds] => hours * 3_600 + minutes * 60 + seconds,
        [minutes, seconds] => minutes * 60 + seconds,
        _ => return None,
    };
    let seconds = days.checked_mul(86_400)?.checked_add(seconds)?;
    seconds
        .checked_mul(1_000)?
        .checked_add(fraction_ms(fraction)?)
}

/// A number of at most nine digits, nothing else.
fn digits(text: &str) -> Option<u64> {
    let sound = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    sound.then(|| text.parse().ok()).flatten()
}

fn fraction_ms(text: &str) -> Option<u64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{text}000").get(..3)?.parse().ok()
}

/// Splits the zone off a time of day and gives its minutes east of Greenwich.
fn zone(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = time.rfind(['+', '-']) else {
        return Some((time, 0));
    };
    let (time, zone) = time.split_at(at);
    let (sign, zone) = zone.split_at(1);
    let (hours, minutes) = match zone.split_once(':') {
        Some(both) => both,
        None if zone.len() == 4 => zone.split_at_checked(2)?,
        None => (zone, "0"),
    };
    let minutes = i64::try_from(digits(hours)? * 60 + digits(minutes)?).ok()?;
    Some((time, if sign == "-" { -minutes } else { minutes }))
}

/// Days of the Gregorian calendar; nothing where there is no such day.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let index = usize::try_from(month.checked_sub(1)?).ok()?;
    let before = *BEFORE.get(index)?;
    let next = BEFORE.get(index + 1).copied().unwrap_or(365);
    let february = u64::from(month == 2 && leap(year));
    if day == 0 || day > next - before + february {
        return None;
    }
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let whole = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    Some(whole + before + u64::from(month > 2 && leap(year)) + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_spelling() {
        assert_eq!(date_time("1970-01-01 00:00:00"), Some(0));
        assert_eq!(date_time("2017-10-09 07:01:55"), Some(1_507_532_515_000));
        assert_eq!(date_time("2024-02-29T12:00:00Z"), Some(1_709_208_000_000));
        assert_eq!(date_time("2024-02-29T12:00:00.25"), Some(1_709_208_000_250));
        assert_eq!(
            date_time("2024-02-29T14:00:00+02:00"),
            Some(1_709_208_000_000)
        );
        assert_eq!(date_time("2000-03-01 00:00"), Some(951_868_800_000));
    }

    #[test]
    fn days_that_do_not_exist_are_no_times() {
        for text in [
            "2023-02-29 00:00:00",
            "2023-13-01 00:00:00",
            "2023-00-01 00:00:00",
            "2023-04-31 00:00:00",
            "2023-04-30 24:00:00",
            "Unknown",
            "",
            "T",
            "2023-04-30T00:00:00+",
        ] {
            assert_eq!(date_time(text), None, "{text}");
        }
    }

    #[test]
    fn spans_are_read_as_slurm_writes_them() {
        assert_eq!(span("1-02:03:04"), Some(93_784_000));
        assert_eq!(span("00:10:00"), Some(600_000));
        assert_eq!(span("03:04.500"), Some(184_500));
        assert_eq!(span("INVALID"), None);
        assert_eq!(span("5"), None);
    }
}
