"""A table of small models, one of each kind that users write: a name and a builder each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pymc as pm

__all__ = ["CASES", "Case", "case", "twin"]

N = 47  # a prime: no other axis has this length by accident


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kind of model.

    Parameters
    ----------
    name : str
    build : callable
        Adds the variables to the model of the context.
    standalone : bool
        `build` gives a model of its own instead.
    coords : mapping
        Of the model.
    options : mapping
        Of `find_observations`.
    unselected : str
        Why some part of it is evaluated for all rows; empty where none may be.
    n_obs : int
    twin : callable
        Adds the same model to the context, with a potential of the terms of what is one number in
        `build`, and one of what is left.
    """

    name: str
    build: Callable[[], Any]
    standalone: bool = False
    coords: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    unselected: str = ""
    n_obs: int = N
    twin: Callable[[], Any] | None = None

    def model(self) -> pm.Model:
        """Build the model anew."""
        if self.standalone:
            return self.build()
        with pm.Model(coords=dict(self.coords)) as model:
            self.build()
        return model

    def twin_model(self) -> pm.Model:
        """Build the twin."""
        assert self.twin is not None
        with pm.Model(coords=dict(self.coords)) as model:
            self.twin()
        return model


CASES: dict[str, Case] = {}


def case(
    name: str,
    *,
    coords: Mapping[str, Any] | None = None,
    unselected: str = "",
    n_obs: int = N,
    standalone: bool = False,
    **options: Any,
) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Enter a builder into the table."""

    def enter(build: Callable[[], object]) -> Callable[[], object]:
        assert name not in CASES
        CASES[name] = Case(
            name=name,
            build=build,
            standalone=standalone,
            coords=coords or {},
            options=options,
            unselected=unselected,
            n_obs=n_obs,
        )
        return build

    return enter


def twin(name: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Give a builder in the table its twin."""

    def enter(build: Callable[[], object]) -> Callable[[], object]:
        CASES[name] = replace(CASES[name], twin=build)
        return build

    return enter


# -- data ------------------------------------------------------------------------------------------

_rng = np.random.default_rng(20)
X = _rng.normal(size=(N, 3))
REAL = _rng.normal(size=N)
POSITIVE = _rng.gamma(3.0, 0.5, size=N)
UNIT = _rng.beta(2.0, 2.0, size=N)
ANGLE = _rng.uniform(-3.0, 3.0, size=N)
COUNT = _rng.poisson(2.0, size=N)
BINARY = _rng.integers(0, 2, size=N)
CLASS = _rng.integers(0, 3, size=N)
GROUP = _rng.integers(0, 4, size=N)
OUTER = np.array([0, 1, 1, 0])  # of each group
ITEM = _rng.integers(0, 5, size=N)
MASK = _rng.random(N) < 0.3
TABLE = _rng.multinomial(10, [0.2, 0.3, 0.5], size=N)
LABELS = [f"row {n}" for n in range(N)]
OBS = {"obs": LABELS}


def coefficients(**kwargs: Any) -> Any:
    """Coefficients of the three covariates."""
    return pm.Normal("b", 0, 0.5, shape=3, **kwargs)


def predictor() -> Any:
    """Linear predictor of each row."""
    return X @ coefficients()


def scale(name: str = "s", **kwargs: Any) -> Any:
    """Positive free parameter."""
    return pm.HalfNormal(name, **kwargs)
