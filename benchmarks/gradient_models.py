"""Models whose gradients are hard to compile well: choices, tests, matrices and nested groups."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt

__all__ = ["MODELS"]

type Array = np.ndarray
type Data = dict[str, Array]
type Build = Callable[[np.random.Generator], Data | None]

#: A name and a function that builds the model, and returns it with data for `gradients_by_hand`.
MODELS: dict[str, Callable[[], tuple[pm.Model, Data]]] = {}


def _model(name: str) -> Callable[[Build], None]:
    def enter(build: Build) -> None:
        def model() -> tuple[pm.Model, Data]:
            with pm.Model() as made:
                data = build(np.random.default_rng(28))
            return made, data or {}

        MODELS[name] = model

    return enter


def _binary(rng: np.random.Generator, eta: Array) -> Array:
    return (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(np.int64)


def _chosen(rng: np.random.Generator, utility: Array) -> Array:
    found: Array = (utility + rng.gumbel(size=utility.shape)).argmax(axis=1)
    return found


def _nested(rng: np.random.Generator, n: int, size: int) -> Array:
    """Return the district of each of `n` schools, `size` districts in all of them."""
    return np.sort(np.r_[np.arange(size), rng.integers(0, size, n - size)])


@_model("conditional logit")
def _(rng: np.random.Generator) -> Data:
    x = rng.normal(size=(50_000, 4, 5))
    chosen = _chosen(rng, x @ np.array([0.5, -0.4, 0.3, -0.2, 0.1]))
    utility = pt.dot(x, pm.Normal("b", shape=5))
    pm.Categorical("choice", p=pm.math.softmax(utility, axis=-1), observed=chosen)
    return {"x": x, "chosen": chosen}


@_model("choice sets in long form")
def _(rng: np.random.Generator) -> None:
    x = rng.normal(size=(200_000, 5))
    sets = x.reshape(50_000, 4, 5)
    chosen = _chosen(rng, sets @ np.array([0.5, -0.4, 0.3, -0.2, 0.1]))
    utility = (pm.Data("x", x) @ pm.Normal("b", shape=5)).reshape((50_000, 4))
    pm.Categorical("choice", logit_p=utility, observed=chosen)


@_model("mixed logit, tastes of 500 persons")
def _(rng: np.random.Generator) -> Data:
    x, person = rng.normal(size=(20_000, 3, 4)), rng.integers(0, 500, 20_000)
    taste = rng.normal([0.5, -0.4, 0.3, 0.2], 0.5, size=(500, 4))
    chosen = _chosen(rng, np.einsum("nap,np->na", x, taste[person]))
    z = pm.Normal("z", shape=(500, 4))
    tastes = pm.Normal("b", shape=4) + pm.HalfNormal("spread", shape=4) * z
    utility = (x * tastes[person][:, None, :]).sum(axis=-1)
    pm.Categorical("choice", p=pm.math.softmax(utility, axis=-1), observed=chosen)
    return {"x": x, "person": person, "chosen": chosen}


@_model("LKJ slopes of 150 groups")
def _(rng: np.random.Generator) -> None:
    n, groups = 30_000, 150
    x, group = rng.normal(size=n), rng.integers(0, groups, n)
    effects = rng.multivariate_normal([1.0, 0.5], [[0.5, 0.2], [0.2, 0.3]], size=groups)
    y = effects[group, 0] + effects[group, 1] * x + rng.normal(size=n)
    prior = pm.Exponential.dist(1.0)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=prior)
    mean, z = pm.Normal("mean", shape=2), pm.Normal("z", shape=(groups, 2))
    b = pm.Deterministic("b", mean + z @ chol.T)
    pm.Normal("y", b[group, 0] + b[group, 1] * x, pm.HalfNormal("s"), observed=y)


@_model("multilevel regression of survey rows")
def _(rng: np.random.Generator) -> None:
    n = 60_000
    sizes = {"state": 51, "age": 6, "education": 5, "ethnicity": 4}
    codes = {name: rng.integers(0, size, n) for name, size in sizes.items()}
    female = rng.integers(0, 2, n)
    eta, truth = pm.Normal("a") + pm.Normal("female") * female, 0.3 * female
    pairs = {"state": 51, "age": 6, "education": 5, "ethnicity": 4, "age_education": 30}
    codes["age_education"] = codes["age"] * 5 + codes["education"]
    for name, size in pairs.items():
        z = pm.Normal(f"z_{name}", shape=size)
        eta += (pm.HalfNormal(f"s_{name}") * z)[codes[name]]
        truth = truth + 0.4 * rng.normal(size=size)[codes[name]]
    pm.Bernoulli("yes", logit_p=eta, observed=_binary(rng, truth))


@_model("schools nested in districts")
def _(rng: np.random.Generator) -> Data:
    n, schools, districts = 50_000, 600, 60
    district, school = _nested(rng, schools, districts), rng.integers(0, schools, n)
    x = rng.normal(size=n)
    of_district = 0.5 * rng.normal(size=districts)
    of_school = of_district[district] + 0.3 * rng.normal(size=schools)
    y = of_school[school] + 0.4 * x + rng.normal(size=n)
    upper = pm.Normal("district", pm.Normal("a"), pm.HalfNormal("s_district"), shape=districts)
    z = pm.Normal("z", shape=schools)
    lower = pm.Deterministic("school", upper[district] + pm.HalfNormal("s_school") * z)
    pm.Normal("y", lower[school] + pm.Normal("b") * x, pm.HalfNormal("s"), observed=y)
    return {"x": x, "y": y, "school": school, "district": district[school]}


@_model("Gaussian process over time (HSGP), 100,000 rows")
def _(rng: np.random.Generator) -> None:
    t = np.sort(rng.uniform(0, 10, 100_000))
    y = np.sin(t) + 0.3 * np.cos(3 * t) + 0.5 * rng.normal(size=len(t))
    scale, length = pm.HalfNormal("eta"), pm.InverseGamma("ell", 5.0, 5.0)
    process = pm.gp.HSGP(m=[25], c=1.5, cov_func=scale**2 * pm.gp.cov.ExpQuad(1, ls=length))
    pm.Normal("y", process.prior("f", X=t[:, None]), pm.HalfNormal("s"), observed=y)


@_model("normal vectors with LKJ covariance")
def _(rng: np.random.Generator) -> None:
    n = 30_000
    x = rng.normal(size=(n, 3))
    covariance = np.array([[1.0, 0.5, 0.2], [0.5, 1.5, 0.3], [0.2, 0.3, 0.8]])
    y = x @ (0.3 * rng.normal(size=(3, 3))) + rng.multivariate_normal(np.zeros(3), covariance, n)
    prior = pm.Exponential.dist(1.0)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=prior)
    pm.MvNormal("y", x @ pm.Normal("B", shape=(3, 3)), chol=chol, observed=y)


def _answers(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Return person, item and the predictor of each answer: 2,000 persons, 50 items."""
    person, item = np.repeat(np.arange(2_000), 50), np.tile(np.arange(50), 2_000)
    ability, difficulty = rng.normal(size=2_000), rng.normal(size=50)
    slope = np.exp(0.3 * rng.normal(size=50))
    return person, item, slope[item] * (ability[person] - difficulty[item])


