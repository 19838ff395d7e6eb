"""Runs the published comparisons and writes docs/reference/results.md: ours, the peers and the bound, with plots.

Decides nothing and fits nothing: one default policy for every trace. Comparisons whose trace is not there are left out,
and the page says so.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bars import Bar, bars
from comparisons import COMPARISONS, FGD, Comparison, Line

PAGE = Path("docs/reference/results.md")
PLOTS = Path("docs/img/results")
FORECASTS = 50
#: Those on which starts are foretold.
FORETOLD = tuple(
    it for it in COMPARISONS if it.name.startswith(("muri", "gavel-continuous", "gavel-generated", "pollux-1"))
)

Run = dict[str, object]


def simulate(binary: str, trace: Path, flags: list[str]) -> list[Run]:
    """The runs that one call prints; nothing where it fails, and why on standard error."""
    command = [binary, "simulate", "--trace", str(trace), "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"failed: {' '.join(command)}\n{done.stderr}", file=sys.stderr)
        return []
    runs: list[Run] = json.loads(done.stdout)["runs"]
    return runs


def number(value: object, digits: int = 0) -> str:
    """A figure with thousands apart, or a dash."""
    return f"{value:,.{digits}f}" if isinstance(value, int | float) else "-"


def figures(runs: Iterable[Run], name: str) -> list[float]:
    """A figure of each run that has it."""
    values = (run[name] for run in runs)
    return [float(value) for value in values if isinstance(value, int | float)]


def over_seeds(runs: list[Run], name: str, digits: int = 0, by: float = 1.0) -> str:
    """The mean of a figure over the seeds, with its standard deviation where it has one."""
    values = [value * by for value in figures(runs, name)]
    if not values:
        return "-"
    mean = number(statistics.fmean(values), digits)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{mean} ± {number(spread, digits)}" if spread > 0 else mean


@dataclass(frozen=True)
class Setup:
    """What all comparisons share."""

    binary: str
    traces: Path
    shuffles: int
    #: What lines with noise are repeated with; the others draw nothing.
    seeds: tuple[int, ...]


def told(line: Line) -> str:
    """A line's policy with its flags."""
    return " ".join([line.policy, *line.flags])


