"""Posteriors that are normal given a few scales: against grids of the scales."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_allclose
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.stats import halfnorm, multivariate_t

import pymc_coresets as pmc
from pymc_coresets import InvalidDataError, Level, UnsupportedModelError
from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.glm.control_variates.hierarchy import ConditionalGaussian
from pymc_coresets.glm.given_scales.exact_draws import (
    _modes_of_scales,
    _posterior_of,
    drawn_given_scales,
    has_scales,
    may_be_normal,
)
from pymc_coresets.glm.given_scales.kernel_mixture import KernelMixture
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.normal import heavy_tailed
from tests.derived import likelihood_of
from tests.modes import PLAIN_MODE
from tests.refusals import refused

# -- Linear mixed models: exact draws, by the marginal posterior of the scales and conditionals. ---

RNG = np.random.default_rng(1)
N = 240
STUDENT, LECTURER = RNG.integers(40, size=N), RNG.integers(9, size=N)
CLASS_OF = RNG.integers(40, size=N)
SCHOOL = np.arange(40) // 5
X = RNG.normal(size=N)
NOISE = RNG.normal(size=N)
CROSSED = 3 + RNG.normal(0, 0.6, 40)[STUDENT] + RNG.normal(0, 0.8, 9)[LECTURER] + 0.3 * X + NOISE
NESTED = 1 + RNG.normal(0, 0.7, 8)[SCHOOL[CLASS_OF]] + RNG.normal(0, 0.6, 40)[CLASS_OF] + NOISE


def crossed():
    """Students and lecturers, these not centred; and a slope."""
    with pm.Model() as model:
        own = pm.Normal("own", 0, pm.HalfNormal("sd_own", 1), shape=40)
        taught = pm.Normal("taught", shape=9) * pm.HalfNormal("sd_taught", 1)
        mean = pm.Normal("mean", 0, 2) + own[STUDENT] + taught[LECTURER] + pm.Normal("slope") * X
        pm.Normal("y", mean, pm.HalfNormal("s", 2), observed=CROSSED)
    return model


def nested():
    """Classes around their school's mean, which is around that of all."""
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 2)
        school = pm.Normal("school", mean, pm.HalfNormal("sd_school", 1), shape=8)
        own = pm.Normal("own", school[SCHOOL], pm.HalfNormal("sd_own", 1), shape=40)
        pm.Normal("y", own[CLASS_OF], pm.HalfNormal("s", 2), observed=NESTED)
    return model


def one_hot(levels, n):
    return np.eye(n)[levels]


#: Of each model: outcomes, columns of the designs by variable, and their scale.
DENSE = {
    crossed: (
        CROSSED,
        {
            "own": (one_hot(STUDENT, 40), "sd_own"),
            "taught": (one_hot(LECTURER, 9), "sd_taught"),
            "mean": (2 * np.ones((N, 1)), None),
            "slope": (X[:, None], None),
        },
        {"sd_own": 1, "sd_taught": 1, "s": 2},
    ),
    nested: (
        NESTED,
        {
            "own": (one_hot(CLASS_OF, 40), "sd_own"),
            "school": (one_hot(SCHOOL[CLASS_OF], 8), "sd_school"),
            "mean": (2 * np.ones((N, 1)), None),
        },
        {"sd_own": 1, "sd_school": 1, "s": 2},
    ),
}


def log_marginal(build, scales):
    """Return the log-density of logarithms of the scales, by the dense covariance of outcomes."""
    y, parts, priors = DENSE[build]
    cov = scales["s"] ** 2 * np.eye(N)
    for design, scale in parts.values():
        cov += (1.0 if scale is None else scales[scale]) ** 2 * design @ design.T
    prior = sum(
        halfnorm(scale=sd).logpdf(scales[name]) + np.log(scales[name])
        for name, sd in priors.items()
    )
    factor, _ = root = cho_factor(cov)
    return prior - np.log(factor.diagonal()).sum() - y @ cho_solve(root, y) / 2


@pytest.fixture(scope="module", params=[crossed, nested], ids=["crossed", "nested"])
def posterior(request):
    model = request.param()
    loglik = likelihood_of(model)
    found = _posterior_of(loglik, rng=np.random.default_rng(1))
    assert found is not None
    return request.param, model, loglik, found


