"""Whether this process's GPU is throttled, by its driver's own word. Says nothing without `pynvml` or a GPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

# Heat and power: hardware slowdown, thermal slowdown by software and by hardware, power brake. Not the power cap, at
# which a busy GPU runs all the time.
REASONS = 0x08 | 0x20 | 0x40 | 0x80
# Throttling lasts minutes; asking takes the driver a fraction of a millisecond.
ASK_EVERY_S = 10.0


class Throttle:
    """Asks the driver now and then; after its first failure no more."""

    def __init__(self, variables: Mapping[str, str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._variables = os.environ if variables is None else variables
        self._clock = clock
        self._ask: Callable[[], int] | None = self._first
        self._asked_at = float("-inf")
        self._throttled = False

    def is_on(self) -> bool:
        """Whether the GPU is throttled, as it was at most ten seconds ago."""
        now = self._clock()
        if self._ask is not None and now - self._asked_at >= ASK_EVERY_S:
            self._asked_at = now
            try:
                self._throttled = bool(self._ask() & REASONS)
            except Exception:
                # No such package, driver or device: that will not change while this process lives.
                self._ask, self._throttled = None, False
        return self._throttled

    def _first(self) -> int:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]

        pynvml.nvmlInit()
        handle = self._handle(pynvml)
        self._ask = lambda: int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        return self._ask()

    def _handle(self, pynvml: Any) -> Any:
        """The device that the process computes on: of those that it may see, the one of its local rank."""
        rank = self._variables.get("LOCAL_RANK") or "0"
        visible = [name.strip() for name in self._variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
        name = visible[int(rank)] if visible else rank
        if name.isdecimal():
            return pynvml.nvmlDeviceGetHandleByIndex(int(name))
        return pynvml.nvmlDeviceGetHandleByUUID(name)
