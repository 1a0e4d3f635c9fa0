"""The fields of a coreset, which all that is done with one goes by."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from pymc_coresets.diagnostics.judging import Certificate
from pymc_coresets.diagnostics.known_posterior import Modes, Proposal
from pymc_coresets.exceptions import CoresetError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.kept_rows import Fingerprints, rows_of_dataset
from pymc_coresets.potentials.of_model import Settings
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.rows.extended import ExtendedRows
from pymc_coresets.rows.values import Rows


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WeightedRows:
    """Weighted rows, with what is known of them: the fields of a `Coreset`, which explains them.

    Rooms below the coreset's own go by these.
    """

    indices: np.ndarray
    weights: np.ndarray
    n_observations: int
    n_distinct: int
    method: str
    weighting: str
    status: str
    objective: float
    random_seed: int | None
    history: xr.Dataset
    settings: Settings
    loglikelihood: LogLikelihood | None
    built_from: Fingerprints | None = None
    proposal: Proposal[Draws] | None = None
    certificate: Certificate | None = None
    modes: Modes | None = None
    quadratic: Quadratic | None = None
    earlier: Quadratic | None = None
    data: xr.Dataset | None = None
    progressbar: bool = True


def required_likelihood(coreset: WeightedRows) -> LogLikelihood:
    """Return the potentials of the rows that a coreset was chosen from.

    Raises
    ------
    CoresetError
        If it was read without its model.
    """
    if coreset.loglikelihood is None:
        raise CoresetError(
            "This coreset was read without its model: read it again with "
            "Coreset.from_netcdf(path, model=...)."
        )
    return coreset.loglikelihood


def chosen_rows(coreset: WeightedRows) -> Rows:
    """Return the rows of a coreset with their data.

    Raises
    ------
    CoresetError
        If it was read without its model.
    """
    loglik = required_likelihood(coreset)
    if coreset.data is not None:
        return rows_of_dataset(loglik.observations, coreset.data)
    return loglik.collapsed(collapse=False).source.at(coreset.indices)


def has_all_rows(coreset: WeightedRows) -> bool:
    """Whether the posterior of a coreset is that of all rows."""
    loglik = required_likelihood(coreset)
    gone = isinstance(loglik.source, ExtendedRows)
    if gone or loglik.n_rows != len(coreset.indices):
        return False
    every = loglik.all_rows
    pairs = [(every.positions, coreset.indices), (every.base_weights, coreset.weights)]
    if coreset.data is not None:
        pairs += zip(every.arrays, chosen_rows(coreset).arrays, strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def require_all_rows(coreset: WeightedRows) -> None:
    """Refuse where some of the rows that a coreset stands for are gone."""
    if isinstance(required_likelihood(coreset).source, ExtendedRows):
        raise CoresetError(
            "This coreset was extended without the old rows, of which only some are left: for "
            "this, store it, and read it with Coreset.from_netcdf(path, model, rows=...), where "
            "rows has the old ones and, after them, the new ones."
        )
