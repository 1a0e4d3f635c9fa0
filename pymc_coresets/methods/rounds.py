"""What the rounds of a construction hand on: a coreset, what its draws saw, and what follows."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.rows.passes import Look
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Vector

_SHORTEST = 2.0**-10


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """A coreset, and how far from the full posterior its own draws say that it is.

    Parameters
    ----------
    rows : Rows
        Rows of the coreset.
    weights : ndarray of float64
        Their weights.
    objective : float
        ``Var(log r)`` in nats over held-out draws of its own posterior.
    log_ratios : ndarray of shape (n_draws,), optional
        ``log r`` at these draws, where it was measured and is finite.
    draws : object, optional
        These draws, where they were measured.

    Examples
    --------
    >>> import numpy as np
    >>> Round(rows=Rows(np.arange(2), np.ones(2)), weights=np.ones(2)).objective
    inf
    """

    rows: Rows
    weights: Vector
    objective: float = math.inf
    log_ratios: Vector | None = None
    draws: Any = None


@dataclass(frozen=True, kw_only=True, eq=False)
class View[D]:
    """A coreset with draws of its posterior, and the sums of the potentials there.

    Parameters
    ----------
    coreset : Round
        What was measured.
    draws : object
        Draws of its posterior, of the posterior's own type.
    own : ndarray of shape (n_draws,)
        Weighted sum of the centred potentials of its own rows, in nats.
    look : Look
        The same sum over all rows, and candidates for the next round.
    """

    coreset: Round
    draws: D
    own: Vector
    look: Look


def decide[D](
    known: View[D], view: View[D] | None, change: Callable[[], Vector], taken: float
) -> tuple[View[D], float]:
    """Accept a step unless it came out worse because it was too long.

    Parameters
    ----------
    known : View
        Where the step began.
    view : View, optional
        Where it led; None where that defeated the sampler.
    change : callable
        Returns the change of the log-density at the draws where it began, (n_draws,), in nats.
    taken : float
        The share of the way to the sum over all rows that it aimed at.

    Returns
    -------
    view : View
        Where the next step begins: where this one led, or where it began if it was too long.
    share : float
        How much of the way to the sum over all rows the next step should go: all of it, or less
        than a step that was too long.

    Examples
    --------
    >>> import numpy as np
    >>> nowhere = Rows(np.arange(0), np.ones(0))
    >>> here = View(
    ...     coreset=Round(rows=nowhere, weights=np.ones(0), objective=1.0),
    ...     draws=None,
    ...     own=np.zeros(100),
    ...     look=Look(total=np.zeros(100), norm_total=0.0, candidates=nowhere),
    ... )
    >>> view, share = decide(here, None, lambda: 4 * np.random.default_rng(1).normal(size=100), 0.5)
    >>> view is here, share
    (True, 0.125)
    """
    if view is not None and view.coreset.objective < known.coreset.objective:
        return view, 1.0
    step = change()
    if view is not None and pareto_smooth(step[None]).sound:
        return view, 1.0
    return known, taken * sound_part(step)


def sound_part(step: Vector) -> float:
    """Return the largest part of a step that importance weights at its first draws can bridge.

    Parameters
    ----------
    step : ndarray of shape (n_draws,)
        Change of the log-density at the draws, in nats.

    Returns
    -------
    float
        1/2, 1/4, ..., 2**-10 at least.

    Examples
    --------
    >>> import numpy as np
    >>> sound_part(4.0 * np.random.default_rng(1).normal(size=1_000))
    0.25
    """
    part = 0.5
    while part > _SHORTEST and not pareto_smooth(part * step[None]).sound:
        part /= 2
    return part
