"""Models of HSSM and of Bambi, which it builds on: draws of a coreset have their names."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from pymc_coresets import build_coreset

# Both use what their libraries have deprecated, and the energy of a first step may overflow.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning:pymc"),
]

QUIET = {"random_seed": 1, "progressbar": False}
DECISIONS = {"v": 0.5, "a": 1.5, "z": 0.5, "t": 0.3}


def test_decisions_and_their_times():
    hssm = pytest.importorskip("hssm", reason="hssm is not installed")
    data = hssm.simulate_data(model="ddm", theta=DECISIONS, size=1_000, random_state=1)
    built = hssm.HSSM(data, model="ddm", loglik_kind="analytical")
    coreset = build_coreset(built.pymc_model, **QUIET)
    assert coreset.certificate.reliable
    idata = coreset.sample(draws=200, tune=200, compute_convergence_checks=False, **QUIET)
    posterior = idata["posterior"]
    assert set(posterior.data_vars) >= DECISIONS.keys()
    for name, truth in DECISIONS.items():
        z = (float(posterior[name].mean()) - truth) / float(posterior[name].std())
        assert abs(z) < 5, name


def test_bambi_predicts_for_groups_in_and_out_of_sample():
    bambi = pytest.importorskip("bambi", reason="bambi is not installed")
    rng, n = np.random.default_rng(1), 2_000
    data = pd.DataFrame({"x": rng.normal(size=n), "shop": rng.choice(list("abcd"), size=n)})
    data["sold"] = rng.poisson(np.exp(0.5 + 0.3 * data["x"] + 0.2 * (data["shop"] == "a")))
    model = bambi.Model("sold ~ x + (1|shop)", data, family="poisson", center_predictors=False)
    model.build()
    coreset = build_coreset(model.backend.model, **QUIET)
    idata = coreset.sample(draws=200, compute_convergence_checks=False, **QUIET)
    seen = model.predict(idata, inplace=False)["posterior"]["mu"]
    assert seen.shape == (4, 200, n)
    few = data.head(10)
    assert_allclose(
        model.predict(idata, data=few, inplace=False)["posterior"]["mu"], seen[..., :10]
    )
