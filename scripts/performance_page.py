#!/usr/bin/env python3
"""Writes the tables of docs/reference/performance.md from the JSON lines that the benchmarks print.

Keeps the prose of the page and whatever stands outside the two marks; measures nothing and judges nothing: a bar stands
beside what was reached, met or not. A benchmark that the lines do not hold keeps no row.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BEGIN = "<!-- begin: written by scripts/performance_page.py -->"
KERNEL = "<!-- begin: the kernel, written by scripts/performance_page.py -->"
DASHBOARD = "<!-- begin: the dashboard, written by scripts/performance_page.py -->"
SIGNALS = "<!-- begin: signals, written by scripts/performance_page.py -->"
END = "<!-- end -->"
PAGE = Path(__file__).resolve().parent.parent / "docs/reference/performance.md"

Line = dict[str, Any]


@dataclass(frozen=True)
class Bar:
    """What a benchmark is called for people, and what it has to reach."""

    what: str
    bar: str


BARS: dict[str, Bar] = {
    "local/submit_to_start": Bar("submit to process start, local backend, 0 GPUs, 10 a second, p99", "< 50 ms"),
    "kernel/decisions": Bar("gangs started a second, full cluster, deep queue", "20,000 at 5,000 nodes"),
    "kernel/decisions_depth": Bar("the same with fewer pending", "-"),
    "kernel/decisions_sqlite": Bar("the same, every cycle committed to SQLite", "-"),
    "kernel/decisions_preempt": Bar("the same with preemption on", "-"),
    "signals/http": Bar("signals a second over HTTP, generator on the same cores", "1,000,000"),
    "signals/in_process": Bar("signals a second through every rule, one core", "5,000,000"),
    "local/restart": Bar("restart after `kill -9`, to the first answered request", "-"),
    **{
        f"dashboard/open_{page}": Bar(f"{page}: from the address to the painted page", "< 1 s")
        for page in ("now", "cluster", "queue", "job", "teams", "explain")
    },
    **{
        f"dashboard/change_{page}": Bar(f"{page}: from a change's arrival to its being painted", "< 100 ms")
        for page in ("now", "cluster", "queue", "job", "teams")
    },
    "slurm/submit_to_start": Bar("the same submits to Slurm, p99", "-"),
    "slurm/through_antiphon": Bar("time that antiphon adds to 1,000 jobs of one GPU on Slurm", "< 10 %"),
}


def read(text: str) -> list[Line]:
    """Every line; what is no JSON object is talk and is passed over."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def last(lines: list[Line]) -> dict[str, Line]:
    """The last line of each benchmark."""
    return {line["bench"]: line for line in lines}


