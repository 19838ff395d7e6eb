"""What signals and directives cost the training loop: processor time of the training thread, step against step.

    python scripts/two_way/cost.py --binary target/release/antiphon

Two Trainers run in one process, each in a thread of its own, a step of one, then a step of the other: one is as its
owner wrote it, the other talks to a real server. Whatever else the machine does meets both alike. A first repeat has
two plain ones: what it shows is what the method makes up.
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
import threading
import time
from pathlib import Path
from typing import Any

from server import Server

#: Pairs of steps of one repeat, after those that are not counted.
PAIRS, WARM_UP = 250, 20
REPEATS = 3
ROWS = 32
SHARDS = 20
BAR = 0.005
STEP_MS_MIN = 100.0
#: Two-sided 95 % of a normal distribution, of which the upper side is the bound.
Z = 1.96


class Turns:
    """Lets two threads go on in turn, one step each."""

    def __init__(self) -> None:
        self.whose = 0
        self.changed = threading.Condition()

    def wait(self, number: int) -> None:
        """Waits for one's turn."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.whose == number, timeout=600.0):
                raise TimeoutError("the other trainer does not step")

    def pass_on(self, number: int) -> None:
        """Lets the other one go on."""
        with self.changed:
            self.whose = 1 - number
            self.changed.notify_all()


def measured(null: bool) -> dict[str, Any]:
    """One repeat, of two plain trainers where `null`: processor time of each step of both trainers, in milliseconds."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    import numpy as np
    import torch
    from corpus import VOCABULARY
    from train import arguments_of, collate, fresh_model
    from transformers import Trainer, TrainerCallback

    import antiphon.hf
    from antiphon.data import MixedStream

    torch.set_num_threads(1)
    steps = WARM_UP + PAIRS
    rng = np.random.default_rng(0)
    rows = [paired_row(rng, VOCABULARY) for _ in range(ROWS * 50)]
    turns, cpu_ms = Turns(), ([], [])  # type: tuple[Turns, tuple[list[float], list[float]]]
    errors: list[BaseException] = []

    class Clock(TrainerCallback):
        """The last callback of a step: what the thread has worked since it was its turn."""

        def __init__(self, number: int) -> None:
            self.number, self.since = number, 0.0

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            turns.wait(self.number)
            self.since = time.thread_time()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            cpu_ms[self.number].append((time.thread_time() - self.since) * 1000)
            turns.pass_on(self.number)
            if state.global_step < steps:
                turns.wait(self.number)
            self.since = time.thread_time()

    def trainer(folder: str, number: int) -> tuple[Any, Any]:
        torch.manual_seed(0)
        made = Trainer(
            model=fresh_model(),
            args=arguments_of(folder, steps=steps, rows=ROWS, seed=0),
            data_collator=collate,
            train_dataset=rows if number == 0 or null else None,
        )
        loop = None
        if number == 1 and not null:
            names = [f"shard_{place:02d}" for place in range(SHARDS)]
            parts = {name: rows[place::SHARDS] for place, name in enumerate(names)}
            loop = antiphon.hf.instrument(made, MixedStream(parts, categories=dict.fromkeys(names, "all")))
        made.add_callback(Clock(number))
        return made, loop

    def run(made: Any) -> None:
        try:
            made.train()
        except BaseException as error:
            errors.append(error)
            raise

    with tempfile.TemporaryDirectory() as folder:
        (plain, _), (talking, loop) = trainer(folder, 0), trainer(folder, 1)
        if not null and not loop.job.attached:
            raise SystemExit("this is a job: it was not launched by a server")
        # SIGTERM is taken over at the first look, which belongs to the main thread.
        closing = not null and loop.job.terminating
        # Neither in the main thread, whose memory is another arena.
        threads = [threading.Thread(target=run, args=(made,), daemon=True) for made in (plain, talking)]
        began = time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        everything_ms = (time.process_time() - began) * 1000
    if not null:
        loop.job.close()
    if closing or errors or (loop is not None and loop.quiet.errors):
        raise SystemExit(f"the trainers failed: {errors or 'see the log'}")
    rest_ms = (everything_ms - sum(cpu_ms[0]) - sum(cpu_ms[1])) / steps
    return {"plain": cpu_ms[0][WARM_UP:], "talking": cpu_ms[1][WARM_UP:], "other_threads_ms": rest_ms}


def paired_row(rng: Any, vocabulary: int) -> Any:
    """A row of the experiment's form: tokens, and the same as targets."""
    import numpy as np

    tokens = rng.integers(0, vocabulary, 64, dtype=np.int32)
    return np.stack([tokens, tokens])


