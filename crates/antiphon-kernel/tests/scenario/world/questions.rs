//! What a scenario can ask.
//!
//! ```text
//! why a          the reason that rules        reasons a      all of them, ranked
//! check b: 8     the same for a job that is not submitted
//! change a       the smallest change that starts it now
//! forecast a     when it will start           expect a       how long it will still run
//! state a        where it stands              score a        why it runs there
//! past a         its attempts, and what they cost
//! deadline a     whether it counts            rank a         its tasks in rank order
//! findings a     what rules say of it           shards a       where its data came from
//! directives a   its directive log
//! books          what teams hold, have used, borrowed and lent
//! ```

use antiphon_kernel::{DeadlineRecord, Job, admit, explain, forecast};
use antiphon_types::*;

use super::World;
use super::describe::ended;

impl World {
    /// Answers, if it is a question.
    pub(super) fn asks(&mut self, words: &[&str]) -> bool {
        if let ["books"] = words {
            self.books();
            return true;
        }
        if let ["check", name, ..] = *words {
            self.check_file(name.trim_end_matches(':'), &words[2..]);
            return true;
        }
        let [question, name] = *words else {
            return false;
        };
        let answer = match question {
            "why" => Self::why,
            "reasons" => Self::reasons,
            "change" => Self::change,
            "forecast" => Self::forecast,
            "expect" => Self::expect,
            "state" => Self::state_of,
            "score" => Self::score,
            "past" => Self::past,
            "deadline" => Self::deadline,
            "rank" => Self::rank,
            "findings" => Self::findings,
            "reached" => Self::reached,
            "directives" => Self::directives,
            "shards" => Self::shards,
            _ => return false,
        };
        let id = self.id(name);
        let lines = match self.state.job(id) {
            Some(job) => answer(self, job),
            None => vec![format!("{id} is forgotten")],
        };
        lines.iter().for_each(|line| self.print(line));
        true
    }

    fn why(&self, job: &Job) -> Vec<String> {
        let reason = explain::reason(&self.state, job, self.at);
        let name = job.state.name();
        let reason = reason.map_or_else(|| name.to_owned(), |reason| reason.to_string());
        vec![format!("why {}: {reason}", job.id)]
    }

    fn reasons(&self, job: &Job) -> Vec<String> {
        ranked(
            &format!("why {}", job.id),
            &explain::reasons(&self.state, job, self.at),
        )
    }

    fn check_file(&mut self, name: &str, words: &[&str]) {
        let (spec, _) = self.spec(name, words);
        let command = Command::Submit {
            spec: Box::new(spec.clone()),
        };
        let lines = match admit(&self.state, &command) {
            Ok(()) => {
                let reasons = explain::would_wait(&self.state, &spec, self.at);
                ranked(&format!("check {name}"), &reasons)
            }
            Err(no) => vec![format!("check {name}: [{}] {no}; {}", no.code(), no.help())],
        };
        lines.iter().for_each(|line| self.print(line));
    }

    fn change(&self, job: &Job) -> Vec<String> {
        let change = explain::smallest_change(&self.state, job);
        let change = change.map_or_else(|| "none".to_owned(), |change| change.to_string());
        vec![format!("{} would start with {change}", job.id)]
    }

    fn forecast(&self, job: &Job) -> Vec<String> {
        let forecast = forecast::forecast(&self.state);
        let Some(start) = forecast.starts.get(&job.id) else {
            return vec![format!("{} starts nobody knows when", job.id)];
        };
        let in_ = |at: Timestamp| at.since(self.at);
        let latest = start.latest.map(|at| in_(at).to_string());
        vec![format!(
            "{} starts in {}, between {} and {}",
            job.id,
            in_(start.expected),
            in_(start.earliest),
            latest.as_deref().unwrap_or("nobody knows when")
        )]
    }

    fn expect(&self, job: &Job) -> Vec<String> {
        let unknown = || "nobody knows how long".to_owned();
        let line = match job.state.active() {
            Some(active) => {
                let left = |at: Option<Timestamp>| {
                    at.map_or_else(unknown, |at| at.since(self.at).to_string())
                };
                let (at, by) = (left(active.terms.ends_at), left(active.terms.ends_by));
                format!("{} runs for {at} more, at most {by}", active.attempt)
            }
            None => {
                let expect = &job.expect;
                let high = expect.high.map_or_else(unknown, |high| high.to_string());
                format!(
                    "{} will run for {}, at most {high} ({:?})",
                    job.id, expect.expected, expect.source
                )
            }
        };
        vec![line]
    }

    fn state_of(&self, job: &Job) -> Vec<String> {
        let active = job.state.active();
        let class = active.map(|active| active.class);
        let class = class.filter(|class| *class != job.spec.class);
        let class = class.map(|class| format!(", as {class}"));
        let (id, name) = (job.id, job.state.name());
        let idle = job.idle.map(|idle| {
            let since = self.at.since(idle.since);
            format!(", its GPUs at {} % for {since}", idle.utilization_percent)
        });
        let (class, idle) = (class.unwrap_or_default(), idle.unwrap_or_default());
        vec![format!("{id} is {name}{class}{idle}")]
    }

    fn score(&self, job: &Job) -> Vec<String> {
        let active = job.state.active().expect("a running job");
        let score = active.terms.score.iter();
        let lines = score.map(|line| format!("{}: {}", line.name, line.points));
        lines.collect()
    }

    fn past(&self, job: &Job) -> Vec<String> {
        let lines = job.attempts.iter().map(|past| {
            let cause = past.stopped.as_ref();
            format!(
                "{} ran on {} as {} for {}: {}{}, lost {}",
                past.attempt,
                past.allocation,
                past.class,
                past.ended.since(past.launched),
                cause.map_or_else(String::new, |cause| format!("{cause}, ")),
                ended(&past.outcome, past.ended),
                past.lost
            )
        });
        lines.collect()
    }

    fn deadline(&self, job: &Job) -> Vec<String> {
        let id = job.id;
        vec![match job.deadline {
            None => format!("{id} has no deadline"),
            Some(DeadlineRecord::Admitted) => format!("the deadline of {id} counts"),
            Some(DeadlineRecord::Ignored { needed, given }) => {
                format!(
                    "the deadline of {id} is ignored: it needs {needed}, the share gives {given}"
                )
            }
        }]
    }

    fn rank(&self, job: &Job) -> Vec<String> {
        let active = job.state.active().expect("a running job");
        let tasks = active.allocation.tasks.iter().map(|task| {
            let one = Allocation::from(vec![task.clone()]);
            format!("{}.{} {one}", task.role, task.index)
        });
        vec![tasks.collect::<Vec<_>>().join(", ")]
    }

    fn books(&mut self) {
        let teams = self.state.teams().all();
        let lines: Vec<_> = teams
            .map(|team| {
                let accounts = team.accounts.values();
                let used: GpuTime = accounts.map(|account| account.week(self.at)).sum();
                let name = &team.spec.name;
                let (borrowed, lent) = self.state.team_debts(name).unwrap();
                let holds = self.state.team_holds(name);
                format!("{name} holds {holds}, used {used}, borrowed {borrowed}, lent {lent}")
            })
            .collect();
        lines.iter().for_each(|line| self.print(line));
    }
}

fn ranked(question: &str, reasons: &[WaitReason]) -> Vec<String> {
    if reasons.is_empty() {
        return vec![format!("{question}: nothing")];
    }
    let join = |place| if place == 0 { question } else { "and" };
    let lines = reasons.iter().enumerate();
    lines
        .map(|(place, reason)| format!("{}: {reason}", join(place)))
        .collect()
}
