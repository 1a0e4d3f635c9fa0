"""Log-likelihoods of the zoo's models are PyMC's, and coreset models are these with a few rows.

Both are here so that each model is read and compiled once.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pymc.initial_point import make_initial_point_fn
from pymc.sampling.mcmc import assign_step_methods
from scipy.stats import norm

from pymc_coresets import InvalidOptionError
from tests.builds import of_all_rows, of_some_rows
from tests.derived import sampler_of
from tests.models.reference import density
from tests.models.zoo import CASES
from tests.modes import WRITTEN_MODE, loop_mode
from tests.refusals import refused

pytestmark = pytest.mark.compiled

N_TILES = 4096  # many draws make small blocks: there are three for these models


def case_name(case):
    return case.name


# -- log-likelihoods of any rows at any draws ------------------------------------------------------


def test_potentials_of_all_rows_in_blocks(specimen):
    draws = {name: np.tile(v, (N_TILES, *[1] * (v.ndim - 1)))
             for name, v in specimen.reference.draws.items()}  # fmt: skip
    found = specimen.loglik.matrix(draws)
    assert_allclose(found, np.tile(specimen.reference.loglik, N_TILES), rtol=1e-8, atol=1e-9)


def test_potentials_of_some_rows_in_any_order(specimen):
    which = np.random.default_rng(4).integers(specimen.case.n_obs, size=7)
    rows = specimen.loglik.source.take(which)
    for loglik in (specimen.loglik, specimen.by_numpy):
        found = loglik.matrix(specimen.reference.draws, rows)
        assert_allclose(found, specimen.reference.loglik[which], rtol=1e-8, atol=1e-9)


def test_a_look_at_all_rows(specimen):
    sums = specimen.loglik.sums(specimen.reference.draws, n_candidates=specimen.case.n_obs)
    loglik = specimen.reference.loglik
    centred = loglik - loglik.mean(axis=1, keepdims=True)
    scale = np.abs(loglik).sum()
    assert_allclose(sums.total, centred.sum(axis=0), rtol=1e-8, atol=1e-11 * scale)
    assert_allclose(sums.norm_total, loglik.std(axis=1).sum(), rtol=1e-6)


def test_cost_does_not_grow_with_the_number_of_rows(specimen):
    assert bool(specimen.observations.unselected) == bool(specimen.case.unselected)


def test_number_of_observations(specimen):
    assert specimen.loglik.n_rows == specimen.case.n_obs


# -- the density of coresets -----------------------------------------------------------------------


def assert_same(found, expected):
    (logp, gradient), (expected_logp, expected_gradient) = found, expected
    assert_allclose(logp, expected_logp, rtol=1e-8)
    assert gradient.keys() == expected_gradient.keys()
    for name, value in expected_gradient.items():
        assert_allclose(gradient[name], value, rtol=1e-7, atol=1e-7, err_msg=name)


def test_density_is_prior_plus_weighted_potentials(specimen):
    coreset = density(specimen.coreset)
    for point in specimen.reference.points:
        expected = specimen.reference.weighted(point, specimen.all_weights)
        assert_same(coreset(point), expected)


#: The density with other weights, above, has been compared with PyMC's for every model.
WHOLE = {
    "linear",
    "dims model",
    "varying intercepts, not centred, in data containers",
    "two observed variables on one dim",
    "autoregression",
    "cells, growth curves",
}


@pytest.mark.parametrize(
    "specimen",
    [pytest.param(c, marks=[pytest.mark.slow] * (n not in WHOLE)) for n, c in CASES.items()],
    indirect=True,
    ids=case_name,
)
def test_unit_weights_on_all_rows_give_the_full_model(specimen):
    coreset = specimen.small(specimen.loglik.source.all, np.ones(specimen.case.n_obs))
    point = specimen.reference.points[0]
    assert_same(density(coreset)(point), density(specimen.sampled)(point))


#: Of many operations each: indices, splits, joins, triangles, softmax and sums over members.
HARD = (
    "choices, conditional logit",
    "choices, in long form, of sets of two to four alternatives",
    "many terms of a coefficient and a column each",
    "mixture of two regressions",
    "normal vectors with LKJ covariance",
    "ordered probit",
    "poll, for post-stratification",
    "tests, graded response by cutpoints of each item",
    "varying slopes with LKJ covariance",
)


#: Longer to compile.
HARDEST = {
    "many terms of a coefficient and a column each",
    "mixture of two regressions",
    "normal vectors with LKJ covariance",
    "ordered probit",
    "poll, for post-stratification",
    "varying slopes with LKJ covariance",
}


@pytest.mark.parametrize(
    "specimen",
    [pytest.param(CASES[n], marks=[pytest.mark.slow] * (n in HARDEST)) for n in HARD],
    indirect=True,
    ids=case_name,
)
def test_builds_evaluate_the_density_that_pytensor_has(specimen):
    expected, values = density(specimen.coreset), specimen.coreset.value_vars
    own = specimen.coreset.logp_dlogp_function(ravel_inputs=True, mode=loop_mode())
    own.set_extra_values({})
    for point in specimen.reference.points:
        x = np.concatenate([np.ravel(point[v.name]) for v in values])
        logp, slopes = own(x)
        ends = np.cumsum([np.size(point[v.name]) for v in values])[:-1]
        each = zip(values, np.split(slopes, ends), strict=True)
        gradient = {v.name: part.reshape(np.shape(point[v.name])) for v, part in each}
        assert_same((logp, gradient), expected(point))


def test_searches_of_few_rows_compile_no_loops_and_find_what_compiled_ones_do(calls):
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        mean = rng.normal(size=(2_000, 3)) @ pm.Normal("slopes", 0, 1, shape=3)
        pm.StudentT("y", 4, mean, sigma=pm.HalfNormal("sd"), observed=rng.normal(size=2_000))
    compiled, sampler = calls("compiled loop"), sampler_of(model)
    rows, weights = sampler.loglikelihood.all_rows, np.ones(2_000)
    posterior, points = sampler.posterior(rows, weights), np.eye(4)
    found = [posterior.slopes(points), sampler.full_density.slopes(points)]
    assert not compiled
    expected = posterior.as_loops.slopes(points)
    assert compiled
    for one in found:
        assert_allclose(one.values, expected.values, rtol=1e-12)
        assert_allclose(one.gradients, expected.gradients, rtol=1e-10, atol=1e-10)


# -- what is kept ----------------------------------------------------------------------------------


def test_free_variables_keep_names_transforms_and_initial_values(specimen):
    model, coreset = specimen.sampled, specimen.coreset
    for rv in model.free_RVs:
        twin = coreset[rv.name]
        assert twin in coreset.free_RVs
        assert coreset.rvs_to_values[twin].name == model.rvs_to_values[rv].name
        assert type(coreset.rvs_to_transforms[twin]) is type(model.rvs_to_transforms[rv])
        initial = coreset.rvs_to_initial_values[twin], model.rvs_to_initial_values[rv]
        assert_array_equal(*initial)
    assert len(coreset.free_RVs) == len(model.free_RVs)


def test_variables_keep_dims_and_selected_labels(specimen):
    model, coreset, along = specimen.model, specimen.coreset, specimen.observations.dims
    labels = dict(model.coords)
    for name, dims in coreset.named_vars_to_dims.items():
        if name in model.named_vars:
            bare = [d if d is None else d.removesuffix("_coreset") for d in dims]
            dims_before = list(model.named_vars_to_dims[name])
            assert bare in (dims_before, _with_joined(dims_before, along))
    if len(along) > 1:  # a cell is named by its position
        labels["_".join(along)] = tuple(specimen.rows.positions)
    for name, values in coreset.coords.items():
        expected = labels.get(name.removesuffix("_coreset"))
        if along in [(name,), (name.removesuffix("_coreset"),)] and len(values) != len(expected):
            expected = [expected[i] for i in specimen.rows.positions]
        assert values == (None if expected is None else tuple(expected))


def _with_joined(dims, along):
    """Join the dims of the cells, in front of the others, where a variable has them all."""
    if len(along) < 2 or not set(along) <= set(dims):
        return list(dims)
    return ["_".join(along), *(d for d in dims if d not in along)]


def test_the_observed_variables_become_one_potential(specimen):
    model, coreset = specimen.model, specimen.coreset
    terms = {t.name for t in specimen.observations.terms}
    left = {v.name for v in (*model.observed_RVs, *model.potentials)} - terms
    new = {"coreset_loglik"}
    if specimen.observations.unweighted:
        new.add("coreset_unweighted")
    assert {v.name for v in (*coreset.observed_RVs, *coreset.potentials)} == left | new


def test_the_user_s_model_is_left_as_it_is(specimen):
    before = _snapshot(specimen.model)
    specimen.small(specimen.rows, specimen.weights)
    assert _snapshot(specimen.model) == before


def _snapshot(model):
    return (
        pytensor.dprint(list(model.named_vars.values()), file="str"),
        [str(v) for v in (*model.free_RVs, *model.observed_RVs, *model.potentials)],
        {name: str(dims) for name, dims in model.named_vars_to_dims.items()},
        {name: str(values) for name, values in model.coords.items()},
        {rv.name: str(value) for rv, value in model.rvs_to_initial_values.items()},
        {v.name: v.get_value().tolist() for v in model.data_vars},
    )


#: Which of a model's deterministics have one value per row.
DETERMINISTICS = {
    "deterministics beside the path": {"mu", "residual"},
    "varying intercepts, not centred, in data containers": {"eta"},
    "several outputs": {"mu"},
    "dims model": {"mu"},
    "as many coefficients as rows": set(),
    "autoregression": {"level"},
    "custom distribution with a sum": {"mu"},
    "cells, with covariates of the dog and of the trial": {"eta"},
    "cells, growth curves": {"mu"},
    "cells, in another order than the data": {"mu"},
}


@pytest.mark.parametrize(
    "specimen", [CASES[n] for n in DETERMINISTICS], indirect=True, ids=case_name
)
def test_deterministics_are_those_that_are_not_along_the_rows(specimen):
    point = specimen.reference.points[0]
    full, coreset = _deterministics(specimen.model, point), _deterministics(specimen.coreset, point)
    assert coreset.keys() == full.keys() - DETERMINISTICS[specimen.case.name]
    for name, value in coreset.items():
        assert_allclose(value, full[name], err_msg=name)


def _deterministics(model, point):
    graphs = model.replace_rvs_by_values(model.deterministics)
    graphs = [pt.as_tensor(g, allow_xtensor_conversion=True) for g in graphs]
    values = pytensor.function(
        model.value_vars, graphs, mode=WRITTEN_MODE, on_unused_input="ignore"
    )
    names = [d.name for d in model.deterministics]
    return dict(zip(names, values(**point), strict=True))


#: Which of a model's data containers have one value per row.
CONTAINERS = {
    "varying intercepts, not centred, in data containers": {"x", "group_of", "counts"},
    "containers without dims": {"x", "group_of", "target"},
    "potential as the likelihood, with dims": {"x"},
    "container of mutable shape": {"x"},
    "integer labels": {"x"},
    "autoregression": {"series"},
    "dims model": {"x", "group_of"},
    "cells, with a covariate of both, counted in the data": {"shocked", "avoided"},
    "cells, in another order than the data": {"x"},
    "cells, with covariates in matrices": {"x"},
}


@pytest.mark.parametrize("specimen", [CASES[n] for n in CONTAINERS], indirect=True, ids=case_name)
def test_data_containers_hold_the_selected_rows(specimen):
    kept = {v.name: v for v in specimen.coreset.data_vars}
    for name in CONTAINERS[specimen.case.name]:
        value = specimen.model[name].get_value()
        assert_array_equal(kept[name].get_value(), _rows_of(specimen, name, value))


def _rows_of(specimen, name, value):
    """Select rows, or cells, of a variable's value."""
    along = specimen.observations.dims
    if len(along) < 2:
        return value[specimen.rows.positions]
    dims = specimen.model.named_vars_to_dims[name]
    cells = np.moveaxis(value, [dims.index(d) for d in along], range(len(along)))
    return cells.reshape(-1, *cells.shape[len(along) :])[specimen.rows.positions]


