"""Posteriors with a variable for each of many levels, of ``python -m benchmarks.trust``.

There are 250 levels or more, with few rows each: their variables are integrated out by default.
The truth about the shared variables and about some levels comes from grids, or from NUTS on a
model that is collapsed by hand, with ``easier=True``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable
from scipy.special import expit, gammainc, gammaln, ndtr, xlogy
from scipy.stats import norm
from scipy.stats import t as student

from benchmarks.trust_grids import (
    Curves,
    Known,
    NormalLevels,
    Points,
    Quantiles,
    grid,
    half_normal,
    normal,
    quantiles,
)
from benchmarks.trust_models import Array, Rng

__all__ = [
    "JUDGED",
    "children",
    "correlated",
    "few_members",
    "horseshoe_and_levels",
    "neighbours",
    "no_variation",
    "other_order",
    "phases",
    "rates",
    "shifted_readings",
    "student_effects",
    "wide_levels",
    "without_rows",
    "zero_inflated",
]

type Tensor = TensorVariable[Any, Any]

N_LEVELS, N_ROWS = 300, 5
JUDGED = (0, 7, 100, N_LEVELS - 1)  # levels


def _index(n_levels: int = N_LEVELS, n_rows: int = N_ROWS) -> Array:
    return np.repeat(np.arange(n_levels), n_rows)


# -- normal rows: which level a row belongs to, and how much levels differ -------------------------


def _normal(
    rng: Rng,
    seen: Array,
    see: Callable[[Tensor, Array], Tensor],
    *,
    judged: Sequence[int] = JUDGED,
    **scales: float,
) -> Known:
    """Return normal rows of effects around a mean, of which `seen` says how groups see them."""
    scale = {"mean": 1.0, "mean_prior": 5.0, "tau": 0.8, "tau_prior": 1.0, "s": 1.0} | scales
    effect = rng.normal(scale["mean"], scale["tau"], seen.shape[1])
    y = rng.normal((seen @ effect)[:, None], scale["s"], (seen.shape[0], N_ROWS))
    group = _index(seen.shape[0])

    def build() -> None:
        mean = pm.Normal("mean", 0, scale["mean_prior"])
        tau = pm.HalfNormal("tau", scale["tau_prior"])
        effect = pm.Normal("effect", mean, tau, shape=seen.shape[1])
        pm.Normal("y", see(effect, group), pm.HalfNormal("s"), observed=y.ravel())

    levels = NormalLevels(
        y=y,
        seen=seen,
        own=np.ones(seen.shape[1]),
        shift=(30.0, normal(0, scale["mean_prior"])),
        tau=(3 * scale["tau_prior"], scale["tau_prior"]),
    )
    return Known(build=build, truth=lambda: levels.truth("mean", "effect", judged))


def neighbours(rng: Rng) -> Known:
    """Rows see their own level's effect, and 0.7 times that of another level."""
    neighbour = rng.permutation(N_LEVELS)
    seen = np.eye(N_LEVELS) + 0.7 * np.eye(N_LEVELS)[neighbour]
    return _normal(rng, seen, lambda effect, g: effect[g] + 0.7 * effect[neighbour][g])


def without_rows(rng: Rng) -> Known:
    """Every tenth level has no rows: its effect has the prior's distribution."""
    with_rows = np.flatnonzero(np.arange(N_LEVELS) % 10 != 3)
    return _normal(
        rng,
        np.eye(N_LEVELS)[with_rows],
        lambda effect, g: effect[with_rows[g]],
        judged=(0, 3, 103, 299),
        mean=20.0,
        mean_prior=20.0,
        tau=0.45,
    )


def no_variation(rng: Rng) -> Known:
    """Levels that do not differ: their scale is bounded on one side."""
    return _normal(rng, np.eye(N_LEVELS), lambda effect, g: effect[g], tau=0.0)


def wide_levels(rng: Rng) -> Known:
    """Levels that differ by twenty times the width of their posteriors."""
    return _normal(
        rng, np.eye(N_LEVELS), lambda effect, g: effect[g], tau=4.5, tau_prior=10.0, s=0.5
    )


