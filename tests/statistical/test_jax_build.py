"""The same call with ``backend="jax"``: the same coreset, the same checks, rows from anywhere."""

import pickle

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

from pymc_coresets import (
    Coreset,
    CoresetStream,
    GaussianApproximation,
    InvalidOptionError,
    Jax,
    build_coreset,
    build_pass_glm,
    check_approximation,
    open_rows,
)
from pymc_coresets.potentials.backends import evaluator
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.of_model import RowsToRead, likelihood_of_model
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.unconstrained import Unconstrained
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
    options = {"draws": 250, "tune": 200, "chains": 8, "quiet": True}
    options["nuts_sampler_kwargs"] = {"jitter": False}  # beside those that are the package's own
    idata = coreset.sample(nuts_sampler=sampler, **options, **QUIET)
    assert idata["posterior"].sizes["chain"] == 8
    assert coreset.check(idata).reliable


@pytest.mark.slow
def test_nutpie_takes_the_density_from_jax(coresets):
    pytest.importorskip("nutpie", reason="needs the extra 'nutpie'")
    _, coreset = coresets
    options = {"draws": 500, "tune": 200, "chains": 2, "quiet": True}
    idata = coreset.sample(nuts_sampler="nutpie", backend="jax", **options, **QUIET)
    assert idata["posterior"].sizes["chain"] == 2
    assert coreset.check(idata).reliable


def test_pickled_coresets_keep_their_backend(coresets):
    copy = pickle.loads(pickle.dumps(coresets[1]))
    assert copy.loglikelihood.backend == Jax()


def test_coresets_from_files_take_any_backend(coresets, model, tmp_path):
    pytest.importorskip("h5netcdf", reason="needs the extra 'netcdf'")
    path, [by_numba, _] = tmp_path / "coreset.nc", coresets
    by_numba.to_netcdf(path)
    again = Coreset.from_netcdf(path, model, backend="jax")
    assert again.loglikelihood.backend == Jax()
    idata = by_numba.importance_draws(64, random_seed=1)
    assert_allclose(again.log_ratios(idata), by_numba.log_ratios(idata), atol=1e-8)


# -- other things that evaluate all rows -----------------------------------------------------------


def test_streams_by_jax_have_the_sums_of_numba(tmp_path):
    data = columns()
    template = poisson({name: column[:20] for name, column in data.items()})
    pilot, chunk = ({n: c[i : i + N // 2] for n, c in data.items()} for i in (0, N // 2))
    stream = CoresetStream(template, pilot=pilot, size=20, random_seed=1, backend="jax")
    stream.update(chunk)
    state = stream._state
    whole = LogLikelihood(find_observations(poisson(data))).look(state.draws)
    assert_allclose(state.seen.total, whole.total, rtol=1e-9, atol=1e-7)
    stream.to_netcdf(tmp_path / "stream.nc")
    restored = CoresetStream.from_netcdf(tmp_path / "stream.nc", template, backend="jax")
    backwards = {name: column[::-1] for name, column in chunk.items()}
    restored.update(backwards)
    stream.update(backwards)
    np.testing.assert_array_equal(restored._state.seen.total, stream._state.seen.total)
    coreset = restored.coreset()
    assert coreset.loglikelihood.backend == Jax()
    assert coreset.n_observations == 3 * N // 2


def test_approximations_are_judged_by_either_backend(model):
    space = Unconstrained(model)
    proposal = Laplace().draw(
        CoresetSampler(likelihood_of_model(model, rng=np.random.default_rng(1))),
        200,
        rng=np.random.default_rng(2),
    )
    points = space.free(proposal)
    gaussian = GaussianApproximation(points.mean(axis=0), np.cov(points.T))
    idata = gaussian.draw(model, 100, random_seed=1)
    found = [check_approximation(model, idata, gaussian, backend=b) for b in ("numba", "jax")]
    assert_allclose(found[1].kl, found[0].kl, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_pass_statistics_by_either_backend(elsewhere):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 3))
    y = rng.binomial(1, 1 / (1 + np.exp(-x @ [1.0, -0.5, 0.2])))

    def logistic(x, y):
        with pm.Model() as model:
            eta = pm.Data("x", x) @ pm.Normal("b", 0, 10, shape=3)
            pm.Bernoulli("likelihood", logit_p=eta, observed=pm.Data("y", y))
        return model

    expected = build_pass_glm(logistic(x, y), radius=3.0, **QUIET)
    if elsewhere:
        rows = open_rows(
            lambda: ({"x": x[i : i + 700], "y": y[i : i + 700]} for i in range(0, N, 700))
        )
        options = {"rows": rows, "backend": Jax(dtype="float32")}
        summary = build_pass_glm(logistic(x[:20], y[:20]), radius=3.0, **options, **QUIET)
    else:
        summary = build_pass_glm(logistic(x, y), radius=3.0, backend="jax", **QUIET)
    for moment, wanted in zip(summary.statistics.moments, expected.statistics.moments, strict=True):
        assert_allclose(moment, wanted, rtol=1e-10, atol=1e-10 * np.abs(wanted).max())
    found, check = (each.check(random_seed=1) for each in (summary, expected))
    assert_allclose(found.max_error, check.max_error, rtol=1e-8)
    assert found.outside == pytest.approx(check.outside)
    assert_allclose(found.draws.kl, check.draws.kl, rtol=1e-2)


@pytest.mark.slow
def test_the_mode_of_all_rows_by_either_backend(model):
    draws = [
        Laplace().draw(
            CoresetSampler(
                likelihood_of_model(model, RowsToRead(backend=b), rng=np.random.default_rng(1))
            ),
            200,
            rng=np.random.default_rng(2),
        )
        for b in ("numba", Jax())
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
    streamed = likelihood_of_model(
        template, RowsToRead(rows=rows, backend=Jax(dtype="float32")), rng=rng
    )
    whole = likelihood_of_model(poisson(data), RowsToRead(collapse=False), rng=rng)
    draws = {"effect": rng.normal(size=(5, 3)), "slope": 0.1 * rng.normal(size=(5, 2))}
    found, expected = (each.look(draws, n_candidates=N) for each in (streamed, whole))
    assert_allclose(found.total, expected.total, rtol=1e-4, atol=1e-3)
    assert len(found.candidates) == N


def test_an_executor_is_refused(model):
    with pytest.raises(InvalidOptionError, match="executor"):
        evaluator.backend_of(Jax(), object())


def test_without_jax_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(evaluator, "find_spec", lambda name: None)
    with pytest.raises(InvalidOptionError, match=r"pymc-coresets\[jax\]"):
        evaluator.backend_of("jax")
