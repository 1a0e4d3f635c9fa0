"""The search for other modes, mixtures around them, and what checks say of them."""

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats
from scipy.special import expit, softmax

from pymc_coresets import (
    Certificate,
    Check,
    Coreset,
    Modes,
    Reason,
    SamplingError,
    build_coreset,
)
from pymc_coresets.diagnostics.known_posterior import BETWEEN_MODES, MODE
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.keyed import RowSample
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.curvature import laplace, laplace_parts
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.found_modes import FoundModes
from pymc_coresets.sampling.maximisation.many_modes import maximise_by_curvature, settled_each
from pymc_coresets.sampling.maximisation.one_start import near_mode
from pymc_coresets.sampling.maximisation.paths import are_apart
from pymc_coresets.sampling.mode_search import (
    find_modes,
    mode_of,
    prior_draws,
    starting_points,
    starts_at_images,
    starts_beyond_dips,
)
from pymc_coresets.sampling.modes import beside_mode
from pymc_coresets.sampling.normal import Mixture, Normal, heavy_tailed
from pymc_coresets.sampling.sample_search import SampleSearch, held_near
from pymc_coresets.sampling.symmetry.local_modes import LocalMode
from pymc_coresets.sampling.symmetry.value_changes import changes
from tests.refusals import refused, warned


def density_of(logp_and_gradient):
    """A density of functions of one point."""
    return Density(
        lambda points: list(map(np.stack, zip(*map(logp_and_gradient, points), strict=True)))
    )


def normals(weights, centres, sds):
    """A mixture of normal distributions in one dimension."""

    def logp_and_gradient(x):
        z = (x[0] - centres) / sds
        logs = np.log(weights / sds) - z**2 / 2
        return np.logaddexp.reduce(logs), -np.sum(softmax(logs) * z / sds, keepdims=True)

    return density_of(logp_and_gradient)


def looked_for(density, begin, starts, error=0.0):
    first = mode_of(density, laplace(density, np.atleast_1d(begin)))
    starts = np.array(starts, dtype=float)
    found, n_starts = find_modes(density, [first], starts, error=lambda one, other: error)
    assert n_starts == len(starts)
    return found


TWO = normals(np.array([0.8, 0.2]), np.array([-5.0, 6.0]), np.array([1.0, 0.3]))


def test_both_modes_are_found_with_their_masses_and_the_starts_that_ended_there():
    found = looked_for(TWO, -4.0, [[-7.0], [-3.0], [5.0], [7.5], [-30.0], [6.2]])
    np.testing.assert_allclose([m.x[0] for m in found], [-5.0, 6.0], atol=1e-3)
    assert [m.n_ended for m in found] == [3, 3]
    masses = softmax([m.log_mass for m in found])
    np.testing.assert_allclose(masses, [0.8, 0.2], atol=1e-3)


@pytest.mark.parametrize(("error", "kept"), [(0.0, 1), (3.0, 1), (10.0, 2)])
def test_a_much_lower_mode_is_kept_only_where_the_sample_cannot_tell(error, kept):
    low = normals(np.array([1.0, np.exp(-40.0)]), np.array([-5.0, 15.0]), np.ones(2))
    assert len(looked_for(low, -5.0, [[15.1]], error)) == kept


def test_a_higher_mode_than_the_first_is_found():
    high = normals(np.array([np.exp(-40.0), 1.0]), np.array([-5.0, 15.0]), np.ones(2))
    assert [round(m.height) for m in looked_for(high, -5.0, [[15.1]])] == [-40, 0]


def test_of_two_modes_that_are_one_the_higher_is_kept():
    shoulder = normals(np.array([np.exp(-40.0), 1.0]), np.array([-5.0, 6.0]), np.ones(2))
    [found] = looked_for(shoulder, -5.0, [[6.1]])
    assert found.x.round(3) == 6.0


def ridge(x):
    """A ridge along xy = 1, on which log x has a standard deviation of 1 around 0."""
    a, b = x
    off, along = 300 * (a * b - 1), np.log(a)
    if not a > 0:
        return -np.inf, np.zeros(2)
    return -((a * b - 1) ** 2) * 150 - along**2 / 2, np.array([-off * b - along / a, -off * a])


