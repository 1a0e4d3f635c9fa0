"""Each cell of an observed matrix is a row: ``dim=("item", "person")``."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pymc_coresets as pmc
from pymc_coresets import (
    Coreset,
    InvalidOptionError,
    UnsupportedModelError,
    build_coreset,
    build_pass_glm,
)
from tests.builds import read
from tests.models.zoo_cells import BINARY, DIM, MISSING, OF_CELL, REAL
from tests.refusals import refused

N_ITEMS, N_PERSONS = 4, 60
ITEMS = ("item", "person")


def rasch_model():
    """Return a small item-response model, and the logits that its data are drawn from."""
    rng = np.random.default_rng(7)
    easiness, ability = rng.normal(size=(N_ITEMS, 1)), rng.choice([-0.5, 0.5], N_PERSONS)
    answers = rng.random((N_ITEMS, N_PERSONS)) < 1 / (1 + np.exp(-easiness - ability))
    coords = {"item": range(N_ITEMS), "person": range(N_PERSONS)}
    with pm.Model(coords=coords) as model:
        score = pm.Data("score", 2.0 * ability, dims="person")
        b, slope = pm.Normal("b", dims="item"), pm.Normal("slope")
        eta = pm.Deterministic("eta", b[:, None] + slope * score, dims=ITEMS)
        pm.Bernoulli("y", logit_p=eta, observed=answers.astype(int), dims=ITEMS)
    return model


@pytest.fixture(scope="module")
def model():
    return rasch_model()


@pytest.fixture(scope="module")
def coreset(model):
    options = {"size": 200, "method": "uniform", "random_seed": 1, "progressbar": False}
    return build_coreset(model, dim=ITEMS, **options)


def test_a_coreset_of_cells(coreset):
    assert coreset.n_observations == N_ITEMS * N_PERSONS
    small = coreset.model
    assert tuple(small.named_vars_to_dims["coreset_weights"]) == ("item_person_coreset",)
    assert "eta" not in small.named_vars_to_dims
    assert tuple(small.named_vars_to_dims["b"]) == ("item",)
    assert small.coords["item_person_coreset"] == tuple(coreset.indices)
    assert small["score"].get_value().shape == (N_PERSONS,)


def test_equal_cells_stand_for_all_of_them(model):
    """Four items, two scores and two answers are sixteen cells, whose counts are exact weights."""
    seeds = {"random_seed": 1, "progressbar": False}
    coreset = build_coreset(model, dim=ITEMS, collapse=True, method="exact", **seeds)
    assert coreset.n_distinct == 16
    rng = np.random.default_rng(2)  # wherever the draws are
    draws = {"b": rng.normal(size=(4, 100, N_ITEMS)), "slope": rng.normal(size=(4, 100))}
    idata = az.from_dict({"posterior": draws}, dims={"b": ["item"]})
    assert coreset.check(idata).symmetrised_kl == pytest.approx(0.0, abs=0.01)


def test_a_coreset_of_cells_in_a_file(coreset, model, tmp_path):
    coreset.to_netcdf(tmp_path / "cells.nc")
    same = Coreset.from_netcdf(tmp_path / "cells.nc", model)
    assert same.settings["dim"] == list(ITEMS)
    assert_array_equal(same.indices, coreset.indices)


def test_a_summary_of_cells(model):
    summary = build_pass_glm(model, dim=ITEMS, random_seed=1, progressbar=False)
    names = summary.closed_form()["coefficient"].values.tolist()
    assert sorted(names) == [*(f"b[{i}]" for i in range(N_ITEMS)), "slope"]


# -- what is refused -------------------------------------------------------------------------------


def test_variables_of_one_axis_are_local_where_rows_are_observed():
    coords = {"item": range(5), "person": range(7)}
    with pm.Model(coords=coords) as model:
        a, theta = pm.Normal("a", dims="item"), pm.Normal("theta", dims="person")
        pm.Bernoulli("y", logit_p=a[:, None] * theta, observed=BINARY, dims=ITEMS)
    with refused(
        UnsupportedModelError, "'a'", "dim=('item', 'person')", topic="local-latent-variables"
    ):
        read(model)
    assert not read(model, dim=ITEMS).observations.local


def test_variables_of_all_cells_are_local():
    with pm.Model(coords={"dog": range(5), "trial": range(7)}) as model:
        pm.Normal("y", pm.Normal("z", dims=DIM), 1.0, observed=REAL, dims=DIM)
    with refused(UnsupportedModelError, "['z']", topic="local-latent-variables") as e:
        read(model, dim=DIM)
    assert "If each cell" not in str(e.value)


@pytest.mark.parametrize("dim", [(), ("dog", "dog")])
def test_names_must_differ(dim, model):
    with refused(InvalidOptionError, "dim="):
        read(model, dim=dim)


def test_dims_that_no_variable_has(model):
    with refused(UnsupportedModelError, "dim=", "'dog'"):
        read(model, dim=("item", "dog"))
    with pm.Model(coords={"dog": range(5), "trial": range(7)}) as other:
        pm.Normal("y", pm.Normal("m"), 1.0, observed=REAL[:, 0], dims="dog")
    with refused(UnsupportedModelError, "('dog', 'trial')"):
        read(other, dim=DIM)
    with refused(UnsupportedModelError, "'y'", "['trial']"):
        read(other, dim=DIM, observed="y")


def test_multivariate_rows_are_not_split():
    with pm.Model(coords={"dog": range(5), "trial": range(7)}) as model:
        pm.MvNormal("y", pm.Normal("m", shape=7), np.eye(7), observed=REAL, dims=DIM)
    with refused(UnsupportedModelError, "'y'", "'trial'", topic="no-sum-over-rows"):
        read(model, dim=DIM)


# -- missing cells ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_missing():
    with pm.Model(coords={"dog": range(5), "trial": range(7)}) as model:
        mu = (OF_CELL @ pm.Normal("b", shape=3)) + pm.Normal("a", dims="dog")[:, None]
        with pytest.warns(pm.exceptions.ImputationWarning):
            pm.Normal("y", mu, 1.0, observed=np.ma.masked_array(REAL, MISSING), dims=DIM)
    return model


def test_cells_keep_their_positions_where_some_are_missing(with_missing):
    observations = read(with_missing, dim=DIM).observations
    assert observations.unselected == ()
    assert_array_equal(observations.positions, np.flatnonzero(~MISSING))


def test_cells_are_numbered_as_the_data_where_some_are_missing(with_missing):
    with refused(UnsupportedModelError, "dim=('dog', 'trial')", "missing"):
        read(with_missing, dim=("trial", "dog"))


# -- by default ------------------------------------------------------------------------------------


def detections(n_sites, dims=("site", "species")):
    """Return a model of 25 species, each of which has an intercept."""
    rng = np.random.default_rng(7)
    forest, own = rng.normal(size=(n_sites, 1)), rng.normal(size=25)
    seen = rng.binomial(1, 1 / (1 + np.exp(-own - 0.5 * forest)))
    with pm.Model(coords={"site": range(n_sites), "species": range(25)}) as model:
        common = pm.Normal("common", shape=25)
        logit = common + pm.Normal("slope") * forest
        pm.Bernoulli("y", logit_p=logit, observed=seen, dims=dims)
    return model


def test_cells_are_rows_where_rows_are_few_for_the_parameters():
    """Thirty sites are few for 26 parameters, and 750 cells are not."""
    model = detections(30)
    idata = pmc.sample(model, random_seed=1, progressbar=False, draws=400, chains=2)
    coreset = pmc.coreset_of(idata, model)
    assert coreset.n_observations == 750
    assert coreset.settings["dim"] == ["site", "species"]


def test_cells_that_are_few_as_well_are_refused():
    with refused(UnsupportedModelError, "9 rows", "26 free dimensions"):
        build_coreset(detections(9), progressbar=False)


def test_an_error_says_that_a_matrix_needs_dims():
    with refused(UnsupportedModelError, "30 rows", "'y'"):
        build_coreset(detections(30, None), progressbar=False)


# -- conditions ------------------------------------------------------------------------------------


def test_conditions_hold_cell_by_cell():
    """A scale that fails for one dog leaves the cells of the others as they are."""
    with pm.Model(coords={"dog": range(5), "trial": range(7)}) as model:
        sigma = pm.Normal("sigma", dims="dog")
        pm.Normal("y", 0.0, sigma[:, None], observed=REAL, dims=DIM)
    values = np.array([1.0, 2.0, -1.0, 1.0, 0.5])
    loglik = _of_cells(model, sigma=values).reshape(5, 7)
    expected = pm.logp(pm.Normal.dist(0.0, np.abs(values)[:, None]), REAL).eval()
    assert_allclose(loglik[values > 0], expected[values > 0])
    assert np.isneginf(loglik[2]).all()


def test_conditions_on_what_all_cells_share():
    """Three shares are no property of the three trials, although they are as many."""
    with pm.Model(coords={"dog": range(5), "trial": range(3)}) as model:
        shares = pm.Normal("shares", shape=3, initval=[0.2, 0.3, 0.5])
        labels = np.arange(15).reshape(5, 3) % 3
        pm.Categorical("y", p=shares, observed=labels, dims=DIM)
    assert np.isneginf(_of_cells(model, shares=np.array([1.5, 0.3, -0.8]))).all()


def _of_cells(model, **values):
    loglik = read(model, dim=DIM)
    draws = {name: value[None] for name, value in values.items()}
    return loglik.matrix(draws, finite=False)[:, 0]
