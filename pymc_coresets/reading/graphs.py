"""Express a model's log-likelihoods and deterministics by plain inputs and constant data."""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import (
    Constant,
    FunctionGraph,
    Variable,
    ancestors,
    clone_replace,
    graph_inputs,
)
from pytensor.tensor import TensorType, TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pymc_api import (
    SimulatorRV,
    Transform,
    replace_rvs_by_values,
    resolve_shapes,
    transformed_conditional_logp,
)
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.reading.folding import (
    values_of,
    widened,
    with_constant_shapes,
    with_joined_scalars,
)
from pymc_coresets.reading.known import KnownValues

_LOWER_LABELLED = ops.HeldRewrites.of(["lower_xtensor"])


def parameter_inputs(
    model: pm.Model, unconstrained: Collection[str] = ()
) -> dict[str, TensorVariable]:
    """Create an input of known shape for each free variable, on its constrained scale but for some.

    Those of real variables are float64, whatever PyTensor's ``floatX`` was for the model: sums over
    rows and differences of gradients need the digits.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     beta = pm.Normal("beta", shape=3)
    >>> parameter_inputs(model)["beta"].type
    TensorType(float64, shape=(3,))
    """
    free = model.free_RVs
    graphs = [unconstrained_value(model, rv) if rv.name in unconstrained else rv for rv in free]
    return {
        rv.name: TensorType(_in_double(rv), shape=shape)(name=rv.name)
        for rv, shape in zip(free, shapes_of(graphs), strict=True)
    }


def unconstrained_value(model: pm.Model, rv: Variable, *value: Variable) -> Variable:
    """Return a free variable on its unconstrained scale; or a value of it, which may be given.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     sigma = pm.HalfNormal("sigma")
    >>> float(unconstrained_value(model, sigma, pt.constant(np.e)).eval())
    1.0
    """
    transform, [own, *_] = model.rvs_to_transforms[rv], [*value, rv]
    return own if transform is None else transform.forward(own, *rv.owner.inputs)


def shapes_of(variables: Sequence[Variable]) -> list[tuple[int, ...]]:
    """Return shapes of a model's variables, whatever their values are: none is drawn.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model(coords={"group": range(3)}):
    ...     effect = pm.Normal("effect", dims="group")
    >>> shapes_of([effect, 2 * effect[:2]])
    [(3,), (2,)]
    """
    unknown = [v for v in variables if None in v.type.shape]
    plain = [as_plain_tensor(v).shape for v in unknown]
    found = dict(zip(unknown, values_of(resolve_shapes(plain)) if plain else [], strict=True))
    return [tuple(int(n) for n in found.get(v, v.type.shape)) for v in variables]


def _in_double(variable: Variable) -> str:
    dtype: str = variable.type.dtype
    return "float64" if dtype.startswith("float") else dtype


@dataclass(frozen=True, eq=False)
class PlainModel:
    """A model's terms and deterministics as graphs of plain inputs and constant data.

    Attributes
    ----------
    model : pm.Model
    parameters : mapping of str to TensorVariable
        The input for each free variable, see `parameter_inputs`.
    graphs : mapping of str to TensorVariable
        Of each term and of each deterministic, by name.  Equal parts are shared.  An observed
        variable is its elementwise log-density, in nats.
    """

    model: pm.Model
    parameters: Mapping[str, TensorVariable]
    graphs: Mapping[str, TensorVariable]

    @cached_property
    def known(self) -> KnownValues:
        """Distinguishes parameters from data."""
        return KnownValues(self.parameters.values())


