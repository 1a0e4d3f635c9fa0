"""Sensitivity coresets of logistic regressions as PyMC users write them."""

import numpy as np
import pymc as pm
import pytest
from scipy import sparse

from pymc_coresets import (
    Coreset,
    InvalidOptionError,
    Sensitivity,
    UnsupportedModelError,
    build_coreset,
)
from tests.derived import signed_rows_of
from tests.refusals import refused

N = 3_000
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 2))
SHIFT = 0.3 * RNG.normal(size=N)
GROUPS = RNG.integers(30, size=N)
Y = (RNG.random(N) < 1 / (1 + np.exp(-(X @ [1.0, -0.5] + SHIFT - 1)))).astype(int)
DESIGN = np.column_stack([np.ones(N), X])


def predictor():
    return pm.Normal("a") + X @ pm.Normal("beta", shape=2)


def logit_p():
    pm.Bernoulli("y", logit_p=predictor(), observed=Y)


def p():
    pm.Bernoulli("y", p=pm.math.invlogit(predictor()), observed=Y)


def binomial():
    pm.Binomial("y", n=1, logit_p=predictor(), observed=Y)


def signs():
    """Labels -1 and 1, in a distribution of the user's own."""
    pm.CustomDist(
        "y",
        predictor(),
        logp=lambda value, eta: -pm.math.log1pexp(-value * eta),
        observed=2.0 * Y - 1,
    )


def with_offset():
    pm.Bernoulli("y", logit_p=predictor() + SHIFT, observed=Y)


SIGNS = 2 * Y - 1


def rows_of(write):
    """The names of the coefficients, and the signed rows."""
    with pm.Model() as model:
        write()
    return signed_rows_of(model)


@pytest.mark.parametrize("write", [logit_p, p, binomial, signs, with_offset])
def test_labels_and_design_are_those_of_the_model(write):
    names, rows = rows_of(write)
    # Terms of a sum may come in any order.
    assert rows.vectors[:, np.argsort(names)] == pytest.approx(SIGNS[:, None] * DESIGN)
    assert rows.vectors[:, -1] == pytest.approx(
        SIGNS * SHIFT if write is with_offset else np.zeros(N)
    )
    assert (rows.weights == 1).all()


def test_groups_give_a_sparse_design():
    def write():
        effects = pm.Normal("effects", shape=30)
        pm.Bernoulli("y", logit_p=effects[GROUPS], observed=Y)

    _, rows = rows_of(write)
    assert sparse.issparse(rows.vectors)
    assert (rows.vectors[:, :-1].toarray() == SIGNS[:, None] * np.eye(30)[GROUPS]).all()


def test_bambi_models_work():
    bambi, pandas = pytest.importorskip("bambi"), pytest.importorskip("pandas")
    data = pandas.DataFrame({"y": Y, "x": X[:, 0]})
    built = bambi.Model("y ~ x", data, family="bernoulli")
    built.build()
    found = build_coreset(
        built.backend.model, method="sensitivity", size=100, random_seed=1, progressbar=False
    )
    assert found.size <= 100
    assert found.weights.sum() == pytest.approx(N, rel=0.5)


def other_link():
    pm.Bernoulli("y", p=pm.math.invprobit(predictor()), observed=Y)


def several_trials():
    pm.Binomial("y", n=2, logit_p=predictor(), observed=Y)


def more_priors():
    pm.Bernoulli("y", logit_p=predictor(), observed=Y)
    pm.Potential("more", 0.5 * pm.Normal("tau"))  # free of the rows: part of the prior


@pytest.mark.parametrize("write", [other_link, several_trials])
def test_other_likelihoods_are_refused(write):
    with refused(UnsupportedModelError, "method='sensitivity'", "logistic", topic="regressions"):
        rows_of(write)


def test_potentials_of_the_parameters_belong_to_the_prior():
    names, rows = rows_of(more_priors)
    assert rows.vectors[:, names.index("a")].tolist() == SIGNS.tolist()


@pytest.fixture(scope="module")
def model():
    with pm.Model() as made:
        with_offset()
    return made


