"""Whether a GPU is throttled: asked seldom, of the right device, and never again where nobody answers."""

from __future__ import annotations

import sys
import types
import unittest
from unittest import mock

import _paths  # noqa: F401
from antiphon.device import Throttle


class Driver(types.ModuleType):
    """Stands in for `pynvml`."""

    def __init__(self, reasons: int) -> None:
        super().__init__("pynvml")
        self.reasons = reasons
        self.asked: list[object] = []

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        return index

    def nvmlDeviceGetHandleByUUID(self, name: str) -> object:
        return name

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object) -> int:
        self.asked.append(handle)
        return self.reasons


class ThrottleTest(unittest.TestCase):
    def test_heat_counts_the_power_cap_does_not(self) -> None:
        for reasons, expected in ((0x40, True), (0x20, True), (0x04, False), (0x01, False), (0, False)):
            with self.subTest(reasons=reasons), mock.patch.dict(sys.modules, {"pynvml": Driver(reasons)}):
                self.assertEqual(Throttle({}).is_on(), expected)

    def test_the_driver_is_asked_every_ten_seconds(self) -> None:
        times = [0.0, 5.0, 9.9, 10.0, 19.0]
        driver = Driver(0x40)
        throttle = Throttle({}, iter(times).__next__)
        with mock.patch.dict(sys.modules, {"pynvml": driver}):
            self.assertEqual([throttle.is_on() for _ in times], [True] * 5)
        self.assertEqual(len(driver.asked), 2)

    def test_the_device_is_that_of_the_local_rank(self) -> None:
        for variables, expected in (
            ({}, 0),
            ({"LOCAL_RANK": "3"}, 3),
            ({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,6"}, 6),
            ({"CUDA_VISIBLE_DEVICES": "GPU-7a"}, "GPU-7a"),
        ):
            driver = Driver(0)
            with self.subTest(variables=variables), mock.patch.dict(sys.modules, {"pynvml": driver}):
                Throttle(variables).is_on()
            self.assertEqual(driver.asked, [expected])

    def test_without_a_driver_nobody_is_asked_twice(self) -> None:
        times = [0.0, 100.0]
        throttle = Throttle({"CUDA_VISIBLE_DEVICES": "0", "LOCAL_RANK": "5"}, iter(times).__next__)
        driver = Driver(0x40)
        with mock.patch.dict(sys.modules, {"pynvml": driver}):
            self.assertEqual([throttle.is_on() for _ in times], [False, False])
        self.assertEqual(driver.asked, [])


if __name__ == "__main__":
    unittest.main()
