"""How long pages of the dashboard take on a large cluster, in Chromium beside `antiphon simulate --serve`.

The simulation has run ahead to a moment at which 5,000 nodes are full and 100,000 jobs are there, and goes on there
while pages are opened and follow it. Prints one JSON object a line, which `scripts/performance_page.py` takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from simulation import Simulation

PAGES = {"now": "Now", "cluster": "Cluster", "queue": "Queue", "job": "", "teams": "Teams", "explain": "Explain"}
# Those that follow the simulation; Explain is asked for.
LIVE = ["now", "cluster", "queue", "job", "teams"]

# Milliseconds from the navigation until the page's rows have been drawn and painted.
OPENED = """() => new Promise((done) => {
  const look = () => {
    const drawn = document.querySelector("main h1") && !document.querySelector("main .skeleton");
    if (drawn) requestAnimationFrame(() => setTimeout(() => done(performance.now()), 0));
    else requestAnimationFrame(look);
  };
  look();
})"""

# Keeps how long each change took from its arrival until it was painted.
WATCH = """() => {
  window.changes = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (entry.name === "antiphon-change") window.changes.push(entry.duration);
  }).observe({ entryTypes: ["measure"] });
}"""


def told(bench: str, values: list[float], **more: Any) -> None:
    """Prints one measurement."""
    line = {"bench": f"dashboard/{bench}", "value": round(statistics.median(values), 1), "unit": "ms"}
    line["spread"] = [round(min(values), 1), round(max(values), 1)]
    print(json.dumps({**line, "runs": len(values), **more}), flush=True)


def opened(browser: Browser, simulation: Simulation, place: str) -> float:
    """Opens a page in a new tab of a browser that has been here before, and waits until it is painted."""
    page = browser.contexts[0].new_page()
    page.goto(f"{simulation.url}#/{place}", wait_until="commit")
    took: float = page.evaluate(OPENED)
    page.close()
    return took


def changes(page: Page, wanted: int) -> list[float]:
    """The next changes that the page draws."""
    page.evaluate(WATCH)
    # Asked from outside: the page's own policy lets no text become code.
    while page.evaluate("window.changes.length") < wanted:
        page.wait_for_timeout(200)
    found: list[float] = page.evaluate("window.changes")
    return found


def main() -> None:
    """Measures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--binary", type=Path, required=True)
    options.add_argument("--nodes", type=int, default=5_000)
    options.add_argument("--jobs", type=int, default=100_000, help="jobs that are there while it is measured, at least")
    options.add_argument("--runs", type=int, default=5, help="how often each page is opened")
    options.add_argument("--changes", type=int, default=20, help="changes of each page that are waited for")
    options.add_argument("--speed", default="60x")
    given = options.parse_args()
    # Some have ended by the time at which it is looked at.
    made = given.jobs * 13 // 10
    with Simulation(given.binary, nodes=given.nodes, jobs=made, speed=given.speed) as simulation:
        jobs = simulation.jobs()
        there = sum(jobs.get(state, 0) for state in ("pending", "starting", "running", "stopping", "held"))
        if there < given.jobs:
            raise SystemExit(f"only {there} jobs are there, and {given.jobs} were to be: {jobs}")
        size = {"nodes": given.nodes, "jobs": there, "running": jobs.get("running", 0), "speed": given.speed}
        with sync_playwright() as playwright:
            chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            page = context.new_page()
            page.set_default_timeout(120_000)
            page.goto(f"{simulation.url}#token={simulation.token}")
            page.wait_for_selector("main h1")
            job = next(job["id"] for job in simulation.get("/v1/jobs?state=running&limit=1")["jobs"])
            for place in PAGES:
                where = f"job/{job}" if place == "job" else place
                page.goto("about:blank")
                took = [opened(browser, simulation, where) for _ in range(given.runs)]
                told(f"open_{place}", took, first_ms=round(took[0], 1), **size)
            for place in LIVE:
                page.goto(f"{simulation.url}#/{f'job/{job}' if place == 'job' else place}")
                page.wait_for_selector(".skeleton", state="detached")
                told(f"change_{place}", changes(page, given.changes), **size)
            browser.close()


if __name__ == "__main__":
    main()
