"""The sixty posteriors of ``python -m benchmarks.trust``, of which 24 are harmless."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.integrate import quad_vec
from scipy.optimize import brentq
from scipy.special import expit, ndtr
from scipy.stats import beta, cauchy, gamma, norm

from benchmarks import reliability_models, trust_models, trust_modes, trust_units, verdicts
from benchmarks.parameter_models import mean_and_scale
from benchmarks.trust_grids import Known
from benchmarks.trust_models import ALONE, Array, N, Rng

__all__ = ["POSTERIORS", "Posterior"]

DATA_SEED = 1

type Make = Callable[[bool], pm.Model]
type Quantiles = Callable[[Array], Array]


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """A model of simulated data, and how the truth about its posterior is found.

    ``make(easier)`` returns the model, or another form of it that is easier for NUTS.  ``exact()``
    has the quantiles of variables, or of components of them, of which the distribution is known;
    NUTS on all rows returns those of the rest, with so many draws of each chain and such small
    steps.  Of a variable in ``levels``, only these components are judged.
    """

    make: Make
    harmless: bool = False
    exact: Callable[[], Mapping[str, Quantiles]] = dict
    levels: Mapping[str, Sequence[int]] = field(default_factory=dict)
    draws: int = 5_000
    target_accept: float = 0.9

    def model(self) -> pm.Model:
        """Return the model, always of the same data."""
        return self.make(False)  # noqa: FBT003


def rng() -> Rng:
    """Return the random numbers that the data come from."""
    return np.random.default_rng(DATA_SEED)


# -- closed forms ----------------------------------------------------------------------------------


def quantiles_of(cdf: Callable[[float], float]) -> Quantiles:
    """Return the quantiles of a distribution of a real number."""

    def quantiles(levels: Array) -> Array:
        def above(u: float, level: float) -> float:
            return cdf(u) - level

        return np.array([brentq(above, -1e4, 1e4, args=(level,), xtol=1e-10) for level in levels])

    return quantiles


def funnel_cdf(u: float) -> float:
    """Probability below u of a normal variable whose log-scale is normal with an sd of 1.5."""
    found, _ = quad_vec(lambda ls: norm.pdf(ls, 0, 1.5) * ndtr(u * np.exp(-ls)), -15, 15)
    return float(found)


def bimodal_cdf(u: float) -> float:
    return float(ndtr((u + 3) / 0.7) + ndtr((u - 3) / 0.7)) / 2


# -- harmless models that no other benchmark has ---------------------------------------------------


def varying_slopes(rng: Rng, n: int) -> None:
    """Fifteen groups with intercepts and slopes of their own, and plenty of rows."""
    group, x = rng.integers(0, 15, n), rng.normal(size=n)
    a, b = (
        pm.Normal(name, pm.Normal(f"{name}_mean"), pm.HalfNormal(f"{name}_sd"), shape=15)
        for name in ("a", "b")
    )
    truth = rng.normal(0, 0.8, size=15)[group] + rng.normal(0.5, 0.5, size=15)[group] * x
    y = rng.normal(truth, 0.6)
    pm.Normal("y", a[group] + b[group] * x, pm.HalfNormal("s"), observed=y)


def excess_zeros(rng: Rng, n: int) -> None:
    """Counts, three in ten of which are zero for another reason."""
    _, truth, eta = reliability_models.regression(rng, n, 4, 0.5)
    y = rng.poisson(np.exp(1 + truth)) * rng.binomial(1, 0.7, size=n)
    pm.ZeroInflatedPoisson("y", psi=pm.Beta("psi", 1, 1), mu=pt.exp(eta), observed=y)


def trials(rng: Rng, n: int) -> None:
    """Ten trials for each row."""
    _, truth, eta = reliability_models.regression(rng, n, 8)
    pm.Binomial("y", n=10, logit_p=eta, observed=rng.binomial(10, expit(truth)))


# -- all -------------------------------------------------------------------------------------------


def _harmless(build: Callable[..., None], *sizes: int, draws: int = 2_000) -> Posterior:
    def make(_easier: bool) -> pm.Model:  # noqa: FBT001
        with pm.Model() as model:
            build(rng(), N, *sizes)
        return model

    return Posterior(make=make, harmless=True, draws=draws)


def _hard(build: Callable[..., None], **options: Any) -> Posterior:  # noqa: ANN401
    def make(easier: bool) -> pm.Model:  # noqa: FBT001
        with pm.Model() as model:
            build(rng(), easier=easier)
        return model

    return Posterior(make=make, **options)


def _known(write: Callable[[Rng], Known], **options: Any) -> Posterior:  # noqa: ANN401
    def make(_easier: bool) -> pm.Model:  # noqa: FBT001
        with pm.Model() as model:
            write(rng()).build()
        return model

    return Posterior(make=make, exact=lambda: write(rng()).truth(), **options)


_SIMPLE: dict[str, Posterior] = {
    "logistic, D = 4": _harmless(reliability_models.logistic(3)),
    "logistic, D = 13": _harmless(reliability_models.logistic(12)),
    "logistic, D = 41": _harmless(reliability_models.logistic(40)),
    "poisson, D = 7": _harmless(reliability_models.poisson),
    "poisson, D = 31": _harmless(verdicts.poisson, 30),
    "negative binomial": _harmless(reliability_models.negative_binomial),
    "gamma": _harmless(reliability_models.gamma),
    "linear, D = 12": _harmless(reliability_models.linear),
    "linear, D = 60": _harmless(verdicts.normal, 58),
    "mean and log-scale": _harmless(mean_and_scale, 12),
    "student, heavy tails": _harmless(reliability_models.robust),
    "mixture, ordered": _harmless(reliability_models.mixture),
    "weibull": _harmless(reliability_models.weibull),
    "ordered logistic": _harmless(reliability_models.ordered_logistic),
    "three categories": _harmless(reliability_models.categories),
    "binomial": _harmless(trials),
    "excess zeros": _harmless(excess_zeros),
    "groups, centred": _harmless(reliability_models.groups(20, centred=True, spread=1.0)),
    "varying slopes": _harmless(varying_slopes),
    "crossed effects": _harmless(reliability_models.crossed, draws=10_000),
}

_HARD: dict[str, Posterior] = {
    "negative binomial, nearly poisson": _hard(trust_models.like_poisson, draws=10_000),
    "negative binomial, rows of zeros": _hard(trust_models.zero_rows),
    "student on normal data, D = 3": _hard(
        partial(trust_models.normal_by_student, columns=0), draws=25_000
    ),
    "student on normal data, D = 29": _hard(partial(trust_models.normal_by_student, columns=26)),
    "funnel without data": _hard(
        ALONE["funnel"], exact=lambda: {"ls": norm(0, 1.5).ppf, "u": quantiles_of(funnel_cdf)}
    ),
    "funnel with data": _hard(
        trust_models.groups_that_hardly_differ, draws=10_000, target_accept=0.98
    ),
    "cauchy": _hard(ALONE["cauchy"], exact=lambda: {"u": cauchy.ppf}),
    "beta(.3, .3)": _hard(ALONE["beta"], exact=lambda: {"u": beta(0.3, 0.3).ppf}),
    "gamma(.2)": _hard(ALONE["gamma"], exact=lambda: {"u": gamma(0.2).ppf}),
    "bimodal prior": _hard(ALONE["bimodal"], exact=lambda: {"u": quantiles_of(bimodal_cdf)}),
    "two clusters in a group": _hard(trust_models.two_clusters),
    "two signs": _hard(trust_models.two_signs),
    "two scales": _hard(trust_models.two_scales, draws=10_000),
    "weighted rows, (1|g)": Posterior(
        make=lambda _: trust_models.weighted_groups(rng()), draws=25_000
    ),
    "few groups": _hard(trust_models.few_groups, draws=10_000),
    "bounded slopes": _hard(trust_models.bounded_slopes),
    "separated columns": _hard(trust_models.separated_columns),
    "simplex, empty component": _hard(trust_models.empty_component),
    "excess zeros, none": _hard(trust_models.sure_counts),
    "horseshoe": _hard(trust_models.horseshoe, target_accept=0.99),
}

_MODES: dict[str, Posterior] = {
    "four exchangeable means": _hard(
        partial(trust_modes.exchangeable_means, n_means=4, n=N), draws=10_000
    ),
    "five exchangeable means": _hard(
        partial(trust_modes.exchangeable_means, n_means=5, n=400), draws=10_000
    ),
    "phase, many periods": _known(trust_modes.phase),
    "signs of four squares": _hard(trust_modes.squares),
    "two clusters, flat prior": _known(partial(trust_modes.distant_clusters, proper=False)),
    "two clusters, wide prior": _known(partial(trust_modes.distant_clusters, proper=True)),
}

_LEVELS: dict[str, Posterior] = {
    "levels and neighbours": _known(trust_units.neighbours),
    "levels by their parents": _known(trust_units.children),
    "levels in another order": _known(trust_units.other_order),
    "levels, shifted readings": _known(trust_units.shifted_readings),
    "levels, a phase each": _known(trust_units.phases),
    "levels without rows": _known(trust_units.without_rows, harmless=True),
    "levels that hardly differ": _known(trust_units.no_variation, harmless=True),
    "levels far apart": _known(trust_units.wide_levels, harmless=True),
    "levels, excess zeros": _known(trust_units.zero_inflated, harmless=True),
    "levels, student(2)": _known(trust_units.student_effects),
    "levels, rates of gamma(.3)": _known(trust_units.rates),
    "levels, correlation of .99": _known(trust_units.correlated),
    "levels, a class of few members": _known(trust_units.few_members, levels={"own": ()}),
    "levels and a horseshoe": _hard(
        trust_units.horseshoe_and_levels,
        target_accept=0.99,
        levels={"effect": trust_units.JUDGED},
    ),
}

#: Every posterior, by name.
POSTERIORS: dict[str, Posterior] = _SIMPLE | _HARD | _MODES | _LEVELS
