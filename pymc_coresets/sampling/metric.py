"""NUTS for a posterior that is known to be close to normal: its metric, and where chains begin."""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import pymc as pm

from pymc_coresets.diagnostics.importance import KHAT_RELIABLE, pareto_smooth
from pymc_coresets.diagnostics.proposed import Proposal
from pymc_coresets.options import generator
from pymc_coresets.reading.draws import Draws

__all__ = ["Diagonal", "known_metric"]

_TUNE = 300  # the step size alone
_TARGET_ACCEPT = 0.9  # with longer steps, trajectories diverge where the tails are not normal
_OWN = frozenset(signature(pm.sample).parameters)
_OTHER_STARTS = {"step", "init", "initvals", "nuts", "nuts_sampler_kwargs", "n_init"}


@dataclass(frozen=True, eq=False)
class Diagonal:
    """How far a posterior of many dimensions extends along each: a covariance without the rest.

    Parameters
    ----------
    covariance : ndarray of shape (n_dims,)
        Variances on the unconstrained scale.
    """

    covariance: np.ndarray


def known_metric(
    model: pm.Model, known: Proposal[Draws], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options of `pm.sample` for a posterior near a known distribution.

    NUTS adapts a diagonal metric by default, over a thousand steps.  In the coordinates of the
    posterior's own covariance its trajectories are short, however correlated the variables are, and
    only the step size is left to tune.

    Parameters
    ----------
    model : pm.Model
        All its free variables are continuous.
    known : Proposal
        Near the posterior, in the model's unconstrained space: its covariance, or the variances
        alone, give the metric, and some of its draws the starting points of the chains, of which
        each mode has some as far as there are enough of them.
    options : mapping of str
        What `pm.sample` would be passed, with ``chains`` and ``compile_kwargs``.  It comes back
        unchanged where it says itself how NUTS is to begin, or the importance weights of the
        proposal are not reliable.

    Returns
    -------
    dict of str

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", sigma=3.0)
    >>> from pymc_coresets.sampling.proposal import HeavyTailed
    >>> around = HeavyTailed(np.zeros(1), np.eye(1) / 3)
    >>> draws = Draws({"mu": np.linspace(-4.0, 4.0, 50)})
    >>> known = Proposal(draws=draws, log_ratios=np.zeros(50), around=around)
    >>> found = known_metric(model, known, {"chains": 2, "compile_kwargs": {}})
    >>> found["step"].potential.velocity(np.ones(1)), len(found["initvals"])
    (array([9.]), 2)
    """
    khat = pareto_smooth(known.log_ratios[None]).pareto_khat
    if _OTHER_STARTS & options.keys() or khat >= KHAT_RELIABLE:
        return dict(options)
    rng, around = generator(options.get("random_seed")), known.around
    # What is no parameter of its own, `pm.sample` hands on to the step method.
    of_nuts = options.keys() - _OWN
    step = pm.NUTS(
        scaling=around.covariance,
        is_cov=True,
        model=model,
        compile_kwargs=options["compile_kwargs"],
        rng=rng.spawn(1)[0],
        **{"target_accept": _TARGET_ACCEPT} | {name: options[name] for name in of_nuts},
    )
    n_chains = options["chains"]
    chosen = known.draws.take(_beginnings(known, n_chains, rng))
    return {"tune": _TUNE} | {
        **{name: value for name, value in options.items() if name not in of_nuts},
        "step": step,
        "initvals": [
            {name: values[chain] for name, values in chosen.values.items()}
            for chain in range(n_chains)
        ],
    }


def _beginnings(known: Proposal[Draws], n_chains: int, rng: np.random.Generator) -> np.ndarray:
    """Choose draws at which chains begin: next to one mode after another."""
    n_draws = known.draws.n_draws
    if known.modes is None or len(known.modes) == 1:
        return rng.choice(n_draws, n_chains, replace=n_chains > n_draws)
    nearest = known.modes.nearest(known.draws.values)
    which = [np.flatnonzero(nearest == mode) for mode in range(len(known.modes))]
    which = [draws for draws in which if len(draws)]
    return np.array([rng.choice(which[chain % len(which)]) for chain in range(n_chains)])
