import numpy as np
import pymc as pm
import pytest
import xarray as xr
from arviz_base import generate_dims_coords

from pymc_coresets import InvalidDataError
from pymc_coresets.reading.draws import Draws, dims_of
from tests.refusals import refused

SHAPES = {"mu": (), "beta": (3,)}
RNG = np.random.default_rng(1)
MU, BETA = RNG.normal(size=(2, 5)), RNG.normal(size=(2, 5, 3))


def dataset():
    return xr.Dataset(
        {"mu": (("chain", "draw"), MU), "beta": (("chain", "draw", "k"), BETA)},
    )


@pytest.mark.parametrize(
    "draws",
    [
        dataset(),
        xr.DataTree.from_dict({"posterior": dataset()}),
        dataset().transpose("k", "draw", "chain"),
        {"mu": MU, "beta": BETA},
        {"mu": MU.reshape(10), "beta": BETA.reshape(10, 3), "other": np.zeros(3)},
        Draws({"mu": MU.reshape(10), "beta": BETA.reshape(10, 3)}),
    ],
    ids=["dataset", "tree", "transposed", "chains", "flat", "draws"],
)
def test_every_form_gives_the_same_draws(draws):
    found = Draws.of(draws, SHAPES)
    np.testing.assert_array_equal(found.values["mu"], MU.ravel())
    np.testing.assert_array_equal(found.values["beta"], BETA.reshape(10, 3))


def test_stacked_samples_are_read():
    stacked = dataset().stack(sample=("chain", "draw"))
    np.testing.assert_array_equal(Draws.of(stacked, SHAPES).values["mu"], MU.ravel())


def test_a_dimension_of_the_model_may_be_called_sample():
    draws = dataset().rename(k="sample").transpose("sample", ...)
    found = Draws.of(draws, SHAPES)
    np.testing.assert_array_equal(found.values["mu"], MU.ravel())
    np.testing.assert_array_equal(found.values["beta"], BETA.reshape(10, 3))


@pytest.mark.parametrize(
    ("draws", "facts"),
    [
        ({"mu": MU}, ("lack", "'beta'")),
        ({"mu": MU, "beta": BETA[..., :2]}, ("'beta'", "shape")),
        ({"mu": MU, "beta": np.full_like(BETA, np.nan)}, ("'beta'", "NaN")),
        ({"mu": MU[:, :4], "beta": BETA}, ("'mu': 8", "'beta': 10")),
        (xr.DataTree(), ("'posterior'", "[]")),
        ([1.0, 2.0], ("list", "DataTree")),
    ],
)
def test_bad_draws_are_named(draws, facts):
    with refused(InvalidDataError, facts, topic="draws"):
        Draws.of(draws, SHAPES)


def test_draws_of_the_package_itself_may_be_far_out():
    """Where they overflow, the user gave none: the log-likelihood there is NaN."""
    draws = Draws({"mu": np.array([0.0, np.inf]), "beta": np.full((2, 3), np.nan)})
    assert np.isinf(Draws.of(draws, SHAPES).values["mu"][1])
    with refused(InvalidDataError, "'mu'", "NaN", topic="draws"):
        Draws.of(draws.values, SHAPES)


def test_draws_become_a_datatree_and_draws_again():
    draws = Draws({"mu": np.arange(6.0), "b": np.arange(12.0).reshape(6, 2)})
    tree = draws.to_datatree(
        n_chains=2, dims={"b": ("k",)}, coords={"k": ("x", "y"), "other": None}
    )
    assert dict(tree["posterior"]["b"].sizes) == {"chain": 2, "draw": 3, "k": 2}
    assert list(tree["posterior"]["k"].values) == ["x", "y"]
    same = Draws.of(tree, {"mu": (), "b": (2,)})
    np.testing.assert_array_equal(same.values["b"], draws.values["b"])


def test_dims_and_labels_are_those_of_pymc():
    with pm.Model(coords={"k": ["x", "y"]}) as model:
        model.add_coord("unlabelled", length=3)
        pm.Normal("a", shape=(2, 3))
        pm.Normal("b", dims=("unlabelled", "k"))
        theirs = pm.sample_prior_predictive(4, random_seed=1)["prior"].to_dataset()
    draws = Draws({str(name): values[0].to_numpy() for name, values in theirs.items()})
    ours = draws.to_datatree(dims=model.named_vars_to_dims, coords=model.coords)["posterior"]
    xr.testing.assert_identical(ours.to_dataset(), theirs.drop_attrs(deep=True))


@pytest.mark.parametrize(
    "dims", [[], ["a"], ["a", None], [None, "a"], [None, "a", None], ["a", "b", "c"]]
)
def test_axes_without_names_are_numbered_as_by_arviz(dims):
    theirs, _ = generate_dims_coords((2, 3, 4), "x", list(dims))
    assert dims_of("x", 3, {"x": dims}) == theirs


def test_half_precision_is_too_coarse():
    with refused(InvalidDataError, "'beta'", "float16", "float32", topic="draws"):
        Draws.of({"mu": MU, "beta": BETA.astype(np.float16)}, SHAPES)
    single = Draws.of({"mu": MU, "beta": BETA.astype(np.float32)}, SHAPES)
    np.testing.assert_allclose(single.values["beta"], BETA.reshape(10, 3), rtol=1e-6)
