"""Rows on which a posterior depends, but which a sample at random lacks."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling import modes
from pymc_coresets.sampling.decisive_rows import rows_that_decide
from pymc_coresets.sampling.normal import heavy_tailed
from pymc_coresets.sampling.sampler import CoresetSampler

N = 1_000


def of_slopes(slopes, size=N, weights=None):
    """Return log-likelihoods that are linear: ``slopes @ theta`` of each row, in blocks."""
    rows = Rows(np.arange(len(slopes)) * 2, np.ones(len(slopes)) if weights is None else weights)

    def of_all(draws, of_block, joined):
        parts = [
            of_block(draws @ slopes[some.positions // 2].T, some) for some in rows.blocks(size)
        ]
        return joined(parts)

    space = SimpleNamespace(constrain=lambda points: points)
    return SimpleNamespace(
        n_rows=len(rows), observations=SimpleNamespace(space=space), of_all=of_all
    )


AROUND = heavy_tailed(np.array([1.0, -2.0]), np.diag([0.1, 3.0]))


@pytest.mark.parametrize("size", [7, 100, N])
def test_rows_are_found_that_alone_see_a_coefficient(size):
    slopes = np.column_stack([np.random.default_rng(1).normal(size=N), np.zeros(N)])
    slopes[[5, 600, 601], 1] = 1e-6, -1e-6, 3e-6  # however little that is
    found = rows_that_decide(of_slopes(slopes, size), AROUND, 100)
    np.testing.assert_array_equal(found.positions, [10, 1200, 1202])


@pytest.mark.parametrize(("n_seeing", "n_sampled", "n_found"), [
    (15, 100, 15), (19, 500, 19), (25, 500, 0), (150, 50, 0), (N, 100, 0),
])  # fmt: skip
def test_a_sample_has_enough_of_many_rows_that_see_a_coefficient(n_seeing, n_sampled, n_found):
    """An axis that 25 rows share equally is known from twelve of them."""
    slopes = np.ones((N, 2))
    slopes[n_seeing:, 1] = 0.0
    assert len(rows_that_decide(of_slopes(slopes), AROUND, n_sampled)) == n_found


def test_a_row_counts_as_often_as_its_weight():
    weights = np.ones(N)
    weights[3] = 200.0
    found = rows_that_decide(of_slopes(np.ones((N, 2)), 10, weights), AROUND, 10)
    np.testing.assert_array_equal(found.positions, [6])


def test_modes_are_found_that_four_rows_make():
    """A sample without these rows has one mode of ``c``."""
    n, rng = 3_000, np.random.default_rng(3)
    x, few = rng.normal(size=n), np.arange(n) % 750 == 300
    y = np.where(few, 4.0, x) + rng.normal(size=n)
    with pm.Model() as model:
        slope, c = pm.Normal("slope"), pm.Normal("c", 0.5, 1.5)
        pm.Normal("y", pm.math.switch(few, c**2, slope * x), 1.0, observed=y)
    sampler = CoresetSampler(LogLikelihood(find_observations(model)))
    assert not few[sampler.subsample(100, key=1, distinct=True).rows.positions].any()
    rng = np.random.default_rng(1)
    found = modes.proposal(sampler, 10, start_size=100, rng=rng, key=1).modes
    grid = np.linspace(-6, 6, 4_001)
    logs = -np.square(y[few][:, None] - grid**2).sum(axis=0) / 2 - np.square((grid - 0.5) / 1.5) / 2
    masses = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    assert found.positions["c"].values == pytest.approx([2.0, -2.0], abs=0.3)
    assert found.mass == pytest.approx([masses[grid > 0].sum(), masses[grid < 0].sum()], abs=0.02)
