"""Held-out rows of each category, evaluated by the Trainer's own loss. They change nothing of the training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch


class Probes:
    """Rows by category, looked at every so many steps."""

    def __init__(self, rows: Mapping[str, Sequence[Any]] | None, every: int) -> None:
        self._rows = dict(rows or {})
        self._every = every
        self._batches: dict[str, list[Any]] = {}

    def are_due(self, step: int) -> bool:
        return bool(self._rows) and step % self._every == 0

    def losses(self, trainer: Any) -> Iterator[tuple[str, Any]]:
        """The loss of each category by token. Every rank evaluates: a sharded model needs all of them."""
        if trainer is None or not self._rows:
            return
        model = trainer.model
        if not self._batches:
            size = max(trainer.args.per_device_eval_batch_size, 1)
            for category, rows in self._rows.items():
                parts = [list(rows)[first : first + size] for first in range(0, len(rows), size)]
                self._batches[category] = [trainer.data_collator(part) for part in parts]
        was_training = model.training
        model.eval()
        try:
            with torch.no_grad(), trainer.compute_loss_context_manager():
                for category, batches in self._batches.items():
                    total, tokens = torch.zeros((), device=trainer.args.device), 0
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
