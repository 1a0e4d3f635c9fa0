"""What `build_coreset()` gives without options, in three small models: ``benchmarks.defaults``.

Published tables describe a default. Each of them keeps how many rows that default chose when it was
measured (`docs/tables/figures.json`), and a test compares this with what it chooses now: a table
that is older than a change of its default has to be measured again.
"""

import json

import numpy as np
import pymc as pm
from scipy.special import expit

from pymc_coresets import build_coreset

N = 20_000


def regression(n_columns: int) -> pm.Model:
    """Return a logistic regression; with 24 columns or more, its default has a quadratic."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, n_columns))
    y = rng.binomial(1, expit(x @ rng.normal(0, 0.3, n_columns) - 1))
    with pm.Model() as model:
        eta = pm.Normal("intercept", 0, 2) + x @ pm.Normal("slopes", 0, 1, shape=n_columns)
        pm.Bernoulli("y", logit_p=eta, observed=y)
    return model


def groups() -> pm.Model:
    """Return counts in 500 groups, whose effects are integrated out."""
    rng = np.random.default_rng(0)
    shop, x = rng.integers(500, size=N), rng.normal(size=N)
    y = rng.poisson(np.exp(0.5 - 0.3 * x + rng.normal(0, 0.4, 500)[shop]))
    with pm.Model() as model:
        effect = pm.Normal("effect", pm.Normal("mean"), pm.HalfNormal("sd"), shape=500)
        pm.Poisson("y", pm.math.exp(pm.Normal("slope") * x + effect[shop]), observed=y)
    return model


MODELS = {"rows": lambda: regression(5), "quadratic": lambda: regression(50), "units": groups}


def chosen() -> dict[str, int]:
    """Return how many rows, or units, the default chooses of each model: medians of five seeds."""
    return {name: _median_size(model()) for name, model in MODELS.items()}


def _median_size(model: pm.Model) -> int:
    sizes = [build_coreset(model, random_seed=seed, progressbar=False).size for seed in range(1, 6)]
    return int(np.median(sizes))


if __name__ == "__main__":
    print(json.dumps(chosen()))
