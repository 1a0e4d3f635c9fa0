"""The result of a method: weighted rows, the history of its steps, and why it stopped."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

import numpy as np

from pymc_coresets.display import counted
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Vector

type Columns = Mapping[str, np.ndarray]


class Status(Enum):
    """Why a method stopped; the value is a sentence for the user.

    Examples
    --------
    >>> Status.SIZE_REACHED.value
    'The coreset has the wanted number of weights.'
    """

    EXACT = "The coreset has all distinct rows: its posterior is exact."
    UNION = "The coreset has all rows of the merged coresets."
    SIZE_REACHED = "The coreset has the wanted number of weights."
    SAMPLED = "Rows were drawn at random; one that was drawn several times has one weight."
    TOLERANCE_REACHED = "Tolerance met on held-out draws."
    CORRECTABLE = "Few rows for each dimension: importance weights correct the remaining error."
    OPTIMAL = "No other row brings the coreset closer to the full data."
    NO_PROGRESS = "The last step no longer improved the objective."
    ITERATION_LIMIT = "The method used all of its steps."
    OUT_OF_TIME = "The time budget is used up; this is the coreset so far."
    SAMPLING_FAILED = "The sampler failed; this is the coreset so far."
    INTERRUPTED = "Interrupted by the user; this is the coreset so far."


@dataclass(frozen=True, kw_only=True)
class Progress:
    """State of a run after a step; the callback of `solve` receives one per step.

    Parameters
    ----------
    size : int
        Number of positive weights.
    objective, heldout_objective : float
        ``||L - L(w)||^2`` in nats, on the draws that choose the weights and on held-out draws
        (nan if there are none).
    seconds : float
        Wall time since the start.
    pareto_khat : float
        Pareto k-hat of the importance ratios of the full posterior over the coreset's; this and the
        next two are nan for methods that do not draw from the coreset's posterior.
    kl, reverse_kl : float
        KL(coreset || full) and KL(full || coreset) in nats, from these ratios; the latter is nan
        if their tail is too heavy.
    n_passes, n_evaluations : float, int
        Evaluations of all rows, and of one row at one draw, so far.
    seconds_drawing, seconds_evaluating : float
        Wall time so far in the sampler, and in log-likelihoods.

    Examples
    --------
    >>> print(Progress(size=9, objective=0.5, heldout_objective=0.7, seconds=0.1))
    9 rows, 0.7 nats
    """

    size: int
    objective: float
    heldout_objective: float
    seconds: float
    pareto_khat: float = math.nan
    kl: float = math.nan
    reverse_kl: float = math.nan
    n_passes: float = 0.0
    n_evaluations: int = 0
    seconds_drawing: float = 0.0
    seconds_evaluating: float = 0.0

    def __str__(self) -> str:
        note = counted(self.size, "row")
        if math.isfinite(self.heldout_objective):
            note += f", {self.heldout_objective:.2g} nats"
        return note if math.isnan(self.pareto_khat) else f"{note}, k-hat {self.pareto_khat:.2f}"

    @property
    def best_estimate(self) -> float:
        """The held-out objective, or that of the draws that chose rows if none are held out."""
        held_out = not math.isnan(self.heldout_objective)
        return self.heldout_objective if held_out else self.objective


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """Weighted rows that represent all rows, together with a quadratic if there is one.

    Parameters
    ----------
    rows : Rows
        With their data.
    weights : ndarray of float64
        One for each row, at least 0: the number of rows of the data that it stands for, its case
        weight included.
    quadratic : object, optional
        Quadratic term of the log-likelihood, in addition to the rows.

    Examples
    --------
    >>> Selection(rows=Rows(np.arange(3), np.ones(3)), weights=np.array([0.0, 4.0, 2.0])).size
    2
    """

    rows: Rows
    weights: Vector
    quadratic: Any = None

    @property
    def size(self) -> int:
        """Number of positive weights."""
        return int(np.count_nonzero(self.weights))

    @property
    def support(self) -> "Selection":
        """The rows of positive weight."""
        kept = np.flatnonzero(self.weights > 0)
        return Selection(
            rows=self.rows.take(kept), weights=self.weights[kept], quadratic=self.quadratic
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Solution(Selection):
    """The weighted rows that a method chose.

    Parameters
    ----------
    rows, weights, quadratic
        See `Selection`; all weights are positive.
    history : mapping of str to ndarray
        The steps, see `History.columns`.
    status : Status
        Why the method stopped.
    objective : float
        Var(log r) of these weights, in nats, on held-out draws if there are any; nan if not
        measured.  It estimates the divergence if these are draws of the coreset's own posterior.
    proposal : object, optional
        Draws with the log-ratios of the full posterior over their own density, if available.
    log_ratios : ndarray of shape (n_draws,), optional
        Of the full posterior over the coreset's, in nats, at held-out draws of the latter, if the
        method measured them.
    draws : object, optional
        These draws.
    certificate : object, optional
        The `Certificate` from these ratios.
    modes : object, optional
        Modes of the full posterior, if searched for.
    is_uninformative : bool
        Whether the log-likelihood of all rows is constant at these draws, as in the tail of an
        improper posterior.

    Examples
    --------
    >>> rows = Rows(np.array([4]), np.ones(1))
    >>> Solution.chosen(rows, np.array([10.0]), Status.OPTIMAL, objective=0.02).objective
    0.02
    >>> Solution.sampled(rows, np.array([10.0])).status.value
    'Rows were drawn at random; one that was drawn several times has one weight.'
    """

    history: Columns
    status: Status
    objective: float
    proposal: Any = None
    log_ratios: Vector | None = None
    draws: Any = None
    certificate: Any = None
    modes: Any = None
    is_uninformative: bool = False

    @classmethod
    def chosen(
        cls, rows: Rows, weights: Vector, status: Status, objective: float = math.nan
    ) -> "Solution":
        """Return rows with weights that a method chose without steps.

        Parameters
        ----------
        rows : Rows
            Such as ``candidates.take(indices)``, with increasing indices.
        weights : ndarray of float64
            One for each row, positive: the number of rows of the data that it stands for.
        status : Status
            Why the method stopped.
        objective : float, optional
            Its estimate of the divergence in nats, at draws that did not choose the rows; by
            default there is none.
        """
        return History().solution(Selection(rows=rows, weights=weights), status, objective)

    @classmethod
    def sampled(cls, rows: Rows, weights: Vector) -> "Solution":
        """Return rows that were drawn at random, without measurement."""
        return cls.chosen(rows, weights, Status.SAMPLED)

    def of(self, candidates: Rows) -> "Solution":
        """Return the solution with the rows themselves instead of numbers of candidates."""
        return replace(self, rows=candidates.take(self.rows.positions))


def unwatched(step: Progress) -> None:
    """Show nothing of a run."""
    del step


class History:
    """The steps of a run so far, and their cost: evaluations, passes over the data, seconds.

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
    >>> history.columns["size"]
    array([3])
    """

    def __init__(self, callback: Callable[[Progress], object] = unwatched) -> None:
        self._callback, self._began = callback, time.perf_counter()
        self._costs: dict[str, Any] = {"n_evaluations": 0, "n_passes": 0.0}
        self._costs |= {"seconds_drawing": 0.0, "seconds_evaluating": 0.0}
        self.steps: list[Progress] = []

    def add(self, *, call: bool = True, **measured: Any) -> Progress:  # noqa: ANN401
        """Add a step, with those fields of a `Progress` that measure its accuracy."""
        seconds = time.perf_counter() - self._began
        self.steps.append(Progress(seconds=seconds, **measured, **self._costs))
        if call:
            self._callback(self.steps[-1])
        return self.steps[-1]

    def drawing(self) -> AbstractContextManager[None]:
        """Count the time within the block as time in the sampler."""
        return self._timed("seconds_drawing")

    def evaluating(self, n_rows: int, n_draws: int, *, of: int) -> AbstractContextManager[None]:
        """Count evaluations of some rows `of` all at some draws, and the time within the block."""
        self._costs["n_evaluations"] += n_rows * n_draws
        self._costs["n_passes"] += n_rows / of
        return self._timed("seconds_evaluating")

    @property
    def columns(self) -> Columns:
        """An array for each field of a `Progress`, with one entry per step.

        The first entry is the start: no rows, or those from whose posterior the first draws come.
        Methods that draw rows at random have no steps.
        """
        return {
            field.name: np.array(
                [getattr(step, field.name) for step in self.steps],
                dtype=np.int64 if field.type is int else np.float64,
            )
            for field in fields(Progress)
        }

    def solution(
        self,
        chosen: Selection,
        status: Status,
        objective: float,
        **found: Any,  # noqa: ANN401
    ) -> Solution:
        """Return weighted rows with these steps and further results, see `Solution`."""
        return Solution(
            rows=chosen.rows,
            weights=chosen.weights,
            quadratic=chosen.quadratic,
            history=self.columns,
            status=status,
            objective=objective if math.isfinite(objective) else math.nan,
            **found,
        )

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._costs[name] += time.perf_counter() - start
