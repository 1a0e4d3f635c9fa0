"""Each model of the zoo is read and compiled once; its tests share what comes of it."""

from functools import cached_property

import numpy as np
import pymc as pm
import pytensor
import pytest

from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.observations import Observations, find_observations
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.rows.values import Rows
from tests.models import zoo_cells, zoo_families, zoo_likelihoods, zoo_series, zoo_structures
from tests.models.reference import Reference
from tests.models.zoo import CASES, Case

# Where there is no BLAS for C code (which we do not use), looking for one warns.
pytensor.config.blas__ldflags = ""

assert all(
    module.__name__
    for module in (zoo_cells, zoo_families, zoo_likelihoods, zoo_series, zoo_structures)
)


#: Long to compile, and close to others that are not.
SLOW = {
    "autoregression written as a loop",
    "ex-gaussian",
    "half-student",
    "hurdle gamma",
    "hurdle poisson",
    "mixture of two regressions, batched",
    "mixture with common predictor",
    "ordered probit",
    "quantile regression",
    "softmax with a reference category",
    "student vectors",
    "truncated poisson",
    "zero-inflated binomial",
    "zero-inflated negative binomial",
}


class Specimen:
    """A model of the zoo, what the package makes of it, and what PyMC says of it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.model = case.model()

    @cached_property
    def observations(self) -> Observations:
        return find_observations(self.model, **self.case.options)

    @cached_property
    def loglik(self) -> LogLikelihood:
        return LogLikelihood(self.observations)

    @cached_property
    def reference(self) -> Reference:
        model = self.model if self.case.twin is None else self.case.twin_model()
        return Reference(self.case, model, [t.name for t in self.observations.terms])

    @cached_property
    def indices(self) -> np.ndarray:
        rng = np.random.default_rng(2)
        return np.sort(rng.choice(self.case.n_obs, size=9, replace=False))

    @cached_property
    def weights(self) -> np.ndarray:
        return np.random.default_rng(3).uniform(0.5, 5.0, size=9)

    @cached_property
    def all_weights(self) -> np.ndarray:
        """The weights of all rows, zero where a row is not in the coreset."""
        weights = np.zeros(self.case.n_obs)
        weights[self.indices] = self.weights
        return weights

    @cached_property
    def rows(self) -> Rows:
        return self.loglik.source.take(self.indices)

    @cached_property
    def coreset(self) -> pm.Model:
        return coreset_model(self.observations, self.rows, self.weights)


PARAMETERS = [
    pytest.param(case, id=case.name, marks=[pytest.mark.slow] * (case.name in SLOW))
    for case in CASES.values()
]


@pytest.fixture(scope="session", params=PARAMETERS)
def specimen(request: pytest.FixtureRequest) -> Specimen:
    return Specimen(request.param)
