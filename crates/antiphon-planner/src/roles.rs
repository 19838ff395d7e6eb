//! The models of PPO and GRPO: which of them a run has, which share the GPUs that train and which have their own, and what
//! those need there. What shares the trainer's GPUs is part of `memory`.

use antiphon_types::training::{Framework, LossKernel, Offload, Rollout, Sharding, Task};

use crate::memory;
use crate::rollout;
use crate::run::{Machine, Run};
use crate::states;

const GIB: f64 = 1_073_741_824.0;
/// Share of a GPU's memory that an engine takes which has it alone, where nothing is said: vLLM's own default.
const ENGINE_PERMILLE: u64 = 900;

/// A model of a reinforcement-learning run, or what does its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The policy, which is trained.
    Trainer,
    /// What estimates values, trained beside the policy.
    Critic,
    /// The policy as it was.
    Reference,
    /// What judges answers.
    Reward,
    /// What makes answers.
    Rollout,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Trainer,
        Self::Critic,
        Self::Reference,
        Self::Reward,
        Self::Rollout,
    ];

    /// The name of the role that holds it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trainer => "trainer",
            Self::Critic => "critic",
            Self::Reference => "reference",
            Self::Reward => "reward",
            Self::Rollout => "rollout",
        }
    }

    /// The part that a role's name says; frameworks say `actor` and `ref`, too.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "actor" => Some(Self::Trainer),
            "ref" => Some(Self::Reference),
            _ => Self::ALL.into_iter().find(|part| part.name() == name),
        }
    }

    /// GPUs of its own that a spec states.
    #[must_use]
    pub const fn stated(self, rollout: &Rollout) -> Option<u64> {
        match self {
            Self::Trainer => None,
            Self::Critic => rollout.critic_gpus,
            Self::Reference => rollout.reference_gpus,
            Self::Reward => rollout.reward_gpus,
            Self::Rollout => rollout.gpus,
        }
    }

    /// States GPUs of its own.
    pub const fn state(self, rollout: &mut Rollout, gpus: Option<u64>) {
        match self {
            Self::Trainer => {}
            Self::Critic => rollout.critic_gpus = gpus,
            Self::Reference => rollout.reference_gpus = gpus,
            Self::Reward => rollout.reward_gpus = gpus,
            Self::Rollout => rollout.gpus = gpus,
        }
    }
}

/// Whether a task has a part at all: PPO has a critic, and a reference and a reward model unless it says otherwise; GRPO has
/// neither unless it says so.
#[must_use]
pub fn has(task: Task, rollout: &Rollout, part: Part) -> bool {
    let ppo = task == Task::Ppo;
    let generates = ppo || task == Task::Grpo;
    match part {
        Part::Trainer => true,
        Part::Critic => ppo,
        Part::Reference => generates && rollout.reference.unwrap_or(ppo),
        Part::Reward => generates && rollout.reward.unwrap_or(ppo),
        Part::Rollout => generates,
    }
}

/// GPUs that a part of a run has alone; none where it shares those that train, and where the run has no such part.
#[must_use]
pub fn own(run: &Run, part: Part) -> Option<u64> {
    part.stated(&run.rollout)
        .filter(|&gpus| gpus > 0 && has(run.task, &run.rollout, part))
}

/// GPUs beside those that train.
#[must_use]
pub fn apart(run: &Run) -> u64 {
    Part::ALL
        .into_iter()
        .filter_map(|part| own(run, part))
        .sum()
}

/// Whether one command starts all roles, over Ray: then a job needs the GPUs of all of them in one place. With other frameworks
/// each role has a command of its own.
#[must_use]
pub const fn start_together(framework: Framework) -> bool {
    matches!(
        framework,
        Framework::Verl | Framework::OpenRlhf | Framework::NemoRl
    )
}

/// GPUs that the command needs which trains.
#[must_use]
pub fn of_command(run: &Run) -> u64 {
    if start_together(run.profile.framework) {
        run.gpus + apart(run)
    } else {
        run.gpus
    }
}

/// Whether a part of a run is there and shares the GPUs that train.
#[must_use]
pub fn shares(run: &Run, part: Part) -> bool {
    has(run.task, &run.rollout, part) && own(run, part).is_none()
}

/// Parts that share the GPUs that train, the policy first.
#[must_use]
pub fn shared(run: &Run) -> Vec<Part> {
    let parts = Part::ALL.into_iter();
    parts.filter(|&part| shares(run, part)).collect()
}

/// A part with GPUs of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Role {
    /// Which.
    pub part: Part,
    /// Its GPUs.
    pub gpus: u64,
    /// Its GPUs that have to share a fast link.
    pub tp: u64,
    /// Bytes that the driver shows on each.
    pub device: f64,
    /// Bytes that a process can get.
    pub usable: f64,
    /// Whether they do.
    pub fits: bool,
}