def scales_at(found, logs):
    """Return the scales by name."""
    hierarchy, space = found.near.hierarchy, found.rest.space
    numbers = np.flatnonzero(hierarchy.is_scale)
    names = {int(own): name for name, own in space.columns.items() if np.size(own) == 1}
    return {names[int(number)]: np.exp(value) for number, value in zip(numbers, logs, strict=True)}


def test_the_marginal_of_the_scales_is_that_of_the_dense_covariance(posterior):
    build, _, _, found = posterior
    near = found.near
    assert set(scales_at(found, near.scales.location)) == set(DENSE[build][2])
    points = near.scales.location + np.random.default_rng(2).uniform(-1, 1, (6, 3))
    own = near.log_marginals(points)
    expected = [log_marginal(build, scales_at(found, point)) for point in points]
    assert_allclose(own - own[0], np.array(expected) - expected[0], atol=1e-7)


def prior_and_design(build, scales):
    """Return names of the normal variables, their prior covariance, and the outcomes' design."""
    if build is crossed:
        names = ["own", "taught", "mean", "slope"]
        sds = [np.full(40, scales["sd_own"]), np.ones(9), [2.0], [1.0]]
        parts = DENSE[crossed][1]
        design = [
            parts["own"][0], scales["sd_taught"] * parts["taught"][0], np.ones((N, 1)), X[:, None]
        ]  # fmt: skip
        return names, np.diag(np.concatenate(sds) ** 2), np.hstack(design)
    of_school = np.hstack([np.zeros((8, 40)), np.eye(8), np.ones((8, 1))])
    of_own = np.hstack([np.eye(40), of_school[SCHOOL, 40:]])
    of_mean = np.eye(49)[48:]
    by = np.vstack([of_own, of_school, of_mean])  # what they are made of
    sds = np.concatenate([np.full(40, scales["sd_own"]), np.full(8, scales["sd_school"]), [2.0]])
    return ["own", "school", "mean"], (by * sds**2) @ by.T, np.eye(49)[:40][CLASS_OF]


def test_effects_given_the_scales_have_the_mean_and_covariance_of_dense_algebra(posterior):
    build, _, _, found = posterior
    near, hierarchy = found.near, found.near.hierarchy
    scales = scales_at(found, near.scales.location)
    names, prior, design = prior_and_design(build, scales)
    precision = np.linalg.inv(prior) + design.T @ design / scales["s"] ** 2
    mean = np.linalg.solve(precision, design.T @ DENSE[build][0] / scales["s"] ** 2)
    place = np.cumsum(~hierarchy.is_scale) - 1
    columns = found.rest.space.columns
    order = place[np.concatenate([np.ravel(columns[name]) for name in names])]
    assert_allclose(near.given_mode.location[order], mean, atol=1e-8)
    covariance = near.given_mode.covariance[np.ix_(order, order)]
    assert_allclose(covariance, np.linalg.inv(precision), atol=1e-9)


def test_it_differs_from_the_models_density_by_a_constant(posterior):
    _, model, _, found = posterior
    points, _ = found.near.draw(30, rng=np.random.default_rng(3))
    log_density, space = model.compile_logp(mode=PLAIN_MODE), found.rest.space
    expected = np.array([float(log_density(space.point(x))) for x in points])
    assert np.var(expected - found.log_density(points)) < 1e-15


def test_draws_have_the_means_and_widths_of_the_scales_marginal(posterior):
    build, _, loglik, _ = posterior
    found = drawn_given_scales(loglik, rng=np.random.default_rng(4))
    assert found.is_certified
    values = found.proposal.draws.values
    # The exact moments by importance weights of a wider distribution of the scales.
    names = list(DENSE[build][2])
    logs = np.log(np.stack([values[name] for name in names], axis=1))
    weights = np.exp(found.proposal.log_ratios - found.proposal.log_ratios.max())
    weights /= weights.sum()
    middle = weights @ logs
    spread = np.linalg.cholesky(np.cov(logs.T, aweights=weights))
    wide = heavy_tailed(middle, np.linalg.inv(1.2 * spread).T)
    tried, logq = wide.draw(700, rng=np.random.default_rng(5))
    heights = [log_marginal(build, dict(zip(names, np.exp(point), strict=True))) for point in tried]
    exact = np.exp(np.array(heights) - logq - np.max(heights - logq))
    exact /= exact.sum()
    sds = np.sqrt(exact @ np.square(tried - exact @ tried))
    assert_allclose(middle, exact @ tried, atol=0.2 * sds.max())
    own_sds = np.sqrt(weights @ np.square(logs - middle))
    assert_allclose(own_sds, sds, rtol=0.15)


