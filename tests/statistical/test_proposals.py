"""Draws that a build has weighed, after a file and in models whose variables come otherwise."""

import json

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_array_equal
from scipy import sparse
from scipy.special import expit

from pymc_coresets import Coreset, InvalidDataError, build_coreset
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.glm.control_variates.hierarchy import ConditionalGaussian
from pymc_coresets.reading.draws import Draws
from pymc_coresets.sampling.factors.cholesky import CholeskyFactor, factor_of
from pymc_coresets.sampling.normal import Mixture, Normal, Tails, heavy_tailed
from pymc_coresets.sampling.steps.near_normal import GriddedMarginals, Table
from pymc_coresets.storage import write_netcdf
from pymc_coresets.weighted_rows import restored_proposal, stored_proposal
from tests.refusals import refused, warned

pytest.importorskip("h5netcdf", reason="needs the extra 'netcdf'")

N, GROUPS = 3_000, 40
_rng = np.random.default_rng(5)
GROUP, X = _rng.integers(0, GROUPS, N), _rng.normal(size=(N, 3))
EFFECT = _rng.normal(0, 0.15, GROUPS)[GROUP]
LATE = _rng.binomial(1, expit(EFFECT + X @ [0.3, -0.2, 0.1] - 0.5))
MANY, Y = _rng.normal(size=(N, 28)), _rng.normal(5 * EFFECT, 1.5)
SHORT = {"draws": 30, "chains": 1, "random_seed": 1, "progressbar": False, "quiet": True}
VARIABLES = {
    "base": lambda sd: pm.Normal("base", 0, 2 * sd),
    "scale": lambda _: pm.HalfNormal("scale"),
    "slopes": lambda sd: pm.Normal("slopes", 0, sd, shape=3),
    "many": lambda sd: pm.Normal("many", 0, sd, shape=28),
    "effects": lambda _: pm.Normal("effects", shape=GROUPS),
}


def in_order(names, sd):
    return {name: VARIABLES[name](sd) for name in names}


def scaled(names=("base", "scale", "slopes"), sd=1.0):
    with pm.Model() as model:
        own = in_order(names, sd)
        eta = own["base"] + X @ own["slopes"]
        pm.Normal("y", eta, 0.5 + own["scale"], observed=Y)
    return model


def regression(names=("base", "many"), sd=1.0):
    with pm.Model() as model:
        own = in_order(names, sd)
        pm.Bernoulli("y", logit_p=own["base"] + MANY @ own["many"], observed=LATE)
    return model


def hierarchy(names=("base", "scale", "effects", "slopes"), sd=1.0):
    with pm.Model() as model:
        own = in_order(names, sd)
        effects = own["scale"] * own["effects"]
        eta = own["base"] + X @ own["slopes"] + effects[GROUP]
        pm.Bernoulli("y", logit_p=eta, observed=LATE)
    return model


KINDS = {
    Mixture: (scaled, ("slopes", "scale", "base"), "auto"),
    Normal: (regression, ("many", "base"), "control_variates"),
    ConditionalGaussian: (hierarchy, ("effects", "slopes", "scale", "base"), "control_variates"),
}


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def case(request, tmp_path_factory):
    make, other, method = KINDS[request.param]
    coreset = build_coreset(make(), method=method, random_seed=1, progressbar=False)
    assert isinstance(coreset.proposal.around, request.param)
    path = tmp_path_factory.mktemp("files") / "coreset.nc"
    coreset.to_netcdf(path)
    return coreset, make, other, path


def test_a_coreset_from_a_file_has_the_same_draws_as_before(case, tmp_path):
    coreset, make, _, path = case
    expected = coreset.sample(**SHORT)
    assert "accepted" in expected["sample_stats"]  # no NUTS
    Coreset.from_netcdf(path).to_netcdf(tmp_path / "again.nc")  # without its model
    same = Coreset.from_netcdf(tmp_path / "again.nc", make())
    assert same.proposal.modes is same.modes
    assert (same.modes is None) == (coreset.modes is None)
    found = same.sample(**SHORT)["posterior"].to_dataset()
    xr.testing.assert_allclose(found, expected["posterior"].to_dataset(), rtol=1e-9)
    draws = (each.importance_draws(random_seed=1) for each in (same, coreset))
    xr.testing.assert_equal(*(tree["posterior"].to_dataset() for tree in draws))


