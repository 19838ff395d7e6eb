"""Which checkpoints may go. Says it; deletes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_NUMBERS = ("newest", "best", "days")

DAY_S = 24 * 3600


@dataclass(frozen=True)
class Saved:
    """One checkpoint that is durable."""

    path: str
    step: int
    at_s: float  # when it was saved, seconds since 1970
    loss: float | None = None  # held-out loss of its model, where one was measured
    acknowledged: bool = False  # whether the server has it in its log, and may name it to the next attempt


@dataclass(frozen=True)
class Retention:
    """What to keep: the newest, the best, and one of each of the last days."""

    newest: int = 3
    best: int = 1
    days: int = 7

    @classmethod
    def read(cls, text: str) -> Retention:
        """Reads `newest=3,best=1,days=7`; what is not named is 0. Raises ValueError."""
        numbers = dict.fromkeys(_NUMBERS, 0)
        for part in text.split(","):
            name, _, number = part.partition("=")
            if name not in numbers or not number.isdecimal():
                raise ValueError(f"`{part}` is none of {', '.join(f'{name}=N' for name in _NUMBERS)}")
            numbers[name] = int(number)
        return cls(**numbers)

    def to_delete(self, saved: Iterable[Saved], now_s: float) -> list[Saved]:
        """The checkpoints that nothing keeps, of `saved` in the order in which they were saved.

        That is not the order of steps: after a rollback the lower step is the newer checkpoint. Whatever the numbers
        say, the newest acknowledged one stays: a next attempt resumes from it. So does what is newer, since its
        acknowledgement may be on its way.
        """
        by_age = list(saved)
        acknowledged = [at for at, one in enumerate(by_age) if one.acknowledged]
        if not acknowledged:
            return []
        kept = set(range(acknowledged[-1], len(by_age)))
        kept.update(range(max(0, len(by_age) - self.newest), len(by_age)))
        measured = [at for at, one in enumerate(by_age) if one.loss is not None and one.loss == one.loss]
        kept.update(sorted(measured, key=lambda at: (by_age[at].loss, -at))[: self.best])
        of_day: dict[int, int] = {}
        for at, one in enumerate(by_age):
            if 0 <= now_s - one.at_s < self.days * DAY_S:
                of_day[int(one.at_s // DAY_S)] = at
        kept.update(of_day.values())
        return [one for at, one in enumerate(by_age) if at not in kept]
