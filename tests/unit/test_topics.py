"""Each error and warning names a section of the page on troubleshooting, and that is there."""

import pickle
import re
from pathlib import Path

import pytest

from pymc_coresets import exceptions
from pymc_coresets.exceptions import CoresetError, CoresetWarning, InvalidDataError, warn_user
from pymc_coresets.options import positive_number

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
    of_classes = {topic for one in CLASSES for topic in one.topics.values()}
    assert of_classes | named() | {exceptions._WARNINGS} <= sections()


def test_every_room_of_the_table_is_there():
    for one in CLASSES:
        for room in filter(None, one.topics):
            path = ROOT / "pymc_coresets" / room.replace(".", "/")
            assert path.is_dir() or path.with_suffix(".py").is_file(), room


def test_the_room_that_raises_decides():
    def raised_in(room: str) -> InvalidDataError:
        scope = {"__name__": f"pymc_coresets.{room}", "InvalidDataError": InvalidDataError}
        return eval("InvalidDataError('Bad.')", scope)

    assert raised_in("rows.sources.opening").topic == "rows-and-files"
    assert raised_in("reading.draws").topic == "draws"
    assert raised_in("build").topic == InvalidDataError.topics[""]


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
