"""A `MixedStream` as PyTorch's data loader takes it. What a slot holds is the stream's; nothing is decided here.

Slots are drawn in the loop's process also where workers read the rows, so that a directive reaches the next draw.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
        return self.stream.samples([draw])[0]

    def __getitems__(self, draws: list[Draw]) -> list[Sample]:
        """A batch at once, as the data loader asks where it can."""
        return self.stream.samples(draws)

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


@dataclass(frozen=True)
class Drawn:
    """Where a batch of a stream's samples is from. No tensor, or it would be copied to the GPU and back."""

    slot: int  # The first.
    numbers: list[int]  # Of the shards.


class ShardCollator:
    """Wraps a collator: takes the shard out of each row before it, and adds behind it as `shard` where they are from.

    That is `Drawn` for samples of a stream, and a tensor of numbers for rows with a shard of their own.
    """

    def __init__(self, collate: Callable[[list[Any]], Any], shards: Callable[[], Sequence[str]]) -> None:
        self.collate = collate
        self._shards = shards
        self._names: Sequence[str] = ()
        self._numbers: dict[str, int] = {}

    def __call__(self, rows: list[Any]) -> Any:
        if rows and isinstance(rows[0], Sample):
            known = self._known()
            batch = self.collate([sample.row for sample in rows])
            batch["shard"] = Drawn(rows[0].slot, [known[sample.shard] for sample in rows])
            return batch
        if rows and isinstance(rows[0], dict) and "shard" in rows[0]:
            known = self._known()
            of = [row["shard"] for row in rows]
            numbers = [known[shard] if isinstance(shard, str) else int(shard) for shard in of]
            batch = self.collate([{name: value for name, value in row.items() if name != "shard"} for row in rows])
            batch["shard"] = torch.tensor(numbers, dtype=torch.long)
            return batch
        return self.collate(rows)

    def _known(self) -> dict[str, int]:
        names = self._shards()
        if names != self._names:
            self._names, self._numbers = names, {name: number for number, name in enumerate(names)}
        return self._numbers
