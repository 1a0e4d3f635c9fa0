"""Draw the pictures of `docs/how-it-works.md`: ``make figures``.

A logistic regression with two parameters, so that posteriors can be computed on a grid: nothing in
the pictures is sketched, and nothing but the package chooses rows and weights. Each picture is
written for light and for dark pages. Those with several panels are written once more for narrow
pages, with the panels below each other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pymc_coresets import Coreset, build_coreset

FOLDER = Path(__file__).parent
N_ROWS, N_DRAWS, START, SIZE = 2_000, 400, 8, 6
PRIOR_SD = 2.5
LEVELS = np.exp([-4.5, -2.0, -0.5])  # of a density over its largest value
INK = {
    "light": {"ink": "#24292f", "faint": "#9aa5b1", "blue": "#0b6e99", "orange": "#c2521f"},
    "dark": {"ink": "#dfe4ea", "faint": "#7b8794", "blue": "#5fb6de", "orange": "#f0905f"},
}

type Array = np.ndarray
type Ink = dict[str, str]


@dataclass(frozen=True, kw_only=True, eq=False)
class Example:
    """Data of a logistic regression, and its log-likelihoods on a grid of both parameters."""

    x: Array
    y: Array
    intercepts: Array
    slopes: Array

    def loglik(self, rows: Array, intercept: Array, slope: Array) -> Array:
        """Return the log-likelihoods of rows (last axis) at parameters."""
        eta = intercept[..., None] + slope[..., None] * self.x[rows]
        return self.y[rows] * eta - np.logaddexp(0, eta)

    def density(self, rows: Array, weights: Array) -> Array:
        """Return the posterior of weighted rows on the grid, over its largest value."""
        a, b = np.meshgrid(self.intercepts, self.slopes)
        log = self.loglik(rows, a, b) @ weights - (a**2 + b**2) / (2 * PRIOR_SD**2)
        return np.exp(log - log.max())

    def draws(self, rows: Array, weights: Array, rng: np.random.Generator) -> dict[str, Array]:
        """Return draws of that posterior, from the grid."""
        density = self.density(rows, weights).ravel()
        chosen = rng.choice(density.size, N_DRAWS, p=density / density.sum())
        a, b = np.meshgrid(self.intercepts, self.slopes)
        jitter = rng.uniform(-0.5, 0.5, (2, N_DRAWS))
        return {
            "intercept": a.ravel()[chosen] + jitter[0] * np.diff(self.intercepts)[0],
            "slope": b.ravel()[chosen] + jitter[1] * np.diff(self.slopes)[0],
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """Rows with their weights, and the draws that chose them (none at the start)."""

    rows: Array
    weights: Array
    draws: dict[str, Array] | None = None

    @classmethod
    def of(cls, coreset: Coreset, draws: dict[str, Array] | None = None) -> "Round":
        return cls(rows=coreset.indices, weights=coreset.weights, draws=draws)


def simulate(rng: np.random.Generator) -> Example:
    x = rng.normal(size=N_ROWS)
    y = rng.binomial(1, 1 / (1 + np.exp(0.6 - 1.1 * x)))
    return Example(
        x=x, y=y, intercepts=np.linspace(-2.4, 1.2, 241), slopes=np.linspace(-0.6, 3.2, 241)
    )


def construct(example: Example, rng: np.random.Generator) -> list[Round]:
    """Begin with uniform rows; twice, choose rows at draws of the last coreset's posterior."""
    with pm.Model() as model:
        intercept, slope = pm.Normal("intercept", 0, PRIOR_SD), pm.Normal("slope", 0, PRIOR_SD)
        pm.Bernoulli("y", logit_p=intercept + slope * example.x, observed=example.y)
    build = partial(build_coreset, model, progressbar=False, random_seed=3)
    rounds = [Round.of(build(method="uniform", size=START))]
    for _ in range(2):
        draws = example.draws(rounds[-1].rows, rounds[-1].weights, rng)
        rounds.append(Round.of(build(method="pursuit", size=SIZE, weighting=draws), draws))
    return rounds


