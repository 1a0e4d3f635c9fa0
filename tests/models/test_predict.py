"""Predictions are those of PyMC, for all rows or new ones, in memory or block by block."""

from itertools import pairwise

import arviz as az
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymc as pm
import pymc.dims as pmd
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal
from pymc.exceptions import ImputationWarning

from pymc_coresets import (
    CoresetError,
    InvalidDataError,
    InvalidOptionError,
    UnsupportedModelError,
    build_coreset,
    build_pass_glm,
    open_rows,
)
from tests.builds import QUIET, of_some_rows
from tests.modes import PLAIN_MODE
from tests.refusals import refused

N, GROUPS = 300, list("abcd")
RNG = np.random.default_rng(1)
DATA = {"X": RNG.normal(size=(N, 2)), "group": RNG.integers(0, 4, N)}
LEVELS = np.array([0.0, 1.0, -1.0, 0.5])
DATA["seen"] = RNG.poisson(np.exp(0.3 * DATA["X"].sum(axis=1) + LEVELS[DATA["group"]]))


def poisson_model(n=N, *, labels=False):
    own = {"obs": [f"o{i}" for i in range(n)]} if labels else {}
    with pm.Model(coords={"g": GROUPS, "k": ["u", "v"]} | own) as model:
        x = pm.Data("X", DATA["X"][:n], dims=("obs", "k"))
        group = pm.Data("group", DATA["group"][:n], dims="obs")
        seen = pm.Data("seen", DATA["seen"][:n], dims="obs")
        slope, level = pm.Normal("slope", dims="k"), pm.Normal("level", dims="g")
        rate = pm.Deterministic("rate", pm.math.exp(x @ slope + level[group]), dims="obs")
        pm.Poisson("y", rate, observed=seen, dims="obs")
    return model


def draws_of(n_chains=2, n_draws=40, **means):
    rng = np.random.default_rng(3)
    shape = (n_chains, n_draws)
    values = {
        n: np.asarray(m) + 0.1 * rng.normal(size=(*shape, *np.shape(m))) for n, m in means.items()
    }
    dims = {
        name: ["chain", "draw", *(f"{name}_{i}" for i in range(v.ndim - 2))]
        for name, v in values.items()
    }
    return xr.DataTree.from_dict(
        {"posterior": xr.Dataset({name: (dims[name], v) for name, v in values.items()})}
    )


@pytest.fixture(scope="module")
def idata():
    return draws_of(slope=[0.3, 0.3], level=LEVELS)


def uniform(model, **options):
    return build_coreset(
        model, size=20, method="uniform", random_seed=1, progressbar=False, **options
    )


@pytest.fixture(scope="module")
def coreset():
    return uniform(poisson_model(labels=True))


@pytest.fixture(scope="module")
def elsewhere():
    """The same rows, of which the model holds prototypes."""
    return uniform(poisson_model(30), rows=open_rows(DATA))


def rates(idata):
    posterior = idata["posterior"]
    level = posterior["level"].to_numpy()[..., DATA["group"]]
    return np.exp(posterior["slope"].to_numpy() @ DATA["X"].T + level)


# -- as PyMC does ----------------------------------------------------------------------------------


def test_draws_are_those_of_pymc(coreset, idata):
    found = coreset.predict(idata, kind="draws", random_seed=1, progressbar=False)
    expected = pm.sample_posterior_predictive(
        idata,
        model=coreset.full_model,
        random_seed=1,
        progressbar=False,
        freeze_vars=["slope", "level"],
        compile_kwargs={"mode": PLAIN_MODE},
    )
    for group in ("posterior_predictive", "observed_data"):
        xr.testing.assert_equal(
            xr.zeros_like(found[group]["y"]), xr.zeros_like(expected[group]["y"])
        )
    xr.testing.assert_equal(found["observed_data"]["y"], expected["observed_data"]["y"])
    assert found["posterior_predictive"]["y"].dtype == expected["posterior_predictive"]["y"].dtype
    # y is Poisson given the draws: its residuals have mean 0 and the variance of its rate.
    y, rate = found["posterior_predictive"]["y"].to_numpy(), rates(idata)
    z = (y - rate) / np.sqrt(rate)
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert_allclose(z.var(), 1.0, atol=4 * np.sqrt(np.mean(2 + 1 / rate) / z.size))