def test_one_call_draws_all_variables_without_a_coreset():
    model = crossed()
    idata = pmc.sample(model, random_seed=1, progressbar=False, draws=200)
    assert idata.attrs["level"] == Level.RELIABLE
    assert set(idata["posterior"].data_vars) == {v.name for v in model.free_RVs}
    assert "coreset" not in idata.children
    assert idata["posterior"]["own"].shape == (4, 200, 40)


@pytest.mark.parametrize(
    ("wanted", "at_least", "at_most"),
    [pytest.param(2_500, 2_500, 5_000, marks=pytest.mark.slow), (50, 1_000, 2_400)],
)
def test_of_few_rows_there_are_as_many_independent_draws_as_wanted(wanted, at_least, at_most):
    loglik = likelihood_of(crossed())
    found = drawn_given_scales(loglik, rng=np.random.default_rng(2), wanted=wanted)
    assert at_least <= found.certificate.ess <= found.certificate.n_draws <= at_most


@pytest.fixture(scope="module")
def drawn():
    """A model with deterministics along its few rows, and draws of it."""
    with pm.Model() as model:
        own = pm.Normal("own", 0, pm.HalfNormal("sd_own", 1), shape=40)
        eta = pm.Deterministic("eta", own[STUDENT])
        pm.Normal("y", eta, pm.HalfNormal("s", 2), observed=pm.Data("outcomes", CROSSED))
    of_numpy = {"tolerance": np.float32(0.02), "collapse": np.True_}
    options = {"random_seed": np.random.default_rng(1), "progressbar": False}
    return model, pmc.sample(model, draws=50, chains=2, **options, **of_numpy)


@pytest.mark.filterwarnings(
    "ignore:The data are 240 observations for 42 free:pymc_coresets.CoresetWarning"
)
def test_variables_along_few_rows_are_drawn_later_as_it_is_said(drawn):
    model, idata = drawn
    coreset, again = pmc.coreset_of(idata, model), pmc.coreset_of(idata, model)
    assert_allclose(coreset.weights, again.weights)  # though the generator has no seed
    found = coreset.predict(idata, var_names=["eta"], kind="draws")["posterior_predictive"]["eta"]
    assert_allclose(found, idata["posterior"]["own"].to_numpy()[..., STUDENT])


def test_a_coreset_of_such_draws_is_not_that_of_another_model(drawn):
    model, idata = drawn
    other = idata.copy()
    other["posterior"] = xr.DataTree(idata["posterior"].to_dataset().drop_vars("own"))
    with refused(InvalidDataError, "'own'", "(40,)", topic="draws"):
        pmc.coreset_of(other, model)
    pm.set_data({"outcomes": CROSSED + 1}, model)
    with refused(InvalidDataError, "'y'", "observations", topic="draws"):
        pmc.coreset_of(idata, model)
    pm.set_data({"outcomes": CROSSED}, model)


@pytest.mark.parametrize(("sd", "nu", "what"), [(2, 1.0, "priors"), (1, 2.0, "likelihood")])
def test_a_coreset_of_such_draws_is_not_that_of_other_densities(drawn, sd, nu, what):
    with pm.Model() as model:
        own = pm.Normal("own", 0, pm.HalfNormal("sd_own", sd), shape=40)
        eta = pm.Deterministic("eta", nu * own[STUDENT])
        pm.Normal("y", eta, pm.HalfNormal("s", 2), observed=pm.Data("outcomes", CROSSED))
    with refused(InvalidDataError, what, topic="draws"):
        pmc.coreset_of(drawn[1], model)


def observed_by(likelihood):
    with pm.Model() as model:
        own = pm.Normal("own", 0, pm.HalfNormal("sd_own", 1), shape=40)
        likelihood(pm.Normal("mean", 0, 2) + own[STUDENT])
    return model


NOT_NORMAL = {
    "counts": lambda eta: pm.Poisson("y", pm.math.exp(eta), observed=STUDENT),
    "tails": lambda eta: pm.StudentT("y", 4, mu=eta, sigma=1.0, observed=CROSSED),
    "curved": lambda eta: pm.Normal("y", pm.math.sin(eta), 1.0, observed=CROSSED),
}


