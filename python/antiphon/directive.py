"""One directive as the training loop sees it, and its check on arrival. It carries out nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Answered by a checkpoint: their acknowledgement follows the checkpoint's, and they end with their attempt.
COMPUTE = frozenset({"checkpoint", "yield", "stop"})
KNOWN = COMPUTE | {"set_weights", "pause_shard", "resume_shard"}


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
        """The shard that ``pause_shard`` or ``resume_shard`` names."""
        return str(self.fields.get("shard", ""))

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> Directive:
        """Reads one entry of an answer. Raises ValueError when it has no usable id or name."""
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
        if self.do in ("pause_shard", "resume_shard") and not self.shard:
            return "`shard` is missing"
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