def test_means_are_those_of_the_distribution(coreset, idata):
    found = coreset.predict(idata, var_names=["y", "rate"], progressbar=False)
    expected = rates(idata).mean(axis=(0, 1))
    for name in ("y", "rate"):
        mean = found["posterior_predictive"][name]
        assert_allclose(mean, expected)
        assert mean.attrs["averaged"] == "means"
        assert mean.coords["obs"].values[1] == "o1"


def test_the_users_model_is_left_as_it_was(coreset, idata):
    before = coreset.full_model["X"].get_value().copy()
    coreset.predict(idata, rows={"X": np.zeros((2, 2)), "group": [0, 1]}, progressbar=False)
    assert_array_equal(coreset.full_model["X"].get_value(), before)


def test_where_pymc_knows_no_mean_draws_are_averaged(coreset):
    with pm.Model() as model:
        y = np.random.default_rng(1).normal(size=60)
        pm.TruncatedNormal("y", pm.Normal("mu"), 1.0, lower=-3.0, observed=np.maximum(y, -2.9))
    draws = draws_of(2, 100, mu=1.0)
    found = coreset.predict(draws, model=model, random_seed=1, progressbar=False)["predictions"][
        "y"
    ]
    assert found.attrs["averaged"] == "predictive draws"
    assert_allclose(found, 1.0, atol=5 / np.sqrt(200))


