"""The whole package against a server over loopback: what is sent, when it is sent again, and what the loop sees."""

from __future__ import annotations

import dataclasses
import json
import logging
import tempfile
import threading
import time
import unittest
from typing import Any
from unittest import mock

import _paths  # noqa: F401
import antiphon
from antiphon import sender
from antiphon.device import Throttle
from antiphon.job import Job
from fake_server import FakeServer, fake_server, hang_up, status, until

SET_WEIGHTS = {"id": 1, "do": "set_weights", "weights": {"code": 0}, "reason": "noise"}


class Served(unittest.TestCase):
    """A fake server, and short waits between failures."""

    def setUp(self) -> None:
        context = fake_server()
        self.server: FakeServer = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        for name, value in (("RETRY_S", 0.001), ("BACK_OFF_S_MIN", 0.005), ("BACK_OFF_S_MAX", 0.02)):
            patch = mock.patch.object(sender, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        logging.getLogger("antiphon").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("antiphon").setLevel, logging.NOTSET)

    def attach(self, rank: int = 0, **options: Any) -> Job:
        job = antiphon.attach(environment=self.server.environment(rank), **options)
        self.addCleanup(job.close, 0.0)
        return job

    def next_directives(self, job: Job, step: int = 1, slot: int = 16) -> tuple[antiphon.Directive, ...]:
        found: tuple[antiphon.Directive, ...] = ()

        def look() -> bool:
            nonlocal found
            found = job.boundary(step, slot)
            return bool(found)

        until(look, "a directive")
        return found


class NoServer(unittest.TestCase):
    def test_without_antiphon_every_method_does_nothing(self) -> None:
        job = antiphon.attach(environment=antiphon.Environment())
        self.assertFalse(job.attached)
        job.signal(1, 16, loss=float("nan"))
        job.progress(1, 10)
        job.checkpointed(1, "step-1", 10, 10, "sha256:0")
        job.applied(antiphon.Directive(1, "stop"), 16)
        self.assertEqual(job.boundary(1, 16), ())
        self.assertIsNone(job.grace_left_s)
        job.close()

    def test_without_antiphon_the_state_of_the_checkpoint_is_kept(self) -> None:
        state = {"cursor": 4, "done": [6]}
        self.assertEqual(antiphon.attach(state, environment=antiphon.Environment()).state(), state)

    def test_nothing_raises_into_the_loop_whatever_it_is_given(self) -> None:
        endpoint = antiphon.Endpoint("http://127.0.0.1:9", "job-1", 1, "secret")
        with self.assertLogs("antiphon", "ERROR") as logged:
            anything: Any = object()
            job = antiphon.attach({"cursor": anything}, environment=antiphon.Environment(endpoint))
            job.signal(anything, anything, loss=anything)
            job.progress(anything, anything)
            job.checkpointed(anything, anything, anything, anything, anything)
            job.applied(anything, anything)
            job.rejected(anything, anything)
            job.failed(anything, anything)
            job.boundary(anything, anything)
            self.assertEqual(job.state(), {"cursor": 0, "done": []})
            job.close(anything)
            job.close(0)
        self.assertEqual(len([line for line in logged.output if "internal error" in line]), 1, "logged once")


