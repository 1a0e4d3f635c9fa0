"""Posteriors with many modes, or with modes far apart, of ``python -m benchmarks.trust``.

Modes that are images of each other have equal mass: with ``easier=True`` a model has one of them,
and an independent uniform variable chooses the image.  Others are integrated over grids.
"""

from itertools import permutations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered
from scipy.stats import norm

from benchmarks.trust_grids import (
    Grid,
    Known,
    Points,
    Prior,
    Quantiles,
    grid,
    half_normal,
    mixed,
    normal,
    quantiles,
)
from benchmarks.trust_models import Array, N, Rng

__all__ = ["distant_clusters", "exchangeable_means", "phase", "squares"]


# -- images of each other --------------------------------------------------------------------------


def exchangeable_means(rng: Rng, *, easier: bool, n_means: int, n: int) -> None:
    """A mixture of normals of equal shares: each order of the means is a mode."""
    true = 4.0 * np.arange(n_means) - 2.0 * (n_means - 1)
    y = rng.normal(true[rng.integers(0, n_means, n)], 1.0)
    if easier:
        each = pm.Normal("sorted", 0, 10, shape=n_means, transform=ordered, initval=true)
        images = np.array(list(permutations(range(n_means))))
        which = pt.cast(pt.floor(pm.Uniform("level") * len(images)), "int64")
        pm.Deterministic("mu", each[pt.as_tensor(images)[which]])
    else:
        each = pm.Normal("mu", 0, 10, shape=n_means)
    shares = np.full(n_means, 1 / n_means)
    pm.NormalMixture("y", shares, each, pm.HalfNormal("s"), observed=y)


def squares(rng: Rng, *, easier: bool) -> None:
    """Four slopes that are squares: each root has two signs."""
    x = rng.normal(size=(N, 4))
    y = rng.normal(1 + x @ np.square([0.4, 0.6, 0.8, 1.0]), 0.5)
    if easier:
        size, level = pm.HalfNormal("size", 1, shape=4), pm.Uniform("level", shape=4)
        root = pm.Deterministic("root", pt.switch(level < 0.5, -1.0, 1.0) * size)
    else:
        root = pm.Normal("root", 0, 1, shape=4)
    pm.Normal("y", pm.Normal("a") + x @ root**2, pm.HalfNormal("s"), observed=y)


# -- others ----------------------------------------------------------------------------------------


def _together(parts: list[Grid]) -> dict[str, Quantiles]:
    """Return the quantile functions of a posterior that has been integrated in parts."""
    masses = np.array([part.log_mass for part in parts])
    shares = np.exp(masses - masses.max())
    found = {}
    for name in parts[0].axes:
        ends = [part.axes[name][[0, -1]] for part in parts]
        cdf = mixed(shares / shares.sum(), [part.cdf(name) for part in parts])
        found[name] = quantiles(cdf, float(np.min(ends)), float(np.max(ends)))
    return found


def phase(rng: Rng) -> Known:
    """A wave's phase with a prior of six periods: modes of many masses, all images of one."""
    x = rng.uniform(0, 2 * np.pi, N)
    y = rng.normal(np.sin(x + 1), 0.5)
    waves = np.stack([np.sin(x), np.cos(x)])
    squares_of, products, total = waves @ waves.T, waves @ y, y @ y
    size_prior, s_prior = half_normal(2), half_normal(1)

    def build() -> None:
        angle, size = pm.Normal("phase", 0, 20), pm.HalfNormal("size", 2)
        mean = size * pt.sin(x + angle)
        pm.Normal("y", mean, pm.HalfNormal("s", 1), observed=y)

    def log_density(points: Points) -> Array:
        angle, size, s = points["phase"], points["size"], points["s"]
        turn = size * np.stack([np.cos(angle), np.sin(angle)])
        left = total - 2 * products @ turn + (turn * (squares_of @ turn)).sum(axis=0)
        rows = -N * np.log(s) - left / (2 * s**2)
        return rows + norm.logpdf(angle, 0, 20) + size_prior(size) + s_prior(s)

    def truth() -> dict[str, Quantiles]:
        centres = 1 + 2 * np.pi * np.arange(-20, 21)
        return _together(
            [
                grid(
                    log_density,
                    {"phase": (c - 1.0, c + 1.0), "size": (0.5, 1.5), "s": (0.3, 0.8)},
                    41,
                )
                for c in centres
            ]
        )

    return Known(build=build, truth=truth)


def distant_clusters(rng: Rng, *, proper: bool) -> Known:
    """Two clusters of rows, 40 apart, that are mirror images about 13; and a row prefers one."""
    x, nu, wide, centre = rng.normal(size=N // 2), 3, 100, 13.0
    near = 20 + 0.3 * x + rng.standard_t(nu, size=N // 2)
    x, y = np.r_[x, -x, 0.0], centre + np.r_[near, -near, 5.0]
    prior: Prior = normal(0, wide) if proper else np.zeros_like

    def build() -> None:
        m = pm.Normal("m", 0, wide) if proper else pm.Flat("m")
        pm.StudentT("y", nu=nu, mu=m + pm.Normal("b") * x, sigma=1.0, observed=y)

    def log_density(points: Points) -> Array:
        m, b = points["m"], points["b"]
        found = prior(m) + norm.logpdf(b)
        for i in range(len(m)):
            found[i] -= (nu + 1) / 2 * np.log1p((y - m[i] - b[i] * x) ** 2 / nu).sum()
        return found

    def truth() -> dict[str, Quantiles]:
        boxes = [{"m": (m - 3, m + 3), "b": (-2, 2)} for m in (centre - 20, centre + 20)]
        return _together([grid(log_density, box, 61) for box in boxes])

    return Known(build=build, truth=truth)
