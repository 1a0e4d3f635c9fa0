"""Plots of groups: how many rows of each were chosen, and what they weigh."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from pymc_coresets.diagnostics.canvas import (
    BLUE,
    DARK_GREY,
    GREY,
    ORANGE,
    require_attributes,
    tidied,
)
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.results.columns import Column, RowColumns
from pymc_coresets.results.readable import CoresetRows, row_columns

__all__ = ["plot_groups"]

_LISTED = 30  # levels, which are shown by name
_LONGEST_LABEL = 28


def plot_groups(
    coreset: CoresetRows,
    name: str | None = None,
    *,
    random_seed: int | np.random.Generator | None = None,
) -> Figure:
    """Plot what each group has in the data, and what it has in the coreset.

    On the left is the weight of each group's chosen rows beside its number of rows, on the right
    how many rows were chosen. Up to 30 groups are listed by name, the largest first; more are shown
    as points against their size. A group whose weight is far from its size is not badly
    represented: weights match the log-likelihood near the posterior, not the numbers of rows. A
    group without rows relies on its prior.

    Parameters
    ----------
    coreset : Coreset
    name : str, optional
        The column that says which group a row belongs to, a dimension, or a variable with one entry
        for each group; also an outcome that has classes. By default the index by which variables
        are looked up, if there is one only.
    random_seed : int or Generator, optional
        Unused where all rows are in memory; see `Coreset.summary`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidOptionError
        If `coreset` is none, or there are no groups of that name.
    InvalidDataError
        If there are no groups, or their rows are out of reach.
    CoresetError
        If the coreset was read without its model.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> shop = np.arange(600) % 3
    >>> with pm.Model(coords={"shop": ["a", "b", "c"]}):
    ...     effect = pm.Normal("effect", dims="shop")
    ...     y = pm.Normal("y", effect[shop], 1.0, observed=shop)
    ...     coreset = build_coreset(
    ...         size=30, method="uniform", collapse=False, random_seed=1, progressbar=False
    ...     )
    >>> left, right = plot_groups(coreset, "shop").axes
    >>> [label.get_text() for label in left.get_yticklabels()]
    ['a', 'b', 'c']
    """
    require_attributes(coreset, "weights", "indices", "loglikelihood", "data")
    if name is not None and not isinstance(name, str):
        raise InvalidOptionError(f"name={name!r} must be the name of a column or dimension.")
    found = row_columns(coreset, random_seed)
    column = _group_column(found, name)
    table = found.by_level(column)
    if table["rows"].isna().any():
        raise InvalidDataError(
            f"The rows of the groups of {column.name!r} are out of reach: read the coreset with "
            "Coreset.from_netcdf(path, model, rows=...)."
        )
    table = table[(table["rows"] > 0) | (table["chosen"] > 0)]
    table = table.sort_values("rows", ascending=False, kind="stable")
    figure = _listed(table) if len(table) <= _LISTED else _scattered(table)
    covered = int((table["chosen"] > 0).sum())
    figure.suptitle(f"{column.name}: {covered:,} of {len(table):,} groups have chosen rows")
    return figure


def _group_column(found: RowColumns, name: str | None) -> Column:
    groups = found.groups
    with_levels = [c for c in found.columns if c.levels is not None]
    known = ", ".join(repr(c.name) for c in with_levels)
    if name is None:
        if len(groups) == 1:
            return groups[0]
        if not with_levels:
            raise InvalidDataError(
                "The rows have no groups: no variable is looked up by an index, and no column has "
                "classes. plot_coreset shows columns of numbers."
            )
        raise InvalidOptionError(f"name: which groups are meant? Choose among {known}.")
    for column in with_levels:
        if column.levels is not None and name in (column.name, *column.levels.names):
            return column
    raise InvalidOptionError(
        f"name={name!r}: the rows have no groups of this name. "
        + (f"Choose among {known}." if known else "They have no groups at all.")
    )


def _listed(table: pd.DataFrame) -> Figure:
    height = 1.5 + 0.24 * len(table)
    figure, (left, right) = plt.subplots(
        1,
        2,
        figsize=(8.4, height),
        sharey=True,
        layout=ConstrainedLayoutEngine(w_pad=0.1),  # tick labels of neighbours stay apart
        width_ratios=[3, 2],
    )
    places = np.arange(len(table))
    left.barh(places, table["rows"], color=GREY, alpha=0.45, label="rows")
    left.plot(table["weight"], places, "o", color=ORANGE, ms=6, mec="white", label="weight")
    left.set_yticks(places, [_short(str(label)) for label in table.index])
    left.xaxis.set_major_locator(MaxNLocator(6))
    left.set(xlabel="rows in the data, and weight of the chosen ones", xlim=(0, None))
    left.invert_yaxis()
    left.legend(frameon=False, loc="lower right")
    right.barh(places, table["chosen"], color=BLUE, alpha=0.75)
    right.set(xlabel="rows chosen")
    right.tick_params(left=False)
    right.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    for ax in (left, right):
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        tidied(ax, grid="x")
    return figure


def _scattered(table: pd.DataFrame) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.2), layout="constrained")
    chosen = table[table["chosen"] > 0]
    missed = table[table["chosen"] == 0]
    dots = {"ls": "", "marker": "o", "ms": 4, "alpha": 0.5, "mec": "none"}
    left.plot(chosen["rows"], chosen["weight"], color=ORANGE, **dots)
    lowest, highest = table["rows"].min(), table["rows"].max()
    line = {"color": GREY, "ls": "--", "lw": 1.2, "zorder": 1, "label": "weight = rows"}
    left.plot([lowest, highest], [lowest, highest], **line)
    left.legend(frameon=False, fontsize="small", loc="upper left")
    right.plot(chosen["rows"], chosen["chosen"], color=BLUE, **dots)
    if len(missed):
        right.plot(missed["rows"], missed["chosen"], "x", color=DARK_GREY, ms=5)
        right.annotate(
            f"{len(missed):,} groups without chosen rows", (1, 0), xytext=(-2, -6), va="top",
            xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
            color=DARK_GREY, fontsize="small",
        )  # fmt: skip
    if len(chosen):
        left.set_yscale("log")
    for ax, label in ((left, "weight of the chosen rows"), (right, "rows chosen")):
        ax.set(xscale="log", xlabel="rows in the data", ylabel=label)
        tidied(ax)
    top = max(float(table["chosen"].max()), 1.0)
    right.set_ylim(-0.12 * top if len(missed) else 0, 1.05 * top)
    right.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return figure


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"
