"""The errors of a coreset that was extended, step by step."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from pymc_coresets.display.facts import facts_text

_OBJECTIVES, _ROWS = "objectives_of_updates", "rows_of_updates"

#: Attribute of a history: what the coresets that went into this one lacked, in nats.
OBJECTIVE_OF_PARTS = "objective_of_parts"


@dataclass(frozen=True)
class Ancestry:
    """How a coreset came about: rows that each construction added, and how far it was off.

    Parameters
    ----------
    rows : tuple of int
        Rows that the first construction, and each `Coreset.extend` after it, read.
    objectives : tuple of float
        What each estimated of its own divergence, in nats; NaN where that is not known.

    Notes
    -----
    An objective is the squared length ``|L - L(w)|^2`` of the error that one construction added, at
    the posterior that it was made for.  Lengths obey the triangle inequality: measured at one
    posterior, all errors together have at most the length of their sum.  Where new rows move the
    posterior by several of its standard deviations, an older error may be many times larger there,
    and nothing that is left of the old rows can tell.

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
        """Read it from the attributes of a history, and from what else a coreset says of itself."""
        if _ROWS in attrs:
            rows, objectives = (np.atleast_1d(attrs[name]) for name in (_ROWS, _OBJECTIVES))
            return cls(tuple(map(int, rows)), tuple(map(float, objectives)))
        parts = float(attrs.get(OBJECTIVE_OF_PARTS, 0.0))
        return cls((n_observations,), (_together([parts, objective]),))

    def extended(self, n_rows: int, objective: float) -> "Ancestry":
        """Add a construction."""
        return Ancestry((*self.rows, n_rows), (*self.objectives, float(objective)))

    @property
    def unmeasured(self) -> "Ancestry":
        """The same for another posterior, at which no error was measured."""
        return Ancestry(self.rows, (math.nan,) * len(self.rows))

    @property
    def combined(self) -> float:
        """Square of the sum of all errors' lengths, in nats: a bound where the posterior stays."""
        return _together(self.objectives)

    @property
    def attrs(self) -> dict[str, Any]:
        """As attributes of a history."""
        return {
            _ROWS: np.array(self.rows),
            _OBJECTIVES: np.array(self.objectives),
            OBJECTIVE_OF_PARTS: _together(self.objectives[:-1]),
        }

    def __repr__(self) -> str:
        steps = zip(self.rows, self.objectives, strict=True)
        facts = {
            f"{'update' if i else 'first'} {i or ''}".strip(): f"{rows:,} rows, {_nats(objective)}"
            for i, (rows, objective) in enumerate(steps)
        }
        facts["together"] = f"at most {_nats(self.combined)}, if the posterior hardly moves"
        return facts_text("Ancestry of a coreset", facts, self._words())

    def _words(self) -> str:
        if len(self.rows) == 1:
            return "It was built once, from all its rows."
        return (
            "check() compares it with the rows of the last update, exactly, and with the coreset "
            "before it in place of all others: what that one lacked is not in it, but here."
        )


def _together(objectives: Sequence[float]) -> float:
    return float(np.sqrt(np.asarray(objectives, dtype=float)).sum() ** 2)


def _nats(objective: float) -> str:
    return "a divergence that is not known" if math.isnan(objective) else f"{objective:.2g} nats"
