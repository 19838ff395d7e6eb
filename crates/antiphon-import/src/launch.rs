//! A command line that starts a training: which launcher on how many GPUs, which program, with which options.

use serde_json::Value;

use crate::error::ImportError;
use crate::options::Options;
use crate::place::Place;
use crate::shell::{self, Script, Word};

/// What stands around the options of a training.
#[derive(Debug, Clone, Default)]
pub(crate) struct Launch {
    /// GPUs of the job.
    pub(crate) gpus: Option<u64>,
    /// GPUs of one node.
    pub(crate) gpus_per_node: Option<u64>,
    /// What accelerate computes in: `bf16`, `fp16`, `fp8` or `no`.
    pub(crate) mixed: Option<String>,
    /// The script, module or command that trains.
    pub(crate) program: String,
    /// The launcher's own options.
    pub(crate) options: Options,
    /// Words that are no options, such as the path of a config.
    pub(crate) positional: Vec<(String, Place)>,
}

/// The command of a script that trains, taken apart: one of a tool that is known, with the most options.
pub(crate) fn of_script(
    script: &Script,
    file: &str,
) -> Result<Option<(Launch, Options)>, ImportError> {
    let weight = |words: &&Vec<Word>| {
        let known = crate::format::of_program(&program(words).name).is_some();
        let options = words.iter().filter(|word| is_option(&word.text)).count();
        (known, options)
    };
    let inner: Vec<Vec<Word>> = script
        .commands
        .iter()
        .flat_map(|words| handed_on(words))
        .collect();
    let Some(words) = script.commands.iter().chain(&inner).max_by_key(weight) else {
        return Ok(None);
    };
    let program = program(words);
    let (before, rest) = words.split_at(program.begin);
    let rest = rest.get(program.length..).unwrap_or_default();
    let mut launch = Launch {
        program: program.name,
        ..Launch::default()
    };
    (launch.options, _) = parse(before, file);
    let (options, positional) = parse(rest, file);
    launch.positional = positional;
    gpus(script, &mut launch, file)?;
    Ok(Some((launch, options)))
}

/// The commands that a command hands to a shell: `srun bash -c "torchrun train.py"`.
fn handed_on(words: &[Word]) -> Vec<Vec<Word>> {
    let is_shell = |word: &Word| matches!(word.text.rsplit('/').next(), Some("sh" | "bash"));
    let text = words.windows(3).find_map(|three| match three {
        [shell, flag, text]
            if is_shell(shell) && flag.text.starts_with('-') && flag.text.ends_with('c') =>
        {
            Some(text)
        }
        _ => None,
    });
    let Some(text) = text else {
        return Vec::new();
    };
    // Of a line that goes on the backslash has been taken off already; the blank in front of it is what is left.
    let mut commands = shell::parse(&text.text.replace(" \n", " \\\n")).commands;
    for word in commands.iter_mut().flatten() {
        word.line = word.line.saturating_add(text.line).saturating_sub(1);
        word.literal &= text.literal || !word.text.contains('$');
    }
    commands
}

struct Program {
    name: String,
    begin: usize,
    length: usize,
}

/// Where in a command the launcher ends and the program begins.
fn program(words: &[Word]) -> Program {
    let text = |at: usize| words.get(at).map_or("", |word| word.text.as_str());
    let mut after_tune = None;
    for at in 0..words.len() {
        let word = text(at).rsplit('/').next().unwrap_or_default();
        let called = |name: String, length: usize| Program {
            name,
            begin: at,
            length,
        };
        match word {
            "trl" | "axolotl" | "llamafactory-cli" | "llamafactory" | "swift" => {
                return called(format!("{word} {}", text(at + 1)), 2);
            }
            "tune" if text(at + 1) == "run" => after_tune = Some(at + 2),
            _ => (),
        }
        if let Some(begin) = after_tune.filter(|begin| at >= *begin) {
            // `tune run` takes torchrun's options, each with a value, in front of the recipe.
            let value = at > begin && is_option(text(at - 1)) && !text(at - 1).contains('=');
            if !is_option(text(at)) && !value {
                return called(format!("tune {}", text(at)), 1);
            }
            continue;
        }
        let module = at > 0 && matches!(text(at - 1), "-m" | "--module") && !is_launcher(text(at));
        if word.ends_with(".py") || module {
            return called(text(at).to_owned(), 1);
        }
    }
    // No program is named: the first word is it, or there are only options.
    let length = usize::from(!is_option(text(0)));
    Program {
        name: if length == 1 {
            text(0).to_owned()
        } else {
            String::new()
        },
        begin: 0,
        length,
    }
}

