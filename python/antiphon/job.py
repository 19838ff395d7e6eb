"""What the training loop holds: signals in, directives out. Neither trains nor saves; never raises into the loop."""

from __future__ import annotations

import atexit
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from .ask import Ask
from .directive import SAVED, Directive
from .environment import Environment
from .inbox import Inbox, Ready
from .outbox import Outbox
from .quiet import Quiet
from .retention import Keeper
from .sender import Sender
from .sigterm import TermGuard

# Gives every rank what rank 0 handed in, plain data that pickles; such as a wrapper of `broadcast_object_list`.
Broadcast = Callable[[dict[str, Any]], dict[str, Any]]

CLOSE_TIMEOUT_S = 2.0
# Other words in which a shard's numbers may come.
_ALIASES = {"shard_id": "shard", "gradient_norm": "grad_norm"}


def attach(
    state: Mapping[str, Any] | None = None,
    step: int = 0,
    *,
    accepts: Iterable[str] = (),
    shards: Mapping[str, Mapping[str, Any]] | None = None,
    environment: Environment | None = None,
) -> Job:
    """Connects this process to antiphon, or, when antiphon did not launch it, gives a job whose methods do nothing.

    `state` is what `Job.state` gave to the checkpoint that this process resumes from, `step` the step it resumes at.
    `accepts` names directives beyond today's that the loop can carry out; others that this version does not know are
    rejected without reaching it. `shards` says where each shard of the data came from: `category`, `source`, `chunk`,
    `generator`, `temperature`, `parents`, `code`, `samples`, as far as it is known.
    """
    job = Job(environment or Environment.read(), state, step, accepts)
    if shards:
        job.shards(shards)
    return job


