"""Fits the constants by which jobs of one team take turns: one value for all traces.

Each constant is varied alone, the others as they are. A value's figure is the mean over traces of the logarithm of the
average completion time against that of the present value, each trace the mean over what may be known; its error is the
standard error of that mean over the traces. A value that is better by more than two errors speaks against the present.
`turn_gain_permille` is a setting and needs no build. The others stand in the source: they are changed in a copy of the
tracked files, which is built for each value. Changes nothing in the tree.

    scripts/fit_turns.py --traces TRACES --binary target/release/antiphon --constant gain --constant patience
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

KERNEL = "crates/antiphon-kernel/src"
KNOWLEDGE = ("none", "progress", "durations")
# No two of the same jobs: Muri's job types differ in what this simulation does not read.
TRACES = (
    "muri/trace1.csv.gz",
    "muri/trace3.csv.gz",
    "elasticflow/195job.csv.gz",
    "elasticflow/cluster01.csv.gz",
    "elasticflow/cluster05.csv.gz",
)


@dataclass(frozen=True)
class Constant:
    """One constant: its values, the present one first, and how the source says it."""

    values: tuple[float, ...]
    file: str = ""
    pattern: str = ""
    write: Callable[[float], str] = str


_WIDE = r"const WIDE: \[u32; 16\] = \[[^\]]*\];"


def _wide(exponent: float) -> str:
    """What a GPU of a gang of 2^n GPUs weighs, in thousandths."""
    weights = [round(1000 * 2 ** (n * (exponent - 1))) for n in range(16)]
    return "const WIDE: [u32; 16] = [" + ", ".join(map(str, weights)) + "];"


def _whole(name: str, kind: str) -> tuple[str, Callable[[float], str]]:
    pattern = rf"const {name}: {kind} = [0-9_]+;"
    return pattern, lambda value: f"const {name}: {kind} = {value:.0f};"


_PATIENCE, _patience = _whole("PATIENCE", "u64")
_TELLING, _telling = _whole("TELLING", "u64")
_SEARCHES, _searches = _whole("SEARCHES_MAX", "usize")

CONSTANTS = {
    "gain": Constant((1.3, 1.05, 1.15, 1.5, 1.8, 2.5)),
    "width": Constant((0.8, 0.6, 0.7, 0.9, 1.0), f"{KERNEL}/expect.rs", _WIDE, _wide),
    "patience": Constant((16, 4, 8, 32, 64), f"{KERNEL}/expect.rs", _PATIENCE, _patience),
    "telling": Constant((16, 4, 8, 32, 64), f"{KERNEL}/expect.rs", _TELLING, _telling),
    "searches": Constant((8, 2, 4, 16), f"{KERNEL}/turns.rs", _SEARCHES, _searches),
}


def simulate(binary: Path, trace: Path, knowledge: str, policy: str) -> float:
    """The average completion time."""
    command = [str(binary), "simulate", "--trace", str(trace), "--knowledge", knowledge, "--policy", policy, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["runs"][0]["avg_jct_s"])


def build(constant: Constant, value: float, tree: Path, target: Path) -> Path:
    """The binary with another value, from a copy of the tracked files."""
    tracked = subprocess.run(["git", "archive", "HEAD"], check=True, capture_output=True)
    tree.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "-C", str(tree)], input=tracked.stdout, check=True)
    file = tree / constant.file
    source, count = re.subn(constant.pattern, constant.write(value), file.read_text())
    if count != 1:
        sys.exit(f"`{constant.pattern}` stands {count} times in {constant.file}: bring this script up to date")
    file.write_text(source)
    command = ["cargo", "build", "--quiet", "--bin", "antiphon", "--target-dir", str(target)]
    subprocess.run(command, check=True, cwd=tree)
    return target / "debug" / "antiphon"


@dataclass
class Bench:
    """What is measured on, and what was measured of the present values."""

    binary: Path
    target: Path
    cells: list[tuple[Path, str]]
    present: dict[tuple[Path, str], float]

    def against_present(self, name: str, value: float, scratch: Path) -> dict[str, list[float]]:
        """By trace: the logarithms of completion times against the present ones, one a knowledge."""
        constant = CONSTANTS[name]
        binary, policy = self.binary, "antiphon"
        if constant.file:
            binary = build(constant, value, scratch / "tree", self.target)
        else:
            setting = scratch / f"{name}-{value}.toml"
            setting.write_text(f"[policy]\nturn_gain_permille = {value * 1000:.0f}\n")
            policy = str(setting)
        ratios: dict[str, list[float]] = {}
        for cell in self.cells:
            if cell not in self.present:
                self.present[cell] = simulate(self.binary, *cell, "antiphon")
            ratio = simulate(binary, *cell, policy) / self.present[cell]
            ratios.setdefault(cell[0].name, []).append(math.log(ratio))
        return ratios


def row(name: str, value: float, ratios: dict[str, list[float]]) -> str:
    """A line of the table: the mean with its error over traces, and the best and the worst cell."""
    means = [statistics.fmean(cells) for cells in ratios.values()]
    mean = statistics.fmean(means)
    error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else math.inf
    cells = [cell for of_trace in ratios.values() for cell in of_trace]
    verdict = "better" if mean < -2 * error else "worse" if mean > 2 * error else "no different"
    percent = [f"{100 * math.expm1(figure):+.1f} %" for figure in (mean, min(cells), max(cells))]
    return f"| {name} | {value:g} | {percent[0]} ± {100 * error:.1f} | {percent[1]} | {percent[2]} | {verdict} |"


def main() -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="where the public traces lie")
    parser.add_argument(
        "--trace", action="append", metavar="PATTERN", help="which of them; default: five that are short"
    )
    parser.add_argument("--binary", type=Path, required=True, help="antiphon as it is")
    parser.add_argument("--target", type=Path, default=Path("target/fit"), help="where variants are built")
    parser.add_argument("--constant", action="append", choices=sorted(CONSTANTS), help="default: all of them")
    parser.add_argument("--knowledge", action="append", choices=KNOWLEDGE, help="default: all of them")
    args = parser.parse_args()
    patterns = args.trace or TRACES
    traces = [file for pattern in patterns for file in sorted(args.traces.glob(pattern))]
    cells = [(trace, knowledge) for trace in traces for knowledge in args.knowledge or KNOWLEDGE]
    bench = Bench(args.binary, args.target.absolute(), cells, {})
    print("| constant | value | completion time against the present value | best cell | worst cell | |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in args.constant or CONSTANTS:
        print(f"| {name} | {CONSTANTS[name].values[0]:g} (present) | | | | |", flush=True)
        for value in CONSTANTS[name].values[1:]:
            with tempfile.TemporaryDirectory() as scratch:
                ratios = bench.against_present(name, value, Path(scratch))
            print(row(name, value, ratios), flush=True)


if __name__ == "__main__":
    main()
