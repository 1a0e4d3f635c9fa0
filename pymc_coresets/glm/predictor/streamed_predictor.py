"""The linear predictor of rows that are read chunk by chunk."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from pymc_coresets.compat.pytensor_api import TensorVariable
from pymc_coresets.glm.predictor.linear import LinearPredictor, find_linear_predictor
from pymc_coresets.glm.predictor.model_parts import (
    BlockWork,
    PredictorBlock,
    coefficient_draws,
    refuse_not_finite,
)
from pymc_coresets.glm.predictor.row_designs import RowDesigns, compare_elsewhere, placed
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.observations import Observations
from pymc_coresets.rows.engines.executors import Task
from pymc_coresets.rows.passes import RowBlocks
from pymc_coresets.rows.streamed import AbsentRows, StreamedRows
from pymc_coresets.rows.values import Rows, in_blocks

__all__ = ["PredictorRows", "StreamedPredictor"]

#: A generalised linear model of all rows of some data, wherever they lie.
type PredictorRows = LinearPredictor | StreamedPredictor

_BLOCK_ENTRIES = 2**22  # of the design matrix: 32 MB
_BLOCK_ROWS = (64, 2**17)  # at least and at most
_ELSEWHERE = AbsentRows(0, 0.0, "These rows are read by tasks.")


@dataclass(frozen=True, eq=False)
class StreamedPredictor:
    """A generalised linear model of rows that are read in blocks, whenever they are needed.

    What the predictor is made of is read from the rows that the model holds.  Design matrix and
    offset of a block are computed from its rows by the same rules, without compilation.

    Parameters
    ----------
    loglikelihood : LogLikelihood
        The potentials of the rows, from `likelihood_of_rows`.
    held : LinearPredictor
        That of the rows that the model holds.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets import open_rows
    >>> from pymc_coresets.potentials.from_rows import likelihood_of_rows
    >>> rows = open_rows({"x": np.arange(5.0), "y": np.array([0, 1, 1, 0, 1])})
    >>> with pm.Model() as model:
    ...     x, y = (pm.Data(name, rows.head(2)[name]) for name in ("x", "y"))
    ...     likelihood = pm.Bernoulli("likelihood", logit_p=pm.Normal("b") * x, observed=y)
    >>> loglik = likelihood_of_rows(model, rows, rng=np.random.default_rng(1))
    >>> [block] = StreamedPredictor.of(loglik).blocks()
    >>> block.found.design.ravel()
    array([0., 1., 2., 3., 4.])
    """

    loglikelihood: LogLikelihood
    held: LinearPredictor

    @classmethod
    def of(cls, loglikelihood: LogLikelihood) -> "StreamedPredictor":
        """Read the predictor from the rows that the model holds, and try it on some others.

        Raises
        ------
        UnsupportedModelError
            If the model is no generalised linear model.
        InvalidDataError
            If data are not finite.
        """
        held = find_linear_predictor(loglikelihood.observations)
        found = cls(loglikelihood, replace(held, backend=loglikelihood.backend))
        compare_elsewhere(loglikelihood, found._loglik)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # nothing compiled

    @property
    def observations(self) -> Observations:
        """The observations that the model holds."""
        return self.held.observations

    @property
    def names(self) -> tuple[str, ...]:
        """A label for each coefficient."""
        return self.held.names

    @property
    def coefficients(self) -> TensorVariable:
        """The coefficients, of shape (p,): a graph of ``observations.parameters``."""
        return self.held.coefficients

    @property
    def n_obs(self) -> int:
        """Number of rows N."""
        return self.loglikelihood.n_rows

    def blocks(self) -> Iterator[PredictorBlock]:
        """Read all rows, in blocks of at most 131 072 rows whose design matrix takes 32 MB."""
        for rows in self.loglikelihood.source.blocks(self.block_rows):
            yield self.block_of(rows)

    def of_parts[T](self, work: BlockWork[T], show: Callable[[int], None] | None) -> Iterator[T]:
        """Yield what is computed from each task of rows, in their order.

        By whoever works on the rows: threads, an executor or a cluster.  What a task yields does
        not depend on who that is.

        Parameters
        ----------
        work : callable
            From the blocks of a task to a result: pure, and of what can be pickled.
        show : callable, optional
            Called with the number of rows of each task that has come back.
        """
        source = self.loglikelihood.source
        assert isinstance(source, StreamedRows)  # from `likelihood_of_rows`
        lean = replace(self, loglikelihood=self.loglikelihood.reading(_ELSEWHERE))
        vars(lean)["_designs"] = self._designs  # compiled once, for threads
        for n_rows, part in source.of_tasks(partial(_worked, lean, work)):
            yield part
            if show is not None:
                show(n_rows)

    @property
    def block_rows(self) -> int:
        """Number of rows of a block."""
        design = self.held.design
        if isinstance(design, np.ndarray):
            width = design.shape[1]
        else:
            width = 1 + design.nnz // design.shape[0]
        most = _BLOCK_ENTRIES // max(1, width)
        return int(np.clip(2 ** max(0, most.bit_length() - 1), *_BLOCK_ROWS))

    # -- one block -----------------------------------------------------------------------------

    def block_of(self, rows: Rows, source: RowBlocks | None = None) -> PredictorBlock:
        """Compute the predictor of some rows from their data; `source` knows where they lie."""
        where = self.loglikelihood.source if source is None else source
        [(design, offset)] = self._designs.of(rows)
        arrays = placed(rows, self.observations)
        found = replace(
            self.held,
            design=design,
            offset=offset,
            link=self.held.link.of_rows([arrays[r.placeholder] for r in self.held.link.rows]),
            place=lambda n: where.place(int(rows.positions[n])),
        )
        refuse_not_finite(found.design, found.offset, found.names, found.place)
        weights = rows.base_weights
        return PredictorBlock(
            found=found,
            start=int(rows.positions[0]),
            weights=weights if (weights != 1).any() else None,
        )

    @cached_property
    def _designs(self) -> RowDesigns:
        return RowDesigns(self.observations, (self.held.node,), (self.held.design,))

    def _loglik(self, rows: Rows, draws: Draws) -> np.ndarray:
        found = self.block_of(rows).found
        eta = found.predictor(coefficient_draws(found, draws))
        return found.link.evaluate(eta.T, slice(None), len(rows), compiled=False).T


def _worked[T](part: StreamedPredictor, work: BlockWork[T], rows: StreamedRows, task: Task) -> T:
    blocks = in_blocks(map(rows.read, task.chunks), part.block_rows)
    return work((part.block_of(block, rows) for block in blocks), None)
