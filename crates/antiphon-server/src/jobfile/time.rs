//! Spans and moments in a job file. A moment that is a span from now is made one when the job is submitted, once.

use antiphon_types::{Millis, Timestamp, UnitError};

use super::read::JobFileError;

/// Ten years: bounds sums of times.
const SPAN_MAX: Millis = Millis::from_secs(315_360_000);

/// A span, or its default where none is given.
pub(super) fn span(at: &str, text: Option<&str>, default: Millis) -> Result<Millis, JobFileError> {
    let Some(text) = text else { return Ok(default) };
    let span: Millis = text.parse().map_err(|error| unit(at, &error))?;
    if span > SPAN_MAX {
        let why = format!("{span} is longer than {SPAN_MAX}");
        return Err(JobFileError::value(at, why, "give a shorter one"));
    }
    Ok(span)
}

/// A moment: RFC 3339, or a span from now with a plus in front.
pub(super) fn moment(
    at: &str,
    text: Option<&str>,
    now: Timestamp,
) -> Result<Option<Timestamp>, JobFileError> {
    let Some(text) = text else { return Ok(None) };
    if let Some(from_now) = text.strip_prefix('+') {
        return Ok(Some(now.after(span(at, Some(from_now), Millis::ZERO)?)));
    }
    let given: Option<jiff::Timestamp> = text.parse().ok();
    let ms = given.and_then(|given| u64::try_from(given.as_millisecond()).ok());
    let Some(moment) = ms.map(Timestamp::from_millis) else {
        let why = format!("`{text}` is no time");
        let help =
            "give one with its offset, like `2026-12-01T08:00:00Z`, or a span from now like `+4h`";
        return Err(JobFileError::value(at, why, help));
    };
    if moment.since(now) > SPAN_MAX {
        let why = format!(
            "{text} lies {} ahead, more than {SPAN_MAX}",
            moment.since(now)
        );
        return Err(JobFileError::value(at, why, "give an earlier one"));
    }
    Ok(Some(moment))
}

/// The deadline and the earliest start, which have to leave time between them.
pub(super) fn window(
    deadline: Option<&str>,
    not_before: Option<&str>,
    now: Timestamp,
) -> Result<(Option<Timestamp>, Option<Timestamp>), JobFileError> {
    let not_before = moment("not_before", not_before, now)?;
    let Some(end) = moment("deadline", deadline, now)? else {
        return Ok((None, not_before));
    };
    if end <= now {
        let why = format!("it passed {} ago", now.since(end));
        let help = "give a time that lies ahead, or leave it out";
        return Err(JobFileError::value("deadline", why, help));
    }
    if let Some(start) = not_before.filter(|start| end <= *start) {
        let why = format!(
            "it lies {} before the job may start (`not_before`)",
            start.since(end)
        );
        let help = "give a later `deadline` or an earlier `not_before`";
        return Err(JobFileError::value("deadline", why, help));
    }
    Ok((Some(end), not_before))
}

/// A quantity that cannot be read.
pub(super) fn unit(at: &str, error: &UnitError) -> JobFileError {
    let why = format!("`{}` is no {}", error.text, error.what);
    let help = format!("give a number with a unit like {}", error.examples);
    JobFileError::value(at, why, help)
}
