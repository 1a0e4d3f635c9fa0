"""Two regressions in one data set, where the regression of each row is unknown.

50,000 simulated rows, each from one of two linear regressions, which have intercepts and slopes of
their own and share their noise. The memberships are summed out, so that every row keeps a
likelihood of its own; the order of the intercepts says which regression is the first.

    python examples/mixture.py                  # the coreset's posterior, checked
    python examples/mixture.py --full           # and the posterior of all rows
"""

import numpy as np
import pymc as pm
from pymc.distributions.transforms import ordered
from workflow import run

N_ROWS = 50_000
TRUE_SHARE = 0.35  # of the first regression
TRUE_INTERCEPTS = np.array([-1.0, 1.5])
TRUE_SLOPES = np.array([[1.0, 0.2], [-0.5, 0.8]])  # (regression, covariate)
TRUE_NOISE = 0.8


def simulate(*, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return covariates (n_rows, 2), and outcomes of either regression."""
    x = rng.normal(size=(N_ROWS, TRUE_SLOPES.shape[1]))
    member = (rng.uniform(size=N_ROWS) > TRUE_SHARE).astype(int)
    mean = TRUE_INTERCEPTS[member] + np.sum(x * TRUE_SLOPES[member], axis=1)
    return x, rng.normal(mean, TRUE_NOISE)


def make_model() -> pm.Model:
    """Return a mixture of two linear regressions, identified by the order of their intercepts.

    With a noise of its own, a regression may shrink onto a single row of the coreset, whose
    posterior is then improper.
    """
    features, outcomes = simulate(rng=np.random.default_rng(12))
    coords = {"regression": ["lower", "upper"], "covariate": ["x0", "x1"]}
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", features, dims=("row", "covariate"))
        share = pm.Beta("share", 2, 2)
        intercepts = pm.Normal(
            "intercepts", 0, 3, dims="regression", transform=ordered, initval=[-1.0, 1.0]
        )
        slopes = pm.Normal("slopes", 0, 1, dims=("regression", "covariate"))
        noise = pm.HalfNormal("noise", 1)
        pm.NormalMixture(
            "y",
            w=pm.math.stack([share, 1 - share]),
            mu=intercepts + x @ slopes.T,
            sigma=noise,
            observed=outcomes,
            dims="row",
        )
    return model


MODELS = {"mixture": make_model}

if __name__ == "__main__":
    # workflow.py does the rest for every model: build_coreset(), .sample(), .check().
    run(MODELS, ["share", "intercepts", "slopes", "noise"], about=__doc__)
