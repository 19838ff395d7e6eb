"""The trainer of the restart experiment: Transformers' `Trainer`, which notes each loss, each directive and each batch.

    python restart_train.py FOLDER          # as a job: with a server
    python restart_train.py FOLDER PLAN     # by itself: the plan says which directives hold from which slot

Every third answer of the server is thrown away after it came, so that its batch is sent twice.
"""

# The training stack is an extra: it is not there where types are checked.
# mypy: disable-error-code="import-not-found,misc"

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from llama import llama
from transformers import LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

import antiphon.hf
import antiphon.job
from antiphon.data import MixedStream
from antiphon.directive import Directive
from antiphon.sender import Sender

STEPS = 140
ROWS = 8
SAVE_EVERY = 20
VOCABULARY, TOKENS = 64, 16
#: Slow enough for a server to be killed and started again meanwhile.
PACE_S = 0.1
SHARDS = {"easy": 4, "hard": 32, "noise": VOCABULARY}


class Notes:
    """Lines of JSON in a folder, one file a kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, kind: str, **fields: Any) -> None:
        """Adds a line."""
        with (self.folder / f"{kind}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


class Stream(MixedStream):
    """Notes what is carried out, and from which slot on."""

    notes: Notes | None = None

    def apply(self, directive: Directive, slot: int) -> int:
        effective = super().apply(directive, slot)
        if self.notes is not None:
            weights = self.state_dict()["plan"][-1]["weights"]
            self.notes.add("directives", id=directive.id, do=directive.do, slot=effective, weights=weights)
        return effective


class Losses(TrainerCallback):
    """Notes the loss of each step. Added before antiphon's callback, which takes the numbers away."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.loop: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.notes.add("losses", step=state.global_step, loss=float(self.loop.numbers["loss"]))
        if self.loop.job.attached:
            time.sleep(PACE_S)


class Doubling(Sender):
    """Throws every third answer away: the batch goes out once more, with the same number."""

    notes: Notes
    asked = 0

    def _post(self, body: bytes) -> tuple[int, bytes]:
        answer = super()._post(body)
        self.asked += 1
        if self.asked % 3 == 0 and answer[0] == 200:
            self.notes.add("doubled", at_s=time.time())
            raise ConnectionResetError("this answer was thrown away")
        return answer

    def _on_answer(self, body: bytes) -> None:
        signals = len(self._batch.parcel.signals) if self._batch is not None else 0
        super()._on_answer(body)
        self.notes.add("batches", signals=signals, at_s=time.time())


def rows(shard: str) -> list[dict[str, list[int]]]:
    """Rows of one shard: tokens out of the first few of the vocabulary."""
    made = torch.randint(SHARDS[shard], (200, TOKENS), generator=torch.Generator().manual_seed(SHARDS[shard]))
    return [{"input_ids": row, "labels": row} for row in made.tolist()]


def model() -> LlamaForCausalLM:
    """One layer; some thousand parameters."""
    torch.manual_seed(0)
    return llama(VOCABULARY, TOKENS, hidden=16, layers=1, heads=2, bos_token_id=None, eos_token_id=None)


def collate(batch: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Rows as a batch."""
    return {name: torch.tensor([row[name] for row in batch]) for name in ("input_ids", "labels")}


def main(folder: Path, plan: list[dict[str, Any]]) -> None:
    """Trains once."""
    torch.set_num_threads(1)
    # One process needs no process group.
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    notes = Notes(folder)
    stream = Stream({shard: rows(shard) for shard in SHARDS}, seed=7, categories={shard: shard for shard in SHARDS})
    for entry in plan:
        stream.apply(Directive.from_wire(entry["directive"]), entry["slot"])
    stream.notes = notes
    Doubling.notes = notes
    vars(antiphon.job)["Sender"] = Doubling
    losses = Losses(notes)
    trainer = Trainer(
        model=model(),
        args=TrainingArguments(
            output_dir=str(folder / "checkpoints"),
            max_steps=STEPS,
            per_device_train_batch_size=ROWS,
            learning_rate=5e-3,
            lr_scheduler_type="constant",
            save_strategy="steps",
            save_steps=SAVE_EVERY,
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
            seed=3,
        ),
        data_collator=collate,
        callbacks=[losses],
    )
    losses.loop = antiphon.hf.instrument(trainer, stream)
    trainer.train()
    losses.loop.job.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]) if len(sys.argv) > 2 else [])