@pytest.mark.parametrize("likelihood", NOT_NORMAL.values(), ids=NOT_NORMAL)
def test_other_rows_are_recognised_before_anything_is_compiled(likelihood):
    assert not may_be_normal(find_observations(observed_by(likelihood)))


OTHER_PRIORS = {
    "tails": lambda: pm.StudentT("own", 4, sigma=pm.HalfNormal("sd_own", 1), shape=40),
    "far tails": lambda: pm.Cauchy("own", 0, 1e3, shape=40),
    "far modes": lambda: pm.NormalMixture("own", [0.7, 0.3], mu=[0, 100], sigma=1, shape=40),
    "folded": lambda: pm.math.abs(
        pm.Normal("mean", 0, 10, initval=10) + pm.Normal("own", 0, 0.1, shape=40)
    ),
}


@pytest.mark.parametrize("prior", OTHER_PRIORS.values(), ids=OTHER_PRIORS)
def test_what_is_not_normal_given_the_scales_far_away_is_refused(prior):
    with pm.Model() as model:
        pm.Normal("y", prior()[STUDENT], pm.HalfNormal("s", 2), observed=CROSSED)
    loglik = likelihood_of(model)
    with refused(UnsupportedModelError, "normal", topic="regressions"):
        drawn_given_scales(loglik, rng=np.random.default_rng(1))


NORMAL = {
    "groups": lambda eta: pm.Normal(
        "y", eta, pm.HalfNormal("s", 2, shape=3)[LECTURER % 3], observed=CROSSED
    ),
    "known multiples": lambda eta: pm.Normal(
        "y", eta, pm.HalfNormal("s", 2) * np.exp(X), observed=CROSSED
    ),
    "logarithms": lambda eta: pm.LogNormal(
        "y", eta, pm.HalfNormal("s", 2), observed=np.exp(CROSSED)
    ),
    "far from zero": lambda eta: pm.Normal(
        "y", 1e5 + 1e3 * eta, pm.HalfNormal("s", 2_000), observed=1e5 + 1e3 * CROSSED
    ),
}


@pytest.mark.parametrize(
    "likelihood",
    [
        pytest.param(v, id=n, marks=[pytest.mark.slow] * (n in ("logarithms", "known multiples")))
        for n, v in NORMAL.items()
    ],
)
def test_rows_of_several_widths_are_summed_by_their_kinds(likelihood):
    model = observed_by(likelihood)
    observations = find_observations(model)
    assert may_be_normal(observations)
    found = _posterior_of(LogLikelihood(observations), rng=np.random.default_rng(1))
    points, _ = found.near.draw(20, rng=np.random.default_rng(3))
    log_density, space = model.compile_logp(mode=PLAIN_MODE), found.rest.space
    expected = np.array([float(log_density(space.point(x))) for x in points])
    assert np.var(expected - found.log_density(points)) < 1e-12


def test_widths_of_each_row_are_too_many_kinds():
    model = observed_by(
        lambda eta: pm.Normal(
            "y", eta, pm.math.sqrt(pm.HalfNormal("s", 2) ** 2 + np.exp(X)), observed=CROSSED
        )
    )
    loglik = likelihood_of(model)
    with refused(UnsupportedModelError, "Rows", "normal", "widths", topic="regressions"):
        drawn_given_scales(loglik, rng=np.random.default_rng(1))


def test_a_second_mode_of_the_scales_is_found(posterior, monkeypatch):
    near, space = posterior[3].near, posterior[3].rest.space
    middle, near = near.scales.location, replace(near, scales=near.scales.parts[0])
    near = replace(near, scales=replace(near.scales, factor=factor_of(4 * np.eye(3))))

    def heights(_, points):
        centers = np.stack([middle, middle + 2.5])
        away = np.square(points[:, None] - centers).sum(axis=2)
        return np.logaddexp.reduce(-away / 0.5, axis=1)

    assert len(_modes_of_scales(near, space, rng=np.random.default_rng(1))) == 1
    monkeypatch.setattr(ConditionalGaussian, "log_marginals", heights)
    found = _modes_of_scales(near, space, rng=np.random.default_rng(1))
    highest = max((part.location for part in found.parts), key=np.sum)
    assert_allclose(highest, middle + 2.5, atol=1e-3)
    assert_allclose(found.mixture.masses, 0.5, atol=0.01)


