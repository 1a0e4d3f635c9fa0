"""
A survey of marriages
=====================

In 1974 the magazine *Redbook* asked its readers about their marriages. Which of them had had an
affair? A logistic regression of all 6 366 answers is compared with that of a coreset.
There are few enough answers here to sample both posteriors.
"""

# %%
# The data
# --------
#
# The survey comes with statsmodels. Each row is a married woman: how she rates her marriage (1
# to 5), her age, the years that she has been married, and how religious she is (1 to 4).

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from statsmodels.datasets import fair

from pymc_coresets import build_coreset, compare, plot_comparison, plot_weights

survey = fair.load_pandas().data
names = ["rate_marriage", "age", "yrs_married", "religious"]
answers = survey[names]
standardised = ((answers - answers.mean()) / answers.std()).to_numpy()
affair = (survey["affairs"] > 0).to_numpy(dtype=int)

print(f"{len(survey)} women, of whom {affair.mean():.0%} had an affair")

# %%
# The model, and its coreset
# --------------------------
#
# The model is an ordinary PyMC model of all rows. ``build_coreset`` reads its rows from it, and
# chooses a few of them.

with pm.Model(coords={"question": names}) as model:
    x = pm.Data("x", standardised, dims=("woman", "question"))
    intercept = pm.Normal("intercept", 0, 2)
    slopes = pm.Normal("slopes", 0, 1, dims="question")
    pm.Bernoulli("affair", logit_p=intercept + x @ slopes, observed=affair, dims="woman")
    coreset = build_coreset(progressbar=False, random_seed=1)

coreset

# %%
# A row of weight w counts as w women who gave the same answers.

axes = plot_weights(coreset)

# %%
# Sample, and check
# -----------------
#
# ``sample`` is ``pm.sample`` on the coreset's model. ``check`` compares the draws with all rows
# once more: Pareto k-hat below 0.7 says that the draws cover the full posterior, and the KL
# divergence says how close they are.

idata = coreset.sample(chains=2, progressbar=False, random_seed=2)
coreset.check(idata)

# %%
# Beside the posterior of all rows
# --------------------------------
#
# Nobody needs to do this. Here it shows that the two agree: differences between the posteriors,
# in posterior standard deviations, are as large as those between two runs of NUTS on all rows.

full = pm.sample(model=model, chains=2, progressbar=False, random_seed=3)
compare(full=full, approximation=idata)

# %%
figure = plot_comparison(full, idata, ["intercept", "slopes"])

# %%
# What the regression says
# ------------------------
#
# How probable an affair is, by how a woman rates her marriage, all else being average.

ratings = np.arange(1, 6)
scaled = (ratings - answers["rate_marriage"].mean()) / answers["rate_marriage"].std()
posterior = az.extract(idata)
log_odds = (
    posterior["intercept"].to_numpy()[:, None]
    + posterior["slopes"].sel(question="rate_marriage").to_numpy()[:, None] * scaled
)
chance = 1 / (1 + np.exp(-log_odds))
low, high = np.quantile(chance, [0.025, 0.975], axis=0)

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
mean = chance.mean(axis=0)
axes.errorbar(ratings, mean, [mean - low, high - mean], fmt="o")
axes.set(
    xlabel="how she rates her marriage, from 1 (very poor) to 5 (very good)",
    ylabel="probability of an affair",
    xticks=ratings,
    ylim=(0, None),
)
plt.show()
