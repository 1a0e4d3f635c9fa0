"""What the bars show while a construction runs, and what is kept of its parts."""

import numpy as np
import pytest

from pymc_coresets.progress.reporter import Reporter
from pymc_coresets.solving.solution import Progress


@pytest.fixture
def reporter():
    with Reporter(show=False) as reporter:
        yield reporter


def bar(reporter):
    [task] = reporter._bars.tasks
    return task


def test_each_step_advances_the_bar_and_says_how_far_it_came(reporter):
    with reporter.part("rounds", total=5) as show:
        for size in (3, 7):
            show(Progress(size=size, objective=0.5, heldout_objective=0.25, seconds=1.0))
        assert (bar(reporter).completed, bar(reporter).total) == (2, 5)
        assert bar(reporter).fields["note"] == "7 rows, 0.25 nats"


@pytest.mark.parametrize(
    ("objective", "khat", "note"),
    [
        (np.nan, np.nan, "4 rows"),
        (0.125, 0.5, "4 rows, 0.12 nats, k-hat 0.50"),
        (np.nan, -np.inf, "4 rows, k-hat -inf"),
    ],
)
def test_what_is_not_known_is_not_shown(reporter, objective, khat, note):
    with reporter.part("rounds") as show:
        show(
            Progress(
                size=4, objective=0.5, heldout_objective=objective, seconds=1.0, pareto_khat=khat
            )
        )
        assert bar(reporter).fields["note"] == note


def test_passes_are_counted_in_rows(reporter):
    with reporter.passes("sums", 100) as show:
        notes = []
        for rows in (60, 40, 30, 70, 1):
            show(rows)
            notes.append((bar(reporter).completed, bar(reporter).fields["note"]))
    assert notes == [
        (60, "60 of 100 rows"),
        (100, "100 of 100 rows"),
        (30, "30 of 100 rows, pass 2"),
        (100, "100 of 100 rows, pass 2"),
        (1, "1 of 100 rows, pass 3"),
    ]


def test_a_part_that_has_ended_is_complete_and_timed(reporter):
    with reporter.part("rounds", total=9):
        pass
    assert bar(reporter).completed == bar(reporter).total
    assert 0 <= reporter.seconds["rounds"] < 60


def test_readings_show_their_speed_and_the_time_left(reporter, monkeypatch):
    clock = iter([10.0, 12.0, 14.0, 20.0, 21.0])
    monkeypatch.setattr("pymc_coresets.progress.time.perf_counter", lambda: next(clock))
    reporter.rows_read(2_000, 8_000)  # begins now
    reporter.rows_read(4_000, 8_000)
    assert bar(reporter).fields["note"] == "4,000 of 8,000 rows, 1,000 rows/s, 0:00:04 left"
    reporter.rows_read(8_000, 8_000)
    assert reporter._bars.tasks == []
    reporter.rows_read(1_000, 8_000)  # the next one
    assert bar(reporter).fields["note"] == "1,000 of 8,000 rows, 1,000 rows/s, 0:00:07 left"
