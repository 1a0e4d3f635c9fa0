"""Files of coresets: intact or refused, whole or not there, and tied to the data of the model."""

import os
import sys
import warnings
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_coresets import (
    Certificate,
    Coreset,
    InvalidDataError,
    InvalidOptionError,
    build_coreset,
    storage,
)
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.kept_rows import digests, kept_dataset, rows_of_dataset
from pymc_coresets.storage import stored_fields, write_netcdf
from tests.derived import likelihood_of
from tests.refusals import refused, warned

pytest.importorskip("h5netcdf", reason="needs the extra 'netcdf'")

N = 60
X, Z = np.random.default_rng(1).normal(size=(2, N))
Y = np.random.default_rng(2).normal(X)


def make_model(x=X, y=Y, *, swapped=False, free="a"):
    with pm.Model(coords={"obs": range(N)}) as model:
        x, z = pm.Data("x", x), pm.Data("z", Z)
        a, b = pm.Normal(free), pm.Normal("b")
        mu = z * b + x * a if swapped else a * x + b * z
        pm.Normal("y", mu, 1.0, observed=y, dims="obs")
    return model


def make_coreset(model, size=4):
    return build_coreset(model, size=size, method="uniform", random_seed=1, progressbar=False)


@pytest.fixture(scope="module")
def coreset():
    return make_coreset(make_model())


@pytest.fixture(scope="module")
def path(coreset, tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "coreset.nc"
    coreset.to_netcdf(path)
    return path


def assert_same(one, other):
    np.testing.assert_array_equal(one.indices, other.indices)
    np.testing.assert_array_equal(one.weights, other.weights)
    assert repr(one) == repr(other)
    assert one.history.identical(other.history)
    assert one.settings == other.settings


# -- damage ----------------------------------------------------------------------------------------


def outcome(content, path):
    """What is read from a file with this content; None where it is refused by name."""
    path.write_bytes(content)
    try:
        return Coreset.from_netcdf(path)
    except InvalidDataError as error:
        refused = str(error)
    return None if refused.startswith(str(path)) else refused


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_harmless(coreset, path, tmp_path_factory, data):
    content = bytearray(path.read_bytes())
    flips = data.draw(st.lists(st.integers(0, len(content) - 1), max_size=5), label="flipped")
    for position in flips:
        content[position] ^= data.draw(st.integers(1, 255), label="with")
    end = data.draw(st.one_of(st.none(), st.integers(0, len(content))), label="cut off at")
    found = outcome(bytes(content[:end]), tmp_path_factory.getbasetemp() / "damaged.nc")
    if found is not None:
        assert_same(found, coreset)
    else:
        assert bytes(content[:end]) != path.read_bytes()


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89HDF\r\n\x1a\n"])
def test_a_file_of_something_else_is_refused(content, tmp_path):
    assert outcome(content, tmp_path / "other.nc") is None


def test_netcdf_files_of_others_are_refused(tmp_path):
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"a": ("row", [1.0])})})
    tree.to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with refused(InvalidDataError, "other.nc", "damaged", topic="coresets-in-files"):
        Coreset.from_netcdf(tmp_path / "other.nc")
    write_netcdf(tree, tmp_path / "intact.nc")
    with refused(
        InvalidDataError, "intact.nc", "coreset file", "'coreset'", topic="coresets-in-files"
    ):
        Coreset.from_netcdf(tmp_path / "intact.nc")


@pytest.mark.parametrize(
    "change",
    [{"settings": "{"}, {"random_seed": "x"}, {"n_distinct": "?"}, {"objective": -1.0}],
)
def test_an_intact_file_with_odd_contents_is_refused(coreset, tmp_path, change):
    tree = coreset.to_datatree()
    tree["coreset"].attrs |= change
    write_netcdf(tree, tmp_path / "odd.nc")
    with refused(InvalidDataError, "odd.nc", topic="coresets-in-files"):
        Coreset.from_netcdf(tmp_path / "odd.nc")


def test_weights_of_other_rows_than_the_indices_are_refused(coreset):
    tree = coreset.to_datatree()
    dataset = tree["coreset"].to_dataset().drop_vars("weights")
    dataset["weights"] = ("other", np.ones(coreset.size + 1))
    with pytest.raises(ValueError, match="not have one weight for each index"):
        stored_fields(dataset, tree["history"].to_dataset())


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    for path in (tmp_path / "missing.nc", tmp_path):
        with refused(InvalidDataError, path.name, topic="coresets-in-files"):
            Coreset.from_netcdf(path)


def test_what_is_no_path_is_named(coreset):
    for use in (coreset.to_netcdf, Coreset.from_netcdf):
        with refused(InvalidOptionError, "path=None"):
            use(None)


