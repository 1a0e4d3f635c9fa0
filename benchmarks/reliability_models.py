"""Forty models of many kinds, with simulated data, that `benchmarks.reliability` measures."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered
from scipy.special import expit

__all__ = ["FORMULAS", "MODELS", "Build", "funnel", "logistic", "regression", "simulated"]

type Build = Callable[[np.random.Generator, int], None]


def regression(rng: np.random.Generator, n: int, p: int, scale: float = 1.0) -> Any:  # noqa: ANN401
    """Return covariates, their true predictor, and the model's."""
    X = rng.normal(size=(n, p))
    truth = X @ rng.normal(0, scale / np.sqrt(p), size=p)
    return X, truth, pm.Normal("a") + pm.Data("X", X) @ pm.Normal("b", shape=p)


def logistic(p: int, scale: float = 1.0, shift: float = 0.0) -> Build:
    def build(rng: np.random.Generator, n: int) -> None:
        _, truth, eta = regression(rng, n, p, scale)
        pm.Bernoulli("y", logit_p=eta, observed=rng.binomial(1, expit(truth + shift)))

    return build


def heavy_tailed_covariates(rng: np.random.Generator, n: int) -> None:
    X = rng.standard_t(2.5, size=(n, 4))
    y = rng.binomial(1, expit(X @ [0.5, -0.3, 0.2, 0.0]))
    pm.Bernoulli("y", logit_p=pm.Normal("a") + X @ pm.Normal("b", shape=4), observed=y)


def poisson(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 6, 0.7)
    pm.Poisson("y", pt.exp(eta), observed=rng.poisson(np.exp(truth)))


def negative_binomial(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 5, 0.7)
    y = rng.negative_binomial(1.5, 1.5 / (1.5 + np.exp(truth)))
    pm.NegativeBinomial("y", mu=pt.exp(eta), alpha=pm.Exponential("alpha", 1.0), observed=y)


def gamma(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 4, 0.7)
    shape = pm.Exponential("shape", 0.5)
    pm.Gamma("y", shape, shape * pt.exp(-eta), observed=rng.gamma(2.0, np.exp(truth) / 2.0))


def linear(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 10)
    pm.Normal("y", eta, pm.HalfNormal("s"), observed=rng.normal(truth, 0.7))


def robust(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 5)
    y = truth + 0.5 * rng.standard_t(3, size=n)
    nu, s = pm.Gamma("nu", 2, 0.1), pm.HalfNormal("s")
    pm.StudentT("y", nu=nu, mu=eta, sigma=s, observed=y)


def quantiles(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 3)
    scale = pm.HalfNormal("s")
    pm.AsymmetricLaplace("y", mu=eta, q=0.8, b=1 / scale, observed=rng.normal(truth, 1.0))


def mixture(rng: np.random.Generator, n: int) -> None:
    y = np.where(rng.random(n) < 0.3, rng.normal(-1, 0.8, n), rng.normal(2, 0.8, n))
    mu = pm.Normal("mu", 0, 3, shape=2, transform=ordered, initval=[-2.0, 2.0])
    pm.NormalMixture("y", pm.Dirichlet("w", np.ones(2)), mu, pm.HalfNormal("s"), observed=y)


def weibull(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 3, 0.5)
    pm.Weibull(
        "y", pm.Exponential("k", 1.0), pt.exp(eta), observed=np.exp(truth) * rng.weibull(1.5, n)
    )


def ordered_logistic(rng: np.random.Generator, n: int) -> None:
    X = rng.normal(size=(n, 4))
    latent = X @ [0.8, -0.5, 0.2, 0.0] + rng.logistic(size=n)
    cuts = pm.Normal("cuts", 0, 3, shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])
    y = np.digitize(latent, [-1.0, 0.5, 2.0])
    pm.OrderedLogistic("y", cutpoints=cuts, eta=X @ pm.Normal("b", shape=4), observed=y)


