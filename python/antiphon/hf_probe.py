"""Held-out rows of each category, evaluated by the Trainer's own loss. They change nothing of the training.

A look costs as much as a third of a step on as many rows, and is worth that only while what it says changes something:
after three looks in a row without a directive about data, each that follows is twice as many steps away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

# Looks in a row that have to change nothing: antiphon convicts a shard on two that agree, held against one before.
_SETTLED_LOOKS = 3
# Steps between two looks at most, unless the owner wants fewer looks: past so many, antiphon judges training losses
# against the probes that there are, and those would be old.
_INTERVAL_MAX = 100


class Probes:
    """Rows by category, looked at every so many steps, and less often while that changes nothing."""

    def __init__(self, rows: Mapping[str, Sequence[Any]] | None, every: int) -> None:
        self._rows = dict(rows or {})
        self._every = every
        self._unchanged = 0  # Looks since something changed.
        self._next = 0
        self._batches: dict[str, list[Any]] = {}
        self.looked_at = -1  # The step of the last look.
        self.rows_seen = 0

    def are_due(self, step: int) -> bool:
        return bool(self._rows) and step >= self._next

    def begin(self, step: int) -> None:
        """Training begins at a step, or goes on there with a model that was not looked at."""
        self._unchanged, self._next = 0, step

    def changed(self, step: int) -> None:
        """What is drawn from changed at a step: looks are close again."""
        self._unchanged, self._next = 0, min(self._next, self._after(step, self._every))

    def looked(self, step: int) -> None:
        """A look takes place: says when the next one does."""
        self._unchanged += 1
        doubled = min(max(0, self._unchanged - _SETTLED_LOOKS + 1), 16)
        interval = min(self._every << doubled, max(self._every, _INTERVAL_MAX))
        self.looked_at, self._next = step, self._after(step, interval)

    def _after(self, step: int, interval: int) -> int:
        # At multiples of what the owner wants, wherever training was resumed.
        return step - step % self._every + interval

    def losses(self, trainer: Any, step: int) -> Iterator[tuple[str, Any]]:
        """The loss of each category by token. Every rank evaluates: a sharded model needs all of them."""
        if trainer is None or not self._rows:
            return
        model = trainer.model
        if not self._batches:
            size = max(trainer.args.per_device_eval_batch_size, 1)
            for category, rows in self._rows.items():
                parts = [list(rows)[first : first + size] for first in range(0, len(rows), size)]
                self._batches[category] = [trainer.data_collator(part) for part in parts]
        self.looked(step)
        was_training = model.training
        model.eval()
        try:
            with torch.no_grad(), trainer.compute_loss_context_manager():
                for category, batches in self._batches.items():
                    total, tokens = torch.zeros((), device=trainer.args.device), 0
                    self.rows_seen += len(self._rows[category])
                    for batch in batches:
                        inputs = trainer._prepare_inputs(dict(batch))
                        inputs.pop("shard", None)
                        targets = int((batch["labels"][..., 1:] != -100).sum())
                        total += model(**inputs).loss.detach().float() * targets
                        tokens += targets
                    if tokens:
                        yield category, total / tokens
        finally:
            model.train(was_training)
