"""Observed matrices of which each cell is a row: ``y[dog, trial]``, ``y[item, person]``."""

import warnings
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from tests.models.zoo import case, scale

N_DOGS, N_TRIALS = 5, 7
N_CELLS = N_DOGS * N_TRIALS
CELLS = {"dog": list("abcde"), "trial": range(10, 17), "k": ["x0", "x1", "x2"]}
DIM = ("dog", "trial")

_rng = np.random.default_rng(4)
REAL = _rng.normal(size=(N_DOGS, N_TRIALS))
BINARY = _rng.integers(0, 2, size=(N_DOGS, N_TRIALS))
LABELS = _rng.integers(0, 3, size=(N_DOGS, N_TRIALS))
OF_CELL = _rng.normal(size=(N_DOGS, N_TRIALS, 3))
OF_DOG = _rng.normal(size=(N_DOGS, 3))
OF_TRIAL = np.linspace(-1, 1, N_TRIALS)
MISSING = _rng.random((N_DOGS, N_TRIALS)) < 0.2


def cells(name: str, **options: Any) -> Any:
    """Enter a model of N_DOGS times N_TRIALS cells."""
    return case(name, **{"coords": CELLS, "n_obs": N_CELLS, "dim": DIM} | options)


def normal(mu: Any, **kwargs: Any) -> Any:
    """Likelihood of most models here."""
    return pm.Normal("y", mu, scale(), **{"observed": REAL, "dims": DIM} | kwargs)


@cells("cells, with covariates of the dog and of the trial")
def _() -> None:
    breed, age = pm.Data("breed", OF_DOG[:, 0], dims="dog"), pm.Data("age", OF_TRIAL, dims="trial")
    b = pm.Normal("b", shape=3)
    eta = b[0] + b[1] * breed[:, None] + b[2] * age
    pm.Bernoulli("y", logit_p=pm.Deterministic("eta", eta, dims=DIM), observed=BINARY, dims=DIM)


@cells("cells, with a covariate of both, counted in the data")
def _() -> None:
    y = pm.Data("shocked", BINARY, dims=DIM)
    avoided = pm.Data("avoided", np.cumsum(1 - BINARY, axis=1) + 1.0, dims=DIM)
    a, b = pm.Normal("a"), pm.Normal("b")
    pm.Bernoulli("y", p=pm.math.exp(-pm.math.exp(a + b * avoided)), observed=y, dims=DIM)


@cells(
    "cells, item response", coords={"item": range(5), "person": range(7)}, dim=("item", "person")
)
def _() -> None:
    theta = pm.Normal("theta", dims="person")
    a, b = pm.LogNormal("a", dims="item"), pm.Normal("b", dims="item")
    eta = a[:, None] * (theta[None, :] - b[:, None])
    pm.Bernoulli("y", logit_p=eta, observed=BINARY, dims=("item", "person"))


@cells("cells, growth curves")
def _() -> None:
    z = pm.Normal("z", dims="dog")
    start = pm.Deterministic("start", pm.Normal("m") + scale("tau") * z, dims="dog")
    slope = pm.Normal("slope", OF_DOG @ pm.Normal("g", dims="k"), 1.0, dims="dog")
    normal(pm.Deterministic("mu", start[:, None] + slope[:, None] * OF_TRIAL, dims=DIM))


@cells("cells, in another order than the data", dim=("trial", "dog"))
def _() -> None:
    x = pm.Data("x", OF_CELL, dims=("dog", "trial", "k"))
    effect = pm.Normal("a", dims="dog")[:, None] + pm.Normal("c", dims="trial")
    normal(pm.Deterministic("mu", effect + x[..., 0] * pm.Normal("b"), dims=DIM))


@cells("cells, with covariates in matrices")
def _() -> None:
    x = pm.Data("x", OF_CELL, dims=("dog", "trial", "k"))
    b, g = pm.Normal("b", dims="k"), pm.Normal("g", dims="k")
    normal(x @ b + (OF_DOG @ g)[:, None] + (x * pm.Normal("h", dims=("dog", "k"))[:, None]).sum(-1))


@cells("cells, matrix factorisation with a scale for each trial")
def _() -> None:
    u, v = pm.Normal("u", shape=(N_DOGS, 2)), pm.Normal("v", shape=(N_TRIALS, 2))
    pm.Normal("y", u @ v.T, scale(shape=N_TRIALS), observed=REAL, dims=DIM)


@cells("cells, groups of dogs and phases of trials")
def _() -> None:
    group, phase = np.array([0, 1, 1, 2, 0]), np.array([0, 0, 1, 1, 1, 2, 2])
    table = pm.Normal("table", shape=(3, 3))
    normal(table[group[:, None], phase] + pm.Normal("a", shape=3)[group][:, None])


@cells("cells, all alike")
def _() -> None:
    normal(pt.full((N_DOGS, N_TRIALS), pm.Normal("mu")))


@cells("cells, with several entries", n_obs=N_CELLS)
def _() -> None:
    pm.MvNormal(
        "y", OF_CELL * pm.Normal("b", dims="k"), np.eye(3), observed=OF_CELL, dims=(*DIM, "k")
    )


@cells("cells, categories with probabilities for each dog")
def _() -> None:
    p = pm.Dirichlet("p", np.ones(3), dims=("dog", "k"))
    pm.Categorical("y", p=p[:, None, :], observed=LABELS, dims=DIM)


@cells("cells, a random walk along the trials", unselected="Cumsum")
def _() -> None:
    steps = pm.Normal("steps", dims="trial")
    normal(pt.cumsum(steps) + pt.cumsum(pm.Normal("a", dims="dog")[:, None] * REAL, axis=1))


@cells("cells, several outputs")
def _() -> None:
    a = pm.Normal("a", dims="dog")
    pm.Poisson("count", pm.math.exp(a)[None, :], observed=BINARY.T, dims=("trial", "dog"))
    normal(a[:, None])
    pm.Normal("weight", a, 1.0, observed=OF_DOG[:, 0], dims="dog")


@cells("cells, some missing", n_obs=int((~MISSING).sum()))
def _() -> None:
    x = pm.Data("x", OF_CELL, dims=("dog", "trial", "k"))
    mu = x @ pm.Normal("b", dims="k") + pm.Normal("a", dims="dog")[:, None]
    with warnings.catch_warnings(action="ignore", category=pm.exceptions.ImputationWarning):
        normal(mu, observed=np.ma.masked_array(REAL, MISSING))


@cells("cells, local", allow_local=True)
def _() -> None:
    z = pm.Normal("z", dims=DIM)
    normal(pm.Deterministic("mu", z + pm.Normal("a", dims="dog")[:, None], dims=DIM))