def plain_model(
    model: pm.Model,
    names: Sequence[str],
    row_inputs: Mapping[str, TensorVariable] = MappingProxyType({}),
    unconstrained: Collection[str] = (),
) -> PlainModel:
    """Express the terms' log-likelihoods and the deterministics by plain inputs and constant data.

    Parameters
    ----------
    model : pm.Model
        Left as it is.
    names : sequence of str
        The terms: observed variables and potentials, or free variables, which are their log-prior.
    row_inputs : mapping of str to TensorVariable, optional
        The input that stands for each data container whose rows are to be replaced by others.
    unconstrained : collection of str
        Free variables whose inputs are on their unconstrained scale; their log-prior has the
        logarithm of the Jacobian then.

    Raises
    ------
    UnsupportedModelError
        If a term has minibatches or random draws.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, 1.0, observed=np.array([0.0, 1.0]))
    >>> plain = plain_model(model, ["y"])
    >>> plain.graphs["y"].eval({plain.parameters["mu"]: 0.0}).round(3)
    array([-0.919, -1.419])
    """
    parameters = parameter_inputs(model, unconstrained)
    free, inputs = _placeholders(model, parameters, unconstrained)
    values = {rv: free.get(rv, model.rvs_to_values[rv]) for rv in model.basic_RVs}
    transforms = dict.fromkeys(model.basic_RVs) | {
        rv: model.rvs_to_transforms[rv] for rv in model.free_RVs if rv.name in unconstrained
    }
    terms = [model[name] for name in names]
    observed = [v for v in terms if v in values]
    _refuse_simulated(observed)
    others = [v for v in terms if v not in values] + list(model.deterministics)
    try:
        logps = transformed_conditional_logp(
            observed,
            rvs_to_values=values,
            rvs_to_transforms=transforms,
            jacobian=True,
        )
    except (ValueError, NotImplementedError) as error:
        raise UnsupportedModelError(
            f"PyMC derives no log-density of {[v.name for v in observed]!r}: {error} Where it "
            "contains random draws, register their distribution under a name of its own."
        ) from error
    replaced = (
        replace_rvs_by_values(
            others, rvs_to_values=values, rvs_to_transforms=transforms if unconstrained else None
        )
        if others
        else []
    )
    plain = [as_plain_tensor(g) for g in [*logps, *replaced]]
    graphs = _with_constant_data(plain, inputs, row_inputs)
    named = dict(zip([v.name for v in (*observed, *others)], graphs, strict=True))
    _refuse_randomness({name: named[name] for name in names})
    return PlainModel(model, parameters, named)


def _placeholders(
    model: pm.Model, parameters: Mapping[str, TensorVariable], unconstrained: Collection[str] = ()
) -> tuple[dict[Variable, Variable], dict[Variable, Variable]]:
    """Return what takes the place of each free variable, and the parameter that follows it there.

    Graphs built on a variable may have less precise types than the parameter's, so they are
    rebuilt.
    """
    like = {
        rv: model.rvs_to_values[rv] if rv.name in unconstrained else rv for rv in model.free_RVs
    }
    placeholders = {rv: TensorType(v.type.dtype, shape=v.type.shape)() for rv, v in like.items()}
    free = {rv: _like(like[rv], placeholder) for rv, placeholder in placeholders.items()}
    return free, {placeholder: parameters[rv.name] for rv, placeholder in placeholders.items()}


def _like(rv: Variable, parameter: TensorVariable) -> Variable:
    return (
        ops.as_xtensor(parameter, dims=rv.type.dims)
        if isinstance(rv, ops.XTensorVariable)
        else parameter
    )


def as_plain_tensor(graph: Variable) -> TensorVariable:
    """Return the graph without labelled dimensions."""
    tensor = graph.values if isinstance(graph, ops.XTensorVariable) else graph
    plain = ops.checked_tensor(_LOWER_LABELLED.rewritten([tensor])[0])
    # The rewrite keeps constants with dims, and casts them.
    casts = (v for v in ancestors([plain]) if isinstance(ops.op_of(v), ops.TypeCastingOp))
    known: dict[Variable, Variable] = {
        v: pt.constant(c.data) for v in casts if isinstance(c := v.owner.inputs[0], Constant)
    }
    return ops.checked_tensor(clone_replace([plain], known)[0]) if known else plain


def with_plain_ways(transform: Transform, dims: Sequence[str]) -> Transform:
    """Return a transform of a variable with labelled dimensions that takes part in all of PyMC.

    Its way back has a gradient: PyTensor has those of plain tensors alone, and PyMC writes
    log-densities by these, but not the potentials beside them: it would give the variable a step
    method without gradients.  Its way there takes plain arrays, as initial values are.

    Examples
    --------
    >>> import pymc.dims as pmd, pytensor
    >>> with pm.Model(coords={"k": range(2)}) as model:
    ...     sigma = pmd.HalfNormal("sigma", dims="k")
    >>> value = model.rvs_to_values[sigma]
    >>> plain = with_plain_ways(model.rvs_to_transforms[sigma], ["k"])
    >>> pytensor.grad(plain.backward(value).values.sum(), value).eval({value: np.zeros(2)})
    array([1., 1.])
    >>> plain.forward(np.ones(2)).eval()
    array([0., 0.])
    """
    twin = copy(transform)
    vars(twin)["backward"] = partial(_plain_backward, transform)
    vars(twin)["forward"] = partial(_plain_forward, transform, tuple(dims))
    return twin


