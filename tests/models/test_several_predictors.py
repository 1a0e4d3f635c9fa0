"""Rows that see several numbers, or are normal in one: predictors, widths and quadratics."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from pymc.distributions.transforms import ordered
from pytensor.graph import ancestors

from pymc_coresets import Coreset, UnsupportedModelError, build_coreset, open_rows
from pymc_coresets.glm.predictor.cut import smallest_cut
from pymc_coresets.glm.predictor.finding import find_interface, find_predictors, interface_of
from pymc_coresets.glm.predictor.parabolas import derivatives_of, in_widths
from pymc_coresets.glm.predictor.predictors import RowsInMemory, coefficient_draws
from pymc_coresets.glm.predictor.row_graph import RowGraph
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.unconstrained import Unconstrained
from tests.derived import likelihood_of
from tests.modes import PLAIN_MODE
from tests.refusals import refused

# -- What a row sees of the free variables, for models of many forms, against PyMC's own densities.

N, G, H = 90, 12, 7
_rng = np.random.default_rng(4)
X = _rng.normal(size=(N, 3))
g, h = _rng.integers(0, G, N), _rng.integers(0, H, N)
real, whole, binary = _rng.normal(size=N), _rng.poisson(2, N), _rng.integers(0, 2, N)
share, four = 1 / (1 + np.exp(-real)), _rng.integers(0, 4, N)
ten = np.arange(N) % 10


def slopes(name="b", n=3):
    return X[:, :n] @ pm.Normal(name, shape=n)


def not_centred():
    return pm.HalfNormal("sd") * pm.Normal("z", shape=G)[g]


def zero_sum():
    return pm.ZeroSumNormal("z", sigma=pm.HalfNormal("sd"), shape=G)[g]


def correlated():
    cholesky, _, _ = pm.LKJCholeskyCov("c", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
    effects = pm.Normal("z", shape=(G, 2)) @ cholesky.T
    return effects[g, 0] + effects[g, 1] * X[:, 0]


def smooth():
    space = pm.gp.HSGP(m=[8], c=1.5, cov_func=pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("length")))
    phi, scale = space.prior_linearized(X[:, :1])
    return phi @ (pm.Normal("beta", shape=8) * scale)


def normal(eta, scale="free"):
    sigma = pm.HalfNormal("sigma") if scale == "free" else scale
    pm.Normal("y", eta, sigma, observed=real)


def logistic(eta):
    pm.Bernoulli("y", logit_p=eta, observed=binary)


def poisson(eta):
    pm.Poisson("y", pm.math.exp(eta), observed=whole)


def item_response():
    sides = pm.Normal("ability", shape=G)[g] - pm.Normal("difficulty", shape=H)[h]
    logistic(pm.LogNormal("discrimination", shape=H)[h] * sides)


def cutpoints():
    points = pm.Normal("c", shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])
    pm.OrderedLogistic("y", eta=slopes(), cutpoints=points, observed=four)


def ten_grades(likelihood):
    points = pm.Normal("c", shape=9, transform=ordered, initval=np.linspace(-2, 2, 9))
    likelihood("y", eta=slopes(), cutpoints=points, compute_p=False, observed=ten)


def graded_response():
    """One vector of cut points for each item."""
    start = np.tile([-1.0, 0.0, 1.0], (H, 1))
    points = pm.Normal("c", shape=(H, 3), transform=ordered, initval=start)
    eta = pm.LogNormal("discrimination", shape=H)[h] * pm.Normal("ability", shape=G)[g]
    pm.OrderedLogistic("y", eta=eta, cutpoints=points[h], compute_p=False, observed=four)


def five_alternatives():
    covariates = np.random.default_rng(2).normal(size=(N, 5, 7))
    utility = pt.dot(covariates, pm.Normal("b", shape=7))
    pm.Categorical("y", p=pm.math.softmax(utility, axis=-1), observed=four)


def two_terms():
    eta = slopes()
    pm.Bernoulli("y", logit_p=eta, observed=binary)
    pm.Normal("z", 2.0 * eta + 1.0, pm.HalfNormal("sigma"), observed=real)


def gamma():
    mean, shape = pm.math.exp(slopes()), pm.HalfNormal("shape")
    pm.Gamma("y", alpha=shape, beta=shape / mean, observed=np.exp(real))


FORMS = {  # the model, the numbers that all rows share, the predictors
    "known scale": (lambda: normal(slopes(), 2.0), 0, 1),
    "free scale": (lambda: normal(slopes()), 1, 1),
    "scale of an expression": (lambda: normal(slopes(), pm.math.exp(pm.Normal("s"))), 1, 1),
    "scale of a bounded variable": (lambda: normal(slopes(), pm.Uniform("s", 0.1, 9)), 1, 1),
    "scale of a hierarchy": (lambda: normal(not_centred()), 1, 1),
    "scales of groups": (lambda: normal(slopes(), pm.HalfNormal("s", shape=G)[g]), 0, 2),
    "mean and scale": (lambda: normal(slopes(), pm.math.exp(slopes("c"))), 0, 2),
    "the same in both": (lambda: normal(slopes(), pm.math.exp(-not_centred())), 0, 2),
    "slopes in units of the scale": (
        lambda: normal(X @ (pm.Normal("b", shape=3) * pm.HalfNormal("s"))),
        1,
        1,
    ),
    "logistic": (lambda: logistic(slopes()), 0, 1),
    "crossed": (lambda: logistic(not_centred() + pm.Normal("other", shape=H)[h]), 0, 1),
    "nested": (lambda: logistic(pm.Normal("cell", shape=(G, H))[g, h]), 0, 1),
    "paired": (lambda: logistic(pm.Normal("skill", shape=G)[g] - not_centred()), 0, 1),
    "zero sum": (lambda: poisson(zero_sum()), 0, 1),
    "correlated": (lambda: normal(correlated()), 1, 1),
    "exposure": (lambda: poisson(slopes() + np.log1p(whole)), 0, 1),
    "offset and intercept": (lambda: poisson(pm.Normal("a") + slopes()), 0, 1),
    "smooth": (lambda: poisson(smooth()), 0, 1),
    "walk": (lambda: poisson(pm.Normal("step", shape=G).cumsum()[g]), 0, 1),
    "ordered levels": (
        lambda: normal(pm.Normal("m", shape=3, transform=ordered, initval=[0, 1, 2])[h % 3]),
        1,
        1,
    ),
    "monotonic": (lambda: normal(pt.cumsum(pm.Dirichlet("d", np.ones(H)))[h]), 1, 1),
    "negative binomial": (
        lambda: pm.NegativeBinomial(
            "y", mu=pm.math.exp(slopes()), alpha=pm.Exponential("a", 1), observed=whole
        ),
        1,
        1,
    ),
    "t": (
        lambda: pm.StudentT(
            "y",
            nu=pm.Gamma("nu", 2, 0.1),
            mu=slopes(),
            sigma=pm.HalfCauchy("s", 1),
            observed=real,
        ),
        2,
        1,
    ),
    "gamma": (gamma, 1, 1),
    "beta": (
        lambda: pm.Beta(
            "y", mu=pm.math.sigmoid(slopes()), nu=pm.HalfNormal("n", 9), observed=share
        ),
        1,
        1,
    ),
    "zero-inflated": (
        lambda: pm.ZeroInflatedPoisson(
            "y", psi=pm.Beta("p", 1, 1), mu=pm.math.exp(slopes()), observed=whole
        ),
        1,
        1,
    ),
    "zeros by covariates": (
        lambda: pm.ZeroInflatedPoisson(
            "y", psi=pm.math.sigmoid(slopes("c")), mu=pm.math.exp(slopes()), observed=whole
        ),
        0,
        2,
    ),
    "censored": (
        lambda: pm.Censored(
            "y",
            pm.Normal.dist(slopes(), pm.HalfNormal("s")),
            lower=None,
            upper=1.0,
            observed=np.minimum(real, 1.0),
        ),
        1,
        1,
    ),
    "curves": (
        lambda: normal(pm.math.exp(pm.Normal("rate", shape=G)[g] * X[:, 0]) ** slopes(), 1.0),
        0,
        2,
    ),
    "item response": (item_response, 0, 2),
    "cutpoints": (cutpoints, 3, 1),
    "ten grades": (lambda: ten_grades(pm.OrderedLogistic), 9, 1),
    "ten grades, probit": (lambda: ten_grades(pm.OrderedProbit), 9, 1),
    "graded response": (graded_response, 0, 5),
    "five alternatives": (five_alternatives, 0, 5),
    "five classes": (
        lambda: pm.Categorical("y", logit_p=X @ pm.Normal("b", shape=(3, 5)), observed=four),
        0,
        5,
    ),
    "two terms": (two_terms, 1, 1),
    "mixture of two kinds": (
        lambda: pm.Mixture(
            "y",
            w=pm.Dirichlet("shares", np.ones(2)),
            comp_dists=[pm.Normal.dist(slopes(), 1.0), pm.Normal.dist(slopes("c"), 2.0)],
            observed=real,
        ),
        1,
        2,
    ),
    "mixture of a known kind": (
        lambda: pm.Mixture(
            "y",
            w=[0.3, 0.7],
            comp_dists=[pm.Normal.dist(slopes(), 1.0), pm.Normal.dist(slopes("c"), 2.0)],
            observed=real,
        ),
        0,
        2,
    ),
}


@pytest.mark.parametrize(
    "form", [pytest.param(f, marks=[pytest.mark.slow] * (f == "ten grades")) for f in FORMS]
)
def test_rows_see_the_free_variables_through_their_predictors_alone(form):
    build, n_shared, n_lines = FORMS[form]
    with pm.Model() as model:
        build()
    found = find_predictors(find_observations(model))
    assert (found.n_shared, len(found.predictors)) == (n_shared, n_lines)
    space = Unconstrained(model)
    x = space.start + 0.4 * np.random.default_rng(8).normal(size=(4, space.n_dims))
    c = coefficient_draws(found, space.constrain(x))
    rows = RowsInMemory(found, np.arange(N), np.ones(N))
    values = rows.density(rows.numbers(c), compiled=False)
    pymc = model.compile_logp(vars=model.observed_RVs, sum=False, mode=PLAIN_MODE)
    expected = np.array([np.sum(pymc(space.point(one)), axis=0) for one in x])
    assert_allclose(values, expected, rtol=1e-7, atol=1e-9)
    assert len(found.names) == c.shape[1]


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda: pm.Categorical("y", logit_p=X @ pm.Normal("b", shape=(3, 6)), observed=four),
        lambda: logistic(
            pm.Normal("w", shape=5) @ pm.math.tanh(pm.Normal("v", shape=(5, 3)) @ X.T)
        ),
    ],
    ids=["six classes", "a network"],
)
def test_rows_that_see_more_are_refused(likelihood):
    with pm.Model() as model:
        likelihood()
    with refused(UnsupportedModelError, "4 functions", topic="regressions"):
        find_predictors(find_observations(model))


def test_shares_of_five_kinds_are_four_numbers_of_every_row():
    """None can change alone, but that is no reason to take rows as independent of them."""
    with pm.Model() as model:
        kinds = pm.Poisson.dist(pm.math.exp(X @ pm.Normal("b", shape=(3, 5))))
        pm.Mixture("y", w=pm.Dirichlet("shares", np.ones(5)), comp_dists=kinds, observed=whole)
    with pytest.raises(UnsupportedModelError):
        find_predictors(find_observations(model))


@given(depth=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_a_cut_separates_the_parameters_of_random_graphs(depth, seed):
    """Without what was cut, no path is left from a parameter to the log-likelihood."""
    rng = np.random.default_rng(seed)
    x = pt.vector("x")
    parameters = [pt.scalar("s"), pt.tensor("b", shape=(1,)), pt.tensor("c", shape=(2,))]
    nodes = [parameters[0] * x, parameters[1][0] * x + 1.0, parameters[2].sum() + x]
    for _ in range(depth):
        one, other = (nodes[i] for i in rng.integers(0, len(nodes), 2))
        nodes.append([one + other, one * other, pt.exp(one), one * x][rng.integers(4)])
    loglik = nodes[-1] + pt.exp(nodes[-2])
    graph = RowGraph(parameters, {x: np.arange(1.0, 6.0)})
    found = smallest_cut(loglik, graph, [])
    lowest = {*found.predictors, *found.shared}
    for blocked in (lowest, set(found.highest)):
        stack = [loglik]
        while stack:
            v = stack.pop()
            if v in blocked:
                continue
            assert v not in parameters
            stack.extend(v.owner.inputs if v.owner is not None else [])
    assert all(lowest & set(ancestors([v])) for v in found.highest)


# -- Rows that are normal in one predictor: a quadratic of all of them that is exact. --------------

_random = np.random.default_rng(5)
N_CROSSED, N_ONE, N_OTHER = 3_000, 25, 15
ONE, OTHER = (
    _random.integers(0, N_ONE, N_CROSSED),
    _random.integers(0, N_OTHER, N_CROSSED),
)
COVARIATE = _random.normal(size=N_CROSSED)
SIZES = _random.uniform(0.5, 2.0, N_CROSSED)
Y = (
    3
    + _random.normal(size=N_ONE)[ONE]
    + _random.normal(size=N_OTHER)[OTHER]
    + _random.normal(size=N_CROSSED)
)
DATA = {"y": Y, "x": COVARIATE, "one": ONE, "other": OTHER}


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
        write(pm.Normal("c") + pm.Normal("b") * COVARIATE)
    return find_observations(model)


def of_free_width(mean):
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


@pytest.mark.parametrize("write", [of_free_width, log_normal, of_two_scales])
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
    sizes = np.zeros(N_CROSSED)
    sizes[137] = 1.0

    def write(mean):
        width = pm.math.sqrt(pm.HalfNormal("s") ** 2 + sizes**2)
        pm.Normal("y", mean, width, observed=Y)

    assert not find_interface(with_rows(write)).is_quadratic


def test_slopes_and_curvatures_are_those_of_the_density():
    rows = RowsInMemory(
        find_interface(with_rows(of_free_width)),
        np.arange(N_CROSSED),
        np.ones(N_CROSSED),
    )
    rng = np.random.default_rng(1)
    here, away = (
        rng.uniform(0.5, 1.5, (3, N_CROSSED)),
        rng.normal(size=(3, N_CROSSED)),
    )
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
    design = np.c_[np.ones(N_CROSSED), COVARIATE]
    levels = np.c_[sd_a * np.eye(N_ONE)[ONE], sd_b * np.eye(N_OTHER)[OTHER]]
    together = np.c_[design, levels]
    precision = together.T @ together / s**2
    precision += np.diag(np.r_[1 / 25, 1.0, np.ones(levels.shape[1])])
    return np.linalg.solve(precision, together.T @ (Y - 0.5 * COVARIATE) / s**2)[:2]


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
    loglik = likelihood_of(crossed())
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
