"""What antiphon tells a process it launched, read from `ANTIPHON_*` and `RANK`. Opens no connection, never raises."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .retention import Retention

log = logging.getLogger("antiphon")


@dataclass(frozen=True)
class Endpoint:
    """Where the signals of one attempt go, and what proves that they come from it."""

    url: str
    job: str
    attempt: int
    token: str = field(repr=False)
    # Whose word counts that it is the server: a file of certificates; without one the system's authorities.
    ca: str | None = None


@dataclass(frozen=True)
class Environment:
    """The environment of one process. ``endpoint`` is None when the process was not launched by antiphon."""

    endpoint: Endpoint | None = None
    checkpoint_dir: str | None = None
    resume_from: str | None = None
    rank: int = 0
    grace_s: float = 60.0
    keep: Retention | None = None

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> Environment:
        """Reads the variables; one that makes no sense is logged and leaves the process unattached."""
        variables = os.environ if variables is None else variables
        # A launcher sets RANK for each process it starts; where there is none, a task is one process.
        rank = variables.get("RANK") or variables.get("ANTIPHON_TASK_INDEX") or ""
        grace_ms = variables.get("ANTIPHON_GRACE_MS", "")
        return cls(
            endpoint=_endpoint(variables),
            checkpoint_dir=variables.get("ANTIPHON_CHECKPOINT_DIR") or None,
            resume_from=variables.get("ANTIPHON_RESUME_FROM") or None,
            rank=int(rank) if rank.isdecimal() else 0,
            grace_s=int(grace_ms) / 1000 if grace_ms.isdecimal() else 60.0,
            keep=_keep(variables.get("ANTIPHON_CHECKPOINT_KEEP", "")),
        )


def _keep(text: str) -> Retention | None:
    try:
        return Retention.read(text) if text else None
    except ValueError as error:
        log.warning("antiphon: no checkpoint is deleted: ANTIPHON_CHECKPOINT_KEEP: %s", error)
        return None


def _endpoint(variables: Mapping[str, str]) -> Endpoint | None:
    url = variables.get("ANTIPHON_URL", "")
    if not url:
        return None
    job = variables.get("ANTIPHON_JOB", "")
    token = variables.get("ANTIPHON_JOB_TOKEN", "")
    of_job, _, number = variables.get("ANTIPHON_ATTEMPT", "").rpartition(".")
    problem = None
    if not job or not token:
        problem = "ANTIPHON_URL is set, but ANTIPHON_JOB or ANTIPHON_JOB_TOKEN is not"
    elif of_job != job or not number.isdecimal():
        problem = f"ANTIPHON_ATTEMPT is not an attempt of `{job}`, such as `{job}.1`"
    elif not _is_http(url):
        problem = f"ANTIPHON_URL is `{url}`, not an http or https address"
    if problem is not None:
        log.warning("antiphon: this process is not attached: %s; training goes on without signals", problem)
        return None
    ca = variables.get("ANTIPHON_CA") or None
    return Endpoint(url=url.rstrip("/"), job=job, attempt=int(number), token=token, ca=ca)


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # Reading the port is what checks it.
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
