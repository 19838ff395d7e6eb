"""Loss by shard, from the losses of single samples that a step computes anyway. It computes no loss of its own.

A step keeps what it was handed and does nothing with it: the thread that sends adds up by shard, and reads numbers back
from a GPU, where they were copied aside without waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from .data import MixedStream
from .job import Job

# The shards by number, and what a signal says of each besides its loss.
Facts = Sequence[tuple[str, Mapping[str, Any]]]


class _Rows(NamedTuple):
    """The samples of one micro-step: of which shards they are, what they add to the sums, and of how many tokens."""

    numbers: Any
    sums: Any
    weights: Any


class ShardLosses:
    """Keeps the losses of a step's samples until they are reported."""

    def __init__(self, stream: MixedStream | None = None, names: Sequence[str] = ()) -> None:
        self._stream = stream
        self._named: Facts = tuple((name, {}) for name in names)
        self._rows: list[_Rows] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The shards by number."""
        return self._stream.shards if self._stream is not None else tuple(name for name, _ in self._named)

    def add(self, numbers: Any, losses: Any, weights: Any = None) -> None:
        """Adds the losses of samples, and of which shards they are, by number: two tensors or two sequences.

        `weights` says how many tokens each loss is the mean of: the loss of a shard is then that of its tokens. All are
        read later: hand in tensors that nothing overwrites.
        """
        if hasattr(losses, "detach"):
            losses = losses.detach()
            sums = losses if weights is None else losses * weights
        else:
            sums = losses if weights is None else [loss * weight for loss, weight in zip(losses, weights)]
        self._rows.append(_Rows(numbers, sums, weights))

    def add_sums(self, numbers: Any, sums: Any, tokens: Any) -> None:
        """Adds samples by the sums of their tokens' losses, and how many tokens each has."""
        self._rows.append(_Rows(numbers, sums, tokens))

    def report(self, job: Job, step: int) -> None:
        """Ends a step: what was added since the last one is that of `step`."""
        job.signal_later(step, self.take())

    def take(self) -> Callable[[], Iterator[dict[str, Any]]]:
        """Ends a step: gives what makes its signals, for `Job.signal_later`."""
        rows, self._rows = self._rows, []
        rows, arrived = _to_host(rows)
        return partial(_by_shard, rows, self._stream.known if self._stream is not None else self._named, arrived)


def _by_shard(rows: Sequence[_Rows], facts: Facts, arrived: Any) -> Iterator[dict[str, Any]]:
    """What is said of each shard that any of the rows are of."""
    if arrived is not None:
        arrived.synchronize()
    sums: dict[int, list[float]] = {}
    for of in rows:
        losses = _plain(of.sums)
        weights = [1.0] * len(losses) if of.weights is None else _plain(of.weights)
        for number, loss, weight in zip(_plain(of.numbers), losses, weights):
            shard = sums.setdefault(int(number), [0.0, 0.0, 0.0])
            shard[0] += float(loss)
            shard[1] += weight
            shard[2] += 1.0
    for number, (total, tokens, samples) in sorted(sums.items()):
        if 0 <= number < len(facts):
            name, known = facts[number]
            # A shard whose samples had no target token has a count and no loss.
            yield {"shard": name, "loss": total / tokens if tokens > 0 else None, "samples": int(samples), **known}


def _plain(numbers: Any) -> Sequence[float]:
    plain: Sequence[float] = numbers.tolist() if hasattr(numbers, "tolist") else numbers
    return plain


def _to_host(rows: list[_Rows]) -> tuple[list[_Rows], Any]:
    """The rows where they can be read without a GPU, and what tells when they have arrived there."""
    if not rows or not getattr(rows[0].sums, "is_cuda", False):
        return rows, None
    import torch

    def aside(tensor: Any) -> Any:
        if not getattr(tensor, "is_cuda", False):
            return tensor
        there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        there.copy_(tensor, non_blocking=True)
        return there

    rows = [_Rows(*map(aside, of)) for of in rows]
    arrived = torch.cuda.Event()
    arrived.record()
    return rows, arrived
