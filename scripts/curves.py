"""Trains 84 small models on text of the Python standard library; their loss curves judge the convergence rule.

    python scripts/curves.py [--out crates/antiphon-signals/tests/data/curves.txt] [--only NAME]

Needs numpy alone. What a curve looks like follows from its name and the installed Python's texts; the committed file is
one run, and the rule is judged on that. One line a curve: its name, its steps, `train` and the mean loss of each of 200
equal stretches of steps, `probe` and the held-out loss after each fortieth part of the run; losses in 1/10,000 nat
(squared error for `factors`).
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "quickstart"))
# By name, so that this script is checked for types without the example beside it.
model, data = importlib.import_module("model"), importlib.import_module("data")

Array = Any  # numpy's own generic type differs between versions
Params = dict[str, Array]
Batch = tuple[Array, Array]
Trainable = tuple[Params, Callable[[Params, Batch], tuple[float, Params]], Callable[[Any, int], Batch]]

BINS = 200
PROBES = 40
PROBE_ROWS = 512
CODE, DOCS, DOCSTRINGS = "stdlib_code", "stdlib_docs", "stdlib_docstrings"


@dataclass(frozen=True)
class Run:
    """One training run."""

    family: str
    text: str
    width: int
    rate: float
    optimizer: str
    schedule: str
    steps: int
    seed: int
    batch: int
    tuned: bool = False

    @property
    def name(self) -> str:
        parts = [self.family, self.text.removeprefix("stdlib_"), f"w{self.width}", self.optimizer, f"{self.rate:g}"]
        parts += [self.schedule, f"b{self.batch}", f"s{self.seed}"]
        return "-".join([*parts, "tuned"] if self.tuned else parts)

    def rate_at(self, step: int) -> float:
        """The learning rate: constant, or down to a tenth along a line or a half cosine."""
        done = step / self.steps
        if self.schedule == "linear":
            return self.rate * (1 - 0.9 * done)
        if self.schedule == "cosine":
            return self.rate * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)
        return self.rate


def runs() -> Iterator[Run]:
    """Every run there is: three texts or two, widths, rates, optimizers, schedules and batch sizes in turn."""
    schedules = ("constant", "constant", "cosine", "linear")
    texts = (CODE, DOCS, DOCSTRINGS)
    for i in range(18):
        text, schedule, width = texts[i % 3], schedules[i % 4], (16, 24, 32)[i // 6]
        rate = (3e-3, 1e-3, 2e-3)[i % 3]
        yield Run("transformer", text, width, rate, "adam", schedule, 500 + 100 * (i % 3), i, 16, tuned=i % 2 == 1)
    for i in range(30):
        text, schedule, optimizer = texts[i % 3], schedules[i % 4], ("adam", "momentum", "sgd")[i // 2 % 3]
        rate = {"adam": (1e-3, 3e-3), "momentum": (0.02, 0.05), "sgd": (0.2, 0.5)}[optimizer][i % 2]
        width, steps = (32, 64, 96)[i // 10], 1200 + 300 * (i % 4)
        yield Run("mlp", text, width, rate, optimizer, schedule, steps, i, 192, tuned=i % 5 == 4)
    for i in range(12):
        rate, schedule = (2.0, 5.0, 1.0)[i % 3], schedules[i % 4]
        yield Run("bigram", texts[i % 3], 256, rate, "sgd", schedule, 1500 + 500 * (i % 3), i, 256)
    for i in range(12):
        optimizer, schedule = ("sgd", "adam")[i % 2], schedules[i // 2 % 4]
        rate = {"sgd": (0.5, 0.1), "adam": (0.01, 0.003)}[optimizer][i // 6]
        yield Run("logistic", texts[i % 3], 256, rate, optimizer, schedule, 1000 + 500 * (i % 3), i, 128)
    for i in range(12):
        optimizer, schedule = ("adam", "momentum")[i % 2], schedules[i // 2 % 4]
        rate = {"adam": 0.01, "momentum": 0.5}[optimizer]
        yield Run("factors", texts[i % 3], (8, 16)[i // 6], rate, optimizer, schedule, 1500 + 500 * (i % 3), i, 512)


def windows(text: Array, length: int, held_out: bool) -> Callable[[Any, int], Array]:
    """Rows of `length` bytes from the first nine tenths of a text, or from the last."""
    split = len(text) * 9 // 10
    first, last = (split, len(text) - length) if held_out else (0, split - length)
    return lambda random, rows: text[random.integers(first, last, rows)[:, None] + np.arange(length)].astype(np.int64)


def cross_entropy(logits: Array, targets: Array) -> tuple[float, Array]:
    """The mean loss in nats and its gradient by the logits."""
    rows = np.arange(len(targets))
    logits = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(logits)
    total = exponentials.sum(axis=1, keepdims=True)
    loss = float((np.log(total[:, 0]) - logits[rows, targets]).mean())
    gradient = exponentials / total
    gradient[rows, targets] -= 1
    return loss, gradient / len(targets)


def transformer(run: Run, text: Array, held_out: bool) -> Trainable:
    shape = model.Shape(sequence_length=24, width=run.width, heads=2, layers=2)

    def step(params: Params, batch: Batch) -> tuple[float, Params]:
        losses, gradients = model.loss_and_gradients(params, shape, batch[0])
        return float(losses.mean()), gradients

    rows = windows(text, shape.sequence_length + 1, held_out)
    return model.new_params(shape, run.seed), step, lambda random, count: (rows(random, count), None)


def mlp(run: Run, text: Array, held_out: bool) -> Trainable:
    """The next byte from the six before it."""
    random = np.random.default_rng(run.seed)
    context, embedding = 6, 12
    params: Params = {
        "embed": random.normal(0, 0.3, (256, embedding)),
        "in": random.normal(0, (context * embedding) ** -0.5, (context * embedding, run.width)),
        "bias": np.zeros(run.width),
        "out": random.normal(0, 0.1 * run.width**-0.5, (run.width, 256)),
    }

    def step(params: Params, batch: Batch) -> tuple[float, Params]:
        inputs, targets = batch
        x = params["embed"][inputs].reshape(len(inputs), -1)
        hidden = np.tanh(x @ params["in"] + params["bias"])
        loss, d_logits = cross_entropy(hidden @ params["out"], targets)
        d_hidden = (d_logits @ params["out"].T) * (1 - hidden * hidden)
        d_embed = np.zeros_like(params["embed"])
        np.add.at(d_embed, inputs.reshape(-1), (d_hidden @ params["in"].T).reshape(-1, embedding))
        return loss, {"embed": d_embed, "in": x.T @ d_hidden, "bias": d_hidden.sum(axis=0), "out": hidden.T @ d_logits}

    rows = windows(text, context + 1, held_out)

    def draw(random: Any, count: int) -> Batch:
        drawn = rows(random, count)
        return drawn[:, :-1], drawn[:, -1]

    return params, step, draw


def bigram(run: Run, text: Array, held_out: bool) -> Trainable:
    """The next byte from the last two, log-linear."""
    params: Params = {"one": np.zeros((256, 256)), "two": np.zeros((256, 256))}

    def step(params: Params, batch: Batch) -> tuple[float, Params]:
        inputs, targets = batch
        loss, d_logits = cross_entropy(params["one"][inputs[:, 1]] + params["two"][inputs[:, 0]], targets)
        gradients = {name: np.zeros_like(value) for name, value in params.items()}
        np.add.at(gradients["one"], inputs[:, 1], d_logits)
        np.add.at(gradients["two"], inputs[:, 0], d_logits)
        return loss, gradients

    rows = windows(text, 3, held_out)

    def draw(random: Any, count: int) -> Batch:
        drawn = rows(random, count)
        return drawn[:, :-1], drawn[:, -1]

    return params, step, draw


def logistic(run: Run, text: Array, held_out: bool) -> Trainable:
    """Whether 48 bytes are of this text or of another, from how often each byte occurs."""
    other = data.load_corpus().shards[DOCS if run.text == CODE else CODE]
    params: Params = {"weights": np.zeros((256, 1)), "bias": np.zeros(1)}

    def step(params: Params, batch: Batch) -> tuple[float, Params]:
        counts, labels = batch
        score = (counts @ params["weights"])[:, 0] + params["bias"][0]
        signed = score * (2 * labels - 1)
        loss = float(np.logaddexp(0, -signed).mean())
        d_score = (1 / (1 + np.exp(-np.clip(score, -60, 60))) - labels) / len(labels)
        return loss, {"weights": counts.T @ d_score[:, None], "bias": np.array([d_score.sum()])}

    own, foreign = windows(text, 48, held_out), windows(other, 48, held_out)

    def draw(random: Any, count: int) -> Batch:
        drawn = np.concatenate([own(random, count // 2), foreign(random, count // 2)])
        counts = np.stack([np.bincount(row, minlength=256) for row in drawn]) / 48**0.5
        return counts, np.repeat([1.0, 0.0], count // 2)

    return params, step, draw


def factors(run: Run, text: Array, held_out: bool) -> Trainable:
    """How often two bytes stand next to each other, as a product of low rank."""
    counts = np.zeros((256, 256))
    np.add.at(counts, (text[:-1], text[1:]), 1)
    used = np.flatnonzero(counts.sum(axis=1) > 20)
    table = np.log1p(counts[np.ix_(used, used)])
    cells = np.random.default_rng(7).permutation(table.size)
    split = len(cells) * 9 // 10
    cells = cells[split:] if held_out else cells[:split]
    random = np.random.default_rng(run.seed)
    params: Params = {side: random.normal(0, 0.1, (len(used), run.width)) for side in ("left", "right")}

    def step(params: Params, batch: Batch) -> tuple[float, Params]:
        rows, columns = batch[0] // len(used), batch[0] % len(used)
        left, right = params["left"][rows], params["right"][columns]
        miss = (left * right).sum(axis=1) - table[rows, columns]
        gradients = {name: np.zeros_like(value) for name, value in params.items()}
        np.add.at(gradients["left"], rows, miss[:, None] * right / len(rows))
        np.add.at(gradients["right"], columns, miss[:, None] * left / len(rows))
        return float((miss * miss).mean()), gradients

    return params, step, lambda random, count: (random.choice(cells, count), None)


FAMILIES = {"transformer": transformer, "mlp": mlp, "bigram": bigram, "logistic": logistic, "factors": factors}


def train(run: Run, corpus: Any) -> tuple[list[float], list[float]]:
    """The loss of every step, and the held-out loss after each fortieth part."""
    make = FAMILIES[run.family]
    params, step, draw = make(run, corpus.shards[run.text], False)
    _, _, draw_probe = make(run, corpus.shards[run.text], True)
    random = np.random.default_rng(run.seed)
    probe = draw_probe(np.random.default_rng(1_000 + run.seed), PROBE_ROWS)
    moments = model.new_moments(params)
    if run.tuned:
        other = corpus.shards[DOCS if run.text == CODE else CODE]
        _, _, draw_other = make(run, other, False)
        early = replace(run, schedule="constant")
        for at in range(1, run.steps // 2 + 1):
            advance(early, params, moments, step(params, draw_other(random, run.batch))[1], at)
        moments = model.new_moments(params)
    losses, probes = [], []
    for at in range(1, run.steps + 1):
        loss, gradients = step(params, draw(random, run.batch))
        losses.append(loss)
        advance(run, params, moments, gradients, at)
        if at * PROBES // run.steps > (at - 1) * PROBES // run.steps:
            probes.append(step(params, probe)[0])
    return losses, probes


def advance(run: Run, params: Params, moments: Params, gradients: Params, at: int) -> None:
    """One step of the optimizer, in place."""
    rate = run.rate_at(at)
    if run.optimizer == "adam":
        model.update(params, moments, gradients, at, model.AdamW(rate=rate))
        return
    for name, value in params.items():
        moment = moments[f"first.{name}"]
        moment *= 0.9 if run.optimizer == "momentum" else 0.0
        moment += gradients[name]
        value -= rate * moment


def line(run: Run, losses: list[float], probes: list[float]) -> str:
    edges = [len(losses) * place // BINS for place in range(BINS + 1)]
    means = [sum(losses[a:b]) / (b - a) for a, b in zip(edges, edges[1:])]
    train_part, probe_part = (" ".join(str(round(loss * 10_000)) for loss in part) for part in (means, probes))
    return f"{run.name} {run.steps} train {train_part} probe {probe_part}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("crates/antiphon-signals/tests/data/curves.txt"))
    parser.add_argument("--only", default="", help="runs whose name begins so")
    arguments = parser.parse_args()
    corpus = data.load_corpus()
    lines = [line(run, *train(run, corpus)) for run in runs() if run.name.startswith(arguments.only)]
    # Half of the curves shape the rule and half judge it: which is which follows from the name alone.
    lines.sort(key=lambda text: zlib.crc32(text.split(" ", 1)[0].encode()))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} curves in {arguments.out}")


if __name__ == "__main__":
    main()
