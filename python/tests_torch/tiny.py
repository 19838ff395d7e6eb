"""A language model of a few thousand parameters, rows of numbers, and a Trainer over them. It asserts nothing."""

from __future__ import annotations

import random
from typing import Any

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, default_data_collator

import _torch_paths  # noqa: F401
from antiphon.data import MixedStream

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
VOCABULARY = 32
LENGTH = 12


def model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=32,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    )


def rows(seed: int, count: int, spread: int = 4) -> list[dict[str, list[int]]]:
    """Rows whose targets have unequal lengths; the lower `spread`, the easier they are to learn."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        ids = [draw.randrange(spread) for _ in range(LENGTH)]
        known = draw.randrange(1, LENGTH // 2)
        made.append({"input_ids": ids, "labels": [-100] * known + ids[known:]})
    return made


def stream(seed: int = 1, **options: Any) -> MixedStream:
    shards = {"easy": rows(1, 40, 2), "hard": rows(2, 40, 16), "noise": rows(3, 40, VOCABULARY)}
    return MixedStream(shards, seed=seed, categories={name: name for name in shards}, **options)


def trainer(directory: str, kind: type[Any] = Trainer, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "output_dir": directory,
        "max_steps": 6,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "remove_unused_columns": False,
        "seed": 5,
    }
    settings.update(options)
    return kind(model=model(), args=TrainingArguments(**settings), data_collator=default_data_collator)
