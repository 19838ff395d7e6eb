"""What signals and directives cost the training loop: processor time of the training thread inside the package's calls.

    python scripts/two_way/cost.py --binary target/release/antiphon

One Trainer as a job of a real server. Each method of the package that the Trainer calls is timed, less what it calls of
the Trainer's own: two runs held against each other differ by more than what is sought.
"""

# The training stack is an extra: it is not there where types are checked.
# mypy: disable-error-code="import-not-found,misc"

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from server import Server

#: Steps of one repeat, after those that are not counted.
STEPS, WARM_UP = 250, 20
REPEATS = 3
ROWS = 32
SHARDS = 20
BAR = 0.005
STEP_MS_MIN = 100.0
#: Two-sided 95 % of a normal distribution, of which the upper side is the bound.
Z = 1.96


class Stopwatch:
    """Processor time of this thread inside methods of one side, less what they call of the other."""

    def __init__(self) -> None:
        self.ours_s = 0.0
        #: What each call that is under way has spent in calls of its own.
        self._called = [0.0]

    def put_on(self, owner: Any, name: str, ours: bool) -> None:
        """Times a method from now on."""
        setattr(owner, name, self.timed(getattr(owner, name), ours))

    def timed(self, method: Callable[..., Any], ours: bool) -> Callable[..., Any]:
        """The same method, timed."""

        def wrapped(*args: Any, **options: Any) -> Any:
            self._called.append(0.0)
            began = time.thread_time()
            try:
                return method(*args, **options)
            finally:
                took = time.thread_time() - began
                inside = self._called.pop()
                self._called[-1] += took
                if ours:
                    self.ours_s += took - inside

        return wrapped


def measured() -> dict[str, list[float]]:
    """One repeat: processor time of each step in milliseconds, and of the package in it."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    import numpy as np
    import torch
    from corpus import VOCABULARY
    from torch.nn import functional
    from train import arguments_of, collate, fresh_model
    from transformers import Trainer, TrainerCallback

    import antiphon.hf
    from antiphon import hf_trainer
    from antiphon.data import MixedStream
    from antiphon.torch_data import ShardCollator

    torch.set_num_threads(1)
    watch, steps = Stopwatch(), WARM_UP + STEPS
    own = ("get_batch_samples", "training_step", "compute_loss", "_get_grad_norm")
    for name in own:
        watch.put_on(Trainer, name, ours=False)
        watch.put_on(antiphon.hf.AntiphonTrainerMixin, name, ours=True)
    for name in ("on_step_begin", "on_step_end", "on_pre_optimizer_step", "on_optimizer_step"):
        watch.put_on(antiphon.hf.AntiphonCallback, name, ours=True)
    watch.put_on(MixedStream, "draws", ours=True)
    watch.put_on(ShardCollator, "__call__", ours=True)
    # The cross entropy of each row is the one that the model computes anyway.
    watch.put_on(hf_trainer.CausalLoss, "__call__", ours=True)
    watch.put_on(functional, "cross_entropy", ours=False)
    of_steps: dict[str, list[float]] = {"step_ms": [], "ours_ms": []}

    class Clock(TrainerCallback):
        """The last callback of a step."""

        began, ours_s = 0.0, 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            now = time.thread_time()
            if state.global_step > WARM_UP:
                of_steps["step_ms"].append((now - self.began) * 1000)
                of_steps["ours_ms"].append((watch.ours_s - self.ours_s) * 1000)
            self.began, self.ours_s = now, watch.ours_s

    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCABULARY, (ROWS * 50, 1, 64), dtype=np.int32)
    rows = list(np.concatenate([tokens, tokens], axis=1))
    names = [f"shard_{place:02d}" for place in range(SHARDS)]
    stream = MixedStream(
        {name: rows[place::SHARDS] for place, name in enumerate(names)}, categories=dict.fromkeys(names, "all")
    )
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=fresh_model(),
            args=arguments_of(folder, steps=steps, rows=ROWS, seed=0),
            data_collator=watch.timed(collate, ours=False),
        )
        loop = antiphon.hf.instrument(trainer, stream)
        if not (loop.job and loop.job.attached):
            raise SystemExit("this is a job: it was not launched by a server")
        trainer.add_callback(Clock())
        trainer.train()
    loop.job.close()
    if loop.quiet.errors:
        raise SystemExit(f"{loop.quiet.errors} errors of the package: see the log")
    return of_steps


def summary(repeat: dict[str, list[float]]) -> dict[str, float]:
    """The cost of a repeat: the mean by the mean of the steps without it, and its upper bound."""
    ours, steps = repeat["ours_ms"], repeat["step_ms"]
    mean, error = statistics.fmean(ours), statistics.stdev(ours) / len(ours) ** 0.5
    plain = statistics.fmean(steps) - mean
    return {
        "step_ms": plain,
        "ours_ms": mean,
        "median_ms": statistics.median(ours),
        "share": mean / plain,
        "upper": (mean + Z * error) / plain,
    }


def page(repeats: list[dict[str, float]]) -> str:
    """The part of the page."""
    rows = []
    for number, it in enumerate(repeats, 1):
        times = f"{it['step_ms']:.0f} | {1000 * it['ours_ms']:.0f} | {1000 * it['median_ms']:.0f}"
        rows.append(f"| {number} | {times} | {it['share']:.2%} | {it['upper']:.2%} | {it['ours_ms'] / 10:.3f} % |")
    share = [it["share"] for it in repeats]
    return "\n".join(
        [
            "## Cost of the loop",
            "",
            f"A Trainer with {SHARDS} shards under a real server, {STEPS} steps a repeat: processor time of the",
            "training thread inside the package's methods, less what these call of the Trainer's own. Drawing rows and",
            "turning them into batches with their shards' names is in it. Held-out probes, which are evaluations that",
            "the owner asks for, are not. The last column is the same at a second a step. (`scripts/two_way/cost.py`)",
            "",
            "| repeat | step without, ms | of the package, mean us | median us | share | upper 95 % bound | at 1 s |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
            f"Median share {statistics.median(share):.2%}, from {min(share):.2%} to {max(share):.2%}.",
            "",
        ]
    )


def main() -> int:
    """Measures, writes the part of the page, and fails where the bar is missed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--binary", type=Path)
    options.add_argument("--folder", type=Path, default=Path("target/two-way"))
    options.add_argument("--repeats", type=int, default=REPEATS)
    options.add_argument("--inside", type=Path, help="the trainer's side: measure once, into this file")
    given = options.parse_args()
    if given.inside:
        given.inside.write_text(json.dumps(measured()), encoding="utf-8")
        return 0
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    repeats = []
    for number in range(given.repeats):
        out = folder / f"cost-{number}.json"
        command = [sys.executable, str(Path(__file__).resolve()), "--inside", str(out)]
        with Server(given.binary.resolve(), folder / "cost-server") as server:
            server.complete("cost", command, folder)
        repeats.append(summary(json.loads(out.read_text(encoding="utf-8"))))
    part = page(repeats)
    print(part)
    (folder / "5-cost.part.md").write_text(part, encoding="utf-8")
    short = [it["step_ms"] for it in repeats if it["step_ms"] < STEP_MS_MIN]
    if short:
        print(f"MISSED: a step takes {min(short):.0f} ms, and the bar is for {STEP_MS_MIN:.0f} ms and more")
    upper = max(it["upper"] for it in repeats)
    print(f"{'ok' if upper < BAR else 'MISSED'}: the upper bound is {upper:.2%}, less than {BAR:.1%}")
    return 1 if upper >= BAR or short else 0


if __name__ == "__main__":
    sys.exit(main())
