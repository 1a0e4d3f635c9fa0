"""Densities along lines beyond the draws, and what these show."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.integrate import quad

from pymc_coresets import InvalidDataError
from pymc_coresets.diagnostics.judging import TOLERANCE
from pymc_coresets.diagnostics.lines import Lines, Probes, Profile, missed
from pymc_coresets.diagnostics.separate_parts import (
    Lack,
    Part,
    lack,
    parts_beyond_dips,
    shares_of_lines,
)
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling import probing
from pymc_coresets.sampling.probing import (
    Probing,
    compared,
    coordinate_names,
    finite_points,
    probed,
)
from tests.refusals import refused

# -- Lines through draws: how far they reach, and divergences in closed form. ----------------------


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
    found = Probes(outside=0.0, most=0.0, where="", n_points=9, largest=0.1)
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


# -- Parts of a density beyond dips: their masses in closed form, and draws with and without them. -

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


# -- Draws of a density without any rows, on lines through which it is compared with another one. --

N_DRAWS = 400


@pytest.fixture(scope="module")
def space():
    with pm.Model() as model:
        pm.Normal("b", shape=3)
        pm.HalfNormal("scale")
    return Unconstrained(model)


def stands_in(space, log_ratio=lambda x: 0.0 * x[:, 0], **changes):
    """Independent standard normal coordinates, beside a density of which the log-ratio is given."""

    def log_densities_at(draws):
        x = space.free(draws)
        return log_ratio(x), np.zeros(len(x))

    def log_densities(idata):
        draws = Draws.of(idata, given["free"])
        both = log_densities_at(draws)
        return (0 * both[0], both[1]) if given["has_all_rows"]() else both

    own = {
        "log_density": lambda x: stats.norm.logpdf(x).sum(axis=1),
        "slopes": lambda x: (stats.norm.logpdf(x).sum(axis=1), -x),
        "n_products": 10.0,
    }
    given = {
        "space": space,
        "parts": [SimpleNamespace(n_terms=1_000)],
        "replacement": SimpleNamespace(**{name: changes.pop(name, own[name]) for name in own}),
        "log_densities_at": log_densities_at,
        "free": {"b": (3,), "scale": ()},
        "has_all_rows": lambda: False,
        "tolerance": TOLERANCE,
        "impossible": "build another.",
        "modes": None,
        "log_densities": log_densities,
    }
    given |= changes
    return SimpleNamespace(**given)


def drawn_probing(space, change=lambda x: x, seed=1):
    return space.constrain(change(np.random.default_rng(seed).normal(size=(N_DRAWS, 4))))


def shifted(column, by):
    return lambda x: x + by * (np.arange(4) == column)


def wider(x, column=3):
    """The log-ratio of a density of which a coordinate is that of a t distribution."""
    return stats.t.logpdf(x[:, column], 3) - stats.norm.logpdf(x[:, column])


def test_nothing_is_missed_where_the_densities_are_the_same(space):
    found = probed(stands_in(space), drawn_probing(space))
    assert (found.outside, found.where, found.constant) == (0.0, "", "")
    assert found.n_points == 12  # three on each of four lines
    assert found.largest == 0.0
    assert found.misfit < found.misfit_limit


def test_the_coordinate_with_a_heavier_tail_is_named(space):
    found = probed(stands_in(space, wider), drawn_probing(space))
    assert found.where == "scale"
    assert found.outside > TOLERANCE
    assert found.n_points > 12
    # At the edge of a line the ratio to the middle: four standard deviations from the mean.
    ratio = wider(np.full((1, 4), 4.0)) - wider(np.zeros((1, 4)))
    assert found.largest == pytest.approx(float(ratio[0]), rel=0.2)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (shifted(1, 1.0), "b[1]"),
        (shifted(3, -1.0), "scale"),
        (lambda x: x * np.where(np.arange(4) == 2, 0.3, 1.0), "b[2]"),
        (lambda x: 0.5 * x, ""),
    ],
)
def test_draws_of_another_density_are_seen(space, change, where):
    found = probed(stands_in(space), drawn_probing(space, change))
    assert found.misfit > found.misfit_limit
    assert where in ("", found.misfit_where)
    assert found.misfit_limit < 6


def test_a_variable_that_never_moves_is_named_at_once(space):
    constant = drawn_probing(space, lambda x: np.where(np.arange(4) == 2, 0.7, x))
    assert probed(stands_in(space), constant) == Probes(constant="b[2]")


def test_where_all_rows_are_kept_only_the_draws_are_judged(space):
    found = probed(stands_in(space, has_all_rows=lambda: True), drawn_probing(space))
    assert found.n_points == 0
    assert 0 < found.misfit < found.misfit_limit
    shrunk = probed(
        stands_in(space, has_all_rows=lambda: True), drawn_probing(space, lambda x: 0.3 * x)
    )
    assert shrunk.misfit > shrunk.misfit_limit


def seen_ratio():
    """Return a log-ratio, and a list of at how many points each of its passes was."""
    passes = []

    def log_ratio(x):
        passes.append(len(x))
        return 0.1 * x[:, 0]

    return log_ratio, passes


def test_where_all_rows_are_kept_no_line_is_evaluated(space):
    log_ratio, passes = seen_ratio()
    draws = drawn_probing(space)
    found = Probing.of(stands_in(space, log_ratio, has_all_rows=lambda: True), draws)
    log_p, log_q = found.log_densities(draws.to_datatree())
    np.testing.assert_array_equal(log_p, log_q)
    assert passes == [N_DRAWS]


def test_the_first_draws_and_the_lines_are_one_pass(space):
    log_ratio, passes = seen_ratio()
    draws = drawn_probing(space)
    found = Probing.of(stands_in(space, log_ratio), draws)
    log_p, log_q = found.log_densities(draws.to_datatree())
    np.testing.assert_allclose(log_p - log_q, 0.1 * draws.values["b"][:, 0])
    assert passes == [N_DRAWS + 12]
    again = np.subtract(*found.log_densities(draws.to_datatree()))
    np.testing.assert_array_equal(again, log_p - log_q)
    assert passes == [N_DRAWS + 12, N_DRAWS]  # of more draws, say


def test_draws_that_are_known_are_not_evaluated_again(space):
    log_ratio, passes = seen_ratio()
    alone = probed(stands_in(space, log_ratio), drawn_probing(space))
    assert passes == [12]
    beside = Probing.of(stands_in(space, log_ratio), drawn_probing(space))
    beside.log_densities(drawn_probing(space).to_datatree())
    both = beside.result()
    assert (alone.outside, alone.largest) == (both.outside, both.largest)


def test_points_that_the_full_data_exclude_have_no_density(space):
    found = Probing.of(stands_in(space), drawn_probing(space))
    points = np.zeros((3, 4))
    points[1, 3] = 1e4  # whose exponential is infinite
    with np.errstate(over="ignore"):
        assert found.evaluated(points).tolist() == [0.0, -np.inf, 0.0]


def test_draws_on_the_border_of_the_support_are_refused(space):
    draws = drawn_probing(space)
    draws.values["scale"][7] = 0.0
    with refused(InvalidDataError, "Draw 7", "'scale'", "not finite"):
        finite_points(space, draws)


@pytest.mark.parametrize(("n_rows", "n_columns"), [(1_000, 42), (10**5, 40), (10**9, 26)])
def test_scales_come_first_and_large_data_allow_for_fewer(n_rows, n_columns):
    with pm.Model() as model:
        pm.Normal("effects", shape=40)
        pm.HalfNormal("scale")
        pm.Poisson("count", 3.0)
        pm.Exponential("rate")
    space = Unconstrained(model)
    names = coordinate_names(space)
    columns = probing._columns(space, n_rows)
    chosen = [names[c] for c in columns]
    assert len(columns) == len(set(columns)) == n_columns
    assert set(chosen[:2]) == {"scale", "rate"}
    assert "count" not in chosen
    numbers = np.sort([int(name[8:-1]) for name in chosen[2:]])  # evenly spread over 40
    assert np.diff(numbers, prepend=-1, append=40).max() < 5


@pytest.mark.parametrize("failing", [NotImplementedError, None])
def test_without_gradients_values_tell_altered_draws(space, failing):
    def slopes(x):
        if failing is not None:
            raise failing
        return x[:, 0], np.full_like(x, np.nan)

    own = compared(Probes(), stands_in(space, slopes=slopes), drawn_probing(space))
    assert own.misfit < own.misfit_limit < 6
    other = compared(
        Probes(), stands_in(space, slopes=slopes), drawn_probing(space, shifted(1, 0.5))
    )
    assert other.misfit > other.misfit_limit
    assert other.misfit_where == "b[1]"


def test_modes_that_overlap_are_no_alarm(space):
    """Draws that are next to one or the other are not apart."""
    modes = SimpleNamespace(nearest=lambda values: (values["b"][:, 0] > 0).astype(int))
    own = compared(Probes(), stands_in(space, modes=modes), drawn_probing(space), 4)
    assert own.misfit < own.misfit_limit


def test_modes_along_lines_that_no_draw_visited_are_unseen(space):
    """By the approximate posterior's own density; those of less than 1 % together are not."""

    def beside(share):
        def log_density(x):
            far = np.log(share) + stats.norm.logpdf(x[:, 1], 9.0)
            own = np.logaddexp(stats.norm.logpdf(x[:, 1]) + np.log1p(-share), far)
            return stats.norm.logpdf(x[:, [0, 2, 3]]).sum(axis=1) + own

        return stands_in(space, log_density=log_density, has_all_rows=lambda: True)

    found = probed(beside(0.04), drawn_probing(space))
    assert found.unseen == pytest.approx(0.04, rel=0.1)
    assert found.unseen_where == "b[1]"
    assert probed(beside(0.004), drawn_probing(space)).unseen == 0.0

    def visiting(x):
        return x + 9.0 * (np.arange(len(x)) % 25 == 0)[:, None] * (np.arange(4) == 1)

    assert probed(beside(0.04), drawn_probing(space, visiting)).unseen == 0.0
    # With many rows, there are fewer lines, along the largest part alone.
    slow = beside(0.04)
    slow.replacement.n_products = 1e9
    assert probed(slow, drawn_probing(space)).unseen == pytest.approx(0.04, rel=0.1)


