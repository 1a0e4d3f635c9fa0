"""Rows that are normal in one predictor: a quadratic of all of them that is exact."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

from pymc_coresets import Coreset, build_coreset, open_rows
from pymc_coresets.glm.predictor.finding import find_interface, find_predictors, interface_of
from pymc_coresets.glm.predictor.parabolas import derivatives_of, in_widths
from pymc_coresets.glm.predictor.predictors import RowsInMemory
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood

_rng = np.random.default_rng(5)
N, N_ONE, N_OTHER = 3_000, 25, 15
ONE, OTHER = _rng.integers(0, N_ONE, N), _rng.integers(0, N_OTHER, N)
X = _rng.normal(size=N)
SIZES = _rng.uniform(0.5, 2.0, N)
Y = 3 + _rng.normal(size=N_ONE)[ONE] + _rng.normal(size=N_OTHER)[OTHER] + _rng.normal(size=N)
DATA = {"y": Y, "x": X, "one": ONE, "other": OTHER}


def crossed(data=DATA):
    """Two crossed factors, one of which is not centred."""
    with pm.Model() as model:
        y, x, one, other = (pm.Data(name, values) for name, values in data.items())
        a = pm.Normal("a", 0, pm.HalfNormal("sd_a", 1), shape=N_ONE)
        b = pm.Normal("b", shape=N_OTHER) * pm.HalfNormal("sd_b", 1)
        mean = pm.Normal("mean", 0, 5) + a[one] + b[other] + pm.Normal("slope") * x
        pm.Normal("likelihood", mean + 0.5 * x, pm.HalfNormal("s", 2), observed=y)
    return model


def with_rows(write):
    with pm.Model() as model:
        write(pm.Normal("c") + pm.Normal("b") * X)
    return find_observations(model)


def normal(mean):
    pm.Normal("y", mean, pm.HalfNormal("s"), observed=Y)


def log_normal(mean):
    pm.LogNormal("y", mean, pm.Gamma("s", 2, 2), observed=np.exp(Y))


def of_two_scales(mean):
    width = pm.math.sqrt(pm.HalfNormal("s") ** 2 + pm.HalfNormal("t") ** 2)
    pm.Normal("y", mean, width, observed=Y)


def with_known_errors(mean):
    pm.Normal("y", mean, pm.math.sqrt(pm.HalfNormal("s") ** 2 + SIZES**2), observed=Y)


def of_known_width(mean):
    pm.Normal("y", mean, 1.0, observed=Y)


def student(mean):
    pm.StudentT("y", 4, mu=mean, sigma=pm.HalfNormal("s"), observed=Y)


def rarely_censored(mean):
    pm.Censored("y", pm.Normal.dist(mean, pm.HalfNormal("s")), None, Y.max(), observed=Y)


def draws_of(observations, n=40):
    space = observations.space
    points = space.start + np.random.default_rng(1).normal(0, 1.5, (n, space.n_dims))
    return space.constrain(points)


def away_from_all_rows(quadratic, loglik, draws):
    """Return by how many nats a quadratic differs from all rows, apart from a constant."""
    away = quadratic.at_draws(loglik.observations, draws) - loglik.sums(draws).total
    return away - away[0]


@pytest.mark.parametrize("write", [normal, log_normal, of_two_scales])
def test_rows_of_any_width_are_quadratic(write):
    observations = with_rows(write)
    found = find_interface(observations)
    assert found.is_quadratic
    assert found.n_seen == 3


@pytest.mark.parametrize("write", [with_known_errors, of_known_width, student, rarely_censored])
def test_others_are_not(write):
    found = find_predictors(with_rows(write))
    assert in_widths(found) is None
    assert not find_interface(found.observations).is_quadratic


def test_a_single_row_of_another_kind_is_seen():
    sizes = np.zeros(N)
    sizes[137] = 1.0

    def write(mean):
        width = pm.math.sqrt(pm.HalfNormal("s") ** 2 + sizes**2)
        pm.Normal("y", mean, width, observed=Y)

    assert not find_interface(with_rows(write)).is_quadratic


def test_slopes_and_curvatures_are_those_of_the_density():
    rows = RowsInMemory(find_interface(with_rows(normal)), np.arange(N), np.ones(N))
    rng = np.random.default_rng(1)
    here, away = rng.uniform(0.5, 1.5, (3, N)), rng.normal(size=(3, N))
    here[:2], away[:2] = here[:2, :1], away[:2, :1]  # which rows share
    slopes, curvatures = derivatives_of(rows, here)
    before, after = rows.density(np.stack([here, here + away], axis=1), compiled=False)
    moved = (slopes * away).sum(axis=0) + np.einsum("an,abn,bn->n", away, curvatures, away) / 2
    assert_allclose(after - before, moved, atol=1e-10)


@pytest.fixture(scope="module")
def coreset():
    return build_coreset(crossed(), random_seed=1, progressbar=False)


def test_the_quadratic_beside_few_rows_is_exact(coreset):
    assert coreset.method == "control_variates"
    assert coreset.size == 40
    assert_allclose(coreset.weights, 1.0)
    assert coreset.objective < 1e-12
    loglik = coreset.loglikelihood
    draws = draws_of(loglik.observations)
    rows = loglik.source.at(coreset.indices)
    own = loglik.matrix(draws, rows).sum(axis=0)
    away = away_from_all_rows(coreset.quadratic, loglik, draws) + own - own[0]
    assert_allclose(away, 0.0, atol=1e-5)


def test_draws_have_the_moments_of_the_exact_posterior(coreset):
    idata = coreset.sample(draws=1_000, chains=4, random_seed=2, progressbar=False)
    found = idata["posterior"].to_dataset().stack(sample=("chain", "draw"))
    scales = np.stack([found[name].to_numpy() for name in ("sd_a", "sd_b", "s")], axis=1)
    expected = np.mean([given_scales(*own) for own in scales[::10]], axis=0)
    names = ("mean", "slope")
    means = np.array([found[name].mean() for name in names])
    # The average of conditional means has no noise but that of the scales' draws.
    sds = np.array([found[name].std() for name in names])
    assert (np.abs(means - expected) < 5 * sds / np.sqrt(1_000)).all()


def given_scales(sd_a, sd_b, s):
    """Return mean and slope, given the scales, by generalised least squares."""
    design = np.c_[np.ones(N), X]
    levels = np.c_[sd_a * np.eye(N_ONE)[ONE], sd_b * np.eye(N_OTHER)[OTHER]]
    together = np.c_[design, levels]
    precision = together.T @ together / s**2
    precision += np.diag(np.r_[1 / 25, 1.0, np.ones(levels.shape[1])])
    return np.linalg.solve(precision, together.T @ (Y - 0.5 * X) / s**2)[:2]


def test_a_coreset_is_read_from_a_file(coreset, tmp_path):
    coreset.to_netcdf(tmp_path / "coreset.nc")
    read = Coreset.from_netcdf(tmp_path / "coreset.nc", crossed())
    observations = read.loglikelihood.observations
    draws = draws_of(observations, 5)
    assert_allclose(
        read.quadratic.at_draws(observations, draws),
        coreset.quadratic.at_draws(coreset.loglikelihood.observations, draws),
        rtol=1e-9,
    )


def test_coefficients_of_earlier_versions_are_put_back():
    observations = find_observations(crossed())
    before = find_predictors(observations)
    assert not interface_of(observations, before.names).is_quadratic
    assert interface_of(observations).is_quadratic


def test_rows_elsewhere_have_the_same_quadratic(coreset):
    few = {name: values[:60] for name, values in DATA.items()}
    found = build_coreset(crossed(few), rows=open_rows(DATA), random_seed=1, progressbar=False)
    loglik = LogLikelihood(find_observations(crossed()))
    assert found.size == 40
    assert found.objective < 1e-12
    assert found.quadratic.names == coreset.quadratic.names
    draws = draws_of(loglik.observations, 5)
    both = [
        each.quadratic.at_draws(each.loglikelihood.observations, draws)
        + each.loglikelihood.matrix(draws, rows_of(each)).sum(axis=0)
        for each in (found, coreset)
    ]
    assert_allclose(both[0] - both[0][0], both[1] - both[1][0], rtol=1e-9, atol=1e-6)


def rows_of(coreset):
    return coreset.loglikelihood.source.at(coreset.indices)
