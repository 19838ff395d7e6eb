//! A person's side of the two-way loop: approve what a rule found, take a directive back, send one, see where a shard came
//! from.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use antiphon_server::api::model::{
    ApprovalIn, CommandAccepted, DirectiveBodyIn, OriginView, ShardsView,
};
use serde_json::{Map, Value};

use crate::cli::{ApproveArgs, DirectArgs, Exit, ProvenanceArgs, Target, UndoArgs};
use crate::client::{Client, escape, new_key};
use crate::failure::Failure;
use crate::queue;
use crate::render::{self, plain, print, say};

/// Acts on a finding that waits for a word.
pub(crate) fn approve(target: &Target, args: &ApproveArgs) -> Result<ExitCode, Failure> {
    let body = ApprovalIn {
        rule: args.rule.clone(),
        subject: args.subject.clone(),
    };
    let path = format!("/v1/jobs/{}/approve", escape(&args.job));
    let of = args.subject.as_deref();
    let of = of.map_or_else(String::new, |subject| format!(" about `{subject}`"));
    let done = format!("is acted on as rule `{}` asks{of}", args.rule);
    send(target, (&args.job, args.json), &path, &body, &done)
}

/// Takes a directive back.
pub(crate) fn undo(target: &Target, args: &UndoArgs) -> Result<ExitCode, Failure> {
    let (job, number) = (&args.job, args.directive);
    let path = format!("/v1/jobs/{}/directives/{number}/undo", escape(job));
    let done = format!(
        "is sent what undoes #{number}; a rule that asked for it asks no more until `antiphon approve`"
    );
    send(target, (job, args.json), &path, &Value::Null, &done)
}

/// Sends a directive to a job's trainer.
pub(crate) fn direct(target: &Target, args: &DirectArgs) -> Result<ExitCode, Failure> {
    let path = format!("/v1/jobs/{}/directives", escape(&args.job));
    let done = format!("is sent `{}`", args.what);
    send(target, (&args.job, args.json), &path, &body(args)?, &done)
}

/// What is sent: `KEY=VALUE` by the names of the wire form, or shards with their weights.
fn body(args: &DirectArgs) -> Result<Value, Failure> {
    let wrong = |why: String| {
        Failure::new(
            Exit::Refused,
            "AP0501",
            format!("`{}` cannot be sent", args.what),
        )
        .why(why)
        .help("see docs/concepts/directives.md for what each directive takes")
    };
    let mut body = Map::new();
    let mut weights = Map::new();
    for word in &args.fields {
        let Some((key, text)) = word.split_once('=') else {
            return Err(wrong(format!("`{word}` is no KEY=VALUE")));
        };
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        if args.what == "set_weights" {
            weights.insert(key.to_owned(), value);
        } else {
            body.insert(key.to_owned(), value);
        }
    }
    if !weights.is_empty() {
        body.insert("weights".into(), Value::Object(weights));
    }
    body.insert("do".into(), args.what.clone().into());
    body.insert("reason".into(), args.reason.clone().into());
    let value = Value::Object(body);
    // What is misspelled is said here already.
    let read: Result<DirectiveBodyIn, _> = serde_json::from_value(value.clone());
    read.map(|_| value)
        .map_err(|error| wrong(error.to_string()))
}

