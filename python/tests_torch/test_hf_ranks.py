"""Two ranks of a Transformers Trainer: what they draw, agree on and save is what one rank draws, is told and saves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import _torch_paths
import tiny
import torch
from fake_server import fake_server

import antiphon
from antiphon import hf, seal

PROGRAM = str(Path(__file__).with_name("hf_rank.py"))


class TwoRanks(unittest.TestCase):
    def test_directives_and_unequal_parts_leave_the_model_of_one_rank(self) -> None:
        with tempfile.TemporaryDirectory() as directory, fake_server() as server:
            server.directives = [
                {"id": 1, "do": "drain", "task": 1, "share": 0.5, "steps": 2, "not_before_slot": 32},
                {"id": 2, "do": "checkpoint", "not_before_slot": 64},
            ]
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
                    [sys.executable, PROGRAM, directory],
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
            self.assertEqual([process.returncode for process in started], [0, 0], "\n".join(errors)[-3000:])
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


if __name__ == "__main__":
    unittest.main()
