"""What PyMC itself says of a model: log-likelihoods of rows, densities and gradients, by name."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.rewriting.utils import rewrite_graph

from tests.models.zoo import Case
from tests.modes import PLAIN_MODE, WRITTEN_MODE

__all__ = ["Point", "Reference", "density", "logp_without"]

type Point = dict[str, np.ndarray]

N_POINTS = 2


class Reference:
    """A model, points on its unconstrained scale, and PyMC's own log-likelihoods there.

    Parameters
    ----------
    case : Case
    terms : sequence of str
        The variables whose rows are the observations.
    """

    def __init__(self, case: Case, model: pm.Model, terms: Sequence[str]) -> None:
        self.model, self.terms = model, [model[name] for name in terms]
        self.dim, self.n_obs = case.options.get("dim"), case.n_obs

    @cached_property
    def points(self) -> list[Point]:
        """Points around the initial one; integers stay as they are."""
        rng, start = np.random.default_rng(1), self.model.initial_point(random_seed=1)
        return [{n: _jittered(v, rng) for n, v in start.items()} for _ in range(N_POINTS)]

    @cached_property
    def draws(self) -> dict[str, np.ndarray]:
        """The free variables on their own scale at the points, of shape (n_points, ...)."""
        rvs = self.model.free_RVs
        graphs = [pt.as_tensor(v, allow_xtensor_conversion=True) for v in rvs]
        backward = _function(self.model, self.model.replace_rvs_by_values(graphs))
        columns = zip(*(backward(**point) for point in self.points), strict=True)
        return {rv.name: np.stack(c) for rv, c in zip(rvs, columns, strict=True)}

    @cached_property
    def loglik(self) -> np.ndarray:
        """Log-likelihoods of shape (n_obs, n_points)."""
        weights = np.zeros(self.n_obs)
        return np.stack([self._evaluate(p, weights)[0] for p in self.points], axis=1)

    def weighted(self, point: Point, weights: np.ndarray) -> tuple[float, Point]:
        """Log-prior plus weighted log-likelihoods, and their gradient by name."""
        _, logp, *gradient = self._evaluate(point, weights)
        return float(logp), self._named(gradient)

    def _named(self, gradient: list[np.ndarray]) -> Point:
        names = [v.name for v in self.model.continuous_value_vars]
        return dict(zip(names, gradient, strict=True))

    def _evaluate(self, point: Point, weights: np.ndarray) -> list[np.ndarray]:
        return self._function(**point, weights=weights)

    @cached_property
    def _function(self) -> Any:
        weights = pt.vector("weights")
        loglik = self._loglik()
        others = [v for v in (*self.model.basic_RVs, *self.model.potentials) if v not in self.terms]
        logp = self.model.logp(vars=others) + (weights * loglik).sum()
        return _function(self.model, [loglik, *_with_gradient(self.model, logp)], [weights])

    def _loglik(self) -> Any:
        logps = self.model.logp(vars=self.terms, sum=False, jacobian=False)
        return sum(self._of_rows(t.name, _plain(g)) for t, g in zip(self.terms, logps, strict=True))

    def _of_rows(self, name: str, logp: Any) -> Any:
        dims = self.model.named_vars_to_dims.get(name, ())
        wanted = (self.dim,) if isinstance(self.dim, str) else self.dim or ()
        axes = [dims.index(d) for d in wanted if d in dims] or [0]
        others = [i for i in range(logp.type.ndim) if i not in axes]
        return (
            logp.dimshuffle(*axes, *others).sum(axis=list(range(len(axes), logp.type.ndim))).ravel()
        )


def density(model: pm.Model) -> Any:
    """Compile the log-density (Jacobian included) and its gradient by name, at a point."""
    function = _function(model, _with_gradient(model, model.logp()))
    names = [v.name for v in model.continuous_value_vars]

    def evaluate(point: Mapping[str, np.ndarray]) -> tuple[float, Point]:
        logp, *gradient = function(**point)
        return float(logp), dict(zip(names, gradient, strict=True))

    return evaluate


def logp_without(model: pm.Model, names: Collection[str]) -> Any:
    """Return the function of a point that is the log-density of all terms but those named."""
    kept = [v for v in (*model.basic_RVs, *model.potentials) if v.name not in names]
    return model.compile_logp(vars=kept, mode=PLAIN_MODE)


def _with_gradient(model: pm.Model, logp: Any) -> list[Any]:
    values = model.continuous_value_vars
    gradient = pytensor.grad(_plain(logp), values, disconnected_inputs="ignore")
    return [logp, *gradient]


def _plain(graph: Any) -> Any:
    """Express variables with dims, of which not all have a gradient, by those without."""
    graph = pt.as_tensor(graph, allow_xtensor_conversion=True)
    return rewrite_graph(graph, include=("lower_xtensor",), clone=True)


def _function(model: pm.Model, outputs: Sequence[Any], inputs: Sequence[Any] = ()) -> Any:
    inputs = [*model.value_vars, *inputs]
    return pytensor.function(inputs, outputs, mode=WRITTEN_MODE, on_unused_input="ignore")


def _jittered(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    value = np.asarray(value)
    if value.dtype.kind != "f":
        return value
    return np.asarray(value + rng.uniform(-0.5, 0.5, size=value.shape))
