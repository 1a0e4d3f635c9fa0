"""How results are shown, as text and as HTML."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from pymc_coresets.display.facts import TEXT_WIDTH, facts_text, table_text
from pymc_coresets.display.page import card, facts_html, figure_of, numbers_table, verdict_html
from pymc_coresets.display.sketches import curve_sketch, weights_sketch
from pymc_coresets.display.styles import STYLE

VOID = {"br", "hr", "img", "meta"}
MARKUP = "<script>alert(1)</script> & \"quoted\" 'x'"


class Balanced(HTMLParser):
    """Notes the tags of a page, and refuses one whose tags are not closed in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.words = [], set(), ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def test_values_stand_below_each_other():
    text = facts_text("Title", {"a": "1", "longer": "2"}, "In short: good.", "Go on.")
    assert text == "Title\n  a       1\n  longer  2\nIn short: good.\nGo on."


def test_no_line_of_text_is_longer_than_a_terminal():
    words, long = 40 * "word ", 200 * "x"
    text = facts_text("T", {"name": words, "other": long}, words)
    lines = text.splitlines()
    assert max(map(len, lines)) <= TEXT_WIDTH
    assert lines[2].startswith(" " * 9 + "word")  # below the beginning of the value
    assert text.replace("\n", "").count("x") == 200
    assert " ".join(text.split()).count("word") == 80


def test_long_names_of_a_table_lose_their_middle():
    rows = [["effect[" + 90 * "m" + " 1]", "0.5"], ["short", "-12.25"]]
    lines = table_text(["", "mean"], rows).splitlines()
    assert {len(line) for line in lines} == {TEXT_WIDTH}
    assert lines[1].startswith("effect[m")
    assert "…" in lines[1]
    assert lines[1].endswith("m 1]    0.5")
    assert lines[2].endswith(" -12.25")


@pytest.mark.parametrize(
    "page",
    [
        facts_html(MARKUP, {MARKUP: MARKUP}, plain=MARKUP, verdict=f"Good: {MARKUP}"),
        card("T", numbers_table(["", MARKUP], [[MARKUP, MARKUP]]), plain=MARKUP),
        card("T", figure_of(weights_sketch([1.0], 1), MARKUP), verdict_html(MARKUP), plain=""),
    ],
)
def test_nothing_that_users_name_is_taken_for_markup(page):
    found = Balanced(page)
    assert "script" not in found.tags
    assert MARKUP in found.words


def test_pages_load_nothing_and_follow_the_theme():
    page = facts_html("T", {"a": "1"}, plain="T")
    assert not re.search(r"https?:|url\(|@import|<script|\son\w+=", page)
    assert "prefers-color-scheme:dark" in page
    for variable in ("--jp-content-font-color0", "--pst-color-text-base", "data-theme=dark"):
        assert variable in page
    assert STYLE.count("{") == STYLE.count("}")
    # Rules apply to our own cards alone.
    selectors = re.findall(r"(?:^|})([^{}@]+){", STYLE)
    assert selectors
    assert all(".pmc" in part for rule in selectors for part in rule.split(","))


def test_colours_can_be_told_apart_from_the_paper():
    for of_paper, of_pens in (
        ("#ffffff", "#0b6e99"),
        ("#ffffff", "#c2521f"),
        ("#16181d", "#f0905f"),
    ):
        assert of_paper in STYLE
        assert contrast(of_paper, of_pens) > 4.5  # as WCAG asks of text


def contrast(one, other):
    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722] + 0.05

    low, high = sorted([luminance(one), luminance(other)])
    return high / low


@pytest.mark.parametrize(
    ("verdict", "tone"),
    [
        ("Reliable: as it is.", "pmc-good"),
        ("Reliable once re-weighted: so.", "pmc-good"),
        ("Doubtful: heavy tail.", "pmc-doubtful"),
        ("Not to be used yet: sample.", "pmc-bad"),
    ],
)
def test_the_first_words_of_a_verdict_are_bold_and_have_a_colour(verdict, tone):
    first, _, rest = verdict.partition(":")
    assert verdict_html(verdict) == f'<p class="pmc-verdict {tone}"><b>{first}:</b>{rest}</p>'


def points_of(svg):
    circles = ET.fromstring(svg).findall("circle")
    return np.array([[float(c.get("cx")), float(c.get("cy"))] for c in circles])


def test_curves_are_drawn_on_a_logarithmic_scale_without_what_is_not_known():
    x, y = points_of(curve_sketch([1.0, np.nan, 0.0, 0.01, 0.001], "kl")).T
    np.testing.assert_allclose(np.diff(x) / np.ptp(x), [0.75, 0.25], atol=1e-3)
    np.testing.assert_allclose(np.diff(y) / np.ptp(y), [2 / 3, 1 / 3], atol=5e-3)
    assert curve_sketch([1.0, np.inf, -1.0], "kl") == ""


@pytest.mark.parametrize("size", [1, 2, 239, 240, 241, 5_000])
def test_weights_are_drawn_in_one_shape_however_many(size):
    weights = np.random.default_rng(size).exponential(size=size)
    shape, line = ET.fromstring(weights_sketch(weights.tolist(), 7.0)).findall("path")
    heights = [float(y) for y in re.findall(r"V([\d.]+)h", shape.get("d"))]
    widths = [float(x) for x in re.findall(r"h([\d.]+)", shape.get("d"))]
    assert heights == sorted(heights)  # from above: the largest first
    assert 1 <= len(heights) <= 240
    assert sum(widths) == pytest.approx(228, abs=0.01 * len(widths))
    assert 0 <= float(re.search(r"M\d+ ([\d.]+)", line.get("d"))[1]) <= 76
    assert weights_sketch([], 7.0) == ""
