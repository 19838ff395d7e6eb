"""Runs the practice scenario and writes docs/reference/practice.md: a cluster run the usual way, beside antiphon.

Parameters and their sources stand in crates/antiphon-sim/scenarios/practice.toml; here is only how they are run.
Nothing is fitted: every number is also run at half and at twice its value, and each mechanism is turned off alone.
Needs Python 3.11.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

PAGE = Path("docs/reference/practice.md")
SCENARIO = Path("crates/antiphon-sim/scenarios/practice.toml")

# What the articles claim: before and after.
CLAIMED_UTILIZATION = (31, 72)
CLAIMED_FAILED = (30, 5)
CLAIMED_COMPUTE = -40

Value = int | str
Run = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """One simulation: who decides, and the value of every key."""

    policy: str
    values: dict[str, Value]
    rules: dict[str, int] = field(default_factory=dict)

    def but(self, key: str, value: Value | None) -> Settings:
        """The same with one key changed; nothing leaves it out."""
        values = {name: old for name, old in self.values.items() if name != key}
        if value is not None:
            values[key] = value
        return Settings(self.policy, values, self.rules)


@dataclass(frozen=True)
class Result:
    """What came of one setting, as the mean over the seeds."""

    runs: list[Run]

    def mean(self, figure: str) -> float:
        """The mean of a figure."""
        values = [figure_of(run, figure) for run in self.runs]
        return sum(values) / len(values)

    def spread(self, figure: str) -> float:
        """Half of the distance between the extremes."""
        values = [figure_of(run, figure) for run in self.runs]
        return (max(values) - min(values)) / 2


def figure_of(run: Run, figure: str) -> float:
    """A figure of one run; shares in percent."""
    if figure == "allocated":
        return 100 * float(run["gpu_utilization_coming"] or 0)
    if figure == "bound":
        return 100 * float(run["gpu_utilization_coming_bound"] or 0)
    if figure == "useful":
        return 100 * float(run["gpu_utilization_coming"] or 0) * float(run["goodput"] or 0)
    if figure == "failed":
        return 100 * float(run["failed"]) / max(1.0, float(run["jobs"]))
    if figure == "compute":
        return float(run["gpu_hours"]) / max(1.0, float(run["completed"]))
    if figure == "lost":
        return 100 * (1 - float(run["goodput"] or 0))
    if figure == "jct":
        return float(run["avg_jct_s"] or 0) / 3600
    return delay_of(run, figure)


def delay_of(run: Run, figure: str) -> float:
    """How long a class waits: `class:field`."""
    name, _, of = figure.partition(":")
    for delay in run["delays"]:
        if delay["class"] == name:
            return float(delay[of]) * (100 if of == "within_bar" else 1)
    return float("nan")


class Practice:
    """The scenario, and how its settings are run."""

    def __init__(self, binary: str, folder: Path, seeds: Sequence[int]) -> None:
        self.binary = binary
        self.folder = folder
        self.seeds = seeds
        self.said: dict[str, Any] = tomllib.loads(SCENARIO.read_text())
        self.parameters: list[dict[str, Any]] = self.said["parameter"]
        cluster = self.said["cluster"]
        node = 'gpus = 8, gpu_type = "A100-80GB", cpus = 128, memory = "1TiB"'
        nodes = f'{{ names = "n[001-{cluster["nodes"]:03}]", {node} }}'
        self.cluster = folder / "cluster.toml"
        self.cluster.write_text(f'[[partition]]\nname = "train"\nnodes = [{nodes}]\n')

    def usual(self) -> Settings:
        """The usual way."""
        values = {it["name"]: it["usual"] for it in self.parameters if "usual" in it}
        return Settings("fifo", values)

    def ours(self) -> Settings:
        """With every mechanism that there is."""
        values: dict[str, Value] = {it["name"]: it["ours"] if "ours" in it else it["usual"] for it in self.parameters}
        return Settings("antiphon", values)

    def run(self, settings: Settings, seeds: Sequence[int] | None = None) -> Result:
        """Runs one setting with every seed."""
        return Result([self.once(settings, seed) for seed in seeds or self.seeds])

    def once(self, settings: Settings, seed: int) -> Run:
        """Runs one simulation."""
        tables: dict[str, dict[str, Value]] = {"load": {**self.said["load"], "seed": seed}}
        for key, value in settings.values.items():
            table, _, name = key.partition(".")
            tables.setdefault(table, {})[name] = value
        load = {"load": tables.pop("load")}
        tables["requests"]["gpus_max"] = self.said["cluster"]["requests_max"]
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            trace, faults = Path(place, "load.toml"), Path(place, "faults.toml")
            trace.write_text(toml(load))
            faults.write_text(toml(tables))
            policy = settings.policy
            if settings.rules:
                rules = Path(place, "policy.toml")
                rules.write_text(toml({"policy": dict(settings.rules)}))
                policy = str(rules)
            cluster = self.said["cluster"]
            command = [self.binary, "simulate", "--json", "--trace", str(trace), "--faults", str(faults)]
            command += ["--cluster", str(self.cluster), "--policy", policy, "--seed", str(seed)]
            command += ["--start-cost", cluster["start_cost"], "--resize-cost", cluster["resize_cost"]]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"failed: {' '.join(command)}\n{done.stderr}")
        run: Run = json.loads(done.stdout)["runs"][0]
        return run


def toml(tables: dict[str, dict[str, Value]]) -> str:
    """Tables of plain values."""
    lines: list[str] = []
    for table, values in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def scaled(key: str, value: Value, factor: float) -> Value | None:
    """A value times a factor; nothing where that means nothing."""
    if isinstance(value, int):
        most = 1000 if key.endswith("permille") and "times" not in key and key != "load.load_permille" else None
        least = 1000 if "times" in key else 0
        new = max(least, round(value * factor))
        new = new if most is None else min(most, new)
        return None if new == value else new
    found = re.fullmatch(r"(\d+)([a-z]+)", value)
    if not found:
        return None
    spans = {"s": 1, "min": 60, "h": 3600, "d": 86400}
    return f"{round(int(found[1]) * spans[found[2]] * factor)}s"


FIGURES = ("allocated", "useful", "failed", "compute", "lost", "jct")
HEADER = "| allocated % | useful % | failed jobs % | GPU-h a finished job | lost % | mean completion h |"


def row(name: str, result: Result, *, spread: bool) -> str:
    """One line of a table."""
    cells = []
    for figure in FIGURES:
        told = f"{result.mean(figure):.1f}"
        cells.append(f"{told} ± {result.spread(figure):.1f}" if spread else told)
    return f"| {name} | {' | '.join(cells)} |"


def head(first: str) -> list[str]:
    """The head of such a table."""
    return [f"| {first} {HEADER}", "| --- " * (len(FIGURES) + 1) + "|"]


def delays(name: str, result: Result) -> str:
    """How long the classes wait."""
    cells = []
    for of in ("production", "standard", "best-effort"):
        p50, p99 = result.mean(f"{of}:p50_s"), result.mean(f"{of}:p99_s")
        cells.append(f"{p50:,.0f} / {p99:,.0f} ({result.mean(f'{of}:within_bar'):.0f} %)")
    return f"| {name} | {' | '.join(cells)} |"


def causes(name: str, result: Result) -> list[str]:
    """Where the lost GPU-hours went, the most first."""
    sums: dict[str, float] = {}
    held = sum(float(run["gpu_hours"]) for run in result.runs)
    for run in result.runs:
        for cause, hours in run["lost_gpu_hours_by_cause"].items():
            sums[cause] = sums.get(cause, 0) + hours
    told = [f"{cause} {100 * hours / held:.1f}" for cause, hours in sorted(sums.items(), key=lambda it: -it[1])]
    return [f"- {name}: {', '.join(told)}."]


def verdict(usual: Result, ours: Result) -> list[str]:
    """The claims, and what came of them."""
    before, after = usual.mean("useful"), ours.mean("useful")
    compute = 100 * (ours.mean("compute") / usual.mean("compute") - 1)
    rows = [
        ("utilization, useful GPU-time %", "{} -> {}".format(*CLAIMED_UTILIZATION), f"{before:.0f} -> {after:.0f}"),
        (
            "failed jobs %",
            "{} -> {}".format(*CLAIMED_FAILED),
            f"{usual.mean('failed'):.0f} -> {ours.mean('failed'):.0f}",
        ),
        ("compute per finished job", f"{CLAIMED_COMPUTE} %", f"{compute:+.0f} %"),
    ]
    held = (
        after >= CLAIMED_UTILIZATION[1],
        ours.mean("failed") <= CLAIMED_FAILED[1],
        compute <= CLAIMED_COMPUTE,
    )
    page = ["| | claimed | simulated | |", "| --- | --- | --- | --- |"]
    for (what, claimed, made), well in zip(rows, held, strict=True):
        page.append(f"| {what} | {claimed} | {made} | {'reached' if well else '**less than claimed**'} |")
    return page


INTRO = """# The practice scenario

