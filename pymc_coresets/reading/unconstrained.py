"""The unconstrained space that samplers and optimisers work in, and the way back from it."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Variable, ancestors, clone_replace, vectorize_graph
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pymc_api import (
    DictToArrayBijection,
    RaveledVars,
    make_initial_point_expression,
)
from pymc_coresets.compat.pytensor_api import (
    RandomType,
    XTensorVariable,
    as_xtensor,
    checked_tensor,
    checked_tensors,
    compiling,
)
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.numerics import rows_at_once
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import numpy_function, widened, written_function
from pymc_coresets.reading.graphs import as_plain_tensor, unconstrained_value


class Unconstrained:
    """A model's free variables as one real vector of length D.

    Parameters
    ----------
    model : pm.Model
        All its free variables must be continuous if a gradient is needed.
    point : mapping of str to ndarray, optional
        Initial values of its value variables, if they are known, and perhaps of others.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> with pm.Model() as model:
    ...     sigma = pm.HalfNormal("sigma")
    >>> space = Unconstrained(model)
    >>> space.constrain(np.zeros((2, 1))).values["sigma"]
    array([1., 1.])
    """

    def __init__(self, model: pm.Model, *, point: Mapping[str, np.ndarray] | None = None) -> None:
        self.model = model
        names = [v.name for v in model.value_vars]
        if point is None:
            point = _initial_point(model)
        self._start = DictToArrayBijection.map({name: np.asarray(point[name]) for name in names})

    @property
    def start(self) -> np.ndarray:
        """The model's initial point, of shape (D,); 0 for entries that are not finite.

        PyMC starts ordered variables with equal entries, whose distances have logarithm -inf.
        """
        x = np.asarray(self._start.data, dtype=float)
        return np.where(np.isfinite(x), x, 0.0)

    @property
    def initial_point(self) -> dict[str, np.ndarray]:
        """The model's initial values, of each value variable; they may not be finite."""
        values: dict[str, np.ndarray] = DictToArrayBijection.rmap(self._start)
        return values

    @property
    def continuous(self) -> np.ndarray:
        """Whether each coordinate belongs to a continuous variable, of shape (D,)."""
        kinds = [(dtype.kind == "f", size) for _, _, size, dtype in self._start.point_map_info]
        return np.repeat([k for k, _ in kinds], [size for _, size in kinds])

    @property
    def n_dims(self) -> int:
        """Number of dimensions D."""
        return self.start.size

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Where each free variable stands in the vector, in the shape of its value."""
        names = {value.name: rv.name for value, rv in self.model.values_to_rvs.items()}
        numbers = self.point(np.arange(self.n_dims, dtype=float))
        return {names[name]: entry.astype(np.int64) for name, entry in numbers.items()}

    def point(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Return the value of each value variable at `x`, of shape (D,)."""
        values: dict[str, np.ndarray] = DictToArrayBijection.rmap(self.raveled(x))
        return values

    @property
    def vector(self) -> TensorVariable:
        """A graph's input for a point, whose length (D,) is known."""
        return pt.tensor("x", dtype="float64", shape=(self.n_dims,))

    def parts(self, x: TensorVariable) -> dict[Variable, Variable]:
        """Return the graph of each value variable as a function of that of a `vector` x, (D,).

        Real ones stay float64, whatever they are in the model.
        """
        parts: dict[Variable, Variable] = {}
        start = 0
        pairs = zip(self.model.value_vars, self._start.point_map_info, strict=True)
        for variable, (_, shape, size, dtype) in pairs:
            # The gradient of what changes a shape asks for the shapes of all that follows: a third
            # of the time that PyTensor's rewrites take.
            part = x[start : start + size] if shape else x[start]
            part = part.reshape(shape) if len(shape) > 1 else part
            part = part if dtype.kind == "f" else part.astype(dtype)
            labelled = isinstance(variable, XTensorVariable)
            parts[variable] = as_xtensor(part, dims=variable.type.dims) if labelled else part
            start += size
        return parts

    def raveled(self, x: np.ndarray) -> RaveledVars:
        """Return the vector `x`, of shape (D,), in the form that PyMC's step methods take."""
        return self._start._replace(data=x.astype(self._start.data.dtype, copy=False))

    def constrain(self, x: np.ndarray) -> Draws:
        """Map points (n_draws, D) to draws of the free variables on their own scale."""
        names = [rv.name for rv in self.model.free_RVs]
        return Draws(dict(zip(names, self.backward(x), strict=True)))

    def free(self, draws: Draws) -> np.ndarray:
        """Map draws of the free variables to points (n_draws, D): the inverse of `constrain`."""
        values = (draws.values[rv.name] for rv in self.model.free_RVs)
        found = self.forward(*values)
        return np.concatenate([np.reshape(v, (draws.n_draws, -1)) for v in found], axis=1)

    @cached_property
    def forward(self) -> Callable[..., Sequence[np.ndarray]]:
        """Maps draws of each free variable to those of each value variable."""
        free, inputs = dict[Variable, Variable](), list[TensorVariable]()
        for rv in self.model.free_RVs:
            tensor = pt.tensor(dtype=rv.type.dtype, shape=rv.type.shape)
            labelled = isinstance(rv, XTensorVariable)
            free[rv] = as_xtensor(tensor, dims=rv.type.dims) if labelled else tensor
            inputs.append(tensor)
        transformed = []
        for value in self.model.value_vars:
            rv = self.model.values_to_rvs[value]
            transformed.append(unconstrained_value(self.model, rv, free[rv]))
        graphs = clone_replace(transformed, free)
        wide: dict[Variable, Variable] = {
            v: v.type.clone(dtype="float64")() for v in inputs if _is_single(v)
        }
        inputs = [checked_tensor(wide.get(v, v)) for v in inputs]
        tensors = list(map(as_plain_tensor, widened(graphs, wide)))
        return of_points(inputs, tensors, written_function)

    @cached_property
    def backward(self) -> Callable[..., Sequence[np.ndarray]]:
        """Maps points (n_draws, D) to draws of each free variable."""
        x = self.vector
        graphs = list(self.constrained(x).values())
        return of_points([x], graphs, written_function)

    def constrained(self, x: TensorVariable) -> dict[str, TensorVariable]:
        """Return the graph of each free variable as a function of that of a vector `x`, (D,)."""
        free = self.model.free_RVs
        by_values = [
            pt.as_tensor(v, allow_xtensor_conversion=True)
            for v in self.model.replace_rvs_by_values(free)
        ]
        return dict(zip((rv.name for rv in free), self.at(x, by_values), strict=True))

    def at(self, x: TensorVariable, graphs: Sequence[Variable]) -> list[TensorVariable]:
        """Return graphs of the model's value variables as functions of a vector `x`, (D,)."""
        return [as_plain_tensor(graph) for graph in widened(graphs, self.parts(x))]


