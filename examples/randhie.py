"""Who visits the doctor? Poisson and negative binomial regressions of the RAND health experiment.

The RAND Health Insurance Experiment assigned insurance plans to families at random; the share of
the bill that families paid themselves differed. The data, 20,190 person-years of outpatient visits,
come with `statsmodels`. The counts vary far more than a Poisson distribution allows, so that its
posterior is much too narrow; the negative binomial's dispersion is estimated.

    python examples/randhie.py                  # both coreset posteriors, checked
    python examples/randhie.py --full           # and the posteriors of all rows

Needs the extra `examples`: pip install "pymc-coresets[examples]".
"""

from functools import partial

import numpy as np
import pandas as pd
import pymc as pm
import statsmodels.api as sm
from workflow import run

COVARIATES = {
    "lncoins": "log coinsurance rate",
    "idp": "individual deductible",
    "lpi": "log participation incentive",
    "fmde": "log maximum expenditure",
    "physlm": "physical limitation",
    "disea": "chronic diseases",
    "hlthg": "good health",
    "hlthf": "fair health",
    "hlthp": "poor health",
}


def load_visits() -> tuple[np.ndarray, pd.DataFrame]:
    """Return the number of visits in each person-year, and standardised covariates."""
    data = sm.datasets.randhie.load_pandas().data
    raw = data[list(COVARIATES)].rename(columns=COVARIATES)
    return data["mdvis"].to_numpy(), (raw - raw.mean()) / raw.std()


def make_model(*, overdispersed: bool) -> pm.Model:
    """Return a log-linear regression of the number of visits."""
    visits, covariates = load_visits()
    coords = {"person_year": covariates.index, "covariate": covariates.columns}
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", covariates, dims=("person_year", "covariate"))
        intercept = pm.Normal("intercept", 0, 2)
        slopes = pm.Normal("slopes", 0, 1, dims="covariate")
        rate = pm.math.exp(intercept + x @ slopes)
        if overdispersed:
            # The variance is rate + dispersion * rate**2; a Poisson distribution has dispersion 0.
            dispersion = pm.HalfNormal("dispersion", 2)
            pm.NegativeBinomial(
                "visits", mu=rate, alpha=1 / dispersion, observed=visits, dims="person_year"
            )
        else:
            pm.Poisson("visits", rate, observed=visits, dims="person_year")
    return model


MODELS = {
    "randhie_poisson": partial(make_model, overdispersed=False),
    "randhie_negative_binomial": partial(make_model, overdispersed=True),
}

if __name__ == "__main__":
    # workflow.py does the rest for every model: build_coreset(), .sample(), .check().
    run(MODELS, ["intercept", "slopes", "dispersion"], about=__doc__)
