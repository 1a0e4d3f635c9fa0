"""Tables of rows in groups, and the regressions of them that `benchmarks.groups` measures."""

from dataclasses import dataclass

import numpy as np
import pymc as pm

__all__ = ["CASES", "Case", "model_of"]

type Array = np.ndarray

N_SLOPES = 4
DISPERSION = 2.0  # of negative binomial counts


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table of rows in groups, and how they are modelled."""

    name: str
    n_groups: int
    n_rows: int
    likelihood: str = "logistic"
    uneven: bool = False
    slopes: bool = False
    centred: bool = True


CASES = {
    "a": Case(name="200 groups", n_groups=200, n_rows=100_000),
    "b": Case(name="2 000 groups", n_groups=2_000, n_rows=300_000),
    "c": Case(name="2 to 20 000 rows a group", n_groups=2_000, n_rows=150_000, uneven=True),
    "d": Case(name="intercepts and slopes", n_groups=1_000, n_rows=150_000, slopes=True),
    "e": Case(name="Poisson", n_groups=500, n_rows=50_000, likelihood="Poisson"),
    "f": Case(name="negative binomial", n_groups=500, n_rows=50_000, likelihood="negative"),
    "g": Case(
        name="intercepts and slopes, not centred",
        n_groups=500,
        n_rows=50_000,
        slopes=True,
        centred=False,
    ),
    "h": Case(name="10 000 groups", n_groups=10_000, n_rows=1_000_000),
    "i": Case(name="1 000 groups", n_groups=1_000, n_rows=100_000),
    "j": Case(name="2 000 groups, 10^6 rows", n_groups=2_000, n_rows=1_000_000),
}


def sizes_of(case: Case, rng: np.random.Generator) -> Array:
    """Return how many rows each group has; many of the small ones are of one class."""
    if not case.uneven:
        return np.full(case.n_groups, case.n_rows // case.n_groups)
    shares = rng.pareto(0.9, case.n_groups) + 0.02
    return np.maximum(2, np.minimum(case.n_rows * shares / shares.sum(), 20_000)).astype(int)


def model_of(case: Case, rng: np.random.Generator) -> pm.Model:
    """Draw data, and return the model of them."""
    sizes = sizes_of(case, rng)
    group = rng.permutation(np.repeat(np.arange(case.n_groups), sizes))
    x = rng.normal(size=(len(group), N_SLOPES))
    eta = x @ rng.normal(0, 0.5, N_SLOPES) + rng.normal(-0.5, 0.7, case.n_groups)[group]
    if case.slopes:
        eta += rng.normal(0, 0.4, case.n_groups)[group] * x[:, 0]
    with pm.Model(coords={"group": np.arange(case.n_groups)}) as model:
        mean, sd = pm.Normal("mean", 0, 2), pm.HalfNormal("sd", 1)
        intercept = effect("intercept", mean, sd, centred=case.centred)
        predictor = x @ pm.Normal("slopes", 0, 1, shape=N_SLOPES) + intercept[group]
        if case.slopes:
            own = effect("own_slope", 0, pm.HalfNormal("sd_slope", 1), centred=case.centred)
            predictor = predictor + own[group] * x[:, 0]
        observe(case.likelihood, predictor, eta, rng)
    return model


def effect(name: str, mean: pm.Distribution, sd: pm.Distribution, *, centred: bool) -> pm.Model:
    """Add an effect of each group to the model."""
    if centred:
        return pm.Normal(name, mean, sd, dims="group")
    return mean + sd * pm.Normal(f"{name}_standard", dims="group")


def observe(
    likelihood: str, predictor: pm.Distribution, eta: Array, rng: np.random.Generator
) -> None:
    """Add outcomes to the model, drawn where the linear predictor is `eta`."""
    if likelihood == "logistic":
        pm.Bernoulli("y", logit_p=predictor, observed=rng.binomial(1, 1 / (1 + np.exp(-eta))))
    elif likelihood == "Poisson":
        pm.Poisson("y", pm.math.exp(predictor), observed=rng.poisson(np.exp(eta)))
    else:
        y = rng.negative_binomial(DISPERSION, DISPERSION / (DISPERSION + np.exp(eta)))
        dispersion = pm.Gamma("dispersion", 2, 1)
        pm.NegativeBinomial("y", mu=pm.math.exp(predictor), alpha=dispersion, observed=y)
