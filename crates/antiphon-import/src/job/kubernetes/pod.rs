//! A pod: what it runs, and what it needs.

use std::collections::BTreeMap;

use super::super::Origin;
use super::super::error::{JobError, JobProblem};
use super::super::keys::{Fate, Key, nearest};
use super::super::quantity::{kubernetes_millis, kubernetes_size, mebibytes, seconds};
use super::super::yaml::{Node, Notes};
use super::known::{CONTAINER, POD, RESOURCE, SELECTOR};
use super::{class_of, is_gpu};

/// What a pod runs and needs.
#[derive(Debug, Clone, Default)]
pub(super) struct Pod {
    pub(super) program: Program,
    pub(super) amounts: Amounts,
    pub(super) gpu_types: Vec<String>,
    pub(super) class: Option<&'static str>,
    pub(super) grace: Option<String>,
    pub(super) time_limit: Option<String>,
}

/// What a container runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Program {
    pub(super) command: Vec<String>,
    pub(super) workdir: Option<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) secrets: BTreeMap<String, String>,
}

/// What a container needs.
#[derive(Debug, Clone, Default)]
pub(super) struct Amounts {
    pub(super) gpus: u64,
    /// Of MIG devices.
    pub(super) profile: Option<String>,
    pub(super) cpus: Option<u64>,
    pub(super) memory: Option<String>,
    pub(super) scratch: Option<String>,
}

pub(super) fn read(
    spec: &Node<'_>,
    origin: &Origin<'_>,
    notes: &mut Notes,
) -> Result<Pod, JobError> {
    notes.check(spec, &[POD]);
    let containers = spec
        .get("containers")
        .map(|list| list.items())
        .unwrap_or_default();
    let asks = |container: &Node<'_>| {
        let of = |list: &str| container.at(&["resources", list]);
        let names = [of("limits"), of("requests")].into_iter().flatten();
        names.into_iter().any(|node| {
            node.entries()
                .iter()
                .any(|(name, _)| is_gpu(name) || name.starts_with("nvidia.com/mig-"))
        })
    };
    let chosen = containers.iter().position(asks).unwrap_or(0);
    let Some(container) = containers.get(chosen) else {
        return Err(nothing(spec, "the pod has no containers"));
    };
    for (index, other) in containers.iter().enumerate() {
        if index != chosen {
            let name = other.get("name").unwrap_or_else(|| other.clone());
            notes.not_honored(
                &name,
                "one container of a pod runs: the first that asks for GPUs, or the first",
            );
        }
    }
    notes.check(container, &[CONTAINER]);
    let program = program(container, notes)?;
    if program.command.is_empty() {
        return Err(nothing(
            container,
            "the container has no `command`, and its image's is not known",
        ));
    }
    let mut amounts = Amounts::default();
    if let Some(resources) = container.get("resources") {
        amounts = self::amounts(&resources, notes)?;
    }
    volumes(spec, container, notes);
    Ok(Pod {
        program,
        amounts,
        gpu_types: gpu_types(spec, origin, notes)?,
        class: match spec.get("priorityClassName") {
            Some(node) => class_of(&node, notes)?,
            None => None,
        },
        grace: span(spec, "terminationGracePeriodSeconds")?,
        time_limit: span(spec, "activeDeadlineSeconds")?,
    })
}

fn span(spec: &Node<'_>, key: &str) -> Result<Option<String>, JobError> {
    let count = spec.get(key).map(|node| node.count()).transpose()?;
    Ok(count.map(|count| seconds(count.max(1))))
}

fn nothing(node: &Node<'_>, why: &str) -> JobError {
    JobProblem::NothingToRun {
        place: node.place(),
        why: why.to_owned(),
        help: "write the command into the file".into(),
    }
    .into()
}

