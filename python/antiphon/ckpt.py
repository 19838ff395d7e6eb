"""Snapshots of a training run at any micro-step, that another number of ranks can go on from.

A snapshot holds all that the next micro-step depends on: model, optimizer, the gradients accumulated so far, scheduler
and the like, random states, the position and plan of the data, and which directives the model contains. All ranks take
it together; the loop waits while the state is copied, and the files are written behind it. It is exact where the loss
is: normalized by the target tokens of the whole step on all ranks, with data that is drawn by slot. Dropout draws from
each rank's own generator, so with another number of ranks it differs.

Works with FSDP2 and DDP over PyTorch's distributed checkpoints, and in a single process without a process group.
"""

from __future__ import annotations

import gzip
import logging
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension, ZStandard
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

from . import seal
from .data import MixedStream
from .job import Job

log = logging.getLogger("antiphon")

COMPRESSION = ("none", "gzip", "zstd")
_STATEFUL = "stateful.pt"


class SnapshotError(RuntimeError):
    """A snapshot could not be taken, written or read; the text says why."""


@dataclass(frozen=True)
class Position:
    """Where in the run a snapshot stands, and what the loop itself kept in it."""

    path: Path
    step: int
    micro_index: int
    slot: int
    loss_sum: float
    extra: dict[str, Any]
    antiphon: dict[str, Any] | None  # For `antiphon.attach(state=...)`.


@dataclass
class Pending:
    """A snapshot that is being written. `wait` gives its path, or raises `SnapshotError`."""

    copy_ms: float
    path: Path | None = None
    error: str | None = None
    _done: threading.Event | None = None

    def wait(self, timeout_s: float | None = None) -> Path:
        if self._done is not None and not self._done.wait(timeout_s):
            raise SnapshotError(f"the snapshot is not written after {timeout_s} s")
        if self.path is None or self.error is not None:
            raise SnapshotError(self.error or "nothing was written")
        return self.path


