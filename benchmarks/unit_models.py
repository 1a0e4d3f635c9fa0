"""Data of many small units, and the models of them that `benchmarks.units` measures."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import expit

from benchmarks.unit_data import REAL

__all__ = ["CASES", "Case"]

type Array = np.ndarray
type Rng = np.random.Generator
type Build = Callable[[Rng, int], None]

N_SLOPES = 4
SHOPS = ("intercept", "b0", "b1", "b2", "b3", "log_dispersion")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model of so many units; `build` adds its variables, and `local` are those of units."""

    name: str
    n_units: int
    build: Build
    local: tuple[str, ...]
    named: bool = False  # by the user, where there are few units for the shared variables

    def model(self, part: float, seed: int) -> pm.Model:
        """Draw data of a part of the units, and return the model of them."""
        with pm.Model() as model:
            self.build(np.random.default_rng(seed), round(part * self.n_units))
        return model


# -- an intercept for each unit --------------------------------------------------------------------


def intercepts(rng: Rng, n: int, sizes: Callable[[Rng, int], Array], *, centred: bool) -> None:
    """Binary outcomes with four slopes, and an intercept for each unit."""
    n_rows = sizes(rng, n)
    user = rng.permutation(np.repeat(np.arange(n), n_rows))
    x = rng.normal(size=(len(user), N_SLOPES))
    eta = x @ rng.normal(0, 0.5, N_SLOPES) + rng.normal(-0.5, 0.7, n)[user]
    mean, sd = pm.Normal("mean", 0, 2), pm.HalfNormal("sd", 1)
    own = pm.Normal("own", mean, sd, shape=n) if centred else pm.Normal("own", shape=n)
    group = pm.Data("group_index", user)
    effect = own[group] if centred else mean + sd * own[group]
    predictor = pm.Data("x", x) @ pm.Normal("slopes", 0, 1, shape=N_SLOPES) + effect
    pm.Bernoulli("y", logit_p=predictor, observed=rng.binomial(1, expit(eta)))


def equal(each: int) -> Callable[[Rng, int], Array]:
    return lambda _, n: np.full(n, each)


def power_law(rng: Rng, n: int) -> Array:
    """One to ten thousand rows, a hundred on average."""
    shares = (1 - rng.random(n)) ** (-1 / 0.75)
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        mean = np.clip(middle * shares, 1, 1e4).mean()
        low, high = (middle, high) if mean < 100 else (low, middle)
    return np.clip(low * shares, 1, 1e4).astype(int)


# -- several variables for each unit ---------------------------------------------------------------


def slopes_lkj(rng: Rng, n: int) -> None:
    """Intercepts and slopes that are correlated, with twelve rows for each unit."""
    user = np.repeat(np.arange(n), 12)
    x = rng.normal(size=(len(user), 3))
    covariance = np.array([[0.64, 0.12], [0.12, 0.25]])
    true = rng.multivariate_normal([-0.5, 0.4], covariance, size=n)
    eta = true[user, 0] + true[user, 1] * x[:, 0] + x[:, 1:] @ [0.3, -0.2]
    factor, _, _ = pm.LKJCholeskyCov("cov", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, size=2))
    mean = pm.Normal("mean", 0, 1, shape=2)
    own = pm.MvNormal("own", mu=mean, chol=factor, shape=(n, 2))
    common = x[:, 1:] @ pm.Normal("slopes", 0, 1, shape=2)
    predictor = own[user, 0] + own[user, 1] * x[:, 0] + common
    pm.Bernoulli("y", logit_p=predictor, observed=rng.binomial(1, expit(eta)))


def mixed_logit(rng: Rng, n: int) -> None:
    """Ten choices of each person among three goods, with two tastes that differ."""
    person = np.repeat(np.arange(n), 10)
    x = rng.normal(size=(len(person), 3, 3))
    true = np.c_[rng.normal([1.0, -0.8], [0.7, 0.5], size=(n, 2)), np.full(n, 0.5)]
    gains = np.einsum("rjk,rk->rj", x, true[person]) + rng.gumbel(size=(len(person), 3))
    mean, sd = pm.Normal("mean", 0, 1, shape=2), pm.HalfNormal("sd", 1, shape=2)
    own = pm.Normal("own", mean, sd, shape=(n, 2))
    first, second = own[person, 0], own[person, 1]
    of_goods = x[:, :, 0] * first[:, None] + x[:, :, 1] * second[:, None]
    utility = of_goods + x[:, :, 2] * pm.Normal("taste", 0, 1)
    pm.Categorical("y", logit_p=utility, observed=gains.argmax(axis=1))


