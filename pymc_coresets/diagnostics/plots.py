"""Plots of an approximate posterior beside the full one."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import arviz_plots
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pymc_coresets.diagnostics.alignment import common_draws, labelled_components
from pymc_coresets.options import one_of

_COLOURS = {"full posterior": "#8a8f98", "approximation": "#0b6e99"}
_HIDDEN = ("credible_interval", "point_estimate", "point_estimate_text")
_DENSITIES: Any = {
    **dict.fromkeys(_HIDDEN, False),
    "dist": {"width": 1.8},
    "face": {"alpha": 0.18},
}


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
    common: Any = {"backend": "matplotlib", "color": list(_COLOURS.values())}
    common |= {"figure_kwargs": {"layout": "constrained"}}
    plotted = (
        arviz_plots.plot_dist(trees, kind="kde", visuals=_DENSITIES, **common)
        if kind == "dist"
        else arviz_plots.plot_forest(trees, combined=True, **common)
    )
    figure: Figure = plotted.get_viz("figure")
    handles = [Line2D([], [], color=colour, lw=2) for colour in _COLOURS.values()]
    figure.legend(handles, list(_COLOURS), loc="outside upper center", ncols=2, frameon=False)
    return figure


def _thinned(draws: xr.Dataset, n_draws: int) -> xr.Dataset:
    """Return one chain of `n_draws` evenly spaced draws: ArviZ needs posteriors of one length."""
    flat = draws.drop_attrs().drop_vars(["chain", "draw"], errors="ignore")
    flat = flat.stack(sample=("chain", "draw"), create_index=False)
    chosen = np.linspace(0, flat.sizes["sample"] - 1, n_draws).astype(int)
    flat = flat.isel(sample=chosen).rename(sample="draw").expand_dims("chain")
    return flat.assign_coords(chain=[0], draw=np.arange(n_draws)).transpose("chain", "draw", ...)
