"""Logistic regressions for the comparison of methods: simulated as in the papers, or read."""

import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from benchmarks.closed_forms import Array
from benchmarks.regressions import Regression, logistic

EXAMPLES = Path(__file__).parents[1] / "examples"
PRIOR_SD = 2.0
SHARES = np.array([1, 0.2, 0.3, 0.5, 0.01, 0.1, 0.2, 0.007, 0.005, 0.001])
EFFECTS = np.array([-3, 1.2, -0.5, 0.8, 3, -1, -0.7, 4, 3.5, 4.5])
CENTRES = np.repeat([[0.0, 1.0], [1.0, 0.0]], 5, axis=1)  # of y = 0 and of y = 1
BINARY = ("BINARY5", "BINARY10")
SYNTHETIC = (*BINARY, "MIXTURE")


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSet:
    """Rows to learn from, and rows to predict; ``theta ~ N(0, 4 I)``."""

    name: str
    features: Array
    y: NDArray[np.int64]
    test_features: Array
    test_y: NDArray[np.int64]
    names: list[str] = field(default_factory=list)

    @property
    def n_obs(self) -> int:
        return len(self.y)

    def model(self) -> pm.Model:
        with pm.Model() as model:
            x = pm.Data("x", self.features)
            theta = pm.Normal("theta", 0, PRIOR_SD, shape=self.features.shape[1])
            pm.Bernoulli("y", logit_p=x @ theta, observed=self.y)
        return model

    @cached_property
    def _kinds(self) -> NDArray[np.int64] | None:
        """A number for each row, shared by equal rows; None where few rows are equal."""
        if self.name not in BINARY:
            return None
        powers = 2 ** np.arange(1, self.features.shape[1] + 1)
        return self.features.astype(np.int64) @ powers + self.y

    def weighted(self, rows: NDArray[Any], weights: Array) -> tuple[Regression, Array]:
        """Return the model of some rows with a prior N(0, I), and weights; equal rows are merged.

        Its parameters are those of this data set, divided by the prior's standard deviation.
        """
        if self._kinds is not None:
            _, first, kind = np.unique(self._kinds[rows], return_index=True, return_inverse=True)
            rows, weights = rows[first], np.bincount(kind, weights)
        return logistic(PRIOR_SD * self.features[rows], self.y[rows]), weights

    def n_kinds(self) -> int:
        """Count the distinct rows."""
        return self.n_obs if self._kinds is None else len(np.unique(self._kinds))


def synthetic(name: str, n_obs: int, n_test: int, *, rng: np.random.Generator) -> DataSet:
    """Simulate one of the data sets of Huggins, Campbell and Broderick (2016)."""
    n = n_obs + n_test
    if name == "MIXTURE":
        y = rng.integers(0, 2, n)
        features = CENTRES[y] + rng.standard_normal((n, 10))
    else:
        dimension = int(name.removeprefix("BINARY"))
        features = (rng.random((n, dimension)) < SHARES[:dimension]).astype(float)
        y = (rng.random(n) < expit(features @ EFFECTS[:dimension])).astype(np.int64)
    names = [f"x{i + 1}" for i in range(features.shape[1])]
    return _split(name, features, y, names, n_test)


def flights(n_obs: int, n_test: int, *, rng: np.random.Generator) -> DataSet:
    """Draw some of the flights of 2013 from New York; y says whether they were late."""
    sys.path.insert(0, str(EXAMPLES))  # the scripts import one another by name
    from flights import load_flights, spline_basis  # noqa: PLC0415

    table = load_flights()
    chosen = rng.permutation(len(table))[: n_obs + n_test]
    table = table.iloc[chosen]
    hours = spline_basis(table["time"].to_numpy())[:, 1:]  # the first is the baseline
    distance = np.log(table["distance"].to_numpy() / 1000)
    origins = [(table["origin"] == airport).to_numpy() for airport in ("Kennedy", "LaGuardia")]
    features = np.column_stack([np.ones(len(table)), distance, hours, *origins]).astype(float)
    names = ["intercept", "log distance", *(f"hour {i}" for i in range(1, 6)), "JFK", "LGA"]
    return _split("flights", features, table["late"].to_numpy(np.int64), names, n_test)


def fair(*, rng: np.random.Generator) -> DataSet:
    """Read statsmodels' `fair`; y says whether there was an affair.  A tenth is the test set."""
    import statsmodels.api as sm  # noqa: PLC0415 - a second, which other data do without

    table: pd.DataFrame = sm.datasets.fair.load_pandas().data
    table = table.iloc[rng.permutation(len(table))]
    covariates = table.drop(columns="affairs")
    standard = (covariates - covariates.mean()) / covariates.std()
    features = np.column_stack([np.ones(len(table)), standard.to_numpy()])
    y = (table["affairs"] > 0).to_numpy(np.int64)
    return _split("fair", features, y, ["intercept", *covariates.columns], len(table) // 10)


def out_of_reach(n_obs: int, *, share: float, rng: np.random.Generator) -> DataSet:
    """Simulate rows of which a share has a linear predictor beyond 4, PASS-LR2's radius."""
    effects = np.array([1.0, -2.0, 0.5, 1.5])
    effects *= 4 / norm.isf(share / 2) / np.linalg.norm(effects)
    features = rng.standard_normal((n_obs, len(effects)))
    y = (rng.random(n_obs) < expit(features @ effects)).astype(np.int64)
    return _split("|eta| > 4", features, y, [f"x{i + 1}" for i in range(len(effects))], 0)


def _split(
    name: str, features: Array, y: NDArray[np.int64], names: list[str], n_test: int
) -> DataSet:
    n = len(y) - n_test
    return DataSet(
        name=name,
        features=features[:n],
        y=y[:n],
        test_features=features[n:],
        test_y=y[n:],
        names=names,
    )
