"""PyMC models of many groups: densities in parts, and coresets that are chosen group by group."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from pymc.model.transform.conditioning import remove_value_transforms
from scipy import stats

from pymc_coresets import (
    BlockPursuit,
    InvalidOptionError,
    SamplingError,
    UnsupportedModelError,
    build_coreset,
)
from pymc_coresets.diagnostics.importance import KHAT_RELIABLE
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.blocks.structure import find_blocks
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.values import GroupedRows
from pymc_coresets.sampling.levels.grouped_density import GroupedDensity, GroupedPrior
from pymc_coresets.sampling.reuse import Samplers
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.steps.metric import known_metric

G, PER_GROUP = 260, 12
QUIET = {"random_seed": 1, "progressbar": False}


@pytest.fixture(scope="module")
def model():
    """Visits of shops: more dimensions than the default method takes on, and a scale unknown."""
    rng = np.random.default_rng(41)
    shop = rng.permutation(np.repeat(np.arange(G), PER_GROUP))
    x = rng.normal(size=(len(shop), 2))
    effect = rng.normal(1.0, 0.5, G)
    visits = rng.poisson(np.exp(x @ np.array([0.3, -0.2]) + effect[shop]))
    with pm.Model(coords={"shop": np.arange(G)}) as model:
        slopes = pm.Normal("slopes", 0, 1, shape=2)
        mean, sd = pm.Normal("mean", 0, 2), pm.HalfNormal("sd", 1)
        offset = pm.Normal("offset", dims="shop")
        pm.Poisson("visits", pm.math.exp(x @ slopes + (mean + sd * offset)[shop]), observed=visits)
    return model


@pytest.fixture(scope="module")
def sampler(model):
    return CoresetSampler(LogLikelihood(find_observations(model)))


@pytest.fixture(scope="module")
def coreset(model):
    return build_coreset(model, **QUIET)


def test_the_density_in_parts_is_that_of_the_model(sampler):
    rng, loglik = np.random.default_rng(1), sampler.loglikelihood
    found = Samplers(loglik, "pymc").by_groups()
    assert (found.n_levels, found.n_local, found.n_shared) == (G, 1, 4)
    rows = loglik.source.take(np.sort(rng.permutation(loglik.n_rows)[:300]))
    weights = rng.exponential(size=300)
    blocks = find_blocks(loglik.observations)
    data = GroupedRows.sorted(rows, weights, blocks.block_of(rows), G)
    there = sampler.space  # of the coreset's model, whose variables may come in another order
    here = Unconstrained(loglik.observations.model)
    columns = here.columns["offset"][:, None]
    density = GroupedDensity(GroupedPrior(blocks), loglik, data)
    x = rng.normal(0, 0.3, (3, here.n_dims))
    shared = x[:, density.prior.shared_columns]
    alone, by_group = density(shared, x[:, columns])
    same = np.empty_like(x)
    for name, own in here.columns.items():
        same[:, there.columns[name]] = x[:, own]
    posterior = sampler.posterior_of(rows, weights)
    expected = np.array([posterior.logp_and_gradient(point)[0] for point in same])
    total = alone + by_group.sum(axis=1)
    np.testing.assert_allclose(total - total[0], expected - expected[0], rtol=1e-10)
    np.testing.assert_allclose(density.positions(shared, x[:, columns]), x)
    # Only its own variable changes the part of a group.
    moved = x[:, columns].copy()
    moved[:, 7] += 0.1
    changed = density(shared, moved)[1] != by_group
    assert changed[:, 7].all()
    assert changed.sum() == 3


def test_levels_may_have_no_variables_of_their_own(sampler):
    blocks = find_blocks(sampler.loglikelihood.observations)
    columns = (*blocks.local_columns, np.empty(0, dtype=np.int64))
    prior = GroupedPrior(replace(blocks, local_columns=columns, n_blocks=G + 1))
    rows = sampler.loglikelihood.source.take(np.arange(2))
    data = GroupedRows(rows, np.ones(2), np.array([0, G]), G + 1)
    density = GroupedDensity(prior, sampler.loglikelihood, data)
    shared, local = np.zeros((1, 4)), np.zeros((1, G + 1, 1))
    here = density(shared, local)[1]
    local[:, G] = 2.0
    np.testing.assert_allclose((density(shared, local)[1] - here)[0, [0, G]], [0.0, -2.0])


LEVELS, LEVEL = 30, np.arange(600) % 30
Y = np.random.default_rng(1).normal(size=600)


def with_a_potential():
    effect = pm.Normal("effect", pm.Normal("mu"), 1.0, shape=LEVELS)
    pm.Potential("more", -((effect - 1.0) ** 2).sum())
    pm.Normal("y", effect[LEVEL], 1.0, observed=Y)


def with_other_data():
    effect = pm.Normal("effect", pm.Normal("mu"), pm.HalfNormal("sd"), shape=LEVELS)
    pm.Poisson("more", pm.math.exp(effect), observed=np.arange(LEVELS) % 4)
    pm.Normal("y", effect[LEVEL], 1.0, observed=Y)


def with_cells():
    cell = pm.Normal("cell", 0, pm.HalfNormal("sd"), shape=(10, 3))
    pm.Normal("y", cell[LEVEL // 3, LEVEL % 3], 1.0, observed=Y)


def with_shares():
    shares = pm.Dirichlet("shares", np.ones(3), shape=(LEVELS, 3))
    pm.Categorical("y", p=shares[LEVEL], observed=np.arange(600) % 3)


SHARES = pytest.param(with_shares, marks=pytest.mark.slow)  # long to compile


@pytest.fixture(params=[with_a_potential, with_other_data, with_cells, SHARES])
def form(request):
    with pm.Model() as model:
        request.param()
    return model


def test_every_term_of_the_model_is_in_one_level_or_shared(form):
    observations = find_observations(form, observed="y")
    loglik, blocks = LogLikelihood(observations), find_blocks(observations)
    rows = loglik.all_rows
    data = GroupedRows.sorted(rows, rows.base_weights, blocks.block_of(rows), LEVELS)
    density = GroupedDensity(GroupedPrior(blocks), loglik, data)
    space = Unconstrained(form)
    x = space.start + np.random.default_rng(1).uniform(-0.5, 0.5, (3, space.n_dims))
    alone, by_level = density(x[:, blocks.shared_columns], x[:, density.prior.local_columns])
    logp = form.compile_logp(mode=PLAIN_MODE)
    expected = np.array([logp(space.point(point)) for point in x])
    total = alone + by_level.sum(axis=1)
    np.testing.assert_allclose(total - total[0], expected - expected[0], rtol=1e-9)
    assert (np.ptp(alone) > 0) == bool(blocks.shared)


def test_potentials_of_the_levels_are_part_of_their_prior():
    """With a normal model, the posterior means of all rows and of the coreset are exact."""
    with pm.Model() as model:
        with_a_potential()
    coreset = build_coreset(model, method="block_pursuit", observed="y", **QUIET)
    assert coreset.objective < 0.1
    mu, effect = (coreset.proposal.draws.values[name] for name in ("mu", "effect"))
    sums = np.bincount(LEVEL, Y, LEVELS)
    # effect | mu: precision 1 of the prior, 2 of the potential, 20 of the rows.
    expected = (mu[:, None] + 2.0 + sums) / 23
    standard = (effect - expected) * np.sqrt(23)
    assert np.abs(standard.mean(axis=0)).max() < 4.5 / np.sqrt(len(mu))
    assert abs(standard.std() - 1) < 0.05


N_DAYS = 4


def beta_binomial():
    pm.BetaBinomial("y", pm.Gamma("a", 2, 1), pm.Gamma("b", 2, 1), 9, observed=LEVEL[:LEVELS] % 9)


def negative_binomial():
    mean, evenness = pm.LogNormal("mean"), pm.Gamma("evenness", 2, 1)
    pm.NegativeBinomial("y", mean, evenness, observed=LEVEL[:LEVELS] % 9)


def linear_mixed():
    """An effect of each group on its four days, integrated out: a covariance within the group."""
    noise, spread = pm.HalfNormal("noise"), pm.HalfNormal("spread")
    days = np.arange(N_DAYS) / N_DAYS
    cov = noise**2 * np.eye(N_DAYS) + spread**2
    mean = pm.Normal("mean") + pm.Normal("slope") * days
    pm.MvNormal("y", mean, cov=cov, observed=Y[: LEVELS * N_DAYS].reshape(LEVELS, N_DAYS))


def sums_of_rows():
    """Any density of a group: here, that of normal rows with an effect that is integrated out."""
    noise, spread, mean = pm.HalfNormal("noise"), pm.HalfNormal("spread"), pm.Normal("mean")
    n, total, squares = (np.bincount(LEVEL, weights) for weights in (None, Y, Y**2))
    around = squares - 2 * mean * total + n * mean**2
    shared = (total - n * mean) ** 2 / (n + (noise / spread) ** 2)
    logdet = 2 * (n - 1) * pm.math.log(noise) + pm.math.log(noise**2 + n * spread**2)
    pm.Potential("y", -(logdet + (around - shared) / noise**2) / 2)


@pytest.mark.parametrize(
    "build",
    [
        beta_binomial,
        pytest.param(negative_binomial, marks=pytest.mark.slow),
        linear_mixed,
        sums_of_rows,
    ],
)
def test_a_group_that_is_integrated_out_is_one_row(build):
    with pm.Model() as model:
        build()
    loglik = LogLikelihood(find_observations(model, observed="y"))
    assert loglik.n_rows == LEVELS
    draws = {name: np.array([0.7, 1.3]) for name in loglik.shapes}
    by_group = loglik.matrix(Draws.of(draws, loglik.shapes), loglik.all_rows)
    plain = remove_value_transforms(model)
    logp = plain.compile_logp(vars=plain["y"], sum=False, mode=PLAIN_MODE)
    for s, values in enumerate(np.stack([*draws.values()], axis=1)):
        [expected] = logp(dict(zip(draws, values, strict=True)))
        np.testing.assert_allclose(by_group[:, s], expected, rtol=1e-9)


def test_dim_names_the_groups_whose_terms_stay_together():
    """A group's four days and its count are one row, whose density SciPy knows."""
    rng = np.random.default_rng(5)
    days, counts = rng.normal(size=(LEVELS, N_DAYS)), rng.poisson(2.0, LEVELS)
    with pm.Model(coords={"group": range(LEVELS), "day": range(N_DAYS)}) as model:
        mean, spread = pm.Normal("mean"), pm.HalfNormal("spread")
        cov = np.eye(N_DAYS) + spread**2
        pm.MvNormal("days", mean, cov=cov, observed=days, dims=("group", "day"))
        pm.Poisson("count", pm.math.exp(mean), observed=counts, dims="group")
    coreset = build_coreset(
        model, dim="group", method="uniform", size=20, random_seed=1, progressbar=False
    )
    assert coreset.n_observations == LEVELS
    assert tuple(coreset.model.named_vars_to_dims["coreset_weights"]) == ("group",)
    assert coreset.model.coords["group"] == tuple(coreset.indices)
    at = {"mean": np.array([0.3]), "spread": np.array([0.8])}
    loglik = coreset.loglikelihood
    [found] = loglik.matrix(Draws.of(at, loglik.shapes), loglik.all_rows).T
    of_days = stats.multivariate_normal(np.full(N_DAYS, 0.3), np.eye(N_DAYS) + 0.8**2).logpdf(days)
    of_count = stats.poisson(np.exp(0.3)).logpmf(counts)
    np.testing.assert_allclose(found, of_days + of_count, rtol=1e-9)
    small = remove_value_transforms(coreset.model)
    weighted = small.compile_logp(vars=small.potentials, mode=PLAIN_MODE)
    point = {name: values[0] for name, values in at.items()}
    np.testing.assert_allclose(weighted(point), coreset.weights @ found[coreset.indices])