impl Role {
    /// `rollout: 2 GPUs, 71.2 GiB of 79.1 on each`.
    #[must_use]
    pub fn described(&self) -> String {
        let tensor = if self.tp > 1 {
            format!(", tensor {}", self.tp)
        } else {
            String::new()
        };
        format!(
            "{} on {} {}{tensor} ({:.1} GiB of {:.1} on each{})",
            self.part.name(),
            self.gpus,
            if self.gpus == 1 { "GPU" } else { "GPUs" },
            self.device / GIB,
            self.usable / GIB,
            if self.fits { "" } else { ": too little" }
        )
    }
}

/// Every part of a run that has GPUs of its own.
#[must_use]
pub fn roles(run: &Run, machine: &Machine) -> Vec<Role> {
    Part::ALL
        .into_iter()
        .filter_map(|part| Some((part, own(run, part)?)))
        .map(|(part, gpus)| role(run, machine, part, gpus))
        .collect()
}

fn role(run: &Run, machine: &Machine, part: Part, gpus: u64) -> Role {
    let usable = machine.gpu.usable_gib * GIB;
    let (tp, device, fits) = match part {
        Part::Rollout => engine(run, machine, gpus),
        Part::Trainer | Part::Critic => {
            let needs = memory::memory(&critic(run, gpus), machine);
            (run.tp, needs.device, needs.fits)
        }
        Part::Reference | Part::Reward => {
            let device = scorer(run, machine, part, gpus);
            (1, device, device + memory::margin(usable) <= usable)
        }
    };
    Role {
        part,
        gpus,
        tp,
        device,
        usable,
        fits,
    }
}

/// What makes answers takes the share of each GPU that it may, and has to hold weights and the longest answer in it.
fn engine(run: &Run, machine: &Machine, gpus: u64) -> (u64, f64, bool) {
    let usable = machine.gpu.usable_gib * GIB;
    let share = run.rollout.memory_permille.unwrap_or(ENGINE_PERMILLE);
    let taken = usable * share as f64 / 1e3;
    let tp = rollout::engine_tp(run, machine, gpus);
    let answer = rollout::cache_bytes(&run.model, run.sequence as f64);
    let needed = (2.0 * run.model.parameters() as f64 + answer) / tp as f64
        + run.profile.workspace_gib * GIB;
    (tp, taken.max(needed), needed <= taken)
}

/// The critic as a run of its own: the actor's layout on its GPUs, and a value in place of logits.
fn critic(run: &Run, gpus: u64) -> Run {
    let replica = run.tp * run.pp * run.cp;
    let dp = (gpus / replica).max(1);
    Run {
        task: Task::Sft,
        rollout: Rollout::default(),
        engine_bytes: 0.0,
        loss: LossKernel::FusedLinear,
        gpus,
        dp,
        shards: if run.sharding == Sharding::None {
            1
        } else {
            run.shards.min(dp * run.cp).max(1)
        },
        accumulation: (run.global() / (run.micro * dp)).max(1),
        ..run.clone()
    }
}

/// A model that only scores: its weights, shared out as the trainer's are, and one block of one micro-batch.
fn scorer(run: &Run, machine: &Machine, part: Part, gpus: u64) -> f64 {
    let alone = Run {
        shards: if run.sharding == Sharding::Zero3 {
            gpus
        } else {
            1
        },
        offload: Offload::default(),
        ..critic(run, gpus)
    };
    let stage = states::parameters(&alone, 0);
    let shards = alone.shards as f64;
    let weights = 2.0 * stage.total() / shards;
    let gathered = if shards > 1.0 {
        2.0 * 2.0 * (stage.matrices + stage.experts) / stage.layers.max(1.0)
    } else {
        0.0
    };
    // The log-probabilities of all tokens need logits in 32 bits; a judgement needs none.
    let logits = match (part, run.loss) {
        (Part::Reference, LossKernel::Plain) => {
            4.0 * run.tokens() * run.model.vocab as f64 / run.tp as f64
        }
        _ => 0.0,
    };
    let allocated =
        weights + gathered + logits + memory::block(&alone) + run.profile.workspace_gib * GIB;
    allocated * run.profile.reserved_ratio + memory::context(&alone, machine)
}

#[cfg(test)]
mod tests {
    use antiphon_types::training::{Lora, Method, Model, TrainingSpec};

    use super::*;
    use crate::{catalog, profile, resolve, speed};

    fn machine() -> Machine {
        Machine::usual(catalog::accelerator("h100").unwrap())
    }

