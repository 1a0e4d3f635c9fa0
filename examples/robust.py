"""A regression that is robust to outliers: Student-t errors of unknown scale and tails.

100,000 simulated rows. With a Student-t likelihood, rows that lie far off have little influence.
How little depends on the degrees of freedom, which are estimated with the coefficients and the
scale.

    python examples/robust.py                   # the coreset's posterior, checked
    python examples/robust.py --full            # and the posterior of all rows
"""

import numpy as np
import pymc as pm
from workflow import run

N_ROWS = 100_000
TRUE_SLOPES = np.array([1.5, -0.7, 0.3, 0.0, 0.1, -0.2])
TRUE_INTERCEPT, TRUE_SCALE, TRUE_FREEDOM = 2.0, 0.8, 3.5


def simulate(*, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated covariates (n_rows, 6), and outcomes with heavy-tailed errors."""
    shared = rng.normal(size=(N_ROWS, 1))
    x = 0.6 * shared + 0.8 * rng.normal(size=(N_ROWS, len(TRUE_SLOPES)))
    errors = TRUE_SCALE * rng.standard_t(TRUE_FREEDOM, size=N_ROWS)
    return x, TRUE_INTERCEPT + x @ TRUE_SLOPES + errors


def make_model() -> pm.Model:
    """Return a linear regression with Student-t errors."""
    features, outcomes = simulate(rng=np.random.default_rng(11))
    with pm.Model(coords={"covariate": [f"x{k}" for k in range(len(TRUE_SLOPES))]}) as model:
        x = pm.Data("x", features, dims=("row", "covariate"))
        intercept = pm.Normal("intercept", 0, 5)
        slopes = pm.Normal("slopes", 0, 2, dims="covariate")
        scale = pm.HalfNormal("scale", 2)
        freedom = pm.Gamma("freedom", 2, 0.1)
        pm.StudentT(
            "y", nu=freedom, mu=intercept + x @ slopes, sigma=scale, observed=outcomes, dims="row"
        )
    return model


MODELS = {"robust": make_model}

if __name__ == "__main__":
    # workflow.py does the rest for every model: build_coreset(), .sample(), .check().
    run(MODELS, ["intercept", "slopes", "scale", "freedom"], about=__doc__)
