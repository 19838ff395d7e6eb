//! Kubernetes manifests: Job, JobSet, Kubeflow's PyTorchJob and TrainJob, Volcano's Job, Pod, and PodGroup beside them. Images are not
//! run: a container's command runs on the node as it is. Speaks to no cluster.

use std::collections::BTreeMap;

use super::Origin;
use super::error::{JobError, JobProblem};
use super::form::{Gpus, Job, Resources, Retry, Role, job_name};
use super::keys::{Fate, find};
use super::quantity::seconds;
use super::yaml::{Document, Node, Notes, documents};
use crate::place::Place;
use crate::warning::Warning;

mod known;
mod pod;

use known::{
    JOB, JOB_SET, META, POD_GROUP, PYTORCH, REPLICATED, RUN_POLICY, TASK, TRAIN_JOB, TRAINER,
    VOLCANO,
};
use pod::Pod;

/// Whether a text is a manifest.
pub(super) fn is_manifest(text: &str) -> bool {
    let has = |key: &str| {
        if text.trim_start().starts_with('{') {
            return text.contains(&format!("\"{key}\""));
        }
        text.lines()
            .filter_map(|line| line.trim_start_matches('"').strip_prefix(key))
            .any(|rest| rest.trim_start_matches('"').trim_start().starts_with(':'))
    };
    has("apiVersion") && has("kind")
}

/// What is known of the format.
pub(super) fn tables() -> Vec<(&'static str, Vec<(String, Fate)>)> {
    super::keys::plain(&[
        ("`metadata`", META),
        ("`spec` of Job", JOB),
        ("`spec` of JobSet", JOB_SET),
        ("`replicatedJobs` of JobSet", REPLICATED),
        ("`spec` of PyTorchJob", PYTORCH),
        ("`runPolicy` of PyTorchJob", RUN_POLICY),
        ("replicas of PyTorchJob", known::REPLICAS),
        ("`spec` of TrainJob", TRAIN_JOB),
        ("`trainer` of TrainJob", TRAINER),
        ("`spec` of Volcano's Job", VOLCANO),
        ("`tasks` of Volcano's Job", TASK),
        ("`spec` of PodGroup", POD_GROUP),
        ("pod", known::POD),
        ("container", known::CONTAINER),
        ("resource", known::RESOURCE),
        ("label of `nodeSelector`", known::SELECTOR),
    ])
}

/// The jobs of a manifest.
pub(super) fn jobs(text: &str, origin: &Origin<'_>) -> Result<(Vec<Job>, Vec<Warning>), JobError> {
    let documents = documents(text, origin.name)?;
    let mut notes = Notes::new(origin.name);
    let mut jobs = Vec::new();
    let mut kinds = Vec::new();
    let mut groups = Vec::new();
    for object in documents.iter().flat_map(objects) {
        let kind = object
            .get("kind")
            .map(|kind| kind.text())
            .transpose()?
            .unwrap_or_default();
        let version = object
            .get("apiVersion")
            .map(|version| version.text())
            .transpose()?
            .unwrap_or_default();
        let mut reader = Reader {
            origin,
            notes: &mut notes,
            object: &object,
        };
        let job = match kind.as_str() {
            "Job" if version.starts_with("batch.volcano.sh") => reader.volcano()?,
            "Job" => reader.batch_job()?,
            "JobSet" => reader.job_set()?,
            "PyTorchJob" => reader.pytorch_job()?,
            "TrainJob" => reader.train_job()?,
            "Pod" => reader.pod()?,
            "PodGroup" => {
                groups.push(object.clone());
                continue;
            }
            _ => {
                kinds.push(kind.clone());
                other(&object, &kind, &mut notes);
                continue;
            }
        };
        jobs.push(job);
    }
    for group in groups {
        pod_group(&group, &mut jobs, &mut notes)?;
    }
    if jobs.is_empty() {
        let there = match kinds.as_slice() {
            [] => "it has no object with a `kind`".into(),
            kinds => format!("it has {}", crate::error::quoted(kinds)),
        };
        return Err(JobProblem::NoJob {
            file: origin.name.to_owned(),
            there,
        }
        .into());
    }
    Ok((jobs, notes.finish()))
}

/// The objects of a document: itself, or those of a list.
fn objects(document: &Document) -> Vec<Node<'_>> {
    let root = document.root();
    let list = root.get("kind").is_some_and(|kind| kind.value() == "List");
    match root.get("items").filter(|_| list) {
        Some(items) => items.items(),
        None => vec![root],
    }
}