def test_another_set_of_data_changes_the_density():
    """What `pm.set_data` puts into a container of the coreset model is what it computes with."""
    with pm.Model(coords={"obs": range(4)}) as model:
        x = pm.Data("x", np.arange(4.0), dims="obs")
        pm.Normal("y", pm.Normal("b") * x, 1.0, observed=np.zeros(4), dims="obs")
    found = of_some_rows(model, size=3)
    with found.model:
        pm.set_data({"x": np.arange(5.0, 5.0 + found.size)})
    logp, _ = density(found.model)({"b": np.array(1.0)})
    of_rows = found.weights @ norm.logpdf(np.arange(5.0, 5.0 + found.size))
    assert logp == pytest.approx(norm.logpdf(1.0) + of_rows)


@pytest.mark.parametrize("weights", [[1.0], [1.0] * 3, [[1.0, 1.0]]])
@pytest.mark.parametrize("specimen", [CASES["linear"]], indirect=True, ids=case_name)
def test_there_must_be_one_weight_for_each_row(specimen, weights):
    with refused(InvalidOptionError, "2 rows"):
        specimen.small(specimen.loglik.source.take(np.arange(2)), np.array(weights))


class WatchedDict(dict):
    """A mapping that refuses to be changed."""

    def _refuse(self, *args, **kwargs):
        raise AssertionError("the user's model is written to")

    __setitem__ = __delitem__ = update = pop = setdefault = clear = _refuse


