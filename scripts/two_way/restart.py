"""A server that is killed and started again in the middle of a run, and a run that goes back to a checkpoint.

    python scripts/two_way/restart.py --binary target/debug/antiphon

Both runs are Transformers' `Trainer` under a real server, with directives on the way. They are held against a trainer
that never heard of a server, and whose data change at the same slots: the losses have to be the same numbers.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server import ENDED, Server

HERE = Path(__file__).resolve().parent
#: Rules have no part in it.
RULES = {"default": "observe"}
WEIGHTS = {"easy": 1.0, "hard": 5.0}
PAUSED = "noise"
#: How long nobody answers.
AWAY_S = 3.0

Entry = dict[str, Any]


@dataclass
class Bars:
    """What has to hold, and what did not."""

    missed: int = 0

    def hold(self, what: str, met: bool, found: str = "") -> None:
        """Prints one bar."""
        self.missed += not met
        print(f"{'ok' if met else 'MISSED'}: {what}{'' if met else f' ({found})'}", flush=True)


class Run:
    """One trainer as a job of a server."""

    def __init__(self, binary: Path, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.server = Server(binary, folder / "server")
        self.job = ""

    def start(self) -> None:
        """Starts the server and the trainer."""
        self.server.start()
        more = f"[checkpoint]\ndir = {json.dumps(str(self.folder / 'checkpoints'))}\n"
        command = [sys.executable, str(HERE / "restart_train.py"), str(self.folder)]
        self.job = self.server.submit("restart", command, self.folder, more, RULES)

    def notes(self, kind: str) -> list[Entry]:
        """What the trainer has noted so far, but for a line that is being written."""
        path = self.folder / f"{kind}.jsonl"
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def reach(self, step: int) -> None:
        """Waits until the newest step is at least this one."""
        deadline = time.monotonic() + 120.0
        while not any(entry["step"] >= step for entry in self.notes("losses")[-1:]):
            if time.monotonic() > deadline or self.ended():
                raise SystemExit(f"step {step} did not come:\n{self.server.call('logs', self.job).stdout[-4000:]}")
            time.sleep(0.1)

    def ended(self) -> bool:
        """Whether the job is over; while the server is away nobody knows."""
        process = self.server.process
        return process is not None and process.poll() is None and self.server.state_of(self.job) in ENDED

    def direct(self, do: str, *fields: str) -> None:
        """Sends a directive and waits until it is carried out."""
        done = self.server.call("direct", self.job, do, *fields)
        if done.returncode != 0:
            raise SystemExit(f"`{do}` was refused:\n{done.stderr}")
        number = len(self.known()["directives"])
        self.server.wait(f"directive {number}", lambda: self.known()["directives"][number - 1]["answer"] is not None)

    def known(self) -> Entry:
        """All that the server knows of the job."""
        return self.server.job(self.job)

    def end(self) -> Entry:
        """Waits for the end; gives what is known then."""
        self.server.wait("the job to end", self.ended)
        known = self.known()
        self.server.__exit__(None, None, None)
        if known["summary"]["state"] != "succeeded":
            raise SystemExit(f"{self.job} has {known['summary']['state']}")
        return known


def alone(folder: Path, applied: list[Entry]) -> list[Entry]:
    """The losses of a trainer without a server, whose data change at the same slots."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    plan = [{"slot": entry["slot"], "directive": as_sent(entry)} for entry in applied]
    command = [sys.executable, str(HERE / "restart_train.py"), str(folder), json.dumps(plan)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the trainer without a server failed:\n{done.stderr[-4000:]}")
    lines = (folder / "losses.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def as_sent(entry: Entry) -> Entry:
    """A directive as the trainer is sent it."""
    fields: Entry = {"weights": WEIGHTS} if entry["do"] == "set_weights" else {"shard": PAUSED}
    return {"id": entry["id"], "do": entry["do"], **fields}


def killed(binary: Path, folder: Path, bars: Bars) -> str:
    """SIGKILL to the server between two directives; gives a line for the page."""
    run = Run(binary, folder / "killed")
    run.start()
    run.reach(15)
    run.direct("set_weights", *(f"{shard}={weight}" for shard, weight in WEIGHTS.items()))
    before = len(run.notes("losses"))
    run.server.kill()
    time.sleep(AWAY_S)
    meanwhile = len(run.notes("losses")) - before
    restarted = time.time()
    run.server.start()
    run.direct("pause_shard", f"shard={PAUSED}")
    known = run.end()
    applied, losses, batches = run.notes("directives"), run.notes("losses"), run.notes("batches")
    doubled = sum(entry["at_s"] > restarted for entry in run.notes("doubled"))
    counted, sent = known["signals"]["count"], sum(b["signals"] for b in batches if b["at_s"] > restarted)
    numbers = [entry["id"] for entry in applied]
    reference = alone(folder / "killed-alone", applied)
    bars.hold(f"training went on while the server was away: {meanwhile} steps", meanwhile > 0)
    bars.hold("one attempt did it all", len(known["attempts"]) <= 1, str(known["attempts"]))
    bars.hold("each directive was carried out exactly once", numbers == [1, 2], str(numbers))
    bars.hold(
        f"{sent} signals sent since the restart, {doubled} batches of them twice, counted once",
        counted == sent and doubled > 0,
        f"{counted} counted, {doubled} sent twice",
    )
    same = losses == reference
    bars.hold(f"all {len(reference)} losses are those of a run without a server", same, differing(losses, reference))
    return (
        f"- Server killed with SIGKILL and started again {AWAY_S:.0f} s later: {meanwhile} steps were made meanwhile; "
        f"{'all' if same else 'NOT all'} {len(reference)} losses are bit for bit those of a run without a server; "
        f"{sent} signals since then, {doubled} batches of them sent twice on purpose, were counted "
        f"{'once' if counted == sent else f'{counted} times'}; directives carried out: {numbers}."
    )


def went_back(binary: Path, folder: Path, bars: Bars) -> str:
    """A rollback over a directive that was carried out; gives a line for the page."""
    run = Run(binary, folder / "back")
    run.start()
    run.reach(26)
    run.direct("set_weights", *(f"{shard}={weight}" for shard, weight in WEIGHTS.items()))
    run.reach(70)
    # To the checkpoint of step 20: before the directive.
    run.direct("rollback", "step=25")
    run.end()
    applied, losses = run.notes("directives"), run.notes("losses")
    steps = [entry["step"] for entry in losses]
    turn = next((place for place in range(1, len(steps)) if steps[place] <= steps[place - 1]), None)
    reference = alone(folder / "back-alone", applied[:1])
    again, first = applied[1:], applied[0]
    same_place = again == [first]
    bars.hold("the run went back to the checkpoint of step 20", turn is not None and steps[turn] == 21, str(turn))
    what = f"the directive was carried out again, once, at slot {first['slot']} with the same weights"
    bars.hold(what, same_place, str(again))
    part = turn or 0
    same = losses[:part] == reference[:part] and losses[part:] == reference[20:]
    different = differing(losses[part:], reference[20:])
    bars.hold("all losses before and after are those of a run without a server", same, different)
    slots = ", ".join(str(entry["slot"]) for entry in again) or "none"
    weights = "the same" if same_place else "OTHER"
    return (
        f"- Rollback from step {steps[part - 1]} to the checkpoint of step 20, over a `set_weights` of slot "
        f"{first['slot']}: it was carried out again at slot {slots} with {weights} weights; "
        f"{'all' if same else 'NOT all'} {len(losses)} losses are bit for bit those of a run without a server."
    )


def differing(found: list[Entry], reference: list[Entry]) -> str:
    """The first place at which two runs differ."""
    pairs = zip(found, reference, strict=False)
    first = next((f"{one} against {other}" for one, other in pairs if one != other), "none")
    return f"{len(found)} against {len(reference)} losses, first difference {first}"


def main() -> int:
    """Runs both, and fails where a bar is missed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--binary", type=Path, required=True)
    options.add_argument("--folder", type=Path, default=Path("target/two-way/restart"))
    given = options.parse_args()
    binary, folder, bars = given.binary.resolve(), given.folder.resolve(), Bars()
    lines = [killed(binary, folder, bars), went_back(binary, folder, bars)]
    part = ["## Server killed, run rolled back", "", *lines, "", "(`scripts/two_way/restart.py`)", ""]
    (folder.parent / "4-restart.part.md").write_text("\n".join(part), encoding="utf-8")
    return 1 if bars.missed else 0


if __name__ == "__main__":
    sys.exit(main())
