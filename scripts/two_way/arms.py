"""The arms of the comparison: who chooses the mix, each behind the same face as the real server.

A controller sees what antiphon's server sees, at the same steps, and answers with the same directive. Only the arm
`antiphon` is not here: there the server itself answers. Each controller is the plain published idea with one setting.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from scenario import Stream

import antiphon
from antiphon.environment import Environment

#: Steps between two changes of the mix, and between two looks at the probes.
TICK = 20

Shares = dict[str, float]


class Controller:
    """Chooses shares from the mean training loss of each shard over a tick. This one leaves them as they are."""

    def tick(self, losses: Shares, shares: Shares) -> Shares:
        """The shares for the next tick; `losses` has the shards that were drawn from."""
        return shares


class RawLoss(Controller):
    """EXP3 with the training loss as reward, over the odds of being drawn, as in online data mixing."""

    def __init__(self) -> None:
        self.rewards: Shares = {}
        self.ticks = 0

    def tick(self, losses: Shares, shares: Shares) -> Shares:
        self.ticks += 1
        count = len(shares)
        for shard, loss in losses.items():
            gained = loss / max(shares[shard], 1e-3)
            self.rewards[shard] = 0.9 * self.rewards.get(shard, 0.0) + 0.1 * gained
        rate = min(1 / count, math.sqrt(math.log(count) / (count * self.ticks)))
        highest = max(self.rewards.values())
        odds = {shard: math.exp(rate * (self.rewards.get(shard, 0.0) - highest)) for shard in shares}
        total = sum(odds.values())
        return {shard: (1 - count * rate / 2) * odd / total + rate / 2 for shard, odd in odds.items()}


class SoftmaxLoss(Controller):
    """The plainest bandit: shares by the softmax of the training loss, half of the way each tick."""

    def tick(self, losses: Shares, shares: Shares) -> Shares:
        odds = {shard: math.exp(losses.get(shard, 0.0)) for shard in shares}
        total = sum(odds.values())
        return {shard: (share + odds[shard] / total) / 2 for shard, share in shares.items()}


class LearningProgress(Controller):
    """Shares by how much the training loss of a shard fell since the last tick, smoothed, half of the way each tick."""

    FLOOR = 0.02

    def __init__(self) -> None:
        self.before: Shares = {}
        self.progress: Shares = {}

    def tick(self, losses: Shares, shares: Shares) -> Shares:
        for shard, loss in losses.items():
            fell = max(0.0, self.before[shard] - loss) if shard in self.before else 0.0
            self.progress[shard] = 0.5 * self.progress.get(shard, fell) + 0.5 * fell
            self.before[shard] = loss
        total = sum(self.progress.values())
        if total == 0:
            return shares
        spread = 1 - self.FLOOR * len(shares)
        aim = {shard: self.FLOOR + spread * self.progress.get(shard, 0.0) / total for shard in shares}
        return {shard: (share + aim[shard]) / 2 for shard, share in shares.items()}


def proportional(stream: Stream) -> Shares:
    """What a data set is drawn by when nobody chooses."""
    return dict(stream.share)


def over_categories(stream: Stream) -> Shares:
    """The same for each category; inside it, by size."""
    sizes: Counter[str] = Counter()
    for shard, share in stream.share.items():
        sizes[stream.category[shard]] += share  # type: ignore[assignment]
    return {shard: share / sizes[stream.category[shard]] / len(sizes) for shard, share in stream.share.items()}


def over_shards(stream: Stream) -> Shares:
    """The same for each shard."""
    return {shard: 1 / len(stream.rows) for shard in stream.rows}


def over_clean_shards(stream: Stream) -> Shares:
    """What one who knew which shards are bad would do."""
    return {shard: 0.0 if shard in stream.bad else 1 / len(stream.clean) for shard in stream.rows}


ARMS: dict[str, tuple[Callable[[Stream], Shares], Callable[[], Controller]]] = {
    "proportional": (proportional, Controller),
    "uniform over categories": (over_categories, Controller),
    "uniform over shards": (over_shards, Controller),
    "raw-loss bandit": (proportional, SoftmaxLoss),
    "raw-loss EXP3": (proportional, RawLoss),
    "learning progress": (proportional, LearningProgress),
    "oracle": (over_clean_shards, Controller),
}
"""By name: the shares at the start, and who changes them."""
OURS = "antiphon"


class LocalJob(antiphon.Job):
    """Takes the place of a job under antiphon: signals go to a controller, whose shares come back as a directive."""

    def __init__(self, controller: Controller, shares: Shares) -> None:
        super().__init__(Environment.read({}), None, 0, ())
        self._controller = controller
        self._shares = shares
        self._sums: dict[str, list[float]] = {}
        self._told_at = 0

    def signal(self, step: int, slot: int | None = None, *, shard: str | None = None, **numbers: Any) -> None:
        """Takes the loss of a shard; nothing else matters to these controllers."""
        loss, samples = numbers.get("loss"), float(numbers.get("samples", 0))
        if shard is not None and loss is not None:
            sums = self._sums.setdefault(shard, [0.0, 0.0])
            sums[0] += float(loss) * samples
            sums[1] += samples

    def signal_later(self, step: int, make: Any) -> None:
        """The same at once."""
        for numbers in make():
            self.signal(step, **numbers)

    def boundary(self, step: int, slot: int, broadcast: Any = None) -> tuple[antiphon.Directive, ...]:
        """New weights at each tick."""
        if step % TICK or step == self._told_at:
            return ()
        self._told_at = step
        losses = {shard: total / samples for shard, (total, samples) in self._sums.items() if samples}
        self._sums = {}
        shares = self._controller.tick(losses, self._shares)
        if shares == self._shares:
            return ()
        self._shares = shares
        return (antiphon.Directive(step, "set_weights", fields={"weights": shares}),)
