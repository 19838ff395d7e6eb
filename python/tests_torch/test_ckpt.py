"""Snapshots in one process without a group: what they hold, how they fail, and what of them is kept."""

from __future__ import annotations

import logging
import random
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.distributed.checkpoint.api import CheckpointException, _wrap_exception

import _torch_paths  # noqa: F401
import antiphon
import ranks
from antiphon import seal
from antiphon.ckpt import SnapshotError, Snapshotter


class Alone(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)
        torch.set_num_threads(1)
        logging.getLogger("antiphon").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("antiphon").setLevel, logging.NOTSET)

    def backward(self, model: Any, seed: int) -> None:
        ids = torch.randint(0, 64, (2, 17), generator=torch.Generator().manual_seed(seed))
        logits = model(ids[:, :-1])
        torch.nn.functional.cross_entropy(logits.reshape(-1, 64), ids[:, 1:].reshape(-1)).backward()

    def trained(self, steps: int) -> tuple[Any, Any]:
        model, optimizer = ranks.build("plain", 16)
        for step in range(steps):
            self.backward(model, step)
            optimizer.step()
            optimizer.zero_grad()
        return model, optimizer


class Contents(Alone):
    def test_everything_that_the_next_micro_step_depends_on_comes_back(self) -> None:
        for compression in ("none", "gzip"):
            with self.subTest(compression=compression):
                model, optimizer = self.trained(3)
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
                self.backward(model, 10)
                mix = ranks.stream()
                mix.apply(antiphon.Directive.from_wire({"id": 1, "do": "pause_shard", "shard": "b"}), 20)
                job = antiphon.attach({"cursor": 4, "done": [6]}, environment=antiphon.Environment())
                snapshots = Snapshotter(self.directory / compression, compression=compression)
                pending = snapshots.take(
                    model,
                    optimizer,
                    step=3,
                    micro_index=1,
                    slot=28,
                    loss_sum=1.25,
                    stateful={"scheduler": scheduler},
                    stream=mix,
                    job=job,
                    extra={"best": 2.5},
                )
                drawn = (random.random(), torch.rand(3))
                # What is trained on while the files are written is not in them.
                self.backward(model, 11)
                wanted = {name: p.grad.clone() for name, p in model.named_parameters()}
                optimizer.step()
                path = pending.wait(30)
                self.assertTrue(seal.is_whole(path, thorough=True))

                fresh, of_fresh = ranks.build("plain", 16)
                again = torch.optim.lr_scheduler.StepLR(of_fresh, 2)
                other = ranks.stream()
                position = snapshots.resume(fresh, of_fresh, stateful={"scheduler": again}, stream=other)
                assert position is not None
                self.assertEqual((position.step, position.micro_index, position.slot), (3, 1, 28))
                self.assertEqual((position.loss_sum, position.extra), (1.25, {"best": 2.5}))
                self.assertEqual(position.antiphon, {"cursor": 4, "done": [6]})
                self.assertEqual(other.state_dict(), mix.state_dict(28))
                self.assertEqual(again.state_dict(), scheduler.state_dict())
                self.assertEqual(random.random(), drawn[0])
                self.assertTrue(torch.equal(torch.rand(3), drawn[1]))
                self.backward(fresh, 11)
                for name, parameter in fresh.named_parameters():
                    self.assertTrue(torch.equal(parameter.grad, wanted[name]), name)
                of_fresh.step()
                for mine, theirs in zip(fresh.parameters(), model.parameters()):
                    self.assertTrue(torch.equal(mine, theirs))

    def test_a_snapshot_before_the_first_step_makes_the_optimizer_take_none(self) -> None:
        model, optimizer = self.trained(0)
        self.backward(model, 1)
        before = [p.detach().clone() for p in model.parameters()]
        Snapshotter(self.directory).take(model, optimizer, step=0, micro_index=1).wait(30)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(before, model.parameters())))
        self.assertEqual(len(optimizer.state), 0)
        fresh, of_fresh = ranks.build("plain", 16)
        self.assertIsNotNone(Snapshotter(self.directory).resume(fresh, of_fresh))
        self.assertEqual(len(of_fresh.state), 0)
        self.assertIsNotNone(next(fresh.parameters()).grad)


class Durability(Alone):
    def test_the_newest_whole_one_is_resumed_and_older_ones_go(self) -> None:
        model, optimizer = self.trained(1)
        snapshots = Snapshotter(self.directory, keep=2)
        for step in (1, 2, 3):
            snapshots.take(model, optimizer, step=step).wait(30)
        names = sorted(path.name for path in self.directory.iterdir())
        self.assertEqual(names, ["snapshot-2.0", "snapshot-3.0"])
        (self.directory / "snapshot-3.0" / seal.MANIFEST).unlink()
        self.assertEqual(snapshots.newest(), self.directory / "snapshot-2.0")
        for part in (self.directory / "snapshot-2.0").glob("*.distcp"):
            part.write_bytes(part.read_bytes()[:-1])
        self.assertIsNone(snapshots.newest())
        self.assertIsNone(snapshots.resume(model, optimizer))

    def test_a_full_disk_is_said_when_it_is_waited_for_and_leaves_the_last_one(self) -> None:
        model, optimizer = self.trained(1)
        snapshots = Snapshotter(self.directory)
        good = snapshots.take(model, optimizer, step=1).wait(30)
        full = CheckpointException("no space left", {0: _wrap_exception(OSError(28, "No space left"))})
        with mock.patch("torch.distributed.checkpoint.save", side_effect=full):
            pending = snapshots.take(model, optimizer, step=2)
            with self.assertRaisesRegex(SnapshotError, "step 2.0 is not written"):
                pending.wait(30)
        self.assertEqual(snapshots.newest(), good)

    def test_a_failure_after_the_tensors_leaves_no_snapshot(self) -> None:
        model, optimizer = self.trained(1)
        with mock.patch.object(seal, "seal", side_effect=OSError(28, "No space left")):
            pending = Snapshotter(self.directory).take(model, optimizer, step=1)
            with self.assertRaisesRegex(SnapshotError, "rank 0: OSError: .*No space left"):
                pending.wait(30)
        self.assertIsNone(Snapshotter(self.directory).newest())

    def test_what_is_no_snapshot_is_refused_with_its_name(self) -> None:
        model, optimizer = self.trained(1)
        (self.directory / "snapshot-9.0").mkdir()
        with self.assertRaisesRegex(SnapshotError, "snapshot-9.0` cannot be resumed from"):
            Snapshotter(self.directory).resume(model, optimizer, path=self.directory / "snapshot-9.0")

    def test_settings_that_make_no_sense_are_refused(self) -> None:
        for options in ({"keep": 0}, {"compression": "lzma"}):
            with self.subTest(options=options), self.assertRaises(ValueError):
                Snapshotter(self.directory, **options)


if __name__ == "__main__":
    unittest.main()
