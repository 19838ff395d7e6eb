"""TRL's trainers on a tiny model: what they train on by shard, and that their losses stay what they were."""

from __future__ import annotations

import importlib.util
import logging
import tempfile
import unittest
from typing import Any

import torch

import _torch_paths  # noqa: F401
import antiphon
import tiny
from antiphon import hf
from fake_server import FakeServer, fake_server

WORDS = [f"w{n}" for n in range(tiny.VOCABULARY - 3)]


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: place for place, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


@unittest.skipUnless(importlib.util.find_spec("trl"), "skipped: the package `trl` is not installed")
class Trl(unittest.TestCase):
    def setUp(self) -> None:
        context = fake_server()
        self.server: FakeServer = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        temporary = tempfile.TemporaryDirectory()
        self.directory = temporary.name
        self.addCleanup(temporary.cleanup)
        logging.getLogger("antiphon").setLevel(logging.ERROR)

    def settings(self, **options: Any) -> dict[str, Any]:
        return {
            "output_dir": self.directory,
            "max_steps": 3,
            "per_device_train_batch_size": 4,
            "save_strategy": "no",
            "logging_steps": 1,
            "report_to": [],
            "disable_tqdm": True,
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "seed": 5,
            **options,
        }

    def run_it(self, trainer: Any, **options: Any) -> list[dict[str, Any]]:
        job = antiphon.attach(environment=self.server.environment())
        loop = hf.instrument(trainer, job=job, shards=["a", "b"], **options)
        trainer.train()
        job.close()
        self.assertEqual(loop.quiet.errors, 0)
        return self.server.all_of("signals")

    def test_supervised_fine_tuning_reports_the_loss_of_each_shard(self) -> None:
        from datasets import Dataset
        from trl import SFTConfig, SFTTrainer

        rows = [{"text": " ".join(WORDS[n % 5 : n % 5 + 4 + n % 3]), "shard": "ab"[n % 2]} for n in range(16)]

        def trainer() -> Any:
            return SFTTrainer(
                model=tiny.model(),
                args=SFTConfig(**self.settings(max_length=16)),
                train_dataset=Dataset.from_list(rows),
                processing_class=tokenizer(),
            )

        signals = self.run_it(trainer())
        by_shard = [signal for signal in signals if "shard" in signal and "loss" in signal]
        self.assertEqual({signal["shard"] for signal in by_shard}, {"a", "b"})
        losses = {signal["step"]: signal["loss"] for signal in signals if "step_ms" in signal}
        for step, loss in losses.items():
            of = [signal for signal in by_shard if signal["step"] == step]
            self.assertEqual(sum(signal["samples"] for signal in of), 4)
            self.assertLessEqual(min(signal["loss"] for signal in of), loss)
            self.assertGreaterEqual(max(signal["loss"] for signal in of), loss)
        plain = trainer()
        plain.train()
        for entry in plain.state.log_history[:3]:
            self.assertAlmostEqual(entry["loss"], losses[entry["step"]], places=5)

    def test_a_mixed_stream_feeds_supervised_fine_tuning(self) -> None:
        from datasets import Dataset
        from trl import SFTConfig, SFTTrainer

        trainer = SFTTrainer(
            model=tiny.model(),
            args=SFTConfig(**self.settings(max_length=16)),
            train_dataset=Dataset.from_list([{"text": "w1 w2"}]),
            processing_class=tokenizer(),
        )
        job = antiphon.attach(environment=self.server.environment())
        loop = hf.instrument(trainer, tiny.stream(), job=job)
        trainer.train()
        job.close()
        self.assertEqual((loop.slot, loop.quiet.errors), (12, 0))
        drawn = {tiny.stream().draw(slot).shard for slot in range(12)}
        seen = {signal["shard"] for signal in self.server.all_of("signals") if "loss" in signal and "shard" in signal}
        self.assertEqual(seen, drawn)

    def test_preference_tuning_reports_margin_and_accuracy_of_each_shard(self) -> None:
        from datasets import Dataset
        from trl import DPOConfig, DPOTrainer

        rows = [
            {"prompt": "w1 w2", "chosen": " w3 w4", "rejected": f" w{5 + n % 4}", "shard": "ab"[n % 2]}
            for n in range(16)
        ]
        trainer = DPOTrainer(
            model=tiny.model(),
            ref_model=tiny.model(1),
            args=DPOConfig(**self.settings()),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer(),
        )
        signals = self.run_it(trainer)
        margins = [signal for signal in signals if "shard" in signal and "reward_margin" in signal]
        self.assertEqual({signal["shard"] for signal in margins}, {"a", "b"})
        logged = {entry["step"]: entry for entry in trainer.state.log_history if "rewards/margins" in entry}
        for signal in margins:
            self.assertTrue(0 <= signal["reward_accuracy"] <= 1)
        first = [signal["reward_margin"] for signal in margins if signal["step"] == 1]
        self.assertLessEqual(min(first), logged[1]["rewards/margins"] + 1e-6)
        self.assertGreaterEqual(max(first), logged[1]["rewards/margins"] - 1e-6)
        self.assertTrue([signal for signal in signals if "reward_margin" in signal and "shard" not in signal])

    def test_group_optimization_reports_rewards_and_groups_that_teach_nothing(self) -> None:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        rows = [{"prompt": f"w{n} w{n + 1}", "shard": "ab"[n % 2]} for n in range(8)]

        def reward(completions: list[str], shard: list[str], **kwargs: Any) -> list[float]:
            # The rewards of shard `a` are all equal: it teaches nothing.
            return [1.0 if of == "a" else float(len(set(text))) for text, of in zip(completions, shard)]

        # The reference model is loaded once more from where the model came from.
        path = f"{self.directory}/model"
        tiny.model().save_pretrained(path)
        trainer = GRPOTrainer(
            model=path,
            reward_funcs=reward,
            args=GRPOConfig(**self.settings(num_generations=2, max_completion_length=6, beta=0.01)),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer(),
        )
        torch.manual_seed(0)
        signals = self.run_it(trainer)
        by_shard = [signal for signal in signals if "zero_variance" in signal and "shard" in signal]
        self.assertEqual({signal["shard"] for signal in by_shard}, {"a", "b"})
        for signal in by_shard:
            if signal["shard"] == "a":
                self.assertEqual((signal["reward"], signal["reward_std"], signal["zero_variance"]), (1.0, 0.0, 1.0))
            else:
                self.assertLess(signal["zero_variance"], 1.0)
        whole = [signal for signal in signals if "completion_length" in signal]
        self.assertTrue(whole and all("kl" in signal and "reward_std" in signal for signal in whole))


if __name__ == "__main__":
    unittest.main()