def weights_of(found):
    weights = np.exp(found.proposal.log_ratios - found.proposal.log_ratios.max())
    return weights / weights.sum()


def test_a_scale_of_either_sign_has_two_modes_however_far_apart():
    with pm.Model() as model:
        own = pm.Normal("scale", 0, 90) * pm.Normal("own", shape=40)
        mean = pm.Normal("mean", 0, 90) + own[STUDENT]
        pm.Normal("y", mean, pm.HalfNormal("s", 90), observed=30 * CROSSED)
    loglik = likelihood_of(model)
    found = drawn_given_scales(loglik, rng=np.random.default_rng(1))
    assert len(found.proposal.modes) == 2
    is_positive = found.proposal.draws.values["scale"] > 0
    assert_allclose(weights_of(found) @ is_positive, 0.5, atol=4 * 0.5 / np.sqrt(1_000))


#: Effects whose log-scale has a prior of several narrow components, far apart.
SEVERAL = {
    "two": ([0.5, 0.5], [-8.0, 0.0], False),
    "not centred": ([0.5, 0.5], [-8.0, 0.0], True),
    "three": ([0.3, 0.3, 0.4], [-8.0, -4.0, 0.0], False),
    "rarely drawn": ([0.999, 0.001], [-8.0, 0.0], False),
    "next to zero": ([0.5, 0.5], [-20.0, 0.0], False),
}
BY_LEVEL = np.random.default_rng(5).integers(30, size=900)
SLIGHT = np.random.default_rng(6).normal(0, 0.2, 30)[BY_LEVEL]
SLIGHT = SLIGHT + np.random.default_rng(7).normal(size=900)


def masses_of_components(weights, centres):
    """Return the posterior's masses of the components, by a grid of the log-scale."""
    counts, sums = np.bincount(BY_LEVEL), np.bincount(BY_LEVEL, SLIGHT)
    offsets = np.linspace(-2.5, 2.5, 400)
    found = []
    for weight, centre in zip(weights, centres, strict=True):
        scale = np.exp(centre + offsets)[:, None]
        log_likelihood = np.square(sums) / (counts + scale**-2.0) - np.log1p(counts * scale**2)
        log_density = log_likelihood.sum(axis=1) / 2 - np.square(offsets / 0.3) / 2
        found.append(weight * np.exp(log_density).sum())
    return np.array(found) / np.sum(found)


@pytest.mark.parametrize(
    "several",
    [
        pytest.param(v, id=n, marks=[pytest.mark.slow] * (n in ("three", "rarely drawn")))
        for n, v in SEVERAL.items()
    ],
)
def test_modes_of_the_scales_have_the_masses_of_a_grid(several):
    weights, centres, is_scaled = several
    with pm.Model() as model:
        log_scale = pm.NormalMixture("log_scale", weights, mu=centres, sigma=0.3)
        scale = pm.math.exp(log_scale)
        own = (
            scale * pm.Normal("own", shape=30)
            if is_scaled
            else pm.Normal("own", 0, scale, shape=30)
        )
        pm.Normal("y", own[BY_LEVEL], 1.0, observed=SLIGHT)
    loglik = likelihood_of(model)
    found = drawn_given_scales(loglik, rng=np.random.default_rng(1))
    log_scale = found.proposal.draws.values["log_scale"]
    nearest = np.abs(log_scale[:, None] - centres).argmin(axis=1)
    masses = np.bincount(nearest, weights_of(found), len(centres))
    exact = masses_of_components(weights, centres)
    assert_allclose(masses, exact, atol=4 * np.sqrt(0.25 / 1_000))
    assert ((masses > 0.4 * exact) | (exact < 0.01)).all()
    assert found.certificate.modes.n_modes == np.count_nonzero(exact > 1e-3)


def test_effects_that_meet_no_other_variable_are_drawn():
    with pm.Model() as model:
        own = pm.Normal("own", 0, pm.HalfNormal("sd_own", 4), shape=40)
        pm.Normal("y", own[STUDENT], pm.HalfNormal("s", 2), observed=CROSSED)
    loglik = likelihood_of(model)
    found = drawn_given_scales(loglik, rng=np.random.default_rng(1))
    own, scale, s = (found.proposal.draws.values[name] for name in ("own", "sd_own", "s"))
    weights = np.exp(found.proposal.log_ratios - found.proposal.log_ratios.max())
    weights /= weights.sum()
    counts, sums = np.bincount(STUDENT, minlength=40), np.bincount(STUDENT, CROSSED, 40)
    given = sums / (counts + np.square(s / scale)[:, None])  # the means given the scales
    sds = np.sqrt(weights @ np.square(own - weights @ own))
    assert_allclose(weights @ own, weights @ given, atol=5 * sds.max() / np.sqrt(1_000))