fn send(
    target: &Target,
    (job, json): (&str, bool),
    path: &str,
    body: &impl serde::Serialize,
    done: &str,
) -> Result<ExitCode, Failure> {
    let body = serde_json::to_value(body).expect("a body is plain data");
    let accepted: CommandAccepted = Client::new(target)?.post(path, &new_key(), &body)?;
    if json {
        render::json(&accepted);
    } else {
        say(&format!(
            "{} {done}",
            accepted.job.as_deref().unwrap_or(job)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Draws where a shard came from, and what else came from there.
pub(crate) fn provenance(target: &Target, args: &ProvenanceArgs) -> Result<ExitCode, Failure> {
    let client = Client::new(target)?;
    let shards = match &args.job {
        Some(job) => of_job(&client, job)?,
        None => newest_with(&client, &args.shard)?,
    };
    let Some(family) = Family::of(&args.shard, &shards.shards) else {
        let known: Vec<String> = shards
            .shards
            .iter()
            .map(|shard| format!("`{}`", plain(&shard.id)))
            .take(5)
            .collect();
        let there = match known.as_slice() {
            [] => "it names no shards".to_owned(),
            some => format!(
                "it knows {} shards, like {}",
                shards.shards.len(),
                some.join(", ")
            ),
        };
        let what = format!(
            "nothing is known of shard `{}` in {}",
            plain(&args.shard),
            shards.job
        );
        return Err(Failure::new(Exit::Refused, "AP0508", what).why(there).help(
            "give `--job`, or name its shards in the job file with `[data] shards = \"FILE\"`",
        ));
    };
    if args.json {
        render::json(&family.views());
    } else {
        print(&family.drawn(&shards.job));
    }
    Ok(ExitCode::SUCCESS)
}

fn of_job(client: &Client, job: &str) -> Result<ShardsView, Failure> {
    client.get(&format!("/v1/jobs/{}/shards", escape(job)))
}

/// The shards of the newest job that knows this one; of the newest job where none does.
fn newest_with(client: &Client, shard: &str) -> Result<ShardsView, Failure> {
    let mut first = None;
    let jobs = queue::listed(client, "all=true")?;
    let mut ids: Vec<(u64, String)> = jobs
        .into_iter()
        .map(|job| {
            let number = job.id.trim_start_matches("job-").parse().unwrap_or(0);
            (number, job.id)
        })
        .collect();
    ids.sort_unstable_by(|one, other| other.cmp(one));
    for (_, id) in ids {
        let shards = of_job(client, &id)?;
        if shards.shards.iter().any(|known| known.id == shard) {
            return Ok(shards);
        }
        first.get_or_insert(shards);
    }
    first.ok_or_else(|| {
        Failure::new(Exit::Refused, "AP0508", "no job was ever submitted")
            .help("`antiphon submit` a job whose file names its shards")
    })
}

/// A shard, what it was made from, what was made from it, and what else came from the same place.
struct Family<'a> {
    shard: &'a OriginView,
    by_id: BTreeMap<&'a str, &'a OriginView>,
}

impl<'a> Family<'a> {
    fn of(shard: &str, shards: &'a [OriginView]) -> Option<Self> {
        let by_id: BTreeMap<&str, &OriginView> = shards
            .iter()
            .map(|known| (known.id.as_str(), known))
            .collect();
        let shard = *by_id.get(shard)?;
        Some(Self { shard, by_id })
    }

    /// Shards with a parent in common, or from the same chunk of one source.
    fn siblings(&self) -> Vec<&'a OriginView> {
        let own: BTreeSet<&String> = self.shard.parents.iter().collect();
        let one_place = |other: &OriginView| {
            !self.shard.source.is_empty()
                && other.source == self.shard.source
                && other.chunk == self.shard.chunk
        };
        let others = self.by_id.values().copied();
        others
            .filter(|other| other.id != self.shard.id)
            .filter(|other| one_place(other) || other.parents.iter().any(|one| own.contains(one)))
            .collect()
    }

    fn children(&self) -> Vec<&'a OriginView> {
        let others = self.by_id.values().copied();
        others
            .filter(|other| other.parents.contains(&self.shard.id))
            .collect()
    }

    fn views(&self) -> BTreeMap<&'static str, Vec<&'a OriginView>> {
        let mut ancestors = Vec::new();
        self.ancestors(self.shard, &mut BTreeSet::new(), &mut ancestors);
        BTreeMap::from([
            ("shard", vec![self.shard]),
            ("ancestors", ancestors),
            ("siblings", self.siblings()),
            ("children", self.children()),
        ])
    }

    fn ancestors(
        &self,
        of: &'a OriginView,
        met: &mut BTreeSet<&'a str>,
        found: &mut Vec<&'a OriginView>,
    ) {
        for parent in &of.parents {
            // Nobody checks that no shard is its own ancestor.
            if met.insert(parent)
                && let Some(known) = self.by_id.get(parent.as_str())
            {
                found.push(known);
                self.ancestors(known, met, found);
            }
        }
    }

    fn drawn(&self, job: &str) -> String {
        let mut text = format!("{}  in {job}\n", told(self.shard));
        self.draw_parents(self.shard, "", &mut BTreeSet::new(), &mut text);
        for (title, shards) in [
            ("siblings", self.siblings()),
            ("made from it", self.children()),
        ] {
            if !shards.is_empty() {
                text += &format!("{title}\n");
            }
            for shard in shards {
                text += &format!("  {}\n", told(shard));
            }
        }
        text
    }

    /// Parents hang below what was made from them; one met before is named and not followed again.
    fn draw_parents(
        &self,
        of: &'a OriginView,
        indent: &str,
        met: &mut BTreeSet<&'a str>,
        text: &mut String,
    ) {
        for (index, parent) in of.parents.iter().enumerate() {
            let last = index + 1 == of.parents.len();
            let (branch, below) = if last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            let known = self.by_id.get(parent.as_str());
            let line = known.map_or_else(
                || format!("{}  (nothing is known of it)", plain(parent)),
                |known| told(known),
            );
            *text += &format!("{indent}{branch}{line}\n");
            if met.insert(parent)
                && let Some(known) = known
            {
                self.draw_parents(known, &format!("{indent}{below}"), met, text);
            }
        }
    }
}

/// A shard on one line: where it came from, and what rules hold against it.
fn told(shard: &OriginView) -> String {
    let place = match (shard.source.as_str(), shard.chunk.as_str()) {
        ("", "") => String::new(),
        (source, "") => format!("from {source}"),
        (source, chunk) => format!("from {source}, {chunk}"),
    };
    let maker = if shard.generator.is_empty() {
        String::new()
    } else {
        let degrees = shard
            .temperature
            .map(|degrees| format!(" at temperature {degrees}"));
        format!("by {}{}", shard.generator, degrees.unwrap_or_default())
    };
    let attempt = shard
        .made_by
        .as_ref()
        .map(|attempt| format!("in {attempt}"));
    let code = Some(&shard.code).filter(|code| !code.is_empty());
    let parts = [
        shard.category.clone(),
        place,
        maker,
        attempt.unwrap_or_default(),
        code.map(|code| format!("code {code}")).unwrap_or_default(),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let flags: String = shard
        .findings
        .iter()
        .map(|what| format!("  [{what}]"))
        .collect();
    let about = if parts.is_empty() {
        String::new()
    } else {
        format!("  ({})", plain(&parts.join("; ")))
    };
    format!("{}{about}{flags}", plain(&shard.id))
}
