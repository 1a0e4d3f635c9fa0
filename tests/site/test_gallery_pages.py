"""What is published of the gallery shows what its scripts draw and print: ``make site``."""

import os
import re
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "examples/gallery").glob("plot_*.py"))
pytestmark = pytest.mark.skipif(
    os.environ.get("GALLERY") != "run", reason="the gallery was not run: make site"
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_page_shows_what_its_script_draws_and_prints(site, script):
    text = (site / "gallery" / f"{script.stem}.html").read_text()
    assert f"sphx_glr_{script.stem}_001" in text  # its first figure
    assert "sphx-glr-script-out" in text
    assert re.search(r"Reliable( around this mode \(.*?\))?: ", text, re.DOTALL)


def test_no_page_is_left_of_a_script_that_is_gone(site):
    pages = {page.stem for page in (site / "gallery").glob("plot_*.html")}
    assert pages == {script.stem for script in SCRIPTS}
