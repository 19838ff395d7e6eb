"""Notices SIGTERM. The handler sets a deadline and nothing more: saving belongs to the loop, at its next boundary."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType
from typing import Any


class TermGuard:
    """Remembers the first SIGTERM of this process and when its grace ends.

    Later ones are ignored: the scheduler signals every process and torchrun forwards the signal once more, so a second
    SIGTERM says nothing new. A handler that was there before still runs, once.
    """

    def __init__(self, grace_s: float = 60.0) -> None:
        self._grace_s = grace_s
        self._deadline: float | None = None
        self._earlier: Any = signal.SIG_DFL
        self._pid = 0

    def install(self) -> None:
        """Takes over SIGTERM. Raises ValueError outside the main thread, as `signal.signal` does."""
        if self._pid == 0:
            self._earlier = signal.signal(signal.SIGTERM, self._on_sigterm)
            self._pid = os.getpid()

    @property
    def installed(self) -> bool:
        return self._pid != 0

    @property
    def terminating(self) -> bool:
        """True after SIGTERM."""
        return self._deadline is not None

    @property
    def grace_left_s(self) -> float | None:
        """Seconds until SIGKILL is to be expected; None before SIGTERM."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # A forked child, such as a data loader's, inherited the handler. It has no loop that would look at the
            # flag, and whoever terminates it waits for it to die.
            signal.signal(number, signal.SIG_DFL if self._earlier is None else self._earlier)
            os.kill(os.getpid(), number)
        elif self._deadline is None:
            self._deadline = time.monotonic() + self._grace_s
            if callable(self._earlier):
                self._earlier(number, frame)
