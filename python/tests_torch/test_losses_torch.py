"""Loss by shard from tensors: the same sums as without PyTorch."""

from __future__ import annotations

import unittest

import torch
from test_losses import Recorder

import _torch_paths  # noqa: F401
from antiphon.data import MixedStream
from antiphon.directive import Directive
from antiphon.losses import ShardLosses


class Tensors(unittest.TestCase):
    def test_sums_are_those_of_plain_numbers(self) -> None:
        of_tensors, of_numbers = Recorder(), Recorder()
        tensors, plain = ShardLosses(names=("a", "b")), ShardLosses(names=("a", "b"))
        for step in range(1, 4):
            for _ in range(2):
                losses, weights = torch.rand(5, requires_grad=True), torch.randint(0, 4, (5,))
                numbers = torch.randint(0, 2, (5,))
                tensors.add(numbers, losses, weights)
                plain.add(numbers.tolist(), losses.tolist(), weights.tolist())
            tensors.report(of_tensors, step)
            plain.report(of_numbers, step)
        self.assertEqual(len(of_tensors.said), len(of_numbers.said))
        for mine, theirs in zip(of_tensors.said, of_numbers.said):
            self.assertAlmostEqual(mine.pop("loss"), theirs.pop("loss"), places=5)
            self.assertEqual(mine, theirs)

    def test_a_shard_added_between_two_micro_steps_has_its_place(self) -> None:
        stream = MixedStream({f"s{n}": [n] for n in range(20)}, loader=lambda path: [path])
        job, losses = Recorder(), ShardLosses(stream)
        losses.add([0, 19], torch.tensor([1.0, 2.0]))
        for n in range(20):
            fields = {"id": n + 1, "do": "add_samples", "shard": f"t{n}", "path": f"/{n}", "weight": 1}
            stream.apply(Directive.from_wire(fields), 0)
        losses.add([39, 19], torch.tensor([5.0, 4.0]))
        losses.report(job, 1)
        self.assertEqual(
            [(said["shard"], said["loss"], said["samples"]) for said in job.said],
            [("s0", 1.0, 1), ("s19", 3.0, 2), ("t19", 5.0, 1)],
        )


if __name__ == "__main__":
    unittest.main()
