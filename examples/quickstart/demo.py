"""Runs the main job end to end and tells what happened: train, give way with a checkpoint, resume, be steered, compare.

It drives the `antiphon` command as a person would and reads its `--json`; it decides nothing and knows no internals.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STEPS = 300
STEPS_URGENT = 60
# The urgent job comes when the noise shard has been found and the main job has something to lose.
STEP_OF_ARRIVAL = 170
# A machine under load is slow, not wrong; past this something hangs.
PATIENCE_S = 240.0

# A job that ends within five minutes is otherwise left alone, and the main job takes seconds.
CONFIGURATION = "[policy]\nnear_end_ms = 0\n"


class Demo:
    """A server of its own, in a directory of its own."""

    def __init__(self, binary: Path, directory: Path, allow_root: bool) -> None:
        self.binary = binary
        self.directory = directory
        self.state = directory / "state"
        self.allow_root = allow_root
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON_")}
        self.environment["ANTIPHON_STATE_DIR"] = str(self.state)
        self.environment["XDG_CONFIG_HOME"] = str(directory / "config")
        self.server: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """Starts the server on a free port and waits until it answers."""
        config = self.directory / "config" / "antiphon"
        config.mkdir(parents=True, exist_ok=True)
        (config / "antiphon.toml").write_text(CONFIGURATION, encoding="utf-8")
        command = [str(self.binary), "up", "--listen", "127.0.0.1:0"]
        command += ["--allow-root"] if self.allow_root else []
        log = (self.directory / "server.log").open("ab")
        self.server = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        # Until it has left its address, a command would ask whatever listens at the default one.
        self.wait("the server to listen", (self.state / "address").exists)
        self.wait("the server to answer", lambda: self.run("nodes", "--json", check=False).returncode == 0)

    def down(self) -> None:
        """Ends the demo's jobs and its server."""
        if self.server is None or self.server.poll() is not None:
            return
        for job in self.jobs().values():
            if job["state"] not in ("succeeded", "failed", "canceled"):
                self.run("cancel", job["id"], check=False)
        self.server.terminate()
        self.server.wait(timeout=20)

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs one `antiphon` command."""
        done = subprocess.run([str(self.binary), *arguments], env=self.environment, capture_output=True, text=True)
        if check and done.returncode != 0:
            raise SystemExit(f"`antiphon {' '.join(arguments)}` failed:\n{done.stderr}")
        return done

    def json(self, *arguments: str) -> Any:
        """Runs one reading command and returns what it says."""
        return json.loads(self.run(*arguments, "--json").stdout)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """All jobs by name."""
        return {job["name"]: job for job in self.json("jobs", "--all")["jobs"]}

    def submit(self, name: str, text: str) -> None:
        """Writes a job file and submits it."""
        path = self.directory / f"{name}.toml"
        path.write_text(text)
        job = self.run("submit", str(path)).stdout.strip()
        say(f"submitted {job} `{name}`  ({path})")

    def why(self, name: str) -> None:
        """Shows what `antiphon why` answers now."""
        say(f"$ antiphon why {name}")
        for line in self.run("why", name).stdout.splitlines():
            print(f"           {line}", flush=True)

    def wait(self, what: str, ready: Callable[[], bool]) -> None:
        """Waits until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not ready():
            if self.server is not None and self.server.poll() is not None:
                log = (self.directory / "server.log").read_text()
                raise SystemExit(f"the server ended while the demo waited for {what}:\n{log}")
            if time.monotonic() > deadline:
                jobs = self.run("jobs", "--all", check=False).stdout
                raise SystemExit(f"waited {PATIENCE_S:.0f} s for {what}:\n{jobs}")
            time.sleep(0.1)

    def wait_for(self, name: str, *states: str) -> None:
        """Waits until a job is in one of these states; a failed one ends the demo."""

        def ready() -> bool:
            job = self.jobs()[name]
            if job["state"] in ("failed", "canceled") and job["state"] not in states:
                output = self.run("logs", name, check=False).stdout[-2000:]
                raise SystemExit(f"`{name}` has {job['state']}: {job['reason']}\n{output}")
            return job["state"] in states

        self.wait(f"`{name}` to be {' or '.join(states)}", ready)


def job_file(name: str, job_class: str, arguments: list[str], directory: Path, after: Sequence[str] = ()) -> str:
    """The text of a job file that runs the trainer."""
    losses = str(directory / f"{name}.losses.jsonl")
    command = [sys.executable, str(HERE / "train.py"), *arguments, "--losses", losses]
    return f"""\
name = "{name}"
class = "{job_class}"
after = {json.dumps(after)}
[resources]
gpus = 8
[run]
command = {json.dumps(command)}
[checkpoint]
dir = "checkpoints/{name}"
[rules]
shard = "auto"
"""