def test_bernoulli_draws_have_their_probabilities():
    """Alone, of one probability for several rows, and of probabilities that are drawn, too."""
    n_draws, p = 4_000, np.array([0.0, 0.2, 1.0])
    with pm.Model() as model:
        free = pm.Beta("p", 1, 1, shape=3)
        first = pm.Bernoulli("first", free, observed=[0, 1, 1])
        pm.Bernoulli("same", free[1], observed=np.zeros(4))
        pm.Bernoulli("then", 0.1 + 0.8 * first, observed=[0, 1, 1])
    coreset = of_some_rows(model, observed=["first", "same", "then"], allow_local=True)

    def drawn(p):
        values = np.broadcast_to(p, (4, n_draws // 4, 3))
        idata, options = az.from_dict({"posterior": {"p": values}}), {"kind": "draws"}
        return coreset.predict(idata, **QUIET, **options)["posterior_predictive"]

    found = drawn(p).to_dataset().stack(sample=("chain", "draw"))
    first, same, then = (found[name].to_numpy().T for name in ("first", "same", "then"))
    assert first.dtype == same.dtype == np.int64
    limit = 4 * 0.5 / np.sqrt(n_draws)
    assert_allclose(first.mean(axis=0), p, atol=limit)
    assert_allclose(same.mean(axis=0), 0.2, atol=limit)
    assert_allclose(np.cov(same.T)[np.triu_indices(4, 1)], 0.0, atol=limit)
    for value, expected in ((0, 0.1), (1, 0.9)):
        assert_allclose(then[first == value].mean(), expected, atol=limit)
    with pytest.raises(ValueError, match="not between 0 and 1"):
        drawn(np.array([0.0, 1.5, 1.0]))


def test_missing_values_are_predicted_too():
    values = np.random.default_rng(1).normal(size=40)
    values[[3, 8]] = np.nan
    with pytest.warns(ImputationWarning), pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=values)
    idata = draws_of(mu=0.0, y_unobserved=np.array([5.0, 5.0]))
    found = uniform(model).predict(idata, kind="draws", progressbar=False)["posterior_predictive"]
    assert {*found.data_vars} == {"y_observed", "y"}
    assert_array_equal(
        found["y"].to_numpy()[..., [3, 8]], idata["posterior"]["y_unobserved"].to_numpy()
    )


def test_polynomials_predict(idata):
    summaries = [
        build_pass_glm(poisson_model(), random_seed=1, progressbar=False) for _ in range(2)
    ]
    found = summaries[0].predict(idata, progressbar=False)
    assert_allclose(found["posterior_predictive"]["y"], rates(idata).mean(axis=(0, 1)))
    both = summaries[0] + summaries[1]
    with refused(InvalidOptionError, "model=...", "rows=..."):
        both.predict(idata, progressbar=False)
    other = both.predict(idata, model=poisson_model(7), progressbar=False)["predictions"]
    assert_allclose(other["y"], rates(idata).mean(axis=(0, 1))[:7])


# -- many means: compiled loops -------------------------------------------------------------------


@pytest.mark.parametrize("which", ["coreset", "elsewhere"])
@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize(("var_names", "n_cores"), [("y", 2**25), (["rate", "y"], 2)])
def test_means_in_compiled_loops_are_those_of_numpy(
    request, which, new, var_names, n_cores, idata, limits
):
    """One draw after the other on many cores, sixteen together on two."""
    approximation = request.getfixturevalue(which)
    rows = {"X": DATA["X"][:200, ::-1], "group": DATA["group"][50:250]} if new else None
    options = {"rows": rows, "var_names": var_names, "progressbar": False}
    expected = approximation.predict(idata, **options)
    limits(
        worth_compiling=0,
        worth_a_thread=1,
        predicted_rows=128,
        n_cores_of_loops=lambda: n_cores,
        large_constant=10,
    )
    found = approximation.predict(idata, **options)
    assert found.keys() == expected.keys()
    for group in expected.children:
        xr.testing.assert_allclose(found[group].to_dataset(), expected[group].to_dataset())
        assert found[group].attrs.keys() == expected[group].attrs.keys()


def test_draws_in_single_precision_are_as_good(coreset, idata, limits):
    limits(worth_compiling=0)
    single = xr.DataTree.from_dict({"posterior": idata["posterior"].to_dataset().astype("float32")})
    expected, found = (coreset.predict(draws, progressbar=False) for draws in (idata, single))
    one, other = (f["posterior_predictive"]["y"] for f in (expected, found))
    assert other.dtype == np.float64
    assert_allclose(other, one, rtol=1e-5)


def of_neighbours(x, slope):
    return pm.math.cumsum(slope * x)


def of_all(x, slope):
    return slope * x - (slope * x).mean()


def of_its_own(x, slope):
    return pm.Normal("own", shape=40)


def of_data_alone(x, slope):
    return x


@pytest.mark.parametrize("mean", [of_neighbours, of_all, of_its_own, of_data_alone])
def test_what_needs_more_than_its_row_sees_all_rows(coreset, mean, limits):
    with pm.Model() as model:
        x, slope = pm.Data("x", np.arange(40.0)), pm.Normal("slope")
        pm.Normal("y", mean(x, slope), 1.0, observed=np.zeros(40))
    limits(worth_compiling=0)
    draws = draws_of(slope=1.0, own=np.arange(40.0))
    x, slope = np.arange(40.0), float(draws["posterior"]["slope"].mean())
    expected = {
        of_neighbours: slope * np.cumsum(x),
        of_all: slope * (x - x.mean()),
        of_its_own: draws["posterior"]["own"].mean(["chain", "draw"]).to_numpy(),
        of_data_alone: x,
    }[mean]
    found = coreset.predict(draws, model=model, progressbar=False)["predictions"]["y"]
    assert_allclose(found, expected)


# -- rows from elsewhere ---------------------------------------------------------------------------


def test_rows_elsewhere_are_predicted_as_in_memory(coreset, elsewhere, idata, limits):
    """In blocks of any size; the last of 300 rows in blocks of 128 is smaller."""
    for size in (2**16, 128):
        limits(predicted_rows=size)
        found = elsewhere.predict(idata, var_names=["y", "rate"], progressbar=False)
        expected = coreset.predict(idata, var_names=["y", "rate"], progressbar=False)
        for name in ("y", "rate"):
            assert_allclose(
                found["posterior_predictive"][name], expected["posterior_predictive"][name]
            )
        assert_array_equal(found["observed_data"]["y"], DATA["seen"])


def test_draws_do_not_depend_on_the_chunks(elsewhere, idata):
    """Only on the seed, the rows and the draws."""
    cut = [0, 7, 130, N]
    chunks = [
        {name: array[start:stop] for name, array in DATA.items()} for start, stop in pairwise(cut)
    ]
    one = elsewhere.predict(
        idata, rows=open_rows(DATA), kind="draws", random_seed=1, progressbar=False
    )
    two = elsewhere.predict(
        idata, rows=open_rows(chunks), kind="draws", random_seed=1, progressbar=False
    )
    xr.testing.assert_equal(one["predictions"].to_dataset(), two["predictions"].to_dataset())
    other = elsewhere.predict(
        idata, rows=open_rows(DATA), kind="draws", random_seed=2, progressbar=False
    )
    assert not one["predictions"]["y"].equals(other["predictions"]["y"])


@pytest.mark.parametrize("kind", ["mean", "draws"])
@pytest.mark.parametrize("which", ["coreset", "elsewhere"])
def test_threads_change_nothing(request, which, kind, idata, limits):
    """Each has a function with random numbers of its own, of the same rows."""
    approximation = request.getfixturevalue(which)
    limits(predicted_rows=128, worth_a_thread=1)
    found = []
    for n_threads in (1, 5):
        limits(n_cores=lambda n=n_threads: n)
        found.append(approximation.predict(idata, kind=kind, random_seed=1, progressbar=False))
    one, five = (f["posterior_predictive"].to_dataset() for f in found)
    xr.testing.assert_equal(one, five)


@pytest.mark.parametrize("which", ["coreset", "elsewhere"])
def test_new_rows_need_what_predicts_them(request, which, idata):
    approximation = request.getfixturevalue(which)
    new = {"X": np.array([[0.0, 0.0], [1.0, -1.0], [2.0, 0.0]]), "group": np.array([3, 0, 1])}
    found = approximation.predict(idata, rows=new, progressbar=False)
    posterior = idata["posterior"]
    eta = (
        posterior["slope"].to_numpy() @ new["X"].T
        + posterior["level"].to_numpy()[..., new["group"]]
    )
    assert list(found.children) == ["predictions"]
    assert_allclose(found["predictions"]["y"], np.exp(eta).mean(axis=(0, 1)))
    assert_array_equal(found["predictions"]["obs"], [0, 1, 2])


def test_a_shape_may_follow_the_data_without_dims(coreset):
    with pm.Model() as model:
        x = pm.Data("x", np.arange(40.0))
        seen = pm.Data("seen", np.arange(40.0))
        pm.Normal("y", pm.Normal("slope") * x, 1e-9, observed=seen)
    rows = {"x": np.ones(3)}
    found = coreset.predict(
        draws_of(slope=0.0), model=model, rows=rows, kind="draws", progressbar=False
    )
    y = found["predictions"]["y"]
    assert y.dims == ("chain", "draw", "y_dim_0")
    assert_allclose(y.std("y_dim_0"), 0.0, atol=1e-7)


# -- block by block --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mean", "draws"])
@pytest.mark.parametrize("which", ["coreset", "elsewhere"])
def test_blocks_are_parts_of_what_memory_would_hold(request, which, kind, idata, limits):
    """The rows of one after the other where they lie elsewhere, and else the draws."""
    limits(predicted_rows=128, predicted_entries=6_000)
    approximation = request.getfixturevalue(which)
    options = {"kind": kind, "draws": 30, "random_seed": 1, "progressbar": False}
    blocks = []
    assert not approximation.predict(idata, to=blocks.append, **options).children
    expected = approximation.predict(idata, **options)["posterior_predictive"].to_dataset()
    along = "obs" if which == "elsewhere" else "draw"
    assert len(blocks) == (3 if which == "elsewhere" else 1 if kind == "mean" else 2)
    joined = xr.concat(blocks, along) if len(blocks) > 1 else blocks[0]
    xr.testing.assert_equal(joined, expected)
    assert joined["y"].attrs.keys() == expected["y"].attrs.keys()


@pytest.mark.parametrize("which", ["coreset", "elsewhere"])
def test_blocks_are_appended_to_a_store(request, which, idata, tmp_path, limits):
    """As the documentation has it."""
    limits(predicted_entries=6_000)
    approximation = request.getfixturevalue(which)
    store, along = tmp_path / "y.zarr", "draw" if which == "coreset" else "obs"
    options = {"kind": "draws", "var_names": ["y", "rate"], "random_seed": 1, "progressbar": False}

    def append(block):
        block.to_zarr(store, append_dim=along if store.exists() else None, consolidated=False)

    approximation.predict(idata, to=append, **options)
    expected = approximation.predict(idata, **options)["posterior_predictive"].to_dataset()
    xr.testing.assert_equal(xr.open_zarr(store, consolidated=False).load(), expected)


def test_what_the_function_raises_ends_it(coreset, idata):
    def fail(block):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coreset.predict(idata, to=fail, progressbar=False)


def test_a_later_draw_without_parameters_is_named(coreset, idata):
    odd = idata.copy(deep=True)
    odd["posterior"]["level"][1, 7] = 60.0  # a rate that NumPy cannot draw with
    with refused(InvalidDataError, "draw 7", "chain 1", "lam value too large"):
        coreset.predict(odd, kind="draws", progressbar=False)


@pytest.mark.parametrize("kind", ["mean", "draws"])
def test_what_was_observed_keeps_its_type(coreset, idata, kind):
    found = coreset.predict(idata, kind=kind, draws=4, progressbar=False)
    assert found["observed_data"]["y"].dtype.kind == "i"


def test_predictive_checks_can_be_plotted(coreset, idata):
    pytest.importorskip("matplotlib").use("Agg")
    found = coreset.predict(idata, kind="draws", draws=20, random_seed=1, progressbar=False)
    with pytest.warns(UserWarning, match="look discrete"):
        plot = az.plot_ppc_dist(found, backend="matplotlib", num_samples=20)
    assert {*plot.viz["observed_dist"].data_vars} == {"y"}


# -- errors ----------------------------------------------------------------------------------------

NEW = {"X": np.zeros((3, 2)), "group": np.zeros(3, dtype=int)}
UNUSABLE = {
    "no column": ({"z": np.zeros(3)}, InvalidOptionError, "pm.Data"),
    "a column less": ({"X": NEW["X"]}, InvalidOptionError, ("'group'", "['X']")),
    "other shape": (
        NEW | {"X": np.zeros((3, 5))},
        InvalidDataError,
        ("'X'", "(5,)", "pm.Data('X')"),
    ),
    "other type": (NEW | {"group": np.zeros(3)}, InvalidDataError, ("'group'", "float64")),
    "unknown code": (
        NEW | {"group": np.array([0, 4, 1])},
        InvalidDataError,
        ("row 1", "'group'", "entry 4", "'level'", "0 to 3"),
    ),
    "missing code": (
        NEW | {"group": np.array([0, 0, -1])},
        InvalidDataError,
        ("row 2", "'group'", "entry -1"),
    ),
    "not finite": (
        NEW | {"X": np.array([[0.0, 0.0], [0.0, np.nan], [0.0, 0.0]])},
        InvalidDataError,
        ("row 1", "'X'", "finite"),
    ),
}


@pytest.mark.parametrize("which", ["coreset", "elsewhere"])
@pytest.mark.parametrize("case", UNUSABLE)
def test_unusable_rows_are_refused(request, which, case, idata):
    rows, error, facts = UNUSABLE[case]
    with refused(error, facts):
        request.getfixturevalue(which).predict(idata, rows=rows, progressbar=False)


def test_a_file_that_has_changed_is_said_to_have_changed(idata, tmp_path):
    path = tmp_path / "rows.parquet"
    columns = {"a": DATA["X"][:, 0], "b": DATA["X"][:, 1]} | {n: DATA[n] for n in ("group", "seen")}
    pq.write_table(pa.table(columns), path)
    names = {"X": ["a", "b"], "group": "group", "seen": "seen"}
    found = uniform(poisson_model(30), rows=open_rows(path, columns=names))
    pq.write_table(pa.table(columns).slice(0, 200), path)
    with refused(InvalidDataError, "rows.parquet", "changed", topic="rows-and-files"):
        found.predict(idata, progressbar=False)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"kind": "median"}, "kind='median'"),
        ({"draws": 0}, "draws=0"),
        ({"var_names": ["z"]}, ("var_names", "'z'", "['level', 'rate', 'slope', 'y']")),
        ({"random_seed": "a"}, "random_seed='a'"),
        ({"progressbar": 1}, "progressbar=1"),
        ({"to": "y.zarr"}, ("to='y.zarr'", "function")),
        ({"model": "model"}, ("model is a str", "pm.Model")),
    ],
)
def test_wrong_options_are_refused(coreset, idata, options, facts):
    with refused(InvalidOptionError, facts):
        coreset.predict(idata, **{"progressbar": False} | options)


