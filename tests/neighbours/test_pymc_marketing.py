"""What pymc-marketing says of customers, from the draws of a coreset of them."""

from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import pymc_coresets as pmc
from tests.refusals import refused

# It uses what its libraries have deprecated, and asks for tails that are beyond floating point.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:(overflow|divide by zero|invalid value):RuntimeWarning"),
]

QUIET = {"random_seed": 1, "progressbar": False}
MANY = 100_000
RATES, LOSSES = {"purchase_covariate_cols": ["age"]}, {"dropout_covariate_cols": ["age"]}


@pytest.fixture(scope="module")
def clv():
    return pytest.importorskip("pymc_marketing.clv", reason="pymc-marketing is not installed")


def customers(n):
    """Simulate purchases by BG/NBD: after each, a customer leaves with some probability."""
    rng = np.random.default_rng(1)
    weeks, age = rng.integers(20, 60, size=n).astype(float), rng.normal(size=n)
    rate, leaving = rng.gamma(0.6, 0.2 * np.exp(0.3 * age)), rng.beta(0.8, 2.5, size=n)
    when = rng.exponential(1 / rate[:, None], size=(n, 60)).cumsum(axis=1)
    made = (when <= weeks[:, None]) & (np.arange(60) < rng.geometric(leaving)[:, None])
    return pd.DataFrame(
        {
            "customer_id": np.arange(n),
            "frequency": made.sum(axis=1),
            "recency": np.where(made, when, 0.0).max(axis=1),
            "T": weeks,
            "age": age,
        }
    )


def spenders(n):
    """Simulate what those who have bought again spent on average, by the gamma-gamma model."""
    data = customers(n).query("frequency > 0").reset_index(drop=True)
    rng, shape = np.random.default_rng(2), 6.0 * data["frequency"]
    return data.assign(
        monetary_value=rng.gamma(shape, 1 / (shape * rng.gamma(4.0, 1 / 15, size=len(data))) * 6.0)
    )


def donors(n):
    """Simulate ten yearly chances to give: a donor is gone for ever with some probability."""
    rng, years = np.random.default_rng(1), np.arange(1, 11)
    stays = rng.geometric(rng.beta(0.7, 2.8, size=n)) - 1
    gave = (rng.random((n, 10)) < rng.beta(1.2, 0.75, size=(n, 1))) & (years <= stays[:, None])
    return pd.DataFrame(
        {
            "customer_id": np.arange(n),
            "frequency": gave.sum(axis=1),
            "recency": (gave * years).max(axis=1),
            "T": 10,
        }
    )


def subscribers(n):
    """Simulate contracts of two cohorts, which are not renewed with some probability."""
    rng = np.random.default_rng(1)
    cohort, age = rng.integers(0, 2, size=n), rng.normal(size=n)
    months = np.array([8, 12])[cohort]
    ends = rng.geometric(rng.beta(np.exp(0.2 * age), 4.0 * np.exp(-0.2 * age)))
    columns = {"recency": np.minimum(ends, months), "T": months, "age": age}
    labels = np.array(["2025-01", "2025-05"])[cohort]
    return pd.DataFrame({"customer_id": np.arange(n), "cohort": labels, **columns})


def fitted(model, *data):
    """Give pymc-marketing's model the draws of a coreset, by which it can be saved, too."""
    model.build_model(*data)
    idata = pmc.sample(model, draws=500, on_failure="raise", **QUIET)
    assert idata["coreset"].sizes["row"] < min(idata["coreset"].attrs["n_observations"] / 10, 200)
    model.idata = idata
    idata["fit_data"] = model.create_fit_data_group()
    model.set_idata_attrs()
    return model


def alive(model, data):
    found = model.expected_probability_alive(data.head(50))
    assert 0 <= float(found.min()) <= float(found.max()) <= 1
    return found


def alive_later(model, data):
    return model.expected_probability_alive(data.head(50), future_t=2)


def purchases(model, data):
    found = model.expected_purchases(data.head(50), future_t=10)
    assert float(found.min()) >= 0
    return found


def spend(model, data):
    return model.expected_customer_spend(data.head(50))


CLV = [
    pytest.param("BetaGeoModel", {}, customers, (purchases, alive), id="BetaGeo"),
    pytest.param(
        "BetaGeoModel", RATES | LOSSES, customers, (purchases, alive), id="BetaGeo-covariates"
    ),
    pytest.param("ModifiedBetaGeoModel", {}, customers, (purchases, alive), id="ModifiedBetaGeo"),
    pytest.param(
        "ModifiedBetaGeoModel", RATES, customers, (purchases, alive), id="ModifiedBetaGeo-covariate"
    ),
    pytest.param("ParetoNBDModel", {}, customers, (purchases, alive), id="ParetoNBD"),
    pytest.param("ParetoNBDModel", RATES, customers, (purchases, alive), id="ParetoNBD-covariate"),
    pytest.param("GammaGammaModel", {}, spenders, (spend,), id="GammaGamma"),
    pytest.param(
        "BetaGeoBetaBinomModel", {}, donors, (purchases, alive_later), id="BetaGeoBetaBinom"
    ),
    pytest.param("ShiftedBetaGeoModel", {}, subscribers, (alive_later,), id="ShiftedBetaGeo"),
    pytest.param(
        "ShiftedBetaGeoModel", LOSSES, subscribers, (alive_later,), id="ShiftedBetaGeo-covariate"
    ),
]