/// An object that is no job.
fn other(object: &Node<'_>, kind: &str, notes: &mut Notes) {
    let node = object.get("kind").unwrap_or_else(|| object.clone());
    match kind {
        "Service" => notes.differs(
            &node,
            "tasks find each other by `PET_MASTER_ADDR` and `PET_MASTER_PORT`",
        ),
        _ => notes.not_honored(
            &node,
            "antiphon makes no such object: jobs alone are submitted",
        ),
    }
}

/// A group of pods that start together: every job of antiphon is one.
fn pod_group(group: &Node<'_>, jobs: &mut [Job], notes: &mut Notes) -> Result<(), JobError> {
    let Some(spec) = group.get("spec") else {
        return Ok(());
    };
    notes.check(&spec, &[POD_GROUP]);
    let tasks = |job: &Job| -> u64 {
        let of = |resources: &Resources| resources.tasks.unwrap_or(1);
        job.resources.iter().map(of).sum::<u64>()
            + job
                .roles
                .values()
                .map(|role| of(&role.resources))
                .sum::<u64>()
    };
    if let Some(members) = spec.get("minMember") {
        let least = members.count()?;
        if jobs
            .iter()
            .any(|job| tasks(job) > least && job.array.is_none())
        {
            notes.differs(&members, "all tasks of a job start together, or none");
        }
    }
    if let Some(queue) = spec.get("queue") {
        let team = job_name(&queue.text()?);
        for job in jobs.iter_mut().filter(|job| job.team.is_none()) {
            job.team = Some(team.clone());
        }
    }
    if let Some(class) = spec.get("priorityClassName") {
        for job in jobs.iter_mut().filter(|job| job.class.is_none()) {
            job.class = class_of(&class, notes)?;
        }
    }
    Ok(())
}

/// A priority class that is called like a class of antiphon.
fn class_of(node: &Node<'_>, notes: &mut Notes) -> Result<Option<&'static str>, JobError> {
    let name = node.text()?;
    let class = match name.as_str() {
        "service" => "service",
        "production" | "prod" => "production",
        "standard" | "default" => "standard",
        "best-effort" | "besteffort" | "preemptible" | "low" | "low-priority" => "best-effort",
        _ => {
            notes.not_honored(node, "the class is `standard`; there are `service`, `production`, `standard` and `best-effort`");
            return Ok(None);
        }
    };
    if class != name {
        notes.differs(node, format!("the class is `{class}`"));
    }
    Ok(Some(class))
}

struct Reader<'a, 'd, 'o> {
    origin: &'a Origin<'o>,
    notes: &'a mut Notes,
    object: &'a Node<'d>,
}

impl<'d> Reader<'_, 'd, '_> {
    /// A job with the name and team of the object.
    fn named(&mut self) -> Result<(Job, Node<'d>), JobError> {
        let mut job = Job {
            name: job_name(self.origin.name),
            ..Job::default()
        };
        if let Some(meta) = self.object.get("metadata") {
            self.notes.check(&meta, &[META]);
            let name = meta.get("name").or_else(|| meta.get("generateName"));
            if let Some(name) = name {
                job.name = job_name(name.text()?.trim_end_matches('-'));
            }
            let namespace = meta
                .get("namespace")
                .map(|namespace| namespace.text())
                .transpose()?;
            job.team = namespace
                .filter(|name| name != "default")
                .map(|name| job_name(&name));
            if let Some(labels) = meta.get("labels") {
                if let Some(queue) = labels.get("kueue.x-k8s.io/queue-name") {
                    job.team = Some(job_name(&queue.text()?));
                }
                if let Some(class) = labels.get("kueue.x-k8s.io/priority-class") {
                    job.class = class_of(&class, self.notes)?;
                }
            }
        }
        let spec = self.object.get("spec").ok_or_else(|| {
            JobError::from(JobProblem::NothingToRun {
                place: self.object.place(),
                why: "the object has no `spec`".into(),
                help: "add it, or take the object out of the file".into(),
            })
        })?;
        Ok((job, spec))
    }

    /// A pod that some `template` holds.
    fn template(&mut self, holder: &Node<'d>) -> Result<Pod, JobError> {
        let template = holder.get("template");
        let spec = template.as_ref().and_then(|template| template.get("spec"));
        let spec = spec.ok_or_else(|| {
            JobError::from(JobProblem::NothingToRun {
                place: holder.place(),
                why: "there is no `template.spec`".into(),
                help: "add the pod that runs".into(),
            })
        })?;
        pod::read(&spec, self.origin, self.notes)
    }