#: Outcomes of so many levels, most of them once: their scale and that of errors are hardly told
#: apart, and the posterior has a tail that bends towards a scale of zero.
RARE = np.concatenate([np.arange(150), RNG.integers(150, size=20)])
ONCE = 0.5 * RNG.normal(size=150)[RARE] + RNG.normal(size=len(RARE))


def rare_levels():
    with pm.Model() as model:
        own = pm.HalfNormal("sd_own", 1) * pm.Normal("own", shape=150)
        pm.Normal("y", own[RARE], pm.HalfNormal("s", 2), observed=ONCE)
    return model


def moments_of_the_scale_of_rare_levels():
    """Return the mean and the standard deviation of sd_own, by a grid of both scales."""
    counts, sums = np.bincount(RARE), np.bincount(RARE, ONCE)
    logs = np.linspace(-9, 1, 200)[:, None, None]
    s = np.linspace(0.3, 2, 100)[:, None]
    scale, within = np.exp(logs), np.square(s)
    shrunk = counts + within / np.square(scale)
    log_density = np.square(sums) / shrunk / within - np.log(shrunk) - 2 * (logs - np.log(s))
    log_density = log_density.sum(axis=2) / 2 - (ONCE @ ONCE) / within[:, 0] / 2
    log_density -= len(ONCE) * np.log(s[:, 0]) + np.square(s[:, 0] / 2) / 2
    log_density += (logs - np.square(scale) / 2)[:, :, 0]
    masses = np.exp(log_density - log_density.max()).sum(axis=1)
    masses, scale = masses / masses.sum(), np.exp(logs[:, 0, 0])
    mean = masses @ scale
    return mean, np.sqrt(masses @ np.square(scale - mean))


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))]
)
def test_tails_that_bend_towards_a_scale_of_zero_are_drawn(seed):
    loglik = likelihood_of(rare_levels())
    found = drawn_given_scales(loglik, rng=np.random.default_rng(seed))
    log_ratios, scale = found.proposal.log_ratios, found.proposal.draws.values["sd_own"]
    weights = np.exp(log_ratios - log_ratios.max())
    weights /= weights.sum()
    mean, sd = moments_of_the_scale_of_rare_levels()
    own = weights @ scale
    assert_allclose(own, mean, atol=4 * sd / np.sqrt(1_000))
    assert_allclose(np.sqrt(weights @ np.square(scale - own)), sd, rtol=0.1)


def test_few_groups_whose_scale_goes_to_zero_need_no_chains():
    """Three groups that do not differ: the density has no mode, and its marginal is known."""
    rng, n = np.random.default_rng(1), 3_000
    group, y = rng.integers(3, size=n), rng.normal(size=n)
    with pm.Model() as model:
        added = pm.HalfNormal("sd", 1) * pm.Normal("z", shape=3)
        pm.Normal("y", pm.Normal("m") + added[group], 1.0, observed=y)
    idata = pmc.sample(model, random_seed=1, progressbar=False)
    assert idata.attrs["level"] == Level.RELIABLE
    assert "coreset" not in idata.children
    sizes = np.bincount(group)
    means = np.bincount(group, y) / sizes
    sds = np.exp(np.linspace(-9.0, 1.5, 400))
    covs = sds[:, None, None] ** 2 * np.eye(3) + np.diag(1 / sizes) + 1.0
    logs = multivariate_normal_logs(means, covs) + halfnorm.logpdf(sds) + np.log(sds)
    share = np.exp(logs - logs.max()).cumsum()
    found = np.sort(idata["posterior"]["sd"].to_numpy().ravel())
    for part in (0.02, 0.1, 0.5, 0.9):
        quantile = np.interp(part, share / share[-1], sds)
        error = 4 * np.sqrt(part * (1 - part) / idata.attrs["psis_ess"])
        assert abs(np.mean(found < quantile) - part) < error


