"""A simulation of a large cluster in the dashboard: `antiphon simulate --serve` on a load that is made up.

Nothing runs but the simulator and its pages, so what is measured or photographed is theirs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

# Longer than an unoptimized build takes to come to the moment that is looked at.
PATIENCE_S = 1_800.0

CLUSTER = """\
[[partition]]
name = "train"
price_per_gpu_hour = "2.50"
nodes = [{{ names = "n[0001-{nodes:04d}]", gpus = 8, gpu_type = "H100", leaf = "per 16", spine = "per 320" }}]
"""

# Far more in an hour than the cluster can do in months: the queue grows, and what has started runs for hours.
LOAD = """\
[load]
seed = 1
gpus = {gpus}
widest = 1024
jobs = {jobs}
span = "{span_h}h"
load_permille = {load_permille}
teams = 50
users_per_team = 12
production_permille = 50
best_effort_permille = 200
"""


class Simulation:
    """One `antiphon simulate --serve`, which stands where it was to run ahead to, or goes on from there."""

    def __init__(
        self, binary: Path, *, nodes: int, jobs: int, speed: str | None, span_h: int = 1, load_permille: int = 2_000_000
    ) -> None:
        self.binary = binary.resolve()
        self.directory = tempfile.TemporaryDirectory(prefix="antiphon-dashboard-")
        folder = Path(self.directory.name)
        self.cluster = folder / "cluster.toml"
        self.cluster.write_text(CLUSTER.format(nodes=nodes), encoding="utf-8")
        self.trace = folder / "load.toml"
        load = LOAD.format(gpus=nodes * 8, jobs=jobs, span_h=span_h, load_permille=load_permille)
        self.trace.write_text(load, encoding="utf-8")
        self.until_ms = span_h * 3_600_000
        self.speed = speed
        self.said: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.token = ""

    def __enter__(self) -> Simulation:
        command = [str(self.binary), "simulate", "--trace", str(self.trace), "--cluster", str(self.cluster)]
        command += ["--knowledge", "limits", "--serve", "--until", f"{self.until_ms // 3_600_000}h"]
        command += ["--speed", self.speed] if self.speed else []
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR")}
        self.process = subprocess.Popen(command, env=kept, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, daemon=True).start()
        found = self.wait("an address", lambda: re.search(r"(http://\S+/) .*`(.*)`", "\n".join(self.said)))
        self.url = found[1]
        self.token = Path(found[2]).read_text(encoding="utf-8").strip()
        self.wait("the moment that is looked at", self.is_there)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=60)
        self.directory.cleanup()

    def listen(self) -> None:
        """Keeps what it says."""
        assert self.process is not None
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))

    def wait(self, what: str, ready: Any) -> Any:
        """Asks until there is an answer."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := ready()):
            if self.process is not None and self.process.poll() is not None:
                raise SystemExit(f"it ended while waiting for {what}:\n" + "\n".join(self.said))
            if time.monotonic() > deadline:
                raise SystemExit(f"waited {PATIENCE_S:.0f} s for {what}")
            time.sleep(0.2)
        return found

    def get(self, path: str) -> Any:
        """Asks the API."""
        request = urllib.request.Request(self.url.rstrip("/") + path, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def is_there(self) -> bool:
        """Whether it has run ahead as far as it was to."""
        return any("after its beginning" in line and "is reached" in line for line in self.said)

    def jobs(self) -> dict[str, int]:
        """How many jobs there are, by state."""
        jobs: dict[str, int] = self.get("/v1/status")["jobs"]
        return jobs
