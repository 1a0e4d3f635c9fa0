"""How results are shown, as text and in notebooks."""

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


def test_notebooks_show_the_verdict_first_in_the_colour_that_it_has():
    verdicts = ("Reliable: exact.", "Doubtful: few.", "Not to be used: stuck.", "Resampled.")
    pages = [as_html("Check", {"a": "1 < 2"}, verdict) for verdict in verdicts]
    assert all(
        page.index(v) < page.index("1 &lt; 2") for page, v in zip(pages, verdicts, strict=True)
    )
    colours = [page.partition('style="color: ')[2].partition('"')[0] for page in pages]
    assert len(set(colours)) == 4
    assert colours[3] == "inherit"
    assert "color" not in as_html("Coreset", {"a": "1"}, "")
