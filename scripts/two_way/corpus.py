"""Real text of four categories, as rows of tokens: what clean shards, probes and held-out rows are cut from.

All of it is on any machine that can run the experiment: the standard library's sources and docstrings, the language
reference that ships with it, and generated sums. The base model reads the docstrings of the installed training stack.
Nothing is downloaded, and which text is drawn follows from the seed.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import ast
import hashlib
import importlib.util
import platform
import random
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

CATEGORIES = ("code", "docstrings", "prose", "arithmetic")
BASE = "base"
VOCABULARY = 1024
ROW_TOKENS = 64
PROBE_ROWS = 8
HELD_OUT_ROWS = 64
CHARACTERS_MAX = 1_000_000
# Of the training stack: large, written by many, and in no category.
BASE_PACKAGES = ("torch", "transformers")

Rows = Any
"""An integer array of rows x 2 x tokens: inputs and targets, the same tokens where the data is sound."""


@dataclass(frozen=True)
class Corpus:
    """Rows by category, split so that no row serves two ends."""

    train: dict[str, Rows]
    probe: dict[str, Rows]
    held_out: dict[str, Rows]


def corpus(cache: Path, seed: int) -> Corpus:
    """The rows of every category; which of them are probes and which are held out follows from the seed."""
    rng = np.random.default_rng([seed, 0])
    train, probe, held_out = {}, {}, {}
    for category in CATEGORIES:
        rows = paired(tokens(cache)[category])
        rows = rows[rng.permutation(len(rows))]
        probe[category] = rows[:PROBE_ROWS]
        held_out[category] = rows[PROBE_ROWS : PROBE_ROWS + HELD_OUT_ROWS]
        train[category] = rows[PROBE_ROWS + HELD_OUT_ROWS :]
    return Corpus(train, probe, held_out)


def paired(inputs: Rows) -> Rows:
    """Rows whose targets are their own tokens."""
    return np.stack([inputs, inputs], axis=1)


def tokens(cache: Path) -> dict[str, Rows]:
    """Rows of tokens by category, and of the base; made once and kept under a name that says of which text."""
    path = kept_as(cache, "rows", "npz")
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        made = texts()
        tokenizer = trained(made)
        tokenizer.save(str(kept_as(cache, "vocabulary", "json")))
        new = path.with_suffix(".new.npz")
        np.savez(new, **{name: encoded(tokenizer, text) for name, text in made.items()})
        new.rename(path)
    with np.load(path) as kept:
        return {name: kept[name] for name in kept.files}


def kept_as(cache: Path, what: str, ending: str) -> Path:
    """Where something that follows from the text is kept: other versions have other text."""
    versions = [f"python-{platform.python_version()}", *(f"{name}-{version(name)}" for name in BASE_PACKAGES)]
    return cache / f"{what}-{'-'.join(versions)}.{ending}"


def texts() -> dict[str, str]:
    """The text of each category, and of the base."""
    library = sources(Path(sysconfig.get_path("stdlib")))
    code: list[str] = []
    docstrings: list[str] = []
    for tree in until_enough(library, docstrings):
        docstrings.extend(taken_docstrings(tree))
        if sum(map(len, code)) < CHARACTERS_MAX:
            code.append(ast.unparse(tree))
    base: list[str] = []
    for package in BASE_PACKAGES:
        for tree in until_enough(sources(folder_of(package)), base):
            base.extend(taken_docstrings(tree))
    parts = {"code": code, "docstrings": docstrings, BASE: base}
    joined = {name: "\n".join(part)[:CHARACTERS_MAX] for name, part in parts.items()}
    return {**joined, "prose": language_reference(), "arithmetic": sums()}


def trained(made: dict[str, str]) -> Any:
    """A byte-pair vocabulary trained on all texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator((text[:300_000] for text in made.values()), trainer)
    return tokenizer


def encoded(tokenizer: Any, text: str) -> Rows:
    """A text as rows; what does not fill the last one is left out."""
    ids = tokenizer.encode(text).ids
    return np.array(ids[: len(ids) // ROW_TOKENS * ROW_TOKENS], dtype=np.int32).reshape(-1, ROW_TOKENS)


def folder_of(package: str) -> Path:
    """Where an installed package lies."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"the base model reads the docstrings of `{package}`, and it is not installed")
    return Path(found.origin).parent


def until_enough(paths: Iterable[Path], taken: list[str]) -> Iterator[ast.Module]:
    """Modules, one after the other, until enough has been taken from them."""
    for path in paths:
        if sum(map(len, taken)) > CHARACTERS_MAX:
            return
        try:
            yield ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue  # Sources for other versions of the language.


def sources(folder: Path) -> Iterator[Path]:
    """Modules, without tests and generated ones, in an order that mixes subjects and is the same everywhere."""
    paths = [
        path
        for path in folder.rglob("*.py")
        if not {"test", "tests", "idlelib", "encodings", "site-packages", "dist-packages", "lib2to3", "pydoc_data"}
        & set(path.relative_to(folder).parts)
    ]
    yield from sorted(paths, key=lambda path: hashlib.sha256(str(path.relative_to(folder)).encode()).digest())


def taken_docstrings(tree: ast.Module) -> Iterator[str]:
    """The docstrings of a module, which it loses."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        text = ast.get_docstring(node)
        if text:
            yield text
            node.body = node.body[1:] or [ast.Pass()]


def language_reference() -> str:
    """The language reference as `help()` prints it."""
    from pydoc_data import topics

    return "\n".join(text for _, text in sorted(topics.topics.items()))


def sums(lines: int = 60_000, seed: int = 0) -> str:
    """Sums and differences of numbers up to three digits, all of them right."""
    rng = random.Random(seed)
    made = []
    for _ in range(lines):
        left, right = rng.randrange(1000), rng.randrange(1000)
        made.append(
            f"{left} + {right} = {left + right}" if rng.random() < 0.5 else f"{left} - {right} = {left - right}"
        )
    return "\n".join(made)