def test_points_along_a_curved_ridge_are_one_mode():
    """The straight way between them dips by some ninety nats."""
    density = density_of(ridge)
    stopped = [Normal(np.array(x), factor_of(100 * np.eye(2))) for x in
               ([0.5, 2.0], [2.5, 0.4])]  # fmt: skip
    middle = (stopped[0].location + stopped[1].location) / 2
    assert density.logp_and_gradient(middle)[0] < -90
    assert not are_apart(density, [tuple(stopped)])[0]
    assert len(looked_for(density, [1.1, 0.9], [[0.3, 3.0], [4.0, 0.2], [2.0, 1.0]])) == 1


def counting(slopes):
    """A density, and the numbers of points that it is asked for at once."""
    calls = []
    return Density(lambda points: (calls.append(len(points)), slopes(points))[1]), calls


def test_the_points_of_a_way_climb_together():
    density, calls = counting(density_of(ridge)._slopes)
    ends = [Normal(np.array(x), factor_of(100 * np.eye(2))) for x in ([0.5, 2.0], [2.5, 0.4])]
    assert not are_apart(density, [tuple(ends)])[0]
    assert 8 in calls
    assert len(calls) < 50 < sum(calls)


def test_two_dozen_starts_ask_at_most_three_times_as_often_as_one():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 5))
    y = rng.random(400) < expit(x @ [1, -0.5, 0.3, 0, 0.2] - 1)

    def slopes(points):
        log_odds = points @ x.T
        logp = (y * log_odds - np.logaddexp(0, log_odds)).sum(axis=1)
        return logp - np.square(points).sum(axis=1) / 2, (y - expit(log_odds)) @ x - points

    density, calls = counting(slopes)
    first = mode_of(density, laplace(density, np.zeros(5)))
    starts = rng.normal(0, 3, size=(24, 5))

    def asked(some):
        calls.clear()
        [found], _ = find_modes(density, [first], some, error=lambda one, other: 0.0)
        assert found.n_ended == len(some)
        return len(calls), sum(calls)

    alone = np.array([asked(start[None]) for start in starts])
    n_calls, n_points = asked(starts)
    assert n_calls <= 3 * alone[:, 0].mean()
    assert n_points <= alone[:, 1].sum()


def test_the_two_branches_of_a_hyperbola_are_two_modes():
    def both(x):
        off = 100 * (x[0] * x[1] - 1.5)
        return -(off**2) / 200 - x @ x / 2, -off * x[::-1] - x

    found = looked_for(density_of(both), [1.0, 1.3], [[-1.0, -1.0], [2.0, 1.0], [-3.0, 0.5]])
    np.testing.assert_allclose(found[0].x, -found[1].x, atol=1e-3)
    assert len(found) == 2


def test_climbs_survive_where_the_density_is_no_number():
    def half(x):
        return (-(x[0] ** 2), -2 * x) if abs(x[0]) < 50 else (np.nan, x * np.nan)

    assert [m.n_ended for m in looked_for(density_of(half), 1.0, [[3.0], [49.9]])] == [2]


def test_climbs_survive_steps_along_enormous_gradients():
    def count(x):
        return 3 * x[0] - np.exp(x[0]), 3 - np.exp(x)

    with np.errstate(over="ignore", invalid="ignore"):
        [found] = looked_for(density_of(count), np.log(3), [[300.0], [600.0], [-600.0]])
    assert found.x == pytest.approx(np.log(3))


def test_a_flat_prior_has_no_draws():
    with pm.Model() as model:
        pm.Normal("y", pm.Flat("a"), 1.0, observed=[0.5, 1.5])
    space, rng = Unconstrained(model), np.random.default_rng(1)
    assert prior_draws(space, 10, rng=rng).shape == (0, 1)
    density = Density.of_model(space)
    of_prior, nearby = starting_points(space, density, rng=rng)
    assert of_prior.shape == (0, 1)
    assert nearby.shape == (4, 1)  # with jitter
    mode = laplace(density, space.start).location
    assert starts_at_images(space, density, mode).shape == (1, 1)  # of other sign