def children(rng: Rng) -> Known:
    """Rows see the variable of their level's parent, not centred: some have several children."""
    parent = rng.integers(0, N_LEVELS, N_LEVELS)
    seen, group = np.eye(N_LEVELS)[parent], _index()
    z = rng.normal(size=N_LEVELS)
    y = rng.normal((1 + 0.8 * z[parent])[:, None], 1.0, (N_LEVELS, N_ROWS))

    def build() -> None:
        mean, tau = pm.Normal("mean", 0, 5), pm.HalfNormal("tau", 1)
        z = pm.Normal("z", shape=N_LEVELS)
        pm.Normal("y", mean + tau * z[parent][group], pm.HalfNormal("s"), observed=y.ravel())

    levels = NormalLevels(y=y, seen=seen, own=None, shift=(30.0, normal(0, 5)), tau=(3.0, 1.0))
    return Known(build=build, truth=lambda: levels.truth("mean", "z", JUDGED))


def other_order(rng: Rng) -> Known:
    """Effects with a covariate, and rows whose levels are numbered in another order."""
    order, group = rng.permutation(N_LEVELS), _index()
    seen, w = np.eye(N_LEVELS)[order], rng.normal(size=N_LEVELS)
    effect = rng.normal(1.2 * w, 0.6)
    y = rng.normal((seen @ effect)[:, None], 1.0, (N_LEVELS, N_ROWS))

    def build() -> None:
        slope, tau = pm.Normal("slope", 0, 5), pm.HalfNormal("tau", 1)
        effect = pm.Normal("effect", slope * w, tau, shape=N_LEVELS)
        pm.Normal("y", effect[order][group], pm.HalfNormal("s"), observed=y.ravel())

    levels = NormalLevels(y=y, seen=seen, own=w, shift=(30.0, normal(0, 5)), tau=(3.0, 1.0))
    return Known(build=build, truth=lambda: levels.truth("slope", "effect", JUDGED))


# -- several modes of a level ----------------------------------------------------------------------


def shifted_readings(rng: Rng) -> Known:
    """Each reading is shifted by 8 or not: where all four agree, both may be the level's."""
    n_levels, n_rows, s, shift = 400, 4, 0.4, 8.0
    effect = rng.normal(0, 2, n_levels)
    shifted = rng.random((n_levels, n_rows)) < 0.5
    y = rng.normal(effect[:, None] + shift * shifted, s)
    group = _index(n_levels, n_rows)

    def build() -> None:
        mean, tau = pm.Normal("mean", 0, 5), pm.HalfNormal("tau", 5)
        effect = pm.Normal("effect", mean, tau, shape=n_levels)
        places = pt.stack([effect[group], effect[group] + shift], axis=-1)
        pm.NormalMixture("y", [0.5, 0.5], places, s, observed=y.ravel())

    def rows(_: float) -> Array:
        apart = y[:, :, None] - curves.nodes
        both = np.logaddexp(norm.logpdf(apart, 0, s), norm.logpdf(apart - shift, 0, s))
        return (both - np.log(2)).sum(axis=1)

    ambiguous = np.flatnonzero(shifted.all(axis=1) | ~shifted.any(axis=1))[:3]
    curves = Curves(
        nodes=np.linspace(-30, 30, 2_001),
        rows=rows,
        log_prior=_normal_prior,
        shared={
            "mean": ((-10.0, 10.0), normal(0, 5)),
            "tau": ((0.05, 15.0), half_normal(5)),
        },
    )
    return Known(build=build, truth=lambda: curves.truth(61, "effect", (0, *map(int, ambiguous))))


def phases(rng: Rng) -> Known:
    """A wave's phase for each level, with a prior that is wider than a period."""
    n_rows = 8
    angle = rng.normal(0, 1.5, N_LEVELS)
    x = rng.uniform(0, 2 * np.pi, (N_LEVELS, n_rows))
    y = rng.normal(np.sin(x + angle[:, None]), 0.5)
    group = _index(n_rows=n_rows)

    def build() -> None:
        angle = pm.Normal("phase", 0, pm.HalfNormal("tau", 2), shape=N_LEVELS)
        mean = pt.sin(x.ravel() + angle[group])
        pm.Normal("y", mean, pm.HalfNormal("s"), observed=y.ravel())

    nodes = np.linspace(-50, 50, 3_201)
    left = sum(np.square(y[:, [r]] - np.sin(x[:, [r]] + nodes)) for r in range(n_rows))
    curves = Curves(
        nodes=nodes,
        rows=lambda s: -n_rows * np.log(s) - left / (2 * s**2),
        log_prior=_normal_prior,
        shared={"s": ((0.2, 1.5), half_normal(1)), "tau": ((0.1, 12.0), half_normal(2))},
        row_variable="s",
    )
    farthest = tuple(int(j) for j in np.argsort(-np.abs(angle))[:2])
    return Known(build=build, truth=lambda: curves.truth(61, "phase", (0, 7, *farthest)))


