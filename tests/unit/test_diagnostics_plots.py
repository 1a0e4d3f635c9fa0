"""Plots: what they show, and that they load only when asked for."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from pymc_coresets import (
    Certificate,
    Coreset,
    InvalidDataError,
    InvalidOptionError,
    plot_comparison,
    plot_history,
    plot_weights,
)
from tests.refusals import refused

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def posterior(seed):
    rng = np.random.default_rng(seed)
    variables = {"mu": rng.normal(size=(2, 100)), "b": rng.normal(size=(2, 100, 2))}
    return xr.Dataset({k: (("chain", "draw", "k")[: v.ndim], v) for k, v in variables.items()})


def recorded(weights=(2.0, 5.0, 1.0), **variables):
    """Return a coreset of 1200 rows, read without its model."""
    columns = {"size": [1, 2, 3], "objective": [4.0, 2.0, 1.0], "heldout_objective": [5.0, 3, 2]}
    named = {name: ("step", values) for name, values in (columns | variables).items()}
    return Coreset(
        indices=np.arange(len(weights)),
        weights=np.array(weights),
        n_observations=1200,
        n_distinct=1200,
        method="giga",
        weighting="laplace",
        status="",
        objective=1.0,
        random_seed=None,
        history=xr.Dataset(named),
        settings={"observed": None, "dim": None, "allow_local": False},
        loglikelihood=None,
    )


@pytest.fixture
def coreset():
    return recorded()


def test_weights_are_drawn_from_the_largest_on(coreset):
    ax = plot_weights(coreset)
    np.testing.assert_array_equal(ax.patches[-1].get_data().values, [5, 2, 1])
    assert "3 of 1,200 rows (giga)" in ax.get_title()
    assert ax.lines[0].get_ydata()[0] == 400


def test_plots_use_the_axes_they_are_given(coreset):
    _, axes = plt.subplots(ncols=2)
    assert plot_weights(coreset, ax=axes[0]) is axes[0]
    assert plot_history(recorded(), ax=axes[1]) is axes[1]
    assert len(plt.get_fignums()) == 1


def test_no_weights_are_refused():
    with refused(InvalidDataError, "no weights", "size >= 1"):
        plot_weights(recorded(weights=()))


def test_history_shows_what_was_measured():
    ax = plot_history(recorded(heldout_objective=[5.0, np.nan, 0.0]))
    chosen, heldout = ax.lines
    np.testing.assert_array_equal(chosen.get_ydata(), [4, 2, 1])
    np.testing.assert_array_equal(heldout.get_xdata(), [1])
    assert ax.get_yscale() == "log"
    assert "nats" in ax.get_ylabel()


def test_history_without_heldout_objective_has_one_curve():
    assert len(plot_history(recorded(heldout_objective=[np.nan] * 3)).lines) == 1


def test_history_without_objective_is_refused():
    empty = {name: np.empty(0) for name in ("size", "objective", "heldout_objective")}
    with refused(InvalidDataError, "'giga'", "objective", "check()"):
        plot_history(recorded(**empty))
    with refused(InvalidDataError, "objective", "plot_weights"):
        plot_history(recorded(objective=[0.0] * 3, heldout_objective=[np.nan] * 3))


def test_a_history_of_one_step_is_a_point_beside_the_tolerance():
    certificate = replace(Certificate.of(np.zeros(100)), tolerance=0.05)
    one = {"size": [16], "objective": [np.nan], "heldout_objective": [3e-4]}
    ax = plot_history(replace(recorded(**one), certificate=certificate))
    point, line = ax.lines
    assert (point.get_xdata().tolist(), point.get_ydata().tolist()) == ([16], [3e-4])
    assert set(line.get_ydata()) == {0.05}
    low, high = ax.get_ylim()
    assert low < 3e-4
    assert high > 0.05
    assert "measured once" in ax.get_xlabel()
    assert "measured once" not in plot_history(recorded()).get_xlabel()


def test_comparison_has_a_legend_and_can_be_drawn():
    figure = plot_comparison(posterior(1), posterior(2))
    figure.canvas.draw()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["full posterior", "approximation"]


def test_comparison_has_one_density_plot_for_each_component():
    figure = plot_comparison(posterior(1), posterior(2))
    assert sum(len(ax.lines) == 2 for ax in figure.axes) == 3
    assert (
        sum(len(ax.lines) == 2 for ax in plot_comparison(*map(posterior, (1, 2)), "mu").axes) == 1
    )


def test_posteriors_with_different_numbers_of_draws_are_plotted_together():
    rng = np.random.default_rng(1)
    full, coreset = (
        xr.Dataset({"mu": (("chain", "draw"), rng.normal(size=shape))})
        for shape in [(4, 200), (2, 150)]
    )
    assert len(plot_comparison(full, coreset).axes) == 1


def test_rounds_are_shown_one_after_another():
    columns = {"size": [900, 40, 30], "objective": [np.nan, 0.1, 0.1]}
    columns["heldout_objective"] = [50.0, 2.0, 0.01]
    axes = plot_history(recorded(**columns))
    assert axes.get_xlabel() == "round"
    axes = plot_history(recorded(**columns | {"size": [30, 30, 40]}))
    assert "size" in axes.get_xlabel()


@pytest.mark.parametrize("plot", [plot_weights, plot_history])
@pytest.mark.parametrize(("thing", "kind"), [(3, "int"), (dict, "type"), (None, "NoneType")])
def test_what_is_no_coreset_is_named(plot, thing, kind):
    with refused(InvalidOptionError, f"coreset is a {kind}", "build_coreset"):
        plot(thing)
