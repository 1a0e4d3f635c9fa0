"""The pages' sources: links that GitHub follows, tables as they were written, names all there."""

import importlib.util
import re
from pathlib import Path

import pytest

import pymc_coresets

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if not {"_build", "gallery"} & set(path.relative_to(ROOT).parts)
)
LINK = re.compile(r"\]\((?P<path>[^)\s#:]*)(?:#(?P<part>[^)\s]+))?\)")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("source", SOURCES, ids=named)
def test_links_between_sources(source):
    text = re.sub(r"^```.*?^```", "", source.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in LINK.finditer(text):
        target = (source.parent / link["path"]).resolve() if link["path"] else source
        assert target.exists(), link[0]
        if link["part"] and target.suffix == ".md":
            assert link["part"] in anchors(target), link[0]


@pytest.mark.parametrize("source", SOURCES, ids=named)
def test_tables_are_as_written(source):
    spec = importlib.util.spec_from_file_location("fill_tables", ROOT / "scripts/fill_tables.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert source.read_text() == script.filled(source.read_text()), "make tables"


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^   (\w+)$", (ROOT / "docs/reference/index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(pymc_coresets.__all__)
