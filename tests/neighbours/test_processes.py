"""What pickles, for the processes of joblib and multiprocessing, and what runs in a notebook."""

import pickle
from multiprocessing import get_context
from operator import methodcaller

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_array_equal

from pymc_coresets import Coreset, build_coreset

pytestmark = pytest.mark.slow

QUIET = {"random_seed": 1, "progressbar": False}
DRAWS = {"draws": 100, "chains": 1, "compute_convergence_checks": False, **QUIET}
CELL = """
import numpy as np, pymc as pm, pymc_coresets as pmc
with pm.Model():
    pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.linspace(-1, 1, 2_000))
    coreset = pmc.build_coreset(random_seed=1)
idata = coreset.sample(nuts_sampler="pymc", draws=200, cores=2, random_seed=1)
idata["posterior"].sizes["draw"]
"""


@pytest.fixture(scope="module")
def coreset():
    with pm.Model():
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.linspace(-1, 1, 2_000))
        return build_coreset(**QUIET)


def mu(idata):
    return idata["posterior"]["mu"].values


def test_spawned_processes_take_a_coreset_as_an_argument(coreset):
    with get_context("spawn").Pool(1) as pool:
        found = pool.apply(Coreset.sample, (coreset,), DRAWS)
    assert_array_equal(mu(found), mu(coreset.sample(**DRAWS)))


def test_joblib_takes_a_coreset_as_an_argument(coreset):
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    sample = joblib.delayed(methodcaller("sample", **DRAWS))
    [found] = joblib.Parallel(n_jobs=2)([sample(coreset)])
    assert_array_equal(mu(found), mu(coreset.sample(**DRAWS)))


def test_a_closure_pickles_by_cloudpickle_alone(coreset):
    def size():
        return coreset.size

    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(size)
    assert pickle.loads(cloudpickle.dumps(size))() == coreset.size


def test_a_notebook_samples_in_two_processes(tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    assert notebook.cells[0].outputs[-1]["data"]["text/plain"] == "200"
