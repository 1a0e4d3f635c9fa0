"""Searches for modes: from many starts, by symmetries, and by rows that decide."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.optimize import minimize, rosen, rosen_der

from pymc_coresets import OutOfTimeError, SeenModes
from pymc_coresets.deadline import until
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.keyed import RowSample
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling import modes
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.decisive_rows import rows_that_decide
from pymc_coresets.sampling.density import Density, Slopes
from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.maximisation.data_starts import starts_from_data
from pymc_coresets.sampling.maximisation.many_starts import minimise_together
from pymc_coresets.sampling.maximisation.one_start import FiniteObjective, minimise_where_finite
from pymc_coresets.sampling.mode_search import MOST_SEARCHED
from pymc_coresets.sampling.modes import proposal
from pymc_coresets.sampling.normal import Normal, heavy_tailed
from pymc_coresets.sampling.symmetry.local_modes import (
    ImageOfMode,
    KnownModes,
    LocalMode,
    noticeable,
)
from pymc_coresets.sampling.symmetry.symmetries import (
    Orbits,
    Symmetry,
    SymmetryTest,
    with_images,
)
from tests.derived import sampler_of
from tests.refusals import refused

# -- Symmetries of likelihoods, the images of modes under them, and starts that the data give. -----

TIMES = np.random.default_rng(4).uniform(0, 10, 2_000)


def found_by(sampler, *, size=1_000, seed=1):
    return proposal(sampler, 400, start_size=size, rng=np.random.default_rng(seed))


def flat_density(gradient=0.0):
    """The density of a prior that rises at the same rate in all coordinates."""
    return Density(lambda x: Slopes(gradient * x.sum(axis=1), np.full_like(x, gradient)))


@pytest.fixture(scope="module")
def two():
    with pm.Model() as model:
        pm.Normal("a")
        pm.Normal("b")
    return Unconstrained(model)


EXCHANGE = Symmetry("a and b exchanged", np.eye(2)[::-1], np.zeros(2), of_prior=True)
SHIFT = Symmetry("a by 5", np.eye(2), np.array([5.0, 0.0]), of_prior=False)
BACK = replace(SHIFT, name="a by -5", offset=np.array([-5.0, 0.0]))


# -- images of one mode ----------------------------------------------------------------------------


def test_the_image_of_a_normal_distribution_has_its_density_there():
    skewed = Symmetry("", np.array([[0.0, -1.0], [1.0, 0.5]]), np.array([3.0, 1.0]), of_prior=True)
    around = heavy_tailed(np.array([1.0, -2.0]), np.array([[2.0, 0.0], [0.7, 1.5]]))
    x = np.random.default_rng(1).normal(size=(5, 2))
    image = skewed.of_normal(around)
    np.testing.assert_allclose(image.log_density(skewed.at(x)), around.log_density(x))
    twice = skewed.after(skewed)
    np.testing.assert_allclose(twice.at(x), skewed.at(skewed.at(x)))


def test_images_under_a_symmetry_of_the_prior_too_have_equal_mass(two):
    mode = LocalMode(heavy_tailed(np.array([9.0, -9.0]), np.diag([2.0, 3.0])), -7.0, 4)
    first, image = Orbits(two, [EXCHANGE], flat_density(), 100).of(mode, 3)
    assert (first.n_ended, first.is_image, image.parent) == (4, False, 3)
    assert image.words == "image of mode 3: a and b exchanged"
    np.testing.assert_allclose(image.x, [-9.0, 9.0])
    np.testing.assert_allclose(image.around.factor.matrix, np.diag([9.0, 4.0]))
    assert image.log_mass == pytest.approx(first.log_mass)


def test_a_mode_that_a_symmetry_leaves_where_it_is_has_no_image(two):
    mode = LocalMode(heavy_tailed(np.full(2, 9.0), np.eye(2)), -7.0)
    assert len(Orbits(two, [EXCHANGE], flat_density(), 100).of(mode)) == 1


def test_images_under_a_period_have_the_mass_that_the_prior_gives_them(two):
    """Likelihood times exp(0.3 a): each mode is exp(1.5) times as high as that before."""
    prior = flat_density(0.3)
    mode = LocalMode(heavy_tailed(np.zeros(2), 4 * np.eye(2)), -7.0)
    found = Orbits(two, [SHIFT, BACK], prior, 12).of(mode)
    assert len(found) == 12
    for image in found:
        np.testing.assert_allclose(image.x[0] % 5.0 % 4.999, 0.0, atol=2e-3)
        assert image.height == pytest.approx(-7.0 + 0.3 * image.x[0], abs=1e-3)


def test_images_of_negligible_mass_are_left_out(two):
    def normal(x):  # of standard deviation 4
        return Slopes(-np.square(x).sum(axis=1) / 32, -x / 16)

    mode = LocalMode(heavy_tailed(np.zeros(2), 4 * np.eye(2)), 0.0)
    found = Orbits(two, [SHIFT, BACK], Density(normal), 100).of(mode)
    assert sorted(round(image.x[0]) for image in found) == [-15, -10, -5, 0, 5, 10, 15]


@pytest.mark.parametrize(("tilt", "words"), [(3.0, ""), (0.3, "image of mode 0: a mirrored")])
def test_an_image_that_is_a_known_mode_is_listed_once(two, tilt, words):
    """A prior of exp(tilt a) gives a mode at 5 much more mass than its image, or little more."""
    mirror = Symmetry("a mirrored", np.diag([-1.0, 1.0]), np.zeros(2), of_prior=False)
    modes = [
        LocalMode(heavy_tailed(np.array([a, 0.0]), 16 * np.eye(2)), tilt * a) for a in (5.0, -5.0)
    ]
    found, is_whole = with_images(modes, Orbits(two, [mirror], flat_density(tilt), 100))
    assert is_whole
    assert [mode.words for mode in found] == ["", words]
    np.testing.assert_allclose([mode.x[0] for mode in found], [5.0, -5.0], atol=0.05)
    np.testing.assert_allclose([mode.height for mode in found], [5 * tilt, -5 * tilt], atol=0.1)


def test_orbits_end_at_their_limit(two):
    mode = LocalMode(heavy_tailed(np.zeros(2), 4 * np.eye(2)), 0.0)
    unbounded = replace(SHIFT, of_prior=True)
    assert len(Orbits(two, [unbounded], flat_density(), 17).of(mode)) == 17


def test_modes_near_a_point_are_found_in_a_growing_list():
    known = KnownModes()
    for centre in range(0, 200, 10):
        known.add(LocalMode(Normal(np.array([centre, 0.0]), factor_of(np.eye(2))), 0.0))
    points = np.array([[71.0, 1.0], [71.6, 1.6], [71.0, 1.0], [1e3, 0.0]])
    # Of the second point each coordinate is near, but not both.
    np.testing.assert_array_equal(known.holding(points), [7, -1, 7, -1])
    assert [known.hold(x) for x in points] == [True, False, True, False]
    highest = known.modes[7].height
    heights = highest - np.array([1.0, 1.0, 5.0, 1.0])  # the third belongs to a lower place
    np.testing.assert_array_equal(known.holding(points, heights), [7, -1, -1, -1])
    known.set(7, replace(known.modes[7], around=heavy_tailed(np.array([75.0, 0.0]), np.eye(2))))
    assert known.holding(np.array([[71.0, 1.0]])).tolist() == [-1]


def test_families_of_little_mass_together_are_left_out():
    heights = [0.0, 0.0, -4.2, -6.0]  # in the second family there are two

    def at(i):
        around = Normal(np.array([10.0 * i]), factor_of(np.eye(1)))
        if i == 1:
            return ImageOfMode(around, heights[i], parent=0, symmetry="")
        return LocalMode(around, heights[i])

    kept = noticeable([at(0), at(1), at(3), at(2)])
    assert [mode.x[0] for mode in kept] == [0.0, 10.0]  # the others hold 0.9 % together
    more = noticeable([at(0), at(3), at(2)])
    assert [mode.x[0] for mode in more] == [0.0, 20.0]  # of which the larger holds 1.5 %


# -- which symmetries there are --------------------------------------------------------------------


def symmetries(model, full=None):
    """Those of the posterior of some rows, and of all."""
    sampler = sampler_of(model)
    some = sampler.density_of_some(100, 1)
    around = laplace(some, sampler.start)
    test = SymmetryTest(sampler.space, around, sampler.density_without_rows, [some])
    return test.symmetries(lambda: full or sampler.full_density, 500)


def test_a_symmetry_that_few_rows_break_is_none():
    """Of a sample without these rows, the sign of b cannot be told."""
    x = np.zeros(2_000)
    x[1_990:] = 1.0
    y = 4.0 + np.random.default_rng(2).normal(size=2_000)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 5, initval=1.0)
        pm.Normal("y", pm.math.switch(x, b, b**2), 1.0, observed=y)
    sampler = sampler_of(model)
    some = sampler.loglikelihood.source.take(slice(0, 500))
    without = sampler.posterior(some, np.ones(500)).density
    around = laplace(without, sampler.start)
    test = SymmetryTest(sampler.space, around, sampler.density_without_rows, [without])
    assert [own.name for own in test.symmetries(lambda: without, 500)] == ["sign of b"]
    assert test.symmetries(lambda: sampler.full_density, 500) == []


def test_only_entries_with_one_prior_are_exchangeable_in_it():
    y = np.random.default_rng(2).normal(np.repeat([-5.0, 0.0, 5.0], 300), 1.0)
    with pm.Model() as model:
        mu = pm.Normal("mu", [0.0, 0.0, 1.0], 5, initval=[-4.0, 0.1, 4.0])
        pm.Mixture("y", np.ones(3) / 3, pm.Normal.dist(mu, 1.0, shape=(3,)), observed=y)
    found = {own.name: own.of_prior for own in symmetries(model)}
    assert found == {
        "entries 0 and 1 of mu exchanged": True,
        "entries 1 and 2 of mu exchanged": False,
    }


def test_a_regression_has_no_symmetry_and_no_row_is_read_to_see_it():
    x = np.random.default_rng(2).normal(size=(300, 3))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=3)
        pm.Normal("y", x @ b, pm.HalfNormal("s"), observed=x @ [1.0, -1.0, 0.5] + x[::-1, 0])
    assert symmetries(model, full=object()) == []


# -- searches --------------------------------------------------------------------------------------


def exchangeable(k):
    rng = np.random.default_rng(3)
    y = rng.normal(rng.choice(4.0 * np.arange(k), size=1_500), 0.7)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5, shape=k, initval=np.linspace(-1, 1, k))
        pm.Mixture("y", np.ones(k) / k, pm.Normal.dist(mu, 0.7, shape=(k,)), observed=y)
    return sampler_of(model)


@pytest.mark.parametrize(("k", "n_images"), [(4, 24), pytest.param(5, 120, marks=pytest.mark.slow)])
def test_all_orders_of_exchangeable_entries_are_modes_of_equal_mass(k, n_images):
    sampler = exchangeable(k)
    found = found_by(sampler)
    mu = found.modes.positions["mu"].to_numpy()
    assert len({tuple(np.argsort(own)) for own in mu}) == len(mu) == n_images
    np.testing.assert_allclose(found.modes.mass, 1 / n_images, rtol=1e-6)
    assert found.modes.is_complete
    assert sum(image == "" for image in found.modes.images) == 1
    # The curvature at an image is that which the density has there.
    some = found.around.parts[-1]
    own = laplace(sampler.full_density, some.location)
    np.testing.assert_allclose(some.factor.matrix, own.factor.matrix, rtol=0.02, atol=5.0)
    draws = found.around.draw(4_000, rng=np.random.default_rng(1), equally=0.0)[0]
    error = 4 * draws.std(axis=0) / np.sqrt(4_000)
    assert (np.abs(draws.mean(axis=0) - mu.mean()) < error).all()
    weighted = sampler.laplace(sampler.loglikelihood.all_rows, np.ones(sampler.n_rows))
    assert len(weighted.parts) == n_images  # of weighted rows, too


def test_signs_of_squared_coefficients_have_sixteen_modes():
    x = np.random.default_rng(5).normal(size=(1_500, 4))
    y = x @ [1.0, 0.8, 1.2, 0.6] + np.random.default_rng(6).normal(size=1_500)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=4, initval=np.full(4, 0.5))
        pm.Normal("y", pm.math.dot(x, b**2), 1.0, observed=y)
    modes = found_by(sampler_of(model)).modes
    signs = np.sign(modes.positions["b"].to_numpy())
    assert len(np.unique(signs, axis=0)) == len(modes) == 16
    np.testing.assert_allclose(modes.mass, 1 / 16, rtol=1e-6)


@pytest.fixture(scope="module")
def wave():
    y = 1.3 * np.sin(2 * TIMES + 0.5) + np.random.default_rng(7).normal(size=len(TIMES))
    with pm.Model() as model:
        phase, size = pm.Normal("phase", 0, 20), pm.Normal("size", 0, 2)
        pm.Normal("y", size * pm.math.sin(2 * TIMES + phase), 1.0, observed=y)
    return found_by(sampler_of(model)).modes


def test_periods_of_a_phase_have_the_masses_of_its_prior(wave):
    phase = wave.positions["phase"].to_numpy()
    mass = stats.norm.pdf(phase, 0, 20)
    np.testing.assert_allclose(wave.mass, mass / mass.sum(), rtol=1e-3)
    assert (wave.mass @ phase) == pytest.approx(0.0, abs=0.5)
    assert np.sqrt(wave.mass @ phase**2) == pytest.approx(20.0, abs=0.2)
    assert wave.is_complete


def test_an_amplitude_changes_its_sign_half_a_period_later(wave):
    order = np.argsort(wave.positions["phase"].to_numpy())
    phase, size = (wave.positions[name].to_numpy()[order] for name in ("phase", "size"))
    np.testing.assert_allclose(np.diff(phase), np.pi, rtol=1e-3)
    np.testing.assert_allclose(size[1:], -size[:-1], rtol=1e-3)


def test_what_the_rows_do_not_see_has_no_period():
    x = np.random.default_rng(2).normal(size=(300, 2))
    with pm.Model() as model:
        pm.Cauchy("u", 0, 1, initval=0.5)
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Normal("y", x @ b, 1.0, observed=x @ [1.0, -1.0] + x[::-1, 0])
    assert not [own.name for own in symmetries(model) if "period" in own.name or " by " in own.name]


# -- starts ----------------------------------------------------------------------------------------

RIGHT = 20.0 + 0.5 * np.random.default_rng(17).normal(size=1_000)


@pytest.mark.parametrize("seed", range(3))
def test_clusters_far_apart_are_found_without_a_prior(seed):
    with pm.Model() as model:
        mu = pm.Flat("mu", initval=-19.0)
        pm.StudentT("y", nu=1, mu=mu, sigma=1.0, observed=np.concatenate([-RIGHT, RIGHT]))
    modes = found_by(sampler_of(model), size=400, seed=seed).modes
    # Both are found as modes of a sample, in which each has another mass.
    np.testing.assert_allclose(np.abs(modes.positions["mu"].to_numpy()), RIGHT.mean(), atol=0.1)
    np.testing.assert_allclose(modes.mass, 0.5, atol=1e-3)
    assert modes.is_complete


def clusters(each):
    def slopes(x):
        away = [rows.arrays[0] - own for rows, own in zip(each, x, strict=True)]
        values = np.array([-np.log1p(z**2).sum() for z in away])
        return Slopes(values, np.array([[(2 * z / (1 + z**2)).sum()] for z in away]))

    return Density(slopes)


def test_rows_on_either_side_of_a_gap_give_starts_at_both_clusters():
    y = np.sort(np.concatenate([RIGHT[:300] - 40, RIGHT[:40], [500.0]]))  # and an outlier
    rows = Rows(np.arange(len(y)), np.ones(len(y)), (y,))
    first = Normal(np.array([-20.0]), factor_of(np.array([[300.0]])))
    found = starts_from_data(
        RowSample(rows=rows, weights=np.ones(len(y))), clusters, first, rng=np.random.default_rng(1)
    )
    np.testing.assert_allclose(found[:2, 0], [-20.0, 20.0], atol=0.2)
    assert len(found) > 10


def test_rows_of_which_none_has_a_density_give_no_starts():
    rows = Rows(np.arange(200), np.ones(200), (np.full(200, np.nan),))
    first = Normal(np.zeros(1), factor_of(np.eye(1)))
    with np.errstate(invalid="ignore"):
        found = starts_from_data(
            RowSample(rows=rows, weights=np.ones(200)),
            clusters,
            first,
            rng=np.random.default_rng(1),
        )
    assert found.shape == (0, 1)


# -- what draws of many modes say ------------------------------------------------------------------


def seen(counts, **changes):
    """Modes of equal mass, and how many draws are near each."""
    k, n = len(counts), int(np.sum(counts))
    return SeenModes(
        n_starts=40, mass=[1 / k] * k, places=["mu = 0"] * k, images=[""] * k,
        shares=list(np.asarray(counts) / n), n_draws=n, **changes,
    )  # fmt: skip


@pytest.mark.parametrize("k", [24, 120, 720])
def test_draws_of_many_modes_may_miss_some_by_chance_but_not_half(k):
    rng = np.random.default_rng(1)
    assert seen(rng.multinomial(400, np.ones(k) / k)).unseen == []
    half = np.where(np.arange(k) % 2, 0, 2 / k)
    missed = seen(rng.multinomial(400, half)).unseen
    assert set(range(1, k, 2)) <= set(missed)


def test_what_is_not_finished_is_said_in_a_few_words():
    found = seen([200, 200], is_complete=False)
    assert found.words == "2 from 40 starts (perhaps not all), 2 visited"
    assert MOST_SEARCHED > 8


# -- Rows on which a posterior depends, but which a sample at random lacks. ------------------------

N = 1_000


def of_slopes(slopes, size=N, weights=None):
    """Return log-likelihoods that are linear: ``slopes @ theta`` of each row, in blocks."""
    rows = Rows(np.arange(len(slopes)) * 2, np.ones(len(slopes)) if weights is None else weights)

    def of_all(draws, of_block, joined):
        parts = [
            of_block(draws @ slopes[some.positions // 2].T, some) for some in rows.blocks(size)
        ]
        return joined(parts)

    space = SimpleNamespace(constrain=lambda points: points)
    return SimpleNamespace(
        n_rows=len(rows), observations=SimpleNamespace(space=space), of_all=of_all
    )


AROUND = heavy_tailed(np.array([1.0, -2.0]), np.diag([0.1, 3.0]))


@pytest.mark.parametrize("size", [7, 100, N])
def test_rows_are_found_that_alone_see_a_coefficient(size):
    slopes = np.column_stack([np.random.default_rng(1).normal(size=N), np.zeros(N)])
    slopes[[5, 600, 601], 1] = 1e-6, -1e-6, 3e-6  # however little that is
    found = rows_that_decide(of_slopes(slopes, size), AROUND, 100)
    np.testing.assert_array_equal(found.positions, [10, 1200, 1202])


@pytest.mark.parametrize(("n_seeing", "n_sampled", "n_found"), [
    (15, 100, 15), (19, 500, 19), (25, 500, 0), (150, 50, 0), (N, 100, 0),
])  # fmt: skip
def test_a_sample_has_enough_of_many_rows_that_see_a_coefficient(n_seeing, n_sampled, n_found):
    """An axis that 25 rows share equally is known from twelve of them."""
    slopes = np.ones((N, 2))
    slopes[n_seeing:, 1] = 0.0
    assert len(rows_that_decide(of_slopes(slopes), AROUND, n_sampled)) == n_found


def test_a_row_counts_as_often_as_its_weight():
    weights = np.ones(N)
    weights[3] = 200.0
    found = rows_that_decide(of_slopes(np.ones((N, 2)), 10, weights), AROUND, 10)
    np.testing.assert_array_equal(found.positions, [6])


def test_modes_are_found_that_four_rows_make():
    """A sample without these rows has one mode of ``c``."""
    n, rng = 3_000, np.random.default_rng(3)
    x, few = rng.normal(size=n), np.arange(n) % 750 == 300
    y = np.where(few, 4.0, x) + rng.normal(size=n)
    with pm.Model() as model:
        slope, c = pm.Normal("slope"), pm.Normal("c", 0.5, 1.5)
        pm.Normal("y", pm.math.switch(few, c**2, slope * x), 1.0, observed=y)
    sampler = sampler_of(model)
    assert not few[sampler.subsample(100, key=1, distinct=True).rows.positions].any()
    rng = np.random.default_rng(1)
    found = modes.proposal(sampler, 10, start_size=100, rng=rng, key=1).modes
    grid = np.linspace(-6, 6, 4_001)
    logs = -np.square(y[few][:, None] - grid**2).sum(axis=0) / 2 - np.square((grid - 0.5) / 1.5) / 2
    masses = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    assert found.positions["c"].values == pytest.approx([2.0, -2.0], abs=0.3)
    assert found.mass == pytest.approx([masses[grid > 0].sum(), masses[grid < 0].sum()], abs=0.02)


# -- Searches for the lowest point of functions that are not finite everywhere. --------------------


def beyond_zero(x):
    return (float(x[0] - np.log(x[0])), 1 - 1 / x) if x[0] > 0 else (np.nan, x)


@pytest.mark.parametrize("start", [1e-3, 10.0, 100.0, 1_000.0])
def test_steps_to_where_there_is_nothing_are_shortened(start):
    assert_allclose(
        minimise_where_finite(FiniteObjective(beyond_zero), np.array([start])).x, 1, atol=1e-4
    )


def test_a_gradient_alone_that_is_not_finite_is_a_border_too():
    """As of PyMC's mixtures, where a weight is so small that its logarithm is infinite."""

    def function(x):
        inside = np.abs(x).max() < 1.3
        return rosen(x), rosen_der(x) if inside else np.full_like(x, np.nan)

    start = np.random.default_rng(1).uniform(-1, 1, 8)
    assert_allclose(minimise_where_finite(FiniteObjective(function), start).x, 1, atol=1e-4)


