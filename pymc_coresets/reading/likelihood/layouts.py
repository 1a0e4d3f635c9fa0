"""How a model's observations lie in its likelihood terms: along an axis, in cells, in sets."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Variable, ancestors, graph_inputs
from pytensor.tensor import TensorVariable

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.folding import values_of
from pymc_coresets.reading.graphs import PlainModel
from pymc_coresets.reading.likelihood.refusals import refuse_joint
from pymc_coresets.reading.likelihood.row_terms import (
    RowTerm,
    Term,
    row_term,
    sum_over_events,
)
from pymc_coresets.reading.likelihood.terms import (
    common_positions,
    dims_of_data,
    has_rows_of,
    is_known_part,
    positions_of_data,
    same_positions,
)
from pymc_coresets.reading.long_format import LongFormat
from pymc_coresets.reading.other_forms import Cells, without_length_one


@dataclass(frozen=True, eq=False)
class RowSet:
    """Terms whose rows belong together: row n of all of them is one observation.

    Attributes
    ----------
    terms : tuple of Term
        Of equal length.
    dims : tuple of str
        Name of their observation dimension, if they have one; those of the cells that are rows.
    positions : ndarray of int
        Position of each row in the user's data.
    n_data : int
        Number of rows of these data, of which some may be left out.
    start : int
        Number of its first row among those of all sets, which follow one another.
    """

    terms: tuple[Term, ...]
    dims: tuple[str, ...]
    positions: np.ndarray
    n_data: int
    start: int = 0

    @property
    def stop(self) -> int:
        """The number after that of its last row."""
        return self.start + self.terms[0].length

    @property
    def names(self) -> str:
        """The names of its terms, in words."""
        return " and ".join(repr(term.name) for term in self.terms)

    def position(self, number: int) -> int:
        """Return the position, in the data of its terms, of one of its rows."""
        return int(self.positions[number - self.start])

    def entries(self, n_obs: int) -> np.ndarray:
        """Return which of its rows each row of all sets is; -1 for all others'."""
        entries = np.full(n_obs, -1)
        entries[self.start : self.stop] = np.arange(self.stop - self.start)
        return entries


class Layout(NamedTuple):
    """Graphs with the observations along one axis each."""

    terms: Mapping[str, RowTerm]
    sets: tuple[RowSet, ...]
    left_out: tuple[str, ...]  # deterministics along the rows
    reference: TensorVariable
    unselected: Sequence[str] = ()
    local: Collection[Variable] = ()
    log_densities: tuple[TensorVariable, ...] = ()

    @property
    def n_obs(self) -> int:
        """Number of observations of all sets."""
        return self.sets[-1].stop


def layout_of(plain: PlainModel, names: Sequence[str], dim: tuple[str, ...]) -> Layout:
    """Find the axes of terms with rows, and which rows of them belong together.

    Parameters
    ----------
    plain : PlainModel
    names : sequence of str
        The terms.
    dim : tuple of str
        The dimension of the observations; several dims whose cells they are, of which the last is
        the fastest; or nothing, for the leading axis of each term.

    Raises
    ------
    UnsupportedModelError
        If a term is not split into rows, or into these cells.

    Examples
    --------
    >>> from pymc_coresets.reading.graphs import plain_model
    >>> with pm.Model(coords={"dog": range(2), "trial": range(3)}) as model:
    ...     a = pm.Normal("a", dims="dog")
    ...     y = pm.Normal("y", a[:, None], 1.0, observed=np.ones((2, 3)), dims=("dog", "trial"))
    >>> found = layout_of(plain_model(model, ["y"]), ["y"], ("dog", "trial"))
    >>> found.terms["y"].rows.type.shape
    (6,)
    """
    axes = {name: axes_of(plain.model, name, dim) for name in names}
    if len(dim) > 1:
        return _layout_of_cells(plain, axes, dim)
    terms = {name: row_term(plain, name, axis) for name, [axis] in axes.items()}
    for name, split in terms.items():
        if not split.has_rows:
            _refuse(plain, name, dim)
    terms = {name: _among_rows(plain, terms, name) for name in names}
    sets = _row_sets(plain.model, terms.values(), dim)
    references = [sum_over_events([(terms[t.name].rows, t.axis) for t in s.terms]) for s in sets]
    is_sum = any(split.is_sum for split in terms.values())
    return Layout(
        terms,
        sets,
        left_out=tuple(name for s in sets for name in _along_rows(plain, s)),
        reference=pt.concatenate(references) if len(sets) > 1 else references[0],
        unselected=[split.grows for split in terms.values() if split.grows],
        log_densities=tuple(plain.graphs[name] for name in names if is_sum),
    )


def _among_rows(plain: PlainModel, terms: Mapping[str, RowTerm], name: str) -> RowTerm:
    """Put the known values of a covariate where they lie among the rows of the outcome.

    Others stay as they are.
    """
    own, model = terms[name], plain.model
    outcomes = [
        t.term for n, t in terms.items() if model[name] in set(ancestors([model[n]])) - {model[n]}
    ]
    for term in outcomes:
        is_whole = not is_known_part(model, term.name)
        if own.term.axis == 0 and is_whole and has_rows_of(model, name, term.length):
            shape = (term.length, *own.rows.type.shape[1:])
            positions, _ = positions_of_data(model, name, term.length)
            rows = pt.zeros(shape, dtype=own.rows.type.dtype)[positions].set(own.rows)
            return replace(own, term=Term(name, 0, term.length), rows=rows, is_placed=True)
    return own


