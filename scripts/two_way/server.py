"""A server of the experiment's own on loopback, driven as a person would: `antiphon up`, `submit`, `jobs --json`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

#: A machine under load is slow, not wrong; past this something hangs.
PATIENCE_S = 900.0
#: Between two looks, each of which starts a process: more often would take the trainer's processor.
POLL_S = 2.0
#: A job of seconds stands for one of hours: a step here takes a twelfth of a second in place of several, and what the
#: policy counts in time shrinks with it. A minute between two changes by one rule becomes one second; either way it is
#: less than a tick of 20 steps.
COOL_DOWN_MS = 1000
ENDED = ("succeeded", "failed", "canceled")
#: How far the rules may go where nothing else is said.
SHARD_ALONE = {"shard": "auto"}


class Server:
    """Runs from `with` to its end, in a directory that is emptied first."""

    def __init__(self, binary: Path, directory: Path, cool_down_ms: int = COOL_DOWN_MS) -> None:
        self.binary = binary
        self.directory = directory
        shutil.rmtree(directory, ignore_errors=True)
        config = directory / "config" / "antiphon"
        config.mkdir(parents=True)
        (config / "antiphon.toml").write_text(f"[policy]\nrule_cool_down_ms = {cool_down_ms}\n", encoding="utf-8")
        self.state = directory / "state"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON_")}
        self.environment["ANTIPHON_STATE_DIR"] = str(self.state)
        self.environment["XDG_CONFIG_HOME"] = str(directory / "config")
        self.process: subprocess.Popen[bytes] | None = None
        self.listen = "127.0.0.1:0"

    def __enter__(self) -> Server:
        self.start()
        return self

    def start(self) -> None:
        """Starts the server, on its state and where it was, and waits until it answers."""
        (self.state / "address").unlink(missing_ok=True)
        command = [str(self.binary), "up", "--listen", self.listen]
        command += ["--allow-root"] if os.geteuid() == 0 else []
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        # Until it has left its address, a command would ask whatever listens at the default one.
        self.wait("the server to listen", lambda: (self.state / "address").exists() and self.answers())
        # Trainers know it by its address: started again elsewhere, it would be away for good.
        self.listen = (self.state / "address").read_text(encoding="utf-8").strip().removeprefix("http://")

    def kill(self) -> None:
        """Ends the server as a crash does; its jobs run on."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        left = [job["id"] for job in self.jobs() if job["state"] not in ENDED]
        for job in left:
            self.call("cancel", job)
        # A server that is gone before its jobs leaves them running.
        self.wait("the last jobs to end", lambda: all(self.state_of(job) in ENDED for job in left))
        self.process.terminate()
        self.process.wait(timeout=60)

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs one `antiphon` command."""
        return subprocess.run(
            [str(self.binary), *arguments], env=self.environment, capture_output=True, text=True, check=False
        )

    def answers(self) -> bool:
        """Whether a command gets through."""
        return self.call("nodes", "--json").returncode == 0

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs."""
        listed: list[dict[str, Any]] = json.loads(self.call("jobs", "--all", "--json").stdout)["jobs"]
        return listed

    def job(self, job: str) -> dict[str, Any]:
        """All that is known of a job: findings, directives, data jobs."""
        known: dict[str, Any] = json.loads(self.call("job", job, "--json").stdout)
        return known

    def submit(
        self,
        name: str,
        command: Sequence[str],
        workdir: Path,
        more: str = "",
        rules: Mapping[str, str] = SHARD_ALONE,
        grace: str = "60s",
    ) -> str:
        """Submits a job, and gives its id; `more` goes to the end of its file."""
        path = self.directory / f"{name}.toml"
        path.write_text(job_file(name, command, workdir, more, rules, grace), encoding="utf-8")
        done = self.call("submit", str(path))
        if done.returncode != 0:
            raise SystemExit(f"`{path}` was refused:\n{done.stderr}")
        return done.stdout.strip()

    def complete(
        self,
        name: str,
        command: Sequence[str],
        workdir: Path,
        more: str = "",
        rules: Mapping[str, str] = SHARD_ALONE,
    ) -> dict[str, Any]:
        """Submits a job and waits until it has succeeded; gives all that is known of it then.

        A finding is shown as it was said last; `found_ms` says when each, as `rule/subject/verdict`, was said first.
        """
        job = self.submit(name, command, workdir, more, rules)
        found: dict[str, int] = {}

        def ended() -> bool:
            known = self.job(job)
            for finding in known["findings"]:
                found.setdefault("/".join(finding[key] for key in ("rule", "subject", "verdict")), finding["at_ms"])
            return known["summary"]["state"] in ENDED

        self.wait(f"{job} to end", ended)
        known = self.job(job)
        if known["summary"]["state"] != "succeeded":
            raise SystemExit(f"{job} has {known['summary']['state']}:\n{self.call('logs', job).stdout[-4000:]}")
        return {**known, "found_ms": found}

    def state_of(self, job: str) -> str:
        """A job's state."""
        return next(str(it["state"]) for it in self.jobs() if it["id"] == job)

    def wait(self, what: str, ready: Any) -> None:
        """Waits until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not ready():
            if self.process is not None and self.process.poll() is not None:
                log = (self.directory / "server.log").read_text(encoding="utf-8")
                raise SystemExit(f"the server ended while the experiment waited for {what}:\n{log[-4000:]}")
            if time.monotonic() > deadline:
                raise SystemExit(f"waited {PATIENCE_S:.0f} s for {what}")
            time.sleep(POLL_S)


def job_file(name: str, command: Sequence[str], workdir: Path, more: str, rules: Mapping[str, str], grace: str) -> str:
    """The text of a job file."""
    modes = "\n".join(f'{rule} = "{mode}"' for rule, mode in rules.items())
    return f"""\
name = "{name}"
[resources]
gpus = 0
[run]
command = {json.dumps(list(command))}
workdir = {json.dumps(str(workdir))}
grace = "{grace}"
environment = {{ PYTHONPATH = {json.dumps(os.environ.get("PYTHONPATH", ""))} }}
[rules]
{modes}
{more}"""
