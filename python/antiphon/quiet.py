"""Keeps this package's own errors out of the training loop. It hides none: the first is logged with its traceback."""

from __future__ import annotations

import logging
from types import TracebackType

log = logging.getLogger("antiphon")


class Quiet:
    """`with quiet:` swallows any Exception from the body; reusable and shared by threads."""

    def __init__(self) -> None:
        self.errors = 0

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        self.errors += 1
        if self.errors == 1:
            log.error(
                "antiphon: an internal error was kept out of the training loop; further ones are not logged",
                exc_info=error,
            )
        return True
