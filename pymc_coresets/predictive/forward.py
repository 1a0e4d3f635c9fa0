"""Functions of a model's free variables: random values of others, or their means, also by row."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, cast

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph import (
    Apply,
    FunctionGraph,
    Variable,
    ancestors,
    graph_inputs,
    node_rewriter,
    vectorize_graph,
)
from pytensor.tensor import TensorType, TensorVariable

from pymc_coresets.compat import pymc_api
from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import (
    CheckAndRaise,
    NoneTypeT,
    RandomType,
    SharedVariable,
    dfs_rewriter,
)
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, UnsupportedModelError
from pymc_coresets.potentials.fused_loops import Kernel
from pymc_coresets.predictive.filled_models import BLOCK_ROWS, FilledModel
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.forms.joined_columns import join_columns
from pymc_coresets.reading.graphs import given_parameters, parameter_inputs
from pymc_coresets.reading.pushdown import Pushdown
from pymc_coresets.rows.memory import InMemoryRows, in_threads
from pymc_coresets.rows.passes import RowBlocks
from pymc_coresets.rows.values import Rows

_lock = Lock()

_BLOCK_ENTRIES = 2**17  # of float64: a block and its temporaries stay in a core's own cache


@node_rewriter([ops.BernoulliRV])
def _compare_uniform_numbers(_: FunctionGraph, node: Apply) -> list[Variable]:
    """Draw Bernoulli variables from uniform ones: SciPy takes ten times as long."""
    rng, size = node.inputs[:2]
    p = pt.as_tensor(node.inputs[2])
    valid = pt.all((p >= 0) & (p <= 1))
    checked = ops.CheckAndRaise(ValueError, "A Bernoulli probability is not between 0 and 1.")(
        p, valid
    )
    shape = pt.shape(p) if isinstance(size.type, NoneTypeT) else size
    next_rng, uniform = pt.random.uniform(size=shape, rng=rng, return_next_rng=True)
    return [next_rng, pt.cast(pt.lt(uniform, checked), node.op.dtype)]


_WITH_NUMPY = PLAIN_MODE.register((dfs_rewriter(_compare_uniform_numbers), 0.5))


@dataclass(frozen=True, eq=False)
class Forward:
    """Some variables of a model as a function of its free variables.

    It computes them for the rows that the model's data containers hold when it is called.

    Parameters
    ----------
    names : tuple of str
        Of the variables that it returns.
    inputs : tuple of str
        Of the free variables.
    function : callable
        From PyTensor.
    rngs : tuple of SharedVariable
        Random number generators of the function.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1e-9, observed=np.zeros(2))
    >>> forward = Forward.of(model, forward_graphs(model, ["y"], means=False))
    >>> forward.reseed(1)
    >>> forward({"mu": np.array(3.0)})["y"].round(3)
    array([3., 3.])
    """

    names: tuple[str, ...]
    inputs: tuple[str, ...]
    function: Any
    rngs: tuple[SharedVariable, ...]
    _free: list["Forward"] = field(default_factory=list, init=False)

    @classmethod
    def of(
        cls, model: pm.Model, graphs: Mapping[str, Variable], drawn: Collection[str] = ()
    ) -> "Forward":
        """Make the function of graphs from `forward_graphs`; free variables may be drawn, too.

        NumPy evaluates it, which is nearly as fast for many rows as what Numba would compile, and
        lets other threads work at the same time.
        """
        free = [rv for rv in model.free_RVs if rv.name not in drawn]
        function: Any = pymc_api.compile_random(free, list(graphs.values()), mode=_WITH_NUMPY)
        rngs = tuple(v for v in function.get_shared() if isinstance(v.type, RandomType))
        return cls(tuple(graphs), tuple(rv.name for rv in free), function, rngs)

    def separate(self) -> "Forward":
        """Return the same function, with memory and random numbers of its own."""
        others = {v: pytensor.shared(v.get_value(), name=v.name) for v in self.rngs}
        function = self.function.copy(swap=others)
        return replace(self, function=function, rngs=tuple(others.values()))

    @contextmanager
    def one(self) -> Iterator["Forward"]:
        """Lend a copy that no other thread has, made when it is needed.

        Examples
        --------
        >>> with pm.Model() as model:
        ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(2))
        >>> forward = Forward.of(model, forward_graphs(model, ["y"], means=False))
        >>> with forward.one() as one, forward.one() as other:
        ...     one is other
        False
        """
        with _lock:
            found = self._free.pop() if self._free else self.separate()
        try:
            yield found
        finally:
            self._free.append(found)

    def reseed(self, *key: int) -> None:
        """Begin the random numbers that belong to some whole numbers."""
        pymc_api.reseed_rngs(self.rngs, key)

    def __call__(self, point: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the values of the variables at one draw of all free variables."""
        values: Sequence[np.ndarray] = self.function(*(point[name] for name in self.inputs))
        return dict(zip(self.names, values, strict=True))


def predicted_names(model: pm.Model) -> list[str]:
    """Return what PyMC predicts by default: what was observed, and what is computed from it.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(2))
    >>> predicted_names(model)
    ['y']
    """
    found = [*model.observed_RVs, *pymc_api.observed_dependent_deterministics(model)]
    return [variable.name for variable in found]


def forward_graphs(model: pm.Model, names: Sequence[str], *, means: bool) -> dict[str, Variable]:
    """Return the graphs of some variables, or of their means, given the free variables.

    Parameters
    ----------
    model : pm.Model
    names : sequence of str
        Observed variables, deterministics, or free variables.
    means : bool
        Replace observed variables by their means, where PyMC knows these.

    Raises
    ------
    InvalidOptionError
        If there are no names, a name is none of the model's random variables and deterministics,
        or what it names has no mean.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", p=pm.Beta("p", 1, 1), observed=np.zeros(2))
    >>> Forward.of(model, forward_graphs(model, ["y"], means=True))({"p": np.array(0.25)})
    {'y': array([0.25, 0.25])}
    """
    if not names:
        raise InvalidOptionError(
            "The model has no observed variables to predict: name deterministics with var_names."
        )
    known = {v.name for v in [*model.basic_RVs, *model.deterministics]}
    for name in names:
        if name not in known:
            raise InvalidOptionError(
                f"var_names: the model has no random variable or deterministic {name!r}; it has "
                f"{sorted(known)!r}."
            )
    observed = {rv.name for rv in model.observed_RVs}
    return {
        name: pt.as_tensor(
            _mean(model[name]) if means and name in observed else model[name],
            allow_xtensor_conversion=True,
        )
        for name in names
    }


def is_random(model: pm.Model, graph: Variable) -> bool:
    """Whether a graph has other values each time, at the same values of the free variables.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(2))
    >>> [is_random(model, model[name]) for name in ("mu", "y")]
    [False, True]
    """
    blockers = set(model.free_RVs)
    found = ancestors([graph], blockers=blockers)
    return graph not in blockers and any(isinstance(v.type, RandomType) for v in found)


def _mean(variable: Variable) -> Variable:
    try:
        mean: Variable = pymc_api.mean_of(variable)
    except NotImplementedError:
        return variable  # the draws are averaged, which the result says
    except pymc_api.UndefinedMomentException as error:
        raise InvalidOptionError(
            f"{variable.name!r} has no mean ({error}): use kind='draws', or give the names of "
            "deterministics as var_names."
        ) from error
    return mean


# -- row by row ------------------------------------------------------------------------------------


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
