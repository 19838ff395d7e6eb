"""What a slot holds, and how directives change it from a slot on. No server, no PyTorch, no NumPy."""

from __future__ import annotations

import json
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from typing import Any

import _paths  # noqa: F401
import antiphon
from antiphon.data import Draw, MixedStream, Refused, Rows, part_of, read_samples
from antiphon.directive import Directive


def stream(**options: Any) -> MixedStream:
    shards: dict[str, Rows] = {
        "code": [f"code-{n}" for n in range(50)],
        "law": [f"law-{n}" for n in range(5)],
        "count": lambda n: n,
    }
    return MixedStream(shards, {"code": 2.0, "law": 1.0, "count": 1.0}, seed=7, **options)


def directive(do: str, **fields: Any) -> Directive:
    return Directive.from_wire({"id": 1, "do": do, **fields})


def shares(mix: MixedStream, first: int, last: int) -> dict[str, float]:
    counted = Counter(mix.draw(slot).shard for slot in range(first, last))
    return {shard: count / (last - first) for shard, count in counted.items()}


class Drawing(unittest.TestCase):
    def test_what_a_slot_holds_depends_on_no_rank_batch_or_earlier_draw(self) -> None:
        whole = stream().rows(0, 48)
        for world in (1, 2, 3, 5):
            for batch in (4, 6, 48):
                with self.subTest(world=world, batch=batch):
                    mix = stream()
                    parts = [
                        mix.rows(slot, batch, rank, world) for slot in range(0, 48, batch) for rank in range(world)
                    ]
                    self.assertEqual([sample for part in parts for sample in part], whole)

    def test_the_rows_of_a_seed_are_the_same_for_ever(self) -> None:
        self.assertEqual([stream().draw(slot).shard for slot in range(8)], FROZEN)

    def test_shards_are_drawn_by_weight(self) -> None:
        found = shares(stream(), 0, 20_000)
        for shard, share in {"code": 0.5, "law": 0.25, "count": 0.25}.items():
            self.assertAlmostEqual(found[shard], share, delta=0.012)

    def test_the_iterator_goes_on_where_the_stream_stands(self) -> None:
        mix = stream()
        first = [sample for sample, _ in zip(mix, range(5))]
        self.assertEqual(first, stream().rows(0, 5))
        self.assertEqual(next(iter(mix)).slot, mix.slot - 1)

    def test_a_stratified_run_has_every_shard_and_keeps_the_shares(self) -> None:
        weights = {"a": 90.0, "b": 6.0, "c": 4.0, "off": 0.0}
        mix = MixedStream({name: [0] for name in weights}, weights, seed=3, stratify=50)
        for run in range(0, 5_000, 50):
            self.assertLessEqual({"a", "b", "c"}, set(shares(mix, run, run + 50)))
        found = shares(mix, 0, 20_000)
        self.assertNotIn("off", found)
        for shard, share in {"a": 0.90, "b": 0.06, "c": 0.04}.items():
            self.assertAlmostEqual(found[shard], share, delta=0.006)

    def test_unequal_parts_cover_the_batch_once(self) -> None:
        for count in (1, 7, 32):
            parts = [part_of(count, rank, 3, (1, 0.4, 1)) for rank in range(3)]
            self.assertEqual([place for first, last in parts for place in range(first, last)], list(range(count)))
        self.assertEqual([part_of(24, rank, 3, (1, 0, 1)) for rank in range(3)], [(0, 12), (12, 12), (12, 24)])
        for bad in ((4, 3, 3, ()), (4, 0, 2, (1,)), (4, 0, 2, (0, 0)), (4, 0, 2, (-1, 2))):
            with self.subTest(bad=bad), self.assertRaises(ValueError):
                part_of(*bad)

    def test_a_mix_that_cannot_be_drawn_from_is_refused_when_it_is_made(self) -> None:
        with self.assertRaisesRegex(ValueError, "did you mean `code`"):
            MixedStream({"code": [1]}, {"cod": 1.0})
        with self.assertRaisesRegex(ValueError, "`code` has no rows"):
            MixedStream({"code": []})
        with self.assertRaisesRegex(ValueError, "one of them above"):
            MixedStream({"code": [1]}, {"code": 0.0})
        with self.assertRaisesRegex(ValueError, "raise `stratify`"):
            MixedStream({"a": [1], "b": [1]}, stratify=1)


