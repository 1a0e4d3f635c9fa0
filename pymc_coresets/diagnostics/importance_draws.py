"""Draws of a known distribution near the full posterior, and their importance ratios."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_coresets.diagnostics.importance import Floats
from pymc_coresets.diagnostics.known_modes import Modes


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal[D]:
    """Draws of a known distribution near the full posterior.

    Parameters
    ----------
    draws : object
        Draws of it.
    log_ratios : ndarray of shape (n_draws,)
        Log of the prior over its own density there, in nats, up to a constant.  Together with the
        log-likelihood of all rows they are the importance ratios of the full posterior.
    around : object, optional
        That distribution.
    modes : Modes, optional
        Around which it is, where others were looked for.

    Examples
    --------
    >>> import numpy as np
    >>> len(Proposal(draws=np.arange(3.0), log_ratios=np.zeros(3)).log_ratios)
    3
    """

    draws: D
    log_ratios: Floats
    around: Any = None
    modes: Modes | None = None

    def weighed(self, loglik: Floats) -> "Proposal[D] | None":
        """Add the log-likelihood of all rows at the draws; None where it is not finite."""
        log_ratios = self.log_ratios + loglik
        return replace(self, log_ratios=log_ratios) if np.isfinite(log_ratios).all() else None


@dataclass(frozen=True, eq=False)
class LevelDraws[D]:
    """Draws from around the full posterior of a model with groups, random in known parts.

    Parameters
    ----------
    draws : object
    shared : ndarray of shape (n_draws, p)
        Shared variables, whitened.
    noise : ndarray of shape (n_draws, G, q)
        What is random in each level's variables given the shared ones, standardised.
    """

    draws: D
    shared: Floats
    noise: Floats


@dataclass(frozen=True, eq=False)
class LevelRatios[D]:
    """How much a coreset of a model with groups lacks at draws of its own posterior.

    Parameters
    ----------
    proposal : Proposal
        The draws, and the log-ratios of the full posterior over the coreset's.
    shared : ndarray of shape (n_draws, p)
        Shared variables, whitened.
    """

    proposal: Proposal[D]
    shared: Floats
