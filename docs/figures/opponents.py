"""Draw the picture of `docs/opponents.md` from its tables: ``make figures``.

One panel for each model, one mark for each way: seconds by the clock, compilation included, against
the KL divergence of the distribution that was drawn from.
"""

import re
import sys
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "_ext"), str(FOLDER.parents[1])]

from figures import Table, tables  # noqa: E402
from how_it_works import INK, Ink, coloured  # noqa: E402

from benchmarks.opponent_names import MODELS  # noqa: E402

# The mark of each way, its colour, and its name. Pathfinder has no divergence in the tables.
WAYS = {
    "ours: coreset": ("o", "orange", "coreset"),
    "Laplace + PSIS": ("s", "blue", "Laplace, before weights"),
    "NUTS": ("D", "ink", "NUTS"),
    "ADVI": ("v", "faint", "ADVI"),
}
EXACT = 1e-5  # where NUTS stands, and a coreset of all distinct rows

type Mark = tuple[float, float, bool]


def number(cell: str) -> float:
    """Return a number of a table's cell."""
    return float(cell.strip("≈ ").replace(",", ""))


def mark(table: Table, row: list[str]) -> Mark | None:
    """Return seconds, divergence, and whether they were extrapolated; None if it did not end."""
    cells = dict(zip(table.header, row, strict=True))
    exact = row[0].startswith("NUTS")
    if not cells["rest, s"] or not (exact or cells["KL"]):
        return None
    seconds = number(cells["compile, s"]) + number(cells["rest, s"])
    divergence = EXACT if exact else max(number(cells["KL"]), EXACT)
    return seconds, divergence, "≈" in cells["rest, s"]


def marks(model: str) -> dict[str, Mark]:
    """Return the mark of each way; of several ways of one kind, the closest, then the fastest."""
    (table,) = tables(f"opponents-{model}")
    found: dict[str, Mark] = {}
    for row, way in product(table.rows, WAYS):
        if re.match(re.escape(way), row[0]) and (new := mark(table, list(row))):
            found[way] = min(found.get(way, new), new, key=lambda m: (m[1], m[0]))
    return found


def panel(ax: Axes, model: str, ink: Ink) -> None:
    """Draw the ways of one model."""
    for way, (seconds, divergence, extrapolated) in marks(model).items():
        shape, colour, _ = WAYS[way]
        ax.loglog(
            seconds, divergence, shape, ms=7, color=ink[colour], zorder=3,
            mfc="none" if extrapolated else ink[colour],
        )  # fmt: skip
    ax.axhline(0.01, color=ink["faint"], lw=0.8, ls=":")
    ax.set(title=MODELS[model], xlim=(1, 2e5), ylim=(EXACT / 3, 2e3))
    ax.set_xticks([1, 100, 1e4], ["1", "100", "10,000"])
    ax.set_yticks([EXACT, 1e-2, 10], ["exact", "0.01", "10"])
    ax.minorticks_off()
    ax.label_outer()


def draw(ink: Ink, *, narrow: bool) -> Figure:
    """Draw all models."""
    columns, width, height = (2, 4.2, 1.7) if narrow else (4, 8.6, 2.0)
    rows = -(-len(MODELS) // columns)
    size = (width, height * rows + 0.3)
    figure, axes = plt.subplots(rows, columns, figsize=size, sharex=True, sharey=True)
    for ax, model in zip(axes.flat, MODELS, strict=False):
        panel(ax, model, ink)
    for above, empty in zip(
        axes.flat[len(MODELS) - columns :], axes.flat[len(MODELS) :], strict=False
    ):
        above.tick_params(labelbottom=True)
        empty.set_axis_off()
    for shape, colour, name in WAYS.values():
        axes.flat[0].plot([], [], shape, color=ink[colour], label=name)
    figure.legend(frameon=False, loc="outside upper center", ncols=columns)
    figure.supxlabel("seconds, with compilation", fontsize=10.5)
    figure.supylabel("KL divergence from the posterior of all rows, nats", fontsize=10.5)
    return figure


def main() -> None:
    """Draw for light and dark, wide and narrow pages."""
    for theme, width in product(INK, ("", "_narrow")):
        with coloured(INK[theme]), plt.rc_context({"axes.titlesize": 10}):
            figure = draw(INK[theme], narrow=bool(width))
            file = FOLDER / f"opponents_{theme}{width}.png"
            figure.savefig(file, dpi=170, metadata={"Software": None})
            plt.close(figure)


if __name__ == "__main__":
    main()
