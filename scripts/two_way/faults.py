"""Finished runs out of all, with one planted fault each: under antiphon, and under torchrun with one requeue.

    python scripts/two_way/faults.py --binary target/release/antiphon

Both run the same script with the same fault at the same steps, drawn from the seed. A run is finished when it has done
all its steps with weights that are numbers, within `LIMIT_S`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from server import ENDED, Server

HERE = Path(__file__).resolve().parent
SEEDS = (1, 2, 3, 4, 5)
KINDS = (
    "rank killed",
    "SIGTERM",
    "server away",
    "NaN shard",
    "out of memory",
    "hung rank",
    "full disk",
    "slow node",
)
#: A run without a fault takes a fifth of it, starts included.
LIMIT_S = 300.0
#: Steps between which faults strike.
FIRST, LAST = 30, 200
#: A node that throttles, or whose link fails: most runs would not end in time.
SLOWER = 40.0
RULES = ("shard", "provenance", "straggler", "convergence", "batch", "checkpoint", "hang")
NAN_SHARD = "c"
NAN_ROW_IN = 50
#: What the job file says that stands for the hours of a real job: a hang is told after ten minutes there.
HANG_AFTER = "20s"
GRACE = "5s"
KEEP = 3
COOL_DOWN_MS = 5_000
PART = f"""\
## Faults

Finished of all runs, seeds {", ".join(map(str, SEEDS))} each: two ranks (gloo) under torchrun, 240 steps, a checkpoint
every 20 that either side resumes from. Both sides run the same script with the same fault.

