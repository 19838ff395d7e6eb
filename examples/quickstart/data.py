"""Four shards of text that every machine with Python has, and which row each slot takes. It never looks at the model.

A slot is one row of one batch, counted over the whole job. What slot k takes follows from the seed, k and the weights
in force at k, and from nothing else: a resumed job, or one with another batch size, draws the same rows.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SHARDS = ("noise", "stdlib_code", "stdlib_docs", "stdlib_docstrings")
SHARD_BYTES_MAX = 400_000

Weights = dict[str, float]


@dataclass(frozen=True)
class Plan:
    """Which weights hold from which slot on, oldest first; the first entry starts at slot 0."""

    entries: tuple[tuple[int, Weights], ...]

    def at(self, slot: int) -> Weights:
        """The weights in force at a slot."""
        return next(weights for start, weights in reversed(self.entries) if start <= slot)

    def then(self, slot: int, weights: Weights) -> Plan:
        """The plan with new weights from `slot` on."""
        return Plan((*(entry for entry in self.entries if entry[0] < slot), (slot, weights)))

    def to_json(self) -> list[dict[str, Any]]:
        return [{"from_slot": start, "weights": weights} for start, weights in self.entries]

    @classmethod
    def from_json(cls, entries: Iterable[Mapping[str, Any]]) -> Plan:
        """Raises ValueError when the entries are no plan for these shards."""
        try:
            plan = cls(tuple((int(e["from_slot"]), {s: float(e["weights"][s]) for s in SHARDS}) for e in entries))
        except (KeyError, TypeError) as error:
            raise ValueError(f"an entry lacks {error}") from error
        starts = [start for start, _ in plan.entries]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise ValueError("its slots do not start at 0 and rise")
        if any(min(weights.values()) < 0 or sum(weights.values()) <= 0 for _, weights in plan.entries):
            raise ValueError("an entry has a negative weight, or no shard to draw from")
        return plan


def even_plan() -> Plan:
    """All four shards alike: a quarter of what is trained on is noise, and nobody has noticed yet."""
    return Plan(((0, dict.fromkeys(SHARDS, 1.0)),))


@dataclass(frozen=True)
class Corpus:
    """The bytes of each shard."""

    shards: Mapping[str, Any]
    digest: str

    def rows(self, seed: int, plan: Plan, first_slot: int, count: int, length: int) -> tuple[list[str], Any]:
        """The shard and the `length` + 1 bytes of each of `count` slots."""
        names, rows = [], []
        for slot in range(first_slot, first_slot + count):
            name, place = draw(seed, slot, plan.at(slot))
            text = self.shards[name]
            start = place % (len(text) - length)
            names.append(name)
            rows.append(text[start : start + length + 1])
        return names, np.stack(rows).astype(np.int64)


def draw(seed: int, slot: int, weights: Weights) -> tuple[str, int]:
    """The shard of a slot and a large number that says where in it."""
    # A hash of (seed, slot) is a counter-based generator: no state to save, and the same on every machine and version.
    digest = hashlib.blake2b(f"{seed}/{slot}".encode(), digest_size=16).digest()
    point = int.from_bytes(digest[:8], "little") / 2**64 * sum(weights[name] for name in SHARDS)
    drawable = [name for name in SHARDS if weights[name] > 0]
    for name in drawable:
        if point < weights[name]:
            return name, int.from_bytes(digest[8:], "little")
        point -= weights[name]
    return drawable[-1], int.from_bytes(digest[8:], "little")


def load_corpus() -> Corpus:
    """Reads the shards; the same on every start of one Python installation."""
    code, docstrings = _library_texts()
    noise = hashlib.shake_256(b"noise").digest(SHARD_BYTES_MAX)
    texts = {
        "noise": noise,
        "stdlib_code": code,
        "stdlib_docs": _topics(),
        "stdlib_docstrings": docstrings,
    }
    digest = hashlib.sha256()
    for name in SHARDS:
        digest.update(hashlib.sha256(texts[name]).digest())
    return Corpus({name: np.frombuffer(texts[name], np.uint8) for name in SHARDS}, digest.hexdigest())


def _library_texts() -> tuple[bytes, bytes]:
    library = Path(sysconfig.get_paths()["stdlib"])
    code, docstrings = bytearray(), bytearray()
    for path in sorted(library.glob("*.py")):
        source = path.read_bytes()
        if len(code) < SHARD_BYTES_MAX:
            code += source
        if len(docstrings) < SHARD_BYTES_MAX:
            docstrings += _docstrings(source)
    return bytes(code[:SHARD_BYTES_MAX]), bytes(docstrings[:SHARD_BYTES_MAX])


def _docstrings(source: bytes) -> bytes:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    return "".join(f"{text}\n\n" for text in found if text).encode()


def _topics() -> bytes:
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics)).encode()[:SHARD_BYTES_MAX]