def plane_of_vectors(example: Example, last: Round) -> Array:
    """Return the centred log-likelihoods of all rows in the plane that shows most of them."""
    assert last.draws is not None
    vectors = example.loglik(np.arange(N_ROWS), last.draws["intercept"], last.draws["slope"]).T
    vectors = (vectors - vectors.mean(axis=1, keepdims=True)) / np.sqrt(N_DRAWS)
    # The second axis holds the part of the rows that the target lacks.
    target = vectors.sum(axis=0)
    first = target / np.linalg.norm(target)
    rest = vectors - np.outer(vectors @ first, first)
    second = np.linalg.svd(rest, full_matrices=False)[2][0]
    return vectors @ np.stack([first, second], axis=1)


def scatter(ax: Axes, example: Example, ink: Ink, rng: np.random.Generator) -> Array:
    """Draw all rows; return the heights at which they are drawn."""
    heights = example.y + rng.uniform(-0.08, 0.08, N_ROWS)
    ax.scatter(example.x, heights, s=5, color=ink["faint"], alpha=0.35, lw=0)
    ax.set(xlabel="covariate", ylabel="outcome", ylim=(-0.25, 1.25))
    ax.set_yticks([0, 1], ["no", "yes"])
    return heights


def panels(count: int, *, narrow: bool, **shared: bool) -> tuple[Figure, Array]:
    """Return axes beside each other, or below each other where the page is narrow."""
    if narrow:
        return plt.subplots(count, 1, figsize=(4.2, 3 * count), **shared)
    return plt.subplots(1, count, figsize=(8.6, 3.3), **shared)


def draw_vectors(example: Example, rounds: list[Round], ink: Ink, *, narrow: bool) -> Figure:
    """Rows as points of the data, and the same rows as arrows."""
    figure, (left, right) = panels(2, narrow=narrow)
    rng = np.random.default_rng(5)
    heights = scatter(left, example, ink, rng)
    plane = plane_of_vectors(example, rounds[-1])
    some = rng.choice(N_ROWS, 150, replace=False)
    right.quiver(
        *np.zeros((2, len(some))), *plane[some].T, angles="xy", scale_units="xy", scale=1,
        width=0.003, color=ink["faint"], alpha=0.6,
    )  # fmt: skip
    marked = some[np.argsort(plane[some, 1])[[0, -1]]]
    for row, colour in zip(marked, (ink["blue"], ink["orange"]), strict=True):
        left.scatter(example.x[row], heights[row], s=60, color=colour, zorder=3)
        right.quiver(
            0, 0, *plane[row], angles="xy", scale_units="xy", scale=1, width=0.008, color=colour
        )
    ends = np.vstack([plane[some], np.zeros(2)])
    margin = 0.05 * np.ptp(ends, axis=0)
    low, high = ends.min(axis=0) - margin, ends.max(axis=0) + margin
    right.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    right.axis("off")
    left.set_title("2,000 rows of data")
    right.set_title("150 of them, as vectors of log-likelihoods")
    return figure


def path(ax: Axes, steps: Array, colour: str, label: str, **style: float) -> None:
    """Draw vectors one after the other, the shallowest first."""
    ordered = steps[np.argsort(steps[:, 1] / np.maximum(np.linalg.norm(steps, axis=1), 1e-12))]
    points = np.vstack([np.zeros(2), np.cumsum(ordered, axis=0)])
    ax.plot(*points.T, color=colour, label=label, **style)


def draw_sum(example: Example, rounds: list[Round], ink: Ink, *, narrow: bool) -> Figure:
    """All vectors one after the other, and the chosen ones: both end at the same point."""
    figure, ax = plt.subplots(figsize=(4.2, 4.2) if narrow else (8.6, 4.2))
    plane, last = plane_of_vectors(example, rounds[-1]), rounds[-1]
    path(ax, plane, ink["faint"], f"all {N_ROWS:,} rows", lw=2)
    chosen = last.weights[:, None] * plane[last.rows]
    label = f"{len(last.rows)} chosen rows, times their weights"
    path(ax, chosen, ink["orange"], label, lw=2, marker="o", ms=5)
    total = plane.sum(axis=0)
    ax.plot(*total, "*", ms=16, color=ink["blue"], label="the sum over all rows", zorder=4)
    ax.plot(0, 0, "o", ms=9, mfc="none", mec=ink["ink"], label="the start", zorder=4)
    ax.axis("off")
    figure.legend(frameon=False, loc="outside upper center", ncols=1 if narrow else 2)
    return figure