class Snapshotter:
    """Takes and resumes snapshots in a directory that all ranks see. Every call is made by all ranks together."""

    def __init__(self, directory: str | Path, *, keep: int = 2, compression: str = "none") -> None:
        if compression not in COMPRESSION:
            raise ValueError(f"compression is one of {', '.join(COMPRESSION)}, not `{compression}`")
        if compression == "zstd" and not ZStandard.is_available():
            raise ValueError("zstd needs the package `zstandard`: install it, or use gzip")
        if keep < 1:
            raise ValueError("keep at least 1 snapshot: the last one is what a failure resumes from")
        self.directory = Path(directory)
        self.save_ms = 0.0  # A running mean of how long a snapshot takes until it is durable.
        self._keep = keep
        self._compression = compression
        self._last: Pending | None = None
        # A group of its own: the files are written in a thread, and its collectives must not meet the training's.
        self._group = dist.new_group(backend="gloo") if dist.is_initialized() else None
        self._rank = dist.get_rank() if dist.is_initialized() else 0
        self._world = dist.get_world_size() if dist.is_initialized() else 1

    def take(
        self,
        model: Any,
        optimizer: Any,
        *,
        step: int,
        micro_index: int = 0,
        slot: int = 0,
        loss_sum: float = 0.0,
        stateful: Mapping[str, Any] | None = None,
        stream: MixedStream | None = None,
        job: Job | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Pending:
        """Copies the state as it is now, and writes it in a thread.

        `micro_index` says how many micro-steps of the step after `step` are accumulated, `slot` is the first one not
        consumed, `loss_sum` the loss summed so far over all ranks. `stateful` are the scheduler, the gradient scaler
        and whatever else has `state_dict`, alike on all ranks. One that is still being written is waited for.
        """
        if self._last is not None and self._last._done is not None:
            self._last._done.wait()
        start = time.monotonic()
        tensors = self._copy_of(model, optimizer)
        plain = {
            "step": step,
            "micro_index": micro_index,
            "slot": slot,
            "loss_sum": float(loss_sum),
            "world": self._world,
            "gradients": sorted(tensors["gradients"]),
            "has_optimizer": "optimizer" in tensors,
            "stream": stream.state_dict(slot) if stream is not None else None,
            "antiphon": job.state() if job is not None else None,
            "extra": dict(extra or {}),
        }
        kept = {name: part.state_dict() for name, part in (stateful or {}).items()}
        randoms = _random_states()
        done = threading.Event()
        pending = Pending(copy_ms=(time.monotonic() - start) * 1000, _done=done)

        def write() -> None:
            try:
                pending.path = self._write(tensors, plain, kept, randoms, job, start)
            except (Exception, CheckpointException) as error:
                # The latter derives from BaseException, and is what a full disk on any rank becomes.
                pending.error = f"snapshot of step {step}.{micro_index} is not written: {error}"
                log.error("antiphon: %s", pending.error)
            finally:
                done.set()

        self._last = pending
        threading.Thread(target=write, name="antiphon-snapshot", daemon=True).start()
        return pending

    def newest(self, named: str | Path | None = None) -> Path | None:
        """The snapshot that is named, if it is whole, else the newest whole one. Alike on all ranks."""
        found = [seal.newest(self.directory, Path(named) if named is not None else None)] if self._rank == 0 else [None]
        if self._group is not None:
            dist.broadcast_object_list(found, src=0, group=self._group)
        return found[0]

    def resume(
        self,
        model: Any,
        optimizer: Any,
        *,
        path: str | Path | None = None,
        stateful: Mapping[str, Any] | None = None,
        stream: MixedStream | None = None,
    ) -> Position | None:
        """Loads a snapshot into a model, optimizer and data of the same kind, on any number of ranks.

        Without a `path` the newest whole snapshot is taken, and None says that there is none. Raises `SnapshotError`.
        """
        found = Path(path) if path is not None else self.newest()
        if found is None:
            return None
        try:
            plain = seal.state_of(found)
            optimizer.zero_grad(set_to_none=True)
            self._load(found, plain, model, optimizer)
            if stateful:
                kept = torch.load(found / _STATEFUL, map_location="cpu", weights_only=True)
                for name, part in stateful.items():
                    part.load_state_dict(kept[name])
            if stream is not None:
                stream.load_state_dict(plain["stream"])
            _restore_random_states(found, self._rank, int(plain["world"]))
        except (Exception, CheckpointException) as error:
            raise SnapshotError(f"`{found}` cannot be resumed from: {type(error).__name__}: {error}") from error
        return Position(
            path=found,
            step=plain["step"],
            micro_index=plain["micro_index"],
            slot=plain["slot"],
            loss_sum=plain["loss_sum"],
            extra=plain["extra"],
            antiphon=plain["antiphon"],
        )

    def _copy_of(self, model: Any, optimizer: Any) -> dict[str, dict[str, Any]]:
        gradients = {name: p.grad for name, p in _parameters(model) if p.grad is not None}
        if isinstance(model, DistributedDataParallel):
            gradients = {name: self._mean(gradient) for name, gradient in gradients.items()}
        on_gpu = any(p.is_cuda for _, p in _parameters(model))
        has_optimizer = bool(optimizer.state)
        options = StateDictOptions(cpu_offload=on_gpu)
        # Without a first step the optimizer has no state, and asking for it would make it step.
        of_model, of_optimizer = get_state_dict(model, optimizer if has_optimizer else [], options=options)
        tensors = {"model": of_model, "gradients": gradients}
        if has_optimizer:
            tensors["optimizer"] = of_optimizer
        # An explicit copy: what is written in a thread must not be what the next micro-step changes.
        return {name: _clone(part) for name, part in tensors.items()}

    def _mean(self, gradient: Any) -> Any:
        """DDP's gradient as it would be after its reduction, where accumulation has put that off."""
        gradient = gradient.detach().clone()
        dist.all_reduce(gradient)
        return gradient / self._world

    def _write(
        self,
        tensors: dict[str, Any],
        plain: dict[str, Any],
        stateful: dict[str, Any],
        randoms: dict[str, Any],
        job: Job | None,
        start: float,
    ) -> Path:
        name = f"snapshot-{plain['step']}.{plain['micro_index']}"
        aside, final = self.directory / f".{name}", self.directory / name

        def prepare() -> None:
            if self._rank == 0:
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir(parents=True)

        def save_rest() -> None:
            torch.save(randoms, aside / f"random-{self._rank}.pt")
            if self._rank == 0:
                torch.save(stateful, aside / _STATEFUL)

        def finish() -> None:
            if self._rank != 0:
                return
            shutil.rmtree(final, ignore_errors=True)
            aside.rename(final)
            sealed = seal.seal(final, plain)
            took_ms = (time.monotonic() - start) * 1000
            if job is not None:
                job.checkpointed(plain["step"], self._name_for(job, final), sealed.bytes, took_ms, sealed.manifest)
            self._drop_old()

        extensions = {"none": [], "gzip": [Gzip()], "zstd": [ZStandard()] if self._compression == "zstd" else []}
        self._together(prepare)
        writer = dcp.FileSystemWriter(aside, sync_files=True, _extensions=extensions[self._compression])
        dcp.save(tensors, storage_writer=writer, process_group=self._group, no_dist=self._group is None)
        self._together(save_rest)
        self._together(finish)
        took_ms = (time.monotonic() - start) * 1000
        self.save_ms = took_ms if self.save_ms == 0 else 0.5 * (self.save_ms + took_ms)
        return final

    def _together(self, do: Callable[[], None]) -> None:
        """Does something on every rank, and fails on every rank where one fails: none waits for what never comes."""
        errors: list[str | None] = [None] * self._world
        mine = None
        try:
            do()
        except Exception as error:
            mine = f"rank {self._rank}: {type(error).__name__}: {error}"
        if self._group is not None:
            dist.all_gather_object(errors, mine, group=self._group)
        else:
            errors = [mine]
        failed = [error for error in errors if error is not None]
        if failed:
            raise SnapshotError("; ".join(failed))

    def _name_for(self, job: Job, path: Path) -> str:
        directory = job.environment.checkpoint_dir
        resolved = path.resolve()
        if directory and Path(directory).resolve() in resolved.parents:
            return str(resolved.relative_to(Path(directory).resolve()))
        return str(resolved)

    def _load(self, path: Path, plain: dict[str, Any], model: Any, optimizer: Any) -> None:
        # Loading is in place: every rank builds what it wants filled, in its own layout.
        has_optimizer = bool(plain["has_optimizer"])
        of_model, of_optimizer = get_state_dict(model, optimizer if has_optimizer else [])
        parameters = dict(_parameters(model))
        wanted = {
            "model": of_model,
            "gradients": {name: torch.zeros_like(parameters[name]) for name in plain["gradients"]},
        }
        if has_optimizer:
            wanted["optimizer"] = of_optimizer
        reader = dcp.FileSystemReader(path, _extension_registry=_extensions())
        dcp.load(wanted, storage_reader=reader, process_group=self._group, no_dist=self._group is None)
        set_state_dict(
            model,
            optimizer if has_optimizer else [],
            model_state_dict=wanted["model"],
            optim_state_dict=wanted.get("optimizer", {}),
        )
        for name, gradient in wanted["gradients"].items():
            # With DDP every rank holds the mean: whether it is averaged once more when the step ends or not, it stays.
            parameters[name].grad = gradient

    def _drop_old(self) -> None:
        whole = [path for path in self.directory.glob("snapshot-*") if seal.serial_of(path)]
        for old in sorted(whole, key=seal.serial_of)[: -self._keep]:
            shutil.rmtree(old, ignore_errors=True)


class Gzip(StreamTransformExtension):
    """Compression that every Python has; level 1, since weights shrink little and time counts."""

    @staticmethod
    def registry_name() -> str:
        return "stream.antiphon-gzip"

    @staticmethod
    def from_descriptor(version: str) -> Gzip:
        if version != "1":
            raise ValueError(f"gzip of version {version}: this package reads version 1")
        return Gzip()

    def get_descriptor(self) -> str:
        return f"{self.registry_name()}/1"

    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        return gzip.GzipFile(fileobj=output, mode="wb", compresslevel=1)  # type: ignore[return-value]

    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        return gzip.GzipFile(fileobj=input, mode="rb")  # type: ignore[return-value]


def _extensions() -> ExtensionRegistry:
    registry = ExtensionRegistry()
    registry.register(Gzip)
    return registry


def _parameters(model: Any) -> Iterator[tuple[str, Any]]:
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    return inner.named_parameters()  # type: ignore[no-any-return]


def _clone(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {name: _clone(inner) for name, inner in value.items()}
    return [_clone(inner) for inner in value] if isinstance(value, list) else value


def _random_states() -> dict[str, Any]:
    version, words, gauss = random.getstate()
    states: dict[str, Any] = {"python": [version, list(words), gauss], "torch": torch.get_rng_state()}
    try:
        import numpy

        kind, keys, place, has_gauss, cached = numpy.random.get_state()
        states["numpy"] = [kind, [int(key) for key in keys], int(place), int(has_gauss), float(cached)]
    except ImportError:
        pass
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _restore_random_states(path: Path, rank: int, world: int) -> None:
    states = torch.load(path / f"random-{rank % world}.pt", map_location="cpu", weights_only=True)
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(states["torch"])
    if "numpy" in states:
        import numpy

        kind, keys, *rest = states["numpy"]
        numpy.random.set_state((kind, numpy.array(keys, dtype=numpy.uint32), *rest))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    if rank >= world:
        # A rank that is new continues no generator: two ranks with one state would drop out the same.
        torch.manual_seed((torch.initial_seed() + rank) % (1 << 63))
