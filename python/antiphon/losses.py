"""Loss by shard, from the losses of single samples that a step computes anyway. It computes no loss of its own.

On a GPU nothing is read back in the step that produced it: the sums stay on the device, are copied aside without
waiting, and are reported one step later, when the copy is long done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .data import MixedStream
from .job import Job

# A tensor grows by so many shards at a time, so that a shard added during the job seldom makes it grow.
_SPARE_SHARDS = 16


class ShardLosses:
    """Sums losses by shard until they are reported, and reports them one step late."""

    def __init__(self, stream: MixedStream | None = None, names: Sequence[str] = ()) -> None:
        self._stream = stream
        self._names = tuple(names)
        self._sums: Any = None  # One row each: loss times weight, weight, samples.
        self._plain: dict[int, list[float]] = {}
        self._late: tuple[int, Any, Any] | None = None  # The step, its sums on their way, and what tells of arrival.

    @property
    def names(self) -> tuple[str, ...]:
        """The shards by number."""
        return self._stream.shards if self._stream is not None else self._names

    def add(self, numbers: Any, losses: Any, weights: Any = None) -> None:
        """Adds the losses of samples, and of which shards they are, by number: two tensors or two sequences.

        `weights` says how many tokens each loss is the mean of: the loss of a shard is then that of its tokens.
        """
        if hasattr(losses, "index_add_"):
            self._add_tensors(numbers, losses, weights)
            return
        for place, (number, loss) in enumerate(zip(numbers, losses)):
            weight = 1.0 if weights is None else float(weights[place])
            sums = self._plain.setdefault(int(number), [0.0, 0.0, 0.0])
            sums[0] += float(loss) * weight
            sums[1] += weight
            sums[2] += 1.0

    def report(self, job: Job, step: int) -> None:
        """Ends a step: reports the one before it, and sends this one's sums on their way to the host."""
        self._report_late(job)
        if self._sums is not None:
            self._late = (step, *_to_host(self._sums))
            self._sums = None
        if self._plain:
            self._send(job, step, self._plain)
            self._plain = {}

    def flush(self, job: Job) -> None:
        """Reports what is still on its way: at the end, where waiting costs nothing."""
        self._report_late(job)

    def _add_tensors(self, numbers: Any, losses: Any, weights: Any) -> None:
        import torch

        losses = losses.detach().float()
        weights = torch.ones_like(losses) if weights is None else torch.as_tensor(weights).detach().to(losses)
        shards = max(len(self.names), 1)
        if self._sums is None or self._sums.shape[1] < shards or self._sums.device != losses.device:
            grown = torch.zeros(3, shards + _SPARE_SHARDS, dtype=torch.float32, device=losses.device)
            if self._sums is not None:
                grown[:, : self._sums.shape[1]] = self._sums.to(losses.device)
            self._sums = grown
        rows = torch.stack((losses * weights, weights, torch.ones_like(losses)))
        self._sums.index_add_(1, torch.as_tensor(numbers, device=losses.device), rows)

    def _report_late(self, job: Job) -> None:
        if self._late is None:
            return
        step, sums, arrived = self._late
        self._late = None
        if arrived is not None:
            arrived.synchronize()
        rows = sums.tolist()
        self._send(job, step, {n: [row[n] for row in rows] for n in range(len(self.names)) if rows[2][n] > 0})

    def _send(self, job: Job, step: int, sums: dict[int, list[float]]) -> None:
        names = self.names
        for number, (total, weight, samples) in sorted(sums.items()):
            if 0 <= number < len(names):
                facts = self._stream.facts(names[number]) if self._stream is not None else {}
                # A shard whose samples had no target token has a count and no loss.
                loss = total / weight if weight > 0 else None
                job.signal(step, shard=names[number], loss=loss, samples=int(samples), **facts)


def _to_host(sums: Any) -> tuple[Any, Any]:
    if not sums.is_cuda:
        return sums, None
    import torch

    aside = torch.empty(sums.shape, dtype=sums.dtype, pin_memory=True)
    aside.copy_(sums, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return aside, arrived
