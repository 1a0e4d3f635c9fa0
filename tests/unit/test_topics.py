"""Each error and warning names a section of the page on troubleshooting, and that is there."""

import ast
import pickle
import re
from pathlib import Path

import pytest

from pymc_coresets import (
    CoresetError,
    CoresetWarning,
    InvalidDataError,
    UnsupportedModelError,
    exceptions,
)
from pymc_coresets.exceptions import warn_user
from pymc_coresets.options import positive_number
from tests.refusals import refused

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
