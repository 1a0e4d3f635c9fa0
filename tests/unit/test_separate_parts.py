"""Parts of a density beyond dips: their masses in closed form, and draws with and without them."""

import numpy as np
import pytest
from scipy import stats

from pymc_coresets.diagnostics.lines import Lines, Profile
from pymc_coresets.diagnostics.separate_parts import (
    Lack,
    Part,
    lack,
    parts_beyond_dips,
    shares_of_lines,
)

AWAY = np.array([9.0, -8.0, 7.0])  # where each coordinate has a second mode, half as wide
N_DIMS = len(AWAY)


def log_density(x, weight):
    """Independent coordinates with a second mode each."""
    first = np.log1p(-weight) - x**2 / 2
    second = np.log(2 * weight) - 2 * (x - AWAY) ** 2
    return np.logaddexp(first, second).sum(axis=1)


def drawn(weight, seed, n_draws=1_000):
    rng = np.random.default_rng(seed)
    shape = (4, n_draws, N_DIMS)
    z = rng.normal(size=shape)
    return np.where(rng.random(shape) < weight, AWAY + z / 2, z)


def measured(x, weight, n_lines=30):
    """The parts that lines through some draws show, and their shares on further lines."""
    x = x.reshape(-1, N_DIMS)

    def density(x):
        return log_density(x, weight)

    lines = Lines.through(x, np.arange(N_DIMS), np.arange(N_DIMS))
    parts = parts_beyond_dips(lines, Profile.of(lines, density))
    columns = np.repeat([part.column for part in parts], n_lines)
    which = np.tile(np.linspace(0, len(x) - 1, n_lines).astype(int), len(parts))
    of_each = [part for part in parts for _ in range(n_lines)]
    shares = shares_of_lines(Lines.through(x, which, columns), density, of_each)
    return parts, shares.reshape(len(parts), n_lines)


@pytest.mark.parametrize("weight", [0.002, 0.03, 0.3])
def test_the_mass_beyond_a_dip_is_that_of_the_second_mode(weight):
    parts, shares = measured(drawn(0.0, 1), weight)
    assert sorted(part.column for part in parts) == [0, 1, 2]
    for part, own in zip(parts, shares, strict=True):
        assert part.sign == np.sign(AWAY[part.column])
        assert 2.0 < abs(part.bound) < abs(AWAY[part.column]) - 0.5
        np.testing.assert_allclose(own, weight, rtol=0.1)


def test_of_correlated_coordinates_the_average_is_the_mass():
    """A second mode elsewhere along both: on a line, its share depends on the draw."""
    rng = np.random.default_rng(2)
    root, weight = np.linalg.cholesky([[1.0, 0.8], [0.8, 1.0]]), 0.2
    own = rng.random(4_000) < weight
    x = rng.normal(size=(4_000, 2)) @ root.T + np.where(own, 5.0, 0.0)[:, None] * [1.0, 0.0]
    parts_of = [stats.multivariate_normal(m, root @ root.T) for m in ([0.0, 0.0], [5.0, 0.0])]

    def density(x):
        first, second = (part.logpdf(x) for part in parts_of)
        return np.logaddexp(np.log(1 - weight) + first, np.log(weight) + second)

    part = Part(0, 2.5, 1)
    which = np.arange(0, 4_000, 4)
    lines = Lines.through(x, which, np.zeros(len(which), int))
    shares = shares_of_lines(lines, density, [part] * len(which))
    mass = (1 - weight) * stats.norm.sf(2.5) + weight * stats.norm.sf(-2.5)
    assert shares.std() > 0.1
    assert shares.mean() == pytest.approx(mass, abs=4 * shares.std() / np.sqrt(len(which)))


@pytest.mark.parametrize("seed", range(5))
def test_draws_of_the_density_itself_lack_nothing(seed):
    for weight in (0.01, 0.1):
        x = drawn(weight, seed)
        assert not lack(x, *measured(x, weight)).is_noticeable(0.0)


def test_draws_that_stay_in_the_main_mode_lack_the_others_together():
    x = drawn(0.0, 3)
    found = lack(x, *measured(x, 0.004))
    assert found.share == pytest.approx(0.012, rel=0.1)
    assert found.is_noticeable(0.01)
    assert not lack(x, *measured(x, 0.002)).is_noticeable(0.01)  # a share that is documented
    few = lack(x[:, :50], *measured(x, 0.004))  # of 200 draws, two might be there
    assert not few.is_noticeable(0.01)


def test_draws_too_many_in_one_part_do_not_hide_another():
    x = drawn(0.0, 4)
    x[:, :100, 1] += AWAY[1]  # a tenth of the draws, in one sojourn of each chain
    found = lack(x, *measured(x, 0.05))
    assert found.is_noticeable(0.01)
    assert found.column != 1
    assert found.share == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize(
    "log_one", [stats.norm.logpdf, stats.cauchy.logpdf, stats.t(3).logpdf, stats.gumbel_r.logpdf]
)
def test_one_mode_has_no_parts_whatever_its_tails(log_one):
    x = np.random.default_rng(1).normal(size=(400, 1))
    lines = Lines.through(x, np.arange(0, 400, 10), np.zeros(40, int))
    assert parts_beyond_dips(lines, Profile.of(lines, lambda x: log_one(x[:, 0]))) == []
    assert lack(x[None], [], np.empty((0, 30))) == Lack()


def test_beyond_a_gap_without_any_mass_there_may_be_more():
    def density(x):
        x = x[:, 0]
        return np.where(np.abs(x) < 1, 0.0, np.where(np.abs(x - 3) < 1, np.log(0.1), -np.inf))

    x = np.random.default_rng(1).uniform(-1, 1, size=(400, 1))
    lines = Lines.through(x, np.array([7]), np.array([0]))
    [part] = parts_beyond_dips(lines, Profile.of(lines, density))
    assert 0.9 < part.bound < 2.1
    share = shares_of_lines(lines, density, [part])
    assert share[0] == pytest.approx(1 / 11, rel=0.2)
