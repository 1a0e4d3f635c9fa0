"""What a limit of time ends, what it says, and what is announced beforehand."""

import time
from types import SimpleNamespace

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_coresets import OutOfTimeError
from pymc_coresets.deadline import doing, forecast, forecasts_to, here, paced, stop_if_late, until
from pymc_coresets.loops.fused_loops import Kernel
from pymc_coresets.rows.memory import in_threads
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.maximisation import many_modes
from tests.refusals import refused

ROWS = Rows(np.arange(100), np.ones(100))


@pytest.fixture
def lines():
    lines = []
    with forecasts_to(lines.append):
        yield lines


def test_nothing_ends_without_a_limit_or_before_it():
    stop_if_late()
    with until(time.perf_counter() + 60):
        assert sum(in_threads(len, ROWS.blocks(10))) == 100
    with pytest.raises(OutOfTimeError), until(0.0):
        stop_if_late()
    stop_if_late()


def test_blocks_of_rows_end_at_the_limit():
    done = []

    def slow(rows):
        done.append(len(rows))
        time.sleep(0.05)

    with pytest.raises(OutOfTimeError), until(time.perf_counter() + 0.12):
        list(in_threads(slow, ROWS.blocks(1)))
    assert 0 < len(done) < 50


def test_one_long_block_knows_the_limit_in_its_thread():
    ends = []

    def steps(rows):
        for _ in range(100):
            time.sleep(0.01)
            stop_if_late()
        ends.append(rows)

    with pytest.raises(OutOfTimeError), until(time.perf_counter() + 0.2):
        list(in_threads(steps, ROWS.blocks(25)))
    assert ends == []


def test_the_error_says_what_was_done_and_reached():
    facts = ("while integrating", "searching (7 of 20 gradients)")
    with (
        refused(OutOfTimeError, facts),
        until(np.inf, "too late."),
        until(0.0),
        doing("integrating"),
        paced("searching", 20, "gradients") as count,
    ):
        count(7)


def test_the_earlier_of_two_limits_counts():
    with (
        refused(OutOfTimeError, "time_budget", "before there were draws"),
        until(0.0, "before there were draws."),
        until(np.inf),
    ):
        stop_if_late()


def test_what_takes_long_is_announced_once_by_its_rate(clock, lines):
    with doing("checking"), paced("evaluating 500 rows", 100, "blocks") as count:
        for _ in range(100):
            clock.now += 0.6
            count(1)
    assert lines == ["Checking: evaluating 500 rows: about 60 seconds."]


def test_what_takes_little_time_is_not_announced(clock, lines):
    with paced("reading", 100, "blocks") as count:
        for _ in range(100):
            clock.now += 0.19
            count(1)
    assert lines == []


def test_a_part_of_what_was_announced_is_no_news_and_what_takes_longer_is(clock, lines):
    with doing("building"):
        forecast(300.0, "integrate=False is faster.")
        with doing("searching"):
            forecast(100.0)
            clock.now += 250.0
            forecast(500.0)
    assert lines == [
        "Building: about 5 minutes. integrate=False is faster.",
        "Building: searching: about 8 minutes.",
    ]


def test_threads_announce_nothing(lines):
    here(forecast)(100.0)
    assert lines == []
    with doing("in this one"):
        forecast(100.0)
    assert len(lines) == 1


def test_without_a_receiver_forecasts_are_in_the_log(caplog):
    with caplog.at_level("INFO", logger="pymc_coresets"), doing("waiting"):
        forecast(30.0)
    assert "Waiting: about 30 seconds." in caplog.text


def test_the_first_step_which_may_compile_functions_says_nothing_of_the_others(clock, lines):
    with paced("drawing", 10, "levels") as count:
        clock.now += 60.0
        count(1)
        for _ in range(9):
            clock.now += 1.5
            count(1)
    assert lines == []


def test_a_compilation_is_announced_and_none_begins_that_takes_too_long(limits):
    """By the rate of those before it: once begun, none ends at a limit of time."""
    limits(compilation_rates={"seconds per operation": 10.0})
    x = pt.vector("x")
    outputs = [pt.exp(x) + pt.log(x)]  # three operations
    lines = []
    with forecasts_to(lines.append):
        _ = Kernel([], [x], outputs, {}).program
    assert lines == ["Compiling a function of 3 operations: about 30 seconds."]
    facts = ("3 operations", "30 seconds")
    with refused(OutOfTimeError, facts), until(time.perf_counter() + 20.0):
        _ = Kernel([], [x], outputs, {}).program


@pytest.mark.parametrize(("kinks", "said"), [(True, "about 80 seconds."), (False, "about 40 s")])
def test_curvatures_are_announced_by_the_time_of_their_diagonals(kinks, said, lines, monkeypatch):
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(many_modes, "time", clock)

    def slopes(x):
        clock.now += 4.0 * len(x)  # seconds
        return -np.square(x).sum(axis=1) / 2, -x

    found = many_modes.negative_hessians(Density(slopes), np.zeros((1, 5)), kinks=kinks)
    assert len(lines) == 1
    assert lines[0].startswith(f"Computing curvatures: {said}")
    np.testing.assert_allclose(found[0], np.eye(5))
