"""What is shown of results and of what runs, and when this ends."""

import re
import time
from html import unescape
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from rich.console import Console

from pymc_coresets import (
    Level,
    OutOfTimeError,
    Reason,
    Verdict,
    build_coreset,
    build_pass_glm,
    merge,
)
from pymc_coresets.deadline import doing, forecast, forecasts_to, here, paced, stop_if_late, until
from pymc_coresets.display import TEXT_WIDTH, as_html, as_text, counted
from pymc_coresets.loops.fused_loops import Kernel
from pymc_coresets.progress import Reporter
from pymc_coresets.rows.memory import in_threads
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.maximisation import many_modes
from pymc_coresets.solving.solution import History, Progress
from tests.refusals import refused

# -- How results are shown, as text and in notebooks. ----------------------------------------------


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


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (12_345, "12,345 rows")]
)
def test_one_is_singular(number, text):
    assert counted(number, "row") == text


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


# -- What the bars show while a construction runs, and what is kept of its parts. ------------------


@pytest.fixture
def reporter():
    with Reporter(show=False) as reporter:
        yield reporter


def bar(reporter):
    [task] = reporter._bars.tasks
    return task


def test_each_step_advances_the_bar_and_says_how_far_it_came(reporter):
    with reporter.part("rounds", total=5) as show:
        for size in (3, 7):
            show(Progress(size=size, objective=0.5, heldout_objective=0.25, seconds=1.0))
        assert (bar(reporter).completed, bar(reporter).total) == (2, 5)
        assert bar(reporter).fields["note"] == "2/5, 7 rows, 0.25 nats"


@pytest.mark.parametrize(
    ("objective", "khat", "note"),
    [
        (np.nan, np.nan, "4 rows"),
        (0.125, 0.5, "4 rows, 0.12 nats, k-hat 0.50"),
        (np.nan, -np.inf, "4 rows, k-hat -inf"),
    ],
)
def test_what_is_not_known_is_not_shown(reporter, objective, khat, note):
    with reporter.part("rounds") as show:
        show(
            Progress(
                size=4, objective=0.5, heldout_objective=objective, seconds=1.0, pareto_khat=khat
            )
        )
        assert bar(reporter).fields["note"] == note


def test_passes_are_counted_in_rows(reporter):
    with reporter.passes("sums", 100) as show:
        notes = []
        for rows in (60, 40, 30, 70, 1):
            show(rows)
            notes.append((bar(reporter).completed, bar(reporter).fields["note"]))
    assert notes == [
        (60, "60 of 100 rows"),
        (100, "100 of 100 rows"),
        (30, "30 of 100 rows, pass 2"),
        (100, "100 of 100 rows, pass 2"),
        (1, "1 of 100 rows, pass 3"),
    ]


def test_a_part_that_has_ended_is_complete_and_timed(reporter):
    with reporter.part("rounds", total=9):
        pass
    assert bar(reporter).completed == bar(reporter).total
    assert 0 <= reporter.seconds["rounds"] < 60


def late(error):
    time.sleep(0.02)
    raise error


def test_parts_that_fail_are_timed_and_their_times_add_up(reporter):
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), reporter.part("groups", total=9):
            late(error)
    assert None not in {bar.stop_time for bar in reporter._bars.tasks}
    assert reporter.seconds.keys() == {"groups"}
    assert 0.04 <= reporter.seconds["groups"] < 60


def test_a_whole_is_timed_without_its_parts(reporter, monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    with reporter.whole("choosing rows"):
        now += 2.0
        with reporter.part("weighting draws"):
            now += 5.0
        now += 1.0
    with reporter.whole("reading"), reporter.part("pass"):
        now += 0.5
    assert reporter.seconds == {"weighting draws": 5.0, "choosing rows": 3.0, "pass": 0.5}


@pytest.mark.parametrize("clock", ["drawing", "evaluating"])
def test_the_clocks_of_a_history_count_what_fails(clock):
    history = History()
    timed = history.drawing() if clock == "drawing" else history.evaluating(1, 1, of=2)
    with pytest.raises(KeyboardInterrupt), timed:
        late(KeyboardInterrupt)
    time.sleep(0.02)
    step = history.add(size=1, objective=0.0, heldout_objective=0.0)
    assert 0.02 <= getattr(step, f"seconds_{clock}") <= step.seconds - 0.02


def test_readings_show_the_time_left(reporter, monkeypatch):
    clock = [10.0]
    monkeypatch.setattr(reporter._bars, "get_time", lambda: clock[0])
    reporter.rows_read(2_000, 8_000)  # begins now
    clock[0] = 14.0
    reporter.rows_read(4_000, 8_000)
    assert bar(reporter).fields["note"] == "4,000 of 8,000 rows, 0:00:04 left"
    reporter.rows_read(8_000, 8_000)
    assert reporter._bars.tasks == []
    reporter.rows_read(1_000, 8_000)  # the next one
    assert bar(reporter).fields["note"] == "1,000 of 8,000 rows, 0:00:00 left"


LONG = Progress(size=123_456, objective=0.5, heldout_objective=0.25, seconds=1.0, pareto_khat=0.5)


def test_a_log_has_one_line_for_each_part_and_no_control_characters():
    file = StringIO()
    with Reporter(show=True, console=Console(file=file, width=60)) as reporter:
        with reporter.part("reading the model"):
            reporter.rows_read(1_000_000, 2_000_000)
            reporter.rows_read(2_000_000, 2_000_000)
        with reporter.part(f"[bold]{50 * 'x'}", total=3) as show:
            show(LONG)
        with reporter.passes("predicting", 100, unit="predictions") as show:
            show(100)
    lines = file.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines[::2]] == ["reading the model", "predicting"]
    assert lines[1].startswith("[bold]xxx")
    assert "100 of 100 predictions" in lines[2]
    assert max(map(len, lines)) <= 60
    assert file.getvalue().replace("\n", "").isprintable()


