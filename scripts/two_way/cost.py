"""What signals and directives cost the training loop: processor time of the training thread.

    python scripts/two_way/cost.py --binary target/release/antiphon

One Trainer as a job of a real server. What the package adds is timed, each method less what it calls of the Trainer's
own. What it does in place of the Trainer's own, drawing data and computing the loss, is timed in pairs: a step with
ours, a step with theirs. Two runs held against each other would differ by more than what is sought.
"""

# The training stack is an extra: it is not there where types are checked.
# mypy: disable-error-code="import-not-found,misc"

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from server import Server

#: Steps of one repeat, after those that are not counted.
STEPS, WARM_UP = 440, 20
REPEATS = 3
ROWS = 32
SHARDS = 20
BAR = 0.005
#: What is timed in pairs.
PAIRED = ("data", "loss")
#: What the parts are called.
PARTS = {
    "data": "a batch from the shards, less one from the Trainer's own loader",
    "loss": "the loss of each sample, less Transformers' own loss",
    "AntiphonTrainerMixin.get_batch_samples": "tokens and rows of the step, wait for data",
    "AntiphonTrainerMixin.compute_loss": "losses and shards put together, forward time",
    "AntiphonTrainerMixin.training_step": "loss of the step, backward time",
    "AntiphonTrainerMixin._get_grad_norm": "gradient norm",
    "AntiphonCallback.on_step_begin": "begin of the step",
    "AntiphonCallback.on_pre_optimizer_step": "begin of the optimizer",
    "AntiphonCallback.on_optimizer_step": "end of the optimizer",
    "AntiphonCallback.on_step_end": "signals handed over, directives looked for",
}
STEP_MS_MIN = 100.0
#: Two-sided 95 % of a normal distribution, of which the upper side is the bound.
Z = 1.96


class Stopwatch:
    """Processor time of this thread inside methods of one side, less what they call of the other."""

    def __init__(self) -> None:
        #: By method.
        self.parts_s: dict[str, float] = {}
        #: What each call that is under way has spent in calls of its own.
        self._called = [0.0]

    def put_on(self, owner: Any, name: str, ours: bool) -> None:
        """Times a method from now on."""
        setattr(owner, name, self.timed(getattr(owner, name), ours, f"{owner.__name__}.{name}"))

    def timed(self, method: Callable[..., Any], ours: bool, part: str = "") -> Callable[..., Any]:
        """The same method, timed."""
        if ours:
            self.parts_s[part] = 0.0

        def wrapped(*args: Any, **options: Any) -> Any:
            # Around the rest, so that nothing of the stopwatch is put down to the caller; and the clock is warm then.
            entered = time.thread_time()
            self._called.append(0.0)
            began = time.thread_time()
            try:
                return method(*args, **options)
            finally:
                took = time.thread_time() - began - self._called.pop()
                if ours:
                    self.parts_s[part] += took
                self._called[-1] += time.thread_time() - entered

        return wrapped


class Pairs:
    """What something of the package's takes longer than what it takes the place of.

    Steps go by in pairs: in the first ours is timed, in the second theirs, both where they are wanted, so that the
    processor's caches are as a step leaves them.
    """

    def __init__(self) -> None:
        self.count = 0
        self.ours_s = self.theirs_s = 0.0
        #: What the last step spent on this for the measurement's sake alone.
        self.extra_s = 0.0

    @property
    def more_s(self) -> float:
        """Of the last pair, as a whole one."""
        return self.ours_s - self.theirs_s

    def turn(self) -> bool:
        """Begins a step. Whether it is ours that is timed."""
        self.count += 1
        return self.count % 2 == 1


