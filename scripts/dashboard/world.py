"""A server with a small cluster, teams and jobs, for the browser test and for screenshots of the dashboard.

It drives the `antiphon` command as a person would. Trainers are those of the quickstart; everything else sleeps.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "examples" / "quickstart" / "train.py"
# A machine under load is slow, not wrong; past this something hangs.
PATIENCE_S = 600.0

CONFIGURATION = """\
[policy]
near_end_ms = 0
[[team]]
name = "rlhf"
weight = 2
quota = 80
budget = "160h"
[[team]]
name = "sft"
quota = 64
budget = "900h"
[[team]]
name = "eval"
quota = 16
limit = 32
[[team]]
name = "research"
"""

CLUSTER = """\
[[partition]]
name = "train"
price_per_gpu_hour = "2.50"
interconnect = "400Gb"
nodes = [
  { names = "n[01-16]", gpus = 8, gpu_type = "H100-SXM-80GB", gpu_memory = "80GB", leaf = "per 4", spine = "spine-a" },
  { names = "m[01-08]", gpus = 8, gpu_type = "H100-SXM-80GB", gpu_memory = "80GB", leaf = "per 4", spine = "spine-b" },
]
[[partition]]
name = "older"
price_per_gpu_hour = "1.10"
nodes = [{ names = "a[01-04]", gpus = 8, gpu_type = "A100-40GB", leaf = "per 4", spine = "spine-c" }]
"""

# What a trainer with bad intentions would send: nothing of it may become markup.
HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"

HOSTILE_TRAINER = """\
import json, os, sys, time, urllib.request
bad = sys.argv[1]
print(bad, flush=True)
url = os.environ["ANTIPHON_URL"] + "/v1/jobs/" + os.environ["ANTIPHON_JOB"] + "/signals"
for step in range(1, 100000):
    signals = [{"task": 0, "step": step, "loss": 2.0 / step, "step_ms": 100, "tokens": 4096, "grad_norm": 1.0},
               {"task": 0, "step": step, "shard": bad, "loss": 1.5, "samples": 8},
               {"task": 0, "step": step, "shard": "plain", "loss": 1.0, "samples": 8}]
    body = {"attempt": int(os.environ["ANTIPHON_ATTEMPT"].split(".")[-1]), "boot": "b", "seq": step, "signals": signals}
    headers = {"Authorization": "Bearer " + os.environ["ANTIPHON_JOB_TOKEN"], "Content-Type": "application/json"}
    try:
        urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=5).read()
    except OSError as error:
        print("not heard:", error, flush=True)
    time.sleep(0.1)
