"""How results are shown, as text and in notebooks."""

import re
from html import unescape

from pymc_coresets import Level, Reason, Verdict
from pymc_coresets.display import TEXT_WIDTH, as_html, as_text


def test_values_stand_below_each_other():
    text = as_text("Title", {"a": "1", "longer": "2"}, "In short: good.", "Go on.")
    assert text == "Title\n  a       1\n  longer  2\nIn short: good.\nGo on."


def test_lines_stay_as_they_are():
    line = 100 * "x y "
    assert as_text("Title", [line, "2"]) == f"Title\n{line}\n2"


def test_no_line_of_text_is_longer_than_a_terminal():
    words, long = 40 * "word ", 200 * "x"
    text = as_text("T", {"name": words, "other": long}, words)
    lines = text.splitlines()
    assert max(map(len, lines)) <= TEXT_WIDTH
    assert lines[2].startswith(" " * 9 + "word")  # below the beginning of the value
    assert text.replace("\n", "").count("x") == 200
    assert " ".join(text.split()).count("word") == 80


def test_what_is_empty_is_left_out():
    assert as_text("T", {}, "") == "T"


def test_notebooks_show_the_verdict_in_its_colour_and_the_card_with_an_edge_of_it():
    verdicts = [
        Verdict.starting(Level.RELIABLE, Reason.EXACT, "exact."),
        Verdict.starting(Level.DOUBTFUL, Reason.FEW_DRAWS, "few."),
        Verdict.starting(Level.UNUSABLE, Reason.STUCK, "stuck."),
    ]
    pages = [as_html("Check", verdict, {"a": "1 < 2"}) for verdict in verdicts]
    for page, verdict in zip(pages, verdicts, strict=True):
        assert page.index("Check") < page.index(verdict.text) < page.index("1 &lt; 2")
        [colour] = set(re.findall("#[0-9a-f]{6}", page))  # of the verdict, and of the edge
        assert page.count(colour) == 2
    assert len({re.search("#[0-9a-f]{6}", page)[0] for page in pages}) == 3


def test_what_is_no_verdict_has_no_colour():
    unjudged = Verdict(Level.UNJUDGED, Reason.ALL_ROWS, "Draws of pm.sample.")
    for part in ("", None, "Reliable: only a sentence.", unjudged):
        assert "style" not in as_html("Coreset", part, {"a": "1"})


def test_notebooks_show_the_same_text_as_terminals():
    verdict = Verdict.starting(Level.RELIABLE, Reason.EXACT, "exact & good.")
    parts = ("T <1>", verdict, {"a": "1 < 2", "b": ""}, ["  a & b"])
    plain = re.sub("<[^<>]*>", "", as_html(*parts))
    assert unescape(plain) == as_text(*parts)
