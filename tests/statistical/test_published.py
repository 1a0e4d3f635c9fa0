"""Published tables describe the defaults as they are now."""

import json
from pathlib import Path

import pytest

from benchmarks.defaults import MODELS, chosen

SOURCES = json.loads((Path(__file__).parents[2] / "docs/tables/figures.json").read_text())[
    "sources"
]


@pytest.mark.slow  # fifteen builds of 20,000 rows, which decide nothing about the package
def test_no_table_is_older_than_a_change_of_its_default():
    now = chosen()
    described = {
        name: source["defaults"] for name, source in SOURCES.items() if "defaults" in source
    }
    assert set().union(*described.values()) == set(MODELS)
    stale = {
        name: (default, then, now[default])
        for name, defaults in described.items()
        for default, then in defaults.items()
        if not 0.7 < now[default] / then < 1.4  # the last digits of a processor move single rows
    }
    assert not stale, "measure these tables again, and run make tables"
