"""A coreset of the rows of another one, and of new rows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pymc as pm

from pymc_coresets.diagnostics.judging import Certificate
from pymc_coresets.exceptions import CoresetError, InvalidDataError, InvalidOptionError
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.options import generator, whole_number
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.from_rows import template_of_rows
from pymc_coresets.potentials.kept_rows import columns_of_dataset, kept_dataset, rows_of_dataset
from pymc_coresets.potentials.of_model import full_model
from pymc_coresets.potentials.sameness import differing_row, points_of, same_priors
from pymc_coresets.potentials.verification import verify
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.storage import history_dataset
from pymc_coresets.updates.ancestry import Ancestry
from pymc_coresets.updates.parts import Part, WeightedRows, all_of, reduced_by_pursuit

__all__ = ["ExtendedRows", "with_new_rows"]


class ExtendedRows(InMemoryRows):
    """The rows of a coreset, which stand for data that are gone, and all new rows.

    Parameters
    ----------
    rows : Rows
        At their positions; the weights of the old ones are their base weights.
    start : int
        Position of the first new row.
    places : mapping of int to str
        Where the old ones were found.

    Examples
    --------
    >>> rows = ExtendedRows(Rows(np.array([4, 90]), np.array([80.0, 1.0])), 90, {4: "row 4"})
    >>> rows.place(4), rows.place(90)
    ('row 4', 'row 0 of the new rows')
    """

    def __init__(self, rows: Rows, start: int, places: Mapping[int, str]) -> None:
        super().__init__(rows.arrays, rows.base_weights, rows.positions)
        self._start, self._places = start, places

    def holding(self, rows: Rows) -> Self:
        """Return the same rows with other arrays."""
        return type(self)(rows, self._start, self._places)

    def place(self, position: int) -> str:
        """Say where the user finds a row, for messages."""
        known = self._places.get(position)
        return f"row {position - self._start} of the new rows" if known is None else known

    def refuse_single_rows(self) -> None:
        """Refuse what needs every row.

        Raises
        ------
        CoresetError
            Always.
        """
        raise CoresetError(
            "This coreset was extended without the old rows, of which only some are left: for "
            "this, store it, and read it with Coreset.from_netcdf(path, model, rows=...), where "
            "rows has the old ones and, after them, the new ones."
        )


def with_new_rows(
    coreset: WeightedRows,
    model: pm.Model,
    *,
    size: int | None,
    method: str | RiemannianPursuit,
    random_seed: int | np.random.Generator | None,
) -> dict[str, Any]:
    """Return the fields of a coreset of all that another one stands for, and of new rows.

    Parameters
    ----------
    coreset : WeightedRows
    model : pm.Model
        Of the new rows.
    size, method, random_seed
        As of `Coreset.extend`.

    Raises
    ------
    InvalidDataError
        If the model is not that of the coreset, with other rows.
    InvalidOptionError
        If an option is out of range.
    CoresetError
        If the coreset was read without its model, or its rows are not data of the model.
    """
    chosen, rng = _method(method), generator(random_seed)
    size = None if size is None else whole_number("size", size, least=1)
    part = Part.of(coreset)
    new = template_of_rows(full_model(model), columns_of_dataset(part.kept), **part.where)
    verify(new, rng=rng.spawn(1)[0])
    _require_same_model(part, new, rng.spawn(1)[0])
    source = _extended(part, new)
    limit = chosen.default_size(new.n_dims, source.n_rows) if size is None else size
    counts: dict[str, Any] = {}
    if source.n_rows <= limit:
        solution = all_of(source)
    else:
        solution, counts = reduced_by_pursuit(new, source, limit, chosen, rng)
    loglik, n_new = new.reading(source), new.observations.n_obs
    before = Ancestry.of(coreset.history.attrs, coreset.n_observations, coreset.objective)
    ancestry = before.extended(n_new, solution.objective)
    ratios = solution.log_ratios
    return {
        "indices": solution.rows.positions,
        "weights": solution.weights,
        "n_observations": coreset.n_observations + n_new,
        "n_distinct": part.n_rows + n_new,
        "method": "extend",
        "weighting": chosen.draws_from,
        "status": solution.status.value,
        "objective": solution.objective,
        "random_seed": int(random_seed) if isinstance(random_seed, int | np.integer) else None,
        "history": history_dataset(solution.history, ancestry.attrs | counts),
        "loglikelihood": loglik,
        "data": kept_dataset(loglik, solution.rows, solution.weights),
        "built_from": None,
        "proposal": solution.proposal,
        "certificate": None if ratios is None else Certificate.of(ratios),
    }


def _method(method: Any) -> RiemannianPursuit:  # noqa: ANN401 - what users pass
    if isinstance(method, str) and method == RiemannianPursuit.name:
        return RiemannianPursuit()
    if not isinstance(method, RiemannianPursuit):
        raise InvalidOptionError(f"method={method!r} must be 'auto', or a RiemannianPursuit(...).")
    return method


def _require_same_model(part: Part, new: LogLikelihood, rng: np.random.Generator) -> None:
    old = part.template
    first = rows_of_dataset(old.observations, part.kept)
    second = rows_of_dataset(new.observations, part.kept)  # which refuses other columns
    if not same_priors(old, new, rng):
        raise InvalidDataError(
            "The model of the new rows has other priors than that of the coreset: give it the same "
            "ones. with_model() changes the priors of a coreset."
        )
    if differing_row(old, new, points_of(old, rng), first, second) is not None:
        raise InvalidDataError(
            "The model of the new rows has another likelihood than that of the coreset: the rows "
            "of the coreset have other log-likelihoods there."
        )


def _extended(part: Part, new: LogLikelihood) -> ExtendedRows:
    """Put the coreset's rows, with its weights, before all new ones."""
    kept = part.kept
    old = replace(rows_of_dataset(new.observations, kept), base_weights=kept["weight"].to_numpy())
    rows = new.in_memory.all
    rows = replace(rows, positions=rows.positions + part.n_rows)
    places = dict(zip(old.positions.tolist(), map(str, kept["where"].to_numpy()), strict=True))
    return ExtendedRows(Rows.joined([old, rows]), part.n_rows, places)