def student_groups(rng: Rng, n: int) -> None:
    """Twenty rows for each group, by a t distribution with its own location, slope and scale."""
    group = np.repeat(np.arange(n), 20)
    x = rng.normal(size=len(group))
    a, b, s = rng.normal(1, 0.6, n), rng.normal(-0.5, 0.4, n), rng.normal(-0.5, 0.3, n)
    y = a[group] + b[group] * x + np.exp(s[group]) * rng.standard_t(5, size=len(group))
    location, slope, log_scale = (
        pm.Normal(name, pm.Normal(f"{name}_mean"), pm.HalfNormal(f"{name}_sd"), shape=n)
        for name in ("location", "slope", "log_scale")
    )
    pm.StudentT(
        "y",
        nu=pm.Gamma("nu", 2, 0.1),
        mu=location[group] + slope[group] * x,
        sigma=pt.exp(log_scale[group]),
        observed=y,
    )


def shops(rng: Rng, n: int) -> None:
    """Counts of 600 days for each shop, which has an intercept, four slopes and a dispersion."""
    shop = np.repeat(np.arange(n), 600)
    x = rng.normal(size=(len(shop), N_SLOPES))
    true = rng.normal([2.0, 0.3, -0.2, 0.1, 0.0, 1.5], [0.5, 0.2, 0.2, 0.2, 0.2, 0.4], (n, 6))
    mean, size = np.exp(true[shop, 0] + (x * true[shop, 1:5]).sum(axis=1)), np.exp(true[shop, 5])
    own = [
        pm.Normal(name, pm.Normal(f"{name}_mean", 0, 2), pm.HalfNormal(f"{name}_sd", 1), shape=n)
        for name in SHOPS
    ]
    eta = own[0][shop] + sum(b[shop] * x[:, j] for j, b in enumerate(own[1:5]))
    counts = rng.negative_binomial(size, size / (size + mean))
    pm.NegativeBinomial("y", mu=pt.exp(eta), alpha=pt.exp(own[5][shop]), observed=counts)


# -- other likelihoods, and other priors of the variables of units ---------------------------------


def poisson_rows(rng: Rng, n: int) -> None:
    """Counts with an effect for each row."""
    x = rng.normal(size=(n, N_SLOPES))
    eta = 0.5 + x @ [0.3, -0.2, 0.4, 0.1] + rng.normal(0, 0.6, n)
    own = pm.Normal("own", 0, pm.HalfNormal("sd", 1), shape=n)
    predictor = pm.Normal("mean", 0, 2) + x @ pm.Normal("slopes", 0, 1, shape=N_SLOPES) + own
    pm.Poisson("y", pt.exp(predictor), observed=rng.poisson(np.exp(eta)))


def frailty(rng: Rng, n: int) -> None:
    """Four times to an event for each unit, some censored, with a gamma frailty."""
    unit = np.repeat(np.arange(n), 4)
    x = rng.normal(size=(len(unit), 3))
    rate = np.exp(-0.5 + x @ [0.5, -0.3, 0.2]) * rng.gamma(2.0, 0.5, n)[unit]
    times = (rng.exponential(size=len(unit)) / rate) ** (1 / 1.4)
    seen = times < 3.0
    shape = pm.Gamma("frailty_shape", 2, 1)
    own = pm.Gamma("own", shape, shape, shape=n)
    k = pm.Gamma("k", 4, 4)
    log_rate = pm.Normal("mean", 0, 2) + x @ pm.Normal("slopes", 0, 1, shape=3)
    scale = (own[unit] * pt.exp(log_rate)) ** (-1 / k)
    event = pm.Weibull.dist(k, scale)
    pm.Censored("y", event, lower=None, upper=3.0, observed=np.where(seen, times, 3.0))


def gamma_gamma(rng: Rng, n: int) -> None:
    """The mean value of each customer's purchases: gamma, with a gamma scale for each customer."""
    times = 1 + rng.poisson(2.0, n)
    true = rng.gamma(4.0, 1 / 15.0, n)
    mean_value = rng.gamma(6.0 * times) / (true * times)
    p, q, v = (pm.HalfNormal(name, 20) for name in ("p", "q", "v"))
    own = pm.Gamma("own", q, v, shape=n)
    pm.Gamma("y", p * times, own * times, observed=mean_value)


def districts(rng: Rng, n: int) -> None:
    """Ten pupils in each school, and schools in thirty districts."""
    school = np.repeat(np.arange(n), 10)
    of_school = rng.integers(0, 30, n)
    x = rng.normal(size=(len(school), 3))
    true = rng.normal(0, 0.4, 30)[of_school] + rng.normal(0, 0.6, n)
    y = 0.5 + true[school] + x @ [0.4, -0.2, 0.1] + rng.normal(0, 1.2, len(school))
    district = pm.Normal("district", 0, pm.HalfNormal("sd_district", 1), shape=30)
    own = pm.Normal("own", district[of_school], pm.HalfNormal("sd_school", 1), shape=n)
    mean = pm.Normal("mean", 0, 2) + x @ pm.Normal("slopes", 0, 1, shape=3) + own[school]
    pm.Normal("y", mean, pm.HalfNormal("s", 2), observed=y)


