"""Potentials of any rows at any draws are those of PyMC, for every kind of model."""

import numpy as np
from numpy.testing import assert_allclose

N_TILES = 4096  # many draws make small blocks: there are three for these models


def test_potentials_of_all_rows_in_blocks(specimen):
    draws = {name: np.tile(v, (N_TILES, *[1] * (v.ndim - 1)))
             for name, v in specimen.reference.draws.items()}  # fmt: skip
    found = specimen.loglik.matrix(draws)
    assert_allclose(found, np.tile(specimen.reference.loglik, N_TILES), rtol=1e-8, atol=1e-9)


def test_potentials_of_some_rows_in_any_order(specimen):
    which = np.random.default_rng(4).integers(specimen.case.n_obs, size=7)
    rows = specimen.loglik.source.take(which)
    for loglik in (specimen.loglik, specimen.by_numpy):
        found = loglik.matrix(specimen.reference.draws, rows)
        assert_allclose(found, specimen.reference.loglik[which], rtol=1e-8, atol=1e-9)


def test_a_look_at_all_rows(specimen):
    sums = specimen.loglik.sums(specimen.reference.draws, n_candidates=specimen.case.n_obs)
    loglik = specimen.reference.loglik
    centred = loglik - loglik.mean(axis=1, keepdims=True)
    scale = np.abs(loglik).sum()
    assert_allclose(sums.total, centred.sum(axis=0), rtol=1e-8, atol=1e-11 * scale)
    assert_allclose(sums.norm_total, loglik.std(axis=1).sum(), rtol=1e-6)


def test_cost_does_not_grow_with_the_number_of_rows(specimen):
    assert bool(specimen.observations.unselected) == bool(specimen.case.unselected)


def test_number_of_observations(specimen):
    assert specimen.loglik.n_rows == specimen.case.n_obs