def test_a_part_that_fails_leaves_no_line():
    file = StringIO()
    with (
        pytest.raises(ZeroDivisionError),
        Reporter(show=True, console=Console(file=file)) as reporter,
        reporter.part("rounds"),
    ):
        raise ZeroDivisionError
    assert file.getvalue() == ""


@pytest.mark.parametrize("width", [50, 80, 200])
def test_bars_of_a_terminal_take_one_line_each(width):
    screen = Console(file=StringIO(), force_terminal=True, width=width)
    reporter = Reporter(show=True, console=screen)
    assert not reporter._bars.disable
    for name in ("reading the model", "rounds"):
        with reporter.part(name) as show:
            reporter.rows_read(123_456_789, 1_000_000_000)
            show(LONG)
    page = Console(file=StringIO(), width=width)
    page.print(reporter._bars.get_renderable())
    lines = page.file.getvalue().splitlines()
    assert len(lines) == len(reporter._bars.tasks) == 3
    assert "reading" in lines[0]


NOTEBOOK = """
from pymc_coresets.progress import Reporter
from pymc_coresets.solving.solution import History, Progress
with Reporter(show=True) as report:
    with report.part("reading <the> model"):
        report.rows_read(5, 10)
        report.rows_read(10, 10)
    with report.part("rounds", total=4) as show:
        for size in (3, 7):
            show(Progress(size=size, objective=0.5, heldout_objective=0.25, seconds=1.0))
"""


@pytest.mark.slow
def test_a_notebook_keeps_one_page_that_needs_no_widgets():
    nbclient = pytest.importorskip("nbclient", reason="needs the extra 'dev'")
    nbformat = pytest.importorskip("nbformat", reason="needs the extra 'dev'")
    pytest.importorskip("ipykernel", reason="needs the extra 'dev'")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    [shown] = notebook.cells[0].outputs
    assert shown.output_type == "display_data"
    page, text = shown.data["text/html"], shown.data["text/plain"]
    assert "reading &lt;the&gt; model" in page
    assert "7 rows, 0.25 nats" in page
    first, second = text.splitlines()
    assert first.split()[:3] == ["reading", "<the>", "model"]
    assert second.split()[0] == "rounds"
    assert "7 rows, 0.25 nats" in second


# -- what shows it -------------------------------------------------------------------------------

Y = np.random.default_rng(1).normal(size=(2, 500))
MU = xr.Dataset({"mu": (("chain", "draw"), np.zeros((2, 3)))})


def normal(rows):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=pm.Data("rows", rows))
    return model


