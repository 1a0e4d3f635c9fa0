import math

import numpy as np
import pytest

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import generator, positive_number, whole_number


@pytest.mark.parametrize("value", [3, np.int64(3), np.array(3)])
def test_whole_numbers_of_any_kind_become_ints(value):
    found = whole_number("size", value, least=1)
    assert type(found) is int
    assert found == 3


@pytest.mark.parametrize("value", [True, np.True_, 3.0, "3", None, [3], math.nan])
def test_what_is_no_whole_number_is_named(value):
    with pytest.raises(InvalidOptionError, match=r"^size=.* must be a whole number"):
        whole_number("size", value, least=1)


def test_the_range_of_a_whole_number_includes_its_ends():
    assert [whole_number("size", n, least=1, most=2) for n in (1, 2)] == [1, 2]
    with pytest.raises(InvalidOptionError, match="size=3 must lie between 1 and 2"):
        whole_number("size", 3, least=1, most=2)
    with pytest.raises(InvalidOptionError, match="size=0 must be at least 1"):
        whole_number("size", 0, least=1)


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int8(2)])
def test_positive_numbers_of_any_kind_become_floats(value):
    found = positive_number("tolerance", value)
    assert type(found) is float
    assert found == 2


@pytest.mark.parametrize("value", [True, np.True_, "2", None, [2.0], 0, -1, math.inf, math.nan])
def test_what_is_no_positive_number_is_named(value):
    with pytest.raises(InvalidOptionError, match=r"^tolerance=.* must be a positive"):
        positive_number("tolerance", value)


@pytest.mark.parametrize("seed", ["a", 1.5, True, np.True_, -1, {1}, [0.5]])
def test_what_is_no_seed_is_named(seed):
    with pytest.raises(InvalidOptionError, match=r"^random_seed="):
        generator(seed)


def test_a_generator_is_used_itself():
    rng = np.random.default_rng(1)
    assert generator(rng) is rng
    assert generator(None) is not generator(None)
    assert generator([1, 2]).random() == np.random.default_rng([1, 2]).random()
