"""Where the nodes of units lie: modes of all units at once, by Newton's method, as one operation.

Each unit takes steps of its own from the mode that it has at some theta in the middle of the
posterior, with ``R R'`` the negative Hessian of its log-density h at the last place, until a step
is a tenth of a width: a single one is enough near that theta.  A step is shortened where the
density gains much less by it than its curvature says.

The operation has no gradient.  An integral does not depend on where its nodes are, but for their
error; so neither second derivatives of the rows' log-likelihoods nor the steps are part of the
graph whose gradient is taken.
"""

# ruff: noqa: ARG002, ARG001 (PyTensor determines the arguments of its methods and callbacks)

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import pairwise
from math import prod
from operator import or_
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import (
    Apply,
    Constant,
    Op,
    Variable,
    clone_replace,
    graph_inputs,
    vectorize_graph,
)
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import Shapes, Storage
from pymc_coresets.loops.direct_calls import direct_call
from pymc_coresets.loops.fused_loops import Kernel
from pymc_coresets.reading.folding import kept, numpy_function, rewritten_by, simplified
from pymc_coresets.reading.known import without_views
from pymc_coresets.reading.units.ragged import in_common_operations, without_filled
from pymc_coresets.reading.units.varying import varying_terms

#: Length of a step, in widths of the density, that is the last.
_SHORT = 0.1
#: Widths at most so many times those in the middle of the posterior are right enough, also at flat
#: places, and so are last steps of a width at most.
_WIDER = 1.5
#: Least part of a step that is tried.
_LEAST = 2.0**-14
#: Steps, those included that were too long.
_MOST = 60

type Array = np.ndarray | TensorVariable
type Function = Callable[..., Sequence[np.ndarray]]


