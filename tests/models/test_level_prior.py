"""The prior of a model with groups, whatever prior the variables have that all groups share."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytest

from pymc_coresets.reading.blocks.structure import Blocks, find_blocks
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.unconstrained import Unconstrained
from tests.models.reference import density_by_level, logp_without

N, G, K = 200, 10, 4
RNG = np.random.default_rng(1)
SHOP, MONTH, Y = RNG.integers(G, size=N), RNG.integers(K, size=N), RNG.normal(size=N)
SHOP[:G] = np.arange(G)
NEIGHBOURS = np.ones((K, K)) - np.eye(K)
TIMES = np.arange(float(K))[:, None]


def correlated():
    chol, *_ = pm.LKJCholeskyCov("c", n=K, eta=2, sd_dist=pm.HalfNormal.dist(1))
    return pm.MvNormal("z", np.zeros(K), chol=chol)


def with_potential():
    z = pm.Normal("z", shape=K)
    pm.Potential("more", -(z.sum() ** 2))
    return z


def horseshoe():
    return pm.Normal("z", 0, pm.HalfCauchy("tau", 1) * pm.HalfCauchy("each", 1, shape=K), shape=K)


def autoregression():
    return pm.AR("z", [0.5], sigma=1.0, init_dist=pm.Normal.dist(), shape=K)


def walk():
    return pm.GaussianRandomWalk("z", 0, pm.HalfNormal("s"), init_dist=pm.Normal.dist(), shape=K)


def process():
    covariance = pm.gp.cov.ExpQuad(1, ls=pm.Gamma("length", 2, 1))
    return pm.gp.Latent(cov_func=covariance).prior("z", X=TIMES)


def conditional():
    mean = pm.Normal("m", shape=K)
    return pm.CAR("z", mean, NEIGHBOURS, pm.Beta("alpha", 1, 1), pm.HalfNormal("precision"))


def in_order():
    ordered = pm.distributions.transforms.ordered
    return pm.Normal("z", 0, 1, shape=K, transform=ordered, initval=np.arange(float(K)))


PRIORS: dict[str, Callable[[], object]] = {
    "sum to zero": lambda: pm.ZeroSumNormal("z", 1.0, shape=K),
    "sum to zero, of unknown scale": lambda: pm.ZeroSumNormal("z", pm.HalfNormal("s"), shape=K),
    "sums to zero": lambda: pm.ZeroSumNormal("z", 1.0, shape=(3, K), n_zerosum_axes=2)[1],
    "conditional autoregression": conditional,
    "intrinsic autoregression": lambda: pm.ICAR("z", W=NEIGHBOURS),
    "random walk": walk,
    "autoregression": autoregression,
    "correlated": correlated,
    "Gaussian process": process,
    "shares": lambda: pm.Dirichlet("z", np.ones(K)),
    "ordered": in_order,
    "horseshoe": horseshoe,
    "mixture": lambda: pm.NormalMixture("z", [0.5, 0.5], [0, 1], [1, 0.2], shape=K),
    "truncated": lambda: pm.Truncated("z", pm.Normal.dist(), -1, 2, shape=K),
    "bounded": lambda: pm.Uniform("z", -1, 2, shape=K),
    "with a potential": with_potential,
}
QUICK = ("sum to zero", "conditional autoregression", "random walk", "shares")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in PRIORS]
)
def test_the_prior_in_parts_is_that_of_the_model(name):
    with pm.Model() as model:
        shared = PRIORS[name]()
        own = pm.Normal("own", 0, pm.HalfNormal("sd"), shape=G)
        pm.Normal("y", own[SHOP] + shared[MONTH], 1.0, observed=Y)
    blocks = find_blocks(find_observations(model))
    assert isinstance(blocks, Blocks), blocks
    assert blocks.local == {"own": 0}
    space = Unconstrained(model, mode=PLAIN_MODE)
    x = space.start + np.random.default_rng(1).uniform(-0.5, 0.5, (3, space.n_dims))
    found = np.array(
        [part + levels.sum() for part, levels in (density_by_level(blocks.prior, p) for p in x)]
    )
    logp = logp_without(model, ["y"])
    expected = np.array([logp(space.point(point)) for point in x])
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-9, atol=1e-9)
