"""Rounds that propose weighted rows and measure them, and the best coreset of all of them."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from pymc_coresets.deadline import until
from pymc_coresets.exceptions import OutOfTimeError, SamplingError
from pymc_coresets.methods.loop import Measurement, is_close_call, rounds
from pymc_coresets.solving.solution import Selection, Status


class Best:
    """The best of several coresets at held-out draws, and whether it is good enough.

    Parameters
    ----------
    again : callable
        Measures a coreset at so many fresh draws; may return what is known of it, or raise
        `SamplingError`, if there are none.
    tolerance : float
        Divergence at which a coreset is good enough, in nats.
    goal : float
        Divergence at which no better one is looked for.  If it exceeds the tolerance, importance
        weights have to correct the rest.

    Attributes
    ----------
    measured : Measurement, or None
        The best so far.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.methods.loop import Measure
    >>> from pymc_coresets.reading.observations import find_observations
    >>> from pymc_coresets.rowlogp.evaluation import LogLikelihood
    >>> from pymc_coresets.sampling.sampler import CoresetSampler
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=[1.0, 2.0])
    >>> loglik = LogLikelihood(find_observations(model))
    >>> measure = Measure(CoresetSampler(loglik), np.random.default_rng(1))
    >>> best = Best(measure.at, tolerance=0.01, goal=0.008)
    >>> rows, weights = loglik.all_rows, np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> views = [measure.at(Selection(rows=rows, weights=w), 100) for w in weights]
    >>> [best.takes(view) for view in views], best.is_met()
    ([True, True, False], True)
    """

    def __init__(
        self,
        again: Callable[[Measurement, int], Measurement],
        *,
        tolerance: float,
        goal: float,
    ) -> None:
        self._again, self.tolerance, self.goal = again, tolerance, goal
        self.measured: Measurement | None = None
        self._confirmed: Measurement | None = None  # the last that no further draws are to decide

    @property
    def objective(self) -> float:
        """Its divergence in nats; infinite if there is none."""
        return math.inf if self.measured is None else self.measured.objective

    def takes(self, view: Measurement) -> bool:
        """Keep a coreset if it is the best so far."""
        if self.measured is not None and not view.objective < self.objective:
            return False
        self.measured = view
        return True

    def is_met(self) -> bool:
        """Whether it meets the goal, at more draws if it is a close call."""
        if self.objective > self.goal:
            return False
        self.confirm()
        return self.objective <= max(self.goal, self.tolerance)

    @property
    def met(self) -> Status:
        """The status of a run that has met the goal."""
        is_loose = self.goal > self.tolerance
        return Status.CORRECTABLE if is_loose else Status.TOLERANCE_REACHED

    def confirm(self) -> None:
        """Measure it again, at twice as many fresh draws, if it is a close call."""
        best = self.measured
        if best is None or best is self._confirmed:
            return
        if is_close_call(best, self.tolerance):
            with suppress(SamplingError):
                self.measured = self._again(best, 2 * len(best.own))
        self._confirmed = self.measured

    def concluded(self, status: Status, deadline: float) -> Status:
        """Confirm it at the end of a run, if there is time; return the status then."""
        if status is Status.INTERRUPTED:
            return status
        try:
            with until(deadline):
                self.confirm()
        except OutOfTimeError:
            return Status.OUT_OF_TIME
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        return status


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """What one round leaves to the next; the run ends if there is a status."""

    status: Status | None = None


@dataclass(frozen=True, eq=False)
class Rounds[P: Place, C: Selection]:
    """Rounds of a construction: rows are proposed, measured, and kept if they are the best so far.

    Parameters
    ----------
    propose : callable
        Chooses weighted rows.
    measure : callable
        Draws from their posterior, and evaluates all rows there.
    follow : callable
        Returns the next place, given this one, the rows, their measurement, and the divergence of
        the best ones before.
    best : Best
    """

    propose: Callable[[P], C]
    measure: Callable[[C], Measurement]
    follow: Callable[[P, C, Measurement, float], P]
    best: Best

    def once(self, place: P) -> P:
        """Return the next place."""
        chosen = self.propose(place)
        view = self.measure(chosen)
        before = self.best.objective
        self.best.takes(view)
        if self.best.is_met():
            return replace(place, status=self.best.met)
        return self.follow(place, chosen, view, before)

    def run(self, place: P, *, limit: int, deadline: float) -> Status:
        """Go on until a place has a status; at most `limit` rounds, see `rounds`."""
        return rounds(place, self.once, lambda p: p.status, limit=limit, deadline=deadline)[1]
