"""Terms of which each cell is an observation, such as ``y[dog, trial]``, as terms of rows."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import pymc as pm
from pytensor.tensor import TensorVariable

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.cells.long_format import Cells, LongFormat, without_length_one
from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.graphs import PlainModel, has_randomness
from pymc_coresets.reading.likelihood.layouts import Layout, RowSet
from pymc_coresets.reading.likelihood.missing import common_positions, dims_of_data
from pymc_coresets.reading.likelihood.terms import Term
from pymc_coresets.reading.sums.addends import sum_over_events
from pymc_coresets.reading.sums.splitting import RowTerm


def layout_of_cells(plain: PlainModel, names: Sequence[str], dim: tuple[str, ...]) -> Layout:
    """Write terms and deterministics with one row for each cell, in C order of the dims.

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
    positions = common_positions(model, names)
    axes = {name: _axes(model, name, graphs[name], dim) for name in names}
    lengths = tuple(int(n) for n in evaluate([model.dim_lengths[d] for d in dim]))
    n_cells = int(np.prod(lengths)) if positions is None else len(positions)
    cells = Cells.all_of(lengths) if positions is None else Cells.at(positions, lengths)
    # What is left after the missing cells are taken out has one row for each cell already.
    of_terms = cells if positions is None else Cells.all_of((n_cells,))
    long = LongFormat(plain.parameters.values())
    by_cell = [long.of(graphs[name], axes[name], of_terms) for name in names]
    local, unselected = frozenset(long.local), tuple(dict.fromkeys(long.unselected))
    views = _views(plain, dim, long, cells)
    simple = without_length_one([*by_cell, *views.values()])
    terms = [Term(name, 0, n_cells) for name in names]
    return Layout(
        {term.name: RowTerm(term, rows) for term, rows in zip(terms, simple, strict=False)},
        (RowSet(tuple(terms), dim, positions),),
        views={name: (view, 0) for name, view in zip(views, simple[len(names) :], strict=True)},
        reference=sum_over_events([(_flat(graphs[name], axes[name]), 0) for name in names]),
        unselected=unselected,
        local=local,
    )


def _axes(
    model: pm.Model, name: str, graph: TensorVariable, dim: tuple[str, ...]
) -> tuple[int, ...]:
    """Find the axes of a term's potentials that have the dims."""
    own, of_data = model.named_vars_to_dims.get(name), dims_of_data(model, name)
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


def _flat(graph: TensorVariable, axes: Sequence[int]) -> TensorVariable:
    """Return the potentials of all cells in one row, straight from PyMC's graph."""
    others = [i for i in range(graph.type.ndim) if i not in axes]
    flat: TensorVariable = graph.dimshuffle(*axes, *others)
    if others:
        flat = flat.sum(axis=list(range(len(axes), graph.type.ndim)))
    return cast(TensorVariable, flat.flatten())


def _views(
    plain: PlainModel, dim: tuple[str, ...], long: LongFormat, cells: Cells
) -> dict[str, TensorVariable]:
    """Find the deterministics that have all the dims, and no local variable beside the terms'."""
    views, all_dims, graphs = {}, plain.model.named_vars_to_dims, plain.graphs
    for deterministic in plain.model.deterministics:
        name, dims = deterministic.name, all_dims.get(deterministic.name) or ()
        if not set(dim) <= set(dims) or has_randomness(graphs[name]):
            continue
        local_before = set(long.local)
        view = long.of(graphs[name], [dims.index(d) for d in dim], cells)
        if long.local == local_before:
            views[name] = view
        long.local = local_before
    return views