    /// Puts what pods say of the whole job into it.
    fn of_pod(&mut self, job: &mut Job, pod: &Pod) {
        job.class = job.class.or(pod.class);
        job.run.grace = job.run.grace.take().or_else(|| pod.grace.clone());
        job.run.time_limit = job.run.time_limit.take().or_else(|| pod.time_limit.clone());
        if let Some(program) = &pod.program.workdir {
            job.run.workdir.get_or_insert_with(|| program.clone());
        }
        job.run.secrets.extend(pod.program.secrets.clone());
        for (name, value) in &pod.program.environment {
            job.run
                .environment
                .entry(name.clone())
                .or_insert_with(|| value.clone());
        }
    }

    /// One role of so many equal tasks.
    fn alone(&mut self, job: &mut Job, pod: Pod, tasks: u64) {
        self.of_pod(job, &pod);
        job.resources = Some(pod.resources(tasks));
        job.run.command = pod.program.command;
    }

    /// Whether a job waits to be released. One in a queue of Kueue's is suspended until Kueue admits it, which antiphon does itself.
    fn held(&self, job: &mut Job, spec: &Node<'_>) {
        let queued = self
            .object
            .at(&["metadata", "labels", "kueue.x-k8s.io/queue-name"])
            .is_some();
        if !queued
            && spec
                .get("suspend")
                .is_some_and(|suspend| suspend.value() == true)
        {
            job.held = Some(true);
        }
    }

    fn limits(&self, job: &mut Job, spec: &Node<'_>) -> Result<(), JobError> {
        if let Some(limit) = spec.get("backoffLimit") {
            job.retry = Some(Retry {
                retries: limit.count()?,
            });
        }
        if let Some(limit) = spec.get("activeDeadlineSeconds") {
            job.run.time_limit = Some(seconds(limit.count()?.max(1)));
        }
        self.held(job, spec);
        Ok(())
    }

    fn pod(&mut self) -> Result<Job, JobError> {
        let (mut job, spec) = self.named()?;
        let pod = pod::read(&spec, self.origin, self.notes)?;
        self.alone(&mut job, pod, 1);
        Ok(job)
    }

    fn batch_job(&mut self) -> Result<Job, JobError> {
        let (mut job, spec) = self.named()?;
        self.notes.check(&spec, &[JOB]);
        let pod = self.template(&spec)?;
        self.limits(&mut job, &spec)?;
        let number = |key: &str| spec.get(key).map(|node| node.count()).transpose();
        let at_once = number("parallelism")?.unwrap_or(1);
        let all = number("completions")?.unwrap_or(at_once).max(1);
        let indexed = spec
            .get("completionMode")
            .is_some_and(|mode| mode.value() == "Indexed");
        if at_once == 0 {
            job.held = Some(true);
        }
        // Pods that have an index and run together are ranks of one training; others are jobs of their own.
        if indexed && at_once >= all || all == 1 {
            self.alone(&mut job, pod, all);
            if indexed {
                index(&mut job.run.command, "ANTIPHON_TASK_INDEX");
            }
        } else {
            self.alone(&mut job, pod, 1);
            job.array = Some(match at_once {
                at_once if at_once > 0 && at_once < all => format!("0-{}%{at_once}", all - 1),
                _ => format!("0-{}", all - 1),
            });
            if indexed {
                index(&mut job.run.command, "ANTIPHON_ARRAY_INDEX");
            }
        }
        Ok(job)
    }

    fn job_set(&mut self) -> Result<Job, JobError> {
        let (mut job, spec) = self.named()?;
        self.notes.check(&spec, &[JOB_SET]);
        self.held(&mut job, &spec);
        if let Some(policy) = spec.at(&["failurePolicy", "maxRestarts"]) {
            job.retry = Some(Retry {
                retries: policy.count()?,
            });
        }
        let mut roles = Vec::new();
        for replicated in spec
            .get("replicatedJobs")
            .map(|list| list.items())
            .unwrap_or_default()
        {
            self.notes.check(&replicated, &[REPLICATED]);
            let name = replicated.get("name").map(|name| name.text()).transpose()?;
            let replicas = replicated
                .get("replicas")
                .map(|node| node.count())
                .transpose()?
                .unwrap_or(1);
            let Some(inner) = replicated.at(&["template", "spec"]) else {
                continue;
            };
            self.notes.check(&inner, &[JOB]);
            let pods = inner
                .get("parallelism")
                .map(|node| node.count())
                .transpose()?
                .unwrap_or(1);
            let mut pod = self.template(&inner)?;
            if let Some(mode) = inner
                .get("completionMode")
                .filter(|mode| mode.value() == "Indexed")
            {
                index(&mut pod.program.command, "ANTIPHON_TASK_INDEX");
                if replicas > 1 {
                    self.notes.differs(
                        &mode,
                        "`JOB_COMPLETION_INDEX` counts the tasks of all replicas",
                    );
                }
            }
            roles.push((
                name.unwrap_or_else(|| "job".into()),
                pod,
                replicas.saturating_mul(pods),
            ));
        }
        self.roles(&mut job, roles)?;
        Ok(job)
    }