def number(value: float) -> str:
    """Three figures: more is noise."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def bars(lines: dict[str, Line]) -> list[str]:
    rows = []
    for bench, line in lines.items():
        bar = BARS.get(bench, Bar(bench, "-"))
        if "skipped" in line:
            rows.append([f"`{bench}`", bar.what, bar.bar, f"skipped: {line['skipped']}", "", ""])
            continue
        spread = line.get("spread", [])
        runs = str(len(line["runs"])) if "runs" in line else ""
        rows.append(
            [
                f"`{bench}`",
                bar.what,
                bar.bar,
                f"{number(line['value'])} {line['unit']}",
                " to ".join(number(end) for end in spread),
                runs,
            ]
        )
    return table(["benchmark", "what", "bar", "reached (median)", "spread", "runs"], rows)


def beside_slurm(lines: dict[str, Line]) -> list[str]:
    ours, theirs = lines.get("local/submit_to_start"), lines.get("slurm/submit_to_start")
    if ours is None or theirs is None:
        return []
    if "skipped" in theirs:
        return [f"Slurm was not measured: {theirs['skipped']}."]
    # Label, our figure, theirs, and whether less is better.
    pairs = [
        ("submit to start, p50", "p50_ms", "p50_ms", True),
        ("submit to start, p99", "p99_ms", "p99_ms", True),
        ("answer to a submit, p50 (HTTP; `sbatch`)", "accepted_p50_ms", "accepted_p50_ms", True),
        (
            "one command to start, p50 (`antiphon submit`; `sbatch`)",
            "command_p50_ms",
            "p50_ms",
            True,
        ),
        (
            "one command to start, p50 (`antiphon submit`; `srun`)",
            "command_p50_ms",
            "srun_p50_ms",
            True,
        ),
        (f"burst of {ours['burst']:,}, jobs a second", "jobs_per_s", "jobs_per_s", False),
    ]
    worst, their_worst = (max(run["max_ms"] for run in line["runs"]) for line in (ours, theirs))
    rows = [
        [
            "submit to start, worst of all runs",
            f"{number(worst)} ms",
            f"{number(their_worst)} ms",
            f"{number(their_worst / worst)} x",
        ]
    ]
    for label, our, their, less in pairs:
        unit = "ms" if less else "/s"
        ratio = theirs[their] / ours[our] if less else ours[our] / theirs[their]
        rows.append(
            [
                label,
                f"{number(ours[our])} {unit}",
                f"{number(theirs[their])} {unit}",
                f"{number(ratio)} x",
            ]
        )
    return table(["figure", "antiphon", "Slurm 22.05", "ratio (above 1: antiphon ahead)"], rows)


def loads(lines: dict[str, Line]) -> str:
    seen = [run["load"] for line in lines.values() for run in line.get("runs", []) if "load" in run]
    return f"{min(seen):.1f} to {max(seen):.1f}" if seen else "not recorded"


def section(lines: dict[str, Line], command: str, date: str) -> str:
    measured = [line for line in lines.values() if "machine" in line]
    machines = sorted({line["machine"] for line in measured})
    syncs = sorted({f"{number(line['sync_ms'])} ms" for line in measured if "sync_ms" in line})
    parts = [
        BEGIN,
        "",
        f"Measured {date} with `{command}`.",
        f"Machine: {'; '.join(machines) or 'not recorded'}.",
        f"Making 4 KiB durable took {', '.join(syncs) or 'an unknown time'} there (median of 50).",
        f"Load average (1 min) when the runs began: {loads(lines)}. Earlier runs of the benchmark are part of it.",
        "No figure depends on a seed.",
        "",
        *bars(lines),
        "",
        *beside_slurm(lines),
        "",
        END,
    ]
    return "\n".join(parts)


def kernel(lines: list[Line], command: str, date: str) -> str:
    rows = []
    for line in lines:
        low, high = line["spread"]
        rows.append(
            [
                f"`{line['bench']}`",
                f"{line['nodes']:,}",
                f"{line['pending']:,}",
                f"{line['decisions_per_s']:,.0f}",
                f"{low:,.0f} to {high:,.0f}",
                f"{line['with_submits_per_s']:,.0f}",
                f"{line['cycle_p50_us'] / 1000:.2f} ms",
                f"{line['cycle_p99_us'] / 1000:.2f} ms",
                f"{line['state_bytes'] / 1e6:.1f} MB",
                f"{line['allocated_percent_mean']:.1f} %",
                f"{line['tasks_per_gang_mean']:.1f} / {line['gpus_per_gang_mean']:.1f}",
            ]
        )
    head = [
        "benchmark",
        "nodes",
        "pending",
        "gangs a second (median)",
        "spread",
        "with their submits",
        "cycle p50",
        "cycle p99",
        "state",
        "allocated",
        "tasks / GPUs a gang",
    ]
    seeds = sorted({line["seed"] for line in lines})
    parts = [
        KERNEL,
        "",
        f"Measured {date} with `{command}`, seeds from {', '.join(map(str, seeds))} on.",
        f"Machine: {machine()}.",
        "",
        *table(head, rows),
        "",
        END,
    ]
    return "\n".join(parts)


def signals(lines: list[Line], command: str, date: str) -> str:
    rows = []
    for line in lines:
        bar = BARS[line["bench"]]
        low, high = line["spread"]
        memory = f"{line['peak_rss_bytes'] / 1e6:.0f} MB" if "peak_rss_bytes" in line else ""
        cores = f"{line['server_cores']:.2f}" if "server_cores" in line else ""
        runs = str(line["runs"])
        reached = f"{line['value']:,.0f}"
        spread = f"{low:,.0f} to {high:,.0f}"
        rows.append([f"`{line['bench']}`", bar.what, bar.bar, reached, spread, runs, memory, cores])
    head = ["benchmark", "what", "bar", "reached (median)", "spread", "runs", "server's peak memory", "server's cores"]
    parts = [SIGNALS, "", f"Measured {date} with `{command}`.", f"Machine: {machine()}.", "", *table(head, rows)]
    for planted in (line["planted"] for line in lines if "planted" in line):
        parts += ["", *planted_found(planted)]
    return "\n".join([*parts, "", END])


def dashboard(lines: list[Line], command: str, date: str) -> str:
    rows = []
    for line in lines:
        bar = BARS[line["bench"]]
        low, high = line["spread"]
        reached, spread = f"{number(line['value'])} ms", f"{number(low)} to {number(high)} ms"
        rows.append([f"`{line['bench']}`", bar.what, bar.bar, reached, spread, str(line["runs"])])
    size = lines[-1]
    parts = [
        DASHBOARD,
        "",
        f"Measured {date} with `{command}`.",
        f"Machine: {machine()}; the simulation and Chromium share it.",
        f"{size['nodes']:,} nodes, {size['jobs']:,} jobs, {size['running']:,} of them running, while virtual time goes "
        f"on {size['speed'].rstrip('x')} times as fast as a clock.",
        "",
        *table(["benchmark", "what", "bar", "median", "spread", "times"], rows),
        "",
        END,
    ]
    return "\n".join(parts)


def planted_found(runs: list[dict[str, Any]]) -> list[str]:
    """When the rules named what was planted in one more job while the load ran."""
    head = ["planted, run by run", "named at step", "after", "while the load ran"]
    rows = [
        [what, str(run[f"{name}_step"]), f"{run[f'{name}_s']:.1f} s", "yes" if run["within_load"] else "no"]
        for what, name in (("a task 22 % slower", "slow_task"), ("a shard of noise", "noise"))
        for run in runs
    ]
    return table(head, rows)


def machine() -> str:
    """The machine that this runs on: the benchmark is run on the same."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    model = models[0] if models else platform.machine()
    release = platform.release().partition("-")[0]
    return f"{len(models)} x {model}, Linux {release}"