Written by `make results`, from [its parameters](../../crates/antiphon-sim/scenarios/practice.toml), which name the
source of every number and were committed before the first run. Means over seeds {seeds} (of load and faults), ± half of
the distance between the extremes. The simulator and what it does not model: [faults](faults.md).

A cluster of {nodes} nodes with 8 GPUs gets {jobs:,} jobs in {span}. The usual way: first come, first served; four of
ten jobs ask for twice what they use; checkpoints every three hours or none; nobody is attached, nothing is tried again.
With antiphon: its policy, every job attached and saving as often as loses least, retries by class, a ladder for lack of
memory, slow nodes emptied. That every job is attached is the best case.

**Allocated** is held GPU-time over all GPU-time until the last job has come. **Useful** is the part of it that brought
forward jobs which finished, reckoned with the losses of the whole run. What jobs ask for and do not use is not useful.

## The articles' claims
"""

HOPELESS = """{percent:.1f} % of the jobs have a bug, or data that cannot be read: no scheduler finishes them, and the
bar for failed jobs lies below that. GPU-hours a finished job also fall where the largest jobs fail early, so read them
beside the lost GPU-time."""

DELAYS = """
## Delays at a load of {load}

From submission to first start, in seconds: median / 99th percentile (jobs within the bar: 30 s for production, 5 min
for the others). The load is GPU-time that jobs need over what there is; requests beyond it come on top, so the cluster
is asked for more than it has until requests are right-sized. The bars leave waits for capacity out; these contain them.

