"""Rounds that propose coresets: which is kept, what confirms it, and how a run ends."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from pymc_coresets import OutOfTimeError, SamplingError
from pymc_coresets.methods.best_of_rounds import Best, Place, Rounds
from pymc_coresets.methods.loop import Measurement
from pymc_coresets.rows.passes import PassSums
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.solution import Selection, Status

NOWHERE = Rows(np.arange(0), np.ones(0))
NOTHING = Selection(rows=NOWHERE, weights=np.ones(0))


def of_divergence(variance, n_draws=400):
    """Return the measurement of a coreset that is so far off."""
    z = np.random.default_rng(1).normal(size=n_draws)
    total = np.sqrt(variance) * z / z.std()
    sums = PassSums(total=total, norm_total=0.0, candidates=NOWHERE)
    return Measurement.of(NOTHING, np.zeros(n_draws), sums)


class Again:
    """Measures coresets again, with the divergences given, and counts the draws."""

    def __init__(self, *divergences):
        self.divergences, self.n_draws = list(divergences), []

    def __call__(self, best, n_draws):
        self.n_draws.append(n_draws)
        found = self.divergences.pop(0)
        if isinstance(found, type):
            raise found("said so")
        return best if found is None else of_divergence(found, n_draws)


def best_of(*divergences, again=(), tolerance=0.01, goal=0.008):
    best = Best(Again(*again), tolerance=tolerance, goal=goal)
    for each in divergences:
        best.takes(of_divergence(each))
    return best


def test_the_best_coreset_is_kept():
    best = Best(Again(), tolerance=0.01, goal=0.008)
    assert best.objective == np.inf
    assert [best.takes(of_divergence(v)) for v in (0.3, 0.2, 0.25)] == [True, True, False]
    assert best.objective == pytest.approx(0.2)


def test_a_first_coreset_is_kept_whatever_it_is():
    """A posterior at whose draws the full data are impossible, say: it is all there is."""
    endless = of_divergence(np.inf)
    best = best_of()
    assert best.takes(endless)
    assert best.measured is endless
    assert not best.takes(of_divergence(np.inf))


def test_a_clear_case_takes_no_further_draws():
    assert best_of(0.003).is_met()
    assert not best_of(0.02).is_met()


@pytest.mark.parametrize(
    ("again", "met", "objective"),
    [
        (0.0070, True, 0.0070),
        (0.0090, True, 0.0090),  # beyond the goal, but within the tolerance
        (0.0110, False, 0.0110),
        (SamplingError, True, 0.0075),
        (None, True, 0.0075),
    ],
)
def test_a_close_call_is_measured_once_more_at_twice_as_many_draws(again, met, objective):
    best = best_of(0.0075, again=[again])
    assert best.is_met() == met
    assert best.objective == pytest.approx(objective)
    best.confirm()
    assert best.concluded(Status.NO_PROGRESS, np.inf) is Status.NO_PROGRESS
    assert best._again.n_draws == [800]


def test_a_loose_goal_is_said():
    assert best_of().met is Status.TOLERANCE_REACHED
    loose = best_of(0.3, goal=0.5)
    assert loose.is_met()
    assert loose.met is Status.CORRECTABLE


@pytest.mark.parametrize(
    ("again", "status"),
    [(OutOfTimeError, Status.OUT_OF_TIME), (KeyboardInterrupt, Status.INTERRUPTED)],
)
def test_what_ends_the_last_measurement_loses_nothing(again, status):
    best = best_of(0.009, again=[again])
    assert best.concluded(Status.NO_PROGRESS, np.inf) is status
    assert best.objective == pytest.approx(0.009)


def test_nothing_is_measured_after_an_interruption():
    best = best_of(0.009, again=[])
    assert best.concluded(Status.INTERRUPTED, np.inf) is Status.INTERRUPTED


@dataclass(frozen=True, eq=False)
class Number(Place):
    n: int = 0


def rounds_to(divergences, best, most=3):
    """Return rounds whose n-th coreset is so far off, and what each was followed by."""
    followed = []

    def follow(place, chosen, view, before):
        followed.append((round(view.objective, 4), before))
        return replace(place, n=place.n + 1, status=Status.NO_PROGRESS if place.n >= most else None)

    def propose(place):
        return replace(NOTHING, weights=np.full(0, place.n), quadratic=divergences[place.n])

    def measure(chosen):
        if chosen.quadratic is None:
            return Measurement.failed(chosen)
        return of_divergence(chosen.quadratic)

    return Rounds(propose, measure, follow, best), followed


def test_rounds_go_on_from_the_last_place_until_the_goal_is_met():
    rounds, followed = rounds_to([0.5, None, 0.7, 0.003, 0.001], best_of())
    assert rounds.run(Number(), limit=9, deadline=np.inf) is Status.TOLERANCE_REACHED
    assert rounds.best.objective == pytest.approx(0.003)
    assert [view for view, _ in followed] == [0.5, np.inf, 0.7]
    assert [before for _, before in followed] == pytest.approx([np.inf, 0.5, 0.5])


def test_rounds_end_where_a_place_says_so_or_after_the_last():
    rounds, _ = rounds_to([0.5, 0.4, 0.3, 0.2, 0.1], best_of(), most=1)
    assert rounds.run(Number(), limit=9, deadline=np.inf) is Status.NO_PROGRESS
    assert rounds.best.objective == pytest.approx(0.4)
    rounds, followed = rounds_to([0.5, 0.4, 0.3, 0.2, 0.1], best_of())
    assert rounds.run(Number(), limit=2, deadline=np.inf) is Status.ITERATION_LIMIT
    assert len(followed) == 2
    assert rounds.run(Number(), limit=2, deadline=-np.inf) is Status.OUT_OF_TIME