def test_the_search_for_a_mode_goes_on_from_a_saddle():
    """At the initial point of this model, the gradient is exactly zero."""
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Potential("product", -50 * (a * b - 1.5) ** 2)
    found = laplace(Density.of_model(Unconstrained(model)), np.zeros(2))
    # The gradient vanishes at a = b = sqrt(1.5 - 1 / 100), or both negative.
    np.testing.assert_allclose(found.location**2, 1.49, rtol=1e-4)


@pytest.mark.parametrize(("start", "most"), [(2.0001, 10), (0.0, 60), (1.2, 60)])
def test_a_search_goes_on_only_where_it_has_not_ended_at_a_mode(start, most):
    """Between two peaks, at -2 and 2, the curvature has the other sign."""
    density, calls = counting(normals(np.array([0.5, 0.5]), np.array([-2.0, 2.0]), 0.5)._slopes)
    first = mode_of(density, laplace(density, np.array([-1.9])))
    calls.clear()
    found, n_starts = find_modes(density, [first], np.array([[start]]), error=lambda *_: 0.0)
    np.testing.assert_allclose(np.abs([mode.x[0] for mode in found]), 2.0, atol=1e-3)
    assert sum(mode.n_ended for mode in found) == n_starts == 1
    assert len(calls) <= most


def test_starts_on_a_ridge_follow_it_together_to_the_known_mode():
    """Each alone takes dozens of curvatures, whose steps are as short as the ridge is thin."""

    def slopes(points):
        a, b = points.T
        off = 2e4 * (a + b**2 - 1)
        values = -(off**2) / 4e4 - a**2 / 8 - b**2 / 2
        return values, np.stack([-off - a / 4, -2 * b * off - b], axis=1)

    density, calls = counting(slopes)
    first = mode_of(density, laplace(density, np.array([1.0, 0.0])))
    b = np.array([-2.5, -1.5, -0.7, 0.6, 1.2, 2.0])

    def asked(b):
        calls.clear()
        found, _ = find_modes(
            density, [first], np.stack([1 - b**2, b], axis=1), error=lambda *_: 0.0
        )
        assert [mode.n_ended for mode in found] == [len(b)]
        np.testing.assert_allclose(found[0].x, first.x, atol=1e-4)
        return len(calls)

    alone = [asked(one[None]) for one in b]
    assert max(alone) > 60
    assert asked(b) <= max(alone) + 20


def test_modes_of_single_coordinates_are_found_from_beyond_dips():
    """Twelve correlated coordinates, each with a second mode of a few thousandths of the mass."""
    rng = np.random.default_rng(3)
    root = np.eye(12) + 0.1 * rng.normal(size=(12, 12))
    places, logs = rng.uniform(8, 25, 12) * rng.choice([-1, 1], 12), rng.uniform(-7, -5, 12)

    def slopes(points):
        z = np.linalg.solve(root, points.T).T
        parts = np.stack([-(z**2) / 2, logs - (z - places) ** 2 / 2])
        shares = softmax(parts, axis=0)
        gradients = -shares[0] * z - shares[1] * (z - places)
        return np.logaddexp(*parts).sum(axis=1), np.linalg.solve(root.T, gradients.T).T

    density = Density(slopes)
    first = mode_of(density, laplace(density, np.zeros(12)))
    starts = starts_beyond_dips(density, first.around)
    assert len(starts) >= 12
    found, _ = find_modes(density, [first], starts, error=lambda *_: 0.0)
    z = np.linalg.solve(root, np.stack([mode.x for mode in found]).T).T
    alone = z[np.sum(np.abs(z) > 5, axis=1) == 1]
    assert set(np.abs(alone).argmax(axis=1)) == set(range(12))


@pytest.mark.parametrize("log_one", [stats.t(3), stats.gumbel_r, stats.logistic])
def test_without_dips_there_are_no_starts_beyond(log_one):
    def slopes(points):
        values = log_one.logpdf(points).sum(axis=1)
        change = log_one.logpdf(points + 1e-6) - log_one.logpdf(points - 1e-6)
        return values, change / 2e-6

    density = Density(slopes)
    around = laplace(density, np.full(3, 0.1))
    with np.errstate(over="ignore", invalid="ignore"):
        assert starts_beyond_dips(density, around).shape == (0, 3)


