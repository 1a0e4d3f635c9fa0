"""Control variates end to end: chosen by itself, judged, stored, under other priors."""

from dataclasses import replace
from functools import partial

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.distributions.transforms import ordered
from scipy.special import expit

from pymc_coresets import (
    ControlVariates,
    Coreset,
    InvalidDataError,
    InvalidOptionError,
    RiemannianPursuit,
    UnsupportedModelError,
    build_coreset,
    merge,
    open_rows,
)
from tests.modes import PLAIN_MODE
from tests.refusals import refused, warned

N_ROWS, N_COLUMNS = 6_000, 50


def regression(columns, sd=1.0, order=slice(None)):
    """A logistic regression; of 50 columns it takes more rows to match than 1,000."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N_ROWS, columns))
    y = rng.binomial(1, expit(x @ rng.normal(0, 0.3, size=columns)))
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, sd, shape=columns)
        pm.Bernoulli("y", logit_p=x[:, order] @ slopes, observed=y)
    return model


@pytest.fixture(scope="module")
def model():
    return regression(N_COLUMNS)


@pytest.fixture(scope="module")
def coreset(model):
    return build_coreset(model, random_seed=1, progressbar=False)


@pytest.fixture(scope="module")
def idata(coreset):
    return coreset.sample(draws=200, random_seed=1, progressbar=False)


def test_many_dimensions_are_summarised_by_a_quadratic_and_few_rows(coreset):
    assert coreset.method == "control_variates"
    assert coreset.size < 1_000  # where rows alone need 1,326
    assert coreset.objective <= 0.01
    assert coreset.certificate.reliable
    assert "of 50 coefficients, for all rows" in repr(coreset)
    assert {v.name for v in coreset.model.potentials} == {"coreset_loglik", "coreset_quadratic"}


def test_rare_categories_whose_outcomes_agree_need_no_nuts(fails):
    """Standardised dummies of all categories beside an intercept: the prior alone holds a sum.

    It bounds the effects of the rare ones to the other side, which is far from normal.
    """
    rng = np.random.default_rng(2)
    category = rng.choice(25, N_ROWS, p=np.r_[np.full(23, 0.0425), 0.0215, 0.001])
    dummies = np.eye(25)[category]
    x = np.column_stack([dummies - dummies.mean(axis=0), rng.normal(size=(N_ROWS, 2))])
    x = np.column_stack([x / x.std(axis=0), np.ones(N_ROWS)])
    y = rng.binomial(1, np.where(category == 24, 1.0, expit(0.3 * x[:, -2])))
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=x @ pm.Normal("slopes", shape=x.shape[1]), observed=y)
    fails("chains of NUTS")
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    assert coreset.objective <= 0.01
    assert coreset.certificate.reliable
    idata = coreset.sample(draws=1_000, random_seed=1, progressbar=False)
    assert "accepted" in idata["sample_stats"]  # by independence Metropolis-Hastings
    rare = idata["posterior"]["slopes"][..., 24].to_numpy().ravel()
    assert -0.1 < rare.min() < rare.max() > 2.0  # prior standard deviations
    assert coreset.check(idata).reliable


@pytest.mark.parametrize(
    ("columns", "method"),
    [pytest.param(24, "riemannian_pursuit", marks=pytest.mark.slow), (25, "control_variates")],
)
def test_from_25_dimensions_on_rows_alone_take_longer(columns, method):
    coreset = build_coreset(regression(columns), random_seed=1, progressbar=False)
    assert coreset.method == method
    assert (coreset.quadratic is None) == (method != "control_variates")
    assert coreset.objective <= 0.01


def test_ordered_answers_of_many_categories_need_few_rows():
    """Of ten numbers, a row depends on its predictor and two cut points; one category is rare."""
    rng = np.random.default_rng(9)
    x = rng.normal(size=(N_ROWS, 20))
    cuts = np.array([-2.5, -1.8, -1.2, -0.6, 0.0, 0.6, 0.62, 1.2, 1.8])
    noisy = x @ rng.normal(0, 0.3, size=20) + rng.logistic(size=N_ROWS)
    grade = (noisy[:, None] > cuts).sum(axis=1)
    with pm.Model() as model:
        points = pm.Normal("cuts", 0, 2, shape=9, transform=ordered, initval=cuts)
        eta = x @ pm.Normal("slopes", shape=20)
        pm.OrderedLogistic("y", eta, points, compute_p=False, observed=grade)
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    assert (coreset.method, coreset.certificate.reliable) == ("control_variates", True)
    assert coreset.size < 600
    idata = coreset.sample(draws=200, random_seed=1, progressbar=False)
    assert coreset.verify(idata).by_pymc < 0.02


@pytest.mark.slow
def test_choices_between_five_alternatives_need_few_rows():
    rng = np.random.default_rng(10)
    x = rng.normal(size=(N_ROWS, 5, 25))
    utility = x @ rng.normal(0, 0.3, size=25) + rng.gumbel(size=(N_ROWS, 5))
    with pm.Model() as model:
        p = pm.math.softmax(pt.dot(x, pm.Normal("slopes", shape=25)), axis=-1)
        pm.Categorical("choice", p=p, observed=utility.argmax(axis=1))
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    assert (coreset.method, coreset.certificate.reliable) == ("control_variates", True)
    assert coreset.size < 600
    idata = coreset.sample(draws=200, random_seed=1, progressbar=False)
    assert coreset.verify(idata).by_pymc < 0.02


def test_those_who_limit_the_size_get_rows_alone():
    far, tail = warned("not within 1"), warned("reaches further", "slopes")
    with far, tail:
        coreset = build_coreset(regression(25), size=30, random_seed=1, progressbar=False)
    assert (coreset.method, coreset.quadratic) == ("riemannian_pursuit", None)


def test_pymc_agrees_with_the_ratios_of_full_and_approximate_posterior(coreset, idata):
    check = coreset.check(idata)
    assert check.second_opinion.difference < 1e-6  # of thousands of nats
    assert check.symmetrised_kl < 0.01
    assert not check.needs_reweighting


def test_draws_are_evaluated_at_once(idata):
    assert idata["posterior"].attrs["tuning_steps"] == 0
    assert idata["sample_stats"]["accepted"].mean() > 0.5


def test_files_and_pickles_keep_the_quadratic(coreset, model, tmp_path):
    coreset.to_netcdf(tmp_path / "coreset.nc")
    point = {"slopes": np.linspace(-1, 1, N_COLUMNS)}
    expected = coreset.model.compile_logp(mode=PLAIN_MODE)(point)
    for same in (
        Coreset.from_netcdf(tmp_path / "coreset.nc", model),
        cloudpickle.loads(cloudpickle.dumps(coreset)),
    ):
        assert same.model.compile_logp(mode=PLAIN_MODE)(point) == pytest.approx(expected, rel=1e-12)
    without_model = Coreset.from_netcdf(tmp_path / "coreset.nc")
    np.testing.assert_array_equal(without_model.quadratic.slope, coreset.quadratic.slope)


def test_other_priors_keep_the_quadratic(coreset):
    narrow = coreset.with_model(regression(N_COLUMNS, sd=0.3))
    idata = narrow.sample(draws=200, tune=300, random_seed=1, progressbar=False)
    assert narrow.check(idata).symmetrised_kl < 0.2  # of other draws than it was averaged over


def test_other_likelihoods_are_refused(coreset):
    backwards = slice(None, None, -1)
    with pytest.raises(InvalidDataError):
        coreset.with_model(regression(N_COLUMNS, order=backwards))


def test_models_without_containers_are_not_merged(coreset):
    with refused(UnsupportedModelError, "pm.Data"):
        merge(coreset, coreset)


# -- more rows -------------------------------------------------------------------------------------

D, MONTH, N_DRAWS = 8, 2_000, 100
_month_rng = np.random.default_rng(11)
_X = _month_rng.normal(size=(2 * MONTH, D))
DATA = {"x": _X, "y": _month_rng.binomial(1, expit(_X @ np.linspace(-0.5, 0.5, D) - 1))}
ALL, FIRST, SECOND = slice(None), slice(MONTH), slice(MONTH, None)
SEEDED = {"random_seed": 1, "progressbar": False}


def monthly(which):
    with pm.Model() as model:
        x, y = (pm.Data(name, DATA[name][which]) for name in ("x", "y"))
        slopes, base = pm.Normal("slopes", 0, 1, shape=D), pm.Normal("base", 0, 2)
        pm.Bernoulli("late", logit_p=base + x @ slopes, observed=y)
    return model


@pytest.fixture(scope="module")
def months():
    method = {"method": "control_variates"} | SEEDED
    return [build_coreset(monthly(which), **method) for which in (FIRST, SECOND)]


@pytest.fixture(scope="module")
def extended(months):
    head = slice(MONTH, MONTH + 50)
    rows = open_rows({name: values[SECOND] for name, values in DATA.items()})
    return months[0].extend(monthly(head), rows=rows, random_seed=2)


@pytest.fixture(scope="module")
def whole(extended):
    """Draws from close to the posterior of all rows, and its log-density there by PyMC."""
    draws = extended.proposal.draws.take(slice(0, N_DRAWS)).values
    return draws, at_draws(monthly(ALL), draws)


@pytest.fixture(scope="module")
def rows_alone():
    return build_coreset(monthly(SECOND), size=200, **SEEDED)


def at_draws(model, draws, **only):
    logp = model.compile_logp(**only, mode=PLAIN_MODE)
    return np.array([logp({n: v[s] for n, v in draws.items()}) for s in range(N_DRAWS)])


MORE_ROWS = {  # from coresets of both months, and one of the second without a quadratic
    "merged and reduced": lambda one, two, _: merge(one, two, size=40, random_seed=1),
    "extended by rows in memory": lambda one, *_: one.extend(monthly(SECOND), random_seed=2),
    "rows alone, extended": lambda *three: three[2].extend(
        monthly(FIRST), method="control_variates", random_seed=1
    ),
}


@pytest.mark.parametrize("kind", MORE_ROWS)
def test_more_rows_stay_within_the_sum_of_the_errors(kind, months, rows_alone, whole):
    draws, full = whole
    found = MORE_ROWS[kind](*months, rows_alone)
    assert found.n_observations == found.n_distinct == 2 * MONTH
    assert found.quadratic is not None
    assert found.size < 400
    # Lengths of errors add up, each of at most 0.1, the root of the tolerance.
    assert np.var(full - at_draws(found.model, draws)) < 0.04


def beyond_the_parts(found, parts, draws):
    """By how much the log-likelihood of a coreset is above the sum of those of others."""
    own, *each = (at_draws(c.model, draws, vars=c.model.potentials) for c in (found, *parts))
    return own - sum(each)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_a_union_is_exactly_the_sum_of_its_parts(alone, swapped, months, rows_alone, whole):
    draws, full = whole
    parts = [months[0], rows_alone if alone else months[1]][:: -1 if swapped else 1]
    union = merge(*parts)
    assert union.size == sum(part.size for part in parts)
    assert union.history.attrs["objective_of_parts"] == sum(part.objective for part in parts)
    difference = beyond_the_parts(union, parts, draws)
    assert np.abs(difference - difference[0]).max() < 1e-7  # of thousands of nats
    if not (alone or swapped):
        assert np.var(full - at_draws(union.model, draws)) < 0.04


def test_ratios_are_relative_to_the_coreset_before_and_exact_for_new_rows(
    extended, months, whole, tmp_path
):
    draws, full = whole
    assert extended.certificate.reliable
    assert extended.size < 400
    own = at_draws(extended.model, draws)
    assert np.var(full - own) < 0.04
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(
                {
                    name: (("chain", "draw", *map(str, range(values.ndim - 1))), values[None])
                    for name, values in draws.items()
                }
            )
        }
    )
    model = monthly(SECOND)
    expected = at_draws(months[0].model, draws) + at_draws(model, draws, vars=model["late"]) - own
    other = extended.with_model(monthly(FIRST))  # which holds other rows
    for coreset in (extended, other):
        difference = coreset.log_ratios(tree)[0] - expected
        assert np.abs(difference - difference[0]).max() < 1e-7
    extended.to_netcdf(tmp_path / "coreset.nc")
    again = Coreset.from_netcdf(tmp_path / "coreset.nc", monthly(FIRST))
    np.testing.assert_allclose(at_draws(again.model, draws), own, rtol=1e-12)


def with_a_heavy_row(coreset, model, weight):
    """Return another approximation: a row counts for more, and the quadratic for less."""
    q, n = coreset.quadratic, coreset.indices[0]
    data = {name: model[name].get_value()[n] for name in ("x", "y")}
    x = np.array([1.0 if name == "base" else data["x"][int(name[7:-1])] for name in q.names])
    mean = expit(q.center @ x)
    less = q.minus(weight * (data["y"] - mean) * x, -weight * mean * (1 - mean) * np.outer(x, x))
    heavier = coreset.weights + weight * (np.arange(coreset.size) == 0)
    return replace(coreset, quadratic=less, weights=heavier)


def test_a_sum_that_is_convex_somewhere_is_reduced(months, whole):
    draws, _ = whole
    [first, second], model = months, monthly(FIRST)
    heavy = with_a_heavy_row(first, model, 1_000.0)
    convex = np.linalg.eigvalsh(heavy.quadratic.plus(second.quadratic).curvature)[-1]
    found = merge(heavy, second, random_seed=1)
    assert found.size < first.size + second.size
    # What is left is of the order of the error of a variance of 400 draws, 7 %.
    assert np.linalg.eigvalsh(found.quadratic.curvature)[-1] < 0.1 * convex
    assert found.objective <= 0.01
    assert (
        np.var(beyond_the_parts(found, [heavy, second], draws)) < 0.05
    )  # draws of a posterior some 0.1 nats away


def opposite():
    """Return the second month with the other answers: each coefficient changes its sign."""
    model = monthly(SECOND)
    model["y"].set_value(1 - model["y"].get_value())
    return model


def divergence_of_both(coreset, second):
    """J of a coreset of the first month and another second one, at the coreset's own draws."""
    draws = coreset.proposal.draws.take(slice(0, N_DRAWS)).values
    of_second = at_draws(second, draws, vars=second["late"])
    return np.var(at_draws(monthly(FIRST), draws) + of_second - at_draws(coreset.model, draws))


