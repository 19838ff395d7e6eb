"""One run: Transformers' `Trainer` on a small causal language model, its data mixed by one arm.

    python train.py SETTING.json        # writes the outcome to the path that the setting names

The loop is the same for every arm: same base, same seed, same stream, same signals. They differ in who answers. Under
antiphon it is started as a job, finds the server in its environment, and the server's directives change the mix.
"""

# The training stack is an extra: it is not there where types are checked.
# mypy: disable-error-code="import-not-found,misc"

from __future__ import annotations

import json
import logging
import math
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Else Accelerate takes as many threads as there are processors once a launcher has named a rank, whatever was set.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from arms import ARMS, OURS, TICK, LocalJob
from corpus import BASE, ROW_TOKENS, VOCABULARY, Corpus, corpus, paired, tokens
from llama import llama
from scenario import Scenario, Setting, Stream
from transformers import LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

import antiphon.hf
from antiphon.data import MixedStream

BATCH_ROWS = 16
BASE_STEPS = 300
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    setting: dict[str, Any]
    bad: list[str]
    held_out: list[tuple[int, dict[str, float]]]
    """Held-out loss of each category by step."""
    mix: list[tuple[int, dict[str, float]]]
    """The shares in force from a step on."""
    drawn: dict[str, int]
    """Rows by shard."""
    directives: list[str]
    first_use: dict[str, tuple[int, int]]
    """Step and Unix time in ms at which a shard was first trained on that came while the job ran."""
    probe_rows: int
    cpu_s: float
    wall_s: float


def fresh_model() -> LlamaForCausalLM:
    """Two layers; some 200,000 parameters."""
    more = {"tie_word_embeddings": True, "attn_implementation": "eager", "use_cache": False}
    return llama(VOCABULARY, ROW_TOKENS, hidden=64, layers=2, heads=4, intermediate=256, **more)


def base_model(cache: Path) -> LlamaForCausalLM:
    """The model that every run starts from: trained once, on text of no category, and kept."""
    path = cache / f"base-{torch.__version__}-{BASE_STEPS}.pt"
    torch.manual_seed(0)
    model = fresh_model()
    if not path.exists():
        rows = paired(tokens(cache)[BASE])
        order = np.random.default_rng(0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
        for _ in range(BASE_STEPS):
            model(**collate(list(rows[order.integers(0, len(rows), BATCH_ROWS)]))).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        new = path.with_suffix(f".{os.getpid()}.new")
        torch.save(model.state_dict(), new)
        new.rename(path)
    model.load_state_dict(torch.load(path))
    return model


def collate(rows: list[Any]) -> dict[str, torch.Tensor]:
    """Rows as a batch."""
    batch = torch.from_numpy(np.stack(rows).astype(np.int64))
    return {"input_ids": batch[:, 0], "labels": batch[:, 1]}


class HeldOut(TrainerCallback):
    """Looks at rows that no arm sees, at every tick. It reports them to nobody: they only judge."""

    def __init__(self, text: Corpus, stream: MixedStream, steps: int) -> None:
        self.stream = stream
        self.given = set(stream.shards)
        self.first_use: dict[str, tuple[int, int]] = {}
        self.batches = {name: collate(list(rows)) for name, rows in text.held_out.items()}
        self.steps = steps
        self.curve: list[tuple[int, dict[str, float]]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.look(0, kwargs["model"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if len(self.stream.shards) > len(self.given) + len(self.first_use):
            slots = range((state.global_step - 1) * BATCH_ROWS, state.global_step * BATCH_ROWS)
            for shard in {self.stream.draw(slot).shard for slot in slots} - self.given:
                self.first_use.setdefault(shard, (state.global_step, round(time.time() * 1000)))
        if state.global_step % TICK == 0 or state.global_step == self.steps:
            self.look(state.global_step, kwargs["model"])

    def look(self, step: int, model: Any) -> None:
        """Notes the loss of each category."""
        model.eval()
        with torch.no_grad():
            self.curve.append((step, {name: float(model(**batch).loss) for name, batch in self.batches.items()}))
        model.train()


class Kept(logging.Handler):
    """What the package says of directives that it carries out."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def run(setting: Setting) -> Outcome:
    """Trains once."""
    torch.set_num_threads(1)
    # One process needs no process group; with these it would be one of one, and wrapped as such.
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    cache = Path(setting.cache)
    text = corpus(cache, setting.seed)
    data = Scenario.of(setting.scenario).stream(text, setting.seed)
    model = base_model(cache)
    kept = Kept()
    logging.getLogger("antiphon").addHandler(kept)
    logging.getLogger("antiphon").setLevel(logging.INFO)
    shares = data.share if setting.arm == OURS else ARMS[setting.arm][0](data)
    stream = mixed(data, shares, setting.seed)
    held_out = HeldOut(text, stream, setting.steps)
    begun, begun_cpu = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="two-way-") as folder:
        trainer = Trainer(
            model=model,
            args=arguments_of(folder, setting.steps, BATCH_ROWS, setting.seed),
            data_collator=collate,
            train_dataset=None,
            callbacks=[held_out],
        )
        # The server's address is in the environment; without one every call would do nothing.
        job = None if setting.arm == OURS else LocalJob(ARMS[setting.arm][1](), shares)
        probes = {name: list(rows) for name, rows in text.probe.items()}
        loop = antiphon.hf.instrument(trainer, stream, job=job, probes=probes, probe_every=TICK)
        if setting.arm == OURS and not (loop.job and loop.job.attached):
            raise SystemExit("the arm `antiphon` is a job: it was not launched by a server")
        trainer.train()
    cpu, wall = time.process_time() - begun_cpu, time.monotonic() - begun
    if loop.job is not None:
        loop.job.close()
    logging.getLogger("antiphon").removeHandler(kept)
    mix = [(entry["from_slot"] // BATCH_ROWS, normal(entry["weights"])) for entry in stream.state_dict()["plan"]]
    drawn: dict[str, int] = dict.fromkeys(stream.shards, 0)
    for slot in range(setting.steps * BATCH_ROWS):
        drawn[stream.draw(slot).shard] += 1
    return Outcome(
        setting=asdict(setting),
        bad=sorted(data.bad),
        held_out=held_out.curve,
        mix=mix,
        drawn=drawn,
        directives=kept.lines,
        first_use=held_out.first_use,
        probe_rows=loop.probes.rows_seen,
        cpu_s=round(cpu, 1),
        wall_s=round(wall, 1),
    )


def mixed(data: Stream, shares: dict[str, float], seed: int) -> MixedStream:
    """The stream as the package draws it."""
    rows = {shard: list(rows) for shard, rows in data.rows.items()}
    return MixedStream(rows, shares, seed, categories=data.category)


def arguments_of(folder: str, steps: int, rows: int, seed: int) -> TrainingArguments:
    """What every run trains with."""
    return TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=rows,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=10,
        weight_decay=0.01,
        seed=seed,
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )


def normal(weights: dict[str, float]) -> dict[str, float]:
    """Weights as shares."""
    total = math.fsum(weights.values())
    return {shard: round(weight / total, 4) for shard, weight in weights.items()}


def main(path: str) -> None:
    """Runs what a file says."""
    setting = Setting(**json.loads(Path(path).read_text(encoding="utf-8")))
    out = Path(setting.out)
    out.with_suffix(".new").write_text(json.dumps(asdict(run(setting))), encoding="utf-8")
    out.with_suffix(".new").rename(out)


if __name__ == "__main__":
    main(sys.argv[1])
