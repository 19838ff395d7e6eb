//! A plan for people: what it needs, how fast it is, what was assumed.

use std::fmt::Write as _;

use antiphon_planner::Plan;
use antiphon_planner::answer::{Answer, recompute_name, zero_stage};
use antiphon_planner::roles::{self, Part};
use antiphon_types::training::Quantization;

const GIB: f64 = 1_073_741_824.0;

/// Characters of the longest bar.
const BAR: f64 = 30.0;

/// The whole answer.
pub(super) fn answer(plan: &Plan, answer: &Answer) -> String {
    let mut text = String::new();
    head(&mut text, plan);
    memory(&mut text, plan);
    step(&mut text, plan);
    whole(&mut text, answer);
    advice(&mut text, answer);
    assumed(&mut text, plan);
    text
}

fn head(text: &mut String, plan: &Plan) {
    let (run, memory) = (&plan.run, &plan.memory);
    let parameters = run.model.parameters() as f64 / 1e9;
    let trained = if run.trained.full {
        "all of them trained".to_owned()
    } else {
        format!(
            "{:.1} M of them trained",
            run.trained.parameters as f64 / 1e6
        )
    };
    let _ = writeln!(
        text,
        "{}: {parameters:.2} B parameters, {trained}{}",
        run.model.name,
        quantized(run.quantization)
    );
    let _ = writeln!(
        text,
        "{} x {}, {}",
        run.gpus + roles::apart(run),
        plan.machine.gpu.name,
        run.profile.framework.name()
    );
    parts(text, plan);
    let _ = writeln!(text, "{}", layout(plan));
    let (device, usable) = (memory.device / GIB, memory.usable / GIB);
    let lacking = plan.roles.iter().find(|role| !role.fits);
    let verdict = if let (true, Some(role)) = (memory.fits, lacking) {
        format!(
            "does not fit: {}; give it more GPUs, or a smaller share to what it shares them with",
            role.described()
        )
    } else if memory.fits {
        format!(
            "fits: {device:.1} of {usable:.1} GiB, {:.1} GiB to spare",
            usable - device
        )
    } else if device + memory.margin <= usable {
        let host = plan.machine.host_gib;
        format!(
            "does not fit: {:.1} GiB of host memory are needed and a node has {host:.1}",
            memory.host / GIB
        )
    } else {
        format!(
            "does not fit: {device:.1} GiB are needed and {:.1} to be left free, {usable:.1} GiB are there",
            memory.margin / GIB
        )
    };
    let _ = writeln!(text, "{verdict}\n");
}

/// Which models share the GPUs that train, and what has its own, where there are several.
fn parts(text: &mut String, plan: &Plan) {
    let shared: Vec<&str> = roles::shared(&plan.run)
        .into_iter()
        .map(Part::name)
        .collect();
    if let [others @ .., last] = &shared[..]
        && !others.is_empty()
    {
        let _ = writeln!(
            text,
            "{} and {last} share {}",
            others.join(", "),
            match plan.run.gpus {
                1 => "one GPU".to_owned(),
                gpus => format!("{gpus} GPUs"),
            }
        );
    } else if !plan.roles.is_empty() {
        let _ = writeln!(text, "trainer on GPUs of its own: {}", plan.run.gpus);
    }
    for role in &plan.roles {
        let _ = writeln!(text, "{}", role.described());
    }
}

const fn quantized(quantization: Option<Quantization>) -> &'static str {
    match quantization {
        None => "",
        Some(Quantization::Nf4) => ", the rest in 4 bits",
        Some(Quantization::Nf4Double) => ", the rest in 4 bits with quantized scales",
        Some(Quantization::Int8) => ", the rest in 8 bits",
        Some(Quantization::Hqq4) => ", the rest in 4 bits (HQQ)",
    }
}

fn layout(plan: &Plan) -> String {
    let run = &plan.run;
    let mut words = Vec::new();
    for (name, value) in [
        ("data", run.dp),
        ("tensor", run.tp),
        ("pipeline", run.pp),
        ("context", run.cp),
        ("expert", run.ep),
    ] {
        if value > 1 {
            words.push(format!("{name} {value}"));
        }
    }
    if run.shards > 1 {
        words.push(format!(
            "ZeRO-{} over {}",
            zero_stage(run.sharding),
            run.shards
        ));
    }
    words.push(format!("recompute {}", recompute_name(&run.recompute)));
    format!(
        "{}; {} of {} tokens a step: {} at once, {}{}",
        words.join(", "),
        match run.global() {
            1 => "one sequence".to_owned(),
            global => format!("{global} sequences"),
        },
        run.sequence,
        run.micro,
        match run.accumulation {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        },
        if run.dp > 1 {
            format!(", on {} replicas", run.dp)
        } else {
            String::new()
        }
    )
}

