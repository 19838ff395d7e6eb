//! Hands an attempt to Slurm, once, and gives it orders. Waits for nothing to start or end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use antiphon_types::{AttemptId, NodeSpec, TaskAllocation};

use super::attempt_dir::{AttemptDir, AttemptFile, PlacedTask};
use super::inventory::Inventory;
use super::nodes::SlurmNode;
use super::queue::{self, Label, Phase, SlurmJob, SlurmJobId};
use super::script::{self, Place};
use super::{Inner, SlurmConfig, SlurmError, blocking, hash};
use crate::local::supervise::{ORDER_FILE, Order};
use crate::local::task_dir::{Check, NodeCheck, TaskDir, TaskFile};
use crate::local::{environment, failed};
use crate::trust::CA_VARIABLE;
use crate::{BackendError, Launch};

/// Ports at which ranks meet: below those that the kernels of the nodes give out by themselves.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// How long a supervisor has for a SIGKILL that it was ordered to give, before Slurm gives it to everybody.
const KILL_WAIT: Duration = Duration::from_secs(15);

/// A launch that lies in its files, ready for `sbatch`.
struct Prepared {
    dir: AttemptDir,
    label: Label,
    arguments: Vec<String>,
    script: String,
    /// Slurm's number, where it is known already.
    job: Option<SlurmJobId>,
    /// Whether Slurm may have it already: it was prepared before.
    again: bool,
}

impl Inner {
    pub(super) async fn launch(&self, launch: &Launch) -> Result<(), BackendError> {
        let inventory = self.inventory().await?;
        // Before anything is started: a gang runs whole or not at all.
        for task in launch.allocation.tasks.iter() {
            node_of(task, &inventory)?;
        }
        let (config, attempts) = (self.config.clone(), self.attempts.clone());
        let (owned, owner) = (launch.clone(), self.owner.clone());
        let prepared = blocking(move || {
            let dir = AttemptDir::of(&attempts, owned.attempt);
            prepare(&config, dir, &owner, &owned, &inventory)
        })
        .await?;
        let Prepared {
            dir,
            label,
            arguments,
            script,
            job,
            again,
        } = prepared;
        let known = match job {
            Some(job) => Some(job),
            None if again => self.find(&label).await?.map(|job| job.id),
            None => None,
        };
        let job = match known {
            Some(job) => job,
            None => self.submit(&dir, &arguments, script).await?,
        };
        self.took(&dir, job, label)
    }

    /// Writes down Slurm's number of an attempt, and watches it.
    pub(super) fn took(
        &self,
        dir: &AttemptDir,
        job: SlurmJobId,
        label: Label,
    ) -> Result<(), BackendError> {
        let written = dir.write_job(job).map_err(failed("write", dir.path()));
        self.watch().add(job, label);
        written
    }

    async fn submit(
        &self,
        dir: &AttemptDir,
        arguments: &[String],
        script: String,
    ) -> Result<SlurmJobId, BackendError> {
        let _turn = self.submits.acquire().await.ok();
        let printed = match self.call_with_input("sbatch", arguments, script).await {
            Ok(printed) => printed,
            Err(error) => {
                if !error.may_have_acted() {
                    // What is not gone is looked for by name next time: slower, and as right.
                    let _ = withdraw(dir);
                }
                return Err(error.into());
            }
        };
        // `12`, or `12;cluster`; a plugin may talk before it.
        let last = printed.lines().last().unwrap_or_default();
        let number = last.split(';').next().unwrap_or_default().trim().parse();
        number.map(SlurmJobId).map_err(|_| {
            let error = format!("`{last}` is no job number");
            let program = "sbatch";
            SlurmError::Unreadable { program, error }.into()
        })
    }

    /// The Slurm job of an attempt, by its name and comment; `None` is a positive "absent". Of several the one that is
    /// furthest: the others end by themselves, or are taken back.
    pub(super) async fn find(&self, label: &Label) -> Result<Option<SlurmJob>, SlurmError> {
        let name = format!("{}-{}", label.attempt.job, label.attempt.number);
        let arguments = [
            "--noheader",
            "--all",
            "--me",
            "--states=all",
            "-o",
            queue::FORMAT,
            &format!("--name={name}"),
        ]
        .map(str::to_owned);
        let text = self.call("squeue", &arguments).await?;
        let mut ours: Vec<_> = queue::parse(&text)
            .into_iter()
            .filter(|job| job.label.as_ref() == Some(label))
            .collect();
        ours.sort_by_key(|job| match job.phase {
            Phase::Active => 0,
            Phase::Pending(_) => 1,
            Phase::Over(_) => 2,
        });
        Ok(ours.into_iter().next())
    }

