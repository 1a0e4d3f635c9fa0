"""What is compiled of a pointwise log-likelihood, once for all rows of its form."""

from collections.abc import Sequence
from dataclasses import dataclass
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
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.reading.units.integral import CENTRE, FACTOR, MOMENTS, placed
from pymc_coresets.reading.units.observations_of_units import as_units
from pymc_coresets.rowlogp.rest import RestLogDensity, of_vector
from pymc_coresets.rowlogp.unit_modes import UnitModes

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


@dataclass(frozen=True, eq=False)
class Kernels:
    """Functions of rows at draws that NumPy evaluates, or compiled loops; made at their first use.

    Parameters
    ----------
    observations : Observations
    compiled : bool
    """

    observations: Observations
    compiled: bool

    @cached_property
    def _inputs(self) -> set[Variable]:
        return set(graph_inputs([self.observations.loglik]))

    @cached_property
    def parameters(self) -> dict[str, Variable]:
        """The free variables that the log-likelihoods depend on, by name."""
        return {n: v for n, v in self.observations.parameters.items() if v in self._inputs}

    @cached_property
    def rows(self) -> dict[int, RowArray]:
        """The row arrays that the log-likelihoods depend on, by their number."""
        rows = enumerate(self.observations.inputs)
        return {i: row for i, row in rows if row.placeholder in self._inputs}

    @cached_property
    @compiling()  # without it, half of the time is for traces that are not read
    def kernel(self) -> Kernel:
        """The log-likelihoods (n_draws, n_rows) as a function of the rows, given the parameters."""
        obs, batched = self.observations, self._batched()
        n_draws = next(iter(batched.values())).shape[0]
        graph = vectorize_graph(obs.loglik, batched)
        if graph.type.ndim == 1:
            graph = pt.broadcast_to(graph, (n_draws, obs.n_rows))
        return self._kernel(list(batched.values()), [obs.n_rows], [graph])

    @cached_property
    @compiling()
    def gradients(self) -> Kernel:
        """The log-likelihood of weighted rows at many vectors (n_points, D), and its gradients.

        By reverse mode through the graph of all points at once, which takes a tenth of the time
        of one after the other where rows are few.

        Raises
        ------
        UnsupportedModelError
            If there is no gradient.
        """
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
        return self._kernel([points], [weights], [logp, gradient])

    def _kernel(
        self,
        given: Sequence[Variable],
        first: Sequence[Variable],
        outputs: Sequence[Variable],
    ) -> Kernel:
        """Compile graphs of `first` and of the row arrays that the log-likelihoods depend on."""
        inputs = [*first, *(row.placeholder for row in self.rows.values())]
        return Kernel(given, inputs, outputs, self._axes, compiled=self.compiled)

    @property
    def _axes(self) -> dict[int, int]:
        return {i: row.axis for i, row in self.rows.items()}

    def arrays(self, rows: HasInputs) -> list[np.ndarray]:
        """Return the arrays of rows that the kernels of this form take."""
        return arrays_along(rows, self._axes)

    @cached_property
    def unit_modes(self) -> UnitModes:
        """Finds where each unit's variables have their mode."""
        units, parameters = as_units(self.observations).source, list(self.parameters)
        return UnitModes(units, parameters, self.unit_densities, compiled=self.compiled)

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
            moments = [inputs[name] for name in (MOMENTS,) if name in inputs]
            around = placed(density, inputs[CENTRE], inputs[FACTOR], x, *moments, straight=True)
            columns = zip(*(each.columns for each in around), strict=True)
            z = pt.stack([pt.concatenate(own, axis=0) for own in columns])
            logs = (density.surface.at(each.columns) + each.log_share for each in around)
            at_z = pt.concatenate(list(logs), axis=0)
        batched = self._batched() | ({} if factor.values else {x: _with_draws(x)})
        given = [batched[v] for v in self.parameters.values()]
        return self._kernel(given, [batched.get(x, x)], vectorize_graph([z, at_z], batched))

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
        return self._kernel(given, [batched[v] for v in columns], [density])

    def _batched(self) -> dict[Variable, TensorVariable]:
        """The parameters at all draws."""
        return {v: _with_draws(v) for v in self.parameters.values()}


