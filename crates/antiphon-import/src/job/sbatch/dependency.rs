//! `--dependency`: which jobs come first. Jobs of Slurm are none of antiphon's, and running too early would be wrong: an error.

use super::super::error::{JobError, JobProblem};
use super::super::form::Job;
use super::options::Given;
use crate::place::short;
use crate::warning::Warning;

/// Reads `afterok:job-7:prepare,afterany:job-9`.
pub(super) fn read(
    given: &Given,
    job: &mut Job,
    warnings: &mut Vec<Warning>,
) -> Result<(), JobError> {
    let refused = |what: &str, why: &str, help: &str| {
        JobError::from(JobProblem::CannotHonor {
            place: given.place.clone(),
            option: format!("--dependency={what}"),
            why: why.to_owned(),
            help: help.to_owned(),
        })
    };
    if given.value.contains('?') {
        let why = "`?` lets one of several conditions do; antiphon waits for all of them";
        return Err(refused(
            &short(&given.value),
            why,
            "name all of them with commas, or leave some out",
        ));
    }
    for part in given
        .value
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        if part == "singleton" {
            warnings.push(Warning::Differs {
                place: given.place.clone(),
                option: "--dependency=singleton".into(),
                how: "a second job of the same name is refused while the first has not ended; submit it with `after_any`".into(),
            });
            continue;
        }
        let mut words = part.split(':');
        let kind = words.next().unwrap_or_default();
        let names: Vec<&str> = words.filter(|name| !name.is_empty()).collect();
        let list = match kind {
            "afterok" => &mut job.after_ok,
            "afterany" => &mut job.after_any,
            "after" => &mut job.after_start,
            "aftercorr" => {
                warnings.push(Warning::Differs {
                    place: given.place.clone(),
                    option: format!("--dependency={}", short(part)),
                    how:
                        "it waits for all members of the array, not for the one with the same index"
                            .into(),
                });
                &mut job.after_ok
            }
            "afternotok" | "afterburstbuffer" => {
                let why = "antiphon has no job that waits for a failure";
                return Err(refused(
                    &short(part),
                    why,
                    "use `afterany`, and look at the other job in the script",
                ));
            }
            _ => return Err(given.bad("`afterok:JOB`, `afterany:JOB`, `after:JOB` or `singleton`")),
        };
        if names.is_empty() {
            return Err(given.bad("`afterok:JOB`, with a job of antiphon"));
        }
        for name in names {
            // `after:JOB+5` waits five minutes more.
            let (name, delay) = name
                .split_once('+')
                .map_or((name, ""), |(name, delay)| (name, delay));
            let number = name.split('_').next().unwrap_or_default();
            if number.bytes().all(|byte| byte.is_ascii_digit()) {
                let why = format!("{name} is a job of Slurm, whose end antiphon does not see");
                return Err(refused(
                    &short(part),
                    &why,
                    "name a job of antiphon, like `afterok:job-7`, or leave it out",
                ));
            }
            if !delay.is_empty() {
                warnings.push(Warning::NotHonored {
                    place: given.place.clone(),
                    option: format!("--dependency={}", short(part)),
                    effect: "the job does not wait longer than for the other's start".into(),
                });
            }
            list.push(name.to_owned());
        }
    }
    Ok(())
}
