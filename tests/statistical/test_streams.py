"""Streams of rows, and merged coresets, against closed forms of a linear regression."""

import warnings
from copy import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pymc_coresets import (
    Coreset,
    CoresetError,
    CoresetStream,
    CoresetWarning,
    Coverage,
    InvalidDataError,
    InvalidOptionError,
    Sensitivity,
    build_coreset,
    merge,
    open_rows,
)
from tests.builds import read
from tests.derived import draws_of
from tests.refusals import naming, refused, warned

OUTGROWN = "there are many more rows than at the beginning of the epoch before"
N, PILOT, TRUTH = 24_000, 500, np.array([0.5, -1.0, 0.2, 0.7, -0.3])
PRIOR_SD = 3.0
_rng = np.random.default_rng(4)


def simulated(n, truth=TRUTH):
    x, group = _rng.normal(size=(n, 2)), _rng.integers(0, 3, size=n)
    y = truth[group] + x @ truth[3:] + _rng.normal(size=n)
    return {"x": x, "group": group, "y": y}


def part(data, start, stop):
    return {name: array[start:stop] for name, array in data.items()}


def regression(data, prior_sd=PRIOR_SD, noise=1.0):
    with pm.Model() as model:
        x, group, y = (pm.Data(name, data[name][:50]) for name in ("x", "group", "y"))
        base = pm.Normal("base", 0, prior_sd, shape=3)
        slope = pm.Normal("slope", 0, prior_sd, shape=2)
        pm.Normal("likelihood", base[group] + x @ slope, noise, observed=y)
    return model


def posterior(data, weights=1.0, which=slice(None)):
    """Mean and precision of the coefficients, by the normal equations."""
    design = np.column_stack([np.eye(3)[data["group"][which]], data["x"][which]])
    precision = design.T @ (design * np.reshape(weights, (-1, 1))) + np.eye(5) / PRIOR_SD**2
    mean = np.linalg.solve(precision, design.T @ (weights * data["y"][which]))
    return mean, precision


def divergence(coreset, data):
    """KL(coreset || full) in nats."""
    mean, precision = posterior(data, coreset.weights, coreset.indices)
    full_mean, full = posterior(data)
    ratio = np.linalg.solve(precision, full)
    off = full_mean - mean
    return 0.5 * (np.trace(ratio) - 5 - np.linalg.slogdet(ratio)[1] + off @ full @ off)


def centred_total(data, draws, weights=1.0):
    coefficients = np.concatenate([draws.values["base"], draws.values["slope"]], axis=1)
    design = np.column_stack([np.eye(3)[data["group"]], data["x"]])
    values = -0.5 * np.square(data["y"][:, None] - design @ coefficients.T)
    values *= np.reshape(weights, (-1, 1))
    return (values - values.mean(axis=1, keepdims=True)).sum(axis=0)


def fed(stream, data, cuts):
    """Return a stream that goes on from another one, which stays as it is."""
    stream = copy(stream)
    for start, stop in pairwise(cuts):
        stream.update(part(data, start, stop))
    return stream


DATA = simulated(N)


@pytest.fixture(scope="module")
def model():
    return regression(DATA)


@pytest.fixture(scope="module")
def pilot(model):
    return CoresetStream(model, pilot=part(DATA, 0, PILOT), epoch_growth=5_000, random_seed=1)


@pytest.fixture(scope="module")
def whole(pilot):
    return fed(pilot, DATA, [PILOT, 3_000, N])


@pytest.fixture(scope="module")
def coreset(whole):
    return whole.coreset()


# -- streams ---------------------------------------------------------------------------------------


def test_sums_are_exact(whole):
    expected = centred_total(DATA, whole._state.draws)
    assert_allclose(whole._state.seen.total, expected, rtol=1e-9, atol=1e-7)
    assert_allclose(
        whole._state.log_ratios,
        centred_total(part(DATA, PILOT, N), whole._state.draws),
        rtol=1e-9,
        atol=1e-7,
    )


def test_the_coreset_has_the_posterior_of_all_rows(coreset):
    assert divergence(coreset, DATA) < 1e-3
    assert coreset.objective < 0.01
    assert coreset.n_observations == coreset.n_distinct == N
    assert coreset.history.attrs["n_epochs"] == 1
    kept = coreset.rows
    assert_array_equal(kept["position"], coreset.indices)
    assert_array_equal(kept["data x"], DATA["x"][coreset.indices])
    assert kept["where"].values[0] == f"row {coreset.indices[0]}"


