"""Each model of the zoo with its rows elsewhere: PyMC's log-likelihoods, or a refusal by name."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_coresets import CoresetError, open_rows
from tests.builds import read
from tests.models import zoo
from tests.models.containers import in_containers
from tests.models.reference import Reference
from tests.models.zoo import CASES, N

N_ROWS, CHUNK = 211, 37
QUICK = {
    "linear",
    "poisson with offset",
    "softmax",
    "varying intercepts, not centred, in data containers",
    "nested groups by two indices",
    "trend summed up",
    "predictor centred",
}
#: Rows that are taken together, reordered, or not in a column of their own.
REFUSED = {
    "another observed variable with the same dim left in the model",
    "as many categories as rows",
    "as many coefficients as rows",
    "as many groups as rows, shuffled",
    "as many outputs as rows",
    "censored weibull",
    "censoring by a mask, the censored rows",
    "censoring by a mask, the seen rows",
    "choices, in long form, of sets of four alternatives",
    "choices, in long form, of sets of two to four alternatives",
    "dims model with several outputs",
    "elements set by a mask",
    "finite convolution of several columns",
    "finite convolution, its end left out",
    "groups and covariates in a sparse design",
    "halves joined",
    "lag of numpy",
    "lag sliced out of a container",
    "lag sliced out of the predictor",
    "loop over data alone",
    "marketing mix, adstock and saturation",
    "masked predictor",
    "missing values imputed",
    "missing values imputed, with dims",
    "observation axis is the last one",
    "polynomial and interactions inside the model",
    "predictor centred",
    "reversed twice",
    "rows repeated",
    "survival, piecewise exponential by counts of deaths",
    "survival, two observed parts of one predictor",
    "transposed design",
    "trend summed up",
}
#: Operations that keep the number of rows of the constants that they were built on: `ON_DATA` has
#: models like them that were built on containers.
KEPT_LENGTHS = {
    "asymmetric laplace",
    "censored normal on both sides",
    "custom graph",
    "dims model",
    "ex-gaussian",
    "half-student",
    "hurdle gamma",
    "hurdle poisson",
    "kumaraswamy",
    "logit-normal",
    "mixture of two regressions",
    "mixture of two regressions, batched",
    "mixture with common predictor",
    "mixture with weights of each row",
    "normal mixture",
    "quadratic form of each row",
    "quantile regression",
    "time series in each row",
    "truncated poisson",
    "weibull",
    "zero-inflated binomial",
    "zero-inflated negative binomial",
    "zero-inflated poisson",
}


def rows_in_chunks(model, which):
    """Open other rows of the model's containers, in chunks of 37."""
    columns = {v.name: np.asarray(v.get_value())[which] for v in model.data_vars
               if len(v.get_value()) == N}  # fmt: skip
    cuts = range(0, len(which), CHUNK)
    return open_rows(lambda: ({n: c[i : i + CHUNK] for n, c in columns.items()} for i in cuts))


CHOSEN = [
    pytest.param(case, id=case.name, marks=[] if case.name in QUICK else [pytest.mark.slow])
    for case in CASES.values()
    if not isinstance(case.options.get("dim"), tuple)
    and "allow_local" not in case.options
    and case.name not in KEPT_LENGTHS
    and case.twin is None
]


@pytest.mark.parametrize("case", CHOSEN)
def test_potentials_of_rows_elsewhere_are_those_of_pymc_or_refused(case):
    whole = case.model()
    which = np.random.default_rng(5).integers(N, size=N_ROWS)
    if case.name in REFUSED:
        with pytest.raises(CoresetError):
            elsewhere(whole, case, which)
        return
    loglik = elsewhere(whole, case, which)
    assert loglik.n_rows == N_ROWS
    reference = Reference(case, whole, [t.name for t in loglik.observations.terms])
    expected, draws = reference.loglik[which], reference.draws
    blocks = loglik.source.blocks(23)
    found = np.concatenate([loglik.matrix(draws, block, finite=False) for block in blocks])
    assert_allclose(found, expected, rtol=1e-8, atol=1e-9)
    centred = expected - expected.mean(axis=1, keepdims=True)
    total = loglik.sums(draws).total
    assert_allclose(total, centred.sum(axis=0), rtol=1e-8, atol=1e-11 * np.abs(expected).sum())


