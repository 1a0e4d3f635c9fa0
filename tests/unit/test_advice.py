"""What users are told: of what they passed, of a coreset's limits, and of its rows."""

import ast
import copy
import math
import pickle
import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_array_equal

import pymc_coresets
from pymc_coresets import (
    Certificate,
    CoresetError,
    CoresetWarning,
    InvalidDataError,
    InvalidOptionError,
    RiemannianPursuit,
    UnsupportedModelError,
    exceptions,
)
from pymc_coresets.advice import Outcome, certificate_of, limitations, with_informativeness
from pymc_coresets.after.summary import ClassSums, Columns, ColumnSums, described, named_columns
from pymc_coresets.exceptions import warn_user
from pymc_coresets.options import (
    flag,
    generator,
    names_of,
    one_of,
    positive_number,
    whole_number,
)
from pymc_coresets.reading.draws import Draws
from pymc_coresets.results.facts import effective_size
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.steps.nuts import sampling_options
from pymc_coresets.solving.solution import History, Solution, Status
from tests.derived import likelihood_of
from tests.modes import PLAIN_MODE
from tests.refusals import refused

# -- What users pass, and what errors and warnings say of it. --------------------------------------

# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [3, np.int64(3), np.array(3)])
def test_whole_numbers_of_any_kind_become_ints(value):
    found = whole_number("size", value, least=1)
    assert type(found) is int
    assert found == 3


@pytest.mark.parametrize("value", [True, np.True_, 3.0, "3", None, [3], math.nan])
def test_what_is_no_whole_number_is_named(value):
    with refused(InvalidOptionError, "size=", "whole number"):
        whole_number("size", value, least=1)


def test_the_range_of_a_whole_number_includes_its_ends():
    assert [whole_number("size", n, least=1, most=2) for n in (1, 2)] == [1, 2]
    with refused(InvalidOptionError, "size=3", "1 and 2"):
        whole_number("size", 3, least=1, most=2)
    with refused(InvalidOptionError, "size=0", "at least 1"):
        whole_number("size", 0, least=1)


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int8(2)])
def test_positive_numbers_of_any_kind_become_floats(value):
    found = positive_number("tolerance", value)
    assert type(found) is float
    assert found == 2


@pytest.mark.parametrize("value", [True, np.True_, "2", None, [2.0], 0, -1, math.inf, math.nan])
def test_what_is_no_positive_number_is_named(value):
    with refused(InvalidOptionError, "tolerance=", "positive"):
        positive_number("tolerance", value)


@pytest.mark.parametrize("seed", ["a", 1.5, True, np.True_, -1, {1}, [0.5]])
def test_what_is_no_seed_is_named(seed):
    with refused(InvalidOptionError, "random_seed="):
        generator(seed)


def test_a_generator_is_used_itself():
    rng = np.random.default_rng(1)
    assert generator(rng) is rng
    old = [generator(np.random.RandomState(3)) for _ in range(2)]  # which has no children
    assert old[0].spawn(1)[0].random() == old[1].spawn(1)[0].random()
    assert generator(None) is not generator(None)
    assert generator([1, 2]).random() == np.random.default_rng([1, 2]).random()


@pytest.mark.parametrize(
    "seed", [np.array([1, 2]), np.random.SeedSequence(1), np.random.RandomState(1)], ids=type
)
def test_samplers_take_every_seed_that_builds_take(seed):
    drawn = []
    for given in [copy.deepcopy(seed) for _ in range(2)]:
        found = sampling_options("pymc", {"random_seed": given})["random_seed"]
        with pm.Model() as model:
            pm.Normal("x")
        options = {"draws": 5, "tune": 5, "chains": 2, "cores": 1, "progressbar": False}
        options["compile_kwargs"] = {"mode": PLAIN_MODE}
        idata = pm.sample(model=model, random_seed=found, quiet=True, **options)
        drawn.append(idata["posterior"]["x"].to_numpy())
    assert_array_equal(*drawn)


@pytest.mark.parametrize("value", [2**31, 10**400])
def test_numbers_that_no_memory_holds_are_refused(value):
    with refused(InvalidOptionError, "draws=", "1 and 2147483647"):
        whole_number("draws", value, least=1)


def test_numbers_beyond_the_largest_float_are_refused():
    with refused(InvalidOptionError, "tolerance="):
        positive_number("tolerance", 10**400)


@pytest.mark.parametrize("value", [1, 0, -0.5, math.nan, "0.5"])
def test_what_is_no_share_is_named(value):
    assert positive_number("delta", 0.5, below=1) == 0.5
    with refused(InvalidOptionError, "delta=", "0 and 1"):
        positive_number("delta", value, below=1)


