"""The thread that talks to the server: one kept-alive connection, one batch at a time. Decides nothing on directives.

A batch is encoded once and resent unchanged with its number until it is answered, so that the server can count it once.
"""

from __future__ import annotations

import http.client
import json
import logging
import math
import random
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from .ask import take_answers
from .device import Throttle
from .directive import Directive
from .environment import Endpoint, Environment
from .inbox import Inbox
from .outbox import Outbox, Parcel
from .quiet import Quiet
from .stacks import write as write_stacks
from .version import __version__

log = logging.getLogger("antiphon")

# A healthy server answers in milliseconds; one that takes this long is as good as away.
ANSWER_WAIT_S = 10.0
# Directives are small and few; more than this is not our server.
ANSWER_BYTES_MAX = 4 << 20
REPORT_EVERY_S = 1.0
REPORT_EVERY_S_MIN, REPORT_EVERY_S_MAX = 0.01, 60.0
# A task that receives no directives and has nothing to say is heard this often: a hung run is such.
LIVES_EVERY_S = 5.0
FAILURES_UNTIL_BACK_OFF = 3
BACK_OFF_S_MIN, BACK_OFF_S_MAX = 1.0, 60.0
RETRY_S = 0.1
# A refused token stays refused: the back-off starts at its longest.
FAILURES_OF_A_REFUSAL = FAILURES_UNTIL_BACK_OFF + 6


def back_off_s(failures: int, draw: Callable[[], float] = random.random) -> float:
    """Seconds to wait after so many failures in a row: short, then 1 s doubling to 60 s, halved at most by `draw`."""
    if failures < FAILURES_UNTIL_BACK_OFF:
        return RETRY_S
    longest = BACK_OFF_S_MIN * 2.0 ** min(failures - FAILURES_UNTIL_BACK_OFF, 16)
    # Jitter keeps the tasks of a large gang from coming back in one instant.
    return min(longest, BACK_OFF_S_MAX) * (0.5 + 0.5 * draw())


@dataclass(frozen=True)
class Batch:
    """An encoded batch, and what it carries in case the server refuses it."""

    body: bytes
    parcel: Parcel
    attaches: int  # Which attach it came after, or carries.