def replaced(text: str, begin: str, section: str) -> str | None:
    before, found, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    return before + section + after if found and end else None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("lines", type=Path, nargs="*", help="files of JSON lines [standard input]")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--command", default="make bench", help="what printed the lines")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    given = parser.parse_args()
    paths: list[Path] = given.lines
    texts = [path.read_text() for path in paths] if paths else [sys.stdin.read()]
    lines = read("\n".join(texts))
    if not lines:
        print("performance_page: the input holds no JSON line", file=sys.stderr)
        return 1
    page: Path = given.page
    text: str | None = page.read_text()
    ours = [line for line in lines if line["bench"].startswith("kernel/")]
    of_signals = [line for line in lines if line["bench"].startswith("signals/")]
    of_pages = [line for line in lines if line["bench"].startswith("dashboard/")]
    others = last([line for line in lines if line not in ours and line not in of_signals and line not in of_pages])
    if ours and text is not None:
        text = replaced(text, KERNEL, kernel(ours, given.command, given.date))
    if of_signals and text is not None:
        text = replaced(text, SIGNALS, signals(of_signals, given.command, given.date))
    if of_pages and text is not None:
        text = replaced(text, DASHBOARD, dashboard(of_pages, given.command, given.date))
    if others and text is not None:
        text = replaced(text, BEGIN, section(others, given.command, given.date))
    if text is None:
        print(f"performance_page: {page} lacks the marks", file=sys.stderr)
        return 1
    page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