def axes_of(model: pm.Model, name: str, dim: tuple[str, ...]) -> tuple[int, ...]:
    """Find the axes of a term that have the dims; the first, if none are named."""
    of_data = dims_of_data(model, name)
    lacking = [d for d in dim if d not in of_data]
    if lacking and (of_data or len(dim) > 1):
        raise UnsupportedModelError(
            f"{name!r} has the dimensions {of_data!r}, not {lacking!r}: leave it out of "
            "observed=[...], or give it these dims."
        )
    if not model.named_vars_to_dims.get(name) or not dim:
        if len(dim) > 1 and of_data != dim:
            raise UnsupportedModelError(
                f"{name!r} has missing values, and its cells are numbered along {of_data!r}: "
                f"give dim={of_data!r}, not {dim!r}."
            )
        return (0,)
    return tuple(of_data.index(d) for d in dim)


def _refuse(plain: PlainModel, name: str, dim: tuple[str, ...]) -> NoReturn:
    is_number = plain.graphs[name].type.ndim == 0
    why = "is one number" if is_number else f"is not split along {', '.join(dim)!r}"
    refuse_joint(repr(name), f"{why}: one joint density, not a sum over rows")


def _row_sets(
    model: pm.Model, terms: Iterable[RowTerm], dim: tuple[str, ...]
) -> tuple[RowSet, ...]:
    """Join terms of equal length that neither dims nor missing values set apart."""
    found: list[RowSet] = []
    for split in terms:
        term, n_data = split.term, split.first + split.term.length
        own_dims = (model.named_vars_to_dims.get(term.name) or ())[term.axis :][:1]
        positions = np.arange(split.first, n_data)
        if not split.first and not split.is_placed:
            positions, n_data = positions_of_data(model, term.name, n_data)
        dims = dim or tuple(str(d) for d in own_dims if d)
        own = RowSet((term,), dims, positions, n_data, found[-1].stop if found else 0)
        for at, both in enumerate(found):
            if _together(both, own):
                found[at] = replace(both, terms=(*both.terms, term), dims=both.dims or own.dims)
                break
        else:
            found.append(own)
    return tuple(found)


def _together(one: RowSet, other: RowSet) -> bool:
    same_length = one.terms[0].length == other.terms[0].length
    other_dims = one.dims and other.dims and one.dims != other.dims
    places = (one.positions, one.n_data), (other.positions, other.n_data)
    return same_length and not other_dims and same_positions(*places)


def refuse_several(sets: Sequence[RowSet]) -> None:
    """Refuse rows of several sets, if they lie elsewhere.

    Raises
    ------
    UnsupportedModelError

    Examples
    --------
    >>> refuse_several([RowSet((Term("y", 0, 5),), (), np.arange(5), 5)])
    """
    if len(sets) > 1:
        lengths = {term.name: term.length for s in sets for term in s.terms}
        raise UnsupportedModelError(
            f"The observed variables have rows of their own, in these numbers: {lengths}, and "
            "rows=... gives one kind of row. Name the ones to summarise with observed=[...] (or "
            "their dimension with dim=...); the others stay in the model as they are."
        )


def _along_rows(plain: PlainModel, rows: RowSet) -> Iterator[str]:
    """Name the deterministics that have the observation axis."""
    model, n_obs = plain.model, rows.terms[0].length
    data = _long_data(plain, [plain.graphs[term.name] for term in rows.terms], n_obs)
    for deterministic in model.deterministics:
        name, graph = deterministic.name, plain.graphs[deterministic.name]
        if dims := model.named_vars_to_dims.get(name):
            found = bool(rows.dims) and set(rows.dims) <= set(dims)
        else:  # length N means rows only in what is computed from the data of the rows
            is_long = graph.type.shape[:1] == (n_obs,)
            found = is_long and not data.isdisjoint(_long_data(plain, [graph], n_obs))
        if found:
            yield name


def _long_data(plain: PlainModel, graphs: Sequence[TensorVariable], n_obs: int) -> set[Variable]:
    """Return the data with an axis of at least that length that graphs are computed from."""
    data = set(graph_inputs(graphs)).difference(plain.parameters.values())
    return {v for v in data if any((n or 0) >= n_obs for n in getattr(v.type, "shape", ()))}


# -- cells -----------------------------------------------------------------------------------------


def _layout_of_cells(
    plain: PlainModel, axes: Mapping[str, tuple[int, ...]], dim: tuple[str, ...]
) -> Layout:
    model, graphs, names = plain.model, plain.graphs, list(axes)
    for name in names:
        if max(axes[name]) >= graphs[name].type.ndim:
            _refuse(plain, name, dim[graphs[name].type.ndim :])
    lengths = tuple(int(n) for n in values_of([model.dim_lengths[d] for d in dim]))
    positions, n_data = common_positions(model, names, math.prod(lengths))
    # What is left after the missing cells are taken out has one row for each cell already.
    cells = Cells.all_of(lengths if len(positions) == n_data else (len(positions),))
    long_format = LongFormat(plain.parameters.values())
    by_cell = [long_format.of(graphs[name], axes[name], cells) for name in names]
    local, unselected = frozenset(long_format.local), tuple(dict.fromkeys(long_format.unselected))
    terms = tuple(Term(name, 0, cells.n_cells) for name in names)
    rows = RowSet(terms, dim, positions, n_data)
    long = zip(terms, without_length_one(by_cell), strict=True)
    return Layout(
        {term.name: RowTerm(term, graph) for term, graph in long},
        (rows,),
        left_out=tuple(_along_rows(plain, rows)),
        reference=sum_over_events([(_flat_cells(graphs[name], axes[name]), 0) for name in names]),
        unselected=unselected,
        local=local,
    )


def _flat_cells(graph: TensorVariable, axes: Sequence[int]) -> TensorVariable:
    """Return the log-likelihoods of all cells in one row, straight from PyMC's graph."""
    first = pt.moveaxis(graph, axes, range(len(axes)))
    return pt.join_dims(first, 0, len(axes))
