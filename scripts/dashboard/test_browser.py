"""The dashboard in a real browser, on a real server with running jobs: `make test-browser`.

What a page shows is compared with what the API says, an action is clicked through, a lost server is found again, and
what hostile trainers send stays text.
"""

from __future__ import annotations

import os
import sys
import time
import unittest
from pathlib import Path
from typing import Any, ClassVar

from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, expect, sync_playwright
from simulation import Simulation
from world import H100, HOSTILE, ROOT, World

BINARY = Path(os.environ.get("ANTIPHON_BINARY", ROOT / "target" / "debug" / "antiphon"))
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
PAGES = {"now": "Now", "cluster": "Cluster", "queue": "Queue", "teams": "Teams", "explain": "Explain"}
PATIENCE_MS = 30_000


class Dashboard(unittest.TestCase):
    """One server and one browser for all tests; each test has a page of its own."""

    world: ClassVar[World]
    playwright: ClassVar[Playwright]
    browser: ClassVar[Browser]
    trainer: ClassVar[str]
    hostile: ClassVar[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.world = World(BINARY, ROOT / "target" / "browser-test")
        cls.world.up()
        cls.playwright = sync_playwright().start()
        # As root, as in a container, Chromium has no sandbox of its own.
        cls.browser = cls.playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        cls.trainer = cls.world.train("sft-small", "rlhf", "production", 8, 3_000)
        cls.hostile = cls.world.hostile()
        cls.world.sleep("too-wide", "sft", "standard", 190, 600, **H100)
        cls.world.sleep("runs", "eval", "standard", 4, 600)
        cls.world.wait("the trainer to report", lambda: cls.step(cls.trainer) > 3)
        # Before any test ends the server: what a rule has seen of a stream is in memory.
        cls.world.wait("the noise shard to be acted on", cls.answered)
        cls.world.wait("the hostile trainer to report", lambda: cls.step(cls.hostile) > 3)
        expect.set_options(timeout=PATIENCE_MS)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.browser.close()
        cls.playwright.stop()
        cls.world.down()

    @classmethod
    def step(cls, job: str) -> int:
        """The newest step that a job has reported."""
        step: int | None = cls.world.get(f"/v1/jobs/{job}")["summary"]["step"]
        return step or 0

    @classmethod
    def answered(cls) -> bool:
        """Whether the trainer has applied a directive."""
        directives = cls.world.get(f"/v1/jobs/{cls.trainer}")["directives"]
        return any("applied" in (one["answer"] or "") for one in directives)

    def setUp(self) -> None:
        self.complaints: list[str] = []

    def tearDown(self) -> None:
        self.assertEqual(self.complaints, [], "the browser complained")

    def open(self, place: str, width: int = 1280) -> Page:
        """A new tab at a page, signed in."""
        context = self.browser.new_context(viewport={"width": width, "height": 900})
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self.complain)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(f"{self.world.url}#token={self.world.token}")
        page.wait_for_selector("main h1")
        self.go(page, place)
        return page

    def complain(self, message: ConsoleMessage) -> None:
        """Keeps what the browser complains of; what the server refuses is no fault of the page."""
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def go(self, page: Page, place: str) -> None:
        page.goto(f"{self.world.url}#/{place}")
        page.wait_for_selector("main h1")
        page.wait_for_selector(".skeleton", state="detached")

    def until(self, what: str, page: Page, ready: Any) -> None:
        """Waits until what a page shows is what the API says: either may be a second ahead."""
        deadline = time.monotonic() + PATIENCE_MS / 1000
        shown, said = ready()
        while shown != said:
            self.assertLess(time.monotonic(), deadline, f"{what}: the page shows {shown!r}, the API says {said!r}")
            page.wait_for_timeout(200)
            shown, said = ready()

    def test_every_page_opens_and_fits_a_desk_and_a_phone(self) -> None:
        for width in (1280, 375):
            page = self.open("now", width)
            for place, title in PAGES.items():
                self.go(page, place)
                expect(page.locator("main h1").first).to_have_text(title)
                self.assertLessEqual(
                    page.evaluate("document.documentElement.scrollWidth"), width, f"{place} is wider than {width} px"
                )
            self.go(page, f"job/{self.trainer}")
            expect(page.locator("main h1").first).to_have_text("sft-small")
            self.assertLessEqual(
                page.evaluate("document.documentElement.scrollWidth"), width, f"job is wider than {width} px"
            )

    def test_now_shows_what_the_api_says(self) -> None:
        page = self.open("now")

        def running() -> tuple[int, int]:
            jobs = self.world.get("/v1/status")["jobs"]
            said = sum(jobs.get(state, 0) for state in ("starting", "running", "stopping"))
            return int(page.locator('[data-count="running"]').inner_text().split()[0]), said

        def busy() -> tuple[str, str]:
            nodes = self.world.get("/v1/nodes")["nodes"]
            held = sum(
                node["gpus"] * 1000 - node["gpus_free_thousandths"] for node in nodes if node["state"] == "ready"
            )
            return page.locator('[data-gpus="busy"]').inner_text(), str(held // 1000)

        self.until("running jobs", page, running)
        self.until("working GPUs", page, busy)
        waiting = self.world.get("/v1/status")["jobs"]["pending"]
        expect(page.locator('[data-count="pending"]')).to_have_text(f"{waiting} {'waits' if waiting == 1 else 'wait'}")
        expect(page.locator(".number")).to_have_count(max(4, page.locator(".number").count()))

    def test_cluster_shows_every_gpu_as_cell_and_in_the_table(self) -> None:
        page = self.open("cluster")
        nodes = self.world.get("/v1/nodes")["nodes"]
        expect(page.locator('[data-gpus="total"]')).to_have_text(str(sum(node["gpus"] for node in nodes)))
        canvas = page.locator("canvas.cells")
        colors = canvas.evaluate(COLORS)
        self.assertGreater(colors, 3, "cells of several teams have several colors")
        canvas.focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#tip")).to_contain_text("GPU 0")
        page.get_by_role("button", name="As a table").click()
        expect(page.locator("tbody tr")).to_have_count(len(nodes))

    def test_queue_has_the_order_of_the_api_and_searches(self) -> None:
        page = self.open("queue")
        rows = page.locator("tbody tr[data-row]")

        def agree() -> bool:
            said = [job["id"] for job in self.world.get("/v1/jobs")["jobs"]]
            return bool(rows.evaluate_all("rows => rows.map(row => row.dataset.row)") == said)

        # A job of another test may just have ended: the page learns of that within a second.
        self.world.wait("the page to have the order of the API", agree)
        page.keyboard.press("/")
        page.keyboard.type("TOO-wide")
        expect(page.locator("tbody tr[data-row]")).to_have_count(1)
        page.keyboard.press("Escape")
        page.locator("tbody tr[data-row]").click()
        job = next(job for job in self.world.get("/v1/jobs")["jobs"] if job["name"] == "too-wide")
        expect(page.locator(".sentences li").first).to_have_text(
            self.world.get(f"/v1/jobs/{job['id']}/why")["sentences"][0]
        )

    def test_an_action_says_what_it_costs_and_is_carried_out(self) -> None:
        job = self.world.sleep("to-be-held", "research", "standard", 2, 600)
        self.world.wait("the job to run", lambda: self.world.get(f"/v1/jobs/{job}")["summary"]["state"] == "running")
        page = self.open(f"job/{job}")
        page.locator('[data-act="hold"]').click()
        expect(page.locator("dialog [data-cost]")).to_contain_text("GPU-s")
        expect(page.locator("dialog [data-cost]")).to_contain_text("no checkpoint")
        page.keyboard.press("Escape")
        self.assertEqual(
            self.world.get(f"/v1/jobs/{job}")["summary"]["state"], "running", "looking at the cost costs nothing"
        )
        page.locator('[data-act="hold"]').click()
        page.locator('[data-confirm="hold"]').click()
        self.world.wait("the job to be held", lambda: self.world.get(f"/v1/jobs/{job}")["summary"]["state"] == "held")
        expect(page.locator(".head .state")).to_have_text("held")
        page.locator('[data-act="cancel"]').click()
        page.locator('[data-confirm="cancel"]').click()
        expect(page.locator(".head .state")).to_have_text("canceled")

    def test_a_job_that_waits_gets_another_class(self) -> None:
        job = self.world.sleep("to-be-urgent", "research", "best-effort", 190, 600, **H100)
        page = self.open(f"job/{job}")
        page.locator('[data-act="class"]').click()
        page.locator("#act-class").select_option("standard")
        page.locator('[data-confirm="class"]').click()
        expect(page.locator('[data-fact="Class"]')).to_contain_text("standard")
        self.assertEqual(self.world.get(f"/v1/jobs/{job}")["summary"]["class"], "standard")
        self.world.run("cancel", job)

    def test_job_shows_both_directions_and_the_numbers_of_the_api(self) -> None:
        page = self.open(f"job/{self.trainer}")
        for kind in ("start", "finding", "directive"):
            expect(page.locator(f'svg [data-kind="{kind}"]').first).to_be_visible()
        expect(page.locator(".talk li.decided").first).to_be_visible()
        expect(page.locator(".talk li.told").first).to_be_visible()

        def step() -> tuple[bool, bool]:
            shown = int(page.locator('[data-fact="Step"]').inner_text().split()[0].replace(",", ""))
            return shown <= self.step(self.trainer), True

        self.until("the step", page, step)
        before = page.locator('[data-fact="Step"]').inner_text()
        expect(page.locator('[data-fact="Step"]')).not_to_have_text(before)

    def test_teams_show_what_the_api_says(self) -> None:
        page = self.open("teams")
        for team in self.world.get("/v1/teams")["teams"]:
            held = team["allocated_thousandths"] // 1000
            expect(page.locator(f'[data-team="{team["name"]}"]')).to_contain_text(f"{held} GPUs")

    def test_explain_shows_the_state_and_the_place_of_a_start(self) -> None:
        story = self.world.get(f"/v1/story?job={self.trainer}")["happenings"]
        start = next(told for told in story if told["kind"] == "start")
        page = self.open(f"explain/{start['seq']}")
        expect(page.locator(".option.chosen").first).to_contain_text("taken")
        expect(page.locator("main")).to_contain_text("The state before it")

    def test_a_lost_server_is_said_and_found_again(self) -> None:
        page = self.open("queue")
        expect(page.locator("#link")).to_have_text("live")
        self.world.kill()
        expect(page.locator("#lost")).to_contain_text("Connection lost")
        self.assertGreater(page.locator("tbody tr[data-row]").count(), 0, "what was seen last stays")
        self.world.up()
        expect(page.locator("#lost")).to_be_hidden()
        job = self.world.sleep("after-the-restart", "research", "standard", 1, 600)
        expect(page.locator(f'tr[data-row="{job}"]')).to_be_visible()
        self.world.run("cancel", job)

    def test_what_hostile_trainers_send_is_text(self) -> None:
        page = self.open(f"job/{self.hostile}")
        expect(page.locator("pre.output")).to_contain_text(HOSTILE)
        expect(page.locator("main")).to_contain_text(HOSTILE[:40])
        for place in ("queue", "explain", "now"):
            self.go(page, place)
        self.go(page, f"job/{self.hostile}")
        expect(page.locator("pre.output")).to_contain_text(HOSTILE)
        self.assertEqual(page.locator('img[src="x"]').count(), 0)
        self.assertEqual(page.locator("main script").count(), 0)
        self.assertNotEqual(page.title(), "owned")

    def test_the_keyboard_is_enough(self) -> None:
        page = self.open("now")
        page.keyboard.press("g")
        page.keyboard.press("q")
        expect(page.locator("main h1").first).to_have_text("Queue")
        page.wait_for_selector("tbody tr[data-row]")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.locator("tr.open")).to_be_visible()
        page.keyboard.press("?")
        expect(page.locator("dialog")).to_contain_text("Keyboard")
        page.keyboard.press("Escape")
        page.keyboard.press("t")
        self.assertIn(page.evaluate("document.documentElement.dataset.theme"), ("light", "dark"))

    def test_text_is_readable_in_light_and_dark(self) -> None:
        page = self.open("now")
        for theme in ("light", "dark"):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
            for ink in ("ink", "ink-2", "ink-3", "accent", "decided", "told", "asked", "seen", "good", "warn", "bad"):
                for ground in ("panel", "bg", "sunken"):
                    contrast = page.evaluate(CONTRAST, [ink, ground])
                    self.assertGreaterEqual(contrast, 4.5, f"{ink} on {ground} in {theme}")

    def test_nobody_gets_in_without_the_token(self) -> None:
        page = self.browser.new_page()
        self.addCleanup(page.close)
        page.goto(self.world.url)
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert").locator("visible=true").first).to_contain_text("token")
        page.get_by_label("Token").fill(self.world.token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("main h1").first).to_have_text("Now")
        self.assertNotIn(self.world.token, page.url)


