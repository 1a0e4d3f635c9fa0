"""What a limit of time ends, and what it says."""

import time

import numpy as np
import pytest

from pymc_coresets.deadline import stop_if_late, until
from pymc_coresets.exceptions import OutOfTimeError
from pymc_coresets.rows.memory import in_threads
from pymc_coresets.rows.values import Rows

ROWS = Rows(np.arange(100), np.ones(100))


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


def test_the_earlier_of_two_limits_counts_and_says_what_was_done():
    with (
        pytest.raises(OutOfTimeError, match="used up while modes were looked for, before"),
        until(0.0, "while modes were looked for"),
        until(np.inf, "while others were"),
    ):
        stop_if_late()
