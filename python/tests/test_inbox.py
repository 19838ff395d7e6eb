"""Which directive is handed out when, and what the checkpoint keeps of it. No server, no threads."""

from __future__ import annotations

import unittest
from typing import Any

import _paths  # noqa: F401
from antiphon.directive import Directive
from antiphon.inbox import Inbox


def inbox(*directives: dict[str, Any], state: dict[str, Any] | None = None, accepts: tuple[str, ...] = ()) -> Inbox:
    new = Inbox.restored(state, accepts)
    for directive in directives:
        new.receive(Directive.from_wire(directive))
    return new


def weights(number: int, **fields: Any) -> dict[str, Any]:
    return {"id": number, "do": "set_weights", "weights": {"code": number}, **fields}


def ids(box: Inbox, slot: int = 0, now_ms: int = 0) -> list[int | None]:
    return [directive.id for directive in box.ready(slot, now_ms).directives]


class Order(unittest.TestCase):
    def test_directives_are_handed_out_in_id_order(self) -> None:
        self.assertEqual(ids(inbox(weights(3), weights(1), weights(2))), [1, 2, 3])

    def test_a_directive_received_twice_is_handed_out_once(self) -> None:
        box = inbox(weights(1), weights(1))
        first = box.ready(0, 0).directives
        box.receive(Directive.from_wire(weights(1)))
        self.assertEqual(ids(box), [], "it is in the loop's hands")
        box.handle(first[0])
        box.receive(Directive.from_wire(weights(1)))
        self.assertEqual(ids(box), [], "it is handled")

    def test_a_fence_ahead_holds_back_later_data_but_no_later_compute_directives(self) -> None:
        box = inbox(weights(1, not_before_slot=100), weights(2), {"id": 3, "do": "checkpoint"})
        self.assertEqual(ids(box, slot=99), [3])
        self.assertEqual(ids(box, slot=100), [1, 2])

    def test_a_fenced_compute_directive_holds_back_nothing(self) -> None:
        box = inbox({"id": 1, "do": "yield", "not_before_slot": 100}, weights(2))
        self.assertEqual(ids(box, slot=0), [2])

    def test_an_expired_directive_is_acknowledged_and_not_handed_out(self) -> None:
        box = inbox(weights(1, expires_ms=500), weights(2, expires_ms=501))
        ready = box.ready(0, now_ms=500)
        self.assertEqual([directive.id for directive in ready.directives], [2])
        self.assertEqual(ready.acks, ({"directive": 1, "expired": {}},))
        self.assertEqual(box.position(), (1, []))


class Refusal(unittest.TestCase):
    def test_an_unknown_directive_is_rejected_with_the_version_of_the_package(self) -> None:
        ready = inbox({"id": 1, "do": "levitate"}).ready(0, 0)
        self.assertEqual(ready.directives, ())
        self.assertIn("`levitate` is unknown to this loop and to version 0.1.0", ready.acks[0]["rejected"]["reason"])

    def test_a_directive_that_the_loop_registered_is_handed_out(self) -> None:
        box = inbox({"id": 1, "do": "augment_shard", "shard": "a", "factor": 2}, accepts=("augment_shard",))
        directive = box.ready(0, 0).directives[0]
        self.assertEqual((directive.shard, directive.fields["factor"]), ("a", 2))

    def test_weights_that_are_no_numbers_are_rejected(self) -> None:
        for bad in ({}, {"code": -1}, {"code": "much"}, {"code": True}, {"code": float("nan")}, None, 3):
            with self.subTest(bad=bad):
                ready = inbox({"id": 1, "do": "set_weights", "weights": bad}).ready(0, 0)
                self.assertEqual((ready.directives, len(ready.acks)), ((), 1))
                self.assertIn("rejected", ready.acks[0])

    def test_an_entry_without_a_usable_id_is_no_directive(self) -> None:
        for bad in ({}, {"id": 0, "do": "stop"}, {"id": True, "do": "stop"}, {"id": "7", "do": "stop"}, {"id": 7}):
            with self.subTest(bad=bad), self.assertRaises(ValueError):
                Directive.from_wire(bad)


class Position(unittest.TestCase):
    def test_the_cursor_stops_below_the_first_unhandled_directive(self) -> None:
        box = inbox(weights(1), weights(2), weights(3))
        one, two, three = box.ready(0, 0).directives
        box.handle(three)
        self.assertEqual(box.state(), {"cursor": 0, "done": [3]})
        box.handle(one)
        self.assertEqual(box.state(), {"cursor": 1, "done": [3]})
        box.handle(two)
        self.assertEqual(box.state(), {"cursor": 3, "done": []})

    def test_a_rollback_hands_out_again_what_it_undid_and_nothing_else(self) -> None:
        sent = [weights(1), weights(2), weights(3)]
        box = inbox(*sent)
        one, two, _ = box.ready(0, 0).directives
        box.handle(one)
        kept = box.state()
        box.handle(two)
        resumed = inbox(*sent, state=kept)
        self.assertEqual(ids(resumed), [2, 3])

    def test_a_checkpoint_written_for_a_yield_contains_the_yield(self) -> None:
        box = inbox(weights(1), {"id": 2, "do": "yield"})
        data, _ = box.ready(0, 0).directives
        self.assertEqual(box.state(), {"cursor": 0, "done": [2]}, "the weights are not applied yet")
        box.handle(data)
        self.assertEqual(box.state(), {"cursor": 2, "done": []})
        self.assertEqual(box.position(), (1, []), "the server hears of it only once it is acknowledged")

    def test_handling_what_is_not_in_hand_changes_nothing(self) -> None:
        box = inbox(weights(1))
        directive = Directive.from_wire(weights(1))
        self.assertFalse(box.handle(directive))
        box.ready(0, 0)
        self.assertTrue(box.handle(directive))
        self.assertFalse(box.handle(directive))


class Superseded(unittest.TestCase):
    def test_a_superseded_attempt_is_told_once_to_yield_and_nothing_after(self) -> None:
        box = inbox(weights(1))
        box.supersede()
        box.supersede()
        box.receive(Directive.from_wire(weights(2)))
        self.assertTrue(box.stirred)
        (directive,) = box.ready(0, 0).directives
        self.assertEqual((directive.id, directive.do, directive.reason), (None, "yield", "superseded"))
        self.assertEqual(ids(box), [])
        self.assertFalse(box.stirred)
