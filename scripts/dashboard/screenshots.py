"""Makes pictures of every page, light and dark, large and small, from a live server.

`make screenshots` writes docs/img/dashboard.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from world import H100, ROOT, World

PAGES = ["now", "cluster", "queue", "job", "teams", "explain"]
OLDER = {"partition": '"older"', "gpu_type": '"A100-40GB"'}
SIZES = {"large": (1440, 900), "small": (375, 812)}
# What is committed: each page in one look, and the phone and the dark for some.
KEPT = {
    *(f"{page}-large-light" for page in PAGES),
    "now-large-dark",
    "job-large-dark",
    "cluster-large-dark",
    "now-small-light",
    "job-small-dark",
    "queue-small-light",
}


def people(world: World) -> str:
    """Lets some teams work, and returns the job to look at closely."""
    accept = '{ metric = "loss", op = "<=", value = 1.35, from = "train" }'
    main = world.train("sft-llama-8b", "rlhf", "best-effort", 8, 900, accept=accept)
    world.sleep("serve-judge", "eval", "service", 8, 3600, **H100)
    world.sleep("grpo-70b", "rlhf", "production", 64, 3000, estimate='"50m"', **H100)
    world.sleep("sft-mixtral", "sft", "production", 56, 5400, estimate='"90m"', **H100)
    world.run("drain", "m08", "--reason", "fan 3 is loud")
    world.sleep("dpo-qwen-14b", "sft", "standard", 56, 2400, estimate='"40m"', **H100)
    for index, name in enumerate(["mmlu", "gsm8k", "humaneval", "ifeval"]):
        world.sleep(f"eval-{name}", "eval", "standard", 2 + index, 900 + 60 * index, estimate='"15m"', **OLDER)
    for index in range(3):
        world.sleep(f"ablate-lr-{index}", "research", "best-effort", 4, 2000, estimate='"30m"', **OLDER)

    def answered() -> bool:
        directives = world.get(f"/v1/jobs/{main}")["directives"]
        return any(one["do"].startswith("set_weights") and one["answer"] for one in directives)

    world.wait("the noise to be found", answered)
    urgent = world.train("hotfix-safety", "rlhf", "production", 8, 60, seed=1)
    world.wait("the urgent job to end", lambda: world.get(f"/v1/jobs/{urgent}")["summary"]["state"] == "succeeded")
    world.wait("the trainer to go on", lambda: world.get(f"/v1/jobs/{main}")["summary"]["attempts"] > 1)
    # Behind the trainer, and in nobody's way.
    for index in range(14):
        team, job_class = ["sft", "research", "rlhf"][index % 3], ["standard", "best-effort"][index % 2]
        world.sleep(f"sweep-{index:02d}", team, job_class, [64, 16, 32, 8][index % 4], 1200, estimate='"20m"', **H100)
    world.sleep("merge-adapters", "sft", "standard", 8, 300, after='["dpo-qwen-14b"]')
    held = world.sleep("nightly-regression", "eval", "best-effort", 8, 600)
    world.run("hold", held)
    time.sleep(12)
    return main


def look(browser: Browser, world: World, job: str, out: Path, only: set[str] | None) -> None:
    """Opens every page in every look and keeps a picture of it."""
    for theme in ("light", "dark"):
        for size, (width, height) in SIZES.items():
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=theme, device_scale_factor=1
            )
            page = context.new_page()
            page.goto(f"{world.url}#token={world.token}")
            for name in PAGES:
                if only is not None and f"{name}-{size}-{theme}" not in only:
                    continue
                show(page, name, job)
                # What is below two looks is more of the same, and pictures are to stay small.
                whole: int = page.evaluate("document.documentElement.scrollHeight")
                height_shown = min(whole, 1180 if size == "large" else 1100)
                page.set_viewport_size({"width": width, "height": height_shown})
                page.screenshot(path=str(out / f"{name}-{size}-{theme}.png"))
                page.set_viewport_size({"width": width, "height": height})
            context.close()


def show(page: Page, name: str, job: str) -> None:
    """Goes to a page and waits until it is drawn."""
    address = page.url.split("#")[0]
    page.goto(f"{address}#/{name}" + (f"/{job}" if name == "job" else ""))
    page.wait_for_selector("main h1")
    page.wait_for_selector(".skeleton", state="detached")
    page.wait_for_timeout(900)


def main() -> None:
    """Makes the pictures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--binary", type=Path, required=True)
    options.add_argument("--chromium", default=os.environ.get("CHROMIUM", "/usr/bin/chromium"))
    options.add_argument("--directory", type=Path, default=ROOT / "target" / "dashboard")
    options.add_argument("--out", type=Path, default=ROOT / "docs" / "img" / "dashboard")
    options.add_argument("--all", action="store_true", help="also those that are not committed")
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with World(given.binary, given.directory) as world, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
        look(browser, world, people(world), given.out, None if given.all else KEPT)
        browser.close()


if __name__ == "__main__":
    main()
