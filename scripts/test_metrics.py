"""A real Prometheus scrapes a real server: the example configuration, alert rules and board are used as they are.

Says `skipped: reason` and ends with 0 where there is no Prometheus (Debian: `apt-get install prometheus`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

MONITORING = Path(__file__).resolve().parent.parent / "examples" / "monitoring"
PATIENCE_S = 120.0

JOB = """
name = "scraped"
[resources]
gpus = 1
[run]
command = ["sleep", "600"]
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def fetch(url: str, token: str | None = None, accept: str = "*/*") -> tuple[str, str]:
    headers = {"Accept": accept, **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["content-type"], answer.read().decode()


def wait_for(what: str, look: Callable[[], Any]) -> Any:
    """Asks until there is an answer: processes take their time."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            found = look()
        except (OSError, urllib.error.URLError):
            found = None
        if found:
            return found
        time.sleep(0.2)
    raise SystemExit(f"error: {what}: not within {PATIENCE_S:.0f} s")


def run(*command: str) -> None:
    print("+", " ".join(command))
    subprocess.run(command, check=True)


def check_server(url: str, token: str) -> str:
    try:
        fetch(f"{url}/metrics")
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
    else:
        raise SystemExit("error: /metrics was read without a token")
    kind, text = fetch(f"{url}/metrics", token, "application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text"), kind
    assert text.endswith("# EOF\n"), text[-100:]
    return text


def check_prometheus(base: str) -> None:
    def query(expression: str) -> list[Any]:
        _, text = fetch(f"{base}/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        answer = json.loads(text)
        assert answer["status"] == "success", answer
        result: list[Any] = answer["data"]["result"]
        return result

    wait_for("a scrape", lambda: [s for s in query('up{job="antiphon"}') if s["value"][1] == "1"])
    running = wait_for("the job", lambda: query('antiphon_jobs{class="standard",state="running"} == 1'))
    assert running[0]["metric"]["job"] == "antiphon", running
    assert query("antiphon_gate_shut == 0"), "the gate is open"
    assert query("antiphon_commit_seconds_count > 0"), "commits are timed"
    assert query('antiphon_queue_delay_seconds_count{class="standard"} == 1'), "one launch"
    _, rules = fetch(f"{base}/api/v1/rules")
    named = [rule["name"] for group in json.loads(rules)["data"]["groups"] for rule in group["rules"]]
    assert len(named) == 7, named
    board = json.loads((MONITORING / "grafana.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for expression in expressions:
        query(expression)
    print(f"Prometheus scraped the server, has {len(named)} rules and answers {len(expressions)} queries of the board")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--allow-root", action="store_true")
    args = parser.parse_args()
    prometheus, promtool = shutil.which("prometheus"), shutil.which("promtool")
    if not prometheus or not promtool:
        print(
            "skipped: there is no `prometheus` or no `promtool` on the path; Debian has both in the package prometheus"
        )
        return 0
    run(promtool, "check", "rules", str(MONITORING / "alerts.yml"))
    run(promtool, "test", "rules", str(MONITORING / "alerts_test.yml"))
    with tempfile.TemporaryDirectory() as folder:
        return scrape(Path(folder), args.binary.resolve(), args.allow_root, prometheus, promtool)


def scrape(folder: Path, binary: Path, allow_root: bool, prometheus: str, promtool: str) -> int:
    port, state = free_port(), folder / "state"
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "ANTIPHON_STATE_DIR": str(state), "XDG_CONFIG_HOME": str(folder / "none")}
    up = [str(binary), "up", "--listen", f"127.0.0.1:{port}", "--virtual-gpus", "8"]
    up += ["--allow-root"] if allow_root else []
    processes = [subprocess.Popen(up, env=environment, stderr=subprocess.DEVNULL)]
    try:
        token_file = state / "token"
        wait_for("the server", lambda: token_file.exists() and fetch(f"{url}/v1/openapi.json"))
        token = token_file.read_text().strip()
        job = folder / "job.toml"
        job.write_text(JOB)
        subprocess.run([str(binary), "submit", str(job)], env=environment, check=True)
        wait_for("the job", lambda: 'state="running"} 1' in check_server(url, token))
        kind, text = fetch(f"{url}/metrics", token)
        assert kind.startswith("text/plain; version=0.0.4"), kind
        checked = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True)
        print(checked.stdout, checked.stderr, sep="")
        assert "no help text" not in checked.stderr + checked.stdout, "every metric says what it is"
        config = (MONITORING / "prometheus.yml").read_text()
        config = config.replace("/etc/prometheus/antiphon-token", str(token_file)).replace(
            "127.0.0.1:7440", f"127.0.0.1:{port}"
        )
        config = config.replace("15s", "1s")
        (folder / "prometheus.yml").write_text(config)
        shutil.copy(MONITORING / "alerts.yml", folder)
        listen = f"127.0.0.1:{free_port()}"
        command = [prometheus, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        processes.append(subprocess.Popen([*command, f"--web.listen-address={listen}"], stderr=subprocess.DEVNULL))
        check_prometheus(f"http://{listen}")
        subprocess.run([str(binary), "cancel", "scraped"], env=environment, check=True)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
