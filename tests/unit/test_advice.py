"""What is said of a coreset, and what is not."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_coresets import Certificate, RiemannianPursuit
from pymc_coresets.advice import Outcome, certificate_of, limitations, with_informativeness
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.solution import History, Solution, Status

FINE = Status.TOLERANCE_REACHED


def said(  # noqa: PLR0913 - each is what one message depends on
    *,
    n_rows=100,
    objective=0.001,
    status=FINE,
    size=100,
    n_dims=5,
    n_obs=10_000,
    counts=None,
    method=None,
    log_ratios=None,
    is_uninformative=False,
):
    solution = Solution(
        rows=Rows(np.arange(n_rows), np.ones(n_rows)),
        weights=np.ones(n_rows),
        history=History().columns,
        status=status,
        objective=objective,
        log_ratios=log_ratios,
        certificate=None if log_ratios is None else Certificate.of(log_ratios),
        is_uninformative=is_uninformative,
    )
    observations = SimpleNamespace(n_dims=n_dims, integrated=(), local=(), unselected=(), whole=())
    return " ".join(
        limitations(
            Outcome(
                solution=solution,
                observations=observations,
                n_obs=n_obs,
                size=size,
                tolerance=0.01,
                counts=counts or {},
                method=method or RiemannianPursuit(),
            )
        )
    )


def test_nothing_is_said_where_all_is_well():
    assert said() == ""
    assert said(objective=0.01) == ""  # the tolerance itself
    assert said(counts={"n_sampler_draws": 1_000, "n_divergences": 10}) == ""
    assert said(status=Status.NO_PROGRESS) == ""


def test_it_is_said_where_nothing_was_measured():
    assert "was not measured" in said(objective=np.nan, status=Status.ITERATION_LIMIT)


def test_what_importance_weights_correct_is_no_failure():
    told = said(objective=0.4, status=Status.CORRECTABLE, n_obs=10_000, n_dims=300)
    assert "about 0.4 nats" in told
    assert "10,000 rows are few for 300 free" in told
    assert "reweight()" in told
    assert "not within" not in told
    assert said(objective=0.01, status=Status.CORRECTABLE) == ""


def test_ratios_without_any_spread_certify_a_coreset_unless_the_data_say_nothing():
    """As where separated classes have an improper posterior: all log-likelihoods are zero."""
    with pm.Model() as model:
        pm.Normal("y", pt.minimum(pm.Normal("mu"), 5.0), 1.0, observed=np.zeros(3))
    loglik = LogLikelihood(find_observations(model))
    exact = replace(
        Solution.sampled(loglik.all_rows, np.ones(3)),
        log_ratios=np.zeros(400),
        certificate=Certificate.of(np.zeros(400)),
    )
    for start, constant in [(0.0, False), (6.0, True)]:
        draws = Draws({"mu": start + np.arange(400.0)})
        found = with_informativeness(replace(exact, draws=draws), loglik)
        assert found.is_uninformative is constant
        assert (certificate_of(found) is None) is constant
    assert "does not vary" in said(objective=0.0, is_uninformative=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_rows": 10, "size": 10}, ["about 0.5 nats", "not within 0.01", "larger size than 10"]),
        ({"n_rows": 10, "size": 10}, ["takes up to 21 rows"]),
        ({"size": 100}, ["larger size than 100", "more draws"]),
        ({"status": Status.OUT_OF_TIME}, ["longer time_budget", "ended early"]),
        ({"n_dims": 200}, ["20301 directions", "hardly helps"]),
    ],
)
def test_a_tolerance_that_was_not_met_comes_with_what_to_try(options, words):
    told = said(objective=0.5, **options)
    assert all(word in told for word in words)


def test_to_reweight_is_advised_where_that_may_serve():
    rng = np.random.default_rng(1)
    mild, useless = rng.normal(0, 0.7, size=400), rng.normal(0, 400.0, size=400)
    for objective, log_ratios, serves in [
        (0.5, None, True),
        (1.5e5, None, False),
        (0.5, mild, True),
        (1.5e5, useless, False),
    ]:
        told = said(objective=objective, log_ratios=log_ratios, n_rows=2, size=2)
        assert ("or reweight the coreset's draws" in told) is serves
        assert "larger size than 2" in told


def test_more_rows_are_not_advised_where_their_number_was_not_the_limit():
    told = said(objective=0.5, n_rows=50, size=100)
    assert "larger size" not in told
    assert "more draws" in told


@pytest.mark.parametrize("status", [Status.OUT_OF_TIME, Status.INTERRUPTED, Status.SAMPLING_FAILED])
def test_a_coreset_that_was_not_measured_is_said_to_be_so(status):
    assert "was not measured" in said(objective=np.nan, status=status)
    assert "was not measured" not in said(status=status)
    assert "ended early" in said(status=status)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"counts": {"n_sampler_draws": 1_000, "n_divergences": 11}}, "11 of 1000 draws"),
        ({"n_dims": 101}, "leave some directions to the prior"),
        ({"n_obs": 49}, "sample the model itself"),
    ],
)
def test_what_limits_is_said(options, words):
    assert words in said(**options)


def test_the_size_is_advised_only_where_it_was_the_limit():
    told = said(objective=0.5, n_rows=10, size=15)  # of the 21 that a quadratic takes
    assert "takes up to" not in told
    assert "more draws" in told


@pytest.mark.parametrize(("n_obs", "said_so"), [(50, False), (49, True)])
def test_ten_observations_for_each_dimension_are_enough(n_obs, said_so):
    assert ("sample the model itself" in said(n_obs=n_obs)) is said_so


@pytest.mark.parametrize(("n_obs", "said_so"), [(462, False), (461, True)])
def test_a_coreset_of_more_than_half_of_the_rows_is_not_worth_it(n_obs, said_so):
    told = said(objective=0.5, n_dims=20, n_rows=30, size=30, n_obs=n_obs)
    assert ("hardly helps. Sample" in told) is said_so


@pytest.mark.parametrize(("size", "said_so"), [(20, True), (21, False)])
def test_the_rows_of_a_quadratic_are_advised_to_who_allowed_fewer(size, said_so):
    told = said(objective=0.5, n_rows=size, size=size)
    assert ("takes up to 21 rows" in told) is said_so
    assert f"larger size than {size}" in told