def test_only_truth_values_are_flags():
    assert [flag("collapse", value) for value in (True, np.False_)] == [True, False]
    for value in (1, 0, None, "yes", np.array([True, False])):
        with refused(InvalidOptionError, "collapse=", "True or False"):
            flag("collapse", value)


@pytest.mark.parametrize("value", [None, 1, "pie", np.array(["dist", "pie"])])
def test_what_is_not_in_the_list_is_named(value):
    assert one_of("kind", "dist", ["dist", "forest"]) == "dist"
    with refused(InvalidOptionError, "kind=", "['dist', 'forest']"):
        one_of("kind", value, ["dist", "forest"])


def test_names_are_words_or_sequences_of_them():
    assert [names_of("observed", value) for value in (None, "y", ("y", "z"))] == [
        None,
        "y",
        ["y", "z"],
    ]
    for value in (1, [1], {"y": 1}, b"y", len):
        with refused(InvalidOptionError, "observed=", "name"):
            names_of("observed", value)


def test_the_smallest_and_the_largest_whole_number_are_allowed():
    assert whole_number("n", 3, least=3) == 3
    assert [whole_number("n", n, least=3, most=5) for n in (3, 5)] == [3, 5]


# -- Each error and warning names a section of the page on troubleshooting, and that is there. -----

ROOT = Path(__file__).parents[2]
CLASSES = [CoresetError, *CoresetError.__subclasses__()]


def sections() -> set[str]:
    headings = re.findall(
        r"^## (.*)$", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE
    )
    return {heading.lower().replace(" ", "-") for heading in headings}


def named() -> set[str]:
    """Return the sections that some line of the package names."""
    sources = (ROOT / "pymc_coresets").rglob("*.py")
    return {
        topic
        for path in sources
        for topic in re.findall(r'\btopic="([^"]+)"', path.read_text())
    }  # fmt: skip


def test_every_section_is_on_the_page():
    of_classes = {one.section for one in CLASSES}
    assert of_classes | named() | {exceptions._WARNINGS} <= sections()


#: Sections of errors of these classes in these rooms, all of which have one cause.
SECTIONS = {
    (CoresetError, "rows.executors"): "executors-and-clusters",
    (CoresetError, "rows.passes"): "coresets-in-files",
    (InvalidDataError, "diagnostics"): "draws",
    (InvalidDataError, "reading.draws"): "draws",
    (InvalidDataError, "glm"): "regressions",
    (UnsupportedModelError, "glm"): "regressions",
    (InvalidDataError, "papers"): "regressions",
    (UnsupportedModelError, "papers.polynomial"): "regressions",
    (UnsupportedModelError, "papers.signed_rows"): "regressions",
    (InvalidDataError, "rows"): "rows-and-files",
    (InvalidDataError, "rowlogp.kept_rows"): "coresets-in-files",
    (InvalidDataError, "storage"): "coresets-in-files",
    (InvalidDataError, "growth.streams"): "streams",
}


@pytest.mark.parametrize(("kind", "room"), SECTIONS)
def test_errors_name_their_section_where_they_are_raised(kind, room):
    path = ROOT / "pymc_coresets" / room.replace(".", "/")
    sources = [path.with_suffix(".py")] if path.with_suffix(".py").is_file() else path.rglob("*.py")
    calls = [
        node
        for source in sources
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == kind.__name__
    ]
    topics = [{word.arg: ast.literal_eval(word.value) for word in node.keywords} for node in calls]
    assert topics
    assert all(topic == {"topic": SECTIONS[kind, room]} for topic in topics)


def test_the_class_decides_where_nothing_is_named():
    assert InvalidDataError("Bad.").topic == "the-data-and-the-model"
    assert InvalidDataError("Bad.", topic="draws").topic == "draws"


def test_messages_end_with_their_section():
    with pytest.raises(CoresetError, match=r"number\. \(docs: troubleshooting#arguments\)$"):
        positive_number("tolerance", -1.0)
    with pytest.warns(CoresetWarning, match=r"^Few draws\. \(docs: troubleshooting#warnings\)$"):
        warn_user("Few draws.")


def test_an_error_keeps_its_section_in_another_process():
    error = InvalidDataError("Bad.", topic="draws")
    assert (
        str(pickle.loads(pickle.dumps(error))) == str(error) == "Bad. (docs: troubleshooting#draws)"
    )
    assert error.message == "Bad."


