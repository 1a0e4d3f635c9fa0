"""The steps of a run so far, how good they were, and what they cost."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Vector
from pymc_coresets.solving.solution import Progress, Solution, Status, Trace


class History:
    """The steps of a run so far, and what they cost: evaluations, passes over the data, seconds.

    Parameters
    ----------
    callback : callable, optional
        Called with a `Progress` after every step.

    Attributes
    ----------
    steps : list of Progress

    Examples
    --------
    >>> history = History()
    >>> with history.evaluating(10, 4, of=20):
    ...     pass
    >>> step = history.add(size=3, objective=0.5, heldout_objective=0.6)
    >>> step.n_evaluations, step.n_passes
    (40, 0.5)
    """

    def __init__(self, callback: Callable[[Progress], object] | None = None) -> None:
        self._callback, self._began = callback, time.perf_counter()
        self._costs: dict[str, Any] = {"n_evaluations": 0, "n_passes": 0.0}
        self._costs |= {"seconds_drawing": 0.0, "seconds_evaluating": 0.0}
        self.steps: list[Progress] = []

    def add(self, *, call: bool = True, **measured: Any) -> Progress:  # noqa: ANN401
        """Add a step, with those fields of a `Progress` that say how good it is."""
        seconds = time.perf_counter() - self._began
        self.steps.append(Progress(seconds=seconds, **measured, **self._costs))
        if self._callback is not None and call:
            self._callback(self.steps[-1])
        return self.steps[-1]

    def drawing(self) -> AbstractContextManager[None]:
        """Count the time of what is done within as time in the sampler."""
        return self._timed("seconds_drawing")

    def evaluating(self, n_rows: int, n_draws: int, *, of: int) -> AbstractContextManager[None]:
        """Count potentials of some rows `of` all at some draws, and the time within."""
        self.count(n_rows, n_draws, of=of)
        return self._timed("seconds_evaluating")

    def count(self, n_rows: int, n_draws: int, *, of: int) -> None:
        """Count potentials whose time is counted elsewhere."""
        self._costs["n_evaluations"] += n_rows * n_draws
        self._costs["n_passes"] += n_rows / of

    def solution(
        self,
        rows: Rows,
        weights: Vector,
        status: Status,
        objective: float,
        **found: Any,  # noqa: ANN401
    ) -> Solution:
        """Return weighted rows with these steps, and what else was found, see `Solution`."""
        return Solution(
            rows=rows,
            weights=weights,
            history=Trace.of(self.steps),
            status=status,
            objective=objective if math.isfinite(objective) else math.nan,
            **found,
        )

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._costs[name] += time.perf_counter() - start