def _normal_prior(nodes: Array, points: Points) -> Array:
    return norm.logpdf(nodes, points.get("mean", 0.0), points["tau"])


# -- tails -----------------------------------------------------------------------------------------


def student_effects(rng: Rng) -> Known:
    """Effects with a t distribution of two degrees of freedom, and binary rows."""
    n_rows = 6
    effect = 0.3 + 0.8 * rng.standard_t(2, N_LEVELS)
    y = rng.binomial(1, expit(effect)[:, None], (N_LEVELS, n_rows))
    group, sums = _index(n_rows=n_rows), y.sum(axis=1)

    def build() -> None:
        mean, tau = pm.Normal("mean", 0, 2), pm.HalfNormal("tau", 2)
        effect = pm.StudentT("effect", nu=2, mu=mean, sigma=tau, shape=N_LEVELS)
        pm.Bernoulli("y", logit_p=effect[group], observed=y.ravel())

    def rows(_: float) -> Array:
        z = curves.nodes
        return -sums[:, None] * np.logaddexp(0, -z) - (n_rows - sums)[:, None] * np.logaddexp(0, z)

    judged = [int(np.flatnonzero(sums == k)[0]) for k in (0, 3, n_rows)]
    curves = Curves(
        nodes=np.sinh(np.linspace(-13, 13, 4_001)),
        rows=rows,
        log_prior=lambda z, points: student.logpdf(z, 2, points["mean"], points["tau"]),
        shared={
            "mean": ((-3.0, 3.0), normal(0, 2)),
            "tau": ((0.02, 8.0), half_normal(2)),
        },
    )
    return Known(build=build, truth=lambda: curves.truth(81, "effect", judged))


def rates(rng: Rng) -> Known:
    """Poisson rates with a gamma distribution of shape 0.3: most levels have no events."""
    rate = rng.gamma(0.3, 1 / 0.6, N_LEVELS)
    y = rng.poisson(rate[:, None], (N_LEVELS, N_ROWS))
    group, sums = _index(), y.sum(axis=1)
    prior = half_normal(2)

    def build() -> None:
        shape, inverse = pm.HalfNormal("shape", 2), pm.HalfNormal("inverse", 2)
        rate = pm.Gamma("rate", shape, inverse, shape=N_LEVELS)
        pm.Poisson("y", rate[group], observed=y.ravel())

    def log_density(points: Points) -> Array:
        a, b = points["shape"], points["inverse"]
        total = sums[:, None] + a
        levels = gammaln(total) - gammaln(a) + xlogy(a, b) - total * np.log(b + N_ROWS)
        return levels.sum(axis=0) + prior(a) + prior(b)

    def truth() -> dict[str, Quantiles]:
        found = grid(log_density, {"shape": (1e-3, 3.0), "inverse": (1e-3, 6.0)}, 121)
        points, masses = found.points

        def level(j: int) -> Quantiles:
            a, b = sums[j] + points["shape"], N_ROWS + points["inverse"]
            return quantiles(lambda u: float(masses @ gammainc(a, b * u)), 0.0, 100.0)

        judged = [*np.flatnonzero(sums == 0)[:2], int(sums.argmax())]
        return {name: found.quantiles(name) for name in found.axes} | {
            f"rate[{j}]": level(j) for j in judged
        }

    return Known(build=build, truth=truth)