| | production | standard | best-effort |
| --- | --- | --- | --- |"""

NOT_MODELLED = """## Not modelled

- People: a failed job is not submitted again, nobody cancels a job that waits too long.
- Preemption that loses work: first come, first served stops nobody. What it costs to stop jobs without a checkpoint is
  in the line of antiphon without saving before a stop.
- Plateaus and divergence, batch sizes that follow memory, shards, elastic gangs: their mechanisms are not there yet.
- Data loaders that wait, networks, placement across switches, storage that is slow for many at once.
- Slurm's requeue after a node failure: in the usual way a job that meets one has failed.
"""


def page_of(practice: Practice, workers: int) -> list[str]:
    """Runs everything and writes the page."""
    said, usual, ours = practice.said, practice.usual(), practice.ours()
    named: list[tuple[str, Settings]] = [("the usual way", usual), ("antiphon", ours)]
    backfill = Settings("easy-backfill", usual.values)
    named.append(("the usual way, with EASY backfill", backfill))
    off: list[tuple[str, Settings]] = [
        (it["mechanism"], ours.but(it["name"], it.get("usual"))) for it in practice.parameters if "mechanism" in it
    ]
    for it in said["policy"]:
        rules = it.get("set", {})
        off.append((it["mechanism"], Settings(it.get("use", "antiphon"), ours.values, rules)))
    more = [(it["mechanism"], which.but(it["name"], it["ours"])) for it in said["outlook"] for which in (usual, ours)]
    at = said["bars"]["load_permille"]
    bars = [
        ("the usual way", usual.but("load.load_permille", at)),
        ("with EASY backfill", backfill.but("load.load_permille", at)),
        ("antiphon", ours.but("load.load_permille", at)),
        ("antiphon, requests right-sized", ours.but("load.load_permille", at).but("requests.over_permille", 0)),
    ]
    swept: list[tuple[str, str, Settings]] = []
    for it in practice.parameters:
        key = it["name"]
        for factor in (0.5, 2.0):
            for who, settings in (("usual", usual), ("antiphon", ours)):
                new = scaled(key, settings.values[key], factor) if key in settings.values else None
                if new is not None:
                    swept.append((f"`{key}` = {new}", who, settings.but(key, new)))
    with ThreadPoolExecutor(workers) as pool:
        firsts = list(pool.map(practice.run, [settings for _, settings in named + off + more + bars]))
        once = [practice.seeds[0]]
        seconds = list(pool.map(lambda it: practice.run(it[2], once), swept))
    names = [name for name, _ in named + off + more + bars]
    results = dict(zip(names[: len(named)], firsts, strict=False))
    first, second = results["the usual way"], results["antiphon"]
    hopeless = sum(int(usual.values[f"{kind}.share_permille"]) for kind in ("bug", "data")) / 10
    seeds = ", ".join(str(seed) for seed in practice.seeds)
    intro = INTRO.format(
        seeds=seeds,
        nodes=said["cluster"]["nodes"],
        jobs=said["load"]["jobs"],
        span=said["load"]["span"],
    )
    page = [
        intro,
        *verdict(first, second),
        "",
        HOPELESS.format(percent=hopeless),
        "",
        "## Results",
        "",
        *head(""),
        *(row(name, result, spread=True) for name, result in zip(names[: len(named)], firsts, strict=False)),
        "",
        f"If every job had started as it came and nothing had been lost, {second.mean('bound'):.0f} % were allocated:",
        "long jobs run on after the last one has come.",
        "",
        "Lost GPU-time by cause, in percent of what was held:",
        "",
        *causes("the usual way", first),
        *causes("antiphon", second),
        "",
        "## Each mechanism off alone",
        "",
        *head("antiphon without"),
        row("(nothing)", second, spread=False),
    ]
    begin = len(named)
    for name, result in zip(names[begin : begin + len(off)], firsts[begin:], strict=False):
        page.append(row(name, result, spread=False))
    begin += len(off)
    page += [
        "",
        "Not a mechanism of today: every job asking for what it uses, as a planner would have it.",
        "",
        *head("requests right-sized"),
        row("the usual way", firsts[begin], spread=False),
        row("antiphon", firsts[begin + 1], spread=False),
        DELAYS.format(load=at / 1000),
    ]
    begin += len(more)
    for name, result in zip(names[begin:], firsts[begin:], strict=False):
        page.append(delays(name, result))
    page += ["", "## Half and twice of every parameter", "", f"Seed {once[0]}.", ""]
    for who, base in (("usual", first), ("antiphon", second)):
        page += [*head("the usual way, with" if who == "usual" else "antiphon, with")]
        page.append(row("(as stated)", Result(base.runs[:1]), spread=False))
        for (name, whose, _), result in zip(swept, seconds, strict=True):
            if whose == who:
                page.append(row(name, result, spread=False))
        page.append("")
    page.append(NOT_MODELLED)
    return page


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default="target/release/antiphon")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the main tables")
    parser.add_argument("--workers", type=int, default=2, help="simulations at once")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        practice = Practice(arguments.binary, Path(folder), range(1, arguments.seeds + 1))
        PAGE.write_text("\n".join(page_of(practice, arguments.workers)))


if __name__ == "__main__":
    main()
