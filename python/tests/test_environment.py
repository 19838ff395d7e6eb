"""What a process reads from its environment."""

from __future__ import annotations

import unittest

import _paths  # noqa: F401
from antiphon import Environment

LAUNCHED = {
    "ANTIPHON_URL": "http://127.0.0.1:7440/",
    "ANTIPHON_JOB": "job-42",
    "ANTIPHON_ATTEMPT": "job-42.3",
    "ANTIPHON_JOB_TOKEN": "secret",
    "ANTIPHON_CHECKPOINT_DIR": "/ckpt",
    "ANTIPHON_RESUME_FROM": "/ckpt/step-9",
    "RANK": "5",
}


class Reading(unittest.TestCase):
    def test_the_attempt_is_the_number_after_the_dot(self) -> None:
        environment = Environment.read(LAUNCHED)
        assert environment.endpoint is not None
        self.assertEqual(environment.endpoint.attempt, 3)
        self.assertEqual(environment.endpoint.url, "http://127.0.0.1:7440")
        self.assertEqual(environment.rank, 5)
        self.assertEqual((environment.checkpoint_dir, environment.resume_from), ("/ckpt", "/ckpt/step-9"))

    def test_whose_word_counts_that_it_is_the_server_is_a_file_or_left_to_the_system(self) -> None:
        for value, expected in [("/etc/antiphon/ca.pem", "/etc/antiphon/ca.pem"), ("", None)]:
            endpoint = Environment.read({**LAUNCHED, "ANTIPHON_CA": value}).endpoint
            assert endpoint is not None
            self.assertEqual(endpoint.ca, expected)

    def test_without_variables_the_process_is_not_attached(self) -> None:
        self.assertEqual(Environment.read({}), Environment())

    def test_variables_that_make_no_sense_are_logged_and_leave_the_process_unattached(self) -> None:
        for name, value in [
            ("ANTIPHON_ATTEMPT", "job-41.3"),
            ("ANTIPHON_ATTEMPT", "job-42.x"),
            ("ANTIPHON_ATTEMPT", ""),
            ("ANTIPHON_JOB_TOKEN", ""),
            ("ANTIPHON_URL", "ftp://host"),
            ("ANTIPHON_URL", "http://host:port"),
        ]:
            with self.subTest(name=name, value=value), self.assertLogs("antiphon", "WARNING"):
                environment = Environment.read({**LAUNCHED, name: value})
            self.assertIsNone(environment.endpoint)
            self.assertEqual(environment.checkpoint_dir, "/ckpt", "the rest stays usable")

    def test_the_token_is_never_printed(self) -> None:
        self.assertNotIn("secret", repr(Environment.read(LAUNCHED)))
