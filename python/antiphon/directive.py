"""One directive as the training loop sees it, and its check on arrival. It carries out nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# Answered by a checkpoint: their acknowledgement follows the checkpoint's, and they end with their attempt.
SAVED = frozenset({"checkpoint", "yield", "stop"})
# About the data mix: they outlive attempts, their order matters, and a rollback makes the server send them again.
DATA = frozenset({"set_weights", "pause_shard", "resume_shard", "add_samples"})
# About this attempt's processes: they end with it.
COMPUTE = SAVED | {
    "set_micro_batch",
    "set_checkpoint_interval",
    "set_recompute",
    "set_offload",
    "snapshot",
    "resize",
    "drain",
    "rollback",
    "gather_hard_examples",
}
KNOWN = DATA | COMPUTE


@dataclass(frozen=True)
class Directive:
    """What antiphon asks of the loop. `do` names it, `reason` says why in words, `fields` is all that came.

    Without an id it did not come from the server: it tells a superseded attempt to yield. A newer attempt owns the
    checkpoints by then, so the loop ends without saving among them.
    """

    id: int | None
    do: str
    reason: str = ""
    not_before_slot: int | None = None
    expires_ms: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def weights(self) -> dict[str, float]:
        """The new weights of ``set_weights``; a shard that is not named keeps the weight it has."""
        return {str(shard): float(weight) for shard, weight in self.fields.get("weights", {}).items()}

    @property
    def shard(self) -> str:
        """The shard that ``pause_shard``, ``resume_shard`` or ``add_samples`` names."""
        return str(self.fields.get("shard", ""))

    @property
    def category(self) -> str:
        """What ``add_samples`` serves, or ``gather_hard_examples`` looks for."""
        return str(self.fields.get("category") or "")

    @property
    def path(self) -> str:
        """Where the samples of ``add_samples`` lie."""
        return str(self.fields.get("path") or "")

    @property
    def weight(self) -> float:
        """The weight of ``add_samples``; 0 leaves a shard that exists the weight it has."""
        return float(self.fields.get("weight") or 0.0)

    @property
    def rows(self) -> int:
        """The rows of one micro-step that ``set_micro_batch`` asks for; 0 gives the number back to the loop."""
        return int(self.fields.get("rows") or 0)

    @property
    def interval_ms(self) -> int:
        """The time from save to save of ``set_checkpoint_interval``; 0 gives it back to the loop."""
        return int(self.fields.get("interval_ms") or 0)

    @property
    def on(self) -> bool:
        """What ``set_recompute`` and ``set_offload`` switch to."""
        return self.fields.get("on") is True

    @property
    def ranks(self) -> int:
        """The number of ranks after ``resize``."""
        return int(self.fields.get("ranks") or 0)

    @property
    def task(self) -> int:
        """The rank that ``drain`` is about."""
        return int(self.fields.get("task") or 0)

    @property
    def share(self) -> float:
        """The part of an equal share that ``drain`` leaves its task, 0 to 1."""
        return float(self.fields.get("share") or 0.0)

    @property
    def steps(self) -> int:
        """For how many steps ``drain`` holds; 0 until something else is said."""
        return int(self.fields.get("steps") or 0)

    @property
    def step(self) -> int:
        """The step that ``rollback`` goes back to."""
        return int(self.fields.get("step") or 0)

    @property
    def lease_ends_ms(self) -> int | None:
        """When SIGTERM follows a ``yield``, saved or not, in milliseconds since the Unix epoch, if it does."""
        ends = self.fields.get("lease_ends_ms")
        return ends if _is_whole(ends) else None

    @property
    def count(self) -> int:
        """How many samples ``gather_hard_examples`` asks for."""
        return int(self.fields.get("count") or 0)

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> Directive:
        """Reads one entry of an answer. Raises ValueError when it has no usable id or name."""
        if "action" in fields and "do" not in fields:
            # The other form of the wire: {"action": "augment_shard", "shard_id": ...}.
            fields = {**fields, "do": fields["action"], "shard": fields.get("shard", fields.get("shard_id"))}
        number, do = fields.get("id"), fields.get("do")
        if not _is_whole(number, least=1) or not isinstance(do, str):
            raise ValueError(f"not a directive: {str(dict(fields))[:200]}")
        return cls._of(number, do, fields)

    @classmethod
    def from_broadcast(cls, fields: Mapping[str, Any]) -> Directive:
        """Reads what `to_wire` gave on rank 0, which may be a directive without id."""
        return cls._of(fields["id"], fields["do"], fields)

    def to_wire(self) -> dict[str, Any]:
        """The directive as plain data, for the ranks that did not receive it."""
        return {**self.fields, "id": self.id, "do": self.do, "reason": self.reason}

    def defect(self) -> str | None:
        """Says why a known directive cannot be carried out as it came, or None."""
        if self.do == "set_weights":
            weights = self.fields.get("weights")
            if not isinstance(weights, Mapping) or not weights:
                return "`weights` names no shard"
            wrong = [shard for shard, weight in weights.items() if not _is_weight(weight)]
            return f"the weight of `{wrong[0]}` is not a number of at least 0" if wrong else None
        for name, is_sound, form in _FORMS.get(self.do, ()):
            if not is_sound(self.fields.get(name)):
                return f"`{name}` is not {form}"
        return None

    @classmethod
    def _of(cls, number: int | None, do: str, fields: Mapping[str, Any]) -> Directive:
        fence, expiry = fields.get("not_before_slot"), fields.get("expires_ms")
        return cls(
            id=number,
            do=do,
            reason=str(fields.get("reason") or ""),
            not_before_slot=fence if _is_whole(fence) else None,
            expires_ms=expiry if _is_whole(expiry) else None,
            fields=dict(fields),
        )


def _is_whole(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_weight(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_share(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _is_missing_or_weight(value: object) -> bool:
    return value is None or _is_weight(value)


# What each directive must bring along: field, check, and the check in words.
_SHARD = ("shard", _is_name, "the name of a shard")
_ON = ("on", lambda value: isinstance(value, bool), "true or false")
_FORMS: Mapping[str, tuple[tuple[str, Callable[[object], bool], str], ...]] = {
    "pause_shard": (_SHARD,),
    "resume_shard": (_SHARD,),
    "add_samples": (
        _SHARD,
        ("path", _is_name, "the path of a file"),
        ("weight", _is_missing_or_weight, "a number of at least 0"),
    ),
    "set_micro_batch": (("rows", _is_whole, "a whole number of at least 0"),),
    "set_checkpoint_interval": (("interval_ms", _is_whole, "a whole number of at least 0"),),
    "set_recompute": (_ON,),
    "set_offload": (_ON,),
    "resize": (("ranks", lambda value: _is_whole(value, least=1), "a whole number of at least 1"),),
    "drain": (
        ("task", _is_whole, "a rank"),
        ("share", _is_share, "a number of 0 to 1"),
        ("steps", lambda value: value is None or _is_whole(value), "a whole number of at least 0"),
    ),
    "rollback": (("step", _is_whole, "a step"),),
    "gather_hard_examples": (
        ("category", _is_name, "a category"),
        ("count", lambda value: _is_whole(value, least=1), "a whole number of at least 1"),
    ),
}
