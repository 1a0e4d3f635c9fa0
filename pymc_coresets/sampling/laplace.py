"""The Laplace approximation of a model's posterior, on the unconstrained scale."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, eigh, solve_triangular
from scipy.optimize import OptimizeResult, minimize

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained

_REMEDY = "use weighting='subsample', which samples instead."
_POLISHING_STEPS = 50
_NEGLIGIBLE = 1e-10  # nats that a Newton step still promises
_MOVED = 1e-2  # posterior standard deviations
_GRADIENTS_ON_RIDGES = 10_000
_FLAT = 1e-3  # gradient at which the search along ridges ends
_ENTRIES_AT_ONCE = 2**20  # of points
_NEWTON_STEPS = 30
_ROUGH_STEP = 1e-4  # in units of the unconstrained space, for a first guess of each scale
_MOST_KINKS, _KINK = 20, 0.25  # a scale further, a smooth curvature is no such part of itself
_MOST_SHRINKINGS = 5  # of it, to a hundredth each time
_STEEPEST = 1e100  # curvature: no scale is 1e-50, and the search multiplies and squares it
_MOST_STEPS, _MOST_FUNCTIONS = 2_000, 10_000
_MOST_RESTARTS = 100
_SHRINK, _GROW = 0.1, 4.0
_OTHER_STARTS, _JITTER = 10, 1.0  # around a start that is not finite, as PyMC's


@dataclass(frozen=True, eq=False)
class LaplaceApproximation:
    """A normal distribution with the mode and curvature of a model's posterior.

    Parameters
    ----------
    space : Unconstrained
        The model's unconstrained space.
    mode : ndarray of shape (n_dims,)
    factor : ndarray of shape (n_dims, n_dims)
        Lower Cholesky factor of the negative Hessian there.

    Notes
    -----
    With H = L L' the negative Hessian at the mode mu, a draw is mu + L^-T z, z ~ N(0, I).

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 2.0, 0.5)
    >>> found = LaplaceApproximation.of(Unconstrained(model))
    >>> found.mode.round(6), found.factor.round(3)
    (array([2.]), array([[2.]]))
    """

    space: Unconstrained
    mode: np.ndarray
    factor: np.ndarray

    @classmethod
    def of(
        cls,
        space: Unconstrained,
        start: np.ndarray | None = None,
        *,
        n_gradients: int = _GRADIENTS_ON_RIDGES,
    ) -> Self:
        """Find the mode, and the curvature there: O(n_dims) gradients.

        Parameters
        ----------
        space : Unconstrained
        start : ndarray of shape (n_dims,), optional
            Where the search begins; by default at the model's initial point.
        n_gradients : int
            About how many gradients to spend on ridges along which gradients lead nowhere.

        Raises
        ------
        SamplingError
            If the optimiser finds no mode, or the curvature there is not negative definite.
        """
        if space.model.discrete_value_vars:
            names = [v.name for v in space.model.discrete_value_vars]
            raise SamplingError(
                f"{names!r} are discrete, and have no curvature: sum them out, or use "
                "method='pursuit' with weighting='prior', or with draws of your own."
            )
        x = _climb(space, space.start if start is None else start)
        try:
            mode, factor = _settled(space, x)
        except SamplingError:
            mode, factor = _settled(space, _climb_along_ridges(space, x, n_gradients))
        return cls(space, mode, factor)

    def offset(self, z: np.ndarray) -> np.ndarray:
        """Return how far from the mode standardised coordinates are: L^-T z, (n_dims, ...)."""
        offset: np.ndarray = solve_triangular(self.factor, z, lower=True, trans="T")
        return offset

    def whitened(
        self, density: Callable[[np.ndarray], tuple[float, np.ndarray]]
    ) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
        """Return a negative log-density and its gradient in coordinates in which the mode is round.

        It is infinite where either of them is not finite, and evaluated once at each point: a
        gradient may cost a reading of all rows.
        """
        known: dict[bytes, tuple[float, np.ndarray]] = {}

        def evaluated(z: np.ndarray) -> tuple[float, np.ndarray]:
            if np.isfinite(z).all():  # as they are not after a step along a gradient of 1e200
                logp, gradient = density(self.mode + self.offset(z))
                if np.isfinite(logp) and np.isfinite(gradient).all():
                    return -float(logp), -solve_triangular(self.factor, gradient, lower=True)
            return np.inf, np.zeros_like(z)

        def negative(z: np.ndarray) -> tuple[float, np.ndarray]:
            at = z.tobytes()
            if at not in known:
                known[at] = evaluated(z)
            return known[at]

        return negative

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> Draws:
        """Draw from the approximation itself."""
        z = rng.standard_normal((len(self.mode), n_draws))
        return self.space.constrain(self.mode + self.offset(z).T)

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Return its log-density at points (n_points, n_dims), up to a constant of D alone."""
        z = (x - self.mode) @ self.factor
        logq: np.ndarray = np.log(np.diag(self.factor)).sum() - np.square(z).sum(axis=1) / 2
        return logq


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

    def __init__(self, function: Callable[[np.ndarray], tuple[float, np.ndarray]]) -> None:
        self._function = function
        self.x: np.ndarray | None = None
        self._lowest = np.inf
        self.n_barred = 0

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the gradient at a point (n_dims,)."""
        value, slope = self._function(x)
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            self.n_barred += 1
            return np.inf, np.zeros_like(x)
        if value < self._lowest:
            self.x, self._lowest = x.copy(), value
        return value, slope


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
    options = {"maxiter": most_steps, "maxfun": _MOST_FUNCTIONS}
    for _ in range(_MOST_RESTARTS):
        n_barred = guarded.n_barred
        bounds = None if np.isinf(radius) else list(zip(x - radius, x + radius, strict=True))
        found = minimize(guarded, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
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


def negative_of(space: Unconstrained) -> Guarded:
    """Return the negative log-density of a model, which searches for a mode descend."""

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        logp, gradient = space.logp_and_gradient(x)
        return -logp, -gradient

    return Guarded(negative)


def _climb(space: Unconstrained, start: np.ndarray) -> np.ndarray:
    if space.curvature is not None:  # some of Newton's steps, for hundreds of gradients
        with suppress(SamplingError):
            newton = _by_curvature(negative_of(space), start, space.curvature, _NEWTON_STEPS)
            if newton.success and np.isfinite(newton.fun):
                return np.asarray(newton.x)
    result = descend(negative_of(space), start)
    if not (np.isfinite(result.fun) and np.isfinite(result.x).all()):
        raise SamplingError(f"The posterior has no mode ({result.message}): {_REMEDY}")
    return np.asarray(result.x)


def _climb_along_ridges(space: Unconstrained, x: np.ndarray, n_gradients: int) -> np.ndarray:
    """Go on by the curvature, where ridges are so narrow that gradients alone lead nowhere.

    So it is where a scale multiplies what is well determined, as in hierarchies that are not
    centred.  Where there is no mode, the steps grow until the curvature is beyond all measure.
    """

    def curvature(x: np.ndarray) -> np.ndarray:
        hessian = _negative_hessian(space, x, kinks=False)
        if not (np.abs(hessian) < _STEEPEST).all():
            raise SamplingError(f"The posterior has no mode: {_REMEDY}")
        return hessian

    negative = negative_of(space)
    if np.linalg.norm(negative(x)[1]) < _FLAT:
        x = x + _off_saddle(curvature(x))
    most_steps = max(n_gradients // (4 * space.n_dims), 5)
    return np.asarray(_by_curvature(negative, x, curvature, most_steps).x)


def _by_curvature(
    negative: Guarded, x: np.ndarray, hess: Callable[[np.ndarray], np.ndarray], most_steps: int
) -> OptimizeResult:
    """Take steps in regions that are trusted.

    Raises
    ------
    SamplingError
        If gradients or curvature are not finite.
    """
    options = {"maxiter": most_steps, "gtol": _FLAT}
    try:
        return minimize(negative, x, jac=True, hess=hess, method="trust-exact", options=options)
    except (ValueError, LinAlgError) as error:  # SciPy decomposes what is not finite
        raise SamplingError(f"The posterior has no mode ({error}): {_REMEDY}") from error


def _off_saddle(hessian: np.ndarray) -> np.ndarray:
    """Return a small step along the direction in which a density rises most on either side."""
    values, vectors = eigh(hessian)
    step: np.ndarray = 1e-2 * _scales(np.abs(values))[0] * vectors[:, 0]
    return step


def _settled(space: Unconstrained, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode near a point, and the Cholesky factor of the negative Hessian there."""
    factor = _cholesky(space, x)
    mode = _polish(space, x, factor)
    if np.abs(factor.T @ (mode - x)).max() > _MOVED:
        factor = _cholesky(space, mode)
    return mode, factor


