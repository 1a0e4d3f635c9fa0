"""What is compiled of a pointwise log-likelihood, once for all rows of its form."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Variable, clone_replace, graph_inputs, vectorize_graph
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import compiling
from pymc_coresets.deadline import stop_if_late
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.loops.fused_loops import HasInputs, Kernel, arrays_along
from pymc_coresets.potentials.log_prior import LogPrior, of_vector
from pymc_coresets.potentials.unit_modes import UnitModes
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.reading.units.integral import CENTRE, FACTOR, MOMENTS, placed
from pymc_coresets.reading.units.observations_of_units import as_units

#: Rows times nodes up to which NumPy evaluates them at hundreds of draws, several times, sooner
#: than loops are compiled: a tenth of a second for each time, beside some seconds.
_FEW = 8_000
#: Numbers, of these rows at many draws and nodes, for which NumPy takes as long as compilation.
_FEW_AT_ONCE = 2**25

#: The same times points, of gradients in searches: NumPy takes some tenths of a second for so many,
#: and their loops as long or longer to compile.
_FEW_SLOPES = 2**23
#: Points of a search on a sample of so many rows, and of that on all rows after it.
_SAMPLE, _OF_SAMPLE, _OF_ALL = 1_000, 2_000, 20


@dataclass(eq=False)
class Functions:
    """The functions of a pointwise log-likelihood, each made at its first use.

    All rows of the same form share them: samples of the rows, rows from elsewhere, and units by
    other nodes.

    Parameters
    ----------
    observations : Observations
        Some of that form.
    for_few : bool
        Whether there are so few rows, or evaluations, that NumPy makes them sooner than loops are
        compiled.
    """

    observations: Observations
    for_few: bool
    _log_prior: LogPrior | None = field(default=None, init=False)

    @classmethod
    def of(cls, observations: Observations, *, are_all: bool) -> Self:
        """Begin with observations of a model, which may be all that will be evaluated."""
        is_small = _n_numbers(observations) <= _FEW and not observations.template
        return cls(observations, are_all and is_small)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.observations, self.for_few)  # they are compiled again

    def for_numbers(self, n_numbers: float) -> "Functions":
        """Return functions for so many numbers: compiled ones where NumPy would take longer.

        Samplers, and draws of units' variables, evaluate a few rows at thousands of draws.
        """
        return self if not self.for_few or n_numbers <= _FEW_AT_ONCE else self._as_loops

    @cached_property
    def _as_loops(self) -> "Functions":
        return Functions(self.observations, for_few=False)

    @property
    def log_prior(self) -> LogPrior:
        """The log-density of all terms but the rows; a new one if the model's data change."""
        known = self._log_prior
        if known is None or known.space is not self.observations.space:
            known = self._log_prior = LogPrior(self.observations)
        return known

    def log_prior_beside(self, interface: TensorVariable) -> LogPrior:
        """Return `log_prior` with the coefficients of an interface, and keep it as `log_prior`."""
        known = self.log_prior
        if known.interface is not interface:
            known = self._log_prior = LogPrior(self.observations, interface)
        return known

    @cached_property
    def _inputs(self) -> set[Variable]:
        return set(graph_inputs([self.observations.loglik]))

    @cached_property
    def parameters(self) -> dict[str, Variable]:
        """The free variables that the potentials depend on, by name."""
        return {n: v for n, v in self.observations.parameters.items() if v in self._inputs}

    @cached_property
    def rows(self) -> dict[int, RowArray]:
        """The row arrays that the potentials depend on, by their number."""
        rows = enumerate(self.observations.inputs)
        return {i: row for i, row in rows if row.placeholder in self._inputs}

    @cached_property
    @compiling()  # without it, half of the time is for traces that are not read
    def kernel(self) -> Kernel:
        """The potentials (n_draws, n_rows) as a function of the rows, given the parameters."""
        obs, batched = self.observations, self._batched()
        n_draws = next(iter(batched.values())).shape[0]
        graph = vectorize_graph(obs.loglik, batched)
        if graph.type.ndim == 1:
            graph = pt.broadcast_to(graph, (n_draws, obs.n_rows))
        return self._of_all(list(batched.values()), [obs.n_rows], [graph])

    @cached_property
    def gradients_of_searches(self) -> Kernel:
        """`gradients` for searches uphill, by NumPy if they evaluate few.

        Chains evaluate few rows thousands of times, for which NumPy takes four times as long.
        """
        observations = self.observations
        n_rows = min(_SAMPLE, observations.n_obs)
        times = _OF_SAMPLE * n_rows / observations.n_obs + _OF_ALL
        is_small = times * _n_numbers(observations) <= _FEW_SLOPES
        if not is_small or observations.template:  # whose rows are elsewhere
            return self.gradients
        return self._gradients(compiled=False)

    @cached_property
    def gradients(self) -> Kernel:
        """The log-likelihood of weighted rows at many vectors (n_points, D), and its gradients.

        By reverse mode through the graph of all points at once, which takes a tenth of the time
        of one after the other where rows are few.

        Raises
        ------
        UnsupportedModelError
            If there is no gradient.
        """
        return self._gradients(compiled=True)

    @compiling()
    def _gradients(self, *, compiled: bool) -> Kernel:
        obs = self.observations
        x = obs.space.vector
        points = pt.tensor("points", dtype="float64", shape=(None, *x.type.shape))
        weights = pt.vector("weights", dtype="float64")
        graph = vectorize_graph(of_vector([obs.loglik], obs, x)[0], {x: points})
        stop_if_late()  # each of these steps takes seconds for large graphs
        n_rows: dict[Variable, Variable] = {obs.n_rows: weights.shape[0]}
        graph = clone_replace([graph], n_rows)[0]
        if graph.type.ndim == 1:
            graph = pt.broadcast_to(graph, (points.shape[0], weights.shape[0]))
        logp = (weights * graph).sum(axis=1)
        try:
            gradient = cast(Variable, pt.grad(logp.sum(), points))
        except NotImplementedError as error:
            raise UnsupportedModelError(
                f"The log-likelihood has no gradient, which the search for a mode needs: {error}. "
                "Give this operation a gradient, or write the likelihood with others."
            ) from error
        stop_if_late()
        return self._kernel([points], [weights], [logp, gradient], compiled=compiled)

    def _kernel(
        self,
        given: Sequence[Variable],
        first: Sequence[Variable],
        outputs: Sequence[Variable],
        *,
        compiled: bool = True,
    ) -> Kernel:
        """Compile graphs of `first` and of the row arrays that the potentials depend on."""
        inputs = [*first, *(row.placeholder for row in self.rows.values())]
        return Kernel(given, inputs, outputs, self._axes, compiled=compiled)

    @property
    def _axes(self) -> dict[int, int]:
        return {i: row.axis for i, row in self.rows.items()}

    def arrays(self, rows: HasInputs) -> list[np.ndarray]:
        """Return the arrays of rows that the kernels of this form take."""
        return arrays_along(rows, self._axes)

    def _of_all(self, *graphs: Sequence[Variable]) -> Kernel:
        """Compile graphs that are evaluated a few times, for all rows and hundreds of draws."""
        return self._kernel(*graphs, compiled=not self.for_few)

    @cached_property
    def unit_modes(self) -> UnitModes:
        """Finds where each unit's variables have their mode."""
        return UnitModes(as_units(self.observations).source, compiled=not self.for_few)

    @cached_property
    @compiling()
    def unit_places(self) -> Kernel:
        """The variables of units and their log-densities, at all draws, at standardised places.

        Of shapes (n_draws, q, n_places, n_units) and (n_draws, n_places, n_units).  The first
        argument is these places, (n_draws, n_places, n_units, q); for discrete variables, their
        values, the same at all draws, (n_places, n_units, q), or (n_places, 1, q) if units have
        them in common.  With several modes, there are as many places around each, mode by mode.
        Log-densities have the `log_share` of the places added.
        """
        obs = self.observations
        source = as_units(obs).source
        factor, density = source.factor, source.density
        in_common = 1 if factor.values and density.has_common_values else None
        x = pt.tensor("x", dtype="float64", shape=(None, in_common, factor.n_dims))
        inputs = {row.name: row.placeholder for row in obs.rows}
        if factor.values:
            z = pt.moveaxis(x, -1, 0)
            at_z = density.at_values(x)
        else:
            around = placed(density, inputs[CENTRE], inputs[FACTOR], x, inputs.get(MOMENTS))
            columns = zip(*(each.columns for each in around), strict=True)
            z = pt.stack([pt.concatenate(own, axis=0) for own in columns])
            logs = (density.surface.at(each.columns) + each.log_share for each in around)
            at_z = pt.concatenate(list(logs), axis=0)
        batched = self._batched() | ({} if factor.values else {x: _with_draws(x)})
        given = [batched[v] for v in self.parameters.values()]
        return self._of_all(given, [batched.get(x, x)], vectorize_graph([z, at_z], batched))

    @cached_property
    @compiling()
    def unit_densities(self) -> Kernel:
        """The log-densities of units, (n_draws, n_places, n_units), at values of their variables.

        The first arguments are the values of each of the q variables, of the same shape.
        """
        surface = as_units(self.observations).source.density.surface
        columns = [pt.matrix(f"variable {j}", dtype="float64") for j in range(surface.n_dims)]
        batched: dict[Variable, TensorVariable] = {v: _with_draws(v) for v in columns}
        batched |= self._batched()
        given = [batched[v] for v in self.parameters.values()]
        density = vectorize_graph(surface.at(columns), batched)
        return self._of_all(given, [batched[v] for v in columns], [density])

    def _batched(self) -> dict[Variable, TensorVariable]:
        """The parameters at all draws."""
        return {v: _with_draws(v) for v in self.parameters.values()}


def _n_numbers(observations: Observations) -> float:
    """Return how many numbers the evaluation of all rows takes at a draw."""
    return observations.n_obs * observations.mean_size * observations.n_nodes


def _with_draws(variable: Variable) -> TensorVariable:
    """Return an input with an additional first axis, the draws."""
    return pt.tensor(dtype=variable.type.dtype, shape=(None, *variable.type.shape))