def test_it_is_the_default_for_many_groups(coreset):
    assert coreset.method == "block_pursuit"
    assert coreset.objective < 0.1
    assert coreset.certificate.pareto_khat < KHAT_RELIABLE
    assert coreset.size < coreset.n_observations
    assert abs(coreset.weights.sum() / coreset.n_observations - 1) < 0.2


def test_its_posterior_is_that_of_all_rows(model, coreset):
    """Both are measured by the same nested Laplace approximation."""
    loglik = LogLikelihood(find_observations(model))
    full = Samplers(loglik, "pymc").by_groups()
    every = full.approximation
    own = full.approximation_of(loglik.source.at(coreset.indices), coreset.weights)
    deviations, _ = every.deviations()
    assert np.abs((own.mode - every.mode) / deviations).max() < 0.15
    np.testing.assert_allclose(own.deviations()[0] / deviations, 1, atol=0.1)
    nowhere = np.zeros((1, 4))
    gap = (own.given(nowhere)[0] - every.given(nowhere)[0])[0] / every.deviations()[1]
    assert np.abs(gap).max() < 0.15


def test_sampling_starts_at_draws_with_their_variances(model, coreset):
    options = {"chains": 2, "compile_kwargs": {}, "random_seed": 1}
    found = known_metric(coreset.model, coreset.proposal, options)
    n_dims = G + 4
    velocity = found["step"].potential.velocity(np.ones(n_dims))
    np.testing.assert_allclose(velocity, coreset.proposal.around.metric.covariance)
    assert velocity.shape == (n_dims,)
    assert len(found["initvals"]) == 2
    draws = coreset.proposal.draws.values["offset"]
    assert all((draws == start["offset"]).all(axis=1).any() for start in found["initvals"])