def test_draws_of_another_model_are_refused(coreset, idata):
    with refused(InvalidDataError, "lack", "'level'", topic="draws"):
        coreset.predict(draws_of(slope=[0.0, 0.0]), progressbar=False)
    with refused(InvalidDataError, "'level'", "shape", topic="draws"):
        coreset.predict(draws_of(slope=[0.0, 0.0], level=[0.0]), progressbar=False)


def test_results_beyond_memory_are_refused_at_once(coreset, idata, limits):
    limits(predicted_bytes=100_000)
    with refused(InvalidOptionError, "to=..."):
        coreset.predict(idata, kind="draws", progressbar=False)


def test_variables_without_rows_are_refused_for_new_rows(coreset):
    with pm.Model() as model:
        x, seen = pm.Data("x", np.arange(40.0)), np.arange(40.0)
        slope = pm.Normal("slope")
        pm.Deterministic("twice", 2 * slope)
        pm.Normal("y", slope * x, 1.0, observed=seen, shape=40)
    draws, options = draws_of(slope=0.0), {"model": model, "progressbar": False}
    with refused(InvalidDataError, "2 rows"):
        coreset.predict(draws, rows={"x": np.ones(3)}, kind="draws", **options)
    with refused(InvalidOptionError, "pm.Data"):
        coreset.predict(draws, rows={"x": np.ones(3)}, var_names="twice", **options)
    found = coreset.predict(draws, var_names="twice", **options)
    assert_allclose(found["predictions"]["twice"], 2 * draws["posterior"]["slope"].mean())


