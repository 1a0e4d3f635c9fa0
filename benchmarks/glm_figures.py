"""Figures of the comparisons on generalised linear models."""

from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.figure_style import BLUE, GREY, INK, ORANGE, SAND, STYLE
from benchmarks.glm_methods import RADIUS, Methods
from benchmarks.glm_quality import AUTO, BARE, SENSITIVITY, SIZES, UNIFORM, Results

COLOURS = {BARE: SAND, UNIFORM: GREY, SENSITIVITY: BLUE, AUTO: INK}
MARKERS = "osD^vP"


@rc_context(STYLE)
def draw_quality(results: Results, path: Path) -> None:
    """Draw MMD and test loss against the number of rows drawn, with a column for each data set."""
    names = [r.data for r in results.references]
    figure = Figure(figsize=(3.6 * len(names), 7.5), layout="constrained")
    axes = figure.subplots(3, len(names), sharex=True, squeeze=False)
    for column, reference in zip(axes.T, results.references, strict=True):
        column[0].set_title(reference.data)
        floors = (reference.noise, reference.own_noise, reference.test)
        for axis, what, floor in zip(column, ("mmd", "own_mmd", "test"), floors, strict=True):
            for method, colour in COLOURS.items():
                _curve(axis, results, (reference.data, method, what), colour)
            label = "full posterior" if what == "test" else "two sets of 1,000 draws of the full"
            axis.axhline(floor, color=ORANGE, lw=1, ls=":", label=label)
            axis.set(xscale="log", yscale="linear" if what == "test" else "log")
        column[-1].set_xlabel("rows drawn M (auto: rows)")
    labels = ("MMD, units of the posterior", "MMD, own scale", "negative test log-likelihood")
    for axis, label in zip(axes[:, 0], labels, strict=True):
        axis.set_ylabel(label)
    handles, texts = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside lower center", ncols=4, fontsize=9)
    _save(figure, path)


def _curve(axis: Axes, results: Results, which: tuple[str, str, str], colour: str) -> None:
    data, method, what = which
    own = [q for q in results.qualities if (q.data, q.method) == (data, method)]
    if method == AUTO:
        values = [getattr(q, what) for q in own]
        axis.scatter([q.rows for q in own], values, color=colour, s=22, label=method, zorder=3)
        return
    spread = np.array(
        [
            np.quantile([getattr(q, what) for q in own if q.size == size], (0.25, 0.5, 0.75))
            for size in SIZES
        ]
    ).T
    axis.plot(SIZES, spread[1], color=colour, marker=".", label=method)
    axis.fill_between(SIZES, spread[0], spread[2], color=colour, alpha=0.2, linewidth=0)


@rc_context(STYLE)
def draw_methods(methods: Methods, path: Path) -> None:
    """Draw |eta| of all rows above, and below it the error of the means against seconds."""
    figure = Figure(figsize=(3.2 * len(methods.predictors), 6), layout="constrained")
    axes = figure.subplots(2, len(methods.predictors), sharey="row", squeeze=False)
    for (above, below), found in zip(axes.T, methods.predictors, strict=True):
        above.hist(found.sizes, bins=np.arange(0, 8.01, 0.2), density=True, color=BLUE)
        above.axvline(RADIUS, color=ORANGE, lw=1.2)
        above.set(title=found.data, xlabel="|eta| at the posterior mean", xlim=(0, 8))
        own = [c for c in methods.compared if c.data == found.data]
        for compared, marker in zip(own, MARKERS, strict=True):
            error = max(compared.largest, 1e-3)
            below.scatter(compared.seconds, error, marker=marker, s=45, label=compared.method)
        below.set(xscale="log", yscale="log", xlabel="seconds of the processor")
    axes[0, 0].set_ylabel("density of the rows")
    axes[1, 0].set_ylabel("largest error of a mean / sd")
    handles, texts = axes[1, 0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside lower center", ncols=len(handles), fontsize=9)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
