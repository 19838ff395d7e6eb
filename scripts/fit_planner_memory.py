"""Fits what frameworks keep in memory to published measurements, and writes the planner's tables.

    scripts/fit_planner_memory.py --binary target/release/antiphon --rows measurements.csv [--write]

Coordinate descent for each framework over the constants named in `KNOBS`, from where the table stands; then what each
adapter that is known by size alone keeps, from its own rows. Prints the error before and after; `--write` puts the
values into `catalog/frameworks.toml` and `catalog/adapters.csv`. What is not named here is read in the frameworks'
sources, not fitted.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import tomllib

CATALOG = Path(__file__).parent.parent / "crates" / "antiphon-planner" / "catalog"
GIB = 1 << 30
# Adapters of the PEFT comparison that keep next to nothing: what is there without an adapter is fitted to them.
BARE = {"peft:beft", "peft:tinylora", "peft:miss", "peft:trainable_tokens"}
# An error beyond this counts as this: such a row says something that no constant here stands for.
ERROR_MAX = 0.5

Row = dict[str, str]
Table = dict[str, dict[str, Any]]


class Knob(NamedTuple):
    """A constant, with the range that it may have."""

    section: str
    name: str
    step: float
    least: float
    most: float


class Fit(NamedTuple):
    """The constants of one framework, and the rows that they are fitted to."""

    source: str
    knobs: list[Knob]
    sections: tuple[str, ...] = ()


KNOBS = [
    Fit(
        "huggingface/peft",
        [
            Knob("transformers", "longest_of_mean", 0.1, 2.5, 3.66),
            Knob("transformers", "logit_bytes", 1, 8, 20),
            Knob("transformers", "adapter_input_bytes", 0.5, 1, 6),
            Knob("transformers", "norm_product_bytes", 1, 0, 8),
        ],
        # They train with the same `Trainer`.
        ("trl", "axolotl", "llama-factory"),
    ),
    Fit(
        "pytorch/torchtitan",
        [
            Knob("torchtitan", "logit_bytes", 1, 4, 20),
            Knob("torchtitan", "per_operation_share", 0.05, 0.2, 0.7),
            Knob("torchtitan < 202506", "logit_bytes", 1, 8, 24),
            Knob("torchtitan", "workspace_gib", 0.3, 0, 3),
        ],
    ),
    Fit(
        "stas00/ml-engineering",
        [
            Knob("deepspeed", "workspace_gib", 1, 0, 12),
            Knob("deepspeed", "gated_copies", 0.5, 2, 5),
            Knob("deepspeed", "norm_input_bytes", 0.5, 2, 6),
        ],
    ),
    Fit(
        "Lightning-AI/litgpt",
        [
            Knob("litgpt", "partial_qkv_bytes", 0.5, 0, 4),
            Knob("litgpt", "quantized_input_bytes", 0.5, 0, 8),
            Knob("litgpt", "norm_input_bytes", 1, 2, 8),
            Knob("litgpt", "logit_bytes", 1, 4, 16),
            Knob("litgpt < 202401", "quantized_input_bytes", 0.5, 0, 8),
            Knob("litgpt < 202401", "partial_qkv_bytes", 0.5, 0, 6),
        ],
    ),
    Fit(
        "AnswerDotAI/fsdp_qlora",
        [
            Knob("fsdp-qlora", "logit_bytes", 1, 8, 24),
            Knob("fsdp-qlora", "load_gib", 1, 0, 5),
            Knob("fsdp-qlora", "workspace_gib", 0.5, 0, 3),
            Knob("fsdp-qlora", "prefetch", 1, 0, 8),
        ],
    ),
    Fit(
        "NVIDIA/Megatron-LM",
        [
            Knob("megatron", "score_bytes", 1, 1, 9),
            Knob("megatron", "logit_bytes", 1, 4, 14),
            Knob("megatron", "mask_bytes", 1, 0, 6),
            Knob("megatron", "workspace_gib", 0.1, 0, 0.6),
            Knob("megatron", "gated_copies", 0.5, 2, 5),
            Knob("megatron", "plain_copies", 0.5, 1.5, 4),
            Knob("megatron", "dispatch_copies", 1, 1, 6),
        ],
    ),
    Fit(
        "NVIDIA-NeMo/Megatron-Bridge",
        [
            Knob("megatron-bridge", "dispatch_copies", 1, 1, 6),
            Knob("megatron-bridge", "logit_bytes", 1, 4, 14),
            Knob("megatron-bridge", "workspace_gib", 0.1, 0, 2),
        ],
    ),
    # Rows that tell the longest sequence that fits a card.
    Fit(
        'unsloth.ai docs, "Unsloth Benchmarks"',
        [
            Knob("unsloth", "gated_copies", 0.5, 1, 5),
            Knob("unsloth", "norm_input_bytes", 0.5, 2, 6),
            Knob("unsloth", "workspace_gib", 0.2, 0, 2),
            Knob("unsloth", "adapter_input_bytes", 0.5, 0, 4),
            Knob("transformers < 202507", "logit_bytes", 1, 10, 20),
            Knob("transformers < 202507", "workspace_gib", 0.2, 0, 3),
        ],
    ),
]
# What is told as the longest sequence fits, and one a quarter longer does not: the middle is aimed at.
LONGEST_AIM = 1.1


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", required=True, type=Path)
    arguments.add_argument("--rows", required=True, type=Path)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    with given.rows.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if measured(row)]
    table: Table = tomllib.loads((CATALOG / "frameworks.toml").read_text())
    with tempfile.TemporaryDirectory() as folder:
        planner = Planner(given.binary, Path(folder))
        for fit in KNOBS:
            own = [row for row in rows if row["source"] == fit.source and (plain(row) or row["method"] in BARE)]
            descend(planner, table, fit, own)
        kept = adapters(planner, table, [row for row in rows if not plain(row)])
    for name, value in sorted(kept.items()):
        print(f"{name}: keeps {value:.2f}")
    if given.write:
        write_frameworks(table)
        write_adapters(kept)


def measured(row: Row) -> bool:
    """Whether a row tells memory that may be fitted to, or the longest sequence that fits."""
    # State-space layers are planned as attention: no constant here stands for what they keep.
    hybrid = "M-" in row["arch"]
    told = row["score_memory"] == "yes" and row["outcome"] == "ok"
    return row["outcome"] == "max-context" or (told and not hybrid)


def plain(row: Row) -> bool:
    """Whether a row's method is more than the size of an adapter."""
    return not row["method"].startswith("peft:") and "adapter" not in row["method"]