/// Command, arguments and variables, with `$(NAME)` put in.
pub(super) fn program(container: &Node<'_>, notes: &mut Notes) -> Result<Program, JobError> {
    let mut environment = BTreeMap::new();
    let mut secrets = BTreeMap::new();
    for entry in container
        .get("env")
        .map(|list| list.items())
        .unwrap_or_default()
    {
        let name = match entry.get("name") {
            Some(name) => name.text()?,
            None => continue,
        };
        let ours = name.starts_with("ANTIPHON_") || name.is_empty() || name.contains('=');
        if ours {
            notes.not_honored(
                &entry,
                format!("`{name}` is no variable that a job may set"),
            );
            continue;
        }
        if let Some(from) = entry.get("valueFrom") {
            if let Some(secret) = from.get("secretKeyRef") {
                notes.differs(
                    &secret,
                    format!("`{name}` is read from the server's variable of that name, where its operator offers it; `run.secrets` may name a file instead"),
                );
                secrets.insert(name.clone(), format!("env:{name}"));
                continue;
            }
            let what = from
                .entries()
                .first()
                .map_or("valueFrom", |(key, _)| key.as_str());
            notes.not_honored(
                &from,
                format!("`{name}` comes from a `{what}`; set it in `run.environment`"),
            );
            continue;
        }
        let value = entry
            .get("value")
            .map(|value| value.text())
            .transpose()?
            .unwrap_or_default();
        let value = literal(&value, &environment);
        environment.insert(name, value);
    }
    let mut words = Vec::new();
    for key in ["command", "args"] {
        if let Some(node) = container.get(key) {
            words.extend(node.texts()?);
        }
    }
    Ok(Program {
        command: expanded(&words, &environment),
        workdir: container
            .get("workingDir")
            .map(|node| node.text())
            .transpose()?,
        environment,
        secrets,
    })
}

/// One part of a text with `$(NAME)` in it.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    Name(&'a str),
}

/// Takes a text apart as Kubernetes does: `$$` is a dollar, and `$(` without its end is text.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        parts.push(Part::Text(before));
        if let Some(after) = from.strip_prefix("$$") {
            parts.push(Part::Text("$"));
            rest = after;
        } else if let Some((name, after)) = from
            .strip_prefix("$(")
            .and_then(|inner| inner.split_once(')'))
        {
            parts.push(Part::Name(name));
            rest = after;
        } else {
            parts.push(Part::Text("$"));
            rest = from.get(1..).unwrap_or_default();
        }
    }
    parts.push(Part::Text(rest));
    parts
}

/// A text with the variables put in that are set in the file; others stay as they are written, as Kubernetes leaves them.
fn literal(text: &str, environment: &BTreeMap<String, String>) -> String {
    let part = |part: Part<'_>| match part {
        Part::Text(text) => text.to_owned(),
        Part::Name(name) => environment
            .get(name)
            .cloned()
            .unwrap_or_else(|| format!("$({name})")),
    };
    parts(text).into_iter().map(part).collect()
}

/// Variables that a task finds, whoever starts it.
fn is_set_at_launch(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let names = [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "JOB_COMPLETION_INDEX",
    ];
    names.contains(&name) || name.starts_with("PET_") && name.chars().all(legal)
}

/// A command with its variables put in; those that only a launch sets are read by a shell, in words that hold nothing else of the file's.
fn expanded(words: &[String], environment: &BTreeMap<String, String>) -> Vec<String> {
    let known = |part: &Part<'_>| matches!(part, Part::Name(name) if !environment.contains_key(*name) && is_set_at_launch(name));
    if !words.iter().any(|word| parts(word).iter().any(known)) {
        return words
            .iter()
            .map(|word| literal(word, environment))
            .collect();
    }
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let word = |word: &String| -> String {
        let part = |part: Part<'_>| match part {
            // With torchrun's variables a task has no others where it holds several GPUs.
            Part::Name("MASTER_ADDR") if known(&Part::Name("MASTER_ADDR")) => {
                "\"${MASTER_ADDR:-$PET_MASTER_ADDR}\"".into()
            }
            Part::Name("MASTER_PORT") if known(&Part::Name("MASTER_PORT")) => {
                "\"${MASTER_PORT:-$PET_MASTER_PORT}\"".into()
            }
            Part::Name("RANK") if known(&Part::Name("RANK")) => {
                "\"${RANK:-$PET_NODE_RANK}\"".into()
            }
            Part::Name("WORLD_SIZE") if known(&Part::Name("WORLD_SIZE")) => {
                "\"${WORLD_SIZE:-$PET_NNODES}\"".into()
            }
            Part::Name(name) if known(&Part::Name(name)) => format!("\"${{{name}}}\""),
            Part::Name(name) => quoted(
                &environment
                    .get(name)
                    .cloned()
                    .unwrap_or_else(|| format!("$({name})")),
            ),
            Part::Text(text) => quoted(text),
        };
        parts(word).into_iter().map(part).collect()
    };
    let words: Vec<String> = words.iter().map(word).collect();
    vec![
        "sh".into(),
        "-c".into(),
        format!("exec {}", words.join(" ")),
    ]
}

