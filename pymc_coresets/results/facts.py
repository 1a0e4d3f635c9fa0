"""Facts about a coreset, for what is printed of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.ancestry import OBJECTIVE_OF_PARTS, Ancestry
from pymc_coresets.diagnostics.known_posterior import NOT_SOUGHT
from pymc_coresets.display import counted
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.reading.folding import values_of
from pymc_coresets.reading.observations import TERM_OF_ROW, Observations
from pymc_coresets.reading.pushdown import UNNAMED, RowArray
from pymc_coresets.reading.units.observations_of_units import UnitObservations
from pymc_coresets.rowlogp.code_checks import codes_of
from pymc_coresets.solving.solution import Status
from pymc_coresets.weighted_rows import (
    WeightedRows,
    chosen_rows,
    holds_rows,
    represents_others,
    required_likelihood,
)

type Values = np.ndarray
type Floats = NDArray[np.float64]
type Labels = Sequence[Any] | Values


def labels_of_lookups(observations: Observations) -> dict[int, tuple[str, Labels]]:
    """Find the row arrays that are indices of variables, as ``group`` in ``effect[group]``.

    Parameters
    ----------
    observations : Observations

    Returns
    -------
    dict of int to (str, sequence)
        By the position in ``observations.rows``: the name of the column, and its labels.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model(coords={"shop": ["a", "b"]}) as model:
    ...     effect = pm.Normal("effect", dims="shop")
    ...     y = pm.Normal("y", effect[np.array([0, 1, 1])], 1.0, observed=np.ones(3))
    >>> labels_of_lookups(find_observations(model))
    {0: ('shop', ('a', 'b'))}
    """
    model, found = observations.model, codes_of(observations)
    labels: dict[int, tuple[str, Labels]] = {}
    for number, row in enumerate(observations.rows):
        if observations.sets and row.name == TERM_OF_ROW:
            labels[number] = row.name, [s.names for s in observations.sets]
        uses = [lookup for lookup in found if lookup.codes is row.placeholder]
        if not uses or row.values.ndim > 1:
            continue
        length = max(lookup.length for lookup in uses)
        # Bambi's `1|school` is the product of `1|school_sigma` and `1|school_offset`.
        ends = ("", "_sigma", "_offset")
        tables = [lookup.table.removesuffix(end) for lookup in uses for end in ends]
        dims = [dim for table in tables for dim in model.named_vars_to_dims.get(table, ())]
        own: str = f"index of {uses[0].table}"
        known: Labels = range(length)
        for dim in [dim for dim in dims if len(model.coords.get(dim) or ()) == length][:1]:
            own, known = dim.removesuffix("__factor_dim"), model.coords[dim]
        labels[number] = own if row.name == UNNAMED else row.name, known
    return labels


def own_values(row: RowArray, values: Values, positions: Values) -> Values:
    """Return the values of a row array, with NaN for rows of other likelihood terms.

    Parameters
    ----------
    row : RowArray
    values : ndarray
        For some rows, which lie along the first axis.
    positions : ndarray of int
        The numbers of these rows.
    """
    if np.all(row.own):
        return values
    own = np.asarray(row.own)[positions]
    return np.where(own.reshape(-1, *[1] * (values.ndim - 1)), values, np.nan)


def cell_codes(observations: Observations, positions: Values) -> dict[str, Values]:
    """Return where rows lie along each of the observation dimensions.

    Parameters
    ----------
    observations : Observations
    positions : ndarray of int
        Of the rows; of cells in C order.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model(coords={"dog": range(2), "trial": range(3)}) as model:
    ...     mu = pm.Normal("mu", dims="dog")
    ...     y = pm.Normal("y", mu[:, None], 1.0, observed=np.ones((2, 3)), dims=("dog", "trial"))
    >>> cell_codes(find_observations(model, dim=("dog", "trial")), np.array([4]))
    {'dog': array([1]), 'trial': array([1])}
    """
    dims = observations.dims
    if len(dims) < 2:
        return dict.fromkeys(dims, positions)
    lengths = values_of([observations.model.dim_lengths[dim] for dim in dims])
    codes = np.unravel_index(positions, [int(length) for length in lengths])
    return dict(zip(dims, codes, strict=True))


def labels_of_dim(observations: Observations, dim: str) -> Labels:
    """Return the labels of a dimension; numbers where it has none."""
    model = observations.model
    return model.coords.get(dim) or range(int(values_of([model.dim_lengths[dim]])[0]))


def row_labels(coreset: WeightedRows, positions: NDArray[np.int64]) -> list[str]:
    """Return the labels of rows by their positions: of cells by those of their dimensions."""
    if not holds_rows(coreset) and coreset.loglikelihood is not None:
        observations = coreset.loglikelihood.observations
        if observations.sets:
            return [observations.place(position) for position in positions.tolist()]
        if len(observations.dims) > 1:
            codes = cell_codes(observations, positions)
            labels = [[labels_of_dim(observations, dim)[i] for i in codes[dim]] for dim in codes]
            return [", ".join(map(str, pair)) for pair in zip(*labels, strict=True)]
    kind = "unit" if _units_of(coreset) else "row"
    return [f"{kind} {position}" for position in positions]


def effective_size(weights: Floats) -> float:
    """Return the number of rows of equal weights that are worth as much, by Kish's formula.

    Examples
    --------
    >>> effective_size(np.array([2.0, 2.0])), effective_size(np.array([1.0, 0.0]))
    (2.0, 1.0)
    """
    return float(weights.sum() ** 2 / (weights**2).sum()) if len(weights) else 0.0


def size_in_words(coreset: WeightedRows) -> str:
    """Return how many rows a coreset has, of how many; or units, and the rows of these."""
    n_all, n_distinct = coreset.n_observations, coreset.n_distinct
    units = _units_of(coreset)
    found = f"{len(coreset.indices):,} of {n_all:,} {'units' if units else 'rows'}"
    if n_distinct < n_all:
        found += f", {n_distinct:,} of them distinct"
    if units:
        of_all = f" of {len(units.positions_of_unit_rows):,}"
        if represents_others(required_likelihood(coreset)):
            of_all = ""  # the others are gone
        found += f" ({chosen_rows(coreset).n_unit_rows:,}{of_all} rows)"
    return found


def _units_of(coreset: WeightedRows) -> UnitObservations | None:
    """Return the units of a coreset, if it has any and its model is known."""
    found = None if coreset.loglikelihood is None else coreset.loglikelihood.observations
    return found if isinstance(found, UnitObservations) else None


def facts_of(coreset: WeightedRows) -> dict[str, str]:
    """Return what is shown of a coreset, by name."""
    certificate = coreset.certificate
    quadratic, modes = coreset.quadratic, NOT_SOUGHT if certificate is None else certificate.modes
    unmeasured = np.isnan(coreset.history.attrs.get(OBJECTIVE_OF_PARTS, 0.0))
    found = {
        "size": size_in_words(coreset),
        "integrated": "",
        "quadratic": ""
        if quadratic is None
        else f"of {counted(len(quadratic.names), 'coefficient')}, for all rows",
        "weights": _weights(coreset),
        "terms": "",
        "groups": "",
        "method": coreset.method,
        "weighting": coreset.weighting,
        "divergence": "" if unmeasured else _divergence(coreset),
        "modes": modes.words if modes.n_modes > 1 else "",
        "status": "" if coreset.status == Status.TOLERANCE_REACHED.value else coreset.status,
    }
    if coreset.loglikelihood is not None:
        found |= _facts_of_model(coreset, coreset.loglikelihood.observations)
    return {name: words for name, words in found.items() if words}


def _facts_of_model(coreset: WeightedRows, observations: Observations) -> dict[str, str]:
    """Return what the model tells of a coreset, by name."""
    units = ""
    if isinstance(observations, UnitObservations):
        units = (
            f"{', '.join(observations.integrated)}, by {observations.n_nodes} nodes for each unit "
            f"(error {observations.node_error:.1g} nats)"
        )
    return {
        "integrated": units,
        "terms": _terms(coreset, observations),
        "groups": _groups(coreset, observations),
    }


def _divergence(coreset: WeightedRows) -> str:
    if not np.isfinite(coreset.objective):
        return ""
    of_all = Ancestry.of(coreset.history.attrs, coreset.n_observations, coreset.objective)
    earlier = f", and up to {of_all.earlier:.3g} of earlier rows" if of_all.earlier else ""
    found = f"about {coreset.objective:.3g} nats{earlier}"
    own = coreset.certificate is not None or coreset.weighting == RiemannianPursuit.draws_from
    if own or not coreset.objective:
        return found
    # Few rows match all others there sooner than elsewhere: check() finds up to a hundred times it.
    return f"{found} at the draws of the method; check() measures it at the coreset's own"


def _weights(coreset: WeightedRows) -> str:
    weights = coreset.weights
    if not len(weights):
        return ""
    lowest, highest = (
        f"{w:,.3g}" if w < 100 else f"{w:,.0f}" for w in (min(weights), max(weights))
    )
    if lowest == highest:
        return f"{lowest} each"
    [largest] = row_labels(coreset, coreset.indices[[np.argmax(weights)]])
    return f"{lowest} to {highest} ({largest}), effective number {effective_size(weights):,.0f}"


def _terms(coreset: WeightedRows, observations: Observations) -> str:
    """Return the rows and chosen rows of each likelihood term, if terms have different rows."""
    return ", ".join(
        f"{np.diff(np.searchsorted(coreset.indices, [s.start, s.stop]))[0]:,} of "
        f"{s.stop - s.start:,} of {s.names}"
        for s in observations.sets
    )


def _groups(coreset: WeightedRows, observations: Observations) -> str:
    """Return the number of levels with a chosen row, for each index of variables."""
    found, rows = [], chosen_rows(coreset)
    for i, (name, labels) in labels_of_lookups(observations).items():
        if name != TERM_OF_ROW:
            codes = own_values(observations.rows[i], rows.arrays[i], rows.positions)
            covered = np.unique(codes[~np.isnan(codes)] % len(labels))
            found.append(f"{name} {len(covered):,} of {len(labels):,}")
    shown = 6
    more = [f"and {len(found) - shown} more"] * (len(found) > shown)
    return ", ".join([*found[:shown], *more])
