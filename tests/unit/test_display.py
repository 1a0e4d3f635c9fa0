"""How results are shown, as text and as HTML."""

import re
from html.parser import HTMLParser

import pytest

from pymc_coresets.display.report import TEXT_WIDTH, Numbers, as_html, as_text

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
    text = as_text("Title", {"a": "1", "longer": "2"}, "In short: good.", "Go on.")
    assert text == "Title\n  a       1\n  longer  2\nIn short: good.\nGo on."


def test_no_line_of_text_is_longer_than_a_terminal():
    words, long = 40 * "word ", 200 * "x"
    text = as_text("T", {"name": words, "other": long}, words)
    lines = text.splitlines()
    assert max(map(len, lines)) <= TEXT_WIDTH
    assert lines[2].startswith(" " * 9 + "word")  # below the beginning of the value
    assert text.replace("\n", "").count("x") == 200
    assert " ".join(text.split()).count("word") == 80


def test_long_names_of_a_table_take_several_lines():
    long = "effect[" + 90 * "m" + " 1]"
    numbers = Numbers(["", "mean"], [[long, "0.5"], ["[bold]short", "-12.25"]])
    lines = as_text("T", numbers).splitlines()[2:]
    assert max(map(len, lines)) == TEXT_WIDTH
    assert lines[1].endswith("    0.5")
    assert "".join(lines[1:-1]).replace(" ", "").replace("0.5", "") == long.replace(" ", "")
    assert lines[-1].startswith("[bold]short")
    assert lines[-1].endswith(" -12.25")


def test_what_is_empty_is_left_out():
    assert as_text("T", {}, "") == "T"
    assert "<p>" not in as_html("T", {}, "")


@pytest.mark.parametrize(
    "html",
    [
        as_html(MARKUP, {MARKUP: MARKUP}, f"Good: {MARKUP}"),
        as_html("T", Numbers(["", MARKUP], [[MARKUP, MARKUP]])),
    ],
)
def test_nothing_that_users_name_is_taken_for_markup(html):
    found = Balanced(html)
    assert "script" not in found.tags
    assert MARKUP in found.words


def test_pages_load_nothing_and_leave_all_else_as_it_is():
    html = as_html("T", {"a": "1"})
    assert not re.search(r"https?:|url\(|@import|<script|\son\w+=", html)
    # Letters and paper have the colours of their surroundings.
    assert "color" not in html
    style = re.search("<style>(.*)</style>", html)[1]
    selectors = re.findall(r"(?:^|})([^{}]+){", style)
    assert selectors
    assert all(part.startswith(".pmc-") for rule in selectors for part in rule.split(","))