class Planner:
    """Answers rows with a table of frameworks."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary = binary
        self.frameworks = folder / "frameworks.toml"
        self.rows = folder / "rows.csv"

    def peaks(self, table: Table, rows: list[Row]) -> list[float]:
        """GiB of each row, tokens where it tells the longest sequence; 0 where there is no answer."""
        self.frameworks.write_text(written(table))
        with self.rows.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        command = [str(part) for part in (self.binary, "plan", "--batch", self.rows, "--frameworks", self.frameworks)]
        answered = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        return [
            float(row["plan_max_seq_len"] or 0)
            if row["outcome"] == "max-context"
            else float(row["plan_peak_bytes"] or 0) / GIB
            for row in csv.DictReader(answered)
        ]


def error(planner: Planner, table: Table, rows: list[Row]) -> float:
    """Mean of the groups' medians, the rows' mean and the worst group, so that no group is given up for others."""
    groups = defaultdict(list)
    for row, peak in zip(rows, planner.peaks(table, rows), strict=True):
        if row["outcome"] == "max-context":
            off = min(abs(peak / float(row["seq_len"]) - LONGEST_AIM), ERROR_MAX)
            groups[row["method"], row["framework"]].append(off)
        elif peak:
            off = min(abs(peak / float(row["peak_mem_gib"]) - 1), ERROR_MAX)
            groups[row["method"], row["gpu"]].append(off)
    medians = [statistics.median(errors) for errors in groups.values()]
    every = [off for errors in groups.values() for off in errors]
    return statistics.mean(medians) + 0.5 * statistics.mean(every) + 0.3 * max(medians)


def value(table: Table, section: str, name: str) -> float:
    """A constant as it counts in a section."""
    for of in (section, section.split(" < ")[0], "defaults"):
        if name in table.get(of, {}):
            return float(table[of][name])
    raise KeyError(name)


def descend(planner: Planner, table: Table, fit: Fit, rows: list[Row]) -> None:
    """Moves one constant at a time while that helps, in ever smaller steps."""
    first = best = error(planner, table, rows)
    steps = {knob: knob.step for knob in fit.knobs}
    for _ in range(12):
        moved = False
        for knob in fit.knobs:
            for change in (steps[knob], -steps[knob]):
                now = value(table, knob.section, knob.name)
                tried = round(min(knob.most, max(knob.least, now + change)), 4)
                section = table.setdefault(knob.section, {})
                before = dict(section)
                section[knob.name] = tried
                off = error(planner, table, rows)
                if off < best - 1e-4:
                    best, moved = off, True
                    break
                table[knob.section] = before
        if not moved:
            steps = {knob: step / 2 for knob, step in steps.items()}
    for other in fit.sections:
        for knob in fit.knobs:
            table.setdefault(other, {})[knob.name] = value(table, knob.section, knob.name)
    told = ", ".join(f"{knob.section}.{knob.name} {value(table, knob.section, knob.name):g}" for knob in fit.knobs)
    print(f"{fit.source}: {len(rows)} rows, {first:.4f} to {best:.4f}: {told}", flush=True)


def adapters(planner: Planner, table: Table, rows: list[Row]) -> dict[str, float]:
    """What each adapter keeps, in widths of the model a token and layer: the middle of what its rows tell."""
    with (CATALOG / "models.csv").open(newline="") as file:
        models = {row["name"]: row for row in csv.DictReader(file)}
    with (CATALOG / "adapters.csv").open(newline="") as file:
        known = {row["name"]: float(row["kept"]) for row in csv.DictReader(file)}
    told = defaultdict(list)
    for row, peak in zip(rows, planner.peaks(table, rows), strict=True):
        name = row["method"].removeprefix("peft:")
        section = "transformers" if row["source"] == "huggingface/peft" else "litgpt"
        model = models[row["model_key"]]
        length = int(row["seq_len"])
        if "mean ~" in row["notes"]:
            mean = float(row["notes"].split("mean ~")[1].split(" ")[0])
            length = min(length, int(mean * value(table, section, "longest_of_mean")))
        reserved = value(table, section, "reserved_ratio") if "reserved" in row["mem_metric"] else 1.0
        missing = (float(row["peak_mem_gib"]) - peak) / reserved * GIB
        tokens = int(row["micro_batch"]) * length * int(model["layers"]) * int(model["hidden"])
        told[name].append(known.get(name, 1.0) + missing / tokens / value(table, section, "other_adapter_bytes"))
    return {name: round(statistics.median(values), 2) for name, values in told.items()}


def written(table: Table) -> str:
    """A table in TOML."""
    lines = []
    for section, constants in table.items():
        lines.append(f'["{section}"]' if " " in section else f"[{section}]")
        lines += [f"{name} = {toml(constant)}" for name, constant in constants.items()]
        lines.append("")
    return "\n".join(lines)


def toml(constant: Any) -> str:
    if isinstance(constant, bool):
        return str(constant).lower()
    if isinstance(constant, str):
        return f'"{constant}"'
    if isinstance(constant, list):
        return "[" + ", ".join(toml(each) for each in constant) + "]"
    if isinstance(constant, dict):
        return "{ " + ", ".join(f"{name} = {toml(each)}" for name, each in constant.items()) + " }"
    return f"{constant:g}"


def write_frameworks(table: Table) -> None:
    path = CATALOG / "frameworks.toml"
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    path.write_text("\n".join(head) + "\n\n" + written(table))


def write_adapters(kept: dict[str, float]) -> None:
    path = CATALOG / "adapters.csv"
    fixed = [("prefix-tuning", 0.0), ("prompt-tuning", 0.0), ("p-tuning", 0.0)]
    lines = [f"{name},{value:g}" for name, value in [*fixed, *sorted(kept.items())]]
    path.write_text("name,kept\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