def test_without_h5netcdf_the_extra_is_named(coreset, path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5netcdf", None)
    for use in (coreset.to_netcdf, Coreset.from_netcdf):
        with refused(InvalidOptionError, "h5netcdf", "pymc-coresets[netcdf]"):
            use(path)


def test_other_programs_can_read_the_file(coreset, path):
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        np.testing.assert_array_equal(tree["coreset"]["weights"], coreset.weights)


# -- writing ---------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_finished_leaves_the_old_one(coreset, tmp_path):
    path = tmp_path / "coreset.nc"
    coreset.to_netcdf(path)
    before = path.read_bytes()
    unwritable = replace(coreset, history=coreset.history.assign_attrs(oddity=object()))
    with pytest.raises(TypeError):
        unwritable.to_netcdf(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["coreset.nc"]


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_full_disk_costs_neither_the_process_nor_the_old_file(tmp_path, before):
    resource = pytest.importorskip("resource", reason="limits of processes are those of Unix")
    path = tmp_path / "coreset.nc"
    if before is not None:
        path.write_bytes(before)
    tree = xr.DataTree.from_dict({"coreset": xr.Dataset({"weights": ("row", np.ones(3_000))})})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with refused(InvalidOptionError, "coreset.nc", "File"):
            write_netcdf(tree, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == ([] if before is None else [before])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are those of Unix")
def test_pipes_and_devices_are_not_replaced(coreset, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to(os.devnull)
    (tmp_path / "folder").mkdir()
    for path in (*tmp_path.iterdir(), os.devnull):
        with refused(InvalidOptionError, "a pipe or a device"):
            coreset.to_netcdf(path)
    assert (tmp_path / "pipe").is_fifo()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_name_may_be_as_long_as_names_are(coreset, tmp_path):
    path = tmp_path / f"{'n' * 252}.nc"
    coreset.to_netcdf(path)
    assert_same(Coreset.from_netcdf(path), coreset)


def test_a_folder_that_is_not_there_is_named(coreset, tmp_path):
    with refused(InvalidOptionError, "nowhere", "written"):
        coreset.to_netcdf(tmp_path / "nowhere" / "coreset.nc")


def test_a_file_is_replaced_where_a_link_leads_to_it(coreset, tmp_path):
    target, link = tmp_path / "target.nc", tmp_path / "link.nc"
    target.write_bytes(b"old")
    link.symlink_to(target)
    coreset.to_netcdf(link)
    assert link.is_symlink()
    assert_same(Coreset.from_netcdf(target), coreset)


def test_a_coreset_without_its_model_is_written_as_it_was_read(coreset, path, tmp_path):
    without = Coreset.from_netcdf(path)
    assert without.loglikelihood is None
    without.to_netcdf(tmp_path / "again.nc")
    again = Coreset.from_netcdf(tmp_path / "again.nc", make_model())
    assert_same(again, coreset)
    assert again.model.potentials


# -- the model it belongs to -----------------------------------------------------------------------


def read_without_warnings(path, model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Coreset.from_netcdf(path, model)


def test_the_order_of_the_graph_does_not_matter(coreset, path):
    swapped = make_model(swapped=True)
    names = [[r.name for r in find_observations(m).rows] for m in (coreset.full_model, swapped)]
    assert names[0] != names[1]
    assert_same(read_without_warnings(path, swapped), coreset)


def test_a_deterministic_more_does_not_matter(coreset, path):
    model = make_model()
    with model:
        pm.Deterministic("trend", np.arange(N) * model["a"], dims="obs")
    assert_same(read_without_warnings(path, model), coreset)


def test_the_layout_of_the_data_in_memory_does_not_matter():
    wide = np.random.default_rng(1).normal(size=(N, 3))
    found = []
    for data in (wide, np.asfortranarray(wide)):
        with pm.Model() as model:
            pm.Normal("y", pm.Data("x", data) @ pm.Normal("b", shape=3), 1.0, observed=Y)
        loglik = likelihood_of(model)
        found.append(digests(loglik, loglik.source.at(np.arange(3)), of_data=True))
    assert found[0] == found[1]


def test_another_likelihood_is_refused(path):
    """Names, shapes and data are the same; draws of either would be called reliable."""
    with pm.Model(coords={"obs": range(N)}) as model:
        mu = pm.Normal("a") * pm.Data("x", X) + pm.Normal("b") * pm.Data("z", Z)
        pm.Normal("y", mu, 5.0, observed=Y, dims="obs")
    with refused(InvalidDataError, "another likelihood", topic="coresets-in-files"):
        Coreset.from_netcdf(path, model)


def test_what_was_measured_under_other_priors_is_not_kept(coreset, path):
    with pm.Model(coords={"obs": range(N)}) as model:
        mu = pm.Normal("a", 0, 0.1) * pm.Data("x", X) + pm.Normal("b") * pm.Data("z", Z)
        pm.Normal("y", mu, 1.0, observed=Y, dims="obs")
    with warned("other priors", "check()"):
        found = Coreset.from_netcdf(path, model)
    assert np.isnan(found.objective)
    assert found.certificate is None
    np.testing.assert_array_equal(found.weights, coreset.weights)


def test_other_data_in_the_rows_are_refused(coreset, path):
    x = X.copy()
    x[coreset.indices[0]] += 1
    with refused(InvalidDataError, "other data", "coreset's rows", topic="coresets-in-files"):
        Coreset.from_netcdf(path, make_model(x))


def test_another_free_variable_is_refused(path):
    with refused(InvalidDataError, "other free variables", topic="coresets-in-files"):
        Coreset.from_netcdf(path, make_model(free="c"))


def test_data_that_changed_their_places_among_the_arrays_are_refused(path):
    with pm.Model() as model:
        x, z = pm.Data("x", Z), pm.Data("z", X)
        pm.Normal("y", pm.Normal("a") * x + pm.Normal("b") * z, 1.0, observed=Y)
    with refused(InvalidDataError, "other data", topic="coresets-in-files"):
        Coreset.from_netcdf(path, model)


def test_other_data_in_other_rows_are_said(coreset, path, tmp_path):
    y = Y.copy()
    [other, *_] = np.setdiff1d(np.arange(N), coreset.indices)
    y[other] += 1
    with warned("other rows", "check()", "reweight()") as caught:
        back = Coreset.from_netcdf(path, make_model(y=y))
    assert caught[0].filename == __file__
    assert_same(back, coreset)
    back.to_netcdf(tmp_path / "again.nc")  # which remembers what it was built from
    with warned("other rows", "check()", "reweight()"):
        Coreset.from_netcdf(tmp_path / "again.nc", make_model(y=y))
    read_without_warnings(tmp_path / "again.nc", make_model())


def test_what_is_no_model_is_named(path):
    with refused(InvalidOptionError, "model is a str", "pm.Model"):
        Coreset.from_netcdf(path, "hello")


def test_the_model_of_the_context_is_used(path):
    with make_model() as model:
        assert Coreset.from_netcdf(path).full_model is model


@pytest.mark.filterwarnings("ignore:The data are 55 observations for 7 free dimensions")
@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_missing_values_shift_no_rows(tmp_path):
    y = Y.copy()
    y[:5] = np.nan
    coreset = make_coreset(make_model(y=np.ma.masked_invalid(y)), size=20)
    coreset.to_netcdf(tmp_path / "coreset.nc")
    back = read_without_warnings(tmp_path / "coreset.nc", make_model(y=np.ma.masked_invalid(y)))
    assert_same(back, coreset)


@pytest.mark.parametrize("weight", [0.0, -1.0, np.inf, np.nan])
def test_weights_that_are_not_positive_are_refused(coreset, weight):
    tree = coreset.to_datatree()
    dataset = tree["coreset"].to_dataset().copy(deep=True)
    dataset["weights"][0] = weight
    with pytest.raises(ValueError, match="not positive and finite"):
        stored_fields(dataset, tree["history"].to_dataset())


@pytest.mark.parametrize("content", ["{}", '{"kl": 0.1}', "[1]", '{"pareto_khat": "x"}', "{"])
def test_a_certificate_of_something_else_is_refused(coreset, tmp_path, content):
    tree = coreset.to_datatree()
    tree["coreset"].attrs["certificate"] = content
    write_netcdf(tree, tmp_path / "odd.nc")
    with refused(InvalidDataError, "odd.nc", topic="coresets-in-files"):
        Coreset.from_netcdf(tmp_path / "odd.nc")


def test_certificates_are_read_again(coreset):
    found = Certificate.of(np.random.default_rng(1).normal(size=400))
    exact = Certificate.of(np.zeros(400))  # whose k-hat is minus infinity
    for certificate in (found, exact, None):
        tree = replace(coreset, certificate=certificate).to_datatree()
        again = stored_fields(tree["coreset"].to_dataset(), tree["history"].to_dataset())
        assert again["certificate"] == certificate


def test_an_intact_file_that_is_no_netcdf_is_refused(tmp_path):
    body = b"nothing of the kind"
    path = tmp_path / "odd.nc"
    path.write_bytes(body + storage._MARK + storage._file_digest(body))
    with refused(InvalidDataError, "odd.nc", "coreset file", topic="coresets-in-files"):
        Coreset.from_netcdf(path)


@pytest.mark.parametrize("name", ["case_weight", "where"])
def test_rows_of_earlier_versions_are_refused_in_words(name):
    loglik = likelihood_of(make_model())
    kept = kept_dataset(loglik, loglik.source.at(np.arange(3)), np.ones(3))
    earlier = kept.rename({name: "another_name"})
    with refused(
        InvalidDataError, "file", "earlier version", repr(name), topic="coresets-in-files"
    ):
        rows_of_dataset(loglik.observations, earlier)
