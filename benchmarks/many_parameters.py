"""Simulated models of many parameters: comparisons, levels, a walk, wide regressions."""

from collections.abc import Callable

import numpy as np
import pymc as pm

__all__ = ["MANY_PARAMETERS"]

type Rng = np.random.Generator


def bradley_terry(rng: Rng, n_rows: int, players: int = 300) -> None:
    """Players of different skills, and who won each match."""
    skill = rng.normal(size=players)
    first = rng.integers(players, size=n_rows)
    second = (first + rng.integers(1, players, size=n_rows)) % players
    won = rng.binomial(1, 1 / (1 + np.exp(skill[second] - skill[first])))
    skills = pm.Normal("skills", 0, 1.5, shape=players)
    pm.Bernoulli("won", logit_p=skills[first] - skills[second], observed=won)


def zero_sum_levels(rng: Rng, n_rows: int, levels: int = 300) -> None:
    """Levels whose effects sum to zero."""
    level, effect = rng.integers(levels, size=n_rows), rng.normal(0, 0.5, size=levels)
    y = 1 + effect[level] - effect.mean() + rng.normal(size=n_rows)
    effects = pm.ZeroSumNormal("effects", sigma=pm.HalfNormal("spread", 1), shape=levels)
    mean, noise = pm.Normal("mean", 0, 5), pm.HalfNormal("noise", 2)
    pm.Normal("y", mean + effects[level], noise, observed=y)


def random_walk(rng: Rng, n_rows: int, days: int = 365) -> None:
    """Counts whose rate walks from day to day."""
    day, walk = rng.integers(days, size=n_rows), np.cumsum(rng.normal(0, 0.05, size=days))
    steps = pm.HalfNormal("steps", 0.2)
    level = pm.GaussianRandomWalk("level", sigma=steps, init_dist=pm.Normal.dist(0, 1), shape=days)
    pm.Poisson("counts", pm.math.exp(level[day]), observed=rng.poisson(np.exp(walk[day])))


def horseshoe(rng: Rng, n_rows: int, columns: int = 30) -> None:
    """A sparse regression, not centred."""
    x = rng.normal(size=(n_rows, columns))
    y = x[:, :4] @ [1.0, -0.5, 0.3, 0.1] + rng.normal(size=n_rows)
    overall = pm.HalfCauchy("overall", 0.1)
    local = pm.HalfCauchy("local", 1.0, shape=columns)
    slopes = overall * local * pm.Normal("raw", shape=columns)
    pm.Normal("y", x @ slopes, pm.HalfNormal("noise", 2), observed=y)


def dense_columns(rng: Rng, n_rows: int, columns: int = 150) -> None:
    """A logistic regression of many correlated columns."""
    shared = rng.normal(size=(n_rows, 1))
    x = 0.8 * rng.normal(size=(n_rows, columns)) + 0.6 * shared
    slopes = rng.normal(0, 0.2, size=columns)
    y = rng.binomial(1, 1 / (1 + np.exp(-x @ slopes)))
    pm.Bernoulli("y", logit_p=x @ pm.Normal("slopes", 0, 1, shape=columns), observed=y)


#: What adds a model's variables, by name, and for how many rows.
MANY_PARAMETERS: dict[str, tuple[Callable[[Rng, int], None], int]] = {
    "bradley_terry": (bradley_terry, 200_000),
    "zero_sum_levels": (zero_sum_levels, 50_000),
    "random_walk": (random_walk, 50_000),
    "horseshoe": (horseshoe, 20_000),
    "dense_columns": (dense_columns, 100_000),
}
