"""Writes docs/reference/two-way.md from what has been run: every arm, every seed, losers included. Runs nothing."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from arms import ARMS, OURS, TICK
from figures import PROBE_COST, Curve, saved
from plots import lines
from scenario import KINDS, Scenario

PLOTS = Path("docs/img/two-way")
ORDER = (*ARMS, OURS)

Runs = Mapping[str, Mapping[str, Sequence[Curve]]]

INTRODUCTION = """\
# The two-way loop, measured

Written by `make proof` (`scripts/two_way/measure.py`, which goes on where it was stopped) from what it has run so far;
seeds {seeds}, {steps} steps each.

## The mix of data

**What is trained.** Transformers' `Trainer` on a causal language model of two layers (d = 64, 1,024 entries, rows of 64
tokens, 16 a step, AdamW), from one base that had read other text. Four categories: code and docstrings of the Python
standard library, its language reference, generated sums; the clean shards stand 7 : 2 : 2 : 2. Bad shards claim
to be of one of these categories and have the stated part of a stream that is drawn by size.

**What is judged.** The mean loss over 64 held-out rows of each category, looked at every {tick} steps, as the mean of
three looks. Neither the arms nor the probes (8 other rows of each category) see these rows. *Steps saved* is how many
fewer steps an arm needs for the loss that the proportional mix ends with; *net* charges the looks at the probes that
the run took, as {probe:.2f} of a step for as many rows. A dash: never reached. Mean over the seeds, each seed in
brackets.

**Who competes.** All arms run the same loop with the same stream, base and seeds. `antiphon` is a real server with the
shard rule on `auto`; it starts from the proportional mix, and its one setting is `rule_cool_down_ms = 1000` in place of
a minute, as a step takes about 0.08 s here. `oracle` draws the same from each clean shard and knows which
they are. `raw-loss EXP3` weighs the loss by the odds of being drawn; the plain `raw-loss bandit` does not. The rule
was written with noise and duplicates at seeds below 100 in view, and frozen before any seed of this page was run under
it. It is the third to be measured; what each before it was slow at was mended at seed 1:

- The first changed nothing before step 60 and then twofold at most every 60 steps. It saved 36 % (35, 38, 35) net of
  probes with noise and duplicates at seeds 101 to 103, and 4 % of 12 on clean data.
- The second went even after its first tick of 20 steps and looked at the probes every 20 steps to the end, which cost
  3.5 % of the steps. At seeds 201 to 203 it saved 41 % (38, 44, 39), 38 % (36, 42, 37) net, with noise and duplicates,
  35 % (36, 36, 32) net with four kinds of bad data together, and 8 % (8, 8, 9) net of 13 on clean data.
- The third begins even, and looks at the probes less often while that changes nothing: they cost 2 % of the steps in
  place of 3.5 %, 1.4 % on clean data. Bad data gain little by it. The second, run at the same seeds with noise and
  duplicates, saved 40 % (39, 41, 40), 38 % (36, 39, 38) net; on clean data 8 % (10, 8, 6), 5 % (7, 4, 3) net. An
  even start spares bad rows, but also the samples that convict a shard, which is out 20 to 40 steps later; and a mix
  that is told once a weight has moved by a fifth stays off even when an improvement has ended.