def test_the_user_s_model_is_not_touched_even_for_a_moment():
    with pm.Model(coords={"obs": range(4)}) as model:
        x = pm.Data("x", np.arange(8.0).reshape(4, 2), dims=("obs", None))
        b = pm.Normal("b", initval=[0.5, 0.5], shape=2)
        pm.Normal("y", x @ b, 1.0, observed=np.zeros(4), dims="obs")
    for name in ("rvs_to_initial_values", "named_vars_to_dims", "rvs_to_values"):
        setattr(model, name, WatchedDict(getattr(model, name)))
    coreset = of_some_rows(model, size=2).model
    np.testing.assert_array_equal(coreset.initial_point()["b"], [0.5, 0.5])
    assert tuple(coreset.named_vars_to_dims["x"]) == ("obs", None)


def test_coreset_models_of_several_threads():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("b", initval=0.5), 1.0, observed=np.zeros(4))
    few = [of_some_rows(model, size=1, random_seed=n) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        models = pool.map(lambda n: replace(few[n % 4]).model, range(40))
        assert all(m.initial_point()["b"] == 0.5 for m in models)


@pytest.mark.slow
def test_pymc_gives_transformed_variables_with_dims_to_nuts():
    with pm.Model(coords={"obs": range(40), "k": "abc"}) as model:
        pmd.ZeroSumNormal("balanced", core_dims="k", dims="k")
        pmd.Dirichlet("share", a=pmd.as_xtensor(np.ones(3), dims=("k",)), core_dims="k", dims="k")
        pmd.Uniform("within", -1.0, 2.0)
        pmd.Beta("chance", 2, 2)
        if hasattr(pmd, "VonMises"):  # since PyMC 6.4
            pmd.VonMises("angle", 0, 1)
        pmd.HalfNormal("sigma", dims="k")
        total = sum(rv.sum() for rv in model.free_RVs)
        y = pmd.Data("y", np.linspace(-1, 1, 40), dims="obs")
        pmd.Normal("likelihood", total, 1.0, observed=y)
    small = of_all_rows(model).model
    point = {name: value + 0.3 for name, value in model.initial_point(random_seed=1).items()}
    assert_allclose(*(m.compile_logp(mode=WRITTEN_MODE)(point) for m in (small, model)), rtol=1e-12)
    assert set(assign_step_methods(small)[1]) == {pm.NUTS}
    given = {"sigma": np.array([1.0, 2.0, 3.0]), "share": np.array([0.2, 0.3, 0.5])}
    start = make_initial_point_fn(model=small, overrides=given, jitter_rvs=set())(1)
    assert_allclose(start["sigma_log__"], np.log(given["sigma"]))
    assert_allclose(start["share_simplex__"], np.log([0.2, 0.3]) - np.log(given["share"]).mean())