def categories(rng: np.random.Generator, n: int) -> None:
    X = rng.normal(size=(n, 3))
    truth = X @ rng.normal(size=(3, 2))
    utilities = np.c_[truth, np.zeros(n)] + rng.gumbel(size=(n, 3))
    free = X @ pm.Normal("b", shape=(3, 2))
    logits = pt.concatenate([free, pt.zeros((n, 1))], axis=1)
    pm.Categorical("y", logit_p=logits, observed=utilities.argmax(axis=1))


def groups(n_groups: int, *, centred: bool, spread: float) -> Build:
    def build(rng: np.random.Generator, n: int) -> None:
        group, x = rng.integers(0, n_groups, n), rng.normal(size=n)
        truth = rng.normal(0, spread, n_groups)[group] + 0.5 * x
        s = pm.HalfNormal("s")
        if centred:
            a = pm.Normal("a", pm.Normal("m"), s, shape=n_groups)
        else:
            a = pm.Normal("m") + s * pm.Normal("z", shape=n_groups)
        eta = a[group] + pm.Normal("b") * x
        pm.Bernoulli("y", logit_p=eta, observed=rng.binomial(1, expit(truth)))

    return build


def crossed_effects(levels: tuple[int, int], spreads: tuple[float, float], outcome: str) -> Build:
    """Two crossed factors with effects of so many levels, of counts or of binary outcomes."""

    def build(rng: np.random.Generator, n: int) -> None:
        of_rows = [rng.integers(0, n_levels, n) for n_levels in levels]
        x = rng.normal(size=n)
        true = [rng.normal(0, *pair) for pair in zip(spreads, levels, strict=True)]
        truth = true[0][of_rows[0]] + true[1][of_rows[1]] + 0.5 * x
        u = pm.Normal("u", 0, pm.Gamma("su", 2, 2), shape=levels[0])
        v = pm.Normal("v", 0, pm.Gamma("sv", 2, 2), shape=levels[1])
        eta = pm.Normal("m") + u[of_rows[0]] + v[of_rows[1]] + pm.Normal("b") * x
        if outcome == "counts":
            pm.Poisson("y", pt.exp(eta), observed=rng.poisson(np.exp(truth)))
        else:
            pm.Bernoulli("y", logit_p=eta, observed=rng.binomial(1, expit(truth)))

    return build


crossed = crossed_effects((12, 8), (1.0, 0.5), "counts")


def funnel(rng: np.random.Generator, n: int) -> None:
    """Groups that hardly differ: their spread may be 0, where the density has no mode."""
    group, x = rng.integers(0, 8, n), rng.normal(size=n)
    a = pm.Normal("a", 0, pm.HalfNormal("s"), shape=8)
    pm.Normal("y", a[group] + pm.Normal("b") * x, 1.0, observed=rng.normal(x, 1.0))


def exponential(rng: np.random.Generator, n: int) -> None:
    """Survival times, of which those above two are censored."""
    _, truth, eta = regression(rng, n, 4, 0.6)
    times = rng.exponential(np.exp(truth))
    free = pm.Exponential.dist(scale=pt.exp(eta))
    pm.Censored("y", free, lower=None, upper=2.0, observed=np.minimum(times, 2.0))


def log_normal(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 5)
    y = np.exp(rng.normal(truth, 0.8))
    pm.LogNormal("y", eta, pm.HalfNormal("s"), observed=y)


def beta(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 4, 0.7)
    mean, precision = expit(truth), 20.0
    y = rng.beta(mean * precision, (1 - mean) * precision).clip(1e-6, 1 - 1e-6)
    nu = pm.Gamma("nu", 2, 0.1)
    mu = pm.math.sigmoid(eta)
    pm.Beta("y", alpha=mu * nu, beta=(1 - mu) * nu, observed=y)


def binomial(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 5)
    trials = rng.integers(1, 20, n)
    pm.Binomial("y", trials, logit_p=eta, observed=rng.binomial(trials, expit(truth)))


