"""Models of HSSM: a coreset of decisions and their times, and what HSSM says of its draws."""

import arviz as az
import numpy as np
import pytest

import pymc_coresets as pmc
from tests.refusals import refused

# HSSM and Bambi use what their libraries have deprecated; the energy of a first step may overflow.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Cannot cache compiled function"),
    pytest.mark.filterwarnings("ignore:Numba will use object mode"),
]

QUIET = {"random_seed": 1, "progressbar": False}
DECISIONS = {"v": 0.5, "a": 1.5, "z": 0.5, "t": 0.3}
N_PEOPLE = 10


@pytest.fixture(scope="module")
def hssm():
    return pytest.importorskip("hssm", reason="hssm is not installed")


@pytest.fixture(scope="module")
def decisions(hssm):
    return hssm.simulate_data(model="ddm", theta=DECISIONS, size=1_000, random_state=1)


@pytest.fixture(scope="module")
def people(hssm):
    """Simulate people whose drift depends on x, and on whose it is."""
    rng, n = np.random.default_rng(1), 400 * N_PEOPLE
    person, x = np.repeat(np.arange(N_PEOPLE), 400), rng.normal(size=n)
    drift = 0.5 + 0.4 * x + rng.normal(0, 0.3, size=N_PEOPLE)[person]
    others = [np.full(n, DECISIONS[name]) for name in ("a", "z", "t")]
    theta = np.column_stack([drift, *others])
    data = hssm.simulate_data(model="ddm", theta=theta, size=1, random_state=1)
    return data.assign(x=x, participant=person.astype(str))


def sampled(built):
    """Sample a coreset's posterior."""
    coreset = pmc.build_coreset(built, **QUIET)
    assert coreset.size < 100
    idata = coreset.sample(**QUIET)
    check = coreset.check(idata)
    assert check.divergence < 0.02
    assert check.rhat < 1.05
    return idata


def within(posterior, name, truth):
    return abs(float(posterior[name].mean()) - truth) < 5 * float(posterior[name].std())


def test_decisions_and_their_times(hssm, decisions):
    built = hssm.HSSM(decisions, model="ddm", loglik_kind="analytical")
    posterior = sampled(built)["posterior"]
    assert all(within(posterior, name, truth) for name, truth in DECISIONS.items())


def test_drifts_of_people_are_predicted_and_plotted(hssm, people):
    drift = {"name": "v", "formula": "v ~ 1 + x + (1|participant)"}
    built = hssm.HSSM(people, loglik_kind="analytical", include=[drift], noncentered=False)
    idata = sampled(built)
    posterior = idata["posterior"]
    assert within(posterior, "v_x", 0.4)
    assert within(posterior, "a", DECISIONS["a"])
    assert posterior["v_1|participant"].shape[-1] == N_PEOPLE
    assert "lp" in idata["sample_stats"]
    built.restore_traces(idata)
    az.plot_trace_dist(built.traces, var_names=["v_x", "a"])
    few = idata.isel(draw=slice(0, 5))
    drawn = built.sample_posterior_predictive(dt=few, data=people.head(50), inplace=False)
    times = drawn["posterior_predictive"]["rt,response"]
    assert times.sizes["__obs__"] == 50
    assert float(times.min()) == -1.0  # one of both decisions
    built.plot_predictive(dt=few, n_samples=3)


def test_a_black_box_without_a_gradient_is_named(hssm, decisions):
    built = hssm.HSSM(decisions, model="ddm", loglik_kind="blackbox")
    with refused(pmc.UnsupportedModelError, "gradient", "BlackBoxOp"):
        pmc.sample(built, **QUIET)


@pytest.mark.parametrize("more", [{}, {"include": [{"name": "v", "formula": "v ~ 1 + x"}]}])
def test_rows_of_a_likelihood_by_jax_are_selected(hssm, people, more):
    jnp = pytest.importorskip("jax.numpy")

    def loglik(data, *params):
        v, a, z, t = (jnp.squeeze(x) for x in params)
        variance = a**2 + 0.1
        return -((jnp.log(data[0]) - v) ** 2) / 2 / variance - jnp.log(variance) / 2 - z**2 - t**2

    built = hssm.HSSM(
        people.head(2_000),
        model="ddm",
        loglik=loglik,
        loglik_kind="approx_differentiable",
        model_config={"backend": "jax"},
        **more,
    )
    idata = pmc.sample(built, on_failure="raise", **QUIET)
    assert idata["coreset"].sizes["row"] < 50