def test_distributions_without_a_mean_or_draws_are_refused(coreset):
    seen = np.random.default_rng(1).normal(size=30)
    with pm.Model() as cauchy:
        pm.Cauchy("y", pm.Normal("mu"), 1.0, observed=seen)
    with refused(InvalidOptionError, "'y'", "kind='draws'"):
        coreset.predict(draws_of(mu=0.0), model=cauchy, progressbar=False)
    with pm.Model() as custom:
        pm.CustomDist("y", pm.Normal("mu"), logp=lambda y, mu: -((y - mu) ** 2), observed=seen)
    with refused(UnsupportedModelError, "'y'", "drawn"):
        coreset.predict(draws_of(mu=0.0), model=custom, kind="draws", progressbar=False)


def test_local_variables_have_no_draws_for_new_rows(coreset):
    with pm.Model() as model:
        x = pm.Data("x", np.zeros(40), dims="obs")
        own = pm.Normal("own", dims="obs")
        pm.Normal("y", own + x, pm.HalfNormal("sd"), observed=np.zeros(40), dims="obs")
    with refused(UnsupportedModelError, "'own'"):
        coreset.predict(draws_of(own=np.zeros(40), sd=1.0), model=model, rows={"x": np.zeros(2)})


def test_a_coreset_without_its_rows_says_so(elsewhere, idata, tmp_path):
    pytest.importorskip("h5netcdf")
    elsewhere.to_netcdf(tmp_path / "coreset.nc")
    alone = type(elsewhere).from_netcdf(tmp_path / "coreset.nc", poisson_model(30))
    with refused(CoresetError, "from_netcdf(path, model, rows=...)", topic="coresets-in-files"):
        alone.predict(idata, progressbar=False)


