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
    rows = np.random.default_rng(4).integers(specimen.case.n_obs, size=7)
    found = specimen.loglik.matrix(specimen.reference.draws, rows)
    assert_allclose(found, specimen.reference.loglik[rows], rtol=1e-8, atol=1e-9)


def test_moments_with_base_weights(specimen):
    weights = np.random.default_rng(5).integers(0, 3, size=specimen.case.n_obs).astype(float)
    moments = specimen.loglik.moments(specimen.reference.draws, weights)
    loglik = specimen.reference.loglik
    assert_allclose(moments.total, weights @ loglik, rtol=1e-8)
    assert_allclose(moments.norms, (weights > 0) * loglik.std(axis=1), rtol=1e-6, atol=1e-9)


def test_cost_does_not_grow_with_the_number_of_rows(specimen):
    assert bool(specimen.observations.unselected) == bool(specimen.case.unselected)


def test_number_of_observations(specimen):
    assert specimen.loglik.n_obs == specimen.case.n_obs