def table(setup: Setup, comparison: Comparison) -> list[str]:
    """One comparison as lines of the page."""
    trace = setup.traces / comparison.trace
    page = [f"## {comparison.title}", ""]
    if not trace.exists():
        return [*page, f"Left out: `{comparison.trace}` is not there.", ""]
    head = [
        "| policy | knows | mean JCT s | published | p50 | p99 | makespan s | preempted | deadlines % | wall s | MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows = []
    plotted: list[Bar] = []
    bound: Run = {}
    for line in comparison.lines:
        flags = [*comparison.flags, "--policy", line.policy, "--knowledge", line.knowledge, *line.flags]
        seeds = setup.seeds if "--noise" in line.flags else setup.seeds[:1]
        runs = [run for seed in seeds for run in simulate(setup.binary, trace, [*flags, "--seed", str(seed)])]
        if not runs:
            continue
        # Where sizes are chosen the bound for those that are asked for does not hold.
        bound = runs[0] if runs[0]["bound_avg_jct_s"] is not None else bound
        cells = [
            told(line).replace("antiphon", "**antiphon**"),
            line.knowledge,
            over_seeds(runs, "avg_jct_s"),
            line.published or "-",
            over_seeds(runs, "p50_jct_s"),
            over_seeds(runs, "p99_jct_s"),
            over_seeds(runs, "makespan_s"),
            over_seeds(runs, "preemptions"),
            over_seeds(runs, "deadlines_met", 1, 100.0),
            number(statistics.fmean(figures(runs, "wall_s")), 2),
            number(max(figures(runs, "peak_rss_bytes"), default=0.0) / 1e6),
        ]
        rows.append(f"| {' | '.join(cells)} |")
        plotted += bar(line, runs, bound)
    if bound:
        jct, makespan = number(bound["bound_avg_jct_s"]), number(bound["bound_makespan_s"])
        rows += ["", f"Bound: mean JCT {jct} s, makespan {makespan} s."]
    plots = [*bound_plot(comparison, plotted), *distributions(setup, comparison, trace)]
    note = ["", comparison.note] if comparison.note else []
    return [*page, *plots, *head, *rows, *note, ""]


def bar(line: Line, runs: list[Run], bounds: Run) -> list[Bar]:
    """A line as a bar: its mean completion time over the bound, and the published one's where it is a number."""
    bound = next(iter(figures([bounds], "bound_avg_jct_s")), 0.0)
    if bound <= 0:
        return []
    ratios = [jct / bound for jct in figures(runs, "avg_jct_s")]
    first = line.published.split(" ")[0].replace(",", "")
    published = float(first) / bound if first.isdigit() else None
    name = f"{told(line)}, knows {line.knowledge}"
    return [Bar(name, statistics.fmean(ratios), published, ours=line.policy == "antiphon")]


def bound_plot(comparison: Comparison, plotted: list[Bar]) -> list[str]:
    """The comparison against its bound, as a plot."""
    if not comparison.name or not plotted:
        return []
    PLOTS.mkdir(parents=True, exist_ok=True)
    file = PLOTS / f"{comparison.name}-bound.svg"
    file.write_text(bars("Mean JCT, as a multiple of the bound", plotted))
    return [f"![Mean JCT of each policy as a multiple of the bound]({link(file)})", ""]


def distributions(setup: Setup, comparison: Comparison, trace: Path) -> list[str]:
    """What `--svg` draws of the comparison: completion times, and jobs waiting over time."""
    if not comparison.drawn:
        return []
    told_of = {"jct": "Distribution of completion times", "waiting": "Jobs waiting over time"}
    shown = []
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--policy", ",".join(comparison.drawn), "--knowledge", "durations", "--svg", folder]
        simulate(setup.binary, trace, [*comparison.flags, *flags])
        for name, alt in told_of.items():
            drawn = Path(folder) / f"{name}.svg"
            if drawn.exists():
                file = PLOTS / f"{comparison.name}-{name}.svg"
                shutil.copyfile(drawn, file)
                shown.append(f"![{alt}, true run times known]({link(file)})")
    return [*shown, ""] if shown else []


def link(file: Path) -> str:
    """From the page to a plot."""
    return f"../{file.relative_to('docs').as_posix()}"


def placement(setup: Setup) -> list[str]:
    """Placement alone: FGD's comparison."""
    page = [
        f"## FGD: placement alone, 1,213 nodes with 6,212 GPUs, offered 130 %, {setup.shuffles} shuffles",
        "",
        "GPU allocation in percent, mean ± standard deviation; published in brackets.",
        "",
        "| variant | antiphon | fgd | best-fit | random |",
        "| --- | --- | --- | --- | --- |",
    ]
    for variant, fgd, best_fit, random in FGD:
        trace = setup.traces / f"alibaba-gpu-v2023-fgd/openb_pod_list_{variant}.csv.gz"
        if not trace.exists():
            continue
        policies = ["--policy", "antiphon,fgd,best-fit,random"]
        runs = simulate(setup.binary, trace, [*policies, "--shuffles", str(setup.shuffles)])
        published = ["", f" ({fgd})", f" ({best_fit})", f" ({random})"]
        cells = [
            f"{number(run['allocation'], 2)} ± {number(run['allocation_sd'], 2)}{theirs}"
            for run, theirs in zip(runs, published, strict=False)
        ]
        page.append(f"| {variant} | {' | '.join(cells)} |")
    if not any(row.startswith("| default") for row in page):
        page.append("Left out: the traces are not there.")
    return [*page, ""]


def forecasts(setup: Setup) -> list[str]:
    """How well starts are foretold, on the traces of the comparisons."""
    page = [
        "## Start forecasts",
        "",
        f"{FORECASTS} forecasts of the whole queue on each trace, as `why` shows them. Each job that waits is judged",
        "by the first one that names it. *Shown* is the interval that is made to hold 80 % of starts, by how forecasts",
        "before it turned out; *played* is the one of playing the queue forward alone. `limits` is the forecast from",
        "user limits alone: round numbers of one to ten times the run time, where the trace has none.",
        "",
        "| trace | knows | judged | interval % | shown: held % | median width s | played: held % | median width s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for comparison in FORETOLD:
        trace = setup.traces / comparison.trace
        if not trace.exists():
            continue
        for knowledge in ("none", "limits", "progress", "durations"):
            flags = [*comparison.flags, "--policy", "antiphon", "--knowledge", knowledge, "--forecasts", str(FORECASTS)]
            for run in simulate(setup.binary, trace, flags):
                cells = [
                    comparison.name,
                    knowledge,
                    number(run["forecasts"]),
                    over_seeds([run], "forecast_closed", 1, 100.0),
                    over_seeds([run], "forecast_coverage", 1, 100.0),
                    over_seeds([run], "forecast_width_s"),
                    over_seeds([run], "forecast_played_coverage", 1, 100.0),
                    over_seeds([run], "forecast_played_width_s"),
                ]
                page.append(f"| {' | '.join(cells)} |")
    return [*page, ""]


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default="target/release/antiphon")
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--shuffles", type=int, default=10, help="orders of the pods that placement is tried with")
    parser.add_argument("--seeds", default="1,2,3", help="what lines with noise are repeated with")
    arguments = parser.parse_args()
    seeds = tuple(int(seed) for seed in arguments.seeds.split(","))
    setup = Setup(arguments.binary, arguments.traces, arguments.shuffles, seeds)
    page = [
        "# Results on public traces",
        "",
        "Written by `make results TRACES=DIR`: one default policy and one set of constants for every trace. Lines with",
        f"`--noise` are the mean ± standard deviation over seeds {', '.join(map(str, seeds))}; others draw nothing.",
        "Same trace, cluster and costs for all policies of a table; `knows` says what each may know. Published figures",
        "come from the authors' own simulators. Wall clock and memory are those of",
        f"`{arguments.binary}` on a machine that was not idle.",
        "",
        "In the plots the dashed line is the bound, and the mark beside a bar is the published figure.",
        "",
    ]
    page += placement(setup)
    for comparison in COMPARISONS:
        page += table(setup, comparison)
    page += forecasts(setup)
    PAGE.write_text("\n".join(page))


if __name__ == "__main__":
    main()
