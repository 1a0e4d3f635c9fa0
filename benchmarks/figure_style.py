"""The style of the benchmarks' figures: colours and axes of the documentation's pictures."""

INK, GREY, BLUE, SKY = "#24292f", "#9aa5b1", "#0b6e99", "#5fb6de"
ORANGE, SAND, GREEN, VIOLET = "#c2521f", "#d9a441", "#3d8b5f", "#7a5ea8"

#: Settings of Matplotlib, for `rc_context`.
STYLE = dict.fromkeys(
    ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
) | {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "font.size": 10.5,
    "axes.titlesize": 11,
}