@pytest.fixture(scope="module")
def coreset(model):
    return build_coreset(model, method="sensitivity", size=300, random_seed=1, progressbar=False)


def test_coreset_says_what_the_guarantee_rests_on(coreset):
    figures = coreset.history.attrs
    assert coreset.size <= 300
    assert (coreset.method, coreset.weighting) == ("sensitivity", "none")
    assert figures["mean sensitivity"] > 1
    assert figures["radius"] > 0
    assert figures["center"] == 0
    assert figures["mean sensitivity"] <= figures["largest sensitivity"]
    assert "epsilon" not in figures


def test_loglikelihood_is_close(coreset, model):
    """Five standard errors, at one point."""
    point = np.array([-1.0, 1.0, -0.5])
    loss = np.logaddexp(0, -(2 * Y - 1) * (DESIGN @ point + SHIFT))
    found = coreset.weights @ loss[coreset.indices]
    spread = coreset.history.attrs["mean sensitivity"] - 1  # bounds the relative variance a draw
    assert abs(found / loss.sum() - 1) < 5 * np.sqrt(spread / 300)


def test_figures_survive_storage(coreset, model, tmp_path):
    pytest.importorskip("h5netcdf")
    coreset.to_netcdf(tmp_path / "coreset.nc")
    read = Coreset.from_netcdf(tmp_path / "coreset.nc", model)
    for name, value in coreset.history.attrs.items():
        assert read.history.attrs[name] == pytest.approx(value)


def test_size_follows_from_epsilon(model):
    method = Sensitivity(epsilon=0.3, delta=0.2, radius=0.5)
    found = build_coreset(model, method=method, random_seed=1, progressbar=False)
    figures = found.history.attrs
    mean = figures["mean sensitivity"]
    size = np.ceil(2 * mean / 0.3**2 * (4 * np.log(mean) + np.log(5)))
    assert (figures["n_draws"], figures["epsilon"], figures["delta"]) == (size, 0.3, 0.2)
    assert found.size <= size


def test_center_comes_back_with_the_ball(model):
    method = Sensitivity(radius=0.5, center=[-1.0, 1.0, -0.5])
    found = build_coreset(model, size=50, method=method, random_seed=1, progressbar=False)
    assert found.history.attrs["center"].tolist() == [-1.0, 1.0, -0.5]


def test_merged_rows_count_as_often_as_they_occur():
    """Four kinds of rows, of which each has the sensitivity of its copies."""
    x, y = np.repeat([0.0, 1.0, 0.0, 1.0], 250), np.repeat([0, 1], 500)
    with pm.Model() as four:
        pm.Bernoulli("y", logit_p=pm.Normal("a") + pm.Normal("b") * x, observed=y)
    method = Sensitivity(n_clusters=2, radius=1.0, exact_centers=True)
    both = [
        build_coreset(
            four, method=method, size=4, collapse=collapse, random_seed=1, progressbar=False
        ).history.attrs["mean sensitivity"]
        for collapse in (False, True)
    ]
    assert both[1] == pytest.approx(both[0], rel=0.5)
    assert both[1] <= both[0]  # the bound leaves out all copies of a row, not only one


def test_size_and_epsilon_exclude_each_other(model):
    with refused(InvalidOptionError, "size=10", "method='sensitivity'", "epsilon"):
        build_coreset(model, size=10, method=Sensitivity(epsilon=0.3), progressbar=False)


def test_more_draws_than_rows_are_refused(model):
    with refused(InvalidOptionError, "3,000 rows", "epsilon"):
        build_coreset(model, method=Sensitivity(epsilon=0.01), random_seed=1, progressbar=False)


def test_wrong_centers_are_refused_with_the_names(model):
    with refused(InvalidOptionError, "3 coefficients", "'beta[0]'"):
        build_coreset(model, method=Sensitivity(center=[1.0]), random_seed=1, progressbar=False)


def test_tolerance_is_refused(model):
    with refused(InvalidOptionError, "tolerance=0.1", "method='sensitivity'", "divergence"):
        build_coreset(model, method="sensitivity", tolerance=0.1, progressbar=False)