class Directing(unittest.TestCase):
    def test_new_weights_hold_from_the_slot_that_was_answered_and_not_before(self) -> None:
        mix, before = stream(), stream()
        slot = mix.apply(directive("set_weights", weights={"code": 0, "law": 3}), 1_000)
        self.assertEqual(slot, 1_000)
        self.assertEqual(mix.rows(0, 1_000), before.rows(0, 1_000))
        found = shares(mix, 1_000, 9_000)
        self.assertNotIn("code", found)
        self.assertAlmostEqual(found["law"], 0.75, delta=0.02)

    def test_a_loader_that_has_drawn_ahead_moves_the_slot_of_a_directive(self) -> None:
        mix = stream()
        mix.draws(0, 64)
        self.assertEqual(mix.apply(directive("pause_shard", shard="law"), 32), 64)
        self.assertIn("law", shares(mix, 32, 64))
        self.assertNotIn("law", shares(mix, 64, 400))

    def test_a_resumed_shard_has_the_weight_it_had(self) -> None:
        mix = stream()
        mix.apply(directive("pause_shard", shard="code"), 10)
        mix.apply(directive("set_weights", weights={"code": 6}), 20)
        self.assertNotIn("code", shares(mix, 20, 400))
        mix.apply(directive("resume_shard", shard="code"), 400)
        self.assertAlmostEqual(shares(mix, 400, 8_400)["code"], 0.75, delta=0.02)

    def test_what_cannot_be_carried_out_is_refused_and_changes_nothing(self) -> None:
        mix = stream()
        kept = mix.state_dict()
        for bad, why in (
            (directive("set_weights", weights={"cod": 1}), "there is no shard `cod`; did you mean `code`?"),
            (directive("set_weights", weights={"code": 0, "law": 0, "count": 0}), "no shard would be left"),
            (directive("set_weights", weights={}), "names no shard"),
            (directive("pause_shard", shard="nobody"), "there is no shard `nobody`"),
            (directive("pause_shard"), "`shard` is not the name of a shard"),
            (directive("add_samples", shard="count", path="more.jsonl", weight=1), "endless"),
            (directive("set_micro_batch", rows=4), "no directive about data"),
        ):
            with self.subTest(why=why), self.assertRaisesRegex(Refused, why.replace("?", r"\?")):
                mix.apply(bad, 0)
        self.assertEqual(mix.state_dict(), kept)

    def test_pausing_the_last_shard_is_refused(self) -> None:
        mix = MixedStream({"a": [1], "b": [2]})
        mix.apply(directive("pause_shard", shard="a"), 0)
        with self.assertRaisesRegex(Refused, "no shard would be left"):
            mix.apply(directive("pause_shard", shard="b"), 0)

    def test_outcomes_are_acknowledged(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            missing = str(Path(directory) / "missing.jsonl")
            said: list[tuple[str, object]] = []

            class Recorder(antiphon.Job):
                def __init__(self) -> None:
                    super().__init__(antiphon.Environment(), None, 0, ())

                def applied(self, directive: Directive, slot: int) -> None:
                    said.append(("applied", slot))

                def rejected(self, directive: Directive, reason: str) -> None:
                    said.append(("rejected", reason.split(";")[0]))

                def failed(self, directive: Directive, error: object) -> None:
                    said.append(("failed", str(error).split(":")[0]))

            mix, job = stream(), Recorder()
            self.assertTrue(mix.carry_out(job, directive("pause_shard", shard="law"), 5))
            self.assertTrue(mix.carry_out(job, directive("pause_shard", shard="nobody"), 5))
            self.assertTrue(mix.carry_out(job, directive("add_samples", shard="new", path=missing, weight=1), 5))
            self.assertFalse(mix.carry_out(job, directive("checkpoint"), 5))
        self.assertEqual(
            said, [("applied", 5), ("rejected", "there is no shard `nobody`"), ("failed", "FileNotFoundError")]
        )


class Adding(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def file(self, name: str, lines: list[str]) -> str:
        path = Path(self.directory.name) / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(path)

    def test_an_added_shard_is_drawn_from_its_slot_on(self) -> None:
        path = self.file("fresh.jsonl", [json.dumps({"text": f"fresh-{n}"}) for n in range(4)])
        mix = stream()
        added = directive("add_samples", shard="fresh", category="law", path=path, weight=4)
        self.assertEqual(mix.apply(added, 100), 100)
        self.assertNotIn("fresh", shares(mix, 0, 100))
        self.assertAlmostEqual(shares(mix, 100, 8_100)["fresh"], 0.5, delta=0.02)
        rows = {sample.row["text"] for sample in mix.rows(100, 400) if sample.shard == "fresh"}
        self.assertEqual(rows, {f"fresh-{n}" for n in range(4)})
        self.assertEqual(mix.facts("fresh"), {"weight": 4.0, "category": "law", "unique_samples": 4})
        self.assertEqual(mix.number("fresh"), 3)

    def test_more_samples_of_a_shard_leave_its_weight_and_its_earlier_slots(self) -> None:
        path = self.file("more.txt", ["more-0", "", "more-1"])
        mix, before = stream(), stream()
        mix.apply(directive("add_samples", shard="law", path=path, weight=0), 500)
        self.assertEqual(mix.rows(0, 500), before.rows(0, 500))
        self.assertEqual(mix.facts("law")["unique_samples"], 7)
        rows = {sample.row for sample in mix.rows(500, 2_000) if sample.shard == "law"}
        self.assertEqual(rows, {*(f"law-{n}" for n in range(5)), "more-0", "more-1"})
        with self.assertRaisesRegex(Refused, "part of shard `law` already"):
            mix.apply(directive("add_samples", shard="law", path=path), 3_000)

    def test_a_file_without_samples_is_refused(self) -> None:
        with self.assertRaisesRegex(Refused, "holds no samples"):
            stream().apply(directive("add_samples", shard="new", path=self.file("empty.jsonl", [""]), weight=1), 0)

    def test_a_copy_in_another_process_reads_an_added_file_itself(self) -> None:
        path = self.file("fresh.txt", ["one", "two"])
        copy = stream()
        self.assertEqual(copy.row(Draw(0, "fresh", 1, path)), "two")
        with self.assertRaisesRegex(KeyError, "no shard `nobody`"):
            copy.row(Draw(0, "nobody", 0))

    def test_files_are_read_by_their_ending(self) -> None:
        self.assertEqual(read_samples(self.file("a.jsonl", ["[1]", '{"a": 2}'])), [[1], {"a": 2}])
        self.assertEqual(read_samples(self.file("a.txt", ["one", "two"])), ["one", "two"])


class Resuming(unittest.TestCase):
    def test_a_resumed_stream_draws_what_the_first_would_have_drawn(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "fresh.txt"
            path.write_text("one\ntwo\n", encoding="utf-8")
            mix = stream(stratify=20)
            mix.apply(directive("set_weights", weights={"code": 1}), 40)
            mix.apply(directive("add_samples", shard="fresh", path=str(path), weight=2), 80)
            mix.apply(directive("pause_shard", shard="count"), 90)
            mix.draws(90, 60)
            state = json.loads(json.dumps(mix.state_dict(slot=120)))
            resumed = stream(stratify=20)
            resumed.load_state_dict(state)
            self.assertEqual(resumed.slot, 120, "what a loader had drawn ahead was not consumed")
            self.assertEqual(resumed.rows(0, 400), mix.rows(0, 400))
            self.assertEqual(resumed.shards, mix.shards)
            resumed.load_state_dict(stream().state_dict())
            self.assertEqual(resumed.shards, stream().shards, "a rollback before the file was added forgets it")

    def test_the_state_of_another_stream_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "seed 7, and this stream has 0"):
            MixedStream({"code": [1]}).load_state_dict(stream().state_dict())
        with self.assertRaisesRegex(ValueError, "other shards: count, law"):
            MixedStream({"code": [1]}, seed=7).load_state_dict(stream().state_dict())


class Reporting(unittest.TestCase):
    def test_facts_and_origins_say_what_a_shard_is(self) -> None:
        mix = stream(categories={"law": "legal"}, origins={"law": {"source": "statutes", "chunk": "b"}})
        mix.apply(directive("pause_shard", shard="code"), 0)
        self.assertEqual(mix.facts("law"), {"weight": 1.0, "category": "legal", "unique_samples": 5})
        self.assertEqual(mix.facts("code"), {"weight": 0.0, "unique_samples": 50})
        self.assertEqual(mix.facts("count"), {"weight": 1.0})
        self.assertEqual(
            mix.origins()["law"], {"category": "legal", "samples": 5, "weight": 1.0, "source": "statutes", "chunk": "b"}
        )


# Drawn once with seed 7. A change of the generator would make every checkpoint go on with other rows.
FROZEN = ["law", "law", "code", "code", "law", "law", "law", "law"]


if __name__ == "__main__":
    unittest.main()