    /// Leaves an order for the supervisors of an attempt, and wakes them. The order stands whatever becomes of the call:
    /// one that starts later finds it, and every supervisor looks for it now and then.
    pub(super) async fn stop(&self, attempt: AttemptId, order: Order) -> Result<(), BackendError> {
        let dir = AttemptDir::of(&self.attempts, attempt);
        let cannot = failed("order a stop in", dir.path());
        let left = blocking(move || leave_order(&dir, order)).await;
        let left = left.map_err(cannot)?;
        let Some(Left { job, direct, since }) = left else {
            return Ok(());
        };
        let phase = self.watch().phase(attempt).cloned();
        let mut calls: Vec<Vec<String>> = Vec::new();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let number = job.to_string();
        if !matches!(phase, Some(Phase::Active)) {
            calls.push(words(&["--state=PENDING", &number]));
        }
        if order == Order::Kill && since > KILL_WAIT {
            // No supervisor has obeyed: it is gone, or hangs.
            calls.push(words(&["--full", "--signal=KILL", &number]));
            calls.push(words(&[&number]));
        } else if direct {
            calls.push(words(&["--batch", "--signal=URG", &number]));
        } else {
            calls.push(words(&["--signal=URG", &number]));
        }
        for arguments in calls {
            if let Err(error) = self.call("scancel", &arguments).await {
                tracing::debug!(%attempt, %error, "an order comes by its file alone");
            }
        }
        self.poke.notify_one();
        Ok(())
    }
}

/// Takes back what says that Slurm may have an attempt, unless a supervisor of it has begun after all.
fn withdraw(dir: &AttemptDir) -> io::Result<()> {
    let file = dir.attempt_file()?;
    for task in file.iter().flat_map(|file| &file.tasks) {
        if dir.task(task).supervisor()?.is_some() {
            return Ok(());
        }
    }
    dir.remove_attempt()
}

/// An order that was left.
struct Left {
    job: SlurmJobId,
    direct: bool,
    /// How long the same order has stood.
    since: Duration,
}

/// Writes an order into the directory of an attempt; `None` where nobody is there to obey. SIGTERM never takes back SIGKILL.
fn leave_order(dir: &AttemptDir, order: Order) -> io::Result<Option<Left>> {
    let Some(file) = dir.attempt_file()? else {
        return Ok(None);
    };
    let mut all_ended = true;
    for task in &file.tasks {
        all_ended &= dir.task(task).exit()?.is_some();
    }
    if all_ended {
        return Ok(None);
    }
    let standing = dir.order()?;
    if standing.is_none_or(|standing| standing < order) {
        dir.write_order(order)?;
    }
    let written = fs::metadata(dir.path().join(ORDER_FILE))?.modified()?;
    let since = SystemTime::now().duration_since(written);
    Ok(dir.job()?.map(|job| Left {
        job,
        direct: file.direct,
        since: since.unwrap_or_default(),
    }))
}

fn node_of<'a>(
    task: &TaskAllocation,
    inventory: &'a Inventory,
) -> Result<&'a SlurmNode, BackendError> {
    let node = inventory.nodes.get(&task.node.0);
    node.ok_or_else(|| BackendError::UnknownNode(task.node.to_string()))
}

/// Writes the files of an attempt, as far as they are not there.
fn prepare(
    config: &SlurmConfig,
    dir: AttemptDir,
    owner: &str,
    launch: &Launch,
    inventory: &Inventory,
) -> Result<Prepared, BackendError> {
    let cannot = || failed("prepare", dir.path());
    set_aside_another_history(&dir, launch)?;
    let again = dir.attempt_file().map_err(cannot())?.is_some();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir.path())
        .map_err(cannot())?;
    if let Some(checkpoint) = &launch.spec.checkpoint {
        // Trainers expect it to be there. One that cannot be made is theirs to report: it was there at submit.
        let _ = fs::create_dir_all(&checkpoint.dir);
    }
    let spec_of = |task: &TaskAllocation| -> &NodeSpec { &inventory.nodes[&task.node.0].spec };
    let components = script::components(launch, spec_of);
    let file = AttemptFile {
        launched: launch.launched,
        direct: launch.allocation.tasks.len() == 1,
        tasks: launch
            .allocation
            .tasks
            .iter()
            .map(|task| PlacedTask {
                role: task.role.clone(),
                index: task.index,
                node: task.node.0.clone(),
                gpus: task.gpus.clone(),
            })
            .collect(),
    };
    // Both are made from the committed state: written again they are the same.
    write_tasks(config, &dir, launch, inventory, &file).map_err(cannot())?;
    dir.write_attempt(&file).map_err(cannot())?;
    let first = launch.allocation.tasks.first();
    let node = first.map(|task| node_of(task, inventory)).transpose()?;
    let partition = node.map_or("", |node| node.spec.partition.as_str());
    let known = |name: &str| inventory.partitions.iter().find(|one| one.name == name);
    let place = Place {
        partition,
        duration_max: known(partition).and_then(|one| one.duration_max),
        gres_type: gres_type(launch, inventory),
        log: &dir.log(),
    };
    let label = dir.label(launch.launched, owner);
    let arguments = script::sbatch(config, launch, &label, &components, &place);
    Ok(Prepared {
        label,
        arguments,
        script: script::batch(&config.supervisor, dir.path(), place.gres_type, &components),
        job: dir.job().map_err(cannot())?,
        again,
        dir,
    })
}