def elsewhere(whole, case, which):
    model = in_containers(whole)
    return read(model, rows=rows_in_chunks(model, which), **case.options)


def scale(**kwargs):
    return pm.HalfNormal("s", **kwargs)


def _mixture(e, d):
    parts = [pm.Normal.dist(e, scale()), pm.StudentT.dist(nu=4, mu=e, sigma=3.0)]
    pm.Mixture("y", pm.Dirichlet("w", np.ones(2)), parts, observed=d["real"])


def _shares(e, d):
    w = pm.math.softmax(pt.stack([e, -e], axis=-1), axis=-1)
    pm.Mixture("y", w, pm.Poisson.dist(pm.LogNormal("rate", shape=2)), observed=d["count"])


#: Linear predictor and containers to a likelihood.
ON_DATA = {
    "asymmetric laplace": lambda e, d: pm.AsymmetricLaplace(
        "y", b=scale(), kappa=0.7, mu=e, observed=d["real"]
    ),
    "censored": lambda e, d: pm.Censored(
        "y", pm.Normal.dist(e, scale()), lower=-1, upper=1, observed=d["real"].clip(-1, 1)
    ),
    "truncated": lambda e, d: pm.Truncated(
        "y", pm.Poisson.dist(pm.math.exp(e)), lower=1, observed=d["count"] + 1
    ),
    "custom graph": lambda e, d: pm.CustomDist(
        "y", e, scale(), dist=lambda m, s, size: pm.math.exp(pm.Normal.dist(m, s, size=size)),
        observed=d["positive"],
    ),
    "ex-gaussian": lambda e, d: pm.ExGaussian("y", e, scale(), nu=1.5, observed=d["real"]),
    "half-student": lambda e, d: pm.HalfStudentT("y", 4.0, pm.math.exp(e), observed=d["positive"]),
    "hurdle": lambda e, d: pm.HurdlePoisson("y", 0.4, pm.math.exp(e), observed=d["count"]),
    "kumaraswamy": lambda e, d: pm.Kumaraswamy("y", pm.math.exp(e), scale(), observed=d["unit"]),
    "logit-normal": lambda e, d: pm.LogitNormal("y", e, scale(), observed=d["unit"]),
    "weibull": lambda e, d: pm.Weibull("y", scale(), pm.math.exp(e), observed=d["positive"]),
    "zero-inflated": lambda e, d: pm.ZeroInflatedNegativeBinomial(
        "y", 0.6, pm.math.exp(e), scale(), observed=d["count"]
    ),
    "mixture": _mixture,
    "mixture with weights of each row": _shares,
    "quadratic form": lambda e, d: pm.Normal(
        "y", e + pt.einsum("ni,ij,nj->n", d["x"], pm.Normal("a", shape=(3, 3)), d["x"]), 1.0,
        observed=d["real"],
    ),
}  # fmt: skip
SLOW_ON_DATA = {
    "censored",
    "custom graph",
    "ex-gaussian",
    "half-student",
    "hurdle",
    "kumaraswamy",
    "logit-normal",
    "mixture",
    "mixture with weights of each row",
    "truncated",
    "zero-inflated",
}
COLUMNS = {
    "x": zoo.X,
    "real": zoo.REAL,
    "count": zoo.COUNT,
    "positive": zoo.POSITIVE,
    "unit": zoo.UNIT,
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW_ON_DATA)) for n in ON_DATA],
)
def test_models_built_on_containers_have_the_potentials_of_all_rows(name):
    def model(n_rows):
        with pm.Model() as model:
            data = {n: pm.Data(n, c[:n_rows]) for n, c in COLUMNS.items()}
            ON_DATA[name](data["x"] @ pm.Normal("b", 0, 0.5, shape=3), data)
        return model

    rng, whole = np.random.default_rng(1), read(model(N))
    loglik, space = read(model(20), rows=open_rows(COLUMNS)), whole.observations.space
    draws = space.constrain(space.start + rng.normal(0, 0.3, size=(2, space.n_dims)))
    found = np.concatenate([loglik.matrix(draws, b) for b in loglik.source.blocks(11)])
    assert_allclose(found, whole.matrix(draws), rtol=1e-9, atol=1e-11)