    fn pytorch_job(&mut self) -> Result<Job, JobError> {
        let (mut job, spec) = self.named()?;
        self.notes.check(&spec, &[PYTORCH]);
        if let Some(policy) = spec.get("runPolicy") {
            self.notes.check(&policy, &[RUN_POLICY]);
            self.limits(&mut job, &policy)?;
            if let Some(queue) = policy.at(&["schedulingPolicy", "queue"]) {
                job.team = Some(job_name(&queue.text()?));
            }
            if let Some(class) = policy.at(&["schedulingPolicy", "priorityClass"]) {
                job.class = class_of(&class, self.notes)?;
            }
        }
        let mut roles = Vec::new();
        if let Some(specs) = spec.get("pytorchReplicaSpecs") {
            for (name, replica) in specs.entries() {
                self.notes.check(&replica, &[known::REPLICAS]);
                let replicas = replica
                    .get("replicas")
                    .map(|node| node.count())
                    .transpose()?
                    .unwrap_or(1);
                let pod = self.template(&replica)?;
                roles.push((name.to_ascii_lowercase(), pod, replicas));
            }
        }
        // Master and workers that are alike are ranks of one role.
        let alike = roles.windows(2).all(|pair| match pair {
            [(_, one, _), (_, other, _)] => {
                one.program.command == other.program.command
                    && one.resources(1) == other.resources(1)
            }
            _ => true,
        });
        if alike && roles.len() > 1 {
            let tasks = roles.iter().map(|(_, _, replicas)| *replicas).sum();
            roles.truncate(1);
            if let Some((_, _, replicas)) = roles.first_mut() {
                *replicas = tasks;
            }
        } else if let Some(specs) = spec.get("pytorchReplicaSpecs").filter(|_| roles.len() > 1) {
            self.notes.differs(
                &specs,
                "master and workers differ and become roles, and ranks count within a role",
            );
        }
        self.roles(&mut job, roles)?;
        Ok(job)
    }

    fn volcano(&mut self) -> Result<Job, JobError> {
        let (mut job, spec) = self.named()?;
        self.notes.check(&spec, &[VOLCANO]);
        if let Some(limit) = spec.get("maxRetry") {
            job.retry = Some(Retry {
                retries: limit.count()?,
            });
        }
        if let Some(queue) = spec.get("queue") {
            job.team = Some(job_name(&queue.text()?));
        }
        if let Some(class) = spec.get("priorityClassName") {
            job.class = class_of(&class, self.notes)?;
        }
        let mut roles = Vec::new();
        for task in spec
            .get("tasks")
            .map(|tasks| tasks.items())
            .unwrap_or_default()
        {
            self.notes.check(&task, &[TASK]);
            let name = task.get("name").map(|name| name.text()).transpose()?;
            let replicas = task
                .get("replicas")
                .map(|node| node.count())
                .transpose()?
                .unwrap_or(1);
            let pod = self.template(&task)?;
            roles.push((name.unwrap_or_else(|| "task".into()), pod, replicas));
        }
        if let Some(least) = spec.get("minAvailable") {
            let all: u64 = roles.iter().map(|(_, _, replicas)| *replicas).sum();
            if least.count()? < all {
                self.notes
                    .differs(&least, "all tasks of a job start together, or none");
            }
        }
        self.roles(&mut job, roles)?;
        Ok(job)
    }

    fn train_job(&mut self) -> Result<Job, JobError> {
        let (mut job, spec) = self.named()?;
        self.notes.check(&spec, &[TRAIN_JOB]);
        self.held(&mut job, &spec);
        let trainer = spec.get("trainer");
        let trainer = trainer.ok_or_else(|| self.nothing(&spec, "it has no `trainer`"))?;
        self.notes.check(&trainer, &[TRAINER]);
        let program = pod::program(&trainer, self.notes)?;
        if program.command.is_empty() {
            return Err(self.nothing(
                &trainer,
                "its command is the runtime's, which the file does not hold",
            ));
        }
        let nodes = trainer
            .get("numNodes")
            .map(|node| node.count())
            .transpose()?
            .unwrap_or(1)
            .max(1);
        let mut amounts = pod::Amounts::default();
        if let Some(resources) = trainer.get("resourcesPerNode") {
            amounts = pod::amounts(&resources, self.notes)?;
        }
        if let Some(node) = trainer.get("numProcPerNode").filter(|_| amounts.gpus == 0) {
            let text = node.text()?;
            // `auto` and `gpu` count what is there.
            if !matches!(text.as_str(), "auto" | "gpu" | "cpu") {
                amounts.gpus = node.count()?;
            }
        }
        let pod = Pod {
            program,
            amounts,
            ..Pod::default()
        };
        self.alone(&mut job, pod, nodes);
        Ok(job)
    }

