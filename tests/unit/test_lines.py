"""Lines through draws: how far they reach, and divergences in closed form."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from pymc_coresets.diagnostics.lines import Lines, Probes, Profile, missed


def log_normal(x):
    return -np.square(x).sum(axis=1) / 2


def test_lines_go_along_ridges():
    rng = np.random.default_rng(4)
    z = rng.normal(size=(2_000, 2))
    draws = np.column_stack([z[:, 0], 2 * z[:, 0] + 0.1 * z[:, 1]])
    lines = Lines.through(draws, np.array([0]), np.array([0]))
    assert lines.directions[0, 1] == pytest.approx(2.0, rel=0.1)
    few = Lines.through(draws[:3], np.array([0]), np.array([0]))  # whose correlations mean nothing
    assert few.directions[0].tolist() == [1.0, 0.0]


def test_lines_are_as_long_as_a_mode_is_wide():
    """Two narrow modes, far apart: by their distance, lines would step over both."""
    rng = np.random.default_rng(4)
    own = rng.integers(2, size=400)
    centres = np.array([[-2.0, 2.0], [2.0, -2.0]])
    draws = centres[own] + 0.01 * rng.normal(size=(400, 2))

    def log_density(x):
        squared = [np.square((x - centre) / 0.01).sum(axis=1) for centre in centres]
        return np.logaddexp(*(-0.5 * s for s in squared))

    which, columns = np.repeat(np.arange(0, 400, 10), 2), np.tile([0, 1], 40)
    lines = Lines.through(draws, which, columns, modes=own)
    np.testing.assert_allclose(lines.scales, 0.01, rtol=0.2)
    assert np.abs(lines.medians).max() < 0.05
    found = Profile.of(lines, log_density)
    assert np.abs(found.ends).max() < 0.15  # of one of them


def missed_by_normal(log_density_of_all, tolerance=0.01):
    """What a standard normal density lacks of another one, along its only coordinate."""
    draws = np.random.default_rng(5).normal(size=(400, 1))
    lines = Lines.through(draws, np.array([7]), np.array([0]))
    profile = Profile.of(lines, log_normal)
    calls = []

    def log_ratio(x):
        calls.append(len(x))
        return log_density_of_all(x[:, 0]) + x[:, 0] ** 2 / 2

    ratios = lines.values(log_ratio, profile.ends)
    found = missed(lines, profile, log_normal, log_ratio, ratios, tolerance=tolerance)
    return *found, lines.origins[0] + profile.ends[0]


def beyond(ends, log_density):
    """The parts of the symmetrised KL divergence from a normal density that draws hardly reach.

    They begin at four fifths of the way to the edges.
    """

    def part(x):
        log_p, log_q = log_density(x), stats.norm.logpdf(x)
        return (np.exp(log_p) - np.exp(log_q)) * (log_p - log_q)

    low, high = ends[0] + 0.8 * (ends[1:] - ends[0])
    assert stats.norm.cdf(low) + stats.norm.sf(high) < 5e-3
    return quad(part, -15, low, limit=200)[0] + quad(part, high, 15, limit=200)[0]


@pytest.mark.parametrize("constant", [-700.0, 0.0, 700.0])
@pytest.mark.parametrize("weight", [0.003, 0.03])
def test_a_tail_that_a_density_lacks_is_integrated(weight, constant):
    """A normal density, and one with a further normal part three times as wide on one side."""

    def log_density(x):
        wide = np.where(x > 0, 2 * weight * stats.norm.pdf(x, 0, 3), 0)
        return np.log((1 - weight) * stats.norm.pdf(x) + wide)

    found, n_points, largest, ends = missed_by_normal(lambda x: log_density(x) + constant)
    expected = beyond(ends, log_density)
    assert found[0] == pytest.approx(expected, rel=0.15)
    assert n_points == 3 + 19
    assert largest > 2.0


def test_what_weights_mend_adds_next_to_nothing():
    """A standard deviation of 15 % more: 0.04 nats, hardly any of which are far out."""
    log_density = stats.norm(0, 1.15).logpdf
    found, *_, ends = missed_by_normal(log_density, tolerance=1e-5)
    assert found[0] == pytest.approx(beyond(ends, log_density), rel=0.2)
    assert 0 < found[0] < 2e-3


@pytest.mark.parametrize("shift", [0.0, 0.05])
def test_nothing_is_missed_where_densities_have_the_same_tails(shift):
    found, n_points, *_ = missed_by_normal(lambda x: -((x - shift) ** 2) / 2)
    assert (found[0], n_points) == (0.0, 3)


def test_a_tail_without_an_end_is_infinitely_far():
    found, *_ = missed_by_normal(lambda x: np.where(x > 0, 0.0, -(x**2) / 2))
    assert found[0] == np.inf


def test_probes_say_in_short_what_was_found():
    assert Probes().in_short == "not looked at"
    found = Probes(outside=0.0, most=0.0, where="", n_points=9, n_coordinates=3, largest=0.1)
    assert found.in_short == "nothing missed, at 9 points"


def test_a_density_that_rises_to_the_end_of_a_line_has_none():
    """Draws so far from it that all of a line is on one side of its top."""
    draws = 5_000 + np.random.default_rng(6).normal(size=(400, 1))
    lines = Lines.through(draws, np.array([7]), np.array([0]))
    profile = Profile.of(lines, log_normal)

    def log_ratio(x):
        return stats.norm(0, 2).logpdf(x[:, 0]) - stats.norm.logpdf(x[:, 0])

    ratios = lines.values(log_ratio, profile.ends)
    found, *_ = missed(lines, profile, log_normal, log_ratio, ratios, tolerance=0.01)
    assert found[0] >= 0