class Sending(Served):
    def test_a_batch_has_the_form_of_the_wire(self) -> None:
        job = self.attach(state={"cursor": 6, "done": [8]}, step=1200)
        until(lambda: self.server.batches, "the attach")
        job.signal(1201, 19216, loss=1.92, grad_norm=float("inf"), step_ms=812, tokens=524288)
        job.signal(1201, shard="neuro_002", loss=2.3, samples=512)
        job.signal(1201, category="reasoning", probe_loss=2.1)
        job.progress(1201, 5000)
        job.checkpointed(1201, "step-1201", 1803550720, 2100.4, "sha256:00")
        until(lambda: self.server.all_of("checkpoints"), "the checkpoint")
        first = self.server.batches[0]
        boot = first.pop("boot")
        self.assertTrue(boot)
        self.assertEqual(
            first,
            {
                "attempt": 3,
                "seq": 0,
                "cursor": 6,
                "attach": {"step": 1200, "done": [8]},
                "dropped": 0,
                "signals": [],
                "checkpoints": [],
                "acks": [],
            },
        )
        self.assertEqual(
            self.server.all_of("signals"),
            [
                {
                    "task": 0,
                    "step": 1201,
                    "slot": 19216,
                    "loss": 1.92,
                    "grad_norm": None,
                    "step_ms": 812,
                    "tokens": 524288,
                },
                {"task": 0, "step": 1201, "shard": "neuro_002", "loss": 2.3, "samples": 512},
                {"task": 0, "step": 1201, "category": "reasoning", "probe_loss": 2.1},
                {"progress": {"step": 1201, "total_steps": 5000}},
            ],
        )
        self.assertEqual(
            self.server.all_of("checkpoints"),
            [{"step": 1201, "path": "step-1201", "bytes": 1803550720, "save_ms": 2100, "manifest": "sha256:00"}],
        )
        self.assertEqual(set(self.server.paths), {"/v1/jobs/job-42/signals"})
        self.assertEqual(self.server.headers[0]["Authorization"], "Bearer secret")
        self.assertTrue(all("attach" not in batch for batch in self.server.batches[1:]))
        self.assertEqual({batch["boot"] for batch in self.server.batches}, {boot})

    def test_empty_batches_go_on_so_that_directives_arrive_and_one_connection_carries_them(self) -> None:
        self.attach()
        until(lambda: len(self.server.batches) >= 5, "five reports")
        self.assertEqual([batch["seq"] for batch in self.server.batches[:5]], [0, 1, 2, 3, 4])
        self.assertEqual(len(self.server.connections), 1)

    def test_a_number_with_item_is_read_by_the_sender(self) -> None:
        class Tensor:
            def item(self) -> float:
                return 2.5

        job = self.attach()
        job.signal(1, loss=Tensor(), odd=[1, 2], weird=object())
        until(lambda: self.server.all_of("signals"), "the signal")
        self.assertEqual(self.server.all_of("signals"), [{"task": 0, "step": 1, "loss": 2.5}])

    def test_a_loss_that_is_no_number_says_so(self) -> None:
        job = self.attach()
        job.signal(1, loss=float("inf"), step_ms=5)
        job.signal(2, step_ms=5)
        until(lambda: len(self.server.all_of("signals")) == 2, "both signals")
        diverged, silent = self.server.all_of("signals")
        self.assertEqual(diverged, {"task": 0, "step": 1, "loss": None, "step_ms": 5, "not_finite": True})
        self.assertNotIn("not_finite", silent)

    def test_another_rank_reports_its_task_and_asks_for_no_directives(self) -> None:
        self.server.directives = [SET_WEIGHTS]
        job = self.attach(rank=2)
        job.progress(1, 10)
        job.checkpointed(1, "step-1", 1, 1, "sha256:0")
        job.signal(1, 16, step_ms=5)
        until(lambda: self.server.all_of("signals"), "the signal")
        self.assertEqual(self.server.all_of("signals"), [{"task": 2, "step": 1, "slot": 16, "step_ms": 5}])
        self.assertEqual(self.server.all_of("checkpoints"), [])
        self.assertNotIn("attach", self.server.batches[0])
        self.assertEqual(job.boundary(1, 16), ())

    def test_another_rank_that_has_nothing_to_say_is_heard_now_and_then(self) -> None:
        """A rank that hangs says nothing: it could not be asked for its stacks."""
        with mock.patch.object(sender, "LIVES_EVERY_S", 0.0):
            self.attach(rank=2)
            until(lambda: self.server.bodies, "a batch without signals")
        self.assertEqual(self.server.batches[0]["signals"], [])

    def test_what_is_queued_goes_out_when_the_job_closes(self) -> None:
        job = self.attach()
        job.signal(1, loss=1.0)
        job.checkpointed(1, "step-1", 1, 1, "sha256:0")
        job.close()
        self.assertEqual((len(self.server.all_of("signals")), len(self.server.all_of("checkpoints"))), (1, 1))
        self.assertFalse(job.attached)