What falls short: with noise and duplicates it is 39.8 % before and 38.6 % after the cost of the probes, where 40 is
the bar; on clean data it is behind the even mix by 1.5 points, where the probes cost 1.4; with four kinds together it
is 14 points behind the oracle, where 10 is the bar. Single kinds and other rates have not been run. The load of the
two processors was 3 to 14.
"""

ABOUT_KINDS = """
Kinds of bad data: {kinds}.
"""


def write(page: Path | None, folder: Path, runs: Runs, steps: int, seeds: tuple[int, ...]) -> None:
    """Writes the page and its plots, or prints the tables; what other experiments found lies in `folder`."""
    parts = [scenario_section(name, arms, page is not None) for name, arms in runs.items() if len(arms) > 4]
    if len(runs) > len(parts):
        parts.append(overview(runs))
    if page is None:
        print("\n".join(parts))
        return
    kinds = "; ".join(f"`{name}` (filed as {claims}): {told(make)}" for name, (claims, make) in KINDS.items())
    introduction = INTRODUCTION.format(
        seeds=", ".join(map(str, seeds)), steps=steps, tick=TICK, probe=PROBE_COST
    ) + ABOUT_KINDS.format(kinds=kinds)
    others = [part.read_text(encoding="utf-8") for part in sorted(folder.glob("*.part.md"))]
    page.write_text("\n".join([introduction, *parts, *others]), encoding="utf-8")


def told(make: Callable[..., object]) -> str:
    """What the docstring of a kind says, as part of a sentence."""
    said = (make.__doc__ or "").strip().rstrip(".")
    return said[0].lower() + said[1:]


def title(name: str) -> str:
    """A scenario in words."""
    scenario = Scenario.of(name)
    if not scenario.bad:
        return "no bad data"
    kinds = ", ".join(f"{kind} {permille / 10:g} %" for kind, permille in scenario.bad)
    return f"{scenario.bad_share:.0%} bad: {kinds}"


def scenario_section(name: str, arms: Mapping[str, Sequence[Curve]], plotted: bool) -> str:
    """One scenario with all arms: a table, and two plots of the first seed."""
    rows = [
        "| arm | held-out loss at the end | steps saved % | net of probes % | bad rows drawn % |",
        "| --- | --- | --- | --- | --- |",
    ]
    against = arms.get("proportional", ())
    for arm in (it for it in ORDER if it in arms):
        curves = arms[arm]
        probes = arm == OURS
        label = f"**{arm}**" if arm == OURS else arm
        rows.append(
            f"| {label} | {spread([it.losses[-1] for it in curves])} | {each(curves, against, False)} | "
            f"{each(curves, against, True) if probes else each(curves, against, False)} | "
            f"{100 * statistics.fmean(it.bad_drawn for it in curves):.1f} |"
        )
    text = [f"### {title(name)[0].upper()}{title(name)[1:]}", ""]
    if plotted:
        text += [*plots(name, arms), ""]
    return "\n".join([*text, *rows, ""])


def plots(name: str, arms: Mapping[str, Sequence[Curve]]) -> list[str]:
    """Held-out loss of all arms, and the mix that antiphon chose; gives the links."""
    PLOTS.mkdir(parents=True, exist_ok=True)
    links = []
    order = sorted((it for it in ORDER if it in arms), key=lambda arm: arm != OURS)
    losses = {arm: list(zip(map(float, arms[arm][0].steps), arms[arm][0].losses, strict=True)) for arm in order}
    seed = arms[order[0]][0].seed
    charts = {"loss": lines(f"Held-out loss, seed {seed}", "steps", losses)}
    if OURS in arms:
        ours = arms[OURS][0]
        end = ours.steps[-1]
        shares = {
            shard: [(float(step), ours.share(shard, step)) for step in range(0, end + 1, 5)] for shard in ours.drawn
        }
        charts["mix"] = lines(f"The mix under antiphon, seed {seed}", "steps", shares, percent=True)
    for kind, chart in charts.items():
        path = PLOTS / f"{name.replace('+', '-')}-{kind}.svg"
        path.write_text(chart, encoding="utf-8")
        links.append(f"![{title(name)}: {kind}](../img/two-way/{path.name})")
    return links


def overview(runs: Runs) -> str:
    """Scenarios with few arms, one a row: steps saved against the proportional mix."""
    arms = ["uniform over categories", "oracle", OURS]
    heads = [
        *(f"{arm}, steps saved %" for arm in arms),
        "net of probes %",
        "the probes cost % of the steps",
        "bad rows drawn %",
    ]
    rows = ["| bad data | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(heads)]
    for name, of in runs.items():
        against = of.get("proportional", ())
        figures = [each(of[arm], against, False) if arm in of else "-" for arm in arms]
        ours = of.get(OURS, ())
        figures.append(each(ours, against, True) if ours else "-")
        figures.append(f"{100 * statistics.fmean(it.probe_steps for it in ours):.1f}" if ours else "-")
        figures.append(f"{100 * statistics.fmean(it.bad_drawn for it in ours):.1f}" if ours else "-")
        rows.append(f"| {title(name)} | " + " | ".join(figures) + " |")
    return "\n".join(["### By scenario", "", "The last four columns are antiphon's.", "", *rows, ""])


def each(curves: Sequence[Curve], against: Sequence[Curve], probes: bool) -> str:
    """Steps saved: the mean, and each seed; a dash for each that never gets there."""
    by_seed = {it.seed: it for it in against}
    found = [saved(it, by_seed[it.seed], probes) for it in curves if it.seed in by_seed]
    reached = [100 * it for it in found if it is not None]
    if not reached:
        return "never"
    mean = f"{statistics.fmean(reached):.0f}" if len(reached) == len(found) else "-"
    return f"{mean} ({', '.join('-' if it is None else f'{100 * it:.0f}' for it in found)})"


def spread(values: Sequence[float]) -> str:
    """The mean with its standard deviation."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"
