"""Stored draws of units' variables, by closed forms of their distributions given shared ones."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy.special import expit

from pymc_coresets import InvalidDataError, build_coreset
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.sampling.units import stored_draws
from pymc_coresets.sampling.units.stored_draws import judged_units
from tests.models.units import nodes_at, read
from tests.refusals import refused

N_LEVELS, SHAPE = 20, (4, 500)
LEVEL = np.repeat(np.arange(N_LEVELS), 3)
COUNTS = np.random.default_rng(1).poisson(2.0, size=LEVEL.size)
TOTAL = np.bincount(LEVEL, COUNTS)
VALUES = np.random.default_rng(2).normal(size=LEVEL.size)


def dataset(**draws):
    own = {n: (("chain", "draw", *"ij"[: v.ndim - 2]), v) for n, v in draws.items()}
    return xr.Dataset(own)


def gammas(seed=3):
    """Poisson counts with gamma rates: the rates are gamma variables given the data."""
    with pm.Model() as model:
        rate = pm.Exponential("rate", 1.0)
        z = pm.Gamma("z", 2.0, rate, shape=N_LEVELS)
        pm.Poisson("y", z[LEVEL], observed=COUNTS)
    rng = np.random.default_rng(seed)
    rate = rng.gamma(20.0, 1 / 20.0, SHAPE)
    return model, {"rate": rate, "z": rng.gamma(2.0 + TOTAL, 1 / (rate[..., None] + 3))}


def normals(seed=3, n_levels=N_LEVELS):
    """Normal means of levels with normal outcomes, around a shared mean of which they tell."""
    level, y = (np.repeat(np.arange(n_levels), 3), np.resize(VALUES, 3 * n_levels))
    with pm.Model() as model:
        z = pm.Normal("z", pm.Normal("mean"), 0.5, shape=n_levels)
        pm.Normal("y", z[level], 1.0, observed=y)
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=SHAPE)
    middle = (4 * mean[..., None] + np.bincount(level, y)) / 7
    return model, {"mean": mean, "z": middle + rng.normal(size=middle.shape) / np.sqrt(7)}


def pairs(seed=3):
    """Intercept and slope of each level: normal with a covariance given the data."""
    x = np.tile([0.0, 1.0, 2.0], N_LEVELS)
    with pm.Model() as model:
        z = pm.Normal("z", pm.Normal("mean"), 1.0, shape=(N_LEVELS, 2))
        pm.Normal("y", z[LEVEL, 0] + z[LEVEL, 1] * x, 1.0, observed=VALUES)
    rng = np.random.default_rng(seed)
    mean, design = rng.normal(size=SHAPE), np.stack([np.ones(3), np.arange(3.0)], axis=1)
    covariance = np.linalg.inv(np.eye(2) + design.T @ design)
    of_data = VALUES.reshape(-1, 3) @ design
    middle = (mean[..., None, None] + of_data) @ covariance
    noise = rng.normal(size=middle.shape) @ np.linalg.cholesky(covariance).T
    return model, {"mean": mean, "z": middle + noise}


def classes(seed=3):
    """Classes of levels with normal outcomes about 0 or 1."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", pm.Beta("p", 2, 2), shape=N_LEVELS)
        pm.Normal("y", pt.cast(z[LEVEL], "float64"), 1.0, observed=VALUES)
    rng = np.random.default_rng(seed)
    p = rng.beta(5, 5, SHAPE)
    odds = np.log(p / (1 - p))[..., None] + np.bincount(LEVEL, VALUES - 0.5)
    return model, {"p": p, "z": (rng.random(odds.shape) < expit(odds)).astype(np.int64)}


def judged(model, draws):
    return judged_units(LogLikelihood(nodes_at(read(model, "z"), 3)), dataset(**draws))


@pytest.mark.parametrize("case", [gammas, normals, pairs, classes])
@pytest.mark.parametrize("seed", range(3))
def test_exact_draws_are_not_noticeable(case, seed):
    found = judged(*case(seed))
    assert not found.deviation.is_noticeable
    assert found.copies.share == 0.0
    assert found.constant == ""


def of_level(change, which=3):
    def changed(z):
        z = z.copy()
        z[:, :, which] = change(z[:, :, which])
        return z

    return changed


def moved(by):
    return lambda z: z + by * z.std(axis=(0, 1))


def narrower(by):
    return lambda z: z.mean(axis=(0, 1)) + by * (z - z.mean(axis=(0, 1)))


