"""Likelihood terms and their rows; where the log-density is one number, it is taken apart."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Variable, ancestors, clone_replace
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import XTensorVariable, io_toposort
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.folding import evaluate, known_length
from pymc_coresets.reading.graphs import PlainModel
from pymc_coresets.reading.indexing import joints
from pymc_coresets.reading.known import Known, describe, reached
from pymc_coresets.reading.likelihood.addends import (
    Addend,
    Series,
    addends_of,
    sum_over_events,
    total_of,
)
from pymc_coresets.reading.selection_rules import input_axes

_FEW = 100  # terms beside the rows that cost next to nothing


@dataclass(frozen=True)
class Term:
    """One likelihood term: an observed variable, or a potential with one value for each row.

    Attributes
    ----------
    name : str
        Name of the variable in the model.
    axis : int
        Its observation axis.
    length : int
        Its number of observations.
    """

    name: str
    axis: int
    length: int


@dataclass(frozen=True, eq=False)
class RowTerm:
    """A likelihood term with its rows, and what these lack where it is one number.

    Attributes
    ----------
    term : Term
    rows : TensorVariable
        Its potentials, in nats, with the rows along the term's axis.
    is_sum : bool
        Whether the log-density is one number, the sum of the rows and of a remainder.
    first : int
        Position of the first row in the variable's series: the last row is its last entry.
    rest : TensorVariable or None
        What the rows lack, a number in nats: it stays in the coreset's model, with weight one.
    grows : str
        What has many terms in `rest`, in words; empty where these are few.
    """

    term: Term
    rows: TensorVariable
    is_sum: bool = False
    first: int = 0
    rest: TensorVariable | None = None
    grows: str = ""


def axis_of_rows(model: pm.Model, name: str, dim: str | None) -> int:
    """Return the axis of a term that has the observations: that of the dimension, or the first.

    Raises
    ------
    UnsupportedModelError
        If the term has dimensions, but not this one.

    Examples
    --------
    >>> axis_of_rows(pm.Model(), "y", None)
    0
    """
    dims = model.named_vars_to_dims.get(name, ())
    if dim is not None and dims and dim not in dims:
        raise UnsupportedModelError(
            f"{name!r} has the dimensions {dims!r}, not {dim!r}. Leave it out of observed=[...]."
        )
    return dims.index(dim) if dim is not None and dims else 0


def n_rows_of(name: str, graph: TensorVariable, axis: int) -> int:
    """Return the number of observations along an axis of a term's potentials.

    Raises
    ------
    UnsupportedModelError
        If it depends on free variables.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> n_rows_of("y", pt.zeros((5, 3)), 0)
    5
    """
    length = known_length(graph, axis)
    if length is None:
        raise UnsupportedModelError(
            f"The number of observations of {name!r} depends on the values of free variables: "
            "there are no rows to choose from. Give the data a fixed length."
        )
    return length


def row_term(plain: PlainModel, name: str, dim: str | None) -> RowTerm | None:
    """Find the rows of a term; take it apart if its potentials lack the axis of observations.

    Parameters
    ----------
    plain : PlainModel
    name : str
        The term.
    dim : str or None
        Name of the observation dimension, where the user named it.

    Returns
    -------
    RowTerm or None
        None for potentials that lack the axis, and are no sum over it.

    Notes
    -----
    The longest of the sums has the rows, and others of the same length are added to it entry by
    entry.  Where arrays are concatenated, a sum over them is one over each: so the first entries
    of a series, whose distribution is another, become a part of the remainder.

    Examples
    --------
    >>> from pymc_coresets.reading.graphs import plain_model
    >>> with pm.Model() as model:
    ...     rho, start = pm.Normal("rho", shape=2), pm.Normal.dist(0.0, 1.0)
    ...     y = pm.AR("y", rho, sigma=1.0, init_dist=start, observed=[0.0, 1, 2, 3, 4, 5])
    >>> found = row_term(plain_model(model, ["y"]), "y", None)
    >>> found.term, found.first
    (Term(name='y', axis=0, length=4), 2)
    """
    graph, axis = plain.graphs[name], axis_of_rows(plain.model, name, dim)
    if axis < graph.type.ndim:
        return RowTerm(Term(name, axis, n_rows_of(name, graph, axis)), graph)
    series = Series(axis, observed_length(plain.model, name, axis))
    return _split(name, graph, series, plain.known)


def observed_length(model: pm.Model, name: str, axis: int) -> int | None:
    """Return how many entries an observed variable has along an axis; none for potentials.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=[0.0, 1.0, 2.0])
    >>> observed_length(model, "y", 0)
    3
    """
    variable = model[name]
    if variable not in model.rvs_to_values:
        return None
    value = model.rvs_to_values[variable]
    [shape] = evaluate([(value.values if isinstance(value, XTensorVariable) else value).shape])
    return int(shape[axis]) if axis < len(shape) else None


def _split(name: str, graph: TensorVariable, series: Series, known: Known) -> RowTerm | None:
    addends = [part for a in addends_of(graph, series) for part in _without_joints(a, known)]
    n_rows = max(_n_terms(part) for part in addends)
    if n_rows == 0:
        return None
    rows = [part for part in addends if _n_terms(part) == n_rows]
    rest = [part for part in addends if _n_terms(part) != n_rows]
    n_others = sum(_n_terms(part) for part in rest)
    others = f"the sum of {n_others} terms in {name!r} that are no rows"
    return RowTerm(
        Term(name, 0, n_rows),
        sum_over_events(rows),
        is_sum=True,
        first=0 if series.length is None else series.length - n_rows,
        rest=_with_known_parts(total_of([p.variable for p in rest]), known) if rest else None,
        grows=others if n_others > _FEW else "",
    )


def _n_terms(part: Addend) -> int:
    return 0 if part.axis is None else part.variable.type.shape[part.axis] or 0


def _without_joints(part: Addend, known: Known) -> list[Addend]:
    """Cut an array where others are joined in what it is computed from, along the same axis."""
    x, axis, n_terms = part.variable, part.axis, _n_terms(part)
    if axis is None:
        return [part]
    cuts = sorted({0, n_terms} | {c for c in _cuts(x, axis, known) if 0 < c < n_terms})
    if len(cuts) <= 2:
        return [part]
    slices = [slice(start, stop) for start, stop in pairwise(cuts)]
    if 2 * max(piece.stop - piece.start for piece in slices) < n_terms:
        return [part]  # too few would be rows: the selection will stop there, and say so
    return [Addend(x[(slice(None),) * axis + (piece,)], axis) for piece in slices]


def _cuts(x: TensorVariable, axis: int, known: Known) -> set[int]:
    cuts: set[int] = set()

    def below(place: tuple[Variable, int]) -> list[tuple[Variable, int]]:
        variable, axis = place
        node = variable.owner
        if node is None or not known.depends(variable):
            return []
        cuts.update(start for start, _ in joints(node, axis))
        axes = [axis] if isinstance(node.op, ops.CheckAndRaise) else input_axes(node.op, node, axis)
        return [(v, a) for v, a in zip(node.inputs, axes or (), strict=False) if a is not None]

    start: tuple[Variable, int] = (x, axis)
    list(reached([start], below))
    return cuts


def _with_known_parts(graph: TensorVariable, known: Known) -> TensorVariable:
    """Evaluate what is computed from data alone, so that the data are not kept with it."""
    if not known.depends(graph):
        return cast(TensorVariable, pt.constant(known.value(graph)))
    nodes = [node for node in io_toposort([], [graph]) if known.depends(node.outputs[0])]
    ready: dict[Variable, Variable] = {
        v: pt.constant(known.value(v), dtype=v.type.dtype)
        for v in dict.fromkeys(v for node in nodes for v in node.inputs)
        if isinstance(v, TensorVariable) and v.owner is not None and not known.depends(v)
    }
    [folded] = clone_replace([graph], ready, rebuild_strict=False)
    return cast(TensorVariable, folded)


def refuse_entangled(split: RowTerm, stopped: Sequence[str]) -> None:
    """Refuse a sum of which each term needs the data of others.

    Parameters
    ----------
    split : RowTerm
    stopped : sequence of str
        Operations that the selection of rows could not pass.

    Examples
    --------
    >>> x = pt.vector("x", shape=(5,))
    >>> refuse_entangled(RowTerm(Term("y", 0, 5), x, is_sum=True), ["Cumsum (in 'mu')"])
    Traceback (most recent call last):
    pymc_coresets.exceptions.UnsupportedModelError: The log-likelihood of 'y' is one number: a sum
    of 5 terms, of which each needs other rows too, through Cumsum (in 'mu'). It is a recursion
    over the rows, or a joint density as of a Gaussian process, and a coreset cannot be chosen from
    it. (docs: troubleshooting#no-sum-over-rows)
    """
    if not (split.is_sum and stopped):
        return
    loops = {str(v.owner.op) for v in ancestors([split.rows]) if _is_scan(v)}
    through, term = ", ".join(loops or stopped), split.term
    raise UnsupportedModelError(
        f"The log-likelihood of {term.name!r} is one number: a sum of {term.length} terms, "
        f"of which each needs other rows too, through {through}. It is a recursion over the rows, "
        "or a joint density as of a Gaussian process, and a coreset cannot be chosen from it.",
        topic="no-sum-over-rows",
    )


def refuse_elsewhere(plain: PlainModel, names: Sequence[str], dim: str | None) -> None:
    """Refuse terms that are one number where the rows lie elsewhere.

    Raises
    ------
    UnsupportedModelError
    """
    model, graphs = plain.model, plain.graphs
    numbers = [name for name in names if axis_of_rows(model, name, dim) >= graphs[name].type.ndim]
    if numbers:
        raise UnsupportedModelError(
            f"The log-likelihood of {numbers!r} is one number for all rows of the template, and "
            "rows=... needs one value per row. Name the lagged values as columns of their own, and "
            "write a likelihood with one value per row (a pm.Potential without .sum(), or "
            "pm.Normal around the prediction from the lags); or keep the data in memory.",
            topic="no-sum-over-rows",
        )


def _is_scan(variable: Variable) -> bool:
    return variable.owner is not None and isinstance(variable.owner.op, ops.Scan)


def refuse_recursion(
    name: str, stops: Iterable[tuple[Variable, int]], n_obs: int, known: Known
) -> None:
    """Refuse a term of which each row needs the others, through a loop or a matrix of all rows.

    Parameters
    ----------
    name : str
        Of the term.
    stops : iterable of (Variable, int)
        Where the selection of rows ended.
    n_obs : int
    known : Known
        Tells the parameters from data.

    Raises
    ------
    UnsupportedModelError
        If there is such a loop or matrix that depends on free variables.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> x, rate = pt.vector("x", shape=(5,)), pt.scalar("rate")
    >>> stock = pytensor.scan(
    ...     lambda new, old, rate: new + rate * old,
    ...     sequences=[x], outputs_info=[pt.zeros(())], non_sequences=[rate], return_updates=False,
    ... )
    >>> refuse_recursion("y", [(stock, 0)], 5, Known([x, rate]))
    Traceback (most recent call last):
    pymc_coresets.exceptions.UnsupportedModelError: The log-likelihood of 'y' is a recursion over
    the rows: through Scan{scan_fn, while_loop=False, inplace=none} (in 'x[0:]'), each row needs all
    rows before it, and a few rows cost as much as all. If effects last for a limited time, write a
    finite convolution (pt.signal.convolve1d, or lagged data times weights); otherwise sample the
    model itself. (docs: troubleshooting#no-sum-over-rows)
    """
    for variable, _ in stops:
        loops = (v for v in ancestors([variable]) if _is_scan(v) and known.depends(v))
        for loop in loops:
            if n_obs not in known.shape(loop)[1:]:  # rows have no loops of their own
                raise UnsupportedModelError(
                    f"The log-likelihood of {name!r} is a recursion over the rows: through "
                    f"{describe(loop)}, each row needs all rows before it, and a few rows cost as "
                    "much as all. If effects last for a limited time, write a finite convolution "
                    "(pt.signal.convolve1d, or lagged data times weights); otherwise sample the "
                    "model itself.",
                    topic="no-sum-over-rows",
                )
        if variable.type.shape.count(n_obs) > 1:
            raise UnsupportedModelError(
                f"In the log-likelihood of {name!r}, each row needs all others through "
                f"{describe(variable)}, a matrix of {n_obs} x {n_obs} that depends on free "
                "variables, as for a Gaussian process: a coreset cannot be chosen from it. Take an "
                "approximation with few coefficients, such as pm.gp.HSGP.",
                topic="no-sum-over-rows",
            )