def _polish(space: Unconstrained, x: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Newton steps with a fixed Hessian: L-BFGS stops where the function no longer changes."""
    negative = negative_of(space)
    value, slope = negative(x)
    for _ in range(_POLISHING_STEPS):
        step = cho_solve((factor, True), slope)
        if np.isfinite(value) and slope @ step < _NEGLIGIBLE:
            return x
        tried = negative(x - step)
        if not tried[0] <= value + _NEGLIGIBLE:
            break
        x, (value, slope) = x - step, tried
    if not (np.isfinite(value) and slope @ cho_solve((factor, True), slope) <= _MOVED):
        raise SamplingError(f"The search for the posterior's mode did not converge: {_REMEDY}")
    return x


def _cholesky(space: Unconstrained, x: np.ndarray) -> np.ndarray:
    hessian = _negative_hessian(space, x, kinks=True)
    if np.isfinite(hessian).all():
        try:
            return np.asarray(cholesky(hessian, lower=True))
        except LinAlgError:
            pass
    raise SamplingError(
        "The posterior has no proper mode (its curvature is not negative definite where the "
        f"search ended), as for hierarchical models: {_REMEDY}"
    )


def _negative_hessian(space: Unconstrained, x: np.ndarray, *, kinks: bool) -> np.ndarray:
    """Central differences of the gradient, with steps of a small part of each scale (O(D) each).

    With `kinks` the steps are whole scales where the gradient jumps.  Nothing of that where the
    space knows its curvature.
    """
    if space.curvature is not None:
        return space.curvature(x)
    diagonal = _local_curvature(space, x)
    steps = 1e-2 * _scales(diagonal)
    if kinks:
        steps = _steps_beyond_kinks(space, x, diagonal, steps)
    hessian = _differences(space, x, steps, np.arange(space.n_dims))
    symmetric: np.ndarray = hessian / 2 + hessian.T / 2  # whose sum may be infinite
    return symmetric


def _local_curvature(space: Unconstrained, x: np.ndarray) -> np.ndarray:
    """Return roughly the diagonal of the negative Hessian, from steps well within a scale."""
    rough = np.full(space.n_dims, _ROUGH_STEP)
    diagonal = _differences(space, x, rough, np.arange(space.n_dims)).diagonal().copy()
    for _ in range(_MOST_SHRINKINGS):
        # A step of a scale or more says nothing of the curvature, and may overflow.
        coarse = np.flatnonzero(~(np.abs(diagonal) * rough**2 <= 1.0))
        if not coarse.size:
            break
        rough[coarse] /= 100
        diagonal[coarse] = _differences(space, x, rough, coarse)[:, coarse].diagonal()
    return diagonal


def _scales(diagonal: np.ndarray) -> np.ndarray:
    """Return a standard deviation for each curvature; one where that is not positive."""
    return np.where(diagonal > 0, 1 / np.sqrt(np.maximum(diagonal, 1e-12)), 1.0)


def _steps_beyond_kinks(
    space: Unconstrained, x: np.ndarray, diagonal: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Lengthen the steps to a scale where the curvature a scale away is but a part of the local.

    Where the gradient jumps, its difference over a small step is that of one row.
    """
    every = np.arange(space.n_dims)
    for _ in range(_MOST_KINKS):
        beyond = _differences(space, x, _scales(diagonal), every).diagonal()
        kinked = (diagonal > 0) & (beyond > 0) & (beyond < _KINK * diagonal)
        if not kinked.any():
            break
        diagonal = np.where(kinked, beyond, diagonal)
        steps = np.where(kinked, _scales(diagonal), steps)
    return steps


def _differences(
    space: Unconstrained, x: np.ndarray, steps: np.ndarray, which: np.ndarray
) -> np.ndarray:
    """Return differences of the gradient along some coordinates, (n_coordinates, D)."""
    found = []
    for some in np.array_split(which, -(-len(which) * len(x) // _ENTRIES_AT_ONCE)):
        shifts = np.zeros((len(some), len(x)))
        shifts[np.arange(len(some)), some] = steps[some]
        above, below = np.split(space.gradients(np.concatenate([x + shifts, x - shifts])), 2)
        with np.errstate(invalid="ignore", over="ignore"):
            found.append((below - above) / (2 * steps[some, None]))
    return np.concatenate(found)
