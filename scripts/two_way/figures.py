"""From outcomes to figures: smoothed held-out curves, the step at which one reaches another's loss, steps saved."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Forward passes alone cost a third of a step on the same rows (the backward pass costs twice the forward one).
PROBE_COST = 1 / 3
BATCH_ROWS = 16


@dataclass(frozen=True)
class Curve:
    """One run, reduced to what is compared."""

    seed: int
    steps: Sequence[int]
    losses: Sequence[float]
    """Mean held-out loss over the categories, smoothed over three looks."""
    by_category: dict[str, float]
    """At the end, smoothed alike."""
    mix: Sequence[tuple[int, dict[str, float]]]
    drawn: dict[str, int]
    bad: frozenset[str]
    directives: Sequence[str]
    probe_rows: int
    cpu_s: float

    def loss_at(self, step: int) -> float:
        """The smoothed loss at the last look up to a step."""
        return next(loss for at, loss in zip(reversed(self.steps), reversed(self.losses), strict=True) if at <= step)

    def reaches(self, loss: float) -> float | None:
        """The step at which the smoothed curve first is as low as this, between two looks by a straight line."""
        before: tuple[int, float] | None = None
        for step, now in zip(self.steps, self.losses, strict=True):
            if now <= loss:
                if before is None:
                    return float(step)
                return before[0] + (step - before[0]) * (before[1] - loss) / (before[1] - now)
            before = (step, now)
        return None

    def share(self, shard: str, step: int) -> float:
        """The share in force at a step."""
        return next(shares.get(shard, 0.0) for at, shares in reversed(self.mix) if at <= step)

    @property
    def bad_drawn(self) -> float:
        """The part of all rows that came from bad shards."""
        return sum(count for shard, count in self.drawn.items() if shard in self.bad) / sum(self.drawn.values())

    @property
    def probe_steps(self) -> float:
        """What the looks at the probes cost, in steps a step."""
        return self.probe_rows / BATCH_ROWS * PROBE_COST / self.steps[-1]


def curve(outcome: dict[str, Any]) -> Curve:
    """Reads the outcome of a run."""
    looks: list[tuple[int, dict[str, float]]] = outcome["held_out"]
    return Curve(
        seed=outcome["setting"]["seed"],
        steps=[step for step, _ in looks],
        losses=smoothed([statistics.fmean(losses.values()) for _, losses in looks]),
        by_category={name: statistics.fmean(losses[name] for _, losses in looks[-2:]) for name in looks[-1][1]},
        mix=outcome["mix"],
        drawn=outcome["drawn"],
        bad=frozenset(outcome["bad"]),
        directives=outcome["directives"],
        probe_rows=outcome["probe_rows"],
        cpu_s=outcome["cpu_s"],
    )


def smoothed(values: Sequence[float]) -> list[float]:
    """Each value as the mean of itself and its two neighbours; the ends have one."""
    return [statistics.fmean(values[max(0, place - 1) : place + 2]) for place in range(len(values))]


def saved(arm: Curve, against: Curve, probes: bool) -> float | None:
    """The part of the steps that `arm` needs less than `against` for the loss that `against` ends with.

    `against` is held to the step at which it first has that loss itself. Nothing where the arm never reaches it. With
    `probes`, the arm is charged for its looks at the probes.
    """
    loss = against.losses[-1]
    reached, own = arm.reaches(loss), against.reaches(loss)
    if reached is None or own is None:
        return None
    return 1 - reached * (1 + (arm.probe_steps if probes else 0.0)) / own