@pytest.mark.parametrize("shown", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_calls_show_progress_where_the_build_did(shown, capsys, sampled):
    given = sampled(xr.DataTree())
    coreset = build_coreset(normal(Y[0]), random_seed=1, progressbar=shown)
    longer = coreset.extend(normal(Y[1]), size=20, random_seed=1)
    both = merge(coreset, coreset, size=1_000, random_seed=1)
    for made in (coreset, longer, both, build_pass_glm(normal(Y[0]), progressbar=shown)):
        assert made.progressbar == shown
    for each in (coreset, longer):
        each.sample(nuts_sampler="pymc")
    coreset.sample()  # its draws are known before PyMC records them
    capsys.readouterr()
    coreset.predict(MU)
    coreset.extend(normal(Y[1]), size=20, random_seed=1)
    lines = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == (["predicting", "rounds"] if shown else [])
    assert [options["progressbar"] for options in given] == [shown, shown, False]


@pytest.mark.parametrize("shown", [True, False])
def test_calls_do_as_they_are_told(shown, capsys):
    coreset = build_coreset(normal(Y[0]), random_seed=1, progressbar=not shown)
    capsys.readouterr()
    coreset.predict(MU, progressbar=shown)
    longer = coreset.extend(normal(Y[1]), size=20, random_seed=1, progressbar=shown)
    assert bool(capsys.readouterr().out) == shown
    assert longer.progressbar == shown


# -- What a limit of time ends, what it says, and what is announced beforehand. --------------------

ROWS = Rows(np.arange(100), np.ones(100))


@pytest.fixture
def lines():
    lines = []
    with forecasts_to(lines.append):
        yield lines


def test_nothing_ends_without_a_limit_or_before_it():
    stop_if_late()
    with until(time.perf_counter() + 60):
        assert sum(in_threads(len, ROWS.blocks(10))) == 100
    with pytest.raises(OutOfTimeError), until(0.0):
        stop_if_late()
    stop_if_late()


def test_blocks_of_rows_end_at_the_limit():
    done = []

    def slow(rows):
        done.append(len(rows))
        time.sleep(0.05)

    with pytest.raises(OutOfTimeError), until(time.perf_counter() + 0.12):
        list(in_threads(slow, ROWS.blocks(1)))
    assert 0 < len(done) < 50


def test_one_long_block_knows_the_limit_in_its_thread():
    ends = []

    def steps(rows):
        for _ in range(100):
            time.sleep(0.01)
            stop_if_late()
        ends.append(rows)

    with pytest.raises(OutOfTimeError), until(time.perf_counter() + 0.2):
        list(in_threads(steps, ROWS.blocks(25)))
    assert ends == []


def test_the_error_says_what_was_done_and_reached():
    facts = ("while integrating", "searching (7 of 20 gradients)")
    with (
        refused(OutOfTimeError, facts),
        until(np.inf, "too late."),
        until(0.0),
        doing("integrating"),
        paced("searching", 20, "gradients") as count,
    ):
        count(7)


def test_the_earlier_of_two_limits_counts():
    with (
        refused(OutOfTimeError, "time_budget", "before there were draws"),
        until(0.0, "before there were draws."),
        until(np.inf),
    ):
        stop_if_late()


def test_what_takes_long_is_announced_once_by_its_rate(clock, lines):
    with doing("checking"), paced("evaluating 500 rows", 100, "blocks") as count:
        for _ in range(100):
            clock.now += 0.6
            count(1)
    assert lines == ["Checking: evaluating 500 rows: about 60 seconds."]


def test_what_takes_little_time_is_not_announced(clock, lines):
    with paced("reading", 100, "blocks") as count:
        for _ in range(100):
            clock.now += 0.19
            count(1)
    assert lines == []


def test_a_part_of_what_was_announced_is_no_news_and_what_takes_longer_is(clock, lines):
    with doing("building"):
        forecast(300.0, "integrate=False is faster.")
        with doing("searching"):
            forecast(100.0)
            clock.now += 250.0
            forecast(500.0)
    assert lines == [
        "Building: about 5 minutes. integrate=False is faster.",
        "Building: searching: about 8 minutes.",
    ]


def test_threads_announce_nothing(lines):
    here(forecast)(100.0)
    assert lines == []
    with doing("in this one"):
        forecast(100.0)
    assert len(lines) == 1


def test_without_a_receiver_forecasts_are_in_the_log(caplog):
    with caplog.at_level("INFO", logger="pymc_coresets"), doing("waiting"):
        forecast(30.0)
    assert "Waiting: about 30 seconds." in caplog.text


def test_the_first_step_which_may_compile_functions_says_nothing_of_the_others(clock, lines):
    with paced("drawing", 10, "levels") as count:
        clock.now += 60.0
        count(1)
        for _ in range(9):
            clock.now += 1.5
            count(1)
    assert lines == []


def test_a_compilation_is_announced_and_none_begins_that_takes_too_long(limits):
    """By the rate of those before it: once begun, none ends at a limit of time."""
    limits(compilation_rates={"seconds per operation": 10.0})
    x = pt.vector("x")
    outputs = [pt.exp(x) + pt.log(x)]  # three operations
    lines = []
    with forecasts_to(lines.append):
        _ = Kernel([], [x], outputs, {}).program
    assert lines == ["Compiling a function of 3 operations: about 30 seconds."]
    facts = ("3 operations", "30 seconds")
    with refused(OutOfTimeError, facts), until(time.perf_counter() + 20.0):
        _ = Kernel([], [x], outputs, {}).program


@pytest.mark.parametrize(("kinks", "said"), [(True, "about 80 seconds."), (False, "about 40 s")])
def test_curvatures_are_announced_by_the_time_of_their_diagonals(kinks, said, lines, monkeypatch):
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(many_modes, "time", clock)

    def slopes(x):
        clock.now += 4.0 * len(x)  # seconds
        return -np.square(x).sum(axis=1) / 2, -x

    found = many_modes.negative_hessians(Density(slopes), np.zeros((1, 5)), kinks=kinks)
    assert len(lines) == 1
    assert lines[0].startswith(f"Computing curvatures: {said}")
    np.testing.assert_allclose(found[0], np.eye(5))
