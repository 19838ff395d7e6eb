"""Which files are there after acknowledgements, and what is never touched."""

from __future__ import annotations

import json
import logging
import tempfile
import unittest
from pathlib import Path

import _paths  # noqa: F401
import antiphon
from antiphon import seal
from antiphon.retention import Keeper, Retention
from fake_server import fake_server


class KeeperTest(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name) / "ckpt"
        self.directory.mkdir()
        logging.getLogger("antiphon").setLevel(logging.CRITICAL)

    def keeper(self, newest: int = 2, best: int = 0) -> Keeper:
        return Keeper("job-7", str(self.directory), Retention(newest, best, 0))

    def save(self, keeper: Keeper, step: int, loss: float | None = None, acknowledged: bool = True) -> None:
        path = self.directory / f"step-{step}"
        path.mkdir()
        (path / "model").write_text("weights")
        seal.seal(path, {"step": step})
        keeper.saved(path.name, step, loss)
        if acknowledged:
            keeper.acknowledged([path.name])
            keeper.settle()

    def there(self) -> list[str]:
        return sorted(path.name for path in self.directory.glob("step-*"))

    def test_the_newest_and_the_best_are_left(self) -> None:
        keeper = self.keeper(newest=2, best=1)
        for step, loss in enumerate([3.0, 1.0, 2.0, 2.5, 2.6]):
            self.save(keeper, step, loss)
        self.assertEqual(self.there(), ["step-1", "step-3", "step-4"])

    def test_while_the_server_is_away_nothing_goes(self) -> None:
        keeper = self.keeper(newest=1)
        for step in range(5):
            self.save(keeper, step, acknowledged=False)
        self.assertEqual((keeper.prune(), len(self.there())), ([], 5))
        keeper.acknowledged(["step-3"])
        keeper.settle()
        # What is newer than the acknowledged one may be acknowledged any moment.
        self.assertEqual(self.there(), ["step-3", "step-4"])

    def test_the_next_attempt_knows_what_earlier_ones_saved(self) -> None:
        first = self.keeper(newest=3)
        for step in range(3):
            self.save(first, step)
        second = self.keeper(newest=3)
        self.save(second, 3)
        self.assertEqual(self.there(), ["step-1", "step-2", "step-3"])

    def test_what_the_loop_did_not_tell_of_and_what_lies_elsewhere_stays(self) -> None:
        keeper = self.keeper(newest=1)
        (self.directory / "step-final").write_text("mine")
        outside = self.directory.parent / "elsewhere"
        outside.write_text("mine")
        (self.directory / "link").symlink_to(outside)
        for number, path in enumerate(["../elsewhere", "link", str(outside), ".", ""]):
            keeper.saved(path, number)
            keeper.acknowledged([path])
        self.save(keeper, 8)
        self.save(keeper, 9)
        self.assertEqual(self.there(), ["step-9", "step-final"])
        self.assertEqual(outside.read_text(), "mine")

    def test_one_that_is_spared_stays_until_another_is(self) -> None:
        keeper = self.keeper(newest=1)
        self.save(keeper, 1)
        keeper.spare(["step-1"])
        self.save(keeper, 2)
        self.save(keeper, 3)
        self.assertEqual(self.there(), ["step-1", "step-3"])
        keeper.spare([])
        self.assertEqual(keeper.prune(), ["step-1"])

    def test_a_deletion_that_was_cut_off_leaves_no_checkpoint_and_is_completed(self) -> None:
        keeper = self.keeper(newest=1)
        self.save(keeper, 1)
        self.save(keeper, 2, acknowledged=False)
        # As a crash leaves it: the manifest is gone first.
        (self.directory / "step-1" / seal.MANIFEST).unlink()
        self.assertEqual(seal.newest(self.directory), self.directory / "step-2")
        keeper = self.keeper(newest=1)
        keeper.saved("step-2", 2)
        keeper.acknowledged(["step-2"])
        keeper.settle()
        self.assertEqual(self.there(), ["step-2"])

    def test_an_index_that_cannot_be_read_deletes_nothing(self) -> None:
        self.save(self.keeper(), 1)
        index = self.directory / "antiphon-checkpoints.job-7.json"
        self.assertEqual(len(json.loads(index.read_text())["checkpoints"]), 1)
        index.write_text("{")
        keeper = self.keeper(newest=1)
        self.save(keeper, 2)
        self.assertEqual(self.there(), ["step-1", "step-2"])

    def test_a_single_file_is_a_checkpoint_too_and_a_path_written_again_is_a_new_one(self) -> None:
        keeper = self.keeper(newest=1)
        for step in (10, 20, 10):
            (self.directory / f"step-{step}").write_text("weights")
            keeper.saved(f"step-{step}", step)
            keeper.acknowledged([f"step-{step}"])
            keeper.settle()
        self.assertEqual(self.there(), ["step-10"])


class OfAJobTest(unittest.TestCase):
    def test_what_the_server_acknowledged_lets_older_ones_go_if_the_job_file_says_so(self) -> None:
        for keep, left in (("newest=2,best=0,days=0", ["step-2", "step-3"]), ("", ["step-1", "step-2", "step-3"])):
            with fake_server() as server, tempfile.TemporaryDirectory() as directory:
                variables = server.variables() | {
                    "ANTIPHON_CHECKPOINT_DIR": directory,
                    "ANTIPHON_CHECKPOINT_KEEP": keep,
                }
                job = antiphon.attach(environment=antiphon.Environment.read(variables))
                for step in (1, 2, 3):
                    (Path(directory) / f"step-{step}").write_text("weights")
                    job.checkpointed(step, f"step-{step}", 7, 1)
                job.close()
                self.assertEqual(sorted(path.name for path in Path(directory).glob("step-*")), left)

    def test_without_a_server_nothing_is_deleted(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            variables = {"ANTIPHON_CHECKPOINT_DIR": directory, "ANTIPHON_CHECKPOINT_KEEP": "newest=1,best=0,days=0"}
            job = antiphon.attach(environment=antiphon.Environment.read(variables))
            for step in (1, 2):
                (Path(directory) / f"step-{step}").write_text("weights")
                job.checkpointed(step, f"step-{step}", 7, 1)
            job.close()
            self.assertEqual((job.retention.prune(), len(list(Path(directory).iterdir()))), ([], 2))


if __name__ == "__main__":
    unittest.main()
