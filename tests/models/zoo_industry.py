"""Models of customers, survival, tests, choices, polls and marketing, as packages write them."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from tests.models.zoo import (
    BINARY,
    CLASS,
    COUNT,
    GROUP,
    ITEM,
    MASK,
    OUTER,
    POSITIVE,
    REAL,
    N,
    X,
    case,
    coefficients,
    predictor,
    scale,
)

_rng = np.random.default_rng(8)
CUSTOMERS = {"customer": range(N), "seen": ["recency", "frequency"]}
AGE = 5.0 + POSITIVE  # of each customer, in weeks
RECENCY = np.where(COUNT > 0, AGE * _rng.uniform(0.1, 0.9, size=N), 0.0)
PURCHASES = np.stack([RECENCY, COUNT], axis=1)
INTERVALS = np.array([0.0, 0.5, 1.0, 2.0])  # where each interval of a hazard begins
ALTERNATIVES = _rng.normal(size=(N, 4, 2))
CHOSEN = _rng.integers(0, 4, size=N)
SPEND = _rng.gamma(2.0, 0.5, size=(N, 2))


# -- customers -------------------------------------------------------------------------------------


def purchases(name: str, logp: Any, *parameters: Any) -> None:
    """Observe recency and frequency of each customer, one distribution of pairs."""
    pm.CustomDist(
        name, *parameters, AGE, logp=logp, signature="(),(),(),(),()->(2)",
        observed=PURCHASES, dims=("customer", "seen"),
    )  # fmt: skip


@case("customers, BG/NBD", coords=CUSTOMERS)
def _() -> None:
    def logp(value: Any, a: Any, b: Any, r: Any, alpha: Any, age: Any) -> Any:
        t_x, x = value[..., 0], value[..., 1]
        d1 = (
            pt.gammaln(r + x) - pt.gammaln(r) + pt.gammaln(a + b)
            + pt.gammaln(b + x) - pt.gammaln(b) - pt.gammaln(a + b + x)
        )  # fmt: skip
        d2 = r * pt.log(alpha) - (r + x) * pt.log(alpha + t_x)
        c3 = ((alpha + t_x) / (alpha + age)) ** (r + x)
        logp = d1 + d2 + pt.log(c3 + pt.switch(x > 0, a / (b + x - 1), 0))
        impossible = pt.or_(pt.or_(pt.lt(t_x, 0), pt.lt(x, 0)), pt.gt(t_x, age))
        logp = pt.switch(impossible, -np.inf, logp)
        return pm.logprob.utils.CheckParameterValue("a > 0, age > 0")(
            logp, pt.all(a > 0), pt.all(age > 0)
        )

    # Dropout is given by its share and by how much is known of it.
    phi, kappa = pm.Uniform("phi"), pm.Pareto("kappa", 1, 1)
    a, b = pm.Deterministic("a", phi * kappa), pm.Deterministic("b", (1 - phi) * kappa)
    effect = pm.Normal("purchase_coefficient", 0, 0.2, shape=2)
    alpha = scale("alpha") * pm.math.exp(-pm.math.dot(X[:, :2], effect))
    purchases("purchases", logp, a, b, scale("r"), alpha)


@case("customers, Pareto/NBD", coords=CUSTOMERS)
def _() -> None:
    def logp(value: Any, r: Any, alpha: Any, s: Any, beta: Any, age: Any) -> Any:
        t_x, x = value[..., 0], value[..., 1]
        rsx = r + s + x
        larger, smaller = pt.maximum(alpha, beta), pt.minimum(alpha, beta)
        first = pt.switch(alpha >= beta, s + 1, r + x)
        terms = [
            pt.hyp2f1(rsx, first, rsx + 1, (larger - smaller) / (larger + t))
            * ((larger + t_x) / (larger + t)) ** rsx
            for t in (t_x, age)
        ]
        gone = pt.log(s) - pt.log(rsx) - rsx * pt.log(larger + t_x) + pt.log(terms[0] - terms[1])
        alive = -(r + x) * pt.log(alpha + age) - s * pt.log(beta + age)
        constant = pt.gammaln(r + x) - pt.gammaln(r) + r * pt.log(alpha) + s * pt.log(beta)
        return constant + pt.logaddexp(alive, gone)

    r, s = scale("r"), scale("s")
    purchases("purchases", logp, r, 1.0 + scale("alpha"), s, 1.0 + scale("beta"))


@case("customers, gamma-gamma", coords=CUSTOMERS)
def _() -> None:
    p, q, v = 1.0 + scale("p"), 1.0 + scale("q"), scale("v")
    x, z = pm.Data("frequency", COUNT + 1, dims="customer"), POSITIVE
    value = (
        pt.gammaln(p * x + q) - pt.gammaln(p * x) - pt.gammaln(q)
        + q * pt.log(v) + (p * x - 1) * pt.log(z) + (p * x) * pt.log(x)
        - (p * x + q) * pt.log(v + x * z)
    )  # fmt: skip
    pm.Potential("likelihood", value, dims="customer")


@case("customers, shifted beta-geometric", coords=CUSTOMERS)
def _() -> None:
    def betaln(a: Any, b: Any) -> Any:
        return pt.gammaln(a) + pt.gammaln(b) - pt.gammaln(a + b)

    alpha, beta, age = scale("alpha"), scale("beta"), COUNT + 1.0
    churned = betaln(alpha + 1, beta + age - 1) - betaln(alpha, beta)
    stayed = betaln(alpha, beta + age) - betaln(alpha, beta)
    pm.Potential("likelihood", pt.switch(MASK, stayed, churned), dims="customer")


# -- survival --------------------------------------------------------------------------------------


def in_intervals() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Split times into intervals: person, interval, time at risk, event of each piece."""
    at_risk = np.clip(POSITIVE[:, None] - INTERVALS, 0, np.append(np.diff(INTERVALS), np.inf))
    person, interval = np.nonzero(at_risk)
    last = np.append(person[1:] != person[:-1], True)
    return person, interval, at_risk[person, interval], (last & ~MASK[person]).astype(int)