def multivariate_normal_logs(x, covs):
    """Return log-densities of x (p,) around zero, for covariances (n, p, p)."""
    return -(np.linalg.slogdet(covs)[1] + np.linalg.solve(covs, x[:, None])[..., 0] @ x) / 2


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        (lambda z, s, b: s * z[STUDENT], True),
        (lambda z, s, b: z[STUDENT] / s, False),
        (lambda z, s, b: (X[:, None] * b).sum(axis=1), False),
        (lambda z, s, b: X * s * pm.math.exp(b[0]), True),
        (lambda z, s, b: s + X * b[1], False),
    ],
)
def test_products_of_vectors_and_other_variables_are_those_of_scales(product, expected):
    with pm.Model() as model:
        z, s, b = pm.Normal("z", shape=40), pm.HalfNormal("s"), pm.Normal("b", shape=2)
        pm.Normal("y", product(z, s, b), 1.0, observed=CROSSED)
    assert has_scales(model) is expected


# -- Kernel densities of weighted draws, as proposals. ---------------------------------------------


def of_a_scale_near_zero(points):
    """Return the log-density of the logarithm of a half-normal scale, and of another number."""
    return points[:, 0] - np.exp(2 * points[:, 0]) / 2 - np.square(points[:, 1:]).sum(axis=1)


@pytest.fixture
def first():
    mode = np.zeros(2)
    return heavy_tailed(mode, np.diag([1.4, 1.4])).split(of_a_scale_near_zero)


@pytest.fixture
def mixture(first):
    points, logq = first.draw(800, rng=np.random.default_rng(1))
    return KernelMixture.of(first, points, of_a_scale_near_zero(points) - logq)


def test_its_density_integrates_to_one(mixture):
    grid = np.linspace(-15, 15, 101)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    total = np.exp(mixture.log_density(points)).sum() * (grid[1] - grid[0]) ** 2
    assert total == pytest.approx(1.0, abs=1e-2)


@pytest.mark.parametrize("n_dims", [1, 2, 3])
def test_its_density_is_that_of_its_kernels_near_and_far_out(n_dims):
    """Also with masses that are hardly numbers: warnings are errors."""
    rng = np.random.default_rng(4)
    first = heavy_tailed(np.full(n_dims, 9.0), np.diag([0.1, 1.0, 4.0][:n_dims]))
    centers, _ = first.draw(300, rng=rng)
    log_weights = rng.normal(size=300) - 740.0 * (np.arange(300) % 7 == 0)
    mixture = KernelMixture.of(first, centers, log_weights)
    far = 10.0 ** np.arange(9)[:, None] * rng.normal(size=(9, n_dims))
    points = np.concatenate([centers[:50], far])
    logs = [np.log(mixture.shares[0]) + first.log_density(points)]
    for root, share in zip(mixture.roots, mixture.shares[1:], strict=True):
        kernel = multivariate_t(np.zeros(n_dims), root @ root.T, df=5)
        kernels = np.exp([kernel.logpdf(point - centers) for point in points])
        logs.append(np.log(share) + np.log(kernels @ mixture.masses))
    assert_allclose(mixture.log_density(points), np.logaddexp.reduce(logs), atol=1e-9)


def test_its_draws_have_that_density(first, mixture):
    points, logq = mixture.draw(10_000, rng=np.random.default_rng(2))
    assert_allclose(logq, mixture.log_density(points))
    middle = mixture.masses @ mixture.centers
    of_first = first.draw(10_000, rng=np.random.default_rng(3))[0].mean(axis=0)
    expected = 0.9 * middle + 0.1 * of_first
    assert_allclose(points.mean(axis=0), expected, atol=0.05)


def test_weights_in_an_exponential_tail_are_reliable(mixture):
    points, logq = mixture.draw(4_000, rng=np.random.default_rng(3))
    smoothed = pareto_smooth((of_a_scale_near_zero(points) - logq)[None])
    assert smoothed.pareto_khat < 0.5
    assert smoothed.ess > 0.8 * len(points)


def test_too_few_draws_with_weights_are_refused(first):
    points, _ = first.draw(100, rng=np.random.default_rng(1))
    log_weights = np.where(np.arange(100) < 2, 0.0, -800.0)
    with pytest.raises(LinAlgError, match="Too few draws"):
        KernelMixture.of(first, points, log_weights)
