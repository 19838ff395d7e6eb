"""Snapshots and resizes of real gangs of processes on one machine, over gloo: the losses are those of one whole run."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import _torch_paths  # noqa: F401
import ranks

SCENARIOS: list[dict[str, Any]] = [
    {"name": "whole"},
    {"name": "resized", "orders": {"2.2": 2, "4.3": 4}},
    {"name": "same", "orders": {"2.2": 4}},
    {"name": "alone", "orders": {"1.1": 1}, "compression": "gzip"},
    {"name": "ddp", "ranks": 2, "kind": "ddp", "steps": 4},
    {"name": "ddp-resized", "ranks": 2, "kind": "ddp", "steps": 4, "orders": {"1.3": 1, "1.4": 2, "2.2": 3}},
]


class Resizing(unittest.TestCase):
    losses: dict[str, dict[int, float]]
    worlds: dict[str, list[int]]

    @classmethod
    def setUpClass(cls) -> None:
        with tempfile.TemporaryDirectory() as directory:
            program = str(Path(__file__).with_name("ranks.py"))
            # A process of its own: ranks are forked, and this one has used autograd's threads.
            ended = subprocess.run(
                [sys.executable, program, directory, *map(json.dumps, SCENARIOS)],
                capture_output=True,
                text=True,
                timeout=400,
            )
            if ended.returncode != 0:
                raise AssertionError(f"exit code {ended.returncode}: {ended.stderr[-3000:]}")
            cls.losses, cls.worlds = {}, {}
            for scenario in SCENARIOS:
                notes = ranks.notes(Path(directory) / scenario["name"])
                cls.losses[scenario["name"]] = {note["step"]: note["loss"] for note in notes if "loss" in note}
                cls.worlds[scenario["name"]] = [note["ranks"] for note in notes if "rebuild_s" in note]

    def difference(self, name: str, whole: str) -> float:
        self.assertEqual(self.losses[name].keys(), self.losses[whole].keys())
        return float(max(abs(self.losses[name][step] - loss) for step, loss in self.losses[whole].items()))

    def test_four_two_four_ranks_inside_accumulation_give_the_losses_of_four(self) -> None:
        self.assertEqual(self.worlds["resized"], [4, 2, 4])
        # Two ranks sum gradients in another order than four, and processors differ in how they round: as losses are
        # reported, in single precision, that is nothing, or a unit in the last place where one lies on the edge.
        self.assertLess(self.difference("resized", "whole"), 1e-7, "summed in double precision")

    def test_the_same_number_of_ranks_goes_on_to_the_last_bit(self) -> None:
        self.assertEqual(self.worlds["same"], [4, 4])
        self.assertEqual(self.difference("same", "whole"), 0.0)

    def test_one_rank_goes_on_from_a_compressed_snapshot_of_four(self) -> None:
        self.assertEqual(self.worlds["alone"], [4, 1])
        self.assertLessEqual(self.difference("alone", "whole"), 1e-6)

    def test_gradients_that_ddp_has_not_yet_reduced_are_not_lost(self) -> None:
        self.assertEqual(self.worlds["ddp-resized"], [2, 1, 2, 3])
        self.assertLessEqual(self.difference("ddp-resized", "ddp"), 1e-6)

    def test_the_losses_fall_so_that_equal_ones_say_something(self) -> None:
        for losses in self.losses.values():
            self.assertEqual(len(set(losses.values())), len(losses))


if __name__ == "__main__":
    unittest.main()