PERSON, INTERVAL, AT_RISK, DIED = in_intervals()


@case("survival, piecewise exponential by counts of deaths", n_obs=len(PERSON))
def _() -> None:
    hazard = pm.Gamma("hazard", 2.0, 2.0, shape=len(INTERVALS))
    mu = AT_RISK * hazard[INTERVAL] * pm.math.exp(X[PERSON] @ coefficients())
    pm.Poisson("died", mu, observed=DIED)


@case("survival, piecewise exponential by persons and intervals", n_obs=N)
def _() -> None:
    exposure, deaths = np.zeros((N, len(INTERVALS))), np.zeros((N, len(INTERVALS)), int)
    exposure[PERSON, INTERVAL], deaths[PERSON, INTERVAL] = AT_RISK, DIED
    walk = pm.GaussianRandomWalk(
        "log_hazard", sigma=scale("tau"), init_dist=pm.Normal.dist(), shape=len(INTERVALS)
    )
    risk = pt.outer(pt.exp(predictor()), pt.exp(walk))
    pm.Poisson("died", exposure * risk + 1e-9, observed=deaths)


@case("survival, piecewise exponential as a potential")
def _() -> None:
    hazard = pm.Gamma("hazard", 2.0, 2.0, shape=len(INTERVALS))
    at_risk = np.clip(POSITIVE[:, None] - INTERVALS, 0, np.append(np.diff(INTERVALS), np.inf))
    interval = np.searchsorted(INTERVALS, POSITIVE) - 1
    eta = predictor()
    died = (1 - MASK) * (pt.log(hazard)[interval] + eta)
    pm.Potential("likelihood", died - pt.dot(at_risk, hazard) * pt.exp(eta))


@case("survival, two observed parts of one predictor", observed="died", n_obs=int((~MASK).sum()))
def _() -> None:
    beta = pt.exp(predictor() / 2.0)
    pm.Gumbel("died", beta[~MASK], scale(), observed=np.log(POSITIVE[~MASK]))
    survival = pt.exp(-((np.log(POSITIVE[MASK]) - beta[MASK]) ** 2))
    pm.Potential("alive", pt.log(survival).sum())


# -- tests and choices -----------------------------------------------------------------------------


@case("tests, graded response")
def _() -> None:
    ability = pm.Normal("ability", shape=4)
    discrimination = pm.LogNormal("discrimination", 0, 0.3, shape=5)
    first = pm.Normal("first", -0.5, 0.5, shape=5)
    cut = pt.stack([first, first + pm.LogNormal("step", 0, 0.3, shape=5)], axis=1)
    eta = discrimination[ITEM] * ability[GROUP]
    at_least = pm.math.sigmoid(eta[:, None] - cut[ITEM])
    above = pt.concatenate([pt.ones((N, 1)), at_least, pt.zeros((N, 1))], axis=1)
    pm.Categorical("y", p=above[:, :-1] - above[:, 1:], observed=CLASS)


@case("tests, graded response by cutpoints of each item")
def _() -> None:
    ability = pm.Normal("ability", shape=4)
    cut = pm.Normal(
        "cut", [-1.0, 1.0], 1.0, shape=(5, 2), initval=np.tile([-0.5, 0.5], (5, 1)),
        transform=pm.distributions.transforms.ordered,
    )  # fmt: skip
    pm.OrderedLogistic("y", ability[GROUP], cut[ITEM], compute_p=False, observed=CLASS)


@case("choices, conditional logit")
def _() -> None:
    utility = pm.math.dot(ALTERNATIVES, pm.Normal("b", shape=2))
    constants = pt.concatenate([[0.0], pm.Normal("constant", shape=3)])
    p = pm.math.softmax(utility + constants[None, :], axis=1)
    pm.Categorical("choice", p=p, observed=CHOSEN)