@_model("2PL, 2,000 persons and 50 items")
def _(rng: np.random.Generator) -> Data:
    person, item, eta = _answers(rng)
    ability, difficulty = pm.Normal("ability", shape=2_000), pm.Normal("difficulty", shape=50)
    slope = pm.LogNormal("slope", 0.0, 0.5, shape=50)
    predictor = slope[item] * (ability[person] - difficulty[item])
    right = _binary(rng, eta)
    pm.Bernoulli("right", logit_p=predictor, observed=right)
    return {"right": right, "person": person, "item": item}


@_model("graded response, 2,000 persons and 50 items")
def _(rng: np.random.Generator) -> None:
    person, item, eta = _answers(rng)
    noisy = eta + rng.logistic(size=len(eta))
    grade = (noisy[:, None] > np.array([-1.5, 0.0, 1.5])).sum(axis=1)
    ability, slope = pm.Normal("ability", shape=2_000), pm.LogNormal("slope", 0.0, 0.5, shape=50)
    cut = pm.Normal(
        "cut",
        np.array([-1.5, 0.0, 1.5]),
        1.0,
        shape=(50, 3),
        transform=pm.distributions.transforms.ordered,
        initval=np.tile([-1.5, 0.0, 1.5], (50, 1)),
    )
    pm.OrderedLogistic(
        "grade", slope[item] * ability[person], cut[item], compute_p=False, observed=grade
    )