- *Rank killed*, *SIGTERM* (to the launcher, as at a node's shutdown) and *hung rank* strike one to three times in a
  run, at steps drawn from the seed. *Server away*: it is killed twice and started again 3 s later. *NaN shard*: every
  {NAN_ROW_IN}th row of one of three shards is no numbers from a step on. *Out of memory*: half the batch is too much
  for a rank. *Full disk*: it holds four checkpoints. *Slow node*: {SLOWER:.0f} times as slow from a step on.
- torchrun has one requeue. antiphon has its own retries: five in a row that get no further, which is the default, and
  here after 1 s in place of 10. Two or three kills are therefore beyond torchrun's side by its very setting.
- antiphon's job file also says what its owner would: the rules on `auto`, a smaller micro-batch for when memory runs
  out, `keep = {KEEP}` checkpoints, and, as a run of a minute stands for one of hours, `hang_after = "{HANG_AFTER}"` in
  place of 10 min, `grace = "{GRACE}"` in place of 60 s, `rule_cool_down_ms = {COOL_DOWN_MS}` in place of a minute.
  torchrun has no counterpart to shorten: it waits for a hung rank for as long as gloo does, half an hour.
- Each hang leaves the stacks of both ranks in the output of its attempt, which is checked.
- A run that has not ended after {LIMIT_S:.0f} s, five times what it takes, is not finished.
  (`scripts/two_way/faults.py`)

"""


@dataclass(frozen=True)
class Fault:
    """What happens to a run; when and how often follows from the seed."""

    kind: str
    seed: int

    @property
    def steps(self) -> list[int]:
        """The steps at which it strikes: one to three times, each once in the job's life."""
        rng = random.Random(f"{self.kind}/{self.seed}")
        return sorted(rng.sample(range(FIRST, LAST), rng.randint(1, 3)))

    @property
    def rank(self) -> int:
        """Whom it strikes."""
        return random.Random(f"{self.kind}/{self.seed}/rank").randrange(2)

    @property
    def fills_disk(self) -> bool:
        """Whether the disk holds only a few checkpoints."""
        return self.kind == "full disk"

    @property
    def exhausts_memory(self) -> bool:
        """Whether an equal part of the batch is too much for one rank's memory."""
        return self.kind == "out of memory"

    def poisons(self, shard: str, row: int, step: int) -> bool:
        """Whether a row is not numbers: a few of one shard, from a step on."""
        return self.kind == "NaN shard" and shard == NAN_SHARD and row % NAN_ROW_IN == 0 and step >= self.steps[0]

    def slowness(self, rank: int, step: int) -> float:
        """How many times a step's time this rank takes."""
        return SLOWER if self.kind == "slow node" and rank == self.rank and step >= self.steps[0] else 1.0

    def strike(self, step: int, rank: int, folder: Path) -> None:
        """Kills, ends or hangs the calling rank where its step has come, at most once for each of `steps`."""
        if rank != self.rank or step not in self.steps or self.kind not in ("rank killed", "SIGTERM", "hung rank"):
            return
        mark = folder / f"struck-{step}"
        if mark.exists():
            return
        mark.touch()
        if self.kind == "rank killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "SIGTERM":
            # To the launcher, as a node's shutdown does.
            os.kill(os.getppid(), signal.SIGTERM)
        else:
            time.sleep(10 * LIMIT_S)


def launched(folder: Path, fault: Fault) -> list[str]:
    """The command that both sides run."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*torchrun, str(HERE / "fault_train.py"), str(folder), fault.kind, str(fault.seed)]


def under_torchrun(folder: Path, fault: Fault) -> None:
    """Runs the script, and once more if it failed."""
    deadline = time.monotonic() + LIMIT_S
    for _ in range(2):
        with (folder / "output.log").open("ab") as output:
            # In a session of its own, so that nothing of it is left where the time is up.
            process = subprocess.Popen(launched(folder, fault), stdout=output, stderr=output, start_new_session=True)
            try:
                if process.wait(timeout=max(1.0, deadline - time.monotonic())) == 0:
                    return
            except subprocess.TimeoutExpired:
                return
            finally:
                end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a launcher with all that it started; torchrun puts its ranks into sessions of their own."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        pid, parent = map(int, line.split())
        children.setdefault(parent, []).append(pid)
    waiting = [process.pid]
    while waiting:
        pid = waiting.pop()
        waiting.extend(children.get(pid, []))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def under_antiphon(binary: Path, folder: Path, fault: Fault) -> None:
    """Submits the script as a job and leaves it to antiphon, for as long as the other side has."""
    more = f"""
[checkpoint]
dir = {json.dumps(str(folder))}
keep = {KEEP}
[retry]
backoff = "1s"
[[ladder]]
name = "micro-batch 4"
environment = {{ MICRO_BATCH = "4" }}
"""
    rules = {**dict.fromkeys(RULES, "auto"), "hang_after": HANG_AFTER}
    with Server(binary, folder / "server", COOL_DOWN_MS) as server:
        job = server.submit("fault", launched(folder, fault), folder, more, rules, grace=GRACE)
        deadline = time.monotonic() + LIMIT_S
        away = [0.25, 0.5] if fault.kind == "server away" else []
        while time.monotonic() < deadline and server.state_of(job) not in ENDED:
            time.sleep(0.5)
            if away and newest_step(folder) >= away[0] * LAST:
                away.pop(0)
                server.kill()
                time.sleep(3.0)
                server.start()
        (folder / "output.log").write_text(server.call("logs", job).stdout, encoding="utf-8")
        (folder / "stacks.json").write_text(json.dumps(stacks_left(server.state)), encoding="utf-8")
        (folder / "why.txt").write_text(server.call("job", job).stdout, encoding="utf-8")


def stacks_left(state: Path) -> dict[str, list[int]]:
    """By attempt, the tasks that left their stacks in its output."""
    said = "antiphon: task {}: stands still"
    outputs = {path.parts[-3]: path.read_text(encoding="utf-8") for path in state.glob("attempts/*/*/output.log")}
    left = {attempt: [task for task in range(2) if said.format(task) in text] for attempt, text in outputs.items()}
    return {attempt: tasks for attempt, tasks in sorted(left.items()) if tasks}


def hangs_left_stacks(folder: Path, fault: Fault) -> bool:
    """Whether each hang left those of both ranks."""
    left = json.loads((folder / "stacks.json").read_text(encoding="utf-8"))
    struck = [step for step in fault.steps if (folder / f"struck-{step}").exists()]
    return list(left.values()) == [[0, 1]] * len(struck)


def newest_step(folder: Path) -> int:
    """The step of the newest checkpoint."""
    return max((int(path.stem.split("-")[1]) for path in folder.glob("step-*.pt")), default=0)


def finished(folder: Path) -> bool:
    """Whether a run has come to its end with weights that are numbers."""
    path = folder / "done.json"
    return path.exists() and bool(json.loads(path.read_text(encoding="utf-8"))["finite"])


def measure(kept: Path, kind: str, seed: int, side: str, run: Callable[[Path, Fault], None]) -> bool:
    """One run, in a folder of its own; what has been run is not run again."""
    folder = kept / f"{kind.replace(' ', '-')}.{seed}.{side}"
    result = folder / "result.json"
    if not result.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        begun = time.monotonic()
        run(folder, Fault(kind, seed))
        took = time.monotonic() - begun
        result.write_text(json.dumps({"finished": finished(folder), "wall_s": round(took, 1)}), encoding="utf-8")
        print(f"{took:6.0f} s  {folder.name}: {'finished' if finished(folder) else 'NOT finished'}", flush=True)
    return bool(json.loads(result.read_text(encoding="utf-8"))["finished"])


def table(ends: dict[tuple[str, str], list[bool]]) -> str:
    """Finished of all by kind, as a part of the page."""
    rows = ["| fault | torchrun, one requeue | antiphon |", "| --- | --- | --- |"]
    totals: dict[str, list[bool]] = {"torchrun": [], "antiphon": []}
    for kind in KINDS:
        if (kind, "torchrun") in ends:
            sides = [ends[kind, side] for side in totals]
            rows.append(f"| {kind} | " + " | ".join(f"{sum(it)}/{len(it)}" for it in sides) + " |")
            for side, of in zip(totals, sides, strict=True):
                totals[side].extend(of)
    failed = [f"{sum(it)}/{len(it)}, {1 - sum(it) / max(1, len(it)):.0%} failed" for it in totals.values()]
    return "\n".join([*rows, f"| **all** | {failed[0]} | {failed[1]} |", ""])


def main() -> int:
    """Runs every kind with every seed on both sides, and writes the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--binary", type=Path, required=True)
    options.add_argument("--folder", type=Path, default=Path("target/two-way/faults"))
    options.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    options.add_argument("--sides", nargs="+", choices=("torchrun", "antiphon"), default=["torchrun", "antiphon"])
    given = options.parse_args()
    binary = given.binary.resolve()
    sides: dict[str, Callable[[Path, Fault], None]] = {
        "torchrun": under_torchrun,
        "antiphon": lambda folder, fault: under_antiphon(binary, folder, fault),
    }
    ends: dict[tuple[str, str], list[bool]] = {}
    for kind in given.kinds:
        for side in given.sides:
            runs = [measure(given.folder.resolve(), kind, seed, side, sides[side]) for seed in given.seeds]
            ends[kind, side] = runs
    missing = 0
    for seed in given.seeds if "hung rank" in given.kinds and "antiphon" in given.sides else ():
        folder = given.folder.resolve() / f"hung-rank.{seed}.antiphon"
        if (folder / "stacks.json").exists() and not hangs_left_stacks(folder, Fault("hung rank", seed)):
            missing += 1
            print(f"MISSED: seed {seed}: a hang left no stacks of both ranks, see {folder / 'stacks.json'}")
    if set(given.sides) == set(sides):
        part = PART + table(ends)
        print(part)
        (given.folder.parent / "3-faults.part.md").write_text(part, encoding="utf-8")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