def test_a_prior_that_adds_up_many_variables_can_be_drawn_from():
    """NumPy takes 32 arrays at once."""
    with pm.Model() as model:
        pm.Normal("z", pt.add(*(pm.Normal(f"b{i}") for i in range(40))))
    assert prior_draws(Unconstrained(model), 3, rng=np.random.default_rng(1)).shape == (3, 41)


def test_where_no_mode_of_a_sample_leads_to_one_of_all_rows_that_is_said(fails):
    fails(SampleSearch, "around_all", SamplingError("No mode nearby."))
    two = [LocalMode(around=None, height=0.0, n_ended=1)] * 2
    with refused(SamplingError, "No mode nearby."):
        SampleSearch(None, 100, 1).polished(two, None)


def test_images_of_matrices_and_vectors_of_the_same_axis():
    values = {"w": np.arange(6.0).reshape(2, 3), "b": np.array([7.0, 8.0, 9.0])}
    found = {name: change(values) for name, change in changes(values)}
    both = found["entries 0 and 2 of w, b exchanged"]
    np.testing.assert_array_equal(both["w"], [[2, 1, 0], [5, 4, 3]])
    np.testing.assert_array_equal(both["b"], [9, 8, 7])
    flipped = found["sign of entry 1 of w, b"]
    np.testing.assert_array_equal(flipped["w"], [[0, -1, 2], [3, -4, 5]])
    np.testing.assert_array_equal(flipped["b"], [7, -8, 9])
    np.testing.assert_array_equal(values["b"], [7, 8, 9])


CENTRES, FACTORS = np.array([[-3.0, 0.0], [4.0, 1.0]]), np.array([np.eye(2), [[2, 0], [1, 3.0]]])


def test_density_of_a_mixture_around_several_modes():
    parts = [heavy_tailed(c, f) for c, f in zip(CENTRES, FACTORS, strict=True)]
    draws, logq = Mixture(parts, np.array([0.8, 0.2])).draw(1_000, rng=np.random.default_rng(1))
    shares = [0.65, 0.35]  # half of it equally
    exact = np.log(sum(
        share * (0.9 * stats.multivariate_normal(c, np.linalg.inv(f @ f.T)).pdf(draws)
                 + 0.1 * stats.multivariate_t(c, np.linalg.inv(f @ f.T), df=5).pdf(draws))
        for share, c, f in zip(shares, CENTRES, FACTORS, strict=True)
    ))  # fmt: skip
    np.testing.assert_allclose(logq - logq[0], exact - exact[0], atol=1e-8)
    assert np.count_nonzero(draws[:, 0] < 0.5) == pytest.approx(650, abs=5)
    first = draws[:100, 0] < 0.5
    assert 0 < first.sum() < 100  # in random order


def test_a_mixture_of_laplace_approximations_is_that_of_the_density():
    mixture = Mixture.of(*laplace_parts(TWO, [np.array([-4.0]), np.array([6.1]), np.array([5.9])]))
    np.testing.assert_allclose(mixture.masses, [0.8, 0.2], atol=1e-3)
    x, logq = mixture.draw(500, rng=np.random.default_rng(1), equally=0.0)
    exact = TWO.values(x)
    np.testing.assert_allclose(logq - logq[0], exact - exact[0], atol=0.01)
    assert np.count_nonzero(x > 0) == 100


# -- what checks say -------------------------------------------------------------------------------


def known(*centres, mass):
    positions = xr.Dataset({"mu": (MODE, list(centres))})
    sds = xr.full_like(positions, 0.5)
    n_ended = np.ones(len(mass), dtype=np.int64)
    images = ("",) * len(mass)
    return Modes(positions=positions, sds=sds, mass=np.array(mass), n_ended=n_ended, n_starts=24,
                 images=images)  # fmt: skip


def certified(modes, draws):
    return replace(Certificate.of(np.zeros(400)), modes=modes.seen_by({"mu": np.array(draws)}))


def test_draws_that_miss_a_mode_are_doubtful():
    missed = certified(known(1.0, -1.0, mass=[0.7, 0.3]), [0.9, 1.4, 0.5])
    assert not missed.reliable
    assert missed.verdict.reason is Reason.UNSEEN_MODE
    assert "the full posterior has 2 modes. None of these draws visited " in missed.verdict.text
    assert "at mu = -1 (0.3 of the mass found)" in missed.verdict.text
    assert "modes                2 from 24 starts, 1 visited" in repr(missed)
    assert missed.verdict.text.count(BETWEEN_MODES) == 1