def test_importance_draws_are_those_of_the_certificate(coreset):
    idata = coreset.importance_draws(random_seed=1)
    assert idata["posterior"].sizes["draw"] == 400
    assert idata["posterior"].attrs["psis_ess"] > 200


@pytest.mark.parametrize(("shared", "tolerance"), [(False, 0.1), (True, 60.0)])
def test_groups_may_share_nothing_and_tolerances_be_generous(shared, tolerance):
    group, rng = np.repeat(np.arange(60), 12), np.random.default_rng(1)
    with pm.Model() as model:
        middle = pm.Normal("middle") if shared else 0.0
        level = pm.Normal("level", middle, 1.0, shape=60)
        pm.Normal("y", level[group], 1.0, observed=rng.normal(group % 3, 1.0))
    found = build_coreset(model, method=BlockPursuit(tolerance=tolerance), **QUIET)
    assert found.objective <= tolerance
    assert found.certificate.kl < tolerance


def test_a_size_asks_for_the_other_method(model):
    with pytest.raises(InvalidOptionError, match="as many rows as each group needs"):
        build_coreset(model, method="block_pursuit", size=50, **QUIET)


def test_models_without_groups_are_refused_by_name():
    with pm.Model() as model:
        x = np.random.default_rng(1).normal(size=100)
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    with pytest.raises(UnsupportedModelError, match="cannot be chosen by groups"):
        build_coreset(model, method=BlockPursuit(), **QUIET)


