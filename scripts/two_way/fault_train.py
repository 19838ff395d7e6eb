"""The trainer of the fault experiment: two ranks under torchrun, checkpoints, and one planted fault.

The same script with and without a server: antiphon's package does nothing where no server launched it, so it deletes no
old checkpoint there either. It resumes from its newest whole checkpoint either way, so that a requeue is worth as much
as it can be. Steps take about `STEP_S`.
"""

# The training stack is an extra: it is not there where types are checked.
# mypy: disable-error-code="import-not-found,misc"

from __future__ import annotations

import errno
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from faults import Fault

import antiphon
from antiphon.data import MixedStream

STEPS = 240
STEP_S = 0.05
BATCH = 16
SAVE_EVERY = 20
CHECKPOINT_BYTES = 60_000
#: What the disk of the fault `full disk` holds: four checkpoints, and there would be twelve.
DISK_BYTES = 4 * CHECKPOINT_BYTES
#: Rows that fit into the memory of the fault `out of memory`, on one rank.
ROWS_THAT_FIT = 4
FEATURES = 64


class Trainer:
    """Ranks that step together: gradients are summed over all rows, whoever computed them."""

    def __init__(self, folder: Path, fault: Fault) -> None:
        self.folder, self.fault = folder, fault
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, FEATURES), torch.nn.Tanh(), torch.nn.Linear(FEATURES, 1)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.truth = torch.randn(FEATURES, generator=torch.Generator().manual_seed(1))
        shards = {name: self.rows(name) for name in ("a", "b", "c")}
        self.stream = MixedStream(shards, seed=fault.seed, categories=dict.fromkeys(shards, "only"))
        self.step = self.slot = 0
        self.micro_batch = int(os.environ.get("MICRO_BATCH", BATCH // self.world))
        self.shares: list[float] = [1.0] * self.world
        self.undrain: dict[int, int] = {}
        kept = self.load(STEPS)
        self.job = antiphon.attach(kept.get("antiphon"), self.step)

    def rows(self, shard: str) -> Any:
        """Row n of an endless shard."""

        def row(number: int) -> torch.Tensor:
            made = torch.randn(FEATURES, generator=torch.Generator().manual_seed(number % 1_000_003))
            return made * math.nan if self.fault.poisons(shard, number, self.step) else made

        return row

    def load(self, step_max: int) -> dict[str, Any]:
        """Takes up the newest checkpoint up to a step; stays at the start where there is none."""
        found = sorted((int(path.stem.split("-")[1]), path) for path in self.folder.glob("step-*.pt"))
        kept: dict[str, Any] = {}
        for step, path in found:
            if step <= step_max:
                kept = torch.load(path, weights_only=False)
        if kept:
            self.model.load_state_dict(kept["model"])
            self.optimizer.load_state_dict(kept["optimizer"])
            self.stream.load_state_dict(kept["stream"])
            self.step, self.slot = kept["step"], kept["slot"]
        return kept

    def save(self) -> None:
        """Rank 0 writes a checkpoint and acknowledges it; the others wait for it."""
        if self.rank == 0:
            begun = time.monotonic()
            kept = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "stream": self.stream.state_dict(self.slot),
                "antiphon": self.job.state(),
                "step": self.step,
                "slot": self.slot,
            }
            path = self.folder / f"step-{self.step}.pt"
            used = sum(it.stat().st_size for it in self.folder.glob("step-*.pt"))
            if self.fault.fills_disk and used + CHECKPOINT_BYTES > DISK_BYTES:
                raise OSError(errno.ENOSPC, "no space left on device", str(path))
            torch.save(kept, path.with_suffix(".new"))
            path.with_suffix(".new").rename(path)
            size = path.stat().st_size
            self.job.checkpointed(self.step, path.name, size, (time.monotonic() - begun) * 1000)
        dist.barrier()

    def train_step(self) -> None:
        """One optimizer step over the global batch."""
        begun = time.monotonic()
        self.fault.strike(self.step, self.rank, self.folder)
        samples = self.stream.rows(self.slot, BATCH, self.rank, self.world, self.shares)
        if self.fault.exhausts_memory and self.micro_batch > ROWS_THAT_FIT:
            raise torch.OutOfMemoryError(f"{self.micro_batch} rows do not fit, {ROWS_THAT_FIT} do")
        self.optimizer.zero_grad()
        losses: list[float] = []
        for first in range(0, len(samples), self.micro_batch):
            rows = torch.stack([sample.row for sample in samples[first : first + self.micro_batch]])
            errors = (self.model(rows)[:, 0] - torch.tanh(rows @ self.truth)) ** 2
            (errors.sum() / BATCH).backward()
            losses.extend(errors.detach().tolist())
        for parameter in self.model.parameters():
            # A rank that was given no rows adds nothing, and all ranks add up the same tensors.
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        # A step's time is its rows' time: who has fewer is faster, and a slow node is slow in each row.
        time.sleep(self.fault.slowness(self.rank, self.step) * STEP_S * len(samples) * self.world / BATCH)
        own_ms = (time.monotonic() - begun) * 1000
        flat = torch.cat([parameter.grad.flatten() for parameter in self.model.parameters()])
        dist.all_reduce(flat)
        place = 0
        for parameter in self.model.parameters():
            parameter.grad = flat[place : place + parameter.numel()].view_as(parameter)
            place += parameter.numel()
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0))
        self.optimizer.step()
        self.step, self.slot = self.step + 1, self.slot + BATCH
        self.report(own_ms, losses, [sample.shard for sample in samples], norm)

    def report(self, own_ms: float, losses: list[float], shards: list[str], norm: float) -> None:
        """What antiphon is told of a step; `step_ms` is this rank's own time, without the wait for the others."""
        loss: dict[str, Any] = {"loss": sum(losses) / len(losses)} if losses else {}
        self.job.signal(self.step, self.slot, grad_norm=norm, step_ms=own_ms, tokens=len(losses), **loss)
        for shard in sorted(set(shards)):
            of = [loss for loss, name in zip(losses, shards, strict=True) if name == shard]
            self.job.signal(self.step, shard=shard, loss=sum(of) / len(of), samples=len(of), **self.stream.facts(shard))
        self.job.progress(self.step, STEPS)

    def obey(self) -> bool:
        """Carries out what waits, on all ranks alike. True: end now."""
        ends = False
        for task in [task for task, until in self.undrain.items() if self.step >= until]:
            self.shares[task] = 1.0
            del self.undrain[task]
        waiting = self.job.boundary(self.step, self.slot, broadcast)
        # The way back last: what else waits is about the run as it stands.
        for directive in sorted(waiting, key=lambda directive: directive.do == "rollback"):
            if directive.id is None:
                return True
            if self.stream.carry_out(self.job, directive, self.slot):
                continue
            if directive.do in ("checkpoint", "yield", "stop", "snapshot"):
                if self.sound():
                    self.save()
                ends = ends or directive.do in ("yield", "stop")
            elif directive.do == "rollback":
                self.go_back(directive)
                continue
            elif directive.do == "drain":
                self.shares[directive.task] = directive.share
                if directive.steps:
                    self.undrain[directive.task] = self.step + directive.steps
            elif directive.do == "set_micro_batch":
                self.micro_batch = directive.rows or BATCH // self.world
            else:
                self.job.rejected(directive, f"this trainer does not carry out `{directive.do}`")
                continue
            self.job.applied(directive, self.slot)
        if self.job.terminating:
            if self.sound():
                self.save()
            ends = True
        return ends

    def go_back(self, directive: antiphon.Directive) -> None:
        """Goes on from the newest checkpoint up to the step that a directive names."""
        slot = self.slot
        kept = self.load(directive.step)
        if not kept:
            self.job.rejected(directive, f"there is no checkpoint of step {directive.step} or before")
            return
        self.job.applied(directive, slot)
        self.job.rewind(kept["antiphon"], self.step)

    def sound(self) -> bool:
        """Whether the weights are numbers."""
        return all(bool(it.isfinite().all()) for it in self.model.parameters())

    def train(self) -> None:
        """Trains to the end, or until told to end."""
        while self.step < STEPS:
            self.train_step()
            if self.obey():
                self.job.close()
                sys.exit(143 if self.job.terminating else 0)
            if not self.sound():
                # Under antiphon there is somebody who may send it back; else nothing good can come any more.
                if not self.job.attached and self.rank == 0:
                    sys.exit(f"step {self.step}: the weights are not numbers")
            elif self.step % SAVE_EVERY == 0:
                self.save()
        if self.rank == 0:
            done = {"step": self.step, "finite": self.sound()}
            (self.folder / "done.json").write_text(json.dumps(done), encoding="utf-8")
        self.job.close()


def broadcast(payload: dict[str, Any]) -> dict[str, Any]:
    """Gives every rank what rank 0 has."""
    box = [payload]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def main() -> None:
    """Trains under the fault that the command line names."""
    folder, kind, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Trainer(folder, Fault(kind, seed)).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