def test_a_frame_may_have_other_columns_too(coreset, idata):
    """Text is no reason to refuse what the model does not ask for."""
    rows = {"group": DATA["group"][:3], "X": DATA["X"][:3]}
    found, expected = (
        coreset.predict(idata, rows=each, progressbar=False)["predictions"]["y"]
        for each in (rows | {"region": np.array(["north", "south", "west"])}, rows)
    )
    assert_array_equal(found, expected)


def test_an_array_that_new_rows_do_not_replace_is_named():
    exposure = np.linspace(0.25, 0.5, 40)
    with pm.Model() as model:
        x = pm.Data("x", np.zeros(40))
        rate = exposure * pm.math.exp(pm.Normal("slope") * x)
        pm.Poisson("y", rate, observed=np.zeros(40, dtype=int))
    with refused(InvalidDataError, "into pm.Data", "0.25, 0.2564, ...", "40"):
        uniform(model).predict(draws_of(slope=0.0), rows={"x": np.zeros(3)}, progressbar=False)


def test_a_frame_without_the_models_columns_is_refused_by_their_names(coreset, idata):
    rows = {"price": np.zeros(3), "region": np.array(["north", "south", "west"])}
    with refused(InvalidOptionError, "['price']", "no pm.Data of these names"):
        coreset.predict(idata, rows=rows)