    fn run(task: Task, rollout: Rollout) -> Run {
        let mut spec = TrainingSpec {
            model: Model::Named("Qwen2.5-7B".into()),
            task,
            framework: Some(Framework::OpenRlhf),
            rollout: Some(rollout),
            ..TrainingSpec::default()
        };
        spec.layout.gpus = Some(8);
        spec.batch.global = Some(64);
        resolve(&spec, &machine(), profile::frameworks()).unwrap().0
    }

    #[test]
    fn ppo_has_five_parts_and_grpo_those_that_it_names() {
        let names = |task, rollout| {
            let parts = shared(&run(task, rollout));
            parts.into_iter().map(Part::name).collect::<Vec<_>>()
        };
        assert_eq!(
            names(Task::Ppo, Rollout::default()),
            ["trainer", "critic", "reference", "reward", "rollout"]
        );
        assert_eq!(
            names(Task::Grpo, Rollout::default()),
            ["trainer", "rollout"]
        );
        let judged = Rollout {
            reference: Some(true),
            reward: Some(true),
            ..Rollout::default()
        };
        assert_eq!(
            names(Task::Grpo, judged),
            ["trainer", "reference", "reward", "rollout"]
        );
        assert_eq!(names(Task::Sft, judged), ["trainer"]);
    }

    #[test]
    fn each_model_that_leaves_takes_its_memory_along_and_none_of_the_time() {
        let all = run(Task::Ppo, Rollout::default());
        let weights = 2.0 * all.model.parameters() as f64 / 8.0;
        let base = memory::memory(&all, &machine());
        let mut before = (
            memory::stage(&all, 0).parts.weights,
            speed::speed(&all, &machine()).step_ms,
        );
        let mut rollout = Rollout::default();
        for (part, least) in [
            (Part::Reference, weights),
            (Part::Reward, weights),
            (Part::Critic, weights),
        ] {
            part.state(&mut rollout, Some(8));
            let left = run(Task::Ppo, rollout);
            let now = (
                memory::stage(&left, 0).parts.weights,
                speed::speed(&left, &machine()).step_ms,
            );
            assert!(before.0 - now.0 >= least * 0.999, "{part:?}");
            assert!(now.1 < before.1, "{part:?}: {} after {}", now.1, before.1);
            before = now;
        }
        let left = run(Task::Ppo, rollout);
        assert_eq!(apart(&left), 24);
        assert!(memory::memory(&left, &machine()).device < base.device);
        assert_eq!(roles(&left, &machine()).len(), 3);
    }

    #[test]
    fn an_adapters_base_is_the_reference_but_no_judge() {
        let of = |rollout| {
            let mut lora = run(Task::Grpo, rollout);
            lora.trained = {
                let spec = TrainingSpec {
                    model: Model::Named("Qwen2.5-7B".into()),
                    method: Method::Lora(Lora::default()),
                    ..TrainingSpec::default()
                };
                resolve(&spec, &machine(), profile::frameworks())
                    .unwrap()
                    .0
                    .trained
            };
            memory::stage(&lora, 0).parts.weights
        };
        let plain = of(Rollout::default());
        let with = |reference, reward| {
            of(Rollout {
                reference,
                reward,
                ..Rollout::default()
            })
        };
        assert!((with(Some(true), None) - plain).abs() < 1.0);
        assert!(with(None, Some(true)) > plain + 1e9);
    }

    #[test]
    fn an_engine_needs_weights_and_an_answer_in_its_share() {
        let on = |gpus: u64, tp: u64, memory_permille: u64| {
            let rollout = Rollout {
                gpus: Some(gpus),
                tp: Some(tp),
                memory_permille: Some(memory_permille),
                ..Rollout::default()
            };
            roles(&run(Task::Grpo, rollout), &machine())[0]
        };
        let roomy = on(4, 2, 900);
        assert!(roomy.fits && roomy.tp == 2);
        assert!((roomy.device - 0.9 * roomy.usable).abs() < 1.0);
        // 15 GiB of weights do not go into a tenth of 79.
        let tight = on(1, 1, 100);
        assert!(!tight.fits && tight.device > 0.1 * tight.usable);
        assert!(
            tight.described().contains("too little"),
            "{}",
            tight.described()
        );
        // No more ranks than GPUs.
        assert_eq!(on(1, 8, 900).tp, 1);
    }

    #[test]
    fn a_model_that_only_scores_is_smaller_than_one_that_is_trained() {
        let rollout = Rollout {
            critic_gpus: Some(4),
            reference_gpus: Some(4),
            reward_gpus: Some(4),
            ..Rollout::default()
        };
        let roles = roles(&run(Task::Ppo, rollout), &machine());
        let [critic, reference, reward] = roles[..] else {
            panic!("{roles:?}");
        };
        assert!(critic.device > 2.0 * reference.device);
        assert!(reference.device > reward.device, "it needs logits");
        assert!(reference.fits && reward.fits);
    }
}