def test_where_all_is_finite_it_is_l_bfgs_itself():
    def function(x):
        return rosen(x), rosen_der(x)

    start = np.random.default_rng(1).uniform(-1, 1, 8)
    same = minimize(function, start, jac=True, method="L-BFGS-B", options={"maxiter": 2_000})
    assert (minimise_where_finite(FiniteObjective(function), start).x == same.x).all()


def test_another_start_is_found_near_one_that_is_not_finite():
    found = minimise_where_finite(FiniteObjective(beyond_zero), np.array([-0.5]))
    assert_allclose(found.x, 1, atol=1e-4)


def test_what_is_finite_nowhere_is_said_to_be_infinite():
    found = minimise_where_finite(
        FiniteObjective(lambda x: (0.0, np.full_like(x, np.nan))), np.zeros(2)
    )
    assert found.fun == np.inf
    assert 0 < np.abs(found.x).max() <= 1  # one of the points nearby that were tried


def test_all_searches_together_have_a_bound():
    calls = []

    def falls_to_the_border(x):
        calls.append(x)
        return (float(x[0]), np.ones(1)) if x[0] > 0 else (np.nan, x)

    minimise_where_finite(FiniteObjective(falls_to_the_border), np.ones(1), most_steps=4)
    assert len(calls) <= 20 + 20  # those of the last line search are not counted


