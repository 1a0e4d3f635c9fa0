"""Build, sample, check and re-weight a small coreset with the installed package."""

from importlib.metadata import version
from importlib.resources import files

import numpy as np
import pymc as pm

import pymc_coresets
from pymc_coresets import build_coreset

N_OBS = 2_000
SIZE = 50
MAX_KL = 0.05  # nats; about 0.001 is usual


def main() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=N_OBS)
    late = rng.binomial(1, 1 / (1 + np.exp(0.5 - x)))

    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 2)
        slope = pm.Normal("slope", 0, 2)
        pm.Bernoulli("late", logit_p=intercept + slope * x, observed=late)

    coreset = build_coreset(model=model, size=SIZE, random_seed=2)
    idata = coreset.sample(draws=200, tune=200, chains=2, cores=1, random_seed=3, progressbar=False)
    check = coreset.check(idata)
    slope_mean = float(coreset.reweight(idata, random_seed=4).posterior["slope"].mean())

    if not (files(pymc_coresets) / "py.typed").is_file():
        raise SystemExit("the wheel does not contain py.typed")
    found = f"{len(coreset.weights)} rows, slope {slope_mean:.2f}"
    if len(coreset.weights) > SIZE or abs(slope_mean - 1) > 0.4:
        raise SystemExit(f"{found}: expected at most {SIZE} rows and a slope near 1")
    if not check.kl < MAX_KL:
        raise SystemExit(f"expected a divergence below {MAX_KL} nats:\n{check}")
    print(f"pymc-coresets {version('pymc-coresets')}: {found}")


if __name__ == "__main__":
    main()
