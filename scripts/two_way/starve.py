"""A starving category is fed: finding, data job, new shard, falling loss, each with its time.

    python scripts/two_way/starve.py --binary target/release/antiphon

One category has 24 rows. Under antiphon the job file says how more of it is made; the other side trains on what it has.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from arms import OURS
from measure import SEEDS, Setup

HERE = Path(__file__).resolve().parent
CATEGORY = "arithmetic"
STEPS = 600
ROWS = 1_000
#: From the finding to the first row trained on.
BAR_S = 120.0
#: Findings that fresh samples help: the category stands still, or its only shard is known by heart.
WOULD_HELP = (f"shard/{CATEGORY}/starving", f"shard/{CATEGORY}/duplicate")


def times(setup: Setup, name: str) -> tuple[float, float] | None:
    """Seconds from the finding to the directive that brings samples, and to their first use; nothing if none came."""
    kept = setup.folder / "runs" / f"{name}.json"
    outcome: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    job: dict[str, Any] = json.loads(kept.with_suffix(".job").read_text(encoding="utf-8"))
    made = {it["shard"] for it in job["data_jobs"]}
    used = [at for shard, (_, at) in outcome["first_use"].items() if shard in made]
    added = [it["at_ms"] for it in job["directives"] if it["do"].startswith("add_samples")]
    found = [at for name, at in job["found_ms"].items() if name in WOULD_HELP]
    if not (used and added and found):
        return None
    return (min(added) - min(found)) / 1000, (min(used) - min(found)) / 1000


def main() -> int:
    """Measures, writes the part of the page, and fails where a bar is missed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--binary", type=Path, required=True)
    options.add_argument("--folder", type=Path, default=Path("target/two-way"))
    options.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    given = options.parse_args()
    setup = Setup(given.binary.resolve(), given.folder.resolve(), STEPS)
    command = [sys.executable, str(HERE / "generate.py"), str(setup.folder)]
    more = f"""
[augment.sums]
command = {json.dumps(command)}
categories = ["{CATEGORY}"]
count = {ROWS}
runs = 1
"""
    rows, missed = [], 0
    for seed in given.seeds:
        fed = setup.run(f"starving-{CATEGORY}", OURS, seed, more)
        plain = setup.run(f"starving-{CATEGORY}", "proportional", seed)
        found = times(setup, setup.name(f"starving-{CATEGORY}", OURS, seed))
        took = "never" if found is None else f"{found[0]:.0f} / {found[1]:.0f}"
        missed += found is None or found[1] >= BAR_S or fed.by_category[CATEGORY] >= plain.by_category[CATEGORY]
        others = [statistics.fmean(v for k, v in it.by_category.items() if k != CATEGORY) for it in (plain, fed)]
        rows.append(
            f"| {seed} | {took} | {plain.by_category[CATEGORY]:.3f} | {fed.by_category[CATEGORY]:.3f} | "
            f"{others[0]:.3f} | {others[1]:.3f} |"
        )
    part = "\n".join(
        [
            "## A starving category",
            "",
            f"`{CATEGORY}` has 24 rows; {STEPS} steps. Once its probe stands still while the others fall, the job's",
            f"own generator runs as a data job and makes {ROWS:,} rows. (`scripts/two_way/starve.py`)",
            "",
            "| seed | finding to samples directed / to first use, s | held-out loss without | with | "
            "other categories without | with |",
            "| --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )
    print(part)
    (setup.folder / "2-starving.part.md").write_text(part, encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
