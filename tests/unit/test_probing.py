"""Draws of a density without any rows, on lines through which it is compared with another one."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_coresets import InvalidDataError
from pymc_coresets.diagnostics.judging import TOLERANCE
from pymc_coresets.diagnostics.lines import Probes
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


def drawn(space, change=lambda x: x, seed=1):
    return space.constrain(change(np.random.default_rng(seed).normal(size=(N_DRAWS, 4))))


def shifted(column, by):
    return lambda x: x + by * (np.arange(4) == column)


def wider(x, column=3):
    """The log-ratio of a density of which a coordinate is that of a t distribution."""
    return stats.t.logpdf(x[:, column], 3) - stats.norm.logpdf(x[:, column])


def test_nothing_is_missed_where_the_densities_are_the_same(space):
    found = probed(stands_in(space), drawn(space))
    assert (found.outside, found.where, found.constant) == (0.0, "", "")
    assert found.n_points == 3 * found.n_coordinates == 12
    assert found.largest == 0.0
    assert found.misfit < found.misfit_limit


def test_the_coordinate_with_a_heavier_tail_is_named(space):
    found = probed(stands_in(space, wider), drawn(space))
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
    found = probed(stands_in(space), drawn(space, change))
    assert found.misfit > found.misfit_limit
    assert where in ("", found.misfit_where)
    assert found.misfit_limit < 6


def test_a_variable_that_never_moves_is_named_at_once(space):
    constant = drawn(space, lambda x: np.where(np.arange(4) == 2, 0.7, x))
    assert probed(stands_in(space), constant) == Probes(constant="b[2]")


def test_where_all_rows_are_kept_only_the_draws_are_judged(space):
    found = probed(stands_in(space, has_all_rows=lambda: True), drawn(space))
    assert found.n_points == 0
    assert 0 < found.misfit < found.misfit_limit
    shrunk = probed(stands_in(space, has_all_rows=lambda: True), drawn(space, lambda x: 0.3 * x))
    assert shrunk.misfit > shrunk.misfit_limit


def test_where_all_rows_are_kept_no_line_is_evaluated(space):
    passes = []

    def log_ratio(x):
        passes.append(len(x))
        return 0.1 * x[:, 0]

    draws = drawn(space)
    found = Probing.of(stands_in(space, log_ratio, has_all_rows=lambda: True), draws)
    log_p, log_q = found.log_densities(draws.to_datatree())
    np.testing.assert_array_equal(log_p, log_q)
    assert passes == [N_DRAWS]


def test_the_first_draws_and_the_lines_are_one_pass(space):
    passes = []

    def log_ratio(x):
        passes.append(len(x))
        return 0.1 * x[:, 0]

    draws = drawn(space)
    found = Probing.of(stands_in(space, log_ratio), draws)
    log_p, log_q = found.log_densities(draws.to_datatree())
    np.testing.assert_allclose(log_p - log_q, 0.1 * draws.values["b"][:, 0])
    assert passes == [N_DRAWS + 12]
    again = np.subtract(*found.log_densities(draws.to_datatree()))
    np.testing.assert_array_equal(again, log_p - log_q)
    assert passes == [N_DRAWS + 12, N_DRAWS]  # of more draws, say


def test_draws_that_are_known_are_not_evaluated_again(space):
    passes = []

    def log_ratio(x):
        passes.append(len(x))
        return 0.1 * x[:, 0]

    alone = probed(stands_in(space, log_ratio), drawn(space))
    assert passes == [12]
    beside = Probing.of(stands_in(space, log_ratio), drawn(space))
    beside.log_densities(drawn(space).to_datatree())
    both = beside.result()
    assert (alone.outside, alone.largest) == (both.outside, both.largest)


def test_points_that_the_full_data_exclude_have_no_density(space):
    found = Probing.of(stands_in(space), drawn(space))
    points = np.zeros((3, 4))
    points[1, 3] = 1e4  # whose exponential is infinite
    with np.errstate(over="ignore"):
        assert found.evaluated(points).tolist() == [0.0, -np.inf, 0.0]


def test_draws_on_the_border_of_the_support_are_refused(space):
    draws = drawn(space)
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

    own = compared(Probes(), stands_in(space, slopes=slopes), drawn(space))
    assert own.misfit < own.misfit_limit < 6
    other = compared(Probes(), stands_in(space, slopes=slopes), drawn(space, shifted(1, 0.5)))
    assert other.misfit > other.misfit_limit
    assert other.misfit_where == "b[1]"


def test_modes_that_overlap_are_no_alarm(space):
    """Draws that are next to one or the other are not apart."""
    modes = SimpleNamespace(nearest=lambda values: (values["b"][:, 0] > 0).astype(int))
    own = compared(Probes(), stands_in(space, modes=modes), drawn(space), 4)
    assert own.misfit < own.misfit_limit


def test_modes_along_lines_that_no_draw_visited_are_unseen(space):
    """By the approximate posterior's own density; those of less than 1 % together are not."""

    def beside(share):
        def log_density(x):
            far = np.log(share) + stats.norm.logpdf(x[:, 1], 9.0)
            own = np.logaddexp(stats.norm.logpdf(x[:, 1]) + np.log1p(-share), far)
            return stats.norm.logpdf(x[:, [0, 2, 3]]).sum(axis=1) + own

        return stands_in(space, log_density=log_density, has_all_rows=lambda: True)

    found = probed(beside(0.04), drawn(space))
    assert found.unseen == pytest.approx(0.04, rel=0.1)
    assert found.unseen_where == "b[1]"
    assert probed(beside(0.004), drawn(space)).unseen == 0.0

    def visiting(x):
        return x + 9.0 * (np.arange(len(x)) % 25 == 0)[:, None] * (np.arange(4) == 1)

    assert probed(beside(0.04), drawn(space, visiting)).unseen == 0.0
    # With many rows, there are fewer lines, along the largest part alone.
    slow = beside(0.04)
    slow.replacement.n_products = 1e9
    assert probed(slow, drawn(space)).unseen == pytest.approx(0.04, rel=0.1)


def test_a_wrong_gradient_is_no_alarm(space):
    """Of an operation with a custom gradient, say."""
    given = stands_in(space, slopes=lambda x: (x[:, 0], 0.5 - x))
    own = compared(Probes(), given, drawn(space))
    assert own.misfit < own.misfit_limit


def test_chains_are_thinned_where_gradients_take_long(space):
    asked = []

    def slopes(x):
        asked.append(len(x))
        return x[:, 0], -x

    draws = drawn(space)
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

    draws = drawn(space, lambda x: np.where(np.arange(N_DRAWS)[:, None] == 7, 3.0, x.clip(-2, 2)))
    with refused(InvalidDataError, "0.2%", "density"):
        Probing.of(stands_in(space, log_density=log_density), draws)


def test_a_few_draws_on_the_border_are_no_origins_of_lines(space):
    """Nor are there lines along what is on the border there."""
    draws = drawn(space)
    draws.values["scale"][:3] = 0.0
    found = probed(stands_in(space), draws)
    assert found.n_coordinates == 3
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
