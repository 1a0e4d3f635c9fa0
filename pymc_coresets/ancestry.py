"""Where a coreset's rows came from: the constructions that added them, and their errors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from pymc_coresets.diagnostics.judging import TOLERANCE
from pymc_coresets.display import as_text
from pymc_coresets.weighted_rows import WeightedRows, represents_others, required_likelihood

# Distances, in standard deviations, beyond which measured errors no longer apply: the root mean
# square over many coordinates, and the limit of a single one.
_FAR, _FAR_OF_ONE = 1.5, 2.5
_OBJECTIVES, _ROWS = "objectives_of_updates", "rows_of_updates"
#: Attribute of a history: summed divergences of the coresets merged into this one, in nats.
OBJECTIVE_OF_PARTS = "objective_of_parts"


class Distance(NamedTuple):
    """Distance of a posterior from another one, in standard deviations of the latter.

    As more rows of the same kind come in, the mean square stays at 1 on average.  In few dimensions
    its random variation is larger, and so is the limit.

    Parameters
    ----------
    mean_square : float
        Mean square over coordinates and draws; 1 for draws of that posterior itself, NaN if
        unknown.
    shift : float
        Shift of the mean of the coordinate that has moved most.
    n_dims : int

    Examples
    --------
    >>> Distance(1.1, 0.5, 20).is_far, Distance(4.0, 2.2, 20).is_far
    (False, True)
    >>> Distance(1.5, 0.9, 20).growth
    3.375
    """

    mean_square: float
    shift: float
    n_dims: int

    @property
    def growth(self) -> float:
        """Approximate factor by which errors measured there are larger here.

        If a log-likelihood is matched up to the second order, the error is cubic: its variance
        grows with the sixth power of the distance.
        """
        return max(self.mean_square, 1.0) ** 3

    @property
    def is_far(self) -> bool:
        """Whether the distance is unknown, or too large for errors measured there to apply."""
        root, shift = self._parts
        return not (root <= 1 and shift <= 1)

    @property
    def words(self) -> str:
        """Describe the distance, as the end of "moves the posterior by"."""
        if math.isnan(self.mean_square):
            return "an unknown number of its standard deviations (it could not be sampled)"
        root, shift = self._parts
        value = math.sqrt(self.mean_square) if root > shift else self.shift
        return f"{value:.1f} of its standard deviations"

    @property
    def _parts(self) -> tuple[float, float]:
        """Root mean square and shift, as fractions of their limits."""
        square = _FAR**2 + (_FAR_OF_ONE**2 - _FAR**2) / self.n_dims
        largest = math.sqrt(2 * math.log(self.n_dims))  # approximately, for as many normal numbers
        return math.sqrt(self.mean_square / square), self.shift / (_FAR_OF_ONE + largest)


@dataclass(frozen=True)
class Ancestry:
    """History of a coreset: the rows that each construction added, and its divergence.

    Parameters
    ----------
    rows : tuple of int
        Numbers of rows read by the first construction, and by each later `Coreset.extend`.
    objectives : tuple of float
        Each construction's estimate of its divergence, in nats; increased if later rows have moved
        the posterior, see Notes, and NaN if unknown.

    Notes
    -----
    An objective is the squared length ``|L - L(w)|^2`` of the error that one construction added, at
    the posterior that it was made for.  Lengths obey the triangle inequality: measured at one
    posterior, all errors together have at most the length of their sum.  If a log-likelihood is
    matched up to the second order, the error is cubic: at draws with root mean square distance r,
    in standard deviations of the previous posterior, its variance is r^6 times as large. If r
    exceeds 1 after an update, older errors are multiplied by this factor. If r exceeds 1.5, or 2.5
    for a single parameter, the old errors are unknown.

    Examples
    --------
    >>> found = Ancestry((1_000, 50), (0.01, 0.0025))
    >>> round(found.combined, 4)
    0.0225
    """

    rows: tuple[int, ...]
    objectives: tuple[float, ...]

    @classmethod
    def of(cls, attrs: Mapping[str, Any], n_observations: int, objective: float) -> Self:
        """Read it from a history's attributes, and from the coreset's size and objective."""
        if _ROWS in attrs:
            rows, objectives = (np.atleast_1d(attrs[name]) for name in (_ROWS, _OBJECTIVES))
            return cls(tuple(map(int, rows)), tuple(map(float, objectives)))
        parts = float(attrs.get(OBJECTIVE_OF_PARTS, 0.0))
        return cls((n_observations,), (_together([parts, objective]),))

    def extended(self, n_rows: int, objective: float) -> "Ancestry":
        """Add a construction."""
        return Ancestry((*self.rows, n_rows), (*self.objectives, float(objective)))

    def moved_by(self, distance: Distance) -> "Ancestry":
        """The same after new rows have moved the posterior: errors grow, or become unknown."""
        if distance.is_far:
            return self.unmeasured
        return Ancestry(self.rows, tuple(distance.growth * each for each in self.objectives))

    @property
    def unmeasured(self) -> "Ancestry":
        """The same for another posterior, at which no error was measured."""
        return Ancestry(self.rows, (math.nan,) * len(self.rows))

    @property
    def earlier(self) -> float:
        """`combined`, for all constructions but the last, whose rows are still available."""
        return _together(self.objectives[:-1])

    @property
    def combined(self) -> float:
        """Square of the errors' summed lengths, in nats: a bound if the posterior hardly moves."""
        return _together(self.objectives)

    @property
    def attrs(self) -> dict[str, np.ndarray | float]:
        """As attributes of a history."""
        return {
            _ROWS: np.array(self.rows),
            _OBJECTIVES: np.array(self.objectives),
            OBJECTIVE_OF_PARTS: self.earlier,
        }

    def __repr__(self) -> str:
        steps = zip(self.rows, self.objectives, strict=True)
        facts = {
            f"{'update' if i else 'first'} {i or ''}".strip(): f"{rows:,} rows, {_nats(objective)}"
            for i, (rows, objective) in enumerate(steps)
        }
        facts["together"] = f"at most {_nats(self.combined)}, if the posterior hardly moves"
        return as_text("Ancestry of a coreset", facts, self._words())

    def _words(self) -> str:
        if len(self.rows) == 1:
            return "It was built once, from all its rows."
        return (
            "check() compares it with the rows of the last update, exactly, and with the previous "
            "coreset instead of all others: the error of that one is included only here."
        )


def caveat_of(coreset: WeightedRows) -> str:
    """Describe the error that a comparison with the available rows cannot detect, if relevant.

    Parameters
    ----------
    coreset : WeightedRows
        With its model.
    """
    loglik = required_likelihood(coreset)
    if not represents_others(loglik):
        return ""
    found = Ancestry.of(coreset.history.attrs, coreset.n_observations, coreset.objective)
    if found.earlier <= 2 * TOLERANCE:  # symmetrised
        return ""
    unseen = "an unknown divergence" if math.isnan(found.earlier) else f"{_nats(found.earlier)}"
    remedy = (
        "rows; or read this one with Coreset.from_netcdf(path, model, rows=...), and check it "
        "against all of them."
    )
    if loglik.observations.integrated:
        remedy = "units."
    return (
        f"the old rows are not available, and the coreset that represents them may be off by "
        f"{unseen} here, not included in these numbers. Build a coreset of all {remedy}"
    )


def _together(objectives: Sequence[float]) -> float:
    return float(np.sqrt(np.asarray(objectives, dtype=float)).sum() ** 2)


def _nats(objective: float) -> str:
    return "a divergence that is not known" if math.isnan(objective) else f"{objective:.2g} nats"
