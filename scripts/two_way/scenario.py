"""What a stream consists of: clean shards of skewed sizes, and bad shards of several kinds at a given share of it.

Sizes are those of a data set that was collected without looking: the largest category has more than half of the clean
part. Every bad shard claims to be of some category, as in life.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from corpus import CATEGORIES, VOCABULARY, Corpus, Rows, paired

ROWS = 12_000
# Parts of the clean data; with 35 % of bad data the shares of the stream are 35, 10, 10 and 10 %.
CLEAN = {"code": 7, "docstrings": 2, "prose": 2, "arithmetic": 2}
REPEATED_ROWS = 8
STARVING_ROWS = 24
# The kinds that the rule was written with; the others were measured after it was frozen.
KNOWN_KINDS = ("noise", "duplicates")


@dataclass(frozen=True)
class Stream:
    """Shards with what they claim to be, and their share of the whole."""

    rows: dict[str, Rows]
    category: dict[str, str]
    share: dict[str, float]
    bad: frozenset[str]

    @property
    def clean(self) -> list[str]:
        """The shards that are what they claim to be."""
        return [shard for shard in self.rows if shard not in self.bad]


@dataclass(frozen=True)
class Scenario:
    """Kinds of bad data, and how much of each, in thousandths of the stream."""

    bad: tuple[tuple[str, int], ...] = ()
    #: The category that has only `STARVING_ROWS` rows, however often they are drawn.
    starving: str = ""

    @property
    def name(self) -> str:
        """As in file names and on the command line: `noise-250+duplicates-100`."""
        if self.starving:
            return f"starving-{self.starving}"
        return "+".join(f"{kind}-{permille}" for kind, permille in self.bad) or "clean"

    @property
    def bad_share(self) -> float:
        """The bad part of the stream."""
        return sum(permille for _, permille in self.bad) / 1000

    @classmethod
    def of(cls, name: str) -> Scenario:
        """Reads a name."""
        if name == "clean":
            return cls()
        if name.removeprefix("starving-") in CATEGORIES:
            return cls(starving=name.removeprefix("starving-"))
        parts = [re.fullmatch(r"([a-z-]+)-(\d+)", part) for part in name.split("+")]
        bad = tuple((part[1], int(part[2])) for part in parts if part is not None)
        unknown = [kind for kind, _ in bad if kind not in KINDS]
        if len(bad) != len(parts) or unknown:
            raise SystemExit(f"`{name}` is no scenario: KIND-PERMILLE joined by `+`, KIND one of {', '.join(KINDS)}")
        return cls(bad)

    def stream(self, text: Corpus, seed: int) -> Stream:
        """The shards, made of the training rows of a corpus."""
        rows, category, share = {}, {}, {}
        for name in CATEGORIES:
            share[name] = (1 - self.bad_share) * CLEAN[name] / sum(CLEAN.values())
            category[name] = name
            rows[name] = text.train[name][: STARVING_ROWS if name == self.starving else count(share[name])]
        for kind, permille in self.bad:
            shard = f"{kind}-1"
            claims, make = KINDS[kind]
            rng = np.random.default_rng([seed, zlib.crc32(kind.encode())])
            share[shard] = permille / 1000
            category[shard] = claims
            rows[shard] = make(text.train, claims, count(share[shard]), rng)
        return Stream(rows, category, share, frozenset(rows) - frozenset(CATEGORIES))


def count(share: float) -> int:
    """Rows of a shard with this share of the stream."""
    return max(REPEATED_ROWS, round(share * ROWS))


Text = dict[str, Rows]


def some(rows: Rows, size: int, rng: np.random.Generator) -> Rows:
    """Rows from the far end, which clean shards reach last, with repetition where there are too few."""
    picked = np.arange(size) % len(rows)
    return rows[::-1][picked][rng.permutation(size)]


def noise(text: Text, claims: str, size: int, rng: np.random.Generator) -> Rows:
    """Tokens drawn alike from the whole vocabulary."""
    return paired(rng.integers(0, VOCABULARY, (size, text[claims].shape[-1]), dtype=np.int32))


def duplicates(text: Text, claims: str, size: int, rng: np.random.Generator) -> Rows:
    """Eight rows, again and again."""
    rows = some(text[claims], REPEATED_ROWS, rng)
    return rows[np.arange(size) % REPEATED_ROWS]


def near_duplicates(text: Text, claims: str, size: int, rng: np.random.Generator) -> Rows:
    """Eight rows, again and again, each time with 3 of 64 tokens changed: no two alike, so counting finds nothing."""
    return paired(replaced(duplicates(text, claims, size, rng)[:, 0], 0.05, rng))


def corruption(text: Text, claims: str, size: int, rng: np.random.Generator) -> Rows:
    """Text in which each row has lost 15 to 30 % of its tokens to random ones."""
    return paired(replaced(some(text[claims], size, rng)[:, 0], rng.uniform(0.15, 0.30, (size, 1)), rng))


def wrong_answers(text: Text, claims: str, size: int, rng: np.random.Generator) -> Rows:
    """Inputs with the targets of other rows: labels that were shuffled."""
    rows = some(text[claims], size, rng)
    return np.stack([rows[:, 0], np.roll(rows[:, 1], 1, axis=0)], axis=1)


def misfiled(text: Text, claims: str, size: int, rng: np.random.Generator) -> Rows:
    """Sound text of another category under this one's name."""
    return some(text["prose" if claims != "prose" else "code"], size, rng)


def wrong_language(text: Text, claims: str, size: int, rng: np.random.Generator) -> Rows:
    """Text in a language that no probe speaks: each token stands for another one, always the same."""
    cipher = rng.permutation(VOCABULARY).astype(np.int32)
    return paired(cipher[some(text[claims], size, rng)[:, 0]])


def replaced(inputs: Rows, rate: Any, rng: np.random.Generator) -> Rows:
    """The same rows with a part of their tokens random."""
    hit = rng.random(inputs.shape) < rate
    return np.where(hit, rng.integers(0, VOCABULARY, inputs.shape, dtype=np.int32), inputs)


KINDS: dict[str, tuple[str, Callable[[Text, str, int, np.random.Generator], Rows]]] = {
    "noise": ("code", noise),
    "duplicates": ("docstrings", duplicates),
    "near-duplicates": ("docstrings", near_duplicates),
    "corruption": ("prose", corruption),
    "wrong-answers": ("docstrings", wrong_answers),
    "misfiled": ("arithmetic", misfiled),
    "wrong-language": ("prose", wrong_language),
}
"""By name: the category that a bad shard claims to be of, and how its rows are made."""


@dataclass(frozen=True)
class Setting:
    """What one run is."""

    scenario: str
    arm: str
    seed: int
    steps: int
    cache: str
    out: str
