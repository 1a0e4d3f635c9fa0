"""What Bambi says of formulas, from the draws of a coreset."""

import arviz as az
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import pymc_coresets as pmc

# Bambi uses what its libraries have deprecated.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Cannot cache compiled function"),
    pytest.mark.filterwarnings(
        "ignore:The intercept is omitted:UserWarning", "ignore:[^.]*look discrete"
    ),
    # Some of its scales make funnels, in which chains of a few seconds do not settle.
    pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning"),
]

N = 3_000
# Formula, family, and further arguments of `bambi.Model`.  Groups are centred: they have many rows.
FORMULAS = {
    "groups": ("y ~ x + (1|g)", "gaussian"),
    "slopes of groups": ("y ~ x + (x|g)", "gaussian"),
    "splines": ("y ~ x + bs(z, df=5)", "gaussian"),
    "gaussian process": ("y ~ x + hsgp(z, m=6, c=1.5)", "gaussian"),
    "offset": ("count ~ x + offset(log_time)", "poisson"),
    "cumulative": ("grade ~ x", "cumulative"),
    "sequential": ("grade ~ x", "sratio"),
    "weighted": ("weighted(y, weight) ~ x", "gaussian"),
    "truncated": ("truncated(above, lb=-1) ~ x", "gaussian"),
    "censored": ("censored(capped, status) ~ x", "gaussian"),
    "distributional": (("y ~ x", "sigma ~ z"), "gaussian"),
    "categorical": ("kind ~ x", "categorical"),
    "zero-inflated": ("visits ~ x", "zero_inflated_poisson"),
}


@pytest.fixture(scope="module")
def bambi():
    return pytest.importorskip("bambi", reason="bambi is not installed")


@pytest.fixture(autouse=True)
def closed_figures():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    x, z, group = rng.normal(size=N), rng.normal(size=N), rng.integers(0, 8, size=N)
    mean = 0.4 * x + np.linspace(-1, 1, 8)[group]
    y, log_time = rng.normal(mean), rng.uniform(-1, 1, size=N)
    third = np.digitize(mean + rng.logistic(size=N), [-1, 1])
    above = rng.normal(0.4 * x)
    while (above < -1).any():
        above = np.where(above < -1, rng.normal(0.4 * x), above)
    return pd.DataFrame(
        {
            "x": x,
            "z": z,
            "g": np.array(list("abcdefgh"))[group],
            "town": rng.integers(0, 30, size=N).astype(str),
            "y": y,
            "above": above,
            "capped": np.minimum(y, 1.0),
            "status": np.where(y < 1.0, "none", "right"),
            "weight": rng.integers(1, 4, size=N).astype(float),
            "log_time": log_time,
            "count": rng.poisson(np.exp(mean + log_time)),
            "visits": rng.poisson(np.exp(mean)) * rng.binomial(1, 0.7, size=N),
            "grade": pd.Categorical(third, ordered=True),
            "kind": np.array(list("pqr"))[third],
        }
    )


def model_of(bambi, name, data, more=""):
    formula, family = FORMULAS[name]
    first, *others = [formula] if isinstance(formula, str) else formula
    normal = bambi.Prior("Normal", mu=0, sigma=2)
    given = {"common": normal}
    if family not in {"cumulative", "sratio"}:
        given["Intercept"] = normal
    if family == "gaussian" and not others:
        given["sigma"] = bambi.Prior("HalfNormal", sigma=1)  # Bambi's own is NaN where truncated
    return bambi.Model(
        bambi.Formula(first + more, *others),
        data,
        family=family,
        priors=given,
        center_predictors=False,
        noncentered=False,
    )


@pytest.mark.parametrize("more", ["", " + town"], ids=["few", "many"])
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_predict_and_are_interpreted(bambi, data, name, more):
    model = model_of(bambi, name, data, more)
    idata = pmc.sample(model, random_seed=1, progressbar=False)
    assert idata.attrs["divergence"] < 0.02
    idata = idata.isel(draw=slice(None, None, 20))
    parent = model.family.likelihood.parent
    seen = model.predict(idata, inplace=False)["posterior"][parent]
    few = model.predict(idata, data=data.head(10), inplace=False)["posterior"][parent]
    assert_allclose(few, seen.isel(__obs__=slice(10)), rtol=1e-10)
    conditional = {"x": [-1.0, 0.0, 1.0]}
    fixed = conditional | {"log_time": [0.0]} if name == "offset" else conditional
    frames = [
        bambi.interpret.predictions(model, idata, conditional=fixed),
        bambi.interpret.comparisons(model, idata, contrast="x"),
        bambi.interpret.slopes(model, idata, wrt="x"),
    ]
    for frame in frames:
        table = frame if isinstance(frame, pd.DataFrame) else frame.summary
        assert np.isfinite(table["estimate"]).all()
        assert (table["estimate"] != 0).any()
    bambi.interpret.plot_predictions(model, idata, conditional=fixed)
    drawn = model.predict(idata, kind="response", inplace=False)
    az.plot_ppc_dist(drawn, num_samples=10)
