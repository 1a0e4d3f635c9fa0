"""Find the one number per row through which all free variables enter the log-likelihood."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pytensor.scalar as ps

from pymc_coresets.compat.pytensor_api import (
    Constant,
    DimShuffle,
    Elemwise,
    Reshape,
    SharedVariable,
    SpecifyShape,
    TypeCastingOp,
    Variable,
    ancestors,
    io_toposort,
)
from pymc_coresets.glm.predictor.row_graph import RowGraph, meeting_points
from pymc_coresets.reading.observations import Observations

__all__ = ["observed_rows", "possible_predictors", "why_not_one"]

_ERROR_FUNCTIONS = (ps.erf, ps.erfc, ps.erfcx)


def observed_rows(observations: Observations) -> set[Variable]:
    """Find the placeholders of arrays that are computed from observed values, not covariates.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("b") * np.array([1.0, 2.0])
    ...     y = pm.Normal("y", mu, 1.0, observed=np.array([0.0, 1.0]))
    >>> observations = find_observations(model)
    >>> [r.values for r in observations.rows if r.placeholder in observed_rows(observations)]
    [array([0., 1.])]
    """
    model = observations.model
    names = {term.name for term in observations.terms}
    values = [_data(model.rvs_to_values[rv]) for rv in model.observed_RVs if rv.name in names]
    found: set[Variable] = set()
    for row in observations.rows:
        below = [_data(v) for v in ancestors([row.source])]
        if any(_same(a, b) for a in [row.values, *below] for b in values):
            found.add(row.placeholder)
    return found


def _data(variable: Variable) -> np.ndarray | None:
    if isinstance(variable, Constant):
        return np.asarray(variable.data) if hasattr(variable.type, "ndim") else None
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value(borrow=True))
    return None


def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    if one is None or other is None or one.ndim == 0 or one.shape != other.shape:
        return False
    return one is other or np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def possible_predictors(
    loglik: Variable, graph: RowGraph, observed: Collection[Variable]
) -> Iterator[Variable]:
    """Find the nodes that may be the linear predictor, the most likely first.

    All free variables act through each of these nodes alone.  First comes the deepest node with one
    number for each row, with the offset and the scale that are applied to it; then the nodes that
    all rows share, as in a model with an intercept alone; then nodes that contain the observed
    values, such as ``y - eta``.

    Parameters
    ----------
    loglik : Variable
        The pointwise log-likelihood.
    graph : RowGraph
    observed : collection of Variable
        Placeholders of arrays that are computed from the observed values.  It is empty where these
        are not known, as for potentials: data that are combined with the predictor then count as a
        response, unless they are added to it.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> y, x = pt.tensor("y", shape=(None,)), pt.tensor("x", shape=(None,))
    >>> b = pt.scalar("b")
    >>> graph = RowGraph([b], {y: np.zeros(2), x: np.ones(2)})
    >>> found = possible_predictors((y - pt.exp(b * x + x)) ** 2, graph, [y])
    >>> str(next(found).owner.op)
    'Add'
    """
    chain = [v for v in meeting_points(loglik, graph.parameters) if v is not loglik]
    by_row = [i for i, v in enumerate(chain) if is_one_per_row(v, graph)]
    deepest = chain[by_row[0]] if by_row else None
    if deepest is not None and not _contains(deepest, observed):
        yield _completed(chain[by_row[0] :], graph, observed)
    yield from (v for v in chain if not graph.by_row(v) and set(v.type.shape) <= {1})
    if deepest is not None and _contains(deepest, observed):
        yield deepest


def is_one_per_row(variable: Variable, graph: RowGraph) -> bool:
    """Whether a variable has one number for each row."""
    return graph.by_row(variable) and sum(n != 1 for n in variable.type.shape) == 1


def _contains(variable: Variable, data: Collection[Variable]) -> bool:
    return any(v in data for v in ancestors([variable]))


def _completed(
    chain: Sequence[Variable], graph: RowGraph, observed: Collection[Variable]
) -> Variable:
    """Climb from a node while covariates, but no observed values, are added or multiplied."""
    with_offset = scaled = node = chain[0]
    for upper in chain[1:]:
        others = [v for v in upper.owner.inputs if v is not node]
        if any(graph.depends(v) or _contains(v, observed) for v in others):
            break
        by_row = any(graph.by_row(v) for v in others)
        step = _step(upper, node, by_row=by_row, known=bool(observed))
        if step is None:
            # The sqrt(2) of the error function belongs to the link.
            return with_offset if _scalar_op(upper) in _ERROR_FUNCTIONS else scaled
        node = upper
        scaled = scaled if step == "view" else upper
        with_offset = upper if step == "data" else with_offset
    return scaled


def _step(upper: Variable, node: Variable, *, by_row: bool, known: bool) -> str | None:
    """Say what one step does to the predictor, or None where the predictor ends.

    A view or a change of sign belongs to the predictor only if something else follows it.
    """
    op, first = upper.owner.op, upper.owner.inputs[0] is node
    if isinstance(op, DimShuffle | Reshape | SpecifyShape | TypeCastingOp):
        return "view"
    maybe_response = by_row and not known
    scaling = "data" if by_row else "view" if _is_sign(upper, node) else "scale"
    match _scalar_op(upper):
        case ps.Add():
            return "data"
        case ps.Sub() if not maybe_response:  # y - eta, perhaps
            return "data" if by_row or first else "view"
        case ps.Mul() if not maybe_response:
            return scaling
        case ps.TrueDiv() if first and not maybe_response:
            return scaling
        case ps.Neg() | ps.Identity():
            return "view"
    return None


def _is_sign(upper: Variable, node: Variable) -> bool:
    others = [v for v in upper.owner.inputs if v is not node]
    return all(isinstance(v, Constant) and np.all(np.abs(v.data) == 1.0) for v in others)


def _scalar_op(variable: Variable) -> ps.ScalarOp | None:
    op = variable.owner.op
    return op.scalar_op if isinstance(op, Elemwise) else None


def why_not_one(loglik: Variable, graph: RowGraph, observed: Collection[Variable]) -> str | None:
    """Explain why no node is the linear predictor: what else enters the log-likelihood.

    Returns None where nothing else does: then the predictor exists, but is not linear.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> y, x = pt.tensor("y", shape=(None,)), pt.tensor("x", shape=(None,))
    >>> b, sigma = pt.scalar("b"), pt.scalar("sigma")
    >>> graph = RowGraph([b, sigma], {y: np.zeros(2), x: np.ones(2)})
    >>> why_not_one(((y - b * x) / sigma) ** 2 - pt.log(sigma), graph, [y])[:60]
    "The free variables ['sigma'] enter the likelihood besides th"
    """
    nodes = [v for node in io_toposort([], [loglik]) for v in node.outputs if v is not loglik]
    by_row = [v for v in nodes if graph.depends(v) and is_one_per_row(v, graph)]
    meeting = [v for v in meeting_points(loglik, graph.parameters) if v in by_row]
    if meeting and observed and not _contains(meeting[0], observed):
        return None
    by_row = [v for v in by_row if v not in meeting]
    by_row = [v for v in by_row if not _contains(v, observed)] or by_row
    through = {v: _only_through(v, loglik, graph) for v in by_row}
    best = max(by_row, key=lambda v: sum(_size(p) for p in through[v]), default=None)  # the deepest
    if best is None or not through[best]:
        return (
            "The free variables enter the log-likelihood of a row by several numbers, not by one "
            "linear predictor: several outcomes or categories, or a variable with several roles. "
            "Use a method for general models."
        )
    inside = [p for p in graph.parameters if p in through[best]]
    outside = [p for p in graph.parameters if p not in inside]
    names, fixed = [str(p.name) for p in outside], ", ".join(f"{p.name!r}: ..." for p in outside)
    second = any(not _contains(v, [*observed, *inside]) for v in by_row)
    what = "another linear predictor" if second and observed else "a scale or dispersion"
    return (
        f"The free variables {names!r} enter the likelihood besides the linear predictor of "
        f"{[str(p.name) for p in inside]!r}, as {what}. Fix them (given={{{fixed}}}), or use a "
        "method for general models."
    )


def _only_through(node: Variable, loglik: Variable, graph: RowGraph) -> list[Variable]:
    """Find the free variables that act on the log-likelihood through this node alone."""
    below = set(ancestors([node]))
    inside = [p for p in graph.parameters if p in below]
    return [p for p in inside if node in meeting_points(loglik, [p])]


def _size(parameter: Variable) -> int:
    return int(np.prod(parameter.type.shape, dtype=int))