class Loss(Pairs):
    """The loss of each sample beside Transformers' own loss, forward and backward.

    A few of the vocabulary's entries do: both make the same one cross entropy, and the noise in that would hide the
    rest.
    """

    ENTRIES = 8

    def beside(self, ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
        """The package's loss, at each call of which one of the two is timed besides."""

        def called(loss: Any, logits: Any, labels: Any, vocab_size: int, **options: Any) -> Any:
            if logits.requires_grad:
                entered = time.thread_time()
                leaf = logits.detach()[..., : self.ENTRIES].clone().requires_grad_()
                low, is_ours = labels % self.ENTRIES, self.turn()
                began = time.thread_time()
                if is_ours:
                    ours(type(loss)(), leaf, low, self.ENTRIES, **options).backward()
                    self.ours_s = time.thread_time() - began
                else:
                    theirs(leaf, low, self.ENTRIES, **options).backward()
                    self.theirs_s = time.thread_time() - began
                self.extra_s = time.thread_time() - entered
            return ours(loss, logits, labels, vocab_size, **options)

        return called


class Data(Pairs):
    """A batch of the stream beside one of the same size from the Trainer's own data loader."""

    def __init__(self, theirs: Iterator[Any]) -> None:
        super().__init__()
        self._ours = self._theirs = theirs

    def beside(self, ours: Iterator[Any]) -> Iterator[Any]:
        """The stream's batches, at each of which one of the two is timed."""
        self._ours = ours
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        is_ours, entered = self.turn(), time.thread_time()
        if not is_ours:
            next(self._theirs)
            self.theirs_s = time.thread_time() - entered
        began = time.thread_time()
        self.extra_s = began - entered
        batch = next(self._ours)
        if is_ours:
            self.ours_s = time.thread_time() - began
        return batch


def measured() -> dict[str, list[float]]:
    """One repeat: processor time of each step in milliseconds, and of the package in it by part."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    import numpy as np
    import torch
    from corpus import VOCABULARY
    from train import arguments_of, collate, fresh_model
    from transformers import Trainer, TrainerCallback
    from transformers.loss.loss_utils import ForCausalLMLoss

    import antiphon.hf
    from antiphon import hf_loss
    from antiphon.data import MixedStream

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCABULARY, (ROWS * 50, 1, 64), dtype=np.int32)
    rows = list(np.concatenate([tokens, tokens], axis=1))
    names = [f"shard_{place:02d}" for place in range(SHARDS)]
    stream = MixedStream(
        {name: rows[place::SHARDS] for place, name in enumerate(names)}, categories=dict.fromkeys(names, "all")
    )
    torch.manual_seed(0)
    folder = tempfile.mkdtemp()
    arguments = arguments_of(folder, steps=WARM_UP + STEPS, rows=ROWS, seed=0)
    plain = Trainer(model=fresh_model(), args=arguments, data_collator=collate, train_dataset=rows * 100)
    loss, data = Loss(), Data(iter(plain.get_train_dataloader()))
    watch = Stopwatch()
    gather = Trainer.get_batch_samples
    Trainer.get_batch_samples = lambda of, batches, *rest: gather(of, data.beside(batches), *rest)
    for name in ("get_batch_samples", "training_step", "compute_loss", "_get_grad_norm"):
        watch.put_on(Trainer, name, ours=False)
        watch.put_on(antiphon.hf.AntiphonTrainerMixin, name, ours=True)
    for name in ("on_step_begin", "on_step_end", "on_pre_optimizer_step", "on_optimizer_step"):
        watch.put_on(antiphon.hf.AntiphonCallback, name, ours=True)
    whole_loss = loss.beside(hf_loss.CausalLoss.__call__, ForCausalLMLoss)
    hf_loss.CausalLoss.__call__ = whole_loss  # type: ignore[method-assign]
    pairs: dict[str, Pairs] = {"data": data, "loss": loss}
    of_steps: dict[str, list[float]] = {name: [] for name in ("step", *pairs, *watch.parts_s)}
    whole: dict[str, list[float]] = {part: [] for part in pairs}

    class Clock(TrainerCallback):
        """The last callback of a step."""

        def __init__(self) -> None:
            self.began = 0.0
            self.seen_s: dict[str, float] = {}

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            now = time.thread_time()
            if state.global_step > WARM_UP:
                of_steps["step"].append((now - self.began - data.extra_s - loss.extra_s) * 1000)
                for part, spent_s in watch.parts_s.items():
                    of_steps[part].append((spent_s - self.seen_s[part]) * 1000)
                for part, pair in pairs.items():
                    of_steps[part].append(pair.more_s * 1000)
                    whole[part].append(pair.ours_s * 1000)
            else:
                sending.append(time.clock_gettime(clock))
            self.began, self.seen_s = time.thread_time(), dict(watch.parts_s)

    trainer = Trainer(model=fresh_model(), args=arguments, data_collator=collate)
    loop = antiphon.hf.instrument(trainer, stream)
    if not (loop.job and loop.job.attached):
        raise SystemExit("this is a job: it was not launched by a server")
    sender: Any = loop.job._sender
    clock = time.pthread_getcpuclockid(sender._thread.ident)
    sending: list[float] = []
    trainer.add_callback(Clock())
    trainer.train()
    of_steps["sending"] = [(time.clock_gettime(clock) - sending[-1]) * 1000 / STEPS]
    of_steps["whole"] = [statistics.fmean(whole[part]) for part in PAIRED]
    shutil.rmtree(folder)
    loop.job.close()
    if loop.quiet.errors:
        raise SystemExit(f"{loop.quiet.errors} errors of the package: see the log")
    return of_steps


def summary(repeat: dict[str, list[float]]) -> dict[str, Any]:
    """The cost of a repeat: the mean by the mean of the steps without it, and its upper bound."""
    steps, (sending_ms,), whole_ms = repeat.pop("step"), repeat.pop("sending"), repeat.pop("whole")
    # Two steps are a pair. What is timed in pairs stands behind the second of them.
    parts = {
        part: of[1::2] if part in PAIRED else [(one + other) / 2 for one, other in zip(of[::2], of[1::2], strict=True)]
        for part, of in repeat.items()
    }
    ours = [sum(of) for of in zip(*parts.values(), strict=True)]
    mean, error = statistics.fmean(ours), statistics.stdev(ours) / len(ours) ** 0.5
    plain = statistics.fmean(steps) - mean
    return {
        "pairs": len(ours),
        "step_ms": plain,
        "ours_ms": mean,
        "median_ms": statistics.median(ours),
        "share": mean / plain,
        "upper": (mean + Z * error) / plain,
        "sending_ms": sending_ms,
        "whole_ms": dict(zip(PAIRED, whole_ms, strict=True)),
        "parts_ms": {part: statistics.fmean(of) for part, of in parts.items()},
    }


def page(repeats: list[dict[str, Any]]) -> str:
    """The part of the page."""
    rows = []
    for number, it in enumerate(repeats, 1):
        times = f"{it['step_ms']:.0f} | {1000 * it['ours_ms']:.0f} | {1000 * it['median_ms']:.0f}"
        rows.append(f"| {number} | {times} | {it['share']:.2%} | {it['upper']:.2%} | {it['ours_ms'] / 10:.3f} % |")
    parts = []
    for part, what in PARTS.items():
        times = " | ".join(
            f"{1000 * it['parts_ms'][part]:.0f}" + (f" of {1000 * it['whole_ms'][part]:.0f}" if part in PAIRED else "")
            for it in repeats
        )
        parts.append(f"| {what} | {times} |")
    share = [it["share"] for it in repeats]
    sending = ", ".join(f"{1000 * it['sending_ms']:.0f}" for it in repeats)
    load = ", ".join(f"{it['load']:.1f}" for it in repeats)
    return "\n".join(
        [
            "## Cost of the loop",
            "",
            f"A Trainer with {SHARDS} shards and {ROWS} rows a step under a real server, {repeats[0]['pairs']} pairs",
            "of steps a repeat: processor time of the training thread. What the package adds is timed inside its",
            "methods, less what these call of the Trainer's own. What it does in place of the Trainer's own, a batch",
            "drawn from the shards and the loss of each sample, is timed in turns with what it takes the place of: a",
            "step with ours, a step with theirs. Held-out probes, which are evaluations that the owner asks for, are",
            f"not in it. The last column is the same at a second a step. The thread that sends took {sending} us a",
            "step besides: it adds up and encodes. Load on the two processors after each repeat, where 2 is all there",
            f"is: {load}. (`scripts/two_way/cost.py`)",
            "",
            "| repeat | step without, ms | of the package, mean us | median us | share | upper 95 % bound | at 1 s |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
            f"Median share {statistics.median(share):.2%}, from {min(share):.2%} to {max(share):.2%}.",
            "",
            f"| part, us a step | {' | '.join(f'repeat {number}' for number in range(1, len(repeats) + 1))} |",
            f"| --- |{' --- |' * len(repeats)}",
            *parts,
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
        repeats.append({**summary(json.loads(out.read_text(encoding="utf-8"))), "load": os.getloadavg()[0]})
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
