"""Coresets of rows that depend on many numbers, and of units with many shared variables."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import expit, softmax

from pymc_coresets import Coreset, build_coreset

N, K, P = 4_000, 7, 5


@pytest.fixture(scope="module")
def classes():
    """Softmax regression: 30 dimensions, all of which every row sees."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, P))
    chances = softmax(x @ np.c_[np.zeros(P), rng.normal(0, 0.5, (P, K - 1))], axis=1)
    y = (chances.cumsum(axis=1) < rng.random((N, 1))).sum(axis=1)
    with pm.Model() as model:
        eta = x @ pm.Normal("w", shape=(P, K - 1))
        logit_p = pt.concatenate([pt.zeros((N, 1)), eta], axis=1)
        pm.Categorical("y", logit_p=logit_p, observed=y)
    return model


@pytest.fixture(scope="module")
def persons():
    """Item response with abilities integrated out: 26 shared variables, 1 200 persons."""
    rng, n, items = np.random.default_rng(2), 1_200, 13
    slopes, levels = np.exp(rng.normal(0, 0.3, items)), rng.normal(size=items)
    y = rng.binomial(1, expit(slopes * rng.normal(size=(n, 1)) - levels))
    person, item = np.divmod(np.arange(n * items), items)
    with pm.Model() as model:
        a, b = pm.LogNormal("a", 0, 0.5, shape=items), pm.Normal("b", 0, 1.5, shape=items)
        ability = pm.Normal("ability", shape=n)
        logit_p = a[item] * ability[person] - b[item]
        pm.Bernoulli("y", logit_p=logit_p, observed=y.ravel())
    return model


@pytest.fixture(scope="module", params=["classes", "persons"])
def coreset(request):
    model = request.getfixturevalue(request.param)
    return build_coreset(model, random_seed=1, progressbar=False)


def test_it_is_reliable_with_a_part_of_the_rows(coreset):
    assert coreset.method == "control_variates"
    idata = coreset.sample(random_seed=1, cores=1, progressbar=False)
    check = coreset.check(idata)
    assert check.reliable
    assert check.symmetrised_kl < 0.01
    assert coreset.size < 0.75 * coreset.n_distinct
    # PyMC's own densities of all rows say the same.
    opinion = coreset.verify(idata, draws=10)
    assert opinion.difference < 0.05
    assert opinion.by_pymc < 0.03  # at ten draws


def test_a_file_has_its_quadratic(coreset, tmp_path, request):
    coreset.to_netcdf(tmp_path / "coreset.nc")
    name = request.node.callspec.params["coreset"]
    model = request.getfixturevalue(name)
    again = Coreset.from_netcdf(tmp_path / "coreset.nc", model)
    x = coreset.model.initial_point()
    logp, other = (c.model.compile_logp()(x) for c in (coreset, again))
    assert float(logp) == pytest.approx(float(other), rel=1e-12)
