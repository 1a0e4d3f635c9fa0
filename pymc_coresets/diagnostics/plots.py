"""Plots of a coreset: its weights, its construction, and its posterior beside the full one."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import arviz_plots
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pymc_coresets.diagnostics.alignment import common_draws, labelled_components
from pymc_coresets.diagnostics.canvas import (
    BLUE,
    DARK_GREY,
    GREY,
    ORANGE,
    new_axes,
    require_attributes,
    require_axes,
    tidied,
)
from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.options import one_of

_COLOURS = {"full posterior": GREY, "approximation": BLUE}
_CURVES = {
    "objective": ("on the draws that chose the weights", BLUE, "o"),
    "heldout_objective": ("on held-out draws", ORANGE, "s"),
}


class WeightedRows(Protocol):
    """What :func:`plot_weights` needs to know of a coreset."""

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights, shape (size,)."""

    @property
    def n_observations(self) -> int:
        """Number of rows that the coreset stands for."""

    @property
    def method(self) -> object:
        """Method that built it; its ``str`` is shown."""


class Recorded(Protocol):
    """What :func:`plot_history` needs to know of a coreset."""

    @property
    def history(self) -> xr.Dataset:
        """History of the construction along the dim step."""


def plot_comparison(
    full: xr.DataTree | xr.Dataset,
    approximation: xr.DataTree | xr.Dataset,
    var_names: str | Sequence[str] | None = None,
    *,
    kind: Literal["dist", "forest"] = "dist",
) -> Figure:
    """Plot the marginals of an approximate posterior over those of the full posterior.

    Densities show shapes and suit a handful of components; a forest of intervals suits up to a
    few dozen. :func:`~pymc_coresets.diagnostics.comparison.compare` returns the numbers.

    Parameters
    ----------
    full, approximation : xarray.DataTree or xarray.Dataset
        Draws with dims chain and draw; of a DataTree the group ``posterior``.
    var_names : str or sequence of str, optional
        Variables to plot; by default all that both have with equal shape and labels.
    kind : {"dist", "forest"}
        One density plot per component, or one interval per component in a single plot.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidOptionError
        If a variable of `var_names` is not in both, or `kind` is unknown.
    InvalidDataError
        If the posteriors have no variable in common, or draws are not finite.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> draws = np.random.default_rng(1).normal(size=(2, 4, 200))
    >>> full, approximation = (xr.Dataset({"mu": (("chain", "draw"), mu)}) for mu in draws)
    >>> figure = plot_comparison(full, approximation)
    """
    one_of("kind", kind, ["dist", "forest"])
    pair = common_draws(full, approximation, var_names)[:2]
    for draws in pair:
        deque(labelled_components(draws), maxlen=0)  # refuses draws that are not finite
    n_draws = min(draws.sizes["chain"] * draws.sizes["draw"] for draws in pair)
    trees = {
        label: xr.DataTree.from_dict({"posterior": _thinned(draws, n_draws)})
        for label, draws in zip(_COLOURS, pair, strict=True)
    }
    draw = _densities if kind == "dist" else _forest
    figure: Figure = draw(trees).get_viz("figure")
    handles = [Line2D([], [], color=colour, lw=2) for colour in _COLOURS.values()]
    figure.legend(handles, list(_COLOURS), loc="outside upper center", ncols=2, frameon=False)
    return figure


def plot_weights(coreset: WeightedRows, *, ax: Axes | None = None) -> Axes:
    """Plot the weights of a coreset, the largest first.

    A curve that falls steeply says that a few rows carry most of the weight. The dashed line is the
    weight that each of as many uniformly chosen rows would have.

    Parameters
    ----------
    coreset : WeightedRows
        A coreset: ``weights``, ``n_observations`` and ``method`` are read.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidDataError
        If there are no weights.

    Examples
    --------
    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> coreset = SimpleNamespace(weights=np.array([3.0, 7.0]), n_observations=10, method="giga")
    >>> plot_weights(coreset).get_ylabel()
    'weight'
    """
    require_attributes(coreset, "weights", "n_observations", "method")
    require_axes(ax)
    weights = np.sort(np.asarray(coreset.weights, dtype=np.float64))[::-1]
    if not weights.size:
        raise InvalidDataError("the coreset has no weights to plot: build one with size >= 1.")
    ax = new_axes(ax)
    edges = np.arange(weights.size + 1) + 0.5
    ax.stairs(weights, edges, fill=True, color=BLUE, alpha=0.25)
    ax.stairs(weights, edges, baseline=None, color=BLUE, lw=1.5)
    uniform = coreset.n_observations / weights.size
    ax.axhline(uniform, color=GREY, ls="--", lw=1.2)
    ax.annotate(
        f"uniform: {uniform:,.4g}", (1, uniform), xycoords=("axes fraction", "data"),
        xytext=(-4, 4), textcoords="offset points", ha="right", color=DARK_GREY,
    )  # fmt: skip
    ax.set(
        xlim=(edges[0], edges[-1]),
        ylim=(0, 1.08 * max(weights[0], uniform)),
        xlabel="rows of the coreset, largest weight first",
        ylabel="weight",
        title=f"{weights.size:,} of {coreset.n_observations:,} rows ({coreset.method}), "
        f"weights sum to {weights.sum():,.6g}",
    )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    return tidied(ax)


