"""Potentials by JAX, on its default device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_coresets.compat.jax_api import in_double, jnp
from pymc_coresets.potentials.backends.device_rows import DeviceRows, entries_together, padded
from pymc_coresets.potentials.backends.jax_kernel import JaxKernel
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.passes import CandidateRule, LookPart
from pymc_coresets.rows.values import Rows

_LOOK_ROWS = 2**17  # of a block: as many as a chunk of a file has
_CPU_ENTRIES = 2**17  # of potentials that exist together: in the cache of a core


@dataclass(frozen=True, eq=False)
class JaxEvaluator:
    """Evaluates blocks of rows on the device.

    Parameters
    ----------
    kernel : JaxKernel
        What is compiled; sources share it.
    rows : DeviceRows
        The rows of one source.
    """

    kernel: JaxKernel
    rows: DeviceRows

    def matrix_rows(self, n_draws: int) -> int:
        """See `Evaluator`."""
        return 1 << max(6, (entries_together(_CPU_ENTRIES) // n_draws).bit_length() - 1)

    def look_rows(self, n_draws: int) -> int:  # noqa: ARG002 - of the protocol
        """See `Evaluator`: whatever the number of draws, so that the same blocks stay."""
        return _LOOK_ROWS

    def at(self, given: Sequence[np.ndarray]) -> "_DeviceAtDraws":
        """See `Evaluator`."""
        with in_double():
            return _DeviceAtDraws(self, [jnp.asarray(array) for array in given])

    def slopes(self, space: Unconstrained) -> "_DeviceSlopes":
        """See `Evaluator`."""
        return _DeviceSlopes(self, self.kernel.slopes(space))


@dataclass(frozen=True, eq=False)
class _DeviceAtDraws:
    evaluator: JaxEvaluator
    given: list[Any]

    def values(self, rows: Rows) -> np.ndarray:
        kernel, size = self.evaluator.kernel, padded(len(rows), 1)
        with in_double():
            # These rows are some of the source's, in any order: nothing of them is kept.
            arrays, _ = DeviceRows(keep=False).block(rows, kernel.arrays, size)
            found = kernel.values(self.given, arrays, n_rows=size)
        return np.asarray(found, dtype=np.float64)[:, : len(rows)]

    def look(self, rows: Rows, wanted: CandidateRule) -> LookPart:
        kernel, size = self.evaluator.kernel, padded(len(rows))
        n_parts = _n_parts(size, len(self.given[0]))
        with in_double():
            arrays, weights = self.evaluator.rows.block(rows, kernel.arrays, size)
            total, norms = kernel.look(self.given, arrays, weights, n_parts=n_parts)
            norms = np.asarray(norms)[: len(rows)] if wanted.n_candidates else None
        return LookPart.of_sums(np.asarray(total), norms, rows, wanted)


@dataclass(frozen=True, eq=False)
class _DeviceSlopes:
    evaluator: JaxEvaluator
    function: Callable[..., Any]
    size: int = _LOOK_ROWS

    def at(self, points: np.ndarray) -> Callable[[Rows], tuple[np.ndarray, np.ndarray]]:
        with in_double():
            given = jnp.asarray(points)

        def slopes(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
            kernel, size = self.evaluator.kernel, padded(len(rows))
            n_parts = _n_parts(size, len(points))
            with in_double():
                arrays, weights = self.evaluator.rows.block(rows, kernel.arrays, size)
                values, gradients = self.function(given, arrays, weights, n_parts=n_parts)
                return np.asarray(values), np.asarray(gradients)

        return slopes


def _n_parts(size: int, n_draws: int) -> int:
    """Return into how many parts of equally many rows to divide a block."""
    n_parts, most = 1, entries_together(_CPU_ENTRIES)
    while size // n_parts * n_draws > most and size % (2 * n_parts) == 0:
        n_parts *= 2
    return n_parts