def draw_chosen(example: Example, rounds: list[Round], ink: Ink, *, narrow: bool) -> Figure:
    """The chosen rows among the data, and what both say of the curve."""
    figure, (left, right) = panels(2, narrow=narrow)
    rng, last = np.random.default_rng(5), rounds[-1]
    heights = scatter(left, example, ink, rng)
    left.scatter(
        example.x[last.rows], heights[last.rows], s=last.weights, color=ink["orange"], alpha=0.85,
        edgecolor=ink["ink"], lw=0.8, zorder=3,
    )  # fmt: skip
    left.set_title(f"{len(last.rows)} rows; a disk's area is its weight")
    a, b = example.intercepts, example.slopes
    everything = example.density(np.arange(N_ROWS), np.ones(N_ROWS))
    right.contour(a, b, everything, LEVELS, colors=ink["faint"], linewidths=5, alpha=0.6)
    right.contour(a, b, example.density(last.rows, last.weights), LEVELS, colors=ink["orange"])
    right.set(xlabel="intercept", ylabel="slope", xlim=(-0.85, -0.35), ylim=(0.8, 1.4))
    right.plot([], [], color=ink["faint"], lw=5, alpha=0.6, label="all rows")
    right.plot([], [], color=ink["orange"], label="chosen rows")
    right.legend(frameon=False, loc="upper right")
    right.set_title("The posterior of both parameters")
    return figure


def draw_rounds(example: Example, rounds: list[Round], ink: Ink, *, narrow: bool) -> Figure:
    """The coreset's posterior after each round, over that of all rows."""
    figure, axes = panels(3, narrow=narrow, sharex=True, sharey=True)
    everything = example.density(np.arange(N_ROWS), np.ones(N_ROWS))
    titles = [f"{START} uniform rows", "after round 1", "after round 2"]
    for ax, title, done in zip(axes, titles, rounds, strict=True):
        a, b = example.intercepts, example.slopes
        ax.contour(a, b, everything, LEVELS, colors=ink["faint"], linewidths=4, alpha=0.7)
        ax.contour(a, b, example.density(done.rows, done.weights), LEVELS, colors=ink["orange"])
        if done.draws is not None:
            ax.plot(*done.draws.values(), ".", ms=2, color=ink["blue"], alpha=0.4)
        ax.set(title=title, xlabel="intercept", ylabel="slope")
        ax.set(xlim=(-1.05, -0.35), ylim=(0.75, 1.5))
        ax.label_outer()
    return figure


@contextmanager
def coloured(ink: Ink) -> Iterator[None]:
    """Draw on a transparent page, with ink of the theme."""
    names = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style = dict.fromkeys(names, ink["ink"]) | {
        "savefig.transparent": True, "axes.facecolor": "none", "figure.facecolor": "none",
        "axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True,
        "font.size": 10.5, "axes.titlesize": 11, "svg.hashsalt": "pymc_coresets",
    }  # fmt: skip
    with plt.rc_context(style):
        yield


PICTURES: dict[str, Callable[..., Figure]] = {
    "vectors": draw_vectors,
    "sum": draw_sum,
    "chosen": draw_chosen,
    "rounds": draw_rounds,
}


def main() -> None:
    """Build the coresets of the example, and draw."""
    rng = np.random.default_rng(11)
    example = simulate(rng)
    rounds = construct(example, rng)
    for name, theme, width in product(PICTURES, INK, ("", "_narrow")):
        with coloured(INK[theme]):
            figure = PICTURES[name](example, rounds, INK[theme], narrow=bool(width))
            file = FOLDER / f"how_{name}_{theme}{width}.png"
            figure.savefig(file, dpi=170, metadata={"Software": None})
            plt.close(figure)


if __name__ == "__main__":
    main()