"""


# The larger part of the cluster.
H100 = {"gpu_type": '"H100-SXM-80GB"'}


class World:
    """A server of its own, in a directory of its own."""

    def __init__(self, binary: Path, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self.binary = binary.resolve()
        self.directory = directory.resolve()
        self.state = self.directory / "state"
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("ANTIPHON_") or name == "ANTIPHON_WEB_DIR"
        }
        self.environment = {
            **kept,
            "ANTIPHON_STATE_DIR": str(self.state),
            "XDG_CONFIG_HOME": str(self.directory / "config"),
        }
        self.server: subprocess.Popen[bytes] | None = None
        self.listen = "127.0.0.1:0"
        config = self.directory / "config" / "antiphon"
        config.mkdir(parents=True)
        (config / "antiphon.toml").write_text(CONFIGURATION, encoding="utf-8")
        (self.directory / "cluster.toml").write_text(CLUSTER, encoding="utf-8")
        (self.directory / "hostile.py").write_text(HOSTILE_TRAINER, encoding="utf-8")

    def __enter__(self) -> World:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self) -> None:
        """Starts the server, again at the same address, and waits until it answers."""
        command = [str(self.binary), "up", "--listen", self.listen, "--cluster", str(self.directory / "cluster.toml")]
        command += ["--allow-root"] if os.geteuid() == 0 else []
        (self.state / "address").unlink(missing_ok=True)
        with (self.directory / "server.log").open("ab") as log:
            self.server = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        self.wait("the server to listen", (self.state / "address").exists)
        self.listen = (self.state / "address").read_text(encoding="utf-8").strip()
        self.wait("the server to answer", lambda: self.run("nodes", "--json", check=False).returncode == 0)

    def kill(self) -> None:
        """Ends the server as a power cut of its process would."""
        assert self.server is not None
        self.server.send_signal(signal.SIGKILL)
        self.server.wait(timeout=20)

    def down(self) -> None:
        """Ends the jobs and the server."""
        if self.server is None or self.server.poll() is not None:
            return
        for job in self.jobs():
            self.run("cancel", job["id"], check=False)
        deadline = time.monotonic() + 20
        while self.jobs() and time.monotonic() < deadline:
            time.sleep(0.2)
        self.server.terminate()
        self.server.wait(timeout=20)

    @property
    def token(self) -> str:
        """The user's token."""
        return (self.state / "token").read_text(encoding="utf-8").strip()

    @property
    def url(self) -> str:
        """Where the dashboard is."""
        return f"http://{self.listen}/"

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs one `antiphon` command."""
        done = subprocess.run([str(self.binary), *arguments], env=self.environment, capture_output=True, text=True)
        if check and done.returncode != 0:
            raise SystemExit(f"`antiphon {' '.join(arguments)}` failed:\n{done.stderr}")
        return done

    def get(self, path: str) -> Any:
        """Asks the API."""
        request = urllib.request.Request(
            f"http://{self.listen}{path}", headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def jobs(self) -> list[dict[str, Any]]:
        """Jobs that have not ended."""
        jobs: list[dict[str, Any]] = self.get("/v1/jobs")["jobs"]
        return jobs

    def wait(self, what: str, ready: Callable[[], Any]) -> None:
        """Waits until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not ready():
            if self.server is not None and self.server.poll() is not None:
                raise SystemExit(
                    f"the server ended while waiting for {what}:\n{(self.directory / 'server.log').read_text()}"
                )
            if time.monotonic() > deadline:
                raise SystemExit(f"waited {PATIENCE_S:.0f} s for {what}")
            time.sleep(0.1)

    def submit(self, name: str, team: str, job_class: str, gpus: int, command: list[str], **more: str) -> str:
        """Submits a job and returns its id."""
        lines = [f"name = {json.dumps(name)}", f'team = "{team}"', f'class = "{job_class}"']
        lines += [f"{key} = {value}" for key, value in more.items() if key in ("after", "estimate", "accept")]
        lines += ["[resources]", f"gpus = {gpus}"]
        lines += [
            f"{key} = {value}"
            for key, value in more.items()
            if key in ("gpu_type", "partition", "gpus_per_node", "span")
        ]
        lines += ["[run]", f"command = {json.dumps(command)}"]
        if "checkpoint" in more:
            lines += ["[checkpoint]", f'dir = "{more["checkpoint"]}"']
        if "rules" in more:
            lines += ["[rules]", more["rules"]]
        path = self.directory / "job.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return self.run("submit", str(path)).stdout.strip()

    def sleep(self, name: str, team: str, job_class: str, gpus: int, seconds: int, **more: str) -> str:
        """Submits a job that only takes time."""
        text = f"echo {name} begins; for i in $(seq {seconds // 10}); do echo step $i; sleep 10; done"
        return self.submit(name, team, job_class, gpus, ["sh", "-c", text], **more)

    def train(self, name: str, team: str, job_class: str, gpus: int, steps: int, seed: int = 0, **more: str) -> str:
        """Submits a real trainer, which has one shard of noise."""
        losses = str(self.directory / f"{name}.losses.jsonl")
        command = [sys.executable, str(QUICKSTART), "--steps", str(steps), "--seed", str(seed), "--losses", losses]
        checkpoint = str(self.directory / "checkpoints" / name)
        return self.submit(
            name, team, job_class, gpus, command, checkpoint=checkpoint, rules='shard = "auto"', **H100, **more
        )

    def hostile(self) -> str:
        """Submits a job whose output and shards try to become markup."""
        return self.submit(
            "hostile", "research", "standard", 1, [sys.executable, str(self.directory / "hostile.py"), HOSTILE]
        )
