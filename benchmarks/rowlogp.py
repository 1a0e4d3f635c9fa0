"""The cost of log-likelihoods and coreset models: ``python -m benchmarks.rowlogp [--n --draws]``.

Three tables, each compared within the same run:

1. the N x S matrix of a 20-column logistic regression and of the flights model, against the
   fastest kernel written by hand for each (BLAS product or gathers, and a fused, threaded,
   polynomial log-sigmoid);
2. small models of many kinds, against ``pm.compute_log_likelihood``;
3. one evaluation of the coreset model's log-density and gradient, for N from 10^4 to 10^6.

Times are medians of repeated runs, after a first one that compiles.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numba
import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable
from threadpoolctl import threadpool_limits

from benchmarks.compiled_density import compiled_density
from benchmarks.example_models import example
from benchmarks.tables import markdown, parser_of, save
from pymc_coresets.loops.vectormath import vector_softplus
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood

type Array = NDArray[np.float64]

THREADS = 2
BLOCK = 1024


def median_seconds(function: Callable[[], object], repeats: int) -> float:
    function()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


# -- 1. against kernels written by hand ------------------------------------------------------------


@numba.njit(nogil=True)
def log_sigmoid_in_place(eta: Array, sign: Array) -> None:
    """Replace eta[s, n] by log sigmoid(sign[n] * eta[s, n])."""
    for s in range(eta.shape[0]):
        for n in range(eta.shape[1]):
            eta[s, n] = -vector_softplus(-sign[n] * eta[s, n])


@numba.njit(nogil=True)
def add_gathered(eta: Array, effects: Array, index: NDArray[np.integer]) -> None:
    for s in range(eta.shape[0]):
        for n in range(eta.shape[1]):
            eta[s, n] += effects[s, index[n]]


def by_hand(
    features: Array,
    coefficients: Array,
    groups: list[tuple[Array, NDArray[np.integer]]],
    y: Array,
) -> Array:
    """Return log-likelihoods (n_draws, n_obs) of a logistic regression with varying intercepts."""
    sign = np.where(y > 0, 1.0, -1.0)
    out = np.empty((len(coefficients), len(y)))

    def work(start: int) -> None:
        rows = slice(start, start + BLOCK)
        eta = coefficients @ features[rows].T
        for effects, index in groups:
            add_gathered(eta, effects, index[rows])
        log_sigmoid_in_place(eta, sign[rows])
        out[:, rows] = eta

    # As in the package: threads work on blocks, and matrix products use no further threads.
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(0, len(y), BLOCK)))
    return out


def logistic(
    n_obs: int, n_draws: int
) -> tuple[LogLikelihood, dict[str, Array], Callable[[], Array]]:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(n_obs, 20))
    y = (rng.random(n_obs) < 0.5).astype(np.int64)
    with pm.Model() as model:
        intercept = pm.Normal("intercept")
        beta = pm.Normal("beta", shape=20)
        pm.Bernoulli("y", logit_p=intercept + features @ beta, observed=y)
    draws = {
        "intercept": rng.normal(size=n_draws),
        "beta": 0.2 * rng.normal(size=(n_draws, 20)),
    }
    with_ones = np.c_[np.ones(n_obs), features]
    both = np.c_[draws["intercept"], draws["beta"]]
    loglik = LogLikelihood(find_observations(model))
    return loglik, draws, lambda: by_hand(with_ones, both, [], y)


def flights(n_draws: int) -> tuple[LogLikelihood, dict[str, Array], Callable[[], Array]]:
    script = example("flights")
    model = script.build_model(script.load_flights())
    loglik = LogLikelihood(find_observations(model))
    rng = np.random.default_rng(1)
    draws = {n: 0.3 * rng.normal(size=(n_draws, *shape)) for n, shape in loglik.shapes.items()}
    data = {name: model[name].get_value() for name in model.named_vars if name.endswith("_index")}
    features = np.c_[
        np.ones(loglik.n_rows), model["log_distance"].get_value(), model["hour_spline"].get_value()
    ]
    coefficients = np.c_[draws["intercept"], draws["distance_slope"], draws["hour_effect"]]
    groups = [(draws[f"{g}_effect"], data[f"{g}_index"]) for g in ("carrier", "origin", "month")]
    y = model.rvs_to_values[model["late"]].eval()
    return loglik, draws, lambda: by_hand(features, coefficients, groups, y)


def against_hand(n_obs: int, n_draws: int, repeats: int) -> str:
    cases = {
        "logistic regression, 20 columns": logistic(n_obs, n_draws),
        "flights: spline, three groups of varying intercepts": flights(n_draws),
    }
    rows = []
    for name, (loglik, draws, hand) in cases.items():
        np.testing.assert_allclose(loglik.matrix(draws), hand().T, atol=1e-10)
        ours = median_seconds(partial(loglik.matrix, draws), repeats)
        theirs = median_seconds(hand, repeats)
        per_element = 1e9 * ours / loglik.n_rows / n_draws
        rows.append([name, f"{loglik.n_rows:,}", f"{per_element:.1f}", f"{ours / theirs:.2f}"])
    return markdown(("model", "N", "ns / element", "ratio to the hand-written kernel"), rows)


# -- 2. against PyMC -------------------------------------------------------------------------------


def small_models(n_obs: int) -> dict[str, pm.Model]:
    rng = np.random.default_rng(1)
    x, group = rng.normal(size=(n_obs, 3)), rng.integers(0, 20, n_obs)
    real, count = rng.normal(size=n_obs), rng.poisson(2, n_obs)
    positive, label = np.exp(real), rng.integers(0, 3, n_obs)
    likelihoods: dict[str, Callable[[], object]] = {
        "normal": lambda: pm.Normal("y", x @ beta(), sd(), observed=real),
        "Student t": lambda: pm.StudentT(
            "y", nu=sd("nu"), mu=x @ beta(), sigma=sd(), observed=real
        ),
        "Poisson": lambda: pm.Poisson("y", pm.math.exp(x @ beta()), observed=count),
        "negative binomial": lambda: pm.NegativeBinomial(
            "y", mu=pm.math.exp(x @ beta()), alpha=sd(), observed=count
        ),
        "Weibull": lambda: pm.Weibull("y", sd(), pm.math.exp(x @ beta()), observed=positive),
        "gamma": lambda: pm.Gamma("y", mu=pm.math.exp(x @ beta()), sigma=sd(), observed=positive),
        "categorical": lambda: pm.Categorical(
            "y", logit_p=x @ pm.Normal("B", shape=(3, 3)), observed=label
        ),
        "varying slopes": lambda: pm.Normal(
            "y", (pm.Normal("b", shape=(20, 3))[group] * x).sum(axis=1), sd(), observed=real
        ),
        "normal mixture": lambda: pm.NormalMixture(
            "y", [0.4, 0.6], pm.Normal("mu", shape=2), sd(), observed=real
        ),
        "multivariate normal": lambda: pm.MvNormal("y", beta(), np.eye(3), observed=x),
    }

    def beta() -> TensorVariable[Any, Any]:
        return pm.Normal("beta", shape=3)

    def sd(name: str = "sigma") -> TensorVariable[Any, Any]:
        return pm.HalfNormal(name)

    models = {}
    for name, likelihood in likelihoods.items():
        with pm.Model() as models[name]:
            likelihood()
    return models


def as_tree(draws: Mapping[str, Array]) -> xr.DataTree:
    """Return one chain of draws in the form that PyMC reads."""
    variables = {
        name: (("chain", "draw", *(f"{name}_{i}" for i in range(values.ndim - 1))), values[None])
        for name, values in draws.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(variables)})


def against_pymc(n_obs: int, n_draws: int, repeats: int) -> str:
    rows = []
    for name, model in small_models(n_obs).items():
        loglik, space = LogLikelihood(find_observations(model)), Unconstrained(model)
        points = space.start + 0.3 * np.random.default_rng(1).normal(size=(n_draws, space.n_dims))
        draws = space.constrain(points)
        theirs = partial(
            pm.compute_log_likelihood,
            as_tree(draws.values),
            model=model,
            extend_inferencedata=False,
            progressbar=False,
        )
        per_element = 1e9 / n_obs / n_draws
        fast = per_element * median_seconds(partial(loglik.matrix, draws), repeats)
        slow = per_element * median_seconds(theirs, 3)
        rows.append([name, f"{fast:.1f}", f"{slow:.1f}", f"{slow / fast:.0f} ×"])
    return markdown(("model", "ns / element", "PyMC, ns / element", "speed-up"), rows)


# -- 3. the coreset model --------------------------------------------------------------------------


def call_seconds(model: pm.Model, n_rows: int) -> float:
    """Measure the seconds of one evaluation of the log-density and its gradient."""
    evaluate, start = compiled_density(model), Unconstrained(model).start
    calls = max(3, 300_000 // n_rows)
    return median_seconds(lambda: [evaluate(start) for _ in range(calls)], 5) / calls


def of_the_coreset_model(size: int) -> str:
    lines = []
    for n_obs in (10_000, 100_000, 1_000_000):
        loglik, _, _ = logistic(n_obs, 2)
        obs = loglik.observations
        rows = loglik.in_memory.take(slice(0, size))
        small = coreset_model(obs, rows, np.full(size, n_obs / size))
        seconds = [call_seconds(small, size), call_seconds(obs.model, n_obs)]
        lines.append([f"{n_obs:,}", *(f"{1e6 * each:,.0f}" for each in seconds)])
    return markdown(("N", "coreset's model, µs", "full model, µs"), lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--n", type=int, default=1_000_000, help="rows of the regression")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    tables = {
        "kernels": lambda: against_hand(options.n, options.draws, options.repeats),
        "families": lambda: against_pymc(20_000, options.draws, options.repeats),
        "gradients": lambda: of_the_coreset_model(300),
    }
    for name, measured in tables.items():
        table = measured()
        print(f"\n{table}", flush=True)
        save(options.tables, f"rowlogp-{name}", table)


if __name__ == "__main__":
    main()