@pytest.mark.parametrize(
    ("case", "change", "where"),
    [
        (gammas, of_level(moved(0.3)), "z[3]"),
        (gammas, lambda z: 1.05 * z, "z"),
        (gammas, lambda z: z[:, :, ::-1], None),
        (normals, of_level(moved(0.3)), "z[3]"),
        (normals, of_level(narrower(0.7)), "z[3]"),
        (normals, narrower(0.9), "z"),
        (normals, moved(0.1), "z"),
        (normals, lambda z: z[:, ::-1], None),  # they do not belong to these shared variables
        (normals, of_level(lambda z: z[:, ::-1]), "z[3]"),
        (pairs, lambda z: z + np.array([0.0, 0.1]), None),
        (pairs, lambda z: np.stack([z[..., 0], z[:, ::-1, :, 1]], axis=-1), None),
        (classes, lambda z: 1 - z, None),
        (classes, of_level(lambda z: 1 - z), "z[3]"),
        (classes, of_level(lambda z: 0 * z), "z[3]"),
    ],
)
def test_altered_draws_are_noticeable(case, change, where):
    model, draws = case()
    deviation = judged(model, draws | {"z": change(draws["z"])}).deviation
    assert deviation.is_noticeable
    assert where is None or deviation.where == where


@pytest.mark.parametrize("which", [3, 57])
def test_a_few_draws_show_which_of_many_units_to_compare(monkeypatch, which):
    """Twelve of sixty units are compared at all draws, six of them by what they look like."""
    monkeypatch.setattr(stored_draws, "_EVALUATIONS", 5 * 3 * 6 * 2 * stored_draws._DRAWS)
    monkeypatch.setattr(stored_draws, "_FEWEST_FIRST", 200)
    model, draws = normals(n_levels=60)
    assert not judged(model, draws).deviation.is_noticeable
    altered = of_level(moved(0.4), which)(draws["z"])
    assert judged(model, draws | {"z": altered}).deviation.where == f"z[{which}]"


def test_copies_of_a_unit_are_found():
    model, draws = normals()
    z = draws["z"].copy()
    z[1, :, 5] = z[0, :, 5]
    share, where = judged(model, draws | {"z": z}).copies
    assert share == pytest.approx(0.25, abs=0.01)
    assert where == "z[5]"


def test_a_unit_that_does_not_move_is_found():
    model, draws = normals()
    assert judged(model, draws | {"z": of_level(lambda z: 0 * z)(draws["z"])}).constant == "z[3]"


def test_draws_without_all_levels_are_not_compared():
    model, draws = normals()
    loglik = LogLikelihood(nodes_at(read(model, "z"), 3))
    assert judged_units(loglik, dataset(mean=draws["mean"])) is None
    assert judged_units(loglik, dataset(mean=draws["mean"], z=draws["z"][:, :, :2])) is None


def test_impossible_draws_are_off_by_infinitely_many_standard_errors():
    model, draws = gammas()
    z = of_level(lambda z: 0 * z - 1.0 - draws["rate"])(draws["z"])
    found = judged(model, draws | {"z": z}).deviation
    assert found.size == np.inf
    assert found.where == "z[3]"


def test_a_single_chain_is_cut_into_two():
    model, draws = normals()
    first = {name: own[:1, :499] for name, own in draws.items()}
    assert not judged(model, first).deviation.is_noticeable
    assert judged(model, first | {"z": moved(0.3)(first["z"])}).deviation.is_noticeable


def test_a_check_covers_the_variables_of_units():
    model, _ = normals(n_levels=60)
    coreset = build_coreset(model, integrate="z", method="exact", random_seed=1, progressbar=False)
    rng, means = np.random.default_rng(4), np.resize(VALUES, (60, 3)).mean(axis=1)
    precision = 1 + 60 / (1 / 4 + 1 / 3)  # of the shared mean given all levels
    center = 60 * means.mean() / (1 / 4 + 1 / 3) / precision
    mean = center + rng.normal(size=(4, 500)) / np.sqrt(precision)
    z = (4 * mean[..., None] + 3 * means) / 7 + rng.normal(size=(4, 500, 60)) / np.sqrt(7)

    def altered(z):
        return coreset.check(xr.DataTree.from_dict({"posterior": dataset(mean=mean, z=z)})).verdict

    assert altered(z).level.reliable
    verdict = altered(of_level(moved(0.5))(z))
    assert verdict.reason == "foreign"
    assert "along z[3]" in verdict.text
    verdict = altered(of_level(lambda z: np.concatenate([z[:1], z[:1], z[2:]]))(z))
    assert verdict.reason == "copied"
    assert "of the draws of z[3] are copies" in verdict.text
    assert altered(of_level(lambda z: 0 * z)(z)).reason == "constant"
    with refused(InvalidDataError, "NaN", topic="draws"):
        altered(z * np.nan)