@case("choices, some of the alternatives on offer, with tastes of each person")
def _() -> None:
    offered = MASK[:, None] | (np.arange(4) < 3) | (np.arange(4) == CHOSEN[:, None])
    taste = pm.Normal("taste", pm.Normal("b", shape=2), 0.5, shape=(5, 2))
    utility = (ALTERNATIVES * taste[ITEM][:, None, :]).sum(axis=-1)
    shares = pt.where(offered, utility, -1e9)
    chosen = shares[pt.arange(N), CHOSEN]
    pm.Potential("choice", chosen - pt.logsumexp(shares, axis=1))


@case("choices, in long form, of sets of two to four alternatives")
def _() -> None:
    size = 2 + GROUP % 3
    sets, first = np.repeat(np.arange(N), size), np.cumsum(size) - size
    utility = pm.Data("x", ALTERNATIVES.reshape(-1, 2)[: len(sets)]) @ pm.Normal("b", shape=2)
    total = pt.zeros(N)[sets].inc(pt.exp(utility))
    pm.Potential("choice", utility[first + CHOSEN % size] - pt.log(total))


@case("choices, in long form, of sets of four alternatives")
def _() -> None:
    x, alternative = ALTERNATIVES.reshape(-1, 2), np.tile(np.arange(4), N)
    constants = pt.concatenate([[0.0], pm.Normal("constant", shape=3)])
    utility = constants[alternative] + pm.Data("x", x) @ pm.Normal("b", shape=2)
    pm.Categorical("choice", logit_p=utility.reshape((N, 4)), observed=CHOSEN)


# -- polls and marketing ---------------------------------------------------------------------------


@case("poll, for post-stratification", coords={"state": list("abcd"), "age": range(5)})
def _() -> None:
    state_effect = pm.Normal(
        "state_effect", pm.Normal("region", shape=2)[OUTER] + np.linspace(-1, 1, 4)
        * pm.Normal("past_vote"), scale("tau_state"), dims="state",
    )  # fmt: skip
    age_effect = pm.ZeroSumNormal("age_effect", scale("tau_age"), dims="age")
    z = pm.Normal("z", dims=("state", "age"))
    both = pm.Deterministic("both", scale("tau") * z, dims=("state", "age"))
    state, age = pm.Data("state_of", GROUP), pm.Data("age_of", ITEM)
    eta = pm.Normal("female") * BINARY + state_effect[state] + age_effect[age] + both[state, age]
    pm.Binomial("yes", n=COUNT + 5, p=pm.math.invlogit(eta), observed=COUNT)
    cells = pm.math.invlogit(state_effect[:, None] + age_effect + both)
    pm.Deterministic("by_state", cells.mean(axis=1), dims="state")


def convolved(x: Any, weights: Any, n_lags: int) -> Any:
    """Convolve the channels (time, channel) with weights (channel, lag) of the weeks before."""
    x = pt.moveaxis(pt.as_tensor(x), 0, -1)
    lags = pt.zeros((x.shape[0], x.shape[1], n_lags))
    for lag in range(n_lags):
        lags = pt.set_subtensor(lags[:, lag:, lag], x[:, : x.shape[1] - lag])
    return pt.moveaxis((lags * weights[:, None, :]).sum(axis=-1), -1, 0)


@case("marketing mix, adstock and saturation", coords={"week": range(N), "channel": ["tv", "web"]})
def _() -> None:
    spend = pm.Data("spend", SPEND / SPEND.max(axis=0), dims=("week", "channel"))
    decay = pm.Beta("decay", 1, 3, dims="channel")
    weights = decay[:, None] ** pt.arange(4)
    carried = convolved(spend, weights / weights.sum(axis=1, keepdims=True), 4)
    curve = pm.math.exp(-pm.Gamma("lam", 3, 1, dims="channel") * carried)
    saturated = (1 - curve) / (1 + curve)
    parts = pm.Deterministic(
        "contribution", pm.HalfNormal("beta", dims="channel") * saturated, dims=("week", "channel")
    )
    fourier = np.sin(2 * np.pi * np.arange(N)[:, None] / 52 * np.arange(1, 3))
    season = pm.Deterministic("season", fourier @ pm.Laplace("gamma", 0, 1, shape=2), dims="week")
    mu = pm.Normal("intercept") + parts.sum(axis=-1) + season
    pm.Normal("sales", mu, scale(), observed=pm.Data("target", REAL, dims="week"), dims="week")


@case("change point in time, a continuous one")
def _() -> None:
    week = np.arange(N, dtype=float)
    at, low, high = pm.Uniform("at", 0, 45), pm.Normal("low"), pm.Normal("high")
    step = pm.math.sigmoid((week - at) / 3.0)
    trend = pm.Normal("k") * (week / N) + pm.math.switch(week >= at, pm.Normal("change"), 0.0)
    pm.Normal("y", low + (high - low) * step + trend, scale(), observed=REAL)