@pytest.mark.parametrize("cuts", [[PILOT, N], [PILOT, 501, 508, 9_000, N]])
def test_cuts_make_no_difference(pilot, whole, coreset, cuts):
    other = fed(pilot, DATA, cuts)
    assert_allclose(other._state.seen.total, whole._state.seen.total, rtol=1e-9, atol=1e-7)
    assert_array_equal(
        other._state.seen.candidates.positions, whole._state.seen.candidates.positions
    )
    found = other.coreset()
    assert_array_equal(found.indices, coreset.indices)
    assert_allclose(found.weights, coreset.weights, rtol=1e-6)


def test_a_source_is_a_chunk(pilot, whole):
    stream = copy(pilot)
    rest = part(DATA, PILOT, N)
    stream.update(open_rows([part(rest, 0, 5_000), part(rest, 5_000, N)]))
    assert stream.n_chunks == 1
    assert_array_equal(
        stream._state.seen.candidates.positions, whole._state.seen.candidates.positions
    )


def test_the_order_of_chunks_does_not_change_the_sums(pilot, whole):
    stream = copy(pilot)
    for start, stop in [(8_000, N), (PILOT, 3_000), (3_000, 8_000)]:
        stream.update(part(DATA, start, stop))
    assert_allclose(stream._state.seen.total, whole._state.seen.total, rtol=1e-9, atol=1e-7)


def test_case_weights_count(pilot):
    stream = copy(pilot)
    counts = np.tile([2.0, 0.0, 1.0], 500)
    stream.update(part(DATA, PILOT, PILOT + 1_500), weights=counts)
    assert (stream.n_rows, stream.total_weight) == (PILOT + 1_500, PILOT + 1_500)
    repeated = {n: np.repeat(a, counts.astype(int), axis=0)
                for n, a in part(DATA, PILOT, PILOT + 1_500).items()}  # fmt: skip
    expected = centred_total(repeated, stream._state.draws)
    assert_allclose(stream._state.log_ratios, expected, rtol=1e-9, atol=1e-7)
    stream.update(part(DATA, 0, 3))
    assert stream._state.n_rows == PILOT + 1_503


def test_rows_of_weight_0_need_no_density(pilot):
    """Minus infinity times 0 is not 0."""
    far = part(DATA, PILOT, PILOT + 20)
    far["y"] = np.where(np.arange(20) % 2, far["y"], 1e200)
    stream = copy(pilot)
    stream.update(far, weights=np.arange(20) % 2.0)
    odd = {name: values[1::2] for name, values in far.items()}
    expected = centred_total(odd, stream._state.draws)
    assert_allclose(stream._state.log_ratios, expected, rtol=1e-9, atol=1e-7)


def test_a_restored_stream_goes_on_with_the_same_bits(pilot, whole, coreset, model, tmp_path):
    pilot.to_netcdf(tmp_path / "stream.nc")
    again = CoresetStream.from_netcdf(tmp_path / "stream.nc", model)
    again = fed(again, DATA, [PILOT, 3_000, N])
    assert_array_equal(again._state.seen.total, whole._state.seen.total)
    assert_array_equal(again._state.seen.keys, whole._state.seen.keys)
    assert_array_equal(again.coreset().weights, coreset.weights)
    assert again.coreset().random_seed == 1


@pytest.mark.parametrize(
    ("prior_sd", "noise", "fact", "topic"),
    [(1.0, 1.0, "priors", "streams"), (PRIOR_SD, 2.0, "another likelihood", "coresets-in-files")],
)
def test_a_stream_goes_on_with_its_own_model_only(pilot, prior_sd, noise, fact, topic, tmp_path):
    pilot.to_netcdf(tmp_path / "stream.nc")
    with refused(InvalidDataError, fact, topic=topic):
        CoresetStream.from_netcdf(tmp_path / "stream.nc", regression(DATA, prior_sd, noise))


def test_options_of_numpy_are_stored(model, tmp_path):
    options = {"size": np.int64(20), "draws": np.int64(200), "random_seed": np.int64(1)}
    stream = CoresetStream(model, pilot=part(DATA, 0, PILOT), **options)
    stream.to_netcdf(tmp_path / "stream.nc")
    assert CoresetStream.from_netcdf(tmp_path / "stream.nc", model).n_rows == PILOT


