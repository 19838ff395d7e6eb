//! The `accept` line: what makes a job's result an acceptable model. Whether it has is found from what its trainer reports.

use antiphon_types::{Accept, AcceptFrom, AcceptOp};

use super::form::AcceptFile;
use super::read::JobFileError;

/// Values beyond this are counted in no millionths, and meant by nobody.
const VALUE_MAX: f64 = 1e9;
/// Bytes of a metric's and a category's name: what trainers report is cut to that.
const NAME_MAX: usize = 200;

pub(super) fn accept(file: Option<&AcceptFile>) -> Result<Option<Accept>, JobFileError> {
    let Some(file) = file else {
        return Ok(None);
    };
    if file.metric.is_empty() || file.metric.len() > NAME_MAX {
        let why = format!("a name has 1 to {NAME_MAX} bytes");
        let help = "give `loss`, or the name under which the trainer reports a score";
        return Err(JobFileError::value("accept.metric", why, help));
    }
    let op = match file.op.as_str() {
        "<=" => AcceptOp::AtMost,
        ">=" => AcceptOp::AtLeast,
        other => {
            let why = format!("`{other}` compares nothing");
            let help = "give `<=` for a loss, `>=` for a score";
            return Err(JobFileError::value("accept.op", why, help));
        }
    };
    if !file.value.is_finite() || file.value.abs() > VALUE_MAX {
        let why = format!("{} cannot be reached", file.value);
        let help = "give a number between -1e9 and 1e9";
        return Err(JobFileError::value("accept.value", why, help));
    }
    Ok(Some(Accept {
        metric: file.metric.clone(),
        from: from(file)?,
        op,
        value_micro: (file.value * 1e6).round() as i64,
    }))
}

/// On what it is measured: losses on held-out rows, all else by an evaluation of the trainer's own.
fn from(file: &AcceptFile) -> Result<AcceptFrom, JobFileError> {
    let is_loss = matches!(file.metric.as_str(), "loss" | "eval_loss");
    let from = match file.from.as_deref() {
        None if is_loss => AcceptFrom::Probe { category: None },
        None | Some("eval") => AcceptFrom::Eval,
        Some("probe") => AcceptFrom::Probe { category: None },
        Some("train") => AcceptFrom::Train,
        Some(other) => match other.strip_prefix("probe/") {
            Some(category) if !category.is_empty() && category.len() <= NAME_MAX => {
                AcceptFrom::Probe {
                    category: Some(category.to_owned()),
                }
            }
            Some(_) | None => {
                let why = format!("nothing is measured on `{other}`");
                let help = "give `probe`, `probe/CATEGORY`, `train` or `eval`";
                return Err(JobFileError::value("accept.from", why, help));
            }
        },
    };
    if from != AcceptFrom::Eval && !is_loss {
        let why = format!(
            "on `{from}` only losses are measured, not `{}`",
            file.metric
        );
        let help = "give `from = \"eval\"`, and report it by that name; or `metric = \"loss\"`";
        return Err(JobFileError::value("accept.from", why, help));
    }
    Ok(from)
}
