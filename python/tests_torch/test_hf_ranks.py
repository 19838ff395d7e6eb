"""Two ranks of a Transformers Trainer: what they draw, agree on and save is what one rank draws, is told and saves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import torch

import _torch_paths
import antiphon
import tiny
from antiphon import hf, seal
from fake_server import FakeServer, fake_server, until

PROGRAM = str(Path(__file__).with_name("hf_rank.py"))


class TwoRanks(unittest.TestCase):
    def test_directives_and_unequal_parts_leave_the_model_of_one_rank(self) -> None:
        with tempfile.TemporaryDirectory() as directory, fake_server() as server:
            server.directives = [
                {"id": 1, "do": "drain", "task": 1, "share": 0.5, "steps": 2, "not_before_slot": 32},
                {"id": 2, "do": "checkpoint", "not_before_slot": 64},
            ]
            run_two_ranks(self, server, directory)
            weights = [torch.load(f"{directory}/weights-{rank}.pt") for rank in range(2)]
            (checkpoint,) = server.all_of("checkpoints")
            self.assertTrue(seal.is_whole(Path(directory) / checkpoint["path"], thorough=True))
            self.assertEqual(seal.state_of(Path(directory) / checkpoint["path"])["slot"], checkpoint["step"] * 16)
            acks = {ack["directive"]: ack for ack in server.all_of("acks")}
            self.assertEqual({number: "applied" in ack for number, ack in acks.items()}, {1: True, 2: True})
            rows = {signal["micro_batch"] for signal in server.all_of("signals") if "micro_batch" in signal}
            self.assertEqual(rows, {3, 4, 5})
        self.assertTrue(torch.equal(*weights))
        with tempfile.TemporaryDirectory() as directory:
            alone = tiny.trainer(directory, max_steps=8, gradient_accumulation_steps=4)
            hf.instrument(alone, tiny.stream(), job=antiphon.attach(environment=antiphon.Environment()))
            alone.train()
        expected = torch.cat([parameter.detach().flatten() for parameter in alone.model.parameters()])
        torch.testing.assert_close(weights[0], expected, rtol=0, atol=2e-5)

    def test_the_rank_that_the_other_waits_for_is_the_one_with_time_of_its_own(self) -> None:
        with tempfile.TemporaryDirectory() as directory, fake_server() as server:
            run_two_ranks(self, server, directory, json.dumps({"max_steps": 24}), "1", "0.1")
            steps = [signal for signal in server.all_of("signals") if signal.get("step", 0) > 4 and "step_ms" in signal]
        of: list[dict[str, float]] = []
        for rank in range(2):
            mine = [signal for signal in steps if signal["task"] == rank]
            self.assertEqual(len(mine), 20)
            # What the straggler rule looks at, and what it must not: the step takes both equally long.
            own = median(signal["step_ms"] - signal["communication_ms"] for signal in mine)
            of.append({"own": own, "whole": median(signal["step_ms"] for signal in mine)})
            self.assertTrue(all(0 <= signal["backward_ms"] <= signal["step_ms"] for signal in mine))
        # Two micro-steps of 100 ms each are slept.
        self.assertGreater(of[1]["own"], 200)
        self.assertGreater(of[1]["own"], 2 * of[0]["own"])
        self.assertGreater(of[0]["whole"], 200)


def run_two_ranks(test: unittest.TestCase, server: FakeServer, directory: str, *arguments: str) -> None:
    """Runs `hf_rank.py` as two ranks of one job, to its end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = {
        **os.environ,
        **server.variables(),
        "PYTHONPATH": str(_torch_paths.PACKAGE),
        "ANTIPHON_CHECKPOINT_DIR": directory,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    started = [
        subprocess.Popen(
            [sys.executable, PROGRAM, directory, *arguments],
            env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=240)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    test.assertEqual([process.returncode for process in started], [0, 0], "\n".join(errors)[-3000:])


class Sigterm(unittest.TestCase):
    def test_a_terminated_trainer_is_saved_sealed_and_ends_by_the_code_for_it(self) -> None:
        """Alone, and beside Transformers' own checkpoint on SIGTERM, which then is the one that saves."""
        with ExitStack() as stack:
            runs = []
            for own in (False, True):
                directory = stack.enter_context(tempfile.TemporaryDirectory())
                server = stack.enter_context(fake_server())
                process = subprocess.Popen(
                    [
                        sys.executable,
                        PROGRAM,
                        directory,
                        json.dumps({"max_steps": 10**6, "enable_jit_checkpoint": own}),
                    ],
                    env={
                        **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")},
                        **server.variables(),
                        "PYTHONPATH": str(_torch_paths.PACKAGE),
                        "ANTIPHON_CHECKPOINT_DIR": directory,
                    },
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                stack.callback(process.kill)
                runs.append((own, directory, server, process))
            for own, directory, server, process in runs:
                with self.subTest(own=own):
                    until(partial(stepped_or_ended, server, process), "a step", timeout_s=120)
                    process.send_signal(signal.SIGTERM)
                    _, error = process.communicate(timeout=60)
                    self.assertEqual(process.returncode, 143, error[-2000:])
                    (checkpoint,) = server.all_of("checkpoints")
                    self.assertTrue(seal.is_whole(Path(directory) / checkpoint["path"], thorough=True))
                    last = max(entry["step"] for entry in server.all_of("signals") if "step_ms" in entry)
                    # Transformers' own may come inside a step: what that step consumed is drawn again.
                    self.assertIn(checkpoint["step"], (last - 1, last) if own else (last,))
                    kept = seal.state_of(Path(directory) / checkpoint["path"])
                    self.assertEqual(kept["slot"], kept["step"] * 8)


def stepped_or_ended(server: FakeServer, process: subprocess.Popen[str]) -> bool:
    return process.poll() is not None or any("step_ms" in entry for entry in server.all_of("signals"))


if __name__ == "__main__":
    unittest.main()