def three_levels(rng: Rng, n: int) -> None:
    """Binary outcomes of 25 pupils in each class, and ten classes in each school."""
    n_schools, n_rows = max(n // 10, 1), 25 * n
    school, group = rng.integers(0, n_schools, n), np.sort(rng.integers(0, n, n_rows))
    x = rng.normal(size=(n_rows, 3))
    true = rng.normal(0, 0.6, n_schools)[school] + rng.normal(0, 0.4, n)
    eta = x @ [0.5, -0.3, 0.2] + true[group] - 0.3
    above = pm.Normal("school", 0, pm.HalfNormal("sd_school", 1), shape=n_schools)
    own = pm.Normal("own", above[school], pm.HalfNormal("sd_class", 1), shape=n)
    predictor = pm.Normal("mean", 0, 2) + x @ pm.Normal("slopes", 0, 2, shape=3) + own[group]
    pm.Bernoulli("y", logit_p=predictor, observed=rng.binomial(1, expit(eta)))


def two_parameter_logistic(rng: Rng, n: int) -> None:
    """Fifty items, each with a discrimination and a difficulty, answered by every person."""
    n_items = 50
    person, item = np.repeat(np.arange(n), n_items), np.tile(np.arange(n_items), n)
    slope, place = rng.lognormal(0, 0.3, n_items), rng.normal(0, 1, n_items)
    eta = slope[item] * (rng.normal(size=n)[person] - place[item])
    own = pm.Normal("own", shape=n)
    a, b = pm.LogNormal("a", 0, 0.5, shape=n_items), pm.Normal("b", 0, 2, shape=n_items)
    predictor = a[item] * (own[person] - b[item])
    pm.Bernoulli("y", logit_p=predictor, observed=rng.binomial(1, expit(eta)))


def classes(rng: Rng, n: int) -> None:
    """Eight binary answers of each respondent, who is of one of three classes."""
    shares, agree = np.array([0.5, 0.3, 0.2]), rng.uniform(0.1, 0.9, (3, 8))
    agree[:, 0] = 0.15, 0.5, 0.85
    of = rng.choice(3, n, p=shares)
    own = pm.Categorical("own", p=pm.Dirichlet("shares", np.ones(3)), shape=n)
    ordered = pm.distributions.transforms.ordered
    first = pm.Normal("first", 0, 1.5, shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])
    others = pm.Normal("others", 0, 1.5, shape=(3, 7))
    logits = pt.concatenate([first[:, None], others], axis=1)
    pm.Bernoulli("y", logit_p=logits[own], observed=rng.binomial(1, agree[of]))


def _case(name: str, n_units: int, build: Build, *local: str) -> Case:
    return Case(name=name, n_units=n_units, build=build, local=local or ("own",))


def _real(name: str, n_units: int, write: Callable[[float], None], local: tuple[str, ...]) -> Case:
    """Public data, of which a part is taken in the order that they have; perhaps with units."""

    def build(_: Rng, n: int) -> None:
        write(n / n_units)

    return Case(name=name, n_units=n_units, build=build, local=local, named=bool(local))


def _intercepts(sizes: Callable[[Rng, int], Array], **options: Any) -> Build:  # noqa: ANN401
    return partial(intercepts, sizes=sizes, **options)


CASES = {
    "users": _case("20,000 users × 5, logistic", 20_000, _intercepts(equal(5), centred=False)),
    "million": _case("200,000 users × 5, logistic", 200_000, _intercepts(equal(5), centred=False)),
    "uneven": _case(
        "2,000 levels of 1 to 10,000 rows, logistic", 2_000, _intercepts(power_law, centred=True)
    ),
    "groups": _case("10,000 groups × 100, logistic", 10_000, _intercepts(equal(100), centred=True)),
    "lkj": _case("5,000 × 12, intercepts and slopes, LKJ", 5_000, slopes_lkj),
    "poisson": _case("50,000 rows, Poisson, an effect each", 50_000, poisson_rows),
    "frailty": _case("10,000 × 4, survival, gamma frailty", 10_000, frailty),
    "gamma": _case("100,000 customers, GammaGamma", 100_000, gamma_gamma),
    "choices": _case("2,000 persons × 10 choices, mixed logit", 2_000, mixed_logit),
    "student": _case(
        "3,000 groups × 20, Student t: location, slope, scale",
        3_000,
        student_groups,
        "location",
        "slope",
        "log_scale",
    ),
    "shops": _case("300 shops × 600 days, six variables each", 300, shops, *SHOPS),
    "classes": _case("20,000 respondents × 8 answers, three classes", 20_000, classes),
    "schools": _case("8,000 schools × 10 pupils in 30 districts", 8_000, districts),
    "pupils": _case("50,000 pupils in 2,000 classes in 200 schools", 2_000, three_levels),
    "items": _case("2,000 persons × 50 items, 2PL", 2_000, two_parameter_logistic),
    "many items": _case("20,000 persons × 50 items, 2PL", 20_000, two_parameter_logistic),
} | {name: _real(*of) for name, of in REAL.items()}