# -- levels of another model ----------------------------------------------------------------------


def users(labels):
    """A count of each user, whose level has the mean of all, and whose slope has that level's."""
    with pm.Model(coords={"user": list(labels)}) as model:
        own = pm.Data("own", np.arange(len(labels)))
        level = pm.Normal("level", pm.Normal("mean"), pm.HalfNormal("sd"), dims="user")
        slope = pm.Normal("slope", level, 1e-9, dims="user")
        pm.Poisson("y", pm.math.exp(slope)[own], observed=np.arange(len(labels)) % 3)
    return model


@pytest.fixture(scope="module")
def of_users():
    found = draws_of(4, 500, mean=0.2, sd=0.5, level=[1.0, 2.0, 3.0], slope=[1.0, 2.0, 3.0])
    posterior = found["posterior"].to_dataset()
    posterior = posterior.rename_dims({"level_0": "user", "slope_0": "user"})
    return xr.DataTree.from_dict({"posterior": posterior.assign_coords(user=["a", "b", "c"])})


def test_levels_of_another_model_are_found_by_their_labels(coreset, of_users):
    found, expected = (
        coreset.predict(of_users, model=users(labels), progressbar=False)["predictions"]["y"]
        for labels in ("ca", "abc")
    )
    assert_array_equal(found, expected[[2, 0]])


def test_new_levels_are_drawn_given_the_variables_above_them(coreset, of_users):
    model = users(["b", "new"])
    found = coreset.predict(
        of_users, model=model, var_names=["level", "slope"], kind="draws", random_seed=2,
        progressbar=False,
    )["predictions"]  # fmt: skip
    posterior = of_users["posterior"]
    known, new = (found["level"].sel(user=label) for label in ("b", "new"))
    assert_array_equal(known, posterior["level"].sel(user="b"))
    z = ((new - posterior["mean"]) / posterior["sd"]).to_numpy().ravel()
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert_allclose(z.var(), 1.0, atol=4 * np.sqrt(2 / z.size))
    # A variable that depends on those of the new level sees the same draws of them.
    assert_allclose(found["slope"].sel(user="new"), new, atol=1e-7)
    assert_array_equal(found["slope"].sel(user="b"), posterior["slope"].sel(user="b"))


def test_new_levels_are_announced(coreset, of_users, caplog):
    coreset.predict(of_users, model=users(["b", "new"]), random_seed=2, progressbar=False)
    assert "'level' has no draws of 1 of 2 entries along 'user'" in caplog.text
    caplog.clear()
    coreset.predict(of_users, model=users("ba"), random_seed=2, progressbar=False)
    assert not caplog.text


def steps(labels, kind):
    with pm.Model(coords={"year": labels}) as model:
        if kind == "walk":
            init = pm.Normal.dist(0, 1)
            steps = pm.GaussianRandomWalk(
                "step", init_dist=init, steps=len(labels) - 1, dims="year"
            )
        else:
            order = pm.distributions.transforms.ordered
            steps = pm.Normal("step", np.arange(len(labels)), 1, transform=order, dims="year")
        pm.Poisson("y", pm.math.exp(steps), observed=np.arange(len(labels)) % 3)
    return model