def beta_binomial(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 3)
    p = rng.beta(8 * expit(truth), 8 * expit(-truth))
    size, mu = pm.Gamma("size", 2, 0.1), pm.math.sigmoid(eta)
    y = rng.binomial(12, p)
    pm.BetaBinomial("y", mu * size, (1 - mu) * size, 12, observed=y)


def zero_inflated(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 4, 0.6)
    y = np.where(rng.random(n) < 0.3, 0, rng.poisson(np.exp(1 + truth)))
    pm.ZeroInflatedPoisson("y", pm.Beta("share", 2, 2), pt.exp(1 + eta), observed=y)


def two_scales(rng: np.random.Generator, n: int) -> None:
    """Mean and scale both depend on covariates."""
    X, truth, eta = regression(rng, n, 4)
    log_scale = pm.Normal("log_scale", 0, 0.5) + X[:, :2] @ pm.Normal("c", 0, 0.5, shape=2)
    y = rng.normal(truth, np.exp(0.3 * X[:, 0] - 0.2))
    pm.Normal("y", eta, pt.exp(log_scale), observed=y)


def autoregression(rng: np.random.Generator, n: int) -> None:
    y = np.zeros(n)
    for t in range(2, n):
        y[t] = 0.5 * y[t - 1] - 0.2 * y[t - 2] + rng.normal()
    rho, sigma = pm.Normal("rho", 0, 0.5, shape=2), pm.HalfNormal("sigma")
    pm.AR("y", rho, sigma=sigma, init_dist=pm.Normal.dist(0, 1), observed=y)


def wide(kind: str, p: int) -> Build:
    """Regressions of many columns, whose default has a quadratic."""

    def build(rng: np.random.Generator, n: int) -> None:
        _, truth, eta = regression(rng, n, p, 0.7)
        if kind == "logistic":
            pm.Bernoulli("y", logit_p=eta, observed=rng.binomial(1, expit(truth)))
        elif kind == "poisson":
            pm.Poisson("y", pt.exp(eta), observed=rng.poisson(np.exp(truth)))
        else:
            y = truth + 0.5 * rng.standard_t(4, size=n)
            nu, s = pm.Gamma("nu", 2, 0.1), pm.HalfNormal("s")
            pm.StudentT("y", nu=nu, mu=eta, sigma=s, observed=y)

    return build


def softmax(rng: np.random.Generator, n: int) -> None:
    X = rng.normal(size=(n, 8))
    utilities = X @ rng.normal(0, 0.5, size=(8, 5)) + rng.gumbel(size=(n, 5))
    free = pm.Normal("a", shape=4) + X @ pm.Normal("b", shape=(8, 4))
    logits = pt.concatenate([free, pt.zeros((n, 1))], axis=1)
    pm.Categorical("y", logit_p=logits, observed=utilities.argmax(axis=1))


def units(kind: str, n_units: int) -> Build:
    """Many small groups, whose effects are integrated out."""

    def build(rng: np.random.Generator, n: int) -> None:
        user, x = rng.integers(n_units, size=n), rng.normal(size=n)
        effect = rng.normal(0, 0.7, n_units)
        m, s, b = pm.Normal("m"), pm.HalfNormal("s"), pm.Normal("b")
        z = pm.Normal("z", m, s, shape=n_units)
        if kind == "logistic":
            y = rng.binomial(1, expit(effect[user] + 0.5 * x))
            pm.Bernoulli("y", logit_p=z[user] + b * x, observed=y)
        elif kind == "poisson":
            y = rng.poisson(np.exp(effect[user] - 0.3 * x))
            pm.Poisson("y", pt.exp(z[user] + b * x), observed=y)
        else:  # an intercept and a slope, and normal outcomes
            slope = rng.normal(0.3, 0.4, n_units)
            slopes = pm.Normal(
                "slopes", pm.Normal("m_slope"), pm.HalfNormal("s_slope"), shape=n_units
            )
            y = rng.normal(effect[user] + slope[user] * x, 0.8)
            pm.Normal("y", z[user] + (b + slopes[user]) * x, pm.HalfNormal("e"), observed=y)

    return build


