"""Loss by shard from the losses of samples, without PyTorch."""

from __future__ import annotations

import unittest
from typing import Any

import _paths  # noqa: F401
import antiphon
from antiphon.data import MixedStream
from antiphon.losses import ShardLosses


class Recorder(antiphon.Job):
    def __init__(self) -> None:
        super().__init__(antiphon.Environment(), None, 0, ())
        self.said: list[dict[str, Any]] = []

    def signal(self, step: int, slot: int | None = None, **fields: Any) -> None:
        self.said.append({"step": step, **fields})

    def signal_later(self, step: int, make: Any) -> None:
        for fields in make():
            self.signal(step, **fields)


class Plain(unittest.TestCase):
    def test_losses_are_means_over_tokens_and_count_samples(self) -> None:
        job, losses = Recorder(), ShardLosses(names=("a", "b"))
        losses.add([0, 1, 0], [1.0, 5.0, 4.0], [1, 2, 2])
        losses.add([0], [2.0], [1])
        losses.report(job, 7)
        self.assertEqual(
            job.said,
            [
                {"step": 7, "shard": "a", "loss": 11 / 4, "samples": 3},
                {"step": 7, "shard": "b", "loss": 5.0, "samples": 1},
            ],
        )
        losses.report(job, 8)
        self.assertEqual(len(job.said), 2, "nothing is reported twice")

    def test_a_stream_says_what_its_shards_are(self) -> None:
        job, losses = Recorder(), ShardLosses(MixedStream({"a": [1, 2]}, categories={"a": "law"}))
        losses.add([0, 9], [1.5, 3.0])
        losses.report(job, 1)
        signal = {"step": 1, "shard": "a", "loss": 1.5, "samples": 1}
        self.assertEqual(job.said, [{**signal, "weight": 1.0, "category": "law", "unique_samples": 2}])

    def test_a_sample_without_target_tokens_has_a_count_and_no_loss(self) -> None:
        job, losses = Recorder(), ShardLosses(names=("a",))
        losses.add([0], [0.0], [0])
        losses.report(job, 1)
        self.assertEqual(job.said, [{"step": 1, "shard": "a", "loss": None, "samples": 1}])


if __name__ == "__main__":
    unittest.main()
