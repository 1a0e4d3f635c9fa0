"""What users pass, and what errors and warnings say of it."""

import ast
import copy
import math
import pickle
import re
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_array_equal

import pymc_coresets
from pymc_coresets import (
    CoresetError,
    CoresetWarning,
    InvalidDataError,
    InvalidOptionError,
    UnsupportedModelError,
    exceptions,
)
from pymc_coresets.exceptions import warn_user
from pymc_coresets.options import (
    flag,
    generator,
    names_of,
    one_of,
    positive_number,
    whole_number,
)
from pymc_coresets.sampling.steps.nuts import sampling_options
from tests.modes import PLAIN_MODE
from tests.refusals import refused

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
