"""What rows see of the free variables: rows that the model holds, and rows that are read."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pymc_coresets.glm.control_variates.averaged import RowsInMemory, SeenRows
from pymc_coresets.glm.predictor.model_parts import coefficient_draws
from pymc_coresets.glm.predictor.row_designs import RowDesigns, compare_elsewhere, placed
from pymc_coresets.glm.predictor.several import Line, Predictors, find_predictors
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rows.values import Rows

__all__ = ["HeldRows", "ReadRows", "find_seen_rows"]


@dataclass(frozen=True, eq=False)
class HeldRows:
    """Rows that the model holds, whose designs are known.

    Parameters
    ----------
    found : Predictors
    """

    found: Predictors

    def of(self, rows: Rows) -> RowsInMemory:
        """See `SeenRows`."""
        among, which = self.found.observations.positions, rows.positions
        which = which if among is None else np.searchsorted(among, which)
        return RowsInMemory(self.found, which, rows.base_weights)


@dataclass(frozen=True, eq=False)
class ReadRows:
    """Rows that are read, whose designs are computed from their data whenever they are needed.

    Parameters
    ----------
    found : Predictors
        Those of the rows that the model holds.
    place : callable
        Says where a row lies, for messages; other processes know its number only.
    """

    found: Predictors
    place: Callable[[int], str] = "row {:,}".format

    def __getstate__(self) -> dict[str, Any]:
        return {"found": self.found}  # nothing compiled, and no rows

    def of(self, rows: Rows) -> RowsInMemory:
        """See `SeenRows`."""
        designs = zip(self.found.lines, self._designs.of(rows), strict=True)
        here = replace(
            self.found,
            lines=tuple(Line(line.columns, *computed) for line, computed in designs),
            density=self.found.density.of_rows(placed(rows, self.found.observations)),
        )
        here.refuse_not_finite(lambda n: self.place(int(rows.positions[n])))
        return RowsInMemory(here, np.arange(len(rows)), rows.base_weights)

    @cached_property
    def _designs(self) -> RowDesigns:
        held = tuple(line.design for line in self.found.lines)
        return RowDesigns(self.found.observations, self.found.nodes, held)

    def loglik(self, rows: Rows, draws: Draws) -> np.ndarray:
        """Evaluate the log-density of rows at draws by their predictors, (n_rows, n_draws)."""
        at, here, m = coefficient_draws(self.found, draws), self.of(rows), self.found.n_shared
        etas = [line.at(at) + line.offset for line in here.lines]
        return here.found.density(at[:, :m], etas, here.place, len(rows)).T


def find_seen_rows(loglik: LogLikelihood) -> SeenRows:
    """Find through which few numbers the rows see the free variables, see `find_predictors`.

    For rows elsewhere the template tells it, and some of them are compared with the model.

    Raises
    ------
    UnsupportedModelError
        If there are more than four numbers, or one that is not affine.
    InvalidDataError
        If a design matrix or an offset is not finite.
    """
    found = find_predictors(loglik.observations)
    if loglik.source is loglik.in_memory:
        return HeldRows(found)
    read = ReadRows(found, loglik.source.place)
    compare_elsewhere(loglik, read.loglik)
    return read
