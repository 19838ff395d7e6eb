"""What waits to be sent, bounded. It knows the order of acknowledgements, and nothing of connections or time.

Signals may be lost, the oldest first, and are counted; checkpoints, acknowledgements and asks never are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .ask import Ask

# At a signal per step and shard, minutes of a server's absence; a few megabytes at most.
SIGNALS_MAX = 8192
Signal = dict[str, Any]
# Makes signals once they are to be sent.
Later = Callable[[], "list[Signal]"]
# Keeps the body of one batch near 100 kB.
BATCH_SIGNALS_MAX = 512


@dataclass(frozen=True)
class Parcel:
    """What one batch carries."""

    signals: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    acks: list[dict[str, Any]] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    shards: dict[str, dict[str, Any]] = field(default_factory=dict)
    dropped: int = 0  # signals lost since the last parcel

    def is_empty(self) -> bool:
        return not (self.signals or self.checkpoints or self.acks or self.asks or self.shards or self.dropped)


class Outbox:
    """Filled by the loop, emptied by the sender."""

    def __init__(self, signals_max: int = SIGNALS_MAX) -> None:
        self._lock = threading.Lock()
        self._signals: deque[Signal | Later] = deque(maxlen=signals_max)
        self._made: list[Signal] = []  # Taken out by the sender, and beyond what its last batch carries.
        self._checkpoints: list[dict[str, Any]] = []
        self._acks: list[dict[str, Any]] = []
        self._held_acks: list[tuple[int, dict[str, Any]]] = []
        self._asks: list[Ask] = []
        self._shards: dict[str, dict[str, Any]] = {}
        self._checkpoint_step = -1
        self._dropped = 0

    def signal(self, signal: Signal | Later) -> None:
        """Queues a signal, or what makes some when their turn comes, and counts as one if it is lost."""
        with self._lock:
            if len(self._signals) == self._signals.maxlen:
                self._dropped += 1
            self._signals.append(signal)

    def checkpoint(self, step: int, checkpoint: dict[str, Any]) -> None:
        """Queues a checkpoint, and behind it the acknowledgements that waited for it."""
        with self._lock:
            self._checkpoints.append(checkpoint)
            self._checkpoint_step = max(self._checkpoint_step, step)
            self._acks += [ack for since, ack in self._held_acks if since <= step]
            self._held_acks = [(since, ack) for since, ack in self._held_acks if since > step]

    def ask(self, ask: Ask) -> None:
        with self._lock:
            self._asks.append(ask)

    def shards(self, origins: Mapping[str, Mapping[str, Any]]) -> None:
        """Queues where shards came from."""
        with self._lock:
            self._shards.update({str(shard): dict(origin) for shard, origin in origins.items()})

    def ack(self, ack: dict[str, Any]) -> None:
        with self._lock:
            self._acks.append(ack)

    def ack_after_checkpoint(self, ack: dict[str, Any], since_step: int) -> None:
        """Queues an acknowledgement once a checkpoint of `since_step` or later is queued: it would be a lie before."""
        with self._lock:
            if self._checkpoint_step >= since_step:
                self._acks.append(ack)
            else:
                self._held_acks.append((since_step, ack))

    def fail_held_acks(self, error: str) -> None:
        """The loop ends: what still waits for a checkpoint was not carried out."""
        with self._lock:
            for _, ack in self._held_acks:
                self._acks.append({"directive": ack["directive"], "failed": {"error": error}})
            self._held_acks = []

    def take(self) -> Parcel:
        """Takes out the next batch: the oldest signals, every checkpoint, every acknowledgement. One thread does it."""
        signals = self._take_signals()
        with self._lock:
            parcel = Parcel(
                signals=signals,
                checkpoints=self._checkpoints,
                acks=self._acks,
                asks=self._asks,
                shards=self._shards,
                dropped=self._dropped,
            )
            self._checkpoints, self._acks, self._asks, self._shards, self._dropped = [], [], [], {}, 0
            return parcel

    def _take_signals(self) -> list[Signal]:
        made = self._made
        while len(made) < BATCH_SIGNALS_MAX:
            with self._lock:
                if not self._signals:
                    break
                entry = self._signals.popleft()
            # Without the lock: it may wait for a GPU.
            made += entry() if callable(entry) else [entry]
        self._made = made[BATCH_SIGNALS_MAX:]
        return made[:BATCH_SIGNALS_MAX]

    def refuse(self, parcel: Parcel) -> None:
        """The server refused a batch for good: its signals are lost and counted, the rest goes with the next one."""
        with self._lock:
            self._checkpoints = parcel.checkpoints + self._checkpoints
            self._acks = parcel.acks + self._acks
            self._asks = parcel.asks + self._asks
            self._shards = {**parcel.shards, **self._shards}
            self._dropped += parcel.dropped + len(parcel.signals)

    def is_empty(self) -> bool:
        with self._lock:
            waits = (self._signals, self._made, self._checkpoints, self._acks, self._asks, self._shards, self._dropped)
            return not any(waits)

    def has_backlog(self) -> bool:
        """More signals wait than one batch carries."""
        return bool(self._made) or len(self._signals) >= BATCH_SIGNALS_MAX
