"""Riemannian pursuit with exact draws: a Gaussian location model and a linear regression."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from benchmarks.closed_forms import InMemoryLogLikelihoods
from pymc_coresets import InvalidDataError, RiemannianPursuit, SamplingError
from pymc_coresets.deadline import stop_if_late
from pymc_coresets.diagnostics.importance import KHAT_RELIABLE, pareto_smooth
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.methods import best_of_rounds, pursuit
from pymc_coresets.methods.job import Job
from pymc_coresets.methods.loop import Measurement, decide
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import PassSums
from pymc_coresets.rows.proportional import Priorities
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.solution import Status

N, D = 2_000, 4
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, D))
Y = X @ RNG.normal(size=D) + RNG.normal(size=N)


class Regression:
    """Linear regression with unit noise and a N(0, I) prior: exact draws of every pi_w."""

    n_rows, n_terms, n_dims = N, N, D

    def __init__(self, case_weights=None):
        self.n_drawn = 0
        self.source = InMemoryRows([X, Y], case_weights)
        self.total_weight = self.source.total_weight

    def posterior(self, rows, weights):
        x, y = rows.arrays
        covariance = np.linalg.inv(np.eye(D) + x.T @ (weights[:, None] * x))
        return covariance @ (x.T @ (weights * y)), covariance

    def draw(self, rows, weights, n_draws, *, rng):
        self.n_drawn += n_draws
        # The signs of a singular value decomposition differ between processors.
        mean, covariance = self.posterior(rows, weights)
        return rng.multivariate_normal(mean, covariance, size=n_draws, method="cholesky")

    def rough_draw(self, *args, **kwargs):
        return self.draw(*args, **kwargs)

    def loglik(self, draws, rows):
        x, y = rows.arrays
        return -0.5 * (y[:, None] - x @ draws.T) ** 2

    def subsample(self, size, *, key, distinct=False):
        return self.source.subsample(size, key=key, distinct=distinct)

    def sums(self, draws, **options):
        return InMemoryLogLikelihoods(self.source, D, Regression.loglik.__get__(self)).sums(
            draws, **options
        )


class Interrupted(Regression):
    """Is interrupted when it has drawn `n_runs` times."""

    def __init__(self, n_runs):
        super().__init__()
        self.n_runs = n_runs

    def draw(self, rows, weights, n_draws, *, rng):
        if self.n_drawn == self.n_runs * n_draws:
            raise KeyboardInterrupt
        return super().draw(rows, weights, n_draws, rng=rng)


class Recorded(Regression):
    """Keeps the coresets that were drawn from."""

    def __init__(self, case_weights=None):
        super().__init__(case_weights)
        self.tried = []

    def draw(self, rows, weights, n_draws, *, rng):
        self.tried.append((rows, weights))
        return super().draw(rows, weights, n_draws, rng=rng)


class Misleading(Recorded):
    """Draws from far away for every coreset but uniform ones: their weights are multiples."""

    def draw(self, rows, weights, n_draws, *, rng):
        draws = super().draw(rows, weights, n_draws, rng=rng)
        multiples = weights / weights.min()
        return draws if np.allclose(multiples, multiples.round()) else 100 * draws


class Failing(Recorded):
    """Cannot be sampled the first `n_failures` times after the start."""

    def __init__(self, n_failures):
        super().__init__()
        self.n_failures = n_failures

    def draw(self, rows, weights, n_draws, *, rng):
        if self.n_drawn and len(self.tried) <= self.n_failures:
            self.tried.append((rows, weights))
            raise SamplingError("no start")
        return super().draw(rows, weights, n_draws, rng=rng)


class Overflowing(Regression):
    """Has a row whose log-likelihood is not finite where the slope is positive."""

    def sums(self, draws, **options):
        sums = super().sums(draws, **options)
        return replace(sums, total=np.where(draws[:, 0] > 0, -np.inf, sums.total))


class Counting(Regression):
    """Counts the rows that it evaluates, by itself."""

    n_evaluated = n_evaluations = 0

    def count(self, n_rows, n_draws):
        self.n_evaluated += n_rows
        self.n_evaluations += n_rows * n_draws

    def loglik(self, draws, rows):
        self.count(len(rows), len(draws))
        return super().loglik(draws, rows)

    def sums(self, draws, **options):
        self.count(N, len(draws))
        return super().sums(draws, **options)


def kl(posterior, solution):
    """KL(coreset || full) in nats, from the closed forms."""
    mean, covariance = posterior.posterior(solution.rows, solution.weights)
    full_mean, full_covariance = posterior.posterior(posterior.source.all, np.ones(N))
    ratio = np.linalg.solve(full_covariance, covariance)
    shift = full_mean - mean
    logdet = np.linalg.slogdet(ratio)[1]
    return 0.5 * (np.trace(ratio) - D - logdet + shift @ np.linalg.solve(full_covariance, shift))


def construct(posterior, size=100, seed=1, **options):
    return run(RiemannianPursuit(draws=500, **options), posterior, size, seed)


def run(method, posterior, size, seed=1, **wanted):
    rng = np.random.default_rng(seed)
    return method.run(Job(posterior=posterior, size=size, rng=rng, **wanted))


@pytest.mark.parametrize("tolerance", [100.0, 1.0, 0.1, 0.01])
@pytest.mark.parametrize("start_size", [20, 1_000])
def test_true_divergence_is_within_three_times_the_tolerance(tolerance, start_size):
    posterior = Regression()
    solution = construct(posterior, tolerance=tolerance, start_size=start_size)
    assert solution.status is Status.TOLERANCE_REACHED
    assert kl(posterior, solution) < 3 * tolerance


def test_it_uses_no_more_rows_than_a_quadratic_needs():
    solution = construct(Regression(), size=200)
    assert len(solution.rows) <= D * (D + 3) // 2 + 1


def test_the_size_is_a_bound_and_the_best_round_is_returned():
    posterior = Recorded()
    solution = construct(posterior, size=5, tolerance=1e-9)
    assert len(solution.rows) <= 5
    assert np.all(solution.weights > 0)
    heldout = solution.history["heldout_objective"]
    best = 1 + np.argmin(heldout[1:])
    assert best < len(heldout) - 1  # the last rounds no longer helped
    np.testing.assert_array_equal(solution.weights, posterior.tried[best][1])
    assert solution.objective == heldout[best]


def test_the_objective_of_a_round_is_that_of_its_own_draws():
    posterior = Regression()
    solution = construct(posterior)
    rng = np.random.default_rng(2)
    draws = posterior.draw(solution.rows, solution.weights, 20_000, rng=rng)
    left = [
        posterior.loglik(part, posterior.source.all).sum(axis=0)
        - solution.weights @ posterior.loglik(part, solution.rows)
        for part in np.array_split(draws, 20)  # which needs a twentieth of the memory
    ]
    expected = np.var(np.concatenate(left))
    # The variance over 500 draws of a quadratic form has a relative error of some 10 percent.
    assert solution.history["heldout_objective"][-1] == pytest.approx(expected, rel=0.5)


def test_ctrl_c_returns_the_best_round_so_far():
    solution = construct(Interrupted(2), size=5, tolerance=1e-9)
    assert solution.status is Status.INTERRUPTED
    assert 0 < len(solution.rows) <= 5
    assert solution.objective == solution.history["heldout_objective"][1]


def test_ctrl_c_before_the_first_round_returns_uniform_weights_that_were_not_measured():
    solution = construct(Interrupted(1), size=5, tolerance=1e-9)
    assert solution.status is Status.INTERRUPTED
    assert solution.weights.sum() == pytest.approx(N)
    assert np.isnan(solution.objective)


def test_ctrl_c_before_there_are_any_draws_is_passed_on():
    with pytest.raises(KeyboardInterrupt):
        construct(Interrupted(0))


@pytest.mark.parametrize("start_size", [15, 500])
def test_no_round_begins_after_the_deadline(start_size):
    posterior = Recorded()
    method = RiemannianPursuit(draws=500, tolerance=1e-9, start_size=start_size)
    solution = run(method, posterior, 20, deadline=-np.inf)
    assert solution.status is Status.OUT_OF_TIME
    assert len(posterior.tried) == 1
    assert len(solution.rows) <= 20
    assert np.isnan(solution.objective)
    started_there = np.array_equal(solution.rows.positions, posterior.tried[0][0].positions)
    assert started_there == (start_size == 15)


def test_the_best_round_before_the_deadline_is_returned(clock):
    class Slow(Regression):
        def draw(self, *args, **kwargs):
            clock.now += 60.0
            return super().draw(*args, **kwargs)

    method = RiemannianPursuit(draws=500, tolerance=1e-9, start_size=1_000)
    solution = run(method, Slow(), 8, deadline=90.0)
    assert solution.status is Status.OUT_OF_TIME
    assert len(solution.history["size"]) == 2
    assert solution.objective == solution.history["heldout_objective"][1]


def test_a_search_ends_at_the_deadline_and_what_there_is_is_returned():
    def propose(*args, **kwargs):
        while True:
            stop_if_late()

    solution = run(RiemannianPursuit(), Regression(), 20, deadline=0.0, propose=propose)
    assert solution.status is Status.OUT_OF_TIME
    assert len(solution.rows) == 20
    stop_if_late()


def test_a_step_that_cannot_be_sampled_is_halved():
    posterior = Failing(1)
    solution = construct(posterior, size=60)
    assert solution.status is Status.TOLERANCE_REACHED
    assert kl(posterior, solution) < 0.03
    assert np.isinf(solution.history["heldout_objective"][1])
    # The step after the refused one only goes a part of the way from the start to all rows.
    full = posterior.posterior(posterior.source.all, np.ones(N))[0]
    start, refused, damped = (
        np.linalg.norm(posterior.posterior(*tried)[0] - full) for tried in posterior.tried[:3]
    )
    assert 10 * refused < damped < 0.9 * start


def test_steps_that_are_refused_again_and_again_become_shorter():
    posterior = Failing(4)
    construct(posterior, size=100, patience=10)
    start = posterior.posterior(*posterior.tried[0])[0]
    lengths = [np.linalg.norm(posterior.posterior(*t)[0] - start) for t in posterior.tried[1:6]]
    assert np.all(np.diff(lengths) < 0)


def test_a_sampler_that_always_fails_ends_the_rounds_with_what_there_is():
    solution = construct(Failing(100), size=60)
    assert solution.status is Status.SAMPLING_FAILED
    assert 0 < len(solution.rows) <= 60


@pytest.mark.parametrize("start_size", [4, 1_000])
def test_where_no_round_comes_out_better_uniform_weights_are_tried(start_size):
    posterior = Misleading()
    solution = construct(posterior, size=5, start_size=start_size)
    assert solution.status is Status.NO_PROGRESS
    np.testing.assert_array_equal(solution.rows.positions, posterior.tried[-1][0].positions)
    assert solution.weights.sum() == pytest.approx(N)
    assert len(solution.rows) <= 5
    assert solution.objective == solution.history["heldout_objective"][-1]
    was_start = np.array_equal(solution.rows.positions, posterior.tried[0][0].positions)
    assert was_start == (start_size == 4)


def test_uniform_weights_within_the_tolerance_will_do():
    posterior = Misleading()
    solution = construct(posterior, size=5, tolerance=1e8, start_size=4)
    assert solution.status is Status.TOLERANCE_REACHED
    np.testing.assert_array_equal(solution.rows.positions, posterior.tried[0][0].positions)


def test_a_start_that_is_better_than_the_rounds_does_not_replace_one_within_the_tolerance():
    posterior = Recorded()
    solution = construct(posterior, size=N, tolerance=0.5, start_size=10**6)
    assert solution.status is Status.TOLERANCE_REACHED
    start, chosen = solution.history["heldout_objective"]
    assert start < chosen < 0.5
    assert solution.history["size"][0] > 10 * len(solution.rows)


def test_the_start_has_fifty_rows_per_dimension_and_a_thousand_at_least():
    class Wide(Regression):
        n_dims = 30

    few, many = (construct(posterior, tolerance=10.0) for posterior in (Regression(), Wide()))
    # Of N = 2,000 rows, n draws with replacement are about N (1 - exp(-n / N)) different ones,
    # with standard deviations of about 15.
    assert few.history["size"][0] == pytest.approx(N * -np.expm1(-0.5), abs=60)
    assert many.history["size"][0] == pytest.approx(N * -np.expm1(-0.75), abs=60)


def test_few_distinct_rows_are_drawn_a_thousand_times_for_the_start():
    posterior = Recorded(np.where(np.arange(N) < 20, 1e4, 0.0))
    construct(posterior, tolerance=10.0)
    rows, weights = posterior.tried[0]
    assert rows.positions.max() < 20
    draws_of_each_row = weights / (20 * 1e4 / 1_000)
    np.testing.assert_allclose(draws_of_each_row, draws_of_each_row.round())
    assert draws_of_each_row.sum() == pytest.approx(1_000)


def test_a_sampler_that_fails_at_once_raises():
    posterior = Failing(100)
    posterior.n_drawn = 1
    with pytest.raises(SamplingError):
        construct(posterior)


def test_potentials_that_are_not_finite_are_an_error_and_not_used():
    with pytest.raises(InvalidDataError):
        construct(Overflowing())


def test_history_counts_what_it_cost():
    posterior = Counting()
    history = construct(posterior).history
    assert history["n_evaluations"][-1] == posterior.n_evaluations
    assert history["n_passes"][-1] == pytest.approx(posterior.n_evaluated / N)
    assert np.all(np.diff(history["n_evaluations"]) > 0)
    assert np.all(np.diff(history["seconds_drawing"]) > 0)
    spent = history["seconds_drawing"] + history["seconds_evaluating"]
    assert np.all(spent <= history["seconds"])


def test_history_says_how_far_the_rounds_are():
    posterior = Regression()
    solution = construct(posterior, tolerance=0.1, size=10)
    assert solution.history["pareto_khat"][-1] < 0.7
    # KL from 500 draws: its standard error is about sqrt(KL / 500) or a tenth of it.
    assert solution.history["kl"][-1] == pytest.approx(kl(posterior, solution), rel=0.4)
    assert solution.history["reverse_kl"][-1] == pytest.approx(solution.history["kl"][-1], rel=0.5)


def test_same_rng_same_coreset():
    one, two = (construct(Regression()) for _ in range(2))
    np.testing.assert_array_equal(one.rows.positions, two.rows.positions)
    np.testing.assert_array_equal(one.weights, two.weights)


# -- draws from around the mode --------------------------------------------------------------------


class Proposing(Counting):
    """Knows its full posterior: draws of a wider one, with the logarithm of prior over it."""

    widening = 1.2

    def propose(self, n_draws, *, start_size, rng):
        mean, covariance = self.posterior(self.source.all, self.source.all.case_weights)
        wide = self.widening**2 * covariance
        draws = rng.multivariate_normal(mean, wide, size=n_draws, method="cholesky")
        centred = draws - mean
        logq = -0.5 * (centred * np.linalg.solve(wide, centred.T).T).sum(axis=1)
        return Proposal(draws=draws, log_ratios=-0.5 * np.square(draws).sum(axis=1) - logq)


def one_look(posterior, size=100, seed=1, **options):
    method = RiemannianPursuit(**options)
    return run(method, posterior, size, seed, propose=posterior.propose)


@pytest.mark.parametrize("widening", [1.0, 1.2, 3.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_look_is_enough(widening, seed):
    posterior = Proposing()
    posterior.widening = widening
    solution = one_look(posterior, seed=seed)
    assert solution.status is Status.TOLERANCE_REACHED
    assert len(solution.history["size"]) == 1
    assert 2 * kl(posterior, solution) < 0.03
    # 1,000 draws of all rows, 400 to certify; of a few thousand candidates and the start besides
    assert posterior.n_drawn == 400
    assert posterior.n_evaluations < N * (1_000 + 400) + N * 1_000 + 1_000 * 1_000 + 100 * 400


def test_units_are_evaluated_once_at_the_draws_that_choose_them():
    """Each takes as long as hundreds of rows: candidates are not evaluated again, nor the start."""

    class OfUnits(Proposing):
        n_terms = 100 * N

        def sums(self, draws, **options):
            wanted = Priorities.of_all(n_rows=N, **options)
            values = self.loglik(draws, self.source.all).T
            return PassSums.of(values, self.source.all, replace(wanted, keeps_potentials=True))

    posterior = OfUnits()
    solution = one_look(posterior, draws=500)
    assert solution.status is Status.TOLERANCE_REACHED
    assert len(solution.history["size"]) == 1
    few_for_scale, n_certifying = 200, len(solution.log_ratios)
    most = (N + few_for_scale) * 500 + (N + len(solution.rows)) * n_certifying
    assert posterior.n_evaluations <= most


def test_a_certificate_that_fails_is_followed_by_rounds():
    posterior = Proposing()
    posterior.widening = 300.0  # hardly any draw where the posterior is
    solution = one_look(posterior, tolerance=1e-15)
    assert len(solution.history["size"]) > 1
    best = min(solution.history["heldout_objective"])
    assert solution.objective == pytest.approx(best, rel=1e-12, abs=1e-14)  # rounding is less
    assert kl(posterior, solution) < 1e-5


def test_the_first_rows_are_kept_where_rounds_do_not_improve_on_them():
    class NoRounds(Proposing):
        def draw(self, rows, weights, n_draws, *, rng):
            if self.n_drawn:
                raise SamplingError("no second start")
            return super().draw(rows, weights, n_draws, rng=rng)

    solution = one_look(NoRounds(), size=6)
    assert solution.status is Status.SAMPLING_FAILED
    assert len(solution.rows) <= 6
    assert solution.objective == solution.history["heldout_objective"][0] > 0.01


class Beside(Proposing):
    """Has a proposal beside the posterior, whose own weights do not say so; may fail later."""

    def __init__(self, *, fails=False):
        super().__init__()
        self.fails = fails

    def propose(self, n_draws, *, start_size, rng):
        draws = 0.01 * rng.normal(size=(n_draws, D)) + 5.0
        return Proposal(draws=draws, log_ratios=np.zeros(n_draws))

    def draw(self, rows, weights, n_draws, *, rng):
        if self.fails and self.n_drawn:
            raise SamplingError("no second draws")
        return super().draw(rows, weights, n_draws, rng=rng)


@pytest.mark.parametrize("fails", [False, True])
def test_rows_that_held_out_draws_praised_wrongly_are_drawn_from_again(fails):
    """Few draws certify first."""
    posterior = Beside(fails=fails)
    solution = one_look(posterior, tolerance=1e-4)
    if fails:
        assert solution.status is Status.SAMPLING_FAILED
        assert posterior.n_drawn == 400
    else:
        assert solution.objective <= 1e-4
        assert posterior.n_drawn > 400


def interrupted_at(posterior, n):
    """Return a posterior that is interrupted at its n-th draws, and whose weights it drew from."""
    draw, tried = posterior.draw, []

    def drawn(rows, weights, n_draws, *, rng):
        if len(tried) == n:
            raise KeyboardInterrupt
        tried.append(weights)
        return draw(rows, weights, n_draws, rng=rng)

    posterior.draw = drawn
    return posterior, tried


@pytest.mark.parametrize(
    ("kind", "build", "n_before"),
    [
        (Misleading, partial(construct, size=5, start_size=1_000), 1),  # ends with uniform weights
        (Beside, partial(one_look, tolerance=1e-4), 0),  # draws after the certificate, then rounds
        (Proposing, partial(one_look, size=6, tolerance=1e-9), 0),
    ],
)
def test_ctrl_c_loses_nothing_that_was_measured(kind, build, n_before):
    """Each run is interrupted at other draws; the first steps of some are no coresets of theirs."""
    whole = build(kind())
    heldout = whole.history["heldout_objective"]
    for n in range(1, len(heldout)):
        posterior, tried = interrupted_at(kind(), n)
        found = build(posterior)
        assert found.status is Status.INTERRUPTED
        np.testing.assert_array_equal(found.history["heldout_objective"], heldout[:n])
        if n == n_before:
            assert np.isnan(found.objective)
        else:
            best = n_before + np.argmin(heldout[n_before:n])
            np.testing.assert_array_equal(found.weights, tried[best])


def test_the_log_ratios_are_those_of_the_best_round():
    solution = one_look(Proposing())
    assert np.var(solution.log_ratios) == pytest.approx(solution.objective)
    assert len(solution.log_ratios) == 400


def test_where_rounds_are_likely_the_first_draws_serve_for_the_next():
    posterior = Proposing()
    solution = one_look(posterior, size=6, max_rounds=1)
    assert posterior.n_drawn == 2 * len(solution.log_ratios) == 2 * 500


def test_without_a_proposal_the_rounds_begin_at_once():
    posterior = Proposing()
    posterior.propose = lambda *_args, **_options: None
    solution = one_look(posterior, draws=500)
    assert solution.history["size"][0] > 500  # the start
    assert kl(posterior, solution) < 0.03


def test_a_proposal_whose_draws_hardly_differ_is_not_used():
    """As from around a point that is no mode, where only a few draws are possible."""

    class Few(Proposing):
        def propose(self, n_draws, *, start_size, rng):
            found = super().propose(2, start_size=start_size, rng=rng)
            which = rng.integers(2, size=n_draws)
            return Proposal(draws=found.draws[which], log_ratios=found.log_ratios[which])

    posterior = Few()
    solution = one_look(posterior, draws=500)
    assert solution.proposal is None
    assert solution.history["size"][0] > 500  # the start
    assert kl(posterior, solution) < 0.03


def test_a_proposal_at_which_the_likelihood_is_not_finite_is_not_used():
    class Far(Overflowing):
        def propose(self, n_draws, *, start_size, rng):
            return Proposal(draws=rng.normal(size=(n_draws, D)), log_ratios=np.zeros(n_draws))

    with pytest.raises(InvalidDataError):  # of the first round, which meets it too
        one_look(Far())


@pytest.mark.parametrize(("widening", "own"), [(0.4, False), (1.2, True)])
def test_draws_with_unreliable_weights_are_replaced_by_those_of_the_coreset(widening, own):
    """Four standard errors of a standard deviation from 400 draws."""
    posterior = Proposing()
    posterior.widening = widening
    found = one_look(posterior).proposal
    assert pareto_smooth(found.log_ratios[None]).pareto_khat < KHAT_RELIABLE
    _, covariance = posterior.posterior(posterior.source.all, posterior.source.all.case_weights)
    ratio = found.draws.std(axis=0) / np.sqrt(covariance.diagonal())
    assert (len(found.draws) == 1_000) == own
    assert abs(ratio - (widening if own else 1.0)).max() < 4 / np.sqrt(800)


def test_no_time_for_a_certificate():
    posterior = Proposing()
    wanted = {"propose": posterior.propose, "deadline": -np.inf}
    solution = run(RiemannianPursuit(), posterior, 50, **wanted)
    assert solution.status is Status.OUT_OF_TIME
    assert np.isnan(solution.objective)
    assert not len(solution.history["size"])
    assert kl(posterior, solution) < 0.05


def test_the_ratios_of_the_proposal_are_those_of_the_full_posterior():
    posterior = Proposing()
    found = one_look(posterior).proposal
    mean, covariance = posterior.posterior(posterior.source.all, posterior.source.all.case_weights)
    own = found.draws - mean
    exact = -0.5 * (own * np.linalg.solve(covariance, own.T).T).sum(axis=1)
    wide = -0.5 * (own * np.linalg.solve(posterior.widening**2 * covariance, own.T).T).sum(axis=1)
    difference = found.log_ratios - (exact - wide)
    np.testing.assert_allclose(difference, difference[0], atol=1e-6)


@pytest.mark.parametrize(("widening", "weighted"), [(1.2, True), (300.0, False)])
def test_held_out_draws_are_weighted_where_the_weights_are_reliable(calls, widening, weighted):
    problems = calls(pursuit, "problem_at")
    posterior = Proposing()
    posterior.widening = widening
    one_look(posterior)
    weights = problems[0].kwargs.get("weights")
    assert (weights is not None) is weighted
    if weighted:
        assert weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("objective", "length", "accepted"), [(0.5, 9.0, True), (2.0, 0.1, True), (2.0, 9.0, False)]
)
def test_a_step_is_taken_back_where_it_came_out_worse_and_was_too_long(objective, length, accepted):
    nowhere, varied = Rows(np.arange(0), np.ones(0)), np.arange(1_000.0)
    views = [
        Measurement(
            rows=nowhere,
            weights=np.ones(0),
            draws=None,
            own=np.zeros(1_000),
            sums=PassSums(total=value * varied, norm_total=0.0, candidates=nowhere),
        )
        for value in (1.0, objective)
    ]
    change = length * np.random.default_rng(1).normal(size=1_000)
    view, share = decide(*views, lambda: change, 1.0)
    assert view is views[1 if accepted else 0]
    assert share == 1 if accepted else 0 < share < 1


@pytest.mark.parametrize(
    ("n_dims", "n_rows", "size"),
    [(3, 10**6, 100), (12, 10**6, 182), (12, 150, 150), (100, 10**6, 1_000)],
)
def test_default_size(n_dims, n_rows, size):
    assert RiemannianPursuit().default_size(n_dims, n_rows) == size


# -- close calls -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("times", "n_draws"), [(1.05, 1_000), (0.5, 500), (10.0, 500)])
def test_a_close_call_is_decided_by_twice_as_many_fresh_draws(times, n_draws):
    """The best of several coresets, by the draws that chose it, looks better than it is."""
    known = construct(Regression(), size=5, tolerance=1e-9).objective
    posterior = Recorded()
    solution = construct(posterior, size=5, tolerance=times * known)
    assert len(solution.log_ratios) == n_draws == len(solution.draws)
    assert solution.objective == np.var(solution.log_ratios)
    if n_draws == 1_000:
        np.testing.assert_array_equal(solution.weights, posterior.tried[-1][1])


def test_a_close_call_is_left_where_the_full_data_are_impossible_at_a_fresh_draw():
    known = construct(Regression(), size=5, tolerance=1e-9).objective

    class Impossible(Regression):
        def sums(self, draws, **options):
            sums = super().sums(draws, **options)
            return replace(sums, total=sums.total if len(draws) < 1_000 else sums.total - np.inf)

    solution = construct(Impossible(), size=5, tolerance=1.05 * known)
    assert len(solution.log_ratios) == 500
    assert solution.objective == np.var(solution.log_ratios)


def test_rounds_go_on_where_more_draws_do_not_confirm_that_the_tolerance_is_met(monkeypatch):
    """Of two coresets that seem to meet it, the first one does not."""
    answers = itertools.repeat(False)
    monkeypatch.setattr(best_of_rounds, "is_close_call", lambda *_: next(answers))
    posterior = Recorded()
    known = construct(posterior, tolerance=0.01)
    assert known.status is Status.TOLERANCE_REACHED

    class Worse(Recorded):
        def sums(self, draws, **options):
            sums = super().sums(draws, **options)
            wrong = len(draws) == 1_000 and len(self.tried) == len(posterior.tried) + 1
            return replace(sums, total=sums.total * (2.0 if wrong else 1.0))

    answers = itertools.chain([True], itertools.repeat(False))
    worse = Worse()
    solution = construct(worse, tolerance=0.01)
    assert solution.status is Status.TOLERANCE_REACHED
    assert len(worse.tried) >= len(posterior.tried) + 2
    assert solution.objective <= 0.01
