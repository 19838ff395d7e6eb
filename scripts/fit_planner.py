"""Fits the constants of `catalog/kernels.toml` to published measurements, by coordinate descent over a list of names.

Each constant is tried a little higher and a little lower; what brings plans nearer to the measurements stays. Groups of
(source, method, GPU) count, not rows, and an error counts up to a half: rows that no model explains do not pull. With
`--held-out`, constants are fitted to half of the sources and told for the other half, both ways, and the file stays as
it is.

    cargo build -p antiphon-planner --example score
    python scripts/fit_planner.py --program target/debug/examples/score --table measurements.csv
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

CATALOG = Path("crates/antiphon-planner/catalog/kernels.toml")

# Section, name, least, most. Few, and each with a meaning; what a data sheet or a source tells is not fitted.
CONSTANTS: list[tuple[str, str, float, float]] = [
    ("defaults", "matmul", 0.7, 1.05),
    ("defaults", "matmul_half", 50, 600),
    ("defaults", "expert_half", 20, 600),
    ("defaults", "fused", 0.0, 1.0),
    ("defaults", "memory", 0.6, 0.95),
    ("defaults", "host_us", 10, 60),
    ("defaults", "expert_kernels", 15, 80),
    ("defaults", "latent_kernels", 10, 100),
    ("defaults", "contention", 0.0, 0.4),
    ("defaults", "overlap_data", 0.3, 1.0),
    ("defaults", "quantize_bytes", 4, 24),
    ("defaults", "quantize_row_bytes", 8, 80),
    ("defaults", "quantize_block_bytes", 4, 32),
    ("defaults", "quantize_four_bytes", 4, 60),
    ("defaults", "dequantize_bytes", 3, 40),
    ("defaults", "optimizer_passes", 1.0, 3.0),
    ("defaults", "jitter", 0.001, 0.01),
    ("defaults", "link", 0.6, 0.9),
    ("defaults", "host_link", 0.1, 0.4),
    ("defaults", "network", 0.5, 0.95),
    ("defaults", "network_us", 4, 40),
    ("defaults", "host_gb_s", 8, 60),
    ("defaults", "decode_memory", 0.3, 0.8),
    ("defaults", "decode_ms", 1, 30),
    ("defaults", "refit_passes", 0.5, 12),
    ("defaults", "rollout_s", 1, 40),
    ("framework.megatron", "host_us", 15, 90),
    ("framework.megatron", "overlap_tensor", 0.0, 0.8),
    ("framework.megatron-bridge", "host_us", 10, 60),
    ("framework.megatron-bridge", "graphed", 0.2, 1.0),
    ("framework.megatron-bridge", "overlap_tensor", 0.0, 0.95),
    ("framework.megatron-bridge", "overlap_expert", 0.0, 0.95),
    ("framework.automodel", "overlap_expert", 0.0, 0.95),
    ("framework.composer", "fused", 0.3, 1.0),
    ("framework.composer", "attention", 0.4, 1.0),
    ("framework.torchtitan", "overlap_tensor", 0.0, 0.9),
    ("framework.internevo", "bucket_mb", 20, 1000),
    ("framework.transformers", "host_us", 20, 90),
    ("framework.transformers", "optimizer_passes", 1.0, 4.0),
    ("framework.litgpt", "host_us", 15, 90),
    ("framework.litgpt", "collective_us", 100, 3000),
    ("architecture.Ampere", "attention_2", 0.5, 0.95),
    ("architecture.Ampere", "attention_3", 0.5, 1.0),
    ("architecture.Hopper", "attention_2", 0.3, 0.8),
    ("architecture.Hopper", "attention_3", 0.5, 1.0),
    ("architecture.Blackwell", "attention_3", 0.5, 1.2),
    ("architecture.Blackwell", "decode", 0.25, 1.0),
    ("architecture.Ada", "tflops_per_watt", 0.3, 0.9),
]


@dataclass(frozen=True)
class Row:
    """One measurement beside its plan."""

    source: str
    group: tuple[str, str, str, str]
    error: float


class Scorer:
    """Runs the scoring program on a text of constants."""

    def __init__(self, program: str, table: str) -> None:
        self.program = program
        self.table = table
        self.runs = 0

    def rows(self, text: str) -> list[Row]:
        """Every row that may be scored."""
        self.runs += 1
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            run = subprocess.run(
                [self.program, self.table, file.name, "--rows"], capture_output=True, text=True, check=True
            )
        rows = []
        for line in run.stdout.splitlines():
            cells = line.split("\t")
            if len(cells) < 9:
                continue
            _, source, method, gpu, _, kind, measured, planned, _ = cells
            rows.append(Row(source, (source, method, gpu, kind), distance(float(planned), float(measured))))
        return rows


def distance(planned: float, measured: float) -> float:
    """How far a plan is off, in either direction alike; at most a half counts."""
    return min(abs(math.log(planned / measured)), 0.5) if planned > 0 else 0.5


def loss(rows: list[Row], sources: set[str] | None = None) -> float:
    """The mean over groups of what is between their rows' median and mean error, nearer to the median."""
    groups: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        if sources is None or row.source in sources:
            groups[row.group].append(row.error)
    total = sum(weight(group) for group in groups)
    return (
        sum(
            weight(group) * (statistics.fmean(errors) + 2 * statistics.median(errors)) / 3
            for group, errors in groups.items()
        )
        / total
    )