def effects_of_rows(rng: np.random.Generator, n: int) -> None:
    _, truth, eta = regression(rng, n, 3, 0.5)
    y = rng.poisson(np.exp(truth + rng.normal(0, 0.5, n)))
    own = pm.Normal("own", 0, pm.HalfNormal("s"), shape=n)
    pm.Poisson("y", pt.exp(eta + own), observed=y)


def by_bambi(formula: str, family: str, rng: np.random.Generator, n: int) -> pm.Model:
    """Let Bambi write the model, of a frame with two covariates and twelve groups."""
    frame = pd.DataFrame({"x": rng.normal(size=n), "w": rng.normal(size=n)})
    group = rng.integers(12, size=n)
    eta = (0.4 * frame["x"] - 0.3 * frame["w"]).to_numpy() + rng.normal(0, 0.4, 12)[group]
    if family == "bernoulli":
        frame["y"] = rng.binomial(1, expit(eta))
    elif family == "gamma":
        frame["y"] = rng.gamma(3.0, np.exp(eta) / 3.0)
    else:
        frame["y"] = eta + rng.standard_t(4, size=n)
    frame["g"] = [f"g{i}" for i in group]
    link = {"link": "log"} if family == "gamma" else {}
    import bambi  # noqa: PLC0415 - half a second, which other models do without

    made = bambi.Model(formula, frame, family=family, center_predictors=False, **link)
    made.build()
    model: pm.Model = made.backend.model
    return model


def simulated(name: str, n: int) -> pm.Model:
    """Return one of the models, with data of `n` rows."""
    rng = np.random.default_rng(1)
    if name in FORMULAS:
        return by_bambi(*FORMULAS[name], rng, n)
    with pm.Model() as model:
        MODELS[name](rng, n)
    return model


MODELS: Mapping[str, Build] = {
    "logistic, D = 3": logistic(2),
    "logistic, D = 11": logistic(10),
    "logistic, rare events": logistic(5, shift=-5.0),
    "logistic, nearly separated": logistic(5, scale=15.0),
    "logistic, heavy-tailed covariates": heavy_tailed_covariates,
    "poisson": poisson,
    "negative binomial": negative_binomial,
    "gamma": gamma,
    "linear": linear,
    "student": robust,
    "quantiles": quantiles,
    "mixture": mixture,
    "weibull": weibull,
    "ordered logistic": ordered_logistic,
    "three categories": categories,
    "groups, centred": groups(30, centred=True, spread=1.0),
    "groups, not centred": groups(30, centred=False, spread=1.0),
    "groups that hardly differ": groups(10, centred=False, spread=0.02),
    "crossed effects": crossed,
    "a funnel": funnel,
    "exponential, censored": exponential,
    "log-normal": log_normal,
    "beta": beta,
    "binomial": binomial,
    "beta-binomial": beta_binomial,
    "zero-inflated": zero_inflated,
    "mean and scale": two_scales,
    "autoregression": autoregression,
    "logistic, D = 81": wide("logistic", 80),
    "poisson, D = 51": wide("poisson", 50),
    "student, D = 43": wide("student", 40),
    "softmax, D = 36": softmax,
    "crossed effects, D = 69": crossed_effects((40, 25), (0.6, 0.4), "binary"),
    "500 units, logistic": units("logistic", 500),
    "800 units, poisson": units("poisson", 800),
    "400 units, two effects each": units("normal", 400),
    "an effect of each row": effects_of_rows,
}

FORMULAS = {
    "Bambi, bernoulli": ("y ~ x + w + (1|g)", "bernoulli"),
    "Bambi, gamma": ("y ~ x + w + (1|g)", "gamma"),
    "Bambi, student t": ("y ~ x*w + (1|g)", "t"),
}
