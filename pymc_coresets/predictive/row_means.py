"""Means over the draws of what is computed row by row: all draws at once, block by block."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Variable, ancestors, graph_inputs, vectorize_graph
from pytensor.tensor import TensorType, TensorVariable

from pymc_coresets.compat.pytensor_api import CheckAndRaise
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.potentials.fused_loops import Kernel
from pymc_coresets.predictive.filled_models import BLOCK_ROWS, FilledModel
from pymc_coresets.predictive.forward import is_random
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.forms.joined_columns import join_columns
from pymc_coresets.reading.graphs import given_parameters, parameter_inputs
from pymc_coresets.reading.pushdown import Pushdown
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import RowBlocks
from pymc_coresets.rows.threads import in_threads
from pymc_coresets.rows.values import Rows

_BLOCK_ENTRIES = 2**17  # of float64: a block and its temporaries stay in a core's own cache


@dataclass(frozen=True, eq=False)
class RowMeans:
    """Variables whose entry in each row is a function of that row's data and the parameters.

    Parameters
    ----------
    axes : mapping of str to int
        Along which axis of each variable the rows lie.
    parameters : mapping of str to str
        Those that the functions need, and the types of their draws.
    kernel : Kernel
        The variables at all draws, the draws along the first axis.
    source : RowBlocks
    """

    axes: Mapping[str, int]
    parameters: Mapping[str, str]
    kernel: Kernel
    source: RowBlocks

    def blocks(self, draws: Draws) -> Iterator[tuple[Rows, dict[str, np.ndarray]]]:
        """Yield blocks of rows with their means, computed by one thread for each core."""
        given = [np.ascontiguousarray(draws.values[n], t) for n, t in self.parameters.items()]
        size = max(64, _BLOCK_ENTRIES // draws.n_draws)
        of_rows = partial(self._means, self.kernel.program.given(*given))
        for rows in self.source.blocks(BLOCK_ROWS):
            found = zip(*in_threads(of_rows, rows.blocks(size)), strict=True)
            joined = (
                np.concatenate(parts, axis=axis)
                for axis, parts in zip(self.axes.values(), found, strict=True)
            )
            yield rows, dict(zip(self.axes, joined, strict=True))

    def _means(self, evaluate: Callable[..., list[np.ndarray]], rows: Rows) -> list[np.ndarray]:
        values = evaluate(np.asarray(len(rows)), *self.kernel.arrays(rows))
        return [value.mean(axis=0, dtype=np.float64) for value in values]


def means_by_row(
    model: pm.Model,
    graphs: Mapping[str, Variable],
    axes: Mapping[str, int | None],
    filled: FilledModel | None,
) -> RowMeans | None:
    """Find out which rows each row of some variables needs; None where it is more than its own.

    Parameters
    ----------
    model : pm.Model
    graphs : mapping of str to Variable
        From `forward_graphs`.
    axes : mapping of str to int or None
        Along which axis of each the rows lie; None for the longest.
    filled : FilledModel or None
        The same model with rows from elsewhere.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     line = pm.Deterministic("line", pm.Normal("slope") * np.arange(3.0))
    ...     turned = pm.Deterministic("turned", line[::-1].cumsum())
    >>> found = means_by_row(model, {"line": line}, {"line": None}, None)
    >>> next(found.blocks(Draws({"slope": np.array([1.0, 3.0])})))[1]
    {'line': array([0., 2., 4.])}
    >>> means_by_row(model, {"turned": turned}, {"turned": None}, None) is None
    True
    """
    if any(_may_fail(graph, model) for graph in graphs.values()):
        return None
    parameters = parameter_inputs(model)
    inputs = {} if filled is None else _inputs_of(filled)
    template: dict[Variable, np.ndarray] = {v: model[n].get_value() for n, v in inputs.items()}
    try:
        known = given_parameters(model, list(graphs.values()), parameters, inputs)
        given = (axes[name] for name in graphs)
        places = [
            _longest(graph) if axis is None else axis
            for graph, axis in zip(known, given, strict=True)
        ]
        lengths = {graph.type.shape[axis] for graph, axis in zip(known, places, strict=True)}
        pushdown = Pushdown(parameters.values(), max(lengths), template)
        selected = [pushdown.select(g, axis) for g, axis in zip(known, places, strict=True)]
        rows = pushdown.row_arrays()
    except (UnsupportedModelError, InvalidDataError):
        return None
    whole = [name for graph in selected for name in pushdown.taken_whole(graph)]
    if len(lengths) > 1 or pushdown.unselected or pushdown.local or whole:
        return None
    if filled is None:
        selected, rows = join_columns(selected, rows)
        arrays = [np.moveaxis(row.values, row.axis, 0) for row in rows]
        source: RowBlocks = InMemoryRows(arrays, positions=np.arange(pushdown.n_obs))
        numbers = list(range(len(rows)))
    else:
        source, numbers = filled.source, [filled.columns.index(row.name) for row in rows]
    used = {n: v for n, v in parameters.items() if v in set(graph_inputs(selected))}
    batched: dict[Variable, Variable] = {
        v: pt.tensor(dtype=v.type.dtype, shape=(None, *v.type.shape)) for v in used.values()
    }
    kernel = Kernel(
        list(batched.values()),
        [pushdown.n_rows, *(row.placeholder for row in rows)],
        [_at_all_draws(graph, batched) for graph in selected],
        {number: row.axis for number, row in zip(numbers, rows, strict=True)},
    )
    types = {name: v.type.dtype for name, v in used.items()}
    return RowMeans(dict(zip(graphs, places, strict=True)), types, kernel, source)


def _may_fail(graph: Variable, model: pm.Model) -> bool:
    """Whether a graph draws random numbers, or refuses values that it does not like."""
    below = ancestors([graph], blockers=set(model.free_RVs))
    checks = any(v.owner is not None and isinstance(v.owner.op, CheckAndRaise) for v in below)
    return checks or graph in model.free_RVs or is_random(model, graph)


def _inputs_of(filled: FilledModel) -> dict[str, TensorVariable]:
    """Return what stands for each container of rows."""
    values = {n: filled.model[n].get_value() for n in (*filled.columns, *filled.resized)}
    return {n: TensorType(str(v.dtype), shape=v.shape)(name=n) for n, v in values.items()}


def _longest(graph: TensorVariable) -> int:
    shape = graph.type.shape
    if not shape or None in shape:
        raise UnsupportedModelError("It has no rows.")
    return int(np.argmax(shape))


def _at_all_draws(graph: TensorVariable, batched: Mapping[Variable, Variable]) -> TensorVariable:
    """Return a variable at all draws; where no parameter matters, at one for all of them."""
    found = cast(TensorVariable, vectorize_graph(graph, batched))
    return found if found.type.ndim > graph.type.ndim else found[None]