def test_a_stream_of_many_dimensions_is_stored(tmp_path):
    """The default size is then a multiple of D(D + 3), which PyMC counts in NumPy's numbers."""
    x = _rng.normal(size=(200, 9))
    data = {"x": x, "y": x.sum(axis=1) + _rng.normal(size=200)}
    with pm.Model() as model:
        design, y = (pm.Data(name, data[name][:50]) for name in ("x", "y"))
        pm.Normal("likelihood", design @ pm.Normal("b", shape=9), 1.0, observed=y)
    stream = CoresetStream(model, pilot=data, random_seed=1)
    assert stream._growth.size == 110
    stream.to_netcdf(tmp_path / "stream.nc")
    assert CoresetStream.from_netcdf(tmp_path / "stream.nc", model).n_rows == 200


def test_what_is_no_file_of_a_stream_is_refused(pilot, coreset, model, tmp_path):
    pilot.to_netcdf(tmp_path / "stream.nc")
    content = (tmp_path / "stream.nc").read_bytes()
    (tmp_path / "cut.nc").write_bytes(content[:-1_000])
    (tmp_path / "altered.nc").write_bytes(content.replace(b"pilot", b"pilos"))
    for name in ("cut.nc", "altered.nc"):
        with refused(InvalidDataError, "damaged", topic="coresets-in-files"):
            CoresetStream.from_netcdf(tmp_path / name, model)
    coreset.to_netcdf(tmp_path / "coreset.nc")
    with refused(InvalidDataError, "coreset.nc", "stream file", topic="streams"):
        CoresetStream.from_netcdf(tmp_path / "coreset.nc", model)


def test_the_file_of_a_stream_is_that_of_its_coreset(pilot, model, tmp_path):
    pilot.to_netcdf(tmp_path / "stream.nc")
    found, expected = Coreset.from_netcdf(tmp_path / "stream.nc", model), pilot.coreset()
    assert_array_equal(found.weights, expected.weights)
    assert_array_equal(found.rows["data y"], expected.rows["data y"])


def test_a_chunk_that_comes_twice_is_named(pilot, model, tmp_path):
    stream, chunk = copy(pilot), part(DATA, PILOT, PILOT + 100)
    stream.update(chunk)
    before = stream._state
    # An error, as all warnings are in tests.
    with pytest.raises(CoresetWarning, match=naming("Chunk 2")):
        stream.update(chunk)
    assert stream._state is before
    stream.to_netcdf(tmp_path / "stream.nc")
    with warned("Chunk 2", "twice"):
        CoresetStream.from_netcdf(tmp_path / "stream.nc", model).update(open_rows(chunk))
    stream.update(chunk, weights=np.full(100, 2.0))  # other rows, as they stand for more
    with warned("Chunk 1", "twice"):
        copy(pilot).update(part(DATA, 0, PILOT))


def test_chunks_that_are_equal_by_chance_are_not_said_to_come_twice():
    y = np.tile([0.0, 1.0], 100)
    with pm.Model() as model:
        data = pm.Data("y", y[:10])
        pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=data)
    stream = CoresetStream(model, pilot={"y": y}, random_seed=1)
    for n in (1, 1, 6, 6):
        stream.update({"y": y[:n]})
    assert stream.n_chunks == 4


def test_a_coreset_is_stored_and_checked_with_the_rows_again(coreset, model, tmp_path):
    rng = np.random.default_rng(3)
    idata = {"base": rng.normal(size=(40, 3)), "slope": rng.normal(size=(40, 2))}
    draws = draws_of(**idata).to_datatree()
    with refused(
        CoresetError, "stream", "not kept", "coreset.objective", topic="coresets-in-files"
    ):
        coreset.check(draws)
    coreset.to_netcdf(tmp_path / "coreset.nc")
    again = Coreset.from_netcdf(tmp_path / "coreset.nc", model, rows=open_rows(DATA))
    ratios = again.log_ratios(draws)[0]
    chosen = {name: array[coreset.indices] for name, array in DATA.items()}
    own = centred_total(chosen, draws_of(**idata), coreset.weights)
    expected = centred_total(DATA, draws_of(**idata)) - own
    assert_allclose(ratios - ratios.mean(), expected - expected.mean(), rtol=1e-9, atol=1e-6)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # of few tuning steps
@pytest.mark.usefixtures("nuts_by_numpy")
def test_a_coreset_is_sampled(coreset):
    idata = coreset.sample(draws=200, tune=300, chains=2, cores=1, random_seed=1, progressbar=False)
    mean, precision = posterior(DATA)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    found = idata["posterior"]["slope"].mean(("chain", "draw")).to_numpy()
    assert (np.abs(found - mean[3:]) < 5 * sd[3:] / np.sqrt(100)).all()  # 400 draws, of ESS > 100


# -- epochs and drift ------------------------------------------------------------------------------


