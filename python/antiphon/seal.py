"""Makes a directory of files a checkpoint: synced, its state beside it, and real once its manifest is. Uses no PyTorch.

A crash at any point leaves at most a directory without manifest, which does not exist as a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = 1
STATE = "antiphon.json"
MANIFEST = "antiphon-manifest.json"
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Sealed:
    """A checkpoint that is durable."""

    path: Path
    bytes: int
    manifest: str


def seal(path: Path, state: Mapping[str, Any]) -> Sealed:
    """Writes the state beside the files of a checkpoint, syncs all, and writes the manifest last. Raises OSError."""
    write_durably(path / STATE, json.dumps(state).encode())
    files: dict[str, dict[str, Any]] = {}
    for file in sorted(_files(path)):
        files[str(file.relative_to(path))] = {"bytes": file.stat().st_size, "sha256": _sync_and_digest(file)}
    for directory in {file.parent for file in _files(path)}:
        _sync_directory(directory)
    # After a rollback a lower step is the newer checkpoint, so the order of saving is kept as a number of its own.
    serial = 1 + max(
        (_manifest(other).get("serial", 0) for other in path.parent.iterdir() if other.is_dir()), default=0
    )
    manifest = json.dumps(
        {"version": VERSION, "serial": serial, "step": state.get("step", 0), "files": files}, indent=1
    ).encode()
    write_durably(path / MANIFEST, manifest)
    _sync_directory(path.parent)
    return Sealed(
        path=path,
        bytes=sum(int(entry["bytes"]) for entry in files.values()),
        manifest=f"sha256:{hashlib.sha256(manifest).hexdigest()}",
    )


def newest(directory: Path, named: Path | None = None, step_max: int | None = None) -> Path | None:
    """The checkpoint that is named, if it is whole, else the one saved last that is; of `step_max` or before."""
    found = [path for path in directory.iterdir() if path.is_dir()] if directory.is_dir() else []
    by_age = sorted((path for path in found if serial_of(path)), key=serial_of)
    for path in [*([named] if named is not None else []), *reversed(by_age)]:
        manifest = _manifest(path)
        if manifest and (step_max is None or int(manifest.get("step", 0)) <= step_max) and is_whole(path):
            return path
    return None


def is_whole(path: Path, thorough: bool = False) -> bool:
    """Whether every file is there with its length; `thorough` reads them too."""
    files = _manifest(path).get("files", {})
    try:
        return bool(files) and all(
            (path / name).stat().st_size == entry["bytes"]
            and (not thorough or _sync_and_digest(path / name) == entry["sha256"])
            for name, entry in files.items()
        )
    except OSError:
        return False


def serial_of(path: Path) -> int:
    """The order of saving; 0 where there is no manifest."""
    return int(_manifest(path).get("serial", 0))


def state_of(path: Path) -> dict[str, Any]:
    """What `seal` was given. Raises OSError or ValueError."""
    state: dict[str, Any] = json.loads((path / STATE).read_bytes())
    return state


def write_durably(path: Path, content: bytes) -> None:
    """Replaces a file so that a crash leaves the old content or the new."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(aside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    _sync_directory(path.parent)


def _files(path: Path) -> Iterator[Path]:
    return (file for file in path.rglob("*") if file.is_file() and file.name != MANIFEST)


def _manifest(path: Path) -> dict[str, Any]:
    """The manifest, or nothing where there is none that this version reads."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        return manifest if isinstance(manifest, dict) and manifest.get("version") == VERSION else {}
    except (OSError, ValueError):
        return {}


def _sync_and_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