    /// One role, or several.
    fn roles(&mut self, job: &mut Job, mut roles: Vec<(String, Pod, u64)>) -> Result<(), JobError> {
        roles.retain(|(_, _, replicas)| *replicas > 0);
        if roles.is_empty() {
            return Err(self.nothing(self.object, "it has no pods"));
        }
        if roles.len() == 1 {
            let (_, pod, replicas) = roles.remove(0);
            self.alone(job, pod, replicas);
            return Ok(());
        }
        // What is the same in all roles is the job's; the rest becomes part of a role's command.
        let first = roles
            .first()
            .map(|(_, pod, _)| pod.program.clone())
            .unwrap_or_default();
        let mut common = first.environment;
        common.retain(|name, value| {
            roles
                .iter()
                .all(|(_, pod, _)| pod.program.environment.get(name) == Some(value))
        });
        let one_dir = roles
            .iter()
            .all(|(_, pod, _)| pod.program.workdir == first.workdir);
        for (name, mut pod, replicas) in roles {
            let mut own = std::mem::replace(&mut pod.program.environment, common.clone());
            own.retain(|name, _| !common.contains_key(name));
            let dir = if one_dir {
                None
            } else {
                pod.program.workdir.take()
            };
            if !own.is_empty() || dir.is_some() {
                pod.program.command = own_environment(&own, dir, pod.program.command);
            }
            self.of_pod(job, &pod);
            let mut role = job_name(&name);
            while job.roles.contains_key(&role) {
                role.push('x');
            }
            let resources = pod.resources(replicas);
            let command = pod.program.command;
            job.roles.insert(role, Role { command, resources });
        }
        Ok(())
    }

    fn nothing(&self, node: &Node<'_>, why: &str) -> JobError {
        JobProblem::NothingToRun {
            place: Place::new(self.origin.name, node.place().line),
            why: why.to_owned(),
            help: "write the command into the file".into(),
        }
        .into()
    }
}

/// A command in variables and a directory of its own: `env` takes them as words, so that none is read as anything else.
fn own_environment(
    variables: &BTreeMap<String, String>,
    workdir: Option<String>,
    command: Vec<String>,
) -> Vec<String> {
    let mut all = vec!["env".into()];
    if let Some(dir) = workdir {
        all.extend(["-C".into(), dir]);
    }
    all.extend(
        variables
            .iter()
            .map(|(name, value)| format!("{name}={value}")),
    );
    all.extend(command);
    all
}

/// Says a task's number as Kubernetes does.
fn index(command: &mut Vec<String>, variable: &str) {
    let mut all: Vec<String> = vec![
        "sh".into(),
        "-c".into(),
        format!("export JOB_COMPLETION_INDEX=\"${{{variable}:-0}}\"\nexec \"$@\"\n"),
        "indexed".into(),
    ];
    all.append(command);
    *command = all;
}

impl Pod {
    /// The shape of so many of it.
    fn resources(&self, tasks: u64) -> Resources {
        let amounts = &self.amounts;
        let resources = Resources {
            gpus: Gpus::whole(amounts.gpus.saturating_mul(tasks)),
            gpu_type: amounts.profile.clone(),
            tasks: Some(tasks),
            cpus: amounts.cpus,
            memory: amounts.memory.clone(),
            scratch: amounts.scratch.clone(),
            ..Resources::default()
        };
        if self.gpu_types.is_empty() || amounts.gpus == 0 || amounts.profile.is_some() {
            return resources;
        }
        super::form::one_for_each(resources, &self.gpu_types, |shape, gpu_type| {
            shape.gpu_type = Some(gpu_type.clone());
        })
    }
}

/// Whether a resource has a GPU's name.
fn is_gpu(name: &str) -> bool {
    find(&[known::RESOURCE], name)
        .is_some_and(|key| matches!(key.fate, Fate::Becomes(what) if what.starts_with("`gpus`")))
}
