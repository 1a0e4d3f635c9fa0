"""Each model of the zoo is read and compiled once; its tests share what comes of it."""

from functools import cached_property, lru_cache

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.model.transform.basic import prune_vars_detached_from_observed

from pymc_coresets.reading.observations import Observations, find_observations
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.functions import Functions
from pymc_coresets.rows.values import Rows
from tests.models import (
    zoo_cells,
    zoo_families,
    zoo_industry,
    zoo_likelihoods,
    zoo_series,
    zoo_structures,
)
from tests.models.reference import Reference
from tests.models.zoo import CASES, Case

# Where there is no BLAS for C code (which we do not use), looking for one warns.
pytensor.config.blas__ldflags = ""

assert all(
    module.__name__
    for module in (
        zoo_cells,
        zoo_families,
        zoo_industry,
        zoo_likelihoods,
        zoo_series,
        zoo_structures,
    )
)


#: Close to others that are not slow; `make test-all` has all of them.
SLOW = {
    "another observed variable with the same dim left in the model",
    "as many categories as rows",
    "as many groups as rows, shuffled",
    "as many outputs as rows",
    "asymmetric laplace",
    "autoregression of several series by time",
    "autoregression written as a loop",
    "beta",
    "binomial",
    "categorical of each group",
    "categories of one distribution",
    "cauchy",
    "cell means by two index arrays",
    "cells, a random walk along the trials",
    "cells, all alike",
    "cells, categories with probabilities for each dog",
    "cells, groups of dogs and phases of trials",
    "cells, local",
    "cells, matrix factorisation with a scale for each trial",
    "cells, several outputs",
    "cells, some missing",
    "cells, with a covariate of both, counted in the data",
    "cells, with covariates in matrices",
    "cells, with covariates of the dog and of the trial",
    "cells, with several entries",
    "censored normal on both sides",
    "censored weibull",
    "censoring by a mask, the censored rows",
    "censoring by a mask, the seen rows",
    "censoring by a potential with masks",
    "change point in a covariate",
    "change point in time, a continuous one",
    "choices, in long form, of sets of four alternatives",
    "choices, some of the alternatives on offer, with tastes of each person",
    "column flattened",
    "column vectors",
    "columns stacked",
    "complementary log-log",
    "container of mutable shape",
    "crossed groups (item response)",
    "custom distribution with a sum over the columns, transposed",
    "customers, Pareto/NBD",
    "customers, gamma-gamma",
    "customers, shifted beta-geometric",
    "dims model with several outputs",
    "dirichlet rows",
    "dirichlet-multinomial rows",
    "discrete free index",
    "distance to a free centre",
    "elements set by a mask",
    "ex-gaussian",
    "exponential",
    "finite convolution of several columns",
    "gamma",
    "gamma by mean",
    "geometric",
    "gumbel",
    "half-normal",
    "half-student",
    "halves joined",
    "hurdle gamma",
    "hurdle poisson",
    "initial values of the user",
    "integer labels",
    "inverse gamma",
    "known noise of each row",
    "kumaraswamy",
    "lag sliced out of a container",
    "lag sliced out of the predictor",
    "laplace",
    "likelihood and an additional potential per row",
    "local variables without dims",
    "logistic by p",
    "logistic distribution",
    "lognormal",
    "matrix factorisation",
    "missing values imputed, with dims",
    "mixture of two regressions",
    "mixture of two regressions, batched",
    "mixture with common predictor",
    "mixture with outliers as a potential",
    "mixture with weights of each row",
    "multinomial rows",
    "names that mean something elsewhere",
    "nested groups",
    "neural network",
    "normal vectors with a mean of each row",
    "observation axis is the last one",
    "one-hot design",
    "ordered categories of one distribution",
    "ordered probit",
    "pareto",
    "periodic terms",
    "poisson with offset",
    "polynomial and interactions inside the model",
    "potential of lags in a container",
    "potential with products of vectors and several sums",
    "predictor centred",
    "probit",
    "quadratic form of each row",
    "quantile regression",
    "radial basis with a free length scale",
    "random walk of vectors",
    "random walk with a drift of each step",
    "regression of bambi",
    "reversed twice",
    "rice",
    "rows repeated",
    "saturation and decay",
    "skew normal",
    "softmax with a reference category",
    "spline basis",
    "student vectors",
    "survival, piecewise exponential as a potential",
    "survival, piecewise exponential by counts of deaths",
    "survival, piecewise exponential by persons and intervals",
    "survival, two observed parts of one predictor",
    "tests, graded response by cutpoints of each item",
    "time series in each row",
    "transposed design",
    "trend summed up",
    "triangular",
    "truncated poisson",
    "two observed variables, vector and scalar",
    "two predictors in the scale",
    "varying intercepts, centred",
    "varying slopes of all covariates",
    "varying slopes with LKJ covariance",
    "von mises",
    "wald",
    "weibull",
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
        """With compiled loops, as for many rows."""
        functions = Functions(self.observations, few_rows=False, few_slopes=False)
        return LogLikelihood(self.observations, functions=functions)

    @cached_property
    def by_numpy(self) -> LogLikelihood:
        return LogLikelihood(self.observations)

    @cached_property
    def sampled(self) -> pm.Model:
        """The model without missing outcomes, which no row depends on."""
        return _without_missing(self.model)

    @cached_property
    def reference(self) -> Reference:
        twin = None if self.case.twin is None else _without_missing(self.case.twin_model())
        model = self.sampled if twin is None else twin
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
        return self.small(self.rows, self.weights)

    def small(self, rows: Rows, weights: np.ndarray) -> pm.Model:
        """Return the model of a coreset of these rows."""
        return coreset_model(self.observations, rows, weights)


def _without_missing(model: pm.Model) -> pm.Model:
    names = [rv.name for rv in model.free_RVs if rv.name.endswith("_unobserved")]
    return prune_vars_detached_from_observed(model) if names else model


PARAMETERS = [
    pytest.param(case, id=case.name, marks=[pytest.mark.slow] * (case.name in SLOW))
    for case in CASES.values()
]


@lru_cache(12)  # tests of some models come between those of all
def specimen_of(name: str) -> Specimen:
    return Specimen(CASES[name])


@pytest.fixture(scope="session", params=PARAMETERS)
def specimen(request: pytest.FixtureRequest) -> Specimen:
    return specimen_of(request.param.name)