def test_rows_that_move_the_posterior_far_are_said_to(months, tmp_path):
    """A certificate of what is left says nothing of what is gone."""
    with warned("Other rows", "standard deviations"):
        extended = months[0].extend(opposite(), random_seed=1)
    assert np.isnan(extended.ancestry.combined)
    assert divergence_of_both(extended, opposite()) > 1
    idata = extended.sample(draws=200, random_seed=1, progressbar=False)
    check = extended.check(idata)
    assert check.negligible  # as far as the rows go that are left
    assert not check.reliable
    assert "Doubtful: the old rows are not available" in check.verdict.text
    assert extended.reweight(idata, random_seed=1)["posterior"].attrs["level"] == "Doubtful"
    extended.to_netcdf(tmp_path / "coreset.nc")
    for same in (extended, Coreset.from_netcdf(tmp_path / "coreset.nc")):
        assert not same.certificate.reliable
        assert "Doubtful: the old rows are not available" in repr(same)
    # With all rows there is nothing that the comparison cannot see.
    columns = [monthly(FIRST), opposite()]
    rows = open_rows([{n: model[n].get_value() for n in ("x", "y")} for model in columns])
    whole = Coreset.from_netcdf(tmp_path / "coreset.nc", monthly(slice(50)), rows=rows)
    assert whole.check(idata).symmetrised_kl > 1