fn is_launcher(module: &str) -> bool {
    module.starts_with("torch.distributed")
        || module.starts_with("accelerate")
        || module.starts_with("deepspeed.launcher")
}

/// `--name`, `-n`, or Hydra's `name=value`.
fn is_option(text: &str) -> bool {
    let dashed = text
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '-'));
    dashed || hydra(text).is_some()
}

fn hydra(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    let name = name.trim_start_matches(['+', '~']);
    let valid = |c: char| c.is_ascii_alphanumeric() || "_.-/@".contains(c);
    (name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(valid))
        .then_some((name, value))
}

/// Options of words: `--name value ...`, `--name=value`, `name=value`; dashes within a name are taken as underscores.
fn parse(words: &[Word], file: &str) -> (Options, Vec<(String, Place)>) {
    let mut options = Options::new(file);
    let mut positional = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        let place = Place::new(file, word.line);
        if !is_option(&word.text) {
            if word.literal {
                positional.push((word.text.clone(), place));
            }
            continue;
        }
        if !word.text.starts_with('-') {
            if let Some((name, value)) = hydra(&word.text) {
                options.set(name, Value::from(value), place, word.literal);
            }
            continue;
        }
        let name = word.text.trim_start_matches('-');
        if let Some((name, value)) = name.split_once('=') {
            options.set(
                &name.replace('-', "_"),
                Value::from(value),
                place,
                word.literal,
            );
            continue;
        }
        let values: Vec<&Word> = words
            .get(at..)
            .unwrap_or_default()
            .iter()
            .take_while(|word| !is_option(&word.text))
            .collect();
        at += values.len();
        let literal = values.iter().all(|word| word.literal);
        let value = match values.as_slice() {
            [] => Value::Bool(true),
            [one] => Value::from(one.text.as_str()),
            many => many
                .iter()
                .map(|word| Value::from(word.text.as_str()))
                .collect(),
        };
        options.set(&name.replace('-', "_"), value, place, literal);
    }
    (options, positional)
}

/// GPUs of the job: processes a node times nodes, as torchrun, accelerate, DeepSpeed, srun or a batch script give them.
fn gpus(script: &Script, launch: &mut Launch, file: &str) -> Result<(), ImportError> {
    let (mut batch, _) = parse(&script.batch, file);
    batch.alias(&["N"], "nodes");
    batch.alias(&["G"], "gpus");
    let options = &mut launch.options;
    let per_node = [
        "nproc_per_node",
        "num_gpus",
        "gpus_per_node",
        "ntasks_per_node",
    ];
    options.alias(&per_node, "per_node");
    let nodes = ["nnodes", "num_nodes", "num_machines", "nodes", "N"];
    options.alias(&nodes, "node_count");
    let mut nodes = number(options, "node_count")?.or(batch.count("nodes")?);
    let mut per_node = number(options, "per_node")?.or(of_batch(&mut batch)?);
    if launch.program.starts_with("llamafactory") {
        // It starts torchrun itself, as these variables say.
        let variable = |name| {
            script
                .variable(name)?
                .parse()
                .ok()
                .filter(|n| (1..=1 << 20).contains(n))
        };
        nodes = nodes.or(variable("NNODES"));
        per_node = per_node.or(variable("NPROC_PER_NODE"));
    }
    let visible = script.variable("CUDA_VISIBLE_DEVICES");
    let per_node = per_node.or(visible.map(|text| text.split(',').count() as u64));
    launch.gpus_per_node = per_node;
    launch.gpus = match (options.count("num_processes")?, per_node) {
        (Some(total), _) => Some(total),
        (None, Some(per_node)) => Some(per_node.saturating_mul(nodes.unwrap_or(1))),
        (None, None) => batch.count("gpus")?,
    };
    Ok(())
}

