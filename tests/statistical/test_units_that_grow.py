"""Coresets of units with units of other rows, under other priors, and in files."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytest
import xarray as xr

from pymc_coresets import (
    Coreset,
    CoresetError,
    CoresetStream,
    InvalidDataError,
    InvalidOptionError,
    UnsupportedModelError,
    build_coreset,
    merge,
    open_rows,
)
from tests.models.units import by_grid, loglik_of, nodes_at, read
from tests.refusals import refused, warned

QUIET = {"random_seed": 1, "progressbar": False}
SIZES = (300, 260, 90)  # users of each part
SHARED = ("a", "b", "g", "s")

type Data = Mapping[str, np.ndarray]


def users(part: int) -> Data:
    """Return rows of users of their own, in no order, three to six of each."""
    rng, n = np.random.default_rng(part), SIZES[part]
    user = rng.permutation(np.repeat(np.arange(n), rng.integers(3, 7, n)))
    x, w = rng.normal(size=len(user)), rng.normal(size=n)
    effect = 0.3 * w + 0.6 * rng.normal(size=n)
    seen = rng.poisson(np.exp(0.5 + 0.4 * x + effect[user]))
    first = sum(SIZES[:part])
    labels = np.array([f"u{first + i}" for i in range(n)])
    return {"of": user, "x": x, "seen": seen, "w": w, "labels": labels}


def joined(parts: list[Data]) -> Data:
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    starts = np.cumsum([0, *(len(part["w"]) for part in parts[:-1])])
    users_of = [part["of"] + start for part, start in zip(parts, starts, strict=True)]
    return found | {"of": np.concatenate(users_of)}


def model_of(data: Data, *, prior: float = 1.0, rows: int | None = None) -> pm.Model:
    """Return a model of some users; of a few of their rows, if these are in files."""
    with pm.Model(coords={"user": data["labels"]}) as model:
        user, x, seen = (pm.Data(n, data[n][:rows]) for n in ("of", "x", "seen"))
        w = pm.Data("w", data["w"], dims="user")
        a, b, g, s = (pm.Normal("a"), pm.Normal("b"), pm.Normal("g"), pm.HalfNormal("s", prior))
        effect = pm.Normal("effect", g * w, s, dims="user")
        pm.Poisson("y", pm.math.exp(a + b * x + effect[user]), observed=seen)
    return model


#: Of the shared variables, near the posterior; and without constraints.
POINTS = {
    "a": np.array([0.45, 0.55, 0.5]),
    "b": np.array([0.4, 0.35, 0.45]),
    "g": np.array([0.3, 0.35, 0.2]),
    "s": np.array([0.55, 0.6, 0.65]),
}
FREE = np.stack([*(POINTS[name] for name in "abg"), np.log(POINTS["s"])], axis=1)


def rows_of(data: Data) -> Any:
    return open_rows({name: data[name] for name in ("of", "x", "seen")})


PARTS = [users(i) for i in range(3)]


@pytest.fixture(scope="module")
def first() -> Coreset:
    return build_coreset(model_of(PARTS[0]), **QUIET)


@pytest.fixture(scope="module")
def longer(first: Coreset) -> Coreset:
    return first.extend(model_of(PARTS[1]), random_seed=1)


@pytest.fixture(scope="module")
def second() -> Coreset:
    return build_coreset(model_of(PARTS[1]), **QUIET)


@pytest.fixture(scope="module")
def merged(first: Coreset, second: Coreset) -> Coreset:
    return merge(first, second, random_seed=1)


@pytest.fixture(scope="module")
def at_once() -> Coreset:
    return build_coreset(model_of(joined(PARTS[:2])), **QUIET)


@pytest.fixture(scope="module")
def last(longer: Coreset) -> Coreset:
    return longer.extend(model_of(PARTS[2]), random_seed=2)


@pytest.fixture(scope="module")
def every() -> Coreset:
    return build_coreset(model_of(joined(PARTS)), **QUIET)


def draws_of(coreset: Coreset) -> Any:
    return coreset.sample(draws=250, chains=2, cores=1, **QUIET)


@pytest.fixture(scope="module")
def draws(longer: Coreset) -> Any:
    return draws_of(longer)


def divergence(coreset: Coreset, of_all: Coreset, *others: Callable[[Any], np.ndarray]) -> float:
    """Var of the log-ratio of the posterior of all users over that of the coreset, in nats.

    At draws of the first of both, which if there are others besides is somewhat wider.
    """
    posterior = of_all.importance_draws(random_seed=1)["posterior"]
    values = {name: posterior[name].values.reshape(-1)[:400] for name in SHARED}
    draws = [dict(zip(values, own, strict=True)) for own in zip(*values.values(), strict=True)]
    full = of_all.loglikelihood.sums(values).total
    full = full + [sum(units(draw).sum() for units in others) for draw in draws]
    return float(np.var(full - own_loglik(coreset, values)))


def own_loglik(coreset: Coreset, values: Any) -> np.ndarray:
    posterior = {name: (("chain", "draw"), own[None]) for name, own in values.items()}
    idata = xr.DataTree.from_dict({"posterior": xr.Dataset(posterior)})
    return coreset.approximation.replacement.loglik(idata)


# -- new users -------------------------------------------------------------------------------------


def test_units_in_memory_are_those_of_pymc_and_count_what_they_represent(first, longer):
    units = longer.loglikelihood.observations
    x, found = FREE[0], longer.loglikelihood.matrix(POINTS)[:, 0]
    np.testing.assert_allclose(found, by_grid(units, x, half=6.0), atol=2e-4)
    # The same units in a model of all users.
    every = read(model_of(joined(PARTS[:2])), "effect")
    of_all = by_grid(nodes_at(every, 3), x, half=6.0)
    labels = [int(label[1:]) for label in units.source.rows.snapshot.whole.coords["user"]]
    np.testing.assert_allclose(found, of_all[labels], atol=2e-4)
    weights = longer.loglikelihood.in_memory.all.case_weights
    np.testing.assert_array_equal(weights[: first.size], first.weights)
    np.testing.assert_array_equal(weights[first.size :], 1.0)


def test_new_users_are_as_if_all_had_been_there_at_once(longer, at_once, draws):
    assert longer.n_observations == sum(SIZES[:2])
    assert longer.size < 40
    assert divergence(longer, at_once) < 0.02
    assert longer.ancestry.rows == SIZES[:2]
    assert longer.weights.sum() == pytest.approx(sum(SIZES[:2]), rel=0.25)
    assert longer.check(draws).verdict.level == "Reliable"
    assert longer.verify(draws).difference < 0.01


def test_effects_are_drawn_of_users_whose_rows_are_there(first, at_once, draws):
    others = draws_of(at_once)
    found = draws["posterior"]["effect"]
    old = set(np.array(PARTS[0]["labels"])[first.indices])
    assert set(found["user"].values) == old | set(PARTS[1]["labels"])
    same = others["posterior"]["effect"].sel(user=found["user"])
    apart = found.mean(("chain", "draw")) - same.mean(("chain", "draw"))
    # Both are means of 500 draws.
    errors = np.sqrt(2 / 500) * same.std(("chain", "draw"))
    assert float(np.abs(apart / errors).max()) < 5.0


def test_a_stream_of_three_parts_is_as_good_as_one_build(last, at_once):
    assert last.n_observations == last.n_distinct == sum(SIZES)
    units = loglik_of(nodes_at(read(model_of(PARTS[2]), "effect"), 9))
    assert divergence(last, at_once, units) < 0.03
    assert last.ancestry.rows == SIZES


@pytest.mark.slow
def test_draws_of_a_stream_of_three_parts_are_those_of_one_build(last, every):
    known, found = (draws_of(each)["posterior"].to_dataset() for each in (every, last))
    for name in SHARED:
        apart = abs(float(found[name].mean() - known[name].mean()))
        assert apart < 0.4 * float(known[name].std())
        assert float(found[name].std() / known[name].std()) == pytest.approx(1.0, abs=0.2)


def test_new_rows_may_be_in_files_and_levels_without_rows_any(first, longer):
    wide = joined([PARTS[1], PARTS[0]])
    some = wide["of"] < SIZES[1]
    wide = dict(wide) | {n: wide[n][some] for n in ("of", "x", "seen")}
    found = first.extend(model_of(wide, rows=30), rows=rows_of(wide), random_seed=1)
    np.testing.assert_array_equal(found.indices, longer.indices)
    np.testing.assert_allclose(found.weights, longer.weights)


def test_all_units_are_kept_where_they_are_few(first):
    few = {n: v[:30] if n in ("w", "labels") else v for n, v in PARTS[2].items()}
    some = few["of"] < 30
    few |= {n: few[n][some] for n in ("of", "x", "seen")}
    found = first.extend(model_of(few), size=100, random_seed=1)
    assert found.size == first.size + 30
    np.testing.assert_array_equal(found.weights, np.r_[first.weights, np.ones(30)])


# -- two coresets ----------------------------------------------------------------------------------


def test_coresets_of_different_users_are_merged(merged, at_once):
    assert merged.n_observations == merged.n_distinct == sum(SIZES[:2])
    assert divergence(merged, at_once) < 0.02
    draws = at_once.importance_draws(random_seed=1)
    labels = merged.data["label"].values.tolist()
    assert merged.recover(draws, random_seed=1)["user"].values.tolist() == labels
    with refused(CoresetError, "all units", "part", topic="coresets-in-files"):
        merged.log_ratios(draws)


@pytest.mark.slow
def test_merged_and_extended_coresets_grow_on(merged, longer):
    both = merge(merged, build_coreset(model_of(PARTS[2]), integrate="effect", **QUIET))
    grown = merged.extend(model_of(PARTS[2]), random_seed=1)
    assert both.n_observations == grown.n_observations == sum(SIZES)
    np.testing.assert_array_equal(np.sort(both.data["represented"]), both.data["represented"])
    assert both.data.sizes["label of unit"] == sum(SIZES)
    with refused(InvalidDataError, "260 levels", "'user'", "'u300'"):
        merge(longer, build_coreset(model_of(PARTS[1]), **QUIET))


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["longer", "merged"])
def test_they_are_read_from_files_with_any_data_of_their_model(
    kind, request, draws, tmp_path: Path
):
    coreset = request.getfixturevalue(kind)
    coreset.to_netcdf(tmp_path / "units.nc")
    again = Coreset.from_netcdf(tmp_path / "units.nc", model_of(PARTS[2]))
    np.testing.assert_allclose(own_loglik(again, POINTS), own_loglik(coreset, POINTS), atol=1e-6)
    labels = coreset.data["label"].values.tolist()
    found, known = (each.recover(draws, levels=labels[:2], **QUIET) for each in (again, coreset))
    np.testing.assert_allclose(found["effect"], known["effect"], atol=1e-6)
    assert list(again.model.coords["user"]) == labels
    with refused(CoresetError, "all units", "part", topic="coresets-in-files"):
        again.log_ratios(draws)
    with refused(InvalidDataError, "300 levels", "'user'", "'u0'"):
        again.extend(model_of(PARTS[0]))


def test_files_need_no_rows_and_refuse_other_models(longer, tmp_path: Path):
    longer.to_netcdf(tmp_path / "units.nc")
    with refused(InvalidOptionError, "rows=...", "units"):
        Coreset.from_netcdf(tmp_path / "units.nc", model_of(PARTS[1]), rows=rows_of(PARTS[1]))
    with pm.Model(coords={"user": PARTS[1]["labels"]}) as other:
        pm.Data("of", PARTS[1]["of"])
    with refused(InvalidDataError, "'seen', 'w', 'x'"):
        Coreset.from_netcdf(tmp_path / "units.nc", other)


# -- other priors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("in_files", [False, True])
def test_other_priors_of_effects_need_no_rows(longer, in_files):
    prior = 0.3
    other = longer.with_model(model_of(PARTS[1], prior=prior, rows=30 if in_files else None))
    known, found = (c.loglikelihood.rest.values(FREE) for c in (longer, other))
    changed = np.square(POINTS["s"]) * (1 - prior**-2) / 2
    np.testing.assert_allclose(np.diff(found - known), np.diff(changed))
    np.testing.assert_allclose(own_loglik(other, POINTS), own_loglik(longer, POINTS), atol=1e-6)
    assert other.data.attrs["free_variables"] == longer.data.attrs["free_variables"]
    assert np.isnan(other.ancestry.combined)


@pytest.mark.slow
def test_coresets_of_rows_in_files_take_other_priors_by_prototypes():
    prototypes = model_of(PARTS[1], rows=30)
    coreset = build_coreset(prototypes, rows=rows_of(PARTS[1]), **QUIET)
    other = coreset.with_model(model_of(PARTS[1], prior=0.2, rows=40))
    known = build_coreset(model_of(PARTS[1]), **QUIET).with_model(model_of(PARTS[1], prior=0.2))
    one, two = (c.loglikelihood.sums(POINTS).total for c in (other, known))
    np.testing.assert_allclose(one, two)
    changed = dict(PARTS[1]) | {"seen": PARTS[1]["seen"] + 1}
    with refused(InvalidDataError, "likelihood differs"):
        coreset.with_model(model_of(changed))


# -- what is refused -------------------------------------------------------------------------------


def test_users_that_come_again_are_refused(first):
    both = joined([PARTS[1], {n: PARTS[0][n] for n in PARTS[0]}])
    with refused(InvalidDataError, "300 levels", "'user'", "'u0'"):
        first.extend(model_of(both))


@pytest.mark.parametrize(
    ("labels", "error", "facts"),
    [
        (
            np.datetime64("2000-01-01") + np.arange(SIZES[1]),
            InvalidDataError,
            ("'user'", "text", "dates"),
        ),
        ([("u", i) for i in range(SIZES[1])], UnsupportedModelError, ("(u, 0)", "several parts")),
    ],
)
def test_labels_that_could_not_be_known_again_are_refused(first, labels, error, facts):
    with refused(error, facts):
        first.extend(model_of({**users(1), "labels": labels}))


def test_rows_of_one_user_alone_are_refused(first):
    few = users(1)
    alone = {
        name: values[few["of"] == 0] for name, values in few.items() if name in {"of", "x", "seen"}
    }
    with refused(InvalidDataError, "'user'", "one level"):
        first.extend(model_of({**alone, "w": few["w"][:1], "labels": few["labels"][:1]}))


def test_other_models_are_refused(first):
    with refused(InvalidDataError, "another prior"):
        first.extend(model_of(PARTS[1], prior=2.0))
    with pm.Model(coords={"user": PARTS[1]["labels"]}) as other:
        user, x, seen = (pm.Data(n, PARTS[1][n]) for n in ("of", "x", "seen"))
        w = pm.Data("w", PARTS[1]["w"], dims="user")
        a, b, g, s = (pm.Normal("a"), pm.Normal("b"), pm.Normal("g"), pm.HalfNormal("s", 1.0))
        effect = pm.Normal("effect", g * w, s, dims="user")
        pm.Poisson("y", pm.math.exp(a + b * x**2 + effect[user]), observed=seen)
    with refused(InvalidDataError, "another likelihood"):
        first.extend(other)


def test_coresets_of_units_and_of_rows_are_not_merged(first):
    with warned("413 observations", "94 free dimensions"):
        rows = build_coreset(model_of(PARTS[2]), integrate=False, method="uniform", **QUIET)
    with refused(InvalidDataError, "['effect']", "integrated out"):
        merge(first, rows)


def test_what_needs_all_units_is_refused(longer, draws):
    with refused(CoresetError, "units", "only some"):
        longer.loo(draws)
    with refused(CoresetError, "units", "only some"):
        longer.predict(draws)
    with refused(CoresetError, "prototypes", "pm.set_data"):
        longer.full_model  # noqa: B018
    assert copy.copy(longer).size == longer.size


def test_levels_that_are_not_new_are_not_predicted_as_if_they_were(longer, draws):
    new = {"of": np.array([0, 1]), "x": np.zeros(2)}
    known = longer.predict(draws, rows=new, model=model_of(PARTS[1]))["predictions"]["y"]
    effect = draws["posterior"]["effect"].sel(user=["u300", "u301"])
    w = PARTS[1]["w"][:2]
    assert effect.sizes["user"] == len(w)
    expected = np.exp(draws["posterior"]["a"] + effect).mean(("chain", "draw"))
    np.testing.assert_allclose(known, expected)
    found = longer.predict(draws, rows=new, model=model_of(PARTS[2]), random_seed=1)
    assert np.isfinite(found["predictions"]["y"]).all()
    with refused(InvalidDataError, "levels of 'user'", "not new", topic="draws"):
        longer.predict(draws, rows=new, model=model_of(PARTS[0]))


def test_streams_say_that_variables_of_levels_remain_parameters(fails):
    fails(CoresetStream, "_begin", KeyboardInterrupt())  # what comes then takes seconds
    few = {n: PARTS[0][n][:200] for n in ("of", "x", "seen")}
    with warned("['effect']", "stream"), pytest.raises(KeyboardInterrupt):
        CoresetStream(model_of(PARTS[0], rows=30), pilot=few, random_seed=1)
