"""Evaluate the potentials of any rows at any draws: compiled once, in blocks that fit the cache."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import DTypeLike
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import graph_inputs
from threadpoolctl import threadpool_limits

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.potentials.vectormath import vector_mode
from pymc_coresets.reading.draws import Draws, DrawsLike
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import RowArray

__all__ = ["LogLikelihood", "Moments"]

_BLOCK_ENTRIES = 2**17  # of float64: a block and its temporaries stay in a core's own cache
_ROUNDING = 16 * np.finfo(float).eps


@dataclass(frozen=True, eq=False)
class Moments:
    """What one pass over the data tells of the potentials at S draws.

    Attributes
    ----------
    total : ndarray of shape (n_draws,)
        Sum of u_n f_n(theta_s) over all rows, in nats.
    norms : ndarray of shape (n_obs,)
        Norm of each row's tangent vector: the standard deviation of f_n over the draws (0 where
        the base weight is 0).
    """

    total: np.ndarray
    norms: np.ndarray


class LogLikelihood:
    """The pointwise log-likelihood of a model's observations.

    Compiled once, at the first evaluation, for any number of rows and draws.  Time O(N S) times
    the cost of a likelihood term (2 to 10 ns an element for most models); memory as stated for
    each method, and no more.

    Parameters
    ----------
    observations : Observations
        What `find_observations` derived from the model.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, 1.0, observed=np.arange(3.0))
    >>> loglik = LogLikelihood(find_observations(model))
    >>> loglik.matrix({"mu": np.array([0.0, 1.0])}).round(3)
    array([[-0.919, -1.419],
           [-1.419, -0.919],
           [-2.919, -1.419]])
    """

    def __init__(self, observations: Observations) -> None:
        self.observations = observations

    def __getstate__(self) -> dict[str, Observations]:
        return {"observations": self.observations}  # what is compiled is compiled again

    @property
    def n_obs(self) -> int:
        """Number of observations N."""
        return self.observations.n_obs

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each free variable that the likelihood depends on."""
        return {name: v.type.shape for name, v in self._parameters.items()}

    def matrix(
        self,
        draws: DrawsLike,
        rows: np.ndarray | None = None,
        *,
        dtype: DTypeLike = np.float64,
        finite: bool = True,
    ) -> np.ndarray:
        """Evaluate f_n(theta_s), in nats, for some rows (or all) and all draws.

        Parameters
        ----------
        draws : Draws, DataTree, Dataset, or mapping of str to array_like
        rows : ndarray of int, optional
            Positions along the observation axis, in any order; all by default.
        dtype : {float64, float32}
            Of the result; it is computed in float64 all the same.
        finite : bool, default True
            Refuse values that are NaN or infinite.

        Returns
        -------
        ndarray of shape (n_rows, n_draws)
            In Fortran order: a draw is contiguous.

        Raises
        ------
        InvalidDataError
            If draws are missing, misshapen or not finite; or a value is, unless ``finite=False``.
        """
        draws = self._draws(draws)
        n_rows = self.n_obs if rows is None else len(rows)
        out = np.empty((draws.n_draws, n_rows), dtype=dtype)

        def store(block: slice, values: np.ndarray) -> None:
            out[:, block] = values

        for _ in self._each_block(store, draws, rows, finite=finite):
            pass
        return out.T

    def moments(
        self, draws: DrawsLike, base_weights: np.ndarray | None = None, *, finite: bool = True
    ) -> Moments:
        """Sum the potentials over all rows, and measure each row, in one pass.

        Memory O(N + S): the matrix is never held.  NaN or infinite values are refused, unless
        ``finite=False``.
        """
        draws = self._draws(draws)
        weights = np.ones(self.n_obs) if base_weights is None else base_weights
        rows = None if weights.all() else np.flatnonzero(weights)
        norms = np.zeros(self.n_obs)

        def reduce(block: slice, values: np.ndarray) -> np.ndarray:
            chosen = block if rows is None else rows[block]
            part: np.ndarray = values @ weights[chosen]
            norms[chosen] = _spread_in_place(values)
            return part

        parts = self._each_block(reduce, draws, rows, finite=finite)
        return Moments(sum(parts, start=np.zeros(draws.n_draws)), norms)

    def _each_block[T](
        self,
        use: Callable[[slice, np.ndarray], T],
        draws: Draws,
        rows: np.ndarray | None,
        *,
        finite: bool,
    ) -> Iterator[T]:
        """Give ``use(block of positions in rows, potentials (n_draws, n_block))`` in order.

        One thread a core evaluates a block and uses it, while it is in the core's cache.
        """
        n_rows = self.n_obs if rows is None else len(rows)
        step = max(64, _BLOCK_ENTRIES // draws.n_draws)
        parameters = self._parameter_arrays(draws)

        def work(start: int) -> T:
            block = slice(start, min(start + step, n_rows))
            chosen = block if rows is None else rows[block]
            return use(block, self._evaluate(parameters, chosen, finite=finite))

        pending = iter(range(0, n_rows, step))
        # The blocks are the parallel work: threads of BLAS inside them would only compete.
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(_n_cores()) as pool:
            yield from map(work, islice(pending, 1))  # compiles here, once
            queue = deque(pool.submit(work, start) for start in islice(pending, 2 * _n_cores()))
            while queue:
                result = queue.popleft().result()
                queue.extend(pool.submit(work, start) for start in islice(pending, 1))
                yield result

    def _draws(self, draws: DrawsLike) -> Draws:
        return Draws.of(draws, self.shapes)

    def _parameter_arrays(self, draws: Draws) -> list[np.ndarray]:
        return [
            np.ascontiguousarray(draws.values[name], dtype=v.type.dtype)
            for name, v in self._parameters.items()
        ]

    def _evaluate(
        self, parameters: list[np.ndarray], rows: np.ndarray | slice, *, finite: bool
    ) -> np.ndarray:
        n_rows = np.asarray(rows.stop - rows.start if isinstance(rows, slice) else len(rows))
        arrays = [np.ascontiguousarray(r.take(rows)) for r in self._rows]
        [values] = self._compiled(*parameters, n_rows, *arrays)
        if finite and not np.isfinite(values).all():
            self._explain_non_finite(values, rows)
        return values

    @cached_property
    def _inputs(self) -> set[Variable]:
        return set(graph_inputs([self.observations.loglik]))

    @cached_property
    def _parameters(self) -> dict[str, Variable]:
        return {n: v for n, v in self.observations.parameters.items() if v in self._inputs}

    @cached_property
    def _rows(self) -> list[RowArray]:
        return [r for r in self.observations.rows if r.placeholder in self._inputs]

    @cached_property
    def _compiled(self) -> Callable[..., Sequence[np.ndarray]]:
        obs = self.observations
        batched = {
            v: pt.tensor(dtype=v.type.dtype, shape=(None, *v.type.shape))
            for v in self._parameters.values()
        }
        n_draws = next(iter(batched.values())).shape[0]
        graph = vectorize_graph(obs.loglik, batched)
        if graph.type.ndim == 1:
            graph = pt.broadcast_to(graph, (n_draws, obs.n_rows))
        inputs = [*batched.values(), obs.n_rows, *(r.placeholder for r in self._rows)]
        function = pytensor.function(
            inputs, [graph], mode=vector_mode(), on_unused_input="ignore", trust_input=True
        )
        compiled: Callable[..., Sequence[np.ndarray]] = function.vm.jit_fn
        return compiled

    def non_finite_data(self, n: int) -> list[str]:
        """Name the row arrays that are NaN or infinite in row `n`."""
        row = np.array([n])
        arrays = (r for r in self._rows if r.values.dtype.kind == "f")
        return sorted({r.name for r in arrays if not np.isfinite(r.take(row)).all()})

    def _explain_non_finite(self, values: np.ndarray, rows: np.ndarray | slice) -> None:
        bad_draws, bad_rows = np.nonzero(~np.isfinite(values))
        n = np.arange(self.n_obs)[rows][bad_rows[0]]
        suspects = self.non_finite_data(n)
        raise InvalidDataError(
            f"The log-likelihood of observation {n} is {values[bad_draws[0], bad_rows[0]]} at draw "
            f"{bad_draws[0]} ({len(np.unique(bad_rows))} rows, {len(np.unique(bad_draws))} draws "
            "of a block). "
            + (f"Its data are not finite in {suspects}. " if suspects else "")
            + "Check the data there, or use a weighting distribution whose draws the data allow."
        )


def _n_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _spread_in_place(values: np.ndarray) -> np.ndarray:
    """Standard deviation over the draws (the first axis); 0 where it is rounding error."""
    with np.errstate(invalid="ignore"):  # of infinite values
        mean = values.mean(axis=0)
        values -= mean
        deviation = np.sqrt(np.einsum("sn,sn->n", values, values) / len(values))
    spread: np.ndarray = np.where(deviation > _ROUNDING * np.abs(mean), deviation, 0.0)
    return spread
