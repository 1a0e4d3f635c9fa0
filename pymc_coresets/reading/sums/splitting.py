"""Take the terms apart whose log-density is one number: rows, and what stays as it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import pymc as pm
import pytensor.tensor as pt

from pymc_coresets.compat.pytensor_api import (
    CheckAndRaise,
    Scan,
    TensorVariable,
    Variable,
    XTensorVariable,
    ancestors,
    clone_replace,
    io_toposort,
)
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.indexing import joints
from pymc_coresets.reading.known import Known, reached
from pymc_coresets.reading.likelihood.terms import Term, axis_of_rows
from pymc_coresets.reading.selection_rules import input_axes
from pymc_coresets.reading.sums.addends import Addend, Series, addends_of, sum_over_events, total_of

__all__ = [
    "SplitSum",
    "observed_length",
    "refuse_elsewhere",
    "refuse_entangled",
    "split_sums",
]

_FEW = 100  # terms beside the rows that cost next to nothing


@dataclass(frozen=True, eq=False)
class SplitSum:
    """A log-density that is one number, as the sum of rows and of a remainder.

    Attributes
    ----------
    name : str
        Name of the variable.
    rows : TensorVariable
        The terms that are rows, of shape (n_rows,), in nats.
    first : int
        Position of the first row in the variable's series: the last row is its last entry.
    rest : TensorVariable or None
        What the rows lack, a number in nats: it stays in the coreset's model, with weight one.
    grows : str
        What has many terms in `rest`, in words; empty where these are few.
    """

    name: str
    rows: TensorVariable
    first: int
    rest: TensorVariable | None
    grows: str

    @property
    def term(self) -> Term:
        """The likelihood term that the rows form."""
        return Term(self.name, 0, cast(int, self.rows.type.shape[0]))


def split_sums(
    model: pm.Model,
    names: Sequence[str],
    dim: str | None,
    graphs: Mapping[str, TensorVariable],
    parameters: Mapping[str, TensorVariable],
) -> dict[str, SplitSum]:
    """Take those terms apart whose potentials lack the observation axis, and are sums over it.

    Parameters
    ----------
    model : pm.Model
    names : sequence of str
        The terms.
    dim : str or None
        Name of the observation dimension, where the user named it.
    graphs : mapping of str to TensorVariable
        Of the terms, as `plain_graphs` makes them.
    parameters : mapping of str to TensorVariable

    Returns
    -------
    dict of str to SplitSum
        By name; terms that have the axis, and those that are no sums, are left out.

    Notes
    -----
    The longest of the sums has the rows, and others of the same length are added to it entry by
    entry.  Where arrays are concatenated, a sum over them is one over each: so the first entries
    of a series, whose distribution is another, become a part of the remainder.

    Examples
    --------
    >>> from pymc_coresets.reading.graphs import parameter_inputs, plain_graphs
    >>> with pm.Model() as model:
    ...     rho, start = pm.Normal("rho", shape=2), pm.Normal.dist(0.0, 1.0)
    ...     y = pm.AR("y", rho, sigma=1.0, init_dist=start, observed=[0.0, 1, 2, 3, 4, 5])
    >>> inputs = parameter_inputs(model)
    >>> found = split_sums(model, ["y"], None, plain_graphs(model, ["y"], inputs), inputs)["y"]
    >>> found.rows.type.shape, found.first
    ((4,), 2)
    """
    known = Known(parameters.values())
    found = {}
    for name in names:
        axis = axis_of_rows(model, name, dim)
        if axis >= graphs[name].type.ndim:
            series = Series(axis, observed_length(model, name, axis))
            split = _split(name, graphs[name], series, known)
            if split is not None:
                found[name] = split
    return found


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


def _split(name: str, graph: TensorVariable, series: Series, known: Known) -> SplitSum | None:
    addends = [part for a in addends_of(graph, series) for part in _without_joints(a, known)]
    n_rows = max(_n_terms(part) for part in addends)
    if n_rows == 0:
        return None
    rows = [part for part in addends if _n_terms(part) == n_rows]
    rest = [part for part in addends if _n_terms(part) != n_rows]
    n_others = sum(_n_terms(part) for part in rest)
    others = f"the sum of {n_others} terms in {name!r} that are no rows"
    return SplitSum(
        name=name,
        rows=sum_over_events(rows),
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
        axes = [axis] if isinstance(node.op, CheckAndRaise) else input_axes(node.op, node, axis)
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


def refuse_entangled(split: SplitSum, stopped: Sequence[str]) -> None:
    """Refuse a sum of which each term needs the data of others.

    Parameters
    ----------
    split : SplitSum
    stopped : sequence of str
        Operations that the selection of rows could not pass.

    Examples
    --------
    >>> x = pt.vector("x", shape=(5,))
    >>> refuse_entangled(SplitSum("y", x, 0, None, ""), ["Cumsum (in 'mu')"])
    Traceback (most recent call last):
    pymc_coresets.exceptions.UnsupportedModelError: The log-likelihood of 'y' is one number: a sum
    of 5 terms, of which each needs other rows too, through Cumsum (in 'mu'). It is a recursion
    over the rows, or a joint density as of a Gaussian process, and a coreset cannot be chosen from
    it. (docs: troubleshooting#no-sum-over-rows)
    """
    if not stopped:
        return
    loops = {str(v.owner.op) for v in ancestors([split.rows]) if _is_scan(v)}
    through = ", ".join(loops or stopped)
    raise UnsupportedModelError(
        f"The log-likelihood of {split.name!r} is one number: a sum of {split.term.length} terms, "
        f"of which each needs other rows too, through {through}. It is a recursion over the rows, "
        "or a joint density as of a Gaussian process, and a coreset cannot be chosen from it."
    )


def refuse_elsewhere(
    model: pm.Model, names: Sequence[str], dim: str | None, graphs: Mapping[str, TensorVariable]
) -> None:
    """Refuse terms that are one number where the rows lie elsewhere.

    Examples
    --------
    >>> refuse_elsewhere(pm.Model(), ["y"], None, {"y": pt.zeros(5)})
    """
    numbers = [name for name in names if axis_of_rows(model, name, dim) >= graphs[name].type.ndim]
    if numbers:
        raise UnsupportedModelError(
            f"The log-likelihood of {numbers!r} is one number for all rows of the template, and "
            "rows=... needs one value per row. Name the lagged values as columns of their own, and "
            "write a likelihood with one value per row (a pm.Potential without .sum(), or "
            "pm.Normal around the prediction from the lags); or keep the data in memory."
        )


def _is_scan(variable: Variable) -> bool:
    return variable.owner is not None and isinstance(variable.owner.op, Scan)
