"""A hundred groups, each with its own line: varying intercepts and slopes, partially pooled.

60,000 simulated rows. Each of 100 groups has an intercept and a slope of its own, drawn from a
common distribution: more than 200 free parameters in all. With hundreds of rows per group, the data
say much more about a group's line than the common distribution does; NUTS then samples the lines
themselves (centred) better than standardised deviations from the common one. The outcome is a
measurement (normal errors) in one model, and yes or no (logistic) in the other. NUTS samples the
first with all rows in seconds: a coreset is accurate there, but saves no time.

    python examples/varying_slopes.py           # both coreset posteriors, checked
    python examples/varying_slopes.py --full    # and the posteriors of all rows
"""

from functools import partial

import numpy as np
import pymc as pm
from scipy.special import expit
from workflow import run

N_ROWS, N_GROUPS = 60_000, 100
TRUE_MEAN, TRUE_SD = np.array([0.5, -0.5]), np.array([0.8, 0.4])  # intercept, slope
TRUE_NOISE = 1.2


def simulate(*, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each row's group, covariate, and point on the group's line; group sizes differ."""
    shares = rng.dirichlet(np.full(N_GROUPS, 3.0))
    group = rng.choice(N_GROUPS, size=N_ROWS, p=shares)
    x = rng.normal(size=N_ROWS)
    intercept, slope = rng.normal(TRUE_MEAN, TRUE_SD, size=(N_GROUPS, 2))[group].T
    return group, x, intercept + slope * x


def make_model(*, binary: bool) -> pm.Model:
    """Return a regression with an intercept and a slope for each group."""
    rng = np.random.default_rng(13)
    groups, covariate, heights = simulate(rng=rng)
    with pm.Model(coords={"group": np.arange(N_GROUPS)}) as model:
        group = pm.Data("group_index", groups, dims="row")
        x = pm.Data("x", covariate, dims="row")
        mean = pm.Normal("mean", 0, 2, shape=2)
        # A gamma prior has no mass at zero, where a standard deviation and its effects form a
        # funnel.
        sd = pm.Gamma("sd", 2, 2, shape=2)
        intercept = pm.Normal("intercept", mean[0], sd[0], dims="group")
        slope = pm.Normal("slope", mean[1], sd[1], dims="group")
        line = intercept[group] + slope[group] * x
        if binary:
            pm.Bernoulli("y", logit_p=line, observed=rng.binomial(1, expit(heights)), dims="row")
        else:
            noise = pm.HalfNormal("noise", 2)
            pm.Normal("y", line, noise, observed=rng.normal(heights, TRUE_NOISE), dims="row")
    return model


MODELS = {
    "varying_slopes": partial(make_model, binary=False),
    "varying_slopes_logistic": partial(make_model, binary=True),
}

if __name__ == "__main__":
    # workflow.py does the rest for every model: build_coreset(), .sample(), .check().
    run(MODELS, ["mean", "sd", "noise"], about=__doc__)