@pytest.mark.parametrize("shift", [0.0, pytest.param(0.7, marks=pytest.mark.slow), 1.0])
def test_errors_of_earlier_rows_are_stated_where_the_posterior_has_moved(shift, months):
    """Shifts are in standard deviations of the first month's posterior, about."""
    sd = months[0].proposal.draws.values["slopes"].std(axis=0)
    truth = np.linspace(-0.5, 0.5, D) + 2 * shift * sd  # half of the rows say so
    late = np.random.default_rng(5).binomial(1, expit(DATA["x"][SECOND] @ truth - 1))
    model = monthly(SECOND)
    model["y"].set_value(late.astype(np.int32))
    extended = months[0].extend(model, random_seed=1)
    assert divergence_of_both(extended, model) < extended.ancestry.combined


def test_coresets_that_disagree_are_said_to_when_merged(months):
    other = build_coreset(opposite(), method="control_variates", **SEEDED)
    with warned("Other rows", "standard deviations"):
        merged = merge(months[0], other, random_seed=1)
    assert np.isnan(merged.objective)
    assert "disagree" in merged.status
    assert "disagree" in repr(merged)


def test_methods_that_choose_among_rows_alone_are_refused(months):
    for update in (lambda **o: merge(*months, **o), partial(months[0].extend, monthly(SECOND))):
        with refused(
            InvalidOptionError, "method=RiemannianPursuit", "ControlVariates(...)", "quadratic"
        ):
            update(method=RiemannianPursuit())


