"""A `MixedStream` as PyTorch's data loader takes it. What a slot holds is the stream's; nothing is decided here.

Slots are drawn in the loop's process also where workers read the rows, so that a directive reaches the next draw.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

from .data import Draw, MixedStream, Sample


class SlotBatches(Sampler[list[Draw]]):
    """Gives one rank's part of each global micro-batch: the `batch_sampler` of a `DataLoader` over `SlotRows`.

    `rows` of each rank and `shares` of the ranks may change while it is drawn from; both hold from the next batch on,
    on every rank or the ranks would draw different slots.
    """

    def __init__(
        self, stream: MixedStream, rows: int, rank: int = 0, world: int = 1, batches: int = sys.maxsize
    ) -> None:
        self.stream = stream
        self.rows = rows
        self.rank = rank
        self.world = world
        self.shares: Sequence[float] = ()
        self._batches = batches

    def __iter__(self) -> Iterator[list[Draw]]:
        for _ in range(self._batches):
            count = self.rows * self.world
            yield self.stream.draws(self.stream.slot, count, self.rank, self.world, self.shares)

    def __len__(self) -> int:
        return self._batches


class SlotRows(Dataset[Sample]):
    """Reads the row of a slot, in whatever process."""

    def __init__(self, stream: MixedStream, count: int = sys.maxsize) -> None:
        self.stream = stream
        self._count = count

    def __getitem__(self, draw: Draw) -> Sample:
        return Sample(draw.slot, draw.shard, self.stream.row(draw))

    def __len__(self) -> int:
        """How many distinct rows there are, as far as that is known; slots go on beyond."""
        return self._count


class SlotStream(IterableDataset[Any]):
    """The rows of a stream one after another, for loaders that split them by rank themselves, as Accelerate does.

    `make` turns a sample into what the loader collates; by default the row itself.
    """

    def __init__(self, stream: MixedStream, make: Callable[[Sample], Any] = lambda sample: sample.row) -> None:
        super().__init__()
        self.stream = stream
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            # Each worker would draw every row once more, and no directive would reach it.
            raise ValueError(
                "a SlotStream draws in the loop's process: set num_workers=0, or use SlotBatches and SlotRows"
            )
        return map(self._make, self.stream)


class ShardCollator:
    """Wraps a collator: takes the shard out of each row before it, and adds it as a tensor of numbers behind it.

    A batch of a stream's samples also says in `slot` which one is its first.
    """

    def __init__(self, collate: Callable[[list[Any]], Any], shards: Callable[[], Sequence[str]]) -> None:
        self.collate = collate
        self._shards = shards

    def __call__(self, rows: list[Any]) -> Any:
        if rows and isinstance(rows[0], Sample):
            names = self._shards()
            numbers = [names.index(sample.shard) for sample in rows]
            batch = self.collate([sample.row for sample in rows])
            batch["slot"] = rows[0].slot
        elif rows and isinstance(rows[0], dict) and "shard" in rows[0]:
            names = self._shards()
            of = [row["shard"] for row in rows]
            numbers = [names.index(shard) if isinstance(shard, str) else int(shard) for shard in of]
            batch = self.collate([{name: value for name, value in row.items() if name != "shard"} for row in rows])
        else:
            return self.collate(rows)
        batch["shard"] = torch.tensor(numbers, dtype=torch.long)
        return batch
