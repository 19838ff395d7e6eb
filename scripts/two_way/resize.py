"""A change of ranks inside accumulation: in one gang, by relaunch, and as torchrun does it.

    python scripts/two_way/resize.py [--runs 3]

From the order at a micro-step to the end of the first micro-step on the new ranks, in seconds. All sides train the same
model with the same snapshot, and go on from it inside the step.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from faults import end_group

PROGRAM = Path(__file__).resolve().parents[2] / "python" / "tests_torch" / "ranks.py"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
#: After micro-step 2 of the step that follows step 2, and micro-step 3 of that after step 4.
FIRST, SECOND = "2.2", "4.3"
PATIENCE_S = 600.0
IN_GANG, BACK, RELAUNCH = "4 -> 2 in the gang", "2 -> 4 in the gang", "4 -> 2 by relaunch of the gang"
BY_HAND, ELASTIC = "4 -> 2 by torchrun, launched again with `--nproc-per-node 2`", "4 -> 2 by torchrun's own restart"


def notes(directory: str, name: str) -> list[dict[str, Any]]:
    """What the ranks of a scenario have noted so far."""
    path = Path(directory) / name / "notes.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def run(launcher: Sequence[str], directory: str, **scenario: Any) -> list[dict[str, Any]]:
    """Runs a scenario to its end."""
    command = [*launcher, str(PROGRAM), directory, json.dumps(scenario)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, timeout=PATIENCE_S)
    return notes(directory, scenario["name"])


def from_order(noted: list[dict[str, Any]]) -> float:
    """Seconds from the order to the first micro-step that was resumed."""
    ordered: float = next(note["ordered_at"] for note in noted if "ordered_at" in note)
    return float(next(note["first_micro_step_at"] for note in noted if note.get("resumed"))) - ordered


def in_gang(directory: str) -> dict[str, float]:
    """Two changes of a gang that goes on."""
    noted = run([sys.executable], directory, name="gang", orders={FIRST: 2, SECOND: 4})
    first, second = [note["order_to_micro_step_s"] for note in noted if note.get("resumed")]
    return {IN_GANG: first, BACK: second}


def relaunched(directory: str) -> dict[str, float]:
    """All processes end at the order, and one that forks two ranks is started."""
    run([sys.executable], directory, name="relaunch", orders={FIRST: 2}, relaunches=True)
    return {RELAUNCH: from_order(run([sys.executable], directory, name="relaunch", ranks=2, steps=4))}


def by_hand(directory: str) -> dict[str, float]:
    """The same by torchrun."""
    four, two = ([*TORCHRUN, "--standalone", "--nproc-per-node", str(ranks)] for ranks in (4, 2))
    run(four, directory, name="torchrun", orders={FIRST: 2}, relaunches=True)
    return {BY_HAND: from_order(run(two, directory, name="torchrun", steps=4))}


def elastic(directory: str) -> dict[str, float]:
    """Two agents of two ranks each; the second is killed at the order, and the first goes on with its own.

    Told to end by SIGTERM, it leaves the rendezvous in a state in which the first still waited for it 300 s later.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = f"--rdzv-endpoint=127.0.0.1:{port}"
    command = [*TORCHRUN, "--nnodes=1:2", "--nproc-per-node=2", "--rdzv-backend=c10d", where, "--max-restarts=10"]
    scenario = {"name": "elastic", "orders": {FIRST: 2}, "steps": 10**9}
    agents = []
    try:
        for _ in range(2):
            agents.append(
                subprocess.Popen(
                    [*command, str(PROGRAM), directory, json.dumps(scenario)],
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
            # The first is the host of the rendezvous: were it to end, the other would too.
            time.sleep(1.0)
        wait(lambda: any("ordered_at" in note for note in notes(directory, "elastic")))
        end_group(agents[1])
        if not wait(lambda: any(note.get("resumed") and note["ranks"] == 2 for note in notes(directory, "elastic"))):
            return {ELASTIC: PATIENCE_S}
    finally:
        for agent in agents:
            end_group(agent)
    return {ELASTIC: from_order([note for note in notes(directory, "elastic") if note.get("ranks", 2) == 2])}


def wait(ready: Callable[[], bool]) -> bool:
    """Waits until something is so, and says whether it came to that."""
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def main() -> int:
    """Measures, and writes the part of the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, default=Path("target/two-way"))
    options.add_argument("--runs", type=int, default=3)
    given = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    given.folder.mkdir(parents=True, exist_ok=True)
    kept = given.folder / "resize.json"
    # What has been run is not run again.
    runs: list[dict[str, Any]] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    for number in range(given.runs):
        for way in (in_gang, relaunched, by_hand, elastic):
            if any((run["number"], run["way"]) == (number, way.__name__) for run in runs):
                continue
            with tempfile.TemporaryDirectory() as directory:
                took = way(directory)
            print(took, flush=True)
            runs.append({"number": number, "way": way.__name__, "took_s": took, "load": os.getloadavg()[0]})
            kept.write_text(json.dumps(runs), encoding="utf-8")
    loads = [run["load"] for run in runs]
    rows = []
    for what in (IN_GANG, BACK, RELAUNCH, BY_HAND, ELASTIC):
        of = [run["took_s"][what] for run in runs if what in run["took_s"]]
        each = ", ".join(f"over {it:.0f}" if it >= PATIENCE_S else f"{it:.1f}" for it in of)
        rows.append(f"| {what} | {statistics.median(of):.1f} | {each} |")
    part = "\n".join(
        [
            "## A change of ranks",
            "",
            "Four ranks (gloo, FSDP2) inside accumulation, two micro-steps of four done, on the CPU. From the order to",
            "the end of the first micro-step on the new ranks: snapshot, new group, model built, snapshot resumed.",
            "A relaunch ends all processes and starts new ones, which import PyTorch again. torchrun's own restart is",
            "that of an agent (`--nnodes=1:2`) whose only fellow was killed: it starts its ranks anew, at first in a",
            "group that still counts the dead ones, and once their heartbeats are missed in one without them.",
            f"Load on the two processors meanwhile: {min(loads):.1f} to {max(loads):.1f}, where 2 is all there is.",
            "(`scripts/two_way/resize.py`)",
            "",
            "| what | median, s | each run, s |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )
    print(part)
    (given.folder / "7-resize.part.md").write_text(part, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
