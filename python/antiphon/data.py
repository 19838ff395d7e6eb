"""A mix of shards that directives can change while it is drawn from, and that any number of ranks draws alike.

A *slot* is one row of one batch, counted over the whole job and all ranks. Which row slot k holds follows from the
seed, k and the plan (the weights in force from which slot on), and from nothing else: not from the number of ranks, the
batch size or the loader's workers. So the whole state of the data is one number and the plan, a resumed or resized job
draws the rows that it would have drawn, and a directive holds from one slot on, on every rank.

It needs neither PyTorch nor NumPy; `antiphon.torch_data` has its forms for a PyTorch data loader.
"""

from __future__ import annotations

import bisect
import difflib
import hashlib
import itertools
import json
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Union

from .directive import DATA, Directive
from .job import Job

# Rows by number: a sequence of known length, or a function that makes row n of an endless shard.
Rows = Union[Sequence[Any], Callable[[int], Any]]
Loader = Callable[[str], Sequence[Any]]
Weights = Mapping[str, float]

_TWO_TO_64 = 1 << 64
_TWO_NUMBERS = struct.Struct("<QQ")


class Refused(ValueError):
    """A directive about data that cannot be carried out; its text says why."""


class Draw(NamedTuple):
    """What one slot holds: a row of a shard, and of which of its files if it was added during the job."""

    slot: int
    shard: str
    row: int
    path: str | None = None


class Sample(NamedTuple):
    """A slot and its row."""

    slot: int
    shard: str
    row: Any


# A tuple's own constructor: a named one's checks arguments that are right here, at half of the cost of a draw.
_new_draw: Callable[[tuple[int, str, int, str | None]], Draw] = partial(tuple.__new__, Draw)
_new_sample: Callable[[tuple[int, str, Any]], Sample] = partial(tuple.__new__, Sample)


@dataclass(frozen=True)
class _Mix:
    """The weights in force from a slot on; a paused shard has none."""

    from_slot: int
    weights: dict[str, float]
    names: tuple[str, ...] = field(init=False)
    bounds: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        drawable = [(name, weight) for name, weight in self.weights.items() if weight > 0]
        object.__setattr__(self, "names", tuple(name for name, _ in drawable))
        object.__setattr__(self, "bounds", tuple(itertools.accumulate(weight for _, weight in drawable)))

    def at(self, point: float) -> str:
        """The shard at a point of 0..1."""
        return self.names[bisect.bisect_right(self.bounds, point * self.bounds[-1], 0, len(self.names) - 1)]


@dataclass(frozen=True)
class _Part:
    """Rows of a shard that may be drawn from a slot on."""

    from_slot: int
    rows: Rows
    path: str | None = None
    count: int | None = field(init=False)  # None: it is endless.

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", _count(self.rows))

    def at(self, number: int) -> Any:
        """A row by number."""
        return self.rows(number) if callable(self.rows) else self.rows[number]


def read_samples(path: str) -> Sequence[Any]:
    """Reads a file of samples by its ending: ``.jsonl`` one value a line, ``.npy`` an array, else one text a line.

    Raises OSError or ValueError. Empty lines are no samples.
    """
    if path.endswith(".npy"):
        import numpy

        array: Sequence[Any] = numpy.load(path, mmap_mode="r", allow_pickle=False)
        return array
    lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    return [json.loads(line) for line in lines] if path.endswith(".jsonl") else lines