def plot_history(coreset: Recorded, *, ax: Axes | None = None) -> Axes:
    """Plot the objective of the construction against the size of the coreset.

    The objective is on a logarithmic scale. Methods whose size does not grow from step to step are
    shown round by round. Where the held-out curve rises above the other one, the weights fit the
    draws that chose them rather than the posterior: more draws are needed, not more rows.

    Parameters
    ----------
    coreset : Recorded
        A coreset whose ``history`` has the variables ``size``, ``objective`` and
        ``heldout_objective`` (nats) along the dim step. Steps at which an objective is not
        positive, or was not measured, are left out.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidDataError
        If the history lacks a variable or has no positive objective.

    Examples
    --------
    >>> import xarray as xr
    >>> from types import SimpleNamespace
    >>> columns = {"size": [1, 2], "objective": [1.0, 0.1], "heldout_objective": [1.0, 0.2]}
    >>> history = xr.Dataset({name: ("step", values) for name, values in columns.items()})
    >>> plot_history(SimpleNamespace(history=history)).get_yscale()
    'log'
    """
    require_attributes(coreset, "history")
    require_axes(ax)
    history = coreset.history
    missing = [name for name in ("size", *_CURVES) if name not in history]
    if missing:
        raise InvalidDataError(
            f"the coreset's history has {list(history.data_vars)} but not {', '.join(missing)}: "
            "its method does not record how the coreset was built."
        )
    x, label_of_x = np.asarray(history["size"].values), "size of the coreset (rows)"
    if (np.diff(x) < 0).any():
        x, label_of_x = np.arange(len(x)), "round"
    curves = {name: np.asarray(history[name].values, dtype=np.float64) for name in _CURVES}
    if not any((values > 0).any() for values in curves.values()):
        raise InvalidDataError("the coreset's history has no positive objective to plot.")
    ax = new_axes(ax)
    for name, values in curves.items():
        label, colour, marker = _CURVES[name]
        shown = values > 0
        if shown.any():
            ax.plot(
                x[shown], values[shown], color=colour, marker=marker, ms=3.5, lw=1.5, label=label
            )
    ax.set_yscale("log")
    ax.set(xlabel=label_of_x, ylabel="objective (nats)")
    ax.set_title("Symmetrised KL divergence, as estimated while building")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    ax.legend(frameon=False)
    return tidied(ax)


def _thinned(draws: xr.Dataset, n_draws: int) -> xr.Dataset:
    """Return one chain of `n_draws` evenly spaced draws: ArviZ needs posteriors of one length."""
    flat = draws.drop_attrs().drop_vars(["chain", "draw"], errors="ignore")
    flat = flat.stack(sample=("chain", "draw"), create_index=False)
    chosen = np.linspace(0, flat.sizes["sample"] - 1, n_draws).astype(int)
    flat = flat.isel(sample=chosen).rename(sample="draw").expand_dims("chain")
    return flat.assign_coords(chain=[0], draw=np.arange(n_draws)).transpose("chain", "draw", ...)


def _densities(trees: dict[str, xr.DataTree]) -> arviz_plots.PlotCollection:
    hidden = dict.fromkeys(("credible_interval", "point_estimate", "point_estimate_text"), False)
    visuals: Any = {**hidden, "dist": {"width": 1.8}, "face": {"alpha": 0.18}}
    return arviz_plots.plot_dist(
        trees,
        kind="kde",
        backend="matplotlib",
        visuals=visuals,
        color=list(_COLOURS.values()),
        figure_kwargs={"layout": "constrained"},
    )


def _forest(trees: dict[str, xr.DataTree]) -> arviz_plots.PlotCollection:
    return arviz_plots.plot_forest(
        trees,
        combined=True,
        backend="matplotlib",
        color=list(_COLOURS.values()),
        figure_kwargs={"layout": "constrained"},
    )
