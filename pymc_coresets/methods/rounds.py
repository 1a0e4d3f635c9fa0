"""What the rounds of a construction hand on: a coreset, what its draws saw, and what follows."""

import math
from dataclasses import dataclass

from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.rows.source import Look
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Vector

__all__ = ["Accept", "Damp", "Round", "View", "sound_part"]

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
        ``Var(log r)`` in nats over draws of its own posterior, which chose nothing.

    Examples
    --------
    >>> import numpy as np
    >>> Round(rows=Rows(np.arange(2), np.ones(2)), weights=np.ones(2)).objective
    inf
    """

    rows: Rows
    weights: Vector
    objective: float = math.inf


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


@dataclass(frozen=True)
class Accept[D]:
    """The last step is kept: the next round starts from its draws, and aims at all rows.

    Parameters
    ----------
    view : View
        Where the step led.
    """

    view: View[D]


@dataclass(frozen=True)
class Damp:
    """The last step was too long: the next one starts where it did, and goes part of the way.

    Parameters
    ----------
    share : float
        Of the way to the sum over all rows, below 1.

    Examples
    --------
    >>> Damp(0.5).share
    0.5
    """

    share: float


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