def test_a_wrong_gradient_is_no_alarm(space):
    """Of an operation with a custom gradient, say."""
    given = stands_in(space, slopes=lambda x: (x[:, 0], 0.5 - x))
    own = compared(Probes(), given, drawn_probing(space))
    assert own.misfit < own.misfit_limit


def test_chains_are_thinned_where_gradients_take_long(space):
    asked = []

    def slopes(x):
        asked.append(len(x))
        return x[:, 0], -x

    draws = drawn_probing(space)
    for n_products in (10.0, 1e9):
        compared(Probes(), stands_in(space, slopes=slopes, n_products=n_products), draws, 4)
    thousand = space.constrain(np.random.default_rng(1).normal(size=(1_200, 4)))
    compared(Probes(), stands_in(space, slopes=slopes, n_products=1e9), thousand, 4)
    assert asked == [N_DRAWS, N_DRAWS, 400]


def test_a_model_of_discrete_variables_alone_has_no_lines():
    with pm.Model() as model:
        pm.Bernoulli("k", 0.5)
    found = stands_in(Unconstrained(model), free={"k": ()})
    assert probed(found, Draws({"k": np.arange(N_DRAWS) % 2})) == Probes()


def test_draws_of_density_zero_are_refused(space):
    """A single one of them, which moves no mean and no spread of probabilities."""

    def log_density(x):
        return np.where(x[:, 0] > 2.5, -np.inf, stats.norm.logpdf(x).sum(axis=1))

    draws = drawn_probing(
        space, lambda x: np.where(np.arange(N_DRAWS)[:, None] == 7, 3.0, x.clip(-2, 2))
    )
    with refused(InvalidDataError, "0.2%", "density"):
        Probing.of(stands_in(space, log_density=log_density), draws)


