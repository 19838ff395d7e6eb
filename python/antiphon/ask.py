"""Something that the loop asks of antiphon, and the answer. Whether it is granted is not decided here."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Answer:
    """What became of an ask, and why."""

    granted: bool
    reason: str = ""


@dataclass
class Ask:
    """One ask: `answer` is None until the server has answered, which it may never do."""

    ask: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    answer: Answer | None = None
    number: int = field(default_factory=lambda: next(_numbers))

    def to_wire(self) -> dict[str, Any]:
        return {**self.fields, "id": self.number, "ask": self.ask, "reason": self.reason}


def take_answers(asks: list[Ask], answers: object) -> None:
    """Hands each ask of a batch its answer: by number, else in the order in which they were asked."""
    entries = [entry for entry in answers if isinstance(entry, Mapping)] if isinstance(answers, list) else []
    by_number = {entry["id"]: entry for entry in entries if "id" in entry}
    for place, ask in enumerate(asks):
        entry = by_number.get(ask.number) if by_number else entries[place] if place < len(entries) else None
        if entry is not None:
            ask.answer = Answer(entry.get("granted") is True, str(entry.get("reason") or ""))
