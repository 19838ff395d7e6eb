"""Which checkpoints stay, and the deleting of the others once the server has newer ones in its log.

Known are the checkpoints that the loop told of, over all attempts of the job, from an index beside them. What is not in
it, or does not lie in the checkpoint directory, is never deleted; without `keep` in the job file nothing is.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from . import seal
from .quiet import Quiet

log = logging.getLogger("antiphon")

VERSION = 1
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
    """What to keep: the newest, the best, and one of each of the last days. Deletes nothing itself."""

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


class Keeper:
    """The checkpoints of one job, as its rank 0 knows them. Filled by the loop, told of by the sender."""

    def __init__(self, job: str = "", directory: str | None = None, retention: Retention | None = None) -> None:
        self._retention = retention if directory else None
        self._directory = Path(directory or ".")
        self._index = self._directory / f"antiphon-checkpoints.{job}.json"
        self._quiet = Quiet()
        # Guards what the loop and the sender hand in, and is never held over a look at the disk. The other one guards
        # what is known and the files.
        self._lock = threading.Lock()
        self._at_work = threading.Lock()
        self._known: list[Saved] | None = None
        self._new: list[Saved] = []
        self._acknowledged: set[str] = set()
        self._spared: frozenset[Path] = frozenset()
        self._is_due = False
        self._thread: threading.Thread | None = None

    def saved(self, path: str, step: int, loss: float | None = None) -> None:
        """Takes in a checkpoint that is durable; `loss` is the held-out loss of its model, if it was measured."""
        if self._retention is not None:
            with self._lock:
                self._new.append(Saved(path, step, time.time(), loss))

    def acknowledged(self, paths: Iterable[str]) -> None:
        """The server has these in its log: lets go, beside the training, what they replace."""
        if self._retention is None:
            return
        with self._lock:
            self._acknowledged.update(paths)
            self._is_due = True
            if self._thread is None:
                # Deleting a large checkpoint takes seconds, in which signals go on.
                thread = threading.Thread(target=self._work, name="antiphon-keeper", daemon=True)
                thread.start()
                self._thread = thread

    def spare(self, paths: Iterable[str | Path]) -> None:
        """Never deletes these, in place of those named before: such as the one that is being loaded."""
        self._spared = frozenset(self._resolved(path) for path in paths)

    def prune(self) -> list[str]:
        """Deletes now what may go, and gives its paths. Raises OSError where something cannot be deleted."""
        if self._retention is None:
            return []
        with self._at_work:
            known = self._take_stock()
            gone: set[str] = set()
            try:
                for one in self._retention.to_delete(known, time.time()):
                    if self._may_go(one.path):
                        _delete(self._directory / one.path)
                        gone.add(one.path)
                        log.info("antiphon: checkpoint `%s` is deleted: newer ones are acknowledged", one.path)
            finally:
                self._known = [one for one in known if one.path not in gone]
                self._write(self._known)
            return sorted(gone)

    def settle(self, timeout_s: float | None = None) -> None:
        """Waits for what is being deleted."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._is_due:
                    self._thread = None
                    return
                self._is_due = False
            with self._quiet:
                self.prune()

    def _take_stock(self) -> list[Saved]:
        """What is known and still there, in the order of saving, with the acknowledgements that came."""
        known = self._read() if self._known is None else self._known
        with self._lock:
            new, self._new = self._new, []
            acknowledged = set(self._acknowledged)
        # A path that is written again is another checkpoint.
        again = {one.path for one in new}
        known = [one for one in known if one.path not in again] + new
        with self._lock:
            self._acknowledged -= {one.path for one in known}
        known = [replace(one, acknowledged=True) if one.path in acknowledged else one for one in known]
        return [one for one in known if (self._directory / one.path).exists()]

    def _may_go(self, path: str) -> bool:
        target = self._resolved(path)
        return target not in self._spared and self._directory.resolve() in target.parents

    def _resolved(self, path: str | Path) -> Path:
        return (self._directory / path).resolve()

    def _read(self) -> list[Saved]:
        try:
            index = json.loads(self._index.read_bytes())
            return [Saved(**entry) for entry in index["checkpoints"]] if index["version"] == VERSION else []
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("antiphon: `%s` cannot be read, older checkpoints stay: %s", self._index, error)
            return []

    def _write(self, known: list[Saved]) -> None:
        entries = [asdict(one) for one in known]
        seal.write_durably(self._index, json.dumps({"version": VERSION, "checkpoints": entries}, indent=1).encode())


def _delete(path: Path) -> None:
    if path.is_dir():
        # Without its manifest a directory is no checkpoint: nobody resumes from one that is half deleted.
        (path / seal.MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
