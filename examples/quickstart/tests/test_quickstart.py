"""The example keeps its promises: true gradients, rows that depend on their slot alone, resumption without a trace."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import _paths
import train  # Before numpy: it limits the threads.

# isort: split
import numpy as np

import checkpoint
import data
import model
from fake_server import FakeServer, fake_server

SMALL = ["--batch", "4", "--sequence-length", "16", "--checkpoint-every", "5"]


class InDirectory(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        corpus = data.load_corpus()
        patch = mock.patch.object(data, "load_corpus", return_value=corpus)
        patch.start()
        self.addCleanup(patch.stop)

    def run_job(self, name: str, *options: str, server: FakeServer | None = None, attempt: int = 1) -> tuple[int, str]:
        """Runs the job with checkpoints under `name`; its exit code and what it said on stderr."""
        place = self.directory / name
        variables = {} if server is None else {**server.variables(), "ANTIPHON_ATTEMPT": f"job-42.{attempt}"}
        arguments = [
            *SMALL,
            "--checkpoint-dir",
            str(place),
            "--losses",
            str(self.directory / f"{name}.jsonl"),
            *options,
        ]
        said = io.StringIO()
        quiet = contextlib.redirect_stdout(io.StringIO())
        with mock.patch.dict(os.environ, variables), contextlib.redirect_stderr(said), quiet:
            return train.main(arguments), said.getvalue()

    def losses(self, name: str) -> dict[int, tuple[int, str]]:
        """Slot and loss of each step; the last line of a step counts."""
        lines = (self.directory / f"{name}.jsonl").read_text().splitlines()
        return {entry["step"]: (entry["slot"], repr(entry["loss"])) for entry in map(json.loads, lines)}

    def steps_saved(self, name: str) -> list[int]:
        return sorted(int(path.name[5:]) for path in (self.directory / name).glob("step-*"))


class Gradients(unittest.TestCase):
    def test_the_backward_pass_agrees_with_numeric_differences(self) -> None:
        shape = model.Shape(sequence_length=6, width=8, heads=2, layers=2)
        params = model.new_params(shape, seed=3, dtype="float64")
        random = np.random.default_rng(5)
        for value in params.values():
            value += 0.1 * random.standard_normal(value.shape)
        rows = random.integers(0, 256, (3, 7))
        _, gradients = model.loss_and_gradients(params, shape, rows)
        self.assertEqual(set(gradients), set(params))
        step = 1e-5
        for name, value in params.items():
            # The direction of the gradient shows most, a random one shows what points elsewhere.
            for direction in (gradients[name], random.standard_normal(value.shape)):
                unit = direction / np.linalg.norm(direction)
                losses = []
                for sign in (1, -1):
                    moved = {**params, name: value + sign * step * unit}
                    losses.append(model.loss_and_gradients(moved, shape, rows)[0].mean())
                numeric = (losses[0] - losses[1]) / (2 * step)
                self.assertAlmostEqual(numeric, float((gradients[name] * unit).sum()), delta=2e-7, msg=name)

    def test_training_lowers_the_loss_of_text_and_not_of_noise(self) -> None:
        corpus, shape, plan = data.load_corpus(), model.Shape(sequence_length=32, width=32, layers=1), data.even_plan()
        params = model.new_params(shape, seed=0)
        moments = model.new_moments(params)
        by_shard: dict[str, list[float]] = {}
        for step in range(150):
            names, rows = corpus.rows(0, plan, step * 16, 16, 32)
            losses, gradients = model.loss_and_gradients(params, shape, rows)
            model.update(params, moments, gradients, step + 1, model.AdamW())
            for name, loss in zip(names, losses):
                by_shard.setdefault(name, []).append(float(loss))
        self.assertLess(np.mean(by_shard["stdlib_code"][-100:]), 3.5)
        self.assertGreater(np.mean(by_shard["noise"][-100:]), np.log(256))


class Slots(unittest.TestCase):
    def test_what_a_slot_takes_does_not_depend_on_the_batch_or_on_other_slots(self) -> None:
        corpus, plan = data.load_corpus(), data.even_plan()
        names, rows = corpus.rows(1, plan, 0, 40, 16)
        for first, count in ((0, 1), (7, 5), (39, 1), (20, 20)):
            some_names, some_rows = corpus.rows(1, plan, first, count, 16)
            self.assertEqual(some_names, names[first : first + count])
            np.testing.assert_array_equal(some_rows, rows[first : first + count])

    def test_weights_hold_from_their_slot_on_and_a_shard_of_weight_0_is_never_drawn(self) -> None:
        corpus = data.load_corpus()
        plan = data.even_plan().then(400, {**data.even_plan().at(0), "noise": 0.0})
        before, _ = corpus.rows(0, plan, 0, 400, 16)
        after, _ = corpus.rows(0, plan, 400, 400, 16)
        self.assertEqual(before, corpus.rows(0, data.even_plan(), 0, 400, 16)[0])
        self.assertTrue(70 < before.count("noise") < 130, before.count("noise"))
        self.assertEqual(after.count("noise"), 0)

    def test_a_plan_survives_json_and_a_wrong_one_is_refused(self) -> None:
        plan = data.even_plan().then(8, {**data.even_plan().at(0), "noise": 0.1})
        self.assertEqual(data.Plan.from_json(json.loads(json.dumps(plan.to_json()))), plan)
        none = dict.fromkeys(data.SHARDS, 0)
        bad_plans: list[Any] = [
            [],
            [{"from_slot": 4, "weights": plan.at(0)}],
            [{"from_slot": 0, "weights": none}],
            [{}],
            [3],
        ]
        for bad in bad_plans:
            with self.subTest(bad=bad), self.assertRaises(ValueError):
                data.Plan.from_json(bad)


class Resuming(InDirectory):
    def test_a_directed_and_interrupted_job_has_the_losses_of_an_uninterrupted_one(self) -> None:
        with fake_server() as server:
            server.directives = [
                {"id": 1, "do": "set_weights", "weights": {"noise": 0.25}},
                {"id": 2, "do": "pause_shard", "shard": "stdlib_docs", "not_before_slot": 24},
                {"id": 3, "do": "yield", "not_before_slot": 32},
            ]
            self.assertEqual(self.run_job("main", "--steps", "60", "--min-step-ms", "10", server=server)[0], 0)
            yielded_at = self.steps_saved("main")[-1]
            self.assertTrue(8 <= yielded_at < 60, yielded_at)
            self.assertEqual([ack["directive"] for ack in server.all_of("acks")], [1, 2, 3])
            # The job resumes, is sent the data directives again, and must not apply them twice.
            server.directives = [server.directives[0], server.directives[1], {"id": 4, "do": "levitate"}]
            self.assertEqual(self.run_job("main", "--steps", "60", server=server, attempt=2)[0], 0)
        plan = json.loads((self.directory / "main" / "plan.json").read_bytes())
        self.assertEqual([entry["weights"]["noise"] for entry in plan], [1.0, 0.25, 0.25])
        self.assertEqual([entry["weights"]["stdlib_docs"] for entry in plan], [1.0, 1.0, 0.0])
        self.run_job("straight", "--steps", "60", "--plan", str(self.directory / "main" / "plan.json"))
        self.assertEqual(len(self.losses("main")), 60)
        self.assertEqual(self.losses("main"), self.losses("straight"))

    def test_a_corrupt_checkpoint_is_passed_over_and_the_losses_stay_the_same(self) -> None:
        self.run_job("straight", "--steps", "14")
        self.run_job("main", "--steps", "10")
        newest = self.directory / "main" / "step-10" / "arrays.npz"
        content = bytearray(newest.read_bytes())
        content[len(content) // 2] ^= 1
        newest.write_bytes(content)
        (self.directory / "main" / "step-12").mkdir()  # A crash before its manifest.
        loaded, passed_over = checkpoint.load_newest(self.directory / "main")
        assert loaded is not None
        self.assertEqual((loaded.state["step"], len(passed_over)), (5, 1))
        self.assertIn("sha256 differs", passed_over[0])
        self.run_job("main", "--steps", "14")
        self.assertEqual(self.losses("main"), self.losses("straight"))

    def test_the_checkpoint_to_resume_from_wins_and_its_successors_count_as_newer(self) -> None:
        self.run_job("main", "--steps", "15")
        with mock.patch.dict(os.environ, {"ANTIPHON_RESUME_FROM": "step-5"}):
            self.run_job("main", "--steps", "8")
        loaded, _ = checkpoint.load_newest(self.directory / "main")
        assert loaded is not None
        self.assertEqual(loaded.state["step"], 8)
        self.assertEqual(self.steps_saved("main"), [8, 10, 15], "three are kept, the new one among them")

    def test_sigterm_saves_at_the_next_boundary_and_ends_with_143(self) -> None:
        place = self.directory / "main"
        process = subprocess.Popen(
            [
                sys.executable,
                str(_paths.EXAMPLE / "train.py"),
                *SMALL,
                "--steps",
                "100000",
                "--checkpoint-dir",
                str(place),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_paths.PATHS)},
        )
        try:
            assert process.stdout is not None
            self.assertIn("step    20/", process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 143)
        loaded, _ = checkpoint.load_newest(place)
        assert loaded is not None
        self.assertGreaterEqual(loaded.state["step"], 20)


class Trouble(InDirectory):
    def test_a_full_disk_costs_a_checkpoint_and_not_the_training(self) -> None:
        whole = checkpoint.save

        def full_at_step_5(directory: Path, step: int, *contents: Any) -> checkpoint.Saved:
            if step == 5:
                raise OSError(28, "No space left on device")
            return whole(directory, step, *contents)

        with mock.patch.object(checkpoint, "save", full_at_step_5):
            self.assertEqual(self.run_job("main", "--steps", "10")[0], 0)
        self.assertEqual(self.steps_saved("main"), [10])

    def test_a_directory_that_cannot_be_written_is_named_with_a_way_out(self) -> None:
        (self.directory / "main").write_text("a file, not a directory")
        code, said = self.run_job("main", "--steps", "1")
        self.assertEqual(code, 1)
        self.assertRegex(said, r"(?s)error: checkpoints cannot be written to `.*main`.*why:.*help:.*--checkpoint-dir")

    def test_a_checkpoint_of_another_job_is_refused(self) -> None:
        self.run_job("main", "--steps", "1")
        code, said = self.run_job("main", "--steps", "1", "--seed", "7")
        self.assertEqual(code, 1)
        self.assertIn("it was saved with another seed", said)

    def test_directives_that_cannot_be_carried_out_are_rejected_with_the_reason(self) -> None:
        with fake_server() as server:
            server.directives = [
                {"id": 1, "do": "pause_shard", "shard": "stdlib_cod"},
                {"id": 2, "do": "set_weights", "weights": dict.fromkeys(data.SHARDS, 0)},
                {"id": 3, "do": "stop"},
            ]
            self.assertEqual(self.run_job("main", "--steps", "1000", "--min-step-ms", "5", server=server)[0], 0)
            acks = server.all_of("acks")
        self.assertEqual(acks[0]["rejected"]["reason"], "there is no shard `stdlib_cod`; did you mean `stdlib_code`?")
        self.assertEqual(acks[1]["rejected"]["reason"], "no shard would be left to draw from")
        self.assertIn("applied", acks[2])


if __name__ == "__main__":
    unittest.main()