/// Finds a key, also by a pattern that ends in `*`.
fn of_pattern(table: &'static [Key], name: &str) -> Option<&'static Key> {
    let matches = |key: &&Key| match key.name.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => key.name == name,
    };
    table.iter().find(matches)
}

/// What `resources` come to: requests, and limits where nothing is requested.
pub(super) fn amounts(resources: &Node<'_>, notes: &mut Notes) -> Result<Amounts, JobError> {
    let mut amounts = Amounts::default();
    let mut seen: BTreeMap<String, Node<'_>> = BTreeMap::new();
    let lists = [resources.get("requests"), resources.get("limits")];
    // TrainJob's resources are of the same form, or the amounts themselves.
    let plain = lists.iter().all(Option::is_none).then(|| resources.clone());
    for list in lists.into_iter().flatten().chain(plain) {
        for (name, node) in list.entries() {
            seen.entry(name.clone()).or_insert(node);
        }
    }
    for (name, node) in seen {
        match of_pattern(RESOURCE, &name).map(|key| key.fate) {
            Some(Fate::Harmless(_)) => (),
            Some(Fate::Refused(effect)) => notes.not_honored(&node, effect),
            None => notes.not_honored(
                &node,
                match nearest(&[RESOURCE], &name) {
                    Some(near) => format!("antiphon does not know it; is `{near}` meant?"),
                    None => "antiphon does not know it".into(),
                },
            ),
            Some(Fate::Becomes(_)) => amount(&name, &node, &mut amounts)?,
        }
    }
    Ok(amounts)
}

fn amount(name: &str, node: &Node<'_>, amounts: &mut Amounts) -> Result<(), JobError> {
    let text = node.text()?;
    match name {
        "cpu" => {
            let millis =
                kubernetes_millis(&text).ok_or_else(|| node.bad("CPUs like `8` or `500m`"))?;
            amounts.cpus = Some(millis.div_ceil(1_000).clamp(1, 1_000_000));
        }
        "memory" => {
            let size = kubernetes_size(&text).ok_or_else(|| node.bad("a size like `64Gi`"))?;
            amounts.memory = Some(mebibytes(size)).filter(|_| size > 0);
        }
        "ephemeral-storage" => {
            let size = kubernetes_size(&text).ok_or_else(|| node.bad("a size like `64Gi`"))?;
            amounts.scratch = Some(mebibytes(size)).filter(|_| size > 0);
        }
        _ => {
            amounts.gpus = node.count()?;
            if let Some(profile) = name.strip_prefix("nvidia.com/mig-") {
                amounts.profile = super::super::mig_profile(profile).filter(|_| amounts.gpus > 0);
            }
        }
    }
    Ok(())
}

