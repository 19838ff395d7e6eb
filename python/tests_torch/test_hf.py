"""A real Transformers Trainer on one CPU thread against the fake server: losses, directives, checkpoints, resuming."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
import unittest
import unittest.mock
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

import _torch_paths  # noqa: F401
import antiphon
import tiny
from antiphon import hf, seal
from antiphon.hf_probe import Probes
from antiphon.retention import Retention
from fake_server import FakeServer, fake_server, until


class Losses(TrainerCallback):
    """Keeps the loss of each step and the weights at the end of it."""

    def __init__(self) -> None:
        self.weights: list[Any] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.weights.append(torch.cat([p.detach().flatten().clone() for p in model.parameters()]))


class Served(unittest.TestCase):
    def setUp(self) -> None:
        context = fake_server()
        self.server: FakeServer = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        temporary = tempfile.TemporaryDirectory()
        self.directory = temporary.name
        self.addCleanup(temporary.cleanup)
        logging.getLogger("antiphon").setLevel(logging.ERROR)

    def attach(self, **options: Any) -> antiphon.Job:
        environment = antiphon.Environment(
            endpoint=self.server.environment().endpoint, checkpoint_dir=self.directory, **options
        )
        job = antiphon.attach(environment=environment)
        self.addCleanup(job.close, 0.0)
        return job

    def train(self, job: antiphon.Job | None = None, stream: Any = None, **options: Any) -> tuple[Any, Any, Losses]:
        told = {name: options.pop(name) for name in ("probes", "probe_every", "handlers") if name in options}
        job = job or self.attach()
        if self.server.directives and job.attached:
            until(lambda: job._inbox.stirred, "the directives")
        trainer = tiny.trainer(self.directory, **options)
        loop = hf.instrument(trainer, stream or tiny.stream(), job=job, **told)
        losses = Losses()
        trainer.add_callback(losses)
        trainer.train()
        job.close()
        return trainer, loop, losses

    def signals(self, *names: str) -> list[dict[str, Any]]:
        return [signal for signal in self.server.all_of("signals") if all(name in signal for name in names)]

    def acks(self) -> dict[int, dict[str, Any]]:
        return {ack["directive"]: ack for ack in self.server.all_of("acks")}


class Reporting(Served):
    def test_each_step_reports_its_numbers_and_each_shard_its_loss(self) -> None:
        _, loop, _ = self.train(max_steps=4)
        self.assertEqual(loop.quiet.errors, 0)
        steps = self.signals("step_ms")
        self.assertEqual([signal["step"] for signal in steps], [1, 2, 3, 4])
        for signal in steps:
            self.assertEqual(signal["slot"], signal["step"] * 8)
            self.assertEqual((signal["tokens"], signal["micro_batch"]), (8 * tiny.LENGTH, 4))
            for name in ("loss", "grad_norm", "forward_ms", "backward_ms", "optimizer_ms", "data_wait_ms"):
                self.assertGreater(signal[name], 0, name)
        by_step = defaultdict(list)
        for signal in self.signals("shard", "loss"):
            by_step[signal["step"]].append(signal)
        stream = tiny.stream()
        for step in (1, 2, 3, 4):
            drawn = [stream.draw(slot) for slot in range((step - 1) * 8, step * 8)]
            shards = {draw.shard for draw in drawn}
            self.assertEqual({signal["shard"] for signal in by_step[step]}, shards)
            self.assertEqual(sum(signal["samples"] for signal in by_step[step]), 8)
            # The loss of the step is that of its tokens; so are those of the shards.
            tokens = dict.fromkeys(shards, 0)
            for draw in drawn:
                tokens[draw.shard] += sum(label != -100 for label in stream.row(draw)["labels"][1:])
            mean = sum(signal["loss"] * tokens[signal["shard"]] for signal in by_step[step]) / sum(tokens.values())
            self.assertAlmostEqual(mean, steps[step - 1]["loss"], places=5)
        self.assertEqual(by_step[1][0]["unique_samples"], 40)
        self.assertEqual(by_step[1][0]["category"], by_step[1][0]["shard"])

    def test_the_model_is_that_of_an_uninstrumented_trainer(self) -> None:
        _, _, instrumented = self.train(max_steps=4)
        plain = tiny.trainer(self.directory, max_steps=4)
        stream = tiny.stream()
        plain.train_dataset = [sample.row for sample in stream.rows(0, 64)]
        plain._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(plain.train_dataset)
        losses = Losses()
        plain.add_callback(losses)
        plain.train()
        for mine, theirs in zip(instrumented.weights, losses.weights):
            self.assertTrue(torch.equal(mine, theirs), "the same to the last bit")

    def test_probes_report_the_held_out_loss_and_change_nothing(self) -> None:
        _, _, without = self.train(max_steps=4)
        probes = {"easy": tiny.rows(11, 6, 2), "hard": tiny.rows(12, 6, 16)}
        _, _, probed = self.train(max_steps=4, probes=probes, probe_every=2)
        self.assertTrue(torch.equal(probed.weights[-1], without.weights[-1]))
        found = [(signal["step"], signal["category"]) for signal in self.signals("probe_loss")]
        self.assertEqual(found, [(step, name) for step in (0, 2, 4) for name in ("easy", "hard")])
        self.assertTrue(all(0 < signal["probe_loss"] < 2 * math.log(32) for signal in self.signals("probe_loss")))

    def test_probes_are_seldom_where_nothing_changes(self) -> None:
        probes = {"easy": tiny.rows(11, 2, 2)}
        _, loop, _ = self.train(max_steps=30, probes=probes, probe_every=2)
        steps = [signal["step"] for signal in self.signals("probe_loss")]
        self.assertEqual(steps, [0, 2, 4, 8, 16], "the next would be at 32")
        self.assertEqual(loop.probes.rows_seen, 5 * 2)

    def test_a_directive_about_data_brings_the_looks_at_probes_close_again(self) -> None:
        self.server.directives = [{"id": 1, "do": "set_weights", "weights": {"noise": 0}, "not_before_slot": 0}]
        self.train(max_steps=20, probes={"easy": tiny.rows(11, 2, 2)}, probe_every=2)
        self.assertEqual(self.acks()[1]["applied"]["slot"], 8, "after the first step")
        steps = [signal["step"] for signal in self.signals("probe_loss")]
        self.assertEqual(steps, [0, 2, 4, 6, 10, 18], "0, 2, 4, 8, 16 without it")

    def test_looks_are_at_most_a_hundred_steps_apart_unless_the_owner_says_so(self) -> None:
        def looks(every: int, first: int, last: int) -> list[int]:
            probes = Probes({"easy": [0]}, every)
            probes.begin(first)
            steps = []
            for step in range(first, last):
                if probes.are_due(step):
                    probes.looked(step)
                    steps.append(step)
            return steps

        self.assertEqual(looks(20, 0, 500), [0, 20, 40, 80, 160, 260, 360, 460])
        self.assertEqual(looks(20, 133, 300), [133, 140, 160, 200, 280])
        self.assertEqual(looks(250, 0, 1100), [0, 250, 500, 750, 1000])

    def test_without_antiphon_it_trains_as_before(self) -> None:
        _, loop, losses = self.train(job=antiphon.attach(environment=antiphon.Environment()), max_steps=2)
        self.assertEqual((len(losses.weights), loop.quiet.errors), (2, 0))
        self.assertEqual(self.server.bodies, [])


class Directing(Served):
    def test_weights_hold_from_the_slot_that_is_acknowledged(self) -> None:
        self.server.directives = [{"id": 1, "do": "set_weights", "weights": {"noise": 0}, "not_before_slot": 16}]
        stream = tiny.stream()
        self.train(stream=stream, max_steps=8)
        slot = self.acks()[1]["applied"]["slot"]
        self.assertEqual(slot % 8, 0)
        self.assertGreaterEqual(slot, 16)
        before, after = tiny.stream(), {stream.draw(k).shard for k in range(slot, 64)}
        self.assertEqual([stream.draw(k) for k in range(slot)], [before.draw(k) for k in range(slot)])
        self.assertNotIn("noise", after)
        seen = {s["shard"] for s in self.signals("shard", "loss") if (s["step"] - 1) * 8 >= slot}
        self.assertNotIn("noise", seen)

    def test_rows_change_with_the_accumulation_and_the_model_stays_the_same(self) -> None:
        _, _, plain = self.train(max_steps=6)
        self.server.directives = [{"id": 1, "do": "set_micro_batch", "rows": 2}]
        trainer, loop, changed = self.train(max_steps=6)
        self.assertIn("applied", self.acks()[1])
        self.assertEqual((trainer.args.gradient_accumulation_steps, loop.batch.sampler.rows), (4, 2))
        self.assertEqual(self.signals("micro_batch")[-1]["micro_batch"], 2)
        self.assertEqual(len(changed.weights), 6)
        torch.testing.assert_close(changed.weights[-1], plain.weights[-1], rtol=0, atol=2e-5)
        self.server.directives = [{"id": 1, "do": "set_micro_batch", "rows": 3}]
        self.server.bodies.clear()
        self.train(max_steps=6)
        self.assertIn("3 rows do not divide the 8 rows", self.acks()[1]["rejected"]["reason"])

    def test_what_the_trainer_cannot_do_is_answered_with_a_reason(self) -> None:
        self.server.directives = [
            {"id": 1, "do": "set_offload", "on": True},
            {"id": 2, "do": "resize", "ranks": 2},
            {"id": 3, "do": "drain", "task": 1, "share": 0.5},
            {"id": 4, "do": "rollback", "step": 3},
            {"id": 5, "do": "gather_hard_examples", "category": "hard", "count": 3},
            {"id": 6, "do": "set_recompute", "on": True},
            {"id": 7, "do": "add_samples", "shard": "new", "path": "/nowhere.jsonl", "weight": 1},
            {"id": 8, "do": "pause_shard", "shard": "hrad"},
        ]
        gathered: list[str] = []
        trainer, _, _ = self.train(
            max_steps=6, handlers={"gather_hard_examples": lambda directive: gathered.append(directive.category)}
        )
        acks = self.acks()
        for number, word in {1: "set_offload", 2: "relaunched", 3: "no rank 1", 4: "no whole checkpoint"}.items():
            self.assertIn(word, acks[number]["rejected"]["reason"])
        self.assertIn("applied", acks[5])
        self.assertEqual(gathered, ["hard"])
        self.assertIn("applied", acks[6])
        self.assertTrue(trainer.model.is_activation_checkpointing)
        self.assertIn("FileNotFoundError", acks[7]["failed"]["error"])
        self.assertIn("did you mean `hard`", acks[8]["rejected"]["reason"])


class Saving(Served):
    def test_a_yield_is_saved_sealed_acknowledged_and_the_rest_is_resumed_exactly(self) -> None:
        _, _, whole = self.train(max_steps=10)
        self.server.bodies.clear()
        self.server.directives = [
            {"id": 1, "do": "set_weights", "weights": {"noise": 1}, "not_before_slot": 16},
            {"id": 2, "do": "yield", "not_before_slot": 24},
        ]
        with self.assertRaises(SystemExit) as ended:
            self.train(max_steps=10)
        self.assertEqual(ended.exception.code, 0)
        (checkpoint,) = self.server.all_of("checkpoints")
        path = Path(self.directory) / checkpoint["path"]
        self.assertEqual(checkpoint["path"], f"checkpoint-{checkpoint['step']}")
        self.assertTrue(seal.is_whole(path, thorough=True))
        self.assertIn("applied", self.acks()[2])
        kept = seal.state_of(path)
        self.assertEqual((kept["slot"], kept["antiphon"]), (checkpoint["step"] * 8, {"cursor": 2, "done": []}))
        self.server.directives = []
        trainer, loop, rest = self.train(job=self.attach(resume_from=checkpoint["path"]), max_steps=10)
        self.assertEqual(loop.resume, path)
        self.assertEqual(trainer.state.global_step, 10)
        self.assertEqual(len(rest.weights), 10 - checkpoint["step"])
        torch.testing.assert_close(rest.weights[-1], whole.weights[-1], rtol=0, atol=0)

    def test_the_checkpoint_of_transformers_itself_keeps_what_its_model_has_learned(self) -> None:
        """It comes where a SIGTERM found the step: inside, or before this package is told that it ended."""
        server, seen = self.server, []
        for asked_in, step in (("on_step_begin", 2), ("on_optimizer_step", 3)):
            with self.subTest(asked_in=asked_in):
                server.bodies.clear()
                trainer = tiny.trainer(self.directory, max_steps=6, enable_jit_checkpoint=True)
                hf.instrument(trainer, tiny.stream(), job=self.attach())
                (own,) = [kept for kept in trainer.callback_handler.callbacks if hasattr(kept, "jit_manager")]

                def ask(args: Any, state: Any, control: Any, own: Any = own, **kwargs: Any) -> None:
                    if state.global_step == 2:
                        own.jit_manager.is_checkpoint_requested = True

                trainer.add_callback(type("Ask", (TrainerCallback,), {asked_in: staticmethod(ask)})())
                trainer.train()
                kept = seal.state_of(Path(self.directory) / f"checkpoint-{step}")
                seen.append((kept["step"], kept["slot"], kept["stream"]["slot"]))
                shutil.rmtree(Path(self.directory) / f"checkpoint-{step}")
        self.assertEqual(seen, [(2, 16, 16), (3, 24, 24)])

    def test_a_rollback_goes_on_in_this_process_and_what_it_undid_comes_again(self) -> None:
        self.server.directives = [{"id": 1, "do": "checkpoint"}]
        stream = tiny.stream()
        trainer = tiny.trainer(self.directory, max_steps=12)
        job = self.attach()
        loop = hf.instrument(trainer, stream, job=job)
        steps: list[int] = []
        server = self.server

        class Script(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                steps.append(state.global_step)
                if state.global_step == 4 and len(server.directives) == 1:
                    loop.settle()
                    server.directives += [
                        {"id": 2, "do": "set_weights", "weights": {"noise": 0}},
                        {"id": 3, "do": "rollback", "step": 4, "not_before_slot": 64},
                    ]
                    until(lambda: {2, 3} <= set(job._inbox._waiting), "what is to be undone, and the rollback")
                if len(steps) > 1 and state.global_step <= steps[-2]:
                    until(lambda: 2 in job._inbox._waiting or job.state()["cursor"] == 3, "what was undone")

        trainer.add_callback(Script())
        until(lambda: job._inbox.stirred, "the checkpoint directive")
        trainer.train()
        job.close()
        self.assertEqual(trainer.state.global_step, 12)
        back = next(place for place in range(1, len(steps)) if steps[place] <= steps[place - 1])
        self.assertGreaterEqual(steps[back - 1], 8)
        self.assertLessEqual(steps[back], 5)
        applied = [ack for ack in server.all_of("acks") if ack["directive"] == 2]
        self.assertEqual(len(applied), 2, "the older model does not contain it, so it is carried out again")
        self.assertEqual([ack["directive"] for ack in server.all_of("acks")].count(3), 1)
        self.assertEqual(job.state(), {"cursor": 3, "done": []})
        self.assertEqual(loop.quiet.errors, 0)

    def test_acknowledged_checkpoints_replace_older_ones_but_for_the_best(self) -> None:
        job = self.attach(keep=Retention(newest=1, best=1, days=0))

        class Script(TrainerCallback):
            def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                loop.settle()
                until(lambda: len(server.all_of("checkpoints")) == state.global_step, "the acknowledgement")
                job.retention.settle()

        server = self.server
        trainer = tiny.trainer(self.directory, max_steps=5, save_strategy="steps", save_steps=1)
        loop = hf.instrument(trainer, tiny.stream(), job=job)
        plain = hf.AntiphonCallback.saved

        def saved(callback: Any, args: Any, state: Any) -> None:
            if state.global_step == 2:
                # The Trainer evaluates before it saves.
                callback.on_evaluate(args, state, None, metrics={"eval_loss": 1.0})
            plain(callback, args, state)

        trainer.add_callback(Script())
        with unittest.mock.patch.object(hf.AntiphonCallback, "saved", saved):
            trainer.train()
        job.close()
        left = sorted(path.name for path in Path(self.directory).glob("checkpoint-*"))
        self.assertEqual(left, ["checkpoint-2", "checkpoint-5"])
        self.assertEqual(loop.quiet.errors, 0)

    def test_a_broken_checkpoint_is_passed_over(self) -> None:
        self.train(max_steps=4, save_strategy="steps", save_steps=2)
        self.assertEqual(hf.resume_from(self.directory, antiphon.Environment()), Path(self.directory) / "checkpoint-4")
        (Path(self.directory) / "checkpoint-4" / "model.safetensors").write_bytes(b"half")
        self.assertEqual(hf.resume_from(self.directory, antiphon.Environment()), Path(self.directory) / "checkpoint-2")
        (Path(self.directory) / "checkpoint-2" / seal.MANIFEST).unlink()
        self.assertIsNone(hf.resume_from(self.directory, antiphon.Environment()))


if __name__ == "__main__":
    unittest.main()