@pytest.mark.parametrize(
    "error",
    [
        InvalidDataError("'beta' has 3 rows."),
        CoresetError("'beta' has 3 rows.", topic="draws"),
        CoresetError("'beta' has 30 rows."),
        CoresetError("'beta' has 3,000 rows."),
        CoresetError("'alpha' has 3 rows."),
    ],
)
def test_another_class_topic_or_fact_is_another_refusal(error):
    with refused(CoresetError, ("'beta'", "3")):
        raise CoresetError("Of the 3 rows, 2 lack 'beta'.")
    with pytest.raises(AssertionError), refused(CoresetError, "'beta'", "3"):
        raise error


# -- which line warnings point to -----------------------------------------------------------------

PACKAGE = Path(pymc_coresets.__file__).parent


def test_a_warning_within_a_context_points_here():
    code = """
@contextmanager
def reading():
    warn_user("few draws")
    yield

with reading():
    pass
"""
    names = {"warn_user": warn_user, "contextmanager": contextmanager}
    with pytest.warns(CoresetWarning) as caught:
        exec(compile(code, f"{PACKAGE}/build.py", "exec"), names)
    assert caught[0].filename == __file__


def test_a_folder_whose_name_only_begins_alike_is_the_users():
    path = f"{PACKAGE}_of_mine/analysis.py"
    with pytest.warns(CoresetWarning) as caught:
        exec(compile("warn_user('few draws')", path, "exec"), {"warn_user": warn_user})
    assert caught[0].filename == path


# -- What is said of a coreset, and what is not. ---------------------------------------------------

FINE = Status.TOLERANCE_REACHED


def said(  # noqa: PLR0913 - each is what one message depends on
    *,
    n_rows=100,
    objective=0.001,
    status=FINE,
    size=100,
    n_dims=5,
    n_obs=10_000,
    counts=None,
    method=None,
    log_ratios=None,
    is_uninformative=False,
):
    solution = Solution(
        rows=Rows(np.arange(n_rows), np.ones(n_rows)),
        weights=np.ones(n_rows),
        history=History().columns,
        status=status,
        objective=objective,
        log_ratios=log_ratios,
        certificate=None if log_ratios is None else Certificate.of(log_ratios),
        is_uninformative=is_uninformative,
    )
    observations = SimpleNamespace(n_dims=n_dims, integrated=(), local=(), unselected=(), whole=())
    return " ".join(
        limitations(
            Outcome(
                solution=solution,
                observations=observations,
                n_obs=n_obs,
                size=size,
                tolerance=0.01,
                counts=counts or {},
                method=method or RiemannianPursuit(),
            )
        )
    )


def test_nothing_is_said_where_all_is_well():
    assert said() == ""
    assert said(objective=0.01) == ""  # the tolerance itself
    assert said(counts={"n_sampler_draws": 1_000, "n_divergences": 10}) == ""
    assert said(status=Status.NO_PROGRESS) == ""


def test_it_is_said_where_nothing_was_measured():
    assert "was not measured" in said(objective=np.nan, status=Status.ITERATION_LIMIT)


def test_what_importance_weights_correct_is_no_failure():
    told = said(objective=0.4, status=Status.CORRECTABLE, n_obs=10_000, n_dims=300)
    assert "about 0.4 nats" in told
    assert "10,000 rows are few for 300 free" in told
    assert "reweight()" in told
    assert "not within" not in told
    assert said(objective=0.01, status=Status.CORRECTABLE) == ""


def test_ratios_without_any_spread_certify_a_coreset_unless_the_data_say_nothing():
    """As where separated classes have an improper posterior: all log-likelihoods are zero."""
    with pm.Model() as model:
        pm.Normal("y", pt.minimum(pm.Normal("mu"), 5.0), 1.0, observed=np.zeros(3))
    loglik = likelihood_of(model)
    exact = replace(
        Solution.sampled(loglik.all_rows, np.ones(3)),
        log_ratios=np.zeros(400),
        certificate=Certificate.of(np.zeros(400)),
    )
    for start, constant in [(0.0, False), (6.0, True)]:
        draws = Draws({"mu": start + np.arange(400.0)})
        found = with_informativeness(replace(exact, draws=draws), loglik)
        assert found.is_uninformative is constant
        assert (certificate_of(found) is None) is constant
    assert "does not vary" in said(objective=0.0, is_uninformative=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_rows": 10, "size": 10}, ["about 0.5 nats", "not within 0.01", "larger size than 10"]),
        ({"n_rows": 10, "size": 10}, ["takes up to 21 rows"]),
        ({"size": 100}, ["larger size than 100", "more draws"]),
        ({"status": Status.OUT_OF_TIME}, ["longer time_budget", "ended early"]),
        ({"n_dims": 200}, ["20301 directions", "hardly helps"]),
    ],
)
def test_a_tolerance_that_was_not_met_comes_with_what_to_try(options, words):
    told = said(objective=0.5, **options)
    assert all(word in told for word in words)