/// GPU types that `nodeSelector` or a required node affinity names.
fn gpu_types(
    spec: &Node<'_>,
    origin: &Origin<'_>,
    notes: &mut Notes,
) -> Result<Vec<String>, JobError> {
    let named = |name: String| match (origin.gpu_types)(&name).as_slice() {
        [one] => one.clone(),
        _ => name,
    };
    let follows = |label: &str| {
        matches!(
            super::find(&[SELECTOR], label).map(|key| key.fate),
            Some(Fate::Becomes(_))
        )
    };
    let mut types = Vec::new();
    if let Some(selector) = spec.get("nodeSelector") {
        for (label, node) in selector.entries() {
            match super::find(&[SELECTOR], label).map(|key| key.fate) {
                Some(Fate::Becomes(_)) => types = vec![named(node.text()?)],
                Some(Fate::Harmless(_)) => (),
                Some(Fate::Refused(_)) | None => notes.not_honored(
                    &node,
                    "antiphon knows GPU types and partitions of nodes, and no labels",
                ),
            }
        }
    }
    let Some(affinity) = spec.get("affinity") else {
        return Ok(types);
    };
    for (kind, node) in affinity.entries() {
        let required = (kind == "nodeAffinity")
            .then(|| node.get("requiredDuringSchedulingIgnoredDuringExecution"));
        let Some(required) = required.flatten() else {
            notes.not_honored(
                &node,
                "antiphon places tasks; `span` says how far apart they may be",
            );
            continue;
        };
        for term in required
            .get("nodeSelectorTerms")
            .map(|terms| terms.items())
            .unwrap_or_default()
        {
            for rule in term
                .get("matchExpressions")
                .map(|rules| rules.items())
                .unwrap_or_default()
            {
                let label = rule
                    .get("key")
                    .map(|key| key.text())
                    .transpose()?
                    .unwrap_or_default();
                let within = rule
                    .get("operator")
                    .is_some_and(|operator| operator.value() == "In");
                match rule.get("values").filter(|_| within && follows(&label)) {
                    Some(values) => types.extend(values.texts()?.into_iter().map(named)),
                    None => notes.not_honored(
                        &rule.get("key").unwrap_or(rule),
                        "antiphon knows GPU types and partitions of nodes, and no labels",
                    ),
                }
            }
        }
    }
    types.dedup();
    Ok(types)
}

/// Volumes: what is the node's own anyway needs no mount.
fn volumes(spec: &Node<'_>, container: &Node<'_>, notes: &mut Notes) {
    let text = |node: &Node<'_>, key: &str| {
        node.get(key)
            .and_then(|node| node.value().as_str().map(str::to_owned))
    };
    let volumes = spec
        .get("volumes")
        .map(|list| list.items())
        .unwrap_or_default();
    for mount in container
        .get("volumeMounts")
        .map(|list| list.items())
        .unwrap_or_default()
    {
        let path = text(&mount, "mountPath").unwrap_or_default();
        let name = text(&mount, "name").unwrap_or_default();
        let volume = volumes
            .iter()
            .find(|volume| text(volume, "name").as_deref() == Some(&name));
        let host = volume.and_then(|volume| text(&volume.get("hostPath")?, "path"));
        let below = text(&mount, "subPath").is_some();
        let memory =
            volume.is_some_and(|volume| volume.get("emptyDir").is_some()) && path == "/dev/shm";
        if memory
            || !below
                && host.is_some_and(|host| host.trim_end_matches('/') == path.trim_end_matches('/'))
        {
            continue;
        }
        notes.not_honored(
            &mount.get("mountPath").unwrap_or(mount),
            format!(
                "the job file has no mounts: `{}` is the node's own",
                crate::place::short(&path)
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in_as_kubernetes_does() {
        let environment = BTreeMap::from([("A".to_owned(), "x 'y'".to_owned())]);
        let words = |words: &[&str]| -> Vec<String> {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            expanded(&words, &environment)
        };
        assert_eq!(
            words(&["run", "--a=$(A)", "$(B)", "$$(A)", "$x"]),
            ["run", "--a=x 'y'", "$(B)", "$(A)", "$x"]
        );
        assert_eq!(
            words(&["torchrun", "--nnodes=$(PET_NNODES)", "it's; $(A)"]),
            [
                "sh",
                "-c",
                "exec 'torchrun' '--nnodes='\"${PET_NNODES}\"'' 'it'\\''s; ''x '\\''y'\\'''''"
            ]
        );
    }
}
