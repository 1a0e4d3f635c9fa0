"""The same call with ``backend="jax"``: the same coreset, the same checks, rows from anywhere."""

import pickle

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

from pymc_coresets import InvalidOptionError, Jax, build_coreset, open_rows
from pymc_coresets.potentials.backends import choice
from pymc_coresets.potentials.of_model import likelihood_of_model
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.weighting import Laplace

N = 3_000
QUIET = {"progressbar": False, "random_seed": 1}


def columns(n_rows=N):
    rng = np.random.default_rng(7)
    x, group = rng.normal(size=(n_rows, 2)), rng.integers(0, 3, n_rows)
    eta = 0.5 + x @ [1.0, -0.5] + np.array([-0.3, 0.0, 0.3])[group]
    return {"x": x, "group": group, "y": rng.poisson(np.exp(0.3 * eta)).astype(float)}


def poisson(data):
    with pm.Model() as model:
        held = {name: pm.Data(name, column) for name, column in data.items()}
        effect = pm.Normal("effect", 0.0, 0.5, shape=3)
        eta = held["x"] @ pm.Normal("slope", shape=2) + effect[held["group"]]
        pm.Poisson("likelihood", pm.math.exp(eta), observed=held["y"])
    return model


@pytest.fixture(scope="module")
def model():
    return poisson(columns())


@pytest.fixture(scope="module")
def coresets(model):
    return [build_coreset(model, size=60, backend=b, **QUIET) for b in ("numba", "jax")]


def test_both_backends_choose_the_same_rows(coresets):
    by_numba, by_jax = coresets
    np.testing.assert_array_equal(by_jax.indices, by_numba.indices)
    assert_allclose(by_jax.weights, by_numba.weights, rtol=1e-4)


@pytest.mark.parametrize("sampler", ["numpyro", pytest.param("blackjax", marks=pytest.mark.slow)])
def test_many_chains_in_one_program_and_their_check(coresets, sampler):
    _, coreset = coresets
    options = {"draws": 50, "tune": 200, "chains": 8, "quiet": True}
    idata = coreset.sample(nuts_sampler=sampler, **options, **QUIET)
    assert idata["posterior"].sizes["chain"] == 8
    assert coreset.check(idata).reliable


def test_pickled_coresets_keep_their_backend(coresets):
    copy = pickle.loads(pickle.dumps(coresets[1]))
    assert copy.loglikelihood.backend == Jax()


@pytest.mark.slow
def test_the_mode_of_all_rows_by_either_backend(model):
    draws = [
        Laplace().draw(
            CoresetSampler(likelihood_of_model(model, backend=b, rng=np.random.default_rng(1))),
            200,
            rng=np.random.default_rng(2),
        )
        for b in (None, Jax())
    ]
    for name, values in draws[0].values.items():
        assert_allclose(draws[1].values[name], values, rtol=1e-4, atol=1e-5)


def test_rows_that_are_read_in_chunks():
    data = columns()
    rows = open_rows(
        lambda: ({n: c[i : i + 700] for n, c in data.items()} for i in range(0, N, 700))
    )
    template = poisson({name: column[:20] for name, column in data.items()})
    rng = np.random.default_rng(1)
    streamed = likelihood_of_model(template, rows=rows, backend=Jax(dtype="float32"), rng=rng)
    whole = likelihood_of_model(poisson(data), collapse=False, rng=rng)
    draws = {"effect": rng.normal(size=(5, 3)), "slope": 0.1 * rng.normal(size=(5, 2))}
    found, expected = (each.look(draws, n_candidates=N) for each in (streamed, whole))
    assert_allclose(found.total, expected.total, rtol=1e-4, atol=1e-3)
    assert len(found.candidates) == N


def test_an_executor_is_refused(model):
    with pytest.raises(InvalidOptionError, match="executor"):
        choice.require_own_process(Jax(), object())


def test_without_jax_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    with pytest.raises(InvalidOptionError, match=r"pymc-coresets\[jax\]"):
        choice.backend_of("jax")