def bound(repeat: dict[str, Any]) -> dict[str, float]:
    """The cost of a repeat: mean difference of the pairs, by the mean of the plain steps, and its upper bound."""
    pairs = list(zip(repeat["plain"], repeat["talking"], strict=True))
    more = [talking - plain for plain, talking in pairs]
    plain = statistics.fmean(repeat["plain"])
    mean, error = statistics.fmean(more), statistics.stdev(more) / len(more) ** 0.5
    return {
        "step_ms": plain,
        "more_ms": mean,
        "median_ms": statistics.median(more),
        "share": mean / plain,
        "upper": (mean + Z * error) / plain,
        "other_threads_ms": repeat["other_threads_ms"],
    }


def page(null: dict[str, float], repeats: list[dict[str, float]]) -> str:
    """The part of the page."""
    rows = []
    for number, it in [("two plain", null), *enumerate(repeats, 1)]:
        more = f"{1000 * it['more_ms']:.0f} | {1000 * it['median_ms']:.0f}"
        shares = f"{it['share']:.2%} | {it['upper']:.2%} | {it['more_ms'] / 10:.3f} %"
        rows.append(f"| {number} | {it['step_ms']:.0f} | {more} | {shares} |")
    share = [it["share"] for it in repeats]
    rest_us = 1000 * statistics.median(it["other_threads_ms"] for it in repeats)
    return "\n".join(
        [
            "## Cost of the loop",
            "",
            f"Two Trainers in one process, one step each in turn, {PAIRS} pairs: one plain, one with {SHARDS} shards,",
            "all signals and a real server. Processor time of the training thread, which is what a step is made of",
            "where it does not wait. Held-out probes, which are evaluations that the owner asks for, are not in it.",
            "The last column is the same cost at a second a step. (`scripts/two_way/cost.py`)",
            "",
            "| repeat | plain step, ms | more with the loop, us | median, us | share | upper 95 % bound | at 1 s |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
            f"Median share {statistics.median(share):.2%}, from {min(share):.2%} to {max(share):.2%}. Beside the",
            f"training thread, the sender and the rest of the process take {rest_us:.0f} us of processor time a pair.",
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
    options.add_argument("--null", action="store_true", help="with `--inside`: two plain trainers")
    given = options.parse_args()
    if given.inside:
        given.inside.write_text(json.dumps(measured(given.null)), encoding="utf-8")
        return 0
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    repeats = []
    for number in range(given.repeats + 1):
        out = folder / f"cost-{number}.json"
        command = [sys.executable, str(Path(__file__).resolve()), "--inside", str(out)]
        command += ["--null"] if number == 0 else []
        with Server(given.binary.resolve(), folder / "server") as server:
            server.complete("cost", command, folder)
        repeats.append(bound(json.loads(out.read_text(encoding="utf-8"))))
    null, *repeats = repeats
    part = page(null, repeats)
    print(part)
    (folder / "5-cost.part.md").write_text(part, encoding="utf-8")
    short = [it["step_ms"] for it in repeats if it["step_ms"] < STEP_MS_MIN]
    if short:
        print(f"MISSED: a plain step takes {min(short):.0f} ms, and the bar is for {STEP_MS_MIN:.0f} ms and more")
    upper = max(it["upper"] for it in repeats)
    print(f"{'ok' if upper < BAR else 'MISSED'}: the upper bound is {upper:.2%}, less than {BAR:.1%}")
    return 1 if upper >= BAR or short else 0


if __name__ == "__main__":
    sys.exit(main())
