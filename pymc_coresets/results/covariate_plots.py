"""Plots of the chosen rows among all rows: pairs of covariates."""

from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pymc_coresets.diagnostics.canvas import BLUE, GREY, ORANGE, require_attributes, tidied
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.options import names_of
from pymc_coresets.results.columns import Column, RowColumns
from pymc_coresets.results.readable import CoresetRows, row_columns

__all__ = ["plot_coreset"]

_MOST_COLUMNS = 8
_BY_DEFAULT = 4
_PANEL = 2.2  # inches
_LARGEST = 130.0  # area of the largest weight's circle, in square points
_SMALLEST = 2.0
_BINS = 40
_LONGEST_LABEL = 22


def plot_coreset(
    coreset: CoresetRows,
    columns: str | Sequence[str] | None = None,
    *,
    random_seed: int | np.random.Generator | None = None,
) -> Figure:
    """Plot the chosen rows over the density of all rows, for all pairs of some columns.

    Circles are rows of the coreset, with areas in proportion to their weights. Grey hexagons count
    all rows, on a logarithmic scale. On the diagonal are the distributions of all rows (grey), of
    the chosen rows (blue, dashed) and of the chosen rows with their weights (orange). What is to be
    expected: chosen rows lie further out than all rows, and their weights bring them back.

    Costs as much as `Coreset.summary`, of which these are the columns.

    Parameters
    ----------
    coreset : Coreset
    columns : str or sequence of str, optional
        Columns as `Coreset.summary` has them, at most 8; by default the first four that hold
        numbers which vary, and no levels.
    random_seed : int or Generator, optional
        Which rows are drawn, of rows elsewhere.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidOptionError
        If `coreset` is none, there is no column of a name, or there are more than 8.
    InvalidDataError
        If there is nothing to plot: no column of numbers, or no rows but the chosen ones.
    CoresetError
        If the coreset was read without its model.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=500)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu") + pm.Data("x", x), 1.0, observed=x + 1)
    ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
    >>> [ax.get_xlabel() for ax in plot_coreset(coreset, ["x", "y"]).axes]
    ['', 'x', 'y']
    """
    require_attributes(coreset, "weights", "indices", "loglikelihood", "data")
    names = names_of("columns", columns)
    found = row_columns(coreset, random_seed)
    shown = _shown(found, [names] if isinstance(names, str) else names)
    size = max(3.2, _PANEL * len(shown) + 0.4)
    figure = plt.figure(figsize=(size + 1.0, size), layout="constrained")
    grid = figure.add_gridspec(len(shown), len(shown))
    limits = [_limits(column) for column in shown]
    for i, column in enumerate(shown):
        for j, other in enumerate(shown[: i + 1]):
            ax = figure.add_subplot(grid[i, j])
            if i == j:
                _marginal(ax, column, found, limits[i])
            else:
                _pair(ax, other, column, found)
                ax.set(xlim=limits[j], ylim=limits[i])
            _labelled(ax, other, column, last=i == len(shown) - 1, first=j == 0 < i)
    _legend(figure, found, pairs=len(shown) > 1)
    return figure


def _shown(found: RowColumns, names: Sequence[str] | None) -> list[Column]:
    if names is None:
        numbers = [c for c in found.columns if c.levels is None and np.ptp(_known(c)) > 0]
        if not numbers:
            levels = ", ".join(repr(c.name) for c in found.columns if c.levels is not None)
            raise InvalidDataError(
                "The rows have no column of numbers that vary. "
                + (f"Use plot_groups for {levels}." if levels else "Name columns to plot.")
            )
        chosen = numbers[:_BY_DEFAULT]
    else:
        chosen = found.named(names)
    if len(chosen) > _MOST_COLUMNS:
        raise InvalidOptionError(
            f"columns: {len(chosen)} columns cannot be shown in pairs. Choose at "
            f"most {_MOST_COLUMNS} of {', '.join(repr(c.name) for c in found.columns)}."
        )
    for column in chosen:
        if column.every is None:
            raise InvalidDataError(
                f"{column.name!r} is known of the chosen rows only: read the coreset with "
                "Coreset.from_netcdf(path, model, rows=...), or plot coreset.rows."
            )
        if not np.isfinite(_known(column)).any():
            raise InvalidDataError(f"{column.name!r} has no finite value to plot.")
    return chosen


def _known(column: Column) -> NDArray[np.float64]:
    values = column.chosen if column.every is None else column.every
    numbers = values.astype(np.float64)
    return numbers[np.isfinite(numbers)]


