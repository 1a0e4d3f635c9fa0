"""Log-densities that are one number, and sums: each with a twin that has one value per term.

A twin is the same model, written with a potential of the terms and one of what is left.
"""

import warnings
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from tests.models.zoo import COUNT, LABELS, POSITIVE, REAL, N, X, case, predictor, scale, twin

TIME = {"time": LABELS}
START = pm.Normal.dist(0.3, 2.0)
BATCH = np.stack([REAL, X[:, 0], X[:, 1]])


def normal(value: Any, mu: Any, sigma: Any) -> Any:
    return pm.logp(pm.Normal.dist(mu, sigma), value)


def terms(rows: Any, rest: Any = None) -> None:
    pm.Potential("y", rows)
    if rest is not None:
        pm.Potential("rest", rest)


# -- distributions of PyMC -------------------------------------------------------------------------


def order_two() -> Any:
    return pm.Normal("rho", 0, 0.5, shape=2), scale()


@case("autoregression", coords=TIME, n_obs=N - 2)
def _() -> None:
    rho, s = order_two()
    series = pm.Data("series", REAL, dims="time")
    pm.Deterministic("level", series - rho[0], dims="time")
    pm.AR("y", rho, sigma=s, init_dist=START, observed=series, dims="time")


@twin("autoregression")
def _() -> None:
    rho, s = order_two()
    mu = rho[0] * REAL[1:-1] + rho[1] * REAL[:-2]
    terms(normal(REAL[2:], mu, s), normal(REAL[:2], 0.3, 2.0).sum())


@case("autoregression of several series by time", coords=TIME, n_obs=N - 1, dim="time")
def _() -> None:
    s = scale(shape=3)
    rho = pm.Normal("rho", shape=(3, 2))
    dims = ("series", "time")
    pm.modelcontext(None).add_coord("series", range(3))
    pm.AR("y", rho, sigma=s, constant=True, init_dist=START, observed=BATCH, dims=dims)


@twin("autoregression of several series by time")
def _() -> None:
    s = scale(shape=3)
    rho = pm.Normal("rho", shape=(3, 2))
    each = normal(BATCH[:, 1:], rho[:, :1] + rho[:, 1:] * BATCH[:, :-1], s[:, None])
    terms(each.sum(axis=0), normal(BATCH[:, 0], 0.3, 2.0).sum())


@case("random walk with a drift of each step", n_obs=N - 1)
def _() -> None:
    walk = {"mu": predictor()[1:], "sigma": scale(), "init_dist": START}
    pm.GaussianRandomWalk("y", observed=REAL, **walk)


@twin("random walk with a drift of each step")
def _() -> None:
    mu = predictor()[1:] + REAL[:-1]
    terms(normal(REAL[1:], mu, scale()), normal(REAL[0], 0.3, 2.0))


@case("random walk of vectors", n_obs=N - 1)
def _() -> None:
    start = pm.MvNormal.dist(np.zeros(3), np.eye(3))
    m = pm.Normal("m", shape=3)
    pm.MvGaussianRandomWalk("y", mu=m, chol=2 * np.eye(3), init_dist=start, observed=X)


@twin("random walk of vectors")
def _() -> None:
    rows = normal(X[1:], X[:-1] + pm.Normal("m", shape=3), 2.0).sum(axis=1)
    terms(rows, normal(X[0], 0.0, 1.0).sum())


@case("diffusion", n_obs=N - 1)
def _() -> None:
    def drift(x: Any, rate: Any, s: Any) -> Any:
        return -rate * x, s * pt.sqrt(1 + x**2)

    pars = (pm.LogNormal("rate"), scale())
    pm.EulerMaruyama("y", dt=0.2, sde_fn=drift, sde_pars=pars, init_dist=START, observed=REAL)


@twin("diffusion")
def _() -> None:
    x, rate = REAL[:-1], pm.LogNormal("rate")
    s = scale() * np.sqrt(0.2 * (1 + x**2))
    terms(normal(REAL[1:], x - 0.2 * rate * x, s), normal(REAL[0], 0.3, 2.0))


@case("autoregression written as a loop", n_obs=N - 2)
def _() -> None:
    def step(drift: Any, before: Any, last: Any, rho: Any, s: Any) -> Any:
        x = pm.Normal.dist(drift + rho[0] * last + rho[1] * before, s)
        return x, pm.pytensorf.collect_default_updates([x])

    def walk(drift: Any, start: Any, rho: Any, s: Any, size: Any) -> Any:
        steps = {"sequences": [drift], "non_sequences": [rho, s], "n_steps": N - 2}
        first = {"initial": start, "taps": [-2, -1]}
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            return pytensor.scan(step, outputs_info=[first], strict=True, **steps)[0]

    pm.CustomDist(
        "y", predictor()[2:], REAL[:2], *order_two(),
        dist=walk, signature="(t),(k),(k),()->(t)", observed=REAL[2:],
    )  # fmt: skip