fn memory(text: &mut String, plan: &Plan) {
    let memory = &plan.memory;
    let stage = if plan.run.pp > 1 {
        format!(" of stage {} of {}", memory.stage + 1, plan.run.pp)
    } else {
        String::new()
    };
    let _ = writeln!(
        text,
        "memory of a GPU, GiB, at its worst moment ({}{stage})",
        memory.worst.phase.name()
    );
    let parts = memory.worst.parts;
    let rows = [
        ("weights", parts.weights),
        ("gradients", parts.gradients),
        ("optimizer states", parts.optimizer),
        ("activations", parts.activations),
        ("logits", parts.logits),
        ("buffers", parts.buffers),
        ("allocator and context", memory.device - memory.allocated),
    ];
    bars(
        text,
        rows.iter().map(|&(name, bytes)| (name, bytes / GIB)),
        2,
    );
    let _ = writeln!(
        text,
        "  {:<24}{:>9.2}   allocated {:.2}, reserved {:.2}",
        "as the driver shows it",
        memory.device / GIB,
        memory.allocated / GIB,
        memory.reserved / GIB
    );
    if memory.host > 0.0 {
        let _ = writeln!(
            text,
            "  {:<24}{:>9.2}   of a node",
            "host memory",
            memory.host / GIB
        );
    }
    if memory.disk > 0.0 {
        let _ = writeln!(
            text,
            "  {:<24}{:>9.2}   of a node",
            "local disk",
            memory.disk / GIB
        );
    }
    text.push('\n');
}

fn bars<'a>(
    text: &mut String,
    rows: impl Iterator<Item = (&'a str, f64)> + Clone,
    decimals: usize,
) {
    let most = rows.clone().map(|(_, value)| value).fold(0.0, f64::max);
    for (name, value) in rows {
        // Nothing is shown that would print as zero.
        if value < 0.5 / 10_f64.powi(i32::try_from(decimals).unwrap_or(0)) {
            continue;
        }
        let length = (value / most * BAR).round().clamp(0.0, BAR);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the bar's length"
        )]
        let bar = "█".repeat(length as usize);
        let _ = writeln!(text, "  {name:<24}{value:>9.decimals$}   {bar}");
    }
}

fn step(text: &mut String, plan: &Plan) {
    let speed = &plan.speed;
    let _ = writeln!(
        text,
        "a step: {}, {} tokens a second for each GPU, MFU {:.0} %",
        duration(speed.step_ms),
        thousands(speed.tokens_per_s_per_gpu),
        100.0 * speed.mfu
    );
    bars(
        text,
        speed
            .parts
            .named()
            .into_iter()
            .map(|(name, ms)| (name, 100.0 * ms / speed.step_ms)),
        0,
    );
    let _ = writeln!(
        text,
        "  (percent of the step; to make it faster: {})\n",
        speed.bottleneck.help()
    );
}

fn whole(text: &mut String, answer: &Answer) {
    let saved = &answer.checkpoint;
    if let Some(run) = &answer.run {
        let _ = write!(
            text,
            "the run: {} steps, {} tokens, {} ({:.1} GPU-hours)",
            thousands(run.steps),
            thousands(run.tokens),
            duration(3.6e6 * run.hours),
            run.gpu_hours
        );
        if answer.cost_usd.is_some() {
            let spot = run
                .spot_usd
                .map_or_else(String::new, |usd| format!(", {usd:.0} on spot"));
            let _ = write!(
                text,
                "; {:.0} USD, {:.0} reserved{spot}",
                run.on_demand_usd, run.reserved_usd
            );
        }
        text.push('\n');
    }
    if let Some(usd) = answer.usd_per_million_tokens {
        let _ = writeln!(text, "a million tokens: {usd:.3} USD");
    }
    let _ = writeln!(
        text,
        "a checkpoint: {:.1} GiB, training stands still {}; one every {}: {:.1} % of the time is lost\n",
        saved.bytes as f64 / GIB,
        duration(saved.save_ms),
        duration(1e3 * saved.interval_s),
        100.0 * saved.waste
    );
}

fn advice(text: &mut String, answer: &Answer) {
    if answer.advice.is_empty() {
        return;
    }
    let _ = writeln!(text, "advice");
    for advice in &answer.advice {
        let source = advice
            .source
            .map_or_else(String::new, |source| format!(" (rule of thumb, {source})"));
        let _ = writeln!(text, "  {}{source}", advice.sentence);
    }
    text.push('\n');
}

fn assumed(text: &mut String, plan: &Plan) {
    if plan.assumptions.is_empty() {
        return;
    }
    let _ = writeln!(text, "assumed");
    for reason in plan.reasons() {
        let _ = writeln!(text, "  {reason}");
    }
}

/// `812 ms`, `4.2 s`, `3.1 min`.
fn duration(ms: f64) -> String {
    match ms {
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms if ms < 120_000.0 => format!("{:.1} s", ms / 1_000.0),
        ms if ms < 7_200_000.0 => format!("{:.1} min", ms / 60_000.0),
        ms => format!("{:.1} h", ms / 3_600_000.0),
    }
}

/// `12,345`.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
