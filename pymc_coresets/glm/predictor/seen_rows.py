"""Predictors of any rows: those that the model holds, and those that are read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock

import numpy as np
from pytensor.graph import Variable

from pymc_coresets.glm.predictor.affine import Matrix, affine_map, designs_of, joined
from pymc_coresets.glm.predictor.predictors import LinearPredictor, Predictors, RowsInMemory
from pymc_coresets.glm.predictor.row_graph import RowGraph, row_graph_of
from pymc_coresets.numerics import rows_at_once
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.observations import Observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.values import Rows

_ONE_AT_A_TIME = Lock()  # for functions that reuse their output buffers
#: Fewest and most rows of a block, see `SeenRows.block_rows`.
_BLOCK_ROWS = (64, 2**17)


@dataclass(frozen=True, eq=False)
class SeenRows:
    """Predictors of any rows of some data.

    Parameters
    ----------
    found : Predictors
        Predictors of the rows that the model holds.
    elsewhere : bool, default False
        Whether rows are read, and their designs computed from their data by the same rules on
        demand, without compilation for each block.
    where : callable, optional
        Returns the location of a row, for messages; other processes report its number only.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.finding import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(3.0))
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("b") * x, observed=[0, 1, 1])
    >>> observations = find_observations(model)
    >>> some = LogLikelihood(observations).in_memory.take(np.array([2]))
    >>> seen = SeenRows(find_linear_predictor(observations), elsewhere=True)
    >>> seen.of(some).predictors[0].design
    array([[2.]])
    """

    found: Predictors
    elsewhere: bool = False
    where: Callable[[int], str] = "row {:,}".format

    def __getstate__(self) -> dict[str, object]:
        return {"found": self.found, "elsewhere": self.elsewhere}  # nothing compiled, and no rows

    def block_rows(self, width: int) -> int:
        """Return the number of rows of a block, given the numbers computed per row.

        Blocks of rows in memory, which are not copied, fit into the cache; designs of rows that
        are read may take 32 MB.
        """
        least, most = _BLOCK_ROWS
        if self.elsewhere:
            width = max(self.found.entries_a_row, width)
        else:
            most = max(least, most // 4)
        return int(np.clip(2 ** max(0, rows_at_once(width).bit_length() - 1), least, most))

    def of(self, rows: Rows) -> RowsInMemory:
        """Return the predictors of some rows.

        Raises
        ------
        InvalidDataError
            If a design matrix or an offset is not finite.
        """

        def where(number: int) -> str:
            return self.where(int(rows.positions[number]))

        if not self.elsewhere:
            which = self.found.observations.numbers_of(rows.positions)
            return RowsInMemory(self.found, which, rows.case_weights, where)
        arrays = _placed(rows, self.found.observations)
        here = replace(
            self.found,
            predictors=tuple(self._predictors(arrays, len(rows))),
            density=self.found.density.of_rows(arrays),
        )
        here.refuse_not_finite(where)
        return RowsInMemory(here, np.arange(len(rows)), rows.case_weights, where)

    def _predictors(
        self, arrays: dict[Variable, np.ndarray], n_rows: int
    ) -> Iterator[LinearPredictor]:
        with _ONE_AT_A_TIME:  # compiled functions reuse their output buffers
            graph, nodes, compute = self._graph
            computed = compute(n_rows, *arrays.values())
        values: dict[Variable, np.ndarray] = {
            self.found.observations.n_rows: np.asarray(n_rows),
            **arrays,
            **dict(zip(graph.computed, computed, strict=True)),
        }
        here = graph.of_rows(values)
        held = iter(self.found.predictors)
        for node, below in zip(self.found.nodes, nodes, strict=True):
            for columns, offset in designs_of(node, here, n_rows):
                predictor, design = next(held), joined([columns[v] for v in below])
                own = LinearPredictor(predictor.columns, _like(predictor.design, design), offset)
                yield own.in_widths(own.columns) if self.found.is_quadratic else own

    @cached_property
    def _graph(self) -> tuple[RowGraph, list[list[Variable]], Callable[..., list[np.ndarray]]]:
        """Graph of the held rows, coefficients of each predictor, and computed variables."""
        observations = self.found.observations
        graph = row_graph_of(observations)
        nodes = [list(affine_map(v, graph).columns) for v in self.found.nodes]
        graph.computed = list(dict.fromkeys(graph.computed))
        placeholders = [row.placeholder for row in observations.rows]
        compute = numpy_function([observations.n_rows, *placeholders], graph.computed)
        return graph, nodes, compute


def _placed(rows: Rows, observations: Observations) -> dict[Variable, np.ndarray]:
    """Return the arrays of rows by their placeholders, with the rows along the axes of these."""
    return {
        row.placeholder: np.ascontiguousarray(np.moveaxis(array, 0, row.axis))
        for row, array in zip(observations.rows, rows.arrays, strict=True)
    }


def _like(held: Matrix, design: Matrix) -> Matrix:
    """Keep all blocks dense or all sparse, since their shares of zeros are similar."""
    if isinstance(held, np.ndarray):
        return design if isinstance(design, np.ndarray) else design.toarray()
    return type(held)(design)


def seen_rows_of(loglik: LogLikelihood, find: Callable[[Observations], Predictors]) -> SeenRows:
    """Find the predictors of the rows.

    For rows outside memory they come from prototypes, and some rows are compared with the model.

    Parameters
    ----------
    loglik : LogLikelihood
    find : callable
        `find_predictors` or `find_linear_predictor`.

    Raises
    ------
    UnsupportedModelError
        If the predictors are not found, or rows outside memory differ.
    InvalidDataError
        If a design matrix or an offset is not finite.
    """
    found = find(loglik.observations)
    if loglik.source is loglik.in_memory:
        return SeenRows(found)
    seen = SeenRows(found, elsewhere=True, where=loglik.source.place)
    n = loglik.n_rows
    rows = loglik.source.at(np.union1d(np.arange(n)[:100], np.arange(n)[-100:]))
    seen.of(rows).compare(_placed(rows, loglik.observations))
    return seen
