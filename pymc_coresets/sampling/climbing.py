"""Searches for the highest point of a density: one driver, one policy for what is not finite."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular
from scipy.optimize import OptimizeResult, minimize

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.unconstrained import Density
from pymc_coresets.sampling.normal import Normal

type Function = Callable[[np.ndarray], tuple[float, np.ndarray]]

REMEDY = "use weighting='subsample', which samples instead."
FLAT = 1e-3  #: Gradient at which a search by the curvature ends.
_CLOSE = 0.1  # of a posterior standard deviation: the largest gradient at the mode
_MOST_STEPS = 2_000
_FUNCTIONS = 5  # for each step of L-BFGS, at most
_MOST_RESTARTS = 100
_SHRINK, _GROW = 0.1, 4.0
_OTHER_STARTS, _JITTER = 10, 1.0  # around a start that is not finite, as PyMC's
_STEPS_TO_IMPROVE, _MOST_HALVINGS = 200, 20


class Guarded:
    """A function with its gradient, infinite where either of them is not finite.

    So a search shortens a step that led there, where it would go on with NaN.

    Parameters
    ----------
    function : callable
        Returns the value at a point (n_dims,), and the gradient there.

    Attributes
    ----------
    x : ndarray of shape (n_dims,), or None
        Where the lowest value was.
    n_barred : int
        Points so far at which it was infinite.

    Examples
    --------
    >>> guarded = Guarded(lambda x: (float(x @ x), np.full(1, np.nan)))
    >>> guarded(np.ones(1)), guarded.n_barred
    ((inf, array([0.])), 1)
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self.x: np.ndarray | None = None
        self._lowest = np.inf
        self.n_barred = 0

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the gradient at a point (n_dims,)."""
        if np.isfinite(x).all():  # as it is not after a step along a gradient of 1e200
            value, slope = self._function(x)
            if np.isfinite(value) and np.isfinite(slope).all():
                if value < self._lowest:
                    self.x, self._lowest = x.copy(), value
                return value, slope
        self.n_barred += 1
        return np.inf, np.zeros_like(x)


def negative_of(density: Density, like: Normal | None = None) -> Guarded:
    """Return a negative log-density, which searches for a mode descend.

    Parameters
    ----------
    density : Density
    like : Normal, optional
        In whose coordinates, in which it is round, points are given; in the density's by default.
    """

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        logp, gradient = density.logp_and_gradient(x if like is None else like.at(x))
        if like is None or not np.isfinite(gradient).all():
            return -logp, -gradient
        return -float(logp), -solve_triangular(like.factor.root, gradient, lower=True)

    return Guarded(negative)


def climb(
    negative: Function,
    start: np.ndarray,
    *,
    most_steps: int,
    by: Literal["L-BFGS-B", "BFGS", "trust-exact"] = "L-BFGS-B",
    curvature: Callable[[np.ndarray], np.ndarray] | None = None,
    bounds: list[tuple[float, float]] | None = None,
    callback: Callable[[np.ndarray], None] | None = None,
) -> OptimizeResult:
    """Minimise a guarded function by one of SciPy's methods.

    Parameters
    ----------
    negative : Guarded
        Or what has no points at which it is not finite.
    start : ndarray of shape (n_dims,)
    most_steps : int
    by : {"L-BFGS-B", "BFGS", "trust-exact"}
        BFGS ends a tenth of a standard deviation from the mode, in coordinates in which that is 1;
        the last one takes steps by the curvature in regions that are trusted.
    curvature : callable, optional
        That of the function, for steps by it.
    bounds, callback
        As SciPy has them.

    Raises
    ------
    SamplingError
        If the curvature is not finite.

    Examples
    --------
    >>> climb(lambda x: (float(x @ x), 2 * x), np.ones(2), most_steps=10).x.round(6)
    array([0., 0.])
    """
    own: dict[str, dict[str, float]] = {
        "L-BFGS-B": {"maxfun": _FUNCTIONS * most_steps},
        "BFGS": {"gtol": _CLOSE},
        "trust-exact": {"gtol": FLAT},
    }
    try:
        return minimize(
            negative,
            start,
            jac=True,
            method=by,
            hess=curvature,
            bounds=bounds,
            callback=callback,
            options={"maxiter": most_steps} | own[by],
        )
    except (ValueError, LinAlgError) as error:  # SciPy decomposes what is not finite
        raise SamplingError(f"The posterior has no mode ({error}): {REMEDY}") from error


def descend(
    guarded: Guarded, start: np.ndarray, *, most_steps: int = _MOST_STEPS
) -> OptimizeResult:
    """Minimise by L-BFGS; within a box that shrinks where steps led to where it is not finite.

    L-BFGS itself gives up there.

    Parameters
    ----------
    guarded : Guarded
    start : ndarray of shape (n_dims,)
        Where that is not finite, some points nearby are tried.
    most_steps : int, default 2 000

    Returns
    -------
    OptimizeResult
        Of the last search; infinite, if the function is so at the start.

    Examples
    --------
    >>> def function(x):
    ...     return (float(x[0] - np.log(x[0])), 1 - 1 / x) if x[0] > 0 else (np.nan, x)
    >>> descend(Guarded(function), np.array([100.0])).x.round(3)
    array([1.])
    """
    x, radius = _finite_start(guarded, start), np.inf
    for _ in range(_MOST_RESTARTS):
        n_barred = guarded.n_barred
        bounds = None if np.isinf(radius) else list(zip(x - radius, x + radius, strict=True))
        found = climb(guarded, x, most_steps=most_steps, bounds=bounds)
        at_border = bounds is not None and np.abs(found.x - x).max() > 0.99 * radius
        barred = guarded.n_barred > n_barred  # even where it says that it has converged
        if guarded.x is None or not (barred or at_border):
            break
        moved = float(np.abs(guarded.x - x).max())
        radius = _SHRINK * min(radius, moved or 1.0) if barred else _GROW * radius
        x = guarded.x
    return found


def _finite_start(guarded: Guarded, start: np.ndarray) -> np.ndarray:
    rng, x = np.random.default_rng(0), start
    for _ in range(_OTHER_STARTS):
        if np.isfinite(guarded(x)[0]):
            break
        x = start + rng.uniform(-_JITTER, _JITTER, len(start))
    return x


def improve(start: Normal, density: Density) -> np.ndarray:
    """Find the mode of another density from the mode and the curvature of one like it.

    In coordinates in which the curvature is that of a standard normal, a step along the gradient
    leads near the mode, and BFGS takes a few more.

    Parameters
    ----------
    start : Normal
        Of the posterior of some of the rows.
    density : Density
        That of all rows.

    Returns
    -------
    ndarray of shape (n_dims,)

    Raises
    ------
    SamplingError
        If there is no mode nearby.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.unconstrained import Unconstrained
    >>> from pymc_coresets.sampling.normal import Factor
    >>> with pm.Model() as all_rows:
    ...     mu = pm.Normal("mu", 2.5, 0.5)
    >>> start = Normal(np.array([2.0]), Factor(np.array([[1 / 0.6**2]])))
    >>> improve(start, Unconstrained(all_rows)).round(1)
    array([2.5])
    """
    negative = negative_of(density, start)
    z = np.zeros(len(start.location))
    value, slope = negative(z)
    for halvings in range(_MOST_HALVINGS):
        tried = -slope / 2**halvings
        if negative(tried)[0] < value:
            z = tried
            break
    found = climb(negative, z, most_steps=_STEPS_TO_IMPROVE, by="BFGS")
    if not (np.isfinite(found.fun) and np.abs(found.jac).max() < 1.0):
        raise SamplingError(f"No mode of the posterior of all rows was found ({found.message}).")
    return start.at(found.x)