@pytest.mark.parametrize(("name", "config", "simulate", "questions"), CLV)
def test_models_of_customers_answer_as_before_they_were_saved(
    clv, tmp_path, name, config, simulate, questions
):
    data = simulate(20_000)
    model = fitted(getattr(clv, name)(model_config=config), data)
    free = {rv.name for rv in model.model.free_RVs}
    assert all(any(row.startswith(rv) for row in model.fit_summary().index) for rv in free)
    model.save(tmp_path / "fitted.nc")
    loaded = type(model).load(tmp_path / "fitted.nc")
    for asked in questions:
        answer = asked(model, data)
        assert answer.shape == (4, 500, 50)
        assert float(answer.std(["chain", "draw"]).max()) > 0
        assert_allclose(asked(loaded, data), answer)
    coreset = pmc.coreset_of(loaded.idata, loaded)
    assert coreset.n_observations == len(data)
    assert coreset.check(loaded.idata).reliable


def test_purchases_are_expected_as_after_a_fit_of_all_customers(clv):
    data = customers(3_000)
    of_coreset, of_all = fitted(clv.BetaGeoModel(), data), clv.BetaGeoModel()
    of_all.fit(data, draws=500, tune=500, chains=4, cores=1, **QUIET)
    own, theirs = (m.expected_purchases(data, future_t=10) for m in (of_coreset, of_all))
    assert own.dims == theirs.dims
    sd = theirs.std(["chain", "draw"])
    shift = (own - theirs).mean(["chain", "draw"]) / sd
    # Two means of at least 400 effective draws each: five standard errors of their difference.
    assert float(np.abs(shift).max()) < 5 * (2 / 400) ** 0.5
    assert_allclose(own.std(["chain", "draw"]) / sd, 1.0, atol=5 * 400**-0.5)


def test_customers_have_a_lifetime_value(clv):
    data = spenders(3_000)
    bought, spent = fitted(clv.BetaGeoModel(), data), fitted(clv.GammaGammaModel(), data)
    few = bought.thin_fit_result(keep_every=10)
    assert few.idata["posterior"].sizes["draw"] == 50
    later = {"discount_rate": 0.01, "time_unit": "W"}
    short, long = (
        spent.expected_customer_lifetime_value(few, data, future_t=months, **later)
        for months in (6, 12)
    )
    assert short.sizes["customer_id"] == len(data)
    assert bool((short.mean(["chain", "draw"]) < long.mean(["chain", "draw"])).all())


def test_purchases_of_many_customers(clv):
    data = customers(MANY)
    found = fitted(clv.BetaGeoModel(), data).thin_fit_result(keep_every=50)
    expected = found.expected_purchases(data, future_t=10)
    assert dict(expected.sizes) == {"chain": 4, "draw": 10, "customer_id": MANY}
    assert bool((expected > 0).all())


WAYS = ["bus", "tram", "car"]
NESTS = {"nesting_structure": {"public": ["bus", "tram"], "own": ["car"]}}


def commuters(n):
    """Simulate the choice of the way with the largest utility, of which a price is a part."""
    rng = np.random.default_rng(1)
    price = rng.uniform(1, 3, size=(n, 3))
    utility = np.array([0.5, 0.2, 0.0]) - price + rng.gumbel(size=(n, 3))
    prices = {f"price_{way}": price[:, i] for i, way in enumerate(WAYS)}
    return pd.DataFrame({"way": np.array(WAYS)[utility.argmax(axis=1)], **prices})


@pytest.mark.parametrize(
    ("module", "name", "nests"),
    [("mnl_logit", "MNLogit", {}), ("nested_logit", "NestedLogit", NESTS)],
)
def test_fewer_choose_what_is_dearer(clv, tmp_path, module, name, nests):
    data = commuters(10_000)
    kind = getattr(import_module(f"pymc_marketing.customer_choice.{module}"), name)
    equations = [f"{way} ~ price_{way}" for way in WAYS]
    model = fitted(kind(data, equations, depvar="way", covariates=["price"], **nests))
    model.save(tmp_path / "fitted.nc")
    loaded = kind.load(tmp_path / "fitted.nc")
    for asked in (model, loaded):
        asked.idata = asked.idata.isel(draw=slice(None, None, 20))
    dearer = data.assign(price_bus=data["price_bus"] + 1)
    now, then, again = (
        m.apply_intervention(prices)["posterior_predictive"]["p"]
        for m, prices in ((model, data), (model, dearer), (loaded, dearer))
    )
    before, after = (p.sel(alts="bus").mean(["chain", "draw", "obs"]) for p in (now, then))
    assert float(after) < 0.8 * float(before)
    assert_allclose(again, then)


def test_weeks_of_many_channels_are_too_few(clv):
    mmm = import_module("pymc_marketing.mmm")
    rng, n, channels = np.random.default_rng(1), 150, [f"channel{i}" for i in range(8)]
    spent = {name: rng.uniform(size=n) for name in channels}
    weeks = pd.DataFrame({"date": pd.date_range("2022-01-03", periods=n, freq="W-MON"), **spent})
    model = mmm.MMM(
        date_column="date",
        channel_columns=channels,
        adstock=mmm.GeometricAdstock(l_max=4),
        saturation=mmm.LogisticSaturation(),
        yearly_seasonality=2,
    )
    sales = pd.Series(1 + weeks[channels].sum(axis=1) + rng.normal(0, 0.1, size=n), name="y")
    model.build_model(weeks, sales)
    with refused(pmc.UnsupportedModelError, "150 rows"):
        pmc.sample(model, **QUIET)
