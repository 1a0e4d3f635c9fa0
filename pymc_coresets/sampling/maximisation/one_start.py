"""Maximisation of a density: one driver, one policy for values that are not finite."""

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
from scipy.linalg import LinAlgError, cholesky, inv
from scipy.optimize import OptimizeResult, minimize

from pymc_coresets.deadline import forecast, stop_if_late
from pymc_coresets.display import counted
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.numerics import ROUNDING
from pymc_coresets.sampling.density import Density, Slopes
from pymc_coresets.sampling.normal import Normal, heavy_tailed

_log = logging.getLogger(__name__)

type Function = Callable[[np.ndarray], tuple[float, np.ndarray]]

REMEDY = "use weighting='subsample', which samples instead."
_NO_MODE = "The marginal posterior of the scales has no mode near the start."
#: Gradient at which a search by the curvature ends, in units of the unconstrained space.
FLAT = 1e-3
#: Gradient at which the mode of all rows is close enough to draw there, per standard deviation.
CLOSE = 0.3
#: Log-densities from which on squares of slopes could overflow.
_HUGE = 1e100
#: Gradients of a usual search for a mode, by which its time is forecast.
_USUAL = 100


class FiniteObjective:
    """A function with its gradient, infinite if either of them is not finite.

    A search then shortens a step that led there, instead of continuing with NaN.

    Parameters
    ----------
    function : callable
        Returns the value at a point (n_dims,), and the gradient there.

    Attributes
    ----------
    x : ndarray of shape (n_dims,)
        Point of the lowest value; empty as long as there is none.
    lowest : float
        This value; infinite as long as there is none.
    n_barred : int
        Number of points so far at which it was infinite.
    n_calls : int
        Number of all points so far.

    Examples
    --------
    >>> objective = FiniteObjective(lambda x: (float(x @ x), np.full(1, np.nan)))
    >>> objective(np.ones(1)), objective.n_barred
    ((inf, array([0.])), 1)
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self.x, self.lowest = np.empty(0), np.inf
        self.n_barred = self.n_calls = 0
        self._begun = time.perf_counter()

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the gradient at a point (n_dims,)."""
        self.n_calls += 1
        stop_if_late(counted(self.n_calls, "gradient"))
        if self.n_calls == 3:  # the first one compiles functions
            forecast(_USUAL * (time.perf_counter() - self._begun))
        self._begun = time.perf_counter()
        if np.isfinite(x).all():  # false after a step along a gradient of 1e200
            value, slope = self._function(x)
            if np.isfinite(value) and np.isfinite(slope).all():
                if value < self.lowest:
                    self.x, self.lowest = x.copy(), value
                return value, slope
        self.n_barred += 1
        return np.inf, np.zeros_like(x)


def negative_of(density: Density) -> FiniteObjective:
    """Return a negative log-density, to be minimised in the search for a mode."""
    return FiniteObjective(partial(_negative, density))


def negative_like(density: Density, like: Normal) -> FiniteObjective:
    """Return the same in the whitened coordinates of a normal distribution."""
    return FiniteObjective(whitened(partial(_negative, density), like))


def _negative(density: Density, x: np.ndarray) -> tuple[float, np.ndarray]:
    logp, gradient = density.logp_and_gradient(x)
    return -float(logp), -gradient


