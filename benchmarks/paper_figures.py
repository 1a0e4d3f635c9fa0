"""Figures of the papers' comparison: divergence against size and against seconds."""

from pathlib import Path
from typing import Any

from benchmarks.closed_forms import Array
from benchmarks.curves import MATCHED, Curve, Record, curves_of
from benchmarks.figure_style import BLUE, GREEN, GREY, INK, ORANGE, SKY, STYLE, VIOLET
from benchmarks.paper_data import DATA_SETS

FLOOR = 1e-17  # relative divergence at which those that round to 0 are drawn
STYLES: dict[str, dict[str, Any]] = {
    "uniform": {"color": GREY},
    "giga, optimal": {"color": BLUE},
    "giga, realistic": {"color": SKY},
    "sparse_vi, published": {"color": GREEN},
    "sparse_vi, printed step": {"color": ORANGE, "linestyle": ":"},
    "sparse_vi": {"color": ORANGE},
    "quasi_newton": {"color": VIOLET, "marker": "."},
    "riemannian_pursuit": {"color": INK, "linewidth": 2},
}


def draw_figures(records: list[Record], folder: Path) -> None:
    """Draw two figures for each schedule: the closed forms, and the six regressions."""
    from matplotlib import rc_context  # noqa: PLC0415 - only figures need it

    folder.mkdir(parents=True, exist_ok=True)
    for schedule in dict.fromkeys(r.schedule for r in records):
        own = [r for r in records if r.schedule == schedule]
        names = list(dict.fromkeys(r.experiment for r in own))
        groups = {
            "closed_forms": [n for n in names if n not in DATA_SETS],
            "regressions": [n for n in DATA_SETS if n in names],
        }
        for group, experiments in groups.items():
            if experiments:
                path = folder / f"papers_{group}_{schedule}.png"
                parts = {n: [r for r in own if r.experiment == n] for n in experiments}
                with rc_context(STYLE):
                    _draw(parts, path)


def _draw(experiments: dict[str, list[Record]], path: Path) -> None:
    """Draw a line of panels for each experiment: against rows, and against seconds."""
    import matplotlib as mpl  # noqa: PLC0415 - only figures need it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    n_rows = len(experiments)
    figure, axes = plt.subplots(
        n_rows,
        2,
        figsize=(9, 2.6 * n_rows + 0.8),
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for (name, records), (by_size, by_time) in zip(experiments.items(), axes, strict=True):
        relative = name in DATA_SETS
        for curve in curves_of(records, relative=relative):
            if curve.method != MATCHED:
                _line(by_size, curve.support[1], curve)
                if curve.method != "uniform":  # it takes none
                    _line(by_time, curve.seconds[1], curve)
        by_size.set_ylabel(f"{name}\nKL / KL(prior)" if relative else f"{name}\nKL, nats")
        for axis in (by_size, by_time):
            axis.set(xscale="log", yscale="log")
    axes[-1, 0].set_xlabel("rows in the coreset")
    axes[-1, 1].set_xlabel("seconds of the processor")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path, dpi=70)
    plt.close(figure)


def _line(axis: Any, across: Array, curve: Curve) -> None:  # noqa: ANN401 - untyped library
    low, middle, high = curve.kl.clip(FLOOR)
    style = STYLES[curve.method]
    axis.plot(across, middle, label=curve.method, **style)
    axis.fill_between(across, low, high, color=style["color"], alpha=0.15, linewidth=0)