def of_distribution(coreset, n_draws):
    """Draws of what the build has found near the posterior, by the names of variables."""
    space = coreset.loglikelihood.observations.space
    x, _ = coreset.proposal.around.draw(n_draws, rng=np.random.default_rng(2))
    return space.constrain(x).to_datatree()["posterior"].to_dataset()


def test_models_whose_variables_come_in_another_order_have_the_same_posterior(case):
    coreset, make, other, path = case
    one = of_distribution(coreset, 500)
    for found in (Coreset.from_netcdf(path, make(other)), coreset.with_model(make(other))):
        assert list(found.loglikelihood.observations.space.columns)[: len(other)] == list(other)
        draws = (each.importance_draws(random_seed=1) for each in (found, coreset))
        xr.testing.assert_allclose(*(tree["posterior"].to_dataset() for tree in draws))
        again = of_distribution(found, 500)
        for name in coreset.proposal.draws.values:
            mean, sd = one[name].mean(("chain", "draw")), one[name].std(("chain", "draw"))
            shift = again[name].mean(("chain", "draw")) - mean
            # Normal around the same draws, where a scale's own distribution is skewed.
            assert np.abs(shift / sd).max() < 1
            assert np.abs(np.log(again[name].std(("chain", "draw")) / sd)).max() < 1.5


def test_draws_for_other_priors_or_data_are_not_kept(case):
    _, make, _, path = case
    with warned("other priors", "NUTS", "check()"):
        other = Coreset.from_netcdf(path, make(sd=0.5))
    assert (other.proposal, other.certificate, other.modes) == (None, None, None)


# -- what is in a file -----------------------------------------------------------------------------


#: The second of two coordinates is not normal along its axis.
TABLES = GriddedMarginals(
    np.array([1.0, 2.0]),
    np.array([[2.0, 0.5], [0.0, 1.0]]),
    {1: Table(np.array([0.0, 1.0, 3.0]), np.array([0.0, -1.0, -9.0]))},
)


def known(around):
    return Proposal(draws=Draws({"a": np.zeros(3)}), log_ratios=np.arange(3.0), around=around)


@pytest.mark.parametrize(
    "around",
    [
        None,
        factor_of(np.array([[2.0, 1.0], [1.0, 2.0]])),
        factor_of(sparse.csr_array(np.diag([2.0, 3.0]))),
        Normal(np.zeros(2), factor_of(np.eye(2)), Tails(stretch=np.ones((2, 2)))),
        TABLES,
        Mixture([heavy_tailed(np.full(1, c), np.eye(1)) for c in (-1, 1)], np.ones(2) / 2),
    ],
    ids=lambda around: type(around).__name__,
)
def test_distributions_are_stored_field_by_field(around):
    stored = stored_proposal(known(around), None)
    again = restored_proposal(stored, None)
    assert type(again.around) is type(around)
    assert stored_proposal(again, None).identical(stored)
    if around is not None and not isinstance(around, CholeskyFactor):
        draws = [each.draw(50, rng=np.random.default_rng(1))[0] for each in (around, again.around)]
        assert_array_equal(*draws)


def test_fields_that_a_file_lacks_have_their_defaults():
    stored = stored_proposal(known(heavy_tailed(np.zeros(2), np.eye(2))), None)
    form = json.loads(stored["form"].item())
    del form["around"]["fields"]["tails"]["fields"]["stretch"]
    again = restored_proposal(stored.assign(form=json.dumps(form)), None)
    assert again.around.tails.stretch is None


@pytest.mark.parametrize(
    "change",
    [
        {"log_ratios": ("log_ratios.0", np.full(3, np.nan))},
        {"log_ratios": ("other", np.zeros(4))},
        {"form": json.dumps({"version": 0})},
        {"form": "{"},
    ],
)
def test_odd_contents_are_refused_by_name(change, tmp_path):
    with pm.Model():
        pm.Normal("y", pm.Normal("a"), 1.0, observed=X[:60, 0])
        coreset = build_coreset(size=4, method="uniform", random_seed=1, progressbar=False)
    tree = coreset.to_datatree()
    tree["proposal"] = stored_proposal(known(factor_of(np.eye(1))), None).assign(change)
    write_netcdf(tree, tmp_path / "odd.nc")
    with refused(InvalidDataError, "odd.nc", "coreset file", topic="coresets-in-files"):
        Coreset.from_netcdf(tmp_path / "odd.nc")
