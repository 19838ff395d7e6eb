"""How long pages of the dashboard take with 5,000 nodes and 100,000 jobs, in Chromium beside the server.

Nothing is started: antiphon is paused, so that no process runs beside what is measured. Prints one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from world import ROOT, World

PAGES = {"now": "Now", "cluster": "Cluster", "queue": "Queue", "teams": "Teams"}
ARRAY = 1_000

# From the change of the address until the page is there and painted.
OPEN = """([place, title]) => new Promise((done) => {
  const began = performance.now();
  location.hash = `#/${place}`;
  const look = () => {
    const heading = document.querySelector("main h1");
    const drawn = heading && heading.textContent === title && !document.querySelector("main .skeleton");
    if (drawn) requestAnimationFrame(() => done(performance.now() - began));
    else requestAnimationFrame(look);
  };
  look();
})"""

# How long the newest change took to read and to draw.
CHANGE = "() => performance.getEntriesByName('antiphon-change')[0].duration"


def large(world: World, nodes: int) -> None:
    """Makes the cluster large."""
    text = f"""\
[[partition]]
name = "train"
nodes = [{{ names = "n[0001-{nodes:04d}]", gpus = 8, gpu_type = "H100", leaf = "per 16", spine = "per 320" }}]
"""
    (world.directory / "cluster.toml").write_text(text, encoding="utf-8")


def fill(world: World, jobs: int) -> None:
    """Lets so many jobs wait."""
    for index in range(jobs // ARRAY):
        team = ["rlhf", "sft", "eval", "research"][index % 4]
        job_class = ["standard", "best-effort", "production"][index % 3]
        text = [f'name = "sweep-{index}"', f'team = "{team}"', f'class = "{job_class}"', f'array = "0-{ARRAY - 1}"']
        text += ["[resources]", f"gpus = {[1, 8, 16, 2][index % 4]}", "[run]", 'command = ["sleep", "600"]']
        path = world.directory / "array.toml"
        path.write_text("\n".join(text) + "\n", encoding="utf-8")
        world.run("submit", str(path))


def told(bench: str, value: float, **more: Any) -> None:
    """Prints one measurement."""
    print(json.dumps({"bench": bench, "value": round(value, 1), "unit": "ms", **more}), flush=True)


def changed(page: Page) -> float:
    """The next change that the page draws."""
    page.evaluate("performance.clearMeasures()")
    page.wait_for_function("performance.getEntriesByName('antiphon-change').length > 0", timeout=30_000)
    took: float = page.evaluate(CHANGE)
    return took


def main() -> None:
    """Measures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--binary", type=Path, required=True)
    options.add_argument("--nodes", type=int, default=5_000)
    options.add_argument("--jobs", type=int, default=100_000)
    options.add_argument("--runs", type=int, default=5)
    given = options.parse_args()
    world = World(given.binary, ROOT / "target" / "dashboard-times")
    large(world, given.nodes)
    world.up()
    try:
        world.run("pause", "--reason", "measuring")
        fill(world, given.jobs)
        with sync_playwright() as playwright:
            chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(f"{world.url}#token={world.token}")
            page.wait_for_selector("main h1", timeout=120_000)
            for place, title in PAGES.items():
                took = []
                for _ in range(given.runs):
                    page.evaluate(OPEN, ["explain", "Explain"])
                    took.append(page.evaluate(OPEN, [place, title]))
                told(f"dashboard_open_{place}", statistics.median(took), first=round(took[0], 1), runs=given.runs)
            page.evaluate(OPEN, ["cluster", "Cluster"])
            took = []
            for index in range(given.runs):
                world.run("drain", f"n{index + 1:04d}")
                took.append(changed(page))
            told("dashboard_change_cluster", statistics.median(took), runs=given.runs)
            page.evaluate(OPEN, ["queue", "Queue"])
            took = []
            for index in range(given.runs):
                world.sleep(f"one-more-{index}", "rlhf", "service", 1, 60)
                took.append(changed(page))
            told("dashboard_change_queue", statistics.median(took), runs=given.runs)
            browser.close()
    finally:
        world.kill()


if __name__ == "__main__":
    main()
