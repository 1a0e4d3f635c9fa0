"""Models whose rows need other rows: each is told apart from its graph, before anything is run."""

from time import process_time
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_coresets import UnsupportedModelError, build_coreset
from tests.builds import read
from tests.models.zoo import POSITIVE, REAL, N, X
from tests.refusals import refused

_MOST_SECONDS = 10.0


def loop(step: Any, initial: Any, over: Any = None, given: Any = (), n_steps: Any = None) -> Any:
    sequences = [] if over is None else [pt.as_tensor(over)]
    return pytensor.scan(
        step, sequences=sequences, outputs_info=initial, non_sequences=list(given),
        n_steps=n_steps, return_updates=False,
    )  # fmt: skip


def normal(mu: Any, observed: Any = REAL) -> None:
    pm.Normal("y", mu, pm.HalfNormal("s"), observed=observed)


@pytest.mark.filterwarnings("ignore:Detected variables likely created by GP")  # PyMC's
def test_what_every_row_needs_may_stay_in_the_model() -> None:
    with pm.Model() as model:
        latent_gaussian_process()
    assert read(model, allow_local=True).observations.unselected


def adstock() -> None:
    rate = pm.Beta("rate", 2, 2)
    stock = loop(lambda new, old, r: new + r * old, [pt.zeros(())], POSITIVE, [rate])
    normal(pm.Normal("a") + pm.Normal("b") * stock)


def adstock_of_channels() -> None:
    rate = pm.Beta("rate", 2, 2, shape=3)
    stock = loop(lambda new, old, r: new + r * old, [pt.zeros(3)], X**2, [rate])
    normal(stock @ pm.Normal("b", shape=3))


def adstock_of_several_places_in_one_column() -> None:
    rate = pm.Beta("rate", 2, 2)
    stock = loop(lambda new, old, r: new + r * old, [pt.zeros(3)], X**2, [rate])
    normal(pm.Normal("b") * stock.ravel(), X.ravel())


def exponential_smoothing() -> None:
    level = loop(
        lambda y, old, a: a * y + (1 - a) * old, [pt.as_tensor(REAL[0])], REAL[:-1],
        [pm.Beta("alpha", 1, 1)],
    )  # fmt: skip
    normal(level, REAL[1:])


def volatility() -> None:
    w, a, b = pm.HalfNormal("w"), pm.Beta("a", 1, 1), pm.Beta("b", 1, 1)
    one = pt.ones(1)
    rest = loop(lambda y, v, w, a, b: w + a * y**2 + b * v, [one[0]], REAL[:-1], [w, a, b])
    pm.Normal("y", 0.0, pt.sqrt(pt.concatenate([one, rest])), observed=REAL)


def _filtered(y: Any, mean: Any, variance: Any, q: Any, r: Any) -> Any:
    predicted = variance + q**2
    total = predicted + r**2
    gain = predicted / total
    logp = -0.5 * (pt.log(2 * np.pi * total) + (y - mean) ** 2 / total)
    return mean + gain * (y - mean), predicted * (1 - gain), logp


def kalman_filter() -> None:
    noises = [pm.HalfNormal("q"), pm.HalfNormal("r")]
    pm.Potential("y", loop(_filtered, [pt.zeros(()), pt.ones(()), None], REAL, noises)[2])


def kalman_filter_summed_up() -> None:
    noises = [pm.HalfNormal("q"), pm.HalfNormal("r")]
    pm.Potential("y", loop(_filtered, [pt.zeros(()), pt.ones(()), None], REAL, noises)[2].sum())


def differential_equation() -> None:
    a = pm.LogNormal("a", sigma=0.1)
    size = loop(lambda x, a: x + 0.01 * a * x * (1 - x), [pt.as_tensor(0.1)], None, [a], N)
    pm.LogNormal("y", pt.log(size), pm.HalfNormal("s"), observed=POSITIVE)


def hidden_markov_chain() -> None:
    change = pt.log(pm.Dirichlet("p", np.ones((2, 2))))
    emitted = -((pt.as_tensor(REAL)[:, None] - pm.Normal("mu", shape=2)) ** 2)
    forward = loop(
        lambda e, old, p: e + pt.logsumexp(old[:, None] + p, axis=0), [emitted[0]], emitted[1:],
        [change],
    )  # fmt: skip
    pm.Potential("y", pt.logsumexp(forward[-1]))


def covariance() -> Any:
    return pm.HalfNormal("eta") ** 2 * pm.gp.cov.ExpQuad(3, pm.Gamma("ls", 2, 4))


def latent_gaussian_process() -> None:
    normal(pm.gp.Latent(cov_func=covariance()).prior("f", X=X))


def marginal_gaussian_process() -> None:
    gp = pm.gp.Marginal(cov_func=covariance())
    gp.marginal_likelihood("y", X=X, y=REAL, sigma=pm.HalfNormal("s"))


def steps_summed_up() -> None:
    normal(pt.cumsum(pm.Normal("step", shape=N)))


REFUSED = {
    adstock: ("'y'", "pytensor.scan", "convolve1d"),
    adstock_of_channels: ("'y'", "pytensor.scan", "convolve1d"),
    adstock_of_several_places_in_one_column: ("'y'", "pytensor.scan", "convolve1d"),
    exponential_smoothing: ("'y'", "pytensor.scan"),
    volatility: ("'y'", "pytensor.scan"),
    kalman_filter: ("'y'", "pytensor.scan"),
    kalman_filter_summed_up: ("'y'", "one number"),
    differential_equation: ("'y'", "pytensor.scan"),
    hidden_markov_chain: ("'y'", "one number"),
    latent_gaussian_process: ("'y'", "47 x 47", "pm.gp.HSGP"),
    marginal_gaussian_process: ("'y'", "one number", "pm.gp.HSGP"),
    steps_summed_up: "['step']",
}


@pytest.mark.parametrize("build", REFUSED)
def test_recursion_is_refused_at_once(build):
    with pm.Model() as model:
        build()
    started = process_time()
    topic = "local-latent-variables" if build is steps_summed_up else "no-sum-over-rows"
    with refused(UnsupportedModelError, REFUSED[build], topic=topic):
        build_coreset(model, observed="y", progressbar=False)
    assert process_time() - started < _MOST_SECONDS


def test_rows_with_a_loop_of_their_own_are_not_refused():
    with pm.Model() as model:
        rate = pm.Beta("rate", 2, 2)
        normal(loop(lambda x, r: r * x * (1 - x), [pt.as_tensor(POSITIVE)], None, [rate], 3)[-1])
    assert read(model).observations.unselected


def test_steps_that_rows_are_looked_up_in():
    day = np.arange(N) % 5
    with pm.Model() as model:
        level = loop(lambda x, r: r * x, [pt.ones(())], None, [pm.Beta("rate", 2, 2)], 5)
        normal(level[day])
    assert not read(model).observations.unselected