def test_certificates_remark_on_several_modes_and_checks_count_those_visited():
    certificate = certified(known(1.0, -1.0, mass=[0.7, 0.3]), [0.9, 1.4, -0.5])
    assert certificate.reliable
    assert certificate.verdict.text.count(BETWEEN_MODES) == 1
    given = {each.name: getattr(certificate, each.name) for each in fields(certificate)}
    check = Check(**given, rhat=1.0, ess_bulk=1e3, n_divergences=0)
    assert check.reliable
    assert BETWEEN_MODES not in check.verdict.text
    assert "modes                2 from 24 starts, 2 visited" in repr(check)


def test_the_nearest_mode_is_so_in_standard_deviations():
    modes = known(0.0, 4.0, mass=[0.5, 0.5])
    unequal = replace(modes, sds=xr.Dataset({"mu": (MODE, [0.1, 2.0])}))
    assert unequal.nearest({"mu": np.array([0.2, 1.5, 4.0])}).tolist() == [0, 1, 1]


def test_entries_that_never_vary_say_nothing_of_modes():
    """Cholesky factors have zeros above their diagonals, and first entries of correlations ones."""
    positions = xr.Dataset({"mu": ((MODE, "i"), [[0.0, 1.0, 1.0], [0.0, 1.0, -1.0]])})
    sds = xr.Dataset({"mu": ((MODE, "i"), [[0.0, 1e-16, 0.5]] * 2)})
    modes = replace(known(1.0, -1.0, mass=[0.5, 0.5]), positions=positions, sds=sds)
    draws = np.array([[0.0, 1.0, 1.1], [0.0, 1.0 + 1e-15, -0.9], [0.0, 1.0, -1.2]])
    assert modes.nearest({"mu": draws}).tolist() == [0, 1, 1]
    assert "mu[2] = -1" in repr(modes)


@pytest.mark.parametrize("modes", [known(1.0, mass=[1.0]), known(1.0, -1.0, mass=[0.7, 0.3])])
def test_draws_of_all_modes_are_reliable(modes):
    found = certified(modes, [0.9, 1.4, -0.5] if len(modes) == 2 else [0.9])
    assert found.reliable
    assert found.verdict.text.startswith("Reliable: ")


@pytest.mark.parametrize("modes", [known(1.0, mass=[1.0]), known(1.0, -1.0, mass=[0.7, 0.3])])
def test_a_search_that_was_not_finished_is_part_of_the_verdict(modes):
    found = certified(replace(modes, is_complete=False), [0.9, 1.4, -0.5])
    assert found.reliable
    assert found.verdict.text.startswith(
        "Reliable around the modes found (the search for others was not finished): "
    )
    assert "(perhaps not all)" in repr(found)


def test_modes_that_were_not_looked_for_are_said_to_be_unknown():
    assert "not looked for" in repr(Certificate.of(np.zeros(400)))


def test_chains_that_stay_in_one_mode_each_are_not_told_to_run_longer():
    seen = known(1.0, -1.0, mass=[0.5, 0.5]).seen_by({"mu": np.array([1.0, -1.0])})
    check = Check(**vars(Certificate.of(np.zeros(400))) | {"modes": seen}, rhat=2.0, ess_bulk=6.0,
                  n_divergences=0)  # fmt: skip
    assert not check.reliable
    assert check.verdict.reason is Reason.SEPARATE_MODES
    assert "Sample longer" not in check.verdict.text


# -- builds ----------------------------------------------------------------------------------------

N = 3_000
Y = np.random.default_rng(5).normal(2.0, 40.0, N)
SHARES = np.array([0.4, 0.6])
QUIET = {"progressbar": False, "quiet": True}


@pytest.fixture(scope="module")
def built():
    """A mean with a prior of two modes, and data that decide between them only half."""
    with pm.Model() as model:
        mu = pm.Mixture("mu", SHARES, pm.Normal.dist([-3.0, 3.0], 0.3))
        pm.Normal("y", mu, 400.0, observed=Y)
    with warned("2 modes", "mu ="):
        return build_coreset(model, random_seed=1, progressbar=False)


