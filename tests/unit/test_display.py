"""How results are printed."""

from pymc_coresets.display.facts import facts_text
from pymc_coresets.display.page import facts_html


def test_values_stand_below_each_other():
    text = facts_text("Title", {"a": "1", "longer": "2"}, "In short: good.", "Go on.")
    assert text == "Title\n  a       1\n  longer  2\nIn short: good.\nGo on."


def test_the_first_words_of_a_verdict_are_bold_and_nothing_is_taken_for_markup():
    page = facts_html("T", {"<": "1 & 2"}, verdict="Good: a < b")
    assert "<b>Good:</b> a &lt; b" in page
    assert "&lt;</th>" in page
    assert "1 &amp; 2" in page
    assert "<p" not in facts_html("T", {"a": "1"})