def _initial_point(model: pm.Model) -> Mapping[str, np.ndarray]:
    """Return PyMC's initial values, as `Model.initial_point` compiles them if they are random.

    Its functions need a library of PyTensor's, for which a C compiler takes seconds once.

    Raises
    ------
    UnsupportedModelError
        If one is computed from another free variable.
    """
    for rv, value in model.rvs_to_initial_values.items():
        inputs = set(ancestors([value]) if isinstance(value, Variable) else ())
        for other in inputs.intersection(model.free_RVs):
            raise UnsupportedModelError(
                f"The initial value of {rv.name!r} is computed from {other.name!r}, another free "
                "variable, which PyMC refuses: give it a number, such as initval=0.0, or leave "
                "initval out."
            )
    with compiling():
        graphs = make_initial_point_expression(
            free_rvs=model.free_RVs,
            rvs_to_transforms=model.rvs_to_transforms,
            initval_strategies=model.rvs_to_initial_values,
            return_transformed=True,
        )
        if any(isinstance(v.type, RandomType) for v in ancestors(graphs)):
            found: Mapping[str, np.ndarray] = model.initial_point(random_seed=0)
            return found
    values = written_function([], graphs)()
    names = (model.rvs_to_values[rv].name for rv in model.free_RVs)
    return dict(zip(names, values, strict=True))


def _is_single(variable: Variable) -> bool:
    return bool(variable.type.dtype == "float32")


def of_points(
    inputs: Sequence[TensorVariable],
    graphs: Sequence[TensorVariable],
    make: Callable[..., Callable[..., list[np.ndarray]]] = numpy_function,
    *,
    slope_of: TensorVariable | None = None,
) -> Callable[..., list[np.ndarray]]:
    """Return a function of many points at once, from the graphs of one point.

    Parameters
    ----------
    inputs : sequence of TensorVariable
        The function takes arrays of one axis more in their place, the first one, and evaluates at
        most 2^20 entries of the first array at once.
    graphs : sequence of TensorVariable
        The results have one axis more, the first one.
    make : callable
        Makes a function of the inputs and the graphs, such as `numpy_function`.
    slope_of : TensorVariable of shape (), optional
        A graph whose gradients by the first input are the last result.

    Examples
    --------
    >>> x = pt.vector("x")
    >>> of_points([x], [x.sum()], slope_of=(x**2).sum())(np.array([[1.0, 2.0], [3.0, 4.0]]))
    [array([3., 7.]), array([[2., 4.],
           [6., 8.]])]
    """
    points: dict[Variable, TensorVariable] = {
        v: pt.tensor(dtype=v.type.dtype, shape=(None, *v.type.shape)) for v in inputs
    }
    sloping = [] if slope_of is None else [slope_of]
    with compiling():
        several = checked_tensors(vectorize_graph([*graphs, *sloping], points))
        slopes = [  # a gradient that is vectorised itself has a fifth more operations
            checked_tensor(pt.grad(v.sum(), points[inputs[0]], disconnected_inputs="ignore"))
            for v in several[len(graphs) :]
        ]
    n_points = points[inputs[0]].shape[0]
    whole = [
        graph if graph.type.ndim > one.type.ndim else pt.repeat(graph[None], n_points, axis=0)
        for one, graph in zip(graphs, several, strict=False)
    ]
    function = make(list(points.values()), whole + slopes)

    def at(*values: np.ndarray) -> list[np.ndarray]:
        step = rows_at_once(4 * values[0][:1].size)  # intermediate results are larger
        starts = range(0, max(len(values[0]), 1), step)
        parts = [function(*(v[i : i + step] for v in values)) for i in starts]
        joined = (np.concatenate(part) for part in zip(*parts, strict=True))
        return list(joined) if len(parts) > 1 else parts[0]

    return at