# -- Ascents that step together end where single ones do. ------------------------------------------

RNG = np.random.default_rng(1)


def of_points(function, gradient):
    def negative(points, which):
        negative.n_calls += 1
        negative.n_points += len(points)
        return np.array([function(x) for x in points]), np.array([gradient(x) for x in points])

    negative.n_calls = negative.n_points = 0
    return negative


def test_narrow_valleys_are_followed_to_their_ends():
    negative = of_points(rosen, rosen_der)
    starts = RNG.uniform(-2, 2, size=(24, 2))
    ends = minimise_together(negative, starts, most_steps=200)
    assert ends.finished.all()
    np.testing.assert_allclose(ends.points, 1.0, atol=1e-2)
    alone = sum(minimize(rosen, x, jac=rosen_der, method="L-BFGS-B").nfev for x in starts)
    assert negative.n_points < 1.2 * alone
    assert negative.n_calls < alone / 8


def test_each_start_ends_at_its_own_minimum():
    centres = np.array([[-4.0, 0.0, 1.0], [4.0, 1.0, 0.0], [0.0, 6.0, -5.0]])

    def nearest(x):
        return int(np.square(x - centres).sum(axis=1).argmin())

    negative = of_points(
        lambda x: np.square(x - centres[nearest(x)]).sum() / 2 + nearest(x),
        lambda x: x - centres[nearest(x)],
    )
    starts = np.concatenate([centres + shift for shift in (-0.7, 0.4, 0.9)])
    ends = minimise_together(negative, starts, most_steps=50)
    np.testing.assert_allclose(ends.points, np.tile(centres, (3, 1)), atol=1e-4)
    np.testing.assert_allclose(ends.values, np.tile(np.arange(3), 3), atol=1e-6)


