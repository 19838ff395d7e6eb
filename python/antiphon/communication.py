"""How long a rank of a Trainer waits for the others, which is what tells a slow rank from those that it holds up.

Under DDP it is the time behind the backward pass's own work until the last gradients are there, by DDP's own timers;
with it go the count of tokens and the agreement on directives, where ranks meet too. What FSDP waits is not measured.
"""

from __future__ import annotations

from typing import Any

from torch.nn.parallel import DistributedDataParallel


class Communication:
    """The waits of one rank, by step."""

    def __init__(self, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._timed: Any = None
        self._ms: float | None = None

    def waited(self, ms: float) -> None:
        """Adds a wait to the step's."""
        self._ms = (self._ms or 0.0) + ms

    def backward_ended(self, model: Any) -> float:
        """Adds the wait of the backward pass that made a step's gradients whole, and gives it in milliseconds.

        On a GPU it is that of the step before: to read this one's the host would wait until the GPU has come so far.
        """
        if not isinstance(model, DistributedDataParallel):
            return 0.0
        timed: Any = model
        if timed is not self._timed:
            self._timed = timed
            # It times one step in a hundred by itself; from the next forward pass on it is every one.
            timed._set_ddp_runtime_logging_sample_rate(1)
            return 0.0
        if not self._on_gpu:
            timed.logger.set_runtime_stats_and_log()
        times = timed._get_ddp_logging_data()
        spent_ns = times.get("backward_comm_time", 0) - times.get("backward_compute_comm_overlap_time", 0)
        ms = max(float(spent_ns) / 1e6, 0.0)
        self.waited(ms)
        return ms

    def take(self) -> float | None:
        """Ends a step: gives what it waited, if anything was measured."""
        ms, self._ms = self._ms, None
        return ms
