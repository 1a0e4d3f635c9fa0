"""Names of PyMC and ArviZ lead to their documentation, and the site is built without it, too."""

import pytest

PAGE = """
Page
====

`pm.sample`, ``pm.sample()``, ``az.loo``, ``pm.unknown`` and ``loo``.
"""
# Lines of a name, its kind and its page, as in the first version of inventories.
INVENTORY = """# Sphinx inventory version 1
# Project: others
# Version: 1
pymc.sample function sample.html
arviz_stats.loo function loo.html
"""


@pytest.fixture
def built(tmp_path, extensions):
    """Build one page with an inventory of this name, and return it with the warnings."""
    testing = pytest.importorskip("sphinx.testing.util")
    pytest.importorskip("arviz")

    def build(inventory):
        (tmp_path / "index.rst").write_text(PAGE)
        (tmp_path / "others.txt").write_text(INVENTORY)
        (tmp_path / "conf.py").write_text("")
        settings = {
            "extensions": ["outside_names"],
            "default_role": "py:obj",
            "intersphinx_mapping": {"others": ("https://others.example/", inventory)},
        }
        app = testing.SphinxTestApp("html", srcdir=tmp_path, confoverrides=settings)
        app.build()
        warnings = app.warning.getvalue()
        app.cleanup()
        return (tmp_path / "_build/html/index.html").read_text(), warnings

    return build


def test_names_lead_to_the_documentation_of_their_package(built):
    page, warnings = built("others.txt")
    assert page.count('href="https://others.example/sample.html#pymc.sample"') == 2
    assert page.count('href="https://others.example/loo.html#arviz_stats.loo"') == 1
    assert "pm.unknown" in page
    assert not warnings


def test_an_inventory_that_cannot_be_reached_is_no_warning(built):
    page, warnings = built("missing.txt")
    assert "others.example" not in page
    assert "pm.sample" in page
    assert not warnings