class Sender:
    """Sends what the outbox holds and hands to the inbox what comes back."""

    def __init__(self, environment: Environment, endpoint: Endpoint, outbox: Outbox, inbox: Inbox, step: int) -> None:
        self._endpoint = endpoint
        self._path = f"{urlsplit(endpoint.url).path}/v1/jobs/{quote(endpoint.job, safe='')}/signals"
        self._headers = {
            "Authorization": f"Bearer {endpoint.token}",
            "Content-Type": "application/json",
            "User-Agent": f"antiphon-python/{__version__}",
        }
        self._outbox = outbox
        self._inbox = inbox
        # One rank receives directives, or several would race to acknowledge them.
        self._receives = environment.rank == 0
        self._task = environment.rank
        self._attach_step = step
        self._boot = uuid.uuid4().hex
        self._seq = 0
        self._batch: Batch | None = None
        self._composed_at = time.monotonic()
        self._left_stacks = False
        self._quiet = Quiet()
        self._throttle = Throttle()
        self._connection: http.client.HTTPConnection | None = None
        self._report_every_s = REPORT_EVERY_S
        self._failures = 0
        # How often the loop began at a checkpoint, and of how many of these beginnings the server knows.
        self._attaches, self._attached = 1, 0
        self._superseded = False
        self._close_by: float | None = None
        # Told the paths of checkpoints that the server has in its log.
        self.on_acknowledged: Callable[[list[str]], None] | None = None
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="antiphon-sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Sends at once instead of with the next report; during a back-off it waits like the rest."""
        self._wake.set()

    def attach_again(self, step: int) -> None:
        """The loop went back to a checkpoint: the server is told anew which directives the model contains."""
        self._attach_step = step
        # An answer that is on its way is to a batch from before.
        self._attaches += 1
        self._wake.set()

    def close(self, timeout_s: float) -> None:
        """Sends what is left, for at most `timeout_s`, and ends the thread."""
        self._close_by = time.monotonic() + timeout_s
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._is_over():
            try:
                self._exchange()
            except Exception:
                # A bug of ours. Counting it as a failure keeps it from spinning.
                self._failures += 1
                with self._quiet:
                    raise
            self._pause()
        self._disconnect()

    def _is_over(self) -> bool:
        if self._superseded:
            return True
        if self._close_by is None:
            return False
        return time.monotonic() >= self._close_by or (self._batch is None and self._outbox.is_empty())

    def _pause(self) -> None:
        if self._closing.is_set():
            if self._failures:
                time.sleep(RETRY_S)
        elif self._failures:
            self._closing.wait(back_off_s(self._failures))
        elif not self._outbox.has_backlog():
            self._wake.wait(self._report_every_s)
            self._wake.clear()

    def _exchange(self) -> None:
        if self._batch is None:
            self._batch = self._compose()
        if self._batch is None:
            return
        try:
            status, body = self._post(self._batch.body)
        except (OSError, http.client.HTTPException) as error:
            self._disconnect()
            self._fail(f"{type(error).__name__}: {error}")
            return
        if status == 200:
            self._on_answer(body)
        elif status == 409:
            self._on_superseded()
        elif status in (401, 403):
            self._on_refused_token(status)
        elif 400 <= status < 500 and status not in (408, 429):
            # Sent again it would be refused again, and everything behind it would wait.
            self._outbox.refuse(self._batch.parcel)
            self._next_batch()
            self._fail(f"it refused a batch with status {status}: {body[:300]!r}")
        else:
            self._fail(f"it answered with status {status}")

    def _compose(self) -> Batch | None:
        parcel = self._outbox.take()
        now = time.monotonic()
        if parcel.is_empty() and not self._receives and now - self._composed_at < LIVES_EVERY_S:
            return None
        self._composed_at = now
        # Before the cursor: the loop moves that first.
        attaches = self._attaches
        cursor, done = self._inbox.position()
        fields: dict[str, Any] = {
            "attempt": self._endpoint.attempt,
            "boot": self._boot,
            "seq": self._seq,
            "cursor": cursor,
        }
        if self._receives and (self._attached < attaches or parcel.shards):
            fields["attach"] = {"step": self._attach_step, "done": done}
            if parcel.shards:
                fields["attach"]["shards"] = {name: self._plain(origin) for name, origin in parcel.shards.items()}
        fields["dropped"] = parcel.dropped
        fields["signals"] = [_mark(signal, self._plain(signal)) for signal in parcel.signals]
        if any("step_ms" in signal for signal in fields["signals"]) and self._throttle.is_on():
            for signal in fields["signals"]:
                if "step_ms" in signal:
                    signal["throttled"] = True
        fields["checkpoints"] = [self._plain(checkpoint) for checkpoint in parcel.checkpoints]
        fields["acks"] = parcel.acks
        if parcel.asks:
            fields["asks"] = [self._plain(ask.to_wire()) for ask in parcel.asks]
        return Batch(json.dumps(fields, separators=(",", ":"), allow_nan=False).encode(), parcel, attaches)

    def _plain(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        # Here and not in the loop, where reading a number back from a GPU would make it wait.
        plain = {}
        for name, value in fields.items():
            with self._quiet:
                plain[name] = plain_value(value)
        return plain

    def _post(self, body: bytes) -> tuple[int, bytes]:
        wait_s = ANSWER_WAIT_S
        if self._close_by is not None:
            wait_s = max(0.05, min(wait_s, self._close_by - time.monotonic()))
        was_open = self._connection is not None
        try:
            return self._post_once(body, wait_s)
        except (OSError, http.client.HTTPException) as error:
            # A server may close a connection that was idle; that is no failure. One that was slow is.
            if not was_open or isinstance(error, socket.timeout):
                raise
            self._disconnect()
            return self._post_once(body, wait_s)

    def _post_once(self, body: bytes, wait_s: float) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = _connection_to(self._endpoint.url, self._endpoint.ca)
        connection = self._connection
        connection.timeout = wait_s
        if connection.sock is not None:
            connection.sock.settimeout(wait_s)
        connection.request("POST", self._path, body, self._headers)
        response = connection.getresponse()
        answer = response.read(ANSWER_BYTES_MAX + 1)
        if len(answer) > ANSWER_BYTES_MAX:
            raise http.client.HTTPException(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
        return response.status, answer

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _on_answer(self, body: bytes) -> None:
        try:
            answer = json.loads(body)
            entries, every_ms = list(answer["directives"]), answer.get("report_every_ms")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            # Directives may have been in it. The batch goes out again, and the server counts it once.
            self._fail(f"its answer makes no sense: {body[:300]!r}")
            return
        if self._failures >= FAILURES_UNTIL_BACK_OFF:
            log.info("antiphon: the server answers again")
        self._failures = 0
        if self._batch is not None:
            self._attached = max(self._attached, self._batch.attaches)
            take_answers(self._batch.parcel.asks, answer.get("answers"))
            self._tell_acknowledged(self._batch.parcel)
        self._next_batch()
        self._leave_stacks(answer.get("stacks") is True)
        if isinstance(every_ms, (int, float)) and every_ms > 0:
            self._report_every_s = min(max(every_ms / 1000.0, REPORT_EVERY_S_MIN), REPORT_EVERY_S_MAX)
        for entry in entries if self._receives else ():
            # One entry that makes no sense must not take the others along.
            with self._quiet:
                self._inbox.receive(Directive.from_wire(entry))

    def _leave_stacks(self, wanted: bool) -> None:
        """Once for each time that the run stands still."""
        if wanted and not self._left_stacks:
            with self._quiet:
                write_stacks(self._task)
                self._outbox.signal({"task": self._task, "stacks": True})
                self._wake.set()
        self._left_stacks = wanted

    def _tell_acknowledged(self, parcel: Parcel) -> None:
        if parcel.checkpoints and self.on_acknowledged is not None:
            with self._quiet:
                self.on_acknowledged([checkpoint["path"] for checkpoint in parcel.checkpoints])

    def _on_superseded(self) -> None:
        log.warning(
            "antiphon: attempt %s.%d is superseded; nothing more is sent", self._endpoint.job, self._endpoint.attempt
        )
        self._superseded = True
        self._batch = None
        self._inbox.supersede()

    def _on_refused_token(self, status: int) -> None:
        if self._failures < FAILURES_OF_A_REFUSAL:
            log.warning(
                "antiphon: the server refuses the token of %s.%d (status %d); training goes on, signals are lost",
                self._endpoint.job,
                self._endpoint.attempt,
                status,
            )
        self._failures = FAILURES_OF_A_REFUSAL

    def _next_batch(self) -> None:
        self._batch = None
        self._seq += 1

    def _fail(self, why: str) -> None:
        self._failures += 1
        if self._failures == FAILURES_UNTIL_BACK_OFF:
            log.warning(
                "antiphon: the server at %s is of no use now: %s; training goes on, signals wait up to a limit",
                self._endpoint.url,
                why,
            )


def _mark(signal: Mapping[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """Says that a loss is no number. JSON cannot carry one: to the server it would look like none at all."""
    if signal.get("loss") is not None and plain.get("loss", 0) is None:
        plain["not_finite"] = True
    return plain


def plain_value(value: object) -> object:
    """A number as JSON can carry it: NaN and infinities become null, and arrays of one element their number."""
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain_value(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        if not all(isinstance(inner, str) for inner in value):
            raise TypeError(f"a signal carries numbers and names, not {type(value).__name__}")
        return list(value)
    number = value if isinstance(value, float) else value.item() if hasattr(value, "item") else float(value)  # type: ignore[arg-type]
    if isinstance(number, float):
        return float(number) if math.isfinite(number) else None
    return plain_value(number)


def _connection_to(url: str, ca: str | None) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    # http.client sets TCP_NODELAY: with Nagle's algorithm a request's second write would wait for a delayed answer.
    if parts.scheme != "https":
        return http.client.HTTPConnection(parts.hostname or "", parts.port)
    # Read anew for each connection: the file may have been replaced since the last one.
    context = ssl.create_default_context(cafile=ca)
    return http.client.HTTPSConnection(parts.hostname or "", parts.port, context=context)
