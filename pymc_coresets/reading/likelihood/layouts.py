"""How a model's observations lie in its likelihood terms: along an axis, in cells, in sets."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Variable, graph_inputs
from pytensor.tensor import TensorVariable

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.forms.batching import without_length_one
from pymc_coresets.reading.forms.long_format import Cells, LongFormat
from pymc_coresets.reading.graphs import PlainModel
from pymc_coresets.reading.likelihood import missing
from pymc_coresets.reading.likelihood.addends import sum_over_events, total_of
from pymc_coresets.reading.likelihood.row_terms import RowTerm, Term, row_term
from pymc_coresets.reading.likelihood.terms import refuse_joint


@dataclass(frozen=True, eq=False)
class RowSet:
    """Terms whose rows belong together: row n of all of them is one observation.

    Attributes
    ----------
    terms : tuple of Term
        Of equal length.
    dim : str, tuple of str, or None
        Name of their observation dimension, if they have one; those of the cells that are rows.
    positions : ndarray of int or None
        Position of each row in the user's data, where some are left out.
    start : int
        Number of its first row among those of all sets, which follow one another.
    """

    terms: tuple[Term, ...]
    dim: str | tuple[str, ...] | None
    positions: np.ndarray | None
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
        own = number - self.start
        return own if self.positions is None else int(self.positions[own])

    def entries(self, n_obs: int) -> np.ndarray:
        """Return which of its rows stands for each row of all sets; the first for all others'."""
        entries = np.zeros(n_obs, dtype=np.int64)
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
    total: TensorVariable | None = None

    @property
    def n_obs(self) -> int:
        """Number of observations of all sets."""
        return self.sets[-1].stop


def layout_of_rows(plain: PlainModel, names: Sequence[str], dim: str | None) -> Layout:
    """Find the axes of terms with rows, and which rows of them belong together."""
    terms = {
        name: row_term(plain, name, dim) or refuse_joint(name, plain.graphs[name], dim)
        for name in names
    }
    sets = _row_sets(plain.model, terms.values(), dim)
    several = len(sets) > 1
    references = [sum_over_events([(terms[t.name].rows, t.axis) for t in s.terms]) for s in sets]
    is_sum = any(split.is_sum for split in terms.values())
    return Layout(
        terms,
        sets,
        left_out=tuple(name for s in sets for name in _along_rows(plain, s)),
        reference=pt.concatenate(references) if several else references[0],
        unselected=[split.grows for split in terms.values() if split.grows],
        total=total_of([plain.graphs[name] for name in names]) if is_sum else None,
    )


def _row_sets(model: pm.Model, terms: Iterable[RowTerm], dim: str | None) -> tuple[RowSet, ...]:
    """Join the terms of equal length that neither their dims nor missing values set apart."""
    found: list[RowSet] = []
    for split in terms:
        term, first = split.term, split.first
        dims = model.named_vars_to_dims.get(term.name)
        positions = np.arange(first, first + term.length) if first else None
        if positions is None:
            positions = missing.positions_of_data(model, term.name)
        start = found[-1].stop if found else 0
        own = RowSet((term,), dim or (dims[term.axis] if dims else None), positions, start)
        at = next((i for i, other in enumerate(found) if _together(other, own)), None)
        if at is None:
            found.append(own)
        else:
            both = found[at]
            found[at] = replace(both, terms=(*both.terms, term), dim=both.dim or own.dim)
    return tuple(found)


def _together(one: RowSet, other: RowSet) -> bool:
    if one.terms[0].length != other.terms[0].length:
        return False
    if None not in (one.dim, other.dim) and one.dim != other.dim:
        return False
    return missing.same_positions(one.positions, other.positions)