def _plain_forward(
    transform: Transform,
    dims: tuple[str, ...],
    value: object,
    *inputs: Variable,
) -> Variable:
    there: Variable = transform.forward(ops.as_xtensor(value, dims=dims), *inputs)
    return there


def _plain_backward(transform: Transform, *given: Variable) -> Variable:
    placeholders = {v: v.type() for v in given if not isinstance(v, Constant)}
    back = transform.backward(*(placeholders.get(v, v) for v in given))
    plain = ops.as_xtensor(as_plain_tensor(back), dims=back.type.dims)
    return clone_replace([plain], {own: v for v, own in placeholders.items()})[0]


def _with_constant_data(
    graphs: Sequence[TensorVariable],
    inputs: dict[Variable, Variable],
    row_inputs: Mapping[str, TensorVariable],
) -> list[TensorVariable]:
    """Replace placeholders by `inputs`, and data containers by constants that share their memory.

    All shapes are known afterwards. Containers with `row_inputs` are replaced by these.
    """
    graphs = ops.checked_tensors(with_joined_scalars(graphs))
    held = [v for v in graph_inputs(graphs) if isinstance(v, ops.SharedVariable)]
    # Random draws that no variable of the model is named after have a generator.
    shared = [v for v in held if not isinstance(v.get_value(borrow=True), np.random.Generator)]
    constants = {v: _constant(v) for v in shared if v.name not in row_inputs}
    of_rows: dict[Variable, Variable] = {
        _as_tensor_in(graphs, v): row_inputs[str(v.name)] for v in shared if v not in constants
    }
    known_types: dict[Variable, Variable] = inputs | constants | of_rows
    wider = any(new.type.dtype != old.type.dtype for old, new in inputs.items())
    try:
        wide = widened(graphs, inputs) if wider else list(graphs)
        known = clone_replace(wide, known_types, rebuild_strict=False)
    except ValueError as error:
        shapes = {v.name: tuple(constant.type.shape) for v, constant in known_types.items()}
        raise InvalidDataError(
            f"The lengths of the data do not fit together: {error} The data containers and free "
            f"variables have the shapes {shapes}. Give all of them the same number of observations."
        ) from error
    return ops.checked_tensors(_merged(with_constant_shapes(known)))


def _as_tensor_in(graphs: Sequence[Variable], shared: ops.SharedVariable) -> Variable:
    """Return a container itself or, if it has dims, the tensor that graphs make of it."""
    if not isinstance(shared, ops.XTensorVariable):
        return shared
    casts = (v for v in ancestors(graphs) if isinstance(ops.op_of(v), ops.TypeCastingOp))
    return next(v for v in casts if v.owner.inputs[0] is shared)


def _constant(shared: ops.SharedVariable) -> Variable:
    value = shared.get_value(borrow=True)
    if isinstance(value, np.ma.MaskedArray):  # pm.Data makes one of missing values
        value = value.filled(np.nan)
    known = shared.type.clone(shape=np.shape(value))
    constant: Variable = shared.type.constant_type(type=known, data=value, name=shared.name)
    return constant


def _merged(graphs: Sequence[Variable]) -> list[Variable]:
    """Merge equal parts of the graphs, so that their rows are kept only once."""
    fgraph = FunctionGraph(outputs=list(graphs), clone=False, features=[])
    ops.MergeOptimizer().rewrite(fgraph)
    return list(fgraph.outputs)


def _refuse_simulated(observed: Sequence[Variable]) -> None:
    for rv in observed:
        op = ops.op_of(rv)
        what = ""
        if type(op).__name__ == "MinibatchRandomVariable":
            what = (
                "has total_size=..., as for minibatches. Give the model the whole data without "
                "total_size: choosing rows is what the coreset does."
            )
        elif isinstance(op, SimulatorRV):
            what = (
                "is a pm.Simulator: its likelihood is the distance of all data from data that are "
                "simulated anew at each point, and no sum over rows. Sample the model itself with "
                "pm.sample_smc, or give the outcome a distribution."
            )
        if what:
            raise UnsupportedModelError(f"{rv.name!r} {what}")


def _refuse_randomness(graphs: Mapping[str, Variable]) -> None:
    for name, graph in graphs.items():
        if any(isinstance(v.type, ops.RandomType) for v in graph_inputs([graph])):
            raise UnsupportedModelError(
                f"{name!r} contains random draws (pm.Minibatch, or a distribution that is not a "
                "variable of the model). Give the model the whole data, and register every "
                "distribution under a name."
            )