def test_a_few_draws_on_the_border_are_no_origins_of_lines(space):
    """Nor are there lines along what is on the border there."""
    draws = drawn_probing(space)
    draws.values["scale"][:3] = 0.0
    found = probed(stands_in(space), draws)
    assert found.n_points == 3 * 3  # on a line along each of the other coordinates
    assert found.misfit < found.misfit_limit


def test_discrete_variables_stay_where_they_are():
    """A normal variable about a count, of which it is a half: exact draws of both."""
    with pm.Model() as model:
        pm.Poisson("k", 3.0)
        pm.Normal("mu")
    space, rng = Unconstrained(model), np.random.default_rng(1)
    k = rng.poisson(3.0, N_DRAWS)
    draws = Draws({"k": k, "mu": rng.normal(0.5 * k)})

    def log_density(x):
        k = x[:, space.columns["k"]].astype(int)
        return stats.poisson.logpmf(k, 3.0) + stats.norm.logpdf(x[:, space.columns["mu"]] - 0.5 * k)

    def slopes(x):
        of_mu = x[:, space.columns["mu"]] - 0.5 * x[:, space.columns["k"]]
        found = np.zeros_like(x)
        found[:, space.columns["mu"]] = -of_mu
        return log_density(x), found

    approximation = stands_in(
        space, log_density=log_density, slopes=slopes, free={"k": (), "mu": ()}
    )
    own = compared(Probes(), approximation, draws)
    assert own.misfit < own.misfit_limit
    moved = Draws({"k": k, "mu": draws.values["mu"] + 0.3})
    other = compared(Probes(), approximation, moved)
    assert other.misfit > other.misfit_limit