def test_epochs_lose_little_and_do_not_depend_on_cuts(pilot):
    short = copy(pilot)
    short._growth = replace(pilot._growth, growth=8.0)
    one, other = fed(short, DATA, [PILOT, N]), fed(short, DATA, [PILOT, 15_000, N])
    assert one.n_epochs == other.n_epochs == 3
    begun = [epoch.split(",")[0] for epoch in one._state.epochs]
    assert begun[1:] == [f"from row {n}: {OUTGROWN}" for n in (4_000, 16_000)]
    assert_array_equal(one._state.seen.candidates.positions, other._state.seen.candidates.positions)
    # Rows that stand for the epochs before are there, whichever others are left out.
    assert 0 < (one._state.seen.keys == 0).sum() <= 2 * one._growth.size
    found = one.coreset()
    assert divergence(found, DATA) < 0.01
    assert found.history.attrs["epochs"].count("many more rows") == one.n_epochs - 1
    lacked = [float(epoch.split()[-1]) for epoch in one._state.epochs[1:]]
    inherited = found.history.attrs["inherited_objective"]
    assert inherited == pytest.approx(np.dot(lacked, [1 / 6, 2 / 3]), rel=0.01)
    assert found.objective >= inherited
    assert 1.3 < one.coverage.width < 2.3  # sqrt(3)


def test_drift_is_reported_and_followed(pilot, whole):
    assert not whole.coverage.drifted
    assert 1 < whole.coverage.width < 9  # sqrt(48)
    other = simulated(2_000, TRUTH + 0.7)
    stream = fed(pilot, DATA, [PILOT, 2_000])
    with warned("Chunk 2", "standard deviations"):
        stream.update(other)
    assert stream.n_epochs == 2
    assert not stream.coverage.drifted
    both = {n: np.concatenate([DATA[n][:2_000], other[n]]) for n in DATA}
    found = stream.coreset()
    assert divergence(found, both) < 0.05
    assert "left the draws" in found.history.attrs["epochs"]


def test_a_drift_of_which_no_chunk_shows_much_is_reported(pilot):
    stream, n_steps = copy(pilot), 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        while not caught and n_steps < 20:
            n_steps += 1
            stream.update(simulated(200, TRUTH + 0.08 * n_steps))
    assert 2 < n_steps < 20
    assert "its rows differ from those before" in str(caught[0].message)


def test_draws_of_some_rows_are_not_said_to_drift():
    rng = np.random.default_rng(5)
    n_alarms = 0
    for _ in range(300):
        growth, z = rng.uniform(1, 5_000), rng.normal(size=(200, 4))
        centre = rng.normal(size=4) * np.sqrt(1 - 1 / growth)
        ratios = 0.5 * (z**2).sum(axis=1) - 0.5 * growth * ((z - centre) ** 2).sum(axis=1)
        found = Coverage.of(draws_of(a=3.0 + 10 * z[:, 0], b=z[:, 1:]), ratios)
        assert found.distance == pytest.approx(np.linalg.norm(centre), rel=0.5, abs=0.2)
        n_alarms += found.drifted
    assert n_alarms == 0


# -- what is refused -------------------------------------------------------------------------------

GOOD = part(DATA, PILOT, PILOT + 10)


def changed(name, value, row=3):
    array = GOOD[name].copy()
    array[row] = value
    return GOOD | {name: array}


@pytest.mark.parametrize(
    ("chunk", "facts"),
    [
        ({n: a for n, a in GOOD.items() if n != "y"}, ("column 'y'", "x, group, y", "chunk 1")),
        (changed("y", np.nan), ("row 3", "column 'y'", "NaN", "chunk 1")),
        (changed("x", np.inf), ("row 3", "column 'x'", "infinite", "chunk 1")),
        (changed("group", 3), ("row 3", "'group'", "entry 3", "'base'", "chunk 1")),
        (changed("group", -1), ("row 3", "'group'", "entry -1", "chunk 1")),
        (GOOD | {"x": np.ones((10, 3))}, ("'x'", "(3,)", "(50, 2)", "chunk 1")),
        (GOOD | {"group": np.ones(10)}, ("'group'", "float64", "chunk 1")),
        (GOOD | {"x": GOOD["x"][:4]}, ("{'x': 4, 'group': 10, 'y': 10}", "chunk 1")),
        ({n: a[:0] for n, a in GOOD.items()}, ("no rows", "chunk 1")),
    ],
)
def test_bad_chunks_are_refused_as_a_whole(pilot, chunk, facts):
    stream = copy(pilot)
    with refused(InvalidDataError, facts, topic="streams"):
        stream.update(chunk)
    assert stream._state is pilot._state
    with refused(InvalidDataError, "chunk 1", "row 3", "'y'", "NaN", topic="streams"):
        stream.update(open_rows([GOOD, changed("y", np.nan)]))
    assert stream._state is pilot._state


