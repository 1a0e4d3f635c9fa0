"""Posteriors that are hard to vouch for, of ``python -m benchmarks.trust``.

Each function adds a model's variables.  With ``easier=True`` it adds the same posterior in another
form, of which NUTS on all rows returns the tails: with other coordinates, with a variable
integrated over a grid, or without variables whose marginal distributions are known exactly.
"""

from collections.abc import Callable
from typing import Any

import bambi
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable
from scipy.special import expit

from benchmarks.reliability_models import regression

__all__ = [
    "ALONE",
    "bounded_slopes",
    "empty_component",
    "few_groups",
    "groups_that_hardly_differ",
    "horseshoe",
    "like_poisson",
    "normal_by_student",
    "separated_columns",
    "sure_counts",
    "two_clusters",
    "two_scales",
    "two_signs",
    "weighted_groups",
    "zero_rows",
]

type Rng = np.random.Generator
type Array = np.ndarray
type Tensor = TensorVariable[Any, Any]
type Unbound = Callable[[], object]

N = 4_000


def on_grid(name: str, grid: Array, log_density: Tensor) -> Tensor:
    """Add the integral of a density over an even grid to the model, and return a draw from it."""
    pm.Potential(f"{name}_integral", pt.logsumexp(log_density))
    shares = pt.special.softmax(log_density)
    below, level = pt.cumsum(shares), pm.Uniform(f"{name}_level")
    cell = pt.minimum(pt.searchsorted(below, level), len(grid) - 1)
    part = (below[cell] - level) / shares[cell]
    return pt.as_tensor(grid)[cell] + (grid[1] - grid[0]) * (0.5 - part)


# -- dispersions and degrees of freedom ------------------------------------------------------------


def like_poisson(rng: Rng, *, easier: bool) -> None:  # noqa: ARG001
    """Counts that are nearly Poisson: their dispersion is bounded on one side."""
    x = rng.normal(size=(N, 26))
    mean = np.exp(x @ rng.normal(0, 0.08, size=26))
    y = rng.negative_binomial(30, 30 / (30 + mean))
    eta = pm.Normal("a") + x @ pm.Normal("b", shape=26)
    pm.NegativeBinomial("y", mu=pt.exp(eta), alpha=pm.HalfCauchy("alpha", 5), observed=y)


def zero_rows(rng: Rng, *, easier: bool) -> None:  # noqa: ARG001
    """Counts with two dispersions, of which a few rows without events want one to be infinite."""
    x, rare = rng.normal(size=(N, 5)), np.arange(N) < 30
    mean = np.exp(0.3 + x @ rng.normal(0, 0.3, size=5))
    y = np.where(rare, 0, rng.negative_binomial(2, 2 / (2 + mean)))
    eta = pm.Normal("a") + x @ pm.Normal("b", shape=5)
    alpha = pm.HalfCauchy("alpha", 1, shape=2)[rare.astype(int)]
    pm.NegativeBinomial("y", mu=pt.exp(eta), alpha=alpha, observed=y)


def normal_by_student(rng: Rng, *, easier: bool, columns: int) -> None:  # noqa: ARG001
    """Normal data by a t distribution: its degrees of freedom are bounded on one side."""
    if columns:
        _, truth, mean = regression(rng, N, columns)
        nu = pm.Gamma("nu", 2, 0.1)
    else:
        truth, mean, nu = 0.5, pm.Normal("mean"), pm.HalfCauchy("nu", 10)
    y = rng.normal(truth, 0.7, size=N)
    pm.StudentT("y", nu=nu, mu=mean, sigma=pm.HalfNormal("s"), observed=y)


def sure_counts(rng: Rng, *, easier: bool) -> None:  # noqa: ARG001
    """Poisson counts with excess zeros, of which there are none."""
    _, truth, eta = regression(rng, N, 25, 0.5)
    y = rng.poisson(np.exp(truth))
    pm.ZeroInflatedPoisson("y", psi=pm.Beta("psi", 1, 1), mu=pt.exp(eta), observed=y)


# -- variables that the data say nothing of --------------------------------------------------------


def _funnel() -> None:
    pm.Normal("u", 0, pt.exp(pm.Normal("ls", 0, 1.5)))


def _cauchy() -> None:
    pm.Cauchy("u", 0, 1)


def _beta() -> None:
    pm.Beta("u", 0.3, 0.3)


def _gamma() -> None:
    pm.Gamma("u", 0.2, 1)


def _bimodal() -> None:
    pm.NormalMixture("u", [0.5, 0.5], [-3, 3], [0.7, 0.7])


