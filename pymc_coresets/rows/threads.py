"""A pass over all rows by the threads of this process."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import islice
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

from pymc_coresets.rows.passes import Pass
from pymc_coresets.rows.values import Rows

#: Rows that are worked on together, at least: a second or more of log-likelihoods, and eight
#: chunks, so that reading the one that two tasks share costs little.
TASK_ROWS = 2**20


def reduced_by_threads[T](work: Pass[T], blocks: Iterable[Rows], groups: Sequence[int]) -> T:
    """Add up what threads compute from blocks: within each group of rows, and then the groups.

    Sums of floating-point numbers depend on their order, so this is the order in every engine.

    Parameters
    ----------
    work : Pass
    blocks : iterable of Rows
        In order, each of ``work.size`` rows but for the last one of a group.
    groups : sequence of int
        Number of rows of each group.
    """
    with one_blas_thread():
        parts = in_threads(work.begin(), blocks)
        n_blocks = [-(-n_rows // work.size) for n_rows in groups]
        return work.joined(work.joined(islice(parts, number)) for number in n_blocks)


def in_threads[B, T](use: Callable[[B], T], blocks: Iterable[B]) -> Iterator[T]:
    """Yield the function of each block, in their order, computed in one thread per core.

    The first block is worked on alone, because that may compile.

    Examples
    --------
    >>> import numpy as np
    >>> list(in_threads(len, Rows(np.arange(5), np.ones(5)).blocks(2)))
    [2, 2, 1]
    """
    pending = iter(blocks)
    # The blocks are the parallel work: threads of BLAS inside them would only compete.
    with one_blas_thread(), ThreadPoolExecutor(n_cores()) as pool:
        yield from map(use, islice(pending, 1))
        queue = deque(pool.submit(use, block) for block in islice(pending, 2 * n_cores()))
        while queue:
            result = queue.popleft().result()
            queue.extend(pool.submit(use, block) for block in islice(pending, 1))
            yield result


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_lock = Lock()
_users = 0
_limits: Any = None


@cache
def _libraries() -> ThreadpoolController:
    # Looking for them reads the memory map of the process, which takes as long as many blocks.
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread, until the last of the threads that are in here has left.

    How many threads BLAS has belongs to the whole process, and decides over the last bits.
    """
    global _users, _limits  # noqa: PLW0603 - as BLAS has it
    with _lock:
        _users += 1
        if _users == 1:
            _limits = _libraries().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _limits is not None:
                _limits.restore_original_limits()
