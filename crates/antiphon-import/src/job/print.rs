//! A job as the text of a job file, and as the text of a script.

use std::fmt::Write as _;

use super::form::Job;
use crate::warning::Warning;

impl Job {
    /// The job file in TOML, with what is not followed in comments above it.
    #[must_use]
    pub fn to_toml(&self, origin: &str, warnings: &[Warning]) -> String {
        let mut text = format!("# from {}\n", in_comment(origin));
        for warning in warnings {
            let _ = writeln!(
                text,
                "# {}: {}",
                warning.name(),
                in_comment(&warning.to_string())
            );
        }
        text + &toml::to_string_pretty(self).expect("a job has no value that TOML lacks")
    }
}

/// A text that stays within a comment, and that TOML takes.
fn in_comment(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

/// The commands of a job, a line each, as a shell would take them; its GPUs in front, as a batch script says them.
pub(super) fn as_script(job: &Job) -> String {
    let roles = job.roles.values().map(|role| &role.command);
    let commands = std::iter::once(&job.run.command).chain(roles);
    let mut text = String::new();
    if let Some(resources) = job
        .resources
        .as_ref()
        .filter(|resources| resources.gpus.0 >= 1_000)
    {
        let tasks = resources.tasks.unwrap_or(1).max(1);
        let gpus = resources.gpus.0 / 1_000 / tasks;
        let _ = writeln!(text, "#SBATCH --nodes={tasks} --gpus-per-node={gpus}");
    }
    for command in commands {
        text += &of_command(command);
        text.push('\n');
    }
    text
}

/// A command; of one that only prepares another, that one. What is handed to a shell is a script itself.
fn of_command(command: &[String]) -> String {
    match command {
        [shell, flag, script, rest @ ..] if is_shell(shell) && flag == "-c" => match rest {
            [_, setup, run] if script == super::skypilot::PRELUDE => format!("{setup}\n{run}"),
            [_, inner @ ..] if script.ends_with("exec \"$@\"\n") => of_command(inner),
            _ => script.clone(),
        },
        words => words
            .iter()
            .map(|word| quoted(word))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

fn is_shell(word: &str) -> bool {
    matches!(
        word.rsplit('/').next(),
        Some("sh" | "bash" | "zsh" | "dash")
    )
}

/// A word in quotes that a shell takes off.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