@pytest.mark.parametrize("kind", ["walk", "ordered"])
def test_new_levels_that_depend_on_the_known_ones_are_refused(coreset, kind):
    draws = draws_of(step=[0.0, 1.0, 2.0])["posterior"].to_dataset()
    draws = draws.rename_dims({"step_0": "year"}).assign_coords(year=[1, 2, 3])
    idata = xr.DataTree.from_dict({"posterior": draws})
    found = coreset.predict(idata, model=steps([1, 2, 3], kind), progressbar=False)["predictions"]
    assert_allclose(found["y"], np.exp(draws["step"]).mean(("chain", "draw")))
    with refused(UnsupportedModelError, "'step'", "each other", topic="draws"):
        coreset.predict(idata, model=steps([1, 2, 3, 4], kind), progressbar=False)


def test_levels_are_not_found_by_labels_that_repeat(coreset, of_users):
    posterior = of_users["posterior"].to_dataset().assign_coords(user=["a", "b", "b"])
    idata = xr.DataTree.from_dict({"posterior": posterior})
    with refused(InvalidDataError, "'user'", "repeat", topic="draws"):
        coreset.predict(idata, model=users("ab"), progressbar=False)


def centred(n, **how):
    """A model of only one variable, of n levels."""
    with pm.Model(coords={"user": range(n)}) as model:
        level = pm.Normal("level", 3.0, 1e-9, **how)
        pm.Normal("y", level, observed=np.zeros(n))
    return model


def test_new_levels_of_the_only_variable_of_a_model(coreset):
    idata = draws_of(2, 5, level=[1.0, 2.0])["posterior"].to_dataset().rename_dims(level_0="user")
    idata = idata.assign_coords(user=[1, 0])
    found = coreset.predict(idata, model=centred(3, dims="user"), progressbar=False)["predictions"]
    expected = [*idata["level"].mean(("chain", "draw"))[::-1], 3.0]
    assert_allclose(found["y"], expected, atol=1e-6)


def test_levels_without_labels_are_not_taken_for_others(coreset):
    idata = draws_of(2, 5, level=[1.0, 2.0])["posterior"].to_dataset()
    unlabelled = idata.rename_dims(level_0="user")
    numbered = idata.rename_dims(level_0="level_dim_0").assign_coords(level_dim_0=[0, 1])
    for draws, how in ((unlabelled, {"dims": "user"}), (numbered, {"shape": 2})):
        found = coreset.predict(draws, model=centred(2, **how), progressbar=False)["predictions"]
        assert_allclose(found["y"], idata["level"].mean(("chain", "draw")))
    for n in (1, 3):
        for draws, how in ((unlabelled, {"dims": "user"}), (numbered, {"shape": n})):
            with refused(InvalidDataError, "'level'", "labels", topic="draws"):
                coreset.predict(draws, model=centred(n, **how), progressbar=False)


def test_new_levels_on_which_a_potential_depends_are_refused(coreset, of_users):
    model = users(["b", "new"])
    with model:
        pm.Potential("zero", -(model["level"].sum() ** 2))
    with refused(UnsupportedModelError, "['zero']", "potentials", topic="draws"):
        coreset.predict(of_users, model=model, progressbar=False)


@pytest.mark.parametrize("kind", ["normal", "zero sum"])
def test_new_levels_of_named_dimensions(coreset, kind):
    with pm.Model(coords={"user": ["new", "b", "a"]}) as model:
        if kind == "normal":
            level = pmd.Normal("level", 3.0, 1e-9, dims="user")
        else:
            level = pmd.ZeroSumNormal("level", core_dims="user")
        pmd.Normal("y", level, 1.0, observed=pmd.as_xtensor(np.zeros(3), dims=("user",)))
    idata = draws_of(2, 5, level=[1.0, -1.0])["posterior"].to_dataset().rename_dims(level_0="user")
    idata = idata.assign_coords(user=["a", "b"])
    if kind == "normal":
        found = coreset.predict(
            idata, model=model, var_names="level", kind="draws", progressbar=False
        )["predictions"]["level"]
        assert_array_equal(found.sel(user=["a", "b"]), idata["level"])
        assert_allclose(found.sel(user="new"), 3.0, atol=1e-6)
    else:
        with refused(UnsupportedModelError, "'level'", "each other", topic="draws"):
            coreset.predict(idata, model=model, progressbar=False)