class MixedStream:
    """Draws rows of several shards by weight; see the module's text for what a slot is.

    `weights` are relative; a shard without one gets 1. `categories` says what each shard serves, `origins` where it
    came from (`source`, `chunk`, `generator`, `temperature`, `parents`, `code`). `loader` reads the file that an
    ``add_samples`` names; without it `read_samples` does. With `stratify` every shard that has any weight gets at least
    one slot in each run of so many slots, the shares stay what the weights say, and each run has news of each shard.
    """

    def __init__(
        self,
        shards: Mapping[str, Rows],
        weights: Weights | None = None,
        seed: int = 0,
        *,
        categories: Mapping[str, str] | None = None,
        origins: Mapping[str, Mapping[str, Any]] | None = None,
        loader: Loader = read_samples,
        stratify: int = 0,
    ) -> None:
        unknown = [name for name in {**(weights or {}), **(categories or {}), **(origins or {})} if name not in shards]
        if unknown:
            raise ValueError(_no_shard(unknown[0], shards))
        empty = [name for name, rows in shards.items() if _count(rows) == 0]
        if empty:
            raise ValueError(f"shard `{empty[0]}` has no rows")
        if stratify and stratify < len(shards):
            raise ValueError(f"{len(shards)} shards cannot each have one of {stratify} slots: raise `stratify`")
        self.seed = seed
        self.slot = 0  # The first slot that was not yet drawn.
        self._loader = loader
        self._stratify = stratify
        self._parts = {name: [_Part(0, rows)] for name, rows in shards.items()}
        self._categories = dict(categories or {})
        self._origins = {name: dict(origin) for name, origin in (origins or {}).items()}
        self._weights = {name: float((weights or {}).get(name, 1.0)) for name in shards}
        self._weights_first = dict(self._weights)
        self._paused: set[str] = set()
        self._added: list[dict[str, Any]] = []
        self._plan = [_Mix(0, self._in_force())]
        self._known: tuple[tuple[str, dict[str, Any]], ...] | None = None  # Until something changes.
        self._hash = hashlib.blake2b(f"{seed}/".encode(), digest_size=16)
        # A loader's thread may draw while the loop carries out a directive.
        self._lock = threading.RLock()

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards in the order of their numbers: as given, then as added."""
        return tuple(self._parts)

    def number(self, shard: str) -> int:
        """The number of a shard: what stands for its name in a tensor."""
        return self.shards.index(shard)

    def draw(self, slot: int) -> Draw:
        """What a slot holds."""
        return self._drawn((slot,))[0]

    def draws(self, slot: int, count: int, rank: int = 0, world: int = 1, shares: Sequence[float] = ()) -> list[Draw]:
        """What one rank gets of the `count` slots from `slot` on: a contiguous part; `shares` as in `part_of`."""
        with self._lock:
            first, last = part_of(count, rank, world, shares)
            self.slot = max(self.slot, slot + count)
            return self._drawn(range(slot + first, slot + last))

    def rows(self, slot: int, count: int, rank: int = 0, world: int = 1, shares: Sequence[float] = ()) -> list[Sample]:
        """The rows that one rank gets of the `count` slots from `slot` on."""
        return self.samples(self.draws(slot, count, rank, world, shares))

    def samples(self, draws: Iterable[Draw]) -> list[Sample]:
        """What the slots that were drawn hold."""
        samples = []
        for draw in draws:
            parts = self._parts.get(draw.shard, ())
            part = parts[0] if len(parts) == 1 and parts[0].path == draw.path else self._part(draw)
            samples.append(_new_sample((draw.slot, draw.shard, part.at(draw.row))))
        return samples

    def row(self, draw: Draw) -> Any:
        """The row that a slot holds."""
        return self._part(draw).at(draw.row)

    def __iter__(self) -> Iterator[Sample]:
        """Row after row from the current slot on, without end, of all ranks together."""
        while True:
            yield self.rows(self.slot, 1)[0]

    def apply(self, directive: Directive, slot: int) -> int:
        """Carries out a directive about data, and gives the first slot that it shapes.

        That is `slot`, the first one that the loop has not consumed, unless later ones are drawn already: a data loader
        works ahead, and what it holds is not drawn again. Raises `Refused`, or what the loader raises.
        """
        defect = directive.defect()
        if defect is not None:
            raise Refused(defect)
        with self._lock:
            slot = max(slot, self.slot)
            if directive.do == "set_weights":
                self._change(slot, directive.weights, self._paused)
            elif directive.do == "pause_shard":
                self._change(slot, {directive.shard: None}, self._paused | {directive.shard})
            elif directive.do == "resume_shard":
                self._change(slot, {directive.shard: None}, self._paused - {directive.shard})
            elif directive.do == "add_samples":
                self._add(slot, directive)
            else:
                raise Refused(f"`{directive.do}` is no directive about data")
            return slot

    def carry_out(self, job: Job, directive: Directive, slot: int) -> bool:
        """Carries out a directive about data and acknowledges it. False: it is about something else, and untouched."""
        if directive.do not in DATA:
            return False
        try:
            effective = self.apply(directive, slot)
        except Refused as refusal:
            job.rejected(directive, str(refusal))
        except Exception as error:
            job.failed(directive, f"{type(error).__name__}: {error}")
        else:
            job.applied(directive, effective)
        return True

    def facts(self, shard: str) -> dict[str, Any]:
        """What a signal says of a shard besides its loss."""
        facts: dict[str, Any] = {"weight": self._plan[-1].weights.get(shard, 0.0)}
        category = self._categories.get(shard)
        if category is not None:
            facts["category"] = category
        samples = 0
        for part in self._parts[shard]:
            if part.count is None:
                return facts
            samples += part.count
        facts["unique_samples"] = samples
        return facts

    @property
    def known(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """The shards by number, each with its facts. It stays as it is when the mix changes."""
        if self._known is None:
            with self._lock:
                self._known = tuple((shard, self.facts(shard)) for shard in self.shards)
        return self._known

    def report(self, job: Job, step: int) -> None:
        """Reports every shard's weight, distinct samples and category."""
        for shard in self.shards:
            job.signal(step, shard=shard, **self.facts(shard))

    def origins(self) -> dict[str, dict[str, Any]]:
        """Where each shard came from, for `antiphon.attach(shards=...)`."""
        origins: dict[str, dict[str, Any]] = {}
        for shard in self.shards:
            facts = self.facts(shard)
            known = {
                "category": facts.get("category"),
                "samples": facts.get("unique_samples"),
                # What an undo of the first directive about the shard goes back to.
                "weight": self._weights_first.get(shard),
            }
            origins[shard] = {**{k: v for k, v in known.items() if v is not None}, **self._origins.get(shard, {})}
        return origins

    def state_dict(self, slot: int | None = None) -> dict[str, Any]:
        """Everything that a checkpoint must keep, as JSON can carry it.

        `slot` is the first slot that the saved model has not consumed, where a data loader has drawn further ones.
        """
        with self._lock:
            return {
                "seed": self.seed,
                "slot": self.slot if slot is None else slot,
                "plan": [{"from_slot": mix.from_slot, "weights": dict(mix.weights)} for mix in self._plan],
                "weights": dict(self._weights),
                "paused": sorted(self._paused),
                "added": [dict(added) for added in self._added],
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes up what `state_dict` gave. Raises ValueError for another mix, or what `loader` raises."""
        with self._lock:
            if state["seed"] != self.seed:
                raise ValueError(f"the checkpoint was drawn with seed {state['seed']}, and this stream has {self.seed}")
            parts = {name: [part for part in parts if part.path is None] for name, parts in self._parts.items()}
            parts = {name: kept for name, kept in parts.items() if kept}
            categories = {name: of for name, of in self._categories.items() if name in parts}
            for added in state["added"]:
                parts.setdefault(added["shard"], []).append(
                    _Part(added["from_slot"], self._loaded(added["path"]), added["path"])
                )
                categories.setdefault(added["shard"], added["category"])
            if sorted(state["weights"]) != sorted(parts):
                differing = sorted(set(state["weights"]) ^ set(parts))
                raise ValueError(f"the checkpoint was drawn from other shards: {', '.join(differing)}")
            self._parts, self._categories = parts, categories
            self._weights = {name: float(state["weights"][name]) for name in parts}
            self._paused = set(state["paused"])
            self._added = [dict(added) for added in state["added"]]
            self._plan = [_Mix(int(mix["from_slot"]), dict(mix["weights"])) for mix in state["plan"]]
            self.slot = int(state["slot"])
            self._known = None

    def _drawn(self, slots: Iterable[int]) -> list[Draw]:
        drawn = []
        # This is done for every row, so what is the same for nearly all of them is looked up once.
        mix, hash_of, unpack, parts_of = self._plan[-1], self._hash.copy, _TWO_NUMBERS.unpack, self._parts
        names, bounds, last, total = mix.names, mix.bounds, len(mix.names) - 1, mix.bounds[-1]
        for slot in slots:
            # A hash of (seed, slot) is a counter-based generator: it has no state, and is the same on every machine.
            hashed = hash_of()
            hashed.update(b"%d" % slot)
            place, number = unpack(hashed.digest())
            point = place / _TWO_TO_64
            if slot < mix.from_slot or self._stratify:
                shard = self._shard_at(slot, point)
            else:
                shard = names[bisect.bisect_right(bounds, point * total, 0, last)]
            parts = parts_of[shard]
            if len(parts) == 1:
                part = parts[0]
                drawn.append(_new_draw((slot, shard, number % part.count if part.count else number, part.path)))
            else:
                drawn.append(_of_parts(parts, Draw(slot, shard, number)))
        return drawn

    def _shard_at(self, slot: int, point: float) -> str:
        mix = next(mix for mix in reversed(self._plan) if mix.from_slot <= slot)
        return self._stratified(mix, slot, point) if self._stratify else mix.at(point)

    def _change(self, slot: int, weights: Mapping[str, float | None], paused: set[str]) -> None:
        unknown = [name for name in weights if name not in self._parts]
        if unknown:
            raise Refused(_no_shard(unknown[0], self._parts))
        then = {**self._weights, **{name: weight for name, weight in weights.items() if weight is not None}}
        self._enter(slot, then, set(paused))

    def _enter(self, slot: int, weights: dict[str, float], paused: set[str]) -> None:
        """Puts a new mix into the plan, or refuses it and changes nothing."""
        in_force = _in_force(weights, paused)
        if not sum(in_force.values()) > 0:
            raise Refused("no shard would be left to draw from")
        self._weights, self._paused = weights, paused
        self._plan = [*(mix for mix in self._plan if mix.from_slot < slot), _Mix(slot, in_force)]
        self._known = None

    def _add(self, slot: int, directive: Directive) -> None:
        shard, path = directive.shard, directive.path
        if any(part.path == path for part in self._parts.get(shard, ())):
            raise Refused(f"`{path}` is part of shard `{shard}` already")
        if any(part.count is None for part in self._parts.get(shard, ())):
            raise Refused(f"shard `{shard}` is endless: a file adds nothing to it")
        if self._stratify and len(self._parts.keys() | {shard}) > self._stratify:
            raise Refused(f"{len(self._parts) + 1} shards cannot each have one of {self._stratify} slots")
        rows = self._loaded(path)
        weights = {**self._weights, shard: directive.weight or self._weights.get(shard, 0.0)}
        self._enter(slot, weights, set(self._paused))
        self._parts.setdefault(shard, []).append(_Part(slot, rows, path))
        self._known = None
        category = directive.category or self._categories.get(shard, "")
        if category:
            self._categories[shard] = category
        self._added.append({"shard": shard, "category": category, "path": path, "from_slot": slot})

    def _loaded(self, path: str) -> Sequence[Any]:
        rows = self._loader(path)
        if len(rows) == 0:
            raise Refused(f"`{path}` holds no samples")
        return rows

    def _in_force(self) -> dict[str, float]:
        in_force = _in_force(self._weights, self._paused)
        if not all(weight >= 0 for weight in in_force.values()) or not sum(in_force.values()) > 0:
            raise ValueError("weights are at least 0, and one of them above")
        return in_force

    def _part(self, draw: Draw) -> _Part:
        """The part that a row is of. In a loader's worker it reads an added file itself, once."""
        for part in self._parts.get(draw.shard, ()):
            if part.path == draw.path:
                return part
        if draw.path is None:
            raise KeyError(_no_shard(draw.shard, self._parts))
        part = _Part(0, self._loader(draw.path), draw.path)
        self._parts.setdefault(draw.shard, []).append(part)
        return part

    def _stratified(self, mix: _Mix, slot: int, point: float) -> str:
        """The shard of a slot where each shard is sure of one in `stratify`: spread evenly, from a place drawn anew."""
        run, place = divmod(slot, self._stratify)
        digest = hashlib.blake2b(f"{self.seed}/run/{run}".encode(), digest_size=8).digest()
        turn = (place + int.from_bytes(digest, "little")) % self._stratify
        shards = len(mix.names)
        # The first slot at or after each of `shards` even divisions of the run is one shard's own.
        number = -(-turn * shards // self._stratify)
        if number < shards and number * self._stratify // shards == turn:
            return mix.names[number]
        # What is left is drawn by what each shard's share lacks beyond its sure slot.
        rest = {name: mix.weights[name] / mix.bounds[-1] * self._stratify - 1 for name in mix.names}
        short = {name: max(lacking, 0.0) for name, lacking in rest.items()}
        return (_Mix(0, short) if sum(short.values()) > 0 else mix).at(point)


def _of_parts(parts: Iterable[_Part], draw: Draw) -> Draw:
    """The row that a number falls on in those of a shard's parts that may be drawn from at its slot."""
    parts = [part for part in parts if part.from_slot <= draw.slot]
    for part in parts:
        if part.count is None:
            return draw._replace(path=part.path)
    place = draw.row % sum(part.count or 0 for part in parts)
    for part in parts:
        if place < (part.count or 0):
            return draw._replace(row=place, path=part.path)
        place -= part.count or 0
    raise AssertionError(f"slot {draw.slot} lies beyond the rows of shard `{draw.shard}`")


def part_of(count: int, rank: int, world: int, shares: Sequence[float] = ()) -> tuple[int, int]:
    """The contiguous part, as [first, last), that a rank gets of `count` slots.

    `shares` gives ranks other than equal parts: 1 is an equal part, 0 nothing. Rounding moves no slot to nobody.
    """
    if not shares and 0 <= rank < world:
        return round(count * rank / world), round(count * (rank + 1) / world)
    each = list(shares) or [1.0] * world
    if not 0 <= rank < world or len(each) != world or min(each) < 0 or not sum(each) > 0:
        raise ValueError(f"rank {rank} of {world} with shares {list(shares)}")
    ends = [round(count * share / sum(each)) for share in itertools.accumulate(each)]
    return (ends[rank - 1] if rank else 0), ends[rank]


def _count(rows: Rows) -> int | None:
    return None if callable(rows) else len(rows)


def _in_force(weights: Weights, paused: Iterable[str]) -> dict[str, float]:
    return {name: 0.0 if name in paused else weight for name, weight in weights.items()}


def _no_shard(name: str, shards: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(shards), n=1)
    return f"there is no shard `{name}`" + (f"; did you mean `{near[0]}`?" if near else "")