class Job:
    """One process's side of one attempt. Made by `attach`."""

    def __init__(
        self, environment: Environment, state: Mapping[str, Any] | None, step: int, accepts: Iterable[str]
    ) -> None:
        self.environment = environment
        self._quiet = Quiet()
        self._guard = TermGuard(environment.grace_s)
        self._agreed_terminating: bool | None = None
        self._outbox = Outbox()
        self._sender: Sender | None = None
        self._asked_at_step: dict[int, int] = {}
        self._step = step
        accepts = tuple(accepts)
        self._inbox = Inbox.restored(None, accepts)
        # Deletes old checkpoints by itself, where the job file says which stay.
        self.retention = Keeper()
        with self._quiet:
            self._inbox = Inbox.restored(state, accepts)
        with self._quiet:
            if environment.endpoint is not None:
                keep = environment.keep if environment.rank == 0 else None
                self.retention = Keeper(environment.endpoint.job, environment.checkpoint_dir, keep)
                sender = Sender(environment, environment.endpoint, self._outbox, self._inbox, step)
                sender.on_acknowledged = self.retention.acknowledged
                sender.start()
                self._sender = sender
                _forget_in_forked_children(self)
                atexit.register(self.close)

    @property
    def attached(self) -> bool:
        """Whether signals go anywhere: antiphon launched this process, and the job is not closed."""
        return self._sender is not None

    @property
    def terminating(self) -> bool:
        """True after SIGTERM: save at the next boundary and end.

        The first look takes over SIGTERM, so a loop that never looks still ends by it. Once `boundary` is given a
        broadcast, every rank sees what rank 0 saw at the last boundary, so that all of them save at one step.
        """
        if not self._guard.installed:
            with self._quiet:
                self._guard.install()
        return self._guard.terminating if self._agreed_terminating is None else self._agreed_terminating

    @property
    def grace_left_s(self) -> float | None:
        """Seconds until SIGKILL is to be expected; None before SIGTERM."""
        return self._guard.grace_left_s

    def signal(
        self,
        step: int,
        slot: int | None = None,
        *,
        shard: str | None = None,
        category: str | None = None,
        **numbers: Any,
    ) -> None:
        """Reports numbers of this task at a step, or of one shard or category of its data there.

        A tensor or array of one element counts as a number. It is read later, by the sending thread, so that the loop
        does not wait for a GPU: hand in one that nothing overwrites.
        """
        if self._sender is None:
            return
        with self._quiet:
            self._step = step
            signal: dict[str, Any] = {"task": self.environment.rank, "step": step}
            if slot is not None:
                signal["slot"] = slot
            if shard is not None:
                signal["shard"] = shard
            if category is not None:
                signal["category"] = category
            signal.update(numbers)
            self._outbox.signal(signal)

    def signal_later(self, step: int, make: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        """Reports signals at a step that the sending thread makes, each a mapping of what `signal` takes by name.

        For what takes time to put together: the loop does not spend it.
        """
        if self._sender is None:
            return
        with self._quiet:
            self._step = step
            self._outbox.signal(partial(self._made, step, make))

    def saving(self, step: int, on: bool = True) -> None:
        """Says that the loop stands still to save, so that it is not taken for hanging; `checkpointed` ends that.

        Where a save fails, `on` false ends it.
        """
        self.signal(step, saving=on)

    def progress(self, step: int, total_steps: int) -> None:
        """Reports how far the job is. Only rank 0's word is sent."""
        if self._sender is None or self.environment.rank != 0:
            return
        with self._quiet:
            self._outbox.signal({"progress": {"step": int(step), "total_steps": int(total_steps)}})

    def report_shard_stats(self, stats: Mapping[str, Any]) -> None:
        """Reports numbers of one shard in one mapping: `shard_id`, `loss`, `gradient_norm`, and whatever else there is.

        `step` is taken from it too; without one it is the last that was reported.
        """
        if self._sender is None:
            return
        with self._quiet:
            signal = {_ALIASES.get(name, name): value for name, value in stats.items()}
            self._outbox.signal({"task": self.environment.rank, "step": self._step, **signal})

    def shards(self, origins: Mapping[str, Mapping[str, Any]]) -> None:
        """Says where shards came from, such as one that the loop made itself. Only rank 0's word is sent."""
        if self._sender is None or self.environment.rank != 0:
            return
        with self._quiet:
            self._outbox.shards(origins)
            self._sender.wake()

    def ask(self, ask: str, reason: str, **fields: Any) -> Ask:
        """Asks antiphon for something, inside the job's limits; `reason` is shown to people.

        ``gpus`` (`gpus`), ``time`` (`more_ms`), ``samples`` (`category`), ``pause``, ``protection`` (`during_ms`). The
        answer comes later, into `Ask.answer`; nothing waits for it. Only rank 0 asks.
        """
        asked = Ask(str(ask), dict(fields), str(reason))
        if self._sender is not None and self.environment.rank == 0:
            with self._quiet:
                self._outbox.ask(asked)
                self._sender.wake()
        return asked

    def rewind(self, state: Mapping[str, Any], step: int) -> None:
        """Says that the loop went back to a checkpoint without a new process; `state` is what `state()` gave to it.

        Directives about data that the older model does not contain are handed out again.
        """
        with self._quiet:
            self._inbox.rewind(state)
            if self._sender is not None:
                self._sender.attach_again(int(step))

    def boundary(self, step: int, slot: int, broadcast: Broadcast | None = None) -> tuple[Directive, ...]:
        """The directives to carry out now, between two steps; `slot` is the first slot not yet consumed.

        Only rank 0 receives directives. With `broadcast`, which every rank must then pass at the same steps, all ranks
        are handed the same ones at the same slot. An error of `broadcast` itself is the caller's and is raised.
        """
        if broadcast is not None:
            return self._boundary_of_all_ranks(step, slot, broadcast)
        if not self._inbox.stirred:
            return ()
        return self._take(step, slot)

    def applied(self, directive: Directive, slot: int) -> None:
        """Acknowledges a directive that was carried out at `slot`.

        For a checkpoint, yield or stop it goes out once a checkpoint of that step or later is acknowledged, whichever
        call comes first.
        """
        with self._quiet:
            self._acknowledge(directive, "applied", {"slot": int(slot)})

    def rejected(self, directive: Directive, reason: str) -> None:
        """Says that the loop will not carry out a directive, and why."""
        with self._quiet:
            self._acknowledge(directive, "rejected", {"reason": str(reason)})

    def failed(self, directive: Directive, error: object) -> None:
        """Says that the loop tried to carry out a directive and could not."""
        with self._quiet:
            self._acknowledge(directive, "failed", {"error": str(error)})

    def checkpointed(
        self, step: int, path: str, bytes: int, save_ms: float, manifest: str = "", loss: float | None = None
    ) -> None:
        """Acknowledges a checkpoint that is durable: call it after the last sync. Only rank 0's word is sent.

        Where the job file says which checkpoints stay (`[checkpoint] keep`), the others are deleted once the server has
        this one in its log. `loss` is the held-out loss of its model, for the best to stay.
        """
        if self._sender is None or self.environment.rank != 0:
            return
        with self._quiet:
            self.retention.saved(os.fsdecode(path), int(step), None if loss is None else float(loss))
            checkpoint = {
                "step": int(step),
                "path": os.fsdecode(path),
                "bytes": int(bytes),
                "save_ms": round(save_ms),
                "manifest": str(manifest),
            }
            self._outbox.checkpoint(int(step), checkpoint)
            self._report_disk(int(step))
            self._sender.wake()

    def flush(self) -> None:
        """Sends what waits now and not with the next report, where the answer is awaited."""
        if self._sender is not None:
            self._sender.wake()

    def state(self) -> dict[str, Any]:
        """Which directives are handled: goes into the checkpoint, and from it to `attach`."""
        with self._quiet:
            return self._inbox.state()
        return {"cursor": 0, "done": []}

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Sends what is left, for at most `timeout_s`. Called at exit too; after it every method does nothing."""
        sender, self._sender = self._sender, None
        if sender is None:
            return
        with self._quiet:
            atexit.unregister(self.close)
            self._outbox.fail_held_acks("the job closed without a checkpoint after this directive")
            sender.close(timeout_s)
            self.retention.settle(timeout_s)

    def _made(self, step: int, make: Callable[[], Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
        with self._quiet:
            return [{"task": self.environment.rank, "step": step, **signal} for signal in make()]
        return []

    def _report_disk(self, step: int) -> None:
        try:
            free = shutil.disk_usage(self.environment.checkpoint_dir or "").free
        except OSError:
            return
        self._outbox.signal({"task": self.environment.rank, "step": step, "disk_free_bytes": free})

    def _take(self, step: int, slot: int) -> tuple[Directive, ...]:
        with self._quiet:
            ready = self._inbox.ready(slot, int(time.time() * 1000)) if self._sender is not None else Ready()
            for directive in ready.directives:
                if directive.id is not None and directive.do in SAVED:
                    self._asked_at_step[directive.id] = step
            for ack in ready.acks:
                self._send(ack)
            return ready.directives
        return ()

    def _boundary_of_all_ranks(self, step: int, slot: int, broadcast: Broadcast) -> tuple[Directive, ...]:
        mine: dict[str, Any] = {}
        with self._quiet:
            directives = self._take(step, slot)
            cursor, done = self._inbox.position()
            mine = {
                "directives": [directive.to_wire() for directive in directives],
                "cursor": cursor,
                "done": done,
                "terminating": self._guard.terminating,
            }
        # Called whatever happened above, or the other ranks would wait for ever.
        agreed = broadcast(mine if self.environment.rank == 0 else {})
        with self._quiet:
            directives = tuple(Directive.from_broadcast(fields) for fields in agreed["directives"])
            self._agreed_terminating = bool(agreed["terminating"])
            if self.environment.rank != 0:
                self._inbox.mirror(agreed["cursor"], agreed["done"], directives)
            return directives
        return ()

    def _acknowledge(self, directive: Directive, outcome: str, details: dict[str, Any]) -> None:
        if not self._inbox.handle(directive) or directive.id is None:
            return
        ack = {"directive": directive.id, outcome: details}
        asked_at_step = self._asked_at_step.pop(directive.id, None)
        if outcome == "applied" and asked_at_step is not None and self._sender is not None:
            self._outbox.ack_after_checkpoint(ack, asked_at_step)
            self._sender.wake()
        else:
            self._send(ack)

    def _send(self, ack: dict[str, Any]) -> None:
        if self._sender is not None and self.environment.rank == 0:
            self._outbox.ack(ack)
            self._sender.wake()


def _forget_in_forked_children(job: Job) -> None:
    """A forked child has the parent's locks and none of its threads: in it the job does nothing."""
    if not hasattr(os, "register_at_fork"):
        return
    known = weakref.ref(job)

    def forget() -> None:
        job = known()
        if job is not None:
            job._sender = None
            job._inbox = Inbox()

    os.register_at_fork(after_in_child=forget)
