"""Which directives wait, which are in the loop's hands, which are done. It sends nothing and knows no connection.

The cursor is the highest id up to which every directive is handled; `done` are the handled ids above it. Both go into
the checkpoint, so a rollback makes the server resend exactly what it undid.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .directive import COMPUTE, KNOWN, SAVED, Directive
from .version import __version__


@dataclass(frozen=True)
class Ready:
    """What one boundary yields: directives for the loop, and acknowledgements for those that never reach it."""

    directives: tuple[Directive, ...] = ()
    acks: tuple[dict[str, Any], ...] = ()


@dataclass
class Inbox:
    """The directives of one job. Every method may be called from the loop and from the sender."""

    accepts: frozenset[str] = frozenset()
    cursor: int = 0
    done: set[int] = field(default_factory=set)
    stirred: bool = False  # Read without the lock by every boundary: something waits, or the attempt is superseded.
    _waiting: dict[int, Directive] = field(default_factory=dict)
    _in_hand: dict[int, Directive] = field(default_factory=dict)
    _ran: set[int] = field(default_factory=set)  # Directives about processes that this process carried out.
    _is_superseded: bool = False
    _farewell: list[Directive] = field(default_factory=list)  # At most one: the yield of a superseded attempt.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def restored(cls, state: Mapping[str, Any] | None, accepts: Iterable[str] = ()) -> Inbox:
        """Takes up the state that a checkpoint kept."""
        inbox = cls(accepts=KNOWN | frozenset(accepts))
        if state:
            inbox.cursor = int(state["cursor"])
            inbox.done = {int(number) for number in state["done"]}
            inbox._close_gap()
        return inbox

    def state(self) -> dict[str, Any]:
        """The state to put into a checkpoint.

        A checkpoint, yield or stop in the loop's hands counts as handled: the checkpoint being written is what it asks
        for, and an attempt that resumes from it must not be asked again.
        """
        with self._lock:
            asked = {number for number, directive in self._in_hand.items() if directive.do in SAVED}
            then = Inbox(cursor=self.cursor, done=self.done | asked)
            then._close_gap()
            return {"cursor": then.cursor, "done": sorted(then.done)}

    def rewind(self, state: Mapping[str, Any]) -> None:
        """The loop went back to a checkpoint in this process: what it undid is asked for again, what ran stays done.

        A directive about processes, such as the rollback itself, is not undone by an older model.
        """
        with self._lock:
            ran = {number for number in self._ran if number > int(state["cursor"])}
            self.cursor, self.done = int(state["cursor"]), {int(number) for number in state["done"]} | ran
            self._waiting.clear()
            self._in_hand = {number: held for number, held in self._in_hand.items() if held.do in COMPUTE}
            self._close_gap()

    def position(self) -> tuple[int, list[int]]:
        """The cursor and the ids handled above it, as of now."""
        with self._lock:
            return self.cursor, sorted(self.done)

    def receive(self, directive: Directive) -> None:
        """Takes in a directive. One that is known already, in whatever state, changes nothing."""
        with self._lock:
            number = directive.id
            if number is not None and not self._is_superseded and not self._knows(number):
                self._waiting[number] = directive
                self.stirred = True

    def supersede(self) -> None:
        """The attempt was replaced: what waits is void, and the loop is told once to save and go."""
        with self._lock:
            if not self._is_superseded:
                self._is_superseded = True
                self._waiting.clear()
                self._farewell.append(Directive(id=None, do="yield", reason="superseded"))
                self.stirred = True

    def ready(self, slot: int, now_ms: int) -> Ready:
        """Takes out what may be carried out at `slot`, in id order.

        A fence ahead holds back later data directives, whose order matters, but no later checkpoint, yield or stop.
        """
        directives: list[Directive] = []
        acks: list[dict[str, Any]] = []
        with self._lock:
            fenced = False
            for number in sorted(self._waiting):
                directive = self._waiting[number]
                is_compute = directive.do in COMPUTE
                refusal = self._refusal(directive)
                if directive.expires_ms is not None and directive.expires_ms <= now_ms:
                    acks.append({"directive": number, "expired": {}})
                elif refusal is not None:
                    acks.append({"directive": number, "rejected": {"reason": refusal}})
                elif fenced and not is_compute:
                    continue
                elif directive.not_before_slot is not None and directive.not_before_slot > slot:
                    fenced = fenced or not is_compute
                    continue
                else:
                    directives.append(directive)
                    self._in_hand[number] = directive
                del self._waiting[number]
            for ack in acks:
                self._mark(ack["directive"])
            directives += self._farewell
            self._farewell.clear()
            self.stirred = bool(self._waiting)
        return Ready(tuple(directives), tuple(acks))

    def handle(self, directive: Directive) -> bool:
        """Marks a directive as handled. False: it is not in the loop's hands, so there is nothing to acknowledge."""
        with self._lock:
            if directive.id is None or self._in_hand.pop(directive.id, None) is None:
                return False
            if directive.do in COMPUTE:
                self._ran.add(directive.id)
            self._mark(directive.id)
            return True

    def mirror(self, cursor: int, done: Iterable[int], directives: Iterable[Directive]) -> None:
        """Makes a rank that receives nothing itself stand where rank 0 stands."""
        with self._lock:
            self.cursor, self.done = cursor, set(done)
            self._in_hand.update({directive.id: directive for directive in directives if directive.id is not None})
            for number in [number for number in self._in_hand if number <= cursor or number in self.done]:
                del self._in_hand[number]

    def _refusal(self, directive: Directive) -> str | None:
        if directive.do not in self.accepts:
            return (
                f"`{directive.do}` is unknown to this loop and to version {__version__} of the Python package antiphon"
            )
        return directive.defect()

    def _knows(self, number: int) -> bool:
        return number <= self.cursor or number in self.done or number in self._waiting or number in self._in_hand

    def _mark(self, number: int) -> None:
        self.done.add(number)
        self._close_gap()

    def _close_gap(self) -> None:
        while self.cursor + 1 in self.done:
            self.cursor += 1
        self.done = {number for number in self.done if number > self.cursor}
