"""What only a whole process shows: SIGTERM, forked children, and the flush at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import unittest

from _paths import PACKAGE
from fake_server import FakeServer, fake_server, until


def start(program: str, server: FakeServer | None = None, stderr: int | None = None) -> subprocess.Popen[str]:
    variables = server.variables() if server is not None else {}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE), **variables},
    )


def finish(process: subprocess.Popen[str]) -> str:
    try:
        out, _ = process.communicate(timeout=10)
    finally:
        process.kill()
    return out


class Sigterm(unittest.TestCase):
    def test_the_handler_sets_a_flag_chains_the_earlier_handler_once_and_ignores_repeats(self) -> None:
        process = start(
            "import antiphon, signal, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: print('earlier', flush=True))\n"
            "job = antiphon.attach()\n"
            "assert not job.terminating and job.grace_left_s is None\n"
            "print('ready', flush=True)\n"
            "while not job.terminating: time.sleep(0.002)\n"
            "signal.raise_signal(signal.SIGTERM)\n"
            "assert 55 < job.grace_left_s <= 60\n"
            "print('saved', flush=True)\n"
            "raise SystemExit(143)\n"
        )
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(finish(process), "earlier\nsaved\n")
        self.assertEqual(process.returncode, 143)

    def test_a_loop_that_never_looks_still_ends_by_sigterm(self) -> None:
        process = start(
            "import antiphon, signal\njob = antiphon.attach()\nprint('ready', flush=True)\nwhile True: signal.pause()\n"
        )
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGTERM)
        finish(process)
        self.assertEqual(process.returncode, -signal.SIGTERM)

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_a_forked_child_dies_of_sigterm_and_its_job_does_nothing(self) -> None:
        with fake_server() as server:
            process = start(
                "import antiphon, os, signal, time\n"
                "job = antiphon.attach()\n"
                "assert job.attached and not job.terminating\n"
                "ready, tell = os.pipe()\n"
                "pid = os.fork()\n"
                "if pid == 0:\n"
                "    assert not job.attached and job.boundary(1, 1) == () and job.state()['cursor'] == 0\n"
                "    signal.alarm(5)\n"
                "    os.write(tell, b'.')\n"
                "    while True: time.sleep(0.01)\n"
                "os.read(ready, 1)\n"
                "os.kill(pid, signal.SIGTERM)\n"
                "print(os.WTERMSIG(os.waitpid(pid, 0)[1]), job.terminating)\n",
                server,
            )
            self.assertEqual(finish(process), f"{int(signal.SIGTERM)} False\n")


class StandsStill(unittest.TestCase):
    def test_the_stacks_of_a_process_that_hangs_are_written_once_and_said(self) -> None:
        with fake_server() as server:
            server.wants_stacks = True
            process = start(
                "import antiphon, threading\n"
                "def waits_for_ever(): threading.Event().wait()\n"
                "threading.Thread(target=waits_for_ever, name='loader', daemon=True).start()\n"
                "job = antiphon.attach()\n"
                "def all_reduce(): waits_for_ever()\n"
                "all_reduce()\n",
                server,
                stderr=subprocess.PIPE,
            )
            try:
                until(lambda: server.all_of("signals"), "the word that they are written")
                asked = len(server.bodies)
                until(lambda: len(server.bodies) > asked + 3, "further answers that ask for them")
            finally:
                process.kill()
                _, said = process.communicate()
            self.assertEqual(server.all_of("signals"), [{"task": 0, "stacks": True}])
        lines = said.splitlines()
        self.assertTrue(all(line.startswith("antiphon: task 0: ") for line in lines), said)
        told = [line.removeprefix("antiphon: task 0: ") for line in lines]
        self.assertEqual(told[0], f"stands still (process {process.pid}), most recent call last:")
        main, loader = told.index("thread MainThread:"), told.index("thread loader:")
        self.assertIn("  <string>:6 <module>", told[main:loader])
        self.assertIn("  <string>:5 all_reduce", told[main:loader])
        self.assertIn("  <string>:2 waits_for_ever", told[loader:])
        self.assertNotIn("thread antiphon-sender:", told)


class Exit(unittest.TestCase):
    def test_what_is_queued_goes_out_at_exit(self) -> None:
        with fake_server() as server:
            process = start(
                "import antiphon, sys\n"
                "job = antiphon.attach()\n"
                "job.signal(1, loss=1.0)\n"
                "job.checkpointed(1, 'step-1', 1, 1, 'sha256:0')\n"
                "sys.exit(7)\n",
                server,
            )
            finish(process)
            self.assertEqual(process.returncode, 7)
            self.assertEqual((len(server.all_of("signals")), len(server.all_of("checkpoints"))), (1, 1))