def refuse_several(sets: Sequence[RowSet]) -> None:
    """Refuse rows of several sets, where they lie elsewhere.

    Raises
    ------
    UnsupportedModelError

    Examples
    --------
    >>> refuse_several([RowSet((Term("y", 0, 5),), None, None)])
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
            found = rows.dim in dims
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


def layout_of_cells(plain: PlainModel, names: Sequence[str], dim: tuple[str, ...]) -> Layout:
    """Write terms with one row for each cell, in C order of the dims.

    Parameters
    ----------
    plain : PlainModel
    names : sequence of str
        The terms.
    dim : tuple of str
        The dims whose cells are the observations; the last is the fastest.

    Returns
    -------
    Layout

    Raises
    ------
    UnsupportedModelError
        If a term is not split into these cells.

    Examples
    --------
    >>> from pymc_coresets.reading.graphs import plain_model
    >>> with pm.Model(coords={"dog": range(2), "trial": range(3)}) as model:
    ...     a = pm.Normal("a", dims="dog")
    ...     y = pm.Normal("y", a[:, None], 1.0, observed=np.ones((2, 3)), dims=("dog", "trial"))
    >>> found = layout_of_cells(plain_model(model, ["y"]), ["y"], ("dog", "trial"))
    >>> found.terms["y"].rows.type.shape
    (6,)
    """
    model, graphs = plain.model, plain.graphs
    positions = missing.common_positions(model, names)
    axes = {name: _axes_of_cells(model, name, graphs[name], dim) for name in names}
    lengths = tuple(int(n) for n in evaluate([model.dim_lengths[d] for d in dim]))
    n_cells = int(np.prod(lengths)) if positions is None else len(positions)
    cells = Cells.all_of(lengths) if positions is None else Cells.at(positions, lengths)
    # What is left after the missing cells are taken out has one row for each cell already.
    of_terms = cells if positions is None else Cells.all_of((n_cells,))
    long = LongFormat(plain.parameters.values())
    by_cell = [long.of(graphs[name], axes[name], of_terms) for name in names]
    local, unselected = frozenset(long.local), tuple(dict.fromkeys(long.unselected))
    simple = without_length_one(by_cell)
    terms = [Term(name, 0, n_cells) for name in names]
    return Layout(
        {term.name: RowTerm(term, rows) for term, rows in zip(terms, simple, strict=True)},
        (RowSet(tuple(terms), dim, positions),),
        left_out=tuple(_along_cells(model, dim)),
        reference=sum_over_events([(_flat_cells(graphs[name], axes[name]), 0) for name in names]),
        unselected=unselected,
        local=local,
    )


def _axes_of_cells(
    model: pm.Model, name: str, graph: TensorVariable, dim: tuple[str, ...]
) -> tuple[int, ...]:
    """Find the axes of a term's potentials that have the dims."""
    own, of_data = model.named_vars_to_dims.get(name), missing.dims_of_data(model, name)
    lacking = [d for d in dim if d not in of_data]
    if lacking:
        raise UnsupportedModelError(
            f"{name!r} has the dimensions {of_data!r}, not {lacking!r}. Leave it out of "
            "observed=[...], or give it these dims."
        )
    if own is None and of_data:
        if of_data != dim:
            raise UnsupportedModelError(
                f"{name!r} has missing values, and its cells are numbered along {of_data!r}: "
                f"give dim={of_data!r}, not {dim!r}."
            )
        return (0,)
    axes = tuple(of_data.index(d) for d in dim)
    if max(axes) >= graph.type.ndim:
        raise UnsupportedModelError(
            f"The log-likelihood of {name!r} is not split along {dim[axes.index(max(axes))]!r} "
            "(as for a multivariate distribution): it is no sum over the cells. Leave that "
            "dimension out of dim=..."
        )
    return axes


def _flat_cells(graph: TensorVariable, axes: Sequence[int]) -> TensorVariable:
    """Return the potentials of all cells in one row, straight from PyMC's graph."""
    others = [i for i in range(graph.type.ndim) if i not in axes]
    flat: TensorVariable = graph.dimshuffle(*axes, *others)
    if others:
        flat = flat.sum(axis=list(range(len(axes), graph.type.ndim)))
    return cast(TensorVariable, flat.flatten())


def _along_cells(model: pm.Model, dim: tuple[str, ...]) -> Iterator[str]:
    """Name the deterministics that have all the dims."""
    for deterministic in model.deterministics:
        if set(dim) <= set(model.named_vars_to_dims.get(deterministic.name) or ()):
            yield deterministic.name