def _beside(columns: int, alone: Unbound) -> Callable[..., None]:
    """Return a logistic regression, beside which there are variables that no row depends on."""

    def build(rng: Rng, *, easier: bool) -> None:
        x = rng.normal(size=(N, columns))
        y = rng.binomial(1, expit(x @ rng.normal(0, columns**-0.5, size=columns)))
        pm.Bernoulli("y", logit_p=x @ pm.Normal("b", shape=columns), observed=y)
        if not easier:
            alone()

    return build


#: Logistic regressions beside variables of known distributions, by the kind of these.
ALONE = {
    "funnel": _beside(28, _funnel),
    "cauchy": _beside(28, _cauchy),
    "beta": _beside(4, _beta),
    "gamma": _beside(28, _gamma),
    "bimodal": _beside(28, _bimodal),
}


# -- groups ----------------------------------------------------------------------------------------


def groups_that_hardly_differ(rng: Rng, *, easier: bool) -> None:
    """Eight groups, the spread of which may be zero: a funnel that the data bound on one side."""
    group, x = rng.integers(0, 8, N), rng.normal(size=N)
    s = pm.HalfNormal("s")
    if easier:
        a = pm.Deterministic("a", s * pm.Normal("z", shape=8))
    else:
        a = pm.Normal("a", 0, s, shape=8)
    pm.Normal("y", a[group] + pm.Normal("b") * x, 1.0, observed=rng.normal(x, 1.0))


def few_groups(rng: Rng, *, easier: bool) -> None:  # noqa: ARG001
    """Three groups, which tell little of their spread."""
    group, x = rng.integers(0, 3, N), rng.normal(size=N)
    a = pm.Normal("a", pm.Normal("m", 0, 5), pm.HalfCauchy("s", 5), shape=3)
    truth = np.array([-0.7, 0.1, 0.9])[group] + 0.5 * x
    eta = a[group] + pm.Normal("b") * x
    pm.Bernoulli("y", logit_p=eta, observed=rng.binomial(1, expit(truth)))


def weighted_groups(rng: Rng) -> pm.Model:
    """Return Bambi's own model of a survey: weighted rows, and twelve levels of a factor."""
    level, x = rng.integers(0, 12, N), rng.normal(size=N)
    y = 1 + 0.5 * x + rng.normal(0, 0.3, size=12)[level] + rng.normal(size=N)
    table = pd.DataFrame(
        {
            "g": [f"g{k}" for k in level],
            "x": x,
            "y": y,
            "w": rng.integers(1, 10, N),
        }
    )
    model = bambi.Model("weighted(y, w) ~ x + (1|g)", table)
    model.build()
    return model.backend.model


def two_clusters(rng: Rng, *, easier: bool) -> None:
    """A robust hierarchy with two clusters of rows in one group, which are mirror images."""
    n_groups, n_pairs, nu, scale = 29, 20, 3, 0.25
    level = rng.normal(0, 0.5, size=n_groups)
    group = np.repeat(np.arange(1, n_groups), 110)
    y = level[group] + scale * rng.standard_t(nu, size=len(group))
    cluster = rng.normal(1, 0.1, size=n_pairs)
    pair = np.concatenate([cluster, -cluster])
    mean, tau = pm.Normal("mean"), pm.HalfNormal("tau")
    if easier:
        grid, own = np.linspace(-2.5, 2.5, 1_001), pm.Normal.dist(mean, tau)
        rows = (nu + 1) / 2 * np.log1p(((pair - grid[:, None]) / scale) ** 2 / nu)
        others = pm.Normal("others", mean, tau, shape=n_groups - 1)
        first = on_grid("first", grid, pm.logp(own, grid) - rows.sum(axis=1))
        pm.Deterministic("t", pt.concatenate([first[None], others]))
        pm.StudentT("y", nu=nu, mu=others[group - 1], sigma=scale, observed=y)
    else:
        t = pm.Normal("t", mean, tau, shape=n_groups)
        group, y = np.concatenate([np.zeros(2 * n_pairs, int), group]), np.concatenate([pair, y])
        pm.StudentT("y", nu=nu, mu=t[group], sigma=scale, observed=y)


# -- slopes ----------------------------------------------------------------------------------------


def bounded_slopes(rng: Rng, *, easier: bool) -> None:  # noqa: ARG001
    """Two slopes with a bound, at and beyond which the data want them to be."""
    _, truth, eta = regression(rng, N, 24)
    z = rng.normal(size=(N, 2))
    eta += pm.Uniform("share", 0, 1) * z[:, 0] + pm.HalfNormal("positive") * z[:, 1]
    pm.Bernoulli("y", logit_p=eta, observed=rng.binomial(1, expit(truth - 0.03 * z[:, 1])))