@twin("autoregression written as a loop")
def _() -> None:
    mu = predictor()[2:]
    rho, s = order_two()
    terms(normal(REAL[2:], mu + rho[0] * REAL[1:-1] + rho[1] * REAL[:-2], s))


# -- sums of the user ------------------------------------------------------------------------------


@case("custom distribution with a sum", coords=TIME)
def _() -> None:
    def logp(value: Any, mu: Any, s: Any) -> Any:
        return normal(value, mu, s).sum()

    mu = pm.Deterministic("mu", predictor(), dims="time")
    pm.CustomDist("y", mu, scale(), logp=logp, observed=REAL, dims="time")


@twin("custom distribution with a sum")
def _() -> None:
    terms(normal(REAL, predictor(), scale()))


@case("custom distribution with a sum over the columns, transposed")
def _() -> None:
    def logp(value: Any, m: Any) -> Any:
        return normal(value.T, m.T, 1.0).sum()

    pm.CustomDist("y", pm.Normal("m", shape=3), logp=logp, observed=X)


@twin("custom distribution with a sum over the columns, transposed")
def _() -> None:
    terms(normal(X, pm.Normal("m", shape=3), 1.0).sum(axis=1))


@case("volatility that depends on the last value", n_obs=N - 1)
def _() -> None:
    def logp(value: Any, w: Any, a: Any, first: Any) -> Any:
        variance = pt.concatenate([first, w + a * value[:-1] ** 2])
        return normal(value, 0.0, pt.sqrt(variance)).sum()

    pm.CustomDist("y", scale("w"), scale("a"), scale("first"), logp=logp, observed=REAL)


@twin("volatility that depends on the last value")
def _() -> None:
    variance = scale("w") + scale("a") * REAL[:-1] ** 2
    terms(
        normal(REAL[1:], 0.0, pt.sqrt(variance)),
        normal(REAL[0], 0.0, pt.sqrt(scale("first"))),
    )


@case("potential that is a number", observed="y")
def _() -> None:
    s, b = scale(), pm.Normal("b", shape=3)
    shrinkage = -(abs(b) / 0.7).sum()
    squares = (((REAL - X @ b) / s) ** 2).sum()
    pm.Potential("y", -0.5 * squares - N * pt.log(s) + shrinkage)


@twin("potential that is a number")
def _() -> None:
    s, b = scale(), pm.Normal("b", shape=3)
    terms(-0.5 * ((REAL - X @ b) / s) ** 2, -N * pt.log(s) - (abs(b) / 0.7).sum())


@case("potential with products of vectors and several sums", observed=["y"])
def _() -> None:
    s = scale()
    residual = (REAL - predictor()) / s
    counts = pm.logp(pm.Poisson.dist(pm.math.exp(predictor_of_counts())), COUNT)
    pm.Potential("y", -(residual @ residual) / (2 * s) + 0.3 * counts.mean() - 2.0)


@twin("potential with products of vectors and several sums")
def _() -> None:
    s = scale()
    residual = (REAL - predictor()) / s
    counts = pm.logp(pm.Poisson.dist(pm.math.exp(predictor_of_counts())), COUNT)
    terms(-(residual**2) / (2 * s) + 0.3 * counts / N, pt.constant(-2.0))


def predictor_of_counts() -> Any:
    return pm.Normal("c", shape=2) @ X[:, :2].T


@case("potential of lags in a container", n_obs=N - 3, observed="y")
def _() -> None:
    series, phi = pm.Data("series", POSITIVE), pm.Beta("phi", 1.0, 1.0)
    rate = pm.LogNormal("rate")
    mu = phi * series[:-3] + (1 - phi) * series[1:-2]
    pm.Potential("y", pm.logp(pm.Gamma.dist(mu=mu, sigma=rate), series[3:]).sum())


@twin("potential of lags in a container")
def _() -> None:
    phi, rate = pm.Beta("phi", 1.0, 1.0), pm.LogNormal("rate")
    mu = phi * POSITIVE[:-3] + (1 - phi) * POSITIVE[1:-2]
    terms(pm.logp(pm.Gamma.dist(mu=mu, sigma=rate), POSITIVE[3:]))
