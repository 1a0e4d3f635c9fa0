"""Plots of a coreset: its weights, its construction, and its posterior beside the full one."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import arviz_plots
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pymc_coresets.diagnostics.comparison import common_draws, labelled_components
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.weighted_rows import WeightedRows

_GREY, _BLUE = "#5c6169", "#0b6e99"


def plot_weights(coreset: WeightedRows, *, ax: Axes | None = None) -> Axes:
    """Plot the weights of a coreset, the largest first.

    A curve that falls steeply says that a few rows carry most of the weight. The dashed line is the
    weight that each of as many uniformly chosen rows would have.

    Parameters
    ----------
    coreset : Coreset
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidOptionError
        If `coreset` or `ax` has another type.
    InvalidDataError
        If there are no weights.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(500.0) / 500)
    ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
    >>> plot_weights(coreset).get_ylabel()
    'weight'
    """
    _require(coreset, ax)
    weights = np.sort(coreset.weights)[::-1]
    if not weights.size:
        raise InvalidDataError("the coreset has no weights to plot: build one with size >= 1.")
    ax = _given_or_new(ax)
    edges = np.arange(weights.size + 1) + 0.5
    ax.stairs(weights, edges, fill=True, color=_BLUE, alpha=0.25)
    ax.stairs(weights, edges, baseline=None, color=_BLUE, lw=1.5)
    uniform = coreset.n_observations / weights.size
    ax.axhline(uniform, color=_GREY, ls="--", lw=1.2)
    ax.annotate(
        f"uniform: {uniform:,.4g}", (1, uniform), xycoords=("axes fraction", "data"),
        xytext=(-4, 4), textcoords="offset points", ha="right", color=_GREY,
    )  # fmt: skip
    ax.set(
        xlim=(edges[0], edges[-1]),
        ylim=(0, 1.08 * max(weights[0], uniform)),
        xlabel="rows of the coreset, largest weight first",
        ylabel="weight",
        title=f"{weights.size:,} of {coreset.n_observations:,} rows ({coreset.method}), "
        f"weights sum to {weights.sum():,.6g}",
    )
    return _tidied(ax)


def plot_history(coreset: WeightedRows, *, ax: Axes | None = None) -> Axes:
    """Plot the objective of the construction against the size of the coreset, or by round.

    The objective is on a logarithmic scale. Methods whose size does not grow from step to step are
    shown round by round. A build by the default method often needs one round: the plot then has
    one point, below the dashed line of the tolerance. Where the held-out curve rises above the
    other one, the weights fit the draws that chose them rather than the posterior: more draws are
    needed, not more rows.

    Parameters
    ----------
    coreset : Coreset
        Steps at which an objective is not positive, or was not measured, are left out.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidOptionError
        If `coreset` or `ax` has another type.
    InvalidDataError
        If no positive objective was recorded.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(500.0) / 500)
    ...     coreset = build_coreset(size=5, method="giga", random_seed=1, progressbar=False)
    >>> plot_history(coreset).get_yscale()
    'log'
    """
    _require(coreset, ax)
    x, label_of_x = coreset.history["size"].to_numpy(), "size of the coreset (rows)"
    if (np.diff(x) < 0).any():
        x, label_of_x = np.arange(len(x)), "round"
    looks: dict[str, Any] = {
        "objective": {
            "label": "on the draws that chose the weights", "color": _BLUE, "marker": "o",
        },
        "heldout_objective": {"label": "on held-out draws", "color": "#d1602f", "marker": "s"},
    }  # fmt: skip
    curves = {name: coreset.history[name].to_numpy() for name in looks}
    if not any((values > 0).any() for values in curves.values()):
        raise InvalidDataError(
            f"Nothing to plot: method={coreset.method!r} recorded no positive objective. "
            "plot_weights shows the weights; check() measures the divergence of any coreset."
        )
    ax = _given_or_new(ax)
    n_points = 0
    for name, values in curves.items():
        shown = values > 0
        if shown.any():
            n_points = max(n_points, int(shown.sum()))
            ax.plot(x[shown], values[shown], ms=3.5, lw=1.5, **looks[name])
    if coreset.certificate is not None:
        tolerance = coreset.certificate.tolerance
        ax.axhline(tolerance, color=_GREY, ls="--", lw=1.2, label=f"tolerance: {tolerance:g}")
    if n_points == 1:
        label_of_x += "; measured once"
    ax.set(yscale="log", xlabel=label_of_x, ylabel="objective (nats)")
    ax.set_title("Symmetrised KL divergence, as estimated while building")
    ax.legend(frameon=False)
    return _tidied(ax)


def plot_comparison(
    full: xr.DataTree | xr.Dataset,
    approximation: xr.DataTree | xr.Dataset,
    var_names: str | Sequence[str] | None = None,
) -> Figure:
    """Plot the marginals of an approximate posterior over those of the full posterior.

    Densities show shapes and suit a handful of components; `arviz.plot_forest` of both suits a few
    dozen. :func:`~pymc_coresets.diagnostics.comparison.compare` returns the numbers.

    Parameters
    ----------
    full, approximation : xarray.DataTree or xarray.Dataset
        Draws with dims chain and draw; of a DataTree the group ``posterior``.
    var_names : str or sequence of str, optional
        Variables to plot; by default all that both have with equal shape and labels.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidOptionError
        If a variable of `var_names` is not in both.
    InvalidDataError
        If the posteriors have no variable in common, or draws are not finite.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> draws = np.random.default_rng(1).normal(size=(2, 4, 200))
    >>> full, approximation = (xr.Dataset({"mu": (("chain", "draw"), mu)}) for mu in draws)
    >>> figure = plot_comparison(full, approximation)
    """
    pair, _ = common_draws(full, approximation, var_names)
    for draws in pair:
        deque(labelled_components(draws), maxlen=0)  # refuses draws that are not finite
    n_draws = min(draws.sizes["chain"] * draws.sizes["draw"] for draws in pair)
    colours = {"full posterior": "#8a8f98", "approximation": _BLUE}
    trees = {
        label: xr.DataTree.from_dict({"posterior": _thinned(draws, n_draws)})
        for label, draws in zip(colours, pair, strict=True)
    }
    hidden = ("credible_interval", "point_estimate", "point_estimate_text")
    visuals: Any = {"dist": {"width": 1.8}, "face": {"alpha": 0.18}} | dict.fromkeys(hidden, False)
    plotted = arviz_plots.plot_dist(
        trees,
        kind="kde",
        visuals=visuals,
        backend="matplotlib",
        color=list(colours.values()),
        figure_kwargs={"layout": "constrained"},
    )
    figure: Figure = plotted.get_viz("figure")
    handles = [Line2D([], [], color=colour, lw=2) for colour in colours.values()]
    figure.legend(handles, list(colours), loc="outside upper center", ncols=2, frameon=False)
    return figure


def _require(coreset: object, ax: object) -> None:
    if not isinstance(coreset, WeightedRows):
        raise InvalidOptionError(
            f"coreset is a {type(coreset).__name__}, but must be what build_coreset returned."
        )
    if not isinstance(ax, Axes | None):
        raise InvalidOptionError(f"ax is a {type(ax).__name__}, but must be Matplotlib's Axes.")


def _given_or_new(ax: Axes | None) -> Axes:
    """Return the axes to plot on."""
    return plt.subplots(figsize=(7.2, 4.2), layout="constrained")[1] if ax is None else ax


def _tidied(ax: Axes) -> Axes:
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=_GREY, alpha=0.25, lw=0.6)
    ax.set_axisbelow(True)
    return ax


def _thinned(draws: xr.Dataset, n_draws: int) -> xr.Dataset:
    """Return one chain of `n_draws` evenly spaced draws: ArviZ needs posteriors of one length."""
    flat = draws.drop_attrs().drop_vars(["chain", "draw"], errors="ignore")
    flat = flat.stack(sample=("chain", "draw"), create_index=False)
    chosen = np.linspace(0, flat.sizes["sample"] - 1, n_draws).astype(int)
    flat = flat.isel(sample=chosen).rename(sample="draw").expand_dims("chain")
    return flat.assign_coords(chain=[0], draw=np.arange(n_draws)).transpose("chain", "draw", ...)
