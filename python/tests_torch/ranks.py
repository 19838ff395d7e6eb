"""A small causal model trained by several ranks that are resized inside accumulation. It asserts nothing.

Runs scenarios one after another in processes forked from one that has imported PyTorch, each in its own directory:

    python ranks.py DIRECTORY '{"name": "resized", "ranks": 4, "orders": {"2.2": 2, "4.3": 4}}' ...

``2.2`` is the place after micro-step 2 of the step that follows step 2. Under torchrun the ranks are those that it
launched; they take the snapshot and do not change.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import _torch_paths  # noqa: F401
from antiphon.ckpt import Snapshotter
from antiphon.data import MixedStream
from antiphon.elastic import Control, Gang

VOCABULARY, LENGTH = 64, 16
MICRO_STEPS, MICRO_ROWS = 4, 4


class Model(nn.Module):
    """A two-layer causal transformer; `width` sets how much there is to save."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids: Any) -> Any:
        hidden = self.embed(ids)
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.head(hidden)


def row(shard: int, number: int) -> list[int]:
    draw = torch.Generator().manual_seed(shard * 1_000_003 + number % 500)
    ids: list[int] = torch.randint(0, VOCABULARY >> shard, (LENGTH + 1,), generator=draw).tolist()
    return ids


def stream() -> MixedStream:
    return MixedStream({"a": lambda n: row(0, n), "b": lambda n: row(1, n), "c": lambda n: row(2, n)}, seed=11)


def build(kind: str, width: int) -> tuple[Any, Any]:
    torch.manual_seed(3)
    model: Any = Model(width)
    if kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


@dataclass(frozen=True)
class Scenario:
    """One run."""

    name: str
    ranks: int = 4
    steps: int = 6
    orders: dict[str, int] = field(default_factory=dict)
    kind: str = "fsdp"
    width: int = 32
    compression: str = "none"
    relaunches: bool = False  # Ends at the first order in place of resizing.


class Launched:
    """A gang as torchrun makes it: its ranks change only by a restart."""

    def __init__(self) -> None:
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def sum(self, number: float) -> float:
        total = torch.tensor(float(number), dtype=torch.float64)
        dist.all_reduce(total)
        return float(total)

    def resize(self, ranks: int) -> bool:
        """Goes on as it is: whoever gave the order ends the processes."""
        return ranks > 0


def train(gang: Gang | Launched, scenario: Scenario, directory: Path) -> None:
    torch.set_num_threads(1)
    orders = dict(scenario.orders)
    ordered_at: float | None = None
    while True:
        built_at = time.time()
        model, optimizer = build(scenario.kind, scenario.width)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + step))
        mix = stream()
        snapshots = Snapshotter(directory / "snapshots", compression=scenario.compression)
        position = snapshots.resume(model, optimizer, stateful={"scheduler": scheduler}, stream=mix)
        step, micro, slot, loss_sum = (
            (position.step, position.micro_index, position.slot, position.loss_sum) if position else (0, 0, 0, 0.0)
        )
        resumed_at = time.time()
        first = True
        resized = False
        while step < scenario.steps:
            if micro == 0:
                optimizer.zero_grad()
            tokens = gang.sum(MICRO_ROWS * MICRO_STEPS * LENGTH / gang.world)
            while micro < MICRO_STEPS:
                samples = mix.rows(slot, MICRO_ROWS, gang.rank, gang.world)
                ids = torch.tensor([sample.row for sample in samples])
                puts_off = scenario.kind == "ddp" and micro < MICRO_STEPS - 1
                with model.no_sync() if puts_off else nullcontext():
                    logits = model(ids[:, :-1])
                    of_tokens = nn.functional.cross_entropy(
                        logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1), reduction="none"
                    )
                    loss = of_tokens.sum()
                    # The reduction is a mean over the ranks, the loss one over the tokens of all of them.
                    (loss * gang.world / tokens).backward()
                loss_sum += gang.sum(of_tokens.detach().double().sum().item()) / tokens
                slot, micro = slot + MICRO_ROWS, micro + 1
                if first and gang.rank == 0:
                    _note(
                        directory,
                        {
                            "ranks": gang.world,
                            "resumed": position is not None,
                            "order_to_micro_step_s": time.time() - ordered_at if ordered_at else None,
                            "rebuild_s": resumed_at - built_at,
                            "started_at": built_at,
                            "first_micro_step_at": time.time(),
                        },
                    )
                first = False
                ranks = orders.pop(f"{step}.{micro}", None)
                if ranks is not None and (position is None or (position.step, position.micro_index) != (step, micro)):
                    ordered_at = time.time()
                    pending = snapshots.take(
                        model,
                        optimizer,
                        step=step,
                        micro_index=micro,
                        slot=slot,
                        loss_sum=loss_sum,
                        stateful={"scheduler": scheduler},
                        stream=mix,
                    )
                    pending.wait()
                    if gang.rank == 0:
                        _note(directory, {"copy_ms": pending.copy_ms, "save_ms": snapshots.save_ms})
                    if gang.rank == 0:
                        _note(directory, {"ordered_at": ordered_at})
                    if scenario.relaunches:
                        return
                    if isinstance(gang, Launched):
                        continue
                    del model, optimizer, scheduler, snapshots
                    if not gang.resize(ranks):
                        return
                    resized = True
                    break
            if resized:
                break
            optimizer.step()
            scheduler.step()
            step, micro = step + 1, 0
            if gang.rank == 0:
                _note(directory, {"step": step, "loss": loss_sum, "ranks": gang.world})
            loss_sum = 0.0
        if not resized:
            return


def _note(directory: Path, entry: dict[str, Any]) -> None:
    with open(directory / "notes.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def notes(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "notes.jsonl").read_text(encoding="utf-8").splitlines()]


def main() -> int:
    directory, *texts = sys.argv[1:]
    if "TORCHELASTIC_RUN_ID" in os.environ:
        scenario = Scenario(**json.loads(texts[0]))
        own = Path(directory) / scenario.name
        own.mkdir(parents=True, exist_ok=True)
        train(Launched(), scenario, own)
        return 0
    for text in texts:
        scenario = Scenario(**json.loads(text))
        own = Path(directory) / scenario.name
        own.mkdir(parents=True, exist_ok=True)
        code = Control(partial(train, scenario=scenario, directory=own), scenario.ranks).run()
        if code != 0:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