def test_importance_draws_are_those_that_judged_it(coreset):
    found = coreset.importance_draws(random_seed=1)["posterior"]
    assert found.attrs["psis_ess"] > 200
    assert found.sizes["draw"] == 400


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The posterior of all rows reaches further")
def test_the_divergence_falls_with_the_number_of_rows():
    # The variance of a sum of sampled residuals is in proportion to 1 / M, or falls faster where
    # the largest are kept whole: from 200 to 3,000 rows to a tenth at least, with 400 draws
    # (relative error of a variance: sqrt(2 / 400), 7 %).
    rng = np.random.default_rng(5)
    x = rng.standard_t(4, size=(3_000, 25))
    y = rng.binomial(1, expit(-3 + x @ rng.normal(0, 0.2, size=25)))
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 1, shape=25)
        pm.Bernoulli("y", logit_p=pm.Normal("a", 0, 3) + x @ slopes, observed=y)
    method = ControlVariates(tolerance=1e-9, max_rounds=2)
    options = {"method": method, "random_seed": 1, "progressbar": False}
    with warned("1e-09"):
        few, many = (build_coreset(model, size=n, **options).objective for n in (200, 2_900))
    assert many < 0.1 * few


@pytest.mark.slow
def test_crossed_factors_that_are_not_centred():
    rng = np.random.default_rng(2)
    first, second = rng.integers(30, size=8_000), rng.integers(25, size=8_000)
    eta = -0.5 + 0.8 * rng.normal(size=30)[first] + 0.5 * rng.normal(size=25)[second]
    with pm.Model() as model:
        scales = pm.HalfNormal("scales", 1, shape=2)
        one, other = pm.Normal("one", shape=30), pm.Normal("other", shape=25)
        predictor = pm.Normal("mean", 0, 2) + (scales[0] * one)[first] + scales[1] * other[second]
        pm.Bernoulli("y", logit_p=predictor, observed=rng.binomial(1, expit(eta)))
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    assert coreset.method == "control_variates"
    assert coreset.objective < 0.05  # of free scales, whose draws come from NUTS
    assert coreset.size < 1_000