class Simulated(unittest.TestCase):
    """`antiphon simulate --serve` in the same pages."""

    def test_a_simulation_is_shown_by_its_clock_and_offers_no_action(self) -> None:
        complaints: list[str] = []
        with Simulation(BINARY, nodes=20, jobs=300, speed="60x") as simulation, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(f"{simulation.url}#token={simulation.token}")
            expect(page.locator("#simulation")).to_contain_text("60 times as fast as a clock")
            job = simulation.get("/v1/jobs?limit=1")["jobs"][0]["id"]
            for place in [*PAGES, f"job/{job}"]:
                page.goto(f"{simulation.url}#/{place}")
                page.wait_for_selector("main h1")
                page.wait_for_selector(".skeleton", state="detached")
                expect(page.locator("#simulation")).to_contain_text("Nothing can be changed here")
            self.assertEqual(page.locator("[data-act]").count(), 0)
            shown = page.locator("[data-virtual-time]")
            before = shown.inner_text()
            expect(shown).not_to_have_text(before)
            self.assertEqual(complaints, [])
            browser.close()


# How many colors a canvas has.
COLORS = """node => {
  const data = node.getContext('2d').getImageData(0, 0, node.width, node.height).data;
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] === 255) seen.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
  }
  return seen.size;
}"""

# How much two colors of the style sheet differ, as WCAG 2 counts it.
CONTRAST = """([ink, ground]) => {
  const rgb = (name) => {
    const node = document.createElement('i');
    node.style.color = `var(--${name})`;
    document.body.append(node);
    const parts = getComputedStyle(node).color.match(/[\\d.]+/g).map(Number);
    node.remove();
    return parts.slice(0, 3);
  };
  const linear = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = (color) => {
    const [r, g, b] = color.map((value) => linear(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [a, b] = [light(rgb(ink)), light(rgb(ground))].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}"""


if __name__ == "__main__":
    if not Path(CHROMIUM).exists():
        print(f"skipped: there is no browser at {CHROMIUM}; install Debian's package chromium, or set CHROMIUM")
        sys.exit(0)
    unittest.main()
