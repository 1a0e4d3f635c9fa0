"""What is printed of a coreset, in a few words for each fact."""

import numpy as np

from pymc_coresets.reading.observations import TERM_OF_ROW
from pymc_coresets.results.columns import labels_of_lookups, own_values
from pymc_coresets.results.summary import effective_size, row_labels
from pymc_coresets.updates.new_rows import OBJECTIVE_OF_PARTS
from pymc_coresets.weighted_rows import WeightedRows, chosen_rows

_SHOWN_GROUPS = 6


def facts_of(coreset: WeightedRows) -> dict[str, str]:
    """Return what is shown of a coreset, by name."""
    found = {
        "rows": _numbers_of_rows(coreset),
        "integrated": _integrated(coreset),
        "quadratic": ""
        if coreset.quadratic is None
        else f"of {len(coreset.quadratic.names):,} coefficients, for all rows",
        "weights": _weights(coreset),
        "terms": _terms(coreset),
        "groups": _groups(coreset),
        "method": coreset.method,
        "weighting": coreset.weighting,
        "divergence": _divergence(coreset),
        "modes": _modes(coreset),
        "status": coreset.status,
    }
    always = ("method", "weighting", "status")
    return {name: words for name, words in found.items() if words or name in always}


def _numbers_of_rows(coreset: WeightedRows) -> str:
    rows = f"{len(coreset.indices):,} of {coreset.n_observations:,}"
    merged = coreset.n_distinct < coreset.n_observations
    rows = f"{rows} ({coreset.n_distinct:,} distinct)" if merged else rows
    units = None if coreset.loglikelihood is None else coreset.loglikelihood.observations.units
    if units is None:
        return rows
    chosen = chosen_rows(coreset).n_members
    return f"{chosen:,} of {len(units.positions):,}, all those of {rows} units"


def _integrated(coreset: WeightedRows) -> str:
    """Say which variables were integrated out, by how many nodes, and how far these are off."""
    units = None if coreset.loglikelihood is None else coreset.loglikelihood.observations.units
    if units is None:
        return ""
    names = ", ".join(units.integrated)
    return f"{names}, by {units.n_nodes} nodes for each unit (error {units.node_error:.1g} nats)"


def _weights(coreset: WeightedRows) -> str:
    weights = coreset.weights
    if not len(weights):
        return ""
    lowest, highest = f"{weights.min():,.4g}", f"{weights.max():,.4g}"
    if lowest == highest:
        return f"{lowest} each"
    [largest] = row_labels(coreset, coreset.indices[[np.argmax(weights)]])
    return f"{lowest} to {highest} ({largest}), worth {effective_size(weights):,.0f} equal ones"


def _terms(coreset: WeightedRows) -> str:
    """Say how many rows each likelihood term has, and how many are chosen, where these differ."""
    sets = () if coreset.loglikelihood is None else coreset.loglikelihood.observations.sets
    numbers = [np.searchsorted(coreset.indices, [s.start, s.stop]) for s in sets]
    return ", ".join(
        f"{stop - start:,} of {s.stop - s.start:,} of {s.names}"
        for (start, stop), s in zip(numbers, sets, strict=True)
    )


def _groups(coreset: WeightedRows) -> str:
    """Say how many levels have a chosen row, for each index by which variables are looked up."""
    if coreset.loglikelihood is None:
        return ""
    observations, rows = coreset.loglikelihood.observations, chosen_rows(coreset)
    found = []
    for i, (name, labels) in labels_of_lookups(observations).items():
        if name != TERM_OF_ROW:
            codes = own_values(observations.rows[i], rows.arrays[i], rows.positions)
            covered = np.unique(codes[~np.isnan(codes)] % len(labels))
            found.append(f"{name} {len(covered):,} of {len(labels):,}")
    more = len(found) - _SHOWN_GROUPS
    return ", ".join([*found[:_SHOWN_GROUPS], *([f"and {more} more"] if more > 0 else [])])


def _divergence(coreset: WeightedRows) -> str:
    unmeasured = np.isnan(coreset.history.attrs.get(OBJECTIVE_OF_PARTS, 0.0))
    measured = np.isfinite(coreset.objective) and not unmeasured
    return f"about {coreset.objective:.3g} nats" if measured else ""


def _modes(coreset: WeightedRows) -> str:
    modes = None if coreset.certificate is None else coreset.certificate.modes
    return modes.words if modes is not None and modes.n_modes > 1 else ""
