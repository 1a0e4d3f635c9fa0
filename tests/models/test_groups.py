"""PyMC models of many groups: densities in parts, and coresets that are chosen group by group."""

import numpy as np
import pymc as pm
import pytest

from pymc_coresets import BlockPursuit, InvalidOptionError, UnsupportedModelError, build_coreset
from pymc_coresets.diagnostics.importance import KHAT_RELIABLE
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.blocks.structure import find_blocks
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rows.grouped import GroupedRows
from pymc_coresets.sampling.grouped_density import GroupedDensity, GroupedPrior
from pymc_coresets.sampling.metric import known_metric
from pymc_coresets.sampling.reuse import Samplers
from pymc_coresets.sampling.sampler import CoresetSampler

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
    space = sampler.space
    columns = space.columns["offset"][:, None]
    density = GroupedDensity(GroupedPrior(space, {"offset": 0}, list(columns)), loglik, data)
    x = rng.normal(0, 0.3, (3, space.n_dims))
    shared = x[:, density.prior.shared_columns]
    alone, by_group = density(shared, x[:, columns])
    sampler._given(rows, weights)
    expected = [space.logp_and_gradient(point)[0] for point in x]
    np.testing.assert_allclose(alone + by_group.sum(axis=1), expected, rtol=1e-10)
    np.testing.assert_allclose(density.positions(shared, x[:, columns]), x)
    # Only its own variable changes the part of a group.
    moved = x[:, columns].copy()
    moved[:, 7] += 0.1
    changed = density(shared, moved)[1] != by_group
    assert changed[:, 7].all()
    assert changed.sum() == 3


def test_levels_may_have_no_variables_of_their_own(sampler):
    columns = [*sampler.space.columns["offset"][:, None], np.empty(0, dtype=np.int64)]
    prior = GroupedPrior(sampler.space, {"offset": 0}, columns)
    rows = sampler.loglikelihood.source.take(np.arange(2))
    data = GroupedRows(rows, np.ones(2), np.array([0, G]), G + 1)
    density = GroupedDensity(prior, sampler.loglikelihood, data)
    shared, local = np.zeros((1, 4)), np.zeros((1, G + 1, 1))
    here = density(shared, local)[1]
    local[:, G] = 2.0
    np.testing.assert_allclose((density(shared, local)[1] - here)[0, [0, G]], [0.0, -2.0])


@pytest.mark.parametrize("kind", ["potential", "observed"])
def test_other_terms_of_the_levels_variables_are_refused(kind):
    rng = np.random.default_rng(1)
    level = np.arange(600) % 30
    with pm.Model() as model:
        effect = pm.Normal("effect", pm.Normal("mu"), 1.0, shape=30)
        if kind == "potential":
            pm.Potential("more", -((effect - 1.0) ** 2).sum())
        else:
            pm.Normal("more", effect, 1.0, observed=np.ones(30))
        pm.Normal("y", effect[level], 1.0, observed=rng.normal(size=600))
    with pytest.raises(UnsupportedModelError, match="'more' depends on 'effect'"):
        build_coreset(model, method="block_pursuit", observed="y", **QUIET)


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
    np.testing.assert_allclose(velocity, coreset.proposal.around.covariance)
    assert velocity.shape == (n_dims,)
    assert len(found["initvals"]) == 2
    draws = coreset.proposal.draws.values["offset"]
    assert all((draws == start["offset"]).all(axis=1).any() for start in found["initvals"])


def test_importance_draws_are_those_of_the_certificate(coreset):
    idata = coreset.importance_draws(random_seed=1)
    assert idata["posterior"].sizes["draw"] == 400
    assert idata["posterior"].attrs["psis_ess"] > 200


def test_a_size_asks_for_the_other_method(model):
    with pytest.raises(InvalidOptionError, match="as many rows as each group needs"):
        build_coreset(model, method="block_pursuit", size=50, **QUIET)


def test_models_without_groups_are_refused_by_name():
    with pm.Model() as model:
        x = np.random.default_rng(1).normal(size=100)
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    with pytest.raises(UnsupportedModelError, match="cannot be chosen by groups"):
        build_coreset(model, method=BlockPursuit(), **QUIET)
