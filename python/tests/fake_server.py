"""A small HTTP server that answers as scripted and keeps what it was sent. It knows the wire form, and no rules."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import _paths  # noqa: F401
from antiphon import Endpoint, Environment

Batch = dict[str, Any]


class FakeServer:
    """Answers each request with the next scripted action, then with `directives` for ever."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []  # every request that came in, also those that were not answered
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.connections: set[tuple[str, int]] = set()
        self.directives: list[dict[str, Any]] = []
        self.wants_stacks = False
        self.script: list[Callable[[Any], None]] = []
        self.released = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.paths.append(self.path)
                server.headers.append(dict(self.headers))
                server.connections.add(self.client_address)
                server.bodies.append(body)
                action = server.script.pop(0) if server.script else server.answer
                action(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def batches(self) -> list[Batch]:
        return [json.loads(body) for body in list(self.bodies)]

    def all_of(self, part: str) -> list[dict[str, Any]]:
        """The signals, checkpoints or acks of all batches, each batch counted once."""
        once = {(batch["boot"], batch["seq"]): batch for batch in self.batches}
        return [entry for batch in once.values() for entry in batch[part]]

    def environment(self, rank: int = 0) -> Environment:
        return Environment(endpoint=Endpoint(self.url, "job-42", 3, "secret"), rank=rank)

    def variables(self) -> dict[str, str]:
        return {
            "ANTIPHON_URL": self.url,
            "ANTIPHON_JOB": "job-42",
            "ANTIPHON_ATTEMPT": "job-42.3",
            "ANTIPHON_JOB_TOKEN": "secret",
        }

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        answer = {"directives": self.directives, "report_every_ms": 10, "stacks": self.wants_stacks}
        respond(handler, 200, json.dumps(answer).encode())

    def never(self, handler: BaseHTTPRequestHandler) -> None:
        """Keeps the request open until the test ends."""
        self.released.wait(10)
        handler.close_connection = True

    def close(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()


def respond(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def status(code: int, body: bytes = b"{}") -> Callable[[Any], None]:
    return lambda handler: respond(handler, code, body)


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Takes the batch and closes the connection without an answer."""
    handler.close_connection = True


@contextmanager
def fake_server() -> Iterator[FakeServer]:
    server = FakeServer()
    try:
        yield server
    finally:
        server.close()


def until(holds: Callable[[], object], what: str = "the condition", timeout_s: float = 5.0) -> None:
    """Polls until `holds`, or fails."""
    end = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true in {timeout_s} s")
        time.sleep(0.002)
