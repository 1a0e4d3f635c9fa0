"""Draw the picture of `docs/many-parameters.md` from its table: ``make figures``.

J against the number of weighted rows: one line for each number of parameters with the quadratic,
and one with rows alone where these were measured.
"""

import sys
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "_ext")]

from figures import number, tables  # noqa: E402
from how_it_works import INK, Ink, coloured  # noqa: E402

# From few parameters to many: on light pages towards dark, on dark ones towards light.
BLUES = ("#7fb0dc", "#5795cd", "#3a7dbb", "#1f5f9e", "#0b3c6f")
SHADES = {"light": BLUES, "dark": ("#3f7fb5", "#5795cd", "#74aede", "#98c5ea", "#bfdcf4")}
MARGIN = {"": 1.5, "_narrow": 5.0}  # room for the names, as a factor of the largest number of rows

type Points = list[tuple[float, float]]


def lines() -> dict[tuple[str, bool], Points]:
    """Return rows and J, for each D with and without the quadratic."""
    (table,) = tables("parameters-figure")
    found: dict[tuple[str, bool], Points] = {}
    for row in table.rows:
        cells = dict(zip(table.header, row, strict=True))
        points = found.setdefault((cells["D"], cells["quadratic"] == "yes"), [])
        points.append((number(cells["rows"]), number(cells["J, nats"])))
    return found


def label(ax: Axes, words: str, at: tuple[float, float], colour: str, **place: object) -> None:
    """Write beside a point."""
    ax.annotate(words, at, textcoords="offset points", color=colour, fontsize=9, **place)


def draw(ink: Ink, shades: tuple[str, ...], width: str) -> Figure:
    """Draw all lines, with their names."""
    figure, ax = plt.subplots(figsize=(4.2, 4.2) if width else (7.93, 4.7))
    found = lines()
    blues = dict(zip(dict.fromkeys(d for d, _ in found), shades, strict=True))
    for (parameters, quadratic), points in found.items():
        colour = blues[parameters] if quadratic else ink["orange"]
        ax.loglog(*zip(*points, strict=True), color=colour, marker="o", ms=4, lw=1.8)
        words = f"D = {parameters}{'' if quadratic else ',\nrows alone'}"
        # The lines of rows alone are steep, and cross the others: their names stand at the top.
        at = points[-1 if quadratic else 0]
        left = not quadratic and parameters == next(iter(blues))
        place = {"xytext": (-7, 0), "ha": "right"} if left else {"xytext": (7, 0), "ha": "left"}
        # A line falls to the right of its first point: the name stands above it.
        va = "center" if quadratic or left else "bottom"
        label(ax, words, at, colour, va=va, annotation_clip=False, **place)
    ax.axhline(0.01, color=ink["faint"], lw=1, ls=":", zorder=0)
    label(ax, "default tolerance", (0.005, 0.01), ink["faint"], xytext=(0, 3), va="bottom",
          xycoords=("axes fraction", "data"))  # fmt: skip
    ax.set(xlabel="weighted rows", ylabel="J, nats")
    ax.set_ylim(top=8 * max(j for points in found.values() for _, j in points))
    ax.set_xlim(right=MARGIN[width] * max(rows for points in found.values() for rows, _ in points))
    ax.xaxis.set_major_formatter(lambda rows, _: f"{rows:,.0f}")
    ax.grid(alpha=0.25, lw=0.6)
    return figure


def main() -> None:
    """Draw for light and dark, wide and narrow pages."""
    for theme, width in product(INK, MARGIN):
        with coloured(INK[theme]):
            figure = draw(INK[theme], SHADES[theme], width)
            file = FOLDER / f"many_parameters_{theme}{width}.png"
            figure.savefig(file, dpi=170, metadata={"Software": None})
            plt.close(figure)


if __name__ == "__main__":
    main()
