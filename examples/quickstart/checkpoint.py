"""Durable checkpoints: written aside, synced, renamed, and real once their manifest is. Knows not what it stores.

A crash at any point leaves the older checkpoints whole, and at most a directory without manifest, which does not exist.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

VERSION = 1
KEEP = 3
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is durable."""

    path: Path
    step: int
    bytes: int
    save_ms: float
    manifest: str


@dataclass(frozen=True)
class Loaded:
    """A checkpoint as it was saved."""

    path: Path
    arrays: dict[str, Any]
    state: dict[str, Any]


def save(directory: Path, step: int, arrays: Mapping[str, Any], state: Mapping[str, Any]) -> Saved:
    """Writes a checkpoint and removes the oldest beyond three. Raises OSError; the earlier ones are untouched then."""
    start = time.monotonic()
    final = directory / f"step-{step}"
    aside = directory / f".step-{step}.{os.getpid()}"
    directory.mkdir(parents=True, exist_ok=True)
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        with open(aside / "arrays.npz", "wb") as file:
            np.savez(file, **dict(arrays))
            _sync(file)
        with open(aside / "state.json", "w", encoding="utf-8") as file:
            json.dump(state, file)
            _sync(file)
        files: dict[str, dict[str, Any]] = {
            path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(aside.iterdir())
        }
        # After a rollback a lower step is the newer checkpoint, so the order of saving is kept as a number of its own.
        serial = 1 + max((_serial(path) for path in directory.glob("step-*")), default=0)
        manifest = json.dumps({"version": VERSION, "serial": serial, "step": step, "files": files}, indent=1).encode()
        _sync_directory(aside)
        # What may stand there is a half of an earlier attempt, or the same step saved before a rollback.
        shutil.rmtree(final, ignore_errors=True)
        aside.rename(final)
        write_durably(final / MANIFEST, manifest)
        _sync_directory(directory)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    for old in [*_newest_first(directory)[KEEP:], *directory.glob(".step-*")]:
        shutil.rmtree(old, ignore_errors=True)
    return Saved(
        path=final,
        step=step,
        bytes=sum(entry["bytes"] for entry in files.values()),
        save_ms=(time.monotonic() - start) * 1000,
        manifest=f"sha256:{hashlib.sha256(manifest).hexdigest()}",
    )


def load_newest(directory: Path, preferred: Path | None = None) -> tuple[Loaded | None, list[str]]:
    """The preferred checkpoint if it is valid, else the newest that is; and, in words, why others were passed over."""
    passed_over: list[str] = []
    for path in [*([preferred] if preferred is not None else []), *_newest_first(directory)]:
        try:
            return load(path), passed_over
        except (OSError, ValueError, KeyError, TypeError) as error:
            passed_over.append(f"`{path}`: {error}")
    return None, passed_over


def load(path: Path) -> Loaded:
    """Reads a checkpoint. Raises OSError or ValueError when it does not exist or is not what was saved."""
    manifest = json.loads((path / MANIFEST).read_bytes())
    if manifest["version"] != VERSION:
        raise ValueError(f"it has version {manifest['version']}, and this program reads version {VERSION}")
    for name, entry in manifest["files"].items():
        if _sha256(path / name) != entry["sha256"]:
            raise ValueError(f"`{name}` is not what was saved: its sha256 differs from the manifest's")
    with np.load(path / "arrays.npz", allow_pickle=False) as arrays:
        return Loaded(
            path=path,
            arrays={name: arrays[name] for name in arrays.files},
            state=json.loads((path / "state.json").read_bytes()),
        )


def write_durably(path: Path, content: bytes) -> None:
    """Replaces a file so that a crash leaves the old content or the new."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(aside, "wb") as file:
        file.write(content)
        _sync(file)
    aside.rename(path)
    _sync_directory(path.parent)


def _newest_first(directory: Path) -> list[Path]:
    with_manifest = [path for path in directory.glob("step-*") if (path / MANIFEST).exists()]
    return sorted(with_manifest, key=_serial, reverse=True)


def _serial(path: Path) -> int:
    """When it was saved, as a number that rises; 0 where no manifest says so."""
    try:
        return int(json.loads((path / MANIFEST).read_bytes())["serial"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
