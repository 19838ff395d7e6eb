//! Arrays: which jobs a file stands for, in the notation that Slurm users know.

use std::collections::BTreeSet;

use antiphon_types::ArraySpec;

use super::read::JobFileError;

/// Jobs of one array: a sweep has hundreds, and each is a job of its own in the queue.
const INDICES_MAX: usize = 10_000;

const HELP: &str = "give indices like `0-99`, `1,3,5-9` or `0-30:10`, and behind them how many may run at once, like `%10`";

/// `0-99%10`: the indices, and how many may run at once.
pub(super) fn array(text: Option<&str>) -> Result<Option<ArraySpec>, JobFileError> {
    let Some(text) = text else { return Ok(None) };
    let wrong = |why: String| JobFileError::value("array", why, HELP);
    let (list, at_once) = match text.split_once('%') {
        None => (text, 0),
        Some((list, number)) => match number.trim().parse() {
            Ok(0) => return Err(wrong("`%0` lets none of its jobs run".into())),
            Ok(at_once) => (list, at_once),
            Err(_) => return Err(wrong(format!("`{number}` is no number of jobs at once"))),
        },
    };
    let mut indices = BTreeSet::new();
    for part in list.split(',') {
        let range = range(part.trim()).ok_or_else(|| {
            wrong(format!(
                "`{}` is no index and no range of them",
                part.trim()
            ))
        })?;
        for index in range {
            indices.insert(index);
            if indices.len() > INDICES_MAX {
                return Err(JobFileError {
                    code: "AP0108",
                    at: "array".into(),
                    what: format!("`array`: `{text}` has more than {INDICES_MAX} indices"),
                    help: format!(
                        "split it into arrays of at most {INDICES_MAX}, or give each job more to do"
                    ),
                });
            }
        }
    }
    Ok(Some(ArraySpec {
        indices: indices.into_iter().collect(),
        at_once,
    }))
}

/// `7`, `5-9` or `0-30:10`.
fn range(text: &str) -> Option<impl Iterator<Item = u32>> {
    let (ends, step) = match text.split_once(':') {
        Some((ends, step)) => (ends, number(step).filter(|step| *step > 0)?),
        None => (text, 1),
    };
    let (first, last) = match ends.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        // A step of nothing is a slip.
        None => (number(text)?, number(text)?),
    };
    (first <= last).then(|| (first..=last).step_by(usize::try_from(step).unwrap_or(usize::MAX)))
}

fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<u32>, u32) {
        let array = array(Some(text)).unwrap().unwrap();
        (array.indices, array.at_once)
    }

    fn refused(text: &str) -> String {
        let error = array(Some(text)).unwrap_err();
        format!("[{}] {}", error.code, error.what)
    }

    #[test]
    fn indices_are_read_as_slurm_reads_them() {
        assert_eq!(read("0-3%2"), (vec![0, 1, 2, 3], 2));
        assert_eq!(read("1,3,5-7"), (vec![1, 3, 5, 6, 7], 0));
        assert_eq!(read("0-30:10, 5 ,5"), (vec![0, 5, 10, 20, 30], 0));
        assert_eq!(read("0-9999").0.len(), INDICES_MAX);
        assert_eq!(array(None).unwrap(), None);
    }

    #[test]
    fn wrong_arrays_name_the_part_that_is_wrong() {
        for (text, expected) in [
            ("", "[AP0202] `array`: `` is no index and no range of them"),
            (
                "0-3,x",
                "[AP0202] `array`: `x` is no index and no range of them",
            ),
            (
                "9-1",
                "[AP0202] `array`: `9-1` is no index and no range of them",
            ),
            (
                "0-9:0",
                "[AP0202] `array`: `0-9:0` is no index and no range of them",
            ),
            ("0-3%0", "[AP0202] `array`: `%0` lets none of its jobs run"),
            (
                "0-3%many",
                "[AP0202] `array`: `many` is no number of jobs at once",
            ),
            (
                "0-4000000000",
                "[AP0108] `array`: `0-4000000000` has more than 10000 indices",
            ),
        ] {
            assert_eq!(refused(text), expected);
        }
    }
}
