"""Asks and their answers, where shards came from, numbers of a shard in one mapping, and going back in one process."""

from __future__ import annotations

import json
from typing import Any

from test_job import Served

import _paths  # noqa: F401
import antiphon
from antiphon.directive import Directive
from antiphon.inbox import Inbox
from fake_server import hang_up, respond, until


class Asking(Served):
    def test_an_ask_goes_out_once_and_takes_its_answer(self) -> None:
        def answer(handler: Any) -> None:
            asks = self.server.batches[-1].get("asks", [])
            replies = [
                {"id": ask["id"], "ask": ask["ask"], "granted": ask["ask"] == "samples", "reason": "limit is 8"}
                for ask in reversed(asks)
            ]
            respond(handler, 200, json.dumps({"directives": [], "answers": replies, "report_every_ms": 10}).encode())

        self.server.script = [answer, hang_up, hang_up, *[answer] * 200]
        job = self.attach()
        until(lambda: self.server.bodies, "the attach")
        more = job.ask("gpus", "the loss falls fast", gpus=16)
        fresh = job.ask("samples", "4 epochs of it", category="law")
        self.assertIsNone(more.answer)
        until(lambda: more.answer is not None and fresh.answer is not None, "both answers")
        self.assertEqual(more.answer, antiphon.Answer(False, "limit is 8"))
        self.assertEqual(fresh.answer, antiphon.Answer(True, "limit is 8"))
        sent = [ask for seq, ask in {b["seq"]: b.get("asks", []) for b in self.server.batches}.items() if ask]
        flat = [(ask["ask"], ask["reason"]) for asks in sent for ask in asks]
        self.assertEqual(flat, [("gpus", "the loss falls fast"), ("samples", "4 epochs of it")])

    def test_only_rank_0_asks_and_without_antiphon_nobody_answers(self) -> None:
        job = self.attach(rank=1)
        asked = job.ask("pause", "nothing to do")
        job.close()
        self.assertIsNone(asked.answer)
        self.assertFalse([batch for batch in self.server.batches if "asks" in batch])
        self.assertIsNone(antiphon.attach(environment=antiphon.Environment()).ask("time", "slow", more_ms=1).answer)