def right_share():
    """The exact probability of a positive mean, by integration."""
    grid = np.linspace(-8, 8, 4_001)
    prior = (SHARES * stats.norm.pdf(grid[:, None], [-3.0, 3.0], 0.3)).sum(axis=1)
    posterior = prior * np.exp(-((grid - Y.mean()) ** 2) * N / 2 / 400.0**2)
    return posterior[grid > 0].sum() / posterior.sum()


def test_a_build_finds_both_modes_and_their_masses(built):
    order = np.argsort(built.modes.positions["mu"].to_numpy())
    assert len(built.modes) == 2
    assert built.modes.mass[order[1]] == pytest.approx(right_share(), abs=0.01)
    np.testing.assert_allclose(built.modes.sds["mu"], 0.3, rtol=0.3)  # of 100 draws
    assert built.modes.n_ended.sum() <= built.modes.n_starts


def test_the_coreset_and_the_importance_draws_know_both(built):
    assert built.certificate.reliable
    assert built.certificate.modes.words.endswith(", 2 visited")
    draws = built.importance_draws(random_seed=1)["posterior"]["mu"].to_numpy().ravel()
    error = 4 * np.sqrt(0.25 / 500)  # at least 500 effective draws of 1,000
    assert (draws > 0).mean() == pytest.approx(right_share(), abs=error)


def test_draws_without_nuts_go_from_mode_to_mode(built):
    check = built.check(built.sample(chains=2, random_seed=1, **QUIET), draws=60)
    assert check.modes.unseen == []
    assert check.converged


@pytest.mark.usefixtures("nuts_by_numpy")
def test_chains_begin_in_both_and_a_check_says_what_they_know(built):
    options = {"draws": 60, "tune": 60, "chains": 2, "cores": 1, "random_seed": 1}
    idata = built.sample(nuts_sampler="pymc", **options, **QUIET)
    both = built.check(idata, draws=60)
    assert both.modes.unseen == []
    assert not both.converged
    one = idata["posterior"].isel(chain=[0]).to_dataset()
    tree = xr.DataTree.from_dict({"posterior": xr.concat([one, one], "chain")})
    assert len(built.check(tree, draws=60).modes.unseen) == 1


def test_a_model_may_have_a_dimension_called_mode():
    with pm.Model(coords={"mode": ["car", "bus"]}) as model:
        pm.Normal("time")
        pm.Normal("cost", dims="mode")
    around = heavy_tailed(np.array([1.0, 2.0, 3.0]), np.eye(3))
    found = FoundModes([LocalMode(around, 0.0, 1)], n_starts=1)
    table = found.table(Unconstrained(model))
    assert table.positions["cost"].sizes == {"posterior_mode": 1, "mode": 2}
    draws = {"time": np.array([1.1]), "cost": np.array([[2.0, 3.1]])}
    assert table.seen_by(draws).unseen == []
    assert "time = 1, cost[0] = 2, cost[1] = 3" in " ".join(repr(table).split())


@pytest.mark.parametrize("is_complete", [True, False])
def test_files_keep_the_modes(built, tmp_path, is_complete):
    modes = replace(built.modes, is_complete=is_complete)
    seen = replace(built.certificate.modes, is_complete=is_complete)
    built = replace(built, modes=modes, certificate=replace(built.certificate, modes=seen))
    built.to_netcdf(tmp_path / "coreset.nc")
    read = Coreset.from_netcdf(tmp_path / "coreset.nc", built.full_model)
    assert repr(read.modes) == repr(built.modes)
    assert read.modes.is_complete is is_complete
    xr.testing.assert_identical(read.modes.sds, built.modes.sds)
    assert read.certificate == built.certificate


# -- posteriors in which scales are held -----------------------------------------------------------


def of_points(log_density_and_slopes):
    return Density(log_density_and_slopes)