def test_what_is_not_finite_is_not_entered():
    negative = of_points(
        lambda x: 100 * (x[0] - np.log(x[0])) if x[0] > 0 else np.nan,
        lambda x: 100 - 100 / x if x[0] > 0 else np.full(1, np.nan),
    )
    ends = minimise_together(negative, np.array([[50.0], [-1.0], [1e-3]]), most_steps=100)
    np.testing.assert_allclose(ends.points[[0, 2], 0], 1.0, atol=1e-3)
    assert np.isinf(ends.values[1])


def test_a_climb_that_meets_another_has_its_end_for_no_evaluations():
    negative = of_points(rosen, rosen_der)
    start = np.array([[-1.2, 1.0]])
    one = minimise_together(negative, start, most_steps=200)
    alone, negative.n_points = negative.n_points, 0
    ends = minimise_together(negative, np.repeat(start, 8, axis=0), most_steps=200)
    assert negative.n_points <= alone + 2 * 7
    np.testing.assert_array_equal(ends.points, np.repeat(one.points, 8, axis=0))


def test_known_ends_and_the_end_of_time_stop_climbs():
    negative = of_points(lambda x: float(x @ x), lambda x: 2 * x)
    starts = np.array([[1.0, 2.0], [3.0, 30.0]])
    ends = minimise_together(
        negative, starts, most_steps=50, are_known=lambda values, _: values < 500
    )
    assert ends.finished.all()
    assert 0 < ends.values.max() < 500
    over = minimise_together(negative, starts, most_steps=50, is_over=lambda: True)
    assert not over.finished.any()
    with refused(OutOfTimeError, "2 of 2 searches"), until(0.0):
        minimise_together(negative, starts, most_steps=50)