class Failing(Served):
    def test_a_batch_without_answer_is_sent_again_unchanged(self) -> None:
        self.server.script = [hang_up, hang_up, status(500), status(200, b"{garbage"), status(200, b"[]"), status(503)]
        job = self.attach(step=7)
        job.signal(8, loss=1.0)
        until(lambda: len(self.server.bodies) >= 8, "eight requests")
        self.assertEqual(len(set(self.server.bodies[:7])), 1, "six failures and the answer carry one body")
        self.assertEqual([batch["seq"] for batch in self.server.batches[:8]], [0] * 7 + [1])
        self.assertEqual(self.server.all_of("signals"), [{"task": 0, "step": 8, "loss": 1.0}])

    def test_a_connection_that_the_server_closed_while_idle_is_no_failure(self) -> None:
        def answer_and_close(handler: Any) -> None:
            self.server.answer(handler)
            handler.close_connection = True

        self.server.script = [answer_and_close, answer_and_close]
        with mock.patch.object(sender, "back_off_s", side_effect=AssertionError("counted as a failure")):
            self.attach()
            until(lambda: len(self.server.batches) >= 4, "four reports")
        self.assertEqual([batch["seq"] for batch in self.server.batches[:4]], [0, 1, 2, 3])

    def test_a_save_is_announced_and_says_what_is_free_once_it_is_durable(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        environment = dataclasses.replace(self.server.environment(), checkpoint_dir=directory.name)
        job = antiphon.attach(environment=environment)
        self.addCleanup(job.close, 0.0)
        job.saving(4)
        job.saving(4, False)
        job.checkpointed(5, "step-5", 1, 1, "sha256:0")
        until(lambda: len(self.server.all_of("signals")) == 3, "three signals")
        begun, failed, free = self.server.all_of("signals")
        self.assertEqual((begun, failed["saving"]), ({"task": 0, "step": 4, "saving": True}, False))
        self.assertEqual((free["step"], free["disk_free_bytes"] > 0), (5, True))

    def test_steps_say_that_the_device_is_throttled(self) -> None:
        with mock.patch.object(Throttle, "is_on", return_value=True):
            job = self.attach()
            job.signal(1, step_ms=5)
            job.signal(1, shard="law", loss=1.0)
            until(lambda: len(self.server.all_of("signals")) == 2, "both signals")
        step, shard = self.server.all_of("signals")
        self.assertEqual((step["throttled"], "throttled" in shard), (True, False))

    def test_a_yield_says_when_its_lease_ends(self) -> None:
        self.server.directives = [{"id": 1, "do": "yield", "reason": "spot notice", "lease_ends_ms": 1_764_430_000_000}]
        (directive,) = self.next_directives(self.attach())
        self.assertEqual(directive.lease_ends_ms, 1_764_430_000_000)
        self.assertIsNone(antiphon.Directive(1, "yield").lease_ends_ms)

    def test_a_refused_batch_loses_its_signals_and_keeps_its_checkpoint(self) -> None:
        self.server.script = [self.server.never]
        job = self.attach(step=3)
        until(lambda: self.server.bodies, "the attach")
        job.signal(4, loss=1.0)
        job.checkpointed(4, "step-4", 1, 1, "sha256:0")
        self.server.script = [hang_up, self.server.answer, status(400)]
        self.server.released.set()
        until(lambda: any(batch["dropped"] for batch in self.server.batches), "the loss")
        refused = [batch for batch in self.server.batches if batch["signals"]]
        kept = [batch for batch in self.server.batches if batch["dropped"]]
        self.assertEqual((len(refused), refused[0]["checkpoints"]), (1, kept[0]["checkpoints"]))
        self.assertEqual((kept[0]["dropped"], len(kept[0]["checkpoints"])), (1, 1))
        self.assertGreater(kept[0]["seq"], refused[0]["seq"])

    def test_a_full_queue_reports_how_many_signals_were_lost(self) -> None:
        self.server.script = [self.server.never]
        job = self.attach()
        until(lambda: self.server.bodies, "the attach")
        for step in range(8192 + 5):
            job.signal(step, loss=1.0)
        self.server.released.set()
        until(lambda: len(self.server.all_of("signals")) == 8192, "all signals")
        self.assertEqual(sum({batch["seq"]: batch["dropped"] for batch in self.server.batches}.values()), 5)
        self.assertEqual(self.server.all_of("signals")[0]["step"], 5)

    def test_a_server_that_never_answers_holds_up_neither_the_loop_nor_its_end(self) -> None:
        self.server.script = [self.server.never] * 9
        job = self.attach()
        until(lambda: self.server.bodies, "the attach")
        start = time.monotonic()
        for step in range(1000):
            job.signal(step, loss=1.0)
            job.boundary(step, step)
        job.close(timeout_s=0.1)
        self.assertLess(time.monotonic() - start, 1.0)

    def test_a_refused_token_is_logged_once_and_asked_again_rarely(self) -> None:
        logging.getLogger("antiphon").setLevel(logging.NOTSET)
        self.server.script = [status(401)] * 3
        with self.assertLogs("antiphon", "WARNING") as logged:
            self.attach()
            until(lambda: len(self.server.bodies) >= 5, "the answer after three refusals")
        self.assertEqual(len(logged.output), 1)
        self.assertEqual(sender.back_off_s(sender.FAILURES_OF_A_REFUSAL, lambda: 1.0), sender.BACK_OFF_S_MAX)


class BackOff(unittest.TestCase):
    def test_it_starts_at_a_second_after_three_failures_and_doubles_to_a_minute(self) -> None:
        waits = [sender.back_off_s(failures, lambda: 1.0) for failures in range(1, 12)]
        self.assertEqual(waits, [0.1, 0.1, 1, 2, 4, 8, 16, 32, 60, 60, 60])
        self.assertEqual(sender.back_off_s(9, lambda: 0.0), 30, "jitter takes away at most half")
        self.assertEqual(sender.back_off_s(10**9, lambda: 1.0), 60)


class Directing(Served):
    def test_a_directive_is_handed_out_acknowledged_and_moves_the_cursor(self) -> None:
        self.server.directives = [SET_WEIGHTS]
        job = self.attach()
        (directive,) = self.next_directives(job)
        self.assertEqual((directive.do, directive.weights, directive.reason), ("set_weights", {"code": 0.0}, "noise"))
        job.applied(directive, 16)
        until(lambda: self.server.batches[-1]["cursor"] == 1, "the cursor")
        self.assertEqual(self.server.all_of("acks"), [{"directive": 1, "applied": {"slot": 16}}])
        self.assertEqual(job.boundary(2, 32), (), "the server still sends it, the loop has seen it")
        self.assertEqual(job.state(), {"cursor": 1, "done": []})

    def test_after_a_rollback_the_undone_directive_comes_again_and_the_kept_one_does_not(self) -> None:
        self.server.directives = [SET_WEIGHTS, {**SET_WEIGHTS, "id": 2}]
        first = self.attach()
        one, two = self.next_directives(first)
        first.applied(one, 16)
        kept = first.state()
        first.applied(two, 16)
        first.close()
        again = self.attach(state=json.loads(json.dumps(kept)), step=1)
        self.assertEqual([directive.id for directive in self.next_directives(again)], [2])

    def test_rejected_failed_unknown_and_expired_directives_are_answered(self) -> None:
        self.server.directives = [
            {"id": 1, "do": "pause_shard", "shard": "a"},
            {"id": 2, "do": "resume_shard", "shard": "a"},
            {"id": 3, "do": "levitate"},
            {"id": 4, "do": "set_weights", "weights": {"a": 1}, "expires_ms": 5},
            {"nonsense": True},
        ]
        job = self.attach()
        pause, resume = self.next_directives(job)
        job.rejected(pause, "no shards here")
        job.failed(resume, ValueError("broken"))
        until(lambda: len(self.server.all_of("acks")) == 4, "four acks")
        by_id = {ack["directive"]: ack for ack in self.server.all_of("acks")}
        self.assertEqual(by_id[1], {"directive": 1, "rejected": {"reason": "no shards here"}})
        self.assertEqual(by_id[2], {"directive": 2, "failed": {"error": "broken"}})
        self.assertIn("rejected", by_id[3])
        self.assertEqual(by_id[4], {"directive": 4, "expired": {}})
        self.assertEqual(job.state(), {"cursor": 4, "done": []})

    def test_the_ack_of_a_yield_never_precedes_its_checkpoint(self) -> None:
        for checkpoint_first in (True, False):
            with self.subTest(checkpoint_first=checkpoint_first):
                self.server.directives = [{"id": 1, "do": "yield"}]
                self.server.bodies.clear()
                job = self.attach()
                (directive,) = self.next_directives(job, step=10)
                if not checkpoint_first:
                    job.applied(directive, 160)
                job.checkpointed(10, "step-10", 1, 1, "sha256:0")
                if checkpoint_first:
                    job.applied(directive, 160)
                job.close()
                checkpoint = [batch["seq"] for batch in self.server.batches if batch["checkpoints"]]
                ack = [batch["seq"] for batch in self.server.batches if batch["acks"]]
                self.assertEqual((len(checkpoint), len(ack)), (1, 1))
                self.assertLessEqual(checkpoint[0], ack[0])

    def test_a_yield_that_was_never_saved_is_acknowledged_as_failed(self) -> None:
        self.server.directives = [{"id": 1, "do": "yield"}]
        job = self.attach()
        (directive,) = self.next_directives(job, step=10)
        job.applied(directive, 160)
        job.close()
        (ack,) = self.server.all_of("acks")
        self.assertIn("failed", ack)

    def test_a_superseded_attempt_yields_once_and_sends_nothing_more(self) -> None:
        self.server.script = [self.server.answer, status(409, b'{"code":"AP0000","detail":"superseded"}')]
        job = self.attach()
        (directive,) = self.next_directives(job)
        self.assertEqual((directive.id, directive.do, directive.reason), (None, "yield", "superseded"))
        job.applied(directive, 16)
        job.signal(2, loss=1.0)
        self.assertEqual(job.boundary(2, 32), ())
        job.close()
        self.assertEqual(len(self.server.bodies), 2)


class Ranks(Served):
    def test_all_ranks_are_handed_the_same_directive_at_one_slot(self) -> None:
        ranks = 3
        barrier = threading.Barrier(ranks, timeout=5)
        shared: list[Any] = [None]
        seen: list[list[tuple[int, int | None]]] = [[] for _ in range(ranks)]
        states: list[Any] = [None] * ranks

        def train(rank: int, job: Job) -> None:
            def broadcast(payload: dict[str, Any]) -> dict[str, Any]:
                if rank == 0:
                    shared[0] = json.dumps(payload)
                barrier.wait()
                agreed: dict[str, Any] = json.loads(shared[0])
                barrier.wait()
                return agreed

            slot = 0
            while len(seen[rank]) < 2:
                slot += 16
                for directive in job.boundary(slot // 16, slot, broadcast):
                    seen[rank].append((slot, directive.id))
                    job.applied(directive, slot)
            states[rank] = job.state()

        self.server.directives = [SET_WEIGHTS, {**SET_WEIGHTS, "id": 2, "not_before_slot": 160}]
        jobs = [self.attach(rank=rank) for rank in range(ranks)]
        threads = [threading.Thread(target=train, args=(rank, job), daemon=True) for rank, job in enumerate(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(seen[0], seen[2])
        self.assertGreaterEqual(seen[0][1][0], 160)
        self.assertEqual(states, [{"cursor": 2, "done": []}] * ranks)
        until(lambda: len(self.server.all_of("acks")) == 2, "rank 0's acks")

    def test_an_error_of_the_broadcast_is_the_callers(self) -> None:
        def broken(payload: dict[str, Any]) -> dict[str, Any]:
            raise RuntimeError("the process group is gone")

        with self.assertRaisesRegex(RuntimeError, "process group"):
            self.attach().boundary(1, 16, broken)

    def test_the_broadcast_is_called_without_antiphon_too(self) -> None:
        calls: list[dict[str, Any]] = []

        def alone(payload: dict[str, Any]) -> dict[str, Any]:
            calls.append(payload)
            return payload

        job = antiphon.attach(environment=antiphon.Environment())
        self.assertEqual(job.boundary(1, 16, alone), ())
        self.assertEqual(len(calls), 1)


if __name__ == "__main__":
    unittest.main()