class FromPoints:
    """Posteriors that are given by a density, of which each sample is the whole."""

    def __init__(self, space, slopes):
        self.space, self.slopes, self.read, self.n_rows = space, slopes, 0, 100
        self.loglikelihood = SimpleNamespace(n_rows=100, n_dims=space.n_dims, source=None)

    @property
    def density_without_rows(self):
        """It is constant."""
        return of_points(lambda x: (np.zeros(len(x)), np.zeros_like(x)))

    def subsample(self, size, *, key, distinct):
        return RowSample(rows=Rows(np.arange(size), np.ones(size)), weights=np.ones(size))

    def density_of_each(self, each):
        return of_points(self.slopes)

    @property
    def full_density(self):
        self.read += 1
        return of_points(self.slopes)

    def density_of_some(self, size, key):
        return of_points(self.slopes)


def two_effects(x):
    """A funnel of a scale and an effect, which has modes near 2 and -2 if the scale is held."""
    scale, effect = x.T
    logs = np.stack([-((effect - c) ** 2) * 8 for c in (2.0, -2.0)])
    shares = softmax(logs, axis=0)
    slope = -16 * (effect - 2 * (shares[0] - shares[1]))
    values = np.logaddexp(*logs) - scale - effect**2 * np.exp(-2 * scale) / 2
    of_scale = -1 + effect**2 * np.exp(-2 * scale)
    return values, np.column_stack([of_scale, slope - effect * np.exp(-2 * scale)])


@pytest.fixture
def funnel():
    with pm.Model() as model:
        pm.Normal("scale")
        pm.Normal("effect")
    return FromPoints(Unconstrained(model), two_effects)


def test_what_is_held_is_normal_around_a_point_and_the_rest_is_given_that(funnel):
    at = np.array([0.5, 1.0])
    held = held_near(funnel.full_density, at, np.array([True, False]))
    points = np.array([[0.5, 2.0], [1.7, 2.0], [0.5, -1.0]])
    found = held.slopes(points)
    expected = two_effects(np.column_stack([np.full(3, 0.5), points[:, 1]]))
    np.testing.assert_allclose(found.values, expected[0] - (points[:, 0] - 0.5) ** 2 / 2)
    np.testing.assert_allclose(found.gradients[:, 0], 0.5 - points[:, 0])
    np.testing.assert_allclose(found.gradients[:, 1], expected[1][:, 1])
    np.testing.assert_allclose(held.logp_and_gradient(points[1])[0], found.values[1])


@pytest.mark.parametrize(("n_gradients", "n_modes"), [(1e9, 2), (-1, 0)])
def test_modes_beside_one_that_is_known_are_found_where_there_is_time(funnel, n_gradients, n_modes):
    """Given its scale, the effect has two modes of equal mass, images of each other."""
    at = np.array([0.5, 1.9])
    held = np.array([True, False])
    near = Normal(at, factor_of(np.diag([1.0, 16.0])))
    rng = np.random.default_rng(1)
    options = {"key": 1, "rng": rng, "n_gradients": n_gradients, "held": held}
    if not n_modes:
        with refused(SamplingError, "no time", "modes"):
            beside_mode(funnel, near, 100, **options)
        return
    found = beside_mode(funnel, near, 100, **options)
    effects = [part.location[1] for part in found.mixture.parts]
    np.testing.assert_allclose(np.abs(effects), 2 * 16 / (16 + np.exp(-1.0)), atol=0.01)
    assert np.prod(effects) < 0
    np.testing.assert_allclose(found.mixture.masses, 0.5, atol=0.01)
    assert found.n_starts >= 10
    assert funnel.read == 1


def test_where_nothing_gives_a_start_there_was_no_search(monkeypatch):
    """Under a flat prior, and where the density of few rows is not finite."""
    with pm.Model() as model:
        pm.Flat("a")
    one = FromPoints(Unconstrained(model), lambda x: (-np.square(x).sum(axis=1) / 2, -x))
    nowhere = of_points(lambda x: (np.full(len(x), np.nan), x))
    monkeypatch.setattr(one, "density_of_each", lambda each: nowhere)
    near = Normal(np.full(1, 0.3), factor_of(np.eye(1)))
    rng = np.random.default_rng(1)
    with refused(SamplingError, "no time", "modes"):
        beside_mode(one, near, 100, key=1, rng=rng, n_gradients=1e9, held=np.zeros(1, bool))


