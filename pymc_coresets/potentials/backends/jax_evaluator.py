"""Potentials by JAX, on its default device, where rows are kept between looks if they fit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from pymc_coresets.compat.jax_api import device, device_memory, in_double, placed
from pymc_coresets.potentials.backends.jax_kernel import JaxKernel
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.passes import CandidateRule, Look
from pymc_coresets.rows.values import Rows

_LOOK_ROWS = 2**17  # of a block: as many as a chunk of a file has
_CPU_ENTRIES = 2**17  # of potentials that exist together: in the cache of a core

_LEAST, _LEAST_DRAWS = 64, 8
_SHARE = 2  # of the device's memory: half of it is for rows
_HOST_BYTES = 2**28  # where the device is the processor
_DEVICE_ENTRIES = 2**24  # 128 MB: enough to keep a device busy


def entries_together(on_processor: int) -> int:
    """Return how many entries of a block's largest array exist together.

    Parameters
    ----------
    on_processor : int
        Where the device is the processor: as many as its caches hold.

    Examples
    --------
    >>> entries_together(2**17) in {2**17, 2**24}
    True
    """
    return on_processor if device().platform == "cpu" else _DEVICE_ENTRIES


def padded(n_rows: int, steps: int = 8, least: int = _LEAST) -> int:
    """Return the number of rows of the next larger block.

    Few numbers occur, so that little is compiled: `steps` for each power of two.  With 8 of them,
    at most an eighth of the computed rows is padding.

    Examples
    --------
    >>> [padded(n, 1) for n in (1, 64, 65, 1_000)], padded(1_000), padded(600)
    ([64, 64, 128, 1024], 1024, 640)
    """
    size = max(n_rows, least)
    unit = 2 ** (size - 1).bit_length() // (2 * steps)
    return -(-size // unit) * unit


def n_parts(size: int, width: int, on_processor: int = _CPU_ENTRIES) -> int:
    """Return into how many parts of equally many rows to divide a block.

    Parameters
    ----------
    size : int
        Number of rows of the block.
    width : int
        How many numbers are computed for each row.
    on_processor : int, default 2**17
        See `entries_together`.

    Examples
    --------
    >>> n_parts(2**17, 2**11) in {2**4, 2**11}
    True
    """
    parts, most = 1, entries_together(on_processor)
    while size // parts * width > most and size % (2 * parts) == 0:
        parts *= 2
    return parts


def _padded_draws(n_draws: int) -> int:
    return padded(n_draws, 1, _LEAST_DRAWS)


class DeviceRows:
    """The arrays of blocks of rows on the device.

    A padded block repeats its last row, whose values every operation accepts, with weight 0.

    Parameters
    ----------
    keep : bool
        Whether blocks come again: they then stay on the device, up to half of its memory.

    Examples
    --------
    >>> rows = Rows(np.arange(2), np.ones(2), (np.array([3.0, 5.0]),))
    >>> [x], weights = DeviceRows(keep=False).block(rows, [0], 4)
    >>> x.tolist(), weights.tolist()
    ([3.0, 5.0, 5.0, 5.0], [1.0, 1.0, 0.0, 0.0])
    """

    def __init__(self, *, keep: bool) -> None:
        self._keep, self._lock = keep, Lock()
        self._kept: dict[tuple[int, ...], Any] = {}
        self._room: int | None = None

    def block(self, rows: Rows, which: Sequence[int], size: int) -> tuple[list[Any], Any]:
        """Return some arrays of the rows, and their base weights, padded to `size` rows."""
        arrays = [self._array(rows, number, size) for number in which]
        return arrays, self._array(rows, -1, size)

    def _array(self, rows: Rows, number: int, size: int) -> Any:  # noqa: ANN401
        # Blocks of one source are known by where they begin and end.
        key = (int(rows.positions[0]), int(rows.positions[-1]), size, number)
        found = self._kept.get(key)
        if found is None:
            found = placed(_extended(rows, number, size))
            if self._keep:
                self._store(key, found)
        return found

    def _store(self, key: tuple[int, ...], array: Any) -> None:  # noqa: ANN401
        with self._lock:
            if self._room is None:
                memory = device_memory()
                self._room = _HOST_BYTES if memory is None else memory // _SHARE
            if key not in self._kept and array.nbytes <= self._room:
                self._room -= array.nbytes
                self._kept[key] = array


def _extended(rows: Rows, number: int, size: int) -> np.ndarray:
    array = rows.base_weights if number < 0 else rows.arrays[number]
    return _lengthened(array, size, np.zeros(1) if number < 0 else array[-1:])


def _lengthened(array: np.ndarray, size: int, last: np.ndarray) -> np.ndarray:
    if len(array) == size:
        return np.ascontiguousarray(array)
    return np.concatenate([array, np.repeat(last, size - len(array), axis=0)])


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
        return 1 << max(
            6, (entries_together(_CPU_ENTRIES) // _padded_draws(n_draws)).bit_length() - 1
        )

    def look_rows(self, n_draws: int) -> int:  # noqa: ARG002 - of the protocol
        """See `Evaluator`: whatever the number of draws, so that the same blocks stay."""
        return _LOOK_ROWS

    def at(self, given: Sequence[np.ndarray]) -> "_DeviceAtDraws":
        """See `Evaluator`."""
        return _DeviceAtDraws(self, list(given))

    def slopes(self, space: Unconstrained) -> "_DeviceSlopes":
        """See `Evaluator`."""
        return _DeviceSlopes(self, self.kernel.slopes(space))


@dataclass(frozen=True, eq=False)
class _DeviceAtDraws:
    evaluator: JaxEvaluator
    given: list[np.ndarray]

    @cached_property
    def _placed(self) -> list[Any]:
        return [placed(array) for array in self.given]

    @cached_property
    def _padded(self) -> list[Any]:
        """The draws and the last one again, so that few numbers of them occur."""
        size = _padded_draws(len(self.given[0]))
        return [placed(_lengthened(array, size, array[-1:])) for array in self.given]

    def values(self, rows: Rows) -> np.ndarray:
        kernel, size = self.evaluator.kernel, padded(len(rows), 1)
        with in_double():
            # These rows are some of the source's, in any order: nothing of them is kept.
            arrays, _ = DeviceRows(keep=False).block(rows, kernel.arrays, size)
            found = kernel.values(self._padded, arrays, n_rows=size)
        return np.asarray(found, dtype=np.float64)[: len(self.given[0]), : len(rows)]

    def look(self, rows: Rows, wanted: CandidateRule) -> Look:
        kernel, size = self.evaluator.kernel, padded(len(rows))
        parts = n_parts(size, len(self.given[0]))
        with in_double():
            arrays, weights = self.evaluator.rows.block(rows, kernel.arrays, size)
            total, norms = kernel.look(self._placed, arrays, weights, n_parts=parts)
            norms = np.asarray(norms)[: len(rows)] if wanted.n_candidates else None
        return Look.of_sums(np.asarray(total), norms, rows, wanted)


@dataclass(frozen=True, eq=False)
class _DeviceSlopes:
    evaluator: JaxEvaluator
    function: Callable[..., Any]
    size: int = _LOOK_ROWS

    def at(self, points: np.ndarray) -> Callable[[Rows], tuple[np.ndarray, np.ndarray]]:
        with in_double():
            given = placed(points)

        def slopes(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
            kernel, size = self.evaluator.kernel, padded(len(rows))
            parts = n_parts(size, len(points))
            with in_double():
                arrays, weights = self.evaluator.rows.block(rows, kernel.arrays, size)
                values, gradients = self.function(given, arrays, weights, n_parts=parts)
                return np.asarray(values), np.asarray(gradients)

        return slopes