def test_to_reweight_is_advised_where_that_may_serve():
    rng = np.random.default_rng(1)
    mild, useless = rng.normal(0, 0.7, size=400), rng.normal(0, 400.0, size=400)
    for objective, log_ratios, serves in [
        (0.5, None, True),
        (1.5e5, None, False),
        (0.5, mild, True),
        (1.5e5, useless, False),
    ]:
        told = said(objective=objective, log_ratios=log_ratios, n_rows=2, size=2)
        assert ("or reweight the coreset's draws" in told) is serves
        assert "larger size than 2" in told


def test_more_rows_are_not_advised_where_their_number_was_not_the_limit():
    told = said(objective=0.5, n_rows=50, size=100)
    assert "larger size" not in told
    assert "more draws" in told


@pytest.mark.parametrize("status", [Status.OUT_OF_TIME, Status.INTERRUPTED, Status.SAMPLING_FAILED])
def test_a_coreset_that_was_not_measured_is_said_to_be_so(status):
    assert "was not measured" in said(objective=np.nan, status=status)
    assert "was not measured" not in said(status=status)
    assert "ended early" in said(status=status)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"counts": {"n_sampler_draws": 1_000, "n_divergences": 11}}, "11 of 1000 draws"),
        ({"n_dims": 101}, "some directions are left to the prior"),
        ({"n_obs": 49}, "sample the model itself"),
    ],
)
def test_what_limits_is_said(options, words):
    assert words in said(**options)


def test_the_size_is_advised_only_where_it_was_the_limit():
    told = said(objective=0.5, n_rows=10, size=15)  # of the 21 that a quadratic takes
    assert "takes up to" not in told
    assert "more draws" in told


@pytest.mark.parametrize(("n_obs", "said_so"), [(50, False), (49, True)])
def test_ten_observations_for_each_dimension_are_enough(n_obs, said_so):
    assert ("sample the model itself" in said(n_obs=n_obs)) is said_so


@pytest.mark.parametrize(("n_obs", "said_so"), [(462, False), (461, True)])
def test_a_coreset_of_more_than_half_of_the_rows_is_not_worth_it(n_obs, said_so):
    told = said(objective=0.5, n_dims=20, n_rows=30, size=30, n_obs=n_obs)
    assert ("hardly helps. Sample" in told) is said_so


@pytest.mark.parametrize(("size", "said_so"), [(20, True), (21, False)])
def test_the_rows_of_a_quadratic_are_advised_to_who_allowed_fewer(size, said_so):
    told = said(objective=0.5, n_rows=size, size=size)
    assert ("takes up to 21 rows" in told) is said_so
    assert f"larger size than {size}" in told


# -- Summaries of weighted rows against the same rows, repeated as often as they weigh. ------------

RNG = np.random.default_rng(3)
EVERY = RNG.normal(size=200)
CHOSEN = np.sort(RNG.choice(200, size=15, replace=False))
WEIGHTS = RNG.integers(1, 40, size=15).astype(float)
ONES = np.ones(15)


def measured(values, labels=None, masses=None):
    masses = np.ones(len(values)) if masses is None else masses
    return {"all": ColumnSums.of(values, masses, labels)} | out_of_reach(values[CHOSEN], labels)


def out_of_reach(values, labels=None):
    columns = {"chosen": ColumnSums.of(values, ONES, labels)}
    return columns | {"weighted": ColumnSums.of(values, WEIGHTS, labels)}


def of_repeated(values):
    return [values.mean(), values.std(), values.min(), values.max()]


@pytest.mark.parametrize("masses", [None, RNG.integers(1, 5, size=200).astype(float)])
def test_weighted_rows_count_as_often_as_they_weigh(masses):
    table = described(measured(EVERY, masses=masses))
    repeats = np.ones(200, int) if masses is None else masses.astype(int)
    np.testing.assert_allclose(table["all"], of_repeated(np.repeat(EVERY, repeats)))
    np.testing.assert_allclose(table["chosen"], of_repeated(EVERY[CHOSEN]))
    weighted = np.repeat(EVERY[CHOSEN], WEIGHTS.astype(int))
    np.testing.assert_allclose(table["weighted"], of_repeated(weighted))
    assert list(table.index) == ["mean", "sd", "min", "max"]


