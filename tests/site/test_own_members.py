"""A name in the description of a class leads to the class's own member, if it has one."""

import pytest

PAGE = """
Page
====

.. py:module:: shop

.. py:function:: sample()

   As `Cheese.sample` has it.

.. py:function:: order()

.. py:class:: Cheese

   Try a `sample`, and `order`.

   .. py:method:: sample()

      Better than another `sample`.
"""


def test_members_of_a_class_come_before_functions(tmp_path, extensions):
    testing = pytest.importorskip("sphinx.testing.util")
    (tmp_path / "index.rst").write_text(PAGE)
    (tmp_path / "conf.py").write_text("")
    settings = {"extensions": ["own_members"], "default_role": "py:obj"}
    app = testing.SphinxTestApp("html", srcdir=tmp_path, confoverrides=settings)
    try:
        app.build()
        page = (app.outdir / "index.html").read_text()
    finally:
        app.cleanup()
    assert page.count('internal" href="#shop.Cheese.sample" title="shop.Cheese.sample"') == 3
    assert page.count('internal" href="#shop.order" title="shop.order"') == 1