def zero_inflated(rng: Rng) -> Known:
    """Counts with excess zeros, and an effect for each level."""
    n_rows = 6
    effect = rng.normal(0.8, 0.7, N_LEVELS)
    counted = rng.random((N_LEVELS, n_rows)) < 0.7
    y = counted * rng.poisson(np.exp(effect)[:, None], (N_LEVELS, n_rows))
    group = _index(n_rows=n_rows)

    def build() -> None:
        mean, tau = pm.Normal("mean", 0, 2), pm.HalfNormal("tau", 1)
        effect = pm.Normal("effect", mean, tau, shape=N_LEVELS)
        psi = pm.Beta("psi", 1, 1)
        pm.ZeroInflatedPoisson("y", psi=psi, mu=pt.exp(effect[group]), observed=y.ravel())

    zeros, n_events = (y == 0).sum(axis=1)[:, None], n_rows - (y == 0).sum(axis=1)[:, None]

    def rows(psi: float) -> Array:
        z, rate = curves.nodes, np.exp(curves.nodes)
        empty = np.logaddexp(np.log1p(-psi), np.log(psi) - rate)
        return zeros * empty + n_events * (np.log(psi) - rate) + y.sum(axis=1)[:, None] * z

    curves = Curves(
        nodes=np.linspace(-8, 8, 801),
        rows=rows,
        log_prior=_normal_prior,
        shared={
            "psi": ((0.02, 0.99), np.zeros_like),
            "mean": ((-3.0, 3.0), normal(0, 2)),
            "tau": ((0.02, 4.0), half_normal(1)),
        },
        row_variable="psi",
    )
    return Known(build=build, truth=lambda: curves.truth(35, "effect", JUDGED))


# -- two variables of a level ----------------------------------------------------------------------


def correlated(rng: Rng) -> Known:
    """An intercept and a slope for each level, the correlation of which is 0.99."""
    s, true = 0.5, np.array([[1.0, 0.693], [0.693, 0.49]])
    own = rng.multivariate_normal([0, 0], true, N_LEVELS)
    x = rng.normal(size=(N_LEVELS, N_ROWS))
    y = rng.normal(own[:, [0]] + own[:, [1]] * x, s)
    group, prior = _index(), half_normal(1)
    ones = np.ones_like(x)
    products = np.array([[(a * b).sum(axis=1) for a in (ones, x)] for b in (ones, x)]) / s**2
    slope = np.stack([y.sum(axis=1), (x * y).sum(axis=1)]) / s**2

    def build() -> None:
        tau, rho = pm.HalfNormal("tau", 1, shape=2), pm.Uniform("rho", -1, 1)
        second = [rho * tau[1], pt.sqrt(1 - rho**2) * tau[1]]
        root = pt.stack([pt.stack([tau[0], 0.0]), pt.stack(second)])
        own = pm.MvNormal("own", mu=np.zeros(2), chol=root, shape=(N_LEVELS, 2))
        mean = own[group, 0] + own[group, 1] * x.ravel()
        pm.Normal("y", mean, s, observed=y.ravel())

    def precision(points: Points, j: slice) -> tuple[Array, Array, Array, Array]:
        """Return the precisions given the shared variables, and the prior's determinant."""
        a, b, rho = (points[name][:, None] for name in ("tau[0]", "tau[1]", "rho"))
        rest = 1 - rho**2
        of_slopes = products[1, 1, j] + 1 / (rest * b**2)
        return (
            products[0, 0, j] + 1 / (rest * a**2),
            products[0, 1, j] - rho / (rest * a * b),
            of_slopes,
            rest * (a * b) ** 2,
        )

    def log_density(points: Points) -> Array:
        p, q, r, prior_determinant = precision(points, slice(None))
        determinant = p * r - q**2
        fitted = (r * slope[0] ** 2 - 2 * q * slope[0] * slope[1] + p * slope[1] ** 2) / determinant
        levels = (fitted - np.log(determinant * prior_determinant)).sum(axis=1) / 2
        return levels + prior(points["tau[0]"]) + prior(points["tau[1]"])

    def level(posterior: tuple[Points, Array], j: int, k: int) -> Quantiles:
        points, masses = posterior
        p, q, r, _ = (found[:, 0] for found in precision(points, slice(j, j + 1)))
        determinant, (u, v) = p * r - q**2, slope[:, j]
        mean = (r * u - q * v if k == 0 else p * v - q * u) / determinant
        sd = np.sqrt((r if k == 0 else p) / determinant)
        low, high = (mean - 9 * sd).min(), (mean + 9 * sd).max()
        return quantiles(lambda at: float(masses @ ndtr((at - mean) / sd)), low, high)

    def truth() -> dict[str, Quantiles]:
        box = {"tau[0]": (0.1, 4.0), "tau[1]": (0.1, 4.0), "rho": (0.5, 1 - 1e-9)}
        found = grid(log_density, box, 61)
        return {name: found.quantiles(name) for name in box} | {
            f"own[{j}, {k}]": level(found.points, j, k) for j in JUDGED[:3] for k in range(2)
        }

    return Known(build=build, truth=truth)


# -- collapsed by hand -----------------------------------------------------------------------------


