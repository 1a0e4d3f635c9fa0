"""The log-density of a model without the summarised rows: priors, and all other terms."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Variable, clone_replace
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import checked_tensors, compiling
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.loops.fused_loops import loop_mode
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import (
    numpy_function,
    simplified,
    widened,
    written_function,
)
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.unconstrained import of_points


def rest_graph(observations: Observations) -> Variable:
    """Return its graph, as a function of the model's value variables, with Jacobians.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> rest_graph(find_observations(model)).type.ndim
    0
    """
    model, terms = observations.model, {term.name for term in observations.terms}
    others = [v for v in (*model.basic_RVs, *model.potentials) if v.name not in terms]
    with compiling():
        logp: Variable = model.logp(vars=others)
    variables: dict[Variable, Variable] = {
        observations.parameters[rv.name]: rv for rv in model.free_RVs
    }
    in_model = clone_replace([*observations.unweighted], variables, rebuild_strict=False)
    return reduce(pt.add, model.replace_rvs_by_values(in_model), logp)


def of_vector(
    graphs: Sequence[TensorVariable], observations: Observations, x: TensorVariable
) -> list[TensorVariable]:
    """Return graphs of ``observations.parameters`` as functions of a point `x`, (D,)."""
    constrained = observations.space.constrained(x)
    given: dict[Variable, Variable] = {
        v: constrained[name] for name, v in observations.parameters.items()
    }
    return checked_tensors(widened(graphs, given))


class RestLogDensity:
    """The log-density of all terms but the rows, in nats, at many points (n_points, D) at once.

    Points are on the unconstrained scale; Jacobians are included.  A thousand points take a few
    milliseconds.  NumPy evaluates them, with little compilation.

    Parameters
    ----------
    observations : Observations
    *interface : TensorVariable of shape (p,)
        Coefficients of which a function is added, see `slopes`; a graph of
        ``observations.parameters``.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> rest = RestLogDensity(find_observations(model))
    >>> rest.values(np.zeros((1, 1))).round(4), rest.slopes(np.ones((1, 1)))[1]
    (array([-0.9189]), array([[-1.]]))
    """

    def __init__(self, observations: Observations, *interface: TensorVariable) -> None:
        self.observations, self.interface = observations, interface
        self.space = observations.space

    def __getstate__(self) -> dict[str, object]:
        return {name: vars(self)[name] for name in ("observations", "interface", "space")}

    def values(self, points: np.ndarray) -> np.ndarray:
        """Return the log-densities at points (n_points, D), without that function."""
        if "_with_slopes" in self.__dict__:
            return self.slopes(points)[0]
        return self._values(points)[0]

    def with_rows(self, points: np.ndarray, loglik: Callable[[Draws], np.ndarray]) -> np.ndarray:
        """Return the log-densities at draws, (n_points,), including the replacement of the rows.

        Minus infinity if a value is not finite, such as far out, where draws overflow.
        """
        draws = self.space.constrain(points)
        inside, total = draws.are_finite, np.full(len(points), -np.inf)
        if inside.any():
            with np.errstate(all="ignore"):
                total[inside] = self.values(points[inside]) + loglik(draws.take(inside))
        return np.where(np.isfinite(total), total, -np.inf)

    def slopes(
        self, points: np.ndarray, pull: np.ndarray | float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the log-densities, and their gradients (n_points, D).

        Parameters
        ----------
        points : ndarray of shape (n_points, D)
        pull : ndarray of shape (n_points, p), default 0
            Derivatives of a function of the coefficients, whose own gradient is added.
        """
        shapes = [(len(points), graph.type.shape[0]) for graph in self.interface]
        pulls = [np.broadcast_to(pull, shape) for shape in shapes]
        values, gradients = self._with_slopes(points, *pulls)
        return values, gradients

    def coefficients(self, points: np.ndarray) -> np.ndarray:
        """Return the coefficients at points (n_points, D), of shape (n_points, p)."""
        [found] = self._coefficients(points)
        return found

    @cached_property
    def _graphs(self) -> tuple[TensorVariable, list[TensorVariable]]:
        """A point, and the log-density and the coefficients there."""
        x = self.space.vector
        graphs = self.space.at(x, [rest_graph(self.observations)])
        for graph in self.interface:
            graphs += of_vector([graph], self.observations, x)
        return x, checked_tensors(simplified(graphs))

    @cached_property
    def _values(self) -> Callable[..., list[np.ndarray]]:
        x, [logp, *_] = self._graphs
        return of_points([x], [logp])

    @cached_property
    def _coefficients(self) -> Callable[..., list[np.ndarray]]:
        x, [_, coefficients] = self._graphs
        return of_points([x], [coefficients], written_function)

    @cached_property
    def _with_slopes(self) -> Callable[..., list[np.ndarray]]:
        x, [logp, *coefficients] = self._graphs
        pulls = [pt.vector("pull", dtype="float64") for _ in coefficients]
        pulled = logp + sum(
            (own * pull).sum() for own, pull in zip(coefficients, pulls, strict=True)
        )
        make = partial(numpy_function, mode=loop_mode(compiled=False))
        return of_points([x, *pulls], [logp], make, slope_of=pulled)


def refuse_unweighted(observations: Observations) -> None:
    """Raise for scalar log-densities with a term that belongs to no row.

    Raises
    ------
    UnsupportedModelError
    """
    if observations.unweighted:
        raise UnsupportedModelError(
            f"A part of {[term.name for term in observations.terms]!r} belongs to no row, so the "
            "rows alone do not give the likelihood: use the model of all rows for this."
        )
