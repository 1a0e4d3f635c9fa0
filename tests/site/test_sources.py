"""The pages' sources: links, sources of every figure, plain words, and all public names."""

import importlib.util
import re
import sys
from functools import reduce
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import pymc_coresets

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if not {"_build", "gallery", "tables"} & set(path.relative_to(ROOT).parts)
)
LINK = re.compile(r"\]\((?P<path>[^)\s#:]*)(?:#(?P<part>[^)\s]+))?\)")
DEFINITION = re.compile(r"^\[[^\]]+\]: (?P<path>[^\s#:]+)(?:#(?P<part>\S+))?$", re.MULTILINE)
# They describe the code and its history, and quote its settings in passing.
DEVELOPMENT = {"architecture.md", "adding-a-method.md", "adding-a-rule.md", "CHANGELOG.md"}
PROSE = [path for path in SOURCES if path.name not in DEVELOPMENT]
QUOTED = re.compile(r"\{(measured|constant)\}`~?([\w.-]+)`|<!--([mc]):~?([\w.-]+)-->")


def load(name, folder):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


figures = load("figures", "docs/_ext")
fill_tables = load("fill_tables", "scripts")
prose = load("prose", "scripts")
MEASURED, FIGURES, CONSTANTS = figures.load()


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# -- links -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES, ids=named)
def test_links_between_sources(source):
    text = re.sub(r"^```.*?^```", "", source.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in (*LINK.finditer(text), *DEFINITION.finditer(text)):
        target = (source.parent / link["path"]).resolve() if link["path"] else source
        if source.name == "CHANGELOG.md" and target.parent == ROOT / "docs":
            continue  # it names pages of its time, some of which have been merged since
        assert target.exists(), link[0]
        if link["part"] and target.suffix == ".md":
            assert link["part"] in anchors(target), link[0]


def test_readme_links_to_pages_from_one_address_alone(monkeypatch):
    text = (ROOT / "README.md").read_text()
    assert "](docs/" not in text
    assert not re.search(r"\{[\w-]+\}`|^:{3,}|^```\{", text, re.MULTILINE)  # Sphinx only
    used = set(re.findall(r"\]\[([^\]]+)\]", text))
    assert used == set(re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE))
    monkeypatch.setattr(fill_tables, "ADDRESS", "https://coresets.example/")
    published = fill_tables.filled(text)
    assert "[scale]: https://coresets.example/scale.html\n" in published
    assert "docs/" not in re.sub(r"`.*?`", "", published)


@pytest.mark.parametrize("source", fill_tables.PAGES, ids=named)
def test_comments_around_figures_swallow_no_sentence(source):
    """A line that begins with a comment is a block of HTML in CommonMark, up to its end."""
    tokens = MarkdownIt("commonmark").parse(source.read_text())
    blocks = [token.content for token in tokens if token.type == "html_block"]
    assert {block.strip() for block in blocks} <= {"<!-- links -->", "<!-- end -->"}


def test_a_figure_at_the_beginning_of_a_line_is_refused():
    with pytest.raises(SystemExit, match="begins with a figure"):
        fill_tables.filled("It took\n  <!--m:scale-1e8-wall-->1 s<!--/--> in all.")


@pytest.mark.parametrize("source", PROSE, ids=named)
def test_no_merge_was_left_half_done(source):
    assert not re.search(r"^(<{7}|>{7}) ", source.read_text(), re.MULTILINE)


def test_there_are_few_pages():
    pages = [path for path in SOURCES if "docs" in path.parts]
    assert len(pages) <= 55
    sources = [*pages, ROOT / "README.md", ROOT / "paper.md"]
    lines = (line for path in sources for line in path.read_text().splitlines())
    words = sum(len(line.split()) for line in lines if not line.lstrip().startswith("|"))
    assert words <= 26_500  # without tables


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^   (\w+)$", (ROOT / "docs/reference/index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(pymc_coresets.__all__)


# -- figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", PROSE, ids=named)
def test_what_looks_measured_has_a_source(source):
    assert not figures.measured_prose(source.read_text())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It took 451 processor seconds.", ["451 processor seconds"]),
        ("Memory: 345 MB, and 0.0003 nats", ["345 MB", "0.0003 nats"]),
        ("It is 3.5 times as fast", ["3.5 times"]),
        ("It took {measured}`a`, or <!--m:b-->5 s<!--/-->, not `5 s` and not $5 s$.", []),
        ("```text\n5 seconds\n```\n327,346 flights, 20 models, version 3.12, k-hat below 0.7", []),
    ],
)
def test_what_looks_measured(text, found):
    assert figures.measured_prose(text) == found


@pytest.mark.parametrize("source", PROSE, ids=named)
def test_tables_have_six_columns_at_most(source):
    text = re.sub(r"^```.*?^```", "", source.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = re.findall(r"^\|.*\|$", text, re.MULTILINE)
    assert all(len(figures.cells(line)) <= 6 for line in lines)


@pytest.mark.parametrize("source", PROSE, ids=named)
def test_quoted_figures_exist(source):
    for role, name, mark, key in QUOTED.findall(source.read_text()):
        assert (name or key) in (FIGURES if (role or mark)[0] == "m" else CONSTANTS)


def test_every_figure_is_quoted():
    texts = "\n".join(source.read_text() for source in PROSE)
    used = {name or key for _, name, _, key in QUOTED.findall(texts)}
    assert used == {*FIGURES, *CONSTANTS}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_those_of_the_tables(name):
    assert FIGURES[name].source in MEASURED
    assert FIGURES[name].agrees(), "make tables"


@pytest.mark.parametrize("path", sorted((ROOT / "docs/tables").glob("*.md")), ids=named)
def test_tables_have_a_source(path):
    assert MEASURED[path.stem].digest == figures.digest(path.stem), "make tables"
    assert re.fullmatch(r"[0-9a-f]{7,}", MEASURED[path.stem].commit)


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_those_of_the_code(name):
    constant = CONSTANTS[name]
    assert constant.code or constant.note
    if constant.code:
        options, attribute = constant.code.split(".")
        value = reduce(getattr, [attribute], getattr(pymc_coresets, options)())
        assert float(constant.value) == value


@pytest.mark.parametrize("source", fill_tables.PAGES, ids=named)
def test_pages_outside_of_the_site_are_filled(source):
    assert fill_tables.filled(source.read_text()) == source.read_text(), "make tables"


@pytest.mark.parametrize("path", sorted((ROOT / "docs/tables").glob("*.md")), ids=named)
def test_every_table_is_shown(path):
    shown = "\n".join(source.read_text() for source in SOURCES)
    assert f"{{measured-table}} {path.stem}\n" in shown


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", prose.files(), ids=named)
def test_words_are_plain(path):
    assert not prose.complaints(path)


def test_phrases_are_found_across_lines_and_not_in_code():
    text = "Draws that chose\nnothing.\n\n```python\nchose nothing\n```\n"
    assert [(line, phrase) for line, phrase, _ in prose.found(text)] == [(1, "chose nothing")]
