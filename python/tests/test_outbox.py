"""The bound on signals, and the order of acknowledgements behind their checkpoint."""

from __future__ import annotations

import unittest

import _paths  # noqa: F401
from antiphon.outbox import BATCH_SIGNALS_MAX, Outbox


class Bound(unittest.TestCase):
    def test_the_oldest_signals_are_dropped_and_counted_but_no_checkpoint_and_no_ack(self) -> None:
        outbox = Outbox(signals_max=3)
        for step in range(10):
            outbox.signal({"step": step})
            outbox.checkpoint(step, {"step": step})
            outbox.ack({"directive": step, "expired": {}})
        parcel = outbox.take()
        self.assertEqual([signal["step"] for signal in parcel.signals], [7, 8, 9])
        self.assertEqual((len(parcel.checkpoints), len(parcel.acks), parcel.dropped), (10, 10, 7))
        self.assertEqual(outbox.take().dropped, 0, "a loss is reported once")

    def test_a_batch_carries_a_bounded_number_of_signals(self) -> None:
        outbox = Outbox()
        for step in range(BATCH_SIGNALS_MAX + 1):
            outbox.signal({"step": step})
        self.assertTrue(outbox.has_backlog())
        self.assertEqual(len(outbox.take().signals), BATCH_SIGNALS_MAX)
        self.assertFalse(outbox.has_backlog())
        self.assertEqual(len(outbox.take().signals), 1)
        self.assertTrue(outbox.is_empty())

    def test_signals_that_are_made_later_keep_their_place_and_the_bound_of_a_batch(self) -> None:
        outbox = Outbox()
        outbox.signal({"step": 0})
        outbox.signal(lambda: [{"step": 1, "shard": str(n)} for n in range(BATCH_SIGNALS_MAX)])
        outbox.signal({"step": 2})
        first = outbox.take().signals
        self.assertEqual(first[0], {"step": 0})
        self.assertEqual(len(first), BATCH_SIGNALS_MAX)
        self.assertTrue(outbox.has_backlog())
        self.assertFalse(outbox.is_empty())
        rest = outbox.take().signals
        self.assertEqual(rest, [{"step": 1, "shard": str(BATCH_SIGNALS_MAX - 1)}, {"step": 2}])
        self.assertTrue(outbox.is_empty())

    def test_a_refused_batch_loses_its_signals_only(self) -> None:
        outbox = Outbox()
        outbox.signal({"step": 1})
        outbox.checkpoint(1, {"step": 1})
        outbox.ack({"directive": 1, "expired": {}})
        refused = outbox.take()
        outbox.checkpoint(2, {"step": 2})
        outbox.refuse(refused)
        parcel = outbox.take()
        self.assertEqual([checkpoint["step"] for checkpoint in parcel.checkpoints], [1, 2])
        self.assertEqual((parcel.signals, len(parcel.acks), parcel.dropped), ([], 1, 1))


class AckAfterCheckpoint(unittest.TestCase):
    ACK = {"directive": 6, "applied": {"slot": 16}}  # noqa: RUF012

    def test_an_ack_waits_for_the_checkpoint_it_stands_on(self) -> None:
        outbox = Outbox()
        outbox.checkpoint(9, {"step": 9})
        outbox.ack_after_checkpoint(self.ACK, since_step=10)
        self.assertEqual(outbox.take().acks, [])
        outbox.checkpoint(10, {"step": 10})
        parcel = outbox.take()
        self.assertEqual((parcel.checkpoints, parcel.acks), ([{"step": 10}], [self.ACK]))

    def test_an_ack_goes_at_once_when_the_checkpoint_is_there_already(self) -> None:
        outbox = Outbox()
        outbox.checkpoint(10, {"step": 10})
        outbox.ack_after_checkpoint(self.ACK, since_step=10)
        self.assertEqual(outbox.take().acks, [self.ACK])

    def test_an_ack_whose_checkpoint_never_came_ends_as_failed(self) -> None:
        outbox = Outbox()
        outbox.ack_after_checkpoint(self.ACK, since_step=10)
        outbox.fail_held_acks("no checkpoint")
        self.assertEqual(outbox.take().acks, [{"directive": 6, "failed": {"error": "no checkpoint"}}])