@dataclass(eq=False)
class Functions:
    """The functions of a pointwise log-likelihood, which NumPy evaluates or compiled loops.

    All rows of the same form share them: samples of the rows, rows from elsewhere, and units by
    other nodes.

    NumPy evaluates some sooner than their loops are compiled: those of few rows, and the gradients
    of few searches.

    Parameters
    ----------
    observations : Observations
        Some of that form.
    few_rows : bool
        Whether there are so few rows at so few draws.
    few_slopes : bool
        Whether searches need so few gradients.
    """

    observations: Observations
    few_rows: bool
    few_slopes: bool

    def __post_init__(self) -> None:
        self._by_numpy = Kernels(self.observations, compiled=False)
        self._by_loops = Kernels(self.observations, compiled=True)
        self._rests: list[RestLogDensity] = []  # the last

    @classmethod
    def of(cls, observations: Observations, *, are_all: bool = False) -> Self:
        """Begin with observations of a model, which may be all that will be evaluated."""
        if observations.prototypes:  # whose rows are elsewhere
            return cls(observations, few_rows=False, few_slopes=False)
        n_numbers, n_rows = _n_numbers(observations), min(_SAMPLE, observations.n_obs)
        times = _OF_SAMPLE * n_rows / observations.n_obs + _OF_ALL
        few_slopes = times * n_numbers <= _FEW_SLOPES
        return cls(observations, are_all and n_numbers <= _FEW, few_slopes)

    def __reduce__(self) -> tuple[object, ...]:  # they are compiled again
        return type(self), (self.observations, self.few_rows, self.few_slopes)

    def for_numbers(self, n_numbers: float) -> "Functions":
        """Return functions for so many numbers: compiled ones where NumPy would take longer.

        Draws of units' variables evaluate a few rows at thousands of draws.
        """
        return self.as_loops if self.few_rows and n_numbers > _FEW_AT_ONCE else self

    @cached_property
    def as_loops(self) -> "Functions":
        """The same by compiled loops alone, for chains, which ask thousands of times."""
        if not (self.few_rows or self.few_slopes):
            return self
        loops = Functions(self.observations, few_rows=False, few_slopes=False)
        loops._by_loops, loops._rests = self._by_loops, self._rests  # shared
        return loops

    @property
    def rest(self) -> RestLogDensity:
        """The log-density of all terms but the rows; a new one if the model's data change."""
        if not self._rests or self._rests[0].space is not self.observations.space:
            self._rests[:] = [RestLogDensity(self.observations)]
        return self._rests[0]

    def rest_beside(self, interface: TensorVariable) -> RestLogDensity:
        """Return `rest` with the coefficients of an interface, and keep it as `rest`."""
        if self.rest.interface != (interface,):
            self._rests[:] = [RestLogDensity(self.observations, interface)]
        return self._rests[0]

    @property
    def parameters(self) -> dict[str, Variable]:
        """The free variables that the log-likelihoods depend on, by name."""
        return self._by_loops.parameters

    @property
    def rows(self) -> dict[int, RowArray]:
        """The row arrays that the log-likelihoods depend on, by their number."""
        return self._by_loops.rows

    def arrays(self, rows: HasInputs) -> list[np.ndarray]:
        """Return the arrays of rows that the kernels of this form take."""
        return self._by_loops.arrays(rows)

    @property
    def _of_rows(self) -> Kernels:
        return self._by_numpy if self.few_rows else self._by_loops

    @property
    def kernel(self) -> Kernel:
        """See `Kernels.kernel`."""
        return self._of_rows.kernel

    @property
    def gradients(self) -> Kernel:
        """See `Kernels.gradients`."""
        return (self._by_numpy if self.few_slopes else self._by_loops).gradients

    @property
    def unit_modes(self) -> UnitModes:
        """See `Kernels.unit_modes`."""
        return self._of_rows.unit_modes

    @property
    def unit_places(self) -> Kernel:
        """See `Kernels.unit_places`."""
        return self._of_rows.unit_places

    @property
    def unit_densities(self) -> Kernel:
        """See `Kernels.unit_densities`."""
        return self._of_rows.unit_densities


def _n_numbers(observations: Observations) -> float:
    """Return how many numbers the evaluation of all rows takes at a draw."""
    return observations.n_obs * observations.mean_size * observations.n_nodes


def _with_draws(variable: Variable) -> TensorVariable:
    """Return an input with an additional first axis, the draws."""
    return pt.tensor(dtype=variable.type.dtype, shape=(None, *variable.type.shape))
