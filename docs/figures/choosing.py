"""Draw the questions of `docs/choosing.md`, and the bars of the home page: ``make figures``."""

import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "_ext")]

from figures import number, tables  # noqa: E402
from how_it_works import INK, Ink, coloured  # noqa: E402

# Questions in their order, the answer to "yes", and whether `build_coreset` decides by itself.
QUESTIONS = (
    ("Does NUTS on all rows\ntake only seconds?", "NUTS on all rows:\npm.sample()", False),
    ("Do you see each row\nonly once?", "CoresetStream", False),
    ("Are the rows too many\nfor memory?", "build_coreset(\n  rows=open_rows(...))", False),
    ("Are there only a few\ndistinct rows?", "all distinct rows: exact", True),
    (
        "Does a factor with its own effects\nhave 250 levels or more?",
        "whole groups,\nintegrated",
        True,
    ),
    ("Are there 25 parameters\nor more?", "a quadratic\nand weighted rows", True),
)  # fmt: skip
LAST = "weighted rows"
WIDTHS = ("", "_narrow")


def draw_choosing(ink: Ink, width: str) -> Figure:
    """Draw one question below the other, with the answers beside them."""
    figure, ax = plt.subplots(figsize=(4.2, 7.6) if width else (7.9, 6.2))
    ax.set(xlim=(0, 10), ylim=(-0.9, len(QUESTIONS)))
    ax.axis("off")

    def box(x: float, y: float, wide: float, words: str, colour: str) -> None:
        size = {"boxstyle": "round,pad=0,rounding_size=0.12", "mutation_aspect": 0.6}
        patch = FancyBboxPatch((x, y - 0.31), wide, 0.62, fc="none", ec=colour, lw=1.4, **size)
        ax.add_patch(patch)
        ax.text(x + wide / 2, y, words, ha="center", va="center", fontsize=8 if width else 10)

    def arrow(start: tuple[float, float], end: tuple[float, float], word: str) -> None:
        style = {"arrowstyle": "->", "color": ink["faint"], "lw": 1.2, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", end, start, arrowprops=style)
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 0.03 * (start[1] == end[1])
        place = {"ha": "center", "va": "bottom"} if start[1] == end[1] else {"va": "center"}
        ax.text(x + 0.1 * (start[1] != end[1]), y, word, color=ink["faint"], fontsize=8.5, **place)

    for i, (question, answer, by_itself) in enumerate(QUESTIONS):
        y = len(QUESTIONS) - 0.5 - i
        box(0.05, y, 4.9, question, ink["faint"])
        box(6.0, y, 3.9, answer, ink["orange"] if by_itself else ink["blue"])
        arrow((5.0, y), (5.95, y), "yes")
        arrow((2.5, y - 0.33), (2.5, y - 0.67), "no")
    box(0.05, -0.5, 4.9, LAST, ink["orange"])
    notes = (("your choice", "blue"), ("build_coreset() chooses", "orange"))
    for (words, colour), y in zip(notes, (-0.38, -0.68), strict=True):
        ax.text(6.0, y, words, color=ink[colour], fontsize=8 if width else 9.5, va="center")
    return figure


def draw_seconds(ink: Ink, width: str) -> Figure:
    """Draw the seconds of each way in the table of the first example, as bars."""
    (table,) = tables("first-example")
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    seconds = {row["way"].replace("`", ""): number(row["processor, s"]) for row in rows}
    names = sorted(seconds, key=lambda way: seconds[way])
    figure, ax = plt.subplots(figsize=(4.2, 1.9) if width else (7.9, 1.8))
    for i, way in enumerate(names):
        ours = way.startswith("pmc")
        colour = ink["orange"] if ours else ink["faint"]
        ax.barh(i, seconds[way], color=colour, height=0.6)
        ax.text(seconds[way], i, f"  {seconds[way]:,.0f} s", va="center")
    ax.set_yticks(range(len(names)), names)
    ax.set_xlim(0, 1.22 * max(seconds.values()))
    ax.set_xticks([])
    ax.spines[["bottom", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return figure


PICTURES: dict[str, Callable[[Ink, str], Figure]] = {
    "choosing": draw_choosing,
    "first_example": draw_seconds,
}


def main() -> None:
    """Draw for light and dark, wide and narrow pages."""
    for (name, draw), theme, width in product(PICTURES.items(), INK, WIDTHS):
        with coloured(INK[theme]):
            figure = draw(INK[theme], width)
            file = FOLDER / f"{name}_{theme}{width}.png"
            figure.savefig(file, dpi=170, metadata={"Software": None})
            plt.close(figure)


if __name__ == "__main__":
    main()
