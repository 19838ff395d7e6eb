"""Bars of the results page: one a policy, the bound as a line, published figures as marks. Draws nothing else.

Colors are those of the simulator's own charts, for light and dark.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

STYLE = Path("crates/antiphon-chart/src/chart.css")

WIDTH = 640.0
BAR = 14.0
APART = 23.0
TOP = 32.0
RIGHT = 64.0
CHARACTER = 6.4


@dataclass(frozen=True)
class Bar:
    """A policy's ratio to the bound."""

    name: str
    ratio: float
    published: float | None = None
    ours: bool = False


def bars(title: str, rows: list[Bar]) -> str:
    """The chart as an SVG file."""
    left = 14.0 + CHARACTER * max(len(row.name) for row in rows)
    most = max([1.0, *(row.ratio for row in rows), *(row.published or 0.0 for row in rows)])

    def at(ratio: float) -> float:
        return left + (WIDTH - RIGHT - left) * ratio / most

    base = TOP + APART * len(rows)
    parts = [f'<text class="title" x="2" y="14">{escape(title)}</text>']
    for place, row in enumerate(rows):
        y = TOP + APART * place
        color = "f0" if row.ours else "f7"
        end = at(row.ratio)
        parts.append(f'<text class="name end" x="{left - 8:.1f}" y="{y + 11.5:.1f}">{escape(row.name)}</text>')
        parts.append(f'<rect class="{color}" x="{left:.1f}" y="{y:.1f}" width="{end - left:.1f}" height="{BAR}"/>')
        if row.published is not None:
            mark = at(row.published)
            parts.append(f'<path class="mark" d="M{mark:.1f} {y - 3:.1f}v{BAR + 6:.0f}"/>')
            end = max(end, mark)
        parts.append(f'<text class="name" x="{end + 6:.1f}" y="{y + 11.5:.1f}">{row.ratio:.2f}&#215;</text>')
    parts.append(f'<path class="bound" d="M{at(1.0):.1f} {TOP - 6:.1f}V{base:.1f}"/>')
    parts.append(f'<text class="middle" x="{at(1.0):.1f}" y="{base + 12:.1f}">bound</text>')
    height = base + 20
    style = STYLE.read_text() + (
        "svg { background: var(--paper); }\n"
        ".mark { stroke: var(--c1); stroke-width: 2.5; }\n"
        ".bound { stroke: var(--ink); stroke-dasharray: 3 3; }\n"
    )
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}"><style>{style}</style>{"".join(parts)}</svg>\n'
    )