/// A number of GPUs or nodes. torchrun also takes `gpu` for all of a node, and a range of nodes where the job is elastic.
fn number(options: &mut Options, name: &str) -> Result<Option<u64>, ImportError> {
    match options.text(name)?.as_deref() {
        None | Some("gpu" | "auto") => Ok(None),
        Some(text) if text.contains(':') => Ok(None),
        Some(_) => options.count(name),
    }
}

/// GPUs of a node: `--gpus-per-node=8`, `--gres=gpu:8`, `--gres=gpu:h100:8`, or tasks where there is one a GPU.
fn of_batch(batch: &mut Options) -> Result<Option<u64>, ImportError> {
    batch.alias(&["gpus_per_node", "gres", "ntasks_per_node"], "per_node");
    let text = batch.text("per_node")?.unwrap_or_default();
    let last = text.rsplit(':').next().unwrap_or_default();
    Ok(last
        .parse()
        .ok()
        .filter(|count| (1..=1 << 20).contains(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(text: &str) -> (Launch, Options) {
        of_script(&shell::parse(text), "run.sh").unwrap().unwrap()
    }

    #[test]
    fn a_launcher_says_how_many_gpus() {
        let cases = [
            (
                "torchrun --nproc_per_node 8 --nnodes=4 t.py --a 1",
                Some(32),
            ),
            (
                "python -m torch.distributed.run --nproc-per-node 2 t.py --a 1",
                Some(2),
            ),
            (
                "accelerate launch --num_processes 16 --num_machines 2 t.py --a 1",
                Some(16),
            ),
            ("deepspeed --num_gpus 4 t.py --a 1", Some(4)),
            ("torchrun --nproc_per_node gpu t.py --a 1", None),
            (
                "#SBATCH --nodes=2\n#SBATCH --gres=gpu:a100:8\nsrun python t.py --a 1",
                Some(16),
            ),
            (
                "#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\nsrun python t.py --a 1",
                Some(8),
            ),
            ("#SBATCH --gpus=24\nsrun python t.py --a 1", Some(24)),
            (
                "NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train x.yaml",
                Some(16),
            ),
            (
                "CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train x.yaml",
                Some(2),
            ),
            (
                "tune run --nproc_per_node 2 lora_finetune_distributed --config x.yaml",
                Some(2),
            ),
        ];
        for (text, gpus) in cases {
            assert_eq!(launch(text).0.gpus, gpus, "{text}");
        }
    }

    #[test]
    fn the_command_of_a_known_tool_is_the_one_that_trains() {
        let (found, _) = launch("mkdir -p -m 700 out\naxolotl train x.yml\nrm -r -f tmp\n");
        assert_eq!(found.program, "axolotl train");
        let text = "#SBATCH -N 2\nsrun -l bash -c \"torchrun --nproc-per-node 8 \\\n train.py --per_device_train_batch_size 2 --a 1\"\n";
        let (found, mut options) = launch(text);
        assert_eq!((found.program.as_str(), found.gpus), ("train.py", Some(16)));
        assert_eq!(options.count("a").unwrap(), Some(1));
    }

    #[test]
    fn the_program_parts_its_options_from_those_of_the_launcher() {
        let (launch, mut options) = launch(
            "ray job submit --address x -- python3 -m openrlhf.cli.train_ppo_ray \\\n --zero_stage 3 \\\n --packing_samples --lr -1e-5 --betas 0.9 0.95",
        );
        assert_eq!(launch.program, "openrlhf.cli.train_ppo_ray");
        assert_eq!(options.count("zero_stage").unwrap(), Some(3));
        assert_eq!(options.place("zero_stage").line, 2);
        assert!(options.on("packing_samples").unwrap());
        assert_eq!(options.number("lr").unwrap(), Some(-1e-5));
        assert_eq!(options.words("betas").unwrap(), ["0.9", "0.95"]);
    }

    #[test]
    fn a_recipe_of_tune_comes_after_the_options_of_torchrun() {
        let (launch, mut options) = launch(
            "tune run --nproc_per_node 2 full_finetune_distributed --config a.yaml batch_size=4",
        );
        assert_eq!(launch.program, "tune full_finetune_distributed");
        assert_eq!(options.count("batch_size").unwrap(), Some(4));
        assert_eq!(options.text("config").unwrap().unwrap(), "a.yaml");
    }
}
