"""Transformers' `Trainer`, and TRL's, in dialogue with antiphon: signals up, directives down, checkpoints sealed.

    trainer = Trainer(model=model, args=args, data_collator=collate, train_dataset=None)
    antiphon.hf.instrument(trainer, stream, probes={"law": held_out_rows})
    trainer.train()  # resumes where antiphon says, goes back where a rollback says

Training is the Trainer's: same loss, same optimizer, same files in a checkpoint, and three small ones beside them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from . import seal
from .communication import Communication
from .data import MixedStream
from .directive import DATA, SAVED, Directive
from .environment import Environment
from .hf_batch import Batch
from .hf_loss import fuse_losses
from .hf_probe import Probes
from .hf_trainer import AntiphonTrainerMixin
from .job import Job, attach
from .losses import ShardLosses
from .quiet import Quiet
from .torch_data import ShardCollator

__all__ = ["AntiphonCallback", "AntiphonTrainerMixin", "instrument", "resume_from"]

log = logging.getLogger("antiphon")

# What TRL's trainers log, by the names of signals.
_LOGGED = {
    "rewards/margins": "reward_margin",
    "rewards/accuracies": "reward_accuracy",
    "reward": "reward",
    "reward_std": "reward_std",
    "frac_reward_zero_std": "zero_variance",
    "kl": "kl",
    "completions/mean_length": "completion_length",
    "clip_ratio/region_mean": "clip_ratio",
}
Handler = Callable[[Directive], None]


def instrument(
    trainer: Any,
    stream: MixedStream | None = None,
    *,
    job: Job | None = None,
    shards: Sequence[str] = (),
    probes: Mapping[str, Sequence[Any]] | None = None,
    probe_every: int = 50,
    handlers: Mapping[str, Handler] | None = None,
) -> AntiphonCallback:
    """Gives a Trainer both halves of the dialogue, and the newest checkpoint to resume from.

    `stream` replaces the Trainer's own data loader; without it a `shard` column of the data set, by name or by number
    in `shards`, says where each row is from. `probes` are held-out rows by category, evaluated every `probe_every`
    steps; up to every 100, where antiphon finds nothing to change of the data.
    `handlers` carry out directives that the Trainer itself cannot, by name; what they raise is acknowledged as failed.
    """
    callback = AntiphonCallback(job, stream, shards=shards, probes=probes, probe_every=probe_every, handlers=handlers)
    kind = type(trainer)
    if not isinstance(trainer, AntiphonTrainerMixin):
        trainer.__class__ = type(f"Antiphon{kind.__name__}", (AntiphonTrainerMixin, kind), {"__doc__": kind.__doc__})
    callback.bind(trainer)
    trainer.add_callback(callback)
    return callback


def resume_from(directory: str, environment: Environment | None = None) -> Path | None:
    """The checkpoint to resume from: the one that antiphon names, if it is whole, else the newest whole one."""
    environment = environment or Environment.read()
    named = None
    if environment.resume_from:
        named = Path(environment.checkpoint_dir or directory) / environment.resume_from
    return seal.newest(Path(directory), named)


class AntiphonCallback(TrainerCallback):
    """What callbacks can do of the dialogue. `instrument` adds what they cannot: losses by shard, and data."""

    def __init__(
        self,
        job: Job | None = None,
        stream: MixedStream | None = None,
        *,
        shards: Sequence[str] = (),
        probes: Mapping[str, Sequence[Any]] | None = None,
        probe_every: int = 50,
        handlers: Mapping[str, Handler] | None = None,
    ) -> None:
        self.job = job
        self.stream = stream
        self.losses = ShardLosses(stream, shards)
        self.on_gpu = torch.cuda.is_available()
        self.communication = Communication(self.on_gpu)
        self.trainer: Any = None
        self.batch = Batch()
        self.slot = stream.slot if stream is not None else 0  # The first slot that no micro-step has consumed.
        self._step, self._step_slot = 0, self.slot  # The last step whose end was told, and `slot` at that.
        self.resume: Path | None = None
        self.rollback_to: Path | None = None
        self.stopped_by: str | None = None  # A directive, `sigterm` or `superseded`.
        self.numbers: dict[str, Any] = {}  # What the mixin measured in this step.
        self.probes = Probes(probes, probe_every)
        self._handlers = dict(handlers or {})
        self._awaiting_save: list[Directive] = []
        self._interval_s = 0.0
        self._saved_at = time.monotonic()
        self._save_started = 0.0
        self._eval_loss: tuple[int, float] | None = None  # Of which step, and the loss.
        self._sealed_step = -1
        self._sealing: threading.Thread | None = None
        self._step_at = self._optimizer_at = 0.0
        self._control_group: Any = None
        self.quiet = Quiet()

    def bind(self, trainer: Any) -> None:
        """Prepares a Trainer: its checkpoint to resume from, its collator, its loss."""
        self.trainer, trainer.antiphon = trainer, self
        args = trainer.args
        self.resume = resume_from(args.output_dir, self.job.environment if self.job is not None else None)
        if self.job is None:
            kept = seal.state_of(self.resume) if self.resume is not None else {}
            origins = self.stream.origins() if self.stream is not None else None
            self.job = attach(kept.get("antiphon"), int(kept.get("step", 0)), shards=origins)
        if self.resume is not None:
            self._take_up(self.resume)
        # Slots are counted by the stream: a resumed Trainer would otherwise skip as many batches once more.
        if self.stream is not None:
            args.ignore_data_skip = True
        if hasattr(trainer, "num_generations"):
            # A trainer that generates hands rows on uncollated, and draws its prompts in an order of its own.
            self.stream = None
        else:
            trainer.data_collator = ShardCollator(trainer.data_collator, lambda: self.losses.names)
            if args.remove_unused_columns and hasattr(trainer, "_set_signature_columns_if_needed"):
                trainer._set_signature_columns_if_needed()
                trainer._signature_columns = [*trainer._signature_columns, "shard"]
        fuse_losses(trainer)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        with self.quiet:
            # What the first stretch of training is held against. antiphon may have a mix to begin with.
            self.probes.begin(state.global_step)
            self._probe(state.global_step)
            self._job.flush()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._step_at == 0.0:
            self._step_at = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        job = self._job
        step, now = state.global_step, time.perf_counter()
        self._step, self._step_slot = step, self.slot
        with self.quiet:
            numbers, self.numbers = self.numbers, {}
            numbers["step_ms"] = (now - self._step_at) * 1000
            self._step_at = now
            if args.world_size > 1:
                numbers["communication_ms"] = self.communication.take()
            if args.process_index == 0:
                numbers["progress"] = {"step": step, "total_steps": state.max_steps}
            job.signal_later(step, partial(_of_step, self.slot, numbers, self.losses.take()))
            if self.probes.are_due(step):
                self._probe(step)
                self._step_at = time.perf_counter()
            elif self.probes.looked_at == step - 1:
                # The first step after the probes: what they say is judged now, and the answer is worth a request.
                job.flush()
        due = self._interval_s > 0 and time.monotonic() - self._saved_at >= self._interval_s
        if args.world_size > 1:
            directives, due = self._agreed(step, due)
        else:
            directives = job.boundary(step, self.slot)
        if self._interval_s > 0:
            control.should_save = due
        for directive in directives:
            self._carry_out(directive, state, control)
        changed = self.batch.step_ended(self.trainer, step)
        if changed is not None:
            job.applied(changed, self.slot)
        if job.terminating and not getattr(args, "enable_jit_checkpoint", False):
            # With `enable_jit_checkpoint` the Trainer saves and stops by itself: its handler was chained.
            self.stopped_by = self.stopped_by or "sigterm"
            control.should_save = control.should_training_stop = True
        elif job.terminating:
            self.stopped_by = self.stopped_by or "sigterm"
        if control.should_save:
            self._save_started = time.monotonic()
            job.saving(step)
        return control

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.saved(args, state)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        with self.quiet:
            if "eval_loss" in (metrics or {}):
                self._eval_loss = (state.global_step, float(metrics["eval_loss"]))
            for name, value in (metrics or {}).items():
                if name.startswith("eval_") and name.endswith("loss") and args.process_index == 0:
                    self._job.signal(state.global_step, category=name[5:-5] or "eval", probe_loss=value)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        with self.quiet:
            known = {_LOGGED[name]: value for name, value in (logs or {}).items() if name in _LOGGED}
            if "grad_norm" in (logs or {}) and not isinstance(self.trainer, AntiphonTrainerMixin):
                known["grad_norm"] = logs["grad_norm"]
            if known and args.process_index == 0:
                self._job.signal(state.global_step, **known)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._step_at = 0.0
        self.settle()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._optimizer_at = time.perf_counter()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.on_gpu:
            self.numbers["optimizer_ms"] = (time.perf_counter() - self._optimizer_at) * 1000

    def consumed(self, first: int, rows: int) -> None:
        """A micro-step consumed this rank's rows from slot `first` on, and the other ranks theirs."""
        self.slot = max(self.slot, self.batch.end_of(first, rows))

    def saved(self, args: Any, state: Any) -> None:
        """Seals the checkpoint that the Trainer has just written, once, beside the training that goes on."""
        step = state.global_step
        if self._sealed_step == step:
            return
        self._sealed_step = step
        if args.world_size > 1:
            # Every rank writes files of its own into it.
            torch.distributed.barrier(group=self._group())
        path = Path(args.output_dir) / f"checkpoint-{step}"
        # Transformers' own checkpoint on SIGTERM may come inside a step, whose rows the saved model has not learned,
        # or after it, before this callback is told of its end.
        first = self._step_slot if step == self._step else self.slot
        kept = {"step": step, "slot": first, "antiphon": self._job.state()}
        if self.stream is not None:
            kept["stream"] = self.stream.state_dict(first)
        waiting, self._awaiting_save = self._awaiting_save, []
        started = self._save_started or time.monotonic()
        self._save_started, self._saved_at = 0.0, time.monotonic()
        if args.process_index != 0:
            for directive in waiting:
                self._job.applied(directive, self.slot)
            return
        self.settle()
        best = getattr(state, "best_model_checkpoint", None)
        self._job.retention.spare([Path(best).resolve()] if best else [])
        loss = self._eval_loss[1] if self._eval_loss is not None and self._eval_loss[0] == step else None
        slot = self.slot
        self._sealing = threading.Thread(
            target=self._seal, args=(path, kept, started, waiting, slot, loss), name="antiphon-seal", daemon=True
        )
        self._sealing.start()

    def settle(self) -> None:
        """Waits until the last checkpoint is sealed, for at most the grace that is left."""
        if self._sealing is not None:
            self._sealing.join(self._job.grace_left_s)
            self._sealing = None

    def go_back(self) -> Path:
        """Takes up the checkpoint of a rollback; the Trainer loads its model from the path."""
        path = self.rollback_to
        assert path is not None, "no rollback is under way"
        self.rollback_to = None
        kept = self._take_up(path)
        self._sealed_step = -1
        self._job.rewind(kept["antiphon"], int(kept["step"]))
        return path

    @property
    def _job(self) -> Job:
        if self.job is None:
            self.job = attach()
        return self.job

    def _take_up(self, path: Path) -> dict[str, Any]:
        kept = seal.state_of(path)
        self._step = int(kept.get("step", 0))
        self.slot = self._step_slot = int(kept.get("slot", 0))
        if self.stream is not None and "stream" in kept:
            self.stream.load_state_dict(kept["stream"])
        return kept

    def _seal(
        self,
        path: Path,
        kept: dict[str, Any],
        started: float,
        waiting: list[Directive],
        slot: int,
        loss: float | None,
    ) -> None:
        try:
            sealed = seal.seal(path, kept)
        except OSError as error:
            log.error("antiphon: checkpoint `%s` is not acknowledged: %s", path, error)
            self._job.saving(int(kept["step"]), False)
            for directive in waiting:
                self._job.failed(directive, error)
            return
        directory = self._job.environment.checkpoint_dir
        name = str(path.resolve())
        if directory and Path(directory).resolve() in path.resolve().parents:
            name = str(path.resolve().relative_to(Path(directory).resolve()))
        save_ms = (time.monotonic() - started) * 1000
        self._job.checkpointed(int(kept["step"]), name, sealed.bytes, save_ms, sealed.manifest, loss)
        for directive in waiting:
            self._job.applied(directive, slot)

    def _carry_out(self, directive: Directive, state: Any, control: Any) -> None:
        job, do = self._job, directive.do
        log.info("antiphon: step %d: directive %s %s: %s", state.global_step, directive.id, do, directive.reason)
        if directive.id is None:
            # A newer attempt owns the checkpoints.
            self.stopped_by = "superseded"
            control.should_training_stop, control.should_save = True, False
        elif do in DATA:
            if self.stream is None or self.batch.sampler is None:
                job.rejected(directive, "this Trainer does not draw from a MixedStream")
            else:
                self.stream.carry_out(job, directive, self.slot)
                self.probes.changed(state.global_step)
        elif do in SAVED or do == "snapshot":
            # Between two steps nothing is accumulated: a checkpoint here is a snapshot.
            self._awaiting_save.append(directive)
            control.should_save = True
            if do in ("yield", "stop"):
                self.stopped_by = do
                control.should_training_stop = True
        elif do in self._handlers:
            try:
                self._handlers[do](directive)
            except Exception as error:
                job.failed(directive, f"{type(error).__name__}: {error}")
            else:
                job.applied(directive, self.slot)
        else:
            try:
                refusal = self._change(directive, state, control)
            except Exception as error:
                job.failed(directive, f"{type(error).__name__}: {error}")
                return
            if refusal is not None:
                job.rejected(directive, refusal)
            elif not self.batch.is_pending(directive):
                job.applied(directive, self.slot)

    def _change(self, directive: Directive, state: Any, control: Any) -> str | None:
        """Carries out a directive about the process, or says why the Trainer cannot."""
        do, model = directive.do, self.trainer.model if self.trainer is not None else None
        if do == "set_checkpoint_interval":
            self._interval_s = directive.interval_ms / 1000
            return None
        if do == "set_recompute":
            word = "enable" if directive.on else "disable"
            for kind in ("activation", "gradient"):
                switch = getattr(model, f"{kind}_checkpointing_{word}", None)
                if switch is not None:
                    switch()
                    return None
            return f"`{type(model).__name__}` cannot recompute activations"
        if do == "rollback":
            found = seal.newest(Path(self.trainer.args.output_dir), None, step_max=directive.step) if model else None
            if found is None or not isinstance(self.trainer, AntiphonTrainerMixin):
                return f"there is no whole checkpoint of step {directive.step} or before to go back to in this process"
            self.rollback_to = found
            self._job.retention.spare([found.resolve()])
            control.should_training_stop, control.should_save = True, False
            return None
        if do == "set_micro_batch":
            return self.batch.set_rows(directive, self.trainer)
        if do == "drain":
            return self.batch.drain(directive, self.trainer, state.global_step)
        if do == "resize":
            return "the Trainer cannot change its ranks while it runs: it is relaunched from a checkpoint"
        return f"the Trainer cannot carry out `{do}` while it runs; `instrument(handlers=...)` may"

    def _probe(self, step: int) -> None:
        for category, loss in self.probes.losses(self.trainer, step):
            if self.trainer.args.process_index == 0:
                self._job.signal(step, category=category, probe_loss=loss)

    def _group(self) -> Any:
        """A group of its own over the host's network: a collective on the GPU would wait for the training's."""
        if self._control_group is None:
            self._control_group = torch.distributed.new_group(backend="gloo")
        return self._control_group

    def _agreed(self, step: int, due: bool) -> tuple[tuple[Directive, ...], bool]:
        """What rank 0 was told, and whether it is time to save by its clock."""

        def broadcast(payload: dict[str, Any]) -> dict[str, Any]:
            nonlocal due
            box = [{**payload, "due": due}]
            group, start = self._group(), time.perf_counter()
            torch.distributed.broadcast_object_list(box, src=0, group=group)
            self.communication.waited((time.perf_counter() - start) * 1000)
            due = bool(box[0]["due"])
            return box[0]

        directives = self._job.boundary(step, self.slot, broadcast)
        return directives, due


def _of_step(slot: int, numbers: dict[str, Any], of_shards: Callable[[], Iterator[dict[str, Any]]]) -> Iterator[Any]:
    """The signals of a step. Times are told to a hundredth."""
    times = {name: round(value, 2) for name, value in numbers.items() if name.endswith("_ms") and value is not None}
    yield {"slot": slot, **numbers, **times}
    yield from of_shards()