/// What `--gres` calls the GPUs that are held: a gang has one type.
fn gres_type<'a>(launch: &Launch, inventory: &'a Inventory) -> &'a str {
    let held = launch
        .allocation
        .tasks
        .iter()
        .find(|task| !task.gpus.is_empty());
    held.and_then(|task| inventory.nodes.get(&task.node.0))
        .map_or("", |node| node.gres_type.as_str())
}

fn write_tasks(
    config: &SlurmConfig,
    dir: &AttemptDir,
    launch: &Launch,
    inventory: &Inventory,
    file: &AttemptFile,
) -> io::Result<()> {
    let roles: BTreeSet<&str> = file.tasks.iter().map(|task| task.role.as_str()).collect();
    // Ranks meet where the first of their role runs.
    let meeting: BTreeMap<&str, (&str, u16)> = roles
        .into_iter()
        .filter_map(|role| {
            let first = file.tasks.iter().find(|task| task.role == role)?;
            let address = inventory.nodes.get(&first.node)?.address.as_str();
            Some((role, (address, port(launch.attempt, role))))
        })
        .collect();
    let check = launch.environment.get("ANTIPHON_URL").map(|url| Check {
        url: url.clone(),
        token: launch
            .environment
            .get("ANTIPHON_JOB_TOKEN")
            .cloned()
            .unwrap_or_default(),
        ca: launch.environment.get(CA_VARIABLE).map(PathBuf::from),
        give_up: config.check_give_up,
    });
    let node_check = (!launch.check.is_empty()).then(|| NodeCheck {
        command: launch.check.clone(),
        limit: config.node_check_limit,
    });
    for (task, placed) in launch.allocation.tasks.iter().zip(&file.tasks) {
        let place: TaskDir = dir.task(placed);
        if place.task()?.is_some() {
            continue;
        }
        let (address, port) = meeting[task.role.as_str()];
        let node = &inventory.nodes[&task.node.0].spec;
        let mut environment =
            environment::of_task(launch, task, node, (address, port), place.path());
        // Slurm chooses the devices: they are known on the node alone.
        environment.remove("CUDA_VISIBLE_DEVICES");
        place.create()?;
        place.write_task(&TaskFile {
            task: antiphon_types::TaskId {
                attempt: launch.attempt,
                role: task.role.clone(),
                index: task.index,
            },
            command: launch
                .spec
                .roles
                .iter()
                .find(|role| role.name == task.role)
                .map(|role| role.command.clone())
                .unwrap_or_default(),
            environment,
            secrets: launch.spec.secrets.clone(),
            workdir: launch.spec.workdir.clone(),
            grace: launch.spec.grace,
            port,
            launched: launch.launched,
            check: check.clone(),
            node_check: node_check.clone(),
        })?;
    }
    Ok(())
}

/// A port that is likely free on a node that the server cannot ask: another for each attempt, so that one that was taken is
/// not met again.
fn port(attempt: AttemptId, role: &str) -> u16 {
    let there = u64::from(PORTS.end - PORTS.start);
    let offset = hash(&format!("{attempt}/{role}")) % there;
    PORTS.start + u16::try_from(offset).unwrap_or(0)
}

/// A log that was put back from a backup hands out numbers again that its lost part had used. What lies under such a number
/// is another job's: it is moved away where its processes have ended, and never taken for this one's.
fn set_aside_another_history(dir: &AttemptDir, launch: &Launch) -> Result<(), BackendError> {
    let cannot = || failed("look at", dir.path());
    let Some(file) = dir.attempt_file().map_err(cannot())? else {
        return Ok(());
    };
    if file.launched == launch.launched {
        return Ok(());
    }
    let launched = file.launched.as_millis();
    let mut alive = false;
    for task in &file.tasks {
        let task = dir.task(task);
        let ended = task.exit().map_err(cannot())?.is_some();
        alive |= !ended && task.is_locked().map_err(cannot())?;
    }
    if alive {
        return Err(BackendError::Occupied {
            attempt: launch.attempt,
            launched,
            dir: dir.path().display().to_string(),
        });
    }
    let aside = dir
        .path()
        .with_file_name(format!("{}-launched-{launched}", launch.attempt));
    tracing::warn!(attempt = %launch.attempt, aside = %aside.display(), "output of another history of the log is set aside");
    fs::rename(dir.path(), &aside).map_err(failed("move away", dir.path()))
}
