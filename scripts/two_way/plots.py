"""Curves as an SVG file, in the colors of the simulator's charts for light and dark. Draws lines alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

STYLE = Path(__file__).parents[2] / "crates/antiphon-chart/src/chart.css"

WIDTH, HEIGHT = 640.0, 280.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 170.0, 30.0, 34.0
#: Lines to read values at.
GRID = 5
#: Least distance between two names at the right.
LINE_HEIGHT = 14.0

Points = Sequence[tuple[float, float]]


def lines(title: str, across: str, curves: Mapping[str, Points], percent: bool = False) -> str:
    """One curve a name, in the order of the colors; each is named at its end."""
    xs = [x for points in curves.values() for x, _ in points]
    ys = [y for points in curves.values() for _, y in points]
    low, high = (0.0, max(ys)) if percent else (min(ys), max(ys))
    span = max(high - low, 1e-9)

    def at(x: float, y: float) -> tuple[float, float]:
        right, base = WIDTH - RIGHT, HEIGHT - BOTTOM
        return LEFT + (right - LEFT) * x / max(xs), base - (base - TOP) * (y - low) / span

    parts = [f'<text class="title" x="2" y="14">{escape(title)}</text>']
    for step in range(GRID):
        value = low + span * step / (GRID - 1)
        _, y = at(0.0, value)
        said = f"{value:.0%}" if percent else f"{value:.2f}"
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="end" x="{LEFT - 6}" y="{y + 4:.1f}">{said}</text>')
    for step in range(GRID):
        value = max(xs) * step / (GRID - 1)
        x, _ = at(value, low)
        parts.append(f'<text class="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16:.1f}">{value:.0f}</text>')
    parts.append(f'<text class="end" x="{WIDTH - RIGHT}" y="{HEIGHT - 4:.1f}">{escape(across)}</text>')
    ends = apart([at(*points[-1])[1] for points in curves.values()])
    for number, ((name, points), end) in enumerate(zip(curves.items(), ends, strict=True)):
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in (at(*point) for point in points))
        parts.append(f'<path class="curve s{number % 8}" d="M{path}"/>')
        parts.append(f'<text class="f{number % 8}" x="{WIDTH - RIGHT + 8}" y="{end + 4:.1f}">{escape(name)}</text>')
    named = "".join(f".chart text.f{number} {{ fill: var(--c{number}); }}\n" for number in range(8))
    style = STYLE.read_text(encoding="utf-8") + "svg { background: var(--paper); }\n" + named
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" '
        f'aria-label="{escape(title)}"><style>{style}</style>{"".join(parts)}</svg>\n'
    )


def apart(heights: Sequence[float]) -> list[float]:
    """The same heights, moved down where names would cover each other, and the pile up where it leaves the chart."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    moved = list(heights)
    for before, place in zip(order, order[1:], strict=False):
        moved[place] = max(moved[place], moved[before] + LINE_HEIGHT)
    for after, place in zip(reversed(order), list(reversed(order))[1:], strict=False):
        limit = HEIGHT - BOTTOM if after == order[-1] else moved[after]
        moved[after] = min(moved[after], limit)
        moved[place] = min(moved[place], moved[after] - LINE_HEIGHT)
    return moved