def whitened(function: Function, like: Normal) -> Function:
    """Return a function with its gradient in whitened coordinates; neither need be finite."""

    def of(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = function(like.at(z))
        is_finite = np.isfinite(slope).all()
        return value, like.factor.whiten_gradients(slope) if is_finite else slope

    return of


def minimise(
    negative: Function,
    start: np.ndarray,
    *,
    most_steps: int,
    most_calls: int = sys.maxsize,
    by: Literal["L-BFGS-B", "BFGS", "trust-exact"] = "L-BFGS-B",
    curvature: Callable[[np.ndarray], np.ndarray] | None = None,
    bounds: list[tuple[float, float]] | None = None,
    callback: Callable[[np.ndarray], None] | None = None,
) -> OptimizeResult:
    """Minimise a function by one of SciPy's methods.

    Parameters
    ----------
    negative : FiniteObjective
        Or a function that is finite everywhere.
    start : ndarray of shape (n_dims,)
    most_steps : int
    most_calls : int, optional
        After which no further step of L-BFGS begins: five for each step at most.
    by : {"L-BFGS-B", "BFGS", "trust-exact"}
        BFGS ends a tenth of a standard deviation from the mode, in coordinates in which that is 1;
        the last one takes trust-region steps by the curvature.
    curvature : callable, optional
        Hessian of the function, for "trust-exact".
    bounds, callback
        As in SciPy.

    Raises
    ------
    SamplingError
        If the curvature is not finite.

    Examples
    --------
    >>> minimise(lambda x: (float(x @ x), 2 * x), np.ones(2), most_steps=10).x.round(6)
    array([0., 0.])
    """
    own: dict[str, dict[str, float]] = {
        "L-BFGS-B": {"maxfun": min(5 * most_steps, most_calls)},
        "BFGS": {"gtol": 0.1},
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
    except (ValueError, LinAlgError) as error:  # SciPy decomposes a matrix that is not finite
        raise SamplingError(f"The posterior has no mode ({error}): {REMEDY}") from error


def minimise_where_finite(
    objective: FiniteObjective, start: np.ndarray, *, most_steps: int = 2_000
) -> OptimizeResult:
    """Minimise by L-BFGS, within a box that shrinks if steps lead to values that are not finite.

    L-BFGS itself stops there.

    Parameters
    ----------
    objective : FiniteObjective
    start : ndarray of shape (n_dims,)
        If the function is not finite there, some points nearby are tried.
    most_steps : int, default 2,000
        Of each search, and a fifth of the function's calls in all of them.

    Returns
    -------
    OptimizeResult
        Of the last search; infinite if the function is infinite at the start.

    Examples
    --------
    >>> def function(x):
    ...     return (float(x[0] - np.log(x[0])), 1 - 1 / x) if x[0] > 0 else (np.nan, x)
    >>> minimise_where_finite(FiniteObjective(function), np.array([100.0])).x.round(3)
    array([1.])
    """
    x, rng, radius = start, np.random.default_rng(0), np.inf
    last = objective.n_calls + 5 * most_steps
    for _ in range(10):
        if np.isfinite(objective(x)[0]):
            break
        x = start + rng.uniform(-1.0, 1.0, len(start))  # as PyMC's jitter
    for _ in range(100):
        n_barred = objective.n_barred
        bounds = None if np.isinf(radius) else list(zip(x - radius, x + radius, strict=True))
        left = max(last - objective.n_calls, 1)
        found = minimise(objective, x, most_steps=most_steps, most_calls=left, bounds=bounds)
        at_border = np.abs(found.x - x).max() > 0.99 * radius
        barred = objective.n_barred > n_barred  # even if it reports convergence
        if not (np.isfinite(objective.lowest) and (barred or at_border)):
            break
        if objective.n_calls >= last:
            _log.info("A search was ended after %d gradients", 5 * most_steps)
            break
        moved = float(np.abs(objective.x - x).max())
        radius = 0.1 * min(radius, moved or 1.0) if barred else 4 * radius
        x = objective.x
    return found


def maximise(start: Normal, density: Density) -> np.ndarray:
    """Find the mode of a density from the mode and curvature of a similar one.

    In coordinates in which the curvature is that of a standard normal, a step along the gradient
    leads near the mode, and BFGS takes a few more.

    Parameters
    ----------
    start : Normal
        Of the posterior of a sample of the rows.
    density : Density
        Density of the posterior of all rows.

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
    >>> from pymc_coresets.sampling.factors.cholesky import factor_of
    >>> with pm.Model() as all_rows:
    ...     mu = pm.Normal("mu", 2.5, 0.5)
    >>> start = Normal(np.array([2.0]), factor_of(np.array([[1 / 0.6**2]])))
    >>> maximise(start, Density.of_model(Unconstrained(all_rows))).round(1)
    array([2.5])
    """
    negative = negative_like(density, start)
    z = np.zeros(len(start.location))
    value, slope = negative(z)
    for halvings in range(20):
        tried = -slope / 2**halvings
        if negative(tried)[0] < value:
            z = tried
            break
    found = minimise(negative, z, most_steps=200, by="BFGS")
    if not (np.isfinite(found.fun) and np.abs(found.jac).max() < 1.0):
        raise SamplingError(f"No mode of the posterior of all rows was found ({found.message}).")
    return start.at(found.x)


def maximise_by_sample(
    start: Normal, density: Density, sample: Density, half: Density
) -> np.ndarray:
    """Find the mode of a density with few gradients of it, by those of a sample of its rows.

    Each step takes one gradient, and leads to the mode of the sample's density plus a linear term,
    by which both gradients are equal at the start of the step.  The next gradient is off by what
    the gradient's change over the step differs between the sample and all rows, as much as between
    half of the sample and the whole of it: no further one is needed once that is small.

    Parameters
    ----------
    start : Normal
        Of the posterior of the sample.
    density, sample, half : Density
        Of all rows, of a random sample of them, and of half of the sample, both scaled to all rows.

    Returns
    -------
    ndarray of shape (n_dims,)

    Raises
    ------
    SamplingError
        If there is no mode nearby.

    References
    ----------
    Jordan, Lee, Yang (2019). Communication-efficient distributed statistical inference. Journal of
    the American Statistical Association 114. https://doi.org/10.1080/01621459.2018.1429274

    Examples
    --------
    >>> def of(mean):
    ...     return Density(lambda x: Slopes(-np.cosh(x[:, 0] - mean), -np.sinh(x - mean)))
    >>> start = heavy_tailed(np.array([2.1]), np.eye(1))
    >>> density = of(2.0)
    >>> maximise_by_sample(start, density, of(2.1), of(2.2)).round(2), density.n_gradients
    (array([2.]), 1)
    """
    x = start.location
    for _ in range(20):
        slope = density.gradients(x[None])[0] - sample.gradients(x[None])[0]
        if not np.isfinite(slope).all():
            break
        linear = partial(_with_linear_term, sample, slope)
        before, x = x, maximise(replace(start, location=x), Density(linear))
        ends = np.stack([before, x])
        changes = np.diff(half.gradients(ends) - sample.gradients(ends), axis=0)[0]
        if np.abs(start.factor.whiten_gradients(changes)).max() < CLOSE:
            return x
    raise SamplingError("No mode of the posterior of all rows was found from those of a sample.")


def _with_linear_term(density: Density, slope: np.ndarray, points: np.ndarray) -> Slopes:
    return density.slopes(points).plus(Slopes(points @ slope, slope))


def near_mode(log_density: Callable[[np.ndarray], np.ndarray], start: Normal) -> Normal:
    """Return a normal distribution with the mode of a function of few variables, and heavy tails.

    Parameters
    ----------
    log_density : callable
        Takes points (n_points, p), and returns (n_points,), in nats.
    start : Normal
        Start of the search, with a guess of the scales.

    Raises
    ------
    SamplingError
        If the search finds no mode.

    Examples
    --------
    >>> start = heavy_tailed(np.zeros(1), np.eye(1))
    >>> found = near_mode(lambda x: -2 * np.square(x[:, 0] - 3), start)
    >>> found.location.round(6), found.factor.root.round(6)
    (array([3.]), array([[2.]]))
    """
    mode, spread = start.location, inv(start.factor.lower).T
    for _ in range(60):
        height, gradient, hessian = _expansion(log_density, mode, spread)
        curvatures, axes = np.linalg.eigh(-hessian)
        slope, scales = axes.T @ gradient, np.abs(curvatures)
        largest = max(scales.max(initial=1e-8), np.abs(slope).max(initial=0.0))
        scales = np.maximum(scales, 1e-8 * largest)
        promised = float(np.square(slope) @ (1 / scales))  # twice the gain in nats
        is_near = promised < 0.02  # the mode to a tenth of a standard deviation
        # In the new coordinates, the curvature is that of a standard normal density.
        damping = (0.0, 1e-2, 0.1, 1.0, 10.0, 1e2, 1e3, 1e4)
        steps = [axes @ (slope / (scales + d * scales.max(initial=0.0))) for d in damping]
        tried, spread = mode + np.stack(steps) @ spread.T, spread @ (axes / np.sqrt(scales))
        if is_near and (curvatures > 1 / 2).all() and (curvatures < 2).all():
            try:
                return heavy_tailed(tried[0], cholesky(inv(spread @ spread.T), lower=True))
            except (LinAlgError, ValueError):  # flat or unbounded
                break
        heights = log_density(tried)
        best = int(np.argmax(heights))
        if heights[best] > height:
            mode = tried[best]
        elif not is_near:
            break
    raise SamplingError(_NO_MODE)


def _expansion(
    log_density: Callable[[np.ndarray], np.ndarray], x: np.ndarray, spread: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return a function's value, gradient and Hessian at a point in coordinates ``x + spread z``.

    By differences over 0.3 in z, from as many evaluations as a quadratic has terms.  Raises if a
    value is not finite or huge, or values differ by no more than rounding.
    """
    step, units = 0.3, np.eye(len(x))
    first, second = np.triu_indices(len(x), 1)
    z = step * np.concatenate([np.zeros((1, len(x))), units, -units, units[first] + units[second]])
    values = log_density(x + z @ spread.T)
    largest = float(np.abs(values).max())
    if not largest < _HUGE or (len(values) > 1 and np.ptp(values) <= ROUNDING * largest):
        raise SamplingError(_NO_MODE)
    height = float(values[0])
    ahead, behind, corners = np.split(values[1:], [len(x), 2 * len(x)])
    hessian = np.diag(ahead + behind - 2 * height) / step**2
    hessian[first, second] = (corners - ahead[first] - ahead[second] + height) / step**2
    hessian[second, first] = hessian[first, second]
    return height, (ahead - behind) / (2 * step), hessian