@pytest.mark.slow
def test_levels_of_few_rows():
    """From the mode for 1,650 of the rows the quadratics diverge."""
    rng = np.random.default_rng(1)
    share = np.repeat([1.0, 0.015], 15)
    level = rng.choice(30, size=100_000, p=share / share.sum())
    y = rng.binomial(1, expit(-1.2 + 0.3 * rng.normal(size=30)[level]))
    x = rng.normal(size=100_000)  # so that no rows are equal
    with pm.Model() as model:
        effects = pm.ZeroSumNormal("effects", pm.Gamma("sd", 2, 5), shape=30)
        eta = pm.Normal("mean", -1, 1) + pm.Normal("slope") * x + effects[level]
        pm.Bernoulli("y", logit_p=eta, observed=y)
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    assert coreset.method == "control_variates"
    assert coreset.objective <= 0.01


@pytest.mark.parametrize("scale", ["free", pytest.param("of covariates", marks=pytest.mark.slow)])
def test_scales_are_part_of_the_quadratic(scale):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(6_000, 45))
    y = rng.normal(x @ rng.normal(0, 0.3, 45), np.exp(0.3 * x[:, 0]))
    with pm.Model() as model:
        slopes = pm.Normal("slopes", shape=45)
        sigma = pm.HalfNormal("sigma")
        if scale != "free":
            sigma = pm.math.exp(pm.math.log(sigma) + x[:, :5] @ pm.Normal("of_scale", shape=5))
        pm.Normal("y", x @ slopes, sigma, observed=y)
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    assert coreset.method == "control_variates"
    assert coreset.objective <= 0.01
    idata = coreset.sample(draws=100, tune=300, random_seed=1, progressbar=False)
    check = coreset.check(idata)
    assert check.second_opinion.difference < 1e-6  # of thousands of nats
    assert check.symmetrised_kl < 0.02
    if scale == "free":
        fitted = np.linalg.lstsq(x, y)[0]
        means = idata.posterior["slopes"].mean(("chain", "draw")).to_numpy()
        assert np.abs(means - fitted).max() < 0.005  # sd of 0.013, 400 draws, a prior of sd 1


def test_names_may_look_like_types_of_numpy():
    """As those of Bambi do; `long` is one of C."""
    rng = np.random.default_rng(5)
    group, x = rng.integers(0, 8, size=600), rng.normal(size=600)
    y = rng.poisson(np.exp(0.3 * x + 0.5 * rng.normal(size=8)[group]))
    with pm.Model() as model:
        levels = pm.HalfNormal("1|g_sigma") * pm.Normal("1|g_offset", shape=8)
        slope = pm.Normal("bs(time, degree=2, df=10)")
        pm.Poisson("float", pm.math.exp(pm.Normal("long") + levels[group] + slope * x), observed=y)
    coreset = build_coreset(model, method="control_variates", random_seed=1, progressbar=False)
    assert coreset.certificate.reliable
    assert set(coreset.importance_draws()["posterior"].data_vars) == {
        rv.name for rv in model.free_RVs
    }