def test_discrete_variables_are_refused_by_name():
    with pm.Model() as model:
        effect = pm.Normal("effect", pm.Bernoulli("kind", 0.5), 1.0, shape=LEVELS)
        pm.Normal("y", effect[LEVEL], 1.0, observed=Y)
    with pytest.raises(UnsupportedModelError, match=r"\['kind'\] are discrete"):
        build_coreset(model, method="block_pursuit", **QUIET)


def test_a_posterior_without_mode_is_refused_with_the_names_of_what_is_shared():
    with pm.Model() as model:
        effect = pm.Normal("effect", pm.Flat("mean"), 1.0, shape=LEVELS)
        pm.Normal("y", effect[LEVEL] - pm.Flat("offset"), 1.0, observed=Y)
    with pytest.raises(SamplingError, match=r"has no mode.*The shared variables: 'mean', 'offset'"):
        build_coreset(model, method="block_pursuit", **QUIET)


def test_equal_rows_make_an_exact_coreset_that_is_certified():
    """Nothing is left to vary of the log-ratios, but the data say a lot."""
    rng, user = np.random.default_rng(1), np.repeat(np.arange(300), 20)
    with pm.Model() as model:
        rate = pm.Beta("rate", pm.HalfNormal("a", 5), pm.HalfNormal("b", 5), shape=300)
        pm.Bernoulli("y", rate[user], observed=rng.binomial(1, rng.beta(2, 3, 300)[user]))
    coreset = build_coreset(model, method="block_pursuit", **QUIET)
    assert coreset.size <= 600
    assert ": exact. " in coreset.certificate.verdict