def main() -> int:
    """Runs the demo and returns its exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--binary", type=Path, required=True)
    options.add_argument("--directory", type=Path, required=True)
    options.add_argument("--allow-root", action="store_true")
    given = options.parse_args()
    directory = given.directory.resolve()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    demo = Demo(given.binary.resolve(), directory, given.allow_root)
    begun = time.monotonic()
    try:
        demo.up()
        return tell(demo, begun)
    finally:
        demo.down()


def tell(demo: Demo, begun: float) -> int:
    """The story."""
    node = demo.json("nodes")["nodes"][0]
    kind = "virtual GPUs (counted, not there)" if node["gpus_virtual"] else f"GPUs ({node['gpu_type']})"
    say(f"`antiphon up`: node {node['name']} with {node['gpus']} {kind}")

    steps = ["--steps", str(STEPS)]
    demo.submit("train", job_file("train", "best-effort", steps, demo.directory))
    demo.wait_for("train", "running")
    say("it trains a small language model on this Python's own library, one shard of four is noise")
    demo.wait("the noise shard to be found", lambda: bool(answered(demo)))
    directive = answered(demo)[0]
    say(f"directive #{directive['id']} {directive['do']}: {directive['answer']}")
    say(f"  because {directive['reason']}")

    demo.wait("the main job to get on", lambda: (demo.jobs()["train"]["step"] or 0) >= STEP_OF_ARRIVAL)
    urgent = ["--steps", str(STEPS_URGENT), "--seed", "1"]
    demo.submit("urgent", job_file("urgent", "production", urgent, demo.directory))
    demo.why("urgent")
    demo.wait_for("urgent", "running", "succeeded")
    demo.why("train")
    plan = demo.directory / "checkpoints/train/plan.json"
    compare = [*steps, "--plan", str(plan)]
    demo.submit("compare", job_file("compare", "best-effort", compare, demo.directory, ["train"]))
    demo.why("compare")
    demo.wait_for("urgent", "succeeded")
    demo.wait_for("train", "succeeded")
    say("`train` has resumed and finished; `compare` runs the same once more, uninterrupted")
    demo.wait_for("compare", "succeeded")
    return report(demo, directive, begun)


def answered(demo: Demo) -> list[dict[str, Any]]:
    """Directives about the data that the main job has applied."""
    directives = demo.json("job", "train")["directives"]
    return [d for d in directives if d["do"].startswith("set_weights") and "applied" in (d["answer"] or "")]


def losses(demo: Demo, name: str) -> list[dict[str, Any]]:
    """Every step that a job did, in the order it did them."""
    text = (demo.directory / f"{name}.losses.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def report(demo: Demo, directive: dict[str, Any], begun: float) -> int:
    """What happened, from what the trainers wrote and what antiphon logged."""
    train, compare = losses(demo, "train"), losses(demo, "compare")
    first = [line["step"] for line in train if line["attempt"] == 1]
    later = [line["step"] for line in train if line["attempt"] > 1]
    # A step done twice was lost the first time; a step never done would be worse.
    lost = len(train) - len({line["step"] for line in train}) + STEPS - len({line["step"] for line in train})
    ours = {line["step"]: line["loss"] for line in train}
    theirs = {line["step"]: line["loss"] for line in compare}
    same = ours == theirs
    audit = demo.json("audit")
    jobs = demo.jobs()

    print("\nWhat happened")
    line("before preemption", f"steps {first[0]} to {first[-1]} in attempt 1")
    if not later:
        raise SystemExit("the main job was never preempted: nothing is shown")
    line("after preemption", f"steps {later[0]} to {later[-1]} in attempt {train[-1]['attempt']}, in a new process")
    verdict = "equal in every bit to" if same else "DIFFERENT FROM"
    line("losses", f"{len(ours)} steps, {verdict} the uninterrupted run's")
    line("noise shard", f"{directive['do']}, {directive['answer']}")
    for name in ("train", "urgent", "compare"):
        began = losses(demo, name)[0]["at_ms"] - jobs[name]["submitted_ms"]
        waited = {"train": "", "urgent": " (preemption in it)", "compare": " (waited for `train`)"}[name]
        line(f"{name}: first step", f"{began / 1000:.2f} s after its submission{waited}")
    line("log", f"{audit['events']} events; replayed, they give the same state: {audit['digest'][:16]}")
    line("time", f"{time.monotonic() - begun:.0f} s")
    print("\nWhere to look")
    line("outputs, log", str(demo.state))
    line("losses", str(demo.directory / "*.losses.jsonl"))
    line("again by hand", f"{demo.binary} up --state-dir {demo.state}" + (" --allow-root" if demo.allow_root else ""))
    line("then", f"{demo.binary} job train --state-dir {demo.state}")
    print(f"\nlost steps: {lost}")
    return 0 if same and lost == 0 and not audit["differences"] and audit["broken"] is None else 1


def line(label: str, text: str) -> None:
    """Prints one labeled line of the report."""
    print(f"  {label:<22}{text}")


def say(text: str) -> None:
    """Prints what happens, with the time since the start."""
    print(f"[{time.monotonic() - START:6.1f} s] {text}", flush=True)


START = time.monotonic()

if __name__ == "__main__":
    sys.exit(main())