@pytest.mark.parametrize(
    ("weights", "facts"),
    [
        (-np.ones(10), ("row 0", "negative weight -1", "chunk 1")),
        (np.ones(3), ("'weights=...': 3", "chunk 1")),
        (np.zeros(10), ("case weights", "0")),
    ],
)
def test_bad_weights_are_refused(pilot, weights, facts):
    with refused(InvalidDataError, facts, topic="streams"):
        pilot.update(GOOD, weights=weights)
    with refused(InvalidOptionError, "open_rows"):
        pilot.update(open_rows(GOOD), weights=np.ones(10))


@pytest.mark.parametrize(
    "options", [{"size": 0}, {"draws": 99}, {"tolerance": 0.0}, {"epoch_growth": 3}]
)
def test_bad_options_are_refused(model, options):
    with refused(InvalidOptionError, f"{next(iter(options))}="):
        CoresetStream(model, pilot=GOOD, **options)


def test_a_chunk_is_no_iterator(pilot):
    with refused(InvalidOptionError, "list_iterator", "only once"):
        pilot.update(iter([GOOD]))


# -- merge -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def halves(pilot, model):
    second = CoresetStream(model, pilot=part(DATA, 12_000, 13_000), random_seed=2)
    streams = fed(pilot, DATA, [PILOT, 12_000]), fed(second, DATA, [13_000, N])
    return [stream.coreset() for stream in streams]


def test_merged_halves_are_a_coreset_of_the_whole(halves):
    merged = merge(*halves, size=22, random_seed=1)
    assert merged.size <= 22 < halves[0].size + halves[1].size
    assert (merged.n_observations, merged.n_distinct) == (N, N)
    assert_array_equal(merged.rows["data y"], DATA["y"][merged.indices])
    assert divergence(merged, DATA) < 0.02
    assert merged.history.attrs["merged_coresets"] == 2
    assert merged.history.attrs["merge_levels"] == 1
    with refused(
        CoresetError, "merged", "from_netcdf(path, model, rows=...)", topic="coresets-in-files"
    ):
        merged.loglikelihood.sums({"base": np.zeros((30, 3)), "slope": np.zeros((30, 2))})
    twice = merge(merged, halves[0], size=1_000)
    assert twice.size == merged.size + halves[0].size
    assert "all rows of the merged" in twice.status
    assert twice.history.attrs["merged_coresets"] == 3


@pytest.mark.parametrize(
    ("other", "error", "facts"),
    [
        (regression(DATA, prior_sd=1.0), InvalidDataError, "another prior"),
        (None, InvalidOptionError, ("second is a dict", "Coreset")),
    ],
)
def test_coresets_of_other_models_are_refused(halves, other, error, facts):
    second = {}
    if other is not None:
        second = replace(halves[1], loglikelihood=read(other, rows=open_rows(DATA)))
    with refused(error, facts):
        merge(halves[0], second)
    with refused(CoresetError, "from_netcdf(path, model=...)"):
        merge(halves[0], replace(halves[1], loglikelihood=None))
    with refused(InvalidOptionError, "method='giga'", "'control_variates'"):
        merge(*halves, method="giga")


def test_sensitivities_are_merged():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(4_000, 2))
    y = (rng.random(4_000) < 1 / (1 + np.exp(-x @ [1.0, -0.5]))).astype(float)
    parts = []
    for half in (slice(0, 2_000), slice(2_000, None)):
        with pm.Model():
            design, observed = pm.Data("x", x[half]), pm.Data("y", y[half])
            pm.Bernoulli("l", logit_p=design @ pm.Normal("b", shape=2), observed=observed)
            parts.append(
                build_coreset(method="sensitivity", size=600, random_seed=1, progressbar=False)
            )
    merged = merge(*parts, size=500, method=Sensitivity(n_clusters=4), random_seed=2)
    assert merged.size <= 500
    assert_array_equal(merged.rows["data x"], x[merged.indices])
    coefficients = rng.normal(size=(30, 2)) / 2
    loglik = -np.logaddexp(0, -(2 * y - 1)[:, None] * (x @ coefficients.T))
    full, own = loglik.sum(axis=0), merged.weights @ loglik[merged.indices]
    # Weighted sums of 500 draws have relative errors near 1 / sqrt(500), twice.
    assert (np.abs(own / full - 1) < 0.25).all()