def _limits(column: Column) -> tuple[float, float]:
    """Range of nearly all rows and of all chosen ones."""
    low, high = np.quantile(_known(column), [0.001, 0.999])
    chosen = column.chosen[np.isfinite(column.chosen.astype(np.float64))]
    low, high = min(low, chosen.min(initial=low)), max(high, chosen.max(initial=high))
    margin = 0.05 * (high - low) or 0.5
    if _is_whole(column):
        margin = max(margin, 0.6)
    return float(low - margin), float(high + margin)


def _is_whole(column: Column) -> bool:
    return column.chosen.dtype.kind in "iub"


def _pair(ax: Axes, x: Column, y: Column, found: RowColumns) -> None:
    assert x.every is not None and y.every is not None  # noqa: PT018 - _shown has seen to it
    some = found.masses is not None
    ax.hexbin(
        x.every, y.every, C=found.masses, reduce_C_function=np.sum if some else np.mean,
        gridsize=_BINS, bins="log", cmap="Greys", mincnt=1, linewidths=0.1, alpha=0.8,
    )  # fmt: skip
    order = np.argsort(-found.weights)  # small ones on top
    ax.scatter(
        x.chosen[order], y.chosen[order], s=_areas(found.weights)[order],
        facecolor=ORANGE, alpha=0.75, edgecolor="white", linewidth=0.5, zorder=3,
    )  # fmt: skip


def _areas(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = weights.max(initial=0.0) or 1.0
    return np.maximum(_LARGEST * weights / largest, _SMALLEST)


def _marginal(ax: Axes, column: Column, found: RowColumns, limits: tuple[float, float]) -> None:
    assert column.every is not None  # _shown has seen to it
    bins = np.linspace(*limits, 31)
    if _is_whole(column) and np.ptp(bins) < _BINS:
        bins = np.arange(np.ceil(limits[0]) - 0.5, limits[1] + 0.5)
    edges = bins.tolist()
    outlines = {"histtype": "step", "density": True, "lw": 1.4}
    ax.hist(column.every, edges, weights=found.masses, density=True, color=GREY, alpha=0.45)
    known = np.isfinite(column.chosen.astype(np.float64))
    if known.any():  # rows of other likelihood terms have no value
        chosen, weights = column.chosen[known], found.weights[known]
        ax.hist(chosen, edges, color=BLUE, ls="--", **outlines)  # type: ignore[arg-type]
        ax.hist(chosen, edges, weights=weights, color=ORANGE, **outlines)  # type: ignore[arg-type]
    ax.set(yticks=[], xlim=limits)
    ax.spines["left"].set_visible(False)


def _labelled(ax: Axes, x: Column, y: Column, *, last: bool, first: bool) -> None:
    tidied(ax, grid=None)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    if last:
        ax.set_xlabel(_short(x.name))
    else:
        ax.tick_params(labelbottom=False)
    if first:
        ax.set_ylabel(_short(y.name))
    if ax.get_yticks().size:
        ax.yaxis.set_major_locator(MaxNLocator(4))
        ax.tick_params(labelleft=first)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_LABEL else f"{name[: _LONGEST_LABEL - 1]}…"


def _legend(figure: Figure, found: RowColumns, *, pairs: bool) -> None:
    handles: list[Line2D] = [
        Line2D([], [], color=GREY, alpha=0.45, lw=7, label=_all_rows(found)),
        Line2D([], [], color=BLUE, ls="--", lw=1.4, label="chosen rows"),
        Line2D([], [], color=ORANGE, lw=1.4, label="chosen rows, weighted"),
    ]
    if pairs:
        handles += _circles(found.weights)
    figure.legend(
        handles=handles, loc="outside upper center", ncols=3, frameon=False, fontsize="small"
    )


def _all_rows(found: RowColumns) -> str:
    return "all rows" if found.n_sampled is None else f"{found.n_sampled:,} rows drawn from all"


def _round(number: float) -> float:
    """Return the largest of 1, 2, 5, 10, 20, ... that is not larger."""
    power = 10.0 ** np.floor(np.log10(number))
    return float(power * max(d for d in (1, 2, 5) if d * power <= number * (1 + 1e-9)))


def _circles(weights: NDArray[np.float64]) -> Iterator[Line2D]:
    """Circles of round weights, large and small."""
    largest = weights.max(initial=1.0)
    for share in (1.0, 0.2, 0.04):
        weight = _round(share * largest)
        yield Line2D(
            [], [], ls="", marker="o", color=ORANGE, mec="white", mew=0.5, alpha=0.75,
            ms=np.sqrt(max(_LARGEST * weight / largest, _SMALLEST)),
            label=f"weight {weight:,g}",
        )  # fmt: skip
