"""What the package derives from a model on the way to a coreset, for tests of single steps."""

from typing import Any

import numpy as np

from pymc_coresets.glm.predictor.finding import find_linear_predictor
from pymc_coresets.glm.predictor.predictors import Predictors, RowsInMemory
from pymc_coresets.papers.signed_rows import SignedRows, signed_by_labels
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.sampling.modes import proposal
from pymc_coresets.sampling.sampler import CoresetSampler

__all__ = [
    "draws_of",
    "likelihood_of",
    "predictor_of",
    "proposed",
    "rows_seen",
    "sampler_of",
    "signed_rows_of",
]


def likelihood_of(model: object = None, **options: Any) -> LogLikelihood:
    """Return the log-likelihoods of the rows of a model; nothing is compared with PyMC."""
    return LogLikelihood(find_observations(model, **options))


def sampler_of(model: object = None, **options: Any) -> CoresetSampler:
    """Return what draws from the posterior of weighted rows of a model."""
    return CoresetSampler(likelihood_of(model), **options)


def proposed(model: object, size: int, start_size: int, seed: int = 1) -> Any:
    """Return draws from near the posterior of all rows, with their modes; None if none is found."""
    rng = np.random.default_rng(seed)
    return proposal(sampler_of(model), size, start_size=start_size, rng=rng)


def draws_of(**values: np.ndarray) -> Draws:
    """Return draws of variables by name, (n_draws, ...)."""
    return Draws(values)


def predictor_of(model: object = None) -> Predictors:
    """Return the linear predictor of a generalised linear model."""
    return find_linear_predictor(find_observations(model))


def rows_seen(found: Predictors) -> RowsInMemory:
    """Return all rows of a model, as they depend on the predictors that were found in it."""
    n_obs = found.observations.n_obs
    return RowsInMemory(found, np.arange(n_obs), np.ones(n_obs))


def signed_rows_of(model: object) -> tuple[tuple[str, ...], SignedRows]:
    """Return the names of the coefficients of a logistic regression, and its signed rows."""
    found = predictor_of(model)
    return found.names, signed_by_labels(rows_seen(found))
