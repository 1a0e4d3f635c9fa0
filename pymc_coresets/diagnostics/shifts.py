"""What importance weights change: the largest shift of a mean, and of a standard deviation."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from pymc_coresets.diagnostics.importance import Floats

_SAMPLE_DIMS = ("chain", "draw")


@dataclass(frozen=True, kw_only=True)
class Shift:
    """How much a number of a posterior changes.

    Parameters
    ----------
    name : str
        The variable, with the index of its entry.
    size, error : float
        The change, in standard deviations of the variable, and its Monte Carlo standard error.
    """

    name: str
    size: float
    error: float


def largest_shifts(posterior: xr.Dataset, weights: Floats) -> tuple[Shift, Shift] | None:
    """Return the largest shift of a mean, and the largest relative change of an sd.

    Parameters
    ----------
    posterior : xarray.Dataset
        Draws with dims chain and draw.
    weights : ndarray of shape (n_chains, n_draws)
        Importance weights of the draws, which sum to one.

    Returns
    -------
    tuple of Shift, or None
        None where nothing varies.

    Notes
    -----
    With relative weights ``r_s = n w_s``, the shift of a mean in standard deviations is the mean of
    ``(r - 1) z`` for standardised draws z, and that of a variance the mean of ``(r - 1) z^2``: the
    sd changes by half of it, to first order.  Errors are those of these means for independent
    draws.

    Examples
    --------
    >>> mu = xr.DataArray(np.random.default_rng(1).normal(size=(4, 1_000)), dims=("chain", "draw"))
    >>> weights = np.exp(0.1 * mu.values) / np.exp(0.1 * mu.values).sum()
    >>> mean, sd = largest_shifts(xr.Dataset({"mu": mu}), weights)
    >>> mean.name, abs(mean.size - 0.1) < 4 * mean.error
    ('mu', True)
    """
    relative = (weights * weights.size).reshape(-1, 1) - 1.0
    best: dict[str, Shift] = {}
    for name, variable in posterior.data_vars.items():
        if variable.dtype.kind not in "fiu" or not set(_SAMPLE_DIMS) <= set(variable.dims):
            continue
        draws = variable.transpose(*_SAMPLE_DIMS, ...)
        z = draws.to_numpy().astype(float).reshape(weights.size, -1)
        z = z - z.mean(axis=0)
        sd = z.std(axis=0)
        varies = sd > 0
        z = z[:, varies] / sd[varies]
        for kind, values in (("mean", relative * z), ("sd", relative * (np.square(z) - 1) / 2)):
            if not values.size:
                continue
            sizes = values.mean(axis=0)
            worst = int(np.abs(sizes).argmax())
            if kind not in best or abs(sizes[worst]) > abs(best[kind].size):
                error = float(values[:, worst].std() / np.sqrt(weights.size))
                entry = int(np.flatnonzero(varies)[worst])
                index = np.unravel_index(entry, draws.shape[2:]) if draws.ndim > 2 else ()
                best[kind] = Shift(
                    name=entry_name(str(name), index),
                    size=float(sizes[worst]),
                    error=error,
                )
    return (best["mean"], best["sd"]) if best else None


def entry_name(name: str, index: Iterable[object]) -> str:
    """Name an entry of a variable: ``beta[0, 1]``; the variable alone, if it is a scalar.

    Examples
    --------
    >>> entry_name("beta", (0, 1)), entry_name("mu", ())
    ('beta[0, 1]', 'mu')
    """
    index = list(index)
    return f"{name}[{', '.join(map(str, index))}]" if index else name
