"""What retention keeps, whatever was saved."""

from __future__ import annotations

import random
import unittest

import _paths  # noqa: F401
from antiphon.retention import DAY_S, Retention, Saved

NOW_S = 100.5 * DAY_S


def saved(step: int, *, days_ago: float = 0.0, loss: float | None = None, acknowledged: bool = True) -> Saved:
    return Saved(f"step-{step}", step, NOW_S - days_ago * DAY_S, loss, acknowledged)


def left(checkpoints: list[Saved], retention: Retention) -> list[int]:
    gone = retention.to_delete(checkpoints, NOW_S)
    return [one.step for one in checkpoints if one not in gone]


class RetentionTest(unittest.TestCase):
    def test_the_newest_and_the_best_stay(self) -> None:
        losses = [3.0, 2.0, 1.0, 1.5, 1.6, 1.7]
        checkpoints = [saved(step, loss=loss) for step, loss in enumerate(losses)]
        self.assertEqual(left(checkpoints, Retention(newest=2, best=1, days=0)), [2, 4, 5])

    def test_the_newest_of_each_day_stays_for_as_many_days(self) -> None:
        days = [(6, 4.0), (7, 3.0), (8, 2.0), (9, 1.0), (10, 0.2), (11, 0.0)]
        checkpoints = [saved(step, days_ago=ago) for step, ago in days]
        self.assertEqual(left(checkpoints, Retention(newest=1, best=0, days=3)), [8, 9, 11])

    def test_after_a_rollback_the_lower_step_is_the_newer_checkpoint(self) -> None:
        checkpoints = [saved(step) for step in (100, 200, 300, 120)]
        self.assertEqual(left(checkpoints, Retention(newest=2, best=0, days=0)), [300, 120])

    def test_the_numbers_of_the_environment_are_read_and_nonsense_is_refused(self) -> None:
        self.assertEqual(Retention.read("newest=3,best=1,days=7"), Retention(3, 1, 7))
        self.assertEqual(Retention.read("newest=2"), Retention(2, 0, 0))
        for text in ("3", "newest=-1", "oldest=2", "newest=2,"):
            with self.assertRaises(ValueError):
                Retention.read(text)

    def test_the_only_acknowledged_one_stays_whatever_comes_after(self) -> None:
        later = [saved(step, acknowledged=False) for step in range(2, 30)]
        self.assertEqual(left([saved(1), *later], Retention(newest=1, best=0, days=0)), [1, *range(2, 30)])

    def test_without_an_acknowledgement_nothing_goes(self) -> None:
        checkpoints = [saved(step, acknowledged=False) for step in range(9)]
        self.assertEqual(Retention(newest=1, best=0, days=0).to_delete(checkpoints, NOW_S), [])

    def test_a_loss_that_is_not_a_number_is_never_best(self) -> None:
        checkpoints = [saved(1, loss=float("nan")), saved(2, loss=2.0), saved(3)]
        self.assertEqual(left(checkpoints, Retention(newest=1, best=1, days=0)), [2, 3])

    def test_what_a_next_attempt_resumes_from_survives_every_history(self) -> None:
        for seed in range(500):
            draw = random.Random(seed)
            checkpoints = [
                saved(
                    draw.randrange(step + 1),
                    days_ago=draw.random() * 9,
                    loss=draw.choice([None, draw.random()]),
                    acknowledged=draw.random() < 0.5,
                )
                for step in range(draw.randrange(1, 20))
            ]
            retention = Retention(draw.randrange(3), draw.randrange(2), draw.randrange(5))
            gone = retention.to_delete(checkpoints, NOW_S)
            acknowledged = [one for one in checkpoints if one.acknowledged]
            if acknowledged:
                self.assertNotIn(acknowledged[-1], gone)
            else:
                self.assertEqual(gone, [])


if __name__ == "__main__":
    unittest.main()