class Root(NamedTuple):
    """Lower triangular matrices R of all units, by their entries: those of each row."""

    entries: Sequence[Sequence[TensorVariable]]

    @classmethod
    def of(cls, flat: Sequence[TensorVariable]) -> "Root":
        """Arrange entries that follow one another row by row."""
        starts = [0]
        while starts[-1] < len(flat):
            starts.append(starts[-1] + len(starts))
        return cls([flat[a:b] for a, b in pairwise(starts)])

    @property
    def flat(self) -> list[TensorVariable]:
        """The entries, row by row."""
        return [entry for row in self.entries for entry in row]

    @property
    def log_determinant(self) -> TensorVariable:
        """``log |R|``."""
        return ops.checked_tensor(sum(pt.log(row[-1]) for row in self.entries))

    def times(self, x: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Return ``R x`` for vectors by their entries."""
        return [
            ops.checked_tensor(sum(a * b for a, b in zip(row, x, strict=False)))
            for row in self.entries
        ]

    def times_above(self, x: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Return ``R' x`` for vectors by their entries."""
        n = len(self.entries)
        return [
            ops.checked_tensor(sum(self.entries[i][j] * x[i] for i in range(j, n)))
            for j in range(n)
        ]

    def solved(self, x: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Return ``R^-1 x`` for vectors by their entries."""
        found: list[TensorVariable] = []
        for row, value in zip(self.entries, x, strict=True):
            known = sum(a * b for a, b in zip(row, found, strict=False))
            found.append((value - known) / row[-1])
        return found

    def solved_above(self, x: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Return ``R^-T x`` for vectors by their entries."""
        n = len(self.entries)
        found: list[TensorVariable] = []  # the last entry first
        for i in reversed(range(n)):
            known = sum(self.entries[j][i] * found[n - 1 - j] for j in range(i + 1, n))
            found.append((x[i] - known) / self.entries[i][i])
        return found[::-1]


class _State(NamedTuple):
    """Where units are, each number an array (n_units,), and the step that they take next.

    `height` is `Surface.height` at `place`, `step` Newton's step there, `size` its squared length
    in widths, and `part` how much of it is tried.
    """

    place: Sequence[Any]
    height: Any
    step: Sequence[Any]
    size: Any
    root: Sequence[Any]  # flat
    part: Any

    @property
    def flat(self) -> list[Any]:
        return [*self.place, self.height, *self.step, self.size, *self.root, self.part]

    @classmethod
    def of(cls, flat: Sequence[object], q: int) -> "_State":
        place, height, step, size = flat[:q], flat[q], flat[q + 1 : 2 * q + 1], flat[2 * q + 1]
        return cls(place, height, step, size, flat[2 * q + 2 : -1], flat[-1])

    @classmethod
    def at_centres(
        cls, centre: Array, factor: Array, n_dims: int, of_all: Callable[[Any], Any]
    ) -> "_State":
        """Return the state before the first step, at which nothing has been evaluated.

        Parameters
        ----------
        centre : array or graph of shape (n_units, q)
        factor : array or graph of shape (n_units, q, q)
        n_dims : int
            The number of axes q.
        of_all : callable
            Returns a number of each unit at all draws.
        """
        rows = [[0.0] * i + [1 / factor[:, i, i]] for i in range(n_dims)]
        return cls(
            [of_all(centre[:, j]) for j in range(n_dims)],
            of_all(-np.inf),
            [of_all(0.0) for _ in range(n_dims)],
            of_all(np.inf),
            [of_all(entry) for row in rows for entry in row],
            of_all(1.0),
        )

    @property
    def going(self) -> Any:  # noqa: ANN401 - graphs, or arrays
        """Which units go on."""
        return (self.size > _SHORT**2) & (self.part > _LEAST)

    def is_doubtful(self, widths: Sequence[Any]) -> Any:  # noqa: ANN401 - see `going`
        """Whether the curvature, or the step, may lead too far, given usual widths."""
        diagonal = [row[-1] for row in Root.of(self.root).entries]
        wide = [r * width < 1 / _WIDER for r, width in zip(diagonal, widths, strict=True)]
        return reduce(or_, wide, self.size > 1.0)


@dataclass(frozen=True, eq=False)
class Surface:
    """The log-density of each unit, as a graph.

    Attributes
    ----------
    columns : sequence of TensorVariable of shape (n_units,)
        Inputs: the variables of the units.
    density : TensorVariable of shape (n_units,)
    sizes : TensorVariable
        Input: how many rows each unit has.
    axes : dict of Variable to int
        Other inputs that have an entry, along that axis, for each unit.
    of_members : dict of Variable to int
        Those that have one for each row.
    """

    columns: Sequence[TensorVariable]
    density: TensorVariable
    sizes: TensorVariable
    axes: Mapping[Variable, int]
    of_members: Mapping[Variable, int]

    @property
    def n_dims(self) -> int:
        """Number of variables of a unit, q."""
        return len(self.columns)

    def at(self, columns: Sequence[Variable]) -> TensorVariable:
        """Return the density where the variables are others, (..., n_units)."""
        given: dict[Variable, Variable] = dict(zip(self.columns, columns, strict=True))
        return ops.checked_tensor(vectorize_graph(self.density, given))

    @cached_property
    def height(self) -> TensorVariable:
        """The density but for terms that do not depend on the variables of the units."""
        return varying_terms(self.density, self.columns)

    @cached_property
    def derivatives(self) -> list[TensorVariable]:
        """The gradients by their entries, and the lower triangles of the Hessians, row by row."""
        slopes = ops.checked_tensors(pt.grad(self.height.sum(), list(self.columns)))
        flat = list(slopes)
        for j, slope in enumerate(slopes):
            own = list(self.columns[: j + 1])
            flat += ops.checked_tensors(pt.grad(slope.sum(), own, disconnected_inputs="ignore"))
        return ops.checked_tensors(simplified(without_filled(flat)))

    def _moved(
        self, graphs: Sequence[Variable], columns: Sequence[Variable]
    ) -> list[TensorVariable]:
        """Return graphs such as `derivatives` where the units are at other places, one of each."""
        given: dict[Variable, Variable] = dict(zip(self.columns, columns, strict=True))
        return ops.checked_tensors(clone_replace(graphs, given, rebuild_strict=False))

    def after_step(self, state: _State, widths: Sequence[TensorVariable]) -> _State:
        """Return the state after a step is tried; units that do not go on stay as they are."""
        trial = [z + state.part * d for z, d in zip(state.place, state.step, strict=True)]
        height, *derived = self._moved([self.height, *self.derivatives], trial)
        slope, hessian = derived[: self.n_dims], Root.of(derived[self.n_dims :])
        root = _cholesky(hessian, widths)
        finite = [pt.switch(pt.isnan(s) | pt.isinf(s), 0.0, s) for s in slope]
        white = root.solved(finite)
        size = ops.checked_tensor(sum(pt.square(s) for s in white))
        foreseen = (state.part - pt.square(state.part) / 2) * state.size
        first = pt.isinf(state.height)
        gain = height - state.height + 1e-10 * abs(height)
        better = (first | (gain >= 0.25 * foreseen)) & ~(pt.isnan(height) | pt.isinf(height))
        taken, kept = state.going & better, state.going & ~better
        new = [*trial, height, *root.solved_above(white), size, *root.flat]
        part = pt.switch(taken, pt.minimum(4.0 * state.part, 1.0), state.part)
        moved = [pt.switch(taken, a, b) for a, b in zip(new, state.flat[:-1], strict=True)]
        after = _State.of([*moved, pt.switch(kept, state.part / 4, part)], self.n_dims)
        # A unit without a density where it begins stays there.
        return after._replace(size=pt.switch(kept & first, 0.0, after.size))

    def end(self, state: _State, widths: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Return the modes by their entries, and the entries of the roots."""
        root, n_dims = Root.of(state.root), self.n_dims
        white = root.times_above(state.step)
        foreseen = ops.checked_tensor(sum(pt.square(s) for s in white)) / 2
        beyond = root.solved_above([s + pt.switch(s < 0, -1.0, 1.0) for s in white])
        trial = [z + d for z, d in zip(state.place, beyond, strict=True)]
        [there] = self._moved([self.height], trial)
        # A width beyond the end of the step, along each axis, a normal density has lost half a nat
        # again.  If much more is lost, the curvature is that of a flat place, or the step leads too
        # far: then widths are at most those in the middle of the posterior, and the step six.
        as_foreseen = there - state.height >= 0.25 * foreseen - 2.0 * n_dims
        is_normal = as_foreseen | ~state.is_doubtful(widths)
        narrow = Root(
            [
                [
                    *(pt.switch(is_normal, a, 0.0) for a in row[:-1]),
                    pt.switch(is_normal, row[-1], pt.maximum(row[-1], 1 / width)),
                ]
                for row, width in zip(root.entries, widths, strict=True)
            ]
        )
        less = [s / pt.sqrt(1 + pt.square(s / 6.0)) for s in narrow.solved(root.times(white))]
        last = [pt.switch(is_normal, s, short) for s, short in zip(white, less, strict=True)]
        steps = narrow.solved_above(last)
        return [*(z + d for z, d in zip(state.place, steps, strict=True)), *narrow.flat]

    @cached_property
    def placement(self) -> "Placement":
        """The operation that finds the modes."""
        graphs, others = self._written
        return Placement(graphs, [self._role(v) for v in others], self.n_dims)

    @property
    def others(self) -> list[Variable]:
        """What the operation takes besides centres and factors: see `_sources`."""
        return self._written[1]

    @cached_property
    def _written(self) -> tuple["_Graphs", list[Variable]]:
        n_dims = self.n_dims
        factor = pt.tensor("factor", dtype="float64", shape=(None, n_dims, n_dims))
        widths = [factor[:, j, j] for j in range(n_dims)]
        n_state = 2 * n_dims + 3 + n_dims * (n_dims + 1) // 2
        flat = [pt.vector(dtype="float64") for _ in range(n_state)]
        state = _State.of(flat, n_dims)
        with ops.compiling():
            step = self.after_step(state, widths).flat
            every = [*step, *self.end(state, widths)]
        data = [self.sizes, *self.axes, *self.of_members]
        others = _sources(every, [factor, *flat, *data])
        others += [v for v in graph_inputs(every) if v in data]
        given = [v.type() for v in others]  # of shared variables there are no inputs
        known: dict[Variable, Variable] = dict(zip(others, given, strict=True))
        every = ops.checked_tensors(clone_replace(every, known, rebuild_strict=False))
        n = len(step)
        graphs = _Graphs(factor, tuple(given), tuple(flat), tuple(every[:n]), tuple(every[n:]))
        return graphs, others

    def _role(self, variable: Variable) -> "_Role":
        """Return what an input has along which axis."""
        if variable in self.of_members:
            return _Role("rows", self.of_members[variable])
        if variable in self.axes or variable is self.sizes:
            return _Role("units", self.axes.get(variable, 0), is_size=variable is self.sizes)
        return _Role("draws")


def _sources(graphs: Sequence[Variable], of_units: Iterable[Variable]) -> list[Variable]:
    """Return what graphs of units take from elsewhere, computed as far as units do not matter.

    It is then computed once for all blocks of units, and for the log-densities at nodes.

    Parameters
    ----------
    graphs : sequence of Variable
    of_units : iterable of Variable
        Inputs that have an entry for each unit, or row.
    """
    own, fixed, found = set(of_units), set[Variable](), dict[Variable, None]()
    for node in ops.io_toposort([], graphs):
        inputs = [v for v in node.inputs if not isinstance(v, Constant) and v not in fixed]
        if not inputs:
            fixed.update(node.outputs)
        elif not own.isdisjoint(inputs):
            own.update(node.outputs)
            found |= dict.fromkeys(without_views(v) for v in inputs if v not in own)
    return [*found]


class _Role(NamedTuple):
    """What an input of the density has along an axis: units, or their rows, or neither."""

    kind: str
    axis: int = 0
    is_size: bool = False


def _cholesky(hessian: Root, widths: Sequence[TensorVariable]) -> Root:
    """Return the root of the negative Hessian, with usual widths where it is not definite."""
    entries: list[list[TensorVariable]] = []
    for i, width in enumerate(widths):
        row: list[TensorVariable] = []
        for j in range(i):
            known = sum(a * b for a, b in zip(row, entries[j][:j], strict=True))
            row.append((-hessian.entries[i][j] - known) / entries[j][j])
        left = -hessian.entries[i][i] - sum(a * a for a in row)
        usual = 1 / pt.square(width)
        usable = (left > 1e-6 * usual) & (left < np.inf)
        row.append(pt.sqrt(pt.switch(usable, left, usual)))
        entries.append([pt.switch(pt.isnan(a), 0.0, a) for a in row[:-1]] + row[-1:])
    return Root(entries)


class _Graphs(NamedTuple):
    """The graphs of one step, and of what follows the last one."""

    factor: TensorVariable
    given: tuple[Variable, ...]
    state: tuple[TensorVariable, ...]
    step: tuple[TensorVariable, ...]
    end: tuple[TensorVariable, ...]

    @property
    def inputs(self) -> list[Variable]:
        """What the steps have in common, and then the state."""
        return [self.factor, *self.given, *self.state]

    def at_draws(self, batched: Sequence[bool]) -> "_Graphs":
        """Return the same for several values of some of what is given, along a first axis."""
        new: dict[Variable, Variable] = {
            v: pt.tensor(dtype=v.type.dtype, shape=(None, *v.type.shape))
            for v, more in zip(self.given, batched, strict=True)
            if more
        }
        new |= {v: pt.matrix(dtype="float64") for v in self.state}
        with ops.compiling():
            found = ops.checked_tensors(vectorize_graph([*self.step, *self.end], new))
        given = tuple(new.get(v, v) for v in self.given)
        state = tuple(ops.checked_tensor(new[v]) for v in self.state)
        n = len(self.step)
        return _Graphs(self.factor, given, state, tuple(found[:n]), tuple(found[n:]))


class Placement(Op):
    """Modes of units, and roots of their curvatures there: see `Surface.placement`.

    Its inputs are the centres (n_units, q) where steps begin, the factors (n_units, q, q) whose
    diagonals are usual widths, and the inputs of the density but its variables.  Its outputs are
    arrays (n_units,): the entries of the modes, and those of the roots, row by row.  With several
    values of the shared variables, all outputs have these along a first axis.
    """

    def __init__(
        self, graphs: _Graphs, roles: Sequence[_Role], n_dims: int, batched: Sequence[bool] = ()
    ) -> None:
        self.graphs, self.roles, self.n_dims = graphs, tuple(roles), n_dims
        self.batched = tuple(batched) or (False,) * len(roles)
        self._known: dict[tuple[bool, ...], Placement] = {}
        #: Functions of the graphs, by the mode of compilation.
        self.compiled: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_known": {}, "compiled": {}}

    @property
    def at_draws(self) -> bool:
        """Whether there are several values of shared variables."""
        return any(self.batched)

    def make_node(self, *inputs: Variable) -> Apply:
        """See `Op`."""
        shape = (None, None) if self.at_draws else (None,)
        outputs = [pt.tensor(dtype="float64", shape=shape) for _ in self.graphs.end]
        return Apply(self, [pt.as_tensor(v) for v in inputs], outputs)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Declare that there is no gradient."""
        return [[False] * len(node.outputs) for _ in node.inputs]

    def infer_shape(self, node: Apply, shapes: Shapes) -> list[tuple[Variable, ...]]:
        """See `Op`: shapes are known without the values."""
        n_units = shapes[0][0]
        if not self.at_draws:
            return [(n_units,)] * len(node.outputs)
        first = self.batched.index(True)
        return [(shapes[2 + first][0], n_units)] * len(node.outputs)

    def of_draws(self, batched: tuple[bool, ...]) -> "Placement":
        """Return the same for several values of some inputs of the density, along a first axis."""
        if not any(batched):
            return self
        pairs = zip(batched, self.roles, strict=True)
        if self.at_draws or any(more and role.kind != "draws" for more, role in pairs):
            raise NotImplementedError("Only the shared variables may have several values.")
        if batched not in self._known:
            graphs = self.graphs.at_draws(batched)
            self._known[batched] = Placement(graphs, self.roles, self.n_dims, batched)
        return self._known[batched]

    def perform(self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Storage) -> None:
        """See `Op`."""
        if "plain" not in self.compiled:
            self.compiled["plain"] = tuple(
                numpy_function(self.graphs.inputs, graph)
                for graph in (self.graphs.step, self.graphs.end)
            )
        step, end = (_with_given(f) for f in self.compiled["plain"])
        for storage, value in zip(output_storage, self.found(inputs, step, end), strict=True):
            storage[0] = value

    def found(
        self,
        inputs: Sequence[np.ndarray],
        step: Callable[..., Function],
        end: Callable[..., Function],
    ) -> list[np.ndarray]:
        """Take steps until all units have arrived.

        Parameters
        ----------
        inputs : sequence of ndarray
            See above.
        step, end : callable
            They take the factors and the inputs of the density, and return functions of the state.
        """
        centre, *given = inputs
        n_draws = [len(given[1 + self.batched.index(True)])] if self.at_draws else []
        shape = (*n_draws, len(centre))

        def of_all(values: Any) -> np.ndarray:  # noqa: ANN401
            return np.array(np.broadcast_to(values, shape), dtype=np.float64)

        start = _State.at_centres(centre, given[0], self.n_dims, of_all)
        state = self._stepped(start, given, step)
        found = [z + d for z, d in zip(state.place, state.step, strict=True)] + [*state.root]
        if (doubtful := state.is_doubtful(self._widths(given))).any():
            which = _block_of(doubtful)
            own = self._part(given, which)
            few = _State.of([a[which] for a in state.flat], self.n_dims)
            _put(end(*own)(*few.flat), found, which)
        return found

    def _widths(self, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [given[0][:, j, j] for j in range(self.n_dims)]

    def _stepped(
        self,
        state: _State,
        given: Sequence[np.ndarray],
        step: Callable[..., Function],
        most: int = _MOST,
    ) -> _State:
        at_all, flat = step(*given), [np.asarray(a) for a in state.flat]
        for number in range(most):
            going = _State.of(flat, self.n_dims).going
            if not going.any():
                break
            which = _block_of(going)
            if prod(index.size for index in which) > 0.5 * going.size:
                flat = [np.asarray(a) for a in at_all(*flat)]
                continue
            own = self._part(given, which)
            few = _State.of([a[which] for a in flat], self.n_dims)
            _put(self._stepped(few, own, step, most - number).flat, flat, which)
            break
        return _State.of(flat, self.n_dims)

    def _part(self, given: Sequence[np.ndarray], which: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return what is given for some draws and units: see `_block_of`."""
        (factor, *others), draws, units = given, which[0].ravel(), which[-1].ravel()
        entries = {"units": units}
        for sizes, role in zip(others, self.roles, strict=True):
            if role.is_size:
                lengths = sizes[units]  # a few of many units, again and again
                ends, own_ends = np.cumsum(sizes)[units], np.cumsum(lengths)
                entries["rows"] = np.arange(lengths.sum()) + np.repeat(ends - own_ends, lengths)
        found = [factor[units]]
        for value, role, more in zip(others, self.roles, self.batched, strict=True):
            if role.kind in entries:
                found.append(np.take(value, entries[role.kind], axis=role.axis))
            else:
                found.append(value[draws] if more else value)
        return found


def _put(
    parts: Sequence[np.ndarray], arrays: Sequence[np.ndarray], which: tuple[np.ndarray, ...]
) -> None:
    """Put numbers of some draws and units, see `_block_of`, where they belong."""
    for whole, part in zip(arrays, parts, strict=True):
        whole[which] = part


def _block_of(wanted: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the indices of the least block of all draws and units that are wanted."""
    axes = range(wanted.ndim)
    others = (tuple(b for b in axes if b != a) for a in axes)
    return np.ix_(*(np.flatnonzero(wanted.any(axis=axis)) for axis in others))


def _with_given(function: Callable[..., Any]) -> Callable[..., Function]:
    return lambda *given: lambda *state: function(*given, *state)


@direct_call.register
def _(op: Placement, node: Apply) -> Function:
    """Return a function of the inputs of the operation, whose steps are compiled once."""
    if "loops" not in op.compiled:
        graphs = op.graphs
        given = graphs.inputs[: -len(graphs.state)]
        op.compiled["loops"] = [
            Kernel(given, graphs.state, outputs, {}).program
            for outputs in (graphs.step, graphs.end)
        ]
    step, end = op.compiled["loops"]

    def placed(*inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(op.found(inputs, step.given, end.given))

    return placed


@ops.vectorize_node.register(Placement)
def _with_draws(op: Placement, node: Apply, *inputs: Variable) -> Apply:
    more = [new.type.ndim - old.type.ndim for new, old in zip(inputs, node.inputs, strict=True)]
    if any(more[:2]) or max(more) > 1:
        raise NotImplementedError("Only the shared variables may have several values.")
    return op.of_draws(tuple(n > 0 for n in more[2:])).make_node(*inputs)


@lru_cache(maxsize=2)  # it takes seconds, and a build needs it for several models of one graph
def with_loops(graph: TensorVariable) -> TensorVariable:
    """Write the operation as a loop of PyTensor's, and those of `ragged` by common ones.

    Every backend has these.

    Parameters
    ----------
    graph : TensorVariable
    """

    def write(node: Apply, inputs: Sequence[Variable]) -> Sequence[Variable]:
        is_placed = isinstance(node.op, Placement)
        return _as_loop(node.op, inputs) if is_placed else kept(node, inputs)

    with ops.compiling():
        found = ops.checked_tensor(rewritten_by(write, [graph])[0])
        return in_common_operations([found])[0]


def _as_loop(op: Placement, inputs: Sequence[Variable]) -> list[Variable]:
    centre, factor, *given = ops.checked_tensors(inputs)
    graphs, n_dims = op.graphs, op.n_dims
    if op.at_draws:
        raise NotImplementedError("Models have one value of each variable.")
    steps, end = in_common_operations(graphs.step), in_common_operations(graphs.end)

    def of_all(value: float | TensorVariable) -> TensorVariable:
        return ops.checked_tensor(pt.zeros(centre.shape[:1], dtype="float64") + value)

    start = _State.at_centres(centre, factor, n_dims, of_all)

    def step(*values: Variable) -> Any:  # noqa: ANN401
        new = dict(zip([*graphs.state, graphs.factor, *graphs.given], values, strict=True))
        after = clone_replace(steps, new, rebuild_strict=False)
        going = _State.of(after, n_dims).going
        return after, ops.until(~going.any())

    every = ops.scan(
        step, outputs_info=start.flat, non_sequences=[factor, *given], n_steps=_MOST,
        strict=True, return_updates=False,
    )  # fmt: skip
    last = [ops.checked_tensor(values)[-1] for values in every]
    new = dict(zip(graphs.inputs, [factor, *given, *last], strict=True))
    return [ops.disconnected(v) for v in clone_replace(end, new, rebuild_strict=False)]
