"""Coresets under other priors and with new rows, against the closed forms of a regression."""

import pickle
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal

from pymc_coresets import (
    Coreset,
    CoresetError,
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

N, MONTHS, SIZE = 1_500, 4, 12
_rng = np.random.default_rng(7)
X = _rng.normal(size=(MONTHS, N)) + 0.2 * np.arange(MONTHS)[:, None]
Y = 0.5 - 0.7 * X + _rng.normal(size=(MONTHS, N))
DATA = {"x": X.ravel(), "y": Y.ravel()}


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


def month(i):
    return {"x": X[i], "y": Y[i]}


def regression(data, prior_sd=2.0, noise=1.0, names=("a", "b"), centre=None):
    with pm.Model() as model:
        x, y = (pm.Data(name, data[name]) for name in ("x", "y"))
        middle = 0.0 if centre is None else pm.Normal(centre)
        a, b = (pm.Normal(name, middle, prior_sd) for name in names)
        pm.Normal("likelihood", a + b * x, noise, observed=y)
    return model


def posterior(data, weights=1.0, which=slice(None), prior_sd=2.0):
    design = np.column_stack([np.ones(len(data["x"])), data["x"]])[which]
    precision = design.T @ (design * np.reshape(weights, (-1, 1))) + np.eye(2) / prior_sd**2
    return np.linalg.solve(precision, design.T @ (weights * data["y"][which])), precision


def divergence(coreset, data=DATA, prior_sd=2.0):
    """KL(coreset || full) in nats."""
    mean, precision = posterior(data, coreset.weights, coreset.indices, prior_sd)
    full_mean, full = posterior(data, prior_sd=prior_sd)
    ratio, off = np.linalg.solve(precision, full), full_mean - mean
    return 0.5 * (np.trace(ratio) - 2 - np.linalg.slogdet(ratio)[1] + off @ full @ off)


def draws_of(data, weights=1.0, which=slice(None), prior_sd=2.0, n=500):
    mean, precision = posterior(data, weights, which, prior_sd)
    z = np.random.default_rng(3).normal(size=(2, n, 2))
    found = mean + z @ np.linalg.inv(np.linalg.cholesky(precision))
    variables = {name: (("chain", "draw"), found[..., i]) for i, name in enumerate("ab")}
    return xr.DataTree.from_dict({"posterior": xr.Dataset(variables)})


@pytest.fixture(scope="module")
def first():
    model = regression(month(0))
    return build_coreset(model, size=SIZE, random_seed=1, progressbar=False)


@pytest.fixture(scope="module")
def steps(first):
    """The coreset of the first month, and those with one more month each."""
    found = [first]
    for i in range(1, MONTHS):
        found.append(found[-1].extend(regression(month(i)), size=SIZE, random_seed=i))
    return found


# -- other priors ----------------------------------------------------------------------------------


def test_other_priors_are_those_of_the_new_model(first):
    other = first.with_model(regression(month(0), prior_sd=0.02))
    assert_array_equal(other.indices, first.indices)
    assert_array_equal(other.weights, first.weights)
    draws = draws_of(month(0), other.weights, other.indices, prior_sd=0.02)
    check = other.check(draws)
    expected = divergence(other, month(0), prior_sd=0.02)
    assert_allclose(check.kl, expected, atol=4 * check.kl_mcse)
    logps = [
        each.model.compile_logp(mode=PLAIN_MODE)({"a": 0.03, "b": -0.02}) for each in (first, other)
    ]
    prior = [-0.5 * (0.03**2 + 0.02**2) / sd**2 - 2 * np.log(sd) for sd in (2.0, 0.02)]
    assert_allclose(logps[1] - logps[0], prior[1] - prior[0], rtol=1e-8)


def test_nothing_that_was_measured_under_the_old_priors_is_kept(first):
    assert first.certificate is not None
    other = first.with_model(regression(month(0), prior_sd=0.02))
    assert other.certificate is None
    assert np.isnan(other.objective)
    assert np.isnan(other.ancestry.combined)
    assert first.certificate is not None
    assert "other priors" in repr(other)


def test_importance_draws_are_weighed_anew(first):
    other = first.with_model(regression(month(0), prior_sd=0.15))
    mean, precision = posterior(month(0), prior_sd=0.15)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    before = posterior(month(0))[0]
    assert np.abs(mean - before).max() > 0.4 * sd.max()
    weighed = other.importance_draws(random_seed=1)["posterior"]
    tree = other.sample(draws=500, random_seed=1, progressbar=False, quiet=True)
    assert "accepted" in tree["sample_stats"]
    # Five standard errors of the draws' effective number.
    for found, ess in ((weighed, weighed.attrs["psis_ess"]), (tree["posterior"], 400)):
        means = np.array([found[name].mean().item() for name in "ab"])
        assert ess >= 100
        assert_array_equal(np.abs(means - mean) < 5 * sd / np.sqrt(ess), True)


def test_draws_of_other_variables_are_not_kept(first):
    other = first.with_model(regression(month(0), centre="middle"))
    assert other.proposal is None
    with refused(CoresetError, "no importance draws", "sample()"):
        other.importance_draws()
    assert pickled(other).certificate is None


def test_priors_may_depend_on_more_variables(first):
    other = first.with_model(regression(month(0), centre="centre"))
    assert {v.name for v in other.model.free_RVs} == {"a", "b", "centre"}


def test_rows_elsewhere_are_read_again_under_other_priors():
    rows = open_rows(month(0))
    head = {name: values[:30] for name, values in month(0).items()}
    coreset = build_coreset(
        regression(head), rows=rows, size=SIZE, random_seed=1, progressbar=False
    )
    other = coreset.with_model(regression(head, prior_sd=0.02, centre="centre"))
    draws = draws_of(month(0), other.weights, other.indices, prior_sd=0.02)
    draws["posterior"] = draws["posterior"].to_dataset().assign(centre=draws["posterior"]["a"])
    assert_allclose(other.log_ratios(draws), coreset.log_ratios(draws), rtol=1e-9)
    with refused(InvalidDataError, "row", "'likelihood'"):
        coreset.with_model(regression(head, noise=2.0))


def changed(name, row, value):
    data = {key: values.copy() for key, values in month(0).items()}
    data[name][row] = value
    return data


@pytest.mark.parametrize(
    ("model", "facts"),
    [
        (regression(month(0), noise=1.01), ("observation 0", "'likelihood'")),
        (regression(changed("y", 1_234, 5.0)), ("observation 1234", "'y'")),
        (regression(changed("x", 7, 5.0)), ("observation 7", "'x'")),
        (regression({n: v[:-1] for n, v in month(0).items()}), ("1,499 observations", "1,500")),
        (regression(month(0), names=("a", "c")), ("'c'", "'b'")),
    ],
)
def test_other_likelihoods_are_refused_by_name(first, model, facts):
    with refused(InvalidDataError, facts):
        first.with_model(model)


def test_models_that_are_none_are_refused(first):
    with refused(InvalidOptionError, "model", "pm.Model"):
        first.with_model("model")
    with refused(UnsupportedModelError, "full model"):
        first.with_model(first.model)
    with refused(CoresetError, "from_netcdf(path, model=...)"):
        replace(first, loglikelihood=None).with_model(regression(month(0)))


# -- new rows --------------------------------------------------------------------------------------


def test_updates_stay_within_the_bound_of_their_ancestry(steps):
    for i, coreset in enumerate(steps):
        data = {"x": X[: i + 1].ravel(), "y": Y[: i + 1].ravel()}
        assert coreset.n_observations == coreset.n_distinct == N * (i + 1)
        assert coreset.size <= SIZE
        assert coreset.ancestry.rows == (N,) * (i + 1)
        assert len(coreset.ancestry.objectives) == i + 1
        # The objective estimates the symmetrised divergence: half of it is either's.
        assert divergence(coreset, data) < max(coreset.ancestry.combined, 1e-6)
        assert divergence(coreset, data) < 0.01
    last = steps[-1]
    assert last.ancestry.combined <= MONTHS * sum(last.ancestry.objectives)
    assert "the previous coreset instead of all others" in " ".join(repr(last.ancestry).split())
    assert "once, from all its rows" in repr(steps[0].ancestry)


def test_rows_keep_their_positions_data_and_weights(steps):
    last = steps[-1]
    assert_array_equal(last.rows["data y"], DATA["y"][last.indices])
    assert_allclose(last.weights.sum(), N * MONTHS, rtol=0.2)
    old = last.indices < N
    assert set(last.indices[old]) <= set(steps[0].indices)
    places = last.rows["where"].values[last.indices >= N * (MONTHS - 1)]
    assert all(str(place).endswith("of the new rows") for place in places)


def test_checks_are_exact_for_new_rows_and_relative_to_the_old_coreset(steps):
    old, new = steps[0], steps[1]
    data = {name: DATA[name][: 2 * N] for name in DATA}
    draws = draws_of(data, new.weights, new.indices)
    a, b = (draws["posterior"][name].to_numpy()[..., None] for name in "ab")
    terms = -0.5 * np.square(data["y"] - a - b * data["x"])
    weights = np.zeros(2 * N)
    weights[N:] = 1.0
    weights[old.indices] = old.weights
    weights[new.indices] -= new.weights
    expected, found = terms @ weights, new.log_ratios(draws)
    assert_allclose(found - found.mean(), expected - expected.mean(), atol=1e-6)
    for use in (new.loo, lambda idata: new.predict(idata, progressbar=False)):
        with refused(CoresetError, "extended", "from_netcdf(path, model, rows=...)"):
            use(draws)


def test_too_few_rows_are_warned_of(first):
    with warned("nats"):
        first.extend(regression(month(1)), size=1, random_seed=1)
    with warned("nats"):
        merge(first, first, size=1, random_seed=1)


def test_what_the_first_coreset_lacks_is_not_forgotten():
    """A fifth of the rows, drawn at random, is far off; all further rows are chosen well."""
    options = {"size": 300, "random_seed": 1, "progressbar": False}
    first = build_coreset(regression(month(0)), method="uniform", **options)
    longer = first.extend(regression(month(1)), size=SIZE, random_seed=1)
    data = {name: DATA[name][: 2 * N] for name in DATA}
    assert divergence(longer, data) > 0.1
    check = longer.check(draws_of(data, longer.weights, longer.indices))
    assert check.negligible
    assert not check.reliable
    assert "off by an unknown divergence" in check.verdict.text
    assert longer.importance_draws(random_seed=1)["posterior"].attrs["level"] == "Doubtful"


def test_rows_alone_that_are_moved_far_are_not_called_reliable(first):
    other = {"x": X[1], "y": 3.0 - Y[1]}
    with warned("Other rows", "standard deviations"):
        longer = first.extend(regression(other), size=SIZE, random_seed=1)
    data = {name: np.concatenate([month(0)[name], other[name]]) for name in other}
    assert not longer.check(draws_of(data, longer.weights, longer.indices)).reliable


def test_coresets_of_rows_alone_that_disagree_are_said_to_when_merged(first):
    other = build_coreset(
        regression({"x": X[1], "y": 3.0 - Y[1]}), size=SIZE, random_seed=1, progressbar=False
    )
    for size in (None, SIZE):
        with warned("Other rows", "standard deviations"):
            merged = merge(first, other, size=size, random_seed=1)
        assert np.isnan(merged.objective)
        assert np.isnan(merged.ancestry.combined)
        assert "disagree" in merged.status


def test_coresets_of_cells_are_not_extended_and_say_so():
    def model():
        with pm.Model(coords={"dog": range(20), "trial": range(30)}) as found:
            y = pm.Data("y", np.ones((20, 30)), dims=("dog", "trial"))
            pm.Normal("z", pm.Normal("mu"), 1.0, observed=y, dims=("dog", "trial"))
        return found

    dim, options = ("dog", "trial"), {"random_seed": 1, "progressbar": False}
    cells = build_coreset(model(), dim=dim, size=20, method="uniform", **options)
    with refused(UnsupportedModelError, "dim=['dog', 'trial']", "integrate=False"):
        cells.extend(model())
    with refused(UnsupportedModelError, "dim=['dog', 'trial']", "integrate=False"):
        merge(cells, cells)


def test_few_rows_are_all_kept(first):
    few = {name: values[:5] for name, values in month(1).items()}
    found = first.extend(regression(few), size=1_000)
    assert found.size == first.size + 5
    assert_array_equal(found.weights[-5:], 1.0)
    assert_array_equal(found.weights[:-5], first.weights)
    # Other priors, and the same rows.
    other = found.with_model(regression(few, prior_sd=0.1))
    assert_array_equal(
        other.loglikelihood.all_rows.positions, found.loglikelihood.all_rows.positions
    )


def test_extended_coresets_are_stored_and_merged(steps, tmp_path):
    steps[2].to_netcdf(tmp_path / "coreset.nc")
    again = Coreset.from_netcdf(tmp_path / "coreset.nc", regression(month(2)))
    assert again.ancestry == steps[2].ancestry
    longer = again.extend(regression(month(3)), size=SIZE, random_seed=3)
    assert_array_equal(longer.indices, steps[3].indices)
    merged = merge(
        again, build_coreset(regression(month(3)), size=SIZE, random_seed=1, progressbar=False)
    )
    assert merged.n_observations == N * MONTHS
    assert divergence(merged) < 0.02


# -- new rows elsewhere ----------------------------------------------------------------------------


HEAD = {name: values[:30] for name, values in month(1).items()}
CHUNKS = [
    {name: values[i : i + 400] for name, values in month(1).items()} for i in range(0, N, 400)
]


@pytest.fixture(scope="module")
def appended(first):
    """The coreset of the first month with the second one, which is read in chunks."""
    return first.extend(regression(HEAD), rows=open_rows(CHUNKS), size=SIZE, random_seed=1)


def test_rows_elsewhere_extend_as_those_in_memory_do(first, steps, appended):
    data = {name: DATA[name][: 2 * N] for name in DATA}
    assert appended.n_observations == appended.n_distinct == 2 * N
    assert appended.size <= SIZE
    assert appended.ancestry.rows == (N, N)
    assert divergence(appended, data) < max(appended.ancestry.combined, 1e-6)
    assert_array_equal(appended.rows["data y"], DATA["y"][appended.indices])
    draws = draws_of(data, appended.weights, appended.indices)
    full = [each.loglikelihood.sums(draws).total for each in (appended, steps[1])]
    assert_allclose(full[0] - full[0].mean(), full[1] - full[1].mean(), atol=1e-8)
    with refused(CoresetError, "extended", "from_netcdf(path, model, rows=...)"):
        appended.loo(draws)


def test_rows_elsewhere_are_extended_and_have_other_priors_in_turn(appended):
    data = {name: DATA[name][: 2 * N] for name in DATA}
    other = appended.with_model(regression(HEAD, prior_sd=0.02, centre="centre"))
    draws = draws_of(data, other.weights, other.indices)
    draws["posterior"] = draws["posterior"].to_dataset().assign(centre=draws["posterior"]["a"])
    assert_allclose(other.log_ratios(draws), appended.log_ratios(draws), rtol=1e-9)
    longer = pickled(appended).extend(regression(month(2)), size=SIZE, random_seed=2)
    assert longer.n_observations == 3 * N
    assert divergence(longer, {name: DATA[name][: 3 * N] for name in DATA}) < 0.01


def test_weights_of_rows_elsewhere_count(first):
    few = {name: values[:5] for name, values in month(1).items()}
    rows = open_rows(few | {"copies": np.full(5, 3.0)}, weight="copies")
    found = first.extend(regression(HEAD), rows=rows, size=1_000, random_seed=1)
    assert found.size == first.size + 5
    assert (found.n_observations, found.n_distinct) == (N + 15, N + 5)
    assert_array_equal(found.weights[-5:], 3.0)


def test_samples_of_old_and_new_rows_have_the_right_mean(appended):
    """Of multinomial sums: their variance is (W sum u x^2 - (sum u x)^2) / size."""
    source, size, keys = appended.loglikelihood.source, 40, range(400)
    every = appended.loglikelihood.all_rows
    x, u = every.arrays[0], every.case_weights
    sums = []
    for key in keys:
        subsample = source.subsample(size, key=key)
        assert_allclose(subsample.weights.sum(), source.total_weight)
        sums.append(subsample.weights @ subsample.rows.arrays[0])
    se = np.sqrt((u.sum() * u @ x**2 - (u @ x) ** 2) / size / len(keys))
    assert abs(np.mean(sums) - u @ x) < 4 * se
    assert abs(np.std(sums) / se / np.sqrt(len(keys)) - 1) < 4 / np.sqrt(2 * len(keys))
    distinct = source.subsample(size, key=1, distinct=True)
    assert len(distinct.rows) == size
    assert_allclose(distinct.weights.sum(), source.total_weight)


def test_what_are_no_rows_is_refused(first):
    with refused(InvalidOptionError, "rows is a dict", "open_rows(...)"):
        first.extend(regression(HEAD), rows=month(1))
    with refused(InvalidDataError, "another prior"):
        first.extend(regression(HEAD, prior_sd=1.0), rows=open_rows(CHUNKS))


@pytest.mark.parametrize(
    ("model", "error", "facts", "topic"),
    [
        (
            regression(month(1), prior_sd=1.0),
            InvalidDataError,
            "another prior",
            "the-data-and-the-model",
        ),
        (
            regression(month(1), noise=2.0),
            InvalidDataError,
            "another likelihood",
            "the-data-and-the-model",
        ),
        (
            regression(month(1), names=("a", "c")),
            InvalidDataError,
            "other free variables",
            "coresets-in-files",
        ),
        ("model", InvalidOptionError, ("model is a str", "pm.Model"), "arguments"),
    ],
)
def test_incompatible_models_are_refused(first, model, error, facts, topic):
    with refused(error, facts, topic=topic):
        first.extend(model)


def test_rows_that_are_given_again_are_said_to_count_twice(first):
    with warned("20 rows", "twice"):
        assert first.extend(first.full_model, size=40, random_seed=1).n_observations == 2 * N


def test_what_is_shown_has_the_errors_of_earlier_rows(steps):
    shown = str(steps[-1])
    assert f"and up to {steps[-1].ancestry.earlier:.3g} of earlier rows" in " ".join(shown.split())


def test_rows_of_an_earlier_update_are_said_to_count_twice(steps, tmp_path):
    steps[-1].to_netcdf(tmp_path / "coreset.nc")
    stored = Coreset.from_netcdf(tmp_path / "coreset.nc", regression(HEAD))
    both = {name: np.concatenate([month(0)[name], [0.5]]) for name in month(0)}
    with warned("rows 0 to 1,499", "20 are", "twice"):
        stored.extend(regression(both), size=SIZE, random_seed=1)
    with warned("rows 3,000 to 4,499", "20 are", "twice"):
        steps[-1].extend(regression(HEAD), rows=open_rows(month(2)), size=SIZE, random_seed=1)


def test_old_rows_are_found_wherever_they_are_among_new_ones(limits):
    """Also a part of them; and of coresets of one or two rows, whose model has one variable."""
    limits(known_rows=128)
    rng = np.random.default_rng(1)
    old, new = rng.normal(size=600), rng.normal(size=300)

    def model_of(values):
        with pm.Model() as model:
            pm.Normal("l", pm.Normal("mu"), 1.0, observed=pm.Data("y", values))
        return model

    coreset = build_coreset(model_of(old), random_seed=1, progressbar=False)
    assert coreset.size <= 2
    for values, n_found in ((np.r_[new, old], 20), (np.r_[new, old[300:]], 10)):
        with warned("rows 0 to 599", f"{n_found} are", "twice"):
            coreset.extend(model_of(values), random_seed=1)
    coreset.extend(model_of(new), random_seed=1)


def test_equal_rows_of_few_kinds_are_not_said_to_count_twice():
    """All rows of one half are at the places of equal ones of the other, as of most others."""
    half = {"x": np.repeat([0.0, 1.0], 500), "y": np.tile([0.0, 1.0], 500)}
    coreset = build_coreset(regression(half), size=4, random_seed=1, progressbar=False)
    assert coreset.extend(regression(half), size=8, random_seed=1).n_observations == 2_000


def test_rows_that_do_not_fit_are_refused(first):
    with pm.Model() as model:
        x, y = pm.Data("x", np.ones((30, 2))), pm.Data("y", Y[1, :30])
        a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, 2)
        pm.Normal("likelihood", a + b * x[:, 0], 1.0, observed=y)
    with refused(InvalidDataError, "'x'"):
        first.extend(model)
    with refused(InvalidDataError, "observation 3", "NaN"):
        first.extend(regression(changed("x", 3, np.inf)))
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), 1.0, observed=Y[0])
    coreset = build_coreset(model, size=5, method="uniform", random_seed=1, progressbar=False)
    with refused(UnsupportedModelError, "not in any pm.Data", "pm.Data('x', x)"):
        coreset.extend(model)


def test_options_out_of_range_are_refused(first):
    model = regression(month(1))
    for options in ({"size": 0}, {"random_seed": "a"}, {"method": "giga"}):
        with refused(InvalidOptionError, f"{next(iter(options))}="):
            first.extend(model, **options)
    assert first.extend(model, method=RiemannianPursuit(tolerance=0.5), random_seed=1).size <= SIZE
