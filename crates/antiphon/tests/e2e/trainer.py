"""A training loop without a model: steps, a state that depends on every step, checkpoints, and obedience.

Holds just what the end-to-end tests look at; the quickstart's trainer is the real thing.
"""

import json
import os
import sys
import time
from pathlib import Path

import antiphon

steps, step_ms = int(sys.argv[1]), float(sys.argv[2])
directory = Path(os.environ["ANTIPHON_CHECKPOINT_DIR"])
saved = directory / "state.json"
state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "sum": 0, "weights": {}, "antiphon": None}
job = antiphon.attach(state["antiphon"], state["step"])
journal = open(directory / "journal.jsonl", "a", buffering=1)


def save() -> None:
    """Writes the checkpoint, then acknowledges it."""
    state["antiphon"] = job.state()
    beside = saved.with_suffix(".new")
    beside.write_text(json.dumps(state))
    os.replace(beside, saved)
    job.checkpointed(state["step"], saved.name, saved.stat().st_size, 1.0, "")


ending = False
while state["step"] < steps and not ending:
    time.sleep(step_ms / 1000)
    state["step"] += 1
    state["sum"] = (state["sum"] * 31 + state["step"]) % 1_000_003
    journal.write(json.dumps({"attempt": os.environ["ANTIPHON_ATTEMPT"], **state, "antiphon": None}) + "\n")
    job.signal(state["step"], state["step"], loss=1.0, step_ms=step_ms)
    job.progress(state["step"], steps)
    for directive in job.boundary(state["step"], state["step"]):
        if directive.do in ("checkpoint", "yield", "stop"):
            save()
            ending = ending or directive.do != "checkpoint"
        elif directive.do == "set_weights":
            state["weights"].update(directive.weights)
        job.applied(directive, state["step"])
        print(f"step {state['step']}: {directive.do} {directive.id}", flush=True)
    if job.terminating:
        ending = True
        save()
if not ending:
    save()
job.close()
sys.exit(143 if job.terminating and state["step"] < steps else 0)
