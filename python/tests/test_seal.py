"""When a directory of files is a checkpoint, and which of several is resumed from."""

from __future__ import annotations

import hashlib
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import _paths  # noqa: F401
from antiphon import seal


class Sealing(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)

    def checkpoint(self, name: str, step: int) -> seal.Sealed:
        path = self.directory / name
        (path / "rank-0").mkdir(parents=True)
        (path / "model").write_bytes(b"weights" * step)
        (path / "rank-0" / "state").write_bytes(b"state")
        return seal.seal(path, {"step": step, "slot": 16 * step})

    def test_a_sealed_checkpoint_is_whole_and_gives_back_its_state(self) -> None:
        sealed = self.checkpoint("checkpoint-3", 3)
        self.assertTrue(seal.is_whole(sealed.path, thorough=True))
        self.assertEqual(seal.state_of(sealed.path), {"step": 3, "slot": 48})
        self.assertGreater(sealed.bytes, 26)
        manifest = (sealed.path / seal.MANIFEST).read_bytes()
        self.assertEqual(sealed.manifest, f"sha256:{hashlib.sha256(manifest).hexdigest()}")

    def test_a_crash_before_the_manifest_leaves_no_checkpoint(self) -> None:
        with (
            mock.patch.object(seal, "_sync_and_digest", side_effect=OSError(28, "No space left on device")),
            self.assertRaises(OSError),
        ):
            self.checkpoint("checkpoint-3", 3)
        self.assertIsNone(seal.newest(self.directory))

    def test_changed_and_cut_files_are_found(self) -> None:
        path = self.checkpoint("checkpoint-3", 3).path
        (path / "model").write_bytes(b"WEIGHTS" * 3)
        self.assertTrue(seal.is_whole(path))
        self.assertFalse(seal.is_whole(path, thorough=True))
        (path / "model").write_bytes(b"weights")
        self.assertFalse(seal.is_whole(path))

    def test_the_one_saved_last_is_the_newest_also_after_a_rollback(self) -> None:
        for name, step in (("checkpoint-10", 10), ("checkpoint-20", 20), ("checkpoint-12", 12)):
            self.checkpoint(name, step)
        self.assertEqual(seal.newest(self.directory), self.directory / "checkpoint-12")
        self.assertEqual(seal.newest(self.directory, step_max=11), self.directory / "checkpoint-10")
        self.assertIsNone(seal.newest(self.directory, step_max=9))
        named = self.directory / "checkpoint-20"
        self.assertEqual(seal.newest(self.directory, named), named)
        (named / "model").unlink()
        self.assertEqual(seal.newest(self.directory, named), self.directory / "checkpoint-12")
        self.assertIsNone(seal.newest(self.directory / "nowhere"))

    def test_a_manifest_of_another_version_is_no_checkpoint_of_this_one(self) -> None:
        path = self.checkpoint("checkpoint-3", 3).path
        manifest = (path / seal.MANIFEST).read_text(encoding="utf-8")
        (path / seal.MANIFEST).write_text(manifest.replace('"version": 1', '"version": 2'), encoding="utf-8")
        self.assertIsNone(seal.newest(self.directory))


if __name__ == "__main__":
    unittest.main()
