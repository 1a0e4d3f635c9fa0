"""What prototype rows may not contain is refused by name, before anything is drawn."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_coresets import InvalidDataError, UnsupportedModelError, build_coreset, open_rows
from tests.refusals import refused

_rng = np.random.default_rng(1)
ROWS = {
    "x": _rng.normal(size=300),
    "design": _rng.normal(size=(300, 3)),
    "group": _rng.integers(0, 4, size=300),
    "y": _rng.normal(size=300),
}


UNIFORM = {"method": "uniform", "size": 5, "integrate": False, "progressbar": False}


def prototypes(build, *, n_rows=20, columns=ROWS, dims=None, **options):
    with pm.Model(**options) as model:
        build({n: pm.Data(n, c[:n_rows], dims=dims and (dims, None)[: c.ndim])
               for n, c in columns.items()})  # fmt: skip
    return model


def read(build, columns=ROWS, **options):
    model = prototypes(build, columns=columns, **options)
    return build_coreset(model, rows=open_rows(columns), **UNIFORM)


def normal(mu, data, **kwargs):
    return pm.Normal("likelihood", mu, 1.0, **{"observed": data["y"]} | kwargs)


def b(**kwargs):
    return pm.Normal("b", **kwargs)


REFUSED = {
    "a mean": (lambda d: normal(b() * (d["x"] - d["x"].mean()), d), ("Sum", "'x'")),
    "a mean beside a parameter": (lambda d: normal(b() * d["x"].mean(), d), ("Sum", "'x'")),
    "a sum up to each row": (lambda d: normal(b() * d["x"].cumsum(), d), ("Cumsum", "'x'")),
    "a sum of the predictor": (lambda d: normal(pt.cumsum(b() * d["x"]), d), ("Cumsum", "'x'")),
    "sorting": (lambda d: normal(b() * pt.sort(d["x"]), d), ("SortOp", "'x'")),
    "the other way round": (lambda d: normal(b() * d["x"][::-1], d), ("'x'", "sliced")),
    "a slice": (lambda d: normal((b() * d["x"])[1:], d, observed=d["y"][1:]), ("'x'", "sliced")),
    "a position": (lambda d: normal(b() * pt.arange(d["x"].shape[0]), d), "ARange"),
    "a constant": (lambda d: normal(b() * d["x"] + ROWS["x"][:20], d), ("constant", "20 rows")),
    "observed constants": (lambda d: normal(b(), d, observed=ROWS["y"][:20]), "'likelihood'"),
    "a length": (lambda d: normal(b() * d["x"] / d["x"].shape[0], d), ("x.shape[0]", "11 rows")),
    "a fixed shape": (lambda d: normal(b() + pt.zeros(20), d), ("20", "11 rows")),
    "total_size": (lambda d: normal(b() * d["x"], d, total_size=300), "total_size"),
    "a local variable": (
        lambda d: normal(b(shape=d["x"].shape[0]), d),
        "['b']",
    ),
    "a prior": (lambda d: normal(b(sigma=d["x"].std()) * d["x"], d), ("'b'", "'x'")),
    "a deterministic": (
        lambda d: (normal(b() * d["x"], d), pm.Deterministic("m", d["x"].mean())),
        ("'m'", "'x'"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_taken_over_rows_is_refused(name):
    build, facts = REFUSED[name]
    topic = "local-latent-variables" if name == "a local variable" else ""
    with refused(UnsupportedModelError, facts, topic=topic):
        read(build)


def test_coords_of_the_rows_are_refused():
    with refused(UnsupportedModelError, "'obs'", "coords"):
        read(lambda d: normal(b() * d["x"], d), dims="obs", coords={"obs": range(20)})


@pytest.mark.parametrize("code", [-1, 4, 10**6])
def test_codes_outside_of_what_they_index_are_refused_with_their_place(code):
    columns = ROWS | {"group": ROWS["group"].copy()}
    columns["group"][299] = code
    with refused(InvalidDataError, "row 299", "'group'", f"entry {code}", "'b'"):
        read(lambda d: normal(b(shape=4)[d["group"]], d), columns)


def test_codes_that_the_prototypes_lack_are_allowed():
    columns = ROWS | {"group": np.sort(ROWS["group"])}
    assert read(lambda d: normal(b(shape=4)[d["group"]], d), columns).n_observations == 300


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_with_their_place(value):
    columns = ROWS | {"x": ROWS["x"].copy()}
    columns["x"][207] = value
    with refused(InvalidDataError, "row 207", "column 'x'", topic="rows-and-files"):
        read(lambda d: normal(b() * d["x"], d), columns)


def test_a_single_prototype_is_refused():
    with refused(InvalidDataError, "{'x': 1, 'design': 1, 'group': 1, 'y': 1}"):
        read(lambda d: normal(b() * d["x"], d), n_rows=1)


def test_equal_columns_of_prototypes_are_kept_apart():
    columns = {"x": np.r_[np.zeros(20), ROWS["x"]], "z": np.r_[np.zeros(20), ROWS["y"]]}
    columns["y"] = np.r_[np.zeros(20), ROWS["y"]]
    loglik = read(lambda d: normal(b() * d["x"] + d["z"], d), columns).loglikelihood
    rows = loglik.source.at(np.arange(100, 110))
    found = loglik.matrix({"b": np.array([2.0])}, rows)[:, 0]
    expected = -0.5 * (2.0 * columns["x"][100:110]) ** 2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_names_without_containers_are_refused():
    with pm.Model() as model:
        pm.Normal("likelihood", b(), 1.0, observed=ROWS["y"])
    with refused(UnsupportedModelError, "pm.Data"):
        build_coreset(model, rows=open_rows(ROWS), **UNIFORM)