def weight(group: tuple[str, str, str, str]) -> float:
    """Adapters of one comparison are one kind of run; models with experts are told apart and have few groups."""
    _, method, _, kind = group
    return 0.15 if method.startswith("peft:") else 2.5 if kind == "moe" else 1.0


def value(text: str, section: str, name: str) -> float | None:
    """A constant's value, where its section has one of its own."""
    match = re.search(pattern(section, name), text, re.MULTILINE | re.DOTALL)
    return float(match.group(2)) if match else None


def pattern(section: str, name: str) -> str:
    """Finds a constant without leaving its section."""
    return rf"(^\[{re.escape(section)}\]\n(?:(?!^\[).)*?^{name} = )([0-9.]+)"


def replaced(text: str, section: str, name: str, new: float) -> str:
    """The text with another value for a constant."""
    return re.sub(
        pattern(section, name),
        lambda match: f"{match.group(1)}{new:.4g}",
        text,
        count=1,
        flags=re.MULTILINE | re.DOTALL,
    )


def fit(scorer: Scorer, text: str, sources: set[str] | None, rounds: int, only: set[str] | None = None) -> str:
    """Coordinate descent with steps that halve."""
    best = loss(scorer.rows(text), sources)
    step = 0.25
    for round_ in range(rounds):
        for section, name, least, most in CONSTANTS:
            if only is not None and name not in only:
                continue
            now = value(text, section, name)
            if now is None:
                raise SystemExit(
                    f"error: {CATALOG} has no `{name}` in [{section}]\n  help: add it, or take it off the list"
                )
            for factor in (1 + step, 1 / (1 + step)):
                # A share of nothing can only grow by a step of its own.
                tried = min(max(now * factor if now else step * most, least), most)
                trial = replaced(text, section, name, tried)
                found = loss(scorer.rows(trial), sources)
                if found < best - 1e-6:
                    best, text = found, trial
                    break
        print(f"round {round_ + 1}: loss {best:.4f} after {scorer.runs} runs", file=sys.stderr)
        step /= 1.6
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="the `score` example of antiphon-planner, built")
    parser.add_argument("--table", required=True, help="measurements.csv")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--held-out", action="store_true", help="fit to half of the sources, tell the other half")
    parser.add_argument("--only", help="names of constants to fit, with commas; all of the list without")
    arguments = parser.parse_args()
    only = set(arguments.only.split(",")) if arguments.only else None
    scorer = Scorer(arguments.program, arguments.table)
    text = CATALOG.read_text()
    if not arguments.held_out:
        CATALOG.write_text(fit(scorer, text, None, arguments.rounds, only))
        return
    sources = sorted({row.source for row in scorer.rows(text)})
    for turn in (0, 1):
        fitted, apart = set(sources[turn::2]), set(sources[1 - turn :: 2])
        # From plain values, not from those that all sources have made.
        start = text
        for section, name, least, most in CONSTANTS:
            start = replaced(start, section, name, math.sqrt(max(least, most / 10) * most))
        found = fit(scorer, start, fitted, arguments.rounds, only)
        rows = scorer.rows(found)
        print(f"fitted to {len(fitted)} sources: loss {loss(rows, fitted):.4f}; apart {loss(rows, apart):.4f}")


if __name__ == "__main__":
    main()
