"""Predictors of any rows, from their data alone: for rows that are read block by block."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from pymc_coresets.compat.pytensor_api import Variable
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.golden import evenly_spread
from pymc_coresets.glm.predictor.affine import Matrix, joined
from pymc_coresets.glm.predictor.affine_rules import affine_map
from pymc_coresets.glm.predictor.linear import design_of, row_graph_of
from pymc_coresets.glm.predictor.row_graph import RowGraph
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.observations import Observations
from pymc_coresets.rows.values import Rows

__all__ = ["RowDesigns", "compare_elsewhere", "placed"]

_ONE_AT_A_TIME = Lock()
_JITTERS = (0.0, 0.3)  # on the unconstrained scale
_N_COMPARED = 100  # of the first and of the last rows


@dataclass(frozen=True, eq=False)
class RowDesigns:
    """Design matrices and offsets of any rows, by the rules that hold for those of the model.

    Without compilation for each block.  A pickle holds nothing compiled.

    Parameters
    ----------
    observations : Observations
        Of the rows that the model holds.
    predictors : tuple of Variable
        In the graph of ``observations.loglik``.
    held : tuple of (ndarray or csr_array)
        Their design matrices for the rows that the model holds.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(3.0))
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("b") * x, observed=[0, 1, 1])
    >>> observations = find_observations(model)
    >>> found = find_linear_predictor(observations)
    >>> designs = RowDesigns(observations, (found.node,), (found.design,))
    >>> designs.of(LogLikelihood(observations).in_memory.take(np.array([2])))
    [(array([[2.]]), array([0.]))]
    """

    observations: Observations
    predictors: tuple[Variable, ...]
    held: tuple[Matrix, ...]

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def of(self, rows: Rows) -> list[tuple[Matrix, np.ndarray]]:
        """Compute the design matrix and the offset of each predictor, for some rows."""
        arrays = placed(rows, self.observations)
        with _ONE_AT_A_TIME:  # what is compiled keeps its results until the next call
            graph, nodes, compute = self._graph
            computed = compute(len(rows), *arrays.values())
        values: dict[Variable, np.ndarray] = {self.observations.n_rows: np.asarray(len(rows))}
        values |= arrays | dict(zip(graph.computed, computed, strict=True))
        here, found = graph.of_rows(values), list[tuple[Matrix, np.ndarray]]()
        for predictor, own, held in zip(self.predictors, nodes, self.held, strict=True):
            columns, offset = design_of(predictor, here, len(rows))
            found.append((_like(held, joined([columns[node] for node in own])), offset))
        return found

    @cached_property
    def _graph(self) -> tuple[RowGraph, list[list[Variable]], Callable[..., list[np.ndarray]]]:
        """The graph of the held rows, the coefficients of each predictor, and what it computes."""
        graph = row_graph_of(self.observations)
        nodes = [list(affine_map(v, graph).blocks) for v in self.predictors]
        graph.computed = list(dict.fromkeys(graph.computed))
        placeholders = [row.placeholder for row in self.observations.rows]
        compute = numpy_function([self.observations.n_rows, *placeholders], graph.computed)
        return graph, nodes, compute


def placed(rows: Rows, observations: Observations) -> dict[Variable, np.ndarray]:
    """Return the arrays of rows by their placeholders, with the rows along the axes of these."""
    return {
        row.placeholder: np.ascontiguousarray(np.moveaxis(array, 0, row.axis))
        for row, array in zip(observations.rows, rows.arrays, strict=True)
    }


def _like(held: Matrix, design: Matrix) -> Matrix:
    """Keep all blocks dense, or all sparse: as many entries are 0 in one as in another."""
    if isinstance(held, np.ndarray):
        return design if isinstance(design, np.ndarray) else design.toarray()
    return type(held)(design)


def compare_elsewhere(loglik: LogLikelihood, evaluate: Callable[[Rows, Draws], np.ndarray]) -> None:
    """Compare the log-density by predictors with the model's own, at rows of either end.

    Parameters
    ----------
    loglik : LogLikelihood
    evaluate : callable
        Returns the log-density of rows at draws by the predictors, (n_rows, n_draws).

    Raises
    ------
    UnsupportedModelError
        If they differ.
    """
    n, slack = loglik.n_rows, loglik.slack
    some = np.union1d(np.arange(n)[:_N_COMPARED], np.arange(max(0, n - _N_COMPARED), n))
    rows = loglik.source.at(some)
    space = loglik.observations.space
    jitter = (2.0 * evenly_spread(space.n_dims) - 1.0) * np.array(_JITTERS)[:, None]
    draws = space.constrain(space.start + jitter)
    values, expected = evaluate(rows, draws), loglik.matrix(draws, rows, finite=False)
    close = np.isclose(values, expected, rtol=1e-6 + slack, atol=1e-8 + slack)
    wrong = np.isfinite(expected) & ~close
    if wrong.any():
        i, s = np.argwhere(wrong)[0]
        raise UnsupportedModelError(
            f"The log-likelihood of {loglik.source.place(int(rows.positions[i]))} is "
            f"{values[i, s]} by the linear predictor, but {expected[i, s]} by the model: its "
            "structure is not understood. Please report the model, and use a method for general "
            "models."
        )