def test_each_start_may_have_a_function_of_its_own():
    """None of them joins another, although all begin where they meet."""
    centres = np.array([[-4.0, 0.0], [4.0, 1.0], [0.0, 6.0]])

    def negative(points, which):
        away = points - centres[which]
        return np.square(away).sum(axis=1) / 2, away

    ends = minimise_together(negative, np.zeros((3, 2)), most_steps=50, joins=False)
    np.testing.assert_allclose(ends.points, centres, atol=1e-6)


def hidden(kind):
    """Return the posterior of effects whose means, `hidden`, no row sees."""
    rng = np.random.default_rng(3)
    with pm.Model() as model:
        if kind == "of groups":  # in each of four groups, around the same means
            means = pm.Normal("hidden", 0, 2, shape=3)
            effects = pm.Normal("effects", means, pm.Gamma("spread", 2, 4), shape=(4, 3))
            seen = effects[np.tile(np.arange(4), 60)[:, None], np.arange(3)]
            y = [0.0, 1.0, 2.0] + rng.normal(size=(4, 3))[np.tile(np.arange(4), 60)]
        else:
            effects = pm.Normal("effects", pm.Normal("hidden", 0, 2) ** 2, 1.0)
            seen, y = effects, rng.normal(3.0, 1.0, size=240)
        pm.Normal("y", seen, 1.0, observed=y)
    return sampler_of(model)


@pytest.mark.parametrize(("kind", "n_modes"), [("of groups", 1), ("squared", 2)])
def test_what_rows_do_not_see_has_images_by_the_prior_alone(kind, n_modes):
    """Exchanged means of effects leave the likelihood as it is, and are no other mode."""
    found = found_by(hidden(kind)).modes
    assert len(found) == n_modes