def few_members(rng: Rng) -> Known:
    """Ten binary answers of persons of four classes; one has eight members and an unknown place."""
    sizes, offset = [192, 120, 80, 8], np.linspace(-0.5, 0.5, 10)
    places = np.array([-2.0, -0.3, 1.0, 3.0])
    y = rng.binomial(1, expit(places[np.repeat(np.arange(4), sizes), None] + offset))
    sums = y.sum(axis=1)
    counts, totals = np.unique(sums, return_counts=True)  # a class is told by the sum of answers

    def build() -> None:
        shares, last = pm.Dirichlet("shares", np.ones(4)), pm.Normal("last", 2, 1)
        own = pm.Categorical("own", p=shares, shape=len(y))
        place = pt.concatenate([places[:3], last[None]])
        pm.Bernoulli("y", logit_p=(place[:, None] + offset)[own], observed=y)

    def rows(place: Array) -> Array:
        """Return the likelihoods of sums (n_places, n_sums), up to their own factors."""
        none = np.logaddexp(0, place[:, None] + offset).sum(axis=1)
        return np.exp(place[:, None] * counts - none[:, None])

    fixed, prior = rows(places[:3]), normal(2, 1)

    def log_density(order: tuple[int, ...]) -> Callable[[Points], Array]:
        """Return that of shares which are broken off a stick in this order."""

        def found(points: Points) -> Array:
            v = [points[f"v{k}"] for k in range(3)]
            broken = [v[0], (1 - v[0]) * v[1], (1 - v[0]) * (1 - v[1]) * v[2]]
            shares = [*broken, 1 - sum(broken)]
            own = [*fixed, rows(points["last"])]
            each = sum(share[:, None] * own[k] for k, share in zip(order, shares, strict=True))
            sticks = 2 * np.log1p(-v[0]) + np.log1p(-v[1])  # their prior: beta(1, 3), beta(1, 2)
            return np.log(each) @ totals + sticks + prior(points["last"])

        return found

    def truth() -> dict[str, Quantiles]:
        box = {f"v{k}": (1e-6, 1 - 1e-6) for k in range(3)} | {"last": (-2.0, 7.0)}
        found, log_mass = {}, []
        for k in range(4):
            order = (k, *(j for j in range(4) if j != k))
            posterior = grid(log_density(order), box, 61)
            found[f"shares[{k}]"] = posterior.quantiles("v0")
            log_mass.append(posterior.log_mass)
        if np.ptp(log_mass) > 1e-3:
            raise ArithmeticError(f"the grids are too coarse: log-masses of {log_mass}")
        return found | {"last": posterior.quantiles("last")}

    return Known(build=build, truth=truth)


def horseshoe_and_levels(rng: Rng, *, easier: bool) -> None:
    """Four slopes with local scales, of which one is not zero, beside an effect for each level."""
    n_levels = 600
    group = _index(n_levels)
    x = rng.normal(size=(len(group), 4))
    y = 1 + 0.5 * x[:, 0] + rng.normal(0, 0.7, n_levels)[group] + rng.normal(size=len(group))
    width, local = pm.HalfCauchy("width", 0.1), pm.HalfCauchy("local", 1, shape=4)
    mean = pm.Normal("a") + x @ (width * local * pm.Normal("z", shape=4))
    tau, s = pm.HalfNormal("tau"), pm.HalfNormal("s")
    if easier:
        rest = (y - mean).reshape((n_levels, N_ROWS))
        middle, spread = rest.mean(axis=1), pt.sqrt(tau**2 + s**2 / N_ROWS)
        within = ((rest - middle[:, None]) ** 2).sum()
        few = n_levels * (N_ROWS - 1)
        pm.Potential("within", -few * pt.log(s) - within / (2 * s**2))
        pm.Potential("between", pm.logp(pm.Normal.dist(0, spread), middle).sum())
        shrunk = middle * tau**2 / spread**2
        sd = tau * s / (spread * np.sqrt(N_ROWS))
        noise = pm.Normal("noise", shape=len(JUDGED))
        some = np.zeros(n_levels, dtype=int)
        some[list(JUDGED)] = np.arange(len(JUDGED))
        pm.Deterministic("effect", shrunk + sd * noise[some])
    else:
        effect = pm.Normal("effect", 0, tau, shape=n_levels)
        pm.Normal("y", mean + effect[group], s, observed=y)
