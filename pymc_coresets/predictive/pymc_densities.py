"""Another estimate of the divergence, by PyMC's own log-densities of both models."""

from collections.abc import Callable, Sequence

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_coresets.diagnostics.opinion import SecondOpinion
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.unconstrained import Unconstrained

__all__ = ["second_opinion"]

_HARMLESS = 0.005  # nats: changes a divergence at the limit of 0.01 by a tenth at most
_DIGITS = 1e-9  # of a log-density: sums of many terms have fewer than single ones

type Floats = NDArray[np.float64]
type Point = dict[str, np.ndarray]


def second_opinion(
    full: pm.Model, approximate: pm.Model, draws: Draws, log_ratios: Floats, *, slack: float = 0.0
) -> SecondOpinion:
    """Compare log-ratios with the difference of two models' log-densities, as PyMC derives them.

    The log-densities are evaluated by NumPy, without any part of what computes the log-ratios.
    Costs one evaluation of the full model for each draw, and memory for some arrays as long as the
    data.

    Parameters
    ----------
    full, approximate : pm.Model
        With the same free variables.
    draws : Draws
    log_ratios : ndarray of shape (n_draws,)
        In nats, up to a constant.
    slack : float
        By how much single log-likelihoods may be off beyond rounding, relative to their size.

    Raises
    ------
    UnsupportedModelError
        If they differ by more than 0.005 nats and rounding errors: enough to matter.

    Examples
    --------
    >>> with pm.Model() as full:
    ...     pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(4))
    y
    >>> with pm.Model() as half:
    ...     pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(2))
    y
    >>> mu = np.array([0.0, 1.0, 2.0])
    >>> second_opinion(full, half, Draws({"mu": mu}), -(mu**2)).by_pymc.__round__(6)
    2.888889
    """
    space = Unconstrained(full)
    with np.errstate(divide="ignore", over="ignore"):  # for draws that were rounded to a border
        points = [space.point(x) for x in space.free(draws)]
    of_full, of_other = (_at(points, _log_density(model)) for model in (full, approximate))
    with np.errstate(invalid="ignore"):
        theirs = of_full - of_other
    used = np.isfinite(theirs)
    if not used.any():
        return SecondOpinion(by_pymc=np.nan, by_us=np.nan, difference=np.nan, n_draws=0)
    theirs, ours = theirs[used], log_ratios[used]
    differences = (theirs - theirs.mean()) - (ours - ours.mean())
    largest = float(np.abs(differences).max())
    size = float(np.abs([of_full[used], of_other[used]]).max())
    if largest > _HARMLESS + (_DIGITS + slack) * size:
        raise UnsupportedModelError(
            f"The log-ratio of the full over the approximate posterior density differs by "
            f"{largest:.3g} nats from what PyMC's own log-densities of the two models give: the "
            "model has changed since, or the package does not understand it. Build again; if that "
            "does not help, please report it."
        )
    return SecondOpinion(
        by_pymc=float(np.var(theirs)),
        by_us=float(np.var(ours)),
        difference=largest,
        n_draws=len(theirs),
    )


def _log_density(model: pm.Model) -> Callable[[Point], float]:
    variables = model.value_vars
    function = numpy_function(variables, [model.logp()])

    def at(point: Point) -> float:
        [value] = function(*(point[v.name] for v in variables))
        return float(value)

    return at


def _at(points: Sequence[Point], density: Callable[[Point], float]) -> Floats:
    return np.array([density(point) for point in points])