@pytest.mark.parametrize("far", [0.0, 1e9])
def test_parts_add_up_to_the_whole(far):
    """Far from zero, too, and where a part has no rows."""
    masses = RNG.uniform(size=200)
    parts = [slice(0, 0), slice(0, 70), slice(70, 200), slice(0, 0)]
    columns = [ColumnSums.of(EVERY[part] + far, masses[part]) for part in parts]
    whole = ColumnSums.of(EVERY + far, masses)
    total = columns[0] + columns[1] + columns[2] + columns[3]
    assert total.n_rows == pytest.approx(masses.sum())
    assert total.ends == whole.ends
    mean = np.average(EVERY, weights=masses)
    assert total.mean - far == pytest.approx(mean, abs=1e-15 * far + 1e-12)
    sd = np.sqrt(np.average((EVERY - mean) ** 2, weights=masses))
    assert total.numbers["sd"] == pytest.approx(sd, rel=1e-6)


@pytest.mark.parametrize(
    ("weights", "size"), [([1.0] * 9, 9), ([5.0], 1), ([1.0, 1e-9], 1), ([3.0, 1.0], 1.6), ([], 0)]
)
def test_equal_weights_count_fully(weights, size):
    assert effective_size(np.array(weights)) == pytest.approx(size)


@pytest.mark.parametrize("start", [0, 1, -3])
def test_levels_are_counted_under_their_labels(start):
    """By their labels, or as the whole numbers that they are."""
    codes = RNG.integers(0, 6, size=200)
    codes[codes == 4] = 0  # a level without rows
    labels = list("abcdef") if start == 0 else range(start, start + 6)
    table = described(measured(codes + start, labels if start == 0 else None))
    chosen = codes[CHOSEN]
    for number, label in enumerate(labels):
        expected = [
            (codes == number).sum(),
            (chosen == number).sum(),
            WEIGHTS[chosen == number].sum(),
        ]
        if number == 4:
            assert f"= {label}" not in table.index
        else:
            assert table.loc[f"= {label}"].tolist() == expected
    covered = np.isin(codes, chosen)
    assert table.loc["levels"].tolist() == [5, *[len(np.unique(chosen))] * 2]
    assert table.loc["in these levels"].tolist() == [covered.sum(), 15, WEIGHTS.sum()]


def test_many_levels_are_not_listed():
    table = described(measured(np.arange(200) % 50, np.arange(50)))
    assert list(table.index) == ["levels", "in these levels"]


@pytest.mark.parametrize(
    ("values", "labels"), [(np.arange(15.0), None), (np.arange(15) % 3, "abc")]
)
def test_what_is_out_of_reach_is_not_known(values, labels):
    table = described(out_of_reach(values, labels))
    assert table["all"].isna().all()
    assert table[["chosen", "weighted"]].notna().all(axis=None)


def test_missing_values_are_left_out():
    x = EVERY[CHOSEN].copy()
    x[3] = np.nan
    table = described(out_of_reach(x))
    assert table.loc["mean", "chosen"] == pytest.approx(np.nanmean(x))
    others = np.delete(np.arange(15), 3)
    expected = np.average(x[others], weights=WEIGHTS[others])
    assert table.loc["mean", "weighted"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "are_classes"),
    [
        (np.array([3, 5]), True),
        (np.array([-3, 1], dtype=np.int8), True),
        (np.array([7, 9], dtype=np.uint8), True),
        (np.array([True, False]), True),
        (np.array([0, 19]), True),
        (np.array([0, 20]), False),
        (np.array([0.0, 1.0]), False),
    ],
)
def test_whole_numbers_of_a_small_range_are_classes(values, are_classes):
    """Also if the range is known only when parts have been added up."""
    one, other = (ColumnSums.of(values[i : i + 1], np.ones(1)) for i in range(2))
    for column in (ColumnSums.of(values, np.ones(2)), one + other):
        assert isinstance(column, ClassSums) == are_classes
        if are_classes:
            assert column.counts.to_dict() == dict.fromkeys(values.astype(int).tolist(), 1.0)


def test_arrays_are_split_and_chosen_by_their_name():
    x = np.arange(24.0).reshape(2, 3, 4)
    columns = Columns(["x", "xy"], {"x": [["a", "b", "c"]]}, {})
    found = columns.of(Rows(np.arange(2), np.ones(2), (x, x[:, 0, 0])))
    names = list(found)
    assert names[5] == "x[b, 1]"
    np.testing.assert_array_equal(found["x[b, 1]"], x[:, 1, 1])
    assert named_columns(names, ["xy", "x[c, 0]"]) == ["xy", "x[c, 0]"]
    assert len(named_columns(names, ["x", "x[a, 0]"])) == 12
    with refused(InvalidOptionError, "column 'z'", "'x[a, 0]'"):
        named_columns(names, ["z"])