def separated_columns(rng: Rng, *, easier: bool) -> None:
    """Four dummies of a dozen rows each, which separate the outcomes, and wide Cauchy priors."""
    _, truth, eta = regression(rng, N, 22)
    level = np.arange(N) // 12
    dummies = (level[:, None] == np.arange(4)).astype(float)
    y = np.where(level < 4, level % 2, rng.binomial(1, expit(truth)))
    if easier:
        turn = pt.erf(pm.Normal("z", shape=4) / np.sqrt(2)) / 2  # -1/2 to 1/2, uniformly
        slopes = pm.Deterministic("separated", 2.5 * pt.tan(np.pi * turn))
    else:
        slopes = pm.Cauchy("separated", 0, 2.5, shape=4)
    pm.Bernoulli("y", logit_p=eta + dummies @ slopes, observed=y)


def two_scales(rng: Rng, *, easier: bool) -> None:
    """A spike and a slab: a slope that 15 rows tell little of is either small or wide."""
    n_few, share, sds = 15, [0.5, 0.5], [0.05, 3.0]
    _, truth, eta = regression(rng, N, 25)
    few = np.arange(N) < n_few
    y = np.where(few, np.arange(N) % 3 > 0, rng.binomial(1, expit(truth))).astype(int)
    if easier:
        grid = np.linspace(-12, 12, 2_401)
        prior = pm.logp(pm.NormalMixture.dist(share, [0, 0], sds), grid)
        sign = 2 * y[:n_few] - 1
        rows = -pt.softplus(-sign * (eta[:n_few] + grid[:, None])).sum(axis=1)
        pm.Deterministic("slope", on_grid("slope", grid, prior + rows))
        pm.Bernoulli("y", logit_p=eta[n_few:], observed=y[n_few:])
    else:
        slope = pm.NormalMixture("slope", share, [0, 0], sds)
        pm.Bernoulli("y", logit_p=eta + slope * few, observed=y)


def two_signs(rng: Rng, *, easier: bool) -> None:
    """A slope that is a square: its root has two signs, one of which the prior prefers."""
    x = rng.normal(size=N)
    y = rng.normal(1 + 0.36 * x, 0.5)
    if easier:
        size, level = pm.HalfFlat("size"), pm.Uniform("level")
        each = pm.logp(pm.Normal.dist(0.5, 1), pt.stack([-size, size]))
        pm.Potential("both", pt.logsumexp(each))
        sign = pt.switch(level < pt.special.softmax(each)[0], -1.0, 1.0)
        root = pm.Deterministic("root", sign * size)
    else:
        root = pm.Normal("root", 0.5, 1)
    pm.Normal("y", pm.Normal("a") + root**2 * x, pm.HalfNormal("s"), observed=y)


def horseshoe(rng: Rng, *, easier: bool) -> None:  # noqa: ARG001
    """Slopes with local scales, of which only three are not zero."""
    x = rng.normal(size=(N, 12))
    y = 1 + x[:, :3] @ [0.5, -0.3, 0.1] + rng.normal(0, 1, size=N)
    tau, local = pm.HalfCauchy("tau", 0.1), pm.HalfCauchy("local", 1, shape=12)
    b = tau * local * pm.Normal("z", shape=12)
    pm.Normal("y", pm.Normal("a") + x @ b, pm.HalfNormal("s"), observed=y)


# -- components ------------------------------------------------------------------------------------


def empty_component(rng: Rng, *, easier: bool) -> None:
    """Shares of four components of known means, of which one has no rows."""
    y = rng.choice([-4.0, 0.0, 4.0], size=N, p=[0.2, 0.5, 0.3]) + rng.normal(0, 0.8, size=N)
    if easier:  # the last share is beta(.2, .6), and its fifth root has nearly a constant density
        root, others = pm.Uniform("root"), pm.Dirichlet("others", np.full(3, 0.2))
        pm.Potential("last", -0.4 * pt.log1p(-(root**5)))
        shares = pt.concatenate([others * (1 - root**5), root[None] ** 5])
        w = pm.Deterministic("w", shares)
    else:
        w = pm.Dirichlet("w", np.full(4, 0.2))
    pm.NormalMixture("y", w, [-4.0, 0.0, 4.0, 12.0], pm.HalfNormal("s"), observed=y)
