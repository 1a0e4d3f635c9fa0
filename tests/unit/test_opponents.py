"""The benchmark of opponents: a tiny model by two ways, judged against its closed form."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

from benchmarks.opponent_clock import CompilationClock
from benchmarks.opponent_judge import Reference, Verdict, judge, reference_for
from benchmarks.opponent_sampling import coreset_draws, laplace, one_call
from benchmarks.opponent_task import Answer, DoesNotFitError, Settings
from benchmarks.opponents import HEADER, Record, best_opponent, compared, line_of, measure, table
from tests.derived import draws_of

pytestmark = pytest.mark.slow  # of a benchmark

N, N_EXACT, PRIOR_SD = 2_000, 1_000, 10.0
OUTCOMES = np.random.default_rng(1).normal(0.3, 1.0, size=N).round(1)
VARIANCE = 1 / (N + 1 / PRIOR_SD**2)
MEAN = VARIANCE * OUTCOMES.sum()
SETTINGS = Settings(draws=500, tune=500, seconds=60)


def make():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0, PRIOR_SD), 1.0, observed=OUTCOMES)
    return model


def exact(seed=2, shift=0.0, scale=1.0, **fields):
    """Return independent draws of the closed form, shifted and scaled in its own sds."""
    z = shift + scale * np.random.default_rng(seed).normal(size=N_EXACT)
    draws = draws_of(mu=MEAN + VARIANCE**0.5 * z)
    given = {"effective": float(N_EXACT), "warned": False, "sound": True} | fields
    return Answer(draws=draws, **given)


def refuses(task):
    raise DoesNotFitError("not installed: elsewhere")


def fails(task):
    raise ValueError("broken")


@pytest.mark.parametrize("take", [laplace, coreset_draws, one_call])
def test_ways_agree_with_the_closed_form(take):
    record = measure("tiny", "way", take, make, SETTINGS)
    (judged,), said = compared([record], Record(way="closed form", answer=exact(n_chains=2)))
    verdict = judged.verdict
    assert verdict.told(warned=judged.answer.warned) == "right"
    assert verdict.shift < 2 * verdict.shift_noise
    assert verdict.ratio == pytest.approx(1, abs=2 * verdict.ratio_noise)
    assert 0 < record.compiling < record.seconds
    assert said.startswith("closed form, 1,000")


@pytest.mark.parametrize(
    ("change", "warned", "told"),
    [
        ({}, False, "right"),
        ({}, True, "right, but warned"),
        ({"shift": 0.3}, False, "WRONG, SILENT"),
        ({"scale": 0.7}, True, "wrong, and said so"),
    ],
)
def test_differences_are_those_of_the_closed_form(change, warned, told):
    """Five standard errors."""
    reference = Reference(way="closed form", answer=exact())
    verdict = judge(exact(seed=3, **change), reference)
    assert verdict.shift == pytest.approx(change.get("shift", 0.0), abs=5 * (2 / N_EXACT) ** 0.5)
    assert verdict.ratio == pytest.approx(change.get("scale", 1.0), abs=5 * N_EXACT**-0.5)
    assert verdict.told(warned=warned) == told


def test_a_way_that_was_stopped_is_not_called_wrong():
    verdict = judge(exact(seed=3, shift=0.3), Reference(way="closed form", answer=exact()))
    assert verdict.told(warned=False, finished=False) == "not finished"


def test_a_way_with_too_much_noise_is_not_called_right():
    verdict = judge(exact(seed=3), Reference(way="closed form", answer=exact()))
    noisy = replace(verdict, shift_noise=1.1)
    assert (verdict.told(warned=False), noisy.told(warned=False)) == ("right", "unclear")
    assert replace(noisy, shift=3.0).told(warned=True) == "wrong, and said so"


def test_a_doubtful_reference_calls_nothing_wrong():
    doubtful = Reference(way="doubtful", answer=exact(sound=False))
    assert judge(exact(seed=3, shift=0.3), doubtful).told(warned=False) == "unclear"
    assert judge(exact(seed=3), doubtful).told(warned=False) == "right"


def test_no_way_is_its_own_reference():
    long, short = (
        Reference(way=w, answer=exact(effective=e)) for w, e in (("long", 900.0), ("short", 500.0))
    )
    unsound = Reference(way="unsound", answer=exact(effective=5_000.0, sound=False))
    every = [short, unsound, long]
    assert reference_for("short", every) is long
    assert reference_for("long", every) is short
    assert reference_for("only", []) is None


@pytest.mark.parametrize(
    ("take", "said"), [(refuses, "not installed: elsewhere"), (fails, "ValueError: broken")]
)
def test_a_way_that_fails_is_a_line_of_the_table(take, said):
    record = measure("tiny", "way", take, make, SETTINGS)
    assert (record.answer, record.failure) == (None, said)
    assert len(line_of(record)) == len(HEADER)
    assert said in table("tiny", [record], "none")


def test_a_part_of_a_run_is_extrapolated_and_marked():
    record = Record(way="w", seconds=12.0, compiling=2.0, answer=exact(share=0.25))
    assert record.total == 42
    line = line_of(record)
    assert line[HEADER.index("rest, s")] == "≈ 40.0"
    assert "25%" in line[-1]


def test_the_best_opponent_is_the_fastest_that_was_right():
    right = Verdict(shift=0.01, shift_noise=0.1, ratio=1.0, ratio_noise=0.1)
    slow = Record(way="NUTS, all rows", seconds=9.0, compiling=1.0, answer=exact(), verdict=right)
    fast = replace(slow, way="Laplace + PSIS", seconds=3.0)
    assert best_opponent([slow, fast]) == "Laplace + PSIS"
    assert best_opponent([slow, replace(fast, verdict=replace(right, shift=0.9))]) == slow.way
    assert best_opponent([]) is None


def test_nested_compilation_counts_once():
    clock = CompilationClock()
    with clock.compiling(), clock.compiling():
        pass
    assert 0 < clock.seconds < 1
