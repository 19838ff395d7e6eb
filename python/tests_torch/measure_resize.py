"""Measures a change of ranks inside accumulation, in one gang and by relaunch. Prints one JSON object a line.

    python measure_resize.py [--width 256] [--runs 3]

`order_to_micro_step_s` goes from the order at a micro-step to the end of the first micro-step on the new ranks: the
snapshot, the new group, model and optimizer built anew, the snapshot resumed. A relaunch ends all processes at the
order and starts a new one, which imports PyTorch again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import _torch_paths  # noqa: F401
import ranks

PROGRAM = str(Path(__file__).with_name("ranks.py"))


def run(directory: str, **scenario: Any) -> list[dict[str, Any]]:
    subprocess.run([sys.executable, PROGRAM, directory, json.dumps(scenario)], check=True, stderr=subprocess.DEVNULL)
    return ranks.notes(Path(directory) / scenario["name"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    times: dict[str, list[float]] = {"4 -> 2 in the gang": [], "2 -> 4 in the gang": [], "4 -> 2 by relaunch": []}
    saves: list[float] = []
    copies: list[float] = []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as directory:
            notes = run(directory, name="resized", orders={"2.2": 2, "4.3": 4}, width=options.width)
            resumed = [note for note in notes if note.get("resumed")]
            times["4 -> 2 in the gang"].append(resumed[0]["order_to_micro_step_s"])
            times["2 -> 4 in the gang"].append(resumed[1]["order_to_micro_step_s"])
            copies += [note["copy_ms"] for note in notes if "copy_ms" in note]
            saves += [note["save_ms"] for note in notes if "save_ms" in note]
            run(directory, name="cut", orders={"2.2": 2}, relaunches=True, width=options.width)
            notes = run(directory, name="cut", ranks=2, steps=4, width=options.width)
            ordered = next(note["ordered_at"] for note in notes if "ordered_at" in note)
            first = next(note["first_micro_step_at"] for note in notes if note.get("resumed"))
            times["4 -> 2 by relaunch"].append(first - ordered)
    for what, taken in times.items():
        print(
            json.dumps(
                {
                    "what": what,
                    "order_to_micro_step_s": round(statistics.median(taken), 2),
                    "all_s": [round(time, 2) for time in taken],
                    "width": options.width,
                }
            )
        )
    print(
        json.dumps(
            {
                "what": "snapshot",
                "copy_ms": round(statistics.median(copies), 1),
                "save_ms": round(statistics.median(saves), 1),
                "width": options.width,
            }
        )
    )


if __name__ == "__main__":
    main()