class Shards(Served):
    def test_origins_go_out_with_the_attach_and_later_ones_when_they_are_known(self) -> None:
        origin = {"category": "law", "source": "statutes", "parents": ["raw"], "temperature": 0.8, "samples": 40}
        job = self.attach(shards={"law": origin}, step=3)
        until(lambda: any("shards" in b.get("attach", {}) for b in self.server.batches), "the origins")
        self.assertEqual(self.origins(), {"law": origin})
        job.shards({"made": {"parents": ["law"], "generator": "model"}})
        until(lambda: "made" in self.origins(), "the later one")

    def origins(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for batch in self.server.batches:
            found.update(batch.get("attach", {}).get("shards", {}))
        return found

    def test_numbers_of_a_shard_may_come_in_one_mapping(self) -> None:
        job = self.attach()
        job.signal(50, loss=1.0)
        job.report_shard_stats({"shard_id": "neuro_002", "loss": 2.3, "gradient_norm": 0.4, "throughput": 900})
        job.report_shard_stats({"shard_id": "neuro_002", "step": 60, "loss": 2.2})
        job.close()
        _, first, second = self.server.all_of("signals")
        self.assertEqual(
            first, {"task": 0, "step": 50, "shard": "neuro_002", "loss": 2.3, "grad_norm": 0.4, "throughput": 900}
        )
        self.assertEqual(second["step"], 60)


class GoingBack(Served):
    def test_what_a_rollback_undid_comes_again_and_the_rollback_does_not(self) -> None:
        self.server.directives = [
            {"id": 1, "do": "set_weights", "weights": {"a": 1}},
            {"id": 2, "do": "pause_shard", "shard": "a"},
            {"id": 3, "do": "rollback", "step": 10},
        ]
        job = self.attach()
        until(lambda: len(job._inbox._waiting) == 3, "three directives")
        first, second, third = job.boundary(11, 176)
        job.applied(first, 176)
        kept = job.state()
        job.applied(second, 176)
        job.applied(third, 176)
        until(lambda: self.server.batches[-1]["cursor"] == 3, "the cursor")
        job.rewind(kept, 10)
        until(lambda: any(b.get("attach", {}).get("step") == 10 for b in self.server.batches), "the second attach")
        attach = next(b for b in reversed(self.server.batches) if "attach" in b)
        self.assertEqual((attach["cursor"], attach["attach"]), (1, {"step": 10, "done": [3]}))
        again = self.next_directives(job, 11, 176)
        self.assertEqual([directive.id for directive in again], [2])
        job.applied(again[0], 176)
        self.assertEqual(job.state(), {"cursor": 3, "done": []})


class Forms(Served):
    SOUND: tuple[dict[str, Any], ...] = (
        {"do": "add_samples", "shard": "a", "category": "law", "path": "/x.jsonl", "weight": 0.5},
        {"do": "set_micro_batch", "rows": 0},
        {"do": "set_checkpoint_interval", "interval_ms": 60000},
        {"do": "set_recompute", "on": True},
        {"do": "set_offload", "on": False},
        {"do": "snapshot"},
        {"do": "resize", "ranks": 2},
        {"do": "drain", "task": 1, "share": 0.5, "steps": 1},
        {"do": "rollback", "step": 40},
        {"do": "gather_hard_examples", "category": "law", "count": 20},
    )

    def test_every_directive_of_the_wire_reaches_the_loop(self) -> None:
        inbox = Inbox.restored(None)
        for number, fields in enumerate(self.SOUND, 1):
            inbox.receive(Directive.from_wire({"id": number, **fields}))
        handed = inbox.ready(0, 0)
        self.assertEqual((len(handed.directives), handed.acks), (len(self.SOUND), ()))
        by_name = {directive.do: directive for directive in handed.directives}
        added, drained = by_name["add_samples"], by_name["drain"]
        self.assertEqual((added.shard, added.category, added.path, added.weight), ("a", "law", "/x.jsonl", 0.5))
        self.assertEqual((drained.task, drained.share, drained.steps), (1, 0.5, 1))
        self.assertEqual(by_name["set_checkpoint_interval"].interval_ms, 60000)
        self.assertEqual((by_name["resize"].ranks, by_name["rollback"].step), (2, 40))
        self.assertEqual((by_name["set_recompute"].on, by_name["set_offload"].on), (True, False))
        hard = by_name["gather_hard_examples"]
        self.assertEqual((hard.category, hard.count, by_name["set_micro_batch"].rows), ("law", 20, 0))

    def test_one_that_lacks_what_it_needs_is_refused_with_the_field(self) -> None:
        for fields, word in (
            ({"do": "add_samples", "shard": "a"}, "`path` is not the path of a file"),
            ({"do": "add_samples", "shard": "a", "path": "x", "weight": -1}, "`weight` is not"),
            ({"do": "set_micro_batch", "rows": -1}, "`rows` is not"),
            ({"do": "set_recompute", "on": 1}, "`on` is not true or false"),
            ({"do": "resize", "ranks": 0}, "`ranks` is not"),
            ({"do": "drain", "task": 0, "share": 1.5}, "`share` is not a number of 0 to 1"),
            ({"do": "rollback"}, "`step` is not"),
        ):
            with self.subTest(fields=fields):
                inbox = Inbox.restored(None)
                inbox.receive(Directive.from_wire({"id": 1, **fields}))
                ready = inbox.ready(0, 0)
                self.assertEqual(ready.directives, ())
                self.assertIn(word, ready.acks[0]["rejected"]["reason"])

    def test_the_form_with_an_action_is_understood_too(self) -> None:
        wire = {"id": 4, "action": "augment_shard", "shard_id": "neuro_002", "method": "back_translation", "count": 200}
        directive = Directive.from_wire(wire)
        self.assertEqual((directive.do, directive.shard, directive.count), ("augment_shard", "neuro_002", 200))
        self.assertEqual(directive.fields["method"], "back_translation")