def peaks(n_peaks):
    """Narrow peaks at whole numbers, each a little lower than that before."""
    centres = np.arange(n_peaks)

    def slopes(x):
        z = (x - centres) / 0.02
        logs = -(z**2) / 2 - 0.001 * centres
        shares = softmax(logs, axis=1)
        values = np.logaddexp.reduce(logs, axis=1)
        return values, -(shares * z).sum(axis=1, keepdims=True) / 0.02

    return slopes


@pytest.mark.parametrize(("n_peaks", "is_complete"), [(2, True), (200, False)])
def test_a_search_whose_starts_all_meet_another_mode_was_not_finished(n_peaks, is_complete):
    with pm.Model() as model:
        pm.Normal("a", (n_peaks - 1) / 2, n_peaks / 4)
    found = FromPoints(Unconstrained(model), peaks(n_peaks))
    near = Normal(np.zeros(1), factor_of(np.full((1, 1), 2_500.0)))
    rng = np.random.default_rng(1)
    held = np.zeros(1, bool)
    modes = beside_mode(found, near, 100, key=1, rng=rng, n_gradients=1e9, held=held)
    assert len(modes.modes) > 1
    assert modes.is_complete is is_complete
    assert sum(mode.n_ended for mode in modes.modes) <= modes.n_starts


def test_a_search_that_ran_out_of_time_was_not_finished(funnel):
    near = Normal(np.array([0.5, 1.9]), factor_of(np.diag([1.0, 16.0])))
    held, rng = np.array([True, False]), np.random.default_rng(1)
    limited = beside_mode(funnel, near, 100, key=1, rng=rng, n_gradients=90, held=held)
    assert limited.n_starts >= 10
    assert not limited.is_complete


def test_where_there_is_one_mode_all_rows_are_not_read(funnel):
    one = FromPoints(funnel.space, lambda x: (-np.square(x).sum(axis=1) / 2, -x))
    near = Normal(np.full(2, 0.3), factor_of(np.eye(2)))
    rng = np.random.default_rng(1)
    held = np.zeros(2, bool)
    found = beside_mode(one, near, 100, key=1, rng=rng, n_gradients=1e9, held=held)
    assert len(found.mixture.parts) == 1
    np.testing.assert_allclose(found.mixture.parts[0].location, 0.0, atol=0.05)
    assert found.modes[0].n_ended > 0
    assert one.read == found.n_gradients == 0


@pytest.mark.parametrize("exponent", [0, 20, 101, 150, 200, 306])
@pytest.mark.parametrize("n_dims", [1, 3])
def test_a_start_where_values_are_huge_is_given_up_without_overflow(n_dims, exponent):
    def log_density(x):
        return -(10.0**exponent) * np.square(x - 1.0).sum(axis=1)

    start = heavy_tailed(np.zeros(n_dims), 10 * np.eye(n_dims))
    if exponent < 100:
        np.testing.assert_allclose(near_mode(log_density, start).location, 1.0)
    else:
        with pytest.raises(SamplingError, match="no mode near the start"):
            near_mode(log_density, start)


def test_a_side_on_which_a_density_falls_by_huge_values_is_narrow():
    split = heavy_tailed(np.zeros(1), np.eye(1)).split(
        lambda x: np.where(x[:, 0] > 0, -1.7e308 * (x[:, 0] > 0.0), -np.square(x[:, 0]) / 2)
    )
    np.testing.assert_allclose(split.tails.stretch, [[1.0], [0.5]])


@pytest.mark.parametrize("scale", [1e-4, 1e-9, 1e-18])
def test_a_mode_is_found_in_coordinates_of_tiny_scales(scale):
    """A count of 7 at each of two predictors, whose log-density has its mode in closed form."""
    x = np.array([[1.0, 1 / scale], [1.0, 3 / scale]])

    def slopes(points):
        rates = np.exp(points @ x.T)
        return (7 * points @ x.T - rates).sum(axis=1), (7 - rates) @ x

    with np.errstate(over="ignore", invalid="ignore"):
        density = Density(slopes)
        ends = maximise_by_curvature(density, np.zeros((1, 2)), n_gradients=1_000)
        [found] = settled_each(density, ends.points)
    assert isinstance(found, Normal)
    np.testing.assert_allclose(found.location * [1, 1 / scale], [np.log(7), 0.0], atol=1e-4)
    np.testing.assert_allclose(found.factor.matrix, 7 * x.T @ x, rtol=1e-2)
